//! The state of one directory that readers and the writer share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use foregate_cache::{Body, CacheTime, Effect, Floors, Key, Object, Secret, Sequence};
use foregate_io::{Directory, Error, RawFile};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;

use crate::big::{self, Damage, FileBody, Reports};
use crate::health::Health;
use crate::inbox;
use crate::index::{Fingerprint, Index};
use crate::journal::{self, Journal};
use crate::lowest::Lowest;
use crate::place::Place;
use crate::queue::Queue;
use crate::record::{Record, VariantList};
use crate::segment::{Segment, Slots};
use crate::stat::{Counters, add};
use crate::store_file::{Checkpoint, StoreFile};
use crate::writer::Writer;

/// The largest and the smallest size of a segment, and the number of segments in a small store.
const LARGEST_SEGMENT: u64 = 1 << 30;
const LEAST_SEGMENT: u64 = 4 << 20;
const SEGMENTS: u64 = 64;
/// The largest object that is stored in a segment. Small segments have a lower limit.
const LARGEST_SMALL: u64 = 1 << 20;

pub(crate) struct Inner {
    pub(crate) directory: Directory,
    pub(crate) id: [u8; 16],
    pub(crate) secret: Secret,
    pub(crate) floors: Arc<Floors>,
    pub(crate) index: Index,
    pub(crate) slots: RwLock<Slots>,
    pub(crate) queue: Queue,
    pub(crate) writer: Mutex<Writer>,
    /// `None` if the journal misses a purge, until the writer has made a new one.
    pub(crate) journal: Mutex<Option<Journal>>,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) lowest: Lowest,
    pub(crate) recovering: AtomicBool,
    pub(crate) flushed: (Mutex<u64>, Condvar),
    /// The lock, held as long as the process uses the directory. `None` while no lock file can be created on the
    /// disk.
    pub(crate) lock: Mutex<Option<RawFile>>,
    pub(crate) store: StoreFile,
    pub(crate) started: (Instant, CacheTime),
    pub(crate) bytes: AtomicU64,
    /// The first number of a segment or file of this process.
    pub(crate) first_number: u64,
}

/// The content at a place.
pub(crate) enum PlaceEntry {
    Object(Object),
    List(VariantList),
    File(Object, FileBody),
}

/// The disk is off, or too slow at the moment.
#[derive(Debug)]
pub(crate) struct Unavailable;

impl Inner {
    /// The limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The longest body that is stored.
    pub(crate) fn longest(&self) -> u64 {
        self.limit() / 2
    }

    /// The length of new segments.
    pub(crate) fn segment_size(&self) -> u64 {
        let limit = self.limit();
        (limit / 1024).clamp(LEAST_SEGMENT, LARGEST_SEGMENT).min(limit / SEGMENTS)
    }

    /// The largest record in a segment, bytes.
    pub(crate) fn largest_small(&self) -> u64 {
        LARGEST_SMALL.min(self.segment_size() / 4)
    }

    /// The cache's time.
    pub(crate) fn now(&self) -> CacheTime {
        let (start, time) = self.started;
        CacheTime(time.0.saturating_add(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the value of a blocking call. An error is counted, and many errors switch the disk off.
    pub(crate) fn check<T>(&self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    pub(crate) fn failed(&self, error: &io::Error) {
        add(&self.counters.errors, 1);
        let path = self.directory.blocking().path().display();
        let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(Errno::raw_os_error);
        if error.raw_os_error().is_some_and(|code| full.contains(&code)) {
            tracing::warn!(%error, "the file system of the cache in {path} is full: nothing is stored for 10 s");
            self.health.full(Instant::now());
        } else if self.health.error(Instant::now()) {
            tracing::warn!(%error, "the cache in {path} fails: it is off for some time");
        }
    }

    /// Counts an object that failed a check, and removes it from the index.
    pub(crate) fn corrupt(&self, fingerprint: Fingerprint, place: Place) {
        if self.index.replace(fingerprint, place, None) {
            add(&self.counters.corrupt, 1);
        }
    }

    /// Keeps the floors above this sequence. To be called before an object with this sequence is written.
    pub(crate) fn lower(&self, sequence: Sequence) {
        self.lowest.lower(sequence.get());
    }

    /// Permits the removal of the floors that are below all remaining objects. To be called after a segment was
    /// removed or sealed.
    pub(crate) fn raise(&self, writer: &Writer) {
        if self.recovering.load(Ordering::Relaxed) {
            return;
        }
        let latest = self.floors.begin().get();
        let slots = self.slots.read();
        let segments = slots.iter().map(|segment| segment.lowest.load(Ordering::Relaxed));
        let files = writer.files.values().map(|file| file.lowest);
        self.lowest.set(segments.chain(files).min().unwrap_or(latest).min(latest));
    }

    /// Reads a record. It blocks.
    pub(crate) fn read_blocking(&self, place: Place) -> Option<(Record, Vec<u8>)> {
        let segment = self.slots.read().get(place.slot()?).cloned()?;
        self.read_from(&segment, place)
    }

    pub(crate) fn read_from(&self, segment: &Segment, place: Place) -> Option<(Record, Vec<u8>)> {
        let mut bytes = vec![0; place.length()];
        self.check(segment.file.blocking().read_at(&mut bytes, place.offset()))?;
        let record = Record::read(&bytes, segment.seed, place.offset());
        if record.is_none() {
            add(&self.counters.corrupt, 1);
        }
        Some((record?, bytes))
    }

    /// Reads the entry of a key. An entry that fails a check is not returned.
    pub(crate) async fn at(self: &Arc<Self>, key: Key) -> Result<Option<(Place, PlaceEntry)>, Unavailable> {
        let fingerprint = Fingerprint::of(key);
        let Some(place) = self.index.hit(fingerprint) else { return Ok(None) };
        let entry = self.read_at(fingerprint, |found| found == key, place).await?;
        Ok(entry.map(|entry| (place, entry)))
    }

    /// Reads the entry at a place, for a check of the whole store.
    pub(crate) async fn entry_at(
        self: &Arc<Self>,
        fingerprint: Fingerprint,
        place: Place,
    ) -> Result<Option<PlaceEntry>, Unavailable> {
        self.read_at(fingerprint, |found| Fingerprint::of(found) == fingerprint, place).await
    }

    async fn read_at(
        self: &Arc<Self>,
        fingerprint: Fingerprint,
        is_meant: impl Fn(Key) -> bool,
        place: Place,
    ) -> Result<Option<PlaceEntry>, Unavailable> {
        let read = match place.as_big() {
            Some(number) => self.read_file(is_meant, fingerprint, number).await,
            None => self.read_record(is_meant, fingerprint, place).await,
        };
        match read {
            Ok(Some(entry)) => Ok(Some(entry)),
            // Another key has the same fingerprint, or the segment was reclaimed meanwhile.
            Ok(None) => Ok(None),
            Err(Some(Error::Busy)) => {
                add(&self.counters.busy, 1);
                Err(Unavailable)
            }
            Err(Some(Error::Io(error))) => {
                // A missing file is no failure: it was reclaimed meanwhile.
                if error.kind() != io::ErrorKind::NotFound {
                    self.failed(&error);
                }
                self.index.replace(fingerprint, place, None);
                Ok(None)
            }
            Err(None) => {
                self.corrupt(fingerprint, place);
                Ok(None)
            }
        }
    }

    /// Reads a record. `Err(None)` means that the record fails a check.
    async fn read_record(
        &self,
        is_meant: impl Fn(Key) -> bool,
        fingerprint: Fingerprint,
        place: Place,
    ) -> Result<Option<PlaceEntry>, Option<Error>> {
        let segment = place.slot().and_then(|slot| self.slots.read().get(slot).cloned());
        let Some(segment) = segment else { return Ok(None) };
        let bytes = segment.file.read(place.offset(), place.length()).await.map_err(Some)?;
        let Some(record) = Record::read(&bytes, segment.seed, place.offset()) else {
            // The record only counts as damaged if it is still there: the slot may have got another segment meanwhile.
            let same = |now: &Arc<Segment>| Arc::ptr_eq(now, &segment);
            let current = self.index.get(fingerprint).is_some_and(|now| now.is(place));
            let there = place.slot().is_some_and(|slot| self.slots.read().get(slot).is_some_and(same));
            return if current && there { Err(None) } else { Ok(None) };
        };
        if !is_meant(record.header.key) {
            return Ok(None);
        }
        let head = record.head(&bytes);
        if record.header.list {
            return VariantList::read(head).map(|list| Some(PlaceEntry::List(list))).ok_or(None);
        }
        let object = Object::read(head, Body::default()).ok_or(None)?;
        Ok(Some(PlaceEntry::Object(object.into_body(Body::new(record.body(bytes))))))
    }

    async fn read_file(
        self: &Arc<Self>,
        is_meant: impl Fn(Key) -> bool,
        fingerprint: Fingerprint,
        number: u64,
    ) -> Result<Option<PlaceEntry>, Option<Error>> {
        let seed = big::seed(&self.id, number);
        let (file, opened) = big::open(&self.directory, number, seed).await?;
        if !is_meant(opened.tail.key) {
            return Ok(None);
        }
        let inner = Arc::downgrade(self);
        let reports = Reports(Arc::new(move |damage| {
            let Some(inner) = inner.upgrade() else { return };
            match damage {
                Damage::Busy => add(&inner.counters.busy, 1),
                Damage::Corrupt => inner.corrupt(fingerprint, Place::big(number)),
                Damage::Error => {
                    inner.failed(&io::Error::from(Errno::IO));
                    inner.index.replace(fingerprint, Place::big(number), None);
                }
            }
        }));
        let body = FileBody { file, sums: Arc::from(opened.sums), length: opened.tail.body, seed, reports };
        Ok(Some(PlaceEntry::File(opened.object, body)))
    }

    /// The effect of all purges on an object of the store. A dead object is removed from the index.
    pub(crate) fn judge(&self, key: Key, place: Place, object: &Object) -> Effect {
        let effect = self.floors.judge(object);
        if effect == Effect::Dead {
            self.index.replace(Fingerprint::of(key), place, None);
        }
        effect
    }

    /// Writes a purge into the journal.
    pub(crate) fn record_purge(&self, purge: &[u8]) -> io::Result<()> {
        let mut journal = self.journal.lock();
        match &mut *journal {
            // The writer soon makes a new journal with all floors. Until then, there must be no journal, so that
            // the next process uses no stored object. After a failed start, the journal of the previous
            // process may still be there.
            None => {
                let _ = journal::remove(self.directory.blocking());
                Err(io::ErrorKind::ReadOnlyFilesystem.into())
            }
            Some(open) => open.add(purge).inspect_err(|_| {
                *journal = None;
                self.check(journal::remove(self.directory.blocking()));
            }),
        }
    }

    /// Applies the purges that other processes have left in the inbox.
    pub(crate) fn receive(&self) {
        let directory = self.directory.blocking();
        let Some(Some(received)) = self.check(inbox::receive(directory)) else { return };
        let recorded = received.apply(&self.floors).iter().all(|purge| self.record_purge(purge).is_ok());
        // After a failure, the inbox is not emptied, so it is read again. Meanwhile the writer makes a new journal with
        // all floors.
        if recorded {
            self.check(received.done(directory));
        }
    }

    /// Writes the file `store` with the current time.
    pub(crate) fn checkpoint(&self) {
        self.check(self.write_store());
    }

    /// See [`checkpoint`](Self::checkpoint).
    pub(crate) fn write_store(&self) -> io::Result<()> {
        let clock = Checkpoint::now(self.now());
        StoreFile { clock, ..self.store }.write(self.directory.blocking())
    }

    /// Wakes the callers that wait until everything is on the disk.
    pub(crate) fn tell_flushed(&self) {
        let (count, done) = &self.flushed;
        *count.lock() += 1;
        done.notify_all();
    }
}
