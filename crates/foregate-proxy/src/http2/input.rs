//! Processes input frames.

use std::collections::VecDeque;
use std::time::Instant;

use foregate_wire::HeadLimits;
use foregate_wire::hpack::{INITIAL_TABLE, Inspector};
use h2::Reason;

use super::block::{Block, LIST_FACTOR};
use super::receive_window::MEASURES;
use super::streams::FrameTarget;
use super::{CompleteRequest, ConnectionState, ENDED, ENDING, Ending, FRAME, Fault, HEADS, NewStream};
use crate::limits::pressure;
use crate::message::request::HeadTerms;
use crate::settings::Limits;
use crate::transport::frames::{Frame, HEADER, PREFACE, flag, kind};

/// Requests for which a connection keeps memory while none arrives.
const KEPT: usize = 4;
/// If a stream was reset, DATA of fewer bytes than this for it counts as a useless frame: an attacker might send
/// nothing else.
const SMALL_DATA: usize = 256;
/// Bytes of one setting (RFC 9113, section 6.5.1).
const SETTING: usize = 6;

/// The preface of a client (RFC 9113, section 3.4).
const GREETING: &[u8; PREFACE] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The state of the input.
#[derive(Debug)]
pub struct InputState {
    /// True once the preface has arrived; `settled` is true once SETTINGS have arrived after it.
    greeted: bool,
    settled: bool,
    pub decoder: Inspector,
    /// The header block that is not complete yet.
    pub block: Option<Block>,
    /// The frame with a payload that is being processed in pieces, if there is one.
    passing: Option<Passing>,
    /// Requests that have arrived and not been started.
    arrived: VecDeque<NewStream>,
    /// The size of their heads, bytes.
    pub arrived_bytes: usize,
    /// The bytes of header blocks decoded since the last read.
    pub decoded: usize,
    /// The time since which the client has been sending a head (the preface counts as one) or the header of a frame.
    pub head_since: Option<Instant>,
    /// The limits for trailers, and for the bytes of heads.
    pub limits: HeadLimits,
    /// The most bytes that a block may take from the dynamic table. The limit equals the size of the table. A client that
    /// uses each entry once needs no more. Without the limit, a client that repeated entries could make us send 64 KiB to
    /// the origin for some thirty bytes of its own.
    pub repeated_limit: usize,
}

/// A payload that is taken as it comes.
#[derive(Debug, Clone, Copy)]
struct Passing {
    to: To,
    left: usize,
    /// Padding after it.
    padding: usize,
}

/// The destination of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The body of a stream; `ends` is true if the body ends with this payload.
    Body { stream: u32, ends: bool },
    /// Dropped, but counted in the connection's window.
    Window,
    /// Dropped, and counted in no window: the frame is of an unknown type.
    Nobody,
}

impl InputState {
    pub fn new(limits: &Limits, now: Instant) -> Self {
        let list = limits.head_bytes.saturating_mul(LIST_FACTOR);
        Self {
            greeted: false,
            settled: false,
            decoder: Inspector::new(limits.h2_header_table as usize, list),
            block: None,
            passing: None,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            decoded: 0,
            head_since: Some(now),
            limits: HeadLimits {
                bytes: limits.head_bytes,
                line: limits.head_line,
                fields: limits.head_fields,
            },
            repeated_limit: INITIAL_TABLE.max(limits.h2_header_table as usize),
        }
    }

    /// Queues a new request or stream of the client.
    pub fn arrives(&mut self, arrived: NewStream) {
        self.arrived_bytes += arrived.size();
        self.arrived.push_back(arrived);
    }

    /// Returns true if another frame may be processed. Because a few bytes may decode to a head of 64 KiB, further input
    /// waits until the earlier requests have been started.
    fn takes_more(&self) -> bool {
        let heads = self.arrived_bytes;
        self.decoded < HEADS && heads < HEADS && (heads == 0 || !pressure::is_felt())
    }

    /// The next new request or stream.
    pub fn next_arrived(&mut self) -> Option<NewStream> {
        let arrived = self.arrived.pop_front()?;
        self.release(&arrived);
        Some(arrived)
    }

    /// Removes a request from the queue, because it will not be served any more.
    fn withdraw(&mut self, stream: u32) -> Option<CompleteRequest> {
        let is_it =
            |arrived: &NewStream| matches!(arrived, NewStream::Request(asked) if asked.stream == stream);
        let at = self.arrived.iter().rposition(is_it)?;
        let arrived = self.arrived.remove(at)?;
        self.release(&arrived);
        let NewStream::Request(asked) = arrived else { return None };
        Some(asked)
    }

    fn release(&mut self, arrived: &NewStream) {
        self.arrived_bytes = self.arrived_bytes.saturating_sub(arrived.size());
        if self.arrived.is_empty() {
            self.arrived.shrink_to(KEPT);
        }
    }

    /// Returns true if the bytes after the last processed frame begin a head, or the header of a
    /// frame.
    fn is_amid_head(&self, rest: &[u8]) -> bool {
        let kind = rest.first_chunk().map(|header| Frame::parse(header).kind);
        let begins = match kind {
            None => !rest.is_empty(),
            Some(kind) => matches!(kind, kind::HEADERS | kind::CONTINUATION),
        };
        !self.settled || self.block.is_some() || begins && self.passing.is_none()
    }
}

impl ConnectionState {
    /// Processes input up to the start of an incomplete frame, and returns the processed length. The bool is true if the
    /// rest is held back until the earlier requests have been started: then the call has to be repeated even without
    /// more input.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        now: Instant,
        terms: &HeadTerms,
    ) -> Result<(usize, bool), Reason> {
        let mut at = 0;
        let mut begun = false;
        let mut held_back = false;
        self.input.decoded = 0;
        while self.over.is_none()
            && let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty())
        {
            if !self.input.takes_more() {
                held_back = true;
                break;
            }
            let (taken, began) = self.next(rest, now, terms)?;
            begun |= began;
            at += taken;
            if taken == 0 {
                break;
            }
        }
        let amid = self.input.is_amid_head(bytes.get(at..).unwrap_or_default());
        let since = self.input.head_since.filter(|_| !begun);
        // The client is not to blame for the delay of held input.
        self.input.head_since = (amid && !held_back).then(|| since.unwrap_or(now));
        Ok((at, held_back))
    }

    /// Processes the next frame, or a part of it. Returns the processed length, and true if another frame than
    /// CONTINUATION has begun.
    fn next(&mut self, bytes: &[u8], now: Instant, terms: &HeadTerms) -> Result<(usize, bool), Reason> {
        if !self.input.greeted {
            let Some(greeting) = bytes.first_chunk() else {
                return if GREETING.starts_with(bytes) {
                    Ok((0, false))
                } else {
                    Err(Reason::PROTOCOL_ERROR)
                };
            };
            if greeting != GREETING {
                return Err(Reason::PROTOCOL_ERROR);
            }
            self.input.greeted = true;
            return Ok((PREFACE, false));
        }
        if let Some(passing) = self.input.passing.take() {
            return Ok((self.pass(passing, bytes), false));
        }
        let Some((header, behind)) = bytes.split_first_chunk::<HEADER>() else { return Ok((0, false)) };
        let frame = Frame::parse(header);
        if frame.length > FRAME {
            return Err(Reason::FRAME_SIZE_ERROR);
        }
        // Within a header block only CONTINUATION of the same stream is valid (RFC 9113, section 6.10), and nothing is valid
        // before SETTINGS (section 3.4).
        let within = self.input.block.as_ref().map(Block::stream);
        if within.is_some_and(|stream| frame.kind != kind::CONTINUATION || frame.stream != stream)
            || !self.input.settled && (frame.kind != kind::SETTINGS || frame.has(flag::ACK))
        {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let begins = frame.kind != kind::CONTINUATION;
        if frame.kind == kind::DATA {
            return Ok((self.data(&frame, behind, now)?, begins));
        }
        // Unknown frames are ignored (section 4.1).
        if frame.kind > kind::CONTINUATION {
            self.meter.without_progress(now)?;
            self.go_on(Passing { to: To::Nobody, left: frame.length, padding: 0 });
            return Ok((HEADER, begins));
        }
        let Some(payload) = behind.get(..frame.length) else { return Ok((0, false)) };
        match self.frame(&frame, payload, now, terms) {
            Ok(()) => {}
            Err(Fault::Stream(stream, reason)) => self.refuse(stream, reason, now)?,
            Err(Fault::Connection(reason)) => return Err(reason),
        }
        Ok((HEADER + frame.length, begins))
    }

    /// Processes the start of a DATA frame (RFC 9113, section 6.1). Returns the processed length.
    fn data(&mut self, frame: &Frame, behind: &[u8], now: Instant) -> Result<usize, Reason> {
        let Frame { stream, length, .. } = *frame;
        let padding = match (frame.has(flag::PADDED), behind.first()) {
            (false, _) => None,
            (true, _) if length == 0 => return Err(Reason::FRAME_SIZE_ERROR),
            (true, None) => return Ok(0),
            (true, Some(padding)) => Some(usize::from(*padding)),
        };
        let beside = padding.map_or(0, |padding| 1 + padding);
        let content = length.checked_sub(beside).ok_or(Reason::PROTOCOL_ERROR)?;
        let known = self.streams.known(stream);
        if known == FrameTarget::Idle {
            return Err(Reason::PROTOCOL_ERROR);
        }
        if !self.streams.window.take(length) {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        let ends = frame.has(flag::END_STREAM);
        if content == 0 && !ends {
            self.meter.without_progress(now)?;
        }
        // Padding is used up at once.
        self.give_back(beside);
        let to = match self.may_have(stream, length, content, ends) {
            Ok(true) => {
                if content > 0 && !ends && self.streams.begins_round(stream, now) {
                    self.output.frame(kind::PING, 0, 0, &MEASURES);
                    self.meter.awaits_ack();
                    self.wake();
                }
                To::Body { stream, ends }
            }
            Ok(false) => {
                // The client did not know of the reset, but it chose the sizes of these frames.
                if content > 0 && content < SMALL_DATA {
                    self.meter.without_progress(now)?;
                }
                To::Window
            }
            Err(reason) => {
                self.refuse(stream, reason, now)?;
                To::Window
            }
        };
        if to != To::Window && !ends {
            self.give_back_of(stream, beside);
        }
        self.go_on(Passing { to, left: content, padding: padding.unwrap_or(0) });
        Ok(HEADER + usize::from(padding.is_some()))
    }

    /// Returns true if a stream can use DATA of `length` bytes, of which `content` belong to the body.
    fn may_have(&mut self, stream: u32, length: usize, content: usize, ends: bool) -> Result<bool, Reason> {
        let was_reset = self.streams.was_reset(stream);
        let entry = self.streams.entry(stream).filter(|entry| entry.end.is_none() && entry.receives);
        let Some(entry) = entry else {
            return if was_reset { Ok(false) } else { Err(Reason::STREAM_CLOSED) };
        };
        if !entry.received.take(length) {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        let content = content as u64;
        match entry.expected {
            // The body is longer or shorter than announced (section 8.1.1).
            Some(expected) if content > expected || ends && content < expected => Err(Reason::PROTOCOL_ERROR),
            _ => Ok(true),
        }
    }

    /// Processes more of a payload. Returns the processed length.
    fn pass(&mut self, mut passing: Passing, bytes: &[u8]) -> usize {
        let (content, rest) = bytes.split_at(bytes.len().min(passing.left));
        let padding = rest.len().min(passing.padding);
        passing.left -= content.len();
        passing.padding -= padding;
        if let To::Body { stream, .. } = passing.to {
            match self.streams.entry(stream).filter(|entry| entry.end.is_none()) {
                Some(entry) => {
                    entry.append(content);
                    entry.expected = entry.expected.map(|left| left.saturating_sub(content.len() as u64));
                    entry.wake();
                    self.streams.holding.add(content.len());
                }
                None => passing.to = To::Window,
            }
        }
        if passing.to == To::Window {
            self.give_back(content.len());
        }
        self.go_on(passing);
        content.len() + padding
    }

    /// Waits for the rest of a payload, or ends the frame if there is none.
    fn go_on(&mut self, passing: Passing) {
        if passing.left + passing.padding > 0 {
            self.input.passing = Some(passing);
        } else if let To::Body { stream, ends: true } = passing.to {
            self.end_of_body(stream);
        }
    }

    /// Ends the input of a stream.
    pub(super) fn end_of_body(&mut self, stream: u32) {
        if let Some(entry) = self.streams.entry(stream) {
            entry.receives = false;
            entry.wake();
            self.streams.update(stream);
        }
    }

    /// Processes a complete frame.
    fn frame(&mut self, frame: &Frame, payload: &[u8], now: Instant, terms: &HeadTerms) -> Result<(), Fault> {
        let is_of_stream = matches!(
            frame.kind,
            kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION | kind::PUSH_PROMISE
        );
        if is_of_stream && frame.stream == 0
            || matches!(frame.kind, kind::SETTINGS | kind::PING | kind::GOAWAY) && frame.stream != 0
        {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        match frame.kind {
            kind::HEADERS => self.headers(frame, payload, now, terms),
            kind::CONTINUATION => self.continuation(frame, payload, now, terms),
            kind::RST_STREAM => self.rst_stream(frame.stream, payload, now),
            kind::SETTINGS => self.settings(frame, payload, now),
            kind::PING => self.ping(frame, payload, now),
            kind::WINDOW_UPDATE => self.window_update(frame.stream, payload, now),
            kind::PRIORITY => {
                self.meter.without_progress(now)?;
                // The priority is ignored (section 5.3.2), but has to be valid.
                let reason = match <&[u8; PRIORITY]>::try_from(payload) {
                    Ok(priority) if depends_on(priority) != frame.stream => return Ok(()),
                    Ok(_) => Reason::PROTOCOL_ERROR,
                    Err(_) => Reason::FRAME_SIZE_ERROR,
                };
                // A stream that is idle cannot be reset (section 6.4).
                Err(match self.streams.known(frame.stream) {
                    FrameTarget::Idle => Fault::Connection(reason),
                    _ => Fault::Stream(frame.stream, reason),
                })
            }
            kind::GOAWAY if payload.len() < 8 => Err(Reason::FRAME_SIZE_ERROR.into()),
            // The client sends no more requests. Its earlier ones are still answered.
            kind::GOAWAY => {
                self.leaving = true;
                Ok(self.meter.without_progress(now)?)
            }
            // A client may not push (section 8.4).
            _ => Err(Reason::PROTOCOL_ERROR.into()),
        }
    }

    /// RST_STREAM (section 6.4).
    fn rst_stream(&mut self, stream: u32, payload: &[u8], now: Instant) -> Result<(), Fault> {
        let code: &[u8; 4] = payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)?;
        if self.streams.known(stream) == FrameTarget::Idle {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        let (is_open, answers) = self.streams.state(stream);
        let unread = self.streams.end(stream, Reason::from(u32::from_be_bytes(*code)).into());
        self.give_back(unread);
        self.withdraw(stream);
        let judged =
            if is_open && answers { self.meter.reset(now) } else { self.meter.without_progress(now) };
        Ok(judged?)
    }

    /// Drops the request of a stream that is over, if it has not been started.
    pub(super) fn withdraw(&mut self, stream: u32) {
        if let Some(asked) = self.input.withdraw(stream) {
            asked.scratch.give();
            self.streams.remove(stream);
            self.withdrawn += 1;
        }
    }

    /// SETTINGS (section 6.5).
    fn settings(&mut self, frame: &Frame, payload: &[u8], now: Instant) -> Result<(), Fault> {
        if frame.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(Reason::FRAME_SIZE_ERROR.into());
            }
            self.streams.settle();
            return Ok(self.meter.ack(now)?);
        }
        if !payload.len().is_multiple_of(SETTING) {
            return Err(Reason::FRAME_SIZE_ERROR.into());
        }
        self.input.settled = true;
        let resizes = payload.chunks_exact(SETTING).filter(|setting| setting.starts_with(&RESIZES)).count();
        self.meter.settings(now, self.streams.open(), payload.len() / SETTING, resizes)?;
        for setting in payload.chunks_exact(SETTING) {
            let Some(([a, b], [c, d, e, f])) =
                setting.split_first_chunk().and_then(|(id, value)| Some((id, value.first_chunk()?)))
            else {
                continue;
            };
            let value = u32::from_be_bytes([*c, *d, *e, *f]);
            match u16::from_be_bytes([*a, *b]) {
                setting::HEADER_TABLE_SIZE => self.output.encoder.set_table(value),
                setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(Reason::PROTOCOL_ERROR.into());
                }
                setting::INITIAL_WINDOW_SIZE => {
                    self.resize_windows(value, now)?;
                }
                setting::MAX_FRAME_SIZE => {
                    let size = usize::try_from(value).unwrap_or(usize::MAX);
                    if !(FRAME..1 << 24).contains(&size) {
                        return Err(Reason::PROTOCOL_ERROR.into());
                    }
                }
                _ => {}
            }
        }
        self.output.frame(kind::SETTINGS, flag::ACK, 0, &[]);
        self.wake();
        Ok(())
    }

    /// PING (section 6.7).
    fn ping(&mut self, frame: &Frame, payload: &[u8], now: Instant) -> Result<(), Fault> {
        let data: &[u8; 8] = payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)?;
        if !frame.has(flag::ACK) {
            self.meter.without_progress(now)?;
            self.output.frame(kind::PING, flag::ACK, 0, data);
            self.wake();
            return Ok(());
        }
        self.meter.ack(now)?;
        if *data == ENDING && self.ending == Ending::Told {
            self.end_at_last();
        }
        if *data == MEASURES {
            for (stream, by) in self.streams.is_measured(now) {
                self.output.window_update(stream, by);
                self.wake();
            }
        }
        if *data == ENDED {
            self.has_read_all = self.has_read_all.map(|_| true);
        }
        Ok(())
    }
}

/// Settings that are known (RFC 9113, section 6.5.2; RFC 8441, section 3).
mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// How a setting begins that changes the windows of streams.
const RESIZES: [u8; 2] = setting::INITIAL_WINDOW_SIZE.to_be_bytes();

/// Bytes of a priority (section 6.3).
pub const PRIORITY: usize = 5;

/// The stream on which the priority declares a dependency.
pub fn depends_on([a, b, c, d, _]: &[u8; PRIORITY]) -> u32 {
    u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff
}
