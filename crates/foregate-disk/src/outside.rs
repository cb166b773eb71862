//! Access to a directory that another process holds. This process reads the identity and the purges of the
//! directory, and leaves purges for the process that holds the directory.
//!
//! During an upgrade, two processes serve clients with the same contents, and one of them holds the directory.
//! Each learns the purges of the other: the holder reads the [inbox], and the other process reads the holder's
//! journal.

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

/// The most attempts to leave a purge while the inbox is locked, and the pause between two attempts.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// A directory that another process holds.
#[derive(Debug)]
pub struct OutsideDirectory {
    directory: Directory,
    /// The purges of the holder that are known.
    seen: Mutex<JournalSeen>,
}

/// The part of a holder's journal that was read.
#[derive(Debug, Default)]
struct JournalSeen {
    latest: u64,
    /// The state of the file when it was read to its end.
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
    /// Opens a directory. Its purges are known up to the number `known`.
    ///
    /// # Errors
    /// The folder cannot be opened.
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

    /// Reads the identity of the store. `None` if there is no store that can be used. Purges up to now count as
    /// known. This call blocks.
    pub fn identity(&self) -> Option<StoreIdentity> {
        let blocking = self.directory.blocking();
        let StoreFileState::Store(store) = StoreFile::find(blocking).ok()? else { return None };
        let floors = Floors::default();
        // A damaged journal is no obstacle: the process that opens the directory then purges everything.
        let _ = Journal::restore(blocking, &store.id, &floors);
        let latest = floors.begin();
        self.seen.lock().latest = latest.get();
        let time = store.clock.continued(&Checkpoint::now(CacheTime(0)));
        Some(StoreIdentity { secret: store.secret, time, latest })
    }

    /// Applies the purges of the holder since the last call to `floors`. It blocks.
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
        // If the last record is still being written, the file is read again next time.
        if whole {
            seen.file = file;
        }
        Ok(())
    }

    /// Leaves a purge for the present holder of the directory, or for the next one. Once the future is complete,
    /// the purge survives a kill of the process.
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

    /// Like [`leave`](Self::leave), for the bytes of [`Purge::write`] or [`Floors::repeat`].
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
