//! The one place that decides how long a message's body is (RFC 9112, 6.3).
//!
//! If a proxy and its origin disagree on the length, requests can be smuggled. So every ambiguity is refused.

use crate::chars::{is_token, trim};
use crate::head::{RequestHead, ResponseHead};
use crate::headers::HeaderList;
use crate::method::{Method, Version};
use crate::name_id::NameId;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    Empty,
    /// Exactly this many bytes; 0 differs from [`BodyLength::Empty`] when the length is forwarded.
    Fixed(u64),
    /// Chunked, possibly with trailers.
    Chunked,
    /// Everything until the origin closes. Responses only.
    UntilClose,
    /// The following bytes are not HTTP: a 2xx to CONNECT, or a 101.
    Tunnel,
}

impl BodyLength {
    /// Returns true if certainly no body byte follows.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::Empty | Self::Fixed(0))
    }
}

/// Why the length of a message cannot be trusted. A request is answered with 400 or 501 and its connection is closed;
/// for a response, the client gets a 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FramingError {
    /// The message has both Content-Length and Transfer-Encoding.
    #[error("the message has both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// A Content-Length that is no plain decimal number below 2^63.
    #[error("the value of Content-Length is not a plain decimal number below 2^63")]
    BadContentLength,
    /// Several Content-Length fields that differ.
    #[error("the message has several Content-Length fields with different values")]
    DifferentContentLengths,
    /// Transfer-Encoding is not exactly `chunked`, once.
    #[error("Transfer-Encoding is not exactly `chunked`, once")]
    BadTransferEncoding,
    /// Transfer-Encoding names a coding other than `chunked`.
    #[error("Transfer-Encoding names a coding other than `chunked`")]
    UnknownCoding,
    /// Transfer-Encoding in an HTTP/1.0 message.
    #[error("an HTTP/1.0 message has Transfer-Encoding")]
    TransferEncodingInHttp10,
}

impl FramingError {
    /// The status code to answer a request with.
    pub fn status(self) -> u16 {
        match self {
            Self::UnknownCoding => 501,
            _ => 400,
        }
    }
}

/// The length of a request's body.
///
/// # Errors
/// Anything ambiguous; the connection must be closed and nothing may reach the origin.
pub fn request_length(head: &RequestHead) -> Result<BodyLength, FramingError> {
    Ok(declared_length(&head.headers, head.version)?.unwrap_or(BodyLength::Empty))
}

/// The length of a response's body, which also depends on the request's method.
///
/// A 101 and a 2xx to CONNECT give [`BodyLength::Tunnel`]; a response to HEAD, other 1xx, 204 and 304 are empty
/// whatever their fields say.
///
/// # Errors
/// Anything ambiguous, even if the response has no body; the connection must not be used again.
pub fn response_length(request_method: &Method, head: &ResponseHead) -> Result<BodyLength, FramingError> {
    if *request_method == Method::Connect && (200..300).contains(&head.status) {
        // RFC 9110, 9.3.6: length fields of such a response are to be ignored.
        return Ok(BodyLength::Tunnel);
    }
    let declared = declared_length(&head.headers, head.version)?;
    Ok(match head.status {
        101 => BodyLength::Tunnel,
        100..200 | 204 | 304 => BodyLength::Empty,
        _ if *request_method == Method::Head => BodyLength::Empty,
        _ => declared.unwrap_or(BodyLength::UntilClose),
    })
}

/// The number in Content-Length, for uses other than framing (a response to HEAD).
///
/// # Errors
/// As [`request_length`].
pub fn content_length(headers: &HeaderList) -> Result<Option<u64>, FramingError> {
    let mut length = None;
    for value in headers.get_all(NameId::ContentLength) {
        let number = parse_length(value)?;
        if length.is_some_and(|first| first != number) {
            return Err(FramingError::DifferentContentLengths);
        }
        length = Some(number);
    }
    Ok(length)
}

/// Keeps one Content-Length if a message repeats it with the same value.
pub fn collapse_content_length(headers: &mut HeaderList) {
    if headers.count(NameId::ContentLength) > 1 {
        let mut found = false;
        headers.retain(|field| field.id != NameId::ContentLength || !core::mem::replace(&mut found, true));
    }
}

/// The body length that Content-Length or Transfer-Encoding states; `None` without these fields.
fn declared_length(headers: &HeaderList, version: Version) -> Result<Option<BodyLength>, FramingError> {
    if headers.contains(NameId::TransferEncoding) {
        if headers.contains(NameId::ContentLength) {
            return Err(FramingError::BothLengths);
        }
        if version < Version::Http11 {
            return Err(FramingError::TransferEncodingInHttp10);
        }
        check_chunked(headers)?;
        return Ok(Some(BodyLength::Chunked));
    }
    Ok(content_length(headers)?.map(BodyLength::Fixed))
}

/// Parses a Content-Length. Only digits are accepted: two readers could understand a sign, a blank or a list
/// differently.
fn parse_length(value: &[u8]) -> Result<u64, FramingError> {
    if value.is_empty() {
        return Err(FramingError::BadContentLength);
    }
    let mut number: u64 = 0;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return Err(FramingError::BadContentLength);
        }
        number = number
            .checked_mul(10)
            .and_then(|number| number.checked_add(u64::from(byte - b'0')))
            .filter(|&number| number <= i64::MAX as u64)
            .ok_or(FramingError::BadContentLength)?;
    }
    Ok(number)
}

/// Checks that all Transfer-Encoding fields together name `chunked` once and nothing else.
fn check_chunked(headers: &HeaderList) -> Result<(), FramingError> {
    let mut chunked = 0;
    let mut unknown = false;
    for value in headers.get_all(NameId::TransferEncoding) {
        for coding in value.split(|&byte| byte == b',') {
            let coding = trim(coding);
            if coding.eq_ignore_ascii_case(b"chunked") {
                chunked += 1;
            } else if is_token(coding) {
                unknown = true;
            } else {
                return Err(FramingError::BadTransferEncoding);
            }
        }
    }
    match (unknown, chunked) {
        (true, _) => Err(FramingError::UnknownCoding),
        (false, 1) => Ok(()),
        (false, _) => Err(FramingError::BadTransferEncoding),
    }
}
