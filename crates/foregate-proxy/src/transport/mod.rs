//! The transport of bytes below HTTP: sockets and TLS, buffers, HTTP/2 frames and floods of them, and the
//! progress of peers.

pub mod buffer;
pub mod frames;
pub mod meter;
pub mod outcome;
pub mod progress;
pub mod socket;
pub mod stream;
