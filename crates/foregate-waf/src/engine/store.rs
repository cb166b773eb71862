//! Collections that outlive a transaction (`IP`, `GLOBAL`, `RESOURCE`, `SESSION`, `USER`), kept in the process.

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::tx::leading_number;
use crate::model::PersistentCollection;
use crate::transform::Transformation;

/// The most records of one shard. In a full shard, a new record replaces an expired one, or the one that
/// expires first.
const RECORDS: usize = 4_096;
/// The size that a record can always grow to, bytes. It counts the names and values of its elements, and
/// [`ELEMENT`] for each.
const RECORD: usize = 2 << 10;
/// The largest size of a record while its shard takes more than [`ROOM`], but no more than twice that.
const LARGE_RECORD: usize = 16 << 10;
/// While the records of a shard take no more than this, bytes, a single record may have any size: `GLOBAL`
/// has few records, with elements of many clients in each. Elements are never evicted to make room, since a
/// client could otherwise erase the counts of other clients.
const ROOM: usize = 4 << 20;
/// The number of bytes by which an existing value may always grow: counters have to work when the store is full.
const GROWTH: usize = 20;
/// The overhead of an element in addition to its name and value, bytes.
const ELEMENT: usize = 128;
/// The most bytes of a key. For a longer key, its digest is used.
const KEY: usize = 1_024;
/// Prefix of the digest of a long key.
const DIGEST: &[u8] = b"sha1\0";
/// The number of records in the list of those that expire first. The list is made at most once a second from all
/// records. If more new records than this need room within that second, arbitrary old records are replaced.
const NEXT: usize = 1_024;
/// The number of shards of a collection; each has a lock of its own.
const SHARDS: usize = 16;
/// The number of collections.
const COLLECTIONS: usize = PersistentCollection::User as usize + 1;

/// Collections that outlive transactions, shared by all transactions and by consecutive engines. Each
/// collection has a limit of its own, 65,536 records: a client that creates many sessions, for example, takes
/// no room from blocked addresses. Other processes have stores of their own.
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
    /// The size of all elements, bytes.
    bytes: usize,
    /// The second in which all records were last examined to make room.
    looked: Option<u64>,
    /// The second of the last sweep over all records.
    swept: u64,
    /// The records that expire first, with the times of expiry. The soonest is last.
    next: Vec<(u64, Key)>,
}

#[derive(Debug, Default)]
struct Record {
    /// The elements by name, in small letters.
    elements: HashMap<Box<[u8]>, Element>,
    /// The time at which the record expires, seconds since 1970.
    until: u64,
    /// The size of the elements, bytes.
    bytes: usize,
    /// The number of elements that were ever added.
    made: u64,
    /// The second of the last sweep over this record.
    looked: u64,
}

#[derive(Debug)]
struct Element {
    /// The name, in the spelling with which it was first set.
    name: Box<[u8]>,
    /// The number of elements that were added to the record before this one.
    number: u64,
    value: Box<[u8]>,
    until: u64,
    /// The decay: amount, interval in seconds, time of the last reduction.
    loses: Option<(u32, u32, u64)>,
    /// The size of the element when it was set, bytes: the overhead, the name twice (because it is also the key),
    /// and the value.
    bytes: usize,
}

/// There is no room for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Identifies a record of the store by its collection and key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<'a> {
    pub(crate) collection: PersistentCollection,
    pub(crate) key: &'a [u8],
    /// The present time, seconds since 1970.
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

    /// The elements of a record with picked names, in the order in which they were added. Also returns the
    /// number of all elements of the record.
    pub(crate) fn elements(
        &self,
        handle: Handle<'_>,
        picks: impl Fn(&[u8]) -> bool,
    ) -> (Vec<NamedValue>, usize) {
        let key = handle.key();
        let mut shard = self.shard(&key);
        let Some(record) = shard.records.get_mut(&key) else { return (Vec::new(), 0) };
        let mut found = Vec::new();
        for element in record.elements.values_mut().filter(|element| picks(&element.name)) {
            if element.refresh(handle.now) {
                found.push((element.number, (element.name.clone(), element.value.clone())));
            }
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        (found.into_iter().map(|(_, named)| named).collect(), record.elements.len())
    }

    /// The element with this name.
    pub(crate) fn element(&self, handle: Handle<'_>, name: &[u8]) -> Option<NamedValue> {
        let key = handle.key();
        let mut shard = self.shard(&key);
        let element = shard.records.get_mut(&key)?.find(name, handle.now)?;
        Some((element.name.clone(), element.value.clone()))
    }

    /// Sets an element, which expires after `timeout` seconds.
    pub(crate) fn set(
        &self,
        handle: Handle<'_>,
        name: &[u8],
        value: &[u8],
        timeout: u32,
    ) -> Result<(), Full> {
        self.change(handle, name, timeout, |_| value.into())
    }

    /// Adds to an element, which then expires after `timeout` seconds. A value that is missing or not a number
    /// counts as zero.
    pub(crate) fn add(&self, handle: Handle<'_>, name: &[u8], amount: i64, timeout: u32) -> Result<(), Full> {
        self.change(handle, name, timeout, |before| {
            leading_number(before).saturating_add(amount).to_string().into_bytes().into()
        })
    }

    fn change(
        &self,
        handle: Handle<'_>,
        name: &[u8],
        timeout: u32,
        value: impl FnOnce(&[u8]) -> Box<[u8]>,
    ) -> Result<(), Full> {
        let until = handle.now.saturating_add(u64::from(timeout));
        let key = handle.key();
        let shard = &mut *self.shard(&key);
        if shard.records.len() >= RECORDS && !shard.records.contains_key(&key) {
            shard.make_room(handle.now);
        }
        let record = shard.records.entry(key.clone()).or_default();
        record.until = record.until.max(until);
        shard.bytes -= record.forget_expired(name, handle.now);
        let before = record.find(name, handle.now);
        let value = value(before.as_ref().map_or(b"", |element| &element.value));
        let (before, grows) = before.map_or((0, false), |element| (element.bytes, value.len() <= GROWTH));
        let needed = ELEMENT + 2 * name.len() + value.len();
        let more = if grows { 0 } else { needed.saturating_sub(before) };
        if !shard.fits(&key, more) {
            shard.forget_expired(&key, handle.now);
            if !shard.fits(&key, more) {
                return Err(Full);
            }
        }
        if let Some(record) = shard.records.get_mut(&key) {
            record.put(name, value, until, needed);
            shard.bytes = shard.bytes + needed - before;
        }
        Ok(())
    }

    /// Removes an element.
    pub(crate) fn unset(&self, handle: Handle<'_>, name: &[u8]) {
        let key = handle.key();
        let shard = &mut *self.shard(&key);
        if let Some(record) = shard.records.get_mut(&key)
            && let Some(element) = record.elements.remove(&*lower(name))
        {
            record.bytes -= element.bytes;
            shard.bytes -= element.bytes;
        }
    }

    /// Lets an element expire this many seconds from now.
    pub(crate) fn expire(&self, handle: Handle<'_>, name: &[u8], seconds: u64) {
        let until = handle.now.saturating_add(seconds);
        self.with(handle, |record| {
            if let Some(element) = record.find(name, handle.now) {
                element.until = until;
                record.until = record.until.max(until);
            }
        });
    }

    /// Reduces an element by `amount` every `seconds` seconds from now on.
    pub(crate) fn deprecate(&self, handle: Handle<'_>, name: &[u8], amount: u32, seconds: u32) {
        self.with(handle, |record| {
            if let Some(element) = record.find(name, handle.now) {
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
    /// The key of the record. A long key is replaced with its digest. If it were cut or refused instead, a client
    /// could evade the rules with a long key.
    fn key(&self) -> Key {
        match self.key.get(..KEY) {
            Some(start) if start.len() < self.key.len() => {
                let digest = Transformation::Sha1.apply(self.key);
                (self.collection, [DIGEST, &digest].concat().into())
            }
            _ => (self.collection, self.key.into()),
        }
    }
}

impl Record {
    /// The element with this name, if it has not expired.
    fn find(&mut self, name: &[u8], now: u64) -> Option<&mut Element> {
        let element = self.elements.get_mut(&*lower(name))?;
        element.refresh(now).then_some(element)
    }

    /// Sets an element, which takes `bytes` bytes.
    fn put(&mut self, name: &[u8], value: Box<[u8]>, until: u64, bytes: usize) {
        let number = self.made;
        self.made += 1;
        let element = self.elements.entry(lower(name)).or_insert_with(|| Element {
            name: name.into(),
            number,
            value: Box::default(),
            until,
            loses: None,
            bytes: 0,
        });
        self.bytes = self.bytes + bytes - element.bytes;
        (element.value, element.until, element.bytes) = (value, until, bytes);
    }

    /// Removes the element with this name if it has expired. Returns the number of bytes that are freed.
    fn forget_expired(&mut self, name: &[u8], now: u64) -> usize {
        let name = lower(name);
        if self.elements.get(&name).is_none_or(|element| element.until > now) {
            return 0;
        }
        let bytes = self.elements.remove(&name).map_or(0, |element| element.bytes);
        self.bytes -= bytes;
        bytes
    }

    /// Removes all expired elements, at most once a second. Returns the number of bytes that are freed.
    fn forget_all_expired(&mut self, now: u64) -> usize {
        if std::mem::replace(&mut self.looked, now) == now {
            return 0;
        }
        let before = self.bytes;
        self.elements.retain(|_, element| element.until > now);
        self.bytes = self.elements.values().map(|element| element.bytes).sum();
        before - self.bytes
    }
}

impl Element {
    /// Applies the decay since the last call. Returns false if the element has expired.
    fn refresh(&mut self, now: u64) -> bool {
        if self.until <= now {
            return false;
        }
        if let Some((amount, seconds, since)) = &mut self.loses {
            let times = now.saturating_sub(*since) / u64::from(*seconds);
            if times > 0 {
                *since += times * u64::from(*seconds);
                let loss = i64::try_from(times).unwrap_or(i64::MAX).saturating_mul(i64::from(*amount));
                let left = leading_number(&self.value).saturating_sub(loss).max(0);
                self.value = left.to_string().into_bytes().into();
            }
        }
        true
    }
}

/// A name in small letters.
fn lower(name: &[u8]) -> Box<[u8]> {
    name.to_ascii_lowercase().into()
}

impl Shard {
    /// Returns true if a record may grow by this many bytes.
    fn fits(&self, key: &Key, more: usize) -> bool {
        let record = self.records.get(key).map_or(0, |record| record.bytes);
        let most = match self.bytes + more {
            all if all <= ROOM => usize::MAX,
            all if all <= 2 * ROOM => LARGE_RECORD,
            _ => RECORD,
        };
        more == 0 || record + more <= most
    }

    /// Removes the expired elements of a record and, if the shard is still half full, those of all records. Does
    /// each at most once a second.
    fn forget_expired(&mut self, key: &Key, now: u64) {
        if let Some(record) = self.records.get_mut(key) {
            self.bytes -= record.forget_all_expired(now);
        }
        if self.bytes >= ROOM / 2 && self.swept < now {
            self.swept = now;
            self.bytes -=
                self.records.values_mut().map(|record| record.forget_all_expired(now)).sum::<usize>();
        }
    }

    /// Removes a record if there is no room for another.
    fn make_room(&mut self, now: u64) {
        if self.looked.is_none_or(|looked| looked < now) {
            self.looked = Some(now);
            self.look(now);
        }
        while self.records.len() >= RECORDS {
            let Some((until, key)) = self.next.pop() else {
                if let Some(any) = self.records.keys().next().cloned() {
                    self.remove(&any);
                }
                return;
            };
            // Since the list was made, the record may have been prolonged, or removed and created again.
            if self.records.get(&key).is_some_and(|record| record.until == until) {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        self.bytes -= self.records.remove(key).map_or(0, |record| record.bytes);
    }

    /// Removes expired records and finds the next ones to expire.
    fn look(&mut self, now: u64) {
        self.records.retain(|_, record| record.until > now);
        self.bytes = self.records.values().map(|record| record.bytes).sum();
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
        let found = store.element(handle, name);
        let (mut all, _) = store.elements(handle, |have| have.eq_ignore_ascii_case(name));
        assert_eq!(found, all.pop());
        found.map(|(_, value)| value)
    }

    fn names(store: &Store, handle: Handle<'_>) -> Vec<String> {
        let (all, _) = store.elements(handle, |_| true);
        all.into_iter().map(|(name, _)| String::from_utf8_lossy(&name).into_owned()).collect()
    }

    fn handle(key: &[u8], now: u64) -> Handle<'_> {
        Handle { collection: PersistentCollection::Ip, key, now }
    }

    #[test]
    fn elements_count_expire_and_decay() {
        let store = Store::default();
        store.add(handle(b"a", 100), b"hits", 5, 60).unwrap();
        store.add(handle(b"a", 101), b"HITS", 1, 60).unwrap();
        assert_eq!(get(&store, handle(b"a", 102), b"hits").as_deref(), Some(&b"6"[..]));
        store.deprecate(handle(b"a", 102), b"hits", 2, 10);
        assert_eq!(get(&store, handle(b"a", 123), b"hits").as_deref(), Some(&b"2"[..]));
        store.set(handle(b"a", 123), b"blocked", b"1", 600).unwrap();
        store.expire(handle(b"a", 123), b"blocked", 30);
        assert!(get(&store, handle(b"a", 152), b"blocked").is_some());
        assert!(get(&store, handle(b"a", 153), b"blocked").is_none());
        assert!(get(&store, handle(b"a", 162), b"hits").is_none(), "its time is over");
        assert!(names(&store, handle(b"b", 0)).is_empty());
    }

    #[test]
    fn long_keys_count() {
        let store = Store::default();
        let long = [b"user".to_vec(), b" ".repeat(5_000)].concat();
        let others = [&long[..long.len() - 1], &long[..KEY], &long[..KEY + 1], b"user"];
        for _ in 0..3 {
            store.add(handle(&long, 1), b"tries", 1, 60).unwrap();
        }
        store.expire(handle(&long, 1), b"tries", 30);
        assert_eq!(get(&store, handle(&long, 2), b"tries").as_deref(), Some(&b"3"[..]));
        assert!(others.iter().all(|other| names(&store, handle(other, 2)).is_empty()));
        assert!(names(&store, handle(&long, 31)).is_empty());
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut shard = Shard::default();
        let key = |number: usize| (PersistentCollection::Ip, number.to_le_bytes().into());
        let add = |shard: &mut Shard, number: usize, until: u64, now: u64| {
            if shard.records.len() >= RECORDS {
                shard.make_room(now);
            }
            shard.records.insert(key(number), Record { until, ..Record::default() });
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
        // A record that was prolonged stays.
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
        store
            .set(Handle { collection: PersistentCollection::Session, key: b"one", now: 1 }, b"x", b"1", 30)
            .unwrap();
        for number in 0..(RECORDS * SHARDS * 2) {
            store.set(handle(&number.to_le_bytes(), 1), b"x", b"1", 60).unwrap();
        }
        let held: usize = store.shards.iter().flatten().map(|shard| shard.lock().records.len()).sum();
        assert!(held <= RECORDS * SHARDS + 1, "{held}");
        let session = |key| Handle { collection: PersistentCollection::Session, key, now: 1 };
        assert!(get(&store, session(b"one"), b"x").is_some(), "what is in another collection stays");
    }

    /// The size of a shard equals the sum of its elements.
    fn is_counted(store: &Store) -> bool {
        store.shards.iter().flatten().all(|shard| {
            let shard = shard.lock();
            let of = |record: &Record| record.elements.values().map(|element| element.bytes).sum::<usize>();
            let records = shard.records.values();
            records.clone().all(|record| record.bytes == of(record))
                && shard.bytes == records.map(|record| record.bytes).sum::<usize>()
        })
    }

    #[test]
    fn elements_are_bounded_by_what_they_take() {
        let store = Store::default();
        let fill = |key: &[u8], now: u64| {
            let name = |number: usize| format!("tries_{number}");
            let set = |number: &usize| store.add(handle(key, now), name(*number).as_bytes(), 1, 60).is_ok();
            (0..100_000).take_while(set).count()
        };
        let most = fill(b"one", 1);
        assert!((20_000..ROOM / ELEMENT).contains(&most), "{most}");
        assert_eq!(names(&store, handle(b"one", 1)).len(), most);
        // Existing elements can still change, and none was evicted for another.
        assert_eq!(store.add(handle(b"one", 2), b"TRIES_3", 1, 60), Ok(()));
        assert_eq!(get(&store, handle(b"one", 2), b"tries_3").as_deref(), Some(&b"2"[..]));
        assert_eq!(get(&store, handle(b"one", 2), b"tries_0").as_deref(), Some(&b"1"[..]));
        assert_eq!(store.set(handle(b"one", 2), b"new", b"1", 60), Err(Full));
        assert!(is_counted(&store));
        // Any other record has its own room, also in a shard that is full.
        let others: Vec<Vec<u8>> = (0..64_u8).map(|number| vec![number]).collect();
        for other in &others {
            let few = (0..100)
                .all(|number: u32| store.set(handle(other, 2), &number.to_le_bytes(), b"1", 600).is_ok());
            assert!(few, "{other:?}");
        }
        assert!(is_counted(&store));
        // Expired elements make room.
        assert_eq!(store.add(handle(b"one", 62), b"new", 1, 60), Ok(()));
        assert_eq!(names(&store, handle(b"one", 62)), ["new"]);
        store.unset(handle(b"one", 62), b"NEW");
        assert!(names(&store, handle(b"one", 62)).is_empty() && is_counted(&store));
    }

    #[test]
    fn names_and_values_are_whole() {
        let store = Store::default();
        let (long, longer) = (vec![b'a'; 5_000], vec![b'a'; 5_001]);
        store.set(handle(b"a", 1), &long, &longer, 60).unwrap();
        store.set(handle(b"a", 1), &longer, &long, 60).unwrap();
        store.set(handle(b"a", 1), b"zero", b"", 60).unwrap();
        store.deprecate(handle(b"a", 1), b"zero", 1, 1);
        assert_eq!(get(&store, handle(b"a", 2), &long).as_deref(), Some(&*longer));
        assert_eq!(get(&store, handle(b"a", 2), &longer).as_deref(), Some(&*long));
        assert_eq!(get(&store, handle(b"a", 3), b"zero").as_deref(), Some(&b"0"[..]));
        store.unset(handle(b"a", 3), b"zero");
        assert!(is_counted(&store));
        assert_eq!(store.set(handle(b"a", 3), b"b", &vec![b'a'; ROOM], 60), Err(Full));
    }
}
