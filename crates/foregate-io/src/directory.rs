//! A directory with its engine.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::blocking::{BlockingDirectory, Fast, OpenDirectory};
use crate::engine::{Engine, EngineChoice};
use crate::error::{Error, Result};
use crate::faults::Faults;
use crate::file::{File, RawFile};
use crate::metadata::{Entry, Metadata};
use crate::operation::Operation;
use crate::path::{self, Links, OpenHow};
use crate::pool::{Limits, Pool};
use crate::ring::RingEngine;
use crate::stat::{Counters, Stat};
use crate::transfer::Transfer;

/// A directory, and the engine for all operations beneath it. Clones share both.
#[derive(Clone, Debug)]
pub struct Directory(Arc<DirectoryCore>);

/// The state of a directory, which its files share.
#[derive(Debug)]
pub(crate) struct DirectoryCore {
    pub(crate) blocking: BlockingDirectory,
    pool: Arc<Pool>,
    /// The engine for reads and writes of open files. `None` if the pool performs them.
    ring: Option<RingEngine>,
    pub(crate) counters: Arc<Counters>,
    /// Set once the file system refuses reads with `RWF_NOWAIT`.
    pub(crate) slow: AtomicBool,
}

impl DirectoryCore {
    /// Performs an operation on a thread of the pool.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Operation<T> {
        let (operation, slot) = Operation::waiting();
        let counters = Arc::clone(&self.counters);
        self.pool.submit(Box::new(move |has_thread| {
            let result = if has_thread { call() } else { Err(Error::Busy) };
            counters.count(&result);
            slot.complete(result);
        }));
        operation
    }

    /// Performs a read or write of an open file.
    pub(crate) fn transfer(&self, transfer: Transfer) {
        match &self.ring {
            Some(ring) => ring.submit(transfer),
            None => self.pool.submit(Box::new(move |has_thread| transfer.perform(has_thread))),
        }
    }
}

impl Directory {
    /// Opens the directory itself. This blocks, so it is called at the start of the process, or on a thread that may wait.
    ///
    /// # Errors
    /// Errors of open(2), and of [`EngineChoice::engine`].
    pub fn open_root(path: &Path, limits: Limits, engine: EngineChoice) -> io::Result<Self> {
        Self::with_faults(path, limits, engine, None)
    }

    /// Opens a directory with faults, for tests.
    ///
    /// # Errors
    /// The errors of [`Directory::open_root`].
    pub fn with_faults(
        path: &Path,
        limits: Limits,
        engine: EngineChoice,
        faults: Option<Arc<dyn Faults>>,
    ) -> io::Result<Self> {
        let counters = Arc::new(Counters::default());
        let blocking = BlockingDirectory::open_root(path, faults)?;
        let pool = Arc::new(Pool::new(limits, Arc::clone(&counters)));
        let has_ring = engine.engine()? == Engine::IoUring;
        let ring = has_ring.then(|| RingEngine::new(limits, Arc::clone(&counters), Arc::clone(&pool)));
        let shared = DirectoryCore { blocking, pool, ring, counters, slow: AtomicBool::new(false) };
        Ok(Self(Arc::new(shared)))
    }

    /// This directory, with blocking operations for threads that may wait.
    pub fn blocking(&self) -> &BlockingDirectory {
        &self.0.blocking
    }

    /// Opens a file. If this needs no disk, the calling thread opens it at once. If the path is known not to exist, the
    /// calling thread gets the error at once, too.
    ///
    /// For a path that leads out of the directory, [`Error::is_escape`] returns true. The empty path is the directory
    /// itself.
    pub fn open(&self, path: &Path, how: OpenHow) -> Operation<File> {
        if let Some(result) = self.open_cached(path, &how) {
            self.0.counters.inline.fetch_add(1, Ordering::Relaxed);
            return Operation::ready(result);
        }
        let (shared, path) = (Arc::clone(&self.0), path.to_owned());
        self.0.submit(move || {
            let raw = shared.blocking.open(&path, how)?;
            Ok(file(&shared, raw, &shared.blocking.opened()))
        })
    }

    /// Opens a file on the calling thread; `None` if that would have to wait for a disk.
    fn open_cached(&self, path: &Path, how: &OpenHow) -> Option<Result<File>> {
        let opened = self.0.blocking.opened();
        let may = matches!(opened.fast, Fast::Pages | Fast::Memory)
            && how.only_reads()
            && how.links != Links::Anywhere
            && !self.0.blocking.has_faults();
        if !may {
            return None;
        }
        match path::open(opened.fd.as_fd(), path, how, true) {
            Ok(fd) => {
                Some(self.0.blocking.file(fd).map(|raw| file(&self.0, raw, &opened)).map_err(Error::Io))
            }
            Err(error @ (Errno::NOENT | Errno::NOTDIR)) => Some(Err(error.into())),
            // A thread of the pool tries again, and reports the error.
            Err(_) => None,
        }
    }

    /// Makes a file without a name. [`File::link`] gives it a name; without that, the file vanishes when it is closed.
    pub fn create_nameless(&self, folder: &Path) -> Operation<File> {
        let (shared, folder) = (Arc::clone(&self.0), folder.to_owned());
        self.0.submit(move || {
            let raw = shared.blocking.create_nameless(&folder)?;
            Ok(file(&shared, raw, &shared.blocking.opened()))
        })
    }

    /// Renames a file, and replaces a file that has the new name.
    pub fn rename(&self, from: &Path, to: &Path) -> Operation<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run(move |directory| directory.rename(&from, &to))
    }

    /// Removes the name of a file.
    pub fn unlink(&self, path: &Path) -> Operation<()> {
        let path = path.to_owned();
        self.run(move |directory| directory.unlink(&path))
    }

    /// The properties of a path.
    pub fn stat(&self, path: &Path) -> Operation<Metadata> {
        let path = path.to_owned();
        self.run(move |directory| directory.stat(&path))
    }

    /// The files of a folder in no particular order, at most `limit` of them.
    pub fn list(&self, path: &Path, limit: usize) -> Operation<Vec<Entry>> {
        let path = path.to_owned();
        self.run(move |directory| directory.list(&path, limit))
    }

    /// Resolves the path of the directory again: a deployment may have changed a symbolic link in it. The result is true if
    /// the path leads to another directory.
    pub fn reopen(&self) -> Operation<bool> {
        self.run(BlockingDirectory::reopen)
    }

    /// Performs several blocking calls on one thread of the pool.
    pub fn run<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&BlockingDirectory) -> io::Result<T> + Send + 'static,
    ) -> Operation<T> {
        let blocking = self.0.blocking.clone();
        self.0.submit(move || Ok(calls(&blocking)?))
    }

    /// Wraps a file that a blocking call of this directory has opened.
    pub fn adopt(&self, raw: RawFile) -> File {
        file(&self.0, raw, &self.0.blocking.opened())
    }

    /// The counters of the directory.
    pub fn counters(&self) -> Stat {
        let stat = self.0.pool.stat(self.0.counters.stat());
        self.0.ring.as_ref().map_or(stat, |ring| ring.stat(stat))
    }
}

/// Wraps an open file. If the file is on another file system than the directory, it is never read on the calling
/// thread.
fn file(shared: &Arc<DirectoryCore>, raw: RawFile, opened: &OpenDirectory) -> File {
    let fast = if raw.metadata().device == opened.device { opened.fast } else { Fast::No };
    File::new(raw, Arc::clone(shared), fast)
}
