//! Bytes that an origin sends after the end of a response: a body after a head that has none, a
//! second response, a stray line break.
//!
//! Bytes that have come end their connection. Bytes that come late, once the connection serves
//! another request, cannot be told from that request's response. So a server that has sent such
//! bytes loses the reuse of connections where they are likeliest to come late: after responses that
//! have no body whatever their heads say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a server that has sent bytes behind a response is distrusted, from the last time on.
pub(super) const DISTRUSTED_FOR: Duration = Duration::from_mins(10);

/// Excess bytes of one server: the responses to be counted, and how long it is distrusted for them.
#[derive(Debug)]
pub(super) struct Excess {
    /// The number of responses with excess bytes that have not been counted yet.
    uncounted: AtomicU64,
    /// Milliseconds after `epoch` until which the server is distrusted; 0 before the first time.
    until: AtomicU64,
    /// The distrust is new, and operators have not been told.
    is_news: AtomicBool,
    epoch: Instant,
}

impl Excess {
    /// For a server that has sent no excess bytes.
    pub(super) fn new() -> Self {
        Self {
            uncounted: AtomicU64::new(0),
            until: AtomicU64::new(0),
            is_news: AtomicBool::new(false),
            epoch: Instant::now(),
        }
    }

    /// Records excess bytes.
    pub(super) fn note(&self, now: Instant) {
        self.uncounted.fetch_add(1, Ordering::Relaxed);
        let until = self.millis(now + DISTRUSTED_FOR);
        if self.until.fetch_max(until, Ordering::Relaxed) <= self.millis(now) {
            self.is_news.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the server has sent such bytes within the last ten minutes.
    pub(super) fn is_distrusted(&self, now: Instant) -> bool {
        match self.until.load(Ordering::Relaxed) {
            0 => false,
            until => self.millis(now) < until,
        }
    }

    /// The rest of the time for which it is distrusted.
    pub(super) fn left(&self, now: Instant) -> Duration {
        Duration::from_millis(self.until.load(Ordering::Relaxed).saturating_sub(self.millis(now)))
    }

    /// Distrusts the server for a while, as another process has reason to.
    pub(super) fn distrust(&self, span: Duration, now: Instant) {
        if !span.is_zero() {
            self.until.fetch_max(self.millis(now + span.min(DISTRUSTED_FOR)), Ordering::Relaxed);
        }
    }

    /// How many responses are to be counted, and whether operators are to be told.
    pub(super) fn take(&self) -> Option<(u64, bool)> {
        if self.uncounted.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let responses = self.uncounted.swap(0, Ordering::Relaxed);
        Some((responses, self.is_news.swap(false, Ordering::Relaxed)))
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns true if bytes may be the start of a response: if they are not, on a connection that has
/// served others, they are left over from an earlier response.
pub(super) fn may_be_response(bytes: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/";
    bytes.iter().zip(START).all(|(byte, expected)| byte == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_distrusted_for_a_while_from_the_last_time_on() {
        let (excess, now) = (Excess::new(), Instant::now());
        assert!(!excess.is_distrusted(now) && excess.take().is_none());
        excess.note(now);
        assert!(excess.is_distrusted(now) && excess.is_distrusted(now + DISTRUSTED_FOR / 2));
        assert!(!excess.is_distrusted(now + DISTRUSTED_FOR));
        assert_eq!(excess.take(), Some((1, true)));
        for minute in 1..30 {
            excess.note(now + Duration::from_mins(minute));
        }
        assert_eq!(excess.take(), Some((29, false)), "operators know");
        let last = now + Duration::from_mins(29);
        excess.note(now);
        assert!(excess.is_distrusted(last + DISTRUSTED_FOR / 2), "a thread that is late shortens nothing");
        excess.take();
        assert!(!excess.is_distrusted(last + DISTRUSTED_FOR));
        excess.note(last + DISTRUSTED_FOR);
        assert_eq!(excess.take(), Some((1, true)), "they are told of the next time");
        assert!(excess.take().is_none());
    }

    #[test]
    fn leftovers_are_told_at_the_first_byte_that_no_response_has() {
        for start in ["", "H", "HTTP", "HTTP/", "HTTP/1.1 200 OK\r\n", "HTTP/9"] {
            assert!(may_be_response(start.as_bytes()), "{start}");
        }
        for start in ["\r\n", "h", "HTTQ", "HTTP 1", "<html>", " HTTP/1.1", "bodyHTTP/1.1 200 OK\r\n"] {
            assert!(!may_be_response(start.as_bytes()), "{start}");
        }
    }
}
