//! Agreement on a protocol in the handshake.

/// The protocol that the handshake agreed on (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `http/1.1`, `http/1.0`, or nothing.
    Http1,
    /// `h2`.
    Http2,
}

impl Alpn {
    pub(super) fn agreed(protocol: Option<&[u8]>) -> Self {
        if protocol == Some(b"h2") { Self::Http2 } else { Self::Http1 }
    }
}
