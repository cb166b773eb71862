//! Counts an HTTP/2 peer's frames that make no progress, and stops a peer that floods.
//!
//! `h2` answers every frame faithfully; how many of them are too many is decided here, by looking at the frame
//! headers (RFC 9113, section 4.1) on their way in and out:
//!
//! - *Frames without progress* (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types ...) draw on
//!   a token bucket. An honest peer sends many of them as well, but in answer to what it gets: each request and
//!   each DATA frame that we send earn credits, and only what no credit covers is drawn from the bucket. SETTINGS
//!   are drawn from it always, and the more the more streams are open.
//! - *Premature resets* draw on a second bucket, and have a total: a RST_STREAM of the peer for a stream whose
//!   response is not complete, and one of ours whose error code blames the peer. What comes late for a stream that has been answered
//!   early is no fault: a reset that says so is only a frame without progress.
//! - *CONTINUATION* frames are without progress where a header block has many of them, and its bytes have a limit.
//! - *DATA* frames that nobody has taken yet may cost a multiple of the window's bytes.

use std::sync::Arc;
use std::time::Instant;

use h2::Reason;

use crate::link::frames::{Frame, Frames, PREFACE, flag, kind};
use crate::link::unread::{self, Unread};
use crate::link::unsent::Unsent;
use crate::settings::Limits;

/// CONTINUATION frames of one header block. Those beyond are frames without progress. With frames of 16 KiB, 128 KiB need eight.
const CONTINUATIONS: u32 = 16;
/// A header block may be so many times as large as the decoded list: what is only a little too large gets its
/// 431.
const BLOCK_FACTOR: usize = 2;
/// A peer cannot save up more credits than this.
const CREDITS_LIMIT: u32 = 4096;
/// Credits of one request: a window for its stream, and its priority.
const CREDITS_PER_REQUEST: u32 = 2;
/// A DATA frame of ours earns this for itself and again for each [`CREDIT_BYTES`]: a window for the stream, one
/// for the connection.
const CREDITS_PER_DATA: u32 = 2;
/// SETTINGS are as much work as a frame without progress for so many open streams.
const STREAMS_FOR_A_FRAME: u32 = 8;
/// Windows are hardly ever opened in smaller steps.
const CREDIT_BYTES: u32 = 4096;
/// Streams that are remembered beyond the ones that may be open, because what opens another one and what ends
/// one cross on the way.
const STREAMS_SLACK: usize = 64;
/// What DATA frames that nobody has taken may cost beside their bytes, by the connection's window. Streams that wait put them
/// together, once they are let run: only a flood has so many.
const WAITING_FACTOR: usize = 4;
/// From this part of that on streams are let run before more is read. A read may bring some 900 frames, and windows of the smallest
/// size allow 1,024.
const CROWDED: usize = 8;

/// What a peer does too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Frames without progress.
    Control,
    /// Premature resets, in too short a time or in all.
    Resets,
    /// Bytes of one header block.
    Continuation,
    /// DATA frames that hold next to nothing and that nobody has taken.
    Data,
}

/// Follows the frames of one HTTP/2 connection in both directions. Without I/O.
#[derive(Debug)]
pub struct FrameMeter {
    received: Frames,
    sent: Frames,
    control: TokenBucket,
    resets: TokenBucket,
    /// Premature resets that this connection may have, and that are left of them.
    resets_most: u32,
    resets_left: u32,
    credits: u32,
    /// SETTINGS and PING that we sent and that were not acknowledged yet.
    awaited_acks: u32,
    /// Streams whose response is not complete.
    open: Vec<u32>,
    open_limit: usize,
    last_stream: u32,
    block: Block,
    block_limit: usize,
    /// What has come of bodies and nobody has taken.
    unread: Arc<Unread>,
    /// What we have for the peer and has not left.
    unsent: Arc<Unsent>,
    /// The most DATA frames that may wait.
    waiting_limit: usize,
    /// Since when the peer has been within a head, or within the header of a frame.
    head_since: Option<Instant>,
    flood: Option<Flood>,
}

/// The header block that is being received.
#[derive(Debug, Default)]
struct Block {
    continuations: u32,
    bytes: usize,
    /// More frames of it are to come.
    open: bool,
}

impl FrameMeter {
    /// A meter for a connection whose client preface has not been read yet.
    pub fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            received: Frames::after(PREFACE),
            sent: Frames::after(0),
            control: TokenBucket::new(limits.h2_control_burst, limits.h2_control_rate, now),
            resets: TokenBucket::new(limits.h2_resets_burst, limits.h2_resets_rate, now),
            resets_most: limits.h2_resets_total,
            resets_left: limits.h2_resets_total,
            credits: 0,
            awaited_acks: 0,
            open: Vec::new(),
            open_limit: limits.h2_streams as usize + STREAMS_SLACK,
            last_stream: 0,
            block: Block::default(),
            block_limit: limits.head_bytes.saturating_mul(BLOCK_FACTOR),
            unread: Arc::default(),
            unsent: Arc::default(),
            waiting_limit: limits.h2_connection_window as usize * WAITING_FACTOR / unread::FRAME,
            head_since: Some(now),
            flood: None,
        }
    }

    /// Looks at bytes that the peer sent, split anywhere.
    ///
    /// # Errors
    ///
    /// The peer floods; every later call says so too.
    pub fn observe(&mut self, now: Instant, mut bytes: &[u8]) -> Result<(), Flood> {
        let mut begun = false;
        while let Some(frame) = self.received.next(&mut bytes, wanted_of_received) {
            begun |= frame.kind != kind::CONTINUATION;
            if self.flood.is_none() {
                self.flood = self.received_frame(now, &frame).err();
            }
        }
        let amid = self.block.open || self.received.is_amid(&[kind::HEADERS, kind::CONTINUATION]);
        let since = self.head_since.filter(|_| !begun);
        self.head_since = amid.then(|| since.unwrap_or(now));
        self.flood.map_or(Ok(()), Err)
    }

    /// Since when the peer has been sending a head (its preface is one), or the header of a frame.
    pub fn head_since(&self) -> Option<Instant> {
        self.head_since
    }

    /// The peer was not listened to until now: what it has sent of a head meanwhile could not be seen.
    pub fn excuse_head(&mut self, now: Instant) {
        self.head_since = self.head_since.map(|_| now);
    }

    /// What has come of bodies and nobody has taken.
    pub fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    /// What we have for the peer and has not left.
    pub fn unsent(&self) -> &Arc<Unsent> {
        &self.unsent
    }

    /// Whether so many DATA frames wait that streams should have a turn to take them before more is read.
    pub fn is_crowded(&self) -> bool {
        self.unread.frames() > self.waiting_limit / CROWDED
    }

    /// Whether there have been premature resets.
    pub fn has_resets(&self) -> bool {
        self.resets_left < self.resets_most
    }

    /// What the peer does too much of, if anything.
    pub fn flood(&self) -> Option<Flood> {
        self.flood
    }

    /// Looks at bytes that were sent to the peer, split anywhere. A flood that they show is told by the next
    /// [`Self::observe`]. `reset` is told of streams that were reset.
    pub fn observe_sent(&mut self, now: Instant, mut bytes: &[u8], mut reset: impl FnMut(u32)) {
        while let Some(frame) = self.sent.next(&mut bytes, wanted_of_sent) {
            self.sent_frame(now, &frame);
            if frame.kind == kind::RST_STREAM {
                reset(frame.stream);
            }
        }
    }

    fn received_frame(&mut self, now: Instant, frame: &Frame) -> Result<(), Flood> {
        self.unread.received(frame);
        self.unsent.received(frame);
        match frame.kind {
            kind::DATA if self.unread.frames() > self.waiting_limit => Err(Flood::Data),
            kind::DATA if frame.has(flag::END_STREAM) || frame.content() > 0 => Ok(()),
            kind::HEADERS => self.received_headers(now, frame),
            kind::CONTINUATION => self.received_continuation(now, frame),
            kind::RST_STREAM if self.close(frame.stream) => self.reset(now),
            kind::SETTINGS | kind::PING if frame.has(flag::ACK) && self.awaited_acks > 0 => {
                self.awaited_acks -= 1;
                Ok(())
            }
            kind::SETTINGS if !frame.has(flag::ACK) => self.received_settings(now),
            _ => self.without_progress(now),
        }
    }

    /// No DATA of ours is answered by SETTINGS, so that no credit pays for them. They change the window of each open stream, and may have
    /// each send a byte.
    fn received_settings(&mut self, now: Instant) -> Result<(), Flood> {
        let streams = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        if self.control.take(1 + streams / STREAMS_FOR_A_FRAME, now) { Ok(()) } else { Err(Flood::Control) }
    }

    fn received_headers(&mut self, now: Instant, frame: &Frame) -> Result<(), Flood> {
        self.block = Block { continuations: 0, bytes: frame.length, open: !frame.has(flag::END_HEADERS) };
        if frame.stream > self.last_stream {
            self.last_stream = frame.stream;
            self.earn(CREDITS_PER_REQUEST);
            if !frame.has(flag::END_STREAM) {
                self.unread.opened(frame.stream);
            }
            // Beyond what may be open, `h2` refuses the stream, which is a reset that is counted.
            if self.open.len() < self.open_limit {
                self.open.push(frame.stream);
            }
        }
        if frame.length > self.block_limit {
            return Err(Flood::Continuation);
        }
        if frame.length == 0 && !frame.has(flag::END_HEADERS) { self.without_progress(now) } else { Ok(()) }
    }

    fn received_continuation(&mut self, now: Instant, frame: &Frame) -> Result<(), Flood> {
        self.block.continuations += 1;
        self.block.open = !frame.has(flag::END_HEADERS);
        self.block.bytes = self.block.bytes.saturating_add(frame.length);
        if self.block.bytes > self.block_limit {
            return Err(Flood::Continuation);
        }
        if frame.length == 0 || self.block.continuations > CONTINUATIONS {
            self.without_progress(now)
        } else {
            Ok(())
        }
    }

    fn sent_frame(&mut self, now: Instant, frame: &Frame) {
        self.unread.sent(frame);
        self.unsent.sent(frame, false);
        match frame.kind {
            kind::DATA => {
                let steps = 1 + u32::try_from(frame.length).unwrap_or(u32::MAX) / CREDIT_BYTES;
                self.earn(CREDITS_PER_DATA.saturating_mul(steps));
            }
            kind::SETTINGS | kind::PING if !frame.has(flag::ACK) => {
                self.awaited_acks = self.awaited_acks.saturating_add(1).min(CREDITS_LIMIT);
            }
            kind::RST_STREAM => {
                let was_open = self.close(frame.stream);
                if frame.blames_peer() && self.flood.is_none() {
                    let judged = match frame.code() {
                        // What was on its way when the answer came is to be ignored (RFC 9113, section 5.1). `h2` does so for the
                        // streams that it remembers; for the others it says this.
                        Reason::STREAM_CLOSED if !was_open => self.without_progress(now),
                        _ => self.reset(now),
                    };
                    self.flood = judged.err();
                }
            }
            _ => {}
        }
        if matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(flag::END_STREAM) {
            self.close(frame.stream);
        }
    }

    fn earn(&mut self, credits: u32) {
        self.credits = self.credits.saturating_add(credits).min(CREDITS_LIMIT);
    }

    /// Forgets a stream; whether its response had not been complete.
    fn close(&mut self, stream: u32) -> bool {
        match self.open.iter().position(|open| *open == stream) {
            Some(position) => {
                self.open.swap_remove(position);
                true
            }
            None => false,
        }
    }

    fn without_progress(&mut self, now: Instant) -> Result<(), Flood> {
        if self.credits > 0 {
            self.credits -= 1;
            return Ok(());
        }
        if self.control.take(1, now) { Ok(()) } else { Err(Flood::Control) }
    }

    fn reset(&mut self, now: Instant) -> Result<(), Flood> {
        self.resets_left = self.resets_left.checked_sub(1).ok_or(Flood::Resets)?;
        if self.resets.take(1, now) { Ok(()) } else { Err(Flood::Resets) }
    }
}

/// Of what we receive, the length of a DATA frame's padding is wanted.
fn wanted_of_received(frame: &Frame) -> usize {
    usize::from(frame.kind == kind::DATA && frame.has(flag::PADDED))
}

/// Of what we send, the error code of a RST_STREAM is wanted.
fn wanted_of_sent(frame: &Frame) -> usize {
    if frame.kind == kind::RST_STREAM { 4 } else { 0 }
}

/// Allows a burst, then a rate.
#[derive(Debug)]
struct TokenBucket {
    /// In thousandths.
    tokens: u64,
    burst: u64,
    per_second: u64,
    filled: Instant,
}

impl TokenBucket {
    const TOKEN: u64 = 1000;

    fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let burst = u64::from(burst) * Self::TOKEN;
        Self { tokens: burst, burst, per_second: u64::from(per_second), filled: now }
    }

    fn take(&mut self, count: u32, now: Instant) -> bool {
        let millis =
            u64::try_from(now.saturating_duration_since(self.filled).as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            // A token is 1,000 thousandths and a second 1,000 ms: the factors cancel out.
            self.tokens = self.tokens.saturating_add(millis.saturating_mul(self.per_second)).min(self.burst);
            self.filled = now;
        }
        match self.tokens.checked_sub(u64::from(count) * Self::TOKEN) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
