//! Parts of a response (RFC 9110, section 14).

use std::ops::Range;

use foregate_wire::{HeaderList, NameId};

use crate::conditions::{Representation, permits_range};
use crate::text::{members, trim};

/// The most ranges in one request. With more, the whole response is sent: many parts cost more than they save.
const MAX_RANGES: usize = 16;

/// The parts that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The whole response: the request has no range, or one that cannot be read, or an If-Range that does not hold.
    Whole,
    /// One part: 206.
    One(Range<u64>),
    /// Several parts that do not overlap: 206 with `multipart/byteranges`.
    Several(Vec<Range<u64>>),
    /// Only parts that the response does not have: 416.
    Unsatisfiable,
}

/// Reads Range and If-Range of a GET for a response with this length in bytes.
pub fn ranges(request: &HeaderList, of: &Representation<'_>, length: u64, now: u64) -> Ranges {
    let mut lines = request.get_all(NameId::Range);
    let (Some(line), None) = (lines.next(), lines.next()) else { return Ranges::Whole };
    if !permits_range(request, of, now) {
        return Ranges::Whole;
    }
    let Some(specs) = specs(line) else { return Ranges::Whole };
    let satisfiable: Option<Vec<_>> = specs.iter().map(|spec| spec.within(length)).collect();
    let Some(found) = satisfiable else { return Ranges::Whole };
    let mut parts: Vec<_> = found.into_iter().filter(|range| !range.is_empty()).collect();
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|range| range.start);
    // Ranges that do not overlap keep the client's order (RFC 9110, section 15.3.7.2).
    if !sorted.is_sorted_by(|one, other| one.end < other.start) {
        parts = merged(sorted);
    }
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => Ranges::One(only),
        (_, Some(last)) => {
            parts.push(last);
            Ranges::Several(parts)
        }
        (_, None) => Ranges::Unsatisfiable,
    }
}

/// Joins ranges that overlap or touch; they are sorted by their starts.
fn merged(sorted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[derive(Clone, Copy)]
enum Spec {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

impl Spec {
    /// The range as bytes of a response with this length. It is empty if the response has none of these bytes.
    /// `None` for the last bytes of an empty response, for which no range of bytes exists.
    fn within(self, length: u64) -> Option<Range<u64>> {
        match self {
            Self::From(first) => Some(first.min(length)..length),
            Self::Between(first, last) => Some(first.min(length)..last.saturating_add(1).min(length)),
            Self::Last(count) if length == 0 && count > 0 => None,
            Self::Last(count) => Some(length.saturating_sub(count)..length),
        }
    }
}

/// Reads a list of ranges. `None` if the unit is not bytes, if the text does not follow the grammar, or if
/// there are more than [`MAX_RANGES`].
fn specs(line: &[u8]) -> Option<Vec<Spec>> {
    let (unit, list) = line.split_at_checked(line.iter().position(|&byte| byte == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for member in members(list.get(1..)?) {
        let dash = member.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (trim(member.get(..dash)?), trim(member.get(dash + 1..)?));
        let spec = match (first, last) {
            (b"", b"") => return None,
            (b"", last) => Spec::Last(number(last)?),
            (first, b"") => Spec::From(number(first)?),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))?
            }
        };
        if specs.len() == MAX_RANGES {
            return None;
        }
        specs.push(spec);
    }
    (!specs.is_empty()).then_some(specs)
}

/// Reads a number of bytes. A number that is too large for the type counts as the largest one: no response is
/// longer.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Several parts as one body (RFC 9110, section 14.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// The parts in order, each with the bytes to send before it.
    pub parts: Vec<(Vec<u8>, Range<u64>)>,
    /// The bytes to send after the last part.
    pub end: Vec<u8>,
    /// The value of Content-Type.
    pub content_type: String,
}

impl Multipart {
    /// Frames parts of a response with this length and type. `boundary` has to be a random number.
    pub fn new(parts: Vec<Range<u64>>, length: u64, content_type: Option<&[u8]>, boundary: u64) -> Self {
        let frame = |range: Range<u64>| {
            let mut head = format!("\r\n--{boundary:016x}\r\n").into_bytes();
            if let Some(content_type) = content_type {
                head.extend_from_slice(b"Content-Type: ");
                head.extend_from_slice(content_type);
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(
                format!("Content-Range: {}\r\n\r\n", content_range(&range, length)).as_bytes(),
            );
            (head, range)
        };
        Self {
            parts: parts.into_iter().map(frame).collect(),
            end: format!("\r\n--{boundary:016x}--\r\n").into_bytes(),
            content_type: format!("multipart/byteranges; boundary={boundary:016x}"),
        }
    }

    /// The length of the whole body.
    pub fn length(&self) -> u64 {
        let part = |(head, range): &(Vec<u8>, Range<u64>)| head.len() as u64 + (range.end - range.start);
        self.parts.iter().map(part).sum::<u64>() + self.end.len() as u64
    }
}

/// The value of Content-Range for a part that is not empty.
pub fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1))
}
