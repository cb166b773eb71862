//! The RAM tier, shared by all threads.

mod handover;
mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foregate_wire::HeaderList;
use parking_lot::Mutex;

pub use self::handover::{Adoption, Usefulness};
use self::shard::{Shard, Slot, Varies};
use crate::key::{Key, KeyText};
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::{Effect, Floors, Purge, Selected, Sequence, Strength};
use crate::secret::Secret;

/// The memory of one part of the tier, in bytes. A larger tier has more parts, each with its own lock, so that
/// threads seldom wait for each other.
const SHARD: usize = 32 * 1024 * 1024;
const MAX_SHARDS: usize = 64;
/// The largest object, even if there is much memory.
const MAX_OBJECT: usize = 8 * 1024 * 1024;
/// Bodies that left the tier and still have readers may take a quarter of the limit, or this many bytes if that
/// is more. Beyond that, only objects up to [`SMALL_OBJECT`] are stored, so that slow clients cannot make the
/// tier hold much more than its limit.
const LEAST_HELD: usize = 32 * 1024 * 1024;
const SMALL_OBJECT: usize = 16 * 1024;
/// The most lists of selecting fields for one address. A further list replaces the oldest.
const MAX_VARIES: usize = 4;

/// The RAM tier: objects by key, in bounded memory. S3-FIFO decides which objects are evicted.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    secret: Secret,
    floors: Arc<Floors>,
    limit: AtomicUsize,
    generation: AtomicU64,
    /// Bytes of bodies that left the tier and still have readers.
    held: Arc<AtomicUsize>,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum MemoryLookup {
    /// A stored response that the request selects. `outdated` says that a soft purge has made it stale.
    Object {
        /// The response.
        object: Arc<Object>,
        /// `true` if a soft purge has made the response stale.
        outdated: bool,
    },
    /// The tier has no response for the request.
    Nothing {
        /// The key of the variant that the request asks for, if the address is known to vary: fetches are shared under this key.
        variant: Option<Key>,
    },
}

/// Responses that a purge concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Their number.
    pub responses: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// Figures of the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Bytes of memory, bookkeeping included.
    pub bytes: usize,
    /// Objects, and lists of selecting fields.
    pub entries: usize,
    /// Entries that were evicted to make room.
    pub evicted: u64,
    /// Bytes of bodies that left the tier and still have readers. They are in addition to `bytes`.
    pub held: usize,
}

impl Memory {
    /// An empty tier with a limit in bytes.
    pub fn new(limit: usize, secret: Secret, floors: Arc<Floors>) -> Self {
        let shards = (limit / SHARD).clamp(1, MAX_SHARDS).next_power_of_two();
        let held = Arc::<AtomicUsize>::default();
        let shard = || Shard::new(Arc::clone(&held));
        let shards = (0..shards).map(|_| Mutex::new(shard())).collect();
        let (limit, generation) = (AtomicUsize::new(limit), AtomicU64::new(0));
        let memory = Self { shards, secret, floors, limit, generation, held };
        memory.set_limit(memory.limit.load(Ordering::Relaxed), CacheTime::default());
        memory
    }

    /// Changes the limit. Entries beyond it are evicted at once.
    pub fn set_limit(&self, limit: usize, now: CacheTime) {
        self.limit.store(limit, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().set_limit(limit / self.shards.len(), |slot| self.is_useless(slot, now));
        }
    }

    /// Removes everything, and stores nothing any more. Bodies that are being sent stay with their readers.
    pub fn close(&self) {
        self.limit.store(0, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().close();
        }
    }

    /// The largest object that is stored, in bytes of [`Object::memory`].
    pub fn largest(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let most = if self.holds_much() { SMALL_OBJECT } else { MAX_OBJECT };
        most.min(limit / 16).min(limit / self.shards.len() / 4)
    }

    /// Returns whether slow clients hold so many bodies that left the tier that no further large body should be
    /// shared.
    pub fn holds_much(&self) -> bool {
        let most = LEAST_HELD.max(self.limit.load(Ordering::Relaxed) / 4);
        self.held.load(Ordering::Relaxed) > most
    }

    /// The purges that apply to this tier.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Looks for a response to a request with this key. Purged responses are not found.
    pub fn get(&self, key: Key, text: &KeyText, request: &HeaderList) -> MemoryLookup {
        // The lock is free again before anything is removed.
        let slot = self.shard(key).lock().get(key);
        let varies = match slot {
            Some(Slot::Varies(varies)) => varies,
            Some(Slot::Object(object)) => {
                return self.found(object, key, text).unwrap_or(MemoryLookup::Nothing { variant: None });
            }
            None => return MemoryLookup::Nothing { variant: None },
        };
        let mut first = None;
        for names in &varies.names {
            let variant = key.variant(names.variant(request, &self.secret), &self.secret);
            first = first.or(Some(variant));
            let place = place(variant, varies.generation);
            let slot = self.shard(place).lock().get(place);
            if let Some(Slot::Object(object)) = slot
                && let Some(found) = self.found(object, place, text)
            {
                return found;
            }
        }
        MemoryLookup::Nothing { variant: first }
    }

    fn found(&self, object: Arc<Object>, place: Key, text: &KeyText) -> Option<MemoryLookup> {
        if object.text() != text.as_bytes() {
            return None;
        }
        match self.floors.judge(&object) {
            Effect::Live => Some(MemoryLookup::Object { object, outdated: false }),
            Effect::Outdated => Some(MemoryLookup::Object { object, outdated: true }),
            Effect::Dead => {
                self.remove_at(place, &object);
                None
            }
        }
    }

    /// Stores an object. It replaces an earlier object for the same requests. Returns false if it is too large, or
    /// was purged while it was fetched.
    pub fn insert(&self, object: Arc<Object>, now: CacheTime) -> bool {
        if object.memory() > self.largest() || !self.floors.admits(&object) {
            return false;
        }
        let key = object.key();
        let place = match &object.head.vary {
            None => key,
            Some(vary) => {
                let generation = self.varies(key, vary, now);
                place(key.variant(vary.variant, &self.secret), generation)
            }
        };
        let slot = Slot::Object(Arc::clone(&object));
        self.shard(place).lock().insert(place, slot, |slot| self.is_useless(slot, now));
        // Check again. Since the first check, there may have been a purge. A sweep may have looked at this place before
        // the object was inserted, and may then have removed the purge.
        let admitted = self.floors.admits(&object);
        if !admitted {
            self.remove_at(place, &object);
        }
        admitted
    }

    /// Adds the selecting fields of a variant to the list under the key of its address. Returns the generation of
    /// the list.
    fn varies(&self, key: Key, vary: &crate::vary::Vary, now: CacheTime) -> u64 {
        let mut shard = self.shard(key).lock();
        let (mut names, generation) = match shard.peek(key) {
            Some(Slot::Varies(varies)) if varies.names.first() == Some(&vary.names) => {
                return varies.generation;
            }
            Some(Slot::Varies(varies)) => (varies.names.clone(), varies.generation),
            _ => (Vec::new(), self.generation.fetch_add(1, Ordering::Relaxed)),
        };
        names.retain(|known| *known != vary.names);
        names.insert(0, vary.names.clone());
        names.truncate(MAX_VARIES);
        let varies = Slot::Varies(Arc::new(Varies { generation, names }));
        shard.insert(key, varies, |slot| self.is_useless(slot, now));
        generation
    }

    /// Removes an object, unless another one has taken its place.
    pub fn remove(&self, object: &Arc<Object>) {
        let key = object.key();
        let place = match &object.head.vary {
            None => key,
            Some(vary) => match self.shard(key).lock().peek(key) {
                Some(Slot::Varies(varies)) => {
                    place(key.variant(vary.variant, &self.secret), varies.generation)
                }
                _ => return,
            },
        };
        self.remove_at(place, object);
    }

    fn remove_at(&self, place: Key, object: &Arc<Object>) {
        let mut shard = self.shard(place).lock();
        let same = shard.peek(place).and_then(Slot::object).is_some_and(|stored| Arc::ptr_eq(stored, object));
        if same {
            shard.remove(place);
        }
    }

    /// Removes the responses of an address with all variants, after a request that has changed it (RFC 9111, section
    /// 4.4). `filling` is true while a response for the address is being fetched. That fetch began before the
    /// change, so its response is not stored.
    pub fn invalidate(&self, key: Key, filling: bool) {
        // If the address varies, it suffices to remove the list of selecting fields: lookups only find variants through
        // the list, and a later list has another generation.
        self.shard(key).lock().remove(key);
        if filling {
            self.floors.purge(&Purge::Key(key), Strength::Hard);
        }
    }

    /// Begins a sweep, which removes purged objects and then forgets the purges.
    pub fn begin_sweep(&self) -> Sweep {
        Sweep { until: self.floors.begin(), next: 0, removed: 0 }
    }

    /// Sweeps one part of the tier, and holds its lock for some milliseconds for 30,000 objects. Returns false once the sweep is done.
    pub fn sweep(&self, sweep: &mut Sweep) -> bool {
        let Some(shard) = self.shards.get(sweep.next) else { return false };
        sweep.next += 1;
        let dead =
            |slot: &Slot| slot.object().is_some_and(|object| self.floors.judge(object) == Effect::Dead);
        sweep.removed += shard.lock().remove_all(dead);
        let more = sweep.next < self.shards.len();
        if !more {
            self.floors.forget(sweep.until);
        }
        more
    }

    /// Counts the responses in one part of the tier that a purge would concern. `None` if there is no such part. It
    /// holds the lock of the part meanwhile.
    pub fn count(&self, part: usize, selection: &Selected) -> Option<Counted> {
        let shard = self.shards.get(part)?.lock();
        let objects = shard.slots().filter_map(Slot::object);
        let concerned =
            objects.filter(|object| selection.has(object) && self.floors.judge(object) != Effect::Dead);
        Some(concerned.fold(Counted::default(), |sum, object| Counted {
            responses: sum.responses + 1,
            bytes: sum.bytes + object.body.len(),
        }))
    }

    /// The figures of the tier.
    pub fn stat(&self) -> MemoryStat {
        let held = self.held.load(Ordering::Relaxed);
        self.shards.iter().fold(MemoryStat { held, ..MemoryStat::default() }, |sum, shard| {
            let shard = shard.lock();
            MemoryStat {
                bytes: sum.bytes + shard.memory(),
                entries: sum.entries + shard.len(),
                evicted: sum.evicted + shard.evicted,
                held,
            }
        })
    }

    /// Returns whether an entry may be evicted although it was hit: it was purged, or is too old for every use.
    fn is_useless(&self, slot: &Slot, now: CacheTime) -> bool {
        slot.object().is_some_and(|object| {
            let over = object.head.life.end() < now && !object.head.can_validate();
            over || self.floors.judge(object) == Effect::Dead
        })
    }

    fn shard(&self, place: Key) -> &Mutex<Shard> {
        // The number of parts is a power of two, and at least 1.
        let at = (place.0 >> 64) as usize & (self.shards.len() - 1);
        self.shards.get(at).expect("the number of a shard is masked")
    }
}

fn place(variant: Key, generation: u64) -> Key {
    variant.of_generation(generation)
}

/// A sweep under way.
#[derive(Debug)]
pub struct Sweep {
    until: Sequence,
    next: usize,
    /// Objects removed so far.
    pub removed: usize,
}
