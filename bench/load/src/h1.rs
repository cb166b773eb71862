//! The client's side of HTTP/1.1: one request at a time on a connection.

use crate::pattern;

/// Largest answer head that is looked at.
const HEAD_LIMIT: usize = 16 * 1024;

/// Fields looked at in an answer.
const FIELDS_LIMIT: usize = 32;

/// A request: a GET for a body of `answer` bytes, or a POST of `upload` bytes that
/// is answered with `answer` bytes, at `host`. `close` asks for the connection's end.
pub fn request(host: &str, answer: usize, upload: usize, close: bool) -> Vec<u8> {
    let (method, folder) = if upload > 0 { ("POST", "u") } else { ("GET", "b") };
    let mut head = format!(
        "{method} /{folder}/{answer} HTTP/1.1\r\nHost: {host}\r\n\
         User-Agent: bench-load/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n"
    );
    if upload > 0 {
        head.push_str(&format!("Content-Type: application/octet-stream\r\nContent-Length: {upload}\r\n"));
    }
    if close {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(pattern::body(upload));
    bytes
}

/// What an answer has come to after some more bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// It is not complete.
    More,
    /// It is complete and as expected; `close` when the server will close.
    Done { close: bool },
    /// It is wrong, in this way.
    Wrong(&'static str),
}

/// An answer that is being read.
#[derive(Default)]
pub struct Answer {
    /// The part of the head that has come, while it is incomplete.
    head: Vec<u8>,
    /// Body bytes that have come; none while the head is incomplete.
    body: Option<usize>,
    close: bool,
}

impl Answer {
    /// Takes the next bytes of an answer whose body must be `length` bytes.
    pub fn feed(&mut self, bytes: &[u8], length: usize) -> Fed {
        let Some(come) = self.body else {
            return self.feed_head(bytes, length);
        };
        if come + bytes.len() > length {
            return Fed::Wrong("bytes beyond the body");
        }
        if !pattern::matches(come, bytes) {
            return Fed::Wrong("wrong content");
        }
        self.body = Some(come + bytes.len());
        if come + bytes.len() < length {
            return Fed::More;
        }
        let close = self.close;
        *self = Self::default();
        Fed::Done { close }
    }

    fn feed_head(&mut self, bytes: &[u8], length: usize) -> Fed {
        if self.head.is_empty() {
            // The usual case: the whole head in one piece, parsed where it lies.
            match parse_head(bytes, length) {
                Ok(Some((end, close))) => {
                    self.close = close;
                    self.body = Some(0);
                    return self.feed(&bytes[end..], length);
                }
                Ok(None) => {
                    self.head.extend_from_slice(bytes);
                    return Fed::More;
                }
                Err(kind) => return Fed::Wrong(kind),
            }
        }
        if self.head.len() + bytes.len() > HEAD_LIMIT + 256 * 1024 {
            return Fed::Wrong("head too long");
        }
        let mut whole = std::mem::take(&mut self.head);
        whole.extend_from_slice(bytes);
        self.feed_head(&whole, length)
    }
}

/// Where the head ends and whether the server will close, if the head is complete.
fn parse_head(bytes: &[u8], length: usize) -> Result<Option<(usize, bool)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_LIMIT];
    let mut head = httparse::Response::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_LIMIT => return Err("head too long"),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("malformed head"),
    };
    match head.code {
        Some(200) => {}
        Some(500..=599) => return Err("status 5xx"),
        _ => return Err("status not 200"),
    }
    let mut announced = None;
    let mut close = false;
    for field in head.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            announced = std::str::from_utf8(field.value).ok().and_then(|value| value.parse().ok());
        } else if field.name.eq_ignore_ascii_case("connection") {
            close |= field.value.eq_ignore_ascii_case(b"close");
        }
    }
    if announced == Some(length) { Ok(Some((end, close))) } else { Err("wrong Content-Length") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(length: usize) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend(pattern::body(length));
        bytes
    }

    #[test]
    fn an_answer_is_complete_however_it_is_split() {
        let bytes = answer(100);
        for split in 1..bytes.len() {
            let mut answer = Answer::default();
            assert_eq!(answer.feed(&bytes[..split], 100), Fed::More, "split at {split}");
            assert_eq!(answer.feed(&bytes[split..], 100), Fed::Done { close: false }, "split at {split}");
        }
    }

    #[test]
    fn what_differs_is_seen() {
        let feed = |bytes: &[u8]| Answer::default().feed(bytes, 100);
        let mut flipped = answer(100);
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(feed(&flipped), Fed::Wrong("wrong content"));
        assert_eq!(feed(&answer(99)), Fed::Wrong("wrong Content-Length"));
        assert_eq!(feed(&[answer(100), vec![0]].concat()), Fed::Wrong("bytes beyond the body"));
        assert_eq!(feed(b"HTTP/1.1 502 No\r\n\r\n"), Fed::Wrong("status 5xx"));
    }
}
