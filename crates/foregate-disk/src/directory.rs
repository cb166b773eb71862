//! One directory: how it is opened, and the thread that writes to it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foregate_cache::{CacheTime, Floors, Purge, Secret, Strength};
use foregate_io::{BlockingDirectory, Directory, EngineChoice, Faults, Limits, RawFile};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::ending::{RunningWriter, WriterEnd};
use crate::health::Health;
use crate::index::Index;
use crate::inner::Inner;
use crate::journal::{Journal, JournalState};
use crate::lowest::Lowest;
use crate::queue::{Queue, Work};
use crate::recover::{self, recover};
use crate::segment::Slots;
use crate::start::{self, FolderLock, Start, is_of_disk};
use crate::stat::{Counters, Stat, add, get};
use crate::store_file::{Checkpoint, StoreFile, StoreFileState};
use crate::writer::{EPOCH_SHIFT, Writer, first_number};

/// The smallest size of a directory, in bytes.
pub const LEAST: u64 = 16 << 20;
/// The time between writes of the clock.
const CHECKPOINT: Duration = Duration::from_secs(60);
/// The time between two checks for purges of other processes.
const RECEIVE: Duration = Duration::from_millis(500);
/// How often the writer checks the age of its buffers: `SOON` while a buffer has content, else `SELDOM`.
const SOON: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_millis(500);
/// The time between attempts to start on a disk that fails.
const RETRY: Duration = Duration::from_secs(60);

/// A directory of the tier.
#[derive(Clone)]
pub struct DirectorySettings {
    /// The folder. It has to exist.
    pub path: PathBuf,
    /// The limit in bytes, at least [`LEAST`].
    pub size: u64,
    /// The bounds of the I/O engine.
    pub io: Limits,
    /// The engine for reads of the stored contents.
    pub engine: EngineChoice,
    /// The time between attempts to start on a disk that was full, read-only or broken.
    pub retry: Duration,
    /// Faults for tests.
    pub faults: Option<Arc<dyn Faults>>,
}

impl DirectorySettings {
    /// A directory with the usual bounds.
    pub fn new(path: impl Into<PathBuf>, size: u64) -> Self {
        Self {
            path: path.into(),
            size,
            io: Limits::default(),
            engine: EngineChoice::default(),
            retry: RETRY,
            faults: None,
        }
    }
}

impl fmt::Debug for DirectorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectorySettings").field("path", &self.path).field("size", &self.size).finish()
    }
}

/// The reason why a directory is not used.
#[derive(Debug)]
pub struct OpenError {
    /// The folder.
    pub path: PathBuf,
    /// The reason.
    pub reason: Reason,
}

/// The reason in an [`OpenError`].
#[derive(Debug)]
pub enum Reason {
    /// The folder cannot be opened.
    Open(io::Error),
    /// Another process uses the folder.
    Locked,
    /// Files in the folder cannot be read or written.
    Use(io::Error),
    /// The size is below [`LEAST`].
    Small,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::Open(error) if error.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "the cache folder {path} does not exist; create it for the user that foregate runs as"
                )
            }
            Reason::Open(error) => write!(f, "the cache folder {path} cannot be opened: {error}"),
            Reason::Locked => {
                write!(f, "another process uses the cache folder {path}; give each process its own")
            }
            Reason::Use(error) => write!(f, "the cache folder {path} cannot be used: {error}"),
            Reason::Small => write!(f, "the cache folder {path} needs at least 16 MiB"),
        }
    }
}

impl std::error::Error for OpenError {}

/// A directory that is locked for this process, and the state of its store file.
pub(crate) struct LockedDirectory {
    settings: DirectorySettings,
    directory: Directory,
    /// `None` if no lock file can be created on the disk.
    lock: Option<RawFile>,
    found: StoreFileState,
}

impl LockedDirectory {
    pub(crate) fn new(settings: DirectorySettings) -> Result<Self, OpenError> {
        let path = settings.path.clone();
        let fail = |reason| OpenError { path: path.clone(), reason };
        if settings.size < LEAST {
            return Err(fail(Reason::Small));
        }
        let directory =
            Directory::with_faults(&settings.path, settings.io, settings.engine, settings.faults.clone())
                .map_err(|error| fail(Reason::Open(error)))?;
        let used = |error| fail(Reason::Use(error));
        let lock = match start::lock(directory.blocking()).map_err(used)? {
            FolderLock::Held(lock) => Some(lock),
            FolderLock::Missing => None,
            FolderLock::Taken => return Err(fail(Reason::Locked)),
        };
        let found = match StoreFile::find(directory.blocking()) {
            Err(error) if is_of_disk(&error) => StoreFileState::Damaged,
            found => found.map_err(used)?,
        };
        Ok(Self { settings, directory, lock, found })
    }

    pub(crate) fn secret(&self) -> Option<Secret> {
        match self.found {
            StoreFileState::Store(store) => Some(store.secret),
            _ => None,
        }
    }

    /// The cache's time, which continues that of the previous process.
    pub(crate) fn time(&self) -> CacheTime {
        match self.found {
            StoreFileState::Store(store) => store.clock.continued(&Checkpoint::now(CacheTime(0))),
            _ => CacheTime(0),
        }
    }

    /// Opens the store in the directory, or begins a new one. Contents of the previous process are indexed in the
    /// background.
    pub(crate) fn open(self, common: &Common, lowest: Lowest) -> Result<OpenDirectory, OpenError> {
        let path = self.settings.path.clone();
        self.open_store(common, lowest).map_err(|error| OpenError { path, reason: Reason::Use(error) })
    }

    fn open_store(self, common: &Common, lowest: Lowest) -> io::Result<OpenDirectory> {
        let Self { settings, directory, lock, found } = self;
        let blocking = directory.blocking();
        let mut start = Start { aside: None, retry: settings.retry };
        let kept = match found {
            StoreFileState::Store(store) if store.secret.to_bytes() == common.secret.to_bytes() => {
                Some(store)
            }
            StoreFileState::Other(version) => {
                start.aside = Some(version);
                None
            }
            StoreFileState::Damaged | StoreFileState::Store(_) => {
                tracing::warn!("the store in {} cannot be used: it begins anew", settings.path.display());
                None
            }
            StoreFileState::Nothing => None,
        };
        let clock = Checkpoint::now(common.started.1);
        let store = match kept {
            Some(store) => StoreFile { epoch: store.epoch.wrapping_add(1), clock, ..store },
            None => StoreFile { epoch: new_epoch(blocking), id: common.id, secret: common.secret, clock },
        };
        let restore = || match Journal::restore(blocking, &store.id, &common.floors) {
            Err(error) if is_of_disk(&error) => Ok(JournalState::Damaged),
            restored => restored,
        };
        if kept.is_some() && restore()? == JournalState::Damaged {
            tracing::warn!("the purges in {} are damaged: everything is purged", settings.path.display());
            common.floors.purge(&Purge::All, Strength::Hard);
        }
        let inner = Arc::new(Inner {
            directory,
            id: store.id,
            secret: store.secret,
            floors: Arc::clone(&common.floors),
            index: Index::new(),
            slots: RwLock::new(Slots::default()),
            queue: Queue::default(),
            writer: Mutex::new(Writer::new(store.epoch)),
            journal: Mutex::new(None),
            health: Health::new(Instant::now()),
            counters: Counters::default(),
            lowest,
            recovering: AtomicBool::new(true),
            flushed: (Mutex::new(0), Condvar::new()),
            lock: Mutex::new(lock),
            store,
            started: common.started,
            bytes: AtomicU64::new(settings.size),
            first_number: first_number(store.epoch),
        });
        let waiting = match start.write(&inner) {
            Ok(()) => None,
            Err(error) if is_of_disk(&error) => {
                tracing::error!(
                    %error,
                    "the cache folder {} cannot be used: it is off, and tried again every {:?}",
                    settings.path.display(),
                    settings.retry
                );
                add(&inner.counters.errors, 1);
                inner.health.hold();
                Some(start)
            }
            Err(error) => return Err(error),
        };
        let writing = Arc::clone(&inner);
        let writer = thread::Builder::new().name("foregate-disk".to_owned());
        let end = Arc::<WriterEnd>::default();
        let running = RunningWriter(Arc::clone(&end));
        writer.spawn(move || {
            let _running = running;
            if waiting.is_none_or(|start| start.wait(&writing)) {
                run(&writing);
            }
        })?;
        Ok(OpenDirectory { inner, end })
    }
}

/// The values that all directories of a tier share.
pub(crate) struct Common {
    pub(crate) secret: Secret,
    /// Random, for a new store.
    pub(crate) id: [u8; 16],
    pub(crate) floors: Arc<Floors>,
    pub(crate) started: (Instant, CacheTime),
}

/// The epoch of a new store in a folder that may still have files of an earlier store. It is higher than the
/// epochs of those files, so that no name is used twice, and so that the recovery finds and removes all those
/// files.
fn new_epoch(directory: &BlockingDirectory) -> u32 {
    let highest = match recover::highest_number(directory) {
        Ok(highest) => u32::try_from(highest >> EPOCH_SHIFT).unwrap_or(0),
        // The time in seconds since 1970 is higher than any epoch: an epoch counts starts.
        Err(_) => u32::try_from(Checkpoint::now(CacheTime(0)).wall).unwrap_or(0),
    };
    highest.saturating_add(1)
}

/// A directory that is in use. When it is dropped, its thread writes the remaining objects and ends.
pub(crate) struct OpenDirectory {
    pub(crate) inner: Arc<Inner>,
    pub(crate) end: Arc<WriterEnd>,
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.inner.queue.close();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl OpenDirectory {
    /// Begins to write everything that was passed to the directory. Returns the number of flushes so far, for
    /// [`end_flush`](Self::end_flush).
    pub(crate) fn begin_flush(&self) -> u64 {
        let count = self.inner.flushed.0.lock();
        self.inner.queue.flush();
        *count
    }

    /// Blocks until a flush that has begun is complete. Returns false if that takes longer than `until`.
    pub(crate) fn end_flush(&self, before: u64, until: Instant) -> bool {
        let (count, done) = &self.inner.flushed;
        let mut count = count.lock();
        while *count == before {
            if done.wait_until(&mut count, until).timed_out() {
                return *count != before;
            }
        }
        true
    }

    pub(crate) fn stat(&self) -> Stat {
        let inner = &self.inner;
        let (counters, io) = (&inner.counters, inner.directory.counters());
        if let Some(writer) = inner.writer.try_lock() {
            counters.ghosts.store(writer.ghosts.memory() as u64, Ordering::Relaxed);
        }
        // If the writer holds its lock, perhaps for long on a slow disk, use the figure of the last call.
        let ghosts = get(&counters.ghosts) as usize;
        Stat {
            engine: io.engine,
            bytes: get(&counters.bytes),
            limit: inner.limit(),
            entries: inner.index.len(),
            segments: inner.slots.read().iter().count(),
            files: get(&counters.files) as usize,
            memory: inner.index.memory() + ghosts,
            hits: get(&counters.hits),
            misses: get(&counters.misses),
            stored: get(&counters.stored),
            written: get(&counters.written),
            moved: get(&counters.moved),
            evicted: get(&counters.evicted),
            dropped: get(&counters.dropped),
            errors: get(&counters.errors),
            corrupt: get(&counters.corrupt),
            busy: get(&counters.busy),
            foreign: get(&counters.foreign),
            recovering: inner.recovering.load(Ordering::Relaxed) && !inner.health.is_held(),
            off: !inner.health.is_on(Instant::now),
            longest_wait: io.longest_wait / 1000,
        }
    }
}

/// The thread that writes.
fn run(inner: &Arc<Inner>) {
    recover(inner);
    let (mut checkpoint, mut received) = (Instant::now(), Instant::now());
    let mut patience = SELDOM;
    loop {
        let work = inner.queue.pop(patience);
        let mut writer = inner.writer.lock();
        match work {
            Work::Object(object) => {
                if !inner.health.is_writable(Instant::now) || writer.put(inner, &object).is_err() {
                    add(&inner.counters.dropped, 1);
                }
            }
            Work::Flush | Work::Closed => {
                writer.flush_all(inner);
                inner.tell_flushed();
                if matches!(work, Work::Closed) {
                    drop(writer);
                    inner.checkpoint();
                    return;
                }
            }
            Work::Nothing => {}
        }
        patience = if writer.flush_old(inner) { SOON } else { SELDOM };
        drop(writer);
        renew_journal(inner);
        if received.elapsed() >= RECEIVE {
            inner.receive();
            received = Instant::now();
        }
        if checkpoint.elapsed() >= CHECKPOINT {
            inner.checkpoint();
            checkpoint = Instant::now();
        }
    }
}

/// Writes a new journal if the present one misses a purge, or has grown long.
fn renew_journal(inner: &Inner) {
    let mut journal = inner.journal.lock();
    if journal.as_ref().is_some_and(|journal| !journal.is_long()) || !inner.health.is_writable(Instant::now) {
        return;
    }
    if let Some(new) = inner.check(Journal::create(inner.directory.blocking(), &inner.id, &inner.floors)) {
        *journal = Some(new);
    }
}
