//! Lets what an HTTP/2 peer sends through to `h2`, but no malformed header block.
//!
//! Between its HPACK decoder and the types that it hands out, `h2` ends the whole connection for some malformed fields,
//! and drops others while the request goes on. So blocks are judged before it sees them ([`Inspector`]). A malformed one
//! is replaced by one for which `h2` resets the stream (RFC 9113, section 8.1.1), and which leaves its dynamic table in
//! step with the client's. Everything else passes untouched, where it was read. Without I/O.

use std::cell::RefCell;
use std::collections::VecDeque;

use foregate_wire::HeaderList;
use foregate_wire::hpack::{BlockError, INITIAL_TABLE, Inspected, Inspector, Malformed, Section};
use h2::Reason;

use crate::link::buffer::Buffer;
use crate::link::frames::{Frame, HEADER, PREFACE, flag, kind};
use crate::pressure::{self, Charge};
use crate::settings::Limits;

/// What the fields of a block may have together, by what is allowed for a head: what is only too large gets its 431
/// from `h2`, which ends connections beyond four times as much itself.
const LIST_FACTOR: usize = 4;
/// CONTINUATION frames that `h2` gets as they came. It ends a connection for more than five in one block; where there are more, the
/// block goes on in as few as can be.
const CONTINUATIONS: usize = 4;
/// Refused heads that wait to be taken. Beyond: nothing more is read.
const REFUSED: usize = 8;
/// Fields of a refused head that are kept. Those beyond are not shown.
const REFUSED_FIELDS: usize = 1024;
/// Streams on which more may come. `h2` refuses them long before; beyond, the connection ends.
const STREAMS: usize = 4096;
/// Streams that are remembered after we have reset them.
const RESET: usize = 64;
/// By how much the memory for what is held grows at least, in bytes.
const STEP: usize = 4 * 1024;
/// Frames of an origin's block, by which it is bounded while it is held. Those of clients are metered before.
const BLOCK_FRAMES: usize = 24;
/// Bytes that WINDOW_UPDATE has (RFC 9113, section 6.9).
const WINDOW: usize = 4;
/// Memory for decoding that a thread keeps, in bytes.
const KEPT_SCRATCH: usize = 64 * 1024;

/// A request whose head is malformed. Its stream is being reset.
#[derive(Debug)]
pub struct RefusedHead {
    /// What is wrong with it.
    pub fault: Malformed,
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
    /// What has come and cannot be judged yet; it begins with a frame.
    held: Vec<u8>,
    /// The memory of that.
    charge: Charge,
    /// It waits for what was refused to be taken.
    stopped: bool,
    /// What `h2` gets next.
    ready: Buffer,
    refused: VecDeque<RefusedHead>,
    /// Bytes of a refused head that are kept.
    refused_limit: usize,
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
        Self::with(streams, PREFACE, table, limits.head_bytes, frame_limit)
    }

    /// For a new connection to an origin, whose lists of fields may count `list` bytes, and its frames `frame_limit`. Its dynamic
    /// table is as large as it is without SETTINGS.
    pub(crate) fn for_origin(list: usize, frame_limit: usize) -> Self {
        let streams = Streams::Ours { last: 0, awaited: Vec::new() };
        Self::with(streams, 0, INITIAL_TABLE, list, frame_limit)
    }

    fn with(streams: Streams, skip: usize, table: usize, list: usize, frame_limit: usize) -> Self {
        Self {
            inspector: Inspector::new(table, list.saturating_mul(LIST_FACTOR)),
            skip,
            streams,
            reset: VecDeque::new(),
            held: Vec::new(),
            charge: Charge::new(),
            stopped: false,
            ready: Buffer::new(),
            refused: VecDeque::new(),
            refused_limit: list,
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

    /// Whether a frame is DATA that says nothing. `h2` ends a connection after a hundred of them in its life; how many of a client's
    /// are too many is for the meter to say. Those that no stream may have are `h2`'s to judge, and so is padding, which counts
    /// against windows.
    fn says_nothing(&self, frame: &Frame) -> bool {
        let is_empty = frame.kind == kind::DATA
            && frame.length == 0
            && !frame.has(flag::END_STREAM)
            && !frame.has(flag::PADDED);
        is_empty
            && match &self.streams {
                Streams::Theirs { receiving, .. } => {
                    receiving.contains(&frame.stream) || self.reset.contains(&frame.stream)
                }
                Streams::Ours { last, .. } => {
                    frame.stream % 2 == 1 && frame.stream <= *last && !self.awaits_head(frame.stream)
                }
            }
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
            if self.says_nothing(&frame) {
                return Ok(Turn::Replaced(HEADER));
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
        let fault = inspected.fault();
        if fault.is_none() && !on_itself {
            if section == Some(Section::Response) && !inspected.is_interim() {
                self.streams.head_has_come(frame.stream);
            }
            // There should be none (RFC 9110, section 8.6), and `h2` would hold the body of the final response to it.
            if section == Some(Section::Response) && inspected.is_interim() {
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
        let mut block = Vec::new();
        // A stream that is over cannot be reset any more: the connection would be at fault.
        let made = match section {
            Some(_) => inspected.substitute(&mut block),
            None => inspected.harmless(&mut block),
        };
        // A malformed message may end the connection (RFC 9113, section 5.4), and has to where no frame can stand in for it.
        if !made || block.len() > self.frame_limit {
            return Err(Reason::PROTOCOL_ERROR);
        }
        write_head(&block, frame, self.frame_limit, &mut self.ready)?;
        if let (Some(fault), Some(Section::Request)) = (fault, section) {
            let fields = kept_fields(&inspected, self.refused_limit, decoded);
            self.refused.push_back(RefusedHead { fault, fields });
        }
        self.streams.close(frame.stream);
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

fn reason(error: BlockError) -> Reason {
    match error {
        BlockError::Compression => Reason::COMPRESSION_ERROR,
        BlockError::TooLarge => Reason::ENHANCE_YOUR_CALM,
    }
}

/// What a HEADERS frame holds of its block, and the stream on which its own depends (RFC 9113, section 6.2).
fn fragment<'f>(frames: &'f [u8], frame: &Frame) -> Result<(&'f [u8], Option<u32>), Reason> {
    let mut fragment = frames.get(HEADER..HEADER + frame.length).unwrap_or_default();
    let mut padding = 0;
    if frame.has(flag::PADDED) {
        let (length, rest) = fragment.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
        (padding, fragment) = (usize::from(*length), rest);
    }
    let mut depends = None;
    if frame.has(flag::PRIORITY) {
        let (priority, rest) = fragment.split_first_chunk::<5>().ok_or(Reason::FRAME_SIZE_ERROR)?;
        let [a, b, c, d, _] = *priority;
        depends = Some(u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff);
        fragment = rest;
    }
    let length = fragment.len().checked_sub(padding).ok_or(Reason::PROTOCOL_ERROR)?;
    Ok((fragment.get(..length).unwrap_or_default(), depends))
}

/// How many CONTINUATION frames there are behind the first frame. All of them are there.
fn continuations(frames: &[u8], first: &Frame) -> usize {
    let mut rest = frames.get(HEADER + first.length..).unwrap_or_default();
    let mut count = 0;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        rest = behind.get(Frame::parse(header).length..).unwrap_or_default();
        count += 1;
    }
    count
}

/// Writes a block as that of a HEADERS frame, in frames of `limit` bytes at most.
fn write_head(block: &[u8], frame: &Frame, limit: usize, out: &mut Buffer) -> Result<(), Reason> {
    let (mut kind, mut flags, mut rest) = (kind::HEADERS, frame.flags & flag::END_STREAM, block);
    loop {
        let (part, behind) = rest.split_at(rest.len().min(limit));
        let [_, length @ ..] = u32::try_from(part.len()).map_err(|_| Reason::PROTOCOL_ERROR)?.to_be_bytes();
        let last = if behind.is_empty() { flag::END_HEADERS } else { 0 };
        out.append(&length);
        out.append(&[kind, flags | last]);
        out.append(&frame.stream.to_be_bytes());
        out.append(part);
        if behind.is_empty() {
            return Ok(());
        }
        (kind, flags, rest) = (kind::CONTINUATION, 0, behind);
    }
}

/// The fields of a refused head, as many as may be kept.
fn kept_fields(inspected: &Inspected<'_>, limit: usize, scratch: &mut Vec<u8>) -> HeaderList {
    let mut kept = HeaderList::new();
    let mut bytes = 0;
    inspected.fields(scratch, |name, value| {
        let with = bytes + name.len() + value.len();
        if kept.len() < REFUSED_FIELDS && with <= limit {
            bytes = with;
            kept.push(name, value);
        }
    });
    kept
}

/// Memory for decoding blocks.
struct Scratch {
    block: Vec<u8>,
    decoded: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { block: Vec::new(), decoded: Vec::new() }) };
}

impl Scratch {
    fn shrink(&mut self) {
        self.decoded.clear();
        self.decoded.shrink_to(KEPT_SCRATCH);
        self.block.clear();
        self.block.shrink_to(KEPT_SCRATCH);
    }
}

/// Joins the fragment of the first frame with those of the others. All of them are there.
fn join<'b>(fragment: &[u8], frames: &[u8], first: &Frame, block: &'b mut Vec<u8>) -> &'b [u8] {
    block.clear();
    block.extend_from_slice(fragment);
    let mut rest = frames.get(HEADER + first.length..).unwrap_or_default();
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let (fragment, behind) = behind.split_at(Frame::parse(header).length.min(behind.len()));
        block.extend_from_slice(fragment);
        rest = behind;
    }
    block
}

#[cfg(test)]
mod tests;
