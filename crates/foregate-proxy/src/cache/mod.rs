//! The cache of the running proxy: the store, the table of shared fetches, and the tasks that fill the store.
//!
//! This module knows nothing of clients and exchanges. `foregate-cache` makes the decisions; here are the clock, the
//! memory of the process, and the requests to origins.

mod disk;
mod fill;
pub mod generations;
mod owner;
mod readers;
mod reserve;
mod shield;
mod store;
mod unwritten;
pub mod warm;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use foregate_cache::{
    CacheTime, FlightLimits, Flights, Floors, Moment, NotStored, Secret, Sequence, Strength, Uri,
};
use tokio::sync::oneshot;

pub use self::disk::Folders;
use self::disk::{DiskTier, TierIdentity};
pub(crate) use self::fill::stated_length;
pub use self::fill::{FetchRecord, Fill, LeaderParts, OriginAnswer};
use self::generations::{Generations, everything};
pub use self::owner::OwnerAsk;
pub use self::reserve::Reserve;
pub use self::shield::{
    AnswerKind, CallKind, FetchCall, NodeCall, SHIELD_FIELD, Shield, ShieldGroup, TAGS_FIELD,
};
pub use self::store::{Hit, Recording, Store, StoreFound};
use crate::counters::cache::CacheFigures;
use crate::counters::metrics::Metrics;
use crate::settings::{CacheStore, EngineChoice, ShieldSettings};
use crate::time::clock::Clock;

/// The secret and the clock of a cache. Stored responses can only be used with the same secret and clock.
#[derive(Debug, Clone, Copy)]
pub struct CacheIdentity {
    /// The secret of keys and variants.
    pub secret: Secret,
    /// A moment on the system's steady clock, and the cache's time at that moment.
    pub start: (Instant, CacheTime),
}

/// The cache of the process. Survives reloads.
#[derive(Debug)]
pub struct Cache {
    /// The stored responses.
    pub store: Store,
    /// The tier in object storage, if there is one.
    pub reserve: Option<Reserve>,
    /// The group of proxies that this proxy belongs to.
    pub shield: Arc<Shield>,
    /// The other generations of this proxy.
    pub generations: Generations,
    /// The fetches that several requests share.
    pub flights: Flights,
    /// The secret of keys and variants.
    pub secret: Secret,
    /// A moment on the system's steady clock, and the cache's time at that moment.
    start: (Instant, CacheTime),
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Cache {
    /// Makes a cache with the contents of the folders of the disk tier; without folders, it is empty.
    ///
    /// # Errors
    /// A folder of the disk tier cannot be used.
    pub fn new(
        settings: &CacheStore,
        engine: EngineChoice,
        metrics: Arc<Metrics>,
        folders: Folders,
        clock: Clock,
    ) -> io::Result<Self> {
        let floors = Arc::new(Floors::default());
        let (disk, TierIdentity { secret, started: start }) =
            DiskTier::start(&settings.disks, engine, &floors, folders)?;
        let reserve = settings.reserve.as_ref().map(Reserve::start).transpose()?;
        Ok(Self {
            reserve,
            shield: Arc::new(Shield::new(settings.disks.first().map(|disk| disk.folder.clone()), clock)),
            store: Store::new(settings, secret, floors, disk),
            generations: Generations::default(),
            flights: Flights::new(FlightLimits::default()),
            secret,
            start,
            clock,
            metrics,
        })
    }

    /// Changes the limits. Stored responses are kept, as far as they fit.
    pub fn set_limits(&self, settings: &CacheStore) {
        self.store.set_limits(settings, self.time());
        if self.reserve.as_ref().map(Reserve::settings) != settings.reserve.as_ref() {
            tracing::warn!("another `reserve` of `cache-store` takes effect with the next start");
        }
    }

    /// Starts a group of proxies with these settings, or ends the present group.
    pub fn set_shield(self: &Arc<Self>, settings: Option<&Arc<ShieldSettings>>) {
        self.shield.set(self, settings);
    }

    /// The current time of the cache's clock.
    pub fn time(&self) -> CacheTime {
        let (start, time) = self.start;
        let since = self.clock.now().saturating_duration_since(start);
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        CacheTime(time.0.saturating_add(since))
    }

    /// The current time of the cache's clock and of the wall clock.
    pub fn now(&self) -> Moment {
        Moment { wall: self.clock.unix(), cache: self.time() }
    }

    /// Invalidates all responses that are stored for an address, after a request that has changed the resource. Additions
    /// that the route makes to keys do not matter. Any client can cause such purges, so a sweep removes old ones now and
    /// then.
    pub fn invalidate_address(self: &Arc<Self>, uri: &Uri<'_>) {
        let purge = foregate_cache::Purge::Address(uri);
        let before = self.store.floors().begin();
        if let Some(recording) = self.store.purge(&purge, Strength::Hard) {
            // The client's request has already changed the origin, so it need not wait for the disk.
            tokio::spawn(recording);
        }
        if let Some(reserve) = &self.reserve {
            // The purge is in effect at once, and is written to the bucket soon.
            drop(reserve.purge(&purge, Strength::Hard));
        }
        // Nobody has to wait: a node that does not have the purge yet is not asked.
        drop(self.tell_nodes(&purge, Strength::Hard));
        drop(self.tell_generations(&purge, Strength::Hard));
        self.metrics.cache.invalidated.inc();
        if self.store.floors().is_sweep_due(before) {
            self.begin_sweep();
        }
    }

    /// Starts a task that removes purged responses from memory, and then forgets the purges.
    fn begin_sweep(self: &Arc<Self>) {
        let cache = Arc::clone(self);
        tokio::spawn(async move { cache.store.sweep().await });
    }

    /// Purges responses. The purge is in effect at once; a background task removes the responses from memory. With a disk
    /// tier, the caller has to await the recording: then the purge survives a kill of the process. The result of the
    /// recording says whether the purge was written.
    #[must_use = "a purge that is not recorded may be lost"]
    pub fn purge(
        self: &Arc<Self>,
        purge: &foregate_cache::Purge<'_>,
        strength: Strength,
    ) -> Option<Recording> {
        let mut recording = self.store.purge(purge, strength);
        if let Some(reserve) = &self.reserve {
            let (on_disk, written) = (recording.take(), reserve.purge(purge, strength));
            recording = Some(Box::pin(async move {
                let on_disk = match on_disk {
                    Some(on_disk) => on_disk.await,
                    None => true,
                };
                let written = written.await;
                if !written {
                    tracing::warn!(
                        "a purge could not be written to the reserve in time: it counts, and is tried on"
                    );
                }
                on_disk && written
            }));
        }
        if let Some(told) = self.tell_nodes(purge, strength) {
            let before = recording.take();
            recording = Some(Box::pin(async move {
                let recorded = match before {
                    Some(before) => before.await,
                    None => true,
                };
                told.await;
                recorded
            }));
        }
        if let Some(told) = self.tell_generations(purge, strength) {
            let before = recording.take();
            recording = Some(Box::pin(async move {
                let recorded = match before {
                    Some(before) => before.await,
                    None => true,
                };
                // Without an answer, the other generations have ended.
                let _ = told.await;
                recorded
            }));
        }
        self.metrics.cache.purges.inc();
        if strength == Strength::Hard {
            self.begin_sweep();
        }
        recording
    }

    /// Passes a purge to the other generations, unless they learn of it through a shared folder.
    fn tell_generations(
        &self,
        purge: &foregate_cache::Purge<'_>,
        strength: Strength,
    ) -> Option<oneshot::Receiver<()>> {
        let write = || {
            let mut bytes = Vec::new();
            // Each generation gives the purge its own number.
            purge.write(strength, Sequence::new(0), &mut bytes);
            bytes
        };
        if self.shares_folders() { None } else { self.generations.tell(write) }
    }

    /// Continues with the keys and the clock of the previous generation, so that its responses can be used here. Must be
    /// called before anything is stored. A cache with folders uses the keys and the clock of its folders instead.
    #[must_use]
    pub fn continuing(mut self, identity: Option<CacheIdentity>) -> Self {
        if let Some(CacheIdentity { secret, start }) = identity.filter(|_| !self.shares_folders()) {
            self.store.set_secret(secret);
            (self.secret, self.start) = (secret, start);
        }
        self
    }

    /// The keys and the clock, for the next generation.
    pub fn identity(&self) -> CacheIdentity {
        CacheIdentity { secret: self.secret, start: self.start }
    }

    fn shares_folders(&self) -> bool {
        self.store.on_disk().is_some() || self.store.awaits_folders()
    }

    /// Repeats the purge of another generation, at once.
    pub fn repeat_of_generation(self: &Arc<Self>, purge: &[u8]) {
        // The other generation has already written the purge to everything that both share. Bytes that cannot be read come from
        // a newer version, and purge everything.
        if self.store.repeat(purge).is_some() || self.store.repeat(&everything()).is_some() {
            self.begin_sweep();
        }
    }

    /// Tells the other nodes of a purge, if there are any.
    fn tell_nodes(
        &self,
        purge: &foregate_cache::Purge<'_>,
        strength: Strength,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.shield.group()?;
        let mut bytes = Vec::new();
        // Each node gives the purge its own number.
        purge.write(strength, Sequence::new(0), &mut bytes);
        self.shield.tell(&bytes)
    }

    /// Applies the purge of another node at once. Bytes that are not a purge purge everything.
    fn repeat_purge(self: &Arc<Self>, purge: &[u8]) -> Option<Recording> {
        let Some(mut recording) = self.store.repeat(purge) else {
            return self.repeat_purge(&everything());
        };
        if !self.shares_folders() {
            drop(self.generations.tell(|| purge.to_vec()));
        }
        if let Some(reserve) = &self.reserve {
            let (on_disk, written) = (recording.take(), reserve.repeat(purge));
            recording = Some(Box::pin(async move {
                let on_disk = match on_disk {
                    Some(on_disk) => on_disk.await,
                    None => true,
                };
                written.await && on_disk
            }));
        }
        self.begin_sweep();
        recording
    }

    /// Writes a response to the reserve, if there is one. `fields` are the fields of the request that has fetched the
    /// response.
    fn put_in_reserve(&self, object: &Arc<foregate_cache::Object>, fields: &foregate_wire::HeaderList) {
        if let Some(reserve) = &self.reserve {
            reserve.put(object, fields, self.store.floors(), self.time());
        }
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
            held: stat.memory.held,
            purges: stat.floors,
            disks: stat.disks,
            awaited: stat.awaited,
            reserve: self.reserve.as_ref().map(Reserve::figures),
            shield: self.shield.figures(),
        }
    }

    /// Counts a response that was not stored.
    pub fn not_stored(&self, reason: NotStored) {
        self.metrics.cache.not_stored(reason);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use super::*;

    #[tokio::test]
    async fn purges_by_clients_are_forgotten_before_they_are_too_many() {
        let settings = CacheStore { memory: 1 << 20, ..CacheStore::default() };
        let cache = Arc::new(
            Cache::new(
                &settings,
                EngineChoice::default(),
                Arc::default(),
                Folders::Required,
                Clock::default(),
            )
            .unwrap(),
        );
        for number in 0..200_000_u32 {
            let path = format!("/{number}");
            let uri = Uri {
                scheme: foregate_wire::Scheme::Http,
                host: "example.com",
                port: None,
                path: path.as_bytes(),
                query: None,
            };
            cache.invalidate_address(&uri);
            if number.is_multiple_of(100) {
                tokio::task::yield_now().await;
            }
            assert!(cache.store.floors().len() < 70_000, "{number}: {}", cache.store.floors().len());
        }
    }
}
