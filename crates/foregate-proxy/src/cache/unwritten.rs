//! Counts complete bodies that are still being written to files of their own, so that a graceful end can wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The number of complete bodies that are not on the disk yet.
#[derive(Debug, Default)]
pub(super) struct UnwrittenBodies {
    count: Mutex<usize>,
    none: Condvar,
}

/// Counts one body, until it is dropped.
#[derive(Debug)]
pub(super) struct UnwrittenBody(Arc<UnwrittenBodies>);

impl UnwrittenBodies {
    /// Counts a body. To be called before its client can know that the body is complete.
    pub fn begin(self: &Arc<Self>) -> UnwrittenBody {
        *self.count.lock() += 1;
        UnwrittenBody(Arc::clone(self))
    }

    /// Blocks until no body is counted. Returns the rest of `most`, or `None` if that was not enough.
    pub fn wait(&self, most: Duration) -> Option<Duration> {
        let until = Instant::now() + most;
        let mut count = self.count.lock();
        while *count > 0 {
            if self.none.wait_until(&mut count, until).timed_out() && *count > 0 {
                return None;
            }
        }
        Some(until.saturating_duration_since(Instant::now()))
    }
}

impl Drop for UnwrittenBody {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_body_or_with_its_time() {
        let bodies = Arc::new(UnwrittenBodies::default());
        assert!(bodies.wait(Duration::ZERO).is_some());
        let (one, other) = (bodies.begin(), bodies.begin());
        drop(one);
        assert_eq!(bodies.wait(Duration::from_millis(1)), None);
        let writing = std::thread::spawn(move || drop(other));
        assert!(bodies.wait(Duration::from_secs(60)).is_some());
        writing.join().unwrap();
    }
}
