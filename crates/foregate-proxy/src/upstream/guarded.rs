//! The byte stream of an HTTP/2 connection to an origin. It records signs of life, and keeps malformed
//! header blocks away from `h2`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use foregate_wire::HeadLimits;
use h2::Reason;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::head_gate::HeadGate;
use crate::link::unread::Unread;
use crate::link::unsent::Unsent;
use crate::tls::Refusal;
use crate::transport::buffer::Buffer;
use crate::transport::frames::{Frame, Frames, PREFACE, flag, kind};

/// A WINDOW_UPDATE frame of the connection with an increment of 0. `h2` responds to it with GOAWAY (RFC
/// 9113, section 6.9), which ends the connection.
const POISON: [u8; 13] = [0, 0, 4, kind::WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The facts about a connection that its bytes reveal. The connection's streams share them.
#[derive(Debug)]
pub struct Signs {
    born: Instant,
    /// The last read that returned bytes, in microseconds after `born`.
    read: AtomicU64,
    /// The opening of the first stream since that read, in microseconds after `born`.
    asked: AtomicU64,
    /// The stream on which the last header block began; 0 before the first one.
    answered: AtomicU32,
    /// True if the connection accepts no more streams.
    closed: AtomicBool,
    /// The stream with the frames that broke the connection; 0 if unknown.
    culprit: AtomicU32,
    /// True if the origin has flooded the connection with frames.
    flooded: AtomicBool,
    /// The time of the last refusal that was counted as a failure of the origin, in microseconds after `born`.
    blamed: AtomicU64,
    /// The number of streams that we have reset.
    resets: AtomicU32,
    /// The streams with heads that were too large.
    too_large: Mutex<Vec<u32>>,
    /// The alert of an origin that rejected our certificate after the handshake.
    refusal: OnceLock<Refusal>,
}

impl Signs {
    /// The signs of a new connection.
    pub fn new(now: Instant) -> Self {
        Self {
            born: now,
            read: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            answered: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            culprit: AtomicU32::new(0),
            flooded: AtomicBool::new(false),
            blamed: AtomicU64::new(0),
            resets: AtomicU32::new(0),
            too_large: Mutex::new(Vec::new()),
            refusal: OnceLock::new(),
        }
    }

    /// The alert of an origin that rejected our certificate after the handshake.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.get().copied()
    }

    /// Marks the connection: no more streams may be opened on it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection accepts no more streams.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns true if the connection was ended because the origin flooded it with frames.
    pub fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }

    /// The number of streams that we have reset. Origins tolerate only a limited number of resets.
    pub fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Records that a stream is opened. The silence of an idle connection counts from now on. If an
    /// earlier request still waits for the first byte, the silence counts from that request on.
    pub fn was_asked(&self, now: Instant) {
        if self.asked.load(Ordering::Relaxed) <= self.read.load(Ordering::Relaxed) {
            self.asked.store(self.since_born(now), Ordering::Relaxed);
        }
    }

    /// Returns true if nothing was read from the connection for `span`, although it had a request.
    pub fn is_silent_for(&self, span: Duration, now: Instant) -> bool {
        let since = self.read.load(Ordering::Relaxed).max(self.asked.load(Ordering::Relaxed));
        now.saturating_duration_since(self.born + Duration::from_micros(since)) >= span
    }

    /// Returns true if a header block on this stream may have arrived in part. `h2` reports a header
    /// block only when it is complete. No other frame comes within a header block (RFC 9113, section
    /// 4.3), so only the block that began last can be incomplete.
    pub fn has_begun(&self, stream: u32) -> bool {
        self.answered.load(Ordering::Relaxed) == stream
    }

    /// Returns true if the connection has brought any response.
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the refusal of a stream, opened at `opened`, counts as a failure of the origin.
    /// It does so if the connection has not brought any response yet. If several streams are refused
    /// at the same time, only one of them counts, because the cause is the same.
    pub fn is_to_blame(&self, opened: u64, now: Instant) -> bool {
        let now = self.since_born(now);
        let blame = |blamed| (opened >= blamed).then_some(now + 1);
        !self.has_answered() && self.blamed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, blame).is_ok()
    }

    /// Returns true if the connection has failed because of this stream's frames.
    pub fn is_broken_by(&self, stream: u32) -> bool {
        self.culprit.load(Ordering::Relaxed) == stream
    }

    /// Returns true if the stream was reset because its head exceeded our limit.
    pub fn is_too_large(&self, stream: u32) -> bool {
        self.too_large.lock().contains(&stream)
    }

    fn is_refused_by(&self, error: &io::Error) {
        if let Some(refusal) = Refusal::of(error) {
            // A value that is set already is kept: it is the same alert.
            let _ = self.refusal.set(refusal);
        }
    }

    fn has_read(&self, now: Instant) {
        self.read.store(self.since_born(now), Ordering::Relaxed);
    }

    /// The time from the start of the connection to `now`, in microseconds.
    pub fn since_born(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.born).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The byte stream that `h2` reads and writes.
#[derive(Debug)]
pub struct GuardedStream<IO> {
    io: IO,
    gate: HeadGate,
    sent: Frames,
    received: Frames,
    signs: Arc<Signs>,
    /// The unread bodies.
    unread: Arc<Unread>,
    /// The pending output for the origin.
    unsent: Arc<Unsent>,
    /// True if `h2` has got [`POISON`], which ends the connection.
    poisoned: bool,
    /// Our own frames that are being written, always between whole frames of `h2`.
    own: Buffer,
}

impl<IO> GuardedStream<IO> {
    /// Wraps a new connection. `limits` apply to heads and trailers; a frame has at most `frame_limit`
    /// bytes.
    pub fn new(
        io: IO,
        (signs, unread, unsent): (Arc<Signs>, Arc<Unread>, Arc<Unsent>),
        limits: HeadLimits,
        frame_limit: usize,
    ) -> Self {
        let gate = HeadGate::new(limits, frame_limit);
        let (sent, received) = (Frames::after(PREFACE), Frames::after(0));
        Self { io, gate, sent, received, signs, unread, unsent, poisoned: false, own: Buffer::new() }
    }

    /// Gives `h2` checked input or, after a fault, the input that ends the connection. Returns true if
    /// it gave any.
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
        self.signs.flooded.store(self.gate.is_flood(), Ordering::Relaxed);
        self.signs.close();
        // If the buffer has no room for it, the connection ends without GOAWAY.
        let fits = buffer.remaining() >= POISON.len();
        if fits {
            buffer.put_slice(&POISON);
        }
        fits
    }

    fn observe_received(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.received.next(&mut bytes, wanted_of_received) {
            self.unread.received(&frame);
            self.unsent.received(&frame);
            match frame.kind {
                kind::HEADERS => self.signs.answered.store(frame.stream, Ordering::Relaxed),
                // The origin tolerates no more of our resets.
                kind::RST_STREAM if frame.code() == Reason::ENHANCE_YOUR_CALM => self.signs.close(),
                _ => {}
            }
        }
    }

    fn observe_sent(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.sent.next(&mut bytes, |_| 0) {
            self.unread.sent(&frame);
            self.unsent.sent(&frame);
            match frame.kind {
                kind::HEADERS if self.gate.headers_were_sent(frame.stream) => {
                    self.unread.opened(frame.stream);
                }
                kind::RST_STREAM => {
                    self.gate.stream_is_reset(frame.stream);
                    self.signs.resets.fetch_add(1, Ordering::Relaxed);
                }
                kind::DATA => self.gate.data_was_sent(frame.length),
                kind::SETTINGS | kind::PING if !frame.has(flag::ACK) => self.gate.awaits_ack(),
                _ => {}
            }
        }
    }
}

/// The number of wanted payload bytes: the error code of a RST_STREAM, or the padding length of a DATA
/// frame.
fn wanted_of_received(frame: &Frame) -> usize {
    match frame.kind {
        kind::RST_STREAM => 4,
        kind::DATA if frame.has(flag::PADDED) => 1,
        _ => 0,
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for GuardedStream<IO> {
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
            ready!(Pin::new(&mut self.io).poll_read(cx, buffer))
                .inspect_err(|error| self.signs.is_refused_by(error))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.signs.has_read(Instant::now());
            self.observe_received(buffer.filled().get(before..).unwrap_or_default());
            let passed = self.gate.pass(buffer.filled().get(before..).unwrap_or_default());
            let too_large = self.gate.take_too_large();
            if !too_large.is_empty() {
                self.signs.too_large.lock().extend(too_large);
            }
            if self.gate.is_leaving() {
                // The GOAWAY is noted before `h2` has seen it, so that no request fails to open a stream.
                self.signs.close();
            }
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> GuardedStream<IO> {
    /// Writes the rest of our own frames.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, self.own.unread()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.own.consume(written),
            }
        }
        self.own.release();
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for GuardedStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(cx))?;
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.observe_sent(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(cx))?;
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

    /// Writes our own frames as well. `h2` flushes only between whole header blocks, so they cannot end up
    /// within one.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_own(cx))?;
        this.gate.give_back(&mut this.own);
        ready!(this.poll_own(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::transport::frames::written as frame;

    /// A connection on which stream 3 was opened and answered, and its other end.
    async fn connection(bytes: usize) -> (GuardedStream<DuplexStream>, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(bytes.max(64));
        let told = (Arc::new(Signs::new(Instant::now())), Arc::default(), Arc::default());
        let mut guarded = GuardedStream::new(near, told, HeadLimits::default(), 16_384);
        guarded.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        guarded.write_all(&frame(kind::HEADERS, flag::END_HEADERS, 3, b"h")).await.unwrap();
        // `:status: 200`
        let head = frame(kind::HEADERS, flag::END_HEADERS, 3, b"\x88");
        far.write_all(&head).await.unwrap();
        guarded.read_exact(&mut vec![0; head.len()]).await.unwrap();
        (guarded, far)
    }

    #[tokio::test]
    async fn a_response_has_begun_with_the_header_of_its_first_frame() {
        let (mut guarded, mut far) = connection(100).await;
        guarded.write_all(&frame(kind::HEADERS, flag::END_HEADERS, 5, b"h")).await.unwrap();
        for (part, begun) in [(&b"\0\0\x05\x01\0\0\0\0"[..], false), (b"\x05", true), (b"\x88", true)] {
            far.write_all(part).await.unwrap();
            let read = tokio::time::timeout(Duration::from_millis(10), guarded.read(&mut [0; 64])).await;
            assert!(read.is_err(), "a part of a block");
            assert_eq!(guarded.signs.has_begun(5), begun);
        }
        assert!(!guarded.signs.has_begun(3), "all of its head has been told");
    }

    #[test]
    fn a_connection_is_silent_from_when_it_was_asked() {
        let start = Instant::now();
        let second = |second: u64| start + Duration::from_secs(second);
        let silent =
            |signs: &Signs, span: u64, now: u64| signs.is_silent_for(Duration::from_secs(span), second(now));
        let signs = Signs::new(start);
        signs.was_asked(second(0));
        signs.has_read(second(1));
        signs.was_asked(second(60));
        assert!(!silent(&signs, 3, 61) && silent(&signs, 3, 63));
        // Consecutive requests do not change that.
        signs.was_asked(second(62));
        assert!(silent(&signs, 3, 63));
        signs.has_read(second(64));
        assert!(!silent(&signs, 3, 66) && silent(&signs, 3, 67));
    }

    #[tokio::test]
    async fn resets_are_counted_however_they_are_written() {
        for size in [1, 5, 100] {
            let (mut guarded, _far) = connection(10_000).await;
            let mut bytes = frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 8]);
            bytes.extend(frame(kind::DATA, 0, 1, &[kind::RST_STREAM; 40]));
            bytes.extend(frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
            for part in bytes.chunks(size) {
                let (first, second) = part.split_at(part.len() / 2);
                let slices = [IoSlice::new(first), IoSlice::new(second)];
                let count = guarded.write_vectored(&slices).await.unwrap();
                guarded.write_all(&part[count..]).await.unwrap();
            }
            assert_eq!(guarded.signs.resets(), 2, "parts of {size}");
        }
    }

    #[tokio::test]
    async fn an_origin_that_has_had_enough_is_believed() {
        for size in [1, 4, 100] {
            let (mut guarded, mut far) = connection(100).await;
            let mut bytes = frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 7]);
            bytes.extend(frame(kind::DATA, 0, 3, b"\0\0\0\x0b"));
            far.write_all(&bytes).await.unwrap();
            guarded.read_exact(&mut vec![0; bytes.len()]).await.unwrap();
            assert!(!guarded.signs.is_closed());
            for part in frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 11]).chunks(size) {
                far.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            guarded.read_exact(&mut [0; 13]).await.unwrap();
            assert!(guarded.signs.is_closed(), "parts of {size}");
        }
    }

    #[tokio::test]
    async fn what_padding_has_taken_of_windows_is_given_back_between_frames() {
        let (mut guarded, mut far) = connection(64).await;
        far.read_exact(&mut [0; PREFACE + 10]).await.unwrap();
        let padding = frame(kind::DATA, flag::PADDED, 3, b"\x02\0\0");
        far.write_all(&[padding.clone(), padding, frame(kind::PING, 0, 0, &[0; 8])].concat()).await.unwrap();
        guarded.read_exact(&mut [0; 17]).await.unwrap();
        // There is room for six bytes more.
        let filler = frame(kind::DATA, 0, 3, &[0; 49]);
        guarded.write_all(&filler).await.unwrap();
        let flushed = tokio::time::timeout(Duration::from_millis(10), guarded.flush()).await;
        assert!(flushed.is_err(), "nobody reads");
        let ping = frame(kind::PING, 0, 0, &[1; 8]);
        let expected = [
            filler,
            frame(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 6]),
            frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 6]),
            ping.clone(),
        ]
        .concat();
        let mut got = vec![0; expected.len()];
        let (written, read) = tokio::join!(guarded.write_all(&ping), far.read_exact(&mut got));
        assert!(written.is_ok() && read.is_ok());
        assert_eq!(got, expected);
    }

    #[tokio::test]
    async fn empty_data_is_taken_out_however_it_is_read() {
        let mut empty = frame(kind::DATA, 0, 3, b"");
        empty.extend(frame(kind::DATA, flag::PADDED, 3, b"\x02\0\0"));
        let mut kept = frame(kind::DATA, 0, 3, b"\0\0\0\0\0\0\0\0\x03");
        for other in [
            frame(kind::DATA, 0, 5, b""),
            frame(kind::DATA, 0, 2, b""),
            frame(kind::DATA, flag::PADDED, 3, b"\x01a\0"),
            frame(kind::SETTINGS, flag::ACK, 0, b""),
            frame(kind::DATA, flag::END_STREAM, 3, b""),
        ] {
            kept.extend(other);
        }
        let mut frames = kept.as_slice();
        let mut sent = Vec::new();
        while !frames.is_empty() {
            let length = 9 + usize::from(frames[2]);
            sent.extend_from_slice(&empty.repeat(2));
            sent.extend_from_slice(&frames[..length]);
            frames = &frames[length..];
        }
        sent.extend_from_slice(&empty);
        for (sent_size, read_size) in [(1, 1), (1, 64), (4, 5), (9, 9), (13, 7), (500, 3), (500, 500)] {
            let (mut guarded, mut far) = connection(sent_size).await;
            far.read_exact(&mut [0; PREFACE + 10]).await.unwrap();
            let bytes = sent.clone();
            let writer = tokio::spawn(async move {
                for part in bytes.chunks(sent_size) {
                    far.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let (mut got, mut part) = (Vec::new(), vec![0; read_size]);
            loop {
                match guarded.read(&mut part).await.unwrap() {
                    0 => break,
                    count => got.extend_from_slice(&part[..count]),
                }
            }
            writer.await.unwrap();
            assert_eq!(got, kept, "written by {sent_size}, read by {read_size}");
        }
    }
}
