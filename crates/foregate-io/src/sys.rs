//! System calls for which no crate has a safe interface.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::transfer::{Data, Transfer};

/// The number of the system call `cachestat`, which is the same on all architectures.
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

/// Returns the number of pages in a range of a file that are in memory (cachestat(2), Linux 6.5).
pub(crate) fn cached_pages(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<u64, Errno> {
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: the descriptor is borrowed for the call; the kernel reads one `Range` and writes one `Pages`, which have the layout of its
    // structures and outlive the call.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result < 0 { Err(last_error()) } else { Ok(pages.cached) }
}

/// Appends at most `length` bytes of a file to a buffer, without waiting for the disk: preadv2(2) with `RWF_NOWAIT`.
/// `rustix` is not used here, because it needs an initialised buffer, which would cost noticeable time.
pub(crate) fn read_now(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    offset: u64,
    length: usize,
) -> Result<usize, Errno> {
    buffer.reserve_exact(length);
    let room = buffer.spare_capacity_mut();
    let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len().min(length) };
    // The two halves of the offset. If a word can hold the whole offset, the kernel ignores the second half.
    let (low, high) = (offset as libc::c_ulong, (offset >> 32) as libc::c_ulong);
    // SAFETY: the descriptor is borrowed for the call; the kernel reads one `iovec`, and writes at most its length to the room behind the
    // buffer's bytes, which nobody else refers to. Both outlive the call.
    let read = unsafe {
        libc::syscall(libc::SYS_preadv2, file.as_raw_fd(), &raw const part, 1, low, high, libc::RWF_NOWAIT)
    };
    let Ok(read) = usize::try_from(read) else { return Err(last_error()) };
    // SAFETY: the kernel has written `read` bytes after those of the buffer, no more than there was room for.
    unsafe { buffer.set_len(buffer.len() + read.min(part.iov_len)) };
    Ok(read)
}

/// The token of the read that wakes the thread of a ring. The tokens of transfers are indices, and far smaller.
const WAKE: u64 = u64::MAX;
/// The most bytes of one operation of a ring. The limit keeps a long transfer from monopolising the device.
const PART: usize = 1 << 20;

/// Operations with more bytes than this go to a thread of the kernel at once. Otherwise each page that arrives from the
/// disk would wake the thread of the ring.
const LONG: usize = 16 * 1024;

/// A ring for reads and writes of open files (io_uring(7), Linux 6.1). It belongs to the thread that made it, and owns each transfer until
/// the kernel has completed it.
pub(crate) struct Ring {
    ring: IoUring,
    /// The transfers under way. The index of a transfer is the token that the kernel returns with its result.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    waker: Arc<OwnedFd>,
    /// The buffer for the read of the waker.
    woken: Box<u64>,
    /// True if the read of the waker is submitted and not complete.
    armed: bool,
}

/// A transfer that has been submitted to the kernel.
struct Flight {
    transfer: Transfer,
    operation: Underway,
}

/// The running operation of a transfer.
enum Underway {
    /// A read or write of at most this many bytes.
    Part(usize),
    /// A pause, for a fault. The kernel reads the time.
    Pause { _time: Box<types::Timespec> },
}

/// The result of an operation of a transfer.
pub(crate) enum Ended {
    /// A read or write. The transfer already includes these bytes.
    Part(Result<usize, Errno>),
    /// A pause.
    Pause,
}

impl Ring {
    /// Makes a ring for this many transfers at a time. The kernel may use as many threads for operations that wait for a
    /// disk.
    pub(crate) fn new(transfers: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_clamp()
            .build(transfers.saturating_add(1))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Timeout::CODE];
        if !needed.iter().all(|&code| probe.is_supported(code)) || !ring.params().is_feature_ext_arg() {
            return Err(Errno::OPNOTSUPP.into());
        }
        ring.submitter().register_iowq_max_workers(&mut [transfers, transfers])?;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let (flights, free, woken) = (Vec::new(), Vec::new(), Box::default());
        Ok(Self { ring, flights, free, waker: Arc::new(waker), woken, armed: false })
    }

    /// The event descriptor: a write to it ends [`Ring::wait`].
    pub(crate) fn waker(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.waker)
    }

    /// The number of transfers that the ring owns.
    pub(crate) fn len(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Adds a read or write of the next `most` bytes of a transfer. If the ring is full, returns the transfer as the error.
    pub(crate) fn add(&mut self, mut transfer: Transfer, most: usize) -> Result<(), Transfer> {
        let file = types::Fd(transfer.file().as_fd().as_raw_fd());
        let (most, offset) = (most.min(PART), transfer.position());
        let (entry, length) = match transfer.data_mut() {
            Data::Read { buffer, length, .. } => {
                let left = length.saturating_sub(buffer.len());
                buffer.reserve_exact(left);
                let room = buffer.spare_capacity_mut();
                let length = left.min(room.len()).min(most);
                (
                    opcode::Read::new(file, room.as_mut_ptr().cast(), length as u32).offset(offset).build(),
                    length,
                )
            }
            Data::Write { bytes, written, .. } => {
                let rest = (**bytes).as_ref().get(*written..).unwrap_or_default();
                let length = rest.len().min(most);
                (opcode::Write::new(file, rest.as_ptr(), length as u32).offset(offset).build(), length)
            }
        };
        let flags =
            if transfer.may_wait() || length > LONG { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        self.push(entry.flags(flags), Flight { transfer, operation: Underway::Part(length) })
    }

    /// Adds a pause to a transfer. If the ring is full, returns the transfer as the error.
    pub(crate) fn pause(&mut self, transfer: Transfer, time: Duration) -> Result<(), Transfer> {
        let time = Box::new(types::Timespec::from(time));
        let entry = opcode::Timeout::new(&raw const *time).build();
        self.push(entry, Flight { transfer, operation: Underway::Pause { _time: time } })
    }

    fn push(&mut self, entry: squeue::Entry, flight: Flight) -> Result<(), Transfer> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        let entry = entry.user_data(place as u64);
        // SAFETY: the file, the buffer and the time of the entry belong to the flight. The flight is not changed until the
        // kernel has completed the entry. If the flight moves, they keep their addresses, because they are on the heap. The
        // length is that of the buffer's free space, or of the bytes to write.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        let Some(slot) = self.flights.get_mut(place) else { return Err(flight.transfer) };
        if pushed.is_err() {
            self.free.push(place);
            return Err(flight.transfer);
        }
        *slot = Some(flight);
        Ok(())
    }

    /// Submits the added operations to the kernel. This call may wait for a disk, because some file systems look up the
    /// location of a file's content during it. Operations that the kernel refuses now are submitted by [`Ring::wait`].
    pub(crate) fn submit(&self) {
        let _ = self.ring.submit();
    }

    /// Waits until an operation is complete, the waker is written, or the time `most` is over. May return sooner.
    pub(crate) fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        if !self.armed {
            let (waker, woken) = (types::Fd(self.waker.as_raw_fd()), &raw mut *self.woken);
            let entry = opcode::Read::new(waker, woken.cast(), 8).build().user_data(WAKE);
            // SAFETY: the descriptor and the eight bytes belong to the ring, which is only dropped after the read, and nothing else
            // uses the bytes.
            self.armed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        }
        let time = most.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        if let Some(time) = &time {
            arguments = arguments.timespec(time);
        }
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The next transfer with a completed operation.
    pub(crate) fn next(&mut self) -> Option<(Transfer, Ended)> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == WAKE {
                self.armed = false;
                continue;
            }
            let place = usize::try_from(entry.user_data()).ok()?;
            let Some(Flight { mut transfer, operation }) = self.flights.get_mut(place)?.take() else {
                continue;
            };
            self.free.push(place);
            let Underway::Part(most) = operation else { return Some((transfer, Ended::Pause)) };
            let Ok(done) = usize::try_from(entry.result()) else {
                let error = Errno::from_raw_os_error(entry.result().saturating_neg());
                return Some((transfer, Ended::Part(Err(error))));
            };
            let done = done.min(most);
            match transfer.data_mut() {
                // SAFETY: the kernel has written `done` bytes after those of the buffer, no more than there was room for.
                Data::Read { buffer, .. } => unsafe { buffer.set_len(buffer.len() + done) },
                Data::Write { written, .. } => *written += done,
            }
            return Some((transfer, Ended::Part(Ok(done))));
        }
    }

    /// Tests the ring: returns true if a write to the waker arrives within a second.
    pub(crate) fn works(&mut self) -> io::Result<bool> {
        rustix::io::write(&self.waker, &1_u64.to_ne_bytes())?;
        self.wait(Some(Duration::from_secs(1)))?;
        while self.next().is_some() {}
        Ok(!self.armed)
    }
}

impl Drop for Ring {
    /// Waits for the submitted operations, because the kernel uses their buffers.
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
        while self.len() > 0 || self.armed {
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_passing(&error)) {
                // The kernel may still use the buffers, so they are leaked.
                std::mem::forget((std::mem::take(&mut self.flights), std::mem::take(&mut self.woken)));
                return;
            }
            while self.next().is_some() {}
        }
    }
}

/// Returns true if an error is temporary: the kernel may accept the submissions at the next attempt.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
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
