//! The start of a connection over TLS.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::tls::{Acceptor, FinishedHandshake, HandshakeError};
use crate::transport::stream::Socket;

/// The text for a client without TLS: a TLS alert would be meaningless to its user.
const ADVICE: &str = "This port accepts HTTPS only: use https://\n";
/// The time limit for such a client to read the text and to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// Performs a handshake; a client that speaks HTTP without TLS gets a 400. The caller limits the
/// time. `local` is the address that the client has connected to.
///
/// # Errors
///
/// See [`HandshakeError`]; the client has got an alert or an answer as far as its protocol allows.
pub async fn accept(
    acceptor: &Acceptor,
    socket: Socket,
    local: Option<IpAddr>,
) -> Result<FinishedHandshake<Socket>, HandshakeError> {
    // Methods begin with a capital letter, records of TLS with a number below 32.
    if socket.next_byte().await?.is_some_and(|byte| byte.is_ascii_uppercase()) {
        // The handshake has failed, whether or not the client gets the text.
        let _ = timeout(FAREWELL, advise(socket)).await;
        return Err(HandshakeError::NotTls);
    }
    acceptor.accept(socket, local).await
}

async fn advise(mut socket: Socket) -> io::Result<()> {
    let length = ADVICE.len();
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length:";
    socket.write_all(format!("{head} {length}\r\n\r\n{ADVICE}").as_bytes()).await?;
    socket.shutdown().await?;
    // A close with unread input would destroy the response.
    while socket.read(&mut [0; 512]).await? > 0 {}
    Ok(())
}
