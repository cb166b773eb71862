//! How many descriptors sockets of clients and origins and temporary files use, so that some are left for everything else.
//!
//! Whoever is about to open something takes a place for it first: a thousand connects that are under way at once must not
//! all have found the last descriptor free.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors that connections and temporary files leave for health checks, admin, metrics, logs and configuration files.
pub const RESERVE: usize = 64;
/// The part of the others that connections to origins leave to clients: a site whose origins are stuck must not keep those of
/// others out.
const NOT_FOR_ORIGINS: usize = 8;
/// The part that temporary files leave for connections: without these nothing would move on that a file waits for.
const NOT_FOR_FILES: usize = 4;

static USED: AtomicUsize = AtomicUsize::new(0);
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Tells how many descriptors the process may have in all.
pub fn set_limit(descriptors: usize) {
    ALLOWED.store(descriptors.saturating_sub(RESERVE).max(1), Ordering::Relaxed);
}

/// Whether connections use all that they may.
pub fn are_scarce() -> bool {
    USED.load(Ordering::Relaxed) >= ALLOWED.load(Ordering::Relaxed)
}

/// The place of one descriptor. It moves into what has the descriptor, and counts until that is dropped.
#[derive(Debug)]
pub struct Used(());

impl Used {
    /// Counts a connection that is there already.
    pub fn new() -> Self {
        USED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// A place for a connection to an origin, unless there is none left.
    pub fn take_for_origin() -> Option<Self> {
        Self::take_beside(NOT_FOR_ORIGINS)
    }

    /// A place for a temporary file.
    pub fn take_for_file() -> Option<Self> {
        Self::take_beside(NOT_FOR_FILES)
    }

    fn take_beside(part: usize) -> Option<Self> {
        let allowed = ALLOWED.load(Ordering::Relaxed);
        let limit = allowed - allowed / part;
        let more = |used: usize| (used < limit).then(|| used + 1);
        USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(()))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
    }
}
