//! Counters of the cache.

use std::path::PathBuf;

use foregate_cache::NotStored;
use foregate_disk::Stat;

use super::metrics::{Counter, ShardedCounter};

/// The handling of a request on a route that caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheOutcome {
    /// A fresh stored response.
    Hit,
    /// A stale stored response, served while it is validated, or because the client accepts it.
    Stale,
    /// A stale stored response, served because the origin fails.
    StaleError,
    /// A stored response that the origin has just declared current.
    Revalidated,
    /// Nothing usable was stored; the response came from the origin, perhaps by the fetch of another request.
    Miss,
    /// The request bypassed the cache.
    Bypass,
    /// The client accepts only a stored response, and there is none.
    Unavailable,
}

impl CacheOutcome {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Hit,
        Self::Stale,
        Self::StaleError,
        Self::Revalidated,
        Self::Miss,
        Self::Bypass,
        Self::Unavailable,
    ];

    /// The word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::StaleError => "stale-error",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The reasons for not storing a response, in the order of their numbers.
pub(crate) const REASONS: [NotStored; 10] = [
    NotStored::Method,
    NotStored::Status,
    NotStored::NoStore,
    NotStored::Private,
    NotStored::Authorization,
    NotStored::SetCookie,
    NotStored::Vary,
    NotStored::Tags,
    NotStored::Deception,
    NotStored::Lifetime,
];

/// The figures of the store.
#[derive(Debug, Default, Clone)]
pub struct CacheFigures {
    /// Bytes of memory, bookkeeping included.
    pub bytes: usize,
    /// The limit of that memory, bytes.
    pub limit: usize,
    /// Stored responses.
    pub entries: usize,
    /// Stored responses that were removed to make room.
    pub evicted: u64,
    /// Bytes of responses that are being fetched.
    pub fetching: usize,
    /// Bytes of responses that were removed from memory while clients still read them.
    pub held: usize,
    /// Purges that are remembered.
    pub purges: usize,
    /// The folders of the disk tier, with their figures.
    pub disks: Vec<(PathBuf, Stat)>,
    /// Folders that another process holds.
    pub awaited: Vec<PathBuf>,
    /// The reserve, if there is one.
    pub reserve: Option<ReserveFigures>,
    /// The shield, if there is one.
    pub shield: Option<ShieldFigures>,
}

/// The figures of the shield.
#[derive(Debug, Default, Clone)]
pub struct ShieldFigures {
    /// The name of the group.
    pub name: String,
    /// Responses that came from the node that owns their address.
    pub asked: u64,
    /// Requests that went to the origin directly, because the node that owns the address was away or declined.
    pub direct: u64,
    /// Requests of other nodes that this node served.
    pub served: u64,
    /// Requests on the listener of the group that none of its nodes had signed.
    pub refused: u64,
    /// Requests that did not use the store, because purges might have been missing.
    pub behind: u64,
    /// Purges of other nodes.
    pub purges: u64,
    /// The nodes.
    pub nodes: Vec<NodeFigures>,
}

/// A node of the shield as operators see it.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// True for this node itself.
    pub own: bool,
    /// True if the node answers.
    pub up: bool,
    /// True if the node knows all purges of this node.
    pub current: bool,
}

/// The figures of the reserve.
#[derive(Debug, Default, Clone)]
pub struct ReserveFigures {
    /// The bucket.
    pub bucket: String,
    /// Lookups that found a response.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Responses that were written.
    pub stored: u64,
    /// Bytes of bodies that were read.
    pub read: u64,
    /// Bytes that were written.
    pub written: u64,
    /// Responses that were removed: too old, purged or damaged.
    pub evicted: u64,
    /// Responses that were not written: too many wait, or the storage fails.
    pub dropped: u64,
    /// Requests to the storage that failed.
    pub errors: u64,
    /// Records that failed a check.
    pub corrupt: u64,
    /// Bytes that wait to be written.
    pub queued: u64,
    /// Purges that are remembered.
    pub purges: usize,
    /// `true` while the reserve is off, since it failed.
    pub off: bool,
    /// `true` once the purges of earlier processes have been read.
    pub ready: bool,
}

/// Counters of the cache.
#[derive(Debug, Default)]
pub struct CacheCounters {
    requests: [ShardedCounter; CacheOutcome::ALL.len()],
    reasons: [Counter; REASONS.len()],
    /// Requests that waited for the fetch of another one.
    pub collapsed: Counter,
    /// Requests to origins, for misses and validations.
    pub fetches: Counter,
    /// Validations by which the origin declared a stored response current.
    pub validated: Counter,
    /// Responses that were stored.
    pub stored: Counter,
    /// Responses that were too large for the store.
    pub too_large: Counter,
    /// Bytes of bodies received for the store.
    pub bytes_in: Counter,
    /// Purges.
    pub purges: Counter,
    /// Addresses with stored responses that an unsafe request invalidated.
    pub invalidated: Counter,
}

impl CacheCounters {
    /// Counts a request.
    pub fn request(&self, outcome: CacheOutcome) {
        if let Some(counter) = self.requests.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a response that was not stored.
    pub fn not_stored(&self, reason: NotStored) {
        let number = REASONS.iter().position(|known| *known == reason);
        if let Some(counter) = number.and_then(|number| self.reasons.get(number)) {
            counter.inc();
        }
    }

    /// Requests by outcome.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CacheOutcome::ALL
            .iter()
            .zip(&self.requests)
            .map(|(outcome, counter)| (outcome.as_str(), counter.get()))
    }

    /// Responses that were not stored, by reason.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.iter().zip(&self.reasons).map(|(reason, counter)| (reason.as_str(), counter.get()))
    }
}
