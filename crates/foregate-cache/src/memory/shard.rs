//! One part of the RAM tier: a map and the queues of S3-FIFO.
//!
//! A new entry waits in a small queue that gets a tenth of the memory. At the end of this queue, an entry that
//! was hit moves to the main queue, and an entry without a hit is evicted. The key of an evicted entry is
//! remembered for a while: if the entry comes again in that time, it goes to the main queue at once. So a scan
//! over many objects does not displace the entries of the main queue.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::body::ALLOCATION;
use crate::key::{Key, KeyHasher};
use crate::object::Object;
use crate::vary::VaryNames;

/// New entries get the memory limit divided by this number.
const SMALL_PART: usize = 10;
/// The most hits that are counted for an entry. It survives as many rounds of the main queue.
const MAX_HITS: u8 = 3;
/// The queues are cleaned when the number of their outdated places exceeds the number of entries plus this.
const SLACK: usize = 64;

/// The content of an entry.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Object(Arc<Object>),
    /// The selecting fields of an address's variants, the latest first. It is stored under the key of the address.
    Varies(Arc<Varies>),
}

/// The selecting fields of the variants of an address.
#[derive(Debug)]
pub(super) struct Varies {
    /// The keys under which the variants are stored depend on this number. A new list gets another number, so that
    /// it never leads to variants of an older list.
    pub(super) generation: u64,
    pub(super) names: Vec<VaryNames>,
}

impl Slot {
    fn memory(&self) -> usize {
        let content = match self {
            Self::Object(object) => object.memory(),
            Self::Varies(varies) => 64 + varies.names.len() * (size_of::<VaryNames>() + 2 * ALLOCATION + 64),
        };
        content + ENTRY
    }

    /// The object, if the slot holds one.
    pub(super) fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Varies(_) => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    slot: Slot,
    memory: usize,
    /// The number of the entry's valid place in a queue. Other places with the same key are outdated.
    ticket: u32,
    hits: u8,
    main: bool,
}

type ShardMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// The memory of an entry in addition to its content: its slot in a map that is two thirds full, and its place in a queue.
const ENTRY: usize = (size_of::<Key>() + size_of::<Entry>() + 1) * 3 / 2 + 2 * size_of::<Place>();
/// The memory of a remembered key.
const GHOST: usize = (size_of::<(u64, u32)>() + 1) * 3 / 2 + 2 * size_of::<(u64, u32)>();

type Place = (Key, u32);

/// One part of the tier.
#[derive(Debug, Default)]
pub(super) struct Shard {
    entries: ShardMap<Key, Entry>,
    small: VecDeque<Place>,
    main: VecDeque<Place>,
    ghosts: Ghosts,
    limit: usize,
    /// Bytes of all entries. `small_memory` counts those in the small queue.
    memory: usize,
    small_memory: usize,
    ticket: u32,
    pub(super) evicted: u64,
    /// Bytes of bodies that left the tier and still have readers.
    held: Arc<AtomicUsize>,
}

impl Shard {
    /// An empty part. It adds bodies that leave it and still have readers to `held`.
    pub(super) fn new(held: Arc<AtomicUsize>) -> Self {
        Self { held, ..Self::default() }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<Slot> {
        let entry = self.entries.get_mut(&key)?;
        entry.hits = (entry.hits + 1).min(MAX_HITS);
        Some(entry.slot.clone())
    }

    /// The content of an entry, without counting a hit.
    pub(super) fn peek(&self, key: Key) -> Option<&Slot> {
        self.entries.get(&key).map(|entry| &entry.slot)
    }

    /// Inserts an entry in place of an earlier entry with the same key, and makes room for it. `useless` returns true
    /// for entries that may be evicted although they were hit.
    pub(super) fn insert(&mut self, key: Key, slot: Slot, useless: impl Fn(&Slot) -> bool) {
        if let Some(object) = slot.object() {
            object.body.enter();
        }
        let before = self.take(key);
        let known = before.as_ref().is_some_and(|entry| entry.main) || self.ghosts.remove(key);
        let hits = before.map_or(0, |entry| entry.hits);
        let memory = slot.memory();
        self.ticket = self.ticket.wrapping_add(1);
        let place = (key, self.ticket);
        if known {
            self.main.push_back(place);
        } else {
            self.small.push_back(place);
            self.small_memory += memory;
        }
        self.memory += memory;
        self.entries.insert(key, Entry { slot, memory, ticket: self.ticket, hits, main: known });
        self.make_room(useless);
        self.clean();
    }

    /// Stores an object of another process at a free place. A `useful` object begins in the main queue. Returns
    /// false if there is no room.
    pub(super) fn adopt(&mut self, key: Key, object: Arc<Object>, useful: bool) -> bool {
        let slot = Slot::Object(object);
        let memory = slot.memory();
        if self.memory() + memory > self.limit {
            return false;
        }
        if let Some(object) = slot.object() {
            object.body.enter();
        }
        self.ticket = self.ticket.wrapping_add(1);
        let place = (key, self.ticket);
        if useful {
            self.main.push_back(place);
        } else {
            self.small.push_back(place);
            self.small_memory += memory;
        }
        self.memory += memory;
        self.entries.insert(key, Entry { slot, memory, ticket: self.ticket, hits: 0, main: useful });
        true
    }

    /// The places of objects. If `useful` is true, only of the objects that were used after they had been stored;
    /// if it is false, only of the other objects.
    pub(super) fn places(&self, useful: bool) -> Vec<Key> {
        let wanted =
            |entry: &Entry| entry.slot.object().is_some() && (entry.main || entry.hits > 0) == useful;
        self.entries.iter().filter(|(_, entry)| wanted(entry)).map(|(&key, _)| key).collect()
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.take(key);
        self.clean();
    }

    /// Removes the entries that `gone` selects. Returns their number.
    pub(super) fn remove_all(&mut self, mut gone: impl FnMut(&Slot) -> bool) -> usize {
        let dead: Vec<_> =
            self.entries.iter().filter(|(_, entry)| gone(&entry.slot)).map(|(&key, _)| key).collect();
        for &key in &dead {
            self.take(key);
        }
        self.clean();
        dead.len()
    }

    /// Iterates over the contents of all entries.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.entries.values().map(|entry| &entry.slot)
    }

    /// Removes everything, with the memory of the tables themselves.
    pub(super) fn close(&mut self) {
        self.remove_all(|_| true);
        let (held, evicted) = (Arc::clone(&self.held), self.evicted);
        *self = Self { evicted, ..Self::new(held) };
    }

    pub(super) fn set_limit(&mut self, limit: usize, useless: impl Fn(&Slot) -> bool) {
        self.limit = limit;
        self.make_room(useless);
        self.clean();
    }

    /// Bytes of memory, including those for remembered keys.
    pub(super) fn memory(&self) -> usize {
        self.memory + self.ghosts.memory()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn take(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.memory -= entry.memory;
        if !entry.main {
            self.small_memory -= entry.memory;
        }
        if let Some(object) = entry.slot.object() {
            object.body.leave(&self.held);
        }
        Some(entry)
    }

    fn make_room(&mut self, useless: impl Fn(&Slot) -> bool) {
        while self.memory() > self.limit {
            // Remembered keys are forgotten first if they take more than a sixteenth of the limit.
            if self.ghosts.memory() > self.limit / 16 {
                self.ghosts.forget_oldest();
            } else if self.small_memory > self.limit / SMALL_PART || self.main.is_empty() {
                if !self.pass_small(&useless) && !self.pass_main(&useless) && !self.ghosts.forget_oldest() {
                    return;
                }
            } else {
                self.pass_main(&useless);
            }
        }
    }

    /// Removes the oldest key of the small queue. An entry with a hit moves to the main queue, and an entry without
    /// a hit is evicted. Returns false if the queue is empty.
    fn pass_small(&mut self, useless: impl Fn(&Slot) -> bool) -> bool {
        let Some((key, ticket)) = self.small.pop_front() else { return false };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.ticket == ticket) else {
            return true;
        };
        if entry.hits > 0 && !useless(&entry.slot) {
            entry.hits = 0;
            entry.main = true;
            self.small_memory -= entry.memory;
            self.main.push_back((key, ticket));
        } else {
            self.take(key);
            self.evicted += 1;
            self.ghosts.add(key, self.entries.len());
        }
        true
    }

    /// Removes the oldest key of the main queue. An entry with a hit gets another round, and an entry without a hit
    /// is evicted. Returns false if the queue is empty.
    fn pass_main(&mut self, useless: impl Fn(&Slot) -> bool) -> bool {
        let Some((key, ticket)) = self.main.pop_front() else { return false };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.ticket == ticket) else {
            return true;
        };
        if entry.hits > 0 && !useless(&entry.slot) {
            entry.hits -= 1;
            self.main.push_back((key, ticket));
        } else {
            self.take(key);
            self.evicted += 1;
        }
        true
    }

    /// Removes outdated places from the queues once there are more of them than entries.
    fn clean(&mut self) {
        if self.small.len() + self.main.len() <= 2 * self.entries.len() + SLACK {
            return;
        }
        let entries = &self.entries;
        let valid = |(key, ticket): &Place| entries.get(key).is_some_and(|entry| entry.ticket == *ticket);
        self.small.retain(valid);
        self.main.retain(valid);
    }
}

/// Keys of entries that were evicted from the small queue, the oldest first.
#[derive(Debug, Default)]
struct Ghosts {
    tickets: ShardMap<u64, u32>,
    order: VecDeque<(u64, u32)>,
    ticket: u32,
}

impl Ghosts {
    /// Remembers a key, and forgets the oldest keys if there are more than `entries`.
    fn add(&mut self, key: Key, entries: usize) {
        self.ticket = self.ticket.wrapping_add(1);
        let fingerprint = key.0 as u64;
        self.tickets.insert(fingerprint, self.ticket);
        self.order.push_back((fingerprint, self.ticket));
        while self.order.len() > entries.max(SLACK) {
            self.forget_oldest();
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        self.tickets.remove(&(key.0 as u64)).is_some()
    }

    /// Forgets the oldest key. Returns false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some((fingerprint, ticket)) = self.order.pop_front() else { return false };
        if self.tickets.get(&fingerprint) == Some(&ticket) {
            self.tickets.remove(&fingerprint);
        }
        true
    }

    fn memory(&self) -> usize {
        self.order.len() * GHOST
    }
}
