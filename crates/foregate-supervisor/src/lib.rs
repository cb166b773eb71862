//! The supervisor: the process that holds the listening sockets, starts the processes that serve,
//! and judges new versions.
//!
//! The supervisor is the same program in another role, with one thread, without TLS and without a
//! configuration. It is the service manager's main process and the last to end. A process that
//! serves is a *generation*. Usually one generation serves new connections. During a trial there are two:
//! the old one accepts all connections and passes a share of them, unread, to the new one. Earlier generations
//! only serve their open connections to the end ("draining").
#![forbid(unsafe_code)]

mod binary;
pub mod channel;
pub mod client;
mod control;
mod diagnosis;
pub mod exposition;
mod gate;
mod generation;
mod notify;
pub mod protocol;
mod questions;
mod rendezvous;
mod sharing;
mod state;
mod succession;
mod supervisor;
mod trial;

pub use self::generation::{SERVING_VARIABLE, descriptors_of, memory_of};
pub use self::notify::notify;
pub use self::supervisor::{ADOPTING_VARIABLE, Options, ReplacementCalls, run};
