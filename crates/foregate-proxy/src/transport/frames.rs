//! Finds the frames in the bytes of an HTTP/2 connection (RFC 9113, section 4.1), without I/O.

use h2::Reason;

/// The length of the client's preface, before its first frame (RFC 9113, section 3.4).
pub const PREFACE: usize = 24;
/// The length of a frame's header.
pub const HEADER: usize = 9;

/// Types of frames (RFC 9113, section 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// A frame as it is sent, for tests.
#[cfg(any(test, fuzzing))]
pub fn written(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame's header, and the start of its payload as far as the caller wanted it.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Bytes of its payload.
    pub length: usize,
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// The start of its payload.
    pub payload: [u8; 4],
}

impl Frame {
    /// The frame that begins with this header.
    pub fn parse(header: &[u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *header;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff,
            payload: [0; 4],
        }
    }

    /// Returns true if it has this flag.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The length of a DATA frame's content, without the padding.
    pub fn content(&self) -> usize {
        if self.has(flag::PADDED) {
            self.length.saturating_sub(1 + usize::from(self.payload[0]))
        } else {
            self.length
        }
    }

    /// The error code of a RST_STREAM.
    pub fn code(&self) -> Reason {
        u32::from_be_bytes(self.payload).into()
    }
}

/// Finds the frames in one direction of a connection.
#[derive(Debug)]
pub struct Frames {
    state: FrameState,
}

#[derive(Debug)]
enum FrameState {
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

impl FrameState {
    const START: Self = Self::Header { bytes: [0; HEADER], have: 0 };
}

impl Frames {
    /// A reader whose first `skipped` bytes belong to no frame.
    pub fn after(skipped: usize) -> Self {
        Self { state: FrameState::Skip(skipped) }
    }

    /// Consumes `bytes` up to the next frame, and returns it. `wanted` gives the number of payload bytes
    /// that the caller needs with the header. `None` if `bytes` end before that.
    pub fn next(&mut self, bytes: &mut &[u8], wanted: fn(&Frame) -> usize) -> Option<Frame> {
        loop {
            match &mut self.state {
                FrameState::Skip(left) => {
                    let skipped = bytes.len().min(*left);
                    *bytes = &bytes[skipped..];
                    *left -= skipped;
                    if *left > 0 {
                        return None;
                    }
                    self.state = FrameState::START;
                }
                FrameState::Header { bytes: header, have } => {
                    *have += fill(&mut header[*have..], bytes);
                    if *have < HEADER {
                        return None;
                    }
                    let frame = Frame::parse(header);
                    let want = wanted(&frame).min(frame.length);
                    if want == 0 {
                        self.state = FrameState::Skip(frame.length);
                        return Some(frame);
                    }
                    self.state = FrameState::Payload { frame, want, have: 0 };
                }
                FrameState::Payload { frame, want, have } => {
                    *have += fill(&mut frame.payload[*have..*want], bytes);
                    if *have < *want {
                        return None;
                    }
                    let (frame, left) = (*frame, frame.length - *want);
                    self.state = FrameState::Skip(left);
                    return Some(frame);
                }
            }
        }
    }
}

/// Moves bytes until `room` is full or `bytes` is empty. Returns their number.
fn fill(room: &mut [u8], bytes: &mut &[u8]) -> usize {
    let count = room.len().min(bytes.len());
    let (taken, rest) = bytes.split_at(count);
    room[..count].copy_from_slice(taken);
    *bytes = rest;
    count
}
