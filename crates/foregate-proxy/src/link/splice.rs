//! Large bodies that nothing looks at go from socket to socket through a pipe, without a copy into the process
//! (splice(2)). What a pipe holds are pages of the kernel's buffers.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::copy::{Copy, CopyError, Waiting};
use super::{Link, LinkError};
use crate::descriptors;

/// From so many bytes on that are still to come a body goes through a pipe: below, its system calls are not worth it.
const LARGE_BODY: u64 = 256 * 1024;
/// What a pipe holds at most, bytes. More makes larger steps and longer turns.
const ROOM: usize = 256 * 1024;
/// Pipes of all threads. Linux lets a user without privileges have pages for 64 MiB in pipes; beyond this many, bodies are
/// copied.
const MOST_PIPES: usize = 128;
/// Empty pipes that a thread keeps.
const KEPT_PER_THREAD: usize = 8;

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

static PIPES: AtomicUsize = AtomicUsize::new(0);
/// The system does not let this process splice these sockets, or at all.
static REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    #[allow(clippy::vec_box, reason = "the boxes are what is handed on")]
    static EMPTY: RefCell<Vec<Box<Pipe>>> = const { RefCell::new(Vec::new()) };
}

/// A pipe between two sockets.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    room: usize,
    holds: usize,
    _descriptors: [descriptors::Used; 2],
}

impl Pipe {
    /// An empty pipe; `None` where there are enough of them, or the system gives none.
    fn take() -> Option<Box<Self>> {
        if let Some(pipe) = EMPTY.with_borrow_mut(Vec::pop) {
            return Some(pipe);
        }
        if REFUSED.load(Ordering::Relaxed) || descriptors::are_scarce() {
            return None;
        }
        if PIPES.fetch_add(1, Ordering::Relaxed) >= MOST_PIPES {
            PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).and_then(|(read, write)| {
            let room = fcntl_setpipe_size(&write, ROOM)?;
            Ok((read, write, room))
        });
        let Ok((read, write, room)) = made else {
            PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let _descriptors = [descriptors::Used::new(), descriptors::Used::new()];
        Some(Box::new(Self { read, write, room, holds: 0, _descriptors }))
    }

    /// Keeps it for the next body, if it is empty: what it holds could be got rid of only by reading it.
    fn give_back(self: Box<Self>) {
        if self.holds == 0 {
            // The thread may be ending, in which case it is closed.
            let _ = EMPTY.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.len() < KEPT_PER_THREAD {
                    kept.push(self);
                }
            });
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.holds == 0
    }

    /// Takes at most `most` bytes from a socket. It must be empty, or "would block" could mean either.
    pub(super) fn fill(&mut self, from: impl AsFd, most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.room);
        self.holds = splice(from, None, &self.write, None, most, FLAGS)?;
        Ok(self.holds)
    }

    /// Gives what it holds to a socket; at least one byte.
    pub(super) fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let count = splice(&self.read, None, to, None, self.holds, FLAGS)?;
        self.holds = self.holds.saturating_sub(count);
        if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Copy {
    /// Moves some of the body from socket to socket; `None` if it has to be copied.
    ///
    /// Between two calls the pipe is empty, or holds what the sink did not take.
    pub(super) fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Link,
        sink: &mut Link,
    ) -> Option<Poll<Result<(), CopyError>>> {
        let (Link::H1(source), Link::H1(sink)) = (source, sink) else { return None };
        let mut pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => {
                let expected = source.expects_plain()?;
                let is_plain = self.filter.is_none() && self.front.is_none() && self.kept.is_none();
                let is_allowed = self.limit.saturating_sub(self.moved) >= expected;
                if expected < LARGE_BODY || !is_plain || !is_allowed || !sink.takes_plain(expected) {
                    return None;
                }
                Pipe::take()?
            }
        };
        if pipe.is_empty() {
            match source.poll_fill_pipe(cx, &mut pipe) {
                Poll::Ready(Ok(count)) => self.moved += count as u64,
                Poll::Ready(Err(LinkError::Io(kind))) if is_refusal(kind) => {
                    REFUSED.store(true, Ordering::Relaxed);
                    return None;
                }
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(CopyError::Source(error)))),
                Poll::Pending => {
                    // Nothing is held back: the sink's own buffer was empty before.
                    pipe.give_back();
                    self.waiting = Waiting::Source;
                    return Some(Poll::Pending);
                }
            }
        }
        match sink.poll_drain_pipe(cx, &mut pipe) {
            Poll::Ready(Ok(count)) => self.sent += count as u64,
            Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(CopyError::Sink(error)))),
            Poll::Pending => {
                self.pipe = Some(pipe);
                self.waiting = Waiting::Sink;
                return Some(Poll::Pending);
            }
        }
        if pipe.is_empty() && source.expects_plain().is_none() {
            pipe.give_back();
        } else {
            self.pipe = Some(pipe);
        }
        Some(Poll::Ready(Ok(())))
    }
}

/// Whether an error says that the kernel, or a filter of system calls, does not splice here at all.
fn is_refusal(kind: io::ErrorKind) -> bool {
    let refusals = [Errno::INVAL, Errno::PERM, Errno::NOSYS];
    refusals.into_iter().any(|errno| io::Error::from(errno).kind() == kind)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use foregate_wire::{BodyLength, HeadLimits};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::link::{H1Link, Stream};

    /// One test at a time: pipes are counted for the whole process.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
    }

    /// A body's two ends, and the sockets at the far sides of them.
    fn ends(received: BodyLength, sent: BodyLength) -> (Link, Link, UnixStream, UnixStream) {
        let (from, origin) = UnixStream::pair().unwrap();
        let (to, client) = UnixStream::pair().unwrap();
        let mut source = H1Link::new(Stream::Plain(from.into()));
        source.begin_receive(received, &HeadLimits::default());
        let mut sink = H1Link::new(Stream::Plain(to.into()));
        sink.begin_send(sent);
        (Link::H1(Box::new(source)), Link::H1(Box::new(sink)), origin, client)
    }

    /// Writes in pieces that end anywhere, and then closes unless told to stay.
    fn write_all(mut origin: UnixStream, bytes: Vec<u8>) -> JoinHandle<UnixStream> {
        tokio::spawn(async move {
            for (number, piece) in bytes.chunks(100_003).enumerate() {
                // A reader that breaks off is what some tests are about.
                let _ = origin.write_all(piece).await;
                if number % 3 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            origin
        })
    }

    fn read_all(mut client: UnixStream) -> JoinHandle<Vec<u8>> {
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).await.unwrap();
            bytes
        })
    }

    async fn copy(copy: &mut Copy, source: &mut Link, sink: &mut Link) -> (Result<(), CopyError>, bool) {
        let mut spliced = false;
        let result = poll_fn(|cx| {
            let polled = copy.poll(cx, source, sink);
            spliced |= copy.pipe.is_some();
            polled
        });
        (result.await, spliced)
    }

    #[tokio::test]
    async fn a_large_body_arrives_as_it_was_sent_and_leaves_both_ends_clean() {
        let _alone = ALONE.lock().await;
        for length in [LARGE_BODY as usize, 3_000_001] {
            let fixed = BodyLength::Fixed(length as u64);
            let (mut source, mut sink, origin, client) = ends(fixed, fixed);
            // What follows the body stays where it is.
            let mut bytes = body(length);
            bytes.extend_from_slice(b"HTTP/1.1 200");
            let (origin, client) = (write_all(origin, bytes), read_all(client));
            let mut moved = Copy::new();
            let (result, spliced) = copy(&mut moved, &mut source, &mut sink).await;
            result.unwrap();
            assert!(spliced);
            assert_eq!((moved.moved, moved.sent, moved.is_done()), (length as u64, length as u64, true));
            let Link::H1(source) = source else { unreachable!() };
            assert!(source.is_received() && !source.has_ended());
            let _open = origin.await.unwrap();
            // The end of a body may be copied, and what follows it be read with it.
            assert!(!source.ahead().is_empty() || source.stream().socket().is_stale_now());
            drop(sink);
            assert_eq!(client.await.unwrap(), body(length));
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_truncated_after_what_came() {
        let _alone = ALONE.lock().await;
        let fixed = BodyLength::Fixed(3_000_000);
        let (mut source, mut sink, origin, client) = ends(fixed, fixed);
        let client = read_all(client);
        let origin = write_all(origin, body(1_234_567));
        tokio::spawn(async { drop(origin.await) });
        let mut moved = Copy::new();
        let (result, _) = copy(&mut moved, &mut source, &mut sink).await;
        assert_eq!(result, Err(CopyError::Source(LinkError::Truncated)));
        assert_eq!((moved.moved, moved.sent), (1_234_567, 1_234_567));
        drop(sink);
        assert_eq!(client.await.unwrap(), body(1_234_567));
    }

    #[tokio::test]
    async fn a_sink_that_takes_nothing_is_waited_for_and_one_that_is_gone_is_told() {
        let _alone = ALONE.lock().await;
        let fixed = BodyLength::Fixed(3_000_000);
        let (mut source, mut sink, origin, client) = ends(fixed, fixed);
        let origin = write_all(origin, body(3_000_000));
        let mut moved = Copy::new();
        let waited = copy(&mut moved, &mut source, &mut sink);
        assert!(tokio::time::timeout(Duration::from_millis(100), waited).await.is_err());
        assert_eq!(moved.waiting, Waiting::Sink);
        assert!(moved.moved < 3_000_000 && moved.moved - moved.sent <= ROOM as u64);
        drop(client);
        let (result, _) = copy(&mut moved, &mut source, &mut sink).await;
        assert_eq!(result, Err(CopyError::Sink(LinkError::Io(io::ErrorKind::BrokenPipe))));
        origin.abort();
    }

    #[tokio::test]
    async fn what_has_to_be_seen_or_framed_is_copied() {
        let _alone = ALONE.lock().await;
        let large = 1_000_000;
        let cases = [
            (BodyLength::Fixed(large), BodyLength::Chunked, u64::MAX),
            (BodyLength::Fixed(LARGE_BODY - 1), BodyLength::Fixed(LARGE_BODY - 1), u64::MAX),
            (BodyLength::Fixed(large), BodyLength::Fixed(large), large - 1),
        ];
        for (received, sent, limit) in cases {
            let (mut source, mut sink, origin, client) = ends(received, sent);
            let BodyLength::Fixed(length) = received else { unreachable!() };
            let (_origin, _client) = (write_all(origin, body(length as usize)), read_all(client));
            let mut moved = Copy::new();
            moved.limit = limit;
            let (result, spliced) = copy(&mut moved, &mut source, &mut sink).await;
            assert_eq!(result.is_err(), limit < large);
            assert!(!spliced);
        }
    }

    #[tokio::test]
    async fn pipes_are_limited_and_come_back() {
        let _alone = ALONE.lock().await;
        let mut pipes: Vec<_> = std::iter::from_fn(Pipe::take).collect();
        assert!(!pipes.is_empty() && pipes.len() <= MOST_PIPES);
        assert!(Pipe::take().is_none());
        let held = pipes.len();
        pipes.drain(..).for_each(Pipe::give_back);
        assert_eq!(EMPTY.with_borrow(Vec::len), KEPT_PER_THREAD.min(held));
    }
}
