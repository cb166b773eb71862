//! A connected TCP or Unix socket, with its options.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::poll_proceed;

use crate::limits::descriptors;
use crate::limits::pressure::Charge;

/// The most unsent bytes that the kernel buffers for a peer. By default it buffers up to 4 MiB for each
/// peer that reads slowly (`net.ipv4.tcp_wmem`). About 500 such peers exhaust the memory for sockets,
/// and all connections of the machine are reset.
const UNSENT: u32 = 128 << 10;
/// The largest amount of unsent data in TLS, bytes: the limit of `rustls`.
const HELD: usize = 64 << 10;

/// The congestion control for peers on this machine. Every kernel has and permits this one. Between
/// processes of one machine there is no congestion to control, while BBR, for example, which paces by
/// timers, takes two thirds more processor time for large bodies.
const NO_NETWORK: &[u8] = b"reno";

/// Sets up a TCP socket for a connection to `address`, or for listening there. Accepted sockets inherit its options.
///
/// # Errors
///
/// The system's error.
pub fn prepare(socket: &socket2::Socket, address: Option<SocketAddr>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // An error is ignored: systems that lack the option work without it.
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    if address.is_some_and(|address| address.ip().to_canonical().is_loopback()) {
        let _ = socket.set_tcp_congestion(NO_NETWORK);
    }
    Ok(())
}

/// Sets whether closing the socket resets the connection.
///
/// # Errors
///
/// The system's error.
pub fn set_reset(socket: &socket2::Socket, resets: bool) -> io::Result<()> {
    socket.set_linger(resets.then_some(std::time::Duration::ZERO))
}

/// The state of an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleState {
    /// No input has arrived.
    Quiet,
    /// The peer has sent bytes that belong to no message.
    Excess,
    /// The peer has ended the connection, or it has failed.
    Ended,
}

/// A connected socket, with bytes that were read before the current reader took over.
#[derive(Debug)]
pub struct Socket {
    kind: SocketKind,
    ahead: Option<Box<Ahead>>,
    /// The bytes that the system has accepted.
    sent: u64,
    /// The unsent data in TLS.
    held: Charge,
    _descriptor: Option<descriptors::DescriptorPlace>,
}

#[derive(Debug)]
enum SocketKind {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A client that exists only in memory, for a request that is replayed without effects.
    Memory,
}

#[derive(Debug)]
struct Ahead {
    bytes: Vec<u8>,
    start: usize,
}

/// Expands one expression for each kind of socket, and another expression for a client in memory.
macro_rules! each_kind {
    ($kind:expr, $stream:ident => $body:expr, memory => $memory:expr) => {
        match $kind {
            SocketKind::Tcp($stream) => $body,
            SocketKind::Unix($stream) => $body,
            SocketKind::Memory => $memory,
        }
    };
}

/// Takes a socket that is already open. Its descriptor is counted, even if that exceeds the limit.
impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::tcp(stream, descriptors::DescriptorPlace::new())
    }
}

/// A Unix socket.
impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self::unix(stream, descriptors::DescriptorPlace::new())
    }
}

impl Socket {
    /// A socket with a place for its descriptor.
    pub fn tcp(stream: TcpStream, place: descriptors::DescriptorPlace) -> Self {
        Self::new(SocketKind::Tcp(stream), Some(place))
    }

    /// A Unix socket with a place for its descriptor.
    pub fn unix(stream: UnixStream, place: descriptors::DescriptorPlace) -> Self {
        Self::new(SocketKind::Unix(stream), Some(place))
    }

    /// The socket of a client that exists in memory alone. The client has sent these bytes, reads all output, and never disconnects.
    pub fn memory(sent: Vec<u8>) -> Self {
        let mut socket = Self::new(SocketKind::Memory, None);
        socket.unread(sent);
        socket
    }

    /// The descriptor. `None` for a client in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        each_kind!(&self.kind, stream => Some(stream.as_fd()), memory => None)
    }

    fn new(kind: SocketKind, place: Option<descriptors::DescriptorPlace>) -> Self {
        Self { kind, ahead: None, sent: 0, held: Charge::new(), _descriptor: place }
    }

    /// Counts written bytes, and returns the result.
    fn count_sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.sent += *bytes as u64;
        }
        written
    }

    /// Accounts the memory of data that TLS has accepted but not sent. `taken` is the number of newly accepted bytes.
    /// `holds` is false once all is sent.
    pub(super) fn count_held(&mut self, taken: usize, holds: bool) {
        self.held.set(if holds { HELD.min(self.held.bytes() + taken) } else { 0 });
    }

    /// The bytes that the system has accepted so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns true if bytes that were read ahead wait for the reader.
    pub(super) fn has_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Returns true if the system has sent everything that it has accepted.
    pub(super) fn is_sent(&self) -> bool {
        let SocketKind::Tcp(stream) = &self.kind else { return true };
        let socket = socket2::SockRef::from(stream);
        // With this value of the option, the socket is writable only if it has nothing left to send.
        if socket.set_tcp_notsent_lowat(1).is_err() {
            return true;
        }
        let asked = &mut [PollFd::new(stream, PollFlags::OUT)];
        let writable = rustix::event::poll(asked, Some(&Timespec::default()));
        let _ = socket.set_tcp_notsent_lowat(UNSENT);
        writable != Ok(0)
    }

    /// Puts bytes back that were read already: the next read returns them first.
    pub fn unread(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.ahead = Some(Box::new(Ahead { bytes, start: 0 }));
        }
    }

    /// Our own address; `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.kind {
            SocketKind::Tcp(stream) => stream.local_addr().ok(),
            SocketKind::Unix(_) | SocketKind::Memory => None,
        }
    }

    /// The peer's address; `None` for a Unix socket, and if the peer has left.
    pub fn peer_address(&self) -> Option<std::net::IpAddr> {
        match &self.kind {
            SocketKind::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            SocketKind::Unix(_) | SocketKind::Memory => None,
        }
    }

    /// Reads without waiting.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.kind {
            SocketKind::Tcp(stream) => stream.try_read(buffer),
            SocketKind::Unix(stream) => stream.try_read(buffer),
            SocketKind::Memory => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits until there may be something to read.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_some() {
            return Poll::Ready(Ok(()));
        }
        each_kind!(&self.kind, stream => stream.poll_read_ready(cx), memory => Poll::Pending)
    }

    /// Waits for the next byte and leaves it unread; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    pub async fn next_byte(&self) -> io::Result<Option<u8>> {
        if let Some(ahead) = &self.ahead {
            return Ok(ahead.bytes.get(ahead.start).copied());
        }
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (count, _) = each_kind!(&self.kind, stream => stream
            .async_io(Interest::READABLE, || Ok(recv(stream, &mut byte, flags)?))
            .await, memory => std::future::pending().await)?;
        Ok(byte.first().copied().filter(|_| count > 0))
    }

    pub(super) fn set_reset(&self, resets: bool) {
        if let SocketKind::Tcp(stream) = &self.kind {
            // A failure means that the connection is gone, and then it needs no reset.
            let _ = set_reset(&socket2::SockRef::from(stream), resets);
        }
    }

    /// Returns true if the event loop knows that the peer has closed its side, or that the connection has
    /// failed. There may still be bytes to read.
    pub fn has_ended(&self, cx: &mut Context<'_>) -> bool {
        let ready = each_kind!(&self.kind, stream => pin!(stream.ready(Interest::READABLE)).poll(cx), memory => Poll::Pending);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Waits until the connection has failed. It reads nothing, so earlier bytes may still be unread.
    pub async fn failed(&self) {
        // An error of the wait itself also means that the connection has failed.
        let _ = each_kind!(&self.kind, stream => stream.ready(Interest::ERROR).await, memory => std::future::pending().await);
    }

    /// Reads once and appends to `bytes`, which has room. `Some(0)` is the end of the stream; `None` means
    /// that nothing can be read now.
    ///
    /// It calls the system directly. The C library's functions are points of thread cancellation, which
    /// costs time on each call in a process with several threads.
    pub(super) fn receive(&self, bytes: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let room = bytes.capacity() - bytes.len();
        let mut received = None;
        let result = each_kind!(&self.kind, stream => stream.try_io(Interest::READABLE, || {
            let (count, _) = recv(stream, spare_capacity(bytes), RecvFlags::DONTWAIT)?;
            received = Some(count);
            // A read that does not fill the room has taken all there was. `WouldBlock` makes the event
            // loop wait for the next bytes, which saves a read that would find nothing.
            if count > 0 && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }), memory => Ok(()));
        match (received, result) {
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            (received, _) => Ok(received),
        }
    }

    /// Sends without waiting.
    fn try_send(&self, data: &[u8], flags: SendFlags) -> io::Result<usize> {
        each_kind!(&self.kind, stream => stream.try_io(Interest::WRITABLE, || {
            Ok(send(stream, data, flags | SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
        }), memory => Ok(data.len()))
    }

    /// Sends as soon as the socket has room. Usually it has, so trying first costs less than asking the
    /// event loop.
    fn poll_send_by(
        &mut self,
        cx: &mut Context<'_>,
        mut try_send: impl FnMut(&Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(poll_proceed(cx));
        let mut sent = try_send(self);
        while sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            ready!(
                each_kind!(&self.kind, stream => stream.poll_write_ready(cx), memory => Poll::Ready(Ok(())))
            )?;
            sent = try_send(self);
        }
        budget.made_progress();
        self.count_sent(Poll::Ready(sent))
    }

    /// Writes bytes, and tells the kernel that more bytes follow at once, so that it sends all of them
    /// together.
    pub fn poll_write_more(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_by(cx, |socket| socket.try_send(data, SendFlags::MORE))
    }

    /// Has the system send a part of a file. Returns the number of sent bytes, 0 at the end of the file.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_by(cx, |socket| {
            let mut offset = offset;
            each_kind!(&socket.kind, stream => stream.try_io(Interest::WRITABLE, || {
                Ok(sendfile(stream, file, Some(&mut offset), most)?)
            }), memory => Ok(most))
        })
    }

    /// The state of an idle connection, as known to the event loop. Costs no system call while nothing has
    /// happened. Consumes a byte if one has arrived.
    pub fn look(&self) -> IdleState {
        match self.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => IdleState::Quiet,
            Ok(1..) => IdleState::Excess,
            Ok(0) | Err(_) => IdleState::Ended,
        }
    }

    /// The state of an idle connection according to the kernel, which includes input since the last
    /// poll of the event loop. Consumes nothing.
    pub fn look_now(&self) -> IdleState {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0u8; 1];
        match each_kind!(&self.kind, stream => recv(stream, &mut byte, flags), memory => Err(rustix::io::Errno::AGAIN))
        {
            Err(rustix::io::Errno::AGAIN) => IdleState::Quiet,
            Ok((1.., _)) => IdleState::Excess,
            Ok((0, _)) | Err(_) => IdleState::Ended,
        }
    }
}

/// Reads the kernel's data of a socket, even before the event loop has reported it.
pub(super) struct FromKernel<'a>(pub(super) &'a Socket);

impl io::Read for FromKernel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = each_kind!(&self.0.kind, stream => recv(stream, &mut *buffer, RecvFlags::DONTWAIT),
            memory => Err(rustix::io::Errno::AGAIN));
        Ok(received?.0)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(ahead) = &mut self.ahead {
            let rest = &ahead.bytes[ahead.start..];
            let count = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..count]);
            ahead.start += count;
            if ahead.start == ahead.bytes.len() {
                self.ahead = None;
            }
            return Poll::Ready(Ok(()));
        }
        each_kind!(&mut self.kind, stream => Pin::new(stream).poll_read(cx, buffer), memory => Poll::Pending)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_by(cx, |socket| socket.try_send(data, SendFlags::empty()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = each_kind!(&mut self.kind, stream => Pin::new(stream).poll_write_vectored(cx, data),
            memory => Poll::Ready(Ok(data.iter().map(|part| part.len()).sum())));
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            SocketKind::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketKind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketKind::Memory => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn what_has_no_network_below_it_is_sent_at_no_pace() {
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let of_system = socket().tcp_congestion().unwrap();
        let control = |address: &str| {
            let socket = socket();
            prepare(&socket, Some(address.parse().unwrap())).unwrap();
            socket.tcp_congestion().unwrap()
        };
        assert!(control("127.0.0.1:80").starts_with(b"reno"));
        assert!(control("[::1]:80").starts_with(b"reno"));
        assert!(control("[::ffff:127.0.0.1]:80").starts_with(b"reno"));
        assert_eq!(control("192.0.2.1:80"), of_system);
        assert_eq!(control("0.0.0.0:80"), of_system);
        // Accepted sockets inherit the options.
        let listener = socket();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        prepare(&listener, listener.local_addr().unwrap().as_socket()).unwrap();
        listener.listen(1).unwrap();
        let _client =
            std::net::TcpStream::connect(listener.local_addr().unwrap().as_socket().unwrap()).unwrap();
        assert!(listener.accept().unwrap().0.tcp_congestion().unwrap().starts_with(b"reno"));
    }

    #[tokio::test]
    async fn the_end_is_known_before_what_comes_first_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = Socket::from(listener.accept().await.unwrap().0);
        let has_ended = || poll_fn(|cx| Poll::Ready(socket.has_ended(cx)));
        assert!(!has_ended().await, "nothing has come");
        peer.write_all(b"more").await.unwrap();
        assert_eq!(socket.next_byte().await.unwrap(), Some(b'm'));
        assert!(!has_ended().await, "it may go on");
        drop(peer);
        while !has_ended().await {
            tokio::task::yield_now().await;
        }
        assert_eq!(socket.next_byte().await.unwrap(), Some(b'm'), "nothing was read");
    }
}
