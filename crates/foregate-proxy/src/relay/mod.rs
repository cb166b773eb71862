//! A relay moves bytes both ways between two streams, until both directions have ended, a stream
//! fails, or nothing moves any more.
//!
//! A relay knows nothing of HTTP. Its ends are streams behind [`RelayEnd`]; tunnels (CONNECT,
//! upgrades, extended CONNECT) use it with the links of an exchange. [`Way::poll`] moves all bytes of
//! a direction. Code that moves bytes between two plain sockets inside the kernel (`splice`) would
//! belong next to it.

mod link_end;
#[cfg(test)]
mod tests;
mod way;

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::time::clock;
use crate::time::timer::Timer;

use self::way::{Way, WayFault};

/// One end of a relay: a stream of bytes in each direction. The directions end independently.
pub trait RelayEnd {
    /// Why the stream fails.
    type Error;

    /// Waits for bytes from the peer. Returns false once the peer has ended its direction.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Self::Error>>;

    /// The bytes that have been received and not consumed yet.
    fn data(&self) -> &[u8];

    /// Drops the first `count` bytes of [`Self::data`].
    fn consume(&mut self, count: usize);

    /// Sends the start of `data`, or copies it into a small buffer. Returns how many bytes were
    /// taken.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, Self::Error>>;

    /// Waits until all bytes accepted for sending have left the process.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Ends our direction: nothing more will be sent.
    fn finish(&mut self) -> Result<(), Self::Error>;

    /// Waits until the peer has received the end of our direction.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Ready once the stream has failed. For phases in which nothing is received from it.
    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<Self::Error>;

    /// Called while the other end accepts nothing. This end should then keep arriving bytes in little
    /// memory.
    fn hold(&mut self, cx: &mut Context<'_>);

    /// When the peer last took output of other streams on the same connection.
    fn left_at(&self) -> Option<Instant>;
}

/// An end of a relay, by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelaySide {
    /// The peer that asked for the relay.
    Near,
    /// The peer at the other end of the tunnel.
    Far,
}

/// The time limits of a relay.
#[derive(Debug, Clone, Copy)]
pub struct RelayTimes {
    /// The longest time in which nothing moves in either direction.
    pub idle: Duration,
    /// The longest time in which the near peer takes next to nothing of its output
    /// ([`crate::transport::progress::LEAST_TAKEN`]).
    pub near_takes: Duration,
    /// As `near_takes`, for the far peer.
    pub far_takes: Duration,
}

/// Why a relay has ended before both directions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayFault<E> {
    /// A stream has failed.
    Failed(RelaySide, E),
    /// Nothing has moved in either direction for too long.
    Idle,
    /// A peer does not read its output.
    Stalled(RelaySide),
}

/// The figures of a relay, for its line in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayRecord {
    /// Bytes from the near to the far peer.
    pub up: u64,
    /// Bytes from the far to the near peer.
    pub down: u64,
    /// The peer that ended its direction first.
    pub ended_by: Option<RelaySide>,
}

/// The state of a relay.
#[derive(Debug)]
pub struct Relay {
    times: RelayTimes,
    up: Way,
    down: Way,
    ended_by: Option<RelaySide>,
}

impl Relay {
    /// A relay that has moved nothing.
    pub fn new(times: RelayTimes, now: Instant) -> Self {
        Self { times, up: Way::new(now), down: Way::new(now), ended_by: None }
    }

    /// The figures so far.
    pub fn record(&self) -> RelayRecord {
        RelayRecord { up: self.up.moved(), down: self.down.moved(), ended_by: self.ended_by }
    }

    /// Moves bytes until both directions have ended.
    ///
    /// Once the near peer has received everything from the far peer, bytes in the other direction are
    /// irrelevant. From then on, a failure of the far side ends the relay without an error.
    ///
    /// # Errors
    ///
    /// See [`RelayFault`].
    pub fn poll<N, F>(
        &mut self,
        cx: &mut Context<'_>,
        near: &mut N,
        far: &mut F,
        timer: &mut Timer,
    ) -> Poll<Result<(), RelayFault<N::Error>>>
    where
        N: RelayEnd,
        F: RelayEnd<Error = N::Error>,
    {
        let moved = self.poll_both(cx, near, far);
        if self.ended_by.is_none() {
            self.ended_by = match (self.up.is_over(), self.down.is_over()) {
                (true, _) => Some(RelaySide::Near),
                (false, true) => Some(RelaySide::Far),
                (false, false) => None,
            };
        }
        let result = match moved {
            Poll::Ready(result) => result,
            Poll::Pending => {
                let now = clock::now();
                self.up.observe(far.left_at(), now);
                self.down.observe(near.left_at(), now);
                let (at, fault) = self.deadline();
                if timer.poll(cx, at).is_pending() {
                    return Poll::Pending;
                }
                Err(fault)
            }
        };
        Poll::Ready(match result {
            Err(
                RelayFault::Failed(RelaySide::Far, _)
                | RelayFault::Stalled(RelaySide::Far)
                | RelayFault::Idle,
            ) if self.down.is_shut() => Ok(()),
            result => result,
        })
    }

    fn poll_both<N, F>(
        &mut self,
        cx: &mut Context<'_>,
        near: &mut N,
        far: &mut F,
    ) -> Poll<Result<(), RelayFault<N::Error>>>
    where
        N: RelayEnd,
        F: RelayEnd<Error = N::Error>,
    {
        if let Poll::Ready(error) = near.poll_failed(cx) {
            return Poll::Ready(Err(RelayFault::Failed(RelaySide::Near, error)));
        }
        self.up.poll(cx, near, far).map_err(|fault| match fault {
            WayFault::Source(error) => RelayFault::Failed(RelaySide::Near, error),
            WayFault::Sink(error) => RelayFault::Failed(RelaySide::Far, error),
        })?;
        self.down.poll(cx, far, near).map_err(|fault| match fault {
            WayFault::Source(error) => RelayFault::Failed(RelaySide::Far, error),
            WayFault::Sink(error) => RelayFault::Failed(RelaySide::Near, error),
        })?;
        if self.up.is_shut() && self.down.is_shut() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The time at which the relay ends if nothing moves, and the fault that it then ends with.
    fn deadline<E>(&self) -> (Instant, RelayFault<E>) {
        let RelayTimes { idle, near_takes, far_takes } = self.times;
        // A far peer that has ended its direction may still read, or may be gone. Only sending to it
        // shows which of the two is the case, so the idle time is shorter.
        let idle = if self.down.is_shut() { idle.min(far_takes) } else { idle };
        let mut first = (self.up.moved_at().max(self.down.moved_at()) + idle, RelayFault::Idle);
        for (way, limit, side) in
            [(&self.up, far_takes, RelaySide::Far), (&self.down, near_takes, RelaySide::Near)]
        {
            if let Some(since) = way.stuck()
                && since + limit < first.0
            {
                first = (since + limit, RelayFault::Stalled(side));
            }
        }
        first
    }
}
