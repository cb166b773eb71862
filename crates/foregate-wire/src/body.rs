//! Finds the body data in a message's bytes (RFC 9112, 7).

use core::ops::Range;

use crate::chars::{is_token_byte, is_value_byte};
use crate::framing::BodyLength;
use crate::head::{HeadLimits, Line, LineError, field_line};
use crate::headers::HeaderList;
use crate::name_id::NameId;

/// The limit on chunk extensions and leading zeros of chunk sizes, in bytes over the whole body.
pub const MAX_CHUNK_OVERHEAD: u32 = 16 * 1024;
/// The most hexadecimal digits of a chunk size, leading zeros not counted.
const MAX_SIZE_DIGITS: u8 = 16;

/// The result of one call to [`BodyDecoder::decode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeProgress {
    /// The number of bytes at the start of the input that the caller may discard. `data` is among these bytes, so the
    /// caller has to use it first.
    pub consumed: usize,
    /// Where the body data is in the input. May be empty.
    pub data: Range<usize>,
    /// The body is complete; the rest of the input belongs to the next message.
    pub done: bool,
}

/// Why a body was refused. For a request, the proxy answers 400 and closes the connection; for a response, it ends the
/// body so that the client notices that it is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// A chunk size that is empty or holds anything but hexadecimal digits.
    #[error("a chunk size is not a hexadecimal number")]
    BadChunkSize,
    /// A chunk size of 2^63 or more.
    #[error("a chunk size is too large")]
    ChunkSizeOverflow,
    /// A chunk extension that does not follow RFC 9112, 7.1.1.
    #[error("a chunk extension is malformed")]
    BadExtension,
    /// A missing CRLF: a bare CR, a bare LF, or data beyond the chunk's size.
    #[error("a chunk or its size line does not end in CRLF")]
    MissingCrlf,
    /// More than [`MAX_CHUNK_OVERHEAD`] bytes of extensions and leading zeros.
    #[error("the chunk extensions and leading zeros of the body are beyond 16 KiB")]
    TooMuchOverhead,
    /// A trailer that is no valid field line.
    #[error("a trailer is not a valid header line")]
    BadTrailer,
    /// Trailers beyond the limits of a head.
    #[error("the trailers are larger than the limits of a head")]
    TrailersTooLarge,
    /// The input ended before the body did.
    #[error("the input ended before the body was complete")]
    UnexpectedEof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    /// The number of bytes that are left of a body of fixed length.
    Fixed(u64),
    UntilClose,
    /// Before the first digit of a chunk size.
    SizeStart,
    /// In a chunk size that has only had zeros so far.
    SizeZeros,
    Size(u64, u8),
    Extension(Extension, u64),
    /// After the CR of the size line.
    SizeLf(u64),
    /// The number of bytes that are left of the chunk, never 0.
    Data(u64),
    DataCr,
    DataLf,
    Trailers,
    /// An error was returned; nothing can follow.
    Failed(BodyError),
}

/// The decoder's position inside `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    BeforeSemicolon,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    QuotedEscape,
    AfterQuoted,
}

/// Decodes one body. The caller passes the unread bytes; the decoder says which of them are data.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of extensions and leading zeros so far.
    overhead: u32,
    limits: HeadLimits,
    /// The start of an incomplete trailer line at the end of earlier input.
    line: Vec<u8>,
    trailer_bytes: usize,
    trailer_fields: usize,
}

impl BodyDecoder {
    /// A decoder for a body of this length. `limits` apply to the trailers.
    pub fn new(length: BodyLength, limits: &HeadLimits) -> Self {
        let state = match length {
            BodyLength::Empty | BodyLength::Fixed(0) => State::Done,
            BodyLength::Fixed(length) => State::Fixed(length),
            BodyLength::Chunked => State::SizeStart,
            BodyLength::UntilClose | BodyLength::Tunnel => State::UntilClose,
        };
        Self { state, overhead: 0, limits: *limits, line: Vec::new(), trailer_bytes: 0, trailer_fields: 0 }
    }

    /// Returns true if the body is complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The number of bytes of data that are certain to follow: the rest of a body of fixed length, or of a chunk.
    pub fn known_rest(&self) -> u64 {
        match self.state {
            State::Fixed(left) | State::Data(left) => left,
            _ => 0,
        }
    }

    /// Returns the next run of body data in the unread bytes, and consumes the framing around it.
    ///
    /// Call it until `done` is set, or until it consumes nothing and so needs more input. Trailers are added to
    /// `trailers`, except fields for framing, routing or the connection (RFC 9110, 6.5.1).
    ///
    /// # Errors
    /// The first fault in the body. The connection cannot be used any more, and all later calls return the same fault.
    #[inline]
    pub fn decode(&mut self, input: &[u8], trailers: &mut HeaderList) -> Result<DecodeProgress, BodyError> {
        match &mut self.state {
            State::Done => Ok(DecodeProgress { consumed: 0, data: 0..0, done: true }),
            State::UntilClose => {
                Ok(DecodeProgress { consumed: input.len(), data: 0..input.len(), done: false })
            }
            State::Fixed(left) => {
                let taken = take(left, input.len());
                let done = *left == 0;
                if done {
                    self.state = State::Done;
                }
                Ok(DecodeProgress { consumed: taken, data: 0..taken, done })
            }
            State::Failed(error) => Err(*error),
            _ => self.decode_chunked(input, trailers).inspect_err(|&error| self.state = State::Failed(error)),
        }
    }

    /// Tells the decoder that the input has ended.
    ///
    /// # Errors
    /// [`BodyError::UnexpectedEof`] unless the body was complete or ends with the input.
    pub fn finish_eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(error) => Err(error),
            _ => Err(BodyError::UnexpectedEof),
        }
    }

    fn decode_chunked(
        &mut self,
        input: &[u8],
        trailers: &mut HeaderList,
    ) -> Result<DecodeProgress, BodyError> {
        let mut at = 0;
        let mut data = 0..0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                State::Data(mut left) => {
                    // A call returns one run of data. Another run begins here, after consumed framing; the next call
                    // returns it.
                    if !data.is_empty() {
                        break;
                    }
                    let taken = take(&mut left, input.len() - at);
                    data = at..at + taken;
                    at += taken;
                    self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                }
                State::Trailers => {
                    at += self.trailer_line(input.get(at..).unwrap_or_default(), trailers)?;
                    if self.state == State::Done {
                        break;
                    }
                }
                _ => {
                    self.framing_byte(byte)?;
                    at += 1;
                }
            }
        }
        Ok(DecodeProgress { consumed: at, data, done: self.state == State::Done })
    }

    /// Takes one byte of a size line or of the CRLF after a chunk.
    #[inline]
    fn framing_byte(&mut self, byte: u8) -> Result<(), BodyError> {
        self.state = match self.state {
            State::SizeStart | State::SizeZeros if byte == b'0' => {
                if self.state == State::SizeZeros {
                    self.count_overhead()?;
                }
                State::SizeZeros
            }
            State::SizeStart => State::Size(hex_digit(byte).ok_or(BodyError::BadChunkSize)?, 1),
            State::SizeZeros => match hex_digit(byte) {
                Some(digit) => {
                    self.count_overhead()?;
                    State::Size(digit, 1)
                }
                None => self.after_size(0, byte)?,
            },
            State::Size(size, digits) => match hex_digit(byte) {
                Some(_) if digits == MAX_SIZE_DIGITS || size > (i64::MAX as u64) >> 4 => {
                    return Err(BodyError::ChunkSizeOverflow);
                }
                Some(digit) => State::Size(size << 4 | digit, digits + 1),
                None => self.after_size(size, byte)?,
            },
            State::Extension(extension, size) => {
                if byte == b'\r' && extension.may_end() {
                    State::SizeLf(size)
                } else {
                    self.count_overhead()?;
                    State::Extension(extension.next(byte)?, size)
                }
            }
            State::SizeLf(size) => match (byte, size) {
                (b'\n', 0) => State::Trailers,
                (b'\n', size) => State::Data(size),
                _ => return Err(BodyError::MissingCrlf),
            },
            State::DataCr if byte == b'\r' => State::DataLf,
            State::DataLf if byte == b'\n' => State::SizeStart,
            State::DataCr | State::DataLf => return Err(BodyError::MissingCrlf),
            // The callers handle these states: they expect no framing bytes.
            State::Done | State::Fixed(_) | State::UntilClose | State::Data(_) | State::Trailers => {
                self.state
            }
            State::Failed(error) => return Err(error),
        };
        Ok(())
    }

    /// Takes the byte after the last digit of a chunk size.
    fn after_size(&mut self, size: u64, byte: u8) -> Result<State, BodyError> {
        match byte {
            b'\r' => Ok(State::SizeLf(size)),
            b'\n' => Err(BodyError::MissingCrlf),
            b';' | b' ' | b'\t' => {
                self.count_overhead()?;
                Ok(State::Extension(Extension::BeforeSemicolon.next(byte)?, size))
            }
            _ => Err(BodyError::BadChunkSize),
        }
    }

    fn count_overhead(&mut self) -> Result<(), BodyError> {
        self.overhead += 1;
        if self.overhead > MAX_CHUNK_OVERHEAD { Err(BodyError::TooMuchOverhead) } else { Ok(()) }
    }

    /// Takes input up to the end of the current trailer line and returns the number of bytes taken.
    fn trailer_line(&mut self, input: &[u8], trailers: &mut HeaderList) -> Result<usize, BodyError> {
        let newline = memchr::memchr(b'\n', input);
        let taken = newline.map_or(input.len(), |at| at + 1);
        let line_room = (self.limits.line.saturating_add(2)).saturating_sub(self.line.len());
        let room = line_room.min(self.limits.bytes.saturating_sub(self.trailer_bytes));
        if taken > room {
            // A fault in the bytes before the limit is reported first, so that the error does not depend on how the input is split.
            self.line.extend_from_slice(input.get(..room).unwrap_or(input));
            field_line(&self.line, 0).map_err(trailer_error)?;
            return Err(BodyError::TrailersTooLarge);
        }
        self.trailer_bytes += taken;
        let input = input.get(..taken).unwrap_or(input);
        if newline.is_none() {
            self.line.extend_from_slice(input);
            return Ok(taken);
        }
        let line = if self.line.is_empty() {
            input
        } else {
            self.line.extend_from_slice(input);
            &self.line
        };
        match field_line(line, 0).map_err(trailer_error)? {
            Line::Field(field) => {
                self.trailer_fields += 1;
                if self.trailer_fields > self.limits.fields {
                    return Err(BodyError::TrailersTooLarge);
                }
                let name = line.get(..field.name_len).unwrap_or_default();
                let value = line.get(field.value_start..).and_then(|value| value.get(..field.value_len));
                let value = value.unwrap_or_default();
                if may_be_trailer(field.id) {
                    trailers.push(name, value);
                }
            }
            Line::End(_) => self.state = State::Done,
            Line::Incomplete => return Err(BodyError::BadTrailer),
        }
        self.line.clear();
        Ok(taken)
    }
}

impl Extension {
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::AfterQuoted)
    }

    fn next(self, byte: u8) -> Result<Self, BodyError> {
        let blank = byte == b' ' || byte == b'\t';
        let token = is_token_byte(byte);
        Ok(match self {
            Self::BeforeSemicolon if byte == b';' => Self::BeforeName,
            Self::BeforeSemicolon if blank => Self::BeforeSemicolon,
            Self::BeforeName if blank => Self::BeforeName,
            Self::BeforeName | Self::Name if token => Self::Name,
            Self::Name | Self::AfterName if byte == b'=' => Self::BeforeValue,
            Self::Name | Self::AfterName if byte == b';' => Self::BeforeName,
            Self::Name | Self::AfterName if blank => Self::AfterName,
            Self::BeforeValue if blank => Self::BeforeValue,
            Self::BeforeValue if byte == b'"' => Self::Quoted,
            Self::BeforeValue | Self::Value if token => Self::Value,
            Self::Value | Self::AfterQuoted if byte == b';' => Self::BeforeName,
            Self::Value | Self::AfterQuoted if blank => Self::BeforeSemicolon,
            Self::Quoted if byte == b'"' => Self::AfterQuoted,
            Self::Quoted if byte == b'\\' => Self::QuotedEscape,
            Self::Quoted | Self::QuotedEscape if is_value_byte(byte) => Self::Quoted,
            _ if byte == b'\n' => return Err(BodyError::MissingCrlf),
            _ => return Err(BodyError::BadExtension),
        })
    }
}

/// Takes at most `available` from the remaining length and returns the amount.
#[inline]
fn take(left: &mut u64, available: usize) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(available);
    *left -= taken as u64;
    taken
}

#[inline]
fn hex_digit(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}

fn trailer_error(error: LineError) -> BodyError {
    match error {
        LineError::LineTooLong | LineError::HeadTooLarge | LineError::TooManyFields => {
            BodyError::TrailersTooLarge
        }
        _ => BodyError::BadTrailer,
    }
}

/// Returns true if a field may be a trailer. Such a field does not affect framing, routing, authentication, caching,
/// the connection or the meaning of the request or response (RFC 9110, sections 6.5.1, 10.1 and 10.2).
pub fn may_be_trailer(id: NameId) -> bool {
    !matches!(
        id,
        NameId::Host
            | NameId::ContentLength
            | NameId::TransferEncoding
            | NameId::Connection
            | NameId::KeepAlive
            | NameId::ProxyConnection
            | NameId::Te
            | NameId::Trailer
            | NameId::Upgrade
            | NameId::Expect
            | NameId::Http2Settings
            | NameId::Cookie
            | NameId::SetCookie
            | NameId::Authorization
            | NameId::ProxyAuthorization
            | NameId::ProxyAuthenticate
            | NameId::WwwAuthenticate
            | NameId::Forwarded
            | NameId::XForwardedFor
            | NameId::XForwardedProto
            | NameId::XForwardedHost
            | NameId::XForwardedPort
            | NameId::XRealIp
            | NameId::Via
            | NameId::CacheControl
            | NameId::Pragma
            | NameId::Vary
            | NameId::Age
            | NameId::Expires
            | NameId::Date
            | NameId::Location
            | NameId::RetryAfter
            | NameId::IfMatch
            | NameId::IfNoneMatch
            | NameId::IfModifiedSince
            | NameId::IfUnmodifiedSince
            | NameId::IfRange
            | NameId::Range
            | NameId::ContentRange
            | NameId::ContentType
            | NameId::ContentEncoding
            | NameId::MaxForwards
    )
}
