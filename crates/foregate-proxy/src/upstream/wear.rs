//! The wear of HTTP/2 connections: how fast they reach their limit of resets, and how many new connections
//! are made ahead of demand to replace them.

use std::time::{Duration, Instant};

/// The time after a failed attempt to connect in which no connection is made ahead of demand.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The rate at which connections wear out by resets of their streams, and the time to make new ones.
#[derive(Debug, Default)]
pub(super) struct Wear {
    pub(super) made_in: Duration,
    /// The time at which a connection last wore out, and the time since the previous one did.
    pub(super) last: Option<(Instant, Duration)>,
    /// The time of the last failed attempt to connect.
    pub(super) failed: Option<Instant>,
}

impl Wear {
    /// The most additional connections that are made ahead of demand.
    const AHEAD: u32 = 16;

    /// Records that a connection has worn out.
    pub(super) fn out(&mut self, now: Instant) {
        let lasted = self.last.map(|(last, _)| now.saturating_duration_since(last));
        self.last = Some((now, lasted.unwrap_or(Duration::MAX)));
    }

    /// The number of fresh connections that are needed: one, and as many more as wear out while a
    /// connection is made.
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
