//! Counts the descriptors of sockets to clients and origins and of temporary files, so that some
//! descriptors remain for other uses.
//!
//! A place is taken before a descriptor is opened: a thousand concurrent connects must not
//! all have found the last descriptor free.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::limits::account::{Account, Ledger, part};
use crate::limits::clients::Holdings;

/// Descriptors that connections and temporary files leave for health checks, admin, metrics, logs
/// and configuration files.
pub const RESERVE: usize = 64;
/// Connections of clients leave one part in this many of the descriptors to connections to origins, and
/// connections to origins leave as many to clients. So a site with hanging origins cannot keep out the clients
/// of other sites, and idle clients cannot prevent connections to origins.
const FOR_THE_OTHER_SIDE: usize = 8;
/// Temporary files leave one part in this many of the descriptors to connections. A file is in use until a
/// connection has moved its contents, so without connections no file would ever be closed.
const NOT_FOR_FILES: usize = 4;

/// The number of connections to origins that may always serve one client, however few are left for others. A
/// single page may need this many at once.
const FEW: usize = 64;

static USED: AtomicUsize = AtomicUsize::new(0);
/// The part of [`USED`] that connections to origins hold.
static OF_ORIGINS: AtomicUsize = AtomicUsize::new(0);
/// The temporary files of each client.
static FILES: LazyLock<Ledger> = LazyLock::new(Ledger::default);
/// One part in this many of the descriptors may hold files open for the next requests.
const FOR_OPEN_FILES: usize = 8;
/// The most files that are held open for the next requests.
const OPEN_FILES_MOST: usize = 1024;

/// The descriptors in [`USED`] of files that stay open for the next requests.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Reads the limit on descriptors, and counts those of listeners, logs and the like. To be called
/// when the limit or this number has changed. The descriptors of listeners and logs come from the
/// reserve. If they use more than half of the reserve, the reserve grows.
pub fn look() {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    // Without /proc, the number of open descriptors is unknown, and the reserve does not grow.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let others = open.saturating_sub(USED.load(Ordering::Relaxed));
    let kept = RESERVE.max(others + RESERVE / 2);
    let allowed = limit.unwrap_or(usize::MAX).saturating_sub(kept);
    ALLOWED.store(allowed.max(1), Ordering::Relaxed);
}

/// Returns true if an error means that there is no descriptor left.
pub fn are_missing(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// The descriptors of connections and temporary files.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Returns true if all available descriptors are used.
pub fn are_scarce() -> bool {
    USED.load(Ordering::Relaxed) >= ALLOWED.load(Ordering::Relaxed)
}

/// The most descriptors that connections of clients may use.
pub fn for_clients() -> usize {
    all_but(FOR_THE_OTHER_SIDE)
}

fn all_but(part: usize) -> usize {
    let allowed = ALLOWED.load(Ordering::Relaxed);
    allowed - allowed / part
}

/// The place of one descriptor. It is stored in the owner of the descriptor, and counts until it is dropped.
#[derive(Debug)]
pub struct DescriptorPlace {
    of: DescriptorOwner,
}

/// The owner of a descriptor.
#[derive(Debug)]
enum DescriptorOwner {
    Client,
    Origin,
    File(Account),
    OpenFile,
}

impl DescriptorPlace {
    /// Counts a connection of a client, which is there already.
    pub fn new() -> Self {
        USED.fetch_add(1, Ordering::Relaxed);
        Self { of: DescriptorOwner::Client }
    }

    /// A place for a connection to an origin, unless there is none left.
    pub fn take_for_origin() -> Option<Self> {
        take(&OF_ORIGINS, all_but(FOR_THE_OTHER_SIDE))?;
        if take(&USED, ALLOWED.load(Ordering::Relaxed)).is_none() {
            OF_ORIGINS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { of: DescriptorOwner::Origin })
    }

    /// A place for a temporary file on the account of a client. The client may have `percent` of the descriptors for files.
    pub fn take_for_file(account: Account, percent: usize) -> Option<Self> {
        let all = all_but(NOT_FOR_FILES);
        let took =
            FILES.change(account, 0, 1, |others| others < part(all, percent) && take(&USED, all).is_some());
        // Not `then_some`: it would create the value in any case, and on failure dropping it would give back a place that
        // was never taken.
        took.then(|| Self { of: DescriptorOwner::File(account) })
    }

    /// A place for a file that stays open for the next requests.
    pub fn take_for_open_file() -> Option<Self> {
        let allowed = ALLOWED.load(Ordering::Relaxed);
        take(&OPEN_FILES, (allowed / FOR_OPEN_FILES).min(OPEN_FILES_MOST))?;
        if take(&USED, all_but(NOT_FOR_FILES)).is_none() {
            OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { of: DescriptorOwner::OpenFile })
    }
}

/// A connection to an origin that is serving a request of one client. It counts for this client until the value is
/// dropped. A connection that waits for its next request counts for no client.
#[derive(Debug)]
pub struct OfClient(Arc<Holdings>);

impl OfClient {
    /// Claims one more connection, unless the client has at least [`FEW`] and at least as many as are left for others. So a
    /// single client may have half of all connections, and two clients may have a third each. `idle` returns the number of
    /// connections that serve no client at present.
    pub fn claim(client: &Arc<Holdings>, idle: impl FnOnce() -> usize) -> Option<Self> {
        let claimed = Self(Arc::clone(client));
        let before = client.origins.fetch_add(1, Ordering::Relaxed);
        (before < FEW || leaves_enough(before, left_for_origins(), idle)).then_some(claimed)
    }
}

impl Drop for OfClient {
    fn drop(&mut self) {
        self.0.origins.fetch_sub(1, Ordering::Relaxed);
    }
}

fn leaves_enough(has: usize, left: usize, idle: impl FnOnce() -> usize) -> bool {
    has < left || has < left.saturating_add(idle())
}

fn left_for_origins() -> usize {
    let origins = all_but(FOR_THE_OTHER_SIDE).saturating_sub(OF_ORIGINS.load(Ordering::Relaxed));
    let all = ALLOWED.load(Ordering::Relaxed).saturating_sub(USED.load(Ordering::Relaxed));
    origins.min(all)
}

/// Adds one to `used`, unless the limit is reached.
fn take(used: &AtomicUsize, limit: usize) -> Option<()> {
    let more = |used: usize| (used < limit).then(|| used + 1);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(drop)
}

impl Drop for DescriptorPlace {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
        match self.of {
            DescriptorOwner::Client => {}
            DescriptorOwner::Origin => {
                OF_ORIGINS.fetch_sub(1, Ordering::Relaxed);
            }
            DescriptorOwner::OpenFile => {
                OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
            }
            DescriptorOwner::File(account) => {
                FILES.change(account, 1, 0, |_| true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// How many of `all` connections each of this many clients gets when they take turns; `idle` of
    /// them serve no client.
    fn shares(clients: usize, all: usize, idle: usize) -> Vec<usize> {
        let mut has = vec![0; clients];
        loop {
            let before = has.clone();
            for client in 0..clients {
                let left = all - idle - has.iter().sum::<usize>();
                if leaves_enough(has[client], left, || idle) {
                    has[client] += 1;
                }
            }
            if has == before {
                return has;
            }
        }
    }

    #[test]
    fn who_has_many_connections_to_origins_leaves_as_many_to_others() {
        assert_eq!(shares(1, 1000, 0), [500]);
        assert_eq!(shares(1, 1000, 400), [500], "what is idle is left");
        assert_eq!(shares(2, 900, 0), [300; 2]);
        assert_eq!(shares(9, 1000, 0), [100; 9]);
    }

    #[test]
    fn a_connection_is_a_clients_until_it_is_given_back() {
        let client = Arc::new(Holdings::new(IpAddr::from([192, 0, 2, 1])));
        let one = OfClient::claim(&client, || 0).expect("the first");
        let other = OfClient::claim(&client, || 0).expect("the second");
        assert_eq!(client.origins.load(Ordering::Relaxed), 2);
        drop((one, other));
        assert_eq!(client.origins.load(Ordering::Relaxed), 0);
    }
}
