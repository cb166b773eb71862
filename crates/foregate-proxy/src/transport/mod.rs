//! Bytes of one peer, below HTTP: sockets and TLS, buffers, frames of HTTP/2 and their floods, and
//! the progress of a peer that reads.

pub mod buffer;
pub mod frames;
pub mod meter;
pub mod outcome;
pub mod progress;
pub mod socket;
pub mod stream;
