//! The lines of a head. Each function parses the line that begins at `at` from left to right, and returns as soon as
//! the bytes decide the result.

use super::error::{LineError, RequestError, ResponseError};
use super::{RequestHead, ResponseHead};
use crate::chars::{equal, has, token_end, trim_end, trim_start, value_end, word_end};
use crate::method::{Method, Version};
use crate::name_id::NameId;

/// Parses `METHOD SP target SP HTTP/x.y CRLF` at `at` and returns where the next line begins.
pub(super) fn request_line(
    input: &[u8],
    at: usize,
    head: &mut RequestHead,
) -> Result<Option<usize>, RequestError> {
    let method_end = token_end(input, at);
    match input.get(method_end) {
        None => return Ok(None),
        Some(b' ') if method_end > at => {}
        Some(_) => return Err(RequestError::BadRequestLine),
    }
    let target_start = method_end + 1;
    let target_end = word_end(input, target_start);
    match input.get(target_end) {
        None => return Ok(None),
        Some(b' ') if target_end > target_start => {}
        Some(_) => return Err(RequestError::BadRequestLine),
    }
    let version_start = target_end + 1;
    let version_end = word_end(input, version_start);
    match (input.get(version_end), input.get(version_end + 1)) {
        (None, _) | (Some(b'\r'), None) => return Ok(None),
        (Some(b'\r'), Some(b'\n')) => {}
        _ => return Err(RequestError::BadRequestLine),
    }
    let method = Method::from_bytes(input.get(at..method_end).unwrap_or_default());
    // The method is recorded even if the request is then refused for its version.
    if let Some(method) = method {
        head.method = method;
        head.target.extend_from_slice(input.get(target_start..target_end).unwrap_or_default());
    }
    head.version = match input.get(version_start..version_end).unwrap_or_default() {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        other if is_http_version(other) => return Err(RequestError::UnsupportedVersion),
        _ => return Err(RequestError::BadRequestLine),
    };
    method.ok_or(RequestError::UnsupportedMethod)?;
    Ok(Some(version_end + 2))
}

/// Parses `HTTP/x.y SP 3DIGIT [SP reason] CRLF` at `at` and returns where the next line begins.
pub(super) fn status_line(
    input: &[u8],
    at: usize,
    head: &mut ResponseHead,
) -> Result<Option<usize>, ResponseError> {
    let end = value_end(input, at);
    match (input.get(end), input.get(end + 1)) {
        (None, _) | (Some(b'\r'), None) => return Ok(None),
        (Some(b'\r'), Some(b'\n')) => {}
        (Some(b'\r'), _) => return Err(ResponseError::BareCr),
        (Some(b'\n'), _) => return Err(ResponseError::BareLf),
        _ => return Err(ResponseError::BadStatusLine),
    }
    let line = input.get(at..end).unwrap_or_default();
    let Some((version, rest)) = line.split_first_chunk::<8>() else {
        return Err(ResponseError::BadStatusLine);
    };
    head.version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        other if is_http_version(other) => return Err(ResponseError::UnsupportedVersion),
        _ => return Err(ResponseError::BadStatusLine),
    };
    let (status, reason) = match rest {
        [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] => {
            let digit = |byte: u8| u16::from(byte - b'0');
            (digit(*a) * 100 + digit(*b) * 10 + digit(*c), reason)
        }
        _ => return Err(ResponseError::BadStatusLine),
    };
    head.status = status;
    match reason {
        [] => {}
        [b' ', reason @ ..] => head.reason.extend_from_slice(reason),
        _ => return Err(ResponseError::BadStatusLine),
    }
    Ok(Some(end + 2))
}

/// `HTTP/` DIGIT `.` DIGIT
fn is_http_version(bytes: &[u8]) -> bool {
    matches!(bytes, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'])
}

/// Where the parts of a field line are.
pub(crate) struct FieldLine {
    pub(crate) id: NameId,
    /// Set if the name may contain a `_`.
    pub(crate) underscore: bool,
    pub(crate) name_len: usize,
    pub(crate) value_start: usize,
    pub(crate) value_len: usize,
    /// The position after the CRLF.
    pub(crate) end: usize,
}

pub(crate) enum Line {
    Field(FieldLine),
    /// The empty line, with the position after it.
    End(usize),
    Incomplete,
}

/// Parses the field line at `at`, or the empty line. Returns as soon as the bytes decide the result.
#[inline(always)]
pub(crate) fn field_line(input: &[u8], at: usize) -> Result<Line, LineError> {
    let known = known_name(input.get(at..).unwrap_or_default());
    let name_end = match known {
        // A known name consists of token characters, so it need not be checked.
        Some((_, length)) => at + length,
        None => token_end(input, at),
    };
    match input.get(name_end) {
        None => return Ok(Line::Incomplete),
        Some(b':') if name_end > at => {}
        Some(b'\r') if name_end == at => {
            return match input.get(at + 1) {
                None => Ok(Line::Incomplete),
                Some(b'\n') => Ok(Line::End(at + 2)),
                Some(_) => Err(LineError::BareCr),
            };
        }
        Some(b' ' | b'\t') if name_end == at => return Err(LineError::ObsFold),
        Some(b'\n') => return Err(LineError::BareLf),
        Some(_) => return Err(LineError::BadFieldName),
    }
    let value_from = name_end + 1;
    let value_end = value_end(input, value_from);
    match (input.get(value_end), input.get(value_end + 1)) {
        (None, _) | (Some(b'\r'), None) => return Ok(Line::Incomplete),
        (Some(b'\r'), Some(b'\n')) => {}
        (Some(b'\r'), _) => return Err(LineError::BareCr),
        (Some(b'\n'), _) => return Err(LineError::BareLf),
        _ => return Err(LineError::BadFieldValue),
    }
    let raw = input.get(value_from..value_end).unwrap_or_default();
    let (value_start, value_len) = match raw {
        // The usual case: one space before the value. A valid byte above the space is no blank, so nothing else is trimmed.
        [b' ', first, .., last] if *first > b' ' && *last > b' ' => (value_from + 1, raw.len() - 1),
        _ => {
            let left = trim_start(raw);
            (value_end - left.len(), trim_end(left).len())
        }
    };
    let name = || input.get(at..name_end).unwrap_or_default();
    let id = match known {
        Some((id, _)) => id,
        None => NameId::from_name(name()),
    };
    Ok(Line::Field(FieldLine {
        id,
        // No known name has a `_`.
        underscore: id == NameId::Unknown && has(name(), b'_'),
        name_len: name_end - at,
        value_start,
        value_len,
        end: value_end + 2,
    }))
}

/// The known name at the start of a line, and the position of its colon. `None` if there is no known name, or if the
/// line has too few bytes for this search.
#[inline]
fn known_name(line: &[u8]) -> Option<(NameId, usize)> {
    let text = line.first_chunk()?;
    let mut length = 0;
    for word in text.as_chunks::<8>().0 {
        let colons = equal(u64::from_le_bytes(*word), b':');
        if colons != 0 {
            length += colons.trailing_zeros() as usize / 8;
            return Some((NameId::from_text(text, length), length)).filter(|(id, _)| *id != NameId::Unknown);
        }
        length += 8;
    }
    None
}
