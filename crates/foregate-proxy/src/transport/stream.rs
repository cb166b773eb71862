//! A connection's byte stream: a socket, plain or under TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::socket::FromKernel;
pub use super::socket::{IdleState, Socket};
use crate::tls;

/// The number of reads of TLS records without application data after which an idle connection is given
/// up.
const RECORDS_AT_ONCE: usize = 8;

/// A socket, plain or under TLS.
#[derive(Debug)]
pub enum Stream {
    /// Cleartext.
    Plain(Socket),
    /// TLS with a client.
    TlsServer(Box<tls::ServerStream<Socket>>),
    /// TLS with an origin.
    TlsClient(Box<tls::OriginTlsStream<Socket>>),
}

/// Expands an expression for each kind of stream.
macro_rules! each {
    ($self:expr, $stream:ident => $body:expr) => {
        match $self {
            Stream::Plain($stream) => $body,
            Stream::TlsServer($stream) => $body,
            Stream::TlsClient($stream) => $body,
        }
    };
}

impl Stream {
    /// The socket below TLS.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::TlsServer(stream) => stream.get_ref().0,
            Self::TlsClient(stream) => stream.get_ref().0,
        }
    }

    /// Returns true if it uses TLS.
    pub fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Returns true if it is TLS with a client.
    pub fn is_tls_server(&self) -> bool {
        matches!(self, Self::TlsServer(_))
    }

    /// Waits until there may be something to read. It does not read, so there may be nothing after all.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::TlsServer(_) | Self::TlsClient(_) => Poll::Ready(Ok(())),
        }
    }

    /// Reads once and appends to `bytes`, which has room. `Some(0)` is the end of the stream; after
    /// `None`, ask [`Self::poll_readable`] again.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<io::Result<Option<usize>>> {
        let read = match self {
            Self::Plain(socket) if !socket.has_ahead() => return Poll::Ready(socket.receive(bytes)),
            Self::Plain(socket) => poll_read_buf(Pin::new(socket), cx, bytes),
            Self::TlsServer(stream) => poll_read_buf(Pin::new(stream), cx, bytes),
            Self::TlsClient(stream) => poll_read_buf(Pin::new(stream), cx, bytes),
        };
        read.map_ok(Some)
    }

    /// The reason why an origin has refused a TLS handshake that was complete on our side; `None` unless
    /// a read has failed because of the refusal.
    pub fn refusal(&mut self) -> Option<tls::Refusal> {
        match self {
            Self::TlsClient(stream) => tls::Refusal::of_stream(stream),
            _ => None,
        }
    }

    /// Returns true if decrypted bytes of an origin are unread, because it sent more than the caller's
    /// buffer could hold.
    pub fn holds_back(&mut self) -> bool {
        let Self::TlsClient(stream) = self else { return false };
        let session = stream.get_mut().1;
        // `wants_read` alone does not show this: it is also false after a close_notify from the peer.
        !session.wants_read()
            && session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// The state of an idle connection to an origin, according to the kernel. TLS records without
    /// application data, such as tickets, are read and ignored, because they belong to no response.
    pub fn look_now(&mut self) -> IdleState {
        let Self::TlsClient(stream) = self else { return self.socket().look_now() };
        let (socket, session) = stream.get_mut();
        for _ in 0..RECORDS_AT_ONCE {
            match session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return IdleState::Excess,
                Ok(state) if !state.peer_has_closed() => {}
                Ok(_) | Err(_) => return IdleState::Ended,
            }
            match session.read_tls(&mut FromKernel(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return IdleState::Quiet,
                Ok(1..) => {}
                Ok(0) | Err(_) => return IdleState::Ended,
            }
        }
        // A peer could send records without data for ever.
        IdleState::Ended
    }

    /// Puts bytes back before the unread ones. A TLS stream never has bytes to put back: ALPN tells its protocol before
    /// anything is read.
    pub fn read_again(mut self, bytes: Vec<u8>) -> Self {
        if let Self::Plain(socket) = &mut self {
            socket.unread(bytes);
        }
        self
    }

    /// The bytes that the system has accepted so far.
    pub fn sent(&self) -> u64 {
        self.socket().sent()
    }

    /// Returns true if the system has sent everything that it has accepted. If the connection is closed
    /// before that, while the peer still sends something (such as window updates), the unsent part is lost.
    pub fn is_sent(&self) -> bool {
        self.socket().is_sent()
    }

    /// Accounts the unsent data in TLS, after a write of `taken` bytes.
    fn note_held<T>(&mut self, taken: usize, result: T) -> T {
        let (socket, holds) = match self {
            Self::Plain(_) => return result,
            Self::TlsServer(stream) => {
                let (socket, session) = stream.get_mut();
                (socket, session.wants_write())
            }
            Self::TlsClient(stream) => {
                let (socket, session) = stream.get_mut();
                (socket, session.wants_write())
            }
        };
        socket.count_held(taken, holds);
        result
    }

    /// Makes closing the connection send a reset (RST). The peer then cannot mistake a part of a message
    /// for the whole, and the system does not keep the port for a minute. Unsent data is lost.
    pub fn reset_on_close(&self) {
        self.socket().set_reset(true);
    }

    /// Reverts [`Self::reset_on_close`].
    pub fn close_in_order(&self) {
        self.socket().set_reset(false);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = each!(&mut *this, stream => Pin::new(stream).poll_write(cx, data));
        this.note_held(taken(&written), written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = each!(&mut *this, stream => Pin::new(stream).poll_write_vectored(cx, data));
        this.note_held(taken(&written), written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = each!(&mut *this, stream => Pin::new(stream).poll_flush(cx));
        this.note_held(0, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

fn taken(written: &Poll<io::Result<usize>>) -> usize {
    match written {
        Poll::Ready(Ok(bytes)) => *bytes,
        _ => 0,
    }
}

/// Writes `first` and then `second`, in one system call if possible. Returns how much of both was taken.
pub fn poll_write_both(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    first: &[u8],
    second: &[u8],
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    let written = if first.is_empty() {
        ready!(stream.poll_write(cx, second))?
    } else if second.is_empty() {
        ready!(stream.poll_write(cx, first))?
    } else {
        ready!(stream.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)]))?
    };
    match written {
        0 if !(first.is_empty() && second.is_empty()) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        written => Poll::Ready(Ok(written)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;

    /// A connection to a peer that writes and closes without the event loop.
    fn idle() -> (Stream, std::os::unix::net::UnixStream) {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Stream::Plain(UnixStream::from_std(near).unwrap().into()), far)
    }

    #[tokio::test]
    async fn the_kernel_knows_of_bytes_before_the_event_loop_does() {
        use std::io::Write as _;
        let (mut stream, mut peer) = idle();
        assert_eq!(stream.look_now(), IdleState::Quiet);
        peer.write_all(b"late").unwrap();
        assert_eq!(stream.socket().look(), IdleState::Quiet, "the event loop has not turned");
        assert_eq!(stream.look_now(), IdleState::Excess);
        let (mut stream, peer) = idle();
        drop(peer);
        assert_eq!(stream.socket().look(), IdleState::Quiet);
        assert_eq!(stream.look_now(), IdleState::Ended);
    }

    #[tokio::test]
    async fn records_of_tls_are_looked_at_as_the_kernel_has_them() {
        async fn idle() -> (Stream, tls::ServerStream<Socket>) {
            let (near, far) = UnixStream::pair().unwrap();
            let (near, far) = tls::tests::to_origin(near.into(), Socket::from(far)).await;
            (Stream::TlsClient(Box::new(near)), far)
        }
        let (mut stream, mut peer) = idle().await;
        assert_eq!(stream.look_now(), IdleState::Quiet, "the tickets are no excess");
        assert_eq!(stream.socket().look_now(), IdleState::Quiet, "they were read");
        peer.write_all(b"late").await.unwrap();
        peer.flush().await.unwrap();
        assert_eq!(stream.look_now(), IdleState::Excess);
        assert_eq!(stream.look_now(), IdleState::Excess);
        let (mut stream, mut peer) = idle().await;
        peer.shutdown().await.unwrap();
        assert_eq!(stream.look_now(), IdleState::Ended, "close_notify");
        let (mut stream, peer) = idle().await;
        drop(peer);
        assert_eq!(stream.look_now(), IdleState::Ended, "no close_notify");
    }
}
