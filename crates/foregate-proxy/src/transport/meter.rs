//! Counts the frames of an HTTP/2 peer that make no progress, and detects floods.
//!
//! - *Frames without progress* (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types
//!   ...) draw on a token bucket. An honest peer sends many of them as well, but in response to our
//!   frames: each request and the DATA that we send earn credits, and only frames without a credit
//!   draw on the bucket. DATA that is limited by a small window earns credits for its bytes alone,
//!   so that a peer cannot pay for tiny window updates with the DATA that they allow. SETTINGS
//!   always draw on the bucket, and cost more while more streams are open.
//! - *Premature resets* draw on a second bucket, and have a total limit. A RST_STREAM from the peer
//!   counts if the response of its stream is not complete; a RST_STREAM from us counts if its error
//!   code blames the peer. The peer may send frames late for a stream with an early response: we
//!   reset such a stream, but count only a frame without progress.
//! - *CONTINUATION* frames beyond the first ones of a header block are frames without progress, and
//!   the bytes of a header block have a limit.

use std::time::{Duration, Instant};

use h2::Reason;

use crate::settings::Limits;

/// The number of CONTINUATION frames of one header block that are free. Further ones are frames without
/// progress. A block of 128 KiB in frames of 16 KiB needs eight.
const CONTINUATIONS: u32 = 16;
/// The limit of a header block is this factor times the limit of the decoded list. A request that is
/// only a little too large is therefore still decoded, and gets a 431.
const BLOCK_FACTOR: usize = 2;
/// The most credits that a peer can save up.
const CREDITS_LIMIT: u32 = 4096;
/// Credits of one request. They pay for a window update of its stream, and for its priority.
const CREDITS_PER_REQUEST: u32 = 2;
/// Credits of each DATA frame that we send, in addition to a credit for each [`CREDIT_BYTES`]. They pay
/// for a window update of the stream and one of the connection. A frame that is small only because the
/// peer opened a small window does not earn them.
const CREDITS_PER_DATA: u32 = 2;
/// SETTINGS cost as much as one more frame without progress for each group of this many open streams.
const STREAMS_FOR_A_FRAME: usize = 8;
/// The number of settings that together cost as much as a frame without progress.
const SETTINGS_FOR_A_FRAME: usize = 32;
/// Bytes of DATA that earn a credit. A peer that opens windows by 1 KiB at a time spends two credits: one
/// for the window of the stream, and one for that of the connection. The 1 KiB of DATA earns both again.
const CREDIT_BYTES: usize = 512;

/// The limit that a peer has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Frames without progress.
    Control,
    /// Premature resets: too many in a short time or in total.
    Resets,
    /// Bytes of one header block.
    Continuation,
}

impl From<Flood> for Reason {
    fn from(_: Flood) -> Self {
        Self::ENHANCE_YOUR_CALM
    }
}

/// Meters one connection. A method that records a frame returns an error if the peer floods with it.
#[derive(Debug)]
pub struct Meter {
    control: TokenBucket,
    resets: TokenBucket,
    /// The number of premature resets that the connection may still have.
    resets_left: u32,
    credits: u32,
    /// Bytes of DATA that were sent and have earned nothing yet.
    uncredited: usize,
    /// The number of our SETTINGS and PING frames that the peer has not acknowledged yet.
    awaited_acks: u32,
    /// The number of CONTINUATION frames of the incomplete header block; `block` counts its bytes.
    continuations: u32,
    block: usize,
    block_limit: usize,
}

impl Meter {
    /// A meter for a new connection.
    pub fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            control: TokenBucket::new(limits.h2_control_burst, limits.h2_control_rate, now),
            resets: TokenBucket::new(limits.h2_resets_burst, limits.h2_resets_rate, now),
            resets_left: limits.h2_resets_total,
            credits: 0,
            uncredited: 0,
            awaited_acks: 0,
            continuations: 0,
            block: 0,
            block_limit: limits.head_bytes.saturating_mul(BLOCK_FACTOR),
        }
    }

    /// A stream was opened, by the peer or by us.
    pub fn opened(&mut self) {
        self.earn(CREDITS_PER_REQUEST);
    }

    /// DATA of this many bytes was sent.
    pub fn sent(&mut self, bytes: usize) {
        self.earn(CREDITS_PER_DATA);
        self.sent_all_that_may_be(bytes);
    }

    /// DATA of this many bytes was sent, which is all that the peer's small window allowed.
    pub fn sent_all_that_may_be(&mut self, bytes: usize) {
        let all = self.uncredited.saturating_add(bytes);
        self.uncredited = all % CREDIT_BYTES;
        self.earn(u32::try_from(all / CREDIT_BYTES).unwrap_or(u32::MAX));
    }

    /// The time that the peer should wait before another frame without progress, if less than half of
    /// the burst is left.
    pub fn scarce(&mut self, now: Instant) -> Option<Duration> {
        self.control.scarce(now)
    }

    /// We sent SETTINGS or a PING, which the peer must acknowledge.
    pub fn awaits_ack(&mut self) {
        self.awaited_acks = self.awaited_acks.saturating_add(1).min(CREDITS_LIMIT);
    }

    /// The peer acknowledges something.
    pub fn ack(&mut self, now: Instant) -> Result<(), Flood> {
        match self.awaited_acks.checked_sub(1) {
            Some(left) => {
                self.awaited_acks = left;
                Ok(())
            }
            None => self.without_progress(now),
        }
    }

    /// The peer has sent a frame with this many `settings`, while this many `streams` are open. None of
    /// our DATA causes SETTINGS, so credits do not pay for them. `resizes` counts the settings that change
    /// the window of each open stream: each may let every stream send a byte (CVE-2019-9511), and one frame
    /// may hold 2,730 of them.
    pub fn settings(
        &mut self,
        now: Instant,
        streams: usize,
        settings: usize,
        resizes: usize,
    ) -> Result<(), Flood> {
        let work = resizes.max(1) * (1 + streams / STREAMS_FOR_A_FRAME) + settings / SETTINGS_FOR_A_FRAME;
        let frames = u32::try_from(work).unwrap_or(u32::MAX);
        self.control.take(frames, now).then_some(()).ok_or(Flood::Control)
    }

    /// A header block begins with this many bytes. `ends` is true if no CONTINUATION follows.
    pub fn block(&mut self, now: Instant, bytes: usize, ends: bool) -> Result<(), Flood> {
        (self.continuations, self.block) = (0, bytes);
        if bytes > self.block_limit {
            return Err(Flood::Continuation);
        }
        if bytes == 0 && !ends { self.without_progress(now) } else { Ok(()) }
    }

    /// The header block continues with this many bytes in a CONTINUATION.
    pub fn continuation(&mut self, now: Instant, bytes: usize) -> Result<(), Flood> {
        self.continuations += 1;
        self.block = self.block.saturating_add(bytes);
        if self.block > self.block_limit {
            return Err(Flood::Continuation);
        }
        if bytes == 0 || self.continuations > CONTINUATIONS { self.without_progress(now) } else { Ok(()) }
    }

    /// The peer has sent a frame that makes no progress.
    pub fn without_progress(&mut self, now: Instant) -> Result<(), Flood> {
        if self.credits > 0 {
            self.credits -= 1;
            return Ok(());
        }
        self.control.take(1, now).then_some(()).ok_or(Flood::Control)
    }

    /// A stream was reset before its response was complete, either by the peer or by us because of the
    /// peer's fault.
    pub fn reset(&mut self, now: Instant) -> Result<(), Flood> {
        self.resets_left = self.resets_left.checked_sub(1).ok_or(Flood::Resets)?;
        self.resets.take(1, now).then_some(()).ok_or(Flood::Resets)
    }

    fn earn(&mut self, credits: u32) {
        self.credits = self.credits.saturating_add(credits).min(CREDITS_LIMIT);
    }
}

/// A token bucket: it allows a burst, and after that a rate.
#[derive(Debug)]
pub struct TokenBucket {
    /// In thousandths.
    tokens: u64,
    burst: u64,
    per_second: u64,
    filled: Instant,
}

impl TokenBucket {
    const TOKEN: u64 = 1000;

    /// A bucket that is full.
    pub fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let burst = u64::from(burst) * Self::TOKEN;
        Self { tokens: burst, burst, per_second: u64::from(per_second), filled: now }
    }

    /// The time until the next token arrives, if the bucket is less than half full.
    fn scarce(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        let millis = Self::TOKEN.checked_div(self.per_second).unwrap_or(Self::TOKEN);
        (self.tokens < self.burst / 2).then(|| Duration::from_millis(millis))
    }

    fn fill(&mut self, now: Instant) {
        let millis =
            u64::try_from(now.saturating_duration_since(self.filled).as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            // A token has 1,000 thousandths, and a second has 1,000 ms, so the factors cancel out.
            self.tokens = self.tokens.saturating_add(millis.saturating_mul(self.per_second)).min(self.burst);
            self.filled = now;
        }
    }

    /// Takes this many tokens at once, if there are enough.
    pub fn take(&mut self, count: u32, now: Instant) -> bool {
        self.fill(now);
        match self.tokens.checked_sub(u64::from(count) * Self::TOKEN) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}
