//! One attempt at an origin: a connection for one request.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use foregate_wire::serialise::{
    end_head, write_content_length, write_field, write_fields, write_request_line,
};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeaderList, Method, NameId, ResponseError, ResponseHead, Version,
    connection, response_length,
};
use h2::client::ResponseFuture;
use h2::ext::Protocol;
use h2::{Reason, RecvStream};

use super::connect::Connected;
use super::excess::may_be_response;
use super::guarded::Signs;
use super::own::Turn;
use super::pool::{Lease, Made};
use super::{Own, Server, Upstream, authentication};
use crate::connection::registry::Holdings;
use crate::descriptors::OfClient;
use crate::error::{Error, Side};
use crate::exchange::request::Request;
use crate::link::h1::HeadFault;
use crate::link::{Bodiless, H2Link, Link, LinkError, Received, fields};
use crate::settings::{self, UpstreamProtocol};
use crate::telemetry::clock;
use crate::tls::Refusal;

pub use super::connect::Addresses;

/// How long an HTTP/2 connection on which something is asked has to say nothing before it is taken for dead. An origin may be slower
/// than a request was to wait for it: were its connection given up for each of those that were not answered in 50 ms, all others would
/// connect anew as often. A packet that was lost is there after a second or two, sent again.
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// A connection to an origin, or a stream of one, that serves one request.
#[derive(Debug)]
pub struct Origin {
    /// Bodies go and come here.
    pub link: Link,
    /// Whether the connection has served requests before.
    pub reused: bool,
    /// Of a connection of HTTP/1.
    made: Option<Box<Made>>,
    /// Where it leads, among those of its upstream.
    server: usize,
    keep_alive: bool,
    /// A head has come, if only an interim one.
    answered: bool,
    /// The origin may take the connection for one user's: it has asked for credentials, or has got some.
    binds: bool,
    /// The origin has sent something behind the end of its response.
    excess: bool,
    /// The origin has ended the handshake after all.
    refusal: Option<Refusal>,
    h2: Option<H2Attempt>,
}

#[derive(Debug)]
struct H2Attempt {
    lease: Lease,
    /// Microseconds after its connection.
    opened: u64,
    response: Option<ResponseFuture>,
    /// Counts the stream as a connection of its client's, where connections take but a few.
    _of_client: Option<OfClient>,
}

/// How to get a connection.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Use no kept connection.
    pub fresh: bool,
    /// For the PROXY protocol.
    pub addresses: Addresses,
    /// Who is served, if a client is.
    pub client: Option<&'a Arc<Holdings>>,
    /// Who uses connections that are for one connection of a client alone, once there are some.
    pub own: Option<&'a OnceLock<Arc<Own>>>,
    /// Where ALPN may choose, it is to be HTTP/1.1.
    pub http1: bool,
    /// The request has credentials that the origin may bind to the connection.
    pub authenticates: bool,
}

impl Upstream {
    /// A connection to `server`, kept or new.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] when there is no such server. Otherwise why no connection could be had: nothing of the request
    /// was sent, and [`Error::is_before_sending`] holds.
    pub async fn open(
        self: &Arc<Self>,
        server: usize,
        terms: Terms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        let server = self.servers.get(server).ok_or(Error::Internal)?;
        if terms.authenticates || self.is_authenticating(server, terms.own) {
            return Box::pin(self.open_authenticated(server, terms, now)).await;
        }
        let exclusive = self.settings.send_proxy.is_some();
        let own = terms.own.filter(|_| exclusive).map(|own| own.get_or_init(Arc::default));
        if !terms.fresh
            && (!exclusive || own.is_some())
            && let Some(origin) = self.kept(server, terms, own, now)?
        {
            self.counters.reused.inc();
            self.make_successor(server, &origin);
            return Ok(origin);
        }
        if self.settings.protocol == UpstreamProtocol::Http1 || exclusive || terms.http1 {
            let of_client = self.claim(server, terms)?;
            // Rare, and large: kept out of the future that every request has.
            let deadline = Instant::now() + self.settings.connect_timeout;
            let made = Box::pin(self.connect(server, terms, deadline)).await?;
            let mut origin = self.attempt(server, made, false, None, of_client);
            origin.belongs_to(own);
            return Ok(origin);
        }
        Box::pin(self.share(server, terms, now)).await
    }

    /// Whether the client has been asked to authenticate its connection to a server, or has done so. HTTP/2 alone has no place for that:
    /// there the credentials are those of their request.
    fn is_authenticating(&self, server: &Server, own: Option<&OnceLock<Arc<Own>>>) -> bool {
        self.settings.protocol != UpstreamProtocol::Http2
            && own.and_then(OnceLock::get).is_some_and(|own| own.is_authenticating_at(&server.pool))
    }

    /// A connection on which the client may authenticate, and nobody else is served: its own, kept or new; where there is no client, a new
    /// one that ends with the request. It speaks HTTP/1 where it can: streams of HTTP/2 are for everybody.
    async fn open_authenticated(
        self: &Arc<Self>,
        server: &Server,
        terms: Terms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        let http1 = terms.http1 || self.settings.protocol == UpstreamProtocol::Auto;
        let terms = Terms { http1, authenticates: true, ..terms };
        let own = terms.own.map(|own| own.get_or_init(Arc::default));
        let mut turn = None;
        if let Some(own) = own.filter(|_| self.settings.protocol != UpstreamProtocol::Http2) {
            own.authenticates_at(&server.pool);
            turn = own.turn(&server.pool, self.settings.connect_timeout).await;
            let kept = if terms.fresh { None } else { self.kept(server, terms, Some(own), now)? };
            if let Some(mut origin) = kept {
                self.counters.reused.inc();
                origin.authenticates(Some(own), turn);
                return Ok(origin);
            }
        }
        let of_client = self.claim(server, terms)?;
        let deadline = Instant::now() + self.settings.connect_timeout;
        let made = self.connect(server, terms, deadline).await?;
        let mut origin = self.attempt(server, made, false, None, of_client);
        origin.authenticates(own, turn);
        Ok(origin)
    }

    /// Has a connection on which the origin asks its client to authenticate be that client's alone from here on. Where it is shared, the
    /// client's next request gets one of its own.
    pub fn bind(&self, origin: &mut Origin, own: &OnceLock<Arc<Own>>) {
        let Some(server) = self.servers.get(origin.server).filter(|_| origin.binds) else { return };
        let own = own.get_or_init(Arc::default);
        own.authenticates_at(&server.pool);
        if origin.made.as_ref().is_some_and(|made| made.own.is_none()) {
            let turn = own.first_turn(&server.pool);
            // Of streams that are challenged at the same time one gives its client the connection; those of the others end.
            origin.authenticates(Some(own).filter(|_| turn.is_some()), turn);
        }
    }

    /// A kept connection; one that is for one connection of a client alone if that is `own`.
    pub(super) fn kept(
        &self,
        server: &Server,
        terms: Terms<'_>,
        own: Option<&Arc<Own>>,
        now: Instant,
    ) -> Result<Option<Origin>, Error> {
        let protocol = self.settings.protocol;
        if protocol != UpstreamProtocol::Http1
            && !terms.http1
            && let Some(lease) = server.pool.lease(now, self.ages())
        {
            let of_client = self.claim_stream(server, terms)?;
            return Ok(Some(self.attempt(server, Connected::H2(lease), true, None, of_client)));
        }
        if protocol == UpstreamProtocol::Http2 {
            return Ok(None);
        }
        let of_client = self.claim(server, terms)?;
        let kept = server.pool.take(now, self.ages(), own);
        self.report_excess(server);
        Ok(kept.map(|(link, made)| self.attempt(server, Connected::H1(link), true, Some(made), of_client)))
    }

    /// Counts a connection that serves a client alone as its own, unless it has so many that too few are left for others.
    pub(super) fn claim(&self, server: &Server, terms: Terms<'_>) -> Result<Option<OfClient>, Error> {
        let Some(client) = terms.client else { return Ok(None) };
        let claimed = OfClient::claim(client, || self.pools.idle());
        if claimed.is_none() {
            let now = Instant::now();
            server.health.inconclusive(now, now);
            tracing::debug!(server = %server.label, "too many connections to origins for one client");
        }
        claimed.map(Some).ok_or(Error::NoDescriptors)
    }

    /// The same for a stream of a shared connection, where those to this server take so few that each is nearly a connection.
    pub(super) fn claim_stream(&self, server: &Server, terms: Terms<'_>) -> Result<Option<OfClient>, Error> {
        if server.pool.takes_few_streams() { self.claim(server, terms) } else { Ok(None) }
    }

    /// `kept` is known of a connection that was kept.
    pub(super) fn attempt(
        &self,
        server: &Server,
        connected: Connected,
        reused: bool,
        kept: Option<Box<Made>>,
        of_client: Option<OfClient>,
    ) -> Origin {
        let (link, made, h2) = match connected {
            Connected::H1(link) => {
                let mut made = kept.unwrap_or_else(|| {
                    // An address that leads nowhere else is not asked for.
                    let address = server.resolved.is_some().then(|| link.stream().socket().peer_address());
                    Made::new(Instant::now(), address.flatten())
                });
                made.of_client = of_client;
                (Link::H1(link), Some(made), None)
            }
            Connected::H2(lease) => {
                let mut link = Box::new(H2Link::new(None, None));
                link.count_in(lease.unread());
                link.count_out(lease.unsent());
                let opened = lease.signs().since_born(clock::now());
                (
                    Link::H2(link),
                    None,
                    Some(H2Attempt { lease, opened, response: None, _of_client: of_client }),
                )
            }
        };
        let server = server.number;
        Origin {
            link,
            reused,
            made,
            server,
            keep_alive: false,
            answered: false,
            binds: false,
            excess: false,
            refusal: None,
            h2,
        }
    }

    /// Keeps a new connection on which nothing was asked.
    pub fn put_back(&self, mut origin: Origin, now: Instant) {
        origin.keep_alive = true;
        self.keep(origin, now);
    }

    /// Keeps the connection for another request if it is fit for one.
    pub(super) fn keep(&self, origin: Origin, now: Instant) {
        if let Link::H1(mut link) = origin.link
            && origin.keep_alive
            && link.is_clean()
            && !link.is_ahead_in_tls()
            && let Some(mut made) = origin.made
            && let Some(server) = self.servers.get(origin.server)
        {
            let own = made.own.as_ref().and_then(Weak::upgrade);
            // Were the client's connection gone, nobody would use it. If it goes now, this ends with it below.
            if (made.own.is_some() || origin.binds || self.settings.send_proxy.is_some())
                && !own.as_ref().is_some_and(|own| own.keeps_in(&server.pool))
            {
                return;
            }
            made.of_client = None;
            // Whoever has the next turn finds it.
            let turn = made.turn.take();
            server.pool.put(link, made, now, self.settings.keep_alive_connections);
            drop(turn);
        }
    }
}

impl Origin {
    /// The connection is for one connection of a client alone.
    fn belongs_to(&mut self, own: Option<&Arc<Own>>) {
        if let (Some(own), Some(made)) = (own, &mut self.made) {
            made.own = Some(Arc::downgrade(own));
        }
    }

    /// The client may authenticate on the connection, in this turn; without a client it serves this request alone.
    fn authenticates(&mut self, own: Option<&Arc<Own>>, turn: Option<Turn>) {
        self.binds = true;
        if let Some(made) = &mut self.made {
            made.own = Some(own.map_or_else(Weak::new, Arc::downgrade));
            made.turn = turn;
        }
    }

    /// The number of its server in its upstream.
    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// Whether the origin has sent something behind the end of its response, so far as it has come: a body behind a head that has none,
    /// another response, a stray line break. Its connection of HTTP/1 serves nobody any more.
    pub(super) fn has_excess(&mut self) -> bool {
        if let Link::H1(link) = &mut self.link {
            self.excess |= link.is_received() && (!link.ahead().is_empty() || link.holds_back());
        }
        self.excess
    }

    /// Puts the request's head on its way.
    ///
    /// # Errors
    ///
    /// Only for HTTP/2: the connection takes no more streams.
    pub async fn send_head(&mut self, request: &Request, upstream: &settings::Upstream) -> Result<(), Error> {
        match (&mut self.link, &mut self.h2) {
            (Link::H1(link), _) => {
                write_head(link.head_out(), request, upstream);
                link.begin_send(request.length);
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
                    // SETTINGS come before the first answer (RFC 9113, section 3.4); that `h2` may look at both just now does no harm
                    // where the request can go another way.
                    let has_said = attempt.lease.signs().has_answered();
                    if !has_said || upstream.protocol != UpstreamProtocol::Auto {
                        // The first request of a connection may be here before the origin's SETTINGS are.
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
                    // Trailers may follow a body from HTTP/2 even where its length is known.
                    BodyLength::Fixed(length) if request.head.version != Version::Http2 => {
                        BodyLength::Fixed(length)
                    }
                    _ => BodyLength::Chunked,
                };
                link.begin_send((!ends).then_some(send), length);
                Ok(())
            }
            (Link::H2(_) | Link::Client(_), _) => Err(Error::Internal),
        }
    }

    /// Its place on a shared connection.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.h2.as_ref().map(|attempt| &attempt.lease)
    }

    /// Where the connection leads, so far as it can be told.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.h2 {
            Some(attempt) => attempt.lease.address(),
            None => self.made.as_ref()?.address,
        }
    }

    /// Whether the connection has ended, or takes no more requests, in the instant when this one came: it has served others, so
    /// that `error` says nothing about the server.
    pub fn is_race(&self, error: &Error) -> bool {
        let ended = match error {
            Error::OriginClosed | Error::Leftover => true,
            // Of a connection that goes on, the origin refuses a stream because it has enough to do.
            Error::OriginRefused => {
                self.signs().is_some_and(|signs| signs.is_closed() && signs.has_answered())
            }
            _ => false,
        };
        self.reused && ended && !self.has_begun()
    }

    /// Whether the origin has refused the request on a connection that goes on, or has answered others.
    pub fn is_refused_alone(&self, error: &Error) -> bool {
        let is_alone = |signs: &Signs| !signs.is_closed() || signs.has_answered();
        *error == Error::OriginRefused && self.signs().is_some_and(is_alone)
    }

    /// Whether the server has failed on the request, so far as can be told: also one that refuses all that it is asked.
    pub fn is_failure_of_the_server(&self, error: &Error, now: Instant) -> bool {
        let refuses = |attempt: &H2Attempt| attempt.lease.signs().is_to_blame(attempt.opened, now);
        error.is_failure_of_the_server()
            || *error == Error::OriginTls
            || *error == Error::OriginRefused && self.h2.as_ref().is_some_and(refuses)
    }

    /// Why the origin has ended a handshake that was over for us.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.or_else(|| self.signs()?.refusal())
    }

    fn signs(&self) -> Option<&Signs> {
        self.h2.as_ref().map(|attempt| attempt.lease.signs())
    }

    /// The request is given up for `error`. If nothing has come for it in time, an HTTP/2 connection from which nothing at all has come for
    /// as long, and for [`DEAD_AFTER`], may be dead without a word: no other request shall find out the same way. If it is its client
    /// that ends it, a connection of HTTP/1 is reset: clients that ask and leave would have the system run out of ports, each of
    /// which it keeps for a minute after a plain close.
    pub fn gave_up(&self, error: &Error, settings: &settings::Upstream) {
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

    /// The same when nothing has come for it for `span`.
    pub fn gave_up_after(&self, span: Duration) {
        if let Some(H2Attempt { lease, .. }) = &self.h2
            && lease.signs().is_silent_for(span.max(DEAD_AFTER), Instant::now())
        {
            lease.close();
        }
    }

    /// Whether something of a response has come, if only a part of its head, or an interim one.
    pub fn has_begun(&self) -> bool {
        let ahead = match (&self.link, &self.h2) {
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
        upstream: &Upstream,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Error>> {
        let polled = self.poll_any_head(cx, upstream, head);
        self.answered |= matches!(polled, Poll::Ready(Ok(())));
        polled
    }

    fn poll_any_head(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &Upstream,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Error>> {
        match (&mut self.link, &mut self.h2) {
            (Link::H1(link), _) => {
                let polled = link.poll_response_head(cx, &upstream.head_limits, head);
                let is_start = self.reused && !self.answered && !matches!(polled, Poll::Ready(Ok(())));
                if is_start && !may_be_response(link.ahead()) {
                    // They are no part of a response to this request.
                    link.discard();
                    upstream.note_leftover(self.server);
                    return Poll::Ready(Err(Error::Leftover));
                }
                let result = ready!(polled);
                let is_first = !self.reused && link.ahead().is_empty();
                if is_first && matches!(result, Err(HeadFault::Link(LinkError::Io(_)))) {
                    self.refusal = link.refusal();
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
                    return Poll::Ready(is_within(&parts.headers, &upstream.head_limits));
                }
                let (parts, body): (_, RecvStream) =
                    ready!(std::pin::Pin::new(response).poll(cx)).map_err(failed)?.into_parts();
                link.set_receive(body);
                fill_head(head, &parts.headers, parts.status.as_u16());
                Poll::Ready(is_within(&parts.headers, &upstream.head_limits))
            }
            (Link::H2(_) | Link::Client(_), _) => Poll::Ready(Err(Error::Internal)),
        }
    }

    /// Prepares for the body of the final head just received, and tells how it is framed.
    ///
    /// # Errors
    ///
    /// Lengths that contradict each other, or a chunked body that begins with what is no chunk.
    pub fn begin_body(
        &mut self,
        upstream: &Upstream,
        request: &Request,
        head: &ResponseHead,
    ) -> Result<BodyLength, Error> {
        self.binds |= authentication::has_challenge(&head.headers);
        let link = match &mut self.link {
            Link::H1(link) => link,
            Link::Client(_) => return Err(Error::Internal),
            Link::H2(link) => {
                let length = foregate_wire::content_length(&head.headers).map_err(Error::ResponseFraming)?;
                let tunnel = request.opens_tunnel() && (200..300).contains(&head.status);
                let bodiless = match head.status {
                    _ if request.head.method == Method::Head => Some(Bodiless::Head),
                    204 | 304 => Some(Bodiless::Status),
                    _ => None,
                };
                if let Some(why) = bodiless.filter(|_| !tunnel) {
                    // What comes later is found when the exchange is over.
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
                        Poll::Ready(Ok(Received::End)) if link.trailers().is_empty() => BodyLength::Fixed(0),
                        // Trailers may come behind it, which have no place behind a length in HTTP/1.
                        Poll::Ready(Ok(Received::End)) | Poll::Pending if request.takes_trailers() => {
                            BodyLength::Chunked
                        }
                        Poll::Ready(Ok(Received::End)) | Poll::Pending => BodyLength::Fixed(0),
                        Poll::Ready(Ok(Received::Data) | Err(LinkError::Reset(Reason::PROTOCOL_ERROR))) => {
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
            check_chunks(link.ahead(), &upstream.head_limits)?;
        }
        self.keep_alive = connection::keep_alive(head.version, &head.headers)
            && !matches!(length, BodyLength::UntilClose | BodyLength::Tunnel)
            && upstream.trusts_behind(self.server, &request.head.method, head, length, clock::now());
        let length_in = if length == BodyLength::Tunnel { BodyLength::UntilClose } else { length };
        link.begin_receive(length_in, &upstream.head_limits);
        if length == BodyLength::Tunnel {
            link.begin_send(BodyLength::UntilClose);
        }
        Ok(length)
    }
}

/// Looks for what is no chunk in the part of a body that has come with its head: found now, it can still be answered with a status of
/// its own; what comes later can only break the response off.
fn check_chunks(ahead: &[u8], limits: &HeadLimits) -> Result<(), Error> {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, limits);
    let mut trailers = HeaderList::default();
    let mut rest = ahead;
    while !rest.is_empty() {
        let decoded =
            decoder.decode(rest, &mut trailers).map_err(|error| Error::Origin(LinkError::Body(error)))?;
        rest = rest.get(decoded.consumed..).unwrap_or_default();
        if decoded.done {
            break;
        }
    }
    Ok(())
}

/// The head that an HTTP/1 origin gets, from the canonical request alone.
fn write_head(out: &mut Vec<u8>, request: &Request, upstream: &settings::Upstream) {
    write_request_line(out, &request.head.method, request.target());
    write_field(out, b"Host", request.origin_authority(upstream).as_bytes());
    write_fields(out, &request.head.headers);
    // It is meant for the next hop alone (RFC 9110, section 10.1.4).
    let takes_trailers = request.head.headers.contains(NameId::Te);
    match (request.upgrade.is_some(), takes_trailers) {
        (true, true) => write_field(out, b"Connection", b"Upgrade, TE"),
        (true, false) => write_field(out, b"Connection", b"Upgrade"),
        (false, true) => write_field(out, b"Connection", b"TE"),
        (false, false) => {}
    }
    if let Some(protocol) = &request.upgrade {
        write_field(out, b"Upgrade", protocol);
        if let Some(key) = &request.websocket_key {
            write_field(out, b"Sec-WebSocket-Key", key.as_bytes());
        }
    }
    match request.length {
        BodyLength::Fixed(length) => write_content_length(out, length),
        BodyLength::Chunked => write_field(out, b"Transfer-Encoding", b"chunked"),
        // Origins may ask for a length of what usually has a body (RFC 9110, section 8.6).
        BodyLength::Empty if request.head.method.has_body_usually() => write_content_length(out, 0),
        _ => {}
    }
    end_head(out);
}

fn h2_request(request: &Request, upstream: &settings::Upstream) -> Result<http::Request<()>, Error> {
    let internal = |_| Error::Internal;
    let mut built = http::Request::new(());
    let extended = request.upgrade.as_deref();
    let connect = extended.is_some() || request.opens_tunnel();
    *built.method_mut() = if connect {
        http::Method::CONNECT
    } else {
        http::Method::from_bytes(request.head.method.as_bytes()).map_err(|_| Error::Internal)?
    };
    let uri = http::Uri::builder().authority(request.origin_authority(upstream));
    *built.uri_mut() = if connect && extended.is_none() {
        uri.build().map_err(internal)?
    } else {
        let scheme = if upstream.tls.is_some() { "https" } else { "http" };
        uri.scheme(scheme).path_and_query(request.target()).build().map_err(internal)?
    };
    *built.version_mut() = http::Version::HTTP_2;
    *built.headers_mut() = fields::to_map(&request.head.headers);
    if let BodyLength::Fixed(length) = request.length
        && !connect
    {
        built.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    if extended.is_some() {
        built.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    Ok(built)
}

fn fill_head(head: &mut ResponseHead, map: &http::HeaderMap, status: u16) {
    head.clear();
    head.version = Version::Http2;
    head.status = status;
    fields::append(&mut head.headers, map);
}

/// What h2 does not mind an origin for, as for HTTP/1.
fn is_within(fields: &http::HeaderMap, limits: &HeadLimits) -> Result<(), Error> {
    if fields.len() > limits.fields {
        return Err(Error::Response(ResponseError::TooManyFields));
    }
    if fields.iter().any(|(name, value)| name.as_str().len() + value.len() > limits.line) {
        return Err(Error::Response(ResponseError::LineTooLong));
    }
    Ok(())
}

/// Why a connection takes no stream.
fn refused(lease: &Lease) -> Error {
    if lease.signs().refusal().is_some() { Error::OriginTls } else { Error::OriginRefused }
}

fn h2_error(error: h2::Error, stream: u32, lease: &Lease) -> Error {
    let connection = error.is_go_away() || error.is_io();
    if connection {
        // Before its task has seen the end of the connection: a further attempt must not meet it.
        lease.close();
    }
    if lease.signs().is_too_large(stream) {
        return Error::Response(ResponseError::HeadTooLarge);
    }
    if lease.signs().has_begun(stream) {
        // Whatever it says now, it has begun to answer.
        return Error::Origin(error.into());
    }
    if lease.signs().refusal().is_some() && !lease.signs().has_answered() {
        return Error::OriginTls;
    }
    // The origin names the last stream that it has looked at; `h2` has only those beyond fail for that.
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
    // Otherwise the origin has ended the connection, or what came on another stream, or on none.
    let broken_here = lease.signs().is_broken_by(stream);
    if connection && !broken_here { Error::OriginClosed } else { Error::Origin(error.into()) }
}
