//! Sends requests as they are written, each on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit of an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take once the client has said that nothing more comes.
const LATE: Duration = Duration::from_secs(2);

/// The result of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TestAnswer {
    /// The client's port, by which lines of the log are told apart.
    pub(super) port: u16,
    /// The status; `None` where no answer came.
    pub(super) status: Option<u16>,
}

/// Sends a request and reads the whole answer. Gives the connection as well: as long as it is kept, its port is nobody
/// else's.
///
/// # Errors
///
/// There is no connection.
pub(super) fn ask(address: SocketAddr, request: &[u8]) -> io::Result<(TestAnswer, TcpStream)> {
    let mut stream = TcpStream::connect(address)?;
    let port = stream.local_addr()?.port();
    // A proxy that has seen enough may have answered and closed.
    let _ = stream.write_all(request);
    stream.set_read_timeout(Some(ANSWER))?;
    let mut answer = Vec::new();
    let mut late = false;
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                answer.extend_from_slice(&buffer[..count]);
                if is_whole(&answer) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) && !late =>
            {
                // Most likely it still waits for a body that was announced and does not come.
                late = true;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(LATE))?;
            }
            Err(_) => break,
        }
    }
    let status = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    Ok((TestAnswer { port, status }, stream))
}

/// Returns true if a response with a stated length is complete.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.starts_with("HTTP/1.1 1") {
        return false;
    }
    let head = head.to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => body.len() >= length,
        None => head.contains("transfer-encoding: chunked") && body.ends_with("0\r\n\r\n"),
    }
}
