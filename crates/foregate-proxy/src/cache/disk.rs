//! The disk tier in the running proxy: opens it, and runs its slow work in the background, so that no client waits
//! for it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use foregate_cache::{CacheTime, Floors, Key, KeyText, Object, Purge, Secret, Sequence, Strength};
use foregate_disk::{DirectorySettings, Disk, DiskLookup, Ending, Fill, OpenError, OutsideDirectory, Reason};
use foregate_wire::HeaderList;
use parking_lot::{Condvar, Mutex};
use tokio::time::timeout;

use super::Recording;
use super::unwritten::{UnwrittenBodies, UnwrittenBody};
use crate::random;
use crate::settings::{CacheDisk, EngineChoice};

/// The longest time of a lookup. If the disk needs longer, the origin is asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of attempts to open a folder that another process holds, and the pause between them: a process that is
/// about to end may still hold the folder.
const ATTEMPTS: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a body that are copied from memory to a file at a time.
const PIECE: usize = 256 * 1024;

/// How often a process checks whether the folders are free, and reads the purges of the process that holds them.
const LOOK: Duration = Duration::from_millis(250);

/// The treatment of folders that another process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folders {
    /// The folders have to be free.
    Required,
    /// Another generation of this proxy may hold the folders. They are taken over when that generation releases them.
    Awaited,
}

/// The folders of the disk tier: open, or held by another process.
#[derive(Debug)]
pub(super) struct DiskTier {
    open: ArcSwapOption<Disk>,
    outside: Mutex<Vec<Arc<OutsideDirectory>>>,
    configured: Mutex<Vec<CacheDisk>>,
    /// `None` if there are no folders at the start, and so none until the next start.
    unwritten: Option<Arc<UnwrittenBodies>>,
    /// The last writes to the folders after they were released.
    ending: Mutex<Option<Ending>>,
    engine: EngineChoice,
}

/// The secret and the clock of a cache, which all of its tiers share.
pub(super) struct TierIdentity {
    pub secret: Secret,
    pub started: (Instant, CacheTime),
}

impl DiskTier {
    /// Opens the folders, at the start of the process. Blocks.
    pub fn start(
        disks: &[CacheDisk],
        engine: EngineChoice,
        floors: &Arc<Floors>,
        folders: Folders,
    ) -> io::Result<(Arc<Self>, TierIdentity)> {
        let tier = Self {
            open: ArcSwapOption::empty(),
            outside: Mutex::default(),
            configured: Mutex::new(disks.to_vec()),
            unwritten: (!disks.is_empty()).then(Arc::default),
            ending: Mutex::default(),
            engine,
        };
        let mut identity = TierIdentity {
            secret: Secret::new(random_bytes()),
            started: (Instant::now(), CacheTime::default()),
        };
        if disks.is_empty() {
            return Ok((Arc::new(tier), identity));
        }
        match open(&tier.settings(), floors, folders) {
            Ok(disk) => {
                // The keys on a disk were hashed with the secret that is stored on it, and the ages on it were measured with the clock
                // that is stored on it.
                identity = TierIdentity { secret: disk.secret(), started: disk.started() };
                tier.open.store(Some(Arc::new(disk)));
                Ok((Arc::new(tier), identity))
            }
            Err(error) if folders == Folders::Awaited && matches!(error.reason, Reason::Locked) => {
                let outside = tier.go_outside(floors.begin()).map_err(io::Error::other)?;
                let known: Vec<_> = outside.iter().filter_map(|directory| directory.identity()).collect();
                if let Some(first) = known.first() {
                    let time = known.iter().map(|known| known.time).max().unwrap_or_default();
                    identity = TierIdentity { secret: first.secret, started: (Instant::now(), time) };
                }
                known.iter().for_each(|known| floors.advance(known.latest));
                tracing::info!(
                    "another generation holds the cache's folders: they are taken over once it lets go of them"
                );
                let tier = Arc::new(tier);
                tier.watch(floors, Some((identity.secret, identity.started)))?;
                Ok((tier, identity))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// The folders, if this process holds them. The call is cheap.
    pub fn open(&self) -> Option<Arc<Disk>> {
        self.open.load_full()
    }

    /// Counts a complete body that may be written to a file of its own, until the result is dropped. `None` without folders.
    pub fn unwritten(&self) -> Option<UnwrittenBody> {
        self.unwritten.as_ref().map(UnwrittenBodies::begin)
    }

    /// Blocks until no body is [counted](Self::unwritten). Returns the rest of `most`, or `None` if that was not enough.
    pub fn wait_for_bodies(&self, most: Duration) -> Option<Duration> {
        self.unwritten.as_ref().map_or(Some(most), |bodies| bodies.wait(most))
    }

    /// Blocks until everything that was stored is on the disk, also in folders that were released. Returns false if that
    /// takes longer than `most`.
    pub fn flush(&self, most: Duration) -> bool {
        match self.open() {
            Some(disk) => disk.flush(most),
            None => self.ending.lock().as_ref().is_none_or(|ending| ending.wait(most)),
        }
    }

    /// Stores an object on the disk, in the background.
    pub fn put(&self, object: &Arc<Object>) -> bool {
        let open = self.open.load();
        let Some(disk) = &*open else { return false };
        if disk.takes_whole(object.key(), object.memory() as u64) {
            return disk.put(object);
        }
        let Some(fill) = disk.fill(object.key(), Some(object.body.len())) else { return false };
        let (object, unwritten) = (Arc::clone(object), self.unwritten());
        tokio::spawn(async move {
            copy(fill, &object).await;
            drop(unwritten);
        });
        true
    }

    /// Returns true if there are folders that this process does not hold yet.
    pub fn is_waiting(&self) -> bool {
        self.open.load().is_none() && !self.configured.lock().is_empty()
    }

    /// The folders as they are configured, in the order of the configuration.
    pub fn configured(&self) -> Vec<CacheDisk> {
        self.configured.lock().clone()
    }

    /// Changes the sizes of the folders. Returns false if the configuration has other folders, which needs a restart.
    pub fn set_sizes(&self, disks: &[CacheDisk]) -> bool {
        let mut configured = self.configured.lock();
        for disk in disks {
            if let Some(open) = &*self.open.load() {
                open.set_size(&disk.folder, disk.size);
            }
            configured
                .iter_mut()
                .filter(|known| known.folder == disk.folder)
                .for_each(|known| known.size = disk.size);
        }
        configured.len() == disks.len()
            && disks.iter().all(|disk| configured.iter().any(|known| known.folder == disk.folder))
    }

    /// Releases the folders for another generation, while this generation still serves its last connections.
    pub fn release(self: &Arc<Self>, floors: &Arc<Floors>) -> io::Result<()> {
        if self.open.load().is_none() {
            // The thread that watches the folders need not take them over any more.
            self.configured.lock().clear();
            return Ok(());
        }
        self.go_outside(floors.begin()).map_err(io::Error::other)?;
        *self.ending.lock() = self.open.load().as_ref().map(|disk| disk.ending());
        // Fills under way keep their folder open until they end, since they hold a reference to it.
        self.open.store(None);
        self.watch(floors, None)
    }

    /// Writes a purge to the folders, so that it survives the process. `None` without folders.
    pub fn record(
        self: &Arc<Self>,
        purge: &Purge<'_>,
        strength: Strength,
        number: Sequence,
    ) -> Option<Recording> {
        let mut bytes = Vec::new();
        purge.write(strength, number, &mut bytes);
        self.record_written(bytes)
    }

    /// Does the same as `record` for a purge in the form of bytes.
    pub fn record_written(self: &Arc<Self>, bytes: Vec<u8>) -> Option<Recording> {
        if let Some(disk) = &*self.open.load() {
            let recording = disk.record_written(bytes);
            return Some(Box::pin(async move {
                let recorded = recording.await;
                if let Err(error) = &recorded {
                    tracing::warn!(%error, "a purge could not be written: it counts, and the next start uses nothing from that folder");
                }
                recorded.is_ok()
            }));
        }
        let outside = self.outside.lock();
        let left: Vec<_> = outside.iter().map(|directory| directory.leave_written(bytes.clone())).collect();
        (!left.is_empty()).then(|| {
            let recording: Recording = Box::pin(async move {
                let mut all = true;
                for left in left {
                    if let Err(error) = left.await {
                        tracing::warn!(%error, "a purge could not be left in a folder of the cache that another process holds");
                        all = false;
                    }
                }
                all
            });
            recording
        })
    }

    fn settings(&self) -> Vec<DirectorySettings> {
        let settings = |disk: &CacheDisk| DirectorySettings {
            engine: self.engine,
            ..DirectorySettings::new(&disk.folder, disk.size)
        };
        self.configured.lock().iter().map(settings).collect()
    }

    fn go_outside(&self, known: Sequence) -> Result<Vec<Arc<OutsideDirectory>>, OpenError> {
        let settings = self.settings();
        let outside = settings.iter().map(|settings| OutsideDirectory::new(settings, known).map(Arc::new));
        let outside: Vec<_> = outside.collect::<Result<_, _>>()?;
        (*self.outside.lock()).clone_from(&outside);
        Ok(outside)
    }

    /// Starts a thread that watches folders which another process holds. The thread reads the purges of that process. With
    /// `identity`, it also takes the folders over as soon as they are free, and then ends.
    fn watch(
        self: &Arc<Self>,
        floors: &Arc<Floors>,
        identity: Option<(Secret, (Instant, CacheTime))>,
    ) -> io::Result<()> {
        let (tier, floors) = (Arc::downgrade(self), Arc::clone(floors));
        let mut told = false;
        let look = move || {
            let Some(tier) = tier.upgrade() else { return false };
            tier.look(&floors, identity, &mut told)
        };
        thread::Builder::new().name("foregate-folders".to_owned()).spawn(move || watch(look)).map(drop)
    }

    /// Checks the folders once. Returns false if there is nothing left to watch.
    fn look(
        &self,
        floors: &Arc<Floors>,
        identity: Option<(Secret, (Instant, CacheTime))>,
        told: &mut bool,
    ) -> bool {
        let outside = self.outside.lock().clone();
        if outside.is_empty() || self.configured.lock().is_empty() {
            return false;
        }
        for directory in &outside {
            if let Err(error) = directory.learn(floors) {
                tracing::debug!(%error, "the purges in {} cannot be read", directory.path().display());
            }
        }
        let Some((secret, started)) = identity else { return true };
        match Disk::take_over(self.settings(), &outside, floors, random_bytes, secret, started) {
            Ok(disk) => {
                // The disk is stored first, and `outside` is cleared after it. So a concurrent purge is written to the folder
                // itself, or to the folder's inbox, which is read again later.
                self.open.store(Some(Arc::new(disk)));
                self.outside.lock().clear();
                tracing::info!("the cache's folders are this version's now");
                false
            }
            Err(error) => {
                if !matches!(error.reason, Reason::Locked) && !std::mem::replace(told, true) {
                    tracing::warn!(%error, "the cache's folders cannot be taken over: it is tried again");
                }
                true
            }
        }
    }
}

fn watch(mut look: impl FnMut() -> bool) {
    while look() {
        rest(LOOK);
    }
}

/// Sleeps. Only for threads that serve no clients.
fn rest(pause: Duration) {
    let (lock, never) = (Mutex::new(()), Condvar::new());
    never.wait_for(&mut lock.lock(), pause);
}

fn open(settings: &[DirectorySettings], floors: &Arc<Floors>, folders: Folders) -> Result<Disk, OpenError> {
    let mut attempts = 0;
    loop {
        match Disk::open(settings.to_vec(), floors, random_bytes) {
            Err(error) if matches!(error.reason, Reason::Locked) && folders == Folders::Required => {
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(error);
                }
                // No client is served yet, so the thread may block.
                rest(PAUSE);
            }
            result => return result,
        }
    }
}

pub(super) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random::number().to_le_bytes()[..part.len()]);
    }
    bytes
}

/// Looks for a response on the disk, for at most as long as a client may wait for it.
pub(super) async fn get(disk: &Disk, key: Key, text: &KeyText, request: &HeaderList) -> DiskLookup {
    timeout(PATIENCE, disk.get(key, text, request)).await.unwrap_or(DiskLookup::Unavailable)
}

async fn copy(mut fill: Fill, object: &Object) {
    for piece in object.body.pieces().iter().flat_map(|piece| piece.chunks(PIECE)) {
        if fill.push(piece).await.is_err() {
            return;
        }
    }
    // The store has already counted the reason of a failure.
    let _ = fill.finish(object).await;
}

#[cfg(test)]
mod tests {
    use foregate_cache::{AnsweredRequest, Body, Demands, KeyParts, Moment, Policy, Response, Uri, store};
    use foregate_wire::Scheme;

    use super::*;

    fn object(secret: &Secret, floors: &Floors) -> (Key, KeyText, Arc<Object>) {
        let (none, mut headers) = (HeaderList::new(), HeaderList::new());
        headers.push(b"Cache-Control", b"max-age=3600");
        let at = Moment { wall: 1_795_867_200, cache: CacheTime(5) };
        let asked = AnsweredRequest { demands: &Demands::default(), headers: &none, path: b"/" };
        let response = Response { status: 200, headers: &headers, sent: at, received: at };
        let head = store(&asked, &response, &Policy::default(), secret).unwrap();
        let uri = Uri { scheme: Scheme::Http, host: "a", port: None, path: b"/", query: None };
        let mut text = KeyText::new();
        text.write(&uri, &KeyParts::default());
        let key = text.key(secret);
        let object = Object::new(head, Body::default(), key, &text, floors.begin());
        (key, text, Arc::new(object))
    }

    #[tokio::test]
    async fn responses_of_the_last_moment_reach_folders_that_were_released() {
        let folder = tempfile::tempdir().unwrap();
        let disks = [CacheDisk { folder: folder.path().to_owned(), size: 16 << 20 }];
        let floors = Arc::new(Floors::default());
        let start = |folders| DiskTier::start(&disks, EngineChoice::Threads, &floors, folders).unwrap();
        let (tier, identity) = start(Folders::Required);
        let until_read = |tier: &DiskTier| {
            let begun = Instant::now();
            while tier.open().unwrap().stat().iter().any(|(_, stat)| stat.recovering) {
                assert!(begun.elapsed() < Duration::from_secs(60), "the folder is not read");
                rest(Duration::from_millis(1));
            }
        };
        until_read(&tier);
        let (key, text, object) = object(&identity.secret, &floors);
        assert!(tier.put(&object));
        let in_use = tier.open();
        tier.release(&floors).unwrap();
        assert!(tier.open().is_none());
        assert!(!tier.flush(Duration::from_millis(1)), "the folder is still in use");
        drop(in_use);
        assert!(tier.flush(Duration::from_secs(60)));
        // The copy is the folder of a process that is killed now.
        let copy = tempfile::tempdir().unwrap();
        for entry in walk(folder.path()) {
            let to = copy.path().join(entry.strip_prefix(folder.path()).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(&entry, to).unwrap();
        }
        let disks = [CacheDisk { folder: copy.path().to_owned(), size: 16 << 20 }];
        let next = DiskTier::start(&disks, EngineChoice::Threads, &Arc::default(), Folders::Required);
        let next = next.unwrap().0;
        until_read(&next);
        let found = get(&next.open().unwrap(), key, &text, &HeaderList::new()).await;
        assert!(matches!(found, DiskLookup::Object { .. }), "{found:?}");
    }

    fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
    }
}
