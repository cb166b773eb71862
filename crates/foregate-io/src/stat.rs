//! Counters of a directory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Figures of a directory and its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The engine for reads and writes of open files.
    pub engine: Engine,
    /// Opens and reads that the calling thread answered from memory.
    pub inline: u64,
    /// Operations that threads of the pool or the ring performed.
    pub performed: u64,
    /// Operations that found no thread or no place in the ring in time.
    pub busy: u64,
    /// Operations that failed for another reason than a missing file.
    pub errors: u64,
    /// Nanoseconds that operations waited for their turn, all together.
    pub waited: u64,
    /// The longest wait of an operation for its turn, in nanoseconds.
    pub longest_wait: u64,
    /// Operations that wait for their turn now.
    pub queued: usize,
    /// Threads now.
    pub threads: usize,
    /// Operations under way now, on a thread or in the ring.
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
