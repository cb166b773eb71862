//! One direction of a relay.

use std::task::{Context, Poll};
use std::time::Instant;

use super::RelayEnd;
use crate::link::turn::give_way;
use crate::transport::progress::{Movement, Taking};

/// The number of bytes moved in a row. After them, other tasks of the worker run: peers that are
/// always ready would hold the worker for milliseconds.
pub(super) const BURST: u64 = 64 * 1024;

/// The end at which a direction has failed.
pub(super) enum WayFault<E> {
    /// Receiving failed.
    Source(E),
    /// Sending failed.
    Sink(E),
}

/// The progress of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Bytes move.
    Open,
    /// The source has ended; some of its bytes may not have been sent yet.
    Ended,
    /// All bytes have been sent.
    Flushed,
    /// The sink has received the end.
    Shut,
}

/// One direction: moves bytes with backpressure, and passes the end on.
#[derive(Debug)]
pub(super) struct Way {
    stage: Stage,
    moved: u64,
    /// True while the sink takes nothing.
    is_held: bool,
    observed: Movement,
    taking: Taking,
}

impl Way {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Open,
            moved: 0,
            is_held: false,
            observed: Movement::new(now),
            taking: Taking::default(),
        }
    }

    /// Bytes moved so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// When bytes last moved.
    pub(super) fn moved_at(&self) -> Instant {
        self.observed.at()
    }

    /// Returns true if the source has ended and all its bytes have been sent.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Flushed | Stage::Shut)
    }

    /// Returns true if the sink has also received the end.
    pub(super) fn is_shut(&self) -> bool {
        self.stage == Stage::Shut
    }

    /// The time since which the sink takes next to nothing of its output.
    pub(super) fn stuck(&self) -> Option<Instant> {
        self.taking.stuck()
    }

    /// Records progress. `left_at` is when other streams of the sink's connection last made progress.
    pub(super) fn observe(&mut self, left_at: Option<Instant>, now: Instant) {
        self.observed.observe(self.moved, now);
        // After all bytes, the sink still has to take the end.
        let waits = self.is_held || self.stage == Stage::Flushed;
        self.taking.observe(self.moved, waits, now);
        self.taking.has_left(left_at);
    }

    /// Moves the available bytes.
    pub(super) fn poll<S, K>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
        sink: &mut K,
    ) -> Result<(), WayFault<S::Error>>
    where
        S: RelayEnd,
        K: RelayEnd<Error = S::Error>,
    {
        if self.stage == Stage::Open {
            self.poll_open(cx, source, sink)?;
            if self.is_held {
                source.hold(cx);
            }
        }
        if self.stage == Stage::Ended && self.flush(cx, sink)? {
            self.stage = Stage::Flushed;
        }
        if self.stage == Stage::Flushed
            && let Poll::Ready(shut) = sink.poll_shutdown(cx)
        {
            shut.map_err(WayFault::Sink)?;
            self.stage = Stage::Shut;
        }
        Ok(())
    }

    fn poll_open<S, K>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
        sink: &mut K,
    ) -> Result<(), WayFault<S::Error>>
    where
        S: RelayEnd,
        K: RelayEnd<Error = S::Error>,
    {
        let start = self.moved;
        loop {
            if self.moved - start >= BURST {
                give_way(cx);
                return self.flush(cx, sink).map(|_| ());
            }
            match source.poll_receive(cx) {
                // Bytes that the sink has accepted are flushed before more arrive.
                Poll::Pending => return self.flush(cx, sink).map(|_| ()),
                Poll::Ready(Err(error)) => return Err(WayFault::Source(error)),
                Poll::Ready(Ok(false)) => {
                    sink.finish().map_err(WayFault::Sink)?;
                    self.stage = Stage::Ended;
                    return Ok(());
                }
                Poll::Ready(Ok(true)) => {
                    let Poll::Ready(taken) = sink.poll_send(cx, source.data()) else {
                        self.is_held = true;
                        return Ok(());
                    };
                    let taken = taken.map_err(WayFault::Sink)?;
                    source.consume(taken);
                    self.moved += taken as u64;
                }
            }
        }
    }

    /// Returns true if all accepted bytes have left.
    fn flush<K: RelayEnd>(&mut self, cx: &mut Context<'_>, sink: &mut K) -> Result<bool, WayFault<K::Error>> {
        match sink.poll_flush(cx) {
            Poll::Ready(flushed) => flushed.map_err(WayFault::Sink)?,
            Poll::Pending => {
                self.is_held = true;
                return Ok(false);
            }
        }
        self.is_held = false;
        Ok(true)
    }
}
