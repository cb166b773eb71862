//! A coarse clock for deadlines, and one of the processor.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static POLL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time at which the current poll of a [`super::blocked::Watched`] task began; outside of one, the time.
///
/// Good for deadlines, which do not mind the length of a poll; not for measuring.
pub fn now() -> Instant {
    POLL.get().unwrap_or_else(Instant::now)
}

/// Whether `age` has not passed yet since `since`.
pub fn is_within(now: Instant, since: Instant, age: Duration) -> bool {
    since.checked_add(age).is_none_or(|end| now < end)
}

/// How long this thread has run on a processor so far. A call of the system, unlike the other clocks.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
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
