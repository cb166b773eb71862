//! The outcomes of receiving from a peer, of sending to it, and of moving a body from one to the
//! other.

use std::io;

use foregate_wire::BodyError;

/// Why nothing more can be received from a peer, or sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(io::ErrorKind),
    /// The connection ended in the middle of a message.
    #[error("connection closed in mid-message")]
    Truncated,
    /// The body's framing is not HTTP.
    #[error("{0}")]
    Body(BodyError),
    /// The peer reset the HTTP/2 stream.
    #[error("stream reset: {0}")]
    Reset(h2::Reason),
    /// The body is longer or shorter than its head announced.
    #[error("body does not have its announced length")]
    Length,
    /// The peer exceeded a limit of its HTTP/2 connection, or broke the protocol.
    #[error("HTTP/2 connection failed")]
    H2,
    /// The temporary file in which the body waits could not be read.
    #[error("temporary file could not be read")]
    File,
    /// We have ended the HTTP/2 connection, through no fault of the peer.
    #[error("connection cut off")]
    CutOff,
}

impl LinkError {
    /// Returns true if the peer has left: it closed its connection, or reset its stream without an error.
    pub fn is_leaving(self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
        match self {
            Self::Io(kind) => {
                matches!(
                    kind,
                    BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
                )
            }
            Self::Reset(reason) => matches!(reason, h2::Reason::NO_ERROR | h2::Reason::CANCEL),
            Self::Truncated | Self::Body(_) | Self::Length | Self::H2 | Self::File | Self::CutOff => false,
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

impl From<BodyError> for LinkError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<h2::Error> for LinkError {
    fn from(error: h2::Error) -> Self {
        match (error.get_io(), error.reason()) {
            (Some(error), _) => Self::Io(error.kind()),
            (None, Some(reason)) => reason.into(),
            (None, None) => Self::H2,
        }
    }
}

impl From<h2::Reason> for LinkError {
    fn from(reason: h2::Reason) -> Self {
        Self::Reset(reason)
    }
}

/// The result of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// [`Link::data`](crate::link::Link::data) has received some of the body.
    Data,
    /// The body is complete, and so are [`Link::trailers`](crate::link::Link::trailers).
    End,
}

/// Why moving a body from one peer to the other stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyError {
    /// Receiving failed.
    Source(LinkError),
    /// Sending failed.
    Sink(LinkError),
    /// The body exceeds the route's limit.
    TooLarge,
    /// A filter failed. The value is the name of its step.
    Filter(&'static str),
    /// A filter panicked. The value is the name of its step.
    Panicked(&'static str),
    /// Filters need more memory than there is.
    Memory,
    /// The file that holds the start of the body could not be read.
    File,
    /// The served file, which is the whole body, could not be read.
    Document,
}
