//! The byte stream of an HTTP/2 connection: metered, without malformed header blocks, and written in few system calls.
//!
//! h2 writes each DATA frame with a system call of its own. Here what it writes is collected until the connection's
//! task has polled everything there was to poll, and leaves at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use h2::Reason;

#[cfg(test)]
use super::frame_meter::Flood;
use super::frame_meter::FrameMeter;
use super::h2::list_limit;
use crate::link::Stream;
use crate::link::buffer::Buffer;
use crate::link::frames::{Frame, HEADER, flag, kind};
use crate::link::head_gate::{HeadGate, RefusedHead};
use crate::link::unread::Unread;
use crate::link::unsent::Unsent;
use crate::settings::Limits;
use crate::telemetry::clock;

/// What is collected before it is written, in bytes; with it waiting, nothing more is taken from h2, which then
/// reads nothing more from the peer. A frame more fits into a large buffer.
const COLLECT: usize = 44 * 1024;

/// Bytes of one setting, and which of them says how large a list of fields may be (RFC 9113, section 6.5).
const SETTING: usize = 6;
const MAX_HEADER_LIST_SIZE: [u8; 2] = [0, 6];

/// h2's side of the stream.
#[derive(Debug)]
pub struct Metered<IO>(Arc<Mutex<Inner<IO>>>);

/// The side of the connection's task, which has to flush. Both sides belong to that one task.
#[derive(Debug)]
pub struct Control<IO>(Arc<Mutex<Inner<IO>>>);

#[derive(Debug)]
struct Inner<IO> {
    io: IO,
    meter: FrameMeter,
    gate: HeadGate,
    output: Buffer,
    /// Streams have had a turn since the last read, for the many frames that wait for them.
    yielded: bool,
    /// Since when the peer takes nothing of what we have for it.
    blocked: Option<Instant>,
    /// The largest list of fields that the peer is to be told of, until it is.
    untold: Option<u32>,
}

/// Meters `io` from the client's preface on; the client's frames may have `frame_limit` bytes. After a flood, or what
/// no connection survives, its reads stay pending, so that nothing more of the peer is processed while the connection's
/// task sends GOAWAY and closes.
pub fn metered<IO>(io: IO, limits: &Limits, frame_limit: usize) -> (Metered<IO>, Control<IO>) {
    let meter = FrameMeter::new(limits, clock::now());
    let gate = HeadGate::new(limits, frame_limit);
    let (output, untold) = (Buffer::new(), Some(list_limit(limits)));
    let inner = Inner { io, meter, gate, output, yielded: false, blocked: None, untold };
    let inner = Arc::new(Mutex::new(inner));
    (Metered(Arc::clone(&inner)), Control(inner))
}

impl<IO: AsyncWrite + Unpin> Control<IO> {
    /// What the peer does too much of, if anything.
    #[cfg(test)]
    pub fn flood(&self) -> Option<Flood> {
        self.0.lock().meter.flood()
    }

    /// Why the connection has to end, if it has to.
    pub fn fault(&self) -> Option<Reason> {
        self.0.lock().fault()
    }

    /// What the client has reset, and whether it floods the connection, with whatever it be.
    pub fn resets(&self) -> Resets {
        let inner = self.0.lock();
        Resets { any: inner.meter.has_resets(), flood: inner.flood() }
    }

    /// The next request that was refused for its head. Reading waits while there are many.
    pub fn take_refused(&self) -> Option<RefusedHead> {
        self.0.lock().gate.take_refused()
    }

    /// Where streams count what they take of bodies.
    pub fn unread(&self) -> Arc<Unread> {
        Arc::clone(self.0.lock().meter.unread())
    }

    /// Where streams count what they send.
    pub fn unsent(&self) -> Arc<Unsent> {
        Arc::clone(self.0.lock().meter.unsent())
    }

    /// No stream is left that could take anything of bodies.
    pub fn nothing_is_unread(&self) {
        self.0.lock().meter.unread().clear();
    }

    /// Since when the peer takes nothing of what we have for it; `None` if it takes it.
    pub fn blocked_since(&self) -> Option<Instant> {
        self.0.lock().blocked
    }

    /// Since when the peer has been sending a head, or the header of a frame; `None` if it is not within one.
    pub fn head_since(&self) -> Option<Instant> {
        self.0.lock().meter.head_since()
    }

    /// Whether something waits to be written.
    pub fn has_output(&self) -> bool {
        !self.0.lock().output.is_empty()
    }

    /// Waits until all that h2 has written has left the process.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_flush(cx)
    }
}

impl Control<Stream> {
    /// The connection ends with a reset once it is dropped: nothing that the peer has not taken is kept for it.
    pub fn reset_on_close(&self) {
        self.0.lock().io.reset_on_close();
    }
}

/// What a client has reset.
#[derive(Debug)]
pub struct Resets {
    /// Some of its streams, before they were answered.
    pub any: bool,
    /// Why the connection has to end, if it floods it.
    pub flood: Option<Reason>,
}

impl<IO> Inner<IO> {
    fn flood(&self) -> Option<Reason> {
        self.meter.flood().map(|_| Reason::ENHANCE_YOUR_CALM)
    }

    fn fault(&self) -> Option<Reason> {
        self.flood().or(self.gate.fault())
    }
}

impl<IO: AsyncWrite + Unpin> Inner<IO> {
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, self.output.unread()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.blocked = None;
                    self.output.consume(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let now = clock::now();
                    self.blocked.get_or_insert(now);
                    // Nothing is read meanwhile: a head may be there, and is not seen.
                    self.meter.excuse_head(now);
                    return Poll::Pending;
                }
            }
        }
        self.output.release();
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Makes room for more output.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.len() < COLLECT { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    fn collect(&mut self, bytes: &[u8], now: Instant) {
        self.meter.observe_sent(now, bytes, |stream| self.gate.stream_is_reset(stream));
        // The first thing that h2 writes is its SETTINGS, in one piece.
        match self.untold.take().and_then(|limit| with_list_limit(bytes, limit)) {
            Some(settings) => self.output.append(&settings),
            None => self.output.append(bytes),
        }
    }
}

/// SETTINGS with another SETTINGS_MAX_HEADER_LIST_SIZE, where the frame has one. That of `h2` is the first size that it refuses, and
/// not the largest that it takes.
fn with_list_limit(frame: &[u8], limit: u32) -> Option<Vec<u8>> {
    let mut frame = frame.to_vec();
    let header = Frame::parse(frame.first_chunk::<HEADER>()?);
    if header.kind != kind::SETTINGS || header.has(flag::ACK) {
        return None;
    }
    let settings = frame.get_mut(HEADER..HEADER + header.length)?;
    let (_, value) = settings
        .chunks_exact_mut(SETTING)
        .filter_map(|setting| setting.split_at_mut_checked(2))
        .find(|(name, _)| *name == MAX_HEADER_LIST_SIZE)?;
    value.copy_from_slice(&limit.to_be_bytes());
    Some(frame)
}

impl<IO: AsyncRead + Unpin> AsyncRead for Metered<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.lock();
        loop {
            // The connection's task is the one that polls; it looks for floods and faults next.
            if inner.meter.flood().is_some() {
                return Poll::Pending;
            }
            let ready = inner.gate.ready();
            if !ready.is_empty() {
                let count = ready.len().min(buffer.remaining());
                buffer.put_slice(ready.unread().get(..count).unwrap_or_default());
                ready.consume(count);
                ready.release();
                return Poll::Ready(Ok(()));
            }
            if inner.gate.fault().is_some() {
                return Poll::Pending;
            }
            let yields = inner.meter.is_crowded() && !inner.yielded;
            inner.yielded = yields;
            if yields || inner.gate.is_full() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut inner.io).poll_read(cx, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let passed = match inner.meter.observe(clock::now(), read) {
                Ok(()) => inner.gate.pass(read),
                Err(_) => 0,
            };
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Metered<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.lock();
        ready!(inner.poll_room(cx))?;
        inner.collect(bytes, clock::now());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.lock();
        ready!(inner.poll_room(cx))?;
        let now = clock::now();
        slices.iter().for_each(|slice| inner.collect(slice, now));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing but frames of our own, which may stand here: h2 flushes behind whole header blocks alone. The connection's task flushes
    /// once it has polled everything.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.lock();
        if inner.output.len() < COLLECT {
            let mut frames = Buffer::new();
            inner.gate.give_back(&mut frames);
            if !frames.is_empty() {
                inner.collect(frames.unread(), clock::now());
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.lock();
        ready!(inner.poll_flush(cx))?;
        Pin::new(&mut inner.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_flood_stops_reading_and_is_told() {
        let (mut near, far) = tokio::io::duplex(1024 * 1024);
        let (mut stream, control) = metered(far, &Limits::default(), 16 * 1024);
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 24]).await.unwrap();
        assert_eq!(control.flood(), None);
        for _ in 0..1001 {
            near.write_all(b"\0\0\x08\x06\0\0\0\0\0foregate").await.unwrap();
        }
        let mut bytes = vec![0; 64 * 1024];
        let read = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut bytes);
            Poll::Ready(Pin::new(&mut stream).poll_read(cx, &mut buffer).is_ready())
        });
        assert!(!read.await, "the flood was read");
        assert_eq!(control.flood(), Some(Flood::Control));
    }

    #[tokio::test]
    async fn a_head_is_not_late_while_nothing_is_read() {
        let (mut near, far) = tokio::io::duplex(64);
        let (mut stream, control) = metered(far, &Limits::default(), 16 * 1024);
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0").await.unwrap();
        // What begins a frame that may be a head is held back.
        assert_eq!(stream.read(&mut [0; 64]).await.unwrap(), 33);
        let since = control.head_since().unwrap();
        stream.write_all(&[b'a'; 100]).await.unwrap();
        let blocked = poll_fn(|cx| Poll::Ready(control.poll_flush(cx).is_pending())).await;
        assert!(blocked && control.head_since().unwrap() > since);
    }

    #[test]
    fn the_list_that_clients_are_told_of_is_the_largest_that_is_taken() {
        let settings = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x06\0\x01\0\x01";
        let told = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x06\0\x01\0\0";
        assert_eq!(with_list_limit(settings, 65_536).as_deref(), Some(&told[..]));
        assert_eq!(with_list_limit(b"\0\0\0\x04\x01\0\0\0\0", 65_536), None);
        assert_eq!(with_list_limit(&settings[..20], 65_536), None);
    }

    #[tokio::test]
    async fn output_is_collected_until_it_is_flushed() {
        let (mut near, far) = tokio::io::duplex(64);
        let (mut stream, control) = metered(far, &Limits::default(), 16 * 1024);
        stream.write_all(&[b'a'; 40]).await.unwrap();
        stream.write_all(&[b'b'; 40]).await.unwrap();
        assert!(control.has_output());
        let blocked = poll_fn(|cx| Poll::Ready(control.poll_flush(cx).is_pending())).await;
        assert!(blocked && control.blocked_since().is_some());
        near.read_exact(&mut [0; 64]).await.unwrap();
        poll_fn(|cx| control.poll_flush(cx)).await.unwrap();
        assert!(!control.has_output() && control.blocked_since().is_none());
    }
}
