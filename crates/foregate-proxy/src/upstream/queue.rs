//! Requests that wait for a connection which they can share.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// How many wait, and how many connections are being made for them: one at a time as long as nobody
/// knows how many requests it will take, and as many as it needs for all afterwards.
#[derive(Debug, Default)]
pub(super) struct ConnectQueue {
    counts: Mutex<WaitingCounts>,
    over: Notify,
}

#[derive(Debug, Default)]
struct WaitingCounts {
    waiting: u32,
    making: u32,
}

impl ConnectQueue {
    /// Adds a waiter.
    pub fn join(self: &Arc<Self>) -> WaitingRequest {
        self.counts.lock().waiting += 1;
        WaitingRequest { queue: Arc::clone(self) }
    }

    /// The right to make a connection that nobody waits for yet, unless as many as `most` are being
    /// made.
    pub fn make_ahead(self: &Arc<Self>, most: u32) -> Option<Making> {
        self.make(|counts| counts.making < most)
    }

    fn make(self: &Arc<Self>, may: impl FnOnce(&WaitingCounts) -> bool) -> Option<Making> {
        let mut counts = self.counts.lock();
        if !may(&counts) {
            return None;
        }
        counts.making += 1;
        Some(Making { queue: Arc::clone(self) })
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    queue: Arc<ConnectQueue>,
}

impl WaitingRequest {
    /// The next time that a connection has been made, or could not be.
    pub fn next(&self) -> Notified<'_> {
        self.queue.over.notified()
    }

    /// The right to make a connection, if those being made are too few for all waiters. Each
    /// accepts this many `requests`; `None` if that is unknown, or one after the other should be
    /// tried.
    pub fn make(&self, requests: Option<u32>) -> Option<Making> {
        self.queue.make(|WaitingCounts { waiting, making }| {
            *making == 0 || requests.is_some_and(|requests| making.saturating_mul(requests) < *waiting)
        })
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.queue.counts.lock().waiting -= 1;
    }
}

/// A connection that is being made. The waiters check again once it is dropped.
#[derive(Debug)]
pub(super) struct Making {
    queue: Arc<ConnectQueue>,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.queue.counts.lock().making -= 1;
        self.queue.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_made_as_are_needed() {
        let queue = Arc::new(ConnectQueue::default());
        let mut places: Vec<_> = (0..25).map(|_| queue.join()).collect();
        let first = places[0].make(None);
        assert!(first.is_some() && places[1].make(None).is_none() && queue.make_ahead(1).is_none());
        let making: Vec<_> = places.iter().filter_map(|place| place.make(Some(10))).collect();
        assert_eq!(making.len(), 2);
        drop(first);
        assert!(places[0].make(Some(10)).is_some());
        places.truncate(20);
        assert!(places[0].make(Some(10)).is_none());
        drop(making);
        assert!(queue.make_ahead(1).is_some());
    }
}
