//! Logs to which lines are appended: access logs, and the files of modules.
//!
//! A line is copied into a buffer; a thread of the file writes the buffer. A slow or full file
//! therefore never delays a request: beyond a backlog of 4 MiB lines are dropped and counted.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::writer::WriterShared;
use crate::counters::metrics::Counter;
use crate::settings::LogTarget;

mod output;
mod rotation;
mod syslog;
mod writer;

#[cfg(test)]
pub(super) use self::writer::BACKLOG_LIMIT;

/// The open log files: those of the present configuration, and those of earlier ones with requests
/// in progress.
#[derive(Debug, Default)]
pub struct LogFiles {
    known: Mutex<Vec<KnownFile>>,
}

#[derive(Debug)]
struct KnownFile {
    target: LogTarget,
    handle: Weak<Handle>,
    /// Lives as long as the writer, which may still write earlier lines after the handle is gone.
    shared: Weak<WriterShared>,
}

impl LogFiles {
    /// The log of this target, if it is open with the same counter; otherwise opens it (creates
    /// a file with mode 0640, appends to it) and starts its writer's thread, `foregate-log`. A syslog
    /// server is connected to by that thread. Lost lines are counted in `dropped`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened (a pipe without a reader is not waited for) or the thread cannot
    /// be started.
    pub fn open(&self, target: &LogTarget, dropped: &Arc<Counter>) -> io::Result<LogFile> {
        let mut known = self.known.lock();
        known.retain(|known| known.shared.strong_count() > 0);
        let mut handles =
            known.iter().filter(|known| known.target == *target).filter_map(|known| known.handle.upgrade());
        if let Some(handle) = handles.find(|handle| handle.shared.counts_in(dropped)) {
            return Ok(LogFile { handle });
        }
        let handle = Arc::new(Handle { shared: writer::start(target, Arc::clone(dropped))? });
        let (shared, weak) = (Arc::downgrade(&handle.shared), Arc::downgrade(&handle));
        known.push(KnownFile { target: target.clone(), handle: weak, shared });
        Ok(LogFile { handle })
    }

    /// Makes each writer write pending lines, then reopen its path (after a rotation). A failure
    /// is logged, and the old file stays in use.
    pub fn reopen(&self) {
        self.writers().iter().for_each(|shared| shared.reopen());
    }

    /// Writes pending lines, and waits at most `limit` for all; returns true if that was enough.
    /// Blocks the thread: for the end of the process.
    pub fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let writers = self.writers();
        writers.iter().for_each(|shared| shared.hurry());
        writers.iter().filter(|shared| !shared.wait(deadline)).count() == 0
    }

    fn writers(&self) -> Vec<Arc<WriterShared>> {
        self.known.lock().iter().filter_map(|known| known.shared.upgrade()).collect()
    }
}

/// A log file. A clone writes to the same file; when the last one is dropped, the writer writes
/// pending lines and ends.
#[derive(Debug, Clone)]
pub struct LogFile {
    handle: Arc<Handle>,
}

/// Ends the writer's thread when it is dropped.
#[derive(Debug)]
struct Handle {
    shared: Arc<WriterShared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl LogFile {
    /// Adds bytes that are whole lines, ends included. Never blocks on the file: beyond a backlog
    /// of 4 MiB they are dropped, and counted as one.
    pub fn push(&self, lines: &[u8]) {
        self.handle.shared.push(lines);
    }

    /// Makes the writer write pending lines without delay. The future ends when the file has
    /// accepted or refused them, which on a slow file may be late: wait for a limited time.
    pub fn settle(&self) -> impl Future<Output = ()> + use<> {
        self.handle.shared.settle()
    }
}
