//! Bytes that an origin sends after the end of a response: a body after a head that has none, a
//! second response, a stray line break.
//!
//! A connection on which such bytes have arrived is closed. But bytes that arrive late, when the
//! connection already serves another request, look like the response to that request. Late bytes are
//! most likely after a response that never has a body, whatever its head says. Once a server has sent
//! excess bytes, its connections are therefore not reused after such responses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time for which a server is distrusted after it last sent excess bytes.
pub(super) const DISTRUSTED_FOR: Duration = Duration::from_mins(10);

/// The excess bytes of one server: the number of responses with excess bytes that the metrics do not
/// show yet, and the end of the distrust.
#[derive(Debug)]
pub(super) struct Excess {
    /// The number of responses with excess bytes that have not been counted yet.
    uncounted: AtomicU64,
    /// The end of the distrust, in milliseconds after `epoch`; 0 if there was none yet.
    until: AtomicU64,
    /// True if the distrust is new, and operators have not been told of it.
    is_news: AtomicBool,
    epoch: Instant,
}

impl Excess {
    /// Creates the state of a server that has sent no excess bytes.
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

    /// The remaining time of the distrust.
    pub(super) fn left(&self, now: Instant) -> Duration {
        Duration::from_millis(self.until.load(Ordering::Relaxed).saturating_sub(self.millis(now)))
    }

    /// Distrusts the server for `span`, because another process has seen excess bytes.
    pub(super) fn distrust(&self, span: Duration, now: Instant) {
        if !span.is_zero() {
            self.until.fetch_max(self.millis(now + span.min(DISTRUSTED_FOR)), Ordering::Relaxed);
        }
    }

    /// Takes the number of responses that the metrics do not show yet; `None` if there are none. The second
    /// value is true if operators should be told.
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

/// Returns true if bytes may be the start of a response. On a reused connection, other bytes are left
/// over from an earlier response.
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
