//! The tier: all directories together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foregate_cache::{CacheTime, Effect, Floors, Key, KeyText, Object, Purge, Secret, Sequence, Strength};
use foregate_wire::HeaderList;

use crate::big::FileBody;
use crate::directory::{Common, DirectorySettings, LockedDirectory, OpenDirectory, OpenError};
use crate::ending::Ending;
use crate::fill::Fill;
use crate::index::Fingerprint;
use crate::inner::{Inner, PlaceEntry, Unavailable};
use crate::lowest::Lowest;
use crate::outside::OutsideDirectory;
use crate::record;
use crate::stat::{Stat, add};

/// Attempts to write a purge while the disk is busy.
const ATTEMPTS: usize = 50;

/// The disk tier: one or several directories. Each address belongs to one of them.
#[derive(Debug)]
pub struct Disk {
    directories: Vec<OpenDirectory>,
    secret: Secret,
    floors: Arc<Floors>,
    started: (Instant, CacheTime),
}

/// The result of a lookup.
#[derive(Debug)]
pub enum DiskLookup {
    /// A stored response that the request selects. `outdated` says that a soft purge has made it
    /// stale.
    Object {
        /// The response.
        object: Object,
        /// `true` if a soft purge has made the response stale.
        outdated: bool,
    },
    /// An object with a body that is read piece by piece from `body`. The body in `object` is empty.
    File {
        /// The response.
        object: Object,
        /// The body of the response.
        body: FileBody,
        /// `true` if a soft purge has made the response stale.
        outdated: bool,
    },
    /// The tier has no response for the request.
    Nothing {
        /// The key of the variant that the request asks for, if the address is known to vary.
        variant: Option<Key>,
    },
    /// The disk is too slow at the moment, or off: the request goes to the origin, and its
    /// response is not stored here.
    Unavailable,
}

impl std::fmt::Debug for OpenDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Disk {
    /// Opens the directories, and restores the floors of purges. It blocks for some milliseconds;
    /// objects are found again in the background.
    ///
    /// `random` gives random numbers for new stores. The tier's [`secret`](Self::secret) is that of the first
    /// directory with a store. All keys are hashed with it, so a store with another secret is dropped and begins
    /// anew.
    ///
    /// # Errors
    /// A directory does not exist, is not accessible for this user, or is used by another process. A disk that is
    /// full, read-only or broken is no error: its directory is off, and the start is tried again.
    pub fn open(
        directories: Vec<DirectorySettings>,
        floors: &Arc<Floors>,
        mut random: impl FnMut() -> [u8; 16],
    ) -> Result<Self, OpenError> {
        let locked: Vec<_> = directories.into_iter().map(LockedDirectory::new).collect::<Result<_, _>>()?;
        let secret = locked.iter().find_map(LockedDirectory::secret).unwrap_or_else(|| Secret::new(random()));
        let time = locked.iter().map(LockedDirectory::time).max().unwrap_or_default();
        Self::open_locked(locked, floors, random, secret, (Instant::now(), time))
    }

    /// Like [`open`](Self::open), but takes the directories over from another process while this process already
    /// serves, with its `secret` and its clock. `outside` has the same directories, through which this process
    /// still learns the last purges of the other process.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). The reason is [`Locked`](crate::Reason::Locked) as long as the other
    /// process holds a directory.
    pub fn take_over(
        directories: Vec<DirectorySettings>,
        outside: &[Arc<OutsideDirectory>],
        floors: &Arc<Floors>,
        random: impl FnMut() -> [u8; 16],
        secret: Secret,
        started: (Instant, CacheTime),
    ) -> Result<Self, OpenError> {
        let locked: Vec<_> = directories.into_iter().map(LockedDirectory::new).collect::<Result<_, _>>()?;
        for directory in outside {
            // The journal is complete now. If it cannot be read, opening the directory purges everything.
            if let Err(error) = directory.learn(floors) {
                tracing::warn!(%error, "the purges in {} cannot be read", directory.path().display());
            }
        }
        Self::open_locked(locked, floors, random, secret, started)
    }

    fn open_locked(
        locked: Vec<LockedDirectory>,
        floors: &Arc<Floors>,
        mut random: impl FnMut() -> [u8; 16],
        secret: Secret,
        started: (Instant, CacheTime),
    ) -> Result<Self, OpenError> {
        let lowest = Lowest::several(floors, locked.len());
        let mut open = Vec::new();
        for (locked, lowest) in locked.into_iter().zip(lowest) {
            let common = Common { secret, id: random(), floors: Arc::clone(floors), started };
            open.push(locked.open(&common, lowest)?);
        }
        Ok(Self { directories: open, secret, floors: Arc::clone(floors), started })
    }

    /// The secret for keys, variants and tags.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// The moment at which the tier was opened, and the cache's time at that moment. The cache's clock
    /// continues from it.
    pub fn started(&self) -> (Instant, CacheTime) {
        self.started
    }

    /// The directory of an address, by weighted rendezvous hashing. The order of directories does not
    /// matter.
    fn of(&self, key: Key) -> Option<&Arc<Inner>> {
        if let [only] = &self.directories[..] {
            return Some(&only.inner);
        }
        let score = |inner: &Inner| {
            let mixed = crate::sums::Seed::new(&inner.id, b'r', 0).sum(0, 0, &key.to_bits().to_le_bytes());
            // The number is uniform in (0, 1). Its logarithm gives each directory a share of the addresses
            // in proportion to its size.
            let uniform = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
            inner.limit() as f64 / -uniform.max(f64::MIN_POSITIVE).ln()
        };
        let scored = self.directories.iter().map(|directory| (score(&directory.inner), &directory.inner));
        scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, inner)| inner)
    }

    /// Returns whether the tier may have a response for a key. It is cheap, since it only uses memory.
    pub fn may_have(&self, key: Key) -> bool {
        self.of(key).is_some_and(|inner| {
            inner.health.is_on(Instant::now) && inner.index.get(Fingerprint::of(key)).is_some()
        })
    }

    /// Looks for a response to a request with this key. Purged and damaged responses are not found.
    pub async fn get(&self, key: Key, text: &KeyText, request: &HeaderList) -> DiskLookup {
        let Some(inner) = self.of(key) else { return DiskLookup::Nothing { variant: None } };
        if !inner.health.is_on(Instant::now) {
            return DiskLookup::Unavailable;
        }
        let found = self.find(inner, key, text, request).await.unwrap_or(DiskLookup::Unavailable);
        match found {
            DiskLookup::Object { .. } | DiskLookup::File { .. } => add(&inner.counters.hits, 1),
            DiskLookup::Nothing { .. } | DiskLookup::Unavailable => add(&inner.counters.misses, 1),
        }
        found
    }

    async fn find(
        &self,
        inner: &Arc<Inner>,
        key: Key,
        text: &KeyText,
        request: &HeaderList,
    ) -> Result<DiskLookup, Unavailable> {
        let nothing = DiskLookup::Nothing { variant: None };
        let Some((place, entry)) = inner.at(key).await? else { return Ok(nothing) };
        let list = match entry {
            PlaceEntry::List(list) => list,
            entry => return Ok(found(inner, key, place, entry, text).unwrap_or(nothing)),
        };
        let mut first = None;
        for names in &list.names {
            let variant = key.variant(names.variant(request, &self.secret), &self.secret);
            first = first.or(Some(variant));
            let key = variant.of_generation(list.generation);
            if let Some((place, entry)) = inner.at(key).await?
                && let Some(found) = found(inner, key, place, entry, text)
            {
                return Ok(found);
            }
        }
        Ok(DiskLookup::Nothing { variant: first })
    }

    /// Queues an object to be stored. Returns false if the object is too large for a segment, or if it
    /// is dropped since too many objects wait.
    pub fn put(&self, object: &Arc<Object>) -> bool {
        let Some(inner) = self.of(object.key()) else { return false };
        if record::length_of(object) > inner.largest_small() {
            return false;
        }
        let taken = inner.health.is_writable(Instant::now) && inner.queue.push(Arc::clone(object));
        if !taken {
            add(&inner.counters.dropped, 1);
        }
        taken
    }

    /// Returns whether [`put`](Self::put) takes an object with a body of this length; otherwise a
    /// [`fill`](Self::fill) writes it.
    pub fn takes_whole(&self, key: Key, length: u64) -> bool {
        /// More bytes than most heads have.
        const HEAD: u64 = 8 * 1024;
        self.of(key).is_some_and(|inner| length + HEAD <= inner.largest_small())
    }

    /// Begins a body that is written while it arrives. `None` while the disk is off or full, or if the
    /// body, of this length if it is known, is too long.
    pub fn fill(&self, key: Key, length: Option<u64>) -> Option<Fill> {
        let inner = self.of(key)?;
        let fits = length.is_none_or(|length| length <= inner.longest());
        (fits && inner.health.is_writable(Instant::now)).then(|| Fill::new(Arc::clone(inner)))
    }

    /// Removes the responses of an address with all variants, after a request that has changed it.
    /// Returns true if a purge of the key has to follow, so that the next process does not find the
    /// responses again.
    pub fn remove(&self, key: Key) -> bool {
        self.of(key).is_some_and(|inner| inner.index.remove(Fingerprint::of(key)).is_some())
    }

    /// Purges, at once and in every tier that has the same floors. Once the future is complete, the
    /// purge survives a kill of the process.
    ///
    /// # Errors
    /// A directory could not write the purge. The purge is in effect all the same. If the process
    /// restarts before that directory works again, the new process uses none of its objects.
    pub async fn purge(&self, purge: &Purge<'_>, strength: Strength) -> Result<Sequence, foregate_io::Error> {
        let number = self.floors.purge(purge, strength);
        self.record(purge, strength, number).await?;
        Ok(number)
    }

    /// Writes a purge that is already in effect, so that it survives a kill of the process.
    ///
    /// # Errors
    /// The errors of [`purge`](Self::purge).
    pub fn record(
        &self,
        purge: &Purge<'_>,
        strength: Strength,
        number: Sequence,
    ) -> impl Future<Output = Result<(), foregate_io::Error>> + Send + use<> {
        let mut bytes = Vec::new();
        purge.write(strength, number, &mut bytes);
        self.record_written(bytes)
    }

    /// Like [`record`](Self::record), for the bytes of [`Purge::write`] or
    /// [`Floors::repeat`](foregate_cache::Floors::repeat).
    ///
    /// # Errors
    /// The errors of [`purge`](Self::purge).
    pub fn record_written(
        &self,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), foregate_io::Error>> + Send + use<> {
        let directories: Vec<_> =
            self.directories.iter().map(|directory| Arc::clone(&directory.inner)).collect();
        async move {
            let mut recorded = Ok(());
            for inner in directories {
                if let Err(error) = note(&inner, &bytes).await {
                    recorded = Err(error);
                }
            }
            recorded
        }
    }

    pub(crate) fn inner(&self, number: usize) -> Option<&Arc<Inner>> {
        self.directories.get(number).map(|directory| &directory.inner)
    }

    /// Changes the limit of a directory. Contents beyond it are evicted soon.
    pub fn set_size(&self, path: &std::path::Path, size: u64) {
        for directory in &self.directories {
            let inner = &directory.inner;
            if inner.directory.blocking().path() == path {
                inner.bytes.store(size.max(crate::LEAST), Ordering::Relaxed);
                let making = Arc::clone(inner);
                // The call runs in the background, and its result is ignored.
                drop(inner.directory.run(move |_| {
                    making.writer.lock().make_room(&making, 0);
                    Ok(())
                }));
            }
        }
    }

    /// Blocks until everything that was passed to the tier is on the disk, except for a [`Fill`] that has not ended. Returns
    /// false if that takes longer than `most`. A directory that is off, or still read after a start, is left out, because it
    /// would not answer in time.
    pub fn flush(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        // All directories write at the same time.
        let ready = self.directories.iter().filter(|directory| directory.inner.writes_soon());
        let begun: Vec<_> = ready.map(|directory| (directory, directory.begin_flush())).collect();
        begun.into_iter().all(|(directory, before)| directory.end_flush(before, until))
    }

    /// A handle that waits for the last writes of the tier after it was dropped. Until then, the directories are locked for
    /// this process.
    pub fn ending(&self) -> Ending {
        let end = |directory: &OpenDirectory| (Arc::downgrade(&directory.inner), Arc::clone(&directory.end));
        Ending(self.directories.iter().map(end).collect())
    }

    /// The figures of each directory.
    pub fn stat(&self) -> Vec<(PathBuf, Stat)> {
        let path = |directory: &OpenDirectory| directory.inner.directory.blocking().path().to_owned();
        self.directories.iter().map(|directory| (path(directory), directory.stat())).collect()
    }
}

/// Turns the entry of a place into the result of a lookup. `None` if it is the response for another
/// text, or was purged.
fn found(
    inner: &Inner,
    key: Key,
    place: crate::place::Place,
    entry: PlaceEntry,
    text: &KeyText,
) -> Option<DiskLookup> {
    let object = match &entry {
        PlaceEntry::Object(object) | PlaceEntry::File(object, _) => object,
        PlaceEntry::List(_) => return None,
    };
    if object.text() != text.as_bytes() {
        return None;
    }
    let outdated = match inner.judge(key, place, object) {
        Effect::Live => false,
        Effect::Outdated => true,
        Effect::Dead => return None,
    };
    match entry {
        PlaceEntry::Object(object) => Some(DiskLookup::Object { object, outdated }),
        PlaceEntry::File(object, body) => Some(DiskLookup::File { object, body, outdated }),
        PlaceEntry::List(_) => None,
    }
}

/// Writes a purge into the journal of a directory.
async fn note(inner: &Arc<Inner>, purge: &[u8]) -> Result<(), foregate_io::Error> {
    let mut attempts = 0;
    loop {
        let (writing, bytes) = (Arc::clone(inner), purge.to_vec());
        let written = inner.directory.run(move |_| writing.record_purge(&bytes));
        attempts += 1;
        match written.await {
            Err(foregate_io::Error::Busy) if attempts < ATTEMPTS => {}
            Err(foregate_io::Error::Io(error)) => {
                inner.failed(&error);
                return Err(error.into());
            }
            result => return result,
        }
    }
}
