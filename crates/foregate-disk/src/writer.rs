//! The writer: two logs of segments, and the order in which segments are reclaimed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foregate_cache::{Key, Object};

use crate::index::{Fingerprint, Ghosts};
use crate::inner::Inner;
use crate::place::Place;
use crate::record::{self, Content, VariantList};
use crate::segment::{ContentsEntry, Log, PerLog, Segment};
use crate::stat::{add, get};

/// A buffer that has reached this length is written without further delay.
const BUFFER: usize = 1 << 20;
/// The longest time for which an object waits in a buffer.
const DELAY: Duration = Duration::from_millis(100);
/// The most lists of selecting fields for one address. A further list replaces the oldest.
const MAX_LISTS: usize = 4;
/// The most bytes of a record with a list of selecting fields.
const LIST_LENGTH: u64 = 64 * 1024;
/// The bytes of a table of contents for each record, and those of the table itself.
const TABLE_ENTRY: u64 = 32;
const TABLE: u64 = 64;

/// The state of the writer. Readers never take its lock.
#[derive(Debug)]
pub(crate) struct Writer {
    logs: PerLog<Option<OpenLog>>,
    /// Sealed segments and files of their own, the oldest first.
    pub(crate) queues: PerLog<VecDeque<Container>>,
    /// Bytes of the containers in each queue.
    pub(crate) bytes: PerLog<u64>,
    pub(crate) files: HashMap<u64, BigFile>,
    pub(crate) ghosts: Ghosts,
    /// The number of the last record. `number` is that of the last segment or file.
    serial: u64,
    number: u64,
}

/// A unit that is reclaimed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    Segment(u16),
    File(u64),
}

/// An object in a file of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BigFile {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) bytes: u64,
    pub(crate) log: Log,
    pub(crate) serial: u64,
    pub(crate) lowest: u64,
}

#[derive(Debug)]
struct OpenLog {
    slot: u16,
    segment: Arc<Segment>,
    entries: Vec<ContentsEntry>,
    /// The length of the segment on the disk. The buffer will be written after it.
    start: u64,
    buffer: Vec<u8>,
    since: Option<Instant>,
    pending: Vec<Pending>,
}

/// A record in the buffer. The index points to it once the buffer is written.
#[derive(Debug)]
struct Pending {
    fingerprint: Fingerprint,
    place: Place,
    /// The previous place of a moved record. If the object has got a third place meanwhile, the index
    /// keeps that one.
    from: Option<Place>,
}

impl OpenLog {
    fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }
}

/// The record could not be written. The failure has been counted.
#[derive(Debug)]
pub(crate) struct NotWritten;

impl Writer {
    /// Creates a writer. `epoch` is higher than the epochs of all earlier processes.
    pub(crate) fn new(epoch: u32) -> Self {
        Self {
            logs: PerLog::default(),
            queues: PerLog::default(),
            bytes: PerLog::default(),
            files: HashMap::new(),
            ghosts: Ghosts::default(),
            serial: u64::from(epoch) << 32,
            number: first_number(epoch),
        }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Adds an object to a log. It is written with the log's buffer.
    pub(crate) fn put(&mut self, inner: &Inner, object: &Object) -> Result<(), NotWritten> {
        inner.lower(object.sequence());
        if !inner.floors.admits(object) {
            return Ok(());
        }
        let key = self.place_of(inner, object)?;
        let fingerprint = Fingerprint::of(key);
        let log = self.log_of(inner, fingerprint);
        self.append(inner, log, key, &Content::Object(object), None, true)?;
        add(&inner.counters.stored, 1);
        Ok(())
    }

    /// The log for an object: the main log if it has the object already, or if the object comes back
    /// soon after its eviction.
    pub(crate) fn log_of(&mut self, inner: &Inner, fingerprint: Fingerprint) -> Log {
        let slot = inner.index.get(fingerprint).and_then(Place::slot);
        let log = slot.and_then(|slot| inner.slots.read().get(slot).map(|segment| segment.log));
        if self.ghosts.remove(fingerprint) { Log::Main } else { log.unwrap_or(Log::Probation) }
    }

    /// The key under which an object is stored. If the object is a variant, its selecting fields are
    /// first recorded under the key of the address.
    pub(crate) fn place_of(&mut self, inner: &Inner, object: &Object) -> Result<Key, NotWritten> {
        let key = object.key();
        let Some(vary) = &object.head.vary else { return Ok(key) };
        let variant = key.variant(vary.variant, &inner.secret);
        let mut list = self.list(inner, key).unwrap_or_default();
        if list.names.first() == Some(&vary.names) {
            return Ok(variant.of_generation(list.generation));
        }
        if list.names.is_empty() {
            list.generation = self.next_serial();
        }
        list.names.retain(|known| *known != vary.names);
        list.names.insert(0, vary.names.clone());
        list.names.truncate(MAX_LISTS);
        let log = self.log_of(inner, Fingerprint::of(key));
        self.append(inner, log, key, &Content::List(&list.encode()), None, true)?;
        // Write the list now: the next variant has to find it.
        self.flush(inner, log)?;
        Ok(variant.of_generation(list.generation))
    }

    fn list(&self, inner: &Inner, key: Key) -> Option<VariantList> {
        let place = inner.index.get(Fingerprint::of(key)).filter(|place| place.is_list())?;
        let (record, bytes) = inner.read_blocking(place)?;
        (record.header.key == key).then(|| VariantList::read(record.head(&bytes)))?
    }

    /// Appends a record to a log. `room` is true if older contents may be evicted for it.
    pub(crate) fn append(
        &mut self,
        inner: &Inner,
        log: Log,
        key: Key,
        content: &Content<'_>,
        from: Option<Place>,
        room: bool,
    ) -> Result<(), NotWritten> {
        let most = match content {
            Content::Object(object) => record::length_of(object),
            Content::List(_) => LIST_LENGTH,
        };
        self.open_log(inner, log, most, room)?;
        let serial = self.next_serial();
        let Some(open) = &mut self.logs[log] else { return Err(NotWritten) };
        let offset = open.end();
        let header = record::encode(&mut open.buffer, open.segment.seed, offset, (key, serial), content);
        let (length, list) = (header.length(), header.list);
        let Some(place) = Place::record(open.slot, offset, length, list) else {
            open.buffer.truncate((offset - open.start) as usize);
            return Err(NotWritten);
        };
        open.segment.lowest.fetch_min(header.sequence.get(), Ordering::Relaxed);
        open.entries.push(ContentsEntry { key, serial, offset, length, list });
        let place = place.with_hits(from.map_or(0, |from| from.hits().saturating_sub(1)));
        open.pending.push(Pending { fingerprint: Fingerprint::of(key), place, from });
        open.since.get_or_insert_with(Instant::now);
        if open.buffer.len() >= BUFFER { self.flush(inner, log) } else { Ok(()) }
    }

    /// Makes sure that a log has room for a record.
    fn open_log(&mut self, inner: &Inner, log: Log, most: u64, room: bool) -> Result<(), NotWritten> {
        if let Some(open) = &self.logs[log] {
            let table = (open.entries.len() as u64 + 1) * TABLE_ENTRY + TABLE;
            if open.end() + most + table <= inner.segment_size() {
                return Ok(());
            }
            self.seal(inner, log)?;
        }
        if room {
            self.make_room(inner, inner.segment_size());
        }
        let number = self.next_number();
        let segment =
            inner.check(Segment::create(&inner.directory, &inner.id, number, log)).ok_or(NotWritten)?;
        let segment = Arc::new(segment);
        let slot = inner.slots.write().add(Arc::clone(&segment)).ok_or(NotWritten)?;
        add(&inner.counters.bytes, get(&segment.bytes));
        self.logs[log] = Some(OpenLog {
            slot,
            start: get(&segment.bytes),
            segment,
            entries: Vec::new(),
            buffer: Vec::new(),
            since: None,
            pending: Vec::new(),
        });
        Ok(())
    }

    /// Continues an unsealed segment of the previous process.
    pub(crate) fn resume(&mut self, inner: &Inner, slot: u16, entries: Vec<ContentsEntry>, end: u64) {
        let Some(segment) = inner.slots.read().get(slot).cloned() else { return };
        let log = segment.log;
        if self.logs[log].is_some() {
            // If sealing fails, only the next start takes longer: the index already has all records.
            inner.check(segment.seal(&entries, end));
            self.push_old(inner, log, Container::Segment(slot));
            return;
        }
        let open = OpenLog {
            slot,
            segment,
            entries,
            start: end,
            buffer: Vec::new(),
            since: None,
            pending: Vec::new(),
        };
        self.logs[log] = Some(open);
    }

    /// Writes the buffer of a log, and then lets the index point to the records.
    fn flush(&mut self, inner: &Inner, log: Log) -> Result<(), NotWritten> {
        let Some(open) = &mut self.logs[log] else { return Ok(()) };
        if open.buffer.is_empty() {
            return Ok(());
        }
        let written = open.segment.file.blocking().write_at(&open.buffer, open.start);
        let pending = std::mem::take(&mut open.pending);
        if inner.check(written).is_none() {
            add(&inner.counters.dropped, pending.len() as u64);
            // It is unknown how much was written, so the segment is not continued. A scan finds the
            // complete records.
            if let Some(open) = self.logs[log].take() {
                self.push(inner, log, Container::Segment(open.slot));
            }
            return Err(NotWritten);
        }
        let length = open.buffer.len() as u64;
        open.start += length;
        open.segment.bytes.fetch_max(open.start, Ordering::Relaxed);
        open.buffer.clear();
        open.buffer.shrink_to(2 * BUFFER);
        open.since = None;
        add(&inner.counters.bytes, length);
        add(&inner.counters.written, length);
        for Pending { fingerprint, place, from } in pending {
            let before = match from {
                Some(from) => {
                    inner.index.replace(fingerprint, from, Some(place));
                    None
                }
                None => inner.index.set(fingerprint, place),
            };
            if let Some(number) = before.and_then(Place::as_big) {
                self.remove_file(inner, number);
            }
        }
        Ok(())
    }

    /// Writes all buffers.
    pub(crate) fn flush_all(&mut self, inner: &Inner) {
        for log in [Log::Probation, Log::Main] {
            // A failure has been counted.
            let _ = self.flush(inner, log);
        }
    }

    /// Writes the buffers that have waited long enough. Returns true if another buffer still waits.
    pub(crate) fn flush_old(&mut self, inner: &Inner) -> bool {
        let mut waiting = false;
        for log in [Log::Probation, Log::Main] {
            let since = self.logs[log].as_ref().and_then(|open| open.since);
            match since {
                Some(since) if since.elapsed() >= DELAY => drop(self.flush(inner, log)),
                Some(_) => waiting = true,
                None => {}
            }
        }
        waiting
    }

    fn seal(&mut self, inner: &Inner, log: Log) -> Result<(), NotWritten> {
        self.flush(inner, log)?;
        let Some(open) = self.logs[log].take() else { return Ok(()) };
        let before = get(&open.segment.bytes);
        inner.check(open.segment.seal(&open.entries, open.start));
        add(&inner.counters.bytes, get(&open.segment.bytes) - before);
        add(&inner.counters.written, get(&open.segment.bytes) - before);
        self.push(inner, log, Container::Segment(open.slot));
        inner.raise(self);
        Ok(())
    }

    /// Puts a container at the end of a queue.
    pub(crate) fn push(&mut self, inner: &Inner, log: Log, container: Container) {
        self.bytes[log] += self.bytes_of(inner, container);
        self.queues[log].push_back(container);
    }

    /// Puts a container of an earlier process at the front of a queue. The caller passes the newest
    /// container first.
    pub(crate) fn push_old(&mut self, inner: &Inner, log: Log, container: Container) {
        self.bytes[log] += self.bytes_of(inner, container);
        self.queues[log].push_front(container);
    }

    pub(crate) fn bytes_of(&self, inner: &Inner, container: Container) -> u64 {
        match container {
            Container::Segment(slot) => inner.slots.read().get(slot).map_or(0, |segment| get(&segment.bytes)),
            Container::File(number) => self.files.get(&number).map_or(0, |file| file.bytes),
        }
    }

    /// The bytes by which the open segments may still grow.
    pub(crate) fn open_room(&self, inner: &Inner) -> u64 {
        self.logs.iter().flatten().map(|open| inner.segment_size().saturating_sub(open.start)).sum()
    }

    /// Enters a complete file into the index and its queue.
    pub(crate) fn add_file(&mut self, inner: &Inner, number: u64, file: BigFile) {
        self.queue_file(inner, number, file);
        let before = inner.index.set(file.fingerprint, Place::big(number));
        if let Some(number) = before.and_then(Place::as_big) {
            self.remove_file(inner, number);
        }
    }

    /// Counts a file, and puts it at the end of its queue.
    pub(crate) fn queue_file(&mut self, inner: &Inner, number: u64, file: BigFile) {
        self.files.insert(number, file);
        inner.counters.files.store(self.files.len() as u64, Ordering::Relaxed);
        self.push(inner, file.log, Container::File(number));
    }

    /// Removes the file of an object that was replaced or evicted. Its entry in the queue is skipped
    /// later.
    pub(crate) fn remove_file(&mut self, inner: &Inner, number: u64) {
        let Some(file) = self.files.remove(&number) else { return };
        inner.counters.files.store(self.files.len() as u64, Ordering::Relaxed);
        self.bytes[file.log] = self.bytes[file.log].saturating_sub(file.bytes);
        inner.counters.bytes.fetch_sub(file.bytes, Ordering::Relaxed);
        let removed = inner.directory.blocking().unlink(&crate::big::path(number));
        if !removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            inner.check(removed);
        }
    }

    pub(crate) fn flush_main(&mut self, inner: &Inner) {
        let _ = self.flush(inner, Log::Main);
    }
}

/// The number of bits of a segment's or file's number that are below its epoch.
pub(crate) const EPOCH_SHIFT: u32 = 24;

/// The first number of segments and files of a process.
pub(crate) fn first_number(epoch: u32) -> u64 {
    u64::from(epoch) << EPOCH_SHIFT
}
