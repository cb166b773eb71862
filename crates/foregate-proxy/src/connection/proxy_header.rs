//! Reads the PROXY protocol header at the start of a connection.

use std::io;
use std::net::SocketAddr;

use foregate_wire::proxy_protocol::{self, MAX_V2_PAYLOAD, ProxyError, ProxyHeader};
use tokio::io::AsyncReadExt;

use crate::transport::stream::Socket;

/// The longest header, in bytes. At most little more is read ahead.
const LONGEST: usize = 16 + MAX_V2_PAYLOAD;

/// Why a header was refused.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The connection does not begin with a valid header.
    #[error("{0}")]
    Header(#[from] ProxyError),
    /// The connection failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Its time was up.
    #[error("it took too long")]
    Timeout,
}

impl HeaderError {
    /// A short fixed name, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Header(ProxyError::NoSignature) => "missing",
            Self::Header(ProxyError::BadLine | ProxyError::BadHeader) => "malformed",
            Self::Header(ProxyError::TooLong) => "too_long",
            Self::Io(_) => "io",
            Self::Timeout => "timeout",
        }
    }
}

/// Reads the header and returns its addresses: client and destination. `None` if the header refers to the addresses of
/// the socket.
///
/// # Errors
///
/// The connection failed, ended, or does not start with a header.
pub async fn read(socket: &mut Socket) -> Result<Option<(SocketAddr, SocketAddr)>, HeaderError> {
    let mut bytes = Vec::with_capacity(256);
    loop {
        if let Some((header, length)) = proxy_protocol::parse(&bytes)? {
            socket.unread(bytes.split_off(length));
            return Ok(match header {
                ProxyHeader::Local => None,
                ProxyHeader::Proxied { source, destination } => Some((source, destination)),
            });
        }
        if bytes.len() >= LONGEST || socket.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}
