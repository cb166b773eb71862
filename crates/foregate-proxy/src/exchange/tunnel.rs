//! Upgrades and CONNECT: bytes both ways that are not HTTP (RFC 9110, sections 7.8 and 9.3.6; RFC
//! 8441).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use foregate_wire::{BodyLength, NameId, connection};

use super::reply::BodySource;
use super::send::give_up;
use super::shape::shape_or_send;
use super::state::{Exchange, Step};
use crate::error::{Error, Side};
use crate::link::copy::BodyCopy;
use crate::link::{Link, LinkError};
use crate::relay::{Relay, RelayFault, RelayRecord, RelaySide, RelayTimes};
use crate::time::clock;
use crate::upstream::Origin;

/// Turns the origin's agreement into the response for the client.
pub(super) fn agree_on_tunnel(exchange: &mut Exchange<'_>, origin: Origin) -> Step {
    let key = exchange.request.head.headers.get_name(b"sec-websocket-key").map(<[u8]>::to_vec);
    let headers = &mut exchange.response.headers;
    connection::strip_hop_by_hop(headers, false);
    headers.remove(NameId::TransferEncoding);
    headers.remove(NameId::ContentLength);
    match &mut exchange.down.client.link {
        Link::H1(_) if exchange.request.upgrade.is_some() => {
            if origin.link.is_h2() {
                if let Some(key) = key {
                    let accept = crate::websocket::accept(&key);
                    headers.set_name(b"Sec-WebSocket-Accept", accept.as_bytes());
                }
                exchange.response.status = 101;
            }
        }
        Link::H1(_) => {}
        Link::Client(stream) => {
            stream.opens_tunnel(exchange.request.upgrade.is_some());
            headers.remove_name(b"sec-websocket-accept");
        }
        Link::H2(_) | Link::Cached(_) | Link::Ahead(_) => {}
    }
    shape_or_send(exchange, BodySource::Origin(origin, BodyLength::Tunnel))
}

/// Moves bytes both ways until both sides have ended, or nothing moves for too long.
pub(super) async fn run(exchange: &mut Exchange<'_>, mut origin: Origin, begun: Option<Relay>) -> Step {
    let mut relay = begun.unwrap_or_else(|| begin_tunnel(exchange));
    // A tunnel may be silent for hours, so shedding has to wake it.
    let mut shedding = exchange.may_move().then(|| Box::pin(exchange.proxy.shedding.wait()));
    let result = poll_fn(|cx| {
        let polled = relay.poll(cx, &mut exchange.down.client.link, &mut origin.link, exchange.down.timer);
        note_relay(exchange, relay.record());
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
        Some(Err(fault)) => give_up(exchange, Some(origin), error_of_relay(fault)),
        None => Step::Move(Box::new(Step::TunnelOn(Box::new((origin, relay))))),
    }
}

fn begin_tunnel(exchange: &mut Exchange<'_>) -> Relay {
    exchange.down.upload = BodyCopy::new();
    exchange.down.download = BodyCopy::new();
    exchange.record.tunnel = true;
    let idle = exchange.upstream().map_or(Duration::ZERO, |upstream| upstream.settings.tunnel_idle);
    let times = RelayTimes {
        idle,
        near_takes: exchange.config.settings.timeouts.write_stall,
        far_takes: exchange.upstream().map_or(idle, |upstream| upstream.settings.idle_timeout),
    };
    Relay::new(times, clock::now())
}

/// Notes the figures of the tunnel so far, because the exchange may be dropped at any time and is logged then.
fn note_relay(exchange: &mut Exchange<'_>, relay: RelayRecord) {
    (exchange.down.upload.moved, exchange.down.upload.sent) = (relay.up, relay.up);
    (exchange.down.download.moved, exchange.down.download.sent) = (relay.down, relay.down);
    exchange.record.ended_by = relay.ended_by.map(|side| match side {
        RelaySide::Near => Side::Downstream,
        RelaySide::Far => Side::Upstream,
    });
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
