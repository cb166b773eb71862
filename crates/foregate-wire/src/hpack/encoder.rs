//! What writes header blocks.

use std::collections::VecDeque;

use super::table::{OVERHEAD, STATIC};
use super::{HUFFMAN, INDEXED, INITIAL_TABLE, LITERAL, LITERAL_INDEXED, RESIZE, huffman, write_integer};
use crate::NameId;
use crate::chars::{SPACES, eq_but_case, short_word};

/// The first bits of a literal that nobody may ever add to a table (RFC 7541, section 6.2.3).
const NEVER_INDEXED: u8 = 0x10;
/// The number of `:status` in the static table, with the first of its values.
const STATUS: u8 = 8;
/// A field that takes more than one part in so many of the table is not added: others would leave for it.
const LARGEST_SHARE: usize = 4;
/// Places for names whose last field is looked at first.
const NAMES: usize = 32;

/// Writes the header blocks that one side of a connection sends (RFC 7541).
///
/// A field is added to the dynamic table when it comes for the second time within a short while: what differs in each
/// message, such as an id of the request, never has others leave the table. Secrets are not added at all, so that
/// nobody can find them out by guessing, from the length of a block (section 7.1).
///
/// A block begins with [`Self::begin`], and all that is written has to be sent, in this order: it changes the table.
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
/// // The number of `server` with the value, first as it is, then to be added to the table; then the number of both there.
/// assert_eq!(blocks, [&b"\x88\x0f\x27\x01x"[..], b"\x88\x76\x01x", b"\x88\xbe"]);
/// ```
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The numbers of the fields in the table that were written last, each with its name: mostly the next one is the same.
    /// Several names may have one place.
    latest: [u32; NAMES],
    recent: Recent,
    /// The least and the last size of the table that the peer has set since the last block began, if that is a change.
    resized: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// For a peer of which no SETTINGS have come: its table has 4,096 bytes.
    pub fn new() -> Self {
        Self {
            table: Table::new(INITIAL_TABLE),
            latest: [0; NAMES],
            recent: Recent::default(),
            resized: None,
        }
    }

    /// The peer has announced SETTINGS_HEADER_TABLE_SIZE, bytes. No more than 4,096 of them are used. A change is told
    /// with the next block; when the table has shrunk and grown again by then, both sizes are (RFC 7541, section 4.2).
    pub fn set_table(&mut self, size: u32) {
        let size = usize::try_from(size).map_or(INITIAL_TABLE, |size| size.min(INITIAL_TABLE));
        let least = self.resized.map_or(self.table.max, |(least, _)| least).min(size);
        let changed = least != self.table.max || size != self.table.max;
        self.resized = changed.then_some((least, size));
    }

    /// Appends the start of a block to `out`. It must be called first for each one.
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

    /// Appends a field to `out`. `id` is that of the name, which is written in lower case.
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
        match self.table.age(self.latest[latest], id, name, value) {
            Some(age) => write_integer(out, INDEXED, 7, STATIC + 1 + age),
            None => self.latest[latest] = self.other(id, name, value, out),
        }
    }

    /// Appends a field that is not the one which was written last with its name. Its number in the table; any number if
    /// it is not there.
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

/// Whether fields of this name often have the same value in one message after the other.
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
    match STATIC_NAMES[id as usize] {
        0 => write_own_name(first, name, out),
        index => write_integer(out, first, prefix, usize::from(index)),
    }
}

#[inline(never)]
fn write_own_name(first: u8, name: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    write_text(name, &huffman::LOWER, out);
}

/// Appends a string, in the Huffman code if it is shorter in that (RFC 7541, section 5.2).
fn write_text(text: &[u8], alphabet: &huffman::Alphabet, out: &mut Vec<u8>) {
    /// Less than this is told in one byte.
    const SHORT: usize = (1 << 7) - 1;
    let start = out.len();
    if text.len() < SHORT {
        // What has no room in as many bytes, the length with them, is not shorter.
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

/// The number of each known name in the static table; 0 where it is not there.
static STATIC_NAMES: [u8; 128] = static_names();

const fn static_names() -> [u8; 128] {
    use NameId::*;
    /// The names from number 15 on, before which all are of pseudo-fields. One has no id.
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

/// Of a field, whatever the case of its name. Nothing relies on it but how much is added to the table: who sends fields
/// with one hash gets longer blocks, and no others.
#[inline]
fn hash(id: NameId, name: &[u8], value: &[u8]) -> u32 {
    let mut hash = (value.len() as u64) << 8 | u64::from(id as u8);
    if id == NameId::Unknown {
        hash = hash_bytes(hash, name, SPACES);
    }
    hash = hash_bytes(hash, value, 0);
    (hash ^ hash >> 32) as u32
}

/// Goes on with these bytes, the bits of `same` set in each eight of them.
#[inline]
fn hash_bytes(mut hash: u64, bytes: &[u8], same: u64) -> u64 {
    const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15;
    let mut add = |word: u64| {
        let product = u128::from(hash ^ (word | same)).wrapping_mul(MULTIPLIER);
        hash = product as u64 ^ (product >> 64) as u64;
    };
    match bytes.last_chunk() {
        None => add(short_word(bytes)),
        // The last word overlaps the one before.
        Some(last) => {
            bytes.as_chunks().0.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            add(u64::from_le_bytes(*last));
        }
    }
    hash
}

/// The hashes that came last, in sets of which each keeps its own; latest first.
#[derive(Debug, Default)]
struct Recent {
    sets: [[Seen; WAYS]; SETS],
}

const SETS: usize = 16;
const WAYS: usize = 4;

/// A field that has been written.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    hash: u32,
    /// What [`Table::insert`] has said when it was added to the table.
    number: u32,
}

impl Recent {
    /// The number with a hash that came lately; any number if it was not added to the table. Other hashes are noted.
    fn find(&mut self, hash: u32) -> Option<&mut u32> {
        let set = &mut self.sets[hash as usize % SETS];
        let way = set.iter().position(|seen| seen.hash == hash);
        let mut next = way.and_then(|way| set.get(way)).map_or(Seen { hash, number: 0 }, |seen| *seen);
        for seen in set.iter_mut().take(way.unwrap_or(WAYS) + 1) {
            next = core::mem::replace(seen, next);
        }
        way.and(set.first_mut()).map(|seen| &mut seen.number)
    }
}

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry {
    /// Where its bytes begin, in all that were ever added, modulo 2^32.
    start: u32,
    /// Bytes of its name.
    name: u16,
    /// Bytes of its value.
    value: u16,
    id: NameId,
}

impl Entry {
    /// Bytes of name and value.
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.name) + usize::from(self.value)
    }
}

/// The dynamic table, as the peer has it once it has all blocks.
#[derive(Debug)]
struct Table {
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// How many were ever added, modulo 2^32.
    added: u32,
    /// Names, in lower case, and values.
    bytes: Vec<u8>,
    /// How many bytes there were before the first of `bytes`, modulo 2^32.
    before: u32,
    /// What the entries count together.
    size: usize,
    /// What they may count.
    max: usize,
}

/// So many bytes of entries that are gone may stay, at least.
const SLACK: usize = 1024;

impl Table {
    fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), added: 0, bytes: Vec::new(), before: 0, size: 0, max }
    }

    /// How many entries are newer than the one with this number, if that is the given field. The number may be any.
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

    /// Adds an entry that is no larger than the table, for which older ones leave. The number that it has from now on.
    fn insert(&mut self, id: NameId, name: &[u8], value: &[u8]) -> u32 {
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(self.max.saturating_sub(size));
        self.forget();
        self.size += size;
        self.added = self.added.wrapping_add(1);
        let start = self.before.wrapping_add(self.bytes.len() as u32);
        self.bytes.extend(name.iter().map(u8::to_ascii_lowercase));
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { start, name: name.len() as u16, value: value.len() as u16, id });
        self.added
    }

    /// Has the oldest entries leave, until the others count `size` at most.
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.len() + OVERHEAD;
        }
    }

    /// Forgets the bytes of what has left when they are some: moving the rest must not cost much for what is gained.
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
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::table::static_field;
    use super::super::{Inspector, Section};
    use super::*;

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    /// An encoder, and what reads its blocks.
    struct Pair {
        encoder: Encoder,
        inspector: Inspector,
        scratch: Vec<u8>,
    }

    impl Pair {
        fn new() -> Self {
            let inspector = Inspector::new(INITIAL_TABLE, usize::MAX);
            Self { encoder: Encoder::new(), inspector, scratch: Vec::new() }
        }

        /// The block of these fields, which have to be read from it.
        fn block(&mut self, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
            let mut block = Vec::new();
            self.encoder.begin(&mut block);
            for (name, value) in fields {
                self.encoder.field(NameId::from_name(name), name, value, &mut block);
            }
            let expected = fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()));
            assert_eq!(self.read(&block), expected.collect::<Fields>());
            block
        }

        fn read(&mut self, block: &[u8]) -> Fields {
            let inspected = self.inspector.inspect(block, Section::Response, &mut self.scratch).unwrap();
            let mut fields = Fields::new();
            inspected.fields(&mut self.scratch, |name, value| fields.push((name.to_vec(), value.to_vec())));
            fields
        }

        fn entries(&self) -> usize {
            self.encoder.table.entries.len()
        }
    }

    fn text(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_text(text, &huffman::EXACT, &mut out);
        out
    }

    #[test]
    fn strings_are_those_of_the_rfc() {
        // RFC 7541, C.4 and C.6.
        assert_eq!(text(b"www.example.com"), b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(text(b"no-cache"), b"\x86\xa8\xeb\x10\x64\x9c\xbf");
        assert_eq!(text(b"custom-key"), b"\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f");
        assert_eq!(text(b"custom-value"), b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf");
        assert_eq!(text(b"302"), b"\x82\x64\x02");
        assert_eq!(
            text(b"Mon, 21 Oct 2013 20:13:21 GMT"),
            b"\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff"
        );
        assert_eq!(
            text(b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
            b"\xad\x94\xe7\x82\x1d\xd7\xf2\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\
            \xc1\xab\x27\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07"
        );
        // Not shorter in the code, or nothing at all.
        assert_eq!(text(b"X|~"), b"\x03X|~");
        assert_eq!(text(b""), b"\x00");
    }

    #[test]
    fn all_bytes_are_coded() {
        for length in 0..9 {
            for byte in 0..=u8::MAX {
                let text = [byte].repeat(length);
                let (mut room, mut decoded) = ([0; 40], Vec::new());
                let coded = huffman::encoded_len(&text, &huffman::EXACT);
                assert_eq!(huffman::encode(&text, &huffman::EXACT, &mut room), Some(coded));
                assert!(huffman::decode(&room[..coded], &mut decoded));
                assert_eq!(decoded, text);
                if let Some(less) = coded.checked_sub(1) {
                    assert_eq!(huffman::encode(&text, &huffman::EXACT, &mut room[..less]), None);
                }
            }
        }
    }

    #[test]
    fn lengths_of_strings_are_told() {
        let mut pair = Pair::new();
        for length in (0..300).chain([1000, 16_000, 70_000]) {
            // Shorter in the code, as long as without, longer; names and values.
            for text in
                [[b'a'].repeat(length), [b'X'].repeat(length), b"~A".repeat(length), vec![0xff; length]]
            {
                pair.block(&[(b"etag", &text), (&[b"x-".as_slice(), &text].concat(), b"")]);
            }
        }
    }

    #[test]
    fn names_have_their_static_numbers() {
        for (id, number) in NameId::all().map(|id| (id, usize::from(STATIC_NAMES[id as usize]))) {
            let found = (15..=STATIC).find(|at| static_field(*at).unwrap().0 == id.as_str().as_bytes());
            assert_eq!(found.unwrap_or(0), number, "{id:?}");
        }
        assert_eq!(STATIC_NAMES[NameId::Unknown as usize], 0);
    }

    #[test]
    fn statuses_and_lengths_are_written() {
        let mut pair = Pair::new();
        for status in 100..1000u16 {
            let mut block = Vec::new();
            pair.encoder.begin(&mut block);
            pair.encoder.status(status, &mut block);
            let in_table = [200, 204, 206, 304, 400, 404, 500].contains(&status);
            assert_eq!(block.len() == 1, in_table, "{status}");
            assert_eq!(pair.read(&block), [(b":status".to_vec(), status.to_string().into_bytes())]);
        }
        for length in (0..2000).chain((0..64).flat_map(|bit| [1 << bit, u64::MAX >> bit])) {
            let mut block = Vec::new();
            pair.encoder.content_length(length, &mut block);
            assert_eq!(pair.read(&block), [(b"content-length".to_vec(), length.to_string().into_bytes())]);
        }
        assert_eq!(pair.entries(), 0);
    }

    #[test]
    fn what_comes_again_is_indexed() {
        let mut pair = Pair::new();
        let fields: [(&[u8], &[u8]); 3] =
            [(b"Content-Type", b"text/html"), (b"X-Custom", b"1"), (b"Vary", b"Accept-Encoding")];
        assert_eq!(pair.block(&fields)[0], LITERAL | 0x0f);
        assert_eq!(pair.entries(), 0);
        assert_eq!(pair.block(&fields)[0], LITERAL_INDEXED | 31);
        assert_eq!(pair.block(&fields), [0x80 | 64, 0x80 | 63, 0x80 | 62]);
        // Another case is the same name, another value is another field.
        assert_eq!(pair.block(&[(b"x-cUSTOM", b"1")]), [0x80 | 63]);
        assert!(pair.block(&[(b"x-custom", b"2")]).len() > 1);
        assert!(pair.block(&[(b"x-custon", b"1")]).len() > 1);
    }

    #[test]
    fn secrets_are_never_indexed() {
        let mut pair = Pair::new();
        for _ in 0..4 {
            for name in [&b"Set-Cookie"[..], b"Cookie", b"Authorization", b"Proxy-Authorization"] {
                assert_eq!(pair.block(&[(name, b"secret")])[0], NEVER_INDEXED | 0x0f);
            }
        }
        assert_eq!(pair.entries(), 0);
    }

    #[test]
    fn what_differs_each_time_stays_out_of_the_table() {
        let mut pair = Pair::new();
        for number in 0..1000 {
            let id = format!("{number:032x}");
            let block =
                pair.block(&[(b"Server", b"x"), (b"X-Request-Id", id.as_bytes()), (b"X-Id", id.as_bytes())]);
            if number > 1 {
                assert_eq!(block[0], 0x80 | 62);
            }
        }
        for name in ["ETag", "Last-Modified", "Location", "Content-Range", "Age", "Expires", "Content-Length"]
        {
            for _ in 0..3 {
                assert_eq!(pair.block(&[(name.as_bytes(), b"0")])[0] & 0xf0, LITERAL);
            }
        }
        assert_eq!(pair.entries(), 1);
    }

    #[test]
    fn fields_of_one_set_keep_each_other() {
        let mut pair = Pair::new();
        let of_set = |value: &String| {
            hash(NameId::Vary, b"vary", value.as_bytes()) as usize % SETS == 3 && value.len() == 4
        };
        let values: Vec<String> =
            (1000..).map(|value| format!("{value}")).filter(of_set).take(WAYS).collect();
        for round in 0..4 {
            for value in &values {
                assert_eq!(pair.block(&[(b"vary", value.as_bytes())]).len() == 1, round > 1);
            }
        }
    }

    #[test]
    fn large_fields_are_literals() {
        let mut pair = Pair::new();
        // Name, value and 32 bytes more are a quarter of the table.
        let fits = vec![b'v'; 1024 - 32 - 4];
        let (over, far) = (vec![b'v'; fits.len() + 1], vec![b'v'; 100_000]);
        for value in [&over, &far] {
            for _ in 0..3 {
                pair.block(&[(b"link", value)]);
            }
        }
        assert_eq!(pair.entries(), 0);
        for _ in 0..3 {
            pair.block(&[(b"link", &fits)]);
        }
        assert_eq!(pair.entries(), 1);
        let name = [b'N'; 70_000];
        for _ in 0..3 {
            pair.block(&[(&name, b"")]);
        }
        assert_eq!(pair.entries(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut pair = Pair::new();
        for number in 0..20_000 {
            let value = format!("{number}").repeat(1 + number % 90);
            for _ in 0..2 {
                pair.block(&[(b"x-a", value.as_bytes())]);
            }
            let table = &pair.encoder.table;
            let size: usize = table.entries.iter().map(|entry| entry.len() + OVERHEAD).sum();
            assert_eq!(table.size, size);
            assert!(size <= INITIAL_TABLE);
        }
        assert!(pair.encoder.table.bytes.capacity() <= 4 * INITIAL_TABLE);
        assert!(pair.encoder.table.entries.capacity() <= 2 * INITIAL_TABLE / OVERHEAD);
    }

    #[test]
    fn numbers_may_wrap() {
        let mut pair = Pair::new();
        pair.encoder.table.added = u32::MAX - 20;
        pair.encoder.table.before = u32::MAX - 20;
        for number in 0..400 {
            let value = format!("{}", number / 3);
            let block = pair.block(&[(b"x-a", value.as_bytes())]);
            assert_eq!(block.len() == 1, number % 3 == 2);
        }
    }

    #[test]
    fn one_hash_is_not_one_field() {
        let mut pair = Pair::new();
        for _ in 0..3 {
            pair.block(&[(b"vary", b"a"), (b"via", b"b")]);
        }
        for seen in pair.encoder.recent.sets.iter_mut().flatten() {
            seen.hash = hash(NameId::Vary, b"vary", b"c");
        }
        pair.encoder.latest = [1; NAMES];
        assert!(pair.block(&[(b"vary", b"c")]).len() > 1);
    }

    #[test]
    fn sizes_are_told() {
        let told = |before: u32, sizes: &[u32]| {
            let mut pair = Pair::new();
            let mut block = Vec::new();
            pair.encoder.set_table(before);
            pair.encoder.begin(&mut block);
            block.clear();
            sizes.iter().for_each(|size| pair.encoder.set_table(*size));
            pair.encoder.begin(&mut block);
            let mut again = Vec::new();
            pair.encoder.begin(&mut again);
            assert_eq!(again, b"");
            block
        };
        assert_eq!(told(4096, &[]), b"");
        assert_eq!(told(4096, &[4096]), b"");
        assert_eq!(told(4096, &[u32::MAX]), b"");
        assert_eq!(told(4096, &[0]), b"\x20");
        assert_eq!(told(4096, &[100, 20]), b"\x34");
        assert_eq!(told(4096, &[20, 30]), b"\x34\x3e");
        assert_eq!(told(4096, &[0, 65536]), b"\x20\x3f\xe1\x1f");
        assert_eq!(told(0, &[65536]), b"\x3f\xe1\x1f");
        assert_eq!(told(20, &[30]), b"\x3e");
        assert_eq!(told(20, &[30, 20]), b"");
        assert_eq!(told(20, &[10, 20]), b"\x2a\x34");
    }

    #[test]
    fn the_table_follows_its_size() {
        let mut pair = Pair::new();
        let fields: [(&[u8], &[u8]); 2] = [(b"server", b"x"), (b"vary", b"y")];
        for _ in 0..3 {
            pair.block(&fields);
        }
        assert_eq!(pair.entries(), 2);
        pair.encoder.set_table(0);
        // Nothing has changed for the peer until the next block.
        assert_eq!(pair.entries(), 2);
        for _ in 0..3 {
            pair.block(&fields);
            assert_eq!(pair.entries(), 0);
        }
        pair.encoder.set_table(200);
        for _ in 0..3 {
            pair.block(&fields);
        }
        assert_eq!(pair.entries(), 2);
        pair.encoder.set_table(30);
        pair.encoder.set_table(200);
        let block = pair.block(&fields);
        assert_eq!(block, b"\x3e\x3f\xa9\x01\x76\x01x\x7b\x01y");
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => (0..6u8).prop_map(|number| format!("value {number}").into_bytes()),
            2 => proptest::collection::vec(any::<u8>(), 0..40),
            1 => (0..1200usize).prop_map(|length| vec![b'a'; length]),
            1 => Just(b"0123456789abcdef".repeat(10)),
        ]
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0..NameId::all().count()).prop_map(|at| {
                NameId::all().nth(at).unwrap().as_canonical().as_bytes().to_vec()
            }),
            6 => proptest::sample::select(vec!["Server", "Vary", "Date", "X-Powered-By", "Set-Cookie"])
                .prop_map(|name| name.as_bytes().to_vec()),
            4 => (0..8u8).prop_map(|number| format!("X-Name-{number}").into_bytes()),
            1 => "[A-Za-z@_`0-9-]{1,300}".prop_map(String::into_bytes),
        ]
    }

    /// A field, a status or a length.
    #[derive(Debug, Clone)]
    enum Act {
        Field(Vec<u8>, Vec<u8>),
        Status(u16),
        Length(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            20 => (name(), value()).prop_map(|(name, value)| Act::Field(name, value)),
            1 => (100..1000u16).prop_map(Act::Status),
            1 => any::<u64>().prop_map(Act::Length),
        ]
    }

    fn sizes() -> impl Strategy<Value = Vec<u32>> {
        let size = prop_oneof![4 => 0..5000u32, 1 => Just(0), 2 => Just(4096), 1 => any::<u32>()];
        prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(size, 0..4)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn blocks_say_what_was_written(
            blocks in proptest::collection::vec(
                (sizes(), proptest::collection::vec(act(), 0..16), any::<prop::sample::Index>()), 1..40)
        ) {
            let mut pair = Pair::new();
            let mut lately: VecDeque<Vec<Act>> = VecDeque::new();
            for (sizes, acts, repeated) in blocks {
                sizes.iter().for_each(|size| pair.encoder.set_table(*size));
                let mut acts = acts;
                // Most of a message is as in one before.
                if !lately.is_empty() {
                    acts.extend_from_slice(&lately[repeated.index(lately.len())]);
                }
                acts.truncate(40);
                let (mut block, mut expected) = (Vec::new(), Fields::new());
                pair.encoder.begin(&mut block);
                for act in &acts {
                    expected.push(match act {
                        Act::Field(name, value) => {
                            pair.encoder.field(NameId::from_name(name), name, value, &mut block);
                            (name.to_ascii_lowercase(), value.clone())
                        }
                        Act::Status(status) => {
                            pair.encoder.status(*status, &mut block);
                            (b":status".to_vec(), status.to_string().into_bytes())
                        }
                        Act::Length(length) => {
                            pair.encoder.content_length(*length, &mut block);
                            (b"content-length".to_vec(), length.to_string().into_bytes())
                        }
                    });
                }
                prop_assert_eq!(pair.read(&block), expected);
                lately.push_back(acts);
                if lately.len() > 4 {
                    lately.pop_front();
                }
            }
        }
    }
}
