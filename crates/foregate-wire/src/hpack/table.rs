//! The static and the dynamic table of HPACK (RFC 7541, section 2.3).

use super::judge::{Kind, MalformedReason};

/// The overhead of an entry beyond its bytes (RFC 7541, section 4.1).
pub(super) const OVERHEAD: usize = 32;
/// Entries of the static table; they are numbered from 1.
pub(super) const STATIC: usize = 61;
/// Evicted entries with fewer bytes than this together are not yet removed from the buffer.
const SLACK: usize = 1024;

/// Names and values of the static table (RFC 7541, appendix A).
static STATIC_FIELDS: [(&str, &str); STATIC] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The number of `transfer-encoding` in the static table.
pub(super) const TRANSFER_ENCODING: usize = 57;
const COOKIE: usize = 32;

/// Name and value of the static entry with this number, from 1.
pub(super) fn static_field(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC_FIELDS.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The kind of the static entry with this number, from 1, and its error.
#[inline]
pub(super) fn static_kind(index: usize) -> (Kind, Option<MalformedReason>) {
    match index {
        1 => (Kind::Authority, None),
        2 | 3 => (Kind::Method, None),
        4 | 5 => (Kind::Path, None),
        6 | 7 => (Kind::Scheme, None),
        8..=14 => (Kind::Status, None),
        COOKIE => (Kind::Cookie, None),
        TRANSFER_ENCODING => (Kind::Malformed, Some(MalformedReason::ConnectionField)),
        _ => (Kind::Field, None),
    }
}

/// An entry of the dynamic table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    start: u32,
    name: u32,
    value: u32,
    /// The kind of its name.
    pub(super) kind: Kind,
    /// The fault of the entry's name or value.
    pub(super) fault: Option<MalformedReason>,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.name as usize + self.value as usize + OVERHEAD
    }

    /// Bytes of its name.
    pub(super) fn name_size(&self) -> usize {
        self.name as usize
    }

    /// The kind of the entry's name, and the fault if it is one of the name.
    pub(super) fn of_name(&self) -> (Kind, Option<MalformedReason>) {
        (self.kind, self.fault.filter(|_| self.kind == Kind::Malformed))
    }
}

/// The dynamic table. Evicted entries stay in the buffer until [`Self::tidy`], so that the blocks that evicted them can
/// be read again.
#[derive(Debug)]
pub(super) struct Table {
    /// All entries, oldest first. The entries before index `first` are evicted.
    entries: Vec<Entry>,
    first: usize,
    /// Names and values.
    bytes: Vec<u8>,
    size: usize,
    max: usize,
    /// Set in two cases: all entries from before the last [`Self::tidy`] and some of those added since are evicted, or
    /// an entry was too large for the table.
    pub(super) cleared: bool,
    /// The number of entries, evicted ones included, at the last [`Self::tidy`].
    pub(super) mark: usize,
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        let (entries, bytes) = (Vec::new(), Vec::new());
        Self { entries, first: 0, bytes, size: 0, max, cleared: false, mark: 0 }
    }

    #[inline]
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The entry with this number, from 1 for the newest.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&Entry> {
        let at = self.entries.len().checked_sub(number)?;
        if at < self.first { None } else { self.entries.get(at) }
    }

    /// The entry that had this number when the table had `count` entries, evicted ones included.
    pub(super) fn get_of(&self, count: usize, number: usize) -> Option<&Entry> {
        self.entries.get(count.checked_sub(number)?)
    }

    /// The entries that were added since the last [`Self::tidy`] and are not evicted, oldest first.
    pub(super) fn fresh(&self) -> &[Entry] {
        self.entries.get(self.mark.max(self.first)..).unwrap_or_default()
    }

    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        self.bytes.get(start..start + entry.name as usize).unwrap_or_default()
    }

    pub(super) fn value(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize + entry.name as usize;
        self.bytes.get(start..start + entry.value as usize).unwrap_or_default()
    }

    /// Adds an entry, and evicts old entries to make room. An entry larger than the table evicts all entries and is not
    /// added (RFC 7541, section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], kind: Kind, fault: Option<MalformedReason>) {
        if let Some(entry) = self.admit(name.len(), value.len(), kind, fault) {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.entries.push(entry);
        }
    }

    /// Adds an entry that has the name of entry `named`. The insertion may evict `named`.
    pub(super) fn insert_like(
        &mut self,
        named: Entry,
        value: &[u8],
        kind: Kind,
        fault: Option<MalformedReason>,
    ) {
        if let Some(entry) = self.admit(named.name as usize, value.len(), kind, fault) {
            let start = named.start as usize;
            self.bytes.extend_from_within(start..start + named.name as usize);
            self.bytes.extend_from_slice(value);
            self.entries.push(entry);
        }
    }

    /// Makes room for an entry; `None` if it is larger than the table.
    fn admit(
        &mut self,
        name: usize,
        value: usize,
        kind: Kind,
        fault: Option<MalformedReason>,
    ) -> Option<Entry> {
        let size = name + value + OVERHEAD;
        self.evict(self.max.saturating_sub(size));
        self.cleared |= size > self.max || self.first > self.mark;
        if size > self.max {
            return None;
        }
        self.size += size;
        let start = u32::try_from(self.bytes.len()).ok()?;
        Some(Entry { start, name: u32::try_from(name).ok()?, value: u32::try_from(value).ok()?, kind, fault })
    }

    /// Sets the limit for the total size of the entries.
    pub(super) fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(max);
    }

    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.get(self.first)
        {
            self.size -= entry.size();
            self.first += 1;
        }
    }

    /// Drops evicted entries once they are large, and starts to record changes.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.first > 0 {
            self.forget();
        }
        self.mark = self.entries.len();
        self.cleared = false;
    }

    /// The number of bytes before the first live entry.
    fn dead(&self) -> usize {
        self.entries.get(self.first).map_or(self.bytes.len(), |entry| entry.start as usize)
    }

    /// Drops evicted entries if they are large enough to justify moving the rest.
    fn forget(&mut self) {
        let dead = self.dead();
        let many = self.first >= SLACK / OVERHEAD && self.first * 2 >= self.entries.len();
        if many || dead >= SLACK && dead * 2 >= self.bytes.len() {
            self.drop_left();
        }
    }

    /// Drops evicted entries if they far exceed the live ones, and releases the memory.
    pub(super) fn trim(&mut self) {
        let usual = 3 * self.max.max(SLACK);
        if self.bytes.len() > usual || self.entries.len() * OVERHEAD > usual {
            self.drop_left();
            self.bytes.shrink_to(usual);
            self.entries.shrink_to(usual / OVERHEAD);
        }
    }

    fn drop_left(&mut self) {
        let dead = self.dead();
        self.bytes.drain(..dead);
        self.entries.drain(..self.first);
        self.first = 0;
        for entry in &mut self.entries {
            entry.start -= dead as u32;
        }
    }
}
