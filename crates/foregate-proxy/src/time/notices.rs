//! Limits how often the same notice is logged. Metrics count every occurrence.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The pause between two notices.
const PAUSE: Duration = Duration::from_secs(10);

/// Limits one kind of notice in the log: the next one is due when `PAUSE` has passed since the last one.
#[derive(Debug, Default)]
pub struct Notices {
    last: Mutex<Option<Instant>>,
}

impl Notices {
    /// Returns true if a notice is due now. The caller must then log it, because it counts as logged.
    pub fn take(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if due {
            *last = Some(now);
        }
        due
    }

    /// Records that a notice is logged now, even if none was due.
    pub fn give(&self, now: Instant) {
        *self.last.lock() = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn operators_are_told_now_and_then() {
        let (notices, start) = (Notices::default(), Instant::now());
        let times = (0..100).filter(|quarter| notices.take(start + SECOND * *quarter / 4)).count();
        assert_eq!(times, 3);
    }

    #[test]
    fn a_notice_that_was_not_due_counts() {
        let (notices, start) = (Notices::default(), Instant::now());
        assert!(notices.take(start));
        notices.give(start + SECOND * 9);
        assert!(!notices.take(start + SECOND * 18) && notices.take(start + SECOND * 19));
    }
}
