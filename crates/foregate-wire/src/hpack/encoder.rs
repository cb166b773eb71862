//! Encoding of header blocks.

use std::collections::VecDeque;

use super::table::{OVERHEAD, STATIC};
use super::{HUFFMAN, INDEXED, INITIAL_TABLE, LITERAL, LITERAL_INDEXED, RESIZE, huffman, write_integer};
use crate::NameId;
use crate::chars::{SPACES, eq_but_case, short_word};

/// The first bits of a literal that must never be added to a table (RFC 7541, section 6.2.3).
const NEVER_INDEXED: u8 = 0x10;
/// The number of the first `:status` entry in the static table (`:status: 200`).
const STATUS: u8 = 8;
/// A field larger than the table's size divided by this is not added, because it would evict too many others.
const LARGEST_SHARE: usize = 4;
/// The number of slots in [`Encoder::latest`].
const NAMES: usize = 32;

/// Writes the header blocks that one side of a connection sends (RFC 7541).
///
/// A field is added to the dynamic table when it occurs for the second time within a short while. Values that differ in
/// each message, such as a request id, therefore never evict others. Secrets are not added at all, so that they cannot
/// be guessed from the length of a block (section 7.1).
///
/// A block begins with [`Self::begin`]. All output must be sent in the order in which it was written, because it
/// changes the peer's table.
///
/// ```
/// use foregate_wire::NameId;
/// use foregate_wire::hpack::Encoder;
///
/// let mut encoder = Encoder::new();
/// let blocks = [(); 3].map(|()| {
///     let mut block = Vec::new();
///     encoder.begin(&mut block);
///     encoder.status(200, &mut block);
///     encoder.field(NameId::Server, b"Server", b"x", &mut block);
///     block
/// });
/// // First: the number of `server`, and the value. Second: the same, to be added to the table.
/// // Third: the number of the added entry.
/// assert_eq!(blocks, [&b"\x88\x0f\x27\x01x"[..], b"\x88\x76\x01x", b"\x88\xbe"]);
/// ```
#[derive(Debug)]
pub struct Encoder {
    table: EncoderTable,
    /// For each slot, the table entry that was last written for a name in this slot: the next field with the name usually
    /// has the same value. Several names may share a slot.
    latest: [u32; NAMES],
    recent: Recent,
    /// The smallest and the last table size that the peer has set since the last block began, if the table must change.
    resized: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder for a peer that has sent no SETTINGS yet: its table has 4,096 bytes.
    pub fn new() -> Self {
        Self {
            table: EncoderTable::new(INITIAL_TABLE),
            latest: [0; NAMES],
            recent: Recent::default(),
            resized: None,
        }
    }

    /// Sets the size that the peer has announced in SETTINGS_HEADER_TABLE_SIZE, in bytes. The encoder uses at most 4,096.
    /// The next block announces a change; if the table has shrunk and grown again by then, it announces both sizes (RFC
    /// 7541, section 4.2).
    pub fn set_table(&mut self, size: u32) {
        let size = usize::try_from(size).map_or(INITIAL_TABLE, |size| size.min(INITIAL_TABLE));
        let least = self.resized.map_or(self.table.max, |(least, _)| least).min(size);
        let changed = least != self.table.max || size != self.table.max;
        self.resized = changed.then_some((least, size));
    }

    /// Appends the start of a block to `out`. It must be called first for each block.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, last)) = self.resized.take() {
            self.resize(least, last, out);
        }
    }

    #[cold]
    fn resize(&mut self, least: usize, last: usize, out: &mut Vec<u8>) {
        if least < self.table.max.min(last) {
            write_integer(out, RESIZE, 5, least);
        }
        write_integer(out, RESIZE, 5, last);
        self.table.evict(least);
        self.table.max = last;
    }

    /// Appends `:status` to `out`; the status has three digits.
    #[inline]
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => STATUS,
            204 => STATUS + 1,
            206 => STATUS + 2,
            304 => STATUS + 3,
            400 => STATUS + 4,
            404 => STATUS + 5,
            500 => STATUS + 6,
            _ => {
                out.push(LITERAL | STATUS);
                write_number(u64::from(status), out);
                return;
            }
        };
        out.push(INDEXED | index);
    }

    /// Appends a Content-Length to `out`.
    pub fn content_length(&mut self, length: u64, out: &mut Vec<u8>) {
        write_name(LITERAL, 4, NameId::ContentLength, &[], out);
        write_number(length, out);
    }

    /// Appends a field to `out`. `id` is the id of `name`. The name is written in lower case.
    #[inline]
    pub fn field(&mut self, id: NameId, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let name = match id {
            NameId::Unknown => name,
            _ => id.as_str().as_bytes(),
        };
        if id.is_secret() {
            return write_literal(NEVER_INDEXED, 4, id, name, value, out);
        }
        let size = name.len() + value.len() + OVERHEAD;
        if !repeats(id) || size > self.table.max / LARGEST_SHARE {
            return write_literal(LITERAL, 4, id, name, value, out);
        }
        let latest = (id as usize + name.len()) % NAMES;
        let last = self.latest.get(latest).copied().unwrap_or_default();
        if let Some(age) = self.table.age(last, id, name, value) {
            return write_integer(out, INDEXED, 7, STATIC + 1 + age);
        }
        let number = self.other(id, name, value, out);
        if let Some(last) = self.latest.get_mut(latest) {
            *last = number;
        }
    }

    /// Appends a field that differs from the last field in its slot. Returns its number in the table, or any number if it
    /// has no entry.
    #[inline(never)]
    fn other(&mut self, id: NameId, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> u32 {
        let Some(number) = self.recent.find(hash(id, name, value)) else {
            write_literal(LITERAL, 4, id, name, value, out);
            return 0;
        };
        if let Some(age) = self.table.age(*number, id, name, value) {
            write_integer(out, INDEXED, 7, STATIC + 1 + age);
        } else {
            *number = self.table.insert(id, name, value);
            write_literal(LITERAL_INDEXED, 6, id, name, value, out);
        }
        *number
    }
}

/// Returns true if fields of this name often repeat their value in consecutive messages.
#[inline]
fn repeats(id: NameId) -> bool {
    !matches!(
        id,
        NameId::ContentLength
            | NameId::Etag
            | NameId::LastModified
            | NameId::Location
            | NameId::ContentRange
            | NameId::Age
            | NameId::Expires
    )
}

#[inline(never)]
fn write_literal(first: u8, prefix: u32, id: NameId, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    write_name(first, prefix, id, name, out);
    write_text(value, &huffman::EXACT, out);
}

/// Appends the start of a literal: the number of the name in the static table, or the name itself.
#[inline(always)]
fn write_name(first: u8, prefix: u32, id: NameId, name: &[u8], out: &mut Vec<u8>) {
    match STATIC_NAMES.get(id as usize).copied().unwrap_or_default() {
        0 => write_own_name(first, name, out),
        index => write_integer(out, first, prefix, usize::from(index)),
    }
}

#[inline(never)]
fn write_own_name(first: u8, name: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    write_text(name, &huffman::LOWER, out);
}

/// Appends a string, in the Huffman code if that is shorter (RFC 7541, section 5.2).
fn write_text(text: &[u8], alphabet: &huffman::Alphabet, out: &mut Vec<u8>) {
    /// Lengths below this are written in one byte.
    const SHORT: usize = (1 << 7) - 1;
    let start = out.len();
    if text.len() < SHORT {
        // The room for length and code is as large as the text alone: a code that does not fit saves nothing.
        out.resize(start + text.len(), 0);
        if let Some((first, room)) = out.get_mut(start..).and_then(<[u8]>::split_first_mut)
            && let Some(length) = huffman::encode(text, alphabet, room)
        {
            *first = HUFFMAN | length as u8;
            return out.truncate(start + 1 + length);
        }
        out.truncate(start);
    } else {
        let length = huffman::encoded_len(text, alphabet);
        if length < text.len() {
            write_integer(out, HUFFMAN, 7, length);
            let start = out.len();
            out.resize(start + length, 0);
            huffman::encode(text, alphabet, out.get_mut(start..).unwrap_or_default());
            return;
        }
    }
    write_integer(out, 0, 7, text.len());
    let start = out.len();
    out.extend_from_slice(text);
    if alphabet.lower {
        out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
    }
}

/// Appends a string of decimal digits.
#[inline]
fn write_number(number: u64, out: &mut Vec<u8>) {
    let (coded, length) = huffman::encode_number(number);
    out.push(HUFFMAN | length as u8);
    out.extend_from_slice(coded.get(coded.len() - length..).unwrap_or_default());
}

/// The number of each known name in the static table; 0 if the table does not have the name.
static STATIC_NAMES: [u8; 128] = static_names();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn static_names() -> [u8; 128] {
    use NameId::*;
    /// The static table's names from number 15 on; the entries before are pseudo-fields. One name (`refresh`) has no id.
    const KNOWN: [NameId; 47] = [
        AcceptCharset,
        AcceptEncoding,
        AcceptLanguage,
        AcceptRanges,
        Accept,
        AccessControlAllowOrigin,
        Age,
        Allow,
        Authorization,
        CacheControl,
        ContentDisposition,
        ContentEncoding,
        ContentLanguage,
        ContentLength,
        ContentLocation,
        ContentRange,
        ContentType,
        Cookie,
        Date,
        Etag,
        Expect,
        Expires,
        From,
        Host,
        IfMatch,
        IfModifiedSince,
        IfNoneMatch,
        IfRange,
        IfUnmodifiedSince,
        LastModified,
        Link,
        Location,
        MaxForwards,
        ProxyAuthenticate,
        ProxyAuthorization,
        Range,
        Referer,
        Unknown,
        RetryAfter,
        Server,
        SetCookie,
        StrictTransportSecurity,
        TransferEncoding,
        UserAgent,
        Vary,
        Via,
        WwwAuthenticate,
    ];
    let mut numbers = [0; 128];
    let mut at = 0;
    while at < KNOWN.len() {
        numbers[KNOWN[at] as usize] = 15 + at as u8;
        at += 1;
    }
    numbers[Unknown as usize] = 0;
    numbers
}

/// The hash of a field, regardless of the case of its name. It only decides which fields are added to the table: fields
/// with equal hashes make blocks longer, but not wrong.
#[inline]
fn hash(id: NameId, name: &[u8], value: &[u8]) -> u32 {
    let mut hash = (value.len() as u64) << 8 | u64::from(id as u8);
    if id == NameId::Unknown {
        hash = hash_bytes(hash, name, SPACES);
    }
    hash = hash_bytes(hash, value, 0);
    (hash ^ hash >> 32) as u32
}

/// Continues a hash with these bytes. The bits of `same` are set in each word of eight bytes, so that they do not
/// matter.
#[inline]
fn hash_bytes(mut hash: u64, bytes: &[u8], same: u64) -> u64 {
    const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15;
    let mut add = |word: u64| {
        let product = u128::from(hash ^ (word | same)).wrapping_mul(MULTIPLIER);
        hash = product as u64 ^ (product >> 64) as u64;
    };
    match bytes.last_chunk() {
        None => add(short_word(bytes)),
        // The last eight bytes may overlap the word before them.
        Some(last) => {
            bytes.as_chunks().0.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            add(u64::from_le_bytes(*last));
        }
    }
    hash
}

/// The hashes of the latest fields, in sets. A hash belongs to one set; each set keeps its latest hashes, newest first.
#[derive(Debug, Default)]
struct Recent {
    sets: [[WrittenField; WAYS]; SETS],
}

const SETS: usize = 16;
const WAYS: usize = 4;

/// A field that has been written.
#[derive(Debug, Clone, Copy, Default)]
struct WrittenField {
    hash: u32,
    /// The return value of [`EncoderTable::insert`].
    number: u32,
}

impl Recent {
    /// The table number of the field with this hash, if the hash is among the latest; 0 if the field was not added. `None`
    /// for a new hash, which is recorded.
    fn find(&mut self, hash: u32) -> Option<&mut u32> {
        let set = self.sets.get_mut(hash as usize % SETS)?;
        let way = set.iter().position(|seen| seen.hash == hash);
        let mut next =
            way.and_then(|way| set.get(way)).map_or(WrittenField { hash, number: 0 }, |seen| *seen);
        for seen in set.iter_mut().take(way.unwrap_or(WAYS) + 1) {
            next = core::mem::replace(seen, next);
        }
        way.and(set.first_mut()).map(|seen| &mut seen.number)
    }
}

/// An entry of the dynamic table.
#[derive(Debug)]
struct EncoderEntry {
    /// The offset of the entry's bytes among all bytes that were ever added, modulo 2^32.
    start: u32,
    /// Bytes of its name.
    name: u16,
    /// Bytes of its value.
    value: u16,
    id: NameId,
}

impl EncoderEntry {
    /// Bytes of name and value.
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.name) + usize::from(self.value)
    }
}

/// The dynamic table, as the peer will have it after it has received all blocks.
#[derive(Debug)]
struct EncoderTable {
    /// Oldest first.
    entries: VecDeque<EncoderEntry>,
    /// The number of entries that were ever added, modulo 2^32.
    added: u32,
    /// Names, in lower case, and values.
    bytes: Vec<u8>,
    /// The number of bytes before the first of `bytes`, modulo 2^32.
    before: u32,
    /// The sizes of all entries together.
    size: usize,
    /// The limit for `size`.
    max: usize,
}

/// Evicted entries with fewer bytes than this together are not yet removed from the buffer.
const SLACK: usize = 1024;

impl EncoderTable {
    fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), added: 0, bytes: Vec::new(), before: 0, size: 0, max }
    }

    /// The number of entries newer than entry `number`, if this entry is the given field. Any `number` is allowed.
    #[inline]
    fn age(&self, number: u32, id: NameId, name: &[u8], value: &[u8]) -> Option<usize> {
        let age = self.added.wrapping_sub(number) as usize;
        let entry = self.entries.get(self.entries.len().checked_sub(age + 1)?)?;
        if entry.id != id || usize::from(entry.value) != value.len() {
            return None;
        }
        let start = entry.start.wrapping_sub(self.before) as usize;
        let named = start + usize::from(entry.name);
        let same = self.bytes.get(named..named + value.len())? == value
            && (id != NameId::Unknown || eq_but_case(self.bytes.get(start..named)?, name));
        same.then_some(age)
    }

    /// Adds an entry that is no larger than the table, and evicts old entries to make room. Returns the new entry's number.
    fn insert(&mut self, id: NameId, name: &[u8], value: &[u8]) -> u32 {
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(self.max.saturating_sub(size));
        self.forget();
        self.size += size;
        self.added = self.added.wrapping_add(1);
        let start = self.before.wrapping_add(self.bytes.len() as u32);
        self.bytes.extend(name.iter().map(u8::to_ascii_lowercase));
        self.bytes.extend_from_slice(value);
        self.entries.push_back(EncoderEntry {
            start,
            name: name.len() as u16,
            value: value.len() as u16,
            id,
        });
        self.added
    }

    /// Evicts the oldest entries, until the others have at most `size` bytes.
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.len() + OVERHEAD;
        }
    }

    /// Drops evicted bytes once they are large enough to justify moving the rest.
    fn forget(&mut self) {
        let used = self.entries.front().map_or(0, |entry| entry.start.wrapping_sub(self.before) as usize);
        let dead = if self.entries.is_empty() { self.bytes.len() } else { used };
        if dead >= SLACK && dead * 2 >= self.bytes.len() {
            self.bytes.drain(..dead);
            self.before = self.before.wrapping_add(dead as u32);
        }
    }
}

#[cfg(test)]
mod tests;
