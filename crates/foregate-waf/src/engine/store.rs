//! Collections that outlive a transaction (`IP`, `GLOBAL`, `RESOURCE`, `SESSION`, `USER`), kept in the process.

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::tx::leading_number;
use crate::model::PersistentCollection;
use crate::transform::Transformation;

/// Most records of one shard. A new one beyond that takes the place of one that has expired, or of the one that ends
/// first.
const RECORDS: usize = 4_096;
/// Most elements of a record. Further ones are not set.
const ELEMENTS: usize = 64;
/// Most bytes of a key, of an element's name and of its value. A longer key is known by its digest, what has a longer name is not
/// kept, values are cut.
const TEXT: usize = 1_024;
/// What stands before the digest of a long key.
const DIGEST: &[u8] = b"sha1\0";
/// How many records are known to end first after all were looked at, which is done once a second. With more new ones in
/// that second, any makes room.
const NEXT: usize = 1_024;
/// How many locks share the records of a collection.
const SHARDS: usize = 16;
/// How many collections there are.
const COLLECTIONS: usize = PersistentCollection::User as usize + 1;

/// What outlives transactions, shared by all of them, and by engines that follow each other. It holds at most 65,536
/// records of each collection, so that whoever makes many of one, such as sessions, takes no room from another, such as addresses
/// that are blocked; it knows nothing of other processes.
#[derive(Debug)]
pub struct Store {
    shards: [[Mutex<Shard>; SHARDS]; COLLECTIONS],
    hasher: foldhash::quality::RandomState,
}

/// An element's name and its value.
pub(crate) type NamedValue = (Box<[u8]>, Box<[u8]>);

type Key = (PersistentCollection, Box<[u8]>);

#[derive(Debug, Default)]
struct Shard {
    records: HashMap<Key, Record>,
    /// The second in which all records were last looked at for room.
    looked: Option<u64>,
    /// Those that were to end first then, the first of them last, with the time.
    next: Vec<(u64, Key)>,
}

#[derive(Debug, Default)]
struct Record {
    elements: Vec<Element>,
    /// When it can be forgotten, in seconds since 1970.
    until: u64,
}

#[derive(Debug)]
struct Element {
    name: Box<[u8]>,
    value: Box<[u8]>,
    until: u64,
    /// It loses so much every so many seconds, last done at that time.
    loses: Option<(u32, u32, u64)>,
}

/// A record of the store: which collection, under which key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<'a> {
    pub(crate) collection: PersistentCollection,
    pub(crate) key: &'a [u8],
    /// Now, in seconds since 1970.
    pub(crate) now: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| std::array::from_fn(|_| Mutex::default())),
            hasher: foldhash::quality::RandomState::default(),
        }
    }
}

impl Store {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        use std::hash::BuildHasher;
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[key.0 as usize][at].lock()
    }

    /// The elements that a record has, with their values.
    pub(crate) fn elements(&self, handle: Handle<'_>) -> Vec<NamedValue> {
        let key = handle.key();
        let mut shard = self.shard(&key);
        let Some(record) = shard.records.get_mut(&key) else { return Vec::new() };
        record.refresh(handle.now);
        record.elements.iter().map(|element| (element.name.clone(), element.value.clone())).collect()
    }

    /// Sets an element, for `timeout` seconds.
    pub(crate) fn set(&self, handle: Handle<'_>, name: &[u8], value: &[u8], timeout: u32) {
        self.change(handle, name, timeout, |_| value.get(..TEXT).unwrap_or(value).into());
    }

    /// Adds to an element, for `timeout` seconds. What is no number, or not there, counts as zero.
    pub(crate) fn add(&self, handle: Handle<'_>, name: &[u8], amount: i64, timeout: u32) {
        self.change(handle, name, timeout, |before| {
            leading_number(before).saturating_add(amount).to_string().into_bytes().into()
        });
    }

    fn change(&self, handle: Handle<'_>, name: &[u8], timeout: u32, value: impl FnOnce(&[u8]) -> Box<[u8]>) {
        if name.len() > TEXT {
            return;
        }
        let until = handle.now.saturating_add(u64::from(timeout));
        let key = handle.key();
        let mut shard = self.shard(&key);
        if shard.records.len() >= RECORDS && !shard.records.contains_key(&key) {
            shard.make_room(handle.now);
        }
        let record = shard.records.entry(key).or_default();
        record.refresh(handle.now);
        record.until = record.until.max(until);
        if let Some(element) = record.find(name) {
            element.value = value(&element.value);
            element.until = until;
        } else if record.elements.len() < ELEMENTS {
            record.elements.push(Element { name: name.into(), value: value(b""), until, loses: None });
        }
    }

    /// Takes an element away.
    pub(crate) fn unset(&self, handle: Handle<'_>, name: &[u8]) {
        self.with(handle, |record| {
            record.elements.retain(|element| !element.name.eq_ignore_ascii_case(name));
        });
    }

    /// Lets an element end so many seconds from now.
    pub(crate) fn expire(&self, handle: Handle<'_>, name: &[u8], seconds: u64) {
        let until = handle.now.saturating_add(seconds);
        self.with(handle, |record| {
            if let Some(element) = record.find(name) {
                element.until = until;
                record.until = record.until.max(until);
            }
        });
    }

    /// Lets an element lose `amount` every so many seconds.
    pub(crate) fn deprecate(&self, handle: Handle<'_>, name: &[u8], amount: u32, seconds: u32) {
        self.with(handle, |record| {
            if let Some(element) = record.find(name) {
                let since = element.loses.map_or(handle.now, |(_, _, since)| since);
                element.loses = Some((amount, seconds.max(1), since));
            }
        });
    }

    fn with(&self, handle: Handle<'_>, change: impl FnOnce(&mut Record)) {
        let key = handle.key();
        let mut shard = self.shard(&key);
        if let Some(record) = shard.records.get_mut(&key) {
            change(record);
        }
    }
}

impl Handle<'_> {
    /// What the record is kept under. A client could otherwise make a key that counts nothing, and that an application trims.
    fn key(&self) -> Key {
        match self.key.get(..TEXT) {
            Some(start) if start.len() < self.key.len() => {
                let digest = Transformation::Sha1.apply(self.key);
                (self.collection, [DIGEST, &digest].concat().into())
            }
            _ => (self.collection, self.key.into()),
        }
    }
}

impl Record {
    fn find(&mut self, name: &[u8]) -> Option<&mut Element> {
        self.elements.iter_mut().find(|element| element.name.eq_ignore_ascii_case(name))
    }

    /// Forgets what has expired and takes off what has been lost meanwhile.
    fn refresh(&mut self, now: u64) {
        self.elements.retain(|element| element.until > now);
        for element in &mut self.elements {
            let Some((amount, seconds, since)) = &mut element.loses else { continue };
            let times = now.saturating_sub(*since) / u64::from(*seconds);
            if times > 0 {
                *since += times * u64::from(*seconds);
                let loss = i64::try_from(times).unwrap_or(i64::MAX).saturating_mul(i64::from(*amount));
                let left = leading_number(&element.value).saturating_sub(loss).max(0);
                element.value = left.to_string().into_bytes().into();
            }
        }
    }
}

impl Shard {
    /// Takes a record away, if there is need to.
    fn make_room(&mut self, now: u64) {
        if self.looked.is_none_or(|looked| looked < now) {
            self.looked = Some(now);
            self.look(now);
        }
        while self.records.len() >= RECORDS {
            let Some((until, key)) = self.next.pop() else {
                let any = self.records.keys().next().cloned();
                any.and_then(|any| self.records.remove(&any));
                return;
            };
            // It may have been prolonged, or have made room and be new.
            if self.records.get(&key).is_some_and(|record| record.until == until) {
                self.records.remove(&key);
            }
        }
    }

    /// Forgets what has expired, and finds what ends first.
    fn look(&mut self, now: u64) {
        self.records.retain(|_, record| record.until > now);
        let mut all: Vec<(u64, &Key)> =
            self.records.iter().map(|(key, record)| (record.until, key)).collect();
        if all.len() > NEXT {
            all.select_nth_unstable_by_key(NEXT, |(until, _)| *until);
            all.truncate(NEXT);
        }
        all.sort_unstable_by_key(|(until, _)| std::cmp::Reverse(*until));
        self.next = all.into_iter().map(|(until, key)| (until, key.clone())).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(store: &Store, handle: Handle<'_>, name: &[u8]) -> Option<Box<[u8]>> {
        let elements = store.elements(handle);
        elements.into_iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn handle(key: &[u8], now: u64) -> Handle<'_> {
        Handle { collection: PersistentCollection::Ip, key, now }
    }

    #[test]
    fn elements_count_expire_and_decay() {
        let store = Store::default();
        store.add(handle(b"a", 100), b"hits", 5, 60);
        store.add(handle(b"a", 101), b"HITS", 1, 60);
        assert_eq!(get(&store, handle(b"a", 102), b"hits").as_deref(), Some(&b"6"[..]));
        store.deprecate(handle(b"a", 102), b"hits", 2, 10);
        assert_eq!(get(&store, handle(b"a", 123), b"hits").as_deref(), Some(&b"2"[..]));
        store.set(handle(b"a", 123), b"blocked", b"1", 600);
        store.expire(handle(b"a", 123), b"blocked", 30);
        assert!(get(&store, handle(b"a", 152), b"blocked").is_some());
        assert!(get(&store, handle(b"a", 153), b"blocked").is_none());
        assert!(get(&store, handle(b"a", 162), b"hits").is_none(), "its time is over");
        assert!(store.elements(handle(b"b", 0)).is_empty());
    }

    #[test]
    fn long_keys_count() {
        let store = Store::default();
        let long = [b"user".to_vec(), b" ".repeat(5_000)].concat();
        let others = [&long[..long.len() - 1], &long[..TEXT], &long[..TEXT + 1], b"user"];
        for _ in 0..3 {
            store.add(handle(&long, 1), b"tries", 1, 60);
        }
        store.expire(handle(&long, 1), b"tries", 30);
        assert_eq!(get(&store, handle(&long, 2), b"tries").as_deref(), Some(&b"3"[..]));
        assert!(others.iter().all(|other| store.elements(handle(other, 2)).is_empty()));
        assert!(store.elements(handle(&long, 31)).is_empty());
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut shard = Shard::default();
        let key = |number: usize| (PersistentCollection::Ip, number.to_le_bytes().into());
        let add = |shard: &mut Shard, number: usize, until: u64, now: u64| {
            if shard.records.len() >= RECORDS {
                shard.make_room(now);
            }
            shard.records.insert(key(number), Record { elements: Vec::new(), until });
        };
        for number in 0..RECORDS {
            add(&mut shard, number, 1_000 + ((number * 7) % RECORDS) as u64, 1);
        }
        for number in 0..100 {
            add(&mut shard, RECORDS + number, 9_000, 2);
        }
        let ends = shard.records.values().map(|record| record.until).min();
        assert_eq!(
            (shard.records.len(), ends),
            (RECORDS, Some(1_100)),
            "a hundred that ended first are gone"
        );
        // All are looked at once in a second: one that has ended meanwhile is not found before the next.
        assert_eq!((shard.looked, shard.next.len()), (Some(2), NEXT - 100));
        // One that was prolonged stays.
        let first = shard.next.last().map(|(_, key)| key.clone()).unwrap();
        shard.records.get_mut(&first).unwrap().until = 9_000;
        add(&mut shard, 2 * RECORDS, 9_000, 2);
        assert!(shard.records.contains_key(&first));
        add(&mut shard, 3 * RECORDS, 9_000, 8_000);
        assert_eq!(shard.looked, Some(8_000));
        assert!(shard.records.len() < 300, "those that have ended are gone: {}", shard.records.len());
    }

    #[test]
    fn records_are_bounded() {
        let store = Store::default();
        store.set(Handle { collection: PersistentCollection::Session, key: b"one", now: 1 }, b"x", b"1", 30);
        for number in 0..(RECORDS * SHARDS * 2) {
            store.set(handle(&number.to_le_bytes(), 1), b"x", b"1", 60);
        }
        let held: usize = store.shards.iter().flatten().map(|shard| shard.lock().records.len()).sum();
        assert!(held <= RECORDS * SHARDS + 1, "{held}");
        let session = |key| Handle { collection: PersistentCollection::Session, key, now: 1 };
        assert!(get(&store, session(b"one"), b"x").is_some(), "what is in another collection stays");
        for number in 0..1000 {
            store.set(handle(b"one", 1), format!("x{number}").as_bytes(), b"1", 60);
        }
        assert_eq!(store.elements(handle(b"one", 1)).len(), ELEMENTS);
    }
}
