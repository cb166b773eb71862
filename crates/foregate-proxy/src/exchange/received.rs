//! The original form of requests, for steps that judge it: the request as received, and requests that were refused
//! before they had a route.

use std::ops::Range;

use foregate_module::{self as module, Fields, Refusal};
use foregate_wire::{HeaderList, RequestHead};

use super::client::Peer;
use crate::message::request::Request;

/// The most lines of a malformed head that steps see as fields. Further lines are visible only in the bytes of the
/// head.
const UNPARSED_FIELDS: usize = 1024;

/// The head of a request, as it was received.
#[derive(Debug)]
pub(super) struct ReceivedHead(RequestHead);

impl ReceivedHead {
    pub(super) fn of(request: &Request) -> Self {
        Self(request.head.clone())
    }

    pub(super) fn headers(&self) -> &HeaderList {
        &self.0.headers
    }
}

impl Fields for ReceivedHead {
    fn count(&self) -> usize {
        self.0.headers.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.0.headers.at(number).map(|field| (field.name, field.value))
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.headers.get_name(name.as_bytes())
    }
}

/// A request that was refused before it had a route.
#[derive(Debug)]
pub(super) struct RefusedRequest {
    pub(super) kind: &'static str,
    pub(super) reason: String,
    /// The readable parts of a malformed head.
    pub(super) unparsed: Option<MalformedHead>,
}

/// The bytes of a malformed head, and its apparent parts.
#[derive(Debug, Default)]
pub(super) struct MalformedHead {
    pub(super) bytes: Vec<u8>,
    pub(super) parts: Parts,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    protocol: Range<usize>,
    pub(super) fields: Vec<(Range<usize>, Range<usize>)>,
    pub(super) end: usize,
}

impl Fields for MalformedHead {
    fn count(&self) -> usize {
        self.parts.fields.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let (name, value) = self.parts.fields.get(number)?;
        Some((part(&self.bytes, name), part(&self.bytes, value)))
    }
}

pub(super) fn part<'b>(bytes: &'b [u8], range: &Range<usize>) -> &'b [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}

impl Parts {
    /// Splits a malformed head into parts: the words of the first line, and then fields up to an empty line.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut parts = Self::default();
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let mut first = true;
        let mut at = start;
        while at < bytes.len() {
            let length = memchr::memchr(b'\n', &bytes[at..]).unwrap_or(bytes.len() - at);
            let mut line = at..at + length;
            at = (at + length + 1).min(bytes.len());
            while bytes.get(line.clone()).is_some_and(|line| line.last() == Some(&b'\r')) {
                line.end -= 1;
            }
            parts.end = at;
            let text = part(bytes, &line);
            if first {
                parts.read_request_line(bytes, line);
                first = false;
            } else if text.is_empty() {
                break;
            } else if let (Some((_, value)), true) =
                (parts.fields.last_mut(), text.first().is_some_and(blank))
            {
                // The line starts with a blank, so it continues the previous field.
                value.end = line.end;
            } else if parts.fields.len() < UNPARSED_FIELDS {
                let colon = memchr::memchr(b':', text).unwrap_or(text.len());
                let name = line.start..line.start + colon;
                let value = trim(bytes, (name.end + 1).min(line.end)..line.end);
                parts.fields.push((name, value));
            }
        }
        parts
    }

    fn read_request_line(&mut self, bytes: &[u8], line: Range<usize>) {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let line = trim(bytes, line);
        let text = part(bytes, &line);
        let Some(behind_method) = text.iter().position(blank) else {
            self.method = line;
            return;
        };
        self.method = line.start..line.start + behind_method;
        let rest = trim(bytes, self.method.end..line.end);
        match part(bytes, &rest).iter().rposition(blank) {
            Some(last) => {
                self.target = trim(bytes, rest.start..rest.start + last);
                self.protocol = rest.start + last + 1..rest.end;
            }
            None => self.target = rest,
        }
    }
}

/// The part without the blanks at its ends.
fn trim(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    while range.start < range.end && blank(bytes.get(range.start)) {
        range.start += 1;
    }
    while range.start < range.end && blank(bytes.get(range.end - 1)) {
        range.end -= 1;
    }
    range
}

/// The request as received, for steps.
pub(super) fn show<'r>(
    request: &'r Request,
    kept: Option<&'r ReceivedHead>,
    refused: Option<&'r RefusedRequest>,
    peer: &Peer,
) -> module::Received<'r> {
    let refusal = refused.map(|refused| Refusal {
        kind: refused.kind,
        reason: &refused.reason,
        head: refused.unparsed.as_ref().map_or(&[], |unparsed| &unparsed.bytes),
    });
    let (client, server) = (peer.addresses.client, peer.addresses.local);
    if let Some(unparsed) = refused.and_then(|refused| refused.unparsed.as_ref()) {
        return module::Received {
            method: part(&unparsed.bytes, &unparsed.parts.method),
            target: part(&unparsed.bytes, &unparsed.parts.target),
            protocol: part(&unparsed.bytes, &unparsed.parts.protocol),
            fields: unparsed,
            client,
            server,
            refusal,
        };
    }
    let head = kept.map_or(&request.head, |kept| &kept.0);
    module::Received {
        method: head.method.as_bytes(),
        target: head.target(),
        protocol: head.version.as_str().as_bytes(),
        fields: match kept {
            Some(kept) => kept,
            None => request,
        },
        client,
        server,
        refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Vec<String>, Vec<(String, String)>, usize) {
        let parts = Parts::read(bytes);
        let text = |range: &Range<usize>| String::from_utf8_lossy(part(bytes, range)).into_owned();
        let line = [&parts.method, &parts.target, &parts.protocol].map(text).to_vec();
        (line, parts.fields.iter().map(|(name, value)| (text(name), text(value))).collect(), parts.end)
    }

    #[test]
    fn whatever_looks_like_a_head_is_read() {
        let (line, fields, end) = read(b"\r\n GET  /a b\tHTTP/1.1\r\nHost : x \nnothing\r\n a\r\n\r\nGET");
        assert_eq!(line, ["GET", "/a b", "HTTP/1.1"]);
        let expected = [("Host ", "x"), ("nothing", "\r\n a")];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(end, 48);
        assert_eq!(read(b"x").0, ["x", "", ""]);
        assert_eq!(read(b"GET /\r").0, ["GET", "/", ""]);
        assert_eq!(read(b"").2, 0);
    }

    #[test]
    fn no_bytes_are_out_of_bounds() {
        let head = b"\n\r GET \t/ HTTP/1.1 \r\n\r\r\n a: b\r\n:\n :\nHost:\r\n\tx\r\n\r\n";
        for start in 0..head.len() {
            for end in start..=head.len() {
                let parts = Parts::read(&head[start..end]);
                let mut ranges = vec![parts.method, parts.target, parts.protocol];
                ranges.extend(parts.fields.into_iter().flat_map(|(name, value)| [name, value]));
                for range in ranges {
                    assert!(head[start..end].get(range.clone()).is_some(), "{range:?}");
                }
            }
        }
    }
}
