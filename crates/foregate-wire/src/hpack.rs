//! Header blocks of HTTP/2 (RFC 7541): inspection without a copy, and encoding.
//!
//! An [`Inspector`] reads all blocks that a peer sends, decides if each is well-formed, and shows its fields. It can
//! run in front of another decoder that would end the whole connection for one malformed block, or would ignore the
//! fault. The inspector then replaces the block ([`InspectedBlock::substitute`]). The replacement keeps the decoder's
//! dynamic table in step with the peer's, adds no malformed entry to which later blocks could refer, and is refused by
//! any decoder.
//!
//! An [`Encoder`] writes the blocks for a peer.
//!
//! ```
//! use foregate_wire::hpack::{Inspector, MalformedReason, Section};
//!
//! let mut inspector = Inspector::new(4096, 65536);
//! let mut scratch = Vec::new();
//! // :method GET, :scheme http, :path /, x-a: 1
//! let block = b"\x82\x86\x84\x40\x03x-a\x011";
//! assert_eq!(inspector.inspect(block, Section::Request, &mut scratch)?.fault(), None);
//! // The last field again, by its index.
//! assert_eq!(inspector.inspect(b"\xbe", Section::Trailers, &mut scratch)?.fault(), None);
//! // :method in trailers.
//! let inspected = inspector.inspect(b"\x82", Section::Trailers, &mut scratch)?;
//! assert_eq!(inspected.fault(), Some(MalformedReason::PseudoMisplaced));
//! # Ok::<(), foregate_wire::hpack::BlockError>(())
//! ```

mod encoder;
mod huffman;
mod judge;
mod table;

pub use encoder::Encoder;
pub use judge::{MalformedReason, Section};

use core::ops::Range;

use judge::{Judge, Kind};
use table::{Entry, OVERHEAD, STATIC, TRANSFER_ENCODING, Table, static_field, static_kind};

/// The size of the dynamic table in bytes until SETTINGS change it (RFC 9113, section 6.5.2).
pub const INITIAL_TABLE: usize = 4096;

/// The most bytes of an integer, including the one with the prefix.
const INTEGER_BYTES: usize = 5;

/// An error in a header block for which the connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BlockError {
    /// A block that cannot be decoded: COMPRESSION_ERROR (RFC 9113, section 4.3).
    #[error("the header block cannot be decoded")]
    Compression,
    /// The block's fields are larger than the limit.
    #[error("the header block holds too much")]
    TooLarge,
}

/// Follows the header blocks that one peer sends on a connection.
#[derive(Debug)]
pub struct Inspector {
    table: Table,
    /// The largest table that the peer may choose.
    largest: usize,
    /// The limit on the sizes of all fields of a block.
    list_limit: usize,
    /// The smallest and the last table size that the block has set.
    resized: Option<(usize, usize)>,
}

impl Inspector {
    /// An inspector for a connection on which SETTINGS_HEADER_TABLE_SIZE is announced as `table` bytes. The fields of a
    /// block may have `list_limit` bytes; each field counts 32 bytes more than its name and value have.
    pub fn new(table: usize, list_limit: usize) -> Self {
        let largest = table.max(INITIAL_TABLE);
        Self { table: Table::new(INITIAL_TABLE), largest, list_limit, resized: None }
    }

    /// Inspects the next header block, which must be complete. `scratch` is overwritten; reuse it for all calls.
    ///
    /// # Errors
    ///
    /// The connection must end; no further block can be understood.
    pub fn inspect<'i>(
        &'i mut self,
        block: &'i [u8],
        section: Section,
        scratch: &mut Vec<u8>,
    ) -> Result<InspectedBlock<'i>, BlockError> {
        self.table.tidy();
        self.resized = None;
        let mut judge = Judge::new(section);
        let mut list = List::default();
        let mut fields = false;
        let mut reader = Reader { block, at: 0 };
        while let Some(first) = reader.first() {
            if let Some(size) = self.plain(first) {
                reader.at += 1;
                judge.plain();
                list.add(size);
                list.repeated += size - OVERHEAD;
                fields = true;
                continue;
            }
            let field = if first >= INDEXED {
                self.indexed(reader.integer(first, 7)?)?
            } else if let Some(literal) = reader.literal(first)? {
                self.literal(&literal, block, scratch)?
            } else {
                let size = reader.integer(first, 5)?;
                // RFC 7541, section 4.2: a new size must come before all fields, and be within the announced size.
                if fields || size > self.largest {
                    return Err(BlockError::Compression);
                }
                self.table.resize(size);
                let least = self.resized.map_or(size, |(least, _)| least.min(size));
                self.resized = Some((least, size));
                continue;
            };
            judge.field(field.kind, field.fault);
            list.repeated += field.repeated;
            match field.kind {
                Kind::Cookie if section == Section::Request => list.add_crumb(field.size),
                kind if kind.is_pseudo() => list.size += field.size,
                _ => list.add(field.size),
            }
            fields = true;
        }
        if list.size > self.list_limit {
            return Err(BlockError::TooLarge);
        }
        let interim = judge.is_interim();
        Ok(InspectedBlock { inspector: self, block, interim, list, fault: judge.verdict() })
    }

    /// Frees the memory that a single large block needed.
    pub fn trim(&mut self) {
        self.table.trim();
    }

    /// The size of the field in the dynamic table to which a single byte refers, if the field is well-formed. Usual blocks
    /// consist mostly of such bytes.
    #[inline]
    fn plain(&self, first: u8) -> Option<usize> {
        let number =
            usize::from(first).checked_sub(usize::from(INDEXED) + STATIC).filter(|_| first < u8::MAX)?;
        let entry = self.table.get(number)?;
        (entry.kind == Kind::Field && entry.fault.is_none()).then(|| entry.size())
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<JudgedField, BlockError> {
        if index > STATIC {
            let entry = self.table.get(index - STATIC).ok_or(BlockError::Compression)?;
            let size = entry.size();
            return Ok(JudgedField { kind: entry.kind, fault: entry.fault, size, repeated: size - OVERHEAD });
        }
        let (name, value) = static_field(index).ok_or(BlockError::Compression)?;
        let (kind, fault) = static_kind(index);
        Ok(JudgedField { kind, fault, size: name.len() + value.len() + OVERHEAD, repeated: 0 })
    }

    fn literal(
        &mut self,
        literal: &Literal,
        block: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<JudgedField, BlockError> {
        scratch.clear();
        let name = match literal.name {
            Name::Text(text) => NamedField::Text(text.decode(block, scratch)?),
            Name::Indexed(index) => match index.checked_sub(STATIC) {
                None | Some(0) => NamedField::Static(index),
                Some(number) => NamedField::Entry(*self.table.get(number).ok_or(BlockError::Compression)?),
            },
        };
        let value = literal.value.decode(block, scratch)?;
        let value = value.of(block, scratch);
        let (name_size, (kind, fault)) = match &name {
            NamedField::Static(index) => {
                let (name, _) = static_field(*index).ok_or(BlockError::Compression)?;
                (name.len(), static_kind(*index))
            }
            NamedField::Entry(entry) => (entry.name_size(), entry.of_name()),
            NamedField::Text(text) => {
                let name = text.of(block, scratch);
                let kind = Kind::of(name);
                (name.len(), kind.map_or_else(|fault| (Kind::Malformed, Some(fault)), |kind| (kind, None)))
            }
        };
        let (kind, fault) = if fault.is_some() { (kind, fault) } else { kind.with(value) };
        if literal.indexed {
            match &name {
                NamedField::Entry(entry) => self.table.insert_like(*entry, value, kind, fault),
                NamedField::Text(text) => self.table.insert(text.of(block, scratch), value, kind, fault),
                NamedField::Static(index) => {
                    let (name, _) = static_field(*index).unwrap_or_default();
                    self.table.insert(name, value, kind, fault);
                }
            }
        }
        let repeated = if matches!(name, NamedField::Entry(_)) { name_size } else { 0 };
        Ok(JudgedField { kind, fault, size: name_size + value.len() + OVERHEAD, repeated })
    }
}

/// The size of a list of fields.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    /// Bytes, with [`OVERHEAD`] for each field.
    size: usize,
    /// The number of fields, without pseudo-fields; each piece of a cookie counts.
    count: usize,
    has_cookie: bool,
    /// The bytes of names and values that are not in the block, but come from the dynamic table.
    repeated: usize,
    /// The size of the largest field that is no pseudo-field, with [`OVERHEAD`].
    largest: usize,
}

impl List {
    #[inline]
    fn add(&mut self, size: usize) {
        self.size += size;
        self.count += 1;
        self.largest = self.largest.max(size);
    }

    /// Adds a piece of a cookie. All pieces count as one field, because a reader gets them joined. For the size, each piece
    /// counts its bytes and [`OVERHEAD`].
    fn add_crumb(&mut self, size: usize) {
        self.add(size);
        self.count -= usize::from(core::mem::replace(&mut self.has_cookie, true));
    }
}

/// A decoded field's kind, fault and size.
struct JudgedField {
    kind: Kind,
    fault: Option<MalformedReason>,
    size: usize,
    /// The bytes of the name and the value that are not in the block, but come from the dynamic table.
    repeated: usize,
}

/// A name that has been looked up or decoded.
enum NamedField {
    Static(usize),
    Entry(Entry),
    Text(DecodedField),
}

/// A decoded block. It borrows the inspector, so it must be dropped before the next block is inspected.
#[derive(Debug)]
pub struct InspectedBlock<'i> {
    inspector: &'i Inspector,
    block: &'i [u8],
    interim: bool,
    list: List,
    fault: Option<MalformedReason>,
}

impl InspectedBlock<'_> {
    /// The first fault that makes the message malformed.
    #[inline]
    pub fn fault(&self) -> Option<MalformedReason> {
        self.fault
    }

    /// Returns true for the head of an interim response (RFC 9110, section 15.2).
    #[inline]
    pub fn is_interim(&self) -> bool {
        self.interim
    }

    /// The bytes of the block's names and values, plus 32 for each field (RFC 9113, section 6.5.2).
    #[inline]
    pub fn size(&self) -> usize {
        self.list.size
    }

    /// The bytes of names and values that come from the dynamic table. An entry counts each time that the block refers
    /// to it. If the block refers to each entry only once, the result is less than the size of the table.
    #[inline]
    pub fn repeated(&self) -> usize {
        self.list.repeated
    }

    /// The number of the block's fields, without pseudo-fields. All pieces of a cookie count as one field.
    #[inline]
    pub fn count(&self) -> usize {
        self.list.count
    }

    /// The bytes of name and value of the block's largest field that is no pseudo-field.
    #[inline]
    pub fn longest(&self) -> usize {
        self.list.largest.saturating_sub(OVERHEAD)
    }

    /// Shows each field, in order. `scratch` is overwritten.
    pub fn fields(&self, scratch: &mut Vec<u8>, mut show: impl FnMut(&[u8], &[u8])) {
        self.representations(scratch, |_, _, name, value| show(name, value));
    }

    /// Appends the block to `out` without the fields of this name. A field that the block adds to the dynamic table is
    /// kept, because a decoder has to add it too. Returns false, and appends nothing, if there was no field to remove.
    pub fn without(&self, name: &[u8], scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let (mut kept, begin) = (0, out.len());
        self.representations(scratch, |place, adds, found, _| {
            if found == name && !adds {
                out.extend_from_slice(self.block.get(kept..place.start).unwrap_or_default());
                kept = place.end;
            }
        });
        if kept == 0 {
            out.truncate(begin);
            return false;
        }
        out.extend_from_slice(self.block.get(kept..).unwrap_or_default());
        true
    }

    /// Calls `show` for each field with its range in the block, true if it is to be added to the table, its name and its
    /// value.
    fn representations(&self, scratch: &mut Vec<u8>, mut show: impl FnMut(Range<usize>, bool, &[u8], &[u8])) {
        let table = &self.inspector.table;
        // The number of table entries, evicted ones included, at the current point of the block.
        let mut count = table.mark;
        let mut reader = Reader { block: self.block, at: 0 };
        let entry = |count: usize, index: usize| match index.checked_sub(STATIC) {
            None | Some(0) => static_field(index),
            Some(number) => table.get_of(count, number).map(|entry| (table.name(entry), table.value(entry))),
        };
        while let Some(first) = reader.first() {
            let start = reader.at;
            if first >= INDEXED {
                let Some((name, value)) = reader.integer(first, 7).ok().and_then(|index| entry(count, index))
                else {
                    return;
                };
                show(start..reader.at, false, name, value);
                continue;
            }
            let Ok(literal) = reader.literal(first) else { return };
            let Some(literal) = literal else {
                if reader.integer(first, 5).is_err() {
                    return;
                }
                continue;
            };
            scratch.clear();
            let name = match literal.name {
                Name::Indexed(index) => Ok(index),
                Name::Text(text) => match text.decode(self.block, scratch) {
                    Ok(text) => Err(text),
                    Err(_) => return,
                },
            };
            let Ok(value) = literal.value.decode(self.block, scratch) else { return };
            let name = match &name {
                Ok(index) => entry(count, *index).map_or(&b""[..], |(name, _)| name),
                Err(text) => text.of(self.block, scratch),
            };
            let value = value.of(self.block, scratch);
            show(start..reader.at, literal.indexed, name, value);
            let fits = name.len() + value.len() + OVERHEAD <= table.max();
            count += usize::from(literal.indexed && fits);
        }
    }

    /// Appends to `out` a block that any decoder refuses as malformed, because it holds a Transfer-Encoding. It changes
    /// a decoder's table as [`Self::harmless`] does. It is at most 16 bytes longer than the largest table.
    ///
    /// Returns false if no such block is possible: a malformed entry has an empty name and an empty value, so no valid
    /// entry has its size.
    #[must_use]
    pub fn substitute(&self, out: &mut Vec<u8>) -> bool {
        let made = self.harmless(out);
        if made {
            write_integer(out, LITERAL, 4, TRANSFER_ENCODING);
            out.extend_from_slice(&[1, b'x']);
        }
        made
    }

    /// Appends to `out` a block that changes a decoder's dynamic table as this block would, if the decoder has read all
    /// earlier blocks. Well-formed entries are added unchanged. A malformed entry is replaced by a valid one of the same
    /// size, which keeps the name if that is well-formed. The block can be sent as the trailers of a finished stream.
    ///
    /// Returns false in the same case as [`Self::substitute`].
    #[must_use]
    pub fn harmless(&self, out: &mut Vec<u8>) -> bool {
        self.write_sizes(out);
        self.write_fresh(out)
    }

    /// Appends the table sizes that the block has set. If the block has evicted all earlier entries, the sizes 0 and the
    /// present one empty the decoder's table too.
    fn write_sizes(&self, out: &mut Vec<u8>) {
        let table = &self.inspector.table;
        let resized = match (table.cleared, self.inspector.resized) {
            (true, _) => Some((0, table.max())),
            (false, resized) => resized,
        };
        if let Some((least, last)) = resized {
            write_integer(out, RESIZE, 5, least);
            if least != last {
                write_integer(out, RESIZE, 5, last);
            }
        }
    }

    /// Appends the entries that the block added to the table and that are still in it.
    fn write_fresh(&self, out: &mut Vec<u8>) -> bool {
        let table = &self.inspector.table;
        for entry in table.fresh() {
            let (name, value) = (table.name(entry), table.value(entry));
            let (name, filler) = match (entry.kind, entry.fault) {
                (_, None) => (name, None),
                // Keep a valid name, because later blocks may refer to it with another value.
                (kind, _) if kind != Kind::Malformed => (name, Some(value.len())),
                _ => match (name.len() + value.len()).checked_sub(1) {
                    Some(filler) => (&b"x"[..], Some(filler)),
                    None => return false,
                },
            };
            out.push(LITERAL_INDEXED);
            write_integer(out, 0, 7, name.len());
            out.extend_from_slice(name);
            write_integer(out, 0, 7, filler.unwrap_or(value.len()));
            match filler {
                Some(filler) => out.resize(out.len() + filler, b'x'),
                None => out.extend_from_slice(value),
            }
        }
        true
    }
}

/// The first bits of representations (RFC 7541, section 6).
const INDEXED: u8 = 0x80;
const LITERAL_INDEXED: u8 = 0x40;
const RESIZE: u8 = 0x20;
const LITERAL: u8 = 0;
/// The first bit of a string in the Huffman code.
const HUFFMAN: u8 = 0x80;

struct Literal {
    /// Set if the field is added to the table.
    indexed: bool,
    name: Name,
    value: BlockText,
}

enum Name {
    Indexed(usize),
    Text(BlockText),
}

/// The position of a string in the block.
#[derive(Clone, Copy)]
struct BlockText {
    start: usize,
    end: usize,
    huffman: bool,
}

impl BlockText {
    fn decode(self, block: &[u8], scratch: &mut Vec<u8>) -> Result<DecodedField, BlockError> {
        if !self.huffman {
            return Ok(DecodedField::Block(self.start..self.end));
        }
        let start = scratch.len();
        let input = block.get(self.start..self.end).unwrap_or_default();
        if huffman::decode(input, scratch) {
            Ok(DecodedField::Scratch(start..scratch.len()))
        } else {
            Err(BlockError::Compression)
        }
    }
}

/// The position of a decoded string: in the block, or in the scratch space.
enum DecodedField {
    Block(Range<usize>),
    Scratch(Range<usize>),
}

impl DecodedField {
    #[inline]
    fn of<'d>(&self, block: &'d [u8], scratch: &'d [u8]) -> &'d [u8] {
        match self {
            Self::Block(range) => block.get(range.clone()),
            Self::Scratch(range) => scratch.get(range.clone()),
        }
        .unwrap_or_default()
    }
}

/// Parses a block.
struct Reader<'b> {
    block: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    /// The first byte of the next representation.
    #[inline]
    fn first(&self) -> Option<u8> {
        self.block.get(self.at).copied()
    }

    /// The literal that begins with `first`. `None` if `first` begins a table size; then no input is consumed.
    fn literal(&mut self, first: u8) -> Result<Option<Literal>, BlockError> {
        let (indexed, prefix) = match first {
            LITERAL_INDEXED.. => (true, 6),
            RESIZE.. => return Ok(None),
            _ => (false, 4),
        };
        let name = match self.integer(first, prefix)? {
            0 => Name::Text(self.text()?),
            index => Name::Indexed(index),
        };
        Ok(Some(Literal { indexed, name, value: self.text()? }))
    }

    fn text(&mut self) -> Result<BlockText, BlockError> {
        let first = self.first().ok_or(BlockError::Compression)?;
        let length = self.integer(first, 7)?;
        let start = self.at;
        let end = start.checked_add(length).filter(|end| *end <= self.block.len());
        self.at = end.ok_or(BlockError::Compression)?;
        Ok(BlockText { start, end: self.at, huffman: first & HUFFMAN != 0 })
    }

    /// The integer in the last `prefix` bits of `first` and the following bytes (RFC 7541, section 5.1).
    #[inline]
    fn integer(&mut self, first: u8, prefix: u32) -> Result<usize, BlockError> {
        let most = (1 << prefix) - 1;
        self.at += 1;
        let value = usize::from(first & most);
        if value < usize::from(most) { Ok(value) } else { self.long_integer(value) }
    }

    fn long_integer(&mut self, mut value: usize) -> Result<usize, BlockError> {
        for shift in 0..INTEGER_BYTES - 1 {
            let byte = self.first().ok_or(BlockError::Compression)?;
            self.at += 1;
            value += usize::from(byte & 0x7f) << (7 * shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BlockError::Compression)
    }
}

/// Appends an integer (RFC 7541, section 5.1). It begins in the last `prefix` bits of a byte; `first` has this byte's
/// other bits.
#[inline(always)]
fn write_integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let most = (1usize << prefix) - 1;
    if value < most {
        out.push(first | value as u8);
    } else {
        write_long_integer(out, first | most as u8, value - most);
    }
}

fn write_long_integer(out: &mut Vec<u8>, first: u8, mut left: usize) {
    out.push(first);
    while left >= 0x80 {
        out.push(0x80 | (left & 0x7f) as u8);
        left >>= 7;
    }
    out.push(left as u8);
}
