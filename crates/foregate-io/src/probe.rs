//! The probe for io_uring, and the choice of the engine by its result.

use std::io;
use std::sync::OnceLock;

use crate::engine::{Engine, EngineChoice};
use crate::sys::Ring;

impl EngineChoice {
    /// The engine that this process uses for this choice.
    ///
    /// # Errors
    /// The choice requires a ring, but the kernel refuses it.
    pub fn engine(self) -> io::Result<Engine> {
        match (self, io_uring()) {
            (Self::Threads, _) | (Self::Auto, Err(_)) => Ok(Engine::Threads),
            (_, Ok(())) => Ok(Engine::IoUring),
            (Self::IoUring, Err(error)) => Err(error),
        }
    }
}

/// Checks that the kernel permits this process a ring with all functions that the engine needs. The kernel is asked
/// once; later calls return the same result.
///
/// # Errors
/// The reason: a container, a filter of system calls or `kernel.io_uring_disabled` forbids it, or
/// the kernel is older than Linux 6.1.
pub fn io_uring() -> io::Result<()> {
    static TRIED: OnceLock<Option<i32>> = OnceLock::new();
    let refused = TRIED.get_or_init(|| match Ring::new(1).and_then(|mut ring| ring.works()) {
        Ok(true) => None,
        Ok(false) => Some(rustix::io::Errno::TIMEDOUT.raw_os_error()),
        Err(error) => Some(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())),
    });
    refused.map_or(Ok(()), |code| {
        let error = io::Error::from_raw_os_error(code);
        Err(io::Error::new(error.kind(), format!("the kernel refuses io_uring: {error}")))
    })
}
