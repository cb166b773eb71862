//! Counts an HTTP/2 peer's frames that make no progress, and stops a peer that floods.
//!
//! `h2` answers every frame faithfully; how many of them are too many is decided here, by looking at the frame
//! headers (RFC 9113, section 4.1) on their way in and out:
//!
//! - *Frames without progress* (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types ...) draw on
//!   a token bucket. An honest peer sends many of them as well, but in answer to what it gets: each request and
//!   each DATA frame that we send earn credits, and only what no credit covers is drawn from the bucket.
//! - *Premature resets* draw on a second bucket, and have a total: a RST_STREAM of the peer for a stream whose
//!   response is not complete, and one of ours whose error code blames the peer.
//! - *CONTINUATION* frames of one header block, and its bytes, have fixed limits.

use std::time::Instant;

use crate::settings::Limits;

/// Bytes of the client's preface, before its first frame (RFC 9113, section 3.4).
pub(crate) const PREFACE: usize = 24;
/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 9;
/// CONTINUATION frames of one header block. Beyond: a flood. With frames of 16 KiB, 128 KiB need eight.
const CONTINUATIONS: u32 = 16;
/// A header block may be so many times as large as the decoded list: what is only a little too large gets its
/// 431 from `h2`.
const BLOCK_FACTOR: usize = 2;
/// A peer cannot save up more credits than this.
const CREDITS_LIMIT: u32 = 4096;
/// Credits of one request: a window for its stream, and its priority.
const CREDITS_PER_REQUEST: u32 = 2;
/// A DATA frame of ours earns this for itself and again for each [`CREDIT_BYTES`]: a window for the stream, one
/// for the connection.
const CREDITS_PER_DATA: u32 = 2;
/// Windows are hardly ever opened in smaller steps.
const CREDIT_BYTES: u32 = 4096;
/// Streams that are remembered beyond the ones that may be open, because what opens another one and what ends
/// one cross on the way.
const STREAMS_SLACK: usize = 64;
/// What a peer may send before the window was opened any further (RFC 9113, section 6.9.2).
const FIRST_WINDOW: i64 = 65_535;

pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// What a peer does too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Frames without progress.
    Control,
    /// Premature resets, in too short a time or in all.
    Resets,
    /// CONTINUATION frames, or bytes of one header block.
    Continuation,
}

/// Follows the frames of one HTTP/2 connection in both directions. Without I/O.
#[derive(Debug)]
pub struct FrameMeter {
    received: Frames,
    sent: Frames,
    control: TokenBucket,
    resets: TokenBucket,
    /// Premature resets that are left on this connection.
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
    /// Bytes of DATA that the peer may still send on the connection.
    window: i64,
    /// The most that it ever could.
    window_most: i64,
    /// Bytes of bodies that have come and were not asked for yet.
    data: usize,
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
            resets_left: limits.h2_resets_total,
            credits: 0,
            awaited_acks: 0,
            open: Vec::new(),
            open_limit: limits.h2_streams as usize + STREAMS_SLACK,
            last_stream: 0,
            block: Block::default(),
            block_limit: limits.head_bytes.saturating_mul(BLOCK_FACTOR),
            window: FIRST_WINDOW,
            window_most: FIRST_WINDOW,
            data: 0,
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

    /// The most bytes of bodies that the peer can have sent and that nobody has taken yet: those that it was not given leave to
    /// send again, which `h2` does once half of the window was taken.
    pub fn unread_at_most(&self) -> usize {
        usize::try_from(self.window_most - self.window).unwrap_or(0)
    }

    /// Bytes of bodies in what was [observed](Self::observe) since the last call.
    pub fn take_data(&mut self) -> usize {
        std::mem::take(&mut self.data)
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
        if frame.kind == kind::DATA {
            // Within what it may send, which is `h2`'s to see to.
            self.window = (self.window - i64::try_from(frame.length).unwrap_or(i64::MAX)).max(0);
            self.data += frame.content();
        }
        match frame.kind {
            kind::DATA if frame.has(flag::END_STREAM) || frame.content() > 0 => Ok(()),
            kind::HEADERS => self.received_headers(now, frame),
            kind::CONTINUATION => self.received_continuation(now, frame),
            kind::RST_STREAM if self.close(frame.stream) => self.reset(now),
            kind::SETTINGS | kind::PING if frame.has(flag::ACK) && self.awaited_acks > 0 => {
                self.awaited_acks -= 1;
                Ok(())
            }
            _ => self.without_progress(now),
        }
    }

    fn received_headers(&mut self, now: Instant, frame: &Frame) -> Result<(), Flood> {
        self.block = Block { continuations: 0, bytes: frame.length, open: !frame.has(flag::END_HEADERS) };
        if frame.stream > self.last_stream {
            self.last_stream = frame.stream;
            self.earn(CREDITS_PER_REQUEST);
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
        if self.block.continuations > CONTINUATIONS || self.block.bytes > self.block_limit {
            return Err(Flood::Continuation);
        }
        if frame.length == 0 { self.without_progress(now) } else { Ok(()) }
    }

    fn sent_frame(&mut self, now: Instant, frame: &Frame) {
        match frame.kind {
            kind::DATA => {
                let steps = 1 + u32::try_from(frame.length).unwrap_or(u32::MAX) / CREDIT_BYTES;
                self.earn(CREDITS_PER_DATA.saturating_mul(steps));
            }
            kind::WINDOW_UPDATE if frame.stream == 0 => {
                let more = i64::from(u32::from_be_bytes(frame.payload));
                self.window += more;
                self.window_most = self.window_most.max(self.window);
            }
            kind::SETTINGS | kind::PING if !frame.has(flag::ACK) => {
                self.awaited_acks = self.awaited_acks.saturating_add(1).min(CREDITS_LIMIT);
            }
            kind::RST_STREAM => {
                self.close(frame.stream);
                if frame.blames_peer() && self.flood.is_none() {
                    self.flood = self.reset(now).err();
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
        if self.control.take(now) { Ok(()) } else { Err(Flood::Control) }
    }

    fn reset(&mut self, now: Instant) -> Result<(), Flood> {
        self.resets_left = self.resets_left.checked_sub(1).ok_or(Flood::Resets)?;
        if self.resets.take(now) { Ok(()) } else { Err(Flood::Resets) }
    }
}

/// A frame's header, and as much of its payload as was wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    payload: [u8; 4],
}

impl Frame {
    pub(crate) fn parse(header: &[u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *header;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff,
            payload: [0; 4],
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of a DATA frame without its padding.
    fn content(&self) -> usize {
        if self.has(flag::PADDED) {
            self.length.saturating_sub(1 + usize::from(self.payload[0]))
        } else {
            self.length
        }
    }

    /// Whether the error code of a RST_STREAM means that the peer did wrong (RFC 9113, section 7):
    /// PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM (it ignores the
    /// limit), COMPRESSION_ERROR, ENHANCE_YOUR_CALM.
    fn blames_peer(&self) -> bool {
        matches!(u32::from_be_bytes(self.payload), 1 | 3 | 5 | 6 | 7 | 9 | 11)
    }
}

/// Of what we receive, the length of a DATA frame's padding is wanted.
fn wanted_of_received(frame: &Frame) -> usize {
    usize::from(frame.kind == kind::DATA && frame.has(flag::PADDED))
}

/// Of what we send, the error code of a RST_STREAM is wanted, and by how much a WINDOW_UPDATE opens the window.
fn wanted_of_sent(frame: &Frame) -> usize {
    if matches!(frame.kind, kind::RST_STREAM | kind::WINDOW_UPDATE) { 4 } else { 0 }
}

/// Finds the frames in one direction of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    state: State,
    /// Whose payload is being passed over; none before the first frame.
    kind: Option<u8>,
}

#[derive(Debug)]
enum State {
    /// Bytes that are of no interest.
    Skip(usize),
    Header {
        bytes: [u8; HEADER],
        have: usize,
    },
    Payload {
        frame: Frame,
        want: usize,
        have: usize,
    },
}

impl State {
    const START: Self = Self::Header { bytes: [0; HEADER], have: 0 };
}

impl Frames {
    /// Behind so many bytes.
    pub(crate) fn after(skipped: usize) -> Self {
        Self { state: State::Skip(skipped), kind: None }
    }

    /// Whether the bytes so far end within the header of a frame, within the payload of one of these kinds, or before
    /// the first frame.
    fn is_amid(&self, kinds: &[u8]) -> bool {
        match &self.state {
            State::Header { have, .. } => *have > 0 || self.kind.is_none(),
            State::Skip(left) => *left > 0 && self.kind.is_none_or(|kind| kinds.contains(&kind)),
            State::Payload { .. } => false,
        }
    }

    /// Takes bytes up to the next frame whose header, and whose wanted payload, is there.
    pub(crate) fn next(&mut self, bytes: &mut &[u8], wanted: fn(&Frame) -> usize) -> Option<Frame> {
        loop {
            match &mut self.state {
                State::Skip(left) => {
                    let skipped = bytes.len().min(*left);
                    *bytes = &bytes[skipped..];
                    *left -= skipped;
                    if *left > 0 {
                        return None;
                    }
                    self.state = State::START;
                }
                State::Header { bytes: header, have } => {
                    *have += fill(&mut header[*have..], bytes);
                    if *have < HEADER {
                        return None;
                    }
                    let frame = Frame::parse(header);
                    self.kind = Some(frame.kind);
                    let want = wanted(&frame).min(frame.length);
                    if want == 0 {
                        self.state = State::Skip(frame.length);
                        return Some(frame);
                    }
                    self.state = State::Payload { frame, want, have: 0 };
                }
                State::Payload { frame, want, have } => {
                    *have += fill(&mut frame.payload[*have..*want], bytes);
                    if *have < *want {
                        return None;
                    }
                    let (frame, left) = (*frame, frame.length - *want);
                    self.state = State::Skip(left);
                    return Some(frame);
                }
            }
        }
    }
}

/// Moves as many bytes as there are, or as there is room for.
fn fill(room: &mut [u8], bytes: &mut &[u8]) -> usize {
    let count = room.len().min(bytes.len());
    let (taken, rest) = bytes.split_at(count);
    room[..count].copy_from_slice(taken);
    *bytes = rest;
    count
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

    fn take(&mut self, now: Instant) -> bool {
        let millis =
            u64::try_from(now.saturating_duration_since(self.filled).as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            // A token is 1,000 thousandths and a second 1,000 ms: the factors cancel out.
            self.tokens = self.tokens.saturating_add(millis.saturating_mul(self.per_second)).min(self.burst);
            self.filled = now;
        }
        match self.tokens.checked_sub(Self::TOKEN) {
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
