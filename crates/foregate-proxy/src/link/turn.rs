//! How much of a body is received in one turn of a task.

use std::pin::pin;
use std::task::{Context, Poll};

/// The most pieces received in a row. A chunk or frame of one byte takes as long as one of hundreds,
/// so a limit on bytes alone could hold the worker for milliseconds.
pub const PIECES: u32 = 512;

/// Yields to the runnable tasks of the worker, and to tasks with sockets that have become ready in
/// the meantime. A task that merely wakes itself is polled several times before the worker polls
/// its sockets.
pub fn give_way(cx: &mut Context<'_>) {
    // The first poll registers the task with the runtime, which wakes it after it has polled its sockets.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Counts the pieces that were received without waiting.
#[derive(Debug, Default)]
pub struct Turn(u32);

impl Turn {
    /// Call this before a piece is received. Pending when other tasks should have their turn: see
    /// [`give_way`].
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == PIECES {
            self.0 = 0;
            give_way(cx);
            return Poll::Pending;
        }
        self.0 += 1;
        Poll::Ready(())
    }

    /// Ends the turn early, because there is no input.
    pub fn over(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use foregate_wire::{BodyLength, HeadLimits};
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::link::ReceiveOutcome;
    use crate::link::h1::H1Link;
    use crate::transport::stream::Stream;

    const CHUNKS: usize = 2000;

    #[tokio::test]
    async fn small_chunks_are_received_in_turns() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all("1\r\nx\r\n".repeat(CHUNKS).as_bytes()).await.unwrap();
        far.write_all(b"0\r\n\r\n").await.unwrap();
        let mut link = H1Link::new(Stream::Plain(near.into()));
        link.begin_receive(BodyLength::Chunked, &HeadLimits::default());
        let mut received = 0;
        let end = poll_fn(|cx| {
            let before = received;
            loop {
                match link.poll_receive(cx) {
                    Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                        received += link.data().len();
                        link.consume(usize::MAX);
                        assert!(received - before <= PIECES as usize, "more than a turn has");
                    }
                    polled => return polled,
                }
            }
        })
        .await;
        assert_eq!((end, received), (Ok(ReceiveOutcome::End), CHUNKS));
    }
}
