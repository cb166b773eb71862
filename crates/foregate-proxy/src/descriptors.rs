//! How many descriptors sockets of clients and origins and temporary files use, so that some are left for everything else.
//!
//! Whoever is about to open something takes a place for it first: a thousand connects that are under way at once must not
//! all have found the last descriptor free.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Descriptors that connections and temporary files leave for health checks, admin, metrics, logs and configuration files.
pub const RESERVE: usize = 64;
/// The part of the others that clients leave to origins, and origins to clients: a site whose origins are stuck must not keep the
/// clients of others out, and clients who only wait must not keep others from their origins.
const FOR_THE_OTHER_SIDE: usize = 8;
/// The part that temporary files leave for connections: without these nothing would move on that a file waits for.
const NOT_FOR_FILES: usize = 4;

static USED: AtomicUsize = AtomicUsize::new(0);
/// Those of [`USED`] that connections to origins have.
static OF_ORIGINS: AtomicUsize = AtomicUsize::new(0);
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sees how many descriptors the process may have, and how many of them listeners, logs and the like have open: for when these
/// have changed. They are what the reserve is for; where they have more than half of it open, it is the larger.
pub fn look() {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    // Without /proc only the reserve is left to them.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let others = open.saturating_sub(USED.load(Ordering::Relaxed));
    let kept = RESERVE.max(others + RESERVE / 2);
    let allowed = limit.unwrap_or(usize::MAX).saturating_sub(kept);
    ALLOWED.store(allowed.max(1), Ordering::Relaxed);
}

/// Whether an error says that there is no descriptor left.
pub fn are_missing(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// Whether all are used that may be.
pub fn are_scarce() -> bool {
    USED.load(Ordering::Relaxed) >= ALLOWED.load(Ordering::Relaxed)
}

/// The most that connections of clients may use.
pub fn for_clients() -> usize {
    all_but(FOR_THE_OTHER_SIDE)
}

fn all_but(part: usize) -> usize {
    let allowed = ALLOWED.load(Ordering::Relaxed);
    allowed - allowed / part
}

/// The place of one descriptor. It moves into what has the descriptor, and counts until that is dropped.
#[derive(Debug)]
pub struct Used {
    of_origin: bool,
}

impl Used {
    /// Counts a connection of a client, which is there already.
    pub fn new() -> Self {
        USED.fetch_add(1, Ordering::Relaxed);
        Self { of_origin: false }
    }

    /// A place for a connection to an origin, unless there is none left.
    pub fn take_for_origin() -> Option<Self> {
        take(&OF_ORIGINS, all_but(FOR_THE_OTHER_SIDE))?;
        if take(&USED, ALLOWED.load(Ordering::Relaxed)).is_none() {
            OF_ORIGINS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { of_origin: true })
    }

    /// A place for a temporary file.
    pub fn take_for_file() -> Option<Self> {
        take(&USED, all_but(NOT_FOR_FILES)).map(|()| Self { of_origin: false })
    }
}

/// One more, unless there are as many as may be.
fn take(used: &AtomicUsize, limit: usize) -> Option<()> {
    let more = |used: usize| (used < limit).then(|| used + 1);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(drop)
}

impl Drop for Used {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
        if self.of_origin {
            OF_ORIGINS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
