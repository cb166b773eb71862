//! Header blocks in their frames: splitting, judging by size, and writing.

use std::cell::RefCell;

use foregate_wire::HeadLimits;
use foregate_wire::hpack::{InspectedBlock, Section};
use h2::Reason;

use crate::transport::buffer::Buffer;
use crate::transport::frames::{Frame, HEADER, flag, kind};

/// The most memory for decoding that a thread keeps, in bytes.
const KEPT_SCRATCH: usize = 64 * 1024;

/// Returns true if a block exceeds its limits. The number and length of a head's fields are checked
/// later, as for HTTP/1; trailers are checked here.
pub(super) fn is_too_large(
    inspected: &InspectedBlock<'_>,
    section: Option<Section>,
    limits: &HeadLimits,
) -> bool {
    match section {
        None => false,
        Some(Section::Trailers) => {
            inspected.size() > limits.bytes
                || inspected.count() > limits.fields
                || inspected.longest() > limits.line
        }
        Some(_) => inspected.size() > limits.bytes,
    }
}

/// The block that replaces one which must not reach `h2`. It fits into one frame.
pub(super) fn replacement(
    inspected: &InspectedBlock<'_>,
    section: Option<Section>,
    frame_limit: usize,
) -> Result<Vec<u8>, Reason> {
    let mut block = Vec::new();
    // A substitute makes `h2` reset the stream. On a stream that is over, a substitute would be an
    // error of the connection, so a harmless block is used there.
    let made = match section {
        Some(_) => inspected.substitute(&mut block),
        None => inspected.harmless(&mut block),
    };
    // A malformed message may end the connection (RFC 9113, section 5.4). If no replacement fits into
    // a frame, the connection has to end.
    if !made || block.len() > frame_limit {
        return Err(Reason::PROTOCOL_ERROR);
    }
    Ok(block)
}

/// The part of a block in a HEADERS frame, and the stream on which the frame's stream depends (RFC
/// 9113, section 6.2).
pub(super) fn fragment<'f>(frames: &'f [u8], frame: &Frame) -> Result<(&'f [u8], Option<u32>), Reason> {
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

/// The number of CONTINUATION frames after the first frame. All frames of the block have arrived.
pub(super) fn continuations(frames: &[u8], first: &Frame) -> usize {
    let mut rest = frames.get(HEADER + first.length..).unwrap_or_default();
    let mut count = 0;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        rest = behind.get(Frame::parse(header).length..).unwrap_or_default();
        count += 1;
    }
    count
}

/// Writes a block in place of that of a HEADERS frame, in frames of at most `limit` bytes.
pub(super) fn write_head(block: &[u8], frame: &Frame, limit: usize, out: &mut Buffer) -> Result<(), Reason> {
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

/// Memory for decoding blocks.
pub(super) struct BlockScratch {
    pub(super) block: Vec<u8>,
    pub(super) decoded: Vec<u8>,
}

thread_local! {
    pub(super) static SCRATCH: RefCell<BlockScratch> = const { RefCell::new(BlockScratch { block: Vec::new(), decoded: Vec::new() }) };
}

impl BlockScratch {
    pub(super) fn shrink(&mut self) {
        self.decoded.clear();
        self.decoded.shrink_to(KEPT_SCRATCH);
        self.block.clear();
        self.block.shrink_to(KEPT_SCRATCH);
    }
}

/// Joins the fragments of the first frame and of the others. All of them have arrived.
pub(super) fn join<'b>(fragment: &[u8], frames: &[u8], first: &Frame, block: &'b mut Vec<u8>) -> &'b [u8] {
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
