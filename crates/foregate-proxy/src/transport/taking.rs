//! Progress of a peer that reads.

use std::time::Instant;

/// The smallest progress of a peer that reads, bytes: an HTTP/2 window that is opened a byte at a
/// time must not hold a response, and the origin's connection behind it, for ever.
pub const LEAST_TAKEN: u64 = 1024;

/// Tracks if a peer reads its output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taking {
    /// The time since which it has read less than [`LEAST_TAKEN`], and not all, of the pending
    /// output.
    stuck: Option<Instant>,
    /// The bytes read by then.
    before: u64,
}

impl Taking {
    /// Records the bytes read so far, and if more is pending.
    pub fn observe(&mut self, taken: u64, waits: bool, now: Instant) {
        let progressed = taken.saturating_sub(self.before) >= LEAST_TAKEN;
        if !waits {
            self.stuck = None;
        } else if progressed || self.stuck.is_none() {
            self.stuck = Some(now);
            self.before = taken;
        }
    }

    /// It has read other output of the same connection, after which this output waits.
    pub fn has_left(&mut self, at: Option<Instant>) {
        self.stuck = self.stuck.map(|since| at.map_or(since, |at| at.max(since)));
    }

    /// Since when the peer has taken nothing, if output waits for it.
    pub fn stuck(&self) -> Option<Instant> {
        self.stuck
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
