//! Why heads are refused.

#[cfg(doc)]
use super::HeadLimits;

/// The reason for refusing a request head. The connection must end, because the start of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestError {
    /// Not `METHOD SP target SP HTTP/x.y CRLF` with single spaces. 400.
    #[error("the request line is not `METHOD target HTTP/1.1` with single spaces and a CRLF")]
    BadRequestLine,
    /// A version other than HTTP/1.0 and HTTP/1.1. 505.
    #[error("the request line names a version other than HTTP/1.0 and HTTP/1.1")]
    UnsupportedVersion,
    /// A method of more than [`MAX_METHOD`](crate::MAX_METHOD) bytes. 501.
    #[error("the method is longer than any that is known")]
    UnsupportedMethod,
    /// The request line is beyond [`HeadLimits::line`]. 414.
    #[error("the request line is longer than the limit for one line; shorten the URL or raise the limit")]
    TargetTooLong,
    /// A field line is beyond [`HeadLimits::line`]. 431.
    #[error(
        "a header line is longer than the limit for one line; look for an oversized cookie, or raise the limit"
    )]
    LineTooLong,
    /// The head is beyond [`HeadLimits::bytes`]. 431.
    #[error("the request head is larger than the limit; look for oversized cookies, or raise the limit")]
    HeadTooLarge,
    /// More fields than [`HeadLimits::fields`]. 431.
    #[error("the request has more header fields than the limit")]
    TooManyFields,
    /// An empty or non-token field name, a blank before the colon, or a line without a colon. 400.
    #[error("a header line has no valid field name directly before its colon")]
    BadFieldName,
    /// A control byte in a field value. 400.
    #[error("a field value holds a control byte")]
    BadFieldValue,
    /// A line that begins with a blank: obsolete line folding (RFC 9112, 5.2). 400.
    #[error("a header line begins with a blank (obsolete line folding)")]
    ObsFold,
    /// A CR without an LF after it. 400.
    #[error("a CR is not followed by an LF")]
    BareCr,
    /// An LF without a CR before it. 400.
    #[error("an LF is not preceded by a CR")]
    BareLf,
}

impl RequestError {
    /// The status code to answer with.
    pub fn status(self) -> u16 {
        match self {
            Self::UnsupportedVersion => 505,
            Self::UnsupportedMethod => 501,
            Self::TargetTooLong => 414,
            Self::LineTooLong | Self::HeadTooLarge | Self::TooManyFields => 431,
            _ => 400,
        }
    }
}

/// Why a response head was refused. The client gets a 502 and the connection to the origin is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ResponseError {
    /// Not `HTTP/x.y SP 3DIGIT [SP reason] CRLF` with a status of 100 to 999.
    #[error(
        "the origin's status line is not `HTTP/1.1 STATUS reason` with a status of 100 to 999 and a CRLF"
    )]
    BadStatusLine,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    #[error("the origin's status line names a version other than HTTP/1.0 and HTTP/1.1")]
    UnsupportedVersion,
    /// A line is beyond [`HeadLimits::line`].
    #[error("a line of the origin's response head is longer than the limit for one line")]
    LineTooLong,
    /// The head is beyond [`HeadLimits::bytes`].
    #[error("the origin's response head is larger than the limit")]
    HeadTooLarge,
    /// More fields than [`HeadLimits::fields`].
    #[error("the origin's response has more header fields than the limit")]
    TooManyFields,
    /// An empty or non-token field name, a blank before the colon, or a line without a colon.
    #[error("a header line of the origin's response has no valid field name directly before its colon")]
    BadFieldName,
    /// A control byte in a field value.
    #[error("a field value of the origin's response holds a control byte")]
    BadFieldValue,
    /// A line that begins with a blank: obsolete line folding.
    #[error("a header line of the origin's response begins with a blank (obsolete line folding)")]
    ObsFold,
    /// A CR without an LF after it.
    #[error("a CR in the origin's response head is not followed by an LF")]
    BareCr,
    /// An LF without a CR before it.
    #[error("an LF in the origin's response head is not preceded by a CR")]
    BareLf,
}

/// An error in a field line of a head or of trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineError {
    LineTooLong,
    HeadTooLarge,
    TooManyFields,
    BadFieldName,
    BadFieldValue,
    ObsFold,
    BareCr,
    BareLf,
}

macro_rules! from_line_error {
    ($target:ty) => {
        impl From<LineError> for $target {
            fn from(error: LineError) -> Self {
                match error {
                    LineError::LineTooLong => Self::LineTooLong,
                    LineError::HeadTooLarge => Self::HeadTooLarge,
                    LineError::TooManyFields => Self::TooManyFields,
                    LineError::BadFieldName => Self::BadFieldName,
                    LineError::BadFieldValue => Self::BadFieldValue,
                    LineError::ObsFold => Self::ObsFold,
                    LineError::BareCr => Self::BareCr,
                    LineError::BareLf => Self::BareLf,
                }
            }
        }
    };
}

from_line_error!(RequestError);
from_line_error!(ResponseError);
