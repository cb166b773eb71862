//! The choice of slow operations, and their delay.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The work that follows a delay.
type Work = Box<dyn FnOnce() + Send>;

/// Slow operations, chosen by names and offsets.
pub struct Delays {
    /// The part of all operations, of 2^64.
    threshold: u64,
    milliseconds: AtomicU64,
    opens: AtomicU64,
    reads: AtomicU64,
    slow: AtomicU64,
    waiting: Sender<(Instant, Work)>,
}

/// An operation that may be slow.
pub enum Operation<'a> {
    /// Opening a file.
    Open(&'a Path),
    /// Reading a file from this offset on.
    Read(&'a Path, u64),
}

impl Delays {
    /// Slow operations, so many percent of all. Starts the thread that waits for them.
    pub fn start(share: f64) -> std::io::Result<Self> {
        let (waiting, operations) = channel();
        thread::Builder::new().name("delays".to_owned()).spawn(move || perform(&operations))?;
        let (milliseconds, opens) = (AtomicU64::new(0), AtomicU64::new(0));
        let (reads, slow) = (AtomicU64::new(0), AtomicU64::new(0));
        // A number out of range becomes the nearest one.
        let threshold = (share / 100.0 * u64::MAX as f64) as u64;
        Ok(Self { threshold, milliseconds, opens, reads, slow, waiting })
    }

    /// Sets the delay of slow operations from now on.
    pub fn set(&self, milliseconds: u64) {
        self.milliseconds.store(milliseconds, Ordering::Relaxed);
    }

    /// The operations so far, as JSON.
    pub fn counts(&self) -> String {
        let [opens, reads, slow] =
            [&self.opens, &self.reads, &self.slow].map(|count| count.load(Ordering::Relaxed));
        format!(r#"{{"opens": {opens}, "reads": {reads}, "slow": {slow}}}"#)
    }

    /// Does the work of an operation: now, or on the thread of the slow ones after the delay.
    pub fn perform(&self, operation: &Operation<'_>, work: impl FnOnce() + Send + 'static) {
        let mut hasher = DefaultHasher::new();
        let count = match operation {
            Operation::Open(path) => {
                (0, path).hash(&mut hasher);
                &self.opens
            }
            Operation::Read(path, offset) => {
                (1, path, offset).hash(&mut hasher);
                &self.reads
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        if hasher.finish() >= self.threshold {
            return work();
        }
        self.slow.fetch_add(1, Ordering::Relaxed);
        let delay = Duration::from_millis(self.milliseconds.load(Ordering::Relaxed));
        if delay.is_zero() {
            return work();
        }
        // The thread ends with the process.
        let _ = self.waiting.send((Instant::now() + delay, Box::new(work)));
    }
}

/// Performs operations when they are due. As a rule all delays are the same, so they become due in their order.
fn perform(operations: &Receiver<(Instant, Work)>) {
    for (due, work) in operations {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        work();
    }
}
