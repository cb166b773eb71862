//! Files that lines are added to: the access log, and those of modules.
//!
//! Whoever has a line copies it into a buffer; a thread of the file's own writes the buffer to it. A file that is slow or
//! full therefore never delays a request: beyond a backlog of 4 MiB lines are dropped and counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::writer::Shared;
use crate::counters::metrics::Counter;

mod writer;

#[cfg(test)]
pub(super) use self::writer::BACKLOG_LIMIT;

/// The log files that are open: those of the present configuration, and those of earlier ones whose requests are still under way.
#[derive(Debug, Default)]
pub struct LogFiles {
    known: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    path: PathBuf,
    handle: Weak<Handle>,
    /// There for as long as its writer is, which may still write what came before the handle went.
    shared: Weak<Shared>,
}

impl LogFiles {
    /// The log file at this path, where it is open with the same counter; otherwise opens it (creates it with mode 0640, appends to
    /// it) and starts its writer's thread, `foregate-log`. Lines that are lost are counted in `dropped`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened (a pipe that nobody reads is not waited for) or the thread cannot be started.
    pub fn open(&self, path: &Path, dropped: &Arc<Counter>) -> io::Result<LogFile> {
        let mut known = self.known.lock();
        known.retain(|known| known.shared.strong_count() > 0);
        let mut handles =
            known.iter().filter(|known| known.path == path).filter_map(|known| known.handle.upgrade());
        if let Some(handle) = handles.find(|handle| handle.shared.counts_in(dropped)) {
            return Ok(LogFile { handle });
        }
        let handle = Arc::new(Handle { shared: writer::start(path, Arc::clone(dropped))? });
        let (shared, weak) = (Arc::downgrade(&handle.shared), Arc::downgrade(&handle));
        known.push(Known { path: path.to_owned(), handle: weak, shared });
        Ok(LogFile { handle })
    }

    /// Has each writer write out what there is, then open its path anew (after a rotation). Where that fails, it
    /// is logged, and the old file is written on.
    pub fn reopen(&self) {
        self.writers().iter().for_each(|shared| shared.reopen());
    }

    /// Writes out what there is and waits for it, at most `limit` for all; whether it was done by then. Blocks the
    /// thread: for the end of the process.
    pub fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let writers = self.writers();
        writers.iter().for_each(|shared| shared.hurry());
        writers.iter().filter(|shared| !shared.wait(deadline)).count() == 0
    }

    fn writers(&self) -> Vec<Arc<Shared>> {
        self.known.lock().iter().filter_map(|known| known.shared.upgrade()).collect()
    }
}

/// A log file. A clone writes to the same file; when the last one is dropped, the writer writes out what there is and
/// ends.
#[derive(Debug, Clone)]
pub struct LogFile {
    handle: Arc<Handle>,
}

/// Ends the writer's thread when it is dropped.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl LogFile {
    /// Adds bytes that are whole lines, ends included. Never blocks on the file: beyond a backlog of 4 MiB they are
    /// dropped, and counted as one.
    pub fn push(&self, lines: &[u8]) {
        self.handle.shared.push(lines);
    }

    /// Has what was added so far written without delay. The future ends when the file has taken or refused it, which on a
    /// slow file may be late: wait for a limited time.
    pub fn settle(&self) -> impl Future<Output = ()> + use<> {
        self.handle.shared.settle()
    }
}
