//! Files that lines are added to: the access log, and those of modules.
//!
//! Whoever has a line copies it into a buffer; a thread of the file's own writes the buffer to it. A file that is slow or
//! full therefore never delays a request: beyond a backlog of 4 MiB lines are dropped and counted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::writer::Shared;
use super::metrics::Counter;

mod writer;

#[cfg(test)]
pub(super) use self::writer::BACKLOG_LIMIT;

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
    /// Opens (creates with mode 0640, appends to) the file and starts the writer's thread, `foregate-log`. Lines
    /// that are lost are counted in `dropped`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened (a pipe that nobody reads is not waited for) or the thread cannot be started.
    pub fn open(path: &Path, dropped: Arc<Counter>) -> io::Result<Self> {
        Ok(Self { handle: Arc::new(Handle { shared: writer::start(path, dropped)? }) })
    }

    /// Adds bytes that are whole lines, ends included. Never blocks on the file: beyond a backlog of 4 MiB they are
    /// dropped, and counted as one.
    pub fn push(&self, lines: &[u8]) {
        self.handle.shared.push(lines);
    }

    /// Has the writer write out what there is, then open the path anew (after a rotation). Where that fails, it
    /// is logged, and the old file is written on.
    pub fn reopen(&self) {
        self.handle.shared.reopen();
    }

    /// Writes out what there is and waits for it, at most `limit`; whether it was done by then. Blocks the
    /// thread: for the end of the process.
    pub fn flush(&self, limit: Duration) -> bool {
        self.handle.shared.flush(limit)
    }
}
