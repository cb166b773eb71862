//! The client's side of HTTP/1.1: one request at a time on a connection.

use crate::exchange::Expected;

/// Largest answer head that is looked at.
const HEAD_LIMIT: usize = 16 * 1024;

/// Fields looked at in an answer.
const FIELDS_LIMIT: usize = 32;

/// The state of a response after more bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// Incomplete.
    More,
    /// Complete and as expected, with this many body bytes; `close` if the server will close.
    Done { close: bool, length: usize },
    /// Wrong, with the reason.
    Wrong(&'static str),
}

/// An answer that is being read.
#[derive(Default)]
pub struct Answer {
    /// The part of the head that has come, while it is incomplete.
    head: Vec<u8>,
    /// Body bytes that have come; none while the head is incomplete.
    body: Option<usize>,
    framing: Framing,
    close: bool,
}

/// How a body's end is told.
#[derive(Clone, Copy)]
enum Framing {
    /// So many bytes.
    Sized(usize),
    /// In chunks, of which this is next.
    Chunked(Chunk),
}

/// The next part of a chunk.
#[derive(Clone, Copy)]
enum Chunk {
    /// The line with its size.
    Size,
    /// So many bytes of it.
    Data(usize),
    /// The end of the line behind it.
    End,
    /// The empty line at the end of all; trailers are none.
    Last,
}

impl Default for Framing {
    fn default() -> Self {
        Self::Sized(0)
    }
}

/// The facts of a response's head that are needed to read the rest.
struct Head {
    /// Where the body begins.
    end: usize,
    framing: Framing,
    close: bool,
}

impl Answer {
    /// Takes the next bytes of an answer.
    pub fn feed(&mut self, bytes: &[u8], expected: &Expected) -> Fed {
        let Some(come) = self.body else {
            return self.feed_head(bytes, expected);
        };
        let length = match self.framing {
            Framing::Sized(length) => length,
            Framing::Chunked(chunk) => return self.feed_chunks(bytes, come, chunk, expected),
        };
        if come + bytes.len() > length {
            return Fed::Wrong("bytes beyond the body");
        }
        if !expected.body.matches(come, bytes) {
            return Fed::Wrong("wrong content");
        }
        self.body = Some(come + bytes.len());
        if come + bytes.len() < length {
            return Fed::More;
        }
        let close = self.close;
        *self = Self::default();
        Fed::Done { close, length }
    }

    /// Reads a part of a chunked body, and compares the data in place.
    fn feed_chunks(&mut self, bytes: &[u8], mut come: usize, mut chunk: Chunk, expected: &Expected) -> Fed {
        let mut joined = std::mem::take(&mut self.head);
        joined.extend_from_slice(if joined.is_empty() { &[] } else { bytes });
        let mut rest = if joined.is_empty() { bytes } else { &joined };
        loop {
            chunk = match chunk {
                Chunk::Size => match httparse::parse_chunk_size(rest) {
                    Ok(httparse::Status::Complete((end, size))) => {
                        rest = &rest[end..];
                        let Ok(size) = usize::try_from(size) else { return Fed::Wrong("bad chunk size") };
                        if size == 0 { Chunk::Last } else { Chunk::Data(size) }
                    }
                    Ok(httparse::Status::Partial) => break,
                    Err(_) => return Fed::Wrong("bad chunk size"),
                },
                Chunk::Data(left) => {
                    let (data, behind) = rest.split_at(left.min(rest.len()));
                    if expected.body.length().is_some_and(|length| come + data.len() > length) {
                        return Fed::Wrong("bytes beyond the body");
                    }
                    if !expected.body.matches(come, data) {
                        return Fed::Wrong("wrong content");
                    }
                    come += data.len();
                    rest = behind;
                    if data.len() < left {
                        chunk = Chunk::Data(left - data.len());
                        break;
                    }
                    Chunk::End
                }
                Chunk::End | Chunk::Last if rest.len() < 2 => break,
                Chunk::End | Chunk::Last if !rest.starts_with(b"\r\n") => {
                    return Fed::Wrong("no line end behind a chunk");
                }
                Chunk::End => {
                    rest = &rest[2..];
                    Chunk::Size
                }
                Chunk::Last if rest.len() > 2 => return Fed::Wrong("bytes beyond the body"),
                Chunk::Last if expected.body.length().is_some_and(|length| come < length) => {
                    return Fed::Wrong("a body that is too short");
                }
                Chunk::Last => {
                    let close = self.close;
                    *self = Self::default();
                    return Fed::Done { close, length: come };
                }
            };
        }
        self.head = rest.to_vec();
        self.body = Some(come);
        self.framing = Framing::Chunked(chunk);
        Fed::More
    }

    fn feed_head(&mut self, bytes: &[u8], expected: &Expected) -> Fed {
        if self.head.is_empty() {
            // The usual case: the whole head in one piece, parsed where it lies.
            match parse_head(bytes, expected) {
                Ok(Some(head)) => {
                    self.close = head.close;
                    self.framing = head.framing;
                    self.body = Some(0);
                    return self.feed(&bytes[head.end..], expected);
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
        self.feed_head(&whole, expected)
    }
}

/// The head, if it is complete.
fn parse_head(bytes: &[u8], expected: &Expected) -> Result<Option<Head>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_LIMIT];
    let mut head = httparse::Response::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_LIMIT => return Err("head too long"),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("malformed head"),
    };
    match head.code {
        code if code == Some(expected.status) => {}
        Some(500..=599) => return Err("status 5xx"),
        _ => return Err("wrong status"),
    }
    let mut announced = None;
    let (mut close, mut chunked) = (false, false);
    for field in head.headers.iter() {
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked |= field.value.eq_ignore_ascii_case(b"chunked");
        } else if field.name.eq_ignore_ascii_case("content-length") {
            announced = std::str::from_utf8(field.value).ok().and_then(|value| value.parse().ok());
        } else if field.name.eq_ignore_ascii_case("connection") {
            close |= field.value.eq_ignore_ascii_case(b"close");
        }
    }
    for (name, value) in &expected.fields {
        let has = |field: &httparse::Header<'_>| {
            field.name.eq_ignore_ascii_case(name) && field.value == value.as_bytes()
        };
        if !head.headers.iter().any(has) {
            return Err("a field is missing or has another value");
        }
    }
    match announced {
        None if chunked => Ok(Some(Head { end, framing: Framing::Chunked(Chunk::Size), close })),
        None => Err("no Content-Length"),
        Some(length) if expected.body.length().is_none_or(|expected| expected == length) => {
            Ok(Some(Head { end, framing: Framing::Sized(length), close }))
        }
        Some(_) => Err("wrong Content-Length"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Body;
    use crate::pattern;

    fn answer(length: usize) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend(pattern::body(length));
        bytes
    }

    fn feed(bytes: &[u8], expected: &Expected) -> Fed {
        Answer::default().feed(bytes, expected)
    }

    #[test]
    fn an_answer_is_complete_however_it_is_split() {
        let (bytes, expected) = (answer(100), Expected::pattern(100));
        for split in 1..bytes.len() {
            let mut answer = Answer::default();
            assert_eq!(answer.feed(&bytes[..split], &expected), Fed::More, "split at {split}");
            assert_eq!(
                answer.feed(&bytes[split..], &expected),
                Fed::Done { close: false, length: 100 },
                "split at {split}"
            );
        }
    }

    #[test]
    fn chunks_are_complete_however_they_are_split() {
        let body = pattern::body(20);
        let chunked = |end: &str| {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n".to_vec();
            bytes.extend_from_slice(&body[..5]);
            bytes.extend_from_slice(b"\r\nF\r\n");
            bytes.extend_from_slice(&body[5..]);
            bytes.extend_from_slice(end.as_bytes());
            bytes
        };
        let (bytes, expected) = (chunked("\r\n0\r\n\r\n"), Expected::pattern(20));
        for split in 1..bytes.len() {
            let mut answer = Answer::default();
            assert_eq!(answer.feed(&bytes[..split], &expected), Fed::More, "split at {split}");
            let done = Fed::Done { close: false, length: 20 };
            assert_eq!(answer.feed(&bytes[split..], &expected), done, "split at {split}");
        }
        assert_eq!(feed(&bytes, &Expected::pattern(21)), Fed::Wrong("a body that is too short"));
        assert_eq!(feed(&bytes, &Expected::pattern(19)), Fed::Wrong("bytes beyond the body"));
        assert_eq!(feed(&chunked("\r\n0\r\n\r\nx"), &expected), Fed::Wrong("bytes beyond the body"));
        assert_eq!(feed(&chunked("0\r\n\r\n"), &expected), Fed::Wrong("no line end behind a chunk"));
        assert_eq!(feed(&chunked("\r\ny\r\n"), &expected), Fed::Wrong("bad chunk size"));
    }

    #[test]
    fn what_differs_is_seen() {
        let expected = Expected::pattern(100);
        let mut flipped = answer(100);
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(feed(&flipped, &expected), Fed::Wrong("wrong content"));
        assert_eq!(feed(&answer(99), &expected), Fed::Wrong("wrong Content-Length"));
        assert_eq!(feed(&[answer(100), vec![0]].concat(), &expected), Fed::Wrong("bytes beyond the body"));
        assert_eq!(feed(b"HTTP/1.1 502 No\r\n\r\n", &expected), Fed::Wrong("status 5xx"));
    }

    #[test]
    fn status_fields_and_text_are_what_is_expected() {
        let expected = |location: &str, body| Expected {
            status: 301,
            fields: vec![("location".to_owned(), location.to_owned())],
            body,
        };
        let bytes = b"HTTP/1.1 301 Moved\r\nLocation: /b\r\nContent-Length: 4\r\n\r\ngone";
        let done = Fed::Done { close: false, length: 4 };
        assert_eq!(feed(bytes, &expected("/b", Body::Any)), done);
        assert_eq!(feed(bytes, &expected("/b", Body::Text(b"gone".to_vec()))), done);
        assert_eq!(feed(bytes, &expected("/b", Body::Text(b"give".to_vec()))), Fed::Wrong("wrong content"));
        let missing = Fed::Wrong("a field is missing or has another value");
        assert_eq!(feed(bytes, &expected("/c", Body::Any)), missing);
        assert_eq!(feed(bytes, &Expected::pattern(4)), Fed::Wrong("wrong status"));
    }
}
