//! Methods and versions.

use core::fmt;

use crate::chars::is_token;

/// The longest accepted method, in bytes. A request with a longer method is answered with 501.
pub const MAX_METHOD: usize = 24;

/// A request method (RFC 9110, 9). `Copy`, never allocates.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `PATCH`
    Patch,
    /// `TRACE`
    Trace,
    /// `CONNECT`
    Connect,
    /// Any other token of at most [`MAX_METHOD`] bytes. Case counts.
    Other(OtherMethod),
}

/// A method without a variant of its own. Made by [`Method::from_bytes`] only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OtherMethod {
    len: u8,
    bytes: [u8; MAX_METHOD],
}

impl Method {
    /// The method with this spelling; `None` when it is no token or longer than [`MAX_METHOD`].
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            other => {
                if other.len() > MAX_METHOD || !is_token(other) {
                    return None;
                }
                let mut inline = [0; MAX_METHOD];
                inline.get_mut(..other.len())?.copy_from_slice(other);
                Self::Other(OtherMethod { len: other.len() as u8, bytes: inline })
            }
        })
    }

    /// The method as it stands on the wire.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Get => b"GET",
            Self::Head => b"HEAD",
            Self::Post => b"POST",
            Self::Put => b"PUT",
            Self::Delete => b"DELETE",
            Self::Options => b"OPTIONS",
            Self::Patch => b"PATCH",
            Self::Trace => b"TRACE",
            Self::Connect => b"CONNECT",
            Self::Other(other) => other.bytes.get(..usize::from(other.len)).unwrap_or_default(),
        }
    }

    /// The method as text; tokens are ASCII.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Returns true if the method is idempotent: several equal requests have the effect of one (RFC 9110, 9.2.2).
    #[inline]
    pub fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }

    /// Returns true if requests with this method usually have a body. Such a request without a body should have
    /// `Content-Length: 0` (RFC 9110, 8.6).
    #[inline]
    pub fn has_body_usually(&self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }

    /// Returns true if the request only reads (RFC 9110, 9.2.1).
    #[inline]
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }
}

impl Default for Method {
    /// `GET`, for a head that has not been parsed yet.
    fn default() -> Self {
        Self::Get
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The protocol version of a message, ordered from old to new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// The version as logs write it: `HTTP/1.1`, `HTTP/2`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
