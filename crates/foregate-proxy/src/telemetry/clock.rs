//! A coarse clock for deadlines.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static POLL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time at which the current poll of a [`super::blocked::Watched`] task began; outside of one, the time.
///
/// Good for deadlines, which do not mind the length of a poll; not for measuring.
pub fn now() -> Instant {
    POLL.get().unwrap_or_else(Instant::now)
}

/// Makes [`now`] answer `start` on this thread until it is dropped.
#[derive(Debug)]
pub(super) struct PollStart {
    outer: Option<Instant>,
}

impl PollStart {
    pub(super) fn set(start: Instant) -> Self {
        Self { outer: POLL.replace(Some(start)) }
    }
}

impl Drop for PollStart {
    fn drop(&mut self) {
        POLL.set(self.outer);
    }
}
