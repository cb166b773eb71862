//! A read or write of an open file, performed by a thread of the pool or by the ring.

use std::sync::Arc;

use rustix::io::Errno;

use crate::blocking::Fast;
use crate::error::{Error, Result};
use crate::faults::{Call, Fault};
use crate::file::RawFile;
use crate::operation::Slot;
use crate::stat::Counters;

/// How often a call is repeated that was interrupted or would have to wait.
const REPEATS: u32 = 1000;

/// A read or write that is being performed. It owns the buffer, so it does not depend on the caller's future.
pub(crate) struct Transfer {
    file: Arc<RawFile>,
    offset: u64,
    data: Data,
    counters: Arc<Counters>,
    /// True if the next call has to be one that may wait for a disk: the file system ignores or has refused a request not
    /// to wait.
    may_wait: bool,
    repeats: u32,
    /// The place in [`Running`](crate::running::Running).
    pub(crate) place: usize,
}

/// The buffer of a transfer, and the slot for the result.
pub(crate) enum Data {
    /// A read of `length` bytes. The buffer holds the bytes read so far.
    Read { buffer: Vec<u8>, length: usize, slot: Arc<Slot<Vec<u8>>> },
    /// A write, and the number of bytes written so far.
    Write { bytes: Box<dyn AsRef<[u8]> + Send>, written: usize, slot: Arc<Slot<()>> },
}

/// The state of a transfer after a call.
pub(crate) enum Progress {
    /// A further call is needed.
    Again(Transfer),
    /// The result has been passed to the caller. This place in the list of running operations is free.
    Answered(usize),
}

impl Transfer {
    pub(crate) fn new(
        file: &Arc<RawFile>,
        offset: u64,
        data: Data,
        counters: &Arc<Counters>,
        fast: Fast,
    ) -> Self {
        let (file, counters) = (Arc::clone(file), Arc::clone(counters));
        Self { file, offset, data, counters, may_wait: fast != Fast::Pages, repeats: 0, place: 0 }
    }

    pub(crate) fn file(&self) -> &RawFile {
        &self.file
    }

    pub(crate) fn data_mut(&mut self) -> &mut Data {
        &mut self.data
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// The offset in the file at which the next call reads or writes.
    pub(crate) fn position(&self) -> u64 {
        let done = match &self.data {
            Data::Read { buffer, .. } => buffer.len(),
            Data::Write { written, .. } => *written,
        };
        self.offset.saturating_add(done as u64)
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        let call = match &self.data {
            Data::Read { .. } => Call::Read,
            Data::Write { .. } => Call::Write,
        };
        self.file.faults().and_then(|faults| faults.fault(call))
    }

    /// Handles the result of a call. The transfer is answered when all bytes are done, at the end of the file, or after an
    /// error.
    pub(crate) fn after(mut self, result: std::result::Result<usize, Errno>) -> Progress {
        let is_done = match (&self.data, result) {
            (Data::Read { .. }, Ok(0)) => true,
            (Data::Read { buffer, length, .. }, Ok(_)) => buffer.len() >= *length,
            (Data::Write { bytes, written, .. }, Ok(length)) => {
                let is_done = *written >= (**bytes).as_ref().len();
                if length == 0 && !is_done {
                    return self.answer(Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()));
                }
                is_done
            }
            (_, Err(Errno::INTR | Errno::AGAIN)) if self.repeats < REPEATS => {
                self.repeats += 1;
                // The ring first tries each operation without waiting. For files with certain flags, the kernel then reports EAGAIN
                // instead of waiting.
                self.may_wait |= result == Err(Errno::AGAIN);
                false
            }
            (_, Err(error)) => return self.answer(Err(error.into())),
        };
        if is_done { self.answer(Ok(())) } else { Progress::Again(self) }
    }

    /// Passes the result to the caller.
    pub(crate) fn answer(self, result: Result<()>) -> Progress {
        self.counters.count(&result);
        match self.data {
            Data::Read { buffer, slot, .. } => slot.complete(result.map(|()| buffer)),
            Data::Write { slot, .. } => slot.complete(result),
        }
        Progress::Answered(self.place)
    }

    /// Performs the transfer on the calling thread. If `has_thread` is false, no thread was free, and the result is
    /// [`Error::Busy`].
    pub(crate) fn perform(mut self, has_thread: bool) {
        let result = match &mut self.data {
            _ if !has_thread => Err(Error::Busy),
            Data::Read { buffer, length, .. } => {
                buffer.resize(*length, 0);
                self.file.read_at(buffer, self.offset).map(|read| buffer.truncate(read)).map_err(Error::Io)
            }
            Data::Write { bytes, .. } => {
                self.file.write_at((**bytes).as_ref(), self.offset).map_err(Error::Io)
            }
        };
        self.answer(result);
    }
}
