//! The queue of requests that wait for a shared connection.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Counts the waiting requests, and the connections that are being made for them. Connections are made
/// one at a time while their number of streams is unknown, and then as many as all waiters need.
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

    /// The right to make a connection ahead of demand; `None` if `most` connections are being made
    /// already.
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
    /// Waits until the next attempt to make a connection ends, successfully or not.
    pub fn next(&self) -> Notified<'_> {
        self.queue.over.notified()
    }

    /// The right to make a connection, if those being made are too few for all waiters. Each connection
    /// accepts `requests` requests. `requests` is `None` if that is unknown, or if connections should be
    /// tried one by one.
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

/// The right to make a connection. When it is dropped, the waiters check again.
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
