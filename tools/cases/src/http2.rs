//! HTTP/2 as a script speaks it: frames written as told, frames read into streams.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use loona_hpack::Decoder;

use crate::http1::{Message, Peer, values};
use crate::text::show;
use crate::wire::{Conn, Got, Wrote};

/// The preface of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Largest payload that we put into one frame.
const FRAME_SIZE: usize = 16_384;

/// The window before any WINDOW_UPDATE.
const INITIAL_WINDOW: i64 = 65_535;

/// How long a full window must last to count as a stall.
const WINDOW_STALL: Duration = Duration::from_millis(400);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A stream as far as the peer has filled it.
#[derive(Debug, Default)]
pub struct Stream {
    /// Heads that no step has taken: interim responses, then the final one or the request.
    pub heads: VecDeque<Message>,
    /// Set once the final head or the request has come; body and trailers go to the last head.
    pub data: Vec<u8>,
    /// The trailer fields.
    pub trailers: Vec<(String, Vec<u8>)>,
    /// The peer ended the stream.
    pub ended: bool,
    /// The peer reset it, with this code.
    pub reset: Option<u32>,
    final_head: bool,
    send_window: i64,
}

/// One HTTP/2 connection.
pub struct Http2 {
    peer: Peer,
    decoder: Decoder<'static>,
    /// The streams by number.
    pub streams: BTreeMap<u32, Stream>,
    /// Streams opened by the peer that no step has taken.
    pub opened: VecDeque<u32>,
    /// The stream of the last step.
    pub current: u32,
    next_local: u32,
    block: Option<(u32, u8, Vec<u8>)>,
    preface: bool,
    /// Acknowledged SETTINGS.
    pub settings_acks: usize,
    /// Acknowledged PINGs.
    pub pongs: usize,
    /// The peer's SETTINGS, once they came.
    pub settings: Option<BTreeMap<u16, u32>>,
    /// The peer's GOAWAY: last stream, code.
    pub goaway: Option<(u32, u32)>,
    /// No window is given back.
    pub keep_window: bool,
    /// No PING is answered.
    pub keep_pings: bool,
    send_window: i64,
    initial_window: i64,
}

impl Http2 {
    /// A fresh connection with that peer.
    pub fn new(peer: Peer) -> Self {
        Self {
            peer,
            decoder: Decoder::new(),
            streams: BTreeMap::new(),
            opened: VecDeque::new(),
            current: 0,
            next_local: 1,
            block: None,
            preface: peer == Peer::Client,
            settings_acks: 0,
            pongs: 0,
            settings: None,
            goaway: None,
            keep_window: false,
            keep_pings: false,
            send_window: INITIAL_WINDOW,
            initial_window: INITIAL_WINDOW,
        }
    }

    /// The number for a request that says none.
    pub fn open_stream(&mut self, wanted: Option<u32>) -> u32 {
        let number = wanted.unwrap_or(self.next_local);
        self.next_local = self.next_local.max(number + 2);
        self.current = number;
        let window = self.initial_window;
        self.streams.entry(number).or_insert_with(|| Stream { send_window: window, ..Stream::default() });
        number
    }

    /// Reads frames until `done` returns true, the connection ends or the deadline passes.
    ///
    /// # Errors
    ///
    /// The error in a frame.
    pub fn pump(
        &mut self,
        conn: &mut Conn,
        deadline: Instant,
        done: impl Fn(&Self) -> bool,
    ) -> Result<Got, String> {
        loop {
            while self.take_frame(conn)? {}
            if done(self) {
                return Ok(Got::Bytes);
            }
            match conn.fill(deadline) {
                Got::Bytes => {}
                other => return Ok(other),
            }
        }
    }

    fn take_frame(&mut self, conn: &mut Conn) -> Result<bool, String> {
        if self.preface {
            if conn.inbox.len() < PREFACE.len() {
                return Ok(false);
            }
            let got: Vec<u8> = conn.inbox.drain(..PREFACE.len()).collect();
            if got != PREFACE {
                return Err(format!("no HTTP/2 preface, but {}", show(&got)));
            }
            self.preface = false;
        }
        let Some(head) = conn.inbox.first_chunk::<9>().copied() else {
            return Ok(false);
        };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if conn.inbox.len() < 9 + length {
            return Ok(false);
        }
        let payload: Vec<u8> = conn.inbox.drain(..9 + length).skip(9).collect();
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        self.handle(conn, head[3], head[4], stream, payload)?;
        Ok(true)
    }

    fn handle(
        &mut self,
        conn: &mut Conn,
        kind: u8,
        flags: u8,
        number: u32,
        payload: Vec<u8>,
    ) -> Result<(), String> {
        match kind {
            DATA => self.handle_data(conn, flags, number, payload),
            HEADERS => {
                let mut block = unpad(flags, payload);
                if flags & PRIORITY != 0 {
                    block.drain(..5.min(block.len()));
                }
                self.handle_block(number, flags, block)
            }
            CONTINUATION => match self.block.take() {
                Some((open, first, mut block)) if open == number => {
                    block.extend(payload);
                    self.handle_block(number, first | (flags & END_HEADERS), block)
                }
                _ => Err("CONTINUATION without HEADERS".to_owned()),
            },
            RST_STREAM => {
                self.stream(number).reset = Some(number_at(&payload, 0));
                Ok(())
            }
            SETTINGS if flags & ACK != 0 => {
                self.settings_acks += 1;
                Ok(())
            }
            SETTINGS => {
                self.handle_settings(&payload);
                write_frame(conn, SETTINGS, ACK, 0, &[])
            }
            PING if flags & ACK != 0 => {
                self.pongs += 1;
                Ok(())
            }
            PING if self.keep_pings => Ok(()),
            PING => write_frame(conn, PING, ACK, 0, &payload),
            GOAWAY => {
                self.goaway = Some((number_at(&payload, 0), number_at(&payload, 4)));
                Ok(())
            }
            WINDOW_UPDATE if number == 0 => {
                self.send_window += i64::from(number_at(&payload, 0));
                Ok(())
            }
            WINDOW_UPDATE => {
                self.stream(number).send_window += i64::from(number_at(&payload, 0));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn handle_settings(&mut self, payload: &[u8]) {
        let settings = self.settings.get_or_insert_default();
        for entry in payload.chunks_exact(6) {
            settings.insert(u16::from_be_bytes([entry[0], entry[1]]), number_at(entry, 2));
        }
        if let Some(window) = settings.get(&4) {
            let change = i64::from(*window) - self.initial_window;
            self.initial_window += change;
            for stream in self.streams.values_mut() {
                stream.send_window += change;
            }
        }
    }

    fn handle_data(
        &mut self,
        conn: &mut Conn,
        flags: u8,
        number: u32,
        payload: Vec<u8>,
    ) -> Result<(), String> {
        let length = payload.len();
        let stream = self.stream(number);
        stream.data.extend(unpad(flags, payload));
        stream.ended |= flags & END_STREAM != 0;
        let ended = stream.ended;
        if length > 0 && !self.keep_window {
            let increment = u32::try_from(length).unwrap_or(0).to_be_bytes();
            write_frame(conn, WINDOW_UPDATE, 0, 0, &increment)?;
            if !ended {
                write_frame(conn, WINDOW_UPDATE, 0, number, &increment)?;
            }
        }
        Ok(())
    }

    fn handle_block(&mut self, number: u32, flags: u8, block: Vec<u8>) -> Result<(), String> {
        if flags & END_HEADERS == 0 {
            self.block = Some((number, flags, block));
            return Ok(());
        }
        let fields = self.decoder.decode(&block).map_err(|error| format!("HPACK: {error:?}"))?;
        let fields: Vec<(String, Vec<u8>)> = fields
            .into_iter()
            .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
            .collect();
        let new = !self.streams.contains_key(&number);
        if new && self.peer == Peer::Client {
            self.opened.push_back(number);
        }
        let stream = self.stream(number);
        stream.ended |= flags & END_STREAM != 0;
        if stream.final_head {
            stream.trailers = fields;
            return Ok(());
        }
        let message = message(fields);
        stream.final_head = !matches!(message.status(), 100..200);
        stream.heads.push_back(message);
        Ok(())
    }

    fn stream(&mut self, number: u32) -> &mut Stream {
        let window = self.initial_window;
        self.streams.entry(number).or_insert_with(|| Stream { send_window: window, ..Stream::default() })
    }

    /// Writes DATA within the windows. True: all of it; false: the window stayed full.
    ///
    /// # Errors
    ///
    /// When the connection ends or the peer sends nonsense.
    pub fn send_data(
        &mut self,
        conn: &mut Conn,
        number: u32,
        bytes: &[u8],
        end: bool,
    ) -> Result<bool, String> {
        let mut rest = bytes;
        loop {
            let window = self.send_window.min(self.stream(number).send_window);
            let room = usize::try_from(window).unwrap_or(0).min(FRAME_SIZE).min(rest.len());
            if room == 0 && !rest.is_empty() {
                let deadline = Instant::now() + WINDOW_STALL;
                let got = self.pump(conn, deadline, |h2| {
                    h2.send_window > 0 && h2.streams.get(&number).is_none_or(|stream| stream.send_window > 0)
                })?;
                match got {
                    Got::Bytes => continue,
                    Got::Timeout => return Ok(false),
                    Got::End => {
                        return Err("the connection ended while DATA was being sent".to_owned());
                    }
                }
            }
            let (piece, after) = rest.split_at(room);
            rest = after;
            self.send_window -= piece.len() as i64;
            self.stream(number).send_window -= piece.len() as i64;
            let last = rest.is_empty();
            if !last || !piece.is_empty() || end {
                write_frame(conn, DATA, if last && end { END_STREAM } else { 0 }, number, piece)?;
            }
            if last {
                return Ok(true);
            }
        }
    }
}

/// The message in a list of fields.
fn message(fields: Vec<(String, Vec<u8>)>) -> Message {
    let pseudo = |name: &str| {
        values(&fields, name)
            .next()
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default()
    };
    let status = pseudo(":status");
    let start = if status.is_empty() {
        [pseudo(":method"), pseudo(":path"), "HTTP/2".to_owned()]
    } else {
        ["HTTP/2".to_owned(), status, String::new()]
    };
    let mut wire = Vec::new();
    for (name, value) in &fields {
        wire.extend_from_slice(name.as_bytes());
        wire.extend_from_slice(b": ");
        wire.extend_from_slice(value);
        wire.extend_from_slice(b"\r\n");
    }
    Message { start, fields, wire, framing: "stream", ..Message::default() }
}

/// HPACK without indexing and without Huffman (RFC 7541 section 6.2.2).
///
/// # Errors
///
/// When a line is no `name: value`.
pub fn encode(fields: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut block = Vec::new();
    for field in fields {
        let skip = usize::from(field.first() == Some(&b':'));
        let colon = field[skip..].iter().position(|byte| *byte == b':').map(|place| place + skip);
        let colon = colon.ok_or_else(|| format!("{} is no `name: value`", show(field)))?;
        let value = &field[colon + 1..];
        block.push(0);
        encode_string(&field[..colon], &mut block);
        encode_string(value.strip_prefix(b" ").unwrap_or(value), &mut block);
    }
    Ok(block)
}

fn encode_string(bytes: &[u8], block: &mut Vec<u8>) {
    let mut rest = bytes.len();
    if rest < 127 {
        block.push(rest as u8);
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(bytes);
}

/// How HEADERS are written.
#[derive(Debug, Clone, Copy)]
pub struct HeadersShape {
    /// END_STREAM.
    pub end: bool,
    /// Without END_HEADERS.
    pub open_block: bool,
    /// As CONTINUATION.
    pub continuation: bool,
}

/// Writes HEADERS (or CONTINUATION), cut into frames as needed.
///
/// # Errors
///
/// As for [`encode`] and [`write_frame`].
pub fn write_headers(
    conn: &mut Conn,
    number: u32,
    fields: &[Vec<u8>],
    shape: HeadersShape,
) -> Result<(), String> {
    let block = encode(fields)?;
    let mut pieces = block.chunks(FRAME_SIZE).peekable();
    let mut kind = if shape.continuation { CONTINUATION } else { HEADERS };
    let mut first = true;
    while first || pieces.peek().is_some() {
        let piece = pieces.next().unwrap_or_default();
        let last = pieces.peek().is_none();
        let mut flags = if first && shape.end { END_STREAM } else { 0 };
        if last && !shape.open_block {
            flags |= END_HEADERS;
        }
        write_frame(conn, kind, flags, number, piece)?;
        kind = CONTINUATION;
        first = false;
    }
    Ok(())
}

/// Writes one frame.
///
/// # Errors
///
/// When the peer does not read it in time; a broken connection is no error, the next step sees it.
pub fn write_frame(conn: &mut Conn, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), String> {
    let length = u32::try_from(payload.len()).map_err(|_| "a frame beyond 4 GiB".to_owned())?;
    let mut frame = Vec::with_capacity(9 + payload.len());
    frame.extend_from_slice(&length.to_be_bytes()[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    match conn.write(&frame, false) {
        Wrote::Stalled(_) => Err("the peer does not read".to_owned()),
        Wrote::All | Wrote::Broken(_) => Ok(()),
    }
}

/// The payload of a SETTINGS frame.
pub fn settings_payload(settings: &[(u16, u32)]) -> Vec<u8> {
    settings
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat())
        .collect()
}

fn unpad(flags: u8, mut payload: Vec<u8>) -> Vec<u8> {
    if flags & PADDED != 0 && !payload.is_empty() {
        let padding = usize::from(payload.remove(0));
        payload.truncate(payload.len().saturating_sub(padding));
    }
    payload
}

fn number_at(bytes: &[u8], place: usize) -> u32 {
    let four = bytes.get(place..place + 4).and_then(|slice| slice.first_chunk::<4>());
    four.map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_fields_decode_again() {
        let long = vec![b'v'; 5000];
        let fields = [b":path: /x".to_vec(), [b"a: ", long.as_slice()].concat(), b"empty:".to_vec()];
        let block = encode(&fields).unwrap();
        let decoded = Decoder::new().decode(&block).unwrap();
        assert_eq!(decoded[0], (b":path".to_vec(), b"/x".to_vec()));
        assert_eq!(decoded[1], (b"a".to_vec(), long));
        assert_eq!(decoded[2], (b"empty".to_vec(), Vec::new()));
    }
}
