//! Passes an HTTP/2 origin's frames to `h2`, except header blocks that are malformed or too large.
//!
//! For some malformed fields `h2` ends the whole connection. Other malformed fields, and the last
//! trailers if there are too many, it drops, and the response goes on. So blocks are judged before
//! `h2` sees them ([`Inspector`]). A malformed or too large block is replaced by a substitute:
//!
//! - `h2` then resets only the stream (RFC 9113, section 8.1.1);
//! - the dynamic table of `h2` stays in step with the origin's.
//!
//! All other frames reach `h2` unchanged, except a flood of frames without progress, each of which
//! `h2` would answer. This module does no I/O.

mod block;
mod doubts;
mod padding;

use foregate_wire::HeadLimits;
use foregate_wire::hpack::{BlockError, INITIAL_TABLE, InspectedBlock, Inspector, Section};
use h2::Reason;

use self::block::{
    BlockScratch, SCRATCH, continuations, fragment, is_too_large, join, replacement, write_head,
};
use self::doubts::Doubts;
use self::padding::Padding;
use crate::limits::pressure::Charge;
use crate::settings::Limits;
use crate::time::clock;
use crate::transport::buffer::Buffer;
use crate::transport::frames::{Frame, HEADER, flag, kind};
use crate::transport::meter::Meter;

/// The limit on the size of a block, as a multiple of the limit of a head. A head between the two
/// limits ends only its stream; a larger block ends the connection.
const LIST_FACTOR: usize = 4;
/// The minimum of the limit on a block, because many clients share the connection.
const LIST: usize = 256 * 1024;
/// The first byte of a block that begins with `:status: 200`, as nearly all do (RFC 7541, appendix
/// A).
const STATUS_200: u8 = 0x88;
/// The most CONTINUATION frames of a block that go to `h2` unchanged. `h2` ends a connection for more
/// than five in one block, so a block with more frames is repacked into as few as possible.
const CONTINUATIONS: usize = 4;
/// The smallest growth of the memory for held input, in bytes.
const STEP: usize = 4 * 1024;
/// The most frames of a block, which is held until it is complete.
const BLOCK_FRAMES: usize = 24;
/// The length of a WINDOW_UPDATE frame's payload, bytes (RFC 9113, section 6.9).
const WINDOW: usize = 4;
/// The longest SETTINGS that are checked, bytes: there are some ten settings, of six bytes each
/// (section 6.5.1).
const SETTINGS: usize = 20 * SETTING;
const SETTING: usize = 6;
/// The setting for the window of new streams (section 6.5.2).
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
/// The largest payload of a DATA frame that consists of padding and its length byte, bytes.
const MOST_PADDING: usize = 256;

/// Judges the header blocks of one origin.
#[derive(Debug)]
pub struct HeadGate {
    inspector: Inspector,
    /// The number of the next input bytes that pass without being parsed.
    skip: usize,
    streams: OwnStreams,
    meter: Meter,
    /// Counts frames that an honest origin may send, but also one that floods us.
    doubts: Doubts,
    /// The window used by dropped padding.
    padding: Padding,
    /// Input that cannot be judged yet; it begins with a frame.
    held: Vec<u8>,
    /// The memory of the held input.
    charge: Charge,
    /// The next input for `h2`.
    ready: Buffer,
    /// The streams with heads that were too large.
    too_large: Vec<u32>,
    /// The limits of heads and trailers. Of the limits of heads, only that on the uncompressed size in bytes is
    /// checked here.
    limits: HeadLimits,
    /// The largest frame that the origin may send.
    frame_limit: usize,
    fault: Option<Reason>,
    /// The stream of the offending frame.
    culprit: Option<u32>,
    /// True once the origin has sent GOAWAY.
    leaving: bool,
}

/// Our streams.
#[derive(Debug, Default)]
struct OwnStreams {
    /// The number of the last stream that was opened.
    last: u32,
    /// The streams with incomplete responses, each with true once its final head has arrived.
    awaited: Vec<(u32, bool)>,
}

impl OwnStreams {
    /// Ends the input of a stream.
    fn close(&mut self, stream: u32) {
        if let Some(position) = self.awaited.iter().position(|(open, _)| *open == stream) {
            self.awaited.swap_remove(position);
        }
    }

    /// The number of streams with incomplete responses.
    fn open(&self) -> usize {
        self.awaited.len()
    }

    /// Returns true if a response, or the rest of it, is awaited on a stream.
    fn has(&self, stream: u32) -> bool {
        self.awaited.iter().any(|(open, _)| *open == stream)
    }

    /// Returns true if a response on a stream has to begin with its head.
    fn awaits_head(&self, stream: u32) -> bool {
        self.awaited.contains(&(stream, false))
    }

    fn head_has_come(&mut self, stream: u32) {
        if let Some((_, begun)) = self.awaited.iter_mut().find(|(open, _)| *open == stream) {
            *begun = true;
        }
    }

    fn may_have_data(&self, stream: u32) -> bool {
        stream % 2 == 1 && stream <= self.last && !self.awaits_head(stream)
    }

    /// The section that this frame's header block contains: a head or trailers. `None` if the stream has
    /// been closed or never existed.
    fn section(&mut self, frame: &Frame) -> Option<Section> {
        let begun = self.awaited.iter().find(|(open, _)| *open == frame.stream);
        let section = begun.map(|(_, begun)| if *begun { Section::Trailers } else { Section::Response });
        if frame.has(flag::END_STREAM) {
            self.close(frame.stream);
        }
        section
    }
}

/// The treatment of the next input bytes.
enum GateAction {
    /// This many bytes pass unchanged.
    Pass(usize),
    /// This many bytes were replaced by the ready input, or dropped.
    Replaced(usize),
    /// More input must arrive.
    Wait,
}

impl HeadGate {
    /// Creates the gate of a new connection. `limits` apply to heads and trailers; frames have at most
    /// `frame_limit` bytes. The dynamic table has the default size.
    pub fn new(limits: HeadLimits, frame_limit: usize) -> Self {
        let list = limits.bytes.saturating_mul(LIST_FACTOR).max(LIST);
        Self {
            inspector: Inspector::new(INITIAL_TABLE, list),
            skip: 0,
            streams: OwnStreams::default(),
            meter: Meter::new(&Limits::default(), clock::now()),
            doubts: Doubts::new(clock::now()),
            padding: Padding::default(),
            held: Vec::new(),
            charge: Charge::new(),
            ready: Buffer::new(),
            too_large: Vec::new(),
            limits,
            frame_limit,
            fault: None,
            culprit: None,
            leaving: false,
        }
    }

    /// Judges bytes that were read. Returns the number of bytes at their start that may go to `h2`
    /// unchanged. The other bytes are held, and appended to [`Self::ready`] once they have been judged.
    pub fn pass(&mut self, bytes: &[u8]) -> usize {
        let passed = self.let_pass(bytes);
        self.charge.set(self.held.capacity());
        passed
    }

    fn let_pass(&mut self, bytes: &[u8]) -> usize {
        if !self.held.is_empty() || !self.ready.is_empty() {
            self.hold(bytes);
            self.judge_held();
            return 0;
        }
        let mut at = 0;
        while self.fault.is_none()
            && let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty())
        {
            match self.next(rest) {
                Ok(GateAction::Pass(count)) => at += count,
                Ok(GateAction::Wait) => {
                    self.hold(rest);
                    break;
                }
                Ok(GateAction::Replaced(count)) => {
                    self.hold(rest.get(count..).unwrap_or_default());
                    self.judge_held();
                    break;
                }
                Err(reason) => self.fault = Some(reason),
            }
        }
        at
    }

    /// The judged input that `h2` must get before any further bytes.
    pub fn ready(&mut self) -> &mut Buffer {
        &mut self.ready
    }

    /// The streams that were refused since the last call because their head was too large.
    pub fn take_too_large(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.too_large)
    }

    /// The reason why the connection has to end, if there is one. No frame passes any more then.
    pub fn fault(&self) -> Option<Reason> {
        self.fault
    }

    /// Returns true if the origin has flooded the connection with frames.
    pub fn is_flood(&self) -> bool {
        self.fault == Some(Reason::ENHANCE_YOUR_CALM)
    }

    /// The stream of the frame that caused the fault, if it belongs to one.
    pub fn culprit(&self) -> Option<u32> {
        self.culprit.filter(|stream| *stream > 0)
    }

    /// Returns true if the origin has sent GOAWAY.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Records that we have sent HEADERS. On a new stream, a response is awaited from now on. Returns true
    /// if the stream is new.
    pub fn headers_were_sent(&mut self, stream: u32) -> bool {
        let is_new = stream > self.streams.last;
        if is_new {
            self.streams.last = stream;
            self.streams.awaited.push((stream, false));
            self.meter.opened();
        }
        is_new
    }

    /// Records that we have sent DATA of this many bytes.
    pub fn data_was_sent(&mut self, bytes: usize) {
        self.meter.sent(bytes);
        self.doubts.sent(bytes);
    }

    /// Records that we have sent SETTINGS or a PING, which the origin acknowledges.
    pub fn awaits_ack(&mut self) {
        self.meter.awaits_ack();
    }

    /// Records our reset of a stream: `h2` ignores its later frames.
    pub fn stream_is_reset(&mut self, stream: u32) {
        self.streams.close(stream);
        self.doubts.reset();
    }

    /// The treatment of DATA without content; `None` for all other frames. After a hundred such frames on
    /// a connection, `h2` would end it with the streams of many clients. Frames of invalid streams are
    /// left to `h2`.
    fn says_nothing(&mut self, input: &[u8], frame: &Frame) -> Option<GateAction> {
        let short = frame.kind == kind::DATA && frame.length <= MOST_PADDING && !frame.has(flag::END_STREAM);
        let is_padded = frame.has(flag::PADDED);
        if !short || is_padded == (frame.length == 0) || !self.streams.may_have_data(frame.stream) {
            return None;
        }
        if !is_padded {
            return Some(GateAction::Replaced(HEADER));
        }
        let Some(padding) = input.get(HEADER) else { return Some(GateAction::Wait) };
        if usize::from(*padding) + 1 != frame.length {
            return None;
        }
        if input.len() < HEADER + frame.length {
            return Some(GateAction::Wait);
        }
        // Only the connection's window has to be returned if the stream is over.
        self.padding.add(self.streams.has(frame.stream).then_some(frame.stream), frame.length);
        Some(GateAction::Replaced(HEADER + frame.length))
    }

    /// Appends WINDOW_UPDATE frames for dropped padding: `h2` has not seen the padding, so it does not
    /// return the window that the padding used.
    pub fn give_back(&mut self, out: &mut Buffer) {
        let streams = &self.streams;
        self.padding.give_back(out, |stream| streams.has(stream));
    }

    /// Appends bytes to the held ones, with little unused capacity.
    fn hold(&mut self, bytes: &[u8]) {
        if self.held.capacity() - self.held.len() < bytes.len() {
            self.held.reserve_exact(bytes.len().max(STEP));
        }
        self.held.extend_from_slice(bytes);
    }

    fn judge_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let mut at = 0;
        while self.fault.is_none()
            && let Some(rest) = held.get(at..).filter(|rest| !rest.is_empty())
        {
            match self.next(rest) {
                Ok(GateAction::Pass(count)) => {
                    self.ready.append(rest.get(..count).unwrap_or_default());
                    at += count;
                }
                Ok(GateAction::Replaced(count)) => at += count,
                Ok(GateAction::Wait) => break,
                Err(reason) => self.fault = Some(reason),
            }
        }
        held.drain(..at);
        // The buffer is kept only while something is held.
        if !held.is_empty() {
            self.held = held;
        }
        self.charge.set(self.held.capacity());
    }

    /// Decides about the first of these bytes. If no bytes are left to skip, `input` begins with a frame.
    fn next(&mut self, input: &[u8]) -> Result<GateAction, Reason> {
        if self.skip == 0 {
            let Some(header) = input.first_chunk::<HEADER>() else { return Ok(GateAction::Wait) };
            let frame = Frame::parse(header);
            if let Some(turn) = self.says_nothing(input, &frame) {
                if !matches!(turn, GateAction::Wait) {
                    self.doubts.came(clock::now())?;
                }
                return Ok(turn);
            }
            let was_open = self.streams.has(frame.stream);
            let turn = self.begin(input, &frame).inspect_err(|_| self.culprit = Some(frame.stream))?;
            if let Some(turn) = turn {
                return Ok(turn);
            }
            self.measure(&frame, was_open)?;
            self.skip = HEADER + frame.length;
        }
        let count = self.skip.min(input.len());
        self.skip -= count;
        Ok(GateAction::Pass(count))
    }

    /// Records a frame that goes to `h2` and is not part of a header block. `was_open` is true if the
    /// frame's stream was open before.
    fn measure(&mut self, frame: &Frame, was_open: bool) -> Result<(), Reason> {
        match frame.kind {
            kind::GOAWAY => return Ok(()),
            kind::DATA | kind::RST_STREAM if was_open => return Ok(()),
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE => self.doubts.came(clock::now()),
            kind::SETTINGS | kind::PING if frame.has(flag::ACK) => self.meter.ack(clock::now()),
            kind::SETTINGS => self.meter.settings(clock::now(), self.streams.open(), 1, 1),
            _ => self.meter.without_progress(clock::now()),
        }?;
        Ok(())
    }

    /// Decides about the frame that begins here; `None` lets it pass.
    fn begin(&mut self, input: &[u8], frame: &Frame) -> Result<Option<GateAction>, Reason> {
        match frame.kind {
            kind::HEADERS => return self.head(input, frame).map(Some),
            // A block begins with HEADERS, and an origin may not push to us (RFC 9113, sections
            // 6.10 and 8.4).
            kind::CONTINUATION | kind::PUSH_PROMISE => return Err(Reason::PROTOCOL_ERROR),
            kind::DATA if self.streams.awaits_head(frame.stream) => return Err(Reason::PROTOCOL_ERROR),
            kind::DATA if !frame.has(flag::END_STREAM) => {}
            kind::DATA | kind::RST_STREAM => self.streams.close(frame.stream),
            kind::GOAWAY => self.leaving = true,
            // `h2` would report a window that is too large with a wrong error code.
            kind::SETTINGS if frame.length <= SETTINGS && !frame.has(flag::ACK) => {
                let Some(settings) = input.get(HEADER..HEADER + frame.length) else {
                    return Ok(Some(GateAction::Wait));
                };
                if sets_window_beyond(settings) {
                    return Err(Reason::FLOW_CONTROL_ERROR);
                }
            }
            // For an increment of 0, `h2` would end the connection without naming the stream.
            kind::WINDOW_UPDATE if frame.length == WINDOW && self.streams.has(frame.stream) => {
                match input.get(HEADER..HEADER + WINDOW) {
                    None => return Ok(Some(GateAction::Wait)),
                    Some([0, 0, 0, 0]) => return Err(Reason::PROTOCOL_ERROR),
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn head(&mut self, input: &[u8], frame: &Frame) -> Result<GateAction, Reason> {
        // Our streams have odd numbers (RFC 9113, section 5.1.1), and origins open none.
        if frame.stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let Some(end) = self.end_of_block(input, frame)? else { return Ok(GateAction::Wait) };
        let frames = input.get(..end).unwrap_or_default();
        SCRATCH.with_borrow_mut(|scratch| {
            let passes = self.judge(frames, frame, scratch);
            scratch.shrink();
            self.inspector.trim();
            passes.map(|passes| if passes { GateAction::Pass(end) } else { GateAction::Replaced(end) })
        })
    }

    /// The end of the block that begins with this frame, if all of it has arrived.
    fn end_of_block(&self, input: &[u8], first: &Frame) -> Result<Option<usize>, Reason> {
        let (mut end, mut frames) = (0, 0);
        let mut frame = *first;
        loop {
            if frame.length > self.frame_limit {
                return Err(Reason::FRAME_SIZE_ERROR);
            }
            end += HEADER + frame.length;
            frames += 1;
            if frames > BLOCK_FRAMES {
                return Err(Reason::ENHANCE_YOUR_CALM);
            }
            if frame.has(flag::END_HEADERS) {
                return Ok((end <= input.len()).then_some(end));
            }
            let Some(header) = input.get(end..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
            frame = Frame::parse(header);
            // No other frame may come between the frames of a block (RFC 9113, section 6.10).
            if frame.kind != kind::CONTINUATION || frame.stream != first.stream {
                return Err(Reason::PROTOCOL_ERROR);
            }
        }
    }

    /// Judges the block in these frames. Returns true if they may go to `h2`; otherwise a replacement is ready.
    fn judge(&mut self, frames: &[u8], frame: &Frame, scratch: &mut BlockScratch) -> Result<bool, Reason> {
        let (fragment, depends) = fragment(frames, frame)?;
        let BlockScratch { block, decoded } = scratch;
        let block =
            if frame.has(flag::END_HEADERS) { fragment } else { join(fragment, frames, frame, block) };
        let section = self.streams.section(frame);
        if section.is_none() {
            self.doubts.came(clock::now())?;
        }
        let inspected =
            self.inspector.inspect(block, section.unwrap_or(Section::Trailers), decoded).map_err(reason)?;
        // `h2` would reject a stream that depends on itself without decoding the block.
        let on_itself = depends == Some(frame.stream);
        let is_malformed = inspected.fault().is_some();
        let too_large = is_too_large(&inspected, section, &self.limits);
        if !is_malformed && !on_itself && !too_large {
            if section == Some(Section::Response) && !inspected.is_interim() {
                self.streams.head_has_come(frame.stream);
            }
            // An interim response should have no Content-Length (RFC 9110, section 8.6), and `h2`
            // would apply it to the body of the final response. The field is therefore removed. It is
            // also removed from a 304 if a separate frame ends the stream.
            let has_none = |decoded: &mut Vec<u8>| {
                inspected.is_interim()
                    || !frame.has(flag::END_STREAM)
                        && block.first() != Some(&STATUS_200)
                        && is_not_modified(&inspected, decoded)
            };
            if section == Some(Section::Response) && has_none(decoded) {
                let mut rest = Vec::new();
                if inspected.without(b"content-length", decoded, &mut rest) {
                    write_head(&rest, frame, self.frame_limit, &mut self.ready)?;
                    return Ok(false);
                }
            }
            let passes = continuations(frames, frame) <= CONTINUATIONS;
            if !passes {
                write_head(block, frame, self.frame_limit, &mut self.ready)?;
            }
            return Ok(passes);
        }
        let block = replacement(&inspected, section, self.frame_limit)?;
        write_head(&block, frame, self.frame_limit, &mut self.ready)?;
        if section == Some(Section::Response) && !is_malformed && too_large {
            self.too_large.push(frame.stream);
        }
        self.streams.close(frame.stream);
        Ok(false)
    }
}

/// Returns true if the head has the status 304 (RFC 9110, section 15.4.5).
fn is_not_modified(head: &InspectedBlock<'_>, decoded: &mut Vec<u8>) -> bool {
    let mut is = false;
    head.fields(decoded, |name, value| is |= name == b":status" && value == b"304");
    is
}

/// Returns true if settings give streams a larger window than the maximum (RFC 9113, section
/// 6.5.2).
fn sets_window_beyond(settings: &[u8]) -> bool {
    let mut windows =
        settings.chunks_exact(SETTING).filter_map(|setting| setting.strip_prefix(&INITIAL_WINDOW_SIZE));
    windows.any(|size| size.first().is_some_and(|first| first & 0x80 != 0))
}

fn reason(error: BlockError) -> Reason {
    match error {
        BlockError::Compression => Reason::COMPRESSION_ERROR,
        BlockError::TooLarge => Reason::ENHANCE_YOUR_CALM,
    }
}

#[cfg(test)]
mod tests;
