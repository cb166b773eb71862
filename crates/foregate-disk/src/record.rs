//! Records of segments: `sum 8 | magic 4 | flags 4 | key 16 | serial 8 | sequence 8 | head length 4 | body length 4 | 8 reserved`, a sum for each block of the
//! body, the head, the body, padding.

use std::ops::Range;

use bytes::Bytes;
use foregate_cache::{Key, Object, Sequence};

use crate::bytes::Reader;
use crate::place::ALIGN;
use crate::sums::{BLOCK, Seed};

pub(crate) const HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"FGRr");
const LIST: u32 = 1;

/// The part of a record that has a fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) key: Key,
    /// The number of the record. Of two records with the same key, the one with the higher number is valid.
    pub(crate) serial: u64,
    pub(crate) sequence: Sequence,
    pub(crate) list: bool,
    pub(crate) head: u32,
    pub(crate) body: u32,
}

/// The content of a record, without its place.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    Object(&'a Object),
    /// An encoded list of selecting fields (`Vary`).
    List(&'a [u8]),
}

/// A verified record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) header: Header,
    head: Range<usize>,
    body: Range<usize>,
}

impl Header {
    /// The whole length in bytes, padding included.
    pub(crate) fn length(&self) -> usize {
        padded(self.body_start() + self.body as usize)
    }

    fn head_start(&self) -> usize {
        HEADER + (self.body as usize).div_ceil(BLOCK) * size_of::<u64>()
    }

    fn body_start(&self) -> usize {
        self.head_start() + self.head as usize
    }

    /// Reads the header, without verifying it: only a whole record can be verified.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let _sum = from.u64()?;
        if from.u32()? != MAGIC {
            return None;
        }
        let flags = from.u32()?;
        let (key, serial, sequence) = (from.u128()?, from.u64()?, from.u64()?);
        Some(Self {
            key: Key::from_bits(key),
            serial,
            sequence: Sequence::new(sequence),
            list: flags & LIST != 0,
            head: from.u32()?,
            body: from.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&if self.list { LIST } else { 0 }.to_le_bytes());
        out.extend_from_slice(&self.key.to_bits().to_le_bytes());
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.extend_from_slice(&self.sequence.get().to_le_bytes());
        out.extend_from_slice(&self.head.to_le_bytes());
        out.extend_from_slice(&self.body.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGN as usize)
}

/// The most bytes that a record of an object may have, for decisions before it is written.
pub(crate) fn length_of(object: &Object) -> u64 {
    object.memory() as u64 + 1024
}

/// Appends a record to a buffer. It will be written at `offset` of its segment. Returns its header.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    seed: Seed,
    offset: u64,
    (key, serial): (Key, u64),
    content: &Content<'_>,
) -> Header {
    let (mut head, pieces, sequence) = (Vec::with_capacity(512), content.pieces(), content.sequence());
    match content {
        Content::Object(object) => object.write_head(&mut head),
        Content::List(list) => head.extend_from_slice(list),
    }
    let body: usize = pieces.iter().map(Bytes::len).sum();
    let list = matches!(content, Content::List(_));
    let header = Header { key, serial, sequence, list, head: head.len() as u32, body: body as u32 };
    let start = out.len();
    out.reserve(header.length());
    header.write(out);
    out.resize(start + header.head_start(), 0);
    out.extend_from_slice(&head);
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    out.resize(start + header.length(), 0);
    seal(out.get_mut(start..).unwrap_or_default(), &header, seed, offset);
    header
}

/// Fills in the checksums of a record that is otherwise complete.
fn seal(record: &mut [u8], header: &Header, seed: Seed, offset: u64) {
    let (head_start, body_start) = (header.head_start(), header.body_start());
    let Some((front, body)) = record.split_at_mut_checked(body_start) else { return };
    let blocks = body.get(..header.body as usize).unwrap_or_default().chunks(BLOCK);
    let sums = front.get_mut(HEADER..head_start).unwrap_or_default().as_chunks_mut().0;
    for ((number, block), place) in blocks.enumerate().zip(sums) {
        *place = seed.sum(offset, number as u64 + 1, block).to_le_bytes();
    }
    if let Some((place, rest)) = front.split_first_chunk_mut() {
        *place = seed.sum(offset, 0, rest).to_le_bytes();
    }
}

impl Content<'_> {
    fn pieces(&self) -> &[Bytes] {
        match self {
            Self::Object(object) => object.body.pieces(),
            Self::List(_) => &[],
        }
    }

    fn sequence(&self) -> Sequence {
        match self {
            Self::Object(object) => object.sequence(),
            // Purges only concern objects, so a list needs no floors.
            Self::List(_) => Sequence::new(u64::MAX),
        }
    }
}

impl Record {
    /// Verifies the record at the start of the bytes. `None` if a single bit differs from the written ones, or if
    /// the record belongs to another place.
    pub(crate) fn read(bytes: &[u8], seed: Seed, offset: u64) -> Option<Self> {
        let header = Header::read(bytes)?;
        let (head_start, body_start) = (header.head_start(), header.body_start());
        let (sum, front) = bytes.get(..body_start)?.split_first_chunk()?;
        if seed.sum(offset, 0, front) != u64::from_le_bytes(*sum) {
            return None;
        }
        let body = body_start..body_start + header.body as usize;
        let sums = bytes.get(HEADER..head_start)?.as_chunks().0;
        let mut blocks = bytes.get(body.clone())?.chunks(BLOCK).zip(sums).enumerate();
        let whole = blocks.all(|(number, (block, sum))| {
            seed.sum(offset, number as u64 + 1, block) == u64::from_le_bytes(*sum)
        });
        whole.then_some(Self { header, head: head_start..body_start, body })
    }

    pub(crate) fn head<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.head.clone()).unwrap_or_default()
    }

    /// The body as an allocation of its own, unless the rest of the record adds little to it.
    pub(crate) fn body(&self, bytes: Vec<u8>) -> Vec<Bytes> {
        /// If the body is at least this many times as long as the rest of its record, the body is not copied. It is then
        /// a slice of the whole record, so the rest of the record stays in memory with it.
        const MUCH: usize = 8;
        if self.body.is_empty() {
            return Vec::new();
        }
        if self.body.len() >= MUCH * (bytes.len() - self.body.len()) {
            return vec![Bytes::from(bytes).slice(self.body.clone())];
        }
        vec![Bytes::copy_from_slice(bytes.get(self.body.clone()).unwrap_or_default())]
    }
}

/// Selecting fields of the variants of an address, the latest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct VariantList {
    /// The keys under which the variants are stored depend on this number. A new list gets another number, so that
    /// it never leads to variants of an older list.
    pub(crate) generation: u64,
    pub(crate) names: Vec<foregate_cache::VaryNames>,
}

impl VariantList {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.generation.to_le_bytes().to_vec();
        for names in &self.names {
            out.extend_from_slice(&(names.as_bytes().len() as u32).to_le_bytes());
            out.extend_from_slice(names.as_bytes());
        }
        out
    }

    pub(crate) fn read(head: &[u8]) -> Option<Self> {
        let mut from = Reader(head);
        let (generation, mut names) = (from.u64()?, Vec::new());
        while !from.0.is_empty() {
            let length = from.u32()?;
            names.push(foregate_cache::VaryNames::from_bytes(from.take(length as usize)?));
        }
        Some(Self { generation, names })
    }
}
