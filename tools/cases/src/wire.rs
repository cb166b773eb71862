//! Connections of a script: TCP, Unix and TLS behind one type, read with a deadline into an inbox.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use crate::case::Goodbye;

/// How long one read waits before it looks at the clock and at the other scripts again.
const SLICE: Duration = Duration::from_millis(20);

/// How long a write may make no progress before it counts as stalled.
pub const STALL: Duration = Duration::from_millis(400);

/// How long a write may take that must not stall.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Bytes read at once.
const READ_SIZE: usize = 64 * 1024;

/// The size of a read on a slow connection, and the delay before it.
const SLOW_READ: usize = 4 * 1024;
const SLOW_PAUSE: Duration = Duration::from_millis(250);

/// How the peer ended its side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// An orderly end.
    Closed,
    /// An end of the connection that TLS was not told of.
    Untold,
    /// A reset or a TLS alert.
    Broken(String),
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// Further bytes are in the inbox.
    Bytes,
    /// The peer ended its side, earlier or now.
    End,
    /// The deadline passed.
    Timeout,
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Everything was taken.
    All,
    /// The peer stopped reading after so many bytes.
    Stalled(usize),
    /// The connection broke.
    Broken(String),
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// One connection.
pub struct Conn {
    socket: Socket,
    /// Input that no step has taken yet.
    pub inbox: Vec<u8>,
    /// How the peer ended, once it did.
    pub end: Option<End>,
    /// The protocol agreed on by ALPN.
    pub alpn: Option<String>,
    /// The certificate that the peer showed.
    pub certificate: Option<Vec<u8>>,
    /// It reads little at a time, and seldom.
    pub slow: bool,
    /// Set when the case is over: waiting stops.
    stop: Arc<AtomicBool>,
}

impl Conn {
    /// A TCP connection.
    ///
    /// # Errors
    ///
    /// When the socket's options cannot be set.
    pub fn tcp(stream: TcpStream, stop: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        Self::new(Socket::Tcp(stream), stop)
    }

    /// A connection over a Unix socket.
    ///
    /// # Errors
    ///
    /// As for [`Conn::tcp`].
    pub fn unix(stream: UnixStream, stop: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Self::new(Socket::Unix(stream), stop)
    }

    /// The client's side of a TLS connection, after its handshake.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    pub fn tls_client(
        stream: TcpStream,
        mut tls: ClientConnection,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut stream = stream;
        stream.set_read_timeout(Some(crate::words::DEFAULT_WITHIN))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        let alpn = tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        let certificate = tls.peer_certificates().and_then(|list| list.first()).map(|first| first.to_vec());
        let mut conn = Self::new(Socket::Client(Box::new(StreamOwned::new(tls, stream))), stop)?;
        (conn.alpn, conn.certificate) = (alpn, certificate);
        Ok(conn)
    }

    /// This accepted TCP connection as the server's side of TLS, after its handshake.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    pub fn into_tls_server(self, mut tls: ServerConnection) -> io::Result<Self> {
        let Self { socket: Socket::Tcp(mut stream), stop, .. } = self else {
            return Err(io::Error::other("TLS needs TCP"));
        };
        stream.set_read_timeout(Some(crate::words::DEFAULT_WITHIN))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        let alpn = tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        let certificate = tls.peer_certificates().and_then(|list| list.first()).map(|first| first.to_vec());
        let mut conn = Self::new(Socket::Server(Box::new(StreamOwned::new(tls, stream))), stop)?;
        (conn.alpn, conn.certificate) = (alpn, certificate);
        Ok(conn)
    }

    fn new(socket: Socket, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let conn =
            Self { socket, inbox: Vec::new(), end: None, alpn: None, certificate: None, slow: false, stop };
        conn.set_timeouts(SLICE, STALL)?;
        Ok(conn)
    }

    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        if let Socket::Unix(stream) = &self.socket {
            stream.set_read_timeout(Some(read))?;
            return stream.set_write_timeout(Some(write));
        }
        let Some(stream) = self.tcp_stream() else {
            return Ok(());
        };
        stream.set_read_timeout(Some(read))?;
        stream.set_write_timeout(Some(write))
    }

    fn tcp_stream(&self) -> Option<&TcpStream> {
        match &self.socket {
            Socket::Tcp(stream) => Some(stream),
            Socket::Client(tls) => Some(&tls.sock),
            Socket::Server(tls) => Some(&tls.sock),
            Socket::Unix(_) => None,
        }
    }

    /// Returns true if the case is over.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for further bytes until `deadline`.
    pub fn fill(&mut self, deadline: Instant) -> Got {
        if self.end.is_some() {
            return Got::End;
        }
        if self.slow {
            std::thread::sleep(SLOW_PAUSE);
        }
        let mut buffer = vec![0; if self.slow { SLOW_READ } else { READ_SIZE }];
        loop {
            let result = match &mut self.socket {
                Socket::Tcp(stream) => stream.read(&mut buffer),
                Socket::Unix(stream) => stream.read(&mut buffer),
                Socket::Client(tls) => tls.read(&mut buffer),
                Socket::Server(tls) => tls.read(&mut buffer),
            };
            match result {
                Ok(0) => self.end = Some(End::Closed),
                Ok(length) => {
                    self.inbox.extend_from_slice(&buffer[..length]);
                    return Got::Bytes;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline || self.stopped() {
                        return Got::Timeout;
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // rustls reports an end without close_notify so.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.end = Some(End::Untold),
                Err(error) => self.end = Some(End::Broken(error.to_string())),
            }
            return Got::End;
        }
    }

    /// Writes all of `bytes`, unless the peer stops reading for [`STALL`] (when `may_stall`) or ten seconds.
    pub fn write(&mut self, bytes: &[u8], may_stall: bool) -> Wrote {
        let start = Instant::now();
        let mut done = 0;
        while done < bytes.len() {
            let piece = &bytes[done..];
            let result = match &mut self.socket {
                Socket::Tcp(stream) => stream.write(piece),
                Socket::Unix(stream) => stream.write(piece),
                Socket::Client(tls) => tls.write(piece).and_then(|length| tls.flush().map(|()| length)),
                Socket::Server(tls) => tls.write(piece).and_then(|length| tls.flush().map(|()| length)),
            };
            match result {
                Ok(length) => done += length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if may_stall || self.stopped() || start.elapsed() > WRITE_LIMIT {
                        return Wrote::Stalled(done);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Wrote::Broken(error.to_string()),
            }
        }
        Wrote::All
    }

    /// Ends the sending side.
    pub fn shutdown(&mut self, goodbye: Goodbye) {
        if goodbye == Goodbye::Unsaid {
            return drop(self.tcp_stream().map(|stream| stream.shutdown(Shutdown::Write)));
        }
        match &mut self.socket {
            Socket::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            Socket::Unix(stream) => drop(stream.shutdown(Shutdown::Write)),
            Socket::Client(tls) => {
                tls.conn.send_close_notify();
                drop(tls.flush());
            }
            Socket::Server(tls) => {
                tls.conn.send_close_notify();
                drop(tls.flush());
            }
        }
    }

    /// Closes in an orderly way.
    pub fn close(mut self) {
        if matches!(self.socket, Socket::Client(_) | Socket::Server(_)) {
            self.shutdown(Goodbye::Said);
        }
    }

    /// Resets the connection. A Unix socket has no reset, it closes.
    pub fn reset(self) {
        if let Some(stream) = self.tcp_stream() {
            drop(socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)));
        }
    }
}
