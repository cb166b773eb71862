//! Fetches that several requests share.
//!
//! The first request that misses leads a fetch, and the others follow the fetch: they get the head of the
//! response, then the pieces of the body as they arrive. A fetch ends as complete, failed or uncacheable. Only
//! the end of a complete fetch may end the body of a client's response. Followers are woken at each event and
//! do not poll. The leader should be a task of its own, so that the fetch outlives the client that caused it.
//!
//! Validations use the same table, so a stale object is validated once for all requests that arrive meanwhile.

mod flight;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_wire::HeaderList;
use parking_lot::Mutex;

pub use self::flight::{FetchFailure, FlightWatch, Follow, FollowedHead, Lead, Piece};
use self::flight::{Flight, State};
use crate::key::{Key, KeyHasher};
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::Sequence;
use crate::secret::Secret;
use crate::store::NotStored;
use crate::stored::StoredHead;

/// The number of parts of the table. Each has its own lock, so that threads seldom wait for each other. A power
/// of two.
const SHARDS: usize = 64;
/// The most marks in one part of the table. A mark lets requests for a key go to the origin without waiting for
/// each other. If a part is full, no mark is set, and the next request for the key leads a fetch again.
const MAX_MARKS: usize = 4096;

/// The least time between two removals of expired marks from a full part, in milliseconds.
const CLEANING: u64 = 1000;

/// The bounds of shared fetches.
#[derive(Clone, Copy, Debug)]
pub struct FlightLimits {
    /// The longest body that is kept whole, in bytes. A response that is known to be longer is not shared.
    pub largest: u64,
    /// Bytes that are kept for followers of a body that turns out to be longer than `largest`.
    pub window: u64,
    /// The most bytes that all fetches together keep. Beyond that, a response of known length is not shared. Of a
    /// response of unknown length, only a window is kept.
    pub total: usize,
    /// For this many milliseconds after a response could not be shared, requests under its key do not wait for each
    /// other.
    pub mark: u64,
}

impl Default for FlightLimits {
    /// 8 MiB, 1 MiB, 64 MiB, 10 seconds.
    fn default() -> Self {
        Self { largest: 8 << 20, window: 1 << 20, total: 64 << 20, mark: 10_000 }
    }
}

/// The table of shared fetches.
#[derive(Debug)]
pub struct Flights {
    shared: Arc<FlightsShared>,
}

/// The state that the table shares with leaders and followers.
#[derive(Debug)]
struct FlightsShared {
    shards: Box<[Mutex<FlightShard>]>,
    limits: FlightLimits,
    /// Bytes of all pieces that are kept.
    memory: AtomicUsize,
}

type FlightMap<V> = HashMap<Key, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug, Default)]
struct FlightShard {
    flights: FlightMap<Arc<Flight>>,
    /// Fetches under way for each address, all variants counted.
    addresses: FlightMap<usize>,
    /// For each mark: the time until which requests do not wait for each other, and the reason. `cleaned` is the
    /// time at which expired marks were last removed.
    marks: FlightMap<(CacheTime, Option<NotStored>)>,
    cleaned: CacheTime,
}

/// The role of a request in a fetch.
#[derive(Debug)]
pub enum FlightPart {
    /// This request fetches, for itself and its followers.
    Lead(Lead),
    /// Another request fetches, and this one follows the fetch.
    Follow(Follow),
    /// The last response could not be shared, so this request fetches for itself and waits for no other. If the
    /// response to this request is stored after all, [`Flights::unmark`] ends this state early. If the last response
    /// was not stored, the value is the reason.
    Alone(Option<NotStored>),
    /// The object has been stored since the caller looked for it.
    Found(Arc<Object>),
}

impl Flights {
    /// An empty table.
    pub fn new(limits: FlightLimits) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shared: Arc::new(FlightsShared { shards, limits, memory: AtomicUsize::new(0) }) }
    }

    /// Joins the fetch under this key, or begins one. `address` is the key of the address. `key` is the key of a
    /// variant if the address is known to vary, and equal to `address` otherwise.
    ///
    /// `recheck` looks for the object again, since a fetch may have ended between the caller's lookup and this
    /// call. It runs under a lock of this table.
    pub fn join(
        &self,
        key: Key,
        address: Key,
        now: CacheTime,
        recheck: impl FnOnce() -> Option<Arc<Object>>,
    ) -> FlightPart {
        self.join_current(key, address, now, |_| true, recheck)
    }

    /// Like [`join`](Self::join), but does not join a fetch that is too old: a new fetch replaces it. `is_current`
    /// decides by the number of the latest purge at the time when the fetch's request went to the origin.
    pub fn join_current(
        &self,
        key: Key,
        address: Key,
        now: CacheTime,
        is_current: impl FnOnce(Sequence) -> bool,
        recheck: impl FnOnce() -> Option<Arc<Object>>,
    ) -> FlightPart {
        let mut shard = self.shared.shard(key).lock();
        if let Some(flight) = shard.flights.get(&key) {
            if flight.sequence().is_none_or(is_current) {
                let flight = Arc::clone(flight);
                drop(shard);
                // The start of a body that is too long for the bounds may be gone already.
                return Follow::from_start(flight).map_or(FlightPart::Alone(None), FlightPart::Follow);
            }
            shard.flights.remove(&key);
        }
        if let Some(object) = recheck() {
            return FlightPart::Found(object);
        }
        if let Some(&(until, reason)) = shard.marks.get(&key) {
            if now < until {
                return FlightPart::Alone(reason);
            }
            shard.marks.remove(&key);
        }
        let flight = Arc::new(Flight { state: Mutex::new(State::default()) });
        shard.flights.insert(key, Arc::clone(&flight));
        drop(shard);
        *self.shared.shard(address).lock().addresses.entry(address).or_default() += 1;
        FlightPart::Lead(Lead::new(flight, Arc::clone(&self.shared), key, address))
    }

    /// Begins a fetch that no other request joins. It is for requests that must not wait for others, although their
    /// responses may be stored.
    pub fn alone(&self, key: Key, address: Key) -> Lead {
        *self.shared.shard(address).lock().addresses.entry(address).or_default() += 1;
        let flight = Arc::new(Flight { state: Mutex::new(State::default()) });
        Lead::new(flight, Arc::clone(&self.shared), key, address)
    }

    /// Returns whether a response for an address is being fetched.
    /// [`Memory::invalidate`](crate::Memory::invalidate) has to know this.
    pub fn is_filling(&self, address: Key) -> bool {
        self.shared.shard(address).lock().addresses.contains_key(&address)
    }

    /// Lets requests wait for each other again, after a response that can be shared.
    pub fn unmark(&self, key: Key) {
        self.shared.shard(key).lock().marks.remove(&key);
    }

    /// The number of marks that uncacheable responses have left.
    pub fn marks(&self) -> usize {
        self.shared.shards.iter().map(|shard| shard.lock().marks.len()).sum()
    }

    /// Bytes of the pieces that fetches under way keep. They are in addition to the memory of the RAM tier.
    pub fn memory(&self) -> usize {
        self.shared.memory.load(Ordering::Relaxed)
    }
}

/// The key under which a follower has to join again if the response is a variant for other values of the
/// selecting fields than those in the follower's request. `None` if the response fits the follower's request.
pub fn other_variant(head: &StoredHead, address: Key, request: &HeaderList, secret: &Secret) -> Option<Key> {
    let vary = head.vary.as_ref()?;
    let variant = vary.names.variant(request, secret);
    (variant != vary.variant).then(|| address.variant(variant, secret))
}

impl FlightsShared {
    fn shard(&self, key: Key) -> &Mutex<FlightShard> {
        let at = (key.0 >> 64) as usize & (SHARDS - 1);
        self.shards.get(at).expect("the number of a shard is masked")
    }

    /// Adds a fetch to the table under the key of its variant, too. Returns false if another fetch has this key.
    fn alias(&self, key: Key, flight: &Arc<Flight>) -> bool {
        match self.shard(key).lock().flights.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Arc::clone(flight));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Takes a fetch out of the table.
    fn remove(&self, key: Key, flight: &Arc<Flight>) {
        let mut shard = self.shard(key).lock();
        if shard.flights.get(&key).is_some_and(|known| Arc::ptr_eq(known, flight)) {
            shard.flights.remove(&key);
        }
    }

    fn mark(&self, key: Key, now: CacheTime, reason: Option<NotStored>) {
        let shard = &mut *self.shard(key).lock();
        // Do not clean at each insertion: often there is no expired mark to remove.
        if shard.marks.len() >= MAX_MARKS && now.since(shard.cleaned) >= CLEANING {
            shard.marks.retain(|_, (until, _)| now < *until);
            shard.cleaned = now;
        }
        if shard.marks.len() < MAX_MARKS {
            shard.marks.insert(key, (CacheTime(now.0.saturating_add(self.limits.mark)), reason));
        }
    }

    fn leave(&self, address: Key) {
        if let Entry::Occupied(mut entry) = self.shard(address).lock().addresses.entry(address) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}
