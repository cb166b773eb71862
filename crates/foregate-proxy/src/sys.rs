//! The calls into the system and the allocator that need unsafe code, and nothing else.
#![allow(unsafe_code)]

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first descriptor that a service manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;
/// More than anybody passes.
const MOST: usize = 1024;

/// The sockets that the process was started with: `LISTEN_FDS` of them, if `LISTEN_PID` is this process.
///
/// Call it once, before anything else opens descriptors: it takes them over.
pub fn inherited_sockets() -> Vec<OwnedFd> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    if number("LISTEN_PID") != usize::try_from(std::process::id()).ok() {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(MOST);
    (FIRST..)
        .take(count)
        .filter_map(|fd| {
            // SAFETY: by the protocol of sd_listen_fds(3) these descriptors are open and belong to this process
            // alone; the caller calls this once and first, so nothing else owns them.
            let owned = unsafe { OwnedFd::from_raw_fd(fd) };
            // Not for programs that this process might start.
            rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).ok().map(|()| owned)
        })
        .collect()
}

/// Has the allocator free the pages that this thread does not need any more.
///
/// The `foregate` binary allocates with mimalloc; in another program this does nothing.
pub fn collect_memory() {
    // SAFETY: mi_collect(3) has no preconditions; it looks only at what mimalloc holds for the calling thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
