//! Counters of a directory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a directory and its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Opens and reads that the calling thread answered from memory.
    pub inline: u64,
    /// Operations that threads of the pool performed.
    pub performed: u64,
    /// Operations that found no thread in time.
    pub busy: u64,
    /// Operations that failed for another reason than a missing file.
    pub errors: u64,
    /// Nanoseconds that operations waited for a thread, all together.
    pub waited: u64,
    /// The longest wait for a thread, in nanoseconds.
    pub longest_wait: u64,
    /// Operations that wait for a thread now.
    pub queued: usize,
    /// Threads now.
    pub threads: usize,
    /// Operations on a thread now.
    pub running: usize,
}

/// Counters that the directory and its pool share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) inline: AtomicU64,
    pub(crate) performed: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) errors: AtomicU64,
    waited: AtomicU64,
    longest_wait: AtomicU64,
}

impl Counters {
    pub(crate) fn waited(&self, nanoseconds: u64) {
        self.waited.fetch_add(nanoseconds, Ordering::Relaxed);
        self.longest_wait.fetch_max(nanoseconds, Ordering::Relaxed);
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
