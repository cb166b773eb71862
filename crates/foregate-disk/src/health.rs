//! Back-off of a disk that fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// This many errors within [`WINDOW`] switch the disk off.
const ERRORS: usize = 5;
const WINDOW: Duration = Duration::from_secs(10);
/// How long the disk is off for the first time. If it fails again soon, the time is doubled, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// How long nothing is written after the file system was full.
const FULL: Duration = Duration::from_secs(10);

/// The state of a disk. Times are milliseconds since `start`.
#[derive(Debug)]
pub(crate) struct Health {
    start: Instant,
    off_until: AtomicU64,
    full_until: AtomicU64,
    /// `true` after a failed start, until a later attempt succeeds.
    held: AtomicBool,
    errors: Mutex<Errors>,
}

#[derive(Debug, Default)]
struct Errors {
    recent: Vec<Instant>,
    back_off: Option<Duration>,
    /// The end of the last back-off. A single error less than [`WINDOW`] after this moment is enough to begin the
    /// next back-off.
    ended: Option<Instant>,
}

impl Health {
    pub(crate) fn new(start: Instant) -> Self {
        let (off_until, full_until) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = AtomicBool::new(false);
        Self { start, off_until, full_until, held, errors: Mutex::default() }
    }

    fn time(&self, at: Instant) -> u64 {
        // The result is at least 1, since 0 stands for a time in the past.
        u64::try_from((at - self.start).as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Returns whether the disk is used at all. As long as it has not failed, this does not read the clock.
    pub(crate) fn is_on(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.off_until.load(Ordering::Relaxed);
        !self.is_held() && (until == 0 || self.time(now()) >= until)
    }

    /// Switches the disk off until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Switches the disk on after a late attempt to start has succeeded.
    pub(crate) fn release(&self) {
        self.held.store(false, Ordering::Relaxed);
    }

    /// Returns whether the disk is off because the start failed.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether objects may be written.
    pub(crate) fn is_writable(&self, now: impl Fn() -> Instant) -> bool {
        let until = self.full_until.load(Ordering::Relaxed);
        self.is_on(&now) && (until == 0 || self.time(now()) >= until)
    }

    /// Notes that the file system is full.
    pub(crate) fn full(&self, now: Instant) {
        self.full_until.store(self.time(now + FULL), Ordering::Relaxed);
    }

    /// Counts an error. Returns true if it switches the disk off.
    pub(crate) fn error(&self, now: Instant) -> bool {
        let mut errors = self.errors.lock();
        if errors.ended.is_some_and(|ended| now < ended) {
            return false;
        }
        errors.recent.retain(|&at| now - at < WINDOW);
        errors.recent.push(now);
        let again = errors.ended.is_some_and(|ended| now - ended < WINDOW);
        if errors.recent.len() < ERRORS && !again {
            return false;
        }
        let back_off = errors.back_off.filter(|_| again).map_or(SHORTEST, |last| (last * 2).min(LONGEST));
        errors.back_off = Some(back_off);
        errors.ended = Some(now + back_off);
        errors.recent.clear();
        self.off_until.store(self.time(now + back_off), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_switch_a_disk_off_and_longer_each_time() {
        let start = Instant::now();
        let health = Health::new(start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let is_on = |seconds: u64| health.is_on(|| at(seconds));
        assert!((0..4).all(|second| !health.error(at(second))));
        // Too long ago to count.
        assert!((20..24).all(|second| !health.error(at(second))));
        assert!(is_on(24));
        assert!(health.error(at(24)));
        assert!(!is_on(24) && !health.is_writable(|| at(24)));
        assert!(!health.error(at(30)), "errors of operations that were under way change nothing");
        assert!(!is_on(33) && is_on(34));
        // One error is enough right after the pause, which doubles.
        assert!(health.error(at(36)));
        assert!(!is_on(55) && is_on(56));
        assert!(!health.error(at(50)));
        assert!(health.error(at(57)));
        // A disk that has worked for some time starts over.
        assert!(!health.error(at(57 + 40 + 11)));
    }

    #[test]
    fn a_full_disk_is_read_and_written_again_after_a_pause() {
        let start = Instant::now();
        let health = Health::new(start);
        assert!(health.is_writable(|| start));
        health.full(start);
        let end = start + FULL;
        assert!(health.is_on(|| start) && !health.is_writable(|| end - Duration::from_millis(1)));
        assert!(health.is_writable(|| end));
    }

    #[test]
    fn a_failed_start_holds_the_disk_off_until_it_is_released() {
        let start = Instant::now();
        let health = Health::new(start);
        health.hold();
        assert!(!health.is_on(|| start + LONGEST) && !health.is_writable(|| start + LONGEST));
        health.release();
        assert!(health.is_on(|| start) && health.is_writable(|| start));
    }
}
