//! The line that shows the progress of a long command.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::output::complain;

/// The progress on the standard error: on a terminal one line that is overwritten, otherwise a new line now and then.
pub(super) struct Progress {
    of: &'static str,
    began: Instant,
    last: Instant,
    is_terminal: bool,
}

impl Progress {
    const OFTEN: Duration = Duration::from_millis(200);
    const SELDOM: Duration = Duration::from_secs(10);

    /// Begins now. `of` names the things that are counted, such as `requests`.
    pub fn new(of: &'static str) -> Self {
        let now = Instant::now();
        Self { of, began: now, last: now, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Reports the progress: `done` of `all`, with a remark.
    pub fn tell(&mut self, done: u64, all: u64, remark: &str) {
        let every = if self.is_terminal { Self::OFTEN } else { Self::SELDOM };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let rate = done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let line = format!("{done} of {all} {}, {rate:.0}/s, {remark}", self.of);
        if self.is_terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
        } else {
            complain(&line);
        }
    }

    /// Removes the progress line from the terminal.
    pub fn end(&self) {
        if self.is_terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}
