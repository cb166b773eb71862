//! The start of a directory: everything that is written before the store accepts objects.
//!
//! If the disk is full, read-only or broken, the proxy still serves: the directory is off, requests go to the
//! origin, and the start is tried again. Mistakes in the configuration are errors.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foregate_io::{BlockingDirectory, OpenHow, RawFile};
use rustix::io::Errno;

use crate::inbox;
use crate::inner::Inner;
use crate::journal::Journal;
use crate::queue::Work;
use crate::segment;
use crate::stat::add;
use crate::store_file::{self, StoreFile, StoreFileState, VERSION};

const LOCK: &str = "lock";

/// The lock of a directory.
pub(crate) enum FolderLock {
    Held(RawFile),
    /// There is no lock, since no file can be created on the disk.
    Missing,
    /// Another process holds the lock.
    Taken,
}

/// Returns whether the disk is at fault, rather than the configuration: it is full, read-only or broken.
pub(crate) fn is_of_disk(error: &io::Error) -> bool {
    const DISK: [Errno; 10] = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
        Errno::IO,
        Errno::ROFS,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::NXIO,
        Errno::NODEV,
        Errno::UCLEAN,
    ];
    error.raw_os_error().is_some_and(|code| DISK.iter().any(|errno| errno.raw_os_error() == code))
}

/// Locks a directory for this process. If no lock file can be written, an existing one is locked.
pub(crate) fn lock(directory: &BlockingDirectory) -> io::Result<FolderLock> {
    let opened = match directory.open(Path::new(LOCK), OpenHow::replace()) {
        Err(error) if is_of_disk(&error) => directory.open(Path::new(LOCK), OpenHow::read()),
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(if file.lock()? { FolderLock::Held(file) } else { FolderLock::Taken }),
        Err(error) if is_of_disk(&error) || error.kind() == io::ErrorKind::NotFound => {
            Ok(FolderLock::Missing)
        }
        Err(error) => Err(error),
    }
}

/// A start that may have to be repeated until the disk works.
#[derive(Debug)]
pub(crate) struct Start {
    /// The version of old contents that still have to be renamed. `None` if there are none.
    pub(crate) aside: Option<u32>,
    /// The time between two attempts to start.
    pub(crate) retry: Duration,
}

impl Start {
    /// Writes the folders, the journal and the store file.
    pub(crate) fn write(&mut self, inner: &Inner) -> io::Result<()> {
        let directory = inner.directory.blocking();
        lock_late(inner)?;
        if let Some(version) = self.aside {
            put_aside(directory, version)?;
            self.aside = None;
        }
        directory.create_folder(Path::new(segment::FOLDER))?;
        directory.create_folder(Path::new(crate::big::FOLDER))?;
        // Hold the lock of the journal: a purge waits for it, and then finds the new journal.
        let mut journal = inner.journal.lock();
        let received = inbox::receive(directory)?;
        received.iter().for_each(|received| drop(received.apply(&inner.floors)));
        let new = Journal::create(directory, &inner.id, &inner.floors)?;
        inner.write_store()?;
        received.map_or(Ok(()), |received| received.done(directory))?;
        *journal = Some(new);
        Ok(())
    }

    /// Repeats the start until the disk works. Returns false if the directory is closed before.
    pub(crate) fn wait(mut self, inner: &Inner) -> bool {
        let mut tried = Instant::now();
        loop {
            match inner.queue.pop(self.retry.saturating_sub(tried.elapsed())) {
                Work::Closed => return false,
                Work::Flush => inner.tell_flushed(),
                Work::Object(_) | Work::Nothing => {}
            }
            if tried.elapsed() < self.retry {
                continue;
            }
            let path = inner.directory.blocking().path().display();
            match self.write(inner) {
                Ok(()) => {
                    tracing::info!("the disk of the cache folder {path} works: it is used from now on");
                    inner.health.release();
                    return true;
                }
                Err(error) => {
                    add(&inner.counters.errors, 1);
                    tracing::warn!(%error, "the cache folder {path} is still off");
                }
            }
            tried = Instant::now();
        }
    }
}

/// Locks a directory that had no lock file at the start, because the disk took no new file.
fn lock_late(inner: &Inner) -> io::Result<()> {
    let mut held = inner.lock.lock();
    if held.is_some() {
        return Ok(());
    }
    match lock(inner.directory.blocking())? {
        FolderLock::Held(file) => {
            if !matches!(StoreFile::find(inner.directory.blocking())?, StoreFileState::Nothing) {
                return Err(io::Error::other("another process has used the folder: restart to use it"));
            }
            *held = Some(file);
            Ok(())
        }
        FolderLock::Missing => Err(Errno::ROFS.into()),
        FolderLock::Taken => Err(io::Error::other("another process uses the folder")),
    }
}

/// Renames the contents of another version, so that an older or newer binary finds them again.
fn put_aside(directory: &BlockingDirectory, version: u32) -> io::Result<()> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let aside = PathBuf::from(format!("version-{version}-{time}"));
    directory.create_folder(&aside)?;
    for name in [store_file::NAME, "purges", segment::FOLDER, crate::big::FOLDER] {
        match directory.rename(Path::new(name), &aside.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let path = directory.path().join(&aside);
    tracing::warn!(
        "the cache has format {version}, and this version reads {VERSION}: its contents are kept in {}, remove them if they are of no use",
        path.display()
    );
    Ok(())
}
