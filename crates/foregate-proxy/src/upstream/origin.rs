//! One attempt at an origin: a connection for one request.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use foregate_wire::{BodyLength, Method, ResponseError, ResponseHead, Version, connection, response_length};
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};

use super::authentication;
use super::connect::NewConnection;
use super::excess::may_be_response;
use super::guarded::Signs;
use super::heads::{check_chunks, fill_head, h2_request, is_within, write_head};
use super::idle::ConnectionStart;
use super::opening::Connections;
use super::own::OwnConnections;
use super::own::OwnTurn;
use super::record::{DialingRequest, InFlight};
use super::server::Server;
use super::shared::Lease;
use crate::error::{Error, Side};
use crate::limits::descriptors::OfClient;
use crate::link::h1::HeadFault;
use crate::link::{Bodiless, H1Link, H2Link, Link, LinkError, ReceiveOutcome};
use crate::message::request::Request;
use crate::settings::{self, UpstreamProtocol};
use crate::time::clock;
use crate::tls::Refusal;

/// The least silence after which an HTTP/2 connection with open requests counts as dead. A request may
/// have a time limit of 50 ms, for example, and the origin may just be slow. If each such timeout closed
/// the connection, all other requests on it would have to reconnect. A lost packet, too, only arrives
/// after a second or two, when it is sent again.
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// A connection to an origin, or a stream of one, that serves one request.
#[derive(Debug)]
pub struct Origin {
    /// The link on which the bodies of the request and the response are transferred.
    pub link: Link,
    /// True if the connection has served requests before.
    pub reused: bool,
    /// The facts about an HTTP/1 connection from its start.
    made: Option<Box<ConnectionStart>>,
    keep_alive: bool,
    /// True if the head of a response has arrived, possibly an interim one.
    answered: bool,
    /// True if the origin may treat the connection as authenticated for one user, because it has asked for
    /// credentials or has got some.
    binds: bool,
    /// True if the origin has sent bytes after the end of its response.
    excess: bool,
    /// The alert of an origin that rejected our certificate after the handshake.
    refusal: Option<Refusal>,
    /// The state of an HTTP/2 stream; boxed, so that an origin is cheap to move.
    h2: Option<Box<H2Attempt>>,
    /// The server. The request counts among those in flight there.
    in_flight: InFlight,
}

#[derive(Debug)]
struct H2Attempt {
    lease: Lease,
    /// The time at which the stream was opened, in microseconds after the start of the connection.
    opened: u64,
    response: Option<ResponseFuture>,
    /// Counts the stream as a connection of its client, if connections allow only a few streams.
    _of_client: Option<OfClient>,
}

impl Origin {
    /// A connection to `server`, or a stream of one. `kept` has the facts about a connection that was kept.
    pub(super) fn new(
        server: &Server,
        connected: NewConnection,
        reused: bool,
        kept: Option<Box<ConnectionStart>>,
        of_client: Option<OfClient>,
    ) -> Self {
        let (link, made, h2) = match connected {
            NewConnection::H1(link) => {
                let mut made = kept.unwrap_or_else(|| {
                    // If the server has only one address, there is no need to look it up.
                    let address = server.resolved.is_some().then(|| link.stream().socket().peer_address());
                    let mut made = ConnectionStart::new(Instant::now(), address.flatten());
                    server.pool.count_open(&mut made);
                    made._of_server = Some(server.record.open());
                    made
                });
                made.of_client = of_client;
                (Link::H1(link), Some(made), None)
            }
            NewConnection::H2(lease) => {
                let mut link = Box::new(H2Link::new(None, None));
                link.count_in(lease.unread());
                link.count_out(lease.unsent());
                let opened = lease.signs().since_born(clock::now());
                (
                    Link::H2(link),
                    None,
                    Some(Box::new(H2Attempt { lease, opened, response: None, _of_client: of_client })),
                )
            }
        };
        Self {
            link,
            reused,
            made,
            keep_alive: false,
            answered: false,
            binds: false,
            excess: false,
            refusal: None,
            h2,
            in_flight: InFlight::uncounted(server.number),
        }
    }

    /// Counts the request among those of its server until this attempt is over.
    pub(super) fn counts(&mut self, waiting: DialingRequest) {
        self.in_flight.follow(waiting);
    }

    /// Records that the final response has begun: the request no longer waits for its server.
    pub(super) fn final_has_begun(&mut self) {
        self.in_flight.answered();
    }

    /// Changes whether the request waits for its response, before that has begun.
    pub(super) fn set_waiting(&mut self, waits: bool, now: Instant) {
        self.in_flight.set_waiting(waits, now);
    }

    /// Ends the count among the requests of its server.
    pub(super) fn counts_no_longer(&mut self) {
        self.in_flight = InFlight::uncounted(self.in_flight.server());
    }

    /// Returns true if the connection may be reused after the response. HTTP/2 connections always may.
    pub(super) fn is_kept_alive(&self) -> bool {
        self.keep_alive || self.h2.is_some()
    }

    /// Makes an HTTP/1 connection serve one client connection alone.
    pub(super) fn belongs_to(&mut self, own: Option<&Arc<OwnConnections>>) {
        if let (Some(own), Some(made)) = (own, &mut self.made) {
            made.own = Some(Arc::downgrade(own));
        }
    }

    /// Lets the client authenticate on the connection during this turn. Without `own`, the connection
    /// serves this request alone.
    pub(super) fn authenticates(&mut self, own: Option<&Arc<OwnConnections>>, turn: Option<OwnTurn>) {
        self.binds = true;
        if let Some(made) = &mut self.made {
            made.own = Some(own.map_or_else(Weak::new, Arc::downgrade));
            made.turn = turn;
        }
    }

    /// Returns true if the origin may bind the connection to one user.
    pub(super) fn binds(&self) -> bool {
        self.binds
    }

    /// Returns true for an HTTP/1 connection that may serve all clients.
    pub(super) fn is_for_all(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made.own.is_none())
    }

    /// Records that the connection was not used for a request.
    pub(super) fn was_not_asked(&mut self) {
        self.keep_alive = true;
    }

    /// The connection, if it is an HTTP/1 connection that can be reused.
    pub(super) fn into_idle(self) -> Option<(Box<H1Link>, Box<ConnectionStart>)> {
        let Link::H1(mut link) = self.link else { return None };
        let is_fit = self.keep_alive && link.is_clean() && !link.is_ahead_in_tls();
        Some((link, self.made.filter(|_| is_fit)?))
    }

    /// The number of its server in its upstream.
    pub(super) fn server(&self) -> usize {
        self.in_flight.server()
    }

    /// Returns true if bytes have arrived after the end of the response: a body after a head that allows
    /// none, another response, or a stray line break. An HTTP/1 connection is not reused then.
    pub(super) fn has_excess(&mut self) -> bool {
        if let Link::H1(link) = &mut self.link {
            self.excess |= link.is_received() && (!link.ahead().is_empty() || link.stream_mut().holds_back());
        }
        self.excess
    }

    /// Sends the head of the request.
    ///
    /// # Errors
    ///
    /// Only HTTP/2: the connection accepts no more streams.
    pub async fn send_head(
        &mut self,
        request: &Request,
        upstream: &settings::UpstreamSettings,
    ) -> Result<(), Error> {
        match (&mut self.link, self.h2.as_deref_mut()) {
            (Link::H1(link), _) => {
                match &request.verbatim {
                    None => {
                        write_head(link.head_out(), request, upstream);
                        link.begin_send(request.length);
                    }
                    Some(verbatim) => {
                        link.head_out().extend_from_slice(&verbatim.request);
                        link.send_verbatim(request.length);
                        link.head.keep(true);
                    }
                }
                Ok(())
            }
            (Link::H2(link), Some(attempt)) => {
                if request.upgrade.is_some() && !request.fits_extended_connect() {
                    return Err(Error::NoUpgrade);
                }
                let mut sender = attempt.lease.sender();
                std::future::poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|_| {
                    attempt.lease.close();
                    refused(&attempt.lease)
                })?;
                if request.upgrade.is_some() && !sender.is_extended_connect_protocol_enabled() {
                    // The origin's SETTINGS come before its first response (RFC 9113, section 3.4). `h2` may
                    // not have processed them yet. This matters only if HTTP/1.1 is no alternative.
                    let has_said = attempt.lease.signs().has_answered();
                    if !has_said || upstream.protocol != UpstreamProtocol::Auto {
                        // The first request of a connection may be sent before the origin's SETTINGS arrive, so
                        // they are waited for.
                        let settled = tokio::time::timeout(upstream.connect_timeout, attempt.lease.settled());
                        // Rare, and large: kept out of the future that every request has.
                        let _ = Box::pin(settled).await;
                    }
                    if !sender.is_extended_connect_protocol_enabled() {
                        return Err(Error::NoUpgrade);
                    }
                }
                let ends = request.length.is_empty() && !request.opens_tunnel();
                let (response, send) =
                    sender.send_request(h2_request(request, upstream)?, ends).map_err(|error| {
                        tracing::debug!(%error, "HTTP/2 request to an origin was refused");
                        attempt.lease.close();
                        refused(&attempt.lease)
                    })?;
                let stream = response.stream_id().as_u32();
                if let Some(unsent) = link.unsent() {
                    unsent.opened(stream, &request.head.headers);
                }
                link.await_head(stream);
                attempt.response = Some(response);
                let length = match request.length {
                    _ if request.opens_tunnel() => BodyLength::UntilClose,
                    // A body from an HTTP/2 client may have trailers even if its length is known.
                    BodyLength::Fixed(length) if request.head.version != Version::Http2 => {
                        BodyLength::Fixed(length)
                    }
                    _ => BodyLength::Chunked,
                };
                link.begin_send((!ends).then_some(send), length);
                Ok(())
            }
            (Link::H2(_) | Link::Client(_) | Link::Cached(_) | Link::Ahead(_), _) => Err(Error::Internal),
        }
    }

    /// The bytes of the last head, if they are kept.
    pub fn kept_head(&self) -> &[u8] {
        match &self.link {
            Link::H1(link) => link.head.bytes(),
            Link::H2(_) | Link::Client(_) | Link::Cached(_) | Link::Ahead(_) => &[],
        }
    }

    /// The lease of a shared connection.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.h2.as_ref().map(|attempt| &attempt.lease)
    }

    /// The peer's address, if it is known.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.h2 {
            Some(attempt) => attempt.lease.address(),
            None => self.made.as_ref()?.address,
        }
    }

    /// Returns true if a reused connection ended, or stopped accepting requests, just as this request
    /// was sent. `error` then says nothing about the server, because the connection has served others.
    pub fn is_race(&self, error: &Error) -> bool {
        let ended = match error {
            Error::OriginClosed | Error::Leftover => true,
            // If the connection continues, the origin refused the stream because it is busy, which is
            // no race.
            Error::OriginRefused => {
                self.signs().is_some_and(|signs| signs.is_closed() && signs.has_answered())
            }
            _ => false,
        };
        self.reused && ended && !self.has_begun()
    }

    /// Returns true if the origin has refused this request, but the connection continues or has brought
    /// other responses.
    pub fn is_refused_alone(&self, error: &Error) -> bool {
        let is_alone = |signs: &Signs| !signs.is_closed() || signs.has_answered();
        *error == Error::OriginRefused && self.signs().is_some_and(is_alone)
    }

    /// Returns true if `error` counts as a failure of the server. Refusals count if the server has not
    /// answered any request of the connection.
    pub fn is_failure_of_the_server(&self, error: &Error, now: Instant) -> bool {
        let refuses = |attempt: &H2Attempt| attempt.lease.signs().is_to_blame(attempt.opened, now);
        error.is_failure_of_the_server()
            || *error == Error::OriginTls
            || *error == Error::OriginRefused && self.h2.as_deref().is_some_and(refuses)
    }

    /// The alert of an origin that rejected our certificate after the handshake.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.or_else(|| self.signs()?.refusal())
    }

    fn signs(&self) -> Option<&Signs> {
        self.h2.as_ref().map(|attempt| attempt.lease.signs())
    }

    /// Records that the request is given up because of `error`.
    ///
    /// - After a timeout, an HTTP/2 connection that has been silent for the whole time limit, and for at
    ///   least [`DEAD_AFTER`], is probably dead. It gets no more requests.
    /// - If the client gave up, an HTTP/1 connection is reset. With a plain close, the system would keep
    ///   the port for a minute, and clients that leave early could use up all ports.
    pub fn gave_up(&self, error: &Error, settings: &settings::UpstreamSettings) {
        if error.side() == Side::Downstream {
            self.link.reset_on_close();
        }
        let span = match error {
            Error::FirstByteTimeout => settings.first_byte_timeout,
            Error::OriginStall | Error::OriginIdle => settings.idle_timeout,
            _ => return,
        };
        self.gave_up_after(span);
    }

    /// Records that no response has begun for `span`.
    pub fn gave_up_after(&self, span: Duration) {
        if let Some(H2Attempt { lease, .. }) = self.h2.as_deref()
            && lease.signs().is_silent_for(span.max(DEAD_AFTER), Instant::now())
        {
            lease.close();
        }
    }

    /// Returns true if a response has begun: with a part of its head, or with an interim response.
    pub fn has_begun(&self) -> bool {
        let ahead = match (&self.link, self.h2.as_deref()) {
            (Link::H1(link), _) => !link.ahead().is_empty(),
            (_, Some(H2Attempt { lease, response: Some(response), .. })) => {
                lease.signs().has_begun(response.stream_id().as_u32())
            }
            _ => false,
        };
        self.answered || ahead
    }

    /// Waits for a response's head, which may be an interim one.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        connections: &Connections,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Error>> {
        let polled = self.poll_any_head(cx, connections, head);
        self.answered |= matches!(polled, Poll::Ready(Ok(())));
        polled
    }

    fn poll_any_head(
        &mut self,
        cx: &mut Context<'_>,
        connections: &Connections,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Error>> {
        match (&mut self.link, self.h2.as_deref_mut()) {
            (Link::H1(link), _) => {
                let polled = link.poll_response_head(cx, &connections.dialer.head_limits, head);
                let is_start = self.reused && !self.answered && !matches!(polled, Poll::Ready(Ok(())));
                if is_start && !may_be_response(link.ahead()) {
                    // These bytes are not the start of a response, so they belong to an earlier one.
                    link.discard();
                    connections.note_leftover(self.in_flight.server());
                    return Poll::Ready(Err(Error::Leftover));
                }
                let result = ready!(polled);
                let is_first = !self.reused && link.ahead().is_empty();
                if is_first && matches!(result, Err(HeadFault::Link(LinkError::Io(_)))) {
                    self.refusal = link.stream_mut().refusal();
                }
                Poll::Ready(result.map_err(|fault| match fault {
                    _ if self.refusal.is_some() => Error::OriginTls,
                    HeadFault::Closed => Error::OriginClosed,
                    HeadFault::Link(LinkError::Io(_)) if link.ahead().is_empty() => Error::OriginClosed,
                    HeadFault::Link(error) => Error::Origin(error),
                    HeadFault::Malformed(error) => Error::Response(error),
                }))
            }
            (Link::H2(link), Some(H2Attempt { response: Some(response), lease, .. })) => {
                let stream = response.stream_id().as_u32();
                let failed = |error| h2_error(error, stream, lease);
                if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
                    let (parts, ()) = interim.map_err(failed)?.into_parts();
                    fill_head(head, &parts.headers, parts.status.as_u16());
                    return Poll::Ready(is_within(&parts.headers, &connections.dialer.head_limits));
                }
                let (parts, body): (_, RecvStream) =
                    ready!(std::pin::Pin::new(response).poll(cx)).map_err(failed)?.into_parts();
                link.set_receive(body);
                fill_head(head, &parts.headers, parts.status.as_u16());
                Poll::Ready(is_within(&parts.headers, &connections.dialer.head_limits))
            }
            (Link::H2(_) | Link::Client(_) | Link::Cached(_) | Link::Ahead(_), _) => {
                Poll::Ready(Err(Error::Internal))
            }
        }
    }

    /// Prepares for the body after the final head just received, and returns its framing.
    ///
    /// # Errors
    ///
    /// Contradictory lengths, or a chunked body with an invalid start.
    pub fn begin_body(
        &mut self,
        connections: &Connections,
        request: &Request,
        head: &ResponseHead,
    ) -> Result<BodyLength, Error> {
        self.binds |= authentication::has_challenge(&head.headers);
        let link = match &mut self.link {
            Link::H1(link) => link,
            Link::Client(_) | Link::Cached(_) | Link::Ahead(_) => return Err(Error::Internal),
            Link::H2(link) => {
                let length = foregate_wire::content_length(&head.headers).map_err(Error::ResponseFraming)?;
                let tunnel = request.opens_tunnel() && (200..300).contains(&head.status);
                let bodiless = match head.status {
                    _ if request.head.method == Method::Head => Some(Bodiless::Head),
                    204 | 304 => Some(Bodiless::Status),
                    _ => None,
                };
                if let Some(why) = bodiless.filter(|_| !tunnel) {
                    // This finds a forbidden body that has arrived already. Later input is found at the end of
                    // the exchange.
                    let found = link.poll_refused(why, &mut Context::from_waker(Waker::noop()));
                    self.excess = found == Poll::Ready(true);
                    match self.excess {
                        true => link.abort(),
                        false => link.refuse_body(why),
                    }
                    return Ok(BodyLength::Empty);
                }
                return Ok(match length {
                    _ if tunnel => BodyLength::Tunnel,
                    _ if link.is_received() => BodyLength::Empty,
                    Some(0) => match link.poll_receive(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(Ok(ReceiveOutcome::End)) if link.trailers().is_empty() => {
                            BodyLength::Fixed(0)
                        }
                        // Trailers may follow the empty body. In HTTP/1, that requires a chunked body.
                        Poll::Ready(Ok(ReceiveOutcome::End)) | Poll::Pending if request.takes_trailers() => {
                            BodyLength::Chunked
                        }
                        Poll::Ready(Ok(ReceiveOutcome::End)) | Poll::Pending => BodyLength::Fixed(0),
                        Poll::Ready(
                            Ok(ReceiveOutcome::Data) | Err(LinkError::Reset(Reason::PROTOCOL_ERROR)),
                        ) => {
                            self.excess = true;
                            link.abort();
                            BodyLength::Fixed(0)
                        }
                        Poll::Ready(Err(error)) => return Err(Error::Origin(error)),
                    },
                    Some(length) => BodyLength::Fixed(length),
                    None => BodyLength::Chunked,
                });
            }
        };
        let length = response_length(&request.head.method, head).map_err(Error::ResponseFraming)?;
        if length == BodyLength::Chunked {
            check_chunks(link.ahead(), &connections.dialer.head_limits)?;
        }
        self.keep_alive = connection::keep_alive(head.version, &head.headers)
            && !matches!(length, BodyLength::UntilClose | BodyLength::Tunnel)
            && connections.trusts_behind(
                self.in_flight.server(),
                &request.head.method,
                head,
                length,
                clock::now(),
            );
        let length_in = if length == BodyLength::Tunnel { BodyLength::UntilClose } else { length };
        link.begin_receive(length_in, &connections.dialer.head_limits);
        if request.verbatim.is_some() {
            link.receive_verbatim();
        }
        if length == BodyLength::Tunnel {
            link.begin_send(BodyLength::UntilClose);
        }
        Ok(length)
    }
}

/// The error of a connection that accepts no stream.
fn refused(lease: &Lease) -> Error {
    if lease.signs().refusal().is_some() { Error::OriginTls } else { Error::OriginRefused }
}

fn h2_error(error: h2::Error, stream: u32, lease: &Lease) -> Error {
    let connection = error.is_go_away() || error.is_io();
    if connection {
        // The connection is marked now, before its own task notices its end, so that a further attempt
        // does not use it.
        lease.close();
    }
    if lease.signs().is_too_large(stream) {
        return Error::Response(ResponseError::HeadTooLarge);
    }
    if lease.signs().has_begun(stream) {
        // The origin has begun to answer, whatever the error is.
        return Error::Origin(error.into());
    }
    if lease.signs().refusal().is_some() && !lease.signs().has_answered() {
        return Error::OriginTls;
    }
    // A GOAWAY names the last stream that the origin has processed. `h2` fails only later streams
    // with this error.
    let beyond_the_last = error.is_go_away() && error.is_remote();
    if beyond_the_last || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
        return Error::OriginRefused;
    }
    if error.is_reset()
        && error.is_remote()
        && let Some(reason) = error.reason()
    {
        return Error::OriginReset(reason);
    }
    // The connection has failed. The cause may be the frames of this stream, of another one, or the
    // origin itself.
    let broken_here = lease.signs().is_broken_by(stream);
    if connection && !broken_here { Error::OriginClosed } else { Error::Origin(error.into()) }
}

impl Origin {
    /// Records that the address of a connection has answered, if the server's name has several
    /// addresses. Reused connections do not count, because a new connection to the same address may
    /// fail.
    pub(super) fn address_answered(&self, server: &Server) {
        if !self.reused {
            server.remembered.turns.answered(|| self.address());
        }
    }

    /// Records that the address of a connection has failed, if the server's name has several.
    pub(super) fn address_failed(&self, server: &Server, now: Instant) {
        if server.resolved.is_some()
            && let Some(address) = self.address()
        {
            server.remembered.turns.failed(address, now, true);
        }
    }
}
