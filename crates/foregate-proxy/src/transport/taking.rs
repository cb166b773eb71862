//! Whether a peer takes what waits for it.

use std::time::Instant;

/// What counts as progress of a peer that takes what waits for it, bytes: an HTTP/2 window that is opened a byte at a time must not
/// keep a response, and the origin's connection behind it, for ever.
pub const LEAST_TAKEN: u64 = 1024;

/// Whether a peer takes what there is for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taking {
    /// Since when it has taken less than [`LEAST_TAKEN`], and not all, of what waits.
    stuck: Option<Instant>,
    /// What it had taken by then.
    before: u64,
}

impl Taking {
    /// Takes note of what it has taken so far, and whether there is more that it does not take.
    pub fn observe(&mut self, taken: u64, waits: bool, now: Instant) {
        let progressed = taken.saturating_sub(self.before) >= LEAST_TAKEN;
        if !waits {
            self.stuck = None;
        } else if progressed || self.stuck.is_none() {
            self.stuck = Some(now);
            self.before = taken;
        }
    }

    /// It has taken something else of the same connection, behind which what it is to get waits.
    pub fn has_left(&mut self, at: Option<Instant>) {
        self.stuck = self.stuck.map(|since| at.map_or(since, |at| at.max(since)));
    }

    /// Since when it has not, if it is waited for.
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
