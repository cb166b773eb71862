//! Measures the progress of a peer, for bodies, tunnels and connections: if bytes move, if the peer reads its output,
//! if it sends fast enough, and how much of an answered request may still be read.

use std::time::{Duration, Instant};

use crate::settings::Timeouts;

/// The bytes that have moved in one direction, and when the last of them did.
#[derive(Debug, Clone, Copy)]
pub struct Movement {
    bytes: u64,
    at: Instant,
}

impl Movement {
    /// A direction in which nothing has moved yet.
    pub fn new(now: Instant) -> Self {
        Self { bytes: 0, at: now }
    }

    /// Records the bytes moved so far.
    pub fn observe(&mut self, bytes: u64, now: Instant) {
        if bytes != self.bytes {
            *self = Self { bytes, at: now };
        }
    }

    /// Restarts the time, as if bytes had just moved.
    pub fn restart(&mut self, now: Instant) {
        self.at = now;
    }

    /// The bytes at the last observation.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When bytes were last seen to move.
    pub fn at(&self) -> Instant {
        self.at
    }
}

/// The fewest bytes that a peer must read for it to count as progress. Otherwise a client that opens
/// its HTTP/2 window a byte at a time could hold a response and the origin's connection for ever.
pub const LEAST_TAKEN: u64 = 1024;

/// Tracks whether a peer reads its output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taking {
    /// The time since which the peer has read less than [`LEAST_TAKEN`] of the pending output, and not all
    /// of it.
    stuck: Option<Instant>,
    /// The number of bytes that the peer had read at the time `stuck`.
    before: u64,
}

impl Taking {
    /// Records the number of bytes read so far, and whether more output is pending.
    pub fn observe(&mut self, taken: u64, waits: bool, now: Instant) {
        if waits {
            self.waits(taken, LEAST_TAKEN, now);
        } else {
            self.has_all();
        }
    }

    /// Records the number of bytes read so far while more output is pending. At least `least` new bytes count as
    /// progress. Returns true on progress, and at the start of a wait.
    pub fn waits(&mut self, taken: u64, least: u64, now: Instant) -> bool {
        let progressed = taken.saturating_sub(self.before) >= least || self.stuck.is_none();
        if progressed {
            self.stuck = Some(now);
            self.before = taken;
        }
        progressed
    }

    /// Records that no output is pending. Returns true if some was.
    pub fn has_all(&mut self) -> bool {
        self.stuck.take().is_some()
    }

    /// Records that the peer read other output of the same connection at `at`. This counts as progress, because the
    /// pending output has to wait behind that other output.
    pub fn has_left(&mut self, at: Option<Instant>) {
        self.stuck = self.stuck.map(|since| at.map_or(since, |at| at.max(since)));
    }

    /// The time since which the peer has made no progress, if output is pending.
    pub fn stuck(&self) -> Option<Instant> {
        self.stuck
    }
}

/// The average rate of a body, measured over consecutive spans of time. A single span below the minimum rate ends the
/// body.
#[derive(Debug)]
pub struct Rate {
    span_began: Instant,
    span_bytes: u64,
    graced: bool,
}

impl Rate {
    /// Begins the first span.
    pub fn new(now: Instant) -> Self {
        Self { span_began: now, span_bytes: 0, graced: false }
    }

    /// Begins a new span; `bytes` is the number received so far.
    pub fn restart(&mut self, bytes: u64, now: Instant) {
        self.span_began = now;
        self.span_bytes = bytes;
    }

    /// The end of the present span, or a time in the past if the last span was too slow. The first span begins after
    /// a grace period, in which the rate does not matter. `bytes` is the number received so far.
    pub fn deadline(&mut self, bytes: u64, timeouts: &Timeouts, now: Instant) -> Instant {
        let grace = if self.graced { Duration::ZERO } else { timeouts.body_rate_grace };
        let begins = self.span_began + grace;
        if now < begins {
            self.span_bytes = bytes;
        }
        let end = begins + timeouts.body_rate_window;
        if now < end {
            return end;
        }
        let came = bytes - self.span_bytes;
        let seconds = timeouts.body_rate_window.as_secs_f64();
        if (came as f64) < timeouts.body_rate as f64 * seconds {
            return end;
        }
        self.graced = true;
        self.restart(bytes, now);
        now + timeouts.body_rate_window
    }
}

/// The budget for reading and dropping the rest of an answered request.
#[derive(Debug)]
pub struct DropBudget {
    deadline: Instant,
    left: usize,
}

impl DropBudget {
    /// A budget of this many bytes, until `deadline`.
    pub fn new(bytes: usize, deadline: Instant) -> Self {
        Self { deadline, left: bytes }
    }

    /// Records bytes that were dropped. Returns true if there may be more.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns true if no byte is left.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// When the time is up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The end of a pause that begins now, or of the budget if that comes first.
    pub fn within(&self, pause: Duration, now: Instant) -> Instant {
        self.deadline.min(now + pause)
    }

    /// Brings the deadline forward to the end of a pause that begins now, if it is later.
    pub fn shorten(&mut self, pause: Duration, now: Instant) {
        self.deadline = self.within(pause, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_for_dropping_ends_by_bytes_or_by_time() {
        let start = Instant::now();
        let second = |second| start + Duration::from_secs(second);
        let mut budget = DropBudget::new(10, second(5));
        assert!(budget.spend(10) && budget.is_spent() && !budget.spend(1));
        assert_eq!(budget.within(Duration::from_secs(1), second(1)), second(2));
        assert_eq!(budget.within(Duration::from_secs(9), second(1)), second(5));
        budget.shorten(Duration::from_secs(2), second(1));
        budget.shorten(Duration::from_secs(9), second(1));
        assert_eq!(budget.deadline(), second(3));
    }

    #[test]
    fn a_few_bytes_are_no_progress_while_more_wait() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut client = Taking::default();
        for second in 0..29 {
            client.observe(second, true, at(second));
            assert_eq!(client.stuck(), Some(start));
        }
        client.observe(LEAST_TAKEN, true, at(29));
        assert_eq!(client.stuck(), Some(at(29)));
        client.observe(LEAST_TAKEN + 1, false, at(30));
        assert_eq!(client.stuck(), None, "it has all there is");
        client.observe(LEAST_TAKEN + 1, true, at(90));
        assert_eq!(client.stuck(), Some(at(90)), "it was not waited for meanwhile");
    }
}
