//! Foregate's modules inside NGINX.
//!
//! The steps of the modules run unchanged in a dynamic module of NGINX. A directive names a file with the keys of a
//! route. The module has two halves. The C half, in the folder `module`, is compiled by NGINX's own build against the
//! headers of the NGINX that will load it. Only this half touches NGINX's structures. The other half is this crate, a
//! static library that the C half links: it reads route files, runs the steps, and moves bodies through their
//! filters. Between the halves is a narrow interface of pointers, numbers and texts (`module/foregate.h`, [`abi`] and
//! [`ffi`]).
//!
//! Rust bindings to NGINX would not do. Those of `nginx-sys` are made by `bindgen`, which needs libclang. They also
//! fit only one build of NGINX, because its structures differ by version and by the options of `configure`. The C
//! compiler reads the headers of the very build, so the C half always agrees with NGINX.
#![deny(unsafe_code)]

pub mod abi;
mod body;
mod border;
mod exchange;
mod fetch;
pub mod ffi;
mod heavy;
pub mod modules;
mod platform;
#[cfg(feature = "probe")]
mod probe;
mod random;
mod request;
mod route;
mod run;
mod share;
mod target;

// A fast allocator, because rewriting a page makes thousands of small strings. NGINX itself still uses its pools and
// the C library's allocator.
#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
