//! Tests of the codec from outside: bytes in, values out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]
#![allow(clippy::type_complexity, reason = "tables of cases spell their types once")]

mod body;
mod connection;
mod corpus;
mod framing;
mod head;
mod headers;
mod hpack;
mod origins;
mod properties;
mod proxy_protocol;
mod target;

use foregate_wire::{HeadLimits, HeadParser, RequestError, RequestHead, ResponseError, ResponseHead};

/// Parses a request head with the default limits, whole and byte by byte.
fn request(input: &[u8]) -> Result<Option<(usize, RequestHead)>, RequestError> {
    request_within(&HeadLimits::default(), input)
}

fn request_within(limits: &HeadLimits, input: &[u8]) -> Result<Option<(usize, RequestHead)>, RequestError> {
    let mut head = RequestHead::new();
    let whole = HeadParser::new().parse_request(input, limits, &mut head);
    let (mut parser, mut other) = (HeadParser::new(), RequestHead::new());
    let split = (0..=input.len())
        .map(|end| parser.parse_request(&input[..end], limits, &mut other))
        .find(|outcome| *outcome != Ok(None))
        .unwrap_or(Ok(None));
    assert_eq!(whole, split, "split at every byte");
    if let Ok(Some(_)) = whole {
        assert_eq!((head.method, head.version), (other.method, other.version));
        assert_eq!((head.target(), &head.headers), (other.target(), &other.headers));
    }
    whole.map(|consumed| consumed.map(|consumed| (consumed, head)))
}

/// Parses a response head with the default limits, whole and byte by byte.
fn response(input: &[u8]) -> Result<Option<(usize, ResponseHead)>, ResponseError> {
    let limits = HeadLimits::default();
    let mut head = ResponseHead::new();
    let whole = HeadParser::new().parse_response(input, &limits, &mut head);
    let (mut parser, mut other) = (HeadParser::new(), ResponseHead::new());
    let split = (0..=input.len())
        .map(|end| parser.parse_response(&input[..end], &limits, &mut other))
        .find(|outcome| *outcome != Ok(None))
        .unwrap_or(Ok(None));
    assert_eq!(whole, split, "split at every byte");
    if let Ok(Some(_)) = whole {
        assert_eq!((head.status, head.version), (other.status, other.version));
        assert_eq!((head.reason(), &head.headers), (other.reason(), &other.headers));
    }
    whole.map(|consumed| consumed.map(|consumed| (consumed, head)))
}

/// A request head from its lines.
fn request_of(lines: &[&str]) -> RequestHead {
    let input = format!("{}\r\n\r\n", lines.join("\r\n"));
    request(input.as_bytes()).unwrap().unwrap().1
}

/// A response head from its lines.
fn response_of(lines: &[&str]) -> ResponseHead {
    let input = format!("{}\r\n\r\n", lines.join("\r\n"));
    response(input.as_bytes()).unwrap().unwrap().1
}

/// `name: value` lines of a list, for comparing.
fn lines(headers: &foregate_wire::HeaderList) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}
