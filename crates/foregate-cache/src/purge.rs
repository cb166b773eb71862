//! Purges as numbers.
//!
//! Every purge gets the next number, and every object has the number of the latest purge when its fetch began.
//! A purge sets a floor: all selected objects with a lower number are dead at once, in all tiers. So a purge
//! costs the same for one object and for a million, and a lookup compares one number unless there was a purge
//! since the last lookup of the object.

mod record;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::key::{Key, ResponseAddress, address, site, site_of};
use crate::object::Object;
use crate::tags::Tag;
use crate::uri::Uri;

/// The most prefixes, since they are compared one by one. When there are more, the oldest one becomes a purge
/// of its whole site.
const MAX_PREFIXES: usize = 1000;
/// The most floors of one kind. When there are more, the older half of them is replaced by one purge of
/// everything older. Floors of addresses are replaced by purges of their sites: any client can set them by
/// unsafe requests, and one site must not empty the cache of another.
const MAX_FLOORS: usize = 1 << 17;
/// A sweep should begin after this many purges, long before there are [`MAX_FLOORS`]. Sweeps also forget purges that only a fetch
/// older than so many may need: its response is not stored.
const SWEEP_AFTER: u64 = MAX_FLOORS as u64 / 4;

/// The number of the latest purge at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub(crate) u64);

impl Sequence {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The sequence with this number, from [`get`](Self::get).
    pub fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A selection of stored responses.
#[derive(Clone, Copy, Debug)]
pub enum Purge<'a> {
    /// All responses.
    All,
    /// Responses of one scheme, host and port; path and query do not matter.
    Site(&'a Uri<'a>),
    /// All variants under one key.
    Key(Key),
    /// Responses for one address: all variants, whatever the route has added to their keys.
    Address(&'a Uri<'a>),
    /// Responses with a tag.
    Tag(Tag),
    /// Responses of one scheme, host and port with a `path?query` that begins with the bytes of the address's
    /// `path?query`.
    Prefix(&'a Uri<'a>),
}

/// The selection of one purge, to be compared with objects.
#[derive(Debug)]
pub struct Selected(Table);

impl Selected {
    /// The selection of a purge.
    pub fn new(purge: &Purge<'_>) -> Self {
        let floors = Floors::default();
        floors.purge(purge, Strength::Hard);
        Self(floors.tables.into_inner().hard)
    }

    /// Returns whether the purge concerns an object.
    pub fn has(&self, object: &Object) -> bool {
        ResponseAddress::read(object.text()).is_none_or(|located| self.0.floor(object, &located) > 0)
    }
}

/// The effect of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The responses are gone.
    Hard,
    /// The responses become stale. They are validated before use, but may still be served in the cases in which
    /// any stale response may be served.
    Soft,
}

/// The effect of all purges on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No purge concerns the object.
    Live,
    /// The object is stale.
    Outdated,
    /// The object is dead.
    Dead,
}

/// All purges that may concern stored objects. All tiers share one value.
#[derive(Debug, Default)]
pub struct Floors {
    /// The number of the latest purge.
    latest: AtomicU64,
    tables: RwLock<Tables>,
    /// The lowest number of the objects in the tiers that sweeps do not look through, plus 1. 0 without such objects.
    kept: AtomicU64,
    under_way: Arc<FetchNumbers>,
}

/// The numbers of the latest purge when each fetch under way began, with the number of fetches.
type FetchNumbers = Mutex<BTreeMap<u64, usize>>;

/// A fetch under way, from [`Floors::begin_fetch`]. While it lasts, purges that may concern its response are not forgotten.
#[derive(Debug)]
pub struct FetchUnderWay {
    sequence: Sequence,
    all: Arc<FetchNumbers>,
}

impl FetchUnderWay {
    /// The number of the latest purge when the fetch began.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }
}

impl Drop for FetchUnderWay {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.sequence.0) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.sequence.0);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Tables {
    hard: Table,
    soft: Table,
    /// The highest floor that was forgotten after a sweep: no object with a lower number may be stored any more.
    swept: u64,
}

#[derive(Debug, Default)]
struct Table {
    all: u64,
    sites: HashMap<Box<[u8]>, u64>,
    keys: HashMap<Key, u64>,
    addresses: HashMap<Box<[u8]>, u64>,
    tags: HashMap<Tag, u64>,
    /// The floor of the latest purge of a tag.
    latest_tag: u64,
    /// The oldest first.
    prefixes: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    site: Box<[u8]>,
    start: Vec<u8>,
    floor: u64,
}

impl Floors {
    /// The number of the latest purge.
    pub fn begin(&self) -> Sequence {
        Sequence(self.latest.load(Ordering::Acquire))
    }

    /// Begins a fetch. Callers do so before a request goes to the origin, and keep the result until the response is stored.
    pub fn begin_fetch(&self) -> FetchUnderWay {
        let mut all = self.under_way.lock();
        // Read under the lock: a sweep either knows of this fetch, or has ended before the number was read.
        let sequence = self.begin();
        *all.entry(sequence.0).or_default() += 1;
        FetchUnderWay { sequence, all: Arc::clone(&self.under_way) }
    }

    /// Purges, at once and in every tier. The result is the number of the purge.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) -> Sequence {
        let mut tables = self.tables.write();
        let floor = self.latest.load(Ordering::Relaxed) + 1;
        let table = match strength {
            Strength::Hard => &mut tables.hard,
            Strength::Soft => &mut tables.soft,
        };
        match purge {
            Purge::All => *table = Table { all: floor, ..Table::default() },
            Purge::Site(uri) => {
                let site = site(uri).into_boxed_slice();
                table.prefixes.retain(|prefix| prefix.site != site);
                table.sites.insert(site, floor);
            }
            Purge::Key(key) => {
                table.keys.insert(*key, floor);
            }
            Purge::Address(uri) => {
                table.addresses.insert(address(uri).into_boxed_slice(), floor);
            }
            Purge::Tag(tag) => {
                table.tags.insert(*tag, floor);
                table.latest_tag = floor;
            }
            Purge::Prefix(uri) => table.add_prefix(uri, floor),
        }
        table.bound(floor);
        // The number is set last: a reader that sees it waits for the lock and then finds the floor.
        self.latest.store(floor, Ordering::Release);
        Sequence(floor)
    }

    /// The effect of all purges on an object. The call is cheap unless there was a purge since the last call for
    /// the object.
    pub fn judge(&self, object: &Object) -> Effect {
        let latest = self.latest.load(Ordering::Acquire);
        if object.checked.load(Ordering::Relaxed) >= latest {
            return if object.is_outdated() { Effect::Outdated } else { Effect::Live };
        }
        let tables = self.tables.read();
        let Some(located) = ResponseAddress::read(object.text()) else { return Effect::Dead };
        if tables.hard.floor(object, &located) > object.sequence.0 {
            return Effect::Dead;
        }
        if tables.soft.floor(object, &located) > object.sequence.0 {
            object.outdated.store(true, Ordering::Relaxed);
        }
        object.checked.store(latest, Ordering::Relaxed);
        if object.is_outdated() { Effect::Outdated } else { Effect::Live }
    }

    /// Returns whether a purge later than `sequence` may concern the response of a fetch. `key` is the cache key of the
    /// fetch, and `text` is the text from which the key was made.
    /// The tags of the response are not known yet, so a purge of any tag counts.
    pub fn may_concern(&self, key: Key, text: &[u8], sequence: Sequence) -> bool {
        if self.latest.load(Ordering::Acquire) <= sequence.0 {
            return false;
        }
        let Some(located) = ResponseAddress::read(text) else { return true };
        let tables = self.tables.read();
        let hard = &tables.hard;
        sequence.0 < tables.swept || hard.floor_of_place(key, &located).max(hard.latest_tag) > sequence.0
    }

    /// Returns whether an object may still be stored: no forgotten purge can concern it.
    pub fn admits(&self, object: &Object) -> bool {
        let swept = self.tables.read().swept;
        object.sequence.0 >= swept && self.judge(object) != Effect::Dead
    }

    /// Forgets the floors up to this number. The caller must have judged every object after this number was
    /// reached.
    pub(crate) fn forget(&self, until: Sequence) {
        let kept = self.kept.load(Ordering::Acquire).checked_sub(1);
        let until = Sequence(kept.map_or(until.0, |kept| until.0.min(kept)));
        // Locked until the end, so that no fetch begins meanwhile with a lower number.
        let under_way = self.under_way.lock();
        let oldest = self.begin().0.saturating_sub(SWEEP_AFTER);
        let needed = under_way.keys().next().map_or(u64::MAX, |first| oldest.max(*first));
        let until = Sequence(until.0.min(needed));
        let tables = &mut *self.tables.write();
        let highest = tables.hard.forget(until.0).max(tables.soft.forget(until.0));
        tables.swept = tables.swept.max(highest);
    }

    /// Keeps the floors above the number `lowest` when sweeps end. `lowest` is the lowest number of the objects in a
    /// tier that sweeps do not look through.
    pub fn keep_above(&self, lowest: Sequence) {
        self.kept.store(lowest.0.saturating_add(1), Ordering::Release);
    }

    /// Lets sweeps forget all floors again.
    pub fn keep_none(&self) {
        self.kept.store(0, Ordering::Release);
    }

    /// Restores a floor of an earlier process from the bytes of [`Purge::write`]. Returns false for bytes that are
    /// no purge.
    pub fn restore(&self, purge: &[u8]) -> bool {
        let Some((floor, strength, kind)) = record::read(purge) else { return false };
        let tables = &mut *self.tables.write();
        let table = match strength {
            Strength::Hard => &mut tables.hard,
            Strength::Soft => &mut tables.soft,
        };
        table.restore(kind, floor);
        self.latest.fetch_max(floor, Ordering::AcqRel);
        true
    }

    /// Repeats a purge of another process, from the bytes of [`Purge::write`], under the next number of this
    /// process. Returns the bytes with the new number, or `None` for bytes that are no purge.
    pub fn repeat(&self, purge: &[u8]) -> Option<Vec<u8>> {
        let (_, strength, kind) = record::read(purge)?;
        let tables = &mut *self.tables.write();
        let floor = self.latest.load(Ordering::Relaxed) + 1;
        let table = match strength {
            Strength::Hard => &mut tables.hard,
            Strength::Soft => &mut tables.soft,
        };
        table.restore(kind, floor);
        // The number is set last: a reader that sees it waits for the lock and then finds the floor.
        self.latest.store(floor, Ordering::Release);
        let mut bytes = floor.to_le_bytes().to_vec();
        bytes.extend_from_slice(purge.get(size_of::<u64>()..)?);
        Some(bytes)
    }

    /// Raises the current number: objects of an earlier process have numbers up to this one.
    pub fn advance(&self, sequence: Sequence) {
        self.latest.fetch_max(sequence.0, Ordering::AcqRel);
    }

    /// Passes the bytes of all floors to `write`, one purge after the other, for [`restore`](Self::restore).
    pub fn save(&self, mut write: impl FnMut(&[u8])) {
        let tables = self.tables.read();
        for (strength, table) in [(Strength::Hard, &tables.hard), (Strength::Soft, &tables.soft)] {
            table.save(strength, &mut write);
        }
    }

    /// The number of floors.
    pub fn len(&self) -> usize {
        let tables = self.tables.read();
        tables.hard.len() + tables.soft.len()
    }

    /// Returns whether a sweep is due: a multiple of `SWEEP_AFTER` is between the number `before` and the number of the
    /// latest purge. If several callers purge at the same time, only one of them gets `true`.
    pub fn is_sweep_due(&self, before: Sequence) -> bool {
        self.begin().0 / SWEEP_AFTER > before.0 / SWEEP_AFTER
    }

    /// Returns whether there are no floors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    /// The highest floor that concerns an object.
    fn floor(&self, object: &Object, located: &ResponseAddress<'_>) -> u64 {
        let floor = self.floor_of_place(object.key(), located);
        if self.tags.is_empty() {
            return floor;
        }
        let tags = object.head.tags.iter().filter_map(|tag| self.tags.get(tag));
        floor.max(tags.copied().max().unwrap_or(0))
    }

    /// The highest floor that concerns a key, without regard to tags.
    fn floor_of_place(&self, key: Key, located: &ResponseAddress<'_>) -> u64 {
        let site = self.sites.get(located.site).copied().unwrap_or(0);
        let key = self.keys.get(&key).copied().unwrap_or(0);
        let address = self.addresses.get(located.address).copied().unwrap_or(0);
        let mut floor = self.all.max(site).max(key).max(address);
        for prefix in &self.prefixes {
            let concerns =
                prefix.floor > floor && *prefix.site == *located.site && located.begins_with(&prefix.start);
            if concerns {
                floor = prefix.floor;
            }
        }
        floor
    }

    fn add_prefix(&mut self, uri: &Uri<'_>, floor: u64) {
        self.push_prefix(site(uri).into_boxed_slice(), start(uri), floor);
    }

    fn push_prefix(&mut self, site: Box<[u8]>, start: Vec<u8>, floor: u64) {
        // An earlier purge of a longer prefix adds nothing.
        self.prefixes.retain(|prefix| {
            prefix.site != site || prefix.floor > floor || !prefix.start.starts_with(&start)
        });
        self.prefixes.push(Prefix { site, start, floor });
        if self.prefixes.len() > MAX_PREFIXES {
            let Prefix { site, floor, .. } = self.prefixes.remove(0);
            let of_site = self.sites.entry(site).or_default();
            *of_site = floor.max(*of_site);
        }
    }

    fn bound(&mut self, latest: u64) {
        if self.addresses.len() > MAX_FLOORS {
            self.fold_addresses();
        }
        if self.keys.len().max(self.tags.len()).max(self.sites.len()) > MAX_FLOORS {
            let older = latest.saturating_sub(MAX_FLOORS as u64 / 2);
            self.all = self.all.max(older);
            self.forget_below(older);
        }
    }

    /// Replaces floors of addresses by floors of their sites until half of them are gone. Begins with the sites
    /// that have most of these floors.
    fn fold_addresses(&mut self) {
        let (all, sites) = (self.all, &mut self.sites);
        self.addresses.retain(|address, floor| {
            let covered = sites.get(site_of(address)).copied().unwrap_or(0).max(all);
            *floor > covered
        });
        let mut counts: HashMap<&[u8], usize> = HashMap::new();
        for address in self.addresses.keys() {
            *counts.entry(site_of(address)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut left = self.addresses.len();
        let mut folded: HashSet<Box<[u8]>> = HashSet::new();
        for (site, count) in counts {
            if left <= MAX_FLOORS / 2 {
                break;
            }
            left -= count;
            folded.insert(Box::from(site));
        }
        self.addresses.retain(|address, floor| {
            let Some(site) = folded.get(site_of(address)) else { return true };
            let of_site = sites.entry(site.clone()).or_default();
            *of_site = (*of_site).max(*floor);
            false
        });
    }

    fn forget_below(&mut self, until: u64) -> u64 {
        let sites = forget(&mut self.sites, until);
        let keys = forget(&mut self.keys, until);
        let addresses = forget(&mut self.addresses, until);
        let tags = forget(&mut self.tags, until);
        let mut highest = sites.max(keys).max(addresses).max(tags);
        self.prefixes.retain(|prefix| {
            let gone = prefix.floor <= until;
            if gone {
                highest = highest.max(prefix.floor);
            }
            !gone
        });
        highest
    }

    /// Forgets the floors up to this one. Returns the highest floor that was forgotten.
    fn forget(&mut self, until: u64) -> u64 {
        let mut highest = self.forget_below(until);
        if self.all <= until {
            highest = highest.max(self.all);
            self.all = 0;
        }
        highest
    }

    fn len(&self) -> usize {
        let of_addresses = self.keys.len() + self.addresses.len();
        self.sites.len() + of_addresses + self.tags.len() + self.prefixes.len() + usize::from(self.all > 0)
    }
}

/// The bytes with which `path?query` begins for all addresses under a prefix.
fn start(uri: &Uri<'_>) -> Vec<u8> {
    let mut start = uri.path.to_vec();
    if let Some(query) = uri.query {
        start.push(b'?');
        start.extend_from_slice(query);
    }
    start
}

fn forget<K: Hash + Eq>(floors: &mut HashMap<K, u64>, until: u64) -> u64 {
    let mut highest = 0;
    floors.retain(|_, floor| {
        let gone = *floor <= until;
        if gone {
            highest = highest.max(*floor);
        }
        !gone
    });
    highest
}
