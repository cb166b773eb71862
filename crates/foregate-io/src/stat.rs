//! Counters of a directory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Counters of a directory and its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The engine for reads and writes of open files.
    pub engine: Engine,
    /// The number of opens and reads that the calling thread performed from memory.
    pub inline: u64,
    /// The number of operations that the pool or the ring performed.
    pub performed: u64,
    /// The number of operations that failed because no thread or no place in the ring was free in time.
    pub busy: u64,
    /// The number of operations that failed for another reason than a missing file.
    pub errors: u64,
    /// The total time that operations waited for their turn, nanoseconds.
    pub waited: u64,
    /// The longest wait of an operation for its turn, in nanoseconds.
    pub longest_wait: u64,
    /// The number of operations that wait for their turn now.
    pub queued: usize,
    /// The number of threads now.
    pub threads: usize,
    /// The number of operations that run now, on a thread or in the ring.
    pub running: usize,
}

/// Counters that the directory and its pool share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) inline: AtomicU64,
    pub(crate) performed: AtomicU64,
    busy: AtomicU64,
    errors: AtomicU64,
    waited: AtomicU64,
    longest_wait: AtomicU64,
}

impl Counters {
    pub(crate) fn waited(&self, nanoseconds: u64) {
        self.waited.fetch_add(nanoseconds, Ordering::Relaxed);
        self.longest_wait.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// Counts an operation by its result.
    pub(crate) fn count<T>(&self, result: &Result<T>) {
        match result {
            Ok(_) => {}
            Err(Error::Busy) => {
                self.busy.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.is_not_found() => {}
            Err(Error::Io(_)) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        Stat {
            inline: self.inline.load(Ordering::Relaxed),
            performed: self.performed.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            waited: self.waited.load(Ordering::Relaxed),
            longest_wait: self.longest_wait.load(Ordering::Relaxed),
            ..Stat::default()
        }
    }
}
