//! The sizes of buffers for bytes of peers. [Pressure](super::pressure) allows the larger ones only while there is memory.

/// The size of a connection's first buffer. Most heads fit into it, and a peer that sends only half a head
/// takes no more memory than this.
pub const FIRST: usize = 4 * 1024;
/// The usual size of a buffer for bodies.
pub const SMALL: usize = 16 * 1024;
/// The size of a buffer once a peer has shown that it sends faster than that.
pub const LARGE: usize = 64 * 1024;
