//! Very many redirects with exact sources, in little memory.
//!
//! All texts are in one piece of memory, one after the other. An entry takes 12 bytes. Per entry, the hash table takes
//! five to eight more bytes.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use foregate_module::settings::{FURTHER_LIMIT, Problem};

use super::address::{Source, Target, normal_path};

/// The most entries of all tables of a route together.
pub(super) const ENTRIES_LIMIT: usize = 1_000_000;

/// The most bytes of their texts together.
pub(super) const TEXT_LIMIT: usize = 256 * 1024 * 1024;

/// The bit of [`Entry::status`] that says that the query is kept.
const KEEPS_QUERY: u16 = 1 << 15;

/// The positions of a redirect's texts, and its settings.
#[derive(Clone, Copy)]
struct Entry {
    /// The start of the source's host in the texts. The path of the source and the target follow the host.
    start: u32,
    path: u16,
    target: u16,
    status: u16,
    host: u8,
}

/// The target of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RedirectTarget<'t> {
    pub(super) target: &'t [u8],
    pub(super) status: u16,
    pub(super) keeps_query: bool,
}

/// The reason why redirects cannot be a table. The numbers count the calls of [`Builder::add`], from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableRefusal {
    /// The second redirect has the same source as the first.
    Duplicate(usize, usize),
    /// The redirect closes a loop.
    Loop(usize),
}

/// All errors of a table.
#[derive(Debug)]
pub(super) struct AllRefused {
    first: TableRefusal,
    more: Vec<TableRefusal>,
}

impl AllRefused {
    /// Converts each error to a problem and joins them.
    pub(super) fn problem(self, one: impl Fn(TableRefusal) -> Problem) -> Problem {
        let first = one(self.first);
        self.more.into_iter().map(one).fold(first, Problem::and)
    }
}

/// Collects redirects one by one.
#[derive(Default)]
pub(super) struct Builder {
    text: Vec<u8>,
    entries: Vec<Entry>,
}

impl Builder {
    /// Adds a redirect; returns false if there is no room for it.
    #[must_use]
    pub(super) fn add(
        &mut self,
        source: &Source<'_>,
        target: &Target<'_>,
        status: u16,
        keeps_query: bool,
    ) -> bool {
        let parts = [source.host.as_bytes(), source.path.as_bytes(), target.as_bytes()];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.entries.len() >= ENTRIES_LIMIT || self.text.len() + length > TEXT_LIMIT {
            return false;
        }
        let entry = || {
            Some(Entry {
                start: u32::try_from(self.text.len()).ok()?,
                host: u8::try_from(source.host.len()).ok()?,
                path: u16::try_from(source.path.len()).ok()?,
                target: u16::try_from(target.as_bytes().len()).ok()?,
                status: status | if keeps_query { KEEPS_QUERY } else { 0 },
            })
        };
        let Some(entry) = entry() else { return false };
        self.entries.push(entry);
        parts.iter().for_each(|part| self.text.extend_from_slice(part));
        true
    }

    /// Builds the table.
    ///
    /// # Errors
    ///
    /// Reports all redirects with a duplicate source. If there are none, reports one redirect of each loop.
    pub(super) fn build(self) -> Result<RedirectTable, AllRefused> {
        let places = match self.entries.len() {
            0 => 0,
            // At most four fifths of the places are used.
            count => (count + count / 4 + 1).next_power_of_two(),
        };
        let mut table = RedirectTable {
            text: self.text.into(),
            entries: self.entries.into(),
            places: vec![0; places].into(),
            has_hosts: false,
        };
        let numbers = 0..table.entries.len();
        let duplicates = numbers.filter_map(|number| table.place(number).err());
        let mut duplicates = duplicates.take(FURTHER_LIMIT).collect::<Vec<_>>().into_iter();
        match duplicates.next().or_else(|| table.circle().map(TableRefusal::Loop)) {
            Some(first) => Err(AllRefused { first, more: duplicates.collect() }),
            None => Ok(table),
        }
    }
}

/// Redirects by source.
#[derive(Default)]
pub(super) struct RedirectTable {
    text: Box<[u8]>,
    entries: Box<[Entry]>,
    /// The hash table. A slot holds the number of an entry, from 1, or 0 if it is free. An entry is in the slot of its
    /// hash, or in a later one. The number of slots is a power of two.
    places: Box<[u32]>,
    has_hosts: bool,
}

impl RedirectTable {
    /// The target for a request. A source with this host takes precedence over a source without a host.
    pub(super) fn find(&self, host: &str, path: &[u8]) -> Option<RedirectTarget<'_>> {
        let with_host = if self.has_hosts { self.number(host.as_bytes(), path) } else { None };
        let entry = self.entries.get(with_host.or_else(|| self.number(b"", path))?)?;
        Some(RedirectTarget {
            target: self.part(entry, entry.host as usize + entry.path as usize, entry.target as usize),
            status: entry.status & !KEEPS_QUERY,
            keeps_query: entry.status & KEEPS_QUERY != 0,
        })
    }

    /// The number of redirects.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory of the table, bytes.
    pub(super) fn memory(&self) -> usize {
        self.text.len() + size_of_val(&*self.entries) + size_of_val(&*self.places)
    }

    /// The source with this number.
    pub(super) fn source(&self, number: usize) -> (&[u8], &[u8]) {
        self.entries.get(number).map_or((b"", b""), |entry| {
            let host = entry.host as usize;
            (self.part(entry, 0, host), self.part(entry, host, entry.path as usize))
        })
    }

    fn part(&self, entry: &Entry, from: usize, length: usize) -> &[u8] {
        let from = entry.start as usize + from;
        self.text.get(from..from + length).unwrap_or_default()
    }

    /// Walks over the slots in which a source may be. Returns the number of each slot and the number of its entry.
    fn walk(&self, host: &[u8], path: &[u8]) -> impl Iterator<Item = (usize, Option<usize>)> {
        let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
        hasher.write(host);
        hasher.write(path);
        let (count, start) = (self.places.len(), hasher.finish() as usize);
        // The number of slots is a power of two, so the mask keeps the slot in range. No slot is visited twice.
        (0..count).map(move |step| {
            let place = start.wrapping_add(step) & (count - 1);
            let entry = self.places.get(place).copied().unwrap_or_default();
            (place, (entry as usize).checked_sub(1))
        })
    }

    fn number(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        for (_, entry) in self.walk(host, path) {
            let number = entry?;
            if self.source(number) == (host, path) {
                return Some(number);
            }
        }
        None
    }

    /// Inserts an entry into the hash table.
    fn place(&mut self, number: usize) -> Result<(), TableRefusal> {
        let (host, path) = self.source(number);
        let mut free = None;
        for (place, entry) in self.walk(host, path) {
            match entry {
                Some(other) if self.source(other) == (host, path) => {
                    return Err(TableRefusal::Duplicate(other, number));
                }
                Some(_) => {}
                None => {
                    free = Some(place);
                    break;
                }
            }
        }
        self.has_hosts |= !host.is_empty();
        if let Some(place) = free.and_then(|place| self.places.get_mut(place)) {
            *place = number as u32 + 1;
        }
        Ok(())
    }

    /// An entry that leads back to itself. Only targets that are paths are followed, because it is not known whether an
    /// absolute target leads to this site.
    fn circle(&self) -> Option<usize> {
        let follow = |number: usize| {
            let entry = self.entries.get(number)?;
            let target = self.part(entry, entry.host as usize + entry.path as usize, entry.target as usize);
            let path = target.split(|byte| matches!(byte, b'?' | b'#')).next()?;
            let (host, _) = self.source(number);
            if !path.starts_with(b"/") {
                return None;
            }
            let path = &*normal_path(path);
            let with_host = if host.is_empty() { None } else { self.number(host, path) };
            with_host.or_else(|| self.number(b"", path))
        };
        // For each entry: the number of the walk that reached it first. The number is that of the entry at which the walk
        // began, from 1. An entry has only one successor, so each entry is visited once.
        let mut reached = vec![0_u32; self.entries.len()];
        for start in 0..self.entries.len() {
            let mut next = Some(start);
            while let Some(number) = next {
                match reached.get_mut(number) {
                    Some(from @ 0) => *from = start as u32 + 1,
                    Some(from) if *from == start as u32 + 1 => return Some(number),
                    _ => break,
                }
                next = follow(number);
            }
        }
        None
    }
}
