//! Header blocks: assembling, decoding, and dispatch.

use std::cell::RefCell;
use std::time::Instant;

use foregate_wire::hpack::{BlockError, InspectedBlock, Section};
use foregate_wire::{HeaderList, Method, RequestError, content_length, may_be_trailer};
use h2::Reason;

use super::input::{PRIORITY, depends_on};
use super::streams::FrameTarget;
use super::{CompleteRequest, ConnectionState, Ending, Fault, NewStream, RefusedHead};
use crate::error::Error;
use crate::limits::pressure::{self, Charge};
use crate::message::request::HeadTerms;
use crate::message::scratch::Scratch;
use crate::transport::frames::{Frame, flag};
use crate::transport::outcome::LinkError;

/// The limit on the fields of a block, as a multiple of the limit of a head. A head beyond its own limit ends only its
/// stream; a block beyond this limit ends the connection.
pub const LIST_FACTOR: usize = 4;
/// An incomplete header block longer than this, bytes, is refused if memory is short.
const LARGE_BLOCK: usize = 4 * 1024;
/// The most fields of a refused head that are kept and shown.
const REFUSED_FIELDS: usize = 1024;
/// Memory for decoding that a thread keeps, in bytes.
const KEPT_SCRATCH: usize = 64 * 1024;

/// An incomplete header block.
#[derive(Debug)]
pub struct Block {
    head: HeadersFrame,
    bytes: Vec<u8>,
    charge: Charge,
}

/// The parameters of HEADERS, without the header block.
#[derive(Debug, Clone, Copy)]
struct HeadersFrame {
    stream: u32,
    ends: bool,
    /// True if the stream is declared to depend on itself, which is an error.
    on_itself: bool,
}

/// Memory for decoding blocks.
struct Decoding {
    decoded: Vec<u8>,
    authority: Vec<u8>,
}

thread_local! {
    static DECODING: RefCell<Decoding> = const { RefCell::new(Decoding { decoded: Vec::new(), authority: Vec::new() }) };
}

impl ConnectionState {
    /// HEADERS (section 6.2).
    pub(super) fn headers(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        now: Instant,
        terms: &HeadTerms,
    ) -> Result<(), Fault> {
        // Streams of clients have odd numbers (section 5.1.1).
        if frame.stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        if self.streams.known(frame.stream) == FrameTarget::Idle && !self.is_beyond(frame.stream) {
            self.meter.opened();
        }
        self.meter.block(now, frame.length, frame.has(flag::END_HEADERS))?;
        let mut fragment = payload;
        let mut padding = 0;
        if frame.has(flag::PADDED) {
            let (length, rest) = fragment.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
            (padding, fragment) = (usize::from(*length), rest);
        }
        let mut on_itself = false;
        if frame.has(flag::PRIORITY) {
            let (priority, rest) =
                fragment.split_first_chunk::<PRIORITY>().ok_or(Reason::FRAME_SIZE_ERROR)?;
            on_itself = depends_on(priority) == frame.stream;
            fragment = rest;
        }
        let length = fragment.len().checked_sub(padding).ok_or(Reason::PROTOCOL_ERROR)?;
        let fragment = fragment.get(..length).unwrap_or_default();
        let head = HeadersFrame { stream: frame.stream, ends: frame.has(flag::END_STREAM), on_itself };
        if frame.has(flag::END_HEADERS) {
            return self.block(head, fragment, now, terms);
        }
        let mut block = Block { head, bytes: Vec::new(), charge: Charge::new() };
        block.append(fragment)?;
        self.input.block = Some(block);
        Ok(())
    }

    /// CONTINUATION (section 6.10).
    pub(super) fn continuation(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        now: Instant,
        terms: &HeadTerms,
    ) -> Result<(), Fault> {
        self.meter.continuation(now, frame.length)?;
        let Some(mut block) = self.input.block.take() else { return Err(Reason::PROTOCOL_ERROR.into()) };
        block.append(payload)?;
        if frame.has(flag::END_HEADERS) {
            return self.block(block.head, &block.bytes, now, terms);
        }
        self.input.block = Some(block);
        Ok(())
    }

    /// Processes a complete header block.
    fn block(
        &mut self,
        head: HeadersFrame,
        block: &[u8],
        now: Instant,
        terms: &HeadTerms,
    ) -> Result<(), Fault> {
        let known = self.streams.known(head.stream);
        let section = if known == FrameTarget::Idle { Section::Request } else { Section::Trailers };
        DECODING.with_borrow_mut(|decoding| {
            let Decoding { decoded, authority } = decoding;
            let inspected =
                self.input.decoder.inspect(block, section, decoded).map_err(|error| match error {
                    BlockError::Compression => Reason::COMPRESSION_ERROR,
                    BlockError::TooLarge => Reason::ENHANCE_YOUR_CALM,
                })?;
            self.input.decoded += inspected.size();
            let limits = &self.input.limits;
            let is_too_large =
                inspected.size() > limits.bytes || inspected.repeated() > self.input.repeated_limit;
            let judged = if section == Section::Request {
                Block::request(head, &inspected, is_too_large, (decoded, authority), terms)
            } else {
                let is_too_large =
                    is_too_large || inspected.count() > limits.fields || inspected.longest() > limits.line;
                let fault = inspected.fault().is_some() || is_too_large || head.on_itself || !head.ends;
                let trailers = (!fault).then(|| trailers(&inspected, decoded));
                BlockKind::Trailers(trailers)
            };
            decoded.clear();
            decoded.shrink_to(KEPT_SCRATCH);
            self.input.decoder.trim();
            match judged {
                BlockKind::Trailers(trailers) => self.trailers(head, known, trailers, now),
                BlockKind::Request(asked, expected) => self.request(head, asked, expected, now),
                BlockKind::Refused(refused) => self.refused(head, refused, now),
            }
        })
    }

    /// Opens the stream of a request with a complete head, unless it has to be refused or ignored.
    fn request(
        &mut self,
        head: HeadersFrame,
        mut asked: CompleteRequest,
        expected: Option<u64>,
        now: Instant,
    ) -> Result<(), Fault> {
        let HeadersFrame { stream, ends, .. } = head;
        self.streams.begun(stream);
        if self.is_beyond(stream) {
            asked.scratch.give();
            return Ok(self.meter.without_progress(now)?);
        }
        let expected = if ends { None } else { expected };
        if !self.streams.opens(stream, !ends, expected, self.output.stream_window) {
            asked.scratch.give();
            return Ok(self.refuse(stream, Reason::REFUSED_STREAM, now)?);
        }
        let is_too_large = asked.understood == Err(Error::Request(RequestError::HeadTooLarge));
        self.streams.holding.counts_head(&mut asked.scratch.request);
        self.input.arrives(NewStream::Request(asked));
        if is_too_large {
            // The request gets a response, but decoding it costs more than any other request. So it counts like a stream that we
            // had to reset.
            self.meter.reset(now)?;
        }
        Ok(())
    }

    fn refused(
        &mut self,
        head: HeadersFrame,
        refused: Option<RefusedHead>,
        now: Instant,
    ) -> Result<(), Fault> {
        self.streams.begun(head.stream);
        if self.is_beyond(head.stream) {
            return Ok(self.meter.without_progress(now)?);
        }
        if let Some(refused) = refused {
            self.input.arrives(NewStream::Refused(refused));
        }
        Ok(self.refuse(head.stream, Reason::PROTOCOL_ERROR, now)?)
    }

    /// Returns true if the client has opened this stream although it knew that the connection ends. Such a stream is
    /// ignored (section 6.8).
    fn is_beyond(&self, stream: u32) -> bool {
        matches!(self.ending, Ending::Last(last) if stream > last)
    }

    /// Trailers have come (section 8.1).
    fn trailers(
        &mut self,
        head: HeadersFrame,
        known: FrameTarget,
        trailers: Option<HeaderList>,
        now: Instant,
    ) -> Result<(), Fault> {
        let stream = head.stream;
        if known != FrameTarget::There || self.streams.is_over(stream) {
            return match known {
                // The client may have sent the trailers before it learned of the reset. They count as useless all the same,
                // because decoding them costs time.
                _ if self.streams.was_reset(stream) => Ok(self.meter.without_progress(now)?),
                FrameTarget::Skipped => Err(Reason::PROTOCOL_ERROR.into()),
                _ => Err(Reason::STREAM_CLOSED.into()),
            };
        }
        let Some(entry) = self.streams.entry(stream) else { return Ok(()) };
        if !entry.receives {
            return Err(Fault::Stream(stream, Reason::STREAM_CLOSED));
        }
        let Some(trailers) =
            trailers.filter(|_| !entry.is_tunnel && entry.expected.is_none_or(|left| left == 0))
        else {
            return Err(Fault::Stream(stream, Reason::PROTOCOL_ERROR));
        };
        let memory = trailers.memory();
        entry.trailers = Some(trailers);
        self.streams.holding.add(memory);
        self.end_of_body(stream);
        Ok(())
    }
}

/// The kind of a header block.
enum BlockKind {
    /// A request, and the length of its body.
    Request(CompleteRequest, Option<u64>),
    /// A refused request, with the head for its log entry, if there is one.
    Refused(Option<RefusedHead>),
    /// Trailers; `None` if they are invalid.
    Trailers(Option<HeaderList>),
}

impl Block {
    pub fn stream(&self) -> u32 {
        self.head.stream
    }

    /// Appends a fragment. The buffer grows by a quarter at a time: it has little unused memory, and small fragments do not
    /// copy the whole block each time.
    fn append(&mut self, fragment: &[u8]) -> Result<(), Reason> {
        if self.bytes.capacity() - self.bytes.len() < fragment.len() {
            self.bytes.reserve_exact(fragment.len().max(self.bytes.len() / 4));
        }
        self.bytes.extend_from_slice(fragment);
        self.charge.set(self.bytes.capacity());
        if self.bytes.len() > LARGE_BLOCK && !pressure::allows_head(self.bytes.len()) {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        Ok(())
    }

    /// Parses the head of a request.
    fn request(
        head: HeadersFrame,
        inspected: &InspectedBlock<'_>,
        is_too_large: bool,
        (decoded, authority): (&mut Vec<u8>, &mut Vec<u8>),
        terms: &HeadTerms,
    ) -> BlockKind {
        let limit = terms.limits.bytes;
        if let Some(fault) = inspected.fault() {
            let fields = kept_fields(inspected, limit, decoded);
            return BlockKind::Refused(Some(RefusedHead { error: Error::Malformed(fault), fields }));
        }
        if head.on_itself {
            return BlockKind::Refused(None);
        }
        let mut scratch = Scratch::take();
        let request = &mut scratch.request;
        let understood = if is_too_large {
            request.describe_h2(&kept_fields(inspected, limit, decoded), terms.secure);
            Err(Error::Request(RequestError::HeadTooLarge))
        } else {
            request.understand_h2(inspected, head.ends, terms, (decoded, authority))
        };
        request.count();
        // CONNECT has no body (RFC 9110, section 9.3.6), so its Content-Length does not count.
        let is_connect = request.head.method == Method::Connect || request.upgrade.is_some();
        let expected = content_length(&request.head.headers).ok().flatten().filter(|_| !is_connect);
        if head.ends && expected.is_some_and(|length| length > 0) {
            scratch.give();
            let (error, fields) = (Error::Client(LinkError::Length), kept_fields(inspected, limit, decoded));
            return BlockKind::Refused(Some(RefusedHead { error, fields }));
        }
        BlockKind::Request(CompleteRequest { stream: head.stream, scratch, understood }, expected)
    }
}

fn trailers(inspected: &InspectedBlock<'_>, decoded: &mut Vec<u8>) -> HeaderList {
    let mut trailers = HeaderList::new();
    inspected.fields(decoded, |name, value| trailers.push(name, value));
    trailers.retain(|field| may_be_trailer(field.id));
    trailers
}

/// The first fields of a refused head, up to the limits for keeping them.
fn kept_fields(inspected: &InspectedBlock<'_>, limit: usize, scratch: &mut Vec<u8>) -> HeaderList {
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
