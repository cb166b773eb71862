//! The system call that no safe crate offers.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The number of `cachestat`, the same on all architectures that have it.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The number of pages of a part of a file that are in memory (cachestat(2), Linux 6.5).
pub(crate) fn cached_pages(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<u64, Errno> {
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: the descriptor is borrowed for the call; the kernel reads one `Range` and writes one `Pages`, which have the layout of its
    // structures and outlive the call.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result < 0 {
        // SAFETY: the C library keeps the error number of this thread.
        let code = unsafe { *libc::__errno_location() };
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(pages.cached)
}
