//! Sending a reply to the client, from any source.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::Source;
use foregate_wire::{BodyLength, Method, NameId};

use super::bodies::sweep;
use super::log_first::log_first;
use super::reply::{BodySource, Sender, date};
use super::state::{Detour, Exchange, Step, StepResult};
use crate::error::Error;
use crate::link::ahead::AheadFiles;
use crate::link::start::Front;
use crate::link::{AheadLink, Link, LinkError};
use crate::message::grpc;
use crate::settings::BufferResponses;
use crate::spans::{SpanId, traceparent};
use crate::upstream::Origin;

/// Sends the head of the response.
pub(super) async fn run(exchange: &mut Exchange<'_>, source: BodySource) -> StepResult {
    if let Err(error) = exchange.down.room().await {
        return Ok(give_up(exchange, source.origin(), error));
    }
    if let Some(Detour::Shielded(shielded)) = exchange.rare.detour.as_deref() {
        let (is_error, status) = (exchange.record.error.is_some(), exchange.response.status);
        shielded.prove(is_error, status, &mut exchange.response.headers);
    }
    log_first(exchange).await;
    Ok(match source {
        BodySource::Origin(origin, BodyLength::Tunnel) => open_tunnel(exchange, origin),
        source => begin_body(exchange, source),
    })
}

fn begin_body(exchange: &mut Exchange<'_>, source: BodySource) -> Step {
    let (head, status) = (exchange.request.head.method == Method::Head, exchange.response.status);
    let mut of_grpc = false;
    let (origin, length) = match source {
        BodySource::Origin(origin, length) => {
            let may_have_trailers = length == BodyLength::Chunked || origin.link.is_h2();
            let sweep = if may_have_trailers { sweep(exchange) } else { None };
            exchange.down.download.sweep(sweep);
            let origin = match buffering(exchange, length) {
                Some(limits) => ahead_of_client(exchange, origin, limits),
                None => origin,
            };
            (Some(Sender::Origin(origin)), length)
        }
        BodySource::Cached(link, length) => (Some(Sender::Held(link)), length),
        BodySource::Bytes(body) if is_error_for_grpc(exchange) => {
            of_grpc = true;
            grpc::make_trailers_only(exchange.response, &body);
            exchange.down.download.replace(None);
            (None, BodyLength::Empty)
        }
        BodySource::Bytes(body) => {
            let length = body.len() as u64;
            if head {
                exchange.response.headers.set(NameId::ContentLength, length.to_string().as_bytes());
            }
            let bodiless = head || matches!(status, 204 | 304);
            exchange.down.download.replace(if bodiless { None } else { Front::new(body, None) });
            (None, if bodiless { BodyLength::Empty } else { BodyLength::Fixed(length) })
        }
        BodySource::File(body, length) => {
            if let Some(body) = body {
                exchange.down.download.front = Some(Front::Document(body));
            }
            (None, length)
        }
    };
    // A 204 has no Content-Length, whatever the method (RFC 9110, section 8.6).
    let has_length = match status {
        304 => {
            matches!(origin, Some(Sender::Origin(_)))
                && !exchange.plan().is_some_and(|plan| plan.changes_bodies())
        }
        _ => head && status != 204,
    };
    let headers = &mut exchange.response.headers;
    if has_length {
        foregate_wire::collapse_content_length(headers);
    } else {
        headers.remove(NameId::ContentLength);
    }
    if !headers.contains(NameId::Date) {
        // A response needs a `Date` (RFC 9110, section 6.6.1).
        headers.push_id(NameId::Date, &date());
    }
    let may_not_come = body_may_not_come(exchange);
    let is_unwanted = origin.is_none() && !exchange.down.upload.is_done();
    exchange.down.client.close |= may_not_come
        || is_unwanted
            && exchange.down.client.ends_unread(exchange.config.settings.limits.early_response_drain);
    if may_not_come || is_unwanted {
        exchange.down.upload.give_up();
    }
    let sent = send_head(exchange, length);
    if of_grpc {
        // The log, the metrics and the steps of the phase `log` see the status of the error.
        (exchange.response.status, exchange.record.status) = (status, Some(status));
    }
    match sent {
        Ok(()) => Step::Transfer(origin),
        Err(error) => give_up(exchange, origin.and_then(Sender::origin), Error::Client(error)),
    }
}

/// Returns true if the response is an error that this proxy or a module's step reports to a client of gRPC. A route's
/// `respond` says what it says, and origins and caches know the protocol of their clients.
fn is_error_for_grpc(exchange: &Exchange<'_>) -> bool {
    let is_made_for_an_error = match &exchange.modules.run {
        Some(run) => matches!(run.facts.source, Source::Error(_) | Source::Step { .. }),
        None => exchange.record.error.is_some(),
    };
    is_made_for_an_error
        && exchange.response.status >= 400
        && exchange.down.client.link.is_h2()
        && grpc::is_call(&exchange.request.head)
}

/// Sends the head that accepts the tunnel, and turns both connections into byte streams.
fn open_tunnel(exchange: &mut Exchange<'_>, mut origin: Origin) -> Step {
    exchange.down.client.close = true;
    if exchange.request.head.method == Method::Connect && exchange.down.client.link.has_more() {
        // The client has sent bytes for the tunnel without waiting for the answer to CONNECT.
        drop_origin(exchange, origin, &Error::EarlyTunnel);
        return Step::Failed(Error::EarlyTunnel);
    }
    if let Err(error) = send_head(exchange, BodyLength::Tunnel) {
        return give_up(exchange, Some(origin), Error::Client(error));
    }
    let limits = foregate_wire::HeadLimits::default();
    if let Link::H1(link) = &mut exchange.down.client.link {
        link.begin_receive(BodyLength::UntilClose, &limits);
        link.begin_send(BodyLength::UntilClose);
    }
    if let Link::H1(link) = &mut origin.link {
        link.begin_send(BodyLength::UntilClose);
    }
    Step::Tunnel(origin)
}

/// The limits for receiving this response ahead of the client. `None`: it is read only as fast as the client reads.
fn buffering(exchange: &Exchange<'_>, length: BodyLength) -> Option<BufferResponses> {
    let of_route = exchange.routed.route.and_then(|route| route.buffer_responses);
    let limits = of_route.unwrap_or(exchange.upstream()?.settings.buffer_responses)?;
    // Not while the request is still being sent to the origin: the client may have to read a part of the response
    // before it sends more of the request.
    let is_sent = exchange.down.upload.is_done() && !exchange.down.upload.gave_up();
    let declines = exchange.response.headers.get_name(b"x-accel-buffering");
    let declines = declines.is_some_and(|value| value.eq_ignore_ascii_case(b"no"));
    (is_sent && !length.is_empty() && !declines).then_some(limits)
}

/// Puts a buffer before a link, so that its bytes are received ahead of the client.
pub(super) fn receive_ahead(exchange: &Exchange<'_>, link: &mut Link, limits: BufferResponses) {
    let account = exchange.account();
    let share = exchange.proxy.filter_memory.share(account);
    let spools = Arc::clone(&exchange.proxy.spools);
    let files = AheadFiles { spools, folder: exchange.config.settings.spool_folder(), account };
    AheadLink::new(limits, share, files).before(link);
}

/// Has the response received ahead of the client.
fn ahead_of_client(exchange: &Exchange<'_>, mut origin: Origin, limits: BufferResponses) -> Origin {
    receive_ahead(exchange, &mut origin.link, limits);
    origin
}

/// Returns true if the client never got 100 (Continue), so that its body may not arrive.
fn body_may_not_come(exchange: &Exchange<'_>) -> bool {
    exchange.request.expect_continue && (!exchange.down.upload.is_done() || exchange.down.upload.gave_up())
}

/// Sends the head of the final response.
pub(super) fn send_head(exchange: &mut Exchange<'_>, length: BodyLength) -> Result<(), LinkError> {
    exchange.record.status = Some(match (&exchange.down.client.link, exchange.response.status) {
        // Over HTTP/2, 200 accepts an upgrade (RFC 8441, section 5).
        (Link::Client(_), 101) => 200,
        (_, status) => status,
    });
    if exchange.proxy.is_draining() || exchange.down.client.close_soon {
        exchange.down.client.close = true;
    }
    if exchange.down.peer.replay.is_none() {
        exchange.proxy.metrics.latencies.record(exchange.record.start);
    }
    if exchange.routed.route.is_some_and(|route| route.server_timing) && exchange.request.verbatim.is_none() {
        tell_timing(exchange);
    }
    exchange.response.count();
    if let Some(watched) = &mut exchange.rare.watched {
        let (status, headers) = (exchange.response.status, &exchange.response.headers);
        let seen = watched.head(&exchange.proxy.comparisons, status, headers, exchange.record.start);
        exchange.down.download.seen = Some(seen);
    }
    exchange.down.client.send_head(exchange.request, exchange.response, length)
}

/// Adds `Server-Timing` (W3C Server Timing).
fn tell_timing(exchange: &mut Exchange<'_>) {
    let milliseconds = |span: Duration| span.as_micros() as f64 / 1000.0;
    let mut value = format!("total;dur={}", milliseconds(exchange.record.start.elapsed()));
    if let Some(first_byte) = exchange.ask.as_ref().and_then(|ask| ask.first_byte) {
        let _ = write!(value, ", upstream;dur={}", milliseconds(first_byte));
    }
    if let Some(cached) = &exchange.rare.cached {
        let _ = write!(value, ", cache;desc={}", cached.outcome.as_str());
    }
    if let Some(context) = exchange.modules.run.as_ref().and_then(|run| run.facts.trace) {
        let parent = traceparent(&context, SpanId(context.span));
        let _ = write!(value, ", traceparent;desc=\"{}\"", String::from_utf8_lossy(&parent));
    }
    exchange.response.headers.push(b"Server-Timing", value.as_bytes());
}

/// Ends an exchange that cannot go on, and the origin's connection with it.
pub(super) fn give_up(exchange: &Exchange<'_>, origin: Option<Origin>, error: Error) -> Step {
    if let Some(origin) = origin {
        drop_origin(exchange, origin, &error);
    }
    Step::Broken(error)
}

/// Ends the origin's connection or stream after an exchange has failed, and reports the error to the upstream.
pub(super) fn drop_origin(exchange: &Exchange<'_>, mut origin: Origin, error: &Error) {
    if let Some(upstream) = exchange.upstream() {
        origin.gave_up(error, &upstream.settings);
    }
    origin.link.abort();
}
