//! Segments: append-only files of records, with a table of contents after the last one.
//!
//! A segment begins with `sum 8 | magic 4 | kind 4 | store 16 | number 8 | 24 reserved`. A sealed
//! segment ends with 32 bytes for each record and a trailer.

use std::io;
use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foregate_cache::Key;
use foregate_io::{Directory, File, OpenHow, RawFile};

use crate::bytes::Reader;
use crate::place::{ALIGN, Place};
use crate::record::{HEADER, Header, Record};
use crate::sums::Seed;

/// The folder of segments.
pub(crate) const FOLDER: &str = "seg";
/// The start of the first record.
pub(crate) const START: u64 = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"FGSg");
const TRAILER: u64 = 64;
const TRAILER_MAGIC: u64 = u64::from_le_bytes(*b"FGfooter");
const ENTRY: u64 = 32;
const LIST: u32 = 1 << 31;
/// The bytes that a scan reads at once. No record is longer.
const WINDOW: usize = 4 << 20;

/// The log that a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// New objects.
    Probation,
    /// Objects that were hit.
    Main,
}

/// A value for each log.
#[derive(Debug, Default)]
pub(crate) struct PerLog<T> {
    probation: T,
    main: T,
}

impl<T> PerLog<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.probation, &self.main].into_iter()
    }
}

impl<T> Index<Log> for PerLog<T> {
    type Output = T;

    fn index(&self, log: Log) -> &T {
        match log {
            Log::Probation => &self.probation,
            Log::Main => &self.main,
        }
    }
}

impl<T> IndexMut<Log> for PerLog<T> {
    fn index_mut(&mut self, log: Log) -> &mut T {
        match log {
            Log::Probation => &mut self.probation,
            Log::Main => &mut self.main,
        }
    }
}

/// A record as the table of contents describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentsEntry {
    pub(crate) key: Key,
    pub(crate) serial: u64,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) list: bool,
}

impl ContentsEntry {
    pub(crate) fn place(&self, slot: u16) -> Option<Place> {
        Place::record(slot, self.offset, self.length, self.list)
    }
}

/// An open segment. Its file exists as long as a reader has it open, so a reader never sees bytes
/// of another object.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) log: Log,
    pub(crate) file: File,
    pub(crate) seed: Seed,
    /// Bytes on the disk.
    pub(crate) bytes: AtomicU64,
    /// The lowest sequence of an object in the segment.
    pub(crate) lowest: AtomicU64,
}

/// The content of a segment at the start of the process.
pub(crate) struct Contents {
    pub(crate) segment: Segment,
    pub(crate) entries: Vec<ContentsEntry>,
    /// The position of the next record, if the segment has no table of contents.
    pub(crate) open_at: Option<u64>,
}

fn path(number: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{number:016x}"))
}

/// The number in the name of a file.
pub(crate) fn number_of(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str().filter(|name| name.len() == 16)?;
    u64::from_str_radix(name, 16).ok()
}

impl Segment {
    /// Makes an empty segment.
    pub(crate) fn create(directory: &Directory, store: &[u8; 16], number: u64, log: Log) -> io::Result<Self> {
        let raw = directory.blocking().open(&path(number), OpenHow::create())?;
        let seed = Seed::new(store, b's', number);
        let mut head = vec![0; 8];
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&(log as u32).to_le_bytes());
        head.extend_from_slice(store);
        head.extend_from_slice(&number.to_le_bytes());
        head.resize(START as usize, 0);
        if let Some((sum, rest)) = head.split_first_chunk_mut() {
            *sum = seed.sum(0, 0, rest).to_le_bytes();
        }
        if let Err(error) = raw.write_at(&head, 0) {
            // Remove the file, since the next start would only have to remove it. A failure does no harm.
            let _ = directory.blocking().unlink(&path(number));
            return Err(error);
        }
        Ok(Self::new(directory, raw, number, log, seed, START))
    }

    fn new(directory: &Directory, raw: RawFile, number: u64, log: Log, seed: Seed, bytes: u64) -> Self {
        let (file, bytes) = (directory.adopt(raw), AtomicU64::new(bytes));
        Self { number, log, file, seed, bytes, lowest: AtomicU64::new(u64::MAX) }
    }

    /// Opens a segment of an earlier process and reads its contents. `None` for a file that does
    /// not belong to this store.
    pub(crate) fn open(directory: &Directory, store: &[u8; 16], number: u64) -> io::Result<Option<Contents>> {
        let raw = directory.blocking().open(&path(number), OpenHow::write())?;
        let length = raw.metadata().length;
        let mut head = [0; START as usize];
        raw.read_at(&mut head, 0)?;
        let seed = Seed::new(store, b's', number);
        let Some((sum, rest)) = head.split_first_chunk() else { return Ok(None) };
        let mut from = Reader(rest);
        let genuine =
            seed.sum(0, 0, rest) == u64::from_le_bytes(*sum) && from.u32() == Some(MAGIC) && length >= START;
        let log = match from.u32() {
            Some(0) => Log::Probation,
            Some(1) => Log::Main,
            _ => return Ok(None),
        };
        if !genuine {
            return Ok(None);
        }
        let segment = Self::new(directory, raw, number, log, seed, length);
        if let Some(entries) = segment.read_contents(length)? {
            return Ok(Some(Contents { segment, entries, open_at: None }));
        }
        let (entries, end) = segment.scan()?;
        Ok(Some(Contents { segment, entries, open_at: Some(end) }))
    }

    /// Seals the segment with its table of contents. `end` is the end of the last record.
    pub(crate) fn seal(&self, entries: &[ContentsEntry], end: u64) -> io::Result<()> {
        let raw = self.file.blocking();
        raw.sync()?;
        // Do not overwrite bytes after the last record: append the table to the file.
        let at = raw.stat()?.length.max(end);
        let mut out = Vec::with_capacity(entries.len() * ENTRY as usize + TRAILER as usize);
        for entry in entries {
            out.extend_from_slice(&entry.key.to_bits().to_le_bytes());
            out.extend_from_slice(&entry.serial.to_le_bytes());
            out.extend_from_slice(&((entry.offset / ALIGN) as u32).to_le_bytes());
            let length = (entry.length as u64).div_ceil(ALIGN) as u32;
            out.extend_from_slice(&(length | if entry.list { LIST } else { 0 }).to_le_bytes());
        }
        out.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
        out.extend_from_slice(&(entries.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.lowest.load(Ordering::Relaxed).to_le_bytes());
        let sum = self.seed.sum(u64::MAX, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.resize(entries.len() * ENTRY as usize + TRAILER as usize, 0);
        raw.write_at(&out, at)?;
        self.bytes.store(at + out.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the table of contents, and the lowest sequence in it. `None` if the segment has no table.
    fn read_contents(&self, length: u64) -> io::Result<Option<Vec<ContentsEntry>>> {
        let Some(at) = length.checked_sub(TRAILER).filter(|&at| at >= START) else { return Ok(None) };
        let raw = self.file.blocking();
        let mut trailer = [0; TRAILER as usize];
        raw.read_at(&mut trailer, at)?;
        let mut from = Reader(&trailer);
        let (magic, count, lowest, sum) = (from.u64(), from.u64(), from.u64(), from.u64());
        let (Some(TRAILER_MAGIC), Some(count), Some(lowest), Some(sum)) = (magic, count, lowest, sum) else {
            return Ok(None);
        };
        let start = count.checked_mul(ENTRY).and_then(|bytes| at.checked_sub(bytes));
        let Some(start) = start.filter(|&start| start >= START) else { return Ok(None) };
        let mut table = vec![0; (at - start) as usize];
        raw.read_at(&mut table, start)?;
        let entries = table.as_chunks().0.iter().map(read_entry).collect();
        table.extend_from_slice(trailer.get(..24).unwrap_or_default());
        if self.seed.sum(u64::MAX, 0, &table) != sum {
            return Ok(None);
        }
        self.lowest.store(lowest, Ordering::Relaxed);
        Ok(Some(entries))
    }

    /// Reads the records one by one, up to the first damaged or incomplete record. The second value is
    /// the offset after the last intact record.
    fn scan(&self) -> io::Result<(Vec<ContentsEntry>, u64)> {
        let (mut entries, mut offset, mut window) = (Vec::new(), START, vec![0; WINDOW]);
        loop {
            let read = self.file.blocking().read_at(&mut window, offset)?;
            let (mut rest, begin) = (window.get(..read).unwrap_or_default(), offset);
            while let Some(entry) = self.scan_one(rest, offset) {
                rest = rest.get(entry.length..).unwrap_or_default();
                offset += entry.length as u64;
                entries.push(entry);
            }
            if offset == begin {
                return Ok((entries, offset));
            }
        }
    }

    fn scan_one(&self, bytes: &[u8], offset: u64) -> Option<ContentsEntry> {
        let length = Header::read(bytes.get(..HEADER)?)?.length();
        let header = Record::read(bytes.get(..length)?, self.seed, offset)?.header;
        self.lowest.fetch_min(header.sequence.get(), Ordering::Relaxed);
        Some(ContentsEntry { key: header.key, serial: header.serial, offset, length, list: header.list })
    }

    /// The records, for reclaiming: from the table of contents, or from a scan if there is no table.
    pub(crate) fn entries(&self) -> io::Result<Vec<ContentsEntry>> {
        let length = self.file.blocking().stat()?.length;
        match self.read_contents(length)? {
            Some(entries) => Ok(entries),
            None => Ok(self.scan()?.0),
        }
    }

    /// The number of the record at an offset, read from its header without verifying the record.
    pub(crate) fn serial_at(&self, offset: u64) -> Option<u64> {
        let mut header = [0; HEADER];
        let read = self.file.blocking().read_at(&mut header, offset).ok()?;
        Header::read(header.get(..read)?).map(|header| header.serial)
    }

    pub(crate) fn remove(directory: &Directory, number: u64) -> io::Result<()> {
        directory.blocking().unlink(&path(number))
    }
}

fn read_entry(bytes: &[u8; ENTRY as usize]) -> ContentsEntry {
    let mut from = Reader(bytes);
    let (key, serial) = (from.u128().unwrap_or(0), from.u64().unwrap_or(0));
    let (offset, length) = (from.u32().unwrap_or(0), from.u32().unwrap_or(0));
    ContentsEntry {
        key: Key::from_bits(key),
        serial,
        offset: u64::from(offset) * ALIGN,
        length: (length & !LIST) as usize * ALIGN as usize,
        list: length & LIST != 0,
    }
}

/// The segments by slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    segments: Vec<Option<Arc<Segment>>>,
    free: Vec<u16>,
}

impl Slots {
    pub(crate) fn get(&self, slot: u16) -> Option<&Arc<Segment>> {
        self.segments.get(usize::from(slot))?.as_ref()
    }

    /// Puts a segment into a free slot. `None` if all slots are taken: no store has so many segments.
    pub(crate) fn add(&mut self, segment: Arc<Segment>) -> Option<u16> {
        if let Some(slot) = self.free.pop() {
            *self.segments.get_mut(usize::from(slot))? = Some(segment);
            return Some(slot);
        }
        let slot = u16::try_from(self.segments.len()).ok()?;
        self.segments.push(Some(segment));
        Some(slot)
    }

    pub(crate) fn remove(&mut self, slot: u16) -> Option<Arc<Segment>> {
        let segment = self.segments.get_mut(usize::from(slot))?.take()?;
        self.free.push(slot);
        Some(segment)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.iter().flatten()
    }
}
