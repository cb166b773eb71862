//! Rate limit for frames that an honest origin may also send, in numbers that depend on its timing.
//!
//! An honest origin may open windows in small steps, send empty pieces, and continue a stream for a
//! moment after our reset. On a connection that many clients share, such frames add up. They count as
//! a flood only if our own frames do not explain them and if handling them takes a good part of a
//! processor.

use std::time::Instant;

use crate::transport::meter::{Flood, TokenBucket};

/// The unexplained frames that are allowed at once ([`BURST`]) and per second ([`RATE`]). `h2` handles
/// some 100,000 of them a second with half of a processor.
const BURST: u32 = 20_000;
const RATE: u32 = 2_000;
/// The most frames that can be explained in advance.
const MOST: u64 = 1 << 20;
/// Each of our DATA frames explains this many frames, plus one for every [`BYTES`] bytes of its data.
const PER_DATA: u64 = 4;
const BYTES: usize = 64;
/// Each of our resets explains this many frames, which the origin had sent before it saw the reset.
const PER_RESET: u64 = 1024;

/// Counts the frames with an uncertain meaning.
#[derive(Debug)]
pub(super) struct Doubts {
    unexplained: TokenBucket,
    explained: u64,
}

impl Doubts {
    pub(super) fn new(now: Instant) -> Self {
        Self { unexplained: TokenBucket::new(BURST, RATE, now), explained: 0 }
    }

    /// Records that we have sent DATA of this many bytes.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.explain(PER_DATA + (bytes / BYTES) as u64);
    }

    /// Records that we have reset a stream.
    pub(super) fn reset(&mut self) {
        self.explain(PER_RESET);
    }

    /// An uncertain frame has arrived.
    pub(super) fn came(&mut self, now: Instant) -> Result<(), Flood> {
        if let Some(left) = self.explained.checked_sub(1) {
            self.explained = left;
            return Ok(());
        }
        self.unexplained.take(1, now).then_some(()).ok_or(Flood::Control)
    }

    fn explain(&mut self, frames: u64) {
        self.explained = (self.explained + frames).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn come(doubts: &mut Doubts, frames: u64, now: Instant) -> bool {
        (0..frames).all(|_| doubts.came(now).is_ok())
    }

    #[test]
    fn what_our_data_explains_is_no_flood() {
        let now = Instant::now();
        let mut doubts = Doubts::new(now);
        for _ in 0..100_000 {
            doubts.sent(16_384);
            // A window for each 64 bytes, of the stream or of the connection.
            assert!(come(&mut doubts, 256, now));
        }
        doubts.reset();
        assert!(come(&mut doubts, u64::from(BURST), now));
    }

    #[test]
    fn a_flood_is() {
        let now = Instant::now();
        let mut doubts = Doubts::new(now);
        assert!(come(&mut doubts, u64::from(BURST), now));
        assert!(doubts.came(now).is_err());
        let later = now + Duration::from_secs(1);
        assert!(come(&mut doubts, u64::from(RATE), later));
        assert!(doubts.came(later).is_err());
        doubts.reset();
        assert!(come(&mut doubts, PER_RESET, later) && doubts.came(later).is_err());
    }
}
