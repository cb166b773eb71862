//! The system calls that no safe crate offers.
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
    if result < 0 { Err(last_error()) } else { Ok(pages.cached) }
}

/// Appends at most `length` bytes of a file to a buffer, without waiting for the disk: preadv2(2) with `RWF_NOWAIT`. `rustix` asks for a buffer
/// that was written before, which costs a quarter of what the read itself does.
pub(crate) fn read_now(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    offset: u64,
    length: usize,
) -> Result<usize, Errno> {
    buffer.reserve_exact(length);
    let room = buffer.spare_capacity_mut();
    let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len().min(length) };
    // The halves of the offset; where a word holds all of it, the kernel ignores the second.
    let (low, high) = (offset as libc::c_ulong, (offset >> 32) as libc::c_ulong);
    // SAFETY: the descriptor is borrowed for the call; the kernel reads one `iovec`, and writes at most its length to the room behind the
    // buffer's bytes, which nobody else refers to. Both outlive the call.
    let read = unsafe {
        libc::syscall(libc::SYS_preadv2, file.as_raw_fd(), &raw const part, 1, low, high, libc::RWF_NOWAIT)
    };
    let Ok(read) = usize::try_from(read) else { return Err(last_error()) };
    // SAFETY: the kernel has written so many bytes there, no more than there is room for.
    unsafe { buffer.set_len(buffer.len() + read.min(part.iov_len)) };
    Ok(read)
}

/// The error of the last call.
fn last_error() -> Errno {
    // SAFETY: the C library keeps the error number of this thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn bytes_are_read_behind_those_that_are_there() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = b"x".to_vec();
        // Not all file systems can.
        match read_now(file.as_fd(), &mut buffer, 2, 3) {
            Ok(read) => {
                assert_eq!((read, &*buffer), (3, &b"x234"[..]));
                assert_eq!(read_now(file.as_fd(), &mut buffer, 8, 100), Ok(2), "up to the end");
                assert_eq!(read_now(file.as_fd(), &mut buffer, 10, 100), Ok(0));
                assert_eq!(buffer, b"x23489");
            }
            Err(error) => assert!(matches!(error, Errno::OPNOTSUPP | Errno::AGAIN), "{error}"),
        }
    }
}
