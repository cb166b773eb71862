//! The byte stream of an HTTP/2 connection to an origin: what it tells of the connection, and without malformed header blocks.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::frame_meter::{Frames, PREFACE, kind};
use crate::connection::head_gate::HeadGate;

/// WINDOW_UPDATE that opens the connection's window by nothing: `h2` answers it with GOAWAY (RFC 9113, section 6.9).
const POISON: [u8; 13] = [0, 0, 4, kind::WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What is known of a connection by its bytes. Shared with those who have streams on it.
#[derive(Debug)]
pub struct Signs {
    born: Instant,
    /// Milliseconds from `born` to the last read that gave something.
    read: AtomicU64,
    /// It takes no more streams.
    closed: AtomicBool,
    /// The stream that has broken it; 0: none that is known.
    culprit: AtomicU32,
}

impl Signs {
    /// Those of a connection that is made now.
    pub fn new(now: Instant) -> Self {
        let (read, closed, culprit) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU32::new(0));
        Self { born: now, read, closed, culprit }
    }

    /// No more streams are to be opened on it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether it takes no more streams.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether nothing has been read for this long.
    pub fn is_silent_for(&self, span: Duration, now: Instant) -> bool {
        let read = self.born + Duration::from_millis(self.read.load(Ordering::Relaxed));
        now.saturating_duration_since(read) >= span
    }

    /// Whether the connection has failed for what came on this stream.
    pub fn is_broken_by(&self, stream: u32) -> bool {
        self.culprit.load(Ordering::Relaxed) == stream
    }

    fn has_read(&self, now: Instant) {
        let since = now.saturating_duration_since(self.born).as_millis();
        self.read.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// `h2`'s side of the stream.
#[derive(Debug)]
pub struct Guarded<IO> {
    io: IO,
    gate: HeadGate,
    sent: Frames,
    signs: Arc<Signs>,
    /// `h2` has been made to end the connection.
    poisoned: bool,
}

impl<IO> Guarded<IO> {
    /// For a new connection, whose lists of fields may count `list` bytes, and its frames `frame_limit`.
    pub fn new(io: IO, signs: Arc<Signs>, list: usize, frame_limit: usize) -> Self {
        let gate = HeadGate::for_origin(list, frame_limit);
        Self { io, gate, sent: Frames::after(PREFACE), signs, poisoned: false }
    }

    /// Gives `h2` what was held back, or what has it end the connection; whether there was something.
    fn give_ready(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let ready = self.gate.ready();
        if !ready.is_empty() {
            let count = ready.len().min(buffer.remaining());
            buffer.put_slice(ready.unread().get(..count).unwrap_or_default());
            ready.consume(count);
            ready.release();
            return true;
        }
        if self.gate.fault().is_none() || self.poisoned {
            return false;
        }
        self.poisoned = true;
        self.signs.culprit.store(self.gate.culprit().unwrap_or(0), Ordering::Relaxed);
        self.signs.close();
        // Without room for it the connection ends all the same, but without a word.
        let fits = buffer.remaining() >= POISON.len();
        if fits {
            buffer.put_slice(&POISON);
        }
        fits
    }

    fn observe_sent(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.sent.next(&mut bytes, |_| 0) {
            match frame.kind {
                kind::HEADERS => self.gate.headers_were_sent(frame.stream),
                kind::RST_STREAM => self.gate.stream_is_reset(frame.stream),
                _ => {}
            }
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guarded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.give_ready(buffer) {
                return Poll::Ready(Ok(()));
            }
            if self.gate.fault().is_some() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.signs.has_read(Instant::now());
            let passed = self.gate.pass(read);
            if self.gate.is_leaving() {
                // Before `h2` has seen it: nobody needs to learn it by a failure.
                self.signs.close();
            }
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Guarded<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.observe_sent(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        let mut left = written;
        for slice in slices {
            let count = left.min(slice.len());
            self.observe_sent(slice.get(..count).unwrap_or_default());
            left -= count;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
