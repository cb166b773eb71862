//! Lets what an HTTP/2 peer sends through to `h2`, but no header block that is malformed or too large.
//!
//! Between its HPACK decoder and the types that it hands out, `h2` ends the whole connection for some malformed fields,
//! and drops others while the request goes on; of trailers that are too large it drops the last. So blocks are judged before it
//! sees them ([`Inspector`]). A malformed one is replaced by one for which `h2` resets the stream (RFC 9113, section 8.1.1), and
//! which leaves its dynamic table in step with the client's; so are trailers and heads of responses that are too large. The head of
//! a request that is too large is replaced by one that is not, and that is answered as what it stands for ([`TOO_LARGE`]).
//! Everything else passes untouched, where it was read. Without I/O.

mod block;
mod padding;

use std::collections::VecDeque;

use foregate_wire::hpack::{BlockError, INITIAL_TABLE, Inspected, Inspector, Malformed, Section};
use foregate_wire::{HeadLimits, HeaderList};
use h2::Reason;

use self::block::{
    SCRATCH, Scratch, continuations, fragment, is_too_large, join, kept_fields, replacement, write_head,
};
use self::padding::Padding;
use crate::link::buffer::Buffer;
use crate::link::frames::{Frame, HEADER, PREFACE, flag, kind};
use crate::pressure::{self, Charge};
use crate::settings::Limits;

/// The scheme of a request whose head was too large. From whoever else sends it, it is as good as any other that is not known.
pub const TOO_LARGE: &str = "list-too-large";
/// What the fields of a block may have together, by what is allowed for a head: what is only too large concerns its stream alone.
/// Beyond, the connection ends.
const LIST_FACTOR: usize = 4;
/// What they may always have together on a connection to an origin, which many clients share.
const LIST_OF_ORIGIN: usize = 256 * 1024;
/// The first byte of a block that begins with `:status: 200`, as nearly all do (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;
/// CONTINUATION frames that `h2` gets as they came. It ends a connection for more than five in one block; where there are more, the
/// block goes on in as few as can be.
const CONTINUATIONS: usize = 4;
/// Refused heads that wait to be taken. Beyond: nothing more is read.
const REFUSED: usize = 8;
/// Streams on which more may come. `h2` refuses them long before; beyond, the connection ends.
const STREAMS: usize = 4096;
/// Streams that are remembered after we have reset them. `h2` needs some hundred times the memory, and has them for a second.
const RESET: usize = 1024;
/// By how much the memory for what is held grows at least, in bytes.
const STEP: usize = 4 * 1024;
/// Frames of an origin's block, by which it is bounded while it is held. Those of clients are metered before.
const BLOCK_FRAMES: usize = 24;
/// Bytes that WINDOW_UPDATE has (RFC 9113, section 6.9).
const WINDOW: usize = 4;
/// Bytes of SETTINGS that are looked at, at most: there are some ten settings, of six bytes each (section 6.5.1).
const SETTINGS: usize = 20 * SETTING;
const SETTING: usize = 6;
/// Which of them is the window of new streams (section 6.5.2).
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
/// Bytes of a DATA frame that holds padding alone, at most, its length counted.
const MOST_PADDING: usize = 256;
/// A request whose head is malformed, or too large. Its stream is being reset.
#[derive(Debug)]
pub struct RefusedHead {
    /// What is wrong with it; `None` if it is only too large.
    pub fault: Option<Malformed>,
    /// Its fields as they came, pseudo-fields included, whatever bytes they hold.
    pub fields: HeaderList,
}

/// Judges the header blocks of one client, from its preface on, or of one origin.
#[derive(Debug)]
pub struct HeadGate {
    inspector: Inspector,
    /// Bytes that are of no interest.
    skip: usize,
    streams: Streams,
    /// Those of a client among the last ones that we reset while its request was being sent: more may be under way.
    reset: VecDeque<u32>,
    /// `h2` has not had all blocks, so that its table is another: it gets all others spelled out.
    apart: bool,
    /// What padding that was dropped has taken of windows.
    padding: Padding,
    /// What has come and cannot be judged yet; it begins with a frame.
    held: Vec<u8>,
    /// The memory of that.
    charge: Charge,
    /// It waits for what was refused to be taken.
    stopped: bool,
    /// What `h2` gets next.
    ready: Buffer,
    refused: VecDeque<RefusedHead>,
    /// The streams of an origin whose head was too large.
    too_large: Vec<u32>,
    /// For heads, of which only the bytes are judged here, and trailers. The bytes are those of the list.
    limits: HeadLimits,
    /// The largest frame that the client may send.
    frame_limit: usize,
    fault: Option<Reason>,
    /// The stream whose frame is at fault.
    culprit: Option<u32>,
    /// It has said GOAWAY.
    leaving: bool,
}

/// The streams on which a header block may come.
#[derive(Debug)]
enum Streams {
    /// Those of a client, whose request has not been sent to its end.
    Theirs { last: u32, receiving: Vec<u32> },
    /// Ours at an origin, whose response has not come to its end; and whether its head has, but for interim ones.
    Ours { last: u32, awaited: Vec<(u32, bool)> },
}

impl Streams {
    /// Nothing more comes for a stream; whether something might have.
    fn close(&mut self, stream: u32) -> bool {
        let position = match self {
            Self::Theirs { receiving, .. } => receiving.iter().position(|open| *open == stream),
            Self::Ours { awaited, .. } => awaited.iter().position(|(open, _)| *open == stream),
        };
        match (self, position) {
            (_, None) => return false,
            (Self::Theirs { receiving, .. }, Some(position)) => drop(receiving.swap_remove(position)),
            (Self::Ours { awaited, .. }, Some(position)) => drop(awaited.swap_remove(position)),
        }
        true
    }

    /// Whether more is to come for a stream.
    fn has(&self, stream: u32) -> bool {
        match self {
            Self::Theirs { receiving, .. } => receiving.contains(&stream),
            Self::Ours { awaited, .. } => awaited.iter().any(|(open, _)| *open == stream),
        }
    }

    fn head_has_come(&mut self, stream: u32) {
        if let Self::Ours { awaited, .. } = self
            && let Some((_, begun)) = awaited.iter_mut().find(|(open, _)| *open == stream)
        {
            *begun = true;
        }
    }
}

/// What becomes of the next bytes.
enum Turn {
    /// So many pass.
    Pass(usize),
    /// So many have been replaced by what is ready, or by nothing.
    Replaced(usize),
    /// More must come, or what was refused must be taken.
    Wait,
}

impl HeadGate {
    /// For a connection whose client preface has not been read yet, with frames of `frame_limit` bytes at most.
    pub fn new(limits: &Limits, frame_limit: usize) -> Self {
        let table = limits.h2_header_table as usize;
        let streams = Streams::Theirs { last: 0, receiving: Vec::new() };
        let limits =
            HeadLimits { bytes: limits.head_bytes, line: limits.head_line, fields: limits.head_fields };
        Self::with(streams, PREFACE, (table, limits.bytes.saturating_mul(LIST_FACTOR)), limits, frame_limit)
    }

    /// For a new connection to an origin, whose heads and trailers have these limits, and its frames `frame_limit` bytes. Its dynamic
    /// table is as large as it is without SETTINGS.
    pub(crate) fn for_origin(limits: HeadLimits, frame_limit: usize) -> Self {
        let streams = Streams::Ours { last: 0, awaited: Vec::new() };
        let list = limits.bytes.saturating_mul(LIST_FACTOR).max(LIST_OF_ORIGIN);
        Self::with(streams, 0, (INITIAL_TABLE, list), limits, frame_limit)
    }

    fn with(
        streams: Streams,
        skip: usize,
        (table, list): (usize, usize),
        limits: HeadLimits,
        frame_limit: usize,
    ) -> Self {
        Self {
            inspector: Inspector::new(table, list),
            skip,
            streams,
            reset: VecDeque::new(),
            apart: false,
            padding: Padding::default(),
            held: Vec::new(),
            charge: Charge::new(),
            stopped: false,
            ready: Buffer::new(),
            refused: VecDeque::new(),
            too_large: Vec::new(),
            limits,
            frame_limit,
            fault: None,
            culprit: None,
            leaving: false,
        }
    }

    /// Looks at bytes that were read and says how many of the first may go on to `h2` as they are. The others are kept;
    /// [`Self::ready`] has them once they have been judged.
    pub fn pass(&mut self, bytes: &[u8]) -> usize {
        let passed = self.let_pass(bytes);
        self.charge.set(self.held.capacity());
        // A head that is cut by a read, or the first bytes of another frame, are no reason to end the streams of a connection.
        // Those of an origin are of many, and bounded by their frames.
        let is_client = matches!(self.streams, Streams::Theirs { .. });
        if is_client && self.held.len() > STEP && !pressure::allows_head(self.held.len()) {
            self.held = Vec::new();
            self.charge.set(0);
            self.fault.get_or_insert(Reason::ENHANCE_YOUR_CALM);
        }
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
                Ok(Turn::Pass(count)) => at += count,
                Ok(Turn::Wait) => {
                    self.hold(rest);
                    break;
                }
                Ok(Turn::Replaced(count)) => {
                    self.hold(rest.get(count..).unwrap_or_default());
                    self.judge_held();
                    break;
                }
                Err(reason) => self.fault = Some(reason),
            }
        }
        at
    }

    /// What `h2` gets before anything else that is read.
    pub fn ready(&mut self) -> &mut Buffer {
        if self.stopped && self.ready.is_empty() && !self.is_full() {
            self.judge_held();
        }
        &mut self.ready
    }

    /// Whether nothing more may be read before [`Self::take_refused`] has been called.
    pub fn is_full(&self) -> bool {
        self.refused.len() >= REFUSED
    }

    /// The next request that was refused.
    pub fn take_refused(&mut self) -> Option<RefusedHead> {
        self.refused.pop_front()
    }

    /// The streams whose response was refused since the last call, as its head was too large.
    pub(crate) fn take_too_large(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.too_large)
    }

    /// Why the connection has to end, if it has to. Nothing passes any more then.
    pub fn fault(&self) -> Option<Reason> {
        self.fault
    }

    /// The stream whose frame is the reason for that, if it belongs to one.
    pub(crate) fn culprit(&self) -> Option<u32> {
        self.culprit.filter(|stream| *stream > 0)
    }

    /// Whether the peer has said GOAWAY.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// We have sent HEADERS to an origin: if the stream is new, its response is to come. Whether it is.
    pub(crate) fn headers_were_sent(&mut self, stream: u32) -> bool {
        match &mut self.streams {
            Streams::Ours { last, awaited } if stream > *last => {
                *last = stream;
                awaited.push((stream, false));
                true
            }
            _ => false,
        }
    }

    /// We have reset a stream: what comes for it is `h2`'s to ignore.
    pub fn stream_is_reset(&mut self, stream: u32) {
        if self.streams.close(stream) && matches!(self.streams, Streams::Theirs { .. }) {
            self.reset.truncate(RESET - 1);
            self.reset.push_front(stream);
        }
    }

    /// What becomes of DATA that says nothing; `None` for all other frames. `h2` ends a connection after a hundred of them in its life;
    /// how many of a client's are too many is for the meter to say. Those that no stream may have are `h2`'s to judge.
    fn says_nothing(&mut self, input: &[u8], frame: &Frame) -> Option<Turn> {
        let short = frame.kind == kind::DATA && frame.length <= MOST_PADDING && !frame.has(flag::END_STREAM);
        let is_padded = frame.has(flag::PADDED);
        if !short || is_padded == (frame.length == 0) || !self.may_have_data(frame.stream) {
            return None;
        }
        if !is_padded {
            return Some(Turn::Replaced(HEADER));
        }
        let Some(padding) = input.get(HEADER) else { return Some(Turn::Wait) };
        if usize::from(*padding) + 1 != frame.length {
            return None;
        }
        if input.len() < HEADER + frame.length {
            return Some(Turn::Wait);
        }
        // Nobody needs a window for a stream that is over.
        self.padding.add(self.streams.has(frame.stream).then_some(frame.stream), frame.length);
        Some(Turn::Replaced(HEADER + frame.length))
    }

    fn may_have_data(&self, stream: u32) -> bool {
        match &self.streams {
            Streams::Theirs { receiving, .. } => receiving.contains(&stream) || self.reset.contains(&stream),
            Streams::Ours { last, .. } => stream % 2 == 1 && stream <= *last && !self.awaits_head(stream),
        }
    }

    /// Appends frames that give back what padding which was dropped has taken of windows, since `h2` does not know of it.
    pub fn give_back(&mut self, out: &mut Buffer) {
        let streams = &self.streams;
        self.padding.give_back(out, |stream| streams.has(stream));
    }

    /// Keeps bytes behind those that are held, in not much more memory than they need.
    fn hold(&mut self, bytes: &[u8]) {
        if self.held.capacity() - self.held.len() < bytes.len() {
            self.held.reserve_exact(bytes.len().max(STEP));
        }
        self.held.extend_from_slice(bytes);
    }

    fn judge_held(&mut self) {
        self.stopped = false;
        let mut held = std::mem::take(&mut self.held);
        let mut at = 0;
        while self.fault.is_none()
            && let Some(rest) = held.get(at..).filter(|rest| !rest.is_empty())
        {
            match self.next(rest) {
                Ok(Turn::Pass(count)) => {
                    self.ready.append(rest.get(..count).unwrap_or_default());
                    at += count;
                }
                Ok(Turn::Replaced(count)) => at += count,
                Ok(Turn::Wait) => break,
                Err(reason) => self.fault = Some(reason),
            }
        }
        held.drain(..at);
        // Memory only while something is held.
        if !held.is_empty() {
            self.held = held;
        }
        self.charge.set(self.held.capacity());
    }

    /// Decides about the first of these bytes; with nothing to skip they begin with a frame.
    fn next(&mut self, input: &[u8]) -> Result<Turn, Reason> {
        if self.skip == 0 {
            let Some(header) = input.first_chunk::<HEADER>() else { return Ok(Turn::Wait) };
            let frame = Frame::parse(header);
            if let Some(turn) = self.says_nothing(input, &frame) {
                return Ok(turn);
            }
            let turn = self.begin(input, &frame).inspect_err(|_| self.culprit = Some(frame.stream))?;
            if let Some(turn) = turn {
                return Ok(turn);
            }
            self.skip = HEADER + frame.length;
        }
        let count = self.skip.min(input.len());
        self.skip -= count;
        Ok(Turn::Pass(count))
    }

    /// Decides about the frame that begins here; `None` for one that passes.
    fn begin(&mut self, input: &[u8], frame: &Frame) -> Result<Option<Turn>, Reason> {
        match frame.kind {
            kind::HEADERS => return self.head(input, frame).map(Some),
            // A block begins with HEADERS, and nobody may push to us (RFC 9113, sections 6.10 and 8.4).
            kind::CONTINUATION | kind::PUSH_PROMISE => return Err(Reason::PROTOCOL_ERROR),
            kind::DATA if self.awaits_head(frame.stream) => return Err(Reason::PROTOCOL_ERROR),
            kind::DATA if !frame.has(flag::END_STREAM) => {}
            kind::DATA | kind::RST_STREAM => {
                self.streams.close(frame.stream);
            }
            kind::GOAWAY => self.leaving = true,
            // `h2` takes a window that is too large for another fault.
            kind::SETTINGS if frame.length <= SETTINGS && !frame.has(flag::ACK) => {
                let Some(settings) = input.get(HEADER..HEADER + frame.length) else {
                    return Ok(Some(Turn::Wait));
                };
                if sets_window_beyond(settings) {
                    return Err(Reason::FLOW_CONTROL_ERROR);
                }
            }
            // `h2` would end the connection, and not say whose fault it was.
            kind::WINDOW_UPDATE if frame.length == WINDOW && self.is_awaited(frame.stream) => {
                match input.get(HEADER..HEADER + WINDOW) {
                    None => return Ok(Some(Turn::Wait)),
                    Some([0, 0, 0, 0]) => return Err(Reason::PROTOCOL_ERROR),
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(None)
    }

    /// Whether a response, or the rest of it, is to come on this stream.
    fn is_awaited(&self, stream: u32) -> bool {
        match &self.streams {
            Streams::Theirs { .. } => false,
            Streams::Ours { awaited, .. } => awaited.iter().any(|(open, _)| *open == stream),
        }
    }

    /// Whether a response on this stream has to begin with its head.
    fn awaits_head(&self, stream: u32) -> bool {
        match &self.streams {
            Streams::Theirs { .. } => false,
            Streams::Ours { awaited, .. } => awaited.contains(&(stream, false)),
        }
    }

    fn head(&mut self, input: &[u8], frame: &Frame) -> Result<Turn, Reason> {
        // Streams of clients have odd numbers (RFC 9113, section 5.1.1).
        if frame.stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        if self.is_full() {
            self.stopped = true;
            return Ok(Turn::Wait);
        }
        let Some(end) = self.end_of_block(input, frame)? else { return Ok(Turn::Wait) };
        let frames = input.get(..end).unwrap_or_default();
        SCRATCH.with_borrow_mut(|scratch| {
            let passes = self.judge(frames, frame, scratch);
            scratch.shrink();
            self.inspector.trim();
            passes.map(|passes| if passes { Turn::Pass(end) } else { Turn::Replaced(end) })
        })
    }

    /// Where the block ends that begins with this frame, if all of it is there.
    fn end_of_block(&self, input: &[u8], first: &Frame) -> Result<Option<usize>, Reason> {
        let (mut end, mut frames) = (0, 0);
        let mut frame = *first;
        loop {
            if frame.length > self.frame_limit {
                return Err(Reason::FRAME_SIZE_ERROR);
            }
            end += HEADER + frame.length;
            frames += 1;
            if frames > BLOCK_FRAMES && matches!(self.streams, Streams::Ours { .. }) {
                return Err(Reason::ENHANCE_YOUR_CALM);
            }
            if frame.has(flag::END_HEADERS) {
                return Ok((end <= input.len()).then_some(end));
            }
            let Some(header) = input.get(end..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
            frame = Frame::parse(header);
            // Nothing may come in between (RFC 9113, section 6.10).
            if frame.kind != kind::CONTINUATION || frame.stream != first.stream {
                return Err(Reason::PROTOCOL_ERROR);
            }
        }
    }

    /// Judges the block in these frames. Whether they pass; they have been replaced otherwise.
    fn judge(&mut self, frames: &[u8], frame: &Frame, scratch: &mut Scratch) -> Result<bool, Reason> {
        let (fragment, depends) = fragment(frames, frame)?;
        let Scratch { block, decoded } = scratch;
        let block =
            if frame.has(flag::END_HEADERS) { fragment } else { join(fragment, frames, frame, block) };
        let section = self.section(frame)?;
        let inspected =
            self.inspector.inspect(block, section.unwrap_or(Section::Trailers), decoded).map_err(reason)?;
        // `h2` would not decode the block of a stream that depends on itself.
        let on_itself = depends == Some(frame.stream);
        if section.is_none() && is_late(&mut self.reset, frame) {
            self.apart |= inspected.changes_table();
            return Ok(false);
        }
        let fault = inspected.fault();
        let too_large = is_too_large(&inspected, section, &self.limits);
        if fault.is_none() && !on_itself && !too_large {
            if section == Some(Section::Response) && !inspected.is_interim() {
                self.streams.head_has_come(frame.stream);
            }
            // There should be none in an interim response (RFC 9110, section 8.6), and `h2` would hold the body of the final one to it;
            // that of a 304 whose stream ends with a frame of its own, as well.
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
            if self.apart {
                let mut spelled = Vec::new();
                // Who asks for fields of a stream that is over, and how many there are, is nobody.
                if section.is_some() {
                    inspected.spelled_out(decoded, &mut spelled);
                }
                write_head(&spelled, frame, self.frame_limit, &mut self.ready)?;
                return Ok(false);
            }
            let passes = continuations(frames, frame) <= CONTINUATIONS;
            if !passes {
                write_head(block, frame, self.frame_limit, &mut self.ready)?;
            }
            return Ok(passes);
        }
        let (block, is_answered) =
            replacement(&inspected, section, too_large, (self.limits.bytes, self.frame_limit), decoded)?;
        write_head(&block, frame, self.frame_limit, &mut self.ready)?;
        if is_answered {
            return Ok(false);
        }
        match section {
            Some(Section::Request) if fault.is_some() || too_large => {
                let fields = kept_fields(&inspected, self.limits.bytes, decoded);
                self.refused.push_back(RefusedHead { fault, fields });
            }
            Some(Section::Response) if fault.is_none() && too_large => self.too_large.push(frame.stream),
            _ => {}
        }
        self.stream_is_reset(frame.stream);
        Ok(false)
    }

    /// What the block of this frame is; `None` for one that `h2` takes for neither, since its stream has been closed or
    /// never was. Follows which streams are open.
    fn section(&mut self, frame: &Frame) -> Result<Option<Section>, Reason> {
        let ends = frame.has(flag::END_STREAM);
        let section = match &mut self.streams {
            Streams::Theirs { last, receiving } if frame.stream > *last => {
                *last = frame.stream;
                if receiving.len() >= STREAMS {
                    return Err(Reason::ENHANCE_YOUR_CALM);
                }
                if !ends {
                    receiving.push(frame.stream);
                }
                return Ok(Some(Section::Request));
            }
            Streams::Theirs { receiving, .. } => {
                receiving.contains(&frame.stream).then_some(Section::Trailers)
            }
            Streams::Ours { awaited, .. } => {
                let begun = awaited.iter().find(|(open, _)| *open == frame.stream);
                begun.map(|(_, begun)| if *begun { Section::Trailers } else { Section::Response })
            }
        };
        if ends {
            self.streams.close(frame.stream);
        }
        Ok(section)
    }
}

/// Whether the head says that nothing has changed (RFC 9110, section 15.4.5).
fn is_not_modified(head: &Inspected<'_>, decoded: &mut Vec<u8>) -> bool {
    let mut is = false;
    head.fields(decoded, |name, value| is |= name == b":status" && value == b"304");
    is
}

/// Whether a block is the last of a request on a stream that we have reset, where `h2` may have forgotten about it, and would end the
/// connection (RFC 9113, section 5.1). There is only one such block.
fn is_late(reset: &mut VecDeque<u32>, frame: &Frame) -> bool {
    let known = reset.iter().position(|stream| *stream == frame.stream);
    match known.filter(|_| frame.has(flag::END_STREAM)) {
        Some(position) => reset.remove(position).is_some(),
        None => false,
    }
}

/// Whether settings give streams a larger window than there may be (RFC 9113, section 6.5.2).
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
