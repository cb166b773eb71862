//! HTTP/1 as a script reads it: lenient, and with every byte kept for the expectations.

/// A message read from the peer; HTTP/2 messages take the same form.
#[derive(Debug, Default, Clone)]
pub struct Message {
    /// The words of the start line: method, target, version; or version, status, reason.
    pub start: [String; 3],
    /// The fields in order, names as they came. HTTP/2: with the pseudo-fields.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The decoded body so far.
    pub body: Vec<u8>,
    /// How much of the body `receive data` has taken.
    pub taken: usize,
    /// The trailer fields.
    pub trailers: Vec<(String, Vec<u8>)>,
    /// The raw bytes.
    pub wire: Vec<u8>,
    /// `none`, `length`, `chunked` or `close`; HTTP/2: `stream`.
    pub framing: &'static str,
    /// Set once it is complete.
    pub complete: bool,
    pub(crate) rest: Rest,
}

/// The missing part of the body.
#[derive(Debug, Default, Clone)]
pub(crate) enum Rest {
    #[default]
    Nothing,
    Bytes(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
}

/// Which side the peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The peer sends requests.
    Client,
    /// The peer sends responses.
    Server,
}

impl Message {
    /// Takes a complete head from the front of the inbox.
    ///
    /// # Errors
    ///
    /// The error in it.
    pub fn take_head(inbox: &mut Vec<u8>, peer: Peer, no_body: bool) -> Result<Option<Self>, String> {
        let Some(end) = find(inbox, b"\r\n\r\n") else {
            return Ok(None);
        };
        let wire: Vec<u8> = inbox.drain(..end + 4).collect();
        let mut lines =
            wire[..end].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
        let mut words = first.splitn(3, ' ').map(str::to_owned);
        let start = [(); 3].map(|()| words.next().unwrap_or_default());
        let fields = read_fields(lines)?;
        let mut message = Self { start, fields, wire, ..Self::default() };
        message.rest = message.find_framing(peer, no_body)?;
        message.complete = matches!(message.rest, Rest::Nothing);
        Ok(Some(message))
    }

    fn find_framing(&mut self, peer: Peer, no_body: bool) -> Result<Rest, String> {
        let status = self.status();
        let bodyless = peer == Peer::Server && (no_body || matches!(status, 100..200 | 204 | 304));
        let length =
            self.values("content-length").next().map(|value| String::from_utf8_lossy(value).into_owned());
        let (framing, rest) = if bodyless {
            ("none", Rest::Nothing)
        } else if self.values("transfer-encoding").any(|value| value.eq_ignore_ascii_case(b"chunked")) {
            ("chunked", Rest::ChunkLine)
        } else if let Some(length) = length {
            let length = length.parse().map_err(|_| format!("Content-Length `{length}`"))?;
            ("length", if length == 0 { Rest::Nothing } else { Rest::Bytes(length) })
        } else if peer == Peer::Server {
            ("close", Rest::UntilClose)
        } else {
            ("none", Rest::Nothing)
        };
        self.framing = framing;
        Ok(rest)
    }

    /// Takes the bytes of the body from the inbox. `ended`: no more will arrive.
    ///
    /// # Errors
    ///
    /// The error in the body.
    pub fn take_body(&mut self, inbox: &mut Vec<u8>, ended: bool) -> Result<(), String> {
        while !self.complete {
            let before = (inbox.len(), self.wire.len());
            self.take_part(inbox, ended)?;
            if before == (inbox.len(), self.wire.len()) {
                break;
            }
        }
        Ok(())
    }

    fn take_part(&mut self, inbox: &mut Vec<u8>, ended: bool) -> Result<(), String> {
        match self.rest {
            Rest::Nothing => self.complete = true,
            Rest::UntilClose => {
                self.take_data(inbox, u64::MAX);
                self.complete = ended;
            }
            Rest::Bytes(left) => match left - self.take_data(inbox, left) {
                0 => self.complete = true,
                left => self.rest = Rest::Bytes(left),
            },
            Rest::ChunkLine => {
                let Some(line) = self.take_line(inbox) else {
                    return Ok(());
                };
                let digits = line.split(';').next().unwrap_or_default();
                let size = u64::from_str_radix(digits, 16).map_err(|_| format!("chunk line `{line}`"))?;
                self.rest = if size == 0 { Rest::Trailers } else { Rest::ChunkData(size) };
            }
            Rest::ChunkData(left) => match left - self.take_data(inbox, left) {
                0 => self.rest = Rest::ChunkEnd,
                left => self.rest = Rest::ChunkData(left),
            },
            Rest::ChunkEnd => match self.take_line(inbox) {
                Some(line) if line.is_empty() => self.rest = Rest::ChunkLine,
                Some(line) => return Err(format!("`{line}` where a chunk ends")),
                None => {}
            },
            Rest::Trailers => match self.take_line(inbox) {
                Some(line) if line.is_empty() => self.complete = true,
                Some(line) => self.trailers.extend(read_fields(std::iter::once(line.as_bytes()))?),
                None => {}
            },
        }
        Ok(())
    }

    fn take_data(&mut self, inbox: &mut Vec<u8>, most: u64) -> u64 {
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(inbox.len());
        self.body.extend_from_slice(&inbox[..length]);
        self.wire.extend(inbox.drain(..length));
        length as u64
    }

    fn take_line(&mut self, inbox: &mut Vec<u8>) -> Option<String> {
        let end = find(inbox, b"\r\n")?;
        let line = String::from_utf8_lossy(&inbox[..end]).into_owned();
        self.wire.extend(inbox.drain(..end + 2));
        Some(line)
    }

    /// The status code of a response, 0 of a request.
    pub fn status(&self) -> u16 {
        if self.start[0].starts_with("HTTP/") { self.start[1].parse().unwrap_or(0) } else { 0 }
    }

    /// The values of a field, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        values(&self.fields, name)
    }
}

/// The values of a field in a list, in order.
pub fn values<'a>(fields: &'a [(String, Vec<u8>)], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
}

fn read_fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Vec<(String, Vec<u8>)>, String> {
    lines
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':');
            let colon = colon.ok_or_else(|| format!("a field without colon: {}", crate::text::show(line)))?;
            let name = String::from_utf8_lossy(&line[..colon]).into_owned();
            Ok((name, line[colon + 1..].trim_ascii().to_vec()))
        })
        .collect()
}

/// Where `wanted` first stands in `bytes`.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_response_with_trailers() {
        let mut inbox =
            b"HTTP/1.1 200 All fine\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: 1\r\n\r\nrest"
                .to_vec();
        let mut message = Message::take_head(&mut inbox, Peer::Server, false).unwrap().unwrap();
        message.take_body(&mut inbox, false).unwrap();
        assert!(message.complete);
        assert_eq!(message.status(), 200);
        assert_eq!(message.start[2], "All fine");
        assert_eq!(message.body, b"abc");
        assert_eq!(message.trailers, [("T".to_owned(), b"1".to_vec())]);
        assert_eq!(inbox, b"rest");
    }

    #[test]
    fn a_short_body_is_not_complete() {
        let mut inbox = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc".to_vec();
        let mut message = Message::take_head(&mut inbox, Peer::Client, false).unwrap().unwrap();
        message.take_body(&mut inbox, true).unwrap();
        assert!(!message.complete);
        assert_eq!((message.start[0].as_str(), message.body.as_slice()), ("POST", b"abc".as_slice()));
    }
}
