//! Logs to which lines are appended: access logs, and the files of modules.
//!
//! A line is copied into a buffer; each file has a thread that writes its buffer. A slow or full
//! file therefore never delays a request: if the backlog exceeds 4 MiB, lines are dropped and counted.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::writer::WriterShared;
use crate::counters::metrics::Counter;
use crate::settings::LogTarget;
use crate::time::clock::Clock;

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
    clock: Clock,
}

#[derive(Debug)]
struct KnownFile {
    target: LogTarget,
    handle: Weak<Handle>,
    /// The state of the writer. It outlives the handle while the writer still writes earlier lines.
    shared: Weak<WriterShared>,
}

impl LogFiles {
    /// No files; the times in syslog messages and the age of files are taken from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { known: Mutex::default(), clock }
    }

    /// Returns the log of this target. If it is not open yet with the same counter, opens it and starts
    /// its writer's thread, `foregate-log`. A missing file is created with mode 0640, and an existing one
    /// is appended to. To a syslog server, the thread connects later. Lost lines are counted in `dropped`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened (for example, a pipe without a reader), or the thread cannot be started.
    pub fn open(&self, target: &LogTarget, dropped: &Arc<Counter>) -> io::Result<LogFile> {
        let mut known = self.known.lock();
        known.retain(|known| known.shared.strong_count() > 0);
        let mut handles =
            known.iter().filter(|known| known.target == *target).filter_map(|known| known.handle.upgrade());
        if let Some(handle) = handles.find(|handle| handle.shared.counts_in(dropped)) {
            return Ok(LogFile { handle });
        }
        let handle = Arc::new(Handle { shared: writer::start(target, Arc::clone(dropped), self.clock)? });
        let (shared, weak) = (Arc::downgrade(&handle.shared), Arc::downgrade(&handle));
        known.push(KnownFile { target: target.clone(), handle: weak, shared });
        Ok(LogFile { handle })
    }

    /// Makes each writer write pending lines, then reopen its path (after a rotation). A failure
    /// is logged, and the old file stays in use.
    pub fn reopen(&self) {
        self.writers().iter().for_each(|shared| shared.reopen());
    }

    /// Writes the pending lines of all files, and waits for this at most `limit`. Returns true if all were
    /// written. Blocks the calling thread, so call it only at the end of the process.
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
    /// Adds whole lines, including their line ends. Never blocks on the file: if the backlog exceeds
    /// 4 MiB, the bytes of this call are dropped, and counted as one line.
    pub fn push(&self, lines: &[u8]) {
        self.handle.shared.push(lines);
    }

    /// Makes the writer write pending lines without delay. The future ends when the file has accepted
    /// or refused them. A slow file may take long, so the caller should limit the time.
    pub fn settle(&self) -> impl Future<Output = ()> + use<> {
        self.handle.shared.settle()
    }
}
