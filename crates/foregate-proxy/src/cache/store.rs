//! The store with its tiers: the memory, and behind it the disk, if there is one. All lookups, insertions and
//! removals go through here.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_cache::{
    CacheTime, Counted, Floors, Key, KeyText, Memory, MemoryLookup, MemoryStat, Object, Purge, Secret,
    Selected, Strength,
};
use foregate_disk::{FileBody, Fill, Stat, Verified, VerifyCursor};
use foregate_wire::HeaderList;
use parking_lot::Mutex;

use super::disk::{self, DiskTier};
use super::unwritten::UnwrittenBody;
use crate::settings::CacheStore;

/// The longest body that a shared fetch keeps whole in memory, bytes. A longer body is written to the disk while it
/// arrives.
const LARGEST_IN_MEMORY: u64 = 8 << 20;
/// How often a check of the disk looks whether its folders have been read.
const RECOVERY_POLL: Duration = Duration::from_millis(10);

/// The write of a purge into the journals of the disk tier. The result is `true` if it was written.
pub type Recording = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A stored response.
#[derive(Debug)]
pub struct Hit {
    /// The response.
    pub object: Arc<Object>,
    /// The body, if it is read from a file while it is sent. Then the body in `object` is empty.
    pub file: Option<FileBody>,
    /// `true` if a soft purge has made the response stale.
    pub outdated: bool,
}

/// The result of a lookup on the disk.
#[derive(Debug)]
pub enum StoreFound {
    /// A response that the request selects.
    Hit(Hit),
    /// No response. If the address is known to vary, this has the key of the variant that the request asks for.
    Nothing(Option<Key>),
    /// The disk is too slow at the moment, or off.
    Unavailable,
}

/// The stored responses, in all tiers.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    disk: Arc<DiskTier>,
    floors: Arc<Floors>,
    limit: Mutex<usize>,
    /// The state of the sweep, which may have to run again for a purge that came while it ran.
    sweeping: Mutex<Sweeping>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sweeping {
    #[default]
    No,
    Once,
    Again,
}

/// The figures of the store.
#[derive(Debug, Default, Clone)]
pub struct StoreStat {
    /// The figures of the memory.
    pub memory: MemoryStat,
    /// The limit of the memory, bytes.
    pub limit: usize,
    /// Purges that are remembered.
    pub floors: usize,
    /// The folders of the disk tier.
    pub disks: Vec<(PathBuf, Stat)>,
    /// Folders that another process holds.
    pub awaited: Vec<PathBuf>,
}

impl Store {
    /// A store with nothing in memory.
    pub(super) fn new(
        settings: &CacheStore,
        secret: Secret,
        floors: Arc<Floors>,
        disk: Arc<DiskTier>,
    ) -> Self {
        let memory = Memory::new(settings.memory, secret, Arc::clone(&floors));
        Self { memory, disk, floors, limit: Mutex::new(settings.memory), sweeping: Mutex::default() }
    }

    /// Changes the limits.
    pub fn set_limits(&self, settings: &CacheStore, now: CacheTime) {
        if !self.disk.set_sizes(&settings.disks) {
            tracing::warn!("other folders of `cache-store` take effect with the next start");
        }
        let mut limit = self.limit.lock();
        if std::mem::replace(&mut *limit, settings.memory) != settings.memory {
            self.memory.set_limit(settings.memory, now);
        }
    }

    /// Sets the secret of keys, before anything is stored.
    pub(super) fn set_secret(&mut self, secret: Secret) {
        let limit = *self.limit.lock();
        self.memory = Memory::new(limit, secret, Arc::clone(&self.floors));
    }

    /// The memory tier, for moving responses from the previous process or to the next one.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Drops the stored responses in memory, and stores none there any more.
    pub fn close_memory(&self) {
        *self.limit.lock() = 0;
        self.memory.close();
    }

    /// Looks for a response to a request with this key, in the memory. It waits for nothing.
    pub fn get(&self, key: Key, text: &KeyText, request: &HeaderList) -> MemoryLookup {
        self.memory.get(key, text, request)
    }

    /// The purges that concern stored responses.
    pub fn floors(&self) -> &Floors {
        self.memory.floors()
    }

    /// Returns whether the disk may have something for a key. It waits for nothing.
    pub fn disk_may_have(&self, key: Key) -> bool {
        self.disk.open().is_some_and(|disk| disk.may_have(key))
    }

    /// Looks for a response on the disk. A hit is copied to the memory, if it fits.
    pub async fn get_from_disk(
        &self,
        key: Key,
        text: &KeyText,
        request: &HeaderList,
        now: CacheTime,
    ) -> StoreFound {
        let Some(disk) = self.disk.open() else { return StoreFound::Nothing(None) };
        match disk::get(&disk, key, text, request).await {
            foregate_disk::DiskLookup::Object { object, outdated } => {
                let object = Arc::new(object);
                self.memory.insert(Arc::clone(&object), now);
                StoreFound::Hit(Hit { object, file: None, outdated })
            }
            foregate_disk::DiskLookup::File { object, body, outdated } => {
                StoreFound::Hit(Hit { object: Arc::new(object), file: Some(body), outdated })
            }
            foregate_disk::DiskLookup::Nothing { variant } => StoreFound::Nothing(variant),
            foregate_disk::DiskLookup::Unavailable => StoreFound::Unavailable,
        }
    }

    /// The longest body that is stored from memory once it is complete, bytes. [`Self::fill`] writes longer ones.
    pub fn largest(&self) -> u64 {
        let memory = self.memory.largest() as u64;
        let whole = self.disk.open().is_some() && !self.memory.holds_much();
        if whole { memory.max(LARGEST_IN_MEMORY) } else { memory }
    }

    /// Begins to write a body to the disk while it arrives, because it is longer than [`Self::largest`]. `None` if no disk
    /// takes a body of this length, if it is known.
    pub fn fill(&self, key: Key, length: Option<u64>) -> Option<Fill> {
        self.disk.open()?.fill(key, length)
    }

    /// Stores an object. `false` if it is too large, or was purged while it was fetched.
    pub fn insert(&self, object: Arc<Object>, now: CacheTime) -> bool {
        let on_disk = self.disk.put(&object);
        self.memory.insert(object, now) || on_disk
    }

    /// Removes an object, unless another one has taken its place.
    pub fn remove(&self, object: &Arc<Object>) {
        self.memory.remove(object);
        if let Some(disk) = self.disk.open() {
            disk.remove(object.key());
        }
    }

    /// Purges, at once.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) -> Option<Recording> {
        let number = self.memory.floors().purge(purge, strength);
        self.disk.record(purge, strength, number)
    }

    /// Applies the purge of another node at once. `None` if the bytes are not a valid purge.
    pub fn repeat(&self, purge: &[u8]) -> Option<Option<Recording>> {
        let repeated = self.memory.floors().repeat(purge)?;
        Some(self.disk.record_written(repeated))
    }

    /// Releases the folders to the next process.
    ///
    /// # Errors
    /// A folder does not open again, or no thread can be started. Purges of the next process then do not reach this one.
    pub fn release_folders(&self) -> std::io::Result<()> {
        self.disk.release(&self.floors)
    }

    /// Returns whether there are folders that another process holds.
    pub fn awaits_folders(&self) -> bool {
        self.disk.is_waiting()
    }

    /// Counts the responses in memory that a purge will concern.
    pub async fn count(&self, purge: &Purge<'_>) -> Counted {
        let (selected, mut sum) = (Selected::new(purge), Counted::default());
        for part in 0.. {
            let Some(counted) = self.memory.count(part, &selected) else { break };
            sum.responses += counted.responses;
            sum.bytes += counted.bytes;
            tokio::task::yield_now().await;
        }
        sum
    }

    /// The number of entries on disk, lists of selecting fields included; `None` without a folder.
    pub fn on_disk(&self) -> Option<usize> {
        let stat = self.disk.open()?.stat();
        Some(stat.iter().map(|(_, stat)| stat.entries).sum())
    }

    /// Counts a complete body that may be written to the disk, until the result is dropped, so that
    /// [`Self::wait_for_bodies`] waits for it. To be called before a client can know that the body is complete.
    pub(super) fn unwritten(&self) -> Option<UnwrittenBody> {
        self.disk.unwritten()
    }

    /// Blocks until the tasks that write long bodies have ended, for at most `most`. Returns the rest of that time. The
    /// tasks need the runtime, so this comes before its end, and [`Self::flush`] after it.
    pub fn wait_for_bodies(&self, most: Duration) -> Duration {
        self.disk.wait_for_bodies(most).unwrap_or_else(|| {
            tracing::warn!(
                "the cache's disk is too slow: the last long responses will be missing after the start"
            );
            Duration::ZERO
        })
    }

    /// Blocks until all responses so far are on the disk, or until `most` has passed for one of its folders.
    pub fn flush(&self, most: Duration) {
        if !self.disk.flush(most) {
            tracing::warn!("the cache's disk is too slow: the last responses may be missing after the start");
        }
    }

    /// Checks the entries on disk from a position on, for at most `most`. `None` without a folder. If the folders are still
    /// being read after a start, the check begins after that.
    pub async fn verify(&self, from: VerifyCursor, most: Duration) -> Option<Verified> {
        let disk = self.disk.open()?;
        let until = Instant::now() + most;
        while disk.stat().iter().any(|(_, stat)| stat.recovering) {
            if Instant::now() >= until {
                return Some(Verified { next: Some(from), ..Verified::default() });
            }
            tokio::time::sleep(RECOVERY_POLL).await;
        }
        Some(disk.verify(from, most).await)
    }

    /// Removes purged responses from memory, a part at a time, and then forgets the purges.
    pub async fn sweep(&self) {
        {
            let mut sweeping = self.sweeping.lock();
            if *sweeping != Sweeping::No {
                *sweeping = Sweeping::Again;
                return;
            }
            *sweeping = Sweeping::Once;
        }
        loop {
            let mut sweep = self.memory.begin_sweep();
            while self.memory.sweep(&mut sweep) {
                tokio::task::yield_now().await;
            }
            let mut sweeping = self.sweeping.lock();
            if *sweeping == Sweeping::Once {
                *sweeping = Sweeping::No;
                return;
            }
            *sweeping = Sweeping::Once;
        }
    }

    /// The figures of the store.
    pub fn stat(&self) -> StoreStat {
        let disks = self.disk.open().map(|disk| disk.stat());
        let awaited = match disks {
            Some(_) => Vec::new(),
            None => self.disk.configured().into_iter().map(|disk| disk.folder).collect(),
        };
        StoreStat {
            memory: self.memory.stat(),
            limit: *self.limit.lock(),
            floors: self.floors().len(),
            disks: disks.unwrap_or_default(),
            awaited,
        }
    }
}
