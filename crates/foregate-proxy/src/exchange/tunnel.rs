//! Upgrades and CONNECT: bytes both ways that are not HTTP (RFC 9110, sections 7.8 and 9.3.6; RFC 8441).

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_module::PhaseId;
use foregate_wire::{BodyLength, Method, NameId, connection};

use super::progress::Taking;
use super::{Exchange, Step};
use crate::error::{Error, Side};
use crate::link::copy::{Copy, CopyError, Waiting};
use crate::link::{Link, LinkError};
use crate::telemetry::clock;
use crate::upstream::Origin;

impl Exchange<'_> {
    /// The origin has agreed: makes its response what the client shall see.
    pub(super) fn agree_on_tunnel(&mut self, origin: Origin) -> Step {
        let key = self.request.head.headers.get_name(b"sec-websocket-key").map(<[u8]>::to_vec);
        let headers = &mut self.response.headers;
        connection::strip_hop_by_hop(headers, false);
        headers.remove(NameId::TransferEncoding);
        headers.remove(NameId::ContentLength);
        match &self.client.link {
            Link::H1(_) if self.request.upgrade.is_some() => {
                if origin.link.is_h2() {
                    if let Some(key) = key {
                        let accept = crate::websocket::accept(&key);
                        headers.set_name(b"Sec-WebSocket-Accept", accept.as_bytes());
                    }
                    self.response.status = 101;
                }
            }
            Link::H1(_) => {}
            Link::H2(_) | Link::Client(_) => {
                headers.remove_name(b"sec-websocket-accept");
            }
        }
        if self.has_steps(PhaseId::UpstreamResponse, PhaseId::ResponseBody) {
            return Step::Shape(origin, BodyLength::Tunnel);
        }
        Step::Head(origin, BodyLength::Tunnel)
    }

    /// Tells the client, and turns both connections into byte streams.
    pub(super) fn open_tunnel(&mut self, mut origin: Origin) -> Step {
        self.client.close = true;
        if self.request.head.method == Method::Connect && self.client.link.has_more() {
            // The client has not waited for the answer to CONNECT.
            self.drop_origin(origin, &Error::EarlyTunnel);
            return Step::Failed(Error::EarlyTunnel);
        }
        if let Err(error) = self.begin_response(BodyLength::Tunnel) {
            return self.give_up(origin, Error::Client(error));
        }
        let limits = foregate_wire::HeadLimits::default();
        if let Link::H1(link) = &mut self.client.link {
            link.begin_receive(BodyLength::UntilClose, &limits);
            link.begin_send(BodyLength::UntilClose);
        }
        if let Link::H1(link) = &mut origin.link {
            link.begin_send(BodyLength::UntilClose);
        }
        Step::Tunnel(origin)
    }

    /// Moves bytes both ways until both sides have ended, or nothing moves for too long.
    pub(super) async fn tunnel(&mut self, mut origin: Origin) -> Step {
        self.upload = Copy::new();
        self.download = Copy::new();
        self.record.tunnel = true;
        let idle = self.upstream.map_or(std::time::Duration::ZERO, |upstream| upstream.settings.tunnel_idle);
        let taking = self.upstream.map_or(idle, |upstream| upstream.settings.idle_timeout);
        let limits =
            [(taking, Error::OriginStall), (self.config.settings.timeouts.write_stall, Error::WriteStall)];
        let mut ways = [Way::new(clock::now()); 2];
        let mut shut = [false; 2];
        let result = poll_fn(|cx| {
            let done = self.poll_tunnel(cx, &mut origin, &mut shut);
            if self.record.ended_by.is_none() {
                self.record.ended_by = match (self.upload.is_done(), self.download.is_done()) {
                    (true, _) => Some(Side::Downstream),
                    (false, true) => Some(Side::Upstream),
                    (false, false) => None,
                };
            }
            if let Poll::Ready(result) = done {
                return Poll::Ready(result);
            }
            let now = clock::now();
            ways[0].observe(&self.upload, shut[0], now);
            ways[1].observe(&self.download, shut[1], now);
            ways[1].sink.has_left(self.client.link.left_at());
            // An origin that has ended its side still reads, or has gone: only what the client sends to it can tell.
            let idle = if shut[1] { idle.min(taking) } else { idle };
            let mut due = (ways[0].moved_at.max(ways[1].moved_at) + idle, Error::OriginIdle);
            for (way, (limit, error)) in ways.iter().zip(limits) {
                if let Some(since) = way.sink.stuck()
                    && since + limit < due.0
                {
                    due = (since + limit, error);
                }
            }
            self.timer.poll(cx, due.0).map(|()| Err(due.1))
        })
        .await;
        match result {
            Ok(()) => Step::Done,
            // The client has all that the origin had to say, and nothing is lost with what it goes on saying.
            Err(error) if shut[1] && error.side() == Side::Upstream => Step::Done,
            Err(error) => self.give_up(origin, error),
        }
    }

    fn poll_tunnel(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        shut: &mut [bool; 2],
    ) -> Poll<Result<(), Error>> {
        let client = &mut self.client.link;
        if let Poll::Ready(error) = client.poll_abandoned(cx) {
            return Poll::Ready(Err(Error::Client(error)));
        }
        poll_way(cx, &mut self.upload, client, &mut origin.link, &mut shut[0]).map_err(Error::of_upload)?;
        poll_way(cx, &mut self.download, &mut origin.link, client, &mut shut[1])
            .map_err(Error::of_download)?;
        if *shut == [true; 2] { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// How one direction gets on.
#[derive(Debug, Clone, Copy)]
struct Way {
    moved: u64,
    moved_at: Instant,
    sink: Taking,
}

impl Way {
    fn new(now: Instant) -> Self {
        Self { moved: 0, moved_at: now, sink: Taking::default() }
    }

    fn observe(&mut self, copy: &Copy, shut: bool, now: Instant) {
        if copy.moved != self.moved {
            self.moved = copy.moved;
            self.moved_at = now;
        }
        // Its end has to be taken, too.
        let waits = copy.waiting == Waiting::Sink || copy.is_done() && !shut;
        self.sink.observe(copy.sent, waits, now);
    }
}

/// One direction: moves bytes, and passes on the end.
fn poll_way(
    cx: &mut Context<'_>,
    copy: &mut Copy,
    source: &mut Link,
    sink: &mut Link,
    shut: &mut bool,
) -> Result<(), CopyError> {
    if *shut {
        return Ok(());
    }
    if !copy.is_done()
        && let Poll::Ready(moved) = copy.poll(cx, source, sink)
    {
        moved?;
    }
    if copy.is_done() {
        match sink {
            Link::H1(link) => match link.poll_shutdown(cx) {
                Poll::Ready(Err(LinkError::Io(std::io::ErrorKind::NotConnected)) | Ok(())) => *shut = true,
                Poll::Ready(Err(error)) => return Err(CopyError::Sink(error)),
                Poll::Pending => {}
            },
            Link::H2(_) | Link::Client(_) => *shut = true,
        }
    }
    Ok(())
}
