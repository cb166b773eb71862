//! The running operations, with the times at which they began.

use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// An operation that takes longer is slow.
pub(crate) const SLOW: Duration = Duration::from_millis(10);

/// The start times of the running operations. The index of an operation is its place.
#[derive(Debug, Default)]
pub(crate) struct Running {
    starts: Vec<Option<Instant>>,
    count: usize,
}

impl Running {
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.starts.iter().flatten().min().copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The number of slow operations.
    pub(crate) fn slow(&self, now: Instant) -> usize {
        self.starts.iter().flatten().filter(|&&start| now.saturating_duration_since(start) > SLOW).count()
    }

    /// Adds an operation that begins. Returns its place.
    pub(crate) fn begin(&mut self, now: Instant) -> usize {
        let free = self.starts.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.starts.push(None);
            self.starts.len() - 1
        });
        if let Some(slot) = self.starts.get_mut(place) {
            *slot = Some(now);
            self.count += 1;
        }
        place
    }

    pub(crate) fn end(&mut self, place: usize) {
        if let Some(slot) = self.starts.get_mut(place) {
            self.count -= usize::from(slot.take().is_some());
        }
    }
}

/// Lets the calling thread run on all cores that the main thread may use. Otherwise a new thread inherits the core of
/// the worker that started it, and competes with that worker.
pub(crate) fn use_all_cores() {
    let main = Some(rustix::process::getpid());
    let _ = sched_getaffinity(main).and_then(|cores| sched_setaffinity(None, &cores));
}
