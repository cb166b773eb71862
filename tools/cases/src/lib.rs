//! Text cases: a scripted origin, the proxy, a scripted client, in some thirty lines each.
//!
//! The format is described in `tests/cases/README.md`. The way of a case through this crate: [`parse`]
//! reads its text into a [`case::Case`]; [`run`] makes ports, certificates and the configuration, starts
//! the proxy ([`process`]) and one thread per script ([`script`]); the first fault becomes the report.
//!
//! Scripts are plain threads on blocking sockets with deadlines: a case reads from top to bottom, and so
//! does the code that runs it.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "no request waits here: scripts are threads of their own, and sleeping is what a slow peer does"
)]
#![allow(clippy::print_stderr, reason = "the runner reports on standard error")]

pub mod case;
pub mod certificates;
pub mod dns;
mod expects;
pub mod http1;
pub mod http2;
pub mod parse;
pub mod ports;
pub mod process;
mod proxy_steps;
mod receive;
pub mod run;
pub mod script;
pub mod shared;
pub mod steps;
pub mod text;
pub mod tls;
pub mod wire;
pub mod words;
mod write;
