//! The cache at work: the store, the table of shared fetches, and the tasks that fill it.
//!
//! It knows no client and no exchange. `foregate-cache` decides; here are the clock, the memory of the process, and the requests to origins.

mod fill;
mod store;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use foregate_cache::{CacheTime, FlightLimits, Flights, Moment, NotStored, Secret, Strength, Tag, Uri};

pub(crate) use self::fill::stated_length;
pub use self::fill::{Fill, Handed};
pub use self::store::Store;
use crate::counters::cache::CacheFigures;
use crate::counters::metrics::Metrics;
use crate::random;
use crate::settings::CacheStore;

/// The cache of the process. Survives reloads.
#[derive(Debug)]
pub struct Cache {
    /// The stored responses.
    pub store: Store,
    /// The fetches that several requests share.
    pub flights: Flights,
    /// The secret of keys, variants and tags.
    pub secret: Secret,
    start: Instant,
    metrics: Arc<Metrics>,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: CacheStore, metrics: Arc<Metrics>) -> Self {
        let mut secret = [0; 16];
        for part in secret.chunks_mut(8) {
            part.copy_from_slice(&random::number().to_le_bytes()[..part.len()]);
        }
        let secret = Secret::new(secret);
        Self {
            store: Store::new(settings, secret),
            flights: Flights::new(FlightLimits::default()),
            secret,
            start: Instant::now(),
            metrics,
        }
    }

    /// Changes the limits. What is stored stays, as far as it fits.
    pub fn set_limits(&self, settings: CacheStore) {
        self.store.set_limits(settings, self.time());
    }

    /// The time on the cache's clock.
    pub fn time(&self) -> CacheTime {
        let since = self.start.elapsed().as_millis();
        CacheTime(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// This moment on both clocks.
    pub fn now(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Moment { wall, cache: self.time() }
    }

    /// Makes everything invalid that is stored for an address, whatever the route has added to its keys, after a request that has changed it.
    pub fn invalidate_address(&self, uri: &Uri<'_>) {
        self.store.purge(&foregate_cache::Purge::Address(uri), Strength::Hard);
        self.metrics.cache.invalidated.inc();
    }

    /// Purges, at once. What is stored is removed by a task of its own meanwhile.
    pub fn purge(self: &Arc<Self>, purge: &foregate_cache::Purge<'_>, strength: Strength) {
        self.store.purge(purge, strength);
        self.metrics.cache.purges.inc();
        if strength == Strength::Hard {
            let cache = Arc::clone(self);
            tokio::spawn(async move { cache.store.sweep().await });
        }
    }

    /// The tag with this text.
    pub fn tag(&self, text: &[u8]) -> Tag {
        Tag::new(text, &self.secret)
    }

    /// The figures of the store.
    pub fn figures(&self) -> CacheFigures {
        let stat = self.store.stat();
        CacheFigures {
            bytes: stat.memory.bytes,
            limit: stat.limit,
            entries: stat.memory.entries,
            evicted: stat.memory.evicted,
            fetching: self.flights.memory(),
            purges: stat.floors,
        }
    }

    /// Counts a response that was not stored.
    pub fn not_stored(&self, reason: NotStored) {
        self.metrics.cache.not_stored(reason);
    }
}
