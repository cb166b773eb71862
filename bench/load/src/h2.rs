//! The client's side of HTTP/2, as little of it as a load needs (RFC 9113).
//!
//! The windows are opened so wide at the start that updates are rare. The answer's
//! status is taken from its first field, which every server sends as an index of
//! the static table; other fields are not decoded.

use std::time::Instant;

use crate::pattern;

/// Largest frame that a server may send: we do not raise SETTINGS_MAX_FRAME_SIZE.
const FRAME_LIMIT: usize = 16 * 1024;
/// The largest window there is (RFC 9113, section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window of a connection before any update.
const WINDOW_INITIAL: u32 = 65_535;
/// Window of each stream; larger than any body asked for here.
const STREAM_WINDOW: u32 = 16 << 20;
/// Body bytes after which the connection's window is opened again.
const WINDOW_REFILL: u32 = 1 << 30;
/// Stream numbers up to which a connection is used; then it is replaced.
const LAST_STREAM: u32 = WINDOW_MAX - 2;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// `:status: 200` in the static table, as an indexed field.
const STATUS_200: u8 = 0x88;

/// A request that waits for the rest of its answer.
struct Stream {
    id: u32,
    started: Instant,
    headed: bool,
    come: usize,
}

/// A signal of the server, or the end of a response.
pub enum Event {
    /// A request was answered as expected.
    Answered(Instant),
    /// Something is wrong; the connection cannot be used further.
    Wrong(&'static str),
}

/// A client connection.
pub struct Connection {
    /// Bytes of a frame that has not come whole.
    pending: Vec<u8>,
    streams: Vec<Stream>,
    next_id: u32,
    consumed: u32,
    /// The server's settings have come, so requests may go.
    ready: bool,
    /// The request's fields are in the server's dynamic table.
    indexed: bool,
    /// The server said GOAWAY, or the stream numbers are used up.
    leaving: bool,
    https: bool,
    path: String,
    answer: usize,
}

impl Connection {
    /// A connection that asks for bodies of `answer` bytes, and its first bytes.
    pub fn new(https: bool, answer: usize) -> (Self, Vec<u8>) {
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (key, value) in [(2_u16, 0_u32), (4, STREAM_WINDOW)] {
            settings.extend(key.to_be_bytes());
            settings.extend(value.to_be_bytes());
        }
        frame(&mut out, SETTINGS, 0, 0, &settings);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW_INITIAL).to_be_bytes());
        let connection = Self {
            pending: Vec::new(),
            streams: Vec::new(),
            next_id: 1,
            consumed: 0,
            ready: false,
            indexed: false,
            leaving: false,
            https,
            path: format!("/b/{answer}"),
            answer,
        };
        (connection, out)
    }

    /// Number of requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.streams.len()
    }

    /// Returns true if requests may be sent now.
    pub fn usable(&self) -> bool {
        self.ready && !self.leaving
    }

    /// Returns true if the connection has no further use once nothing waits.
    pub fn leaving(&self) -> bool {
        self.leaving
    }

    /// Writes one request.
    pub fn request(&mut self, out: &mut Vec<u8>) {
        let mut fields = vec![0x82, if self.https { 0x87 } else { 0x86 }];
        if self.indexed {
            // The four fields below, newest first in the dynamic table from 62 on.
            fields.extend([0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]);
        } else {
            literal(&mut fields, 1, "bench.example"); // :authority
            literal(&mut fields, 4, &self.path); // :path
            literal(&mut fields, 58, "bench-load/1"); // user-agent
            literal(&mut fields, 19, "*/*"); // accept
            self.indexed = true;
        }
        frame(out, HEADERS, END_HEADERS | END_STREAM, self.next_id, &fields);
        self.streams.push(Stream { id: self.next_id, started: Instant::now(), headed: false, come: 0 });
        self.next_id += 2;
        self.leaving |= self.next_id > LAST_STREAM;
    }

    /// Reads bytes of the server; replies go to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>, mut event: impl FnMut(Event)) {
        let mut pending = std::mem::take(&mut self.pending);
        let whole = if pending.is_empty() {
            bytes
        } else {
            pending.extend_from_slice(bytes);
            &pending
        };
        let mut at = 0;
        while let Some(head) = whole.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if length > FRAME_LIMIT {
                return event(Event::Wrong("h2 frame too large"));
            }
            let Some(payload) = whole.get(at + 9..at + 9 + length) else { break };
            let id = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            match self.frame(head[3], head[4], id, payload, out) {
                Ok(Some(started)) => event(Event::Answered(started)),
                Ok(None) => {}
                Err(kind) => return event(Event::Wrong(kind)),
            }
            at += 9 + length;
        }
        self.pending = whole[at..].to_vec();
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Instant>, &'static str> {
        match kind {
            DATA => return self.data(flags, id, payload, out),
            HEADERS => {
                if flags & END_HEADERS == 0 {
                    return Err("h2 head in several frames");
                }
                return self.head(flags, id, unpadded(flags, payload)?);
            }
            SETTINGS if flags & ACK == 0 => {
                self.settings(payload)?;
                frame(out, SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            GOAWAY => self.leaving = true,
            RST_STREAM => return Err("h2 stream reset"),
            PUSH_PROMISE | CONTINUATION => return Err("h2 frame not expected"),
            _ => {}
        }
        Ok(None)
    }

    fn settings(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        for setting in payload.chunks_exact(6) {
            let key = u16::from_be_bytes([setting[0], setting[1]]);
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match key {
                1 if value < 4096 => return Err("h2 header table smaller than this load assumes"),
                3 if value < 32 => return Err("h2 fewer streams than this load opens"),
                _ => {}
            }
        }
        self.ready = true;
        Ok(())
    }

    fn stream(&mut self, id: u32) -> Result<usize, &'static str> {
        self.streams.iter().position(|stream| stream.id == id).ok_or("h2 frame for no stream")
    }

    fn head(&mut self, flags: u8, id: u32, payload: &[u8]) -> Result<Option<Instant>, &'static str> {
        let at = self.stream(id)?;
        let fields =
            if flags & PRIORITY == 0 { payload } else { payload.get(5..).ok_or("h2 head too short")? };
        // Updates of the dynamic table's size (RFC 7541, section 6.3) may come first.
        let status = fields.iter().find(|byte| **byte & 0xe0 != 0x20);
        if self.streams[at].headed || status != Some(&STATUS_200) {
            return Err("status not 200");
        }
        self.streams[at].headed = true;
        self.ended(flags, at)
    }

    fn data(
        &mut self,
        flags: u8,
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Instant>, &'static str> {
        // Padding counts against the window too.
        self.consumed += payload.len() as u32;
        if self.consumed >= WINDOW_REFILL {
            frame(out, WINDOW_UPDATE, 0, 0, &self.consumed.to_be_bytes());
            self.consumed = 0;
        }
        let at = self.stream(id)?;
        let payload = unpadded(flags, payload)?;
        let stream = &mut self.streams[at];
        if !stream.headed || !pattern::matches(stream.come, payload) {
            return Err("wrong content");
        }
        stream.come += payload.len();
        self.ended(flags, at)
    }

    fn ended(&mut self, flags: u8, at: usize) -> Result<Option<Instant>, &'static str> {
        if flags & END_STREAM == 0 {
            return Ok(None);
        }
        let stream = self.streams.swap_remove(at);
        if stream.come == self.answer { Ok(Some(stream.started)) } else { Err("wrong length") }
    }
}

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], &'static str> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or("h2 padding without its length")?;
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or("h2 padding too long")?;
    Ok(&rest[..length])
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A literal field with its name in the static table, added to the dynamic table
/// (RFC 7541, section 6.2.1). Names' indices and values' lengths here fit a byte.
fn literal(out: &mut Vec<u8>, name: u8, value: &str) {
    out.push(0x40 | name);
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_bytes(body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        frame(&mut bytes, HEADERS, END_HEADERS, 1, &[STATUS_200]);
        frame(&mut bytes, DATA, END_STREAM, 1, body);
        bytes
    }

    fn run(bytes: &[u8], split: usize) -> (usize, Option<&'static str>) {
        let (mut connection, _) = Connection::new(false, 100);
        let mut out = Vec::new();
        connection.request(&mut out);
        let mut answered = 0;
        let mut wrong = None;
        for part in [&bytes[..split], &bytes[split..]] {
            connection.feed(part, &mut out, |event| match event {
                Event::Answered(_) => answered += 1,
                Event::Wrong(kind) => wrong = Some(kind),
            });
        }
        (answered, wrong)
    }

    #[test]
    fn an_answer_is_complete_however_it_is_split() {
        let bytes = server_bytes(&pattern::body(100));
        for split in 0..=bytes.len() {
            assert_eq!(run(&bytes, split), (1, None), "split at {split}");
        }
    }

    #[test]
    fn what_differs_is_seen() {
        let short = server_bytes(&pattern::body(99));
        assert_eq!(run(&short, 0), (0, Some("wrong length")));
        let mut flipped = server_bytes(&pattern::body(100));
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(run(&flipped, 0), (0, Some("wrong content")));
    }
}
