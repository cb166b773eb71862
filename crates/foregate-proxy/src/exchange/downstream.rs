//! The client's side of an exchange: its connection, both bodies, and the deadlines by which they
//! have to move.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use super::client::{Client, Peer};
use super::progress::{AwaitedEvent, Progress};
use crate::error::Error;
use crate::link::copy::BodyCopy;
use crate::link::{Link, LinkError};
use crate::settings::{OriginTimes, RouteTimeouts, Timeouts, UpstreamSettings};
use crate::time::clock;
use crate::time::timer::Timer;
use crate::transport::outcome::CopyError;

/// The client's side of an exchange.
#[derive(Debug)]
pub(super) struct Downstream<'a> {
    pub peer: &'a Peer,
    pub client: &'a mut Client,
    pub timer: &'a mut Timer,
    pub timeouts: &'a Timeouts,
    /// The route's timeouts for the origin.
    pub route_timeouts: Option<&'a RouteTimeouts>,
    /// The time by which the whole exchange must be over.
    pub total: Option<Instant>,
    /// The request's body.
    pub upload: BodyCopy,
    /// The response's body.
    pub download: BodyCopy,
    pub progress: Progress,
}

impl<'a> Downstream<'a> {
    /// Replaces the time limits of the upstream by those of a route.
    pub fn limit_times(&mut self, timeouts: &'a RouteTimeouts) {
        self.route_timeouts = Some(timeouts);
        self.total = timeouts.total.map(|total| clock::now() + total);
    }

    /// The time limits for an origin of this upstream.
    pub fn origin_times(&self, upstream: &UpstreamSettings) -> OriginTimes {
        self.route_timeouts.map_or_else(|| upstream.into(), |timeouts| timeouts.over(upstream))
    }

    /// Ready once the exchange has taken longer than its route allows.
    pub fn poll_total(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(total) = self.total else { return Poll::Pending };
        self.timer.poll(cx, total).map(|()| Error::TotalTimeout)
    }

    /// Ready once the client has given up on the exchange.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.client.poll_abandoned(cx, self.timer).map(Error::Client)
    }

    /// Like [`Self::poll_gone`], but skips the check if the request has only just begun.
    pub fn poll_gone_at(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Error> {
        if self.client.unwatched_until(now).is_some() { Poll::Pending } else { self.poll_gone(cx) }
    }

    /// Waits until the client's connection has room for a head. Without this, the heads of its streams would pile up if
    /// the client does not read.
    pub async fn room(&mut self) -> Result<(), Error> {
        let since = clock::now();
        poll_fn(|cx| {
            if self.client.link.poll_room(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(error) = self.poll_gone(cx) {
                return Poll::Ready(Err(error));
            }
            let moved_at = self.client.link.left_at().map_or(since, |at| at.max(since));
            self.timer.poll(cx, moved_at + self.timeouts.write_stall).map(|()| Err(Error::WriteStall))
        })
        .await
    }

    /// Moves the rest of the request's body to the origin.
    ///
    /// # Errors
    ///
    /// The request cannot be completed.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>, origin: &mut Link) -> Result<(), Error> {
        if self.upload.is_done() {
            return Ok(());
        }
        let moved = self.upload.poll(cx, Some(&mut self.client.link), origin);
        let now = clock::now();
        self.progress.observe_given(self.upload.sent, now);
        match moved {
            // The time limit for the response starts when the request has ended, which may be long after its last byte.
            Poll::Ready(Ok(())) => self.progress.uploaded_all(now),
            Poll::Ready(Err(CopyError::Sink(_))) => {
                // The origin does not want the rest; it may have answered already.
                self.upload.give_up();
            }
            Poll::Ready(Err(error)) => {
                self.client.close |=
                    matches!(error, CopyError::Source(LinkError::Body(_) | LinkError::Length));
                return Err(Error::of_upload(error));
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Waits for the earliest deadline of the events in `awaited`. The deadlines of an origin come from its `upstream`.
    pub fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        upstream: Option<&UpstreamSettings>,
        awaited: &[AwaitedEvent],
        now: Instant,
    ) -> Poll<Result<(), Error>> {
        let waits = awaited.contains(&AwaitedEvent::ClientRead);
        self.progress.observe_client(self.download.sent, waits, self.client.link.left_at(), now);
        if !awaited.contains(&AwaitedEvent::ClientBody) {
            self.progress.excuse_client(now);
        }
        if let Poll::Ready(error) = self.poll_total(cx) {
            return Poll::Ready(Err(error));
        }
        let next = awaited
            .iter()
            .filter_map(|&awaited| Some((self.deadline_of(awaited, upstream, now)?, awaited)))
            .min_by_key(|(deadline, _)| *deadline);
        let Some((deadline, awaited)) = next else { return Poll::Pending };
        if let Some(watch) = self.client.unwatched_until(now).filter(|watch| *watch < deadline) {
            if self.timer.poll(cx, watch).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        if self.timer.poll(cx, deadline).is_pending() {
            return Poll::Pending;
        }
        // If the client was fast enough in this span, its deadline has moved, and this is not a timeout.
        let still = self.deadline_of(awaited, upstream, Instant::now());
        if still.is_some_and(|still| still > deadline) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Err(match awaited {
            AwaitedEvent::ClientBody | AwaitedEvent::ExpectedBody | AwaitedEvent::EitherBody => {
                Error::BodyTimeout
            }
            AwaitedEvent::ClientRead => Error::WriteStall,
            AwaitedEvent::OriginRead => Error::OriginStall,
            AwaitedEvent::FirstByte => Error::FirstByteTimeout,
            AwaitedEvent::OriginBody => Error::OriginIdle,
        }))
    }

    /// The deadline of `awaited`. An origin that reads nothing has less time if the part of the client's body that waits
    /// here exceeds an ordinary HTTP/2 window.
    fn deadline_of(
        &mut self,
        awaited: AwaitedEvent,
        upstream: Option<&UpstreamSettings>,
        now: Instant,
    ) -> Option<Instant> {
        let times = upstream.map(|upstream| self.origin_times(upstream));
        let deadline = self.progress.deadline(awaited, self.timeouts, times, now)?;
        let holds = awaited == AwaitedEvent::OriginRead && self.client.link.holds_grown_window();
        let stalls = self.progress.moved_at() + self.timeouts.write_stall;
        Some(if holds { deadline.min(stalls) } else { deadline })
    }
}
