//! The same modules inside NGINX.
//!
//! The steps of Foregate's modules run unchanged in a dynamic module of NGINX, configured by a directive that names a
//! file with the keys of a route. The module has two halves. One is written in C, in the folder `module`: it is compiled
//! by NGINX's own build against the headers of the NGINX that will load it, and is the only one that touches NGINX's
//! structures. The other is this crate, an archive that the first links in: it reads route files, runs the steps, and
//! moves bodies through their filters. Between them is a narrow interface of pointers, numbers and texts
//! (`module/foregate.h`, [`abi`] and [`ffi`]).
//!
//! Why not bindings: those of `nginx-sys` are made by `bindgen`, which needs libclang, and they fit one build of
//! NGINX, whose structures differ by version and by options of `configure`. The C compiler reads the headers
//! themselves, so the two cannot disagree.
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

// Rewriting a page makes thousands of small strings. NGINX's own memory stays with its pools and the C library.
#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
