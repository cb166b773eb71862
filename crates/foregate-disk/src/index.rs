//! The index in memory: 16 bytes for an object, and the room that a hash table needs.

use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_cache::Key;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use parking_lot::Mutex;

use crate::place::Place;

/// The number of parts of the index. Each has its own lock, so that threads seldom wait for each other. A power
/// of two.
const SHARDS: usize = 64;

/// The part of a key that the index keeps. Objects with the same fingerprint displace each other. A
/// lookup never returns the wrong one of them, since the whole key is compared with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(key: Key) -> Self {
        Self(key.to_bits() as u64)
    }

    /// The fingerprint as a number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// 32 bits for the memory of evicted keys.
    pub(crate) fn short(self) -> u32 {
        (self.0 >> 16) as u32
    }
}

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    fingerprint: Fingerprint,
    place: Place,
}

/// The places of all objects.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<HashTable<IndexEntry>>]>,
    len: AtomicUsize,
}

fn hash(entry: &IndexEntry) -> u64 {
    entry.fingerprint.0
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), len: AtomicUsize::new(0) }
    }

    fn shard(&self, fingerprint: Fingerprint) -> &Mutex<HashTable<IndexEntry>> {
        // Use bits in the middle: the hash table itself uses the lowest and the highest ones.
        let at = (fingerprint.0 >> 40) as usize & (SHARDS - 1);
        self.shards.get(at).expect("the number of a shard is masked")
    }

    /// The place of an object. The call counts as a hit.
    pub(crate) fn hit(&self, fingerprint: Fingerprint) -> Option<Place> {
        let mut shard = self.shard(fingerprint).lock();
        let entry = shard.find_mut(fingerprint.0, |entry| entry.fingerprint == fingerprint)?;
        entry.place = entry.place.with_hits(entry.place.hits() + 1);
        Some(entry.place)
    }

    /// The place of an object, without counting a hit.
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<Place> {
        let shard = self.shard(fingerprint).lock();
        shard.find(fingerprint.0, |entry| entry.fingerprint == fingerprint).map(|entry| entry.place)
    }

    /// Sets a place. Returns the previous one.
    pub(crate) fn set(&self, fingerprint: Fingerprint, place: Place) -> Option<Place> {
        let mut shard = self.shard(fingerprint).lock();
        match shard.entry(fingerprint.0, |entry| entry.fingerprint == fingerprint, hash) {
            Slot::Occupied(mut entry) => Some(std::mem::replace(&mut entry.get_mut().place, place)),
            Slot::Vacant(entry) => {
                entry.insert(IndexEntry { fingerprint, place });
                self.len.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Sets a place if the object has none. Otherwise, `Err` has the present place.
    pub(crate) fn set_first(&self, fingerprint: Fingerprint, place: Place) -> Result<(), Place> {
        let mut shard = self.shard(fingerprint).lock();
        match shard.entry(fingerprint.0, |entry| entry.fingerprint == fingerprint, hash) {
            Slot::Occupied(entry) => Err(entry.get().place),
            Slot::Vacant(entry) => {
                entry.insert(IndexEntry { fingerprint, place });
                self.len.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Replaces the place `from` by `to`, or removes it. Returns false if the object's place is no longer `from`.
    pub(crate) fn replace(&self, fingerprint: Fingerprint, from: Place, to: Option<Place>) -> bool {
        let mut shard = self.shard(fingerprint).lock();
        let same = |entry: &IndexEntry| entry.fingerprint == fingerprint && entry.place.is(from);
        let Ok(mut entry) = shard.find_entry(fingerprint.0, same) else { return false };
        match to {
            Some(place) => entry.get_mut().place = place,
            None => {
                entry.remove();
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
        true
    }

    /// Removes an object. Returns its place.
    pub(crate) fn remove(&self, fingerprint: Fingerprint) -> Option<Place> {
        let mut shard = self.shard(fingerprint).lock();
        let entry = shard.find_entry(fingerprint.0, |entry| entry.fingerprint == fingerprint).ok()?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(entry.remove().0.place)
    }

    /// Removes all places of a slot with an unreadable segment.
    pub(crate) fn remove_slot(&self, slot: u16) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.len();
            shard.retain(|entry| entry.place.slot() != Some(slot));
            self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
    }

    /// The places in one part of the index; `None` if there is no such part.
    pub(crate) fn part(&self, part: usize) -> Option<Vec<(Fingerprint, Place)>> {
        let shard = self.shards.get(part)?.lock();
        Some(shard.iter().map(|entry| (entry.fingerprint, entry.place)).collect())
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().allocation_size()).sum()
    }
}

/// Keys of objects that were evicted without a hit, in two generations. If such an object comes back soon, it
/// goes to the main log at once.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    young: HashTable<u32>,
    old: HashTable<u32>,
}

impl Ghosts {
    /// Remembers a key. `most` bounds the number of keys in a generation.
    pub(crate) fn add(&mut self, fingerprint: Fingerprint, most: usize) {
        let short = fingerprint.short();
        if self.young.len() > most / 2 + 64 {
            self.old = std::mem::take(&mut self.young);
        }
        let hash = u64::from(short).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.young
            .entry(
                hash,
                |&other| other == short,
                |&other| u64::from(other).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            )
            .or_insert(short);
    }

    /// Forgets a key. Returns true if it was remembered.
    pub(crate) fn remove(&mut self, fingerprint: Fingerprint) -> bool {
        let short = fingerprint.short();
        let hash = u64::from(short).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for table in [&mut self.young, &mut self.old] {
            if let Ok(entry) = table.find_entry(hash, |&other| other == short) {
                entry.remove();
                return true;
            }
        }
        false
    }

    pub(crate) fn memory(&self) -> usize {
        self.young.allocation_size() + self.old.allocation_size()
    }
}
