//! Asking the upstream on behalf of the client.

use std::task::{Context, Poll};
use std::time::Instant;

use foregate_module::Swept;
use foregate_wire::{BodyLength, NameId, ResponseHead, Version, connection};

use super::bodies::sweep;
use super::cached;
use super::downstream::Downstream;
use super::parts::{ask_whole, needs_whole};
use super::progress::AwaitedEvent;
use super::reply::BodySource;
use super::shape::{shape_or_send, shapes};
use super::state::{Exchange, Step, StepResult};
use super::tunnel;
use crate::error::{Error, Side};
use crate::link::Link;
use crate::link::copy::WaitingFor;
use crate::message::request::Request;
use crate::settings::UpstreamSettings;
use crate::time::clock;
use crate::upstream::{Answer, Asker, Origin, authentication};

/// Asks the upstream, until the head of the final response is there.
pub(super) async fn run(exchange: &mut Exchange<'_>) -> StepResult {
    loop {
        let Some(ask) = &mut exchange.ask else { return Err(Error::Internal.into()) };
        let mut asks = ClientAsks {
            down: &mut exchange.down,
            request: exchange.request,
            response: exchange.response,
            has_room: false,
        };
        match ask.answer(&mut asks).await? {
            Answer::Final(origin, length) => return take(exchange, origin, length),
            Answer::Interim => {
                if let Err(error) = relay_interim(exchange).await {
                    if let Some(ask) = &mut exchange.ask {
                        ask.end_attempt(&error);
                    }
                    return Err(error.into());
                }
            }
        }
    }
}

/// Sends an interim response on to the client.
pub(super) async fn relay_interim(exchange: &mut Exchange<'_>) -> Result<(), Error> {
    exchange.down.room().await?;
    if exchange.response.status == 100 {
        if !exchange.request.expect_continue && exchange.request.verbatim.is_none() {
            return Ok(());
        }
        exchange.request.expect_continue = false;
        exchange.down.progress.restart(clock::now());
    }
    connection::strip_hop_by_hop(&mut exchange.response.headers, false);
    exchange.response.headers.remove(NameId::TransferEncoding);
    exchange.response.headers.remove(NameId::ContentLength);
    if let Some(sweep) = sweep(exchange) {
        sweep.clean(Swept::Interim, &mut exchange.response.headers);
    }
    let (status, headers) = (exchange.response.status, &exchange.response.headers);
    exchange.down.client.send_interim(exchange.request, status, headers).map_err(Error::Client)
}

/// Turns the response of an origin into the one for the client.
pub(super) fn take(exchange: &mut Exchange<'_>, origin: Origin, length: BodyLength) -> StepResult {
    if exchange.record.mirrors {
        exchange.send_copy_when_due(false);
    }
    if length == BodyLength::Tunnel {
        return Ok(tunnel::agree_on_tunnel(exchange, origin));
    }
    let extended = exchange.request.upgrade.is_some() && exchange.down.client.link.is_h2();
    if extended && (200..300).contains(&exchange.response.status) {
        // The client would read a 2xx as an open tunnel (RFC 8441, section 5).
        return Err(Error::NoUpgrade.into());
    }
    if exchange.request.verbatim.is_some() {
        return Ok(Step::Send(BodySource::Origin(origin, length)));
    }
    exchange.down.download.leave_out(connection::named_options(&exchange.response.headers));
    let required = required_upgrade(exchange);
    connection::strip_hop_by_hop(&mut exchange.response.headers, false);
    exchange.response.headers.remove(NameId::TransferEncoding);
    if let Some(protocols) = required {
        exchange.response.headers.push_id(NameId::Upgrade, &protocols);
    }
    if exchange.rare.cached.is_some() {
        cached::answered(exchange);
    }
    let source = BodySource::Origin(origin, length);
    if exchange.response.status == 206 && shapes(exchange) && needs_whole(exchange) {
        return Ok(ask_whole(exchange, source));
    }
    Ok(shape_or_send(exchange, source))
}

/// The protocols from a 426 response; the client has to switch to one of them. The origin must name them (RFC 9110,
/// section 15.5.22), and the client can ask for a switch only over HTTP/1.1.
fn required_upgrade(exchange: &Exchange<'_>) -> Option<Vec<u8>> {
    let can_switch =
        matches!(exchange.down.client.link, Link::H1(_)) && exchange.request.head.version == Version::Http11;
    let is_required = exchange.response.status == 426 && can_switch;
    is_required.then(|| connection::upgrade(&exchange.response.headers).map(<[u8]>::to_vec)).flatten()
}

/// The client's side while an upstream is asked.
struct ClientAsks<'e, 'a> {
    down: &'e mut Downstream<'a>,
    request: &'e mut Request,
    response: &'e mut ResponseHead,
    /// True if the client's connection has room for the head of a response.
    has_room: bool,
}

impl Asker for ClientAsks<'_, '_> {
    fn heads(&mut self) -> (&mut Request, &mut ResponseHead) {
        (self.request, self.response)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Poll::Ready(error) = self.down.poll_total(cx) {
            return Poll::Ready(error);
        }
        self.down.poll_gone(cx)
    }

    fn begin_body(&mut self, now: Instant) {
        self.down.upload.resume();
        // Bytes that steps have read, or an earlier attempt has taken, are sent first.
        self.down.upload.start_over();
        self.down.progress.restart(now);
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, origin: &mut Link) -> Result<bool, Error> {
        // Interim responses must not wait for the final one.
        if let Poll::Ready(Err(error)) = self.down.client.link.poll_flush(cx) {
            return Err(Error::Client(error));
        }
        if !self.down.upload.is_done() {
            self.down.poll_upload(cx, origin)?;
        } else if let Poll::Ready(Err(_)) = origin.poll_flush(cx) {
            // An origin may close its side and still have sent a response, which is read next.
        }
        self.has_room = self.down.client.link.poll_room(cx).is_ready();
        Ok(self.has_room)
    }

    fn body_is_whole(&self) -> Poll<bool> {
        let upload = &self.down.upload;
        if upload.is_done() { Poll::Ready(!upload.gave_up()) } else { Poll::Pending }
    }

    fn awaits_body(&self) -> bool {
        let upload = &self.down.upload;
        // A client that waits for a 100 waits for the origin.
        let expects = self.request.expect_continue && upload.moved == 0;
        !upload.is_done() && upload.waiting == WaitingFor::Source && !expects
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &UpstreamSettings,
    ) -> Poll<Result<(), Error>> {
        let (down, now) = (&mut *self.down, clock::now());
        if !self.has_room {
            // Nothing has been read from the origin meanwhile, so its time limit starts again.
            down.progress.uploaded_all(now);
        }
        if let Poll::Ready(error) = down.poll_gone_at(cx, now) {
            return Poll::Ready(Err(error));
        }
        down.progress.observe_given(down.upload.sent, now);
        down.progress.observe(down.upload.moved, 0, now);
        let awaited = match down.upload.waiting {
            _ if !self.has_room => AwaitedEvent::ClientRead,
            // A client that waits for a 100 sends its body after a while even without it, and the
            // origin need not answer before the body.
            WaitingFor::Source if self.request.expect_continue && down.upload.moved == 0 => {
                AwaitedEvent::ExpectedBody
            }
            WaitingFor::Source => AwaitedEvent::ClientBody,
            WaitingFor::Sink => AwaitedEvent::OriginRead,
            _ => AwaitedEvent::FirstByte,
        };
        down.poll_deadline(cx, Some(upstream), &[awaited], now)
    }

    fn awaits_origin_since(&self) -> Option<Instant> {
        let awaits_origin = matches!(self.down.upload.waiting, WaitingFor::Sink | WaitingFor::Nobody);
        (self.has_room && awaits_origin).then(|| self.down.progress.uploaded_at())
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        self.down.timer.poll(cx, until)
    }

    fn may_repeat(&mut self, error: &Error) -> bool {
        // If some of the body has been read from the client, it must still be available.
        if !self.down.upload.is_at_hand() {
            return false;
        }
        // The origin accepts all requests of an authentication handshake on a single connection only. That connection is gone,
        // so the client has to start the handshake again.
        let ends_handshake = error.side() == Side::Upstream
            && !error.is_before_sending()
            && authentication::has_credentials(&self.request.head.headers);
        self.down.client.close |= ends_handshake;
        !ends_handshake
    }
}
