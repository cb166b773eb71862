//! The limit on the rate of requests, and the line that shows the progress.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cli::output::complain;

/// A limit on the requests per second, spread evenly.
pub(crate) struct Pace {
    gap: Option<Duration>,
    next: Mutex<Instant>,
}

impl Pace {
    pub fn new(rate: Option<f64>) -> Self {
        let gap = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Self { gap, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the turn of the next request.
    pub async fn turn(&self) {
        let Some(gap) = self.gap else { return };
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(Instant::now());
            *next = at + gap;
            at
        };
        tokio::time::sleep_until(at.into()).await;
    }
}

/// The progress on the standard error: on a terminal one line that is overwritten, otherwise a new line now and then.
pub(crate) struct Progress {
    began: Instant,
    last: Instant,
    is_terminal: bool,
}

impl Progress {
    const OFTEN: Duration = Duration::from_millis(200);
    const SELDOM: Duration = Duration::from_secs(10);

    pub fn new() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Reports the progress: `done` of `all`, with a remark.
    pub fn tell(&mut self, done: usize, all: usize, remark: &str) {
        let every = if self.is_terminal { Self::OFTEN } else { Self::SELDOM };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let rate = done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let line = format!("{done} of {all} requests, {rate:.0}/s, {remark}");
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
