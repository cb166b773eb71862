//! Reads the PROXY protocol header at the start of a connection.

use std::io;
use std::net::SocketAddr;

use foregate_wire::proxy_protocol::{self, MAX_V2_PAYLOAD, ProxyHeader};
use tokio::io::AsyncReadExt;

use crate::link::Socket;

/// The longest header, in bytes: what is read ahead never exceeds it by much.
const LONGEST: usize = 16 + MAX_V2_PAYLOAD;

/// The addresses that the header states: client and destination. `None` where it leaves them to the socket.
///
/// # Errors
///
/// The connection failed, ended, or does not start with a header.
pub async fn read(socket: &mut Socket) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
    let mut bytes = Vec::with_capacity(256);
    loop {
        if let Some((header, length)) = proxy_protocol::parse(&bytes).map_err(io::Error::other)? {
            socket.unread(bytes.split_off(length));
            return Ok(match header {
                ProxyHeader::Local => None,
                ProxyHeader::Proxied { source, destination } => Some((source, destination)),
            });
        }
        if bytes.len() >= LONGEST || socket.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
