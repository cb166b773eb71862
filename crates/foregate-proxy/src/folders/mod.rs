//! Folders of static files: opens files, and reads them piece by piece.
//!
//! The rules are in `foregate-files`. Calls that may wait for a disk go through `foregate-io` and never block a worker.

pub(crate) mod body;
mod find;
mod open_files;
mod whole;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use foregate_io::{Directory, EngineChoice, Limits, Links, OpenHow, Stat};
use parking_lot::Mutex;

use self::open_files::OpenFiles;
use crate::settings::{Files, FollowLinks};
use crate::time::notices::Notices;

pub(crate) use self::find::{FolderTarget, seconds_now};
pub(crate) use self::open_files::OpenFile;
pub(crate) use self::whole::Whole;

/// The time limit for finding a file, and for one read.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// How often the path of a folder is followed anew: deployments swap a link.
const FOLLOWED_EVERY: Duration = Duration::from_secs(1);

/// The limits on reads that wait for a thread. These reads wait longer than reads of the cache, because only the file
/// can answer their requests.
const LIMITS: Limits = Limits {
    threads: 64,
    slow: 192,
    queue: 1024,
    patience: Duration::from_secs(1),
    stuck: Duration::from_secs(5),
};

/// Logs if the preferred engine is not available and there are reads to do.
pub(crate) fn tell_engine(engine: EngineChoice, has_work: bool) {
    if engine == EngineChoice::Auto
        && has_work
        && let Err(error) = foregate_io::io_uring()
    {
        tracing::info!("{error}: threads read files that are not in memory");
    }
}

/// A served folder.
#[derive(Debug)]
pub struct Folder {
    /// Its settings.
    pub settings: Arc<Files>,
    directory: Directory,
    how: OpenHow,
    /// When the path was last followed; `None`: the next request follows it.
    followed: Mutex<Option<Instant>>,
    /// True while there is nothing at the path.
    is_gone: AtomicBool,
    open_files: Arc<OpenFiles>,
    notices: Notices,
}

/// Why a file could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderError {
    /// The system does not let the process read it.
    Forbidden,
    /// The disk is too slow at present.
    Busy,
    /// The file could not be read.
    Read,
    /// The file has become shorter while it was read.
    Shrunk,
    /// There is no descriptor for it.
    Descriptors,
}

impl FolderError {
    /// Why a read has failed.
    pub(crate) fn of_read(error: foregate_io::Error) -> Self {
        if error.is_busy() { Self::Busy } else { Self::Read }
    }
}

/// An open file that was found.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// The name of the file below the folder, without the suffix of a variant.
    pub name: Vec<u8>,
    pub open: Arc<OpenFile>,
    pub coding: Option<foregate_coding::ContentCoding>,
}

impl Folder {
    /// Opens the folder, which may block. If a folder in `old` has the same settings, it is used again.
    ///
    /// # Errors
    ///
    /// The folder cannot be opened; the message has its path.
    pub fn open(settings: &Arc<Files>, engine: EngineChoice, old: &[Arc<Self>]) -> io::Result<Arc<Self>> {
        if let Some(same) = old.iter().find(|old| old.settings == *settings) {
            // The path may lead to another folder by now.
            *same.followed.lock() = None;
            same.open_files.forget();
            return Ok(Arc::clone(same));
        }
        let directory = Directory::open_root(&settings.folder, LIMITS, engine).map_err(|error| {
            io::Error::new(error.kind(), format!("folder {}: {error}", settings.folder.display()))
        })?;
        let links = match settings.links {
            FollowLinks::Inside => Links::Beneath,
            FollowLinks::Anywhere => Links::Anywhere,
            FollowLinks::Never => Links::Never,
        };
        Ok(Arc::new(Self {
            settings: Arc::clone(settings),
            directory,
            how: OpenHow::read().links(links),
            followed: Mutex::new(Some(Instant::now())),
            is_gone: AtomicBool::new(false),
            open_files: Arc::default(),
            notices: Notices::default(),
        }))
    }

    /// The figures of the folder's disk.
    pub fn counters(&self) -> Stat {
        self.directory.counters()
    }

    /// Logs a file that cannot be used, at intervals.
    fn tell(&self, name: &[u8], reason: &dyn std::fmt::Display) {
        if self.notices.take(Instant::now()) {
            let (folder, file) = (self.settings.folder.display(), String::from_utf8_lossy(name));
            // The name comes from the client, so it is escaped.
            tracing::warn!(%folder, ?file, %reason, "a file was not served");
        }
    }
}
