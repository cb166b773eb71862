//! Waiting for the thread of a directory that has been dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::inner::Inner;

/// The end of the thread of a directory, for those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct WriterEnd {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// Held by the thread of a directory. Dropping it marks the end of the thread.
pub(crate) struct RunningWriter(pub(crate) Arc<WriterEnd>);

impl Drop for RunningWriter {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// The directories of a tier that is about to be dropped. This holds none of them open.
#[derive(Debug)]
pub struct Ending(pub(crate) Vec<(Weak<Inner>, Arc<WriterEnd>)>);

impl Ending {
    /// Blocks until the threads of all directories have written what the tier got, and have ended. Returns false if that takes
    /// longer than `most`. A directory that is off, or still read after a start, is left out.
    pub fn wait(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        self.0.iter().all(|(inner, writer)| {
            let is_slow = inner.upgrade().is_some_and(|inner| !inner.writes_soon());
            is_slow || writer.wait(until)
        })
    }
}

impl WriterEnd {
    fn wait(&self, until: Instant) -> bool {
        let mut ended = self.ended.lock();
        while !*ended {
            if self.changed.wait_until(&mut ended, until).timed_out() {
                return *ended;
            }
        }
        true
    }
}

impl Inner {
    /// Returns true if the directory is in use, so that its thread writes soon.
    pub(crate) fn writes_soon(&self) -> bool {
        self.health.is_on(Instant::now) && !self.recovering.load(Ordering::Relaxed)
    }
}
