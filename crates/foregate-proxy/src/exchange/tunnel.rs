//! Upgrades and CONNECT: bytes both ways that are not HTTP (RFC 9110, sections 7.8 and 9.3.6; RFC
//! 8441).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use foregate_wire::{BodyLength, Method, NameId, connection};

use super::reply::BodySource;
use super::send::{drop_origin, give_up, send_head};
use super::shape::shape_or_send;
use super::state::{Exchange, Step};
use crate::error::{Error, Side};
use crate::link::copy::BodyCopy;
use crate::link::{Link, LinkError};
use crate::relay::{Relay, RelayFault, RelayRecord, RelaySide, RelayTimes};
use crate::time::clock;
use crate::upstream::Origin;

impl Exchange<'_> {
    /// Turns the origin's agreement into the response for the client.
    pub(super) fn agree_on_tunnel(&mut self, origin: Origin) -> Step {
        let key = self.request.head.headers.get_name(b"sec-websocket-key").map(<[u8]>::to_vec);
        let headers = &mut self.response.headers;
        connection::strip_hop_by_hop(headers, false);
        headers.remove(NameId::TransferEncoding);
        headers.remove(NameId::ContentLength);
        match &self.down.client.link {
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
            Link::H2(_) | Link::Client(_) | Link::Cached(_) | Link::Ahead(_) => {
                headers.remove_name(b"sec-websocket-accept");
            }
        }
        shape_or_send(self, BodySource::Origin(origin, BodyLength::Tunnel))
    }

    /// Tells the client, and turns both connections into byte streams.
    pub(super) fn open_tunnel(&mut self, mut origin: Origin) -> Step {
        self.down.client.close = true;
        if self.request.head.method == Method::Connect && self.down.client.link.has_more() {
            // The client has not waited for the answer to CONNECT.
            drop_origin(self, origin, &Error::EarlyTunnel);
            return Step::Failed(Error::EarlyTunnel);
        }
        if let Err(error) = send_head(self, BodyLength::Tunnel) {
            return give_up(self, Some(origin), Error::Client(error));
        }
        let limits = foregate_wire::HeadLimits::default();
        if let Link::H1(link) = &mut self.down.client.link {
            link.begin_receive(BodyLength::UntilClose, &limits);
            link.begin_send(BodyLength::UntilClose);
        }
        if let Link::H1(link) = &mut origin.link {
            link.begin_send(BodyLength::UntilClose);
        }
        Step::Tunnel(origin)
    }

    /// Moves bytes both ways until both sides have ended, or nothing moves for too long.
    pub(super) async fn tunnel(&mut self, mut origin: Origin, begun: Option<Relay>) -> Step {
        let mut relay = begun.unwrap_or_else(|| self.begin_tunnel());
        // A tunnel may be silent for hours, so shedding has to wake it.
        let mut shedding = self.may_move().then(|| Box::pin(self.proxy.shedding.wait()));
        let result = poll_fn(|cx| {
            let polled = relay.poll(cx, &mut self.down.client.link, &mut origin.link, self.down.timer);
            self.note_relay(relay.record());
            if polled.is_pending()
                && shedding.as_mut().is_some_and(|shedding| shedding.as_mut().poll(cx).is_ready())
            {
                return Poll::Ready(None);
            }
            polled.map(Some)
        })
        .await;
        match result {
            Some(Ok(())) => Step::Done,
            Some(Err(fault)) => give_up(self, Some(origin), error_of_relay(fault)),
            None => Step::Move(Box::new(Step::TunnelOn(Box::new((origin, relay))))),
        }
    }

    fn begin_tunnel(&mut self) -> Relay {
        self.down.upload = BodyCopy::new();
        self.down.download = BodyCopy::new();
        self.record.tunnel = true;
        let idle = self.upstream().map_or(Duration::ZERO, |upstream| upstream.settings.tunnel_idle);
        let times = RelayTimes {
            idle,
            near_takes: self.config.settings.timeouts.write_stall,
            far_takes: self.upstream().map_or(idle, |upstream| upstream.settings.idle_timeout),
        };
        Relay::new(times, clock::now())
    }

    /// Notes the figures of the tunnel so far: an exchange is logged also when it is dropped.
    fn note_relay(&mut self, relay: RelayRecord) {
        (self.down.upload.moved, self.down.upload.sent) = (relay.up, relay.up);
        (self.down.download.moved, self.down.download.sent) = (relay.down, relay.down);
        self.record.ended_by = relay.ended_by.map(|side| match side {
            RelaySide::Near => Side::Downstream,
            RelaySide::Far => Side::Upstream,
        });
    }
}

fn error_of_relay(fault: RelayFault<LinkError>) -> Error {
    match fault {
        RelayFault::Failed(RelaySide::Near, error) => Error::Client(error),
        RelayFault::Failed(RelaySide::Far, error) => Error::Origin(error),
        RelayFault::Idle => Error::OriginIdle,
        RelayFault::Stalled(RelaySide::Near) => Error::WriteStall,
        RelayFault::Stalled(RelaySide::Far) => Error::OriginStall,
    }
}
