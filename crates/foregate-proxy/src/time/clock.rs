//! The clock that decides, a coarse one for deadlines of requests, and one of the processor.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static POLL: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When this thread's last poll ended, if it is known that it has not slept since.
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    /// True on a thread that reports before it sleeps.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// The time for state that outlives a request: health, names, certificates, pools. It is given to their owner at the
/// start, and empty in the program. Tests give one that they advance, so that none of them waits.
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
    /// A clock that goes on by itself, and jumps when it is told to.
    pub(crate) fn of_a_test() -> Self {
        Self { ahead: Some(Box::leak(Box::default())) }
    }

    /// Jumps ahead. The copies of this clock do, too.
    pub(crate) fn advance(self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.ahead.unwrap().fetch_add(by, std::sync::atomic::Ordering::Relaxed);
    }

    fn ahead(self) -> Duration {
        let ahead = self.ahead.map_or(0, |ahead| ahead.load(std::sync::atomic::Ordering::Relaxed));
        Duration::from_millis(ahead)
    }
}

/// The time at which the current poll of a [`super::poll_length::WatchedTask`] task began; outside of
/// one, the time. Polls that follow each other begin when the one before has ended, so that the
/// clock is read once for each: it may be somewhat before the event that has woken the task, and
/// before the time that the task was told on another thread. So it never tells that a timer has not
/// gone off.
///
/// Good for deadlines, which do not mind the length of a poll; not for measuring.
pub fn now() -> Instant {
    POLL.get().unwrap_or_else(Instant::now)
}

/// Returns true if `age` has not passed yet since `since`.
pub fn is_within(now: Instant, since: Instant, age: Duration) -> bool {
    since.checked_add(age).is_none_or(|end| now < end)
}

/// How long this thread has run on a processor so far. A call of the system, unlike the other
/// clocks.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// This thread calls [`rest`] whenever it is about to sleep. Threads on which a worker blocks in
/// place do not (`clippy.toml`).
pub fn tells_of_rests() {
    TELLS.set(true);
}

/// This thread is about to sleep: its next poll does not begin before it wakes.
pub fn rest() {
    LAST.set(None);
}

/// A poll on this thread. [`now`] answers when it began, until this is dropped.
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
