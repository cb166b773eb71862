//! Figures of the tier.

use std::sync::atomic::{AtomicU64, Ordering};

use foregate_io::Engine;

/// Figures of one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The engine for reads of stored contents.
    pub engine: Engine,
    /// Bytes on the disk.
    pub bytes: u64,
    /// The limit in bytes.
    pub limit: u64,
    /// Objects, and lists of selecting fields.
    pub entries: usize,
    /// Segments.
    pub segments: usize,
    /// Objects in files of their own.
    pub files: usize,
    /// Bytes of memory for the index and the evicted keys that are remembered.
    pub memory: usize,
    /// Lookups that found an object.
    pub hits: u64,
    /// Lookups that found no object.
    pub misses: u64,
    /// Objects that were written. Objects that were moved within the store are not counted.
    pub stored: u64,
    /// Bytes that were written, including moved objects.
    pub written: u64,
    /// Objects that were hit and written again when their segment was reclaimed.
    pub moved: u64,
    /// Objects that were evicted to make room.
    pub evicted: u64,
    /// Objects that were not written, because the queue or the file system was full, or the disk was off.
    pub dropped: u64,
    /// Calls of the operating system that failed.
    pub errors: u64,
    /// Records and files that failed a check.
    pub corrupt: u64,
    /// Operations that were given up since the disk was too slow.
    pub busy: u64,
    /// Files of other stores and versions that were removed at the start.
    pub foreign: u64,
    /// `true` while the contents of the previous process are still being read.
    pub recovering: bool,
    /// `true` while the directory is off because of failures.
    pub off: bool,
    /// The longest wait for the engine, in microseconds.
    pub longest_wait: u64,
}

/// The counters from which the figures come.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) foreign: AtomicU64,
    pub(crate) files: AtomicU64,
    /// Bytes of memory for the keys of evicted objects, as of the last time when the figures were read.
    pub(crate) ghosts: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
