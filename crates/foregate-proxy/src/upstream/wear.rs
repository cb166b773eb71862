//! How soon connections of HTTP/2 wear out, and how many are made ahead for that.

use std::time::{Duration, Instant};

/// How long after a failed connect no connection is made ahead of demand.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// How fast connections wear out by resets of their streams, and how long new ones take.
#[derive(Debug, Default)]
pub(super) struct Wear {
    pub(super) made_in: Duration,
    /// When a connection last wore out, and how long after the previous one.
    pub(super) last: Option<(Instant, Duration)>,
    /// When one could not be made last.
    pub(super) failed: Option<Instant>,
}

impl Wear {
    /// The most connections that are made before they are needed.
    const AHEAD: u32 = 16;

    /// Records that a connection takes no more.
    pub(super) fn out(&mut self, now: Instant) {
        let lasted = self.last.map(|(last, _)| now.saturating_duration_since(last));
        self.last = Some((now, lasted.unwrap_or(Duration::MAX)));
    }

    /// One connection, and as many more as wear out while one is made.
    pub(super) fn needed(&self, now: Instant) -> u32 {
        if self.failed.is_some_and(|failed| now.saturating_duration_since(failed) < AFTER_FAILURE) {
            return 0;
        }
        let Some((last, lasted)) = self.last else { return 1 };
        let lasted = lasted.max(now.saturating_duration_since(last)).as_micros().max(1);
        let meanwhile = self.made_in.as_micros().div_ceil(lasted);
        1 + u32::try_from(meanwhile).unwrap_or(u32::MAX).min(Self::AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_made_ahead_as_wear_out_meanwhile() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut wear = Wear { made_in: Duration::from_millis(100), ..Wear::default() };
        assert_eq!(wear.needed(start), 1);
        wear.out(start);
        assert_eq!(wear.needed(start), 2, "how soon the next one does is not known");
        wear.out(at(60));
        assert_eq!((wear.needed(at(60)), wear.needed(at(200))), (3, 2));
        wear.out(at(201));
        wear.out(at(202));
        assert_eq!(wear.needed(at(202)), 1 + Wear::AHEAD);
        wear.failed = Some(at(202));
        assert_eq!(
            (wear.needed(at(5000)), wear.needed(at(5202))),
            (0, 2),
            "an origin that takes none is left alone"
        );
    }
}
