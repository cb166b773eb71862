//! The exact clock for long-lived state, a coarse clock for the deadlines of requests, and a clock of
//! processor time.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static POLL: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The time at which this thread's last poll ended; `None` if the thread may have slept since.
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    /// True if this thread calls [`rest`] before it sleeps.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// The clock for state that outlives a request: health, names, certificates, pools. Each owner of such state gets it
/// when it is created. In the program it has no content; a test passes a clock that it can advance instead of waiting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    #[cfg(test)]
    ahead: Option<&'static std::sync::atomic::AtomicU64>,
}

impl Clock {
    /// The steady time.
    pub fn now(self) -> Instant {
        let now = Instant::now();
        #[cfg(test)]
        let now = now + self.ahead();
        now
    }

    /// The time of the calendar.
    pub fn wall(self) -> SystemTime {
        let now = SystemTime::now();
        #[cfg(test)]
        let now = now + self.ahead();
        now
    }

    /// Seconds since 1970.
    pub fn unix(self) -> u64 {
        self.wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
}

#[cfg(test)]
impl Clock {
    /// A clock that runs as usual, and that [`Self::advance`] moves ahead.
    pub(crate) fn of_a_test() -> Self {
        Self { ahead: Some(Box::leak(Box::default())) }
    }

    /// Moves this clock and all of its copies ahead.
    pub(crate) fn advance(self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.ahead.unwrap().fetch_add(by, std::sync::atomic::Ordering::Relaxed);
    }

    fn ahead(self) -> Duration {
        let ahead = self.ahead.map_or(0, |ahead| ahead.load(std::sync::atomic::Ordering::Relaxed));
        Duration::from_millis(ahead)
    }
}

/// The time at which the current poll of a [`super::poll_length::WatchedTask`] began. Outside of such
/// a task, the current time.
///
/// If a thread polls again without sleeping, the new poll begins at the time at which the last one
/// ended, which saves reading the clock again. The result may therefore be somewhat before the event
/// that woke the task, and before a time that another thread has read. Never conclude from it that a
/// timer is not due yet.
///
/// Good for deadlines, where the length of a poll does not matter; not for measuring.
pub fn now() -> Instant {
    POLL.get().unwrap_or_else(Instant::now)
}

/// Returns true if `age` has not passed yet since `since`.
pub fn is_within(now: Instant, since: Instant, age: Duration) -> bool {
    since.checked_add(age).is_none_or(|end| now < end)
}

/// The processor time that this thread has used so far. Unlike the other clocks, it costs a system
/// call.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Declares that this thread will call [`rest`] whenever it is about to sleep. A thread on which a
/// worker may block in place cannot promise this; `clippy.toml` bans such blocking.
pub fn tells_of_rests() {
    TELLS.set(true);
}

/// Declares that this thread is about to sleep, so that its next poll reads the clock.
pub fn rest() {
    LAST.set(None);
}

/// A poll on this thread. Until it is dropped, [`now`] returns the time at which it began.
#[derive(Debug)]
pub(super) struct Polling {
    start: Instant,
    outer: Option<Instant>,
}

impl Polling {
    pub(super) fn begin() -> Self {
        let start = LAST.take().unwrap_or_else(Instant::now);
        Self { start, outer: POLL.replace(Some(start)) }
    }

    /// Ends the measurement and returns the time that passed.
    pub(super) fn end(self) -> Duration {
        let now = Instant::now();
        LAST.set(Some(now).filter(|_| TELLS.get()));
        now.saturating_duration_since(self.start)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLL.set(self.outer);
    }
}
