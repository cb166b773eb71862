//! Byte buffers with memory that all connections of a thread share.
//!
//! A connection that waits for its next request holds no buffer at all: memory is taken when bytes
//! arrive and returned as soon as they are used up.

use std::io;
use std::task::{Context, Poll};

use super::stream::Stream;
use crate::limits::buffer_size::{FIRST, LARGE, SMALL};
use crate::limits::pressure::{self, Charge};
use crate::shelf::Shelf;

/// The most buffers of each size that a thread keeps for reuse. Further ones go back to the allocator.
const KEPT_PER_THREAD: usize = 32;

thread_local! {
    static POOL: BufferPool = const { BufferPool::new() };
}

/// The unused buffers of a thread, by their size.
struct BufferPool {
    first: Shelf<Vec<u8>>,
    small: Shelf<Vec<u8>>,
    large: Shelf<Vec<u8>>,
}

impl BufferPool {
    const fn new() -> Self {
        Self {
            first: Shelf::new(KEPT_PER_THREAD),
            small: Shelf::new(KEPT_PER_THREAD),
            large: Shelf::new(KEPT_PER_THREAD),
        }
    }

    fn shelf(&self, size: usize) -> Option<&Shelf<Vec<u8>>> {
        match size {
            FIRST => Some(&self.first),
            SMALL => Some(&self.small),
            LARGE => Some(&self.large),
            _ => None,
        }
    }
}

fn take(size: usize) -> Vec<u8> {
    let kept = POOL.try_with(|pool| pool.shelf(size)?.take());
    kept.ok().flatten().unwrap_or_else(|| Vec::with_capacity(size))
}

fn give(mut bytes: Vec<u8>) {
    bytes.clear();
    // If the thread is ending, its pool is gone, and the memory is simply freed.
    let _ = POOL.try_with(|pool| {
        if let Some(shelf) = pool.shelf(bytes.capacity()) {
            shelf.give(bytes);
        }
    });
}

/// A buffer of unread bytes, in the order in which they arrived.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    /// The bytes to allocate for the next read into an empty buffer.
    next: usize,
    /// The accounted memory. Growth by appending is accounted at the next change.
    charge: Charge,
}

impl Buffer {
    /// A buffer without memory.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, next: FIRST, charge: Charge::new() }
    }

    /// The unread bytes.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The number of unread bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns true if there are no unread bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// The bytes of memory that the buffer holds.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Accounts the memory. Call it after many bytes were appended to [`Self::tail`].
    #[inline]
    pub fn count(&mut self) {
        self.charge.set(self.bytes.capacity());
    }

    /// Drops the first `count` unread bytes.
    pub fn consume(&mut self, count: usize) {
        self.count();
        self.start = (self.start + count).min(self.bytes.len());
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// The vector to append bytes to.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = take(SMALL);
        }
        self.count();
        // Consumed bytes must not pile up in a buffer that never becomes empty.
        if self.start > 0 && self.start >= self.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Appends bytes. If they do not fit, the contents move to a larger buffer.
    pub fn append(&mut self, bytes: &[u8]) {
        self.room_for(bytes.len()).extend_from_slice(bytes);
        self.count();
    }

    /// The vector to which about this many bytes can be appended. If they would not fit, the contents
    /// move to a larger buffer first. The caller must call [`Self::count`] afterwards.
    pub fn room_for(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.next == LARGE && self.bytes.capacity() == 0 {
            self.bytes = take(LARGE);
        }
        let tail = self.tail();
        if tail.len() + bytes > tail.capacity() && tail.capacity() < LARGE {
            let mut larger = take(LARGE);
            larger.extend_from_slice(tail);
            give(std::mem::replace(tail, larger));
            // A peer that has filled a small buffer will probably do so again.
            self.next = LARGE;
        }
        &mut self.bytes
    }

    /// Gives the memory back, unless it holds unread bytes.
    pub fn release(&mut self) {
        if self.is_empty() && self.bytes.capacity() != 0 {
            give(std::mem::take(&mut self.bytes));
            self.count();
            self.start = 0;
        }
    }

    /// Makes the next read start with a small buffer again, for a new message.
    pub fn start_small(&mut self) {
        self.next = FIRST;
    }

    /// Takes the unread bytes out, and leaves an empty buffer behind.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let unread = self.unread().to_vec();
        self.consume(unread.len());
        self.release();
        unread
    }

    /// Reads once from `stream`. The buffer then has at most `limit` unread bytes. `Ok(0)` is the end of
    /// the stream.
    ///
    /// Callers must not call this while the buffer has `limit` unread bytes: that is an error of kind
    /// `OutOfMemory`.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            // Memory is allocated only when there probably is something to read.
            if stream.poll_readable(cx)?.is_pending() {
                self.release();
                return Poll::Pending;
            }
            self.make_room(limit)?;
            let spare = self.bytes.capacity() - self.bytes.len();
            match stream.poll_receive(cx, &mut self.bytes) {
                // A peer that fills the buffer probably sends more, and fewer, larger reads are cheaper.
                Poll::Ready(Ok(Some(count))) if count == spare => {
                    self.next = if self.bytes.capacity() >= SMALL { LARGE } else { SMALL };
                    return Poll::Ready(Ok(count));
                }
                Poll::Ready(Ok(Some(count))) => return Poll::Ready(Ok(count)),
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.release();
                    return Poll::Pending;
                }
            }
        }
    }

    fn make_room(&mut self, limit: usize) -> io::Result<()> {
        if self.is_empty() {
            // Under memory pressure, a fast peer loses its large buffer.
            let most = if self.next == FIRST { usize::MAX } else { pressure::largest_buffer() };
            let wanted = self.next.min(most).min(limit.max(FIRST));
            if self.bytes.capacity() < wanted || self.bytes.capacity() > most {
                self.release();
                self.bytes = take(wanted);
                self.count();
            }
            return Ok(());
        }
        if self.bytes.len() < self.bytes.capacity() {
            return Ok(());
        }
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
            return Ok(());
        }
        let grown = (self.bytes.capacity() * 4).min(limit.max(FIRST));
        if grown <= self.bytes.len() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let mut bytes = take(grown);
        bytes.extend_from_slice(&self.bytes);
        give(std::mem::replace(&mut self.bytes, bytes));
        self.count();
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.capacity() != 0 {
            give(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn grows_to_its_limit_and_no_further() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        let mut stream = Stream::Plain(near.into());
        tokio::spawn(async move {
            // The reader stops before the end.
            let _ = far.write_all(&vec![7u8; 200 * 1024]).await;
        });
        let mut buffer = Buffer::new();
        let error = loop {
            match poll_fn(|cx| buffer.poll_fill(cx, &mut stream, 128 * 1024)).await {
                Ok(0) => panic!("the limit was ignored"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(buffer.len(), 128 * 1024);
    }

    #[test]
    fn a_buffer_that_never_empties_does_not_grow() {
        let mut buffer = Buffer::new();
        buffer.tail().extend_from_slice(&[1; 4096]);
        for _ in 0..10_000 {
            buffer.tail().extend_from_slice(&[2; 1000]);
            buffer.consume(1000);
        }
        assert_eq!(buffer.len(), 4096);
        assert!(buffer.bytes.capacity() <= 2 * SMALL, "{}", buffer.bytes.capacity());
    }

    #[test]
    fn an_empty_buffer_holds_no_memory() {
        let mut buffer = Buffer::new();
        buffer.tail().extend_from_slice(b"abc");
        buffer.release();
        assert_eq!(buffer.unread(), b"abc");
        buffer.consume(3);
        buffer.release();
        assert_eq!(buffer.bytes.capacity(), 0);
    }
}
