//! Messages with descriptors between the processes of one installation, over a pair of connected
//! Unix sockets.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The longest message, bytes. Longer data travels in a [`blob`].
pub const MESSAGE_LIMIT: usize = 64 << 10;
/// The most descriptors of one message.
pub const DESCRIPTORS_LIMIT: usize = 64;
/// The largest blob that is read, bytes.
const BLOB_LIMIT: u64 = 64 << 20;

/// One message.
#[derive(Debug)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Two connected sockets that keep messages apart.
///
/// # Errors
///
/// The system's refusal.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. A socket that does not block sends it at once or not at all.
///
/// # Errors
///
/// The system's error, or a message that is too long.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.is_empty() || bytes.len() > MESSAGE_LIMIT || descriptors.len() > DESCRIPTORS_LIMIT {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LIMIT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message; `None` when the other end is gone.
///
/// # Errors
///
/// The system's error, or a message that is longer than the limits.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; MESSAGE_LIMIT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LIMIT))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [io::IoSliceMut::new(&mut bytes)];
    // The peer has closed its end without reading everything. The system reports this once; after that, the
    // messages of the peer can still be received.
    let received = match recvmsg(socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::CONNRESET) => recvmsg(socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC),
        received => received,
    };
    let received = match received {
        Ok(received) => received,
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is longer than the limit"));
    }
    bytes.truncate(received.bytes);
    Ok(Some(Message { bytes, descriptors }))
}

/// Creates a memory file with these bytes and returns its descriptor.
///
/// # Errors
///
/// The system's refusal.
pub fn blob(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("foregate", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads the bytes of a [`blob`].
///
/// # Errors
///
/// The system's error, or a blob that is too large.
pub fn read_blob(descriptor: impl AsFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(descriptor.as_fd().try_clone_to_owned()?);
    if file.metadata()?.len() > BLOB_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more bytes than are taken"));
    }
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(BLOB_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Registers a descriptor with the runtime, which then reports when it is readable or writable.
///
/// # Errors
///
/// The system's refusal.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types that change their descriptor; `OwnedFd` does not"
)]
pub(crate) fn readiness(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

/// One end of a [`pair`], for use in async code.
#[derive(Debug)]
pub struct Channel(AsyncFd<OwnedFd>);

impl Channel {
    /// Wraps one end of a pair of sockets. Must be called within a runtime.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(readiness(socket)?))
    }

    /// Sends one message once there is room.
    ///
    /// # Errors
    ///
    /// The errors of [`send`].
    pub async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, |socket| send(socket.as_fd(), bytes, descriptors)).await
    }

    /// Sends one message if there is room.
    ///
    /// # Errors
    ///
    /// The errors of [`send`]; `WouldBlock` if there is no room.
    pub fn try_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.0.get_ref().as_fd(), bytes, descriptors)
    }

    /// Receives one message; `None` when the other end is gone.
    ///
    /// # Errors
    ///
    /// The errors of [`receive`].
    pub async fn receive(&self) -> io::Result<Option<Message>> {
        self.0.async_io(Interest::READABLE, |socket| receive(socket.as_fd())).await
    }

    /// Receives a message that has already arrived.
    ///
    /// # Errors
    ///
    /// The errors of [`receive`]; `WouldBlock` if no message has arrived.
    pub fn try_receive(&self) -> io::Result<Option<Message>> {
        receive(self.0.get_ref().as_fd())
    }

    /// Shuts down both directions. The peer can still receive the messages that were sent before.
    pub fn shut_down(&self) {
        // The connection may have ended already.
        let _ = rustix::net::shutdown(self.0.get_ref(), rustix::net::Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_from_an_end_that_leaves_some_unread() {
        let (here, there) = pair().unwrap();
        send(here.as_fd(), b"a question", &[]).unwrap();
        send(there.as_fd(), b"first", &[]).unwrap();
        send(there.as_fd(), b"last", &[]).unwrap();
        drop(there);
        let received: Vec<_> =
            std::iter::from_fn(|| receive(here.as_fd()).unwrap()).map(|message| message.bytes).collect();
        assert_eq!(received, [&b"first"[..], b"last"]);
    }

    #[test]
    fn messages_keep_their_bounds_and_their_descriptors() {
        let (here, there) = pair().unwrap();
        let blobs = [blob(b"one").unwrap(), blob(b"two").unwrap()];
        send(here.as_fd(), b"first", &blobs.each_ref().map(AsFd::as_fd)).unwrap();
        send(here.as_fd(), &[7; MESSAGE_LIMIT], &[]).unwrap();
        let first = receive(there.as_fd()).unwrap().unwrap();
        assert_eq!(first.bytes, b"first");
        let texts: Vec<_> = first.descriptors.iter().map(|blob| read_blob(blob).unwrap()).collect();
        assert_eq!(texts, [b"one", b"two"]);
        assert_eq!(receive(there.as_fd()).unwrap().unwrap().bytes.len(), MESSAGE_LIMIT);
        drop(here);
        assert!(receive(there.as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let (here, _there) = pair().unwrap();
        assert!(send(here.as_fd(), &[0; MESSAGE_LIMIT + 1], &[]).is_err());
        assert!(send(here.as_fd(), b"", &[]).is_err());
        let many = vec![here.as_fd(); DESCRIPTORS_LIMIT + 1];
        assert!(send(here.as_fd(), b"x", &many).is_err());
        send(here.as_fd(), b"x", &many[..DESCRIPTORS_LIMIT]).unwrap();
    }

    #[tokio::test]
    async fn what_was_sent_before_the_end_is_received() {
        let (here, there) = pair().unwrap();
        let (here, there) = (Channel::new(here).unwrap(), Channel::new(there).unwrap());
        here.send(b"last", &[]).await.unwrap();
        here.shut_down();
        assert_eq!(there.receive().await.unwrap().unwrap().bytes, b"last");
        assert!(there.receive().await.unwrap().is_none());
        assert!(there.try_send(b"late", &[]).is_err());
    }
}
