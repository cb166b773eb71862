//! The lines of a head. Each function looks at the line that begins at `at`, reads from left to right, and answers as
//! soon as the bytes decide.

use super::error::{LineError, RequestError, ResponseError};
use super::{RequestHead, ResponseHead};
use crate::chars::{token_end, trim_end, trim_start, value_end, word_end};
use crate::method::{Method, Version};

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
    head.version = match &input[version_start..version_end] {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        other if is_http_version(other) => return Err(RequestError::UnsupportedVersion),
        _ => return Err(RequestError::BadRequestLine),
    };
    head.method = Method::from_bytes(&input[at..method_end]).ok_or(RequestError::UnsupportedMethod)?;
    head.target.extend_from_slice(&input[target_start..target_end]);
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
    let line = &input[at..end];
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
    pub(crate) name_len: usize,
    pub(crate) value_start: usize,
    pub(crate) value_len: usize,
    /// After the CRLF.
    pub(crate) end: usize,
}

pub(crate) enum Line {
    Field(FieldLine),
    /// The empty line; where the next byte is.
    End(usize),
    Incomplete,
}

/// Looks at the line at `at`. Reads from left to right and answers as soon as the bytes decide.
#[inline]
pub(crate) fn field_line(input: &[u8], at: usize) -> Result<Line, LineError> {
    let name_end = token_end(input, at);
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
    let raw = &input[value_from..value_end];
    let left = trim_start(raw);
    let value = trim_end(left);
    let value_start = value_end - left.len();
    Ok(Line::Field(FieldLine {
        name_len: name_end - at,
        value_start,
        value_len: value.len(),
        end: value_end + 2,
    }))
}
