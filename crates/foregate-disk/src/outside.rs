//! A directory that another process holds: its identity, its purges, and purges for it.
//!
//! During an upgrade, two processes serve clients with the same contents, and one of them holds the directory. Each gets to know the purges of the other:
//! the holder takes those of the [inbox], and the other one reads the holder's journal.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::{CacheTime, Floors, Purge, Secret, Sequence, Strength};
use foregate_io::Directory;
use parking_lot::{Condvar, Mutex};

use crate::directory::{DirectorySettings, OpenError, Reason};
use crate::inbox;
use crate::journal::{Journal, JournalStamp};
use crate::store_file::{Checkpoint, StoreFile, StoreFileState};

/// How often a purge is left again while the inbox is in use, and the pause between.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// A directory that another process holds.
#[derive(Debug)]
pub struct OutsideDirectory {
    directory: Directory,
    /// Purges of the holder up to this number are known.
    seen: Mutex<JournalSeen>,
}

/// The part of a holder's journal that was read.
#[derive(Debug, Default)]
struct JournalSeen {
    latest: u64,
    /// The file that was read.
    file: JournalStamp,
}

/// The identity of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreIdentity {
    /// The secret for keys and variants.
    pub secret: Secret,
    /// The cache's time now.
    pub time: CacheTime,
    /// The number of the latest purge.
    pub latest: Sequence,
}

impl OutsideDirectory {
    /// A directory of which the purges up to a number are known.
    ///
    /// # Errors
    /// The folder does not open.
    pub fn new(settings: &DirectorySettings, known: Sequence) -> Result<Self, OpenError> {
        let fail = |error| OpenError { path: settings.path.clone(), reason: Reason::Open(error) };
        let directory =
            Directory::with_faults(&settings.path, settings.io, settings.engine, settings.faults.clone())
                .map_err(fail)?;
        let seen = JournalSeen { latest: known.get(), ..JournalSeen::default() };
        Ok(Self { directory, seen: Mutex::new(seen) })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.directory.blocking().path()
    }

    /// The identity of the store, if there is one that can be used; purges up to now count as known. It blocks.
    pub fn identity(&self) -> Option<StoreIdentity> {
        let blocking = self.directory.blocking();
        let StoreFileState::Store(store) = StoreFile::find(blocking).ok()? else { return None };
        let floors = Floors::default();
        // A journal that misses something is no obstacle: the holder purges everything then.
        let _ = Journal::restore(blocking, &store.id, &floors);
        let latest = floors.begin();
        self.seen.lock().latest = latest.get();
        let time = store.clock.continued(&Checkpoint::now(CacheTime(0)));
        Some(StoreIdentity { secret: store.secret, time, latest })
    }

    /// Sets floors for the purges of the holder since the last call. It blocks.
    pub fn learn(&self, floors: &Floors) -> io::Result<()> {
        let mut seen = self.seen.lock();
        let Some((file, bytes)) = Journal::content(self.directory.blocking(), seen.file)? else {
            return Ok(());
        };
        let StoreFileState::Store(store) = StoreFile::find(self.directory.blocking())? else { return Ok(()) };
        let known = seen.latest;
        let (latest, whole) = Journal::each(&bytes, &store.id, &mut |number, purge| {
            if number > known {
                floors.repeat(purge);
            }
        });
        if let Some(latest) = latest {
            seen.latest = seen.latest.max(latest);
        }
        // A record that is being written is read the next time.
        if whole {
            seen.file = file;
        }
        Ok(())
    }

    /// Leaves a purge for the holder, or for the next one. When the result is there, it survives a kill of the process.
    pub fn leave(
        self: &Arc<Self>,
        purge: &Purge<'_>,
        strength: Strength,
        number: Sequence,
    ) -> impl Future<Output = Result<(), foregate_io::Error>> + Send + use<> {
        let mut bytes = Vec::new();
        purge.write(strength, number, &mut bytes);
        self.leave_written(bytes)
    }

    /// The same for the bytes of [`Purge::write`] or [`Floors::repeat`].
    pub fn leave_written(
        self: &Arc<Self>,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), foregate_io::Error>> + Send + use<> {
        let directory = self.directory.clone();
        async move {
            directory
                .run(move |directory| {
                    for _ in 0..ATTEMPTS {
                        if inbox::leave(directory, &bytes)? {
                            return Ok(());
                        }
                        let (lock, never) = (Mutex::new(()), Condvar::new());
                        never.wait_for(&mut lock.lock(), PAUSE);
                    }
                    Err(io::ErrorKind::TimedOut.into())
                })
                .await
        }
    }
}
