//! The output of a connection in frames, and the queue of streams that wait for room in it.

use std::collections::VecDeque;
use std::time::Instant;

use foregate_wire::hpack::Encoder;
use foregate_wire::{HeaderList, NameId};
use h2::Reason;

use super::send_window::SendWindow;
use super::{FRAME, WINDOW};
use crate::limits::pressure;
use crate::transport::buffer::Buffer;
use crate::transport::frames::{HEADER, flag, kind};
use crate::transport::progress::LEAST_TAKEN;

/// The amount of pending output, bytes, at which bodies in progress have to wait. It is less than a large buffer, so
/// that other output fits, too.
pub const COLLECT: usize = 56 * 1024;
/// The limit for heads and for the starts of bodies, as a multiple of [`COLLECT`]. So small responses do not have to
/// wait behind large ones.
const BEGINNING: usize = 2;
/// The amount that a stream may send at a time while others wait for their turn.
const TURN: usize = 32 * 1024;
/// The amount that a stream may always send at a time, however little room there is, bytes.
const LEAST: usize = 4 * 1024;

/// The kinds of a stream's output, in the order in which waiters get a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A head, or trailers, for which no window is needed.
    Head,
    /// The start of a body.
    Begin,
    /// More of a body.
    Amid,
}

/// The output of one connection.
#[derive(Debug)]
pub struct Output {
    buffer: Buffer,
    /// The part that the connection's task has taken and not written.
    writing: usize,
    /// The window for all bodies together.
    pub window: SendWindow,
    /// The window that new streams have.
    pub stream_window: i64,
    pub encoder: Encoder,
    /// Streams that wait for room, by kind of output. Streams that are gone are skipped.
    waiting: [VecDeque<u32>; 3],
    /// Streams that were woken because there is room, and have not used it yet.
    pub turns: usize,
    /// The time of the last write that counts as progress for all waiting streams.
    pub left_at: Option<Instant>,
    /// The bytes of bodies that were sent since `left_at`.
    given: u64,
}

impl Output {
    pub fn new() -> Self {
        Self {
            buffer: Buffer::new(),
            writing: 0,
            window: SendWindow::new(WINDOW),
            stream_window: WINDOW,
            encoder: Encoder::new(),
            waiting: Default::default(),
            turns: 0,
            left_at: None,
            given: 0,
        }
    }

    /// The output that was not taken yet, bytes.
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Moves all output that was not taken yet into an empty buffer.
    pub fn take(&mut self, into: &mut Buffer) {
        debug_assert!(into.is_empty() && self.writing == 0, "one thing is written at a time");
        std::mem::swap(&mut self.buffer, into);
        self.writing = into.len();
        self.buffer.release();
    }

    /// Records that this much of the taken output has been written.
    pub fn wrote(&mut self, bytes: usize, now: Instant) {
        // For streams that wait for room, any write is progress. For streams that wait for the connection's window, it is
        // progress if other streams use the window, because each stream gets its turn. A window that opens only a few bytes
        // at a time does not count.
        let was_full = self.used() >= Self::limit(What::Amid);
        self.writing = self.writing.saturating_sub(bytes);
        if was_full || !self.waiting[What::Head as usize].is_empty() || self.given >= LEAST_TAKEN {
            self.left_at = Some(now);
            self.given = 0;
        }
    }

    fn used(&self) -> usize {
        self.buffer.len() + self.writing
    }

    fn limit(what: What) -> usize {
        let amid = COLLECT.min(pressure::largest_unsent());
        if what == What::Amid { amid } else { BEGINNING * amid }
    }

    /// The amount that a stream may send now, bytes. `None` if it has to wait. `has_turn` is true if it is the stream's
    /// turn.
    pub fn room(&self, what: What, has_turn: bool) -> Option<usize> {
        let left = Self::limit(what).checked_sub(self.used()).filter(|left| *left > 0)?;
        let windowless = what == What::Head;
        if !windowless && self.window.open() <= 0 {
            return None;
        }
        let others = !self.waiting[what as usize].is_empty();
        if others && !has_turn {
            return None;
        }
        let room = if others { left.min(TURN) } else { left }.max(LEAST);
        let window = usize::try_from(self.window.open()).unwrap_or(0);
        Some(if windowless { room } else { room.min(window) })
    }

    /// Queues a stream until it has its turn.
    pub fn queue(&mut self, what: What, stream: u32) {
        self.waiting[what as usize].push_back(stream);
    }

    /// Returns true if streams wait for the connection's window.
    pub fn awaits_window(&self) -> bool {
        let waits = |what: What| !self.waiting[what as usize].is_empty();
        waits(What::Begin) || waits(What::Amid)
    }

    /// The next stream for which there is room.
    pub fn next_turn(&mut self) -> Option<u32> {
        // Streams that were promised room will use some of it.
        let used = self.used() + self.turns * TURN;
        for what in [What::Head, What::Begin, What::Amid] {
            let promised = i64::try_from(self.turns * TURN).unwrap_or(i64::MAX);
            let is_open = what == What::Head || self.window.open() > promised;
            if is_open
                && used < Self::limit(what)
                && let Some(stream) = self.waiting[what as usize].pop_front()
            {
                return Some(stream);
            }
        }
        None
    }

    /// Appends a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.buffer.append(&header(payload.len(), kind, flags, stream));
        self.buffer.append(payload);
    }

    pub fn window_update(&mut self, stream: u32, bytes: u32) {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    pub fn go_away(&mut self, last: u32, reason: Reason) {
        let [a, b, c, d] = last.to_be_bytes();
        let [e, f, g, h] = u32::from(reason).to_be_bytes();
        self.frame(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }

    /// Appends a part of a body. The windows have to be large enough for it.
    pub fn data(&mut self, stream: u32, mut data: &[u8], ends: bool) {
        self.window.spend(data.len());
        self.given += data.len() as u64;
        while let Some((frame, rest)) = data.split_at_checked(FRAME).filter(|(_, rest)| !rest.is_empty()) {
            self.frame(kind::DATA, 0, stream, frame);
            data = rest;
        }
        let flags = if ends { flag::END_STREAM } else { 0 };
        self.frame(kind::DATA, flags, stream, data);
    }

    /// Appends the head of a response, or trailers if there is no `status`. If there is a `length`, it becomes the
    /// Content-Length, and a Content-Length in `fields` is ignored.
    pub fn head(
        &mut self,
        stream: u32,
        status: Option<u16>,
        fields: &HeaderList,
        length: Option<u64>,
        ends: bool,
    ) {
        let tail = self.buffer.room_for(HEADER + fields.arena_len());
        let start = tail.len();
        tail.extend_from_slice(&[0; HEADER]);
        self.encoder.begin(tail);
        if let Some(status) = status {
            self.encoder.status(status, tail);
        }
        for field in fields.iter() {
            match field.id {
                // HTTP/2 must not carry these fields. They were removed before, and this is a safeguard.
                NameId::Connection
                | NameId::KeepAlive
                | NameId::ProxyConnection
                | NameId::TransferEncoding
                | NameId::Upgrade => {}
                NameId::ContentLength if length.is_some() => {}
                id => self.encoder.field(id, field.name, field.value, tail),
            }
        }
        if let Some(length) = length {
            self.encoder.content_length(length, tail);
        }
        let ends = if ends { flag::END_STREAM } else { 0 };
        let block = tail.len() - start - HEADER;
        if block <= FRAME {
            let header = header(block, kind::HEADERS, ends | flag::END_HEADERS, stream);
            if let Some(place) = tail.get_mut(start..start + HEADER) {
                place.copy_from_slice(&header);
            }
        } else {
            let block = tail.split_off(start + HEADER);
            tail.truncate(start);
            let mut parts = block.chunks(FRAME).peekable();
            let (mut kind, mut flags) = (kind::HEADERS, ends);
            while let Some(part) = parts.next() {
                if parts.peek().is_none() {
                    flags |= flag::END_HEADERS;
                }
                tail.extend_from_slice(&header(part.len(), kind, flags, stream));
                tail.extend_from_slice(part);
                (kind, flags) = (kind::CONTINUATION, 0);
            }
        }
        self.buffer.count();
    }
}

/// The header of a frame (RFC 9113, section 4.1).
fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    // No frame is longer than a peer allows, so the length fits into 24 bits.
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output with streams that wait for the window of the connection, of which all that leaves
    /// has been written.
    fn starved() -> Output {
        let mut output = Output::new();
        output.window = SendWindow::new(0);
        (1..=9).step_by(2).for_each(|stream| output.queue(What::Amid, stream));
        output
    }

    fn writes_all(output: &mut Output, now: Instant) {
        let mut buffer = Buffer::new();
        output.take(&mut buffer);
        output.wrote(buffer.len(), now);
    }

    #[test]
    fn a_window_of_a_few_bytes_is_progress_of_nobody() {
        let mut output = starved();
        for _ in 0..10 {
            output.window.add(50, None);
            (0..50).for_each(|_| output.data(1, b"a", false));
            writes_all(&mut output, Instant::now());
        }
        assert_eq!(output.left_at, None, "500 bytes, and 5,000 of frames");
    }

    #[test]
    fn a_window_that_one_stream_uses_up_is_progress_of_those_behind_it() {
        let mut output = starved();
        let now = Instant::now();
        output.window.add(1500, None);
        output.data(1, &[0; 1500], false);
        writes_all(&mut output, now);
        assert_eq!((output.left_at, output.window.open()), (Some(now), 0));
    }
}
