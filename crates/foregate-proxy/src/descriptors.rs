//! How many descriptors sockets of clients and origins use, so that some are left for everything else.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors that connections leave for health checks, admin, logs and files.
pub const RESERVE: usize = 64;

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

/// One descriptor in use by a connection.
#[derive(Debug)]
pub struct Used(());

impl Used {
    /// Counts it until this value is dropped.
    pub fn new() -> Self {
        USED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
    }
}
