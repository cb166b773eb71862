//! The host patterns of all sites, in one hash table.
//!
//! If a site is not in the processor's caches, a request for it waits for memory only twice: first for
//! the slot, then for the entry and the routes at the same time. An entry is one cache line, which
//! holds the name and everything else that is needed.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::routes::RouteSet;
use super::store::CompactTable;
use crate::settings::SiteOptions;

/// The longest name that is stored in the entry itself.
const INLINE: usize = 48;

/// The most slots in use, in eighths of all.
const FULL: usize = 7;

/// No entry.
const NONE: u32 = u32::MAX;

/// An unused slot.
const FREE: Slot = Slot { hash: 0, entry: NONE, routes: RouteSet::EMPTY };

/// Bits of [`HostEntry::bits`].
const BELOW: u8 = 1;
const ALLOW_UNDERSCORES: u8 = 2;
const KEEP_SLASHES: u8 = 4;
const FORWARD_AMBIGUOUS: u8 = 8;
const REQUIRES_CERTIFICATE: u8 = 16;
const HAS_CONDITIONS: u8 = 32;
const REDIRECTS: u8 = 64;

/// The listener number of patterns that apply to all listeners.
pub(super) const EVERYWHERE: u16 = 0;

/// A host pattern of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(u32);

impl HostId {
    /// The first pattern of a table.
    pub const FIRST: Self = Self(0);
}

/// A host pattern and the site that it leads to, in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct HostEntry {
    /// The index of the site.
    pub(super) site: u32,
    /// The routes of the site.
    pub(super) routes: RouteSet,
    /// The index of the site's counters.
    pub(super) counters: u32,
    /// The listener that the pattern is for, or [`EVERYWHERE`].
    listener: u16,
    bits: u8,
    name_len: u8,
    /// The name. For a name longer than [`INLINE`]: its position in [`HostTable::long_names`].
    name: [u8; INLINE],
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The hash of the name: most other names are ruled out without reading their entries.
    hash: u64,
    entry: u32,
    /// A copy of the entry's routes, which can be prefetched before the entry has been read.
    routes: RouteSet,
}

/// Host patterns.
#[derive(Debug, Default)]
pub(super) struct HostTable {
    entries: CompactTable<HostEntry>,
    long_names: Vec<u8>,
    /// A hash table by open addressing with linear probing. The number of slots is a power of two, at most
    /// [`FULL`] eighths of them are in use, and four of them are one cache line.
    slots: CompactTable<Slot>,
    /// The patterns `*`, each with its listener or [`EVERYWHERE`].
    any: Vec<(u16, HostId)>,
    /// Bit `n` is set when there is a pattern `*.` and a name of `n + 1` labels.
    depths: u128,
    /// The hash function. Its keys are random, so that an attacker cannot choose names that collide.
    hash: RandomState,
}

/// The site that a host pattern leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    /// The index of the site.
    pub(super) site: u32,
    /// The routes of the site.
    pub(super) routes: RouteSet,
    /// The options of the site.
    pub(super) options: &'a SiteOptions,
    /// Set if routes of the site have conditions in addition to their paths.
    pub(super) has_conditions: bool,
    /// The listener that the pattern is for, or [`EVERYWHERE`].
    pub(super) listener: u16,
}

impl HostEntry {
    pub(super) fn allows_underscores(&self) -> bool {
        self.bits & ALLOW_UNDERSCORES != 0
    }

    pub(super) fn keeps_slashes(&self) -> bool {
        self.bits & KEEP_SLASHES != 0
    }

    pub(super) fn requires_certificate(&self) -> bool {
        self.bits & REQUIRES_CERTIFICATE != 0
    }

    pub(super) fn redirects(&self) -> bool {
        self.bits & REDIRECTS != 0
    }

    pub(super) fn forwards_ambiguous(&self) -> bool {
        self.bits & FORWARD_AMBIGUOUS != 0
    }

    /// Returns true if routes of the site have conditions in addition to their paths.
    pub(super) fn has_conditions(&self) -> bool {
        self.bits & HAS_CONDITIONS != 0
    }
}

impl HostTable {
    /// An empty table with room for this many entries.
    pub(super) fn with_room(entries: usize) -> Self {
        let mut table = Self::default();
        table.entries.growing().reserve_exact(entries);
        table.slots = vec![FREE; slots_for(entries)].into();
        table
    }

    /// A table with only this entry, which leads to the first site and the first counters. No lookup finds a host in it.
    pub(super) fn only(entry: &HostEntry) -> Self {
        let mut table = Self::default();
        let name = [0; INLINE];
        table.entries.growing().push(HostEntry {
            site: 0,
            routes: RouteSet::EMPTY,
            counters: 0,
            name_len: 0,
            name,
            ..*entry
        });
        table
    }

    /// The pattern that is `host` itself, for a listener. `likely` is called with its routes before the
    /// match is certain, to prefetch them.
    #[inline]
    pub(super) fn exact(&self, host: &[u8], listener: u16, likely: impl Fn(RouteSet)) -> Option<HostId> {
        self.find(host, 0, listener, likely)
    }

    /// The longest pattern such as `*.example.com` that matches `host`, for this listener or for all.
    pub(super) fn below(&self, host: &[u8], listener: u16) -> Option<HostId> {
        // An IPv6 address in brackets may contain dots, but matches no wildcard.
        if self.depths == 0 || host.first() == Some(&b'[') {
            return None;
        }
        let mut labels = memchr::memchr_iter(b'.', host).count();
        let mut rest = host;
        while let Some(dot) = memchr::memchr(b'.', rest) {
            rest = &rest[dot + 1..];
            labels -= 1;
            if self.depths.checked_shr(labels as u32).unwrap_or(0) & 1 != 0
                && let Some(found) = self.known(rest, true, listener)
            {
                return Some(found);
            }
        }
        None
    }

    /// The pattern `*` that a listener has of its own; with [`EVERYWHERE`], the one for all listeners.
    pub(super) fn any(&self, listener: u16) -> Option<HostId> {
        self.any.iter().find(|(of, _)| *of == listener).map(|(_, id)| *id)
    }

    pub(super) fn entry(&self, id: HostId) -> &HostEntry {
        &self.entries[id.0 as usize]
    }

    pub(super) fn entries_mut(&mut self) -> &mut [HostEntry] {
        &mut self.entries
    }

    /// Adds an exact name, or `*.` and the name if `below` is true. The pattern must not exist yet.
    pub(super) fn add(&mut self, name: &str, below: bool, of: Owner<'_>) -> HostId {
        let id = self.push(name.as_bytes(), below, of);
        if below {
            // A name has at most 127 labels: each takes a letter and a dot.
            self.depths |= 1 << name.bytes().filter(|byte| *byte == b'.').count().min(127);
        }
        if self.entries.len() * 8 > self.slots.len() * FULL {
            self.rebuild_slots();
        } else {
            self.place(id.0);
        }
        id
    }

    /// Adds `*`, which must not exist yet.
    pub(super) fn add_any(&mut self, of: Owner<'_>) {
        let id = self.push(b"", false, of);
        self.any.push((of.listener, id));
    }

    /// The pattern of this kind for a listener, or for all listeners if it has none of its own.
    fn known(&self, name: &[u8], below: bool, listener: u16) -> Option<HostId> {
        let kind = if below { BELOW } else { 0 };
        let own = (listener != EVERYWHERE).then(|| self.find(name, kind, listener, |_| {})).flatten();
        own.or_else(|| self.find(name, kind, EVERYWHERE, |_| {}))
    }

    /// The existing pattern with this name and kind for this listener; with [`EVERYWHERE`], the one for all
    /// listeners.
    pub(super) fn rival(&self, name: &str, below: bool, listener: u16) -> Option<HostId> {
        self.find(name.as_bytes(), if below { BELOW } else { 0 }, listener, |_| {})
    }

    /// Moves the tables to pages of their own, and frees the memory that growing has left over. To be called after
    /// the last entry was added.
    pub(super) fn settle(&mut self) {
        self.entries.settle();
        self.slots.settle();
        self.long_names.shrink_to_fit();
    }

    #[inline]
    fn find(&self, name: &[u8], kind: u8, listener: u16, likely: impl Fn(RouteSet)) -> Option<HostId> {
        let mask = self.slots.len().checked_sub(1)?;
        let hash = self.hash(name, kind, listener);
        let mut slot = hash as usize & mask;
        loop {
            let found = self.slots[slot];
            if found.entry == NONE {
                return None;
            }
            if found.hash == hash {
                likely(found.routes);
                if self.is(found.entry, name, kind, listener) {
                    return Some(HostId(found.entry));
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    #[inline]
    fn is(&self, entry: u32, name: &[u8], kind: u8, listener: u16) -> bool {
        let entry = &self.entries[entry as usize];
        entry.bits & BELOW == kind && entry.listener == listener && self.name(entry) == name
    }

    #[inline]
    fn name<'t>(&'t self, entry: &'t HostEntry) -> &'t [u8] {
        let len = usize::from(entry.name_len);
        entry.name.get(..len).unwrap_or_else(|| {
            let [a, b, c, d, ..] = entry.name;
            &self.long_names[u32::from_le_bytes([a, b, c, d]) as usize..][..len]
        })
    }

    fn push(&mut self, name: &[u8], below: bool, of: Owner<'_>) -> HostId {
        let Owner { site, routes, options, has_conditions, listener } = of;
        let mut inline = [0; INLINE];
        if name.len() <= INLINE {
            inline[..name.len()].copy_from_slice(name);
        } else {
            inline[..4].copy_from_slice(&super::narrow(self.long_names.len()).to_le_bytes());
            self.long_names.extend_from_slice(name);
        }
        let name_len = u8::try_from(name.len()).expect("a host name has at most 253 bytes");
        let bits = if below { BELOW } else { 0 }
            | if options.allow_underscores { ALLOW_UNDERSCORES } else { 0 }
            | if options.keep_slashes { KEEP_SLASHES } else { 0 }
            | if options.forward_ambiguous { FORWARD_AMBIGUOUS } else { 0 }
            | if options.requires_certificate() { REQUIRES_CERTIFICATE } else { 0 }
            | if has_conditions { HAS_CONDITIONS } else { 0 }
            | if options.redirect_https.is_some() { REDIRECTS } else { 0 };
        self.entries.growing().push(HostEntry {
            site,
            routes,
            counters: 0,
            listener,
            bits,
            name_len,
            name: inline,
        });
        HostId(super::narrow(self.entries.len() - 1))
    }

    fn rebuild_slots(&mut self) {
        self.slots = vec![FREE; slots_for(self.entries.len())].into();
        for entry in 0..super::narrow(self.entries.len()) {
            if self.any.iter().all(|(_, any)| *any != HostId(entry)) {
                self.place(entry);
            }
        }
    }

    fn place(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let hash = self.hash(self.name(entry), entry.bits & BELOW, entry.listener);
        let routes = entry.routes;
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].entry != NONE {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = Slot { hash, entry: index, routes };
    }

    #[inline]
    fn hash(&self, name: &[u8], kind: u8, listener: u16) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u32(u32::from(kind) << 16 | u32::from(listener));
        hasher.write(name);
        hasher.finish()
    }
}

/// The number of slots for this many entries.
fn slots_for(entries: usize) -> usize {
    (entries * 8 / FULL + 1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_cache_line() {
        assert_eq!(size_of::<HostEntry>(), 64);
    }

    #[test]
    fn names_of_all_lengths_are_found() {
        let mut table = HostTable::default();
        let names: Vec<String> = (1..=253).map(|len| "a".repeat(len)).collect();
        let options = SiteOptions::default();
        for (site, name) in names.iter().enumerate() {
            let (site, below) = (site as u32, site % 2 == 1);
            let (routes, options) = (RouteSet::EMPTY, &options);
            table.add(name, below, Owner { site, routes, options, has_conditions: false, listener: 0 });
        }
        table.settle();
        for (site, name) in names.iter().enumerate() {
            let found = table.known(name.as_bytes(), site % 2 == 1, 7).map(|id| table.entry(id).site);
            assert_eq!(found, Some(site as u32));
            assert_eq!(table.known(name.as_bytes(), site % 2 == 0, 7), None);
            assert_eq!(table.rival(name, site % 2 == 1, 7), None);
        }
        assert_eq!(table.exact(&[b'a'; 300], EVERYWHERE, |_| {}), None);
        assert_eq!(table.exact(b"", EVERYWHERE, |_| {}), None);
    }
}
