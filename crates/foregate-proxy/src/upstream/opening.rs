//! Gets connections for requests, kept or new ones, and keeps them after the request.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use foregate_wire::{BodyLength, Method, ResponseHead};

use super::connect::{Dialer, NewConnection};
use super::idle::Ages;
use super::leftovers::ExcessReport;
use super::origin::Origin;
use super::own::OwnConnections;
use super::server::Server;
use crate::counters::metrics::UpstreamCounters;
use crate::error::Error;
use crate::limits::clients::Holdings;
use crate::limits::descriptors::OfClient;
use crate::settings::{UpstreamProtocol, UpstreamSettings};
use crate::time::clock::{self, Clock};

pub use super::connect::Addresses;

/// The terms for a connection.
#[derive(Debug, Clone, Copy)]
pub struct OpeningTerms<'a> {
    /// True if no kept connection may be used.
    pub fresh: bool,
    /// The addresses for the PROXY protocol.
    pub addresses: &'a Addresses,
    /// The effective client address of the request, which balancing may use.
    pub behalf: Option<IpAddr>,
    /// The served client, if there is one.
    pub client: Option<&'a Arc<Holdings>>,
    /// The connections to origins that belong to the client connection alone, once there are some.
    pub own: Option<&'a OnceLock<Arc<OwnConnections>>>,
    /// True if ALPN must choose HTTP/1.1.
    pub http1: bool,
    /// True if the request has credentials that the origin may bind to the connection.
    pub authenticates: bool,
    /// The TLVs for the PROXY header, if the request is handed over to another proxy. An HTTP/1
    /// connection then serves the client connection alone.
    pub handed_over: Option<&'a Vec<u8>>,
}

/// The connections of an upstream, as requests get and return them.
#[derive(Debug)]
pub struct Connections {
    pub(super) settings: Arc<UpstreamSettings>,
    pub(super) servers: Arc<[Server]>,
    pub(super) clock: Clock,
    pub(super) counters: Arc<UpstreamCounters>,
    pub(super) dialer: Dialer,
    pub(super) excess: ExcessReport,
}

impl Connections {
    /// Takes note of bytes of an earlier response where the response to a request was to begin.
    pub(super) fn note_leftover(&self, server: usize) {
        if let Some(server) = self.servers.get(server) {
            self.excess.note(server, clock::now());
        }
    }

    /// See [`ExcessReport::trusts_behind`].
    pub(super) fn trusts_behind(
        &self,
        server: usize,
        method: &Method,
        head: &ResponseHead,
        length: BodyLength,
        now: Instant,
    ) -> bool {
        let server = self.servers.get(server);
        server.is_none_or(|server| self.excess.trusts_behind(server, method, head, length, now))
    }

    /// A connection to `server`, kept or new.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if there is no such server. Otherwise the reason why there is no connection.
    /// Nothing of the request was sent, so [`Error::is_before_sending`] holds.
    pub async fn open(
        self: &Arc<Self>,
        server: usize,
        terms: &OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        let server = self.servers.get(server).ok_or(Error::Internal)?;
        // Requests that wait for a connection count as in flight, because a server that accepts
        // connections slowly is busy, too.
        let waiting = server.record.enter(now);
        let mut origin = self.open_at(server, terms, now).await?;
        origin.counts(waiting);
        Ok(origin)
    }

    async fn open_at(
        self: &Arc<Self>,
        server: &Server,
        terms: &OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        if terms.authenticates || self.is_authenticating(server, terms.own) {
            return Box::pin(self.open_authenticated(server, *terms, now)).await;
        }
        let alone = terms.handed_over.is_some() && self.settings.protocol != UpstreamProtocol::Http2;
        let exclusive = self.settings.send_proxy.is_some() || alone;
        let own = terms.own.filter(|_| exclusive).map(|own| own.get_or_init(Arc::default));
        if !terms.fresh
            && (!exclusive || own.is_some())
            && let Some(origin) = self.kept(server, *terms, own, now)?
        {
            self.counters.reused.inc();
            self.make_successor(server, &origin);
            return Ok(origin);
        }
        if self.settings.protocol == UpstreamProtocol::Http1 || exclusive || terms.http1 {
            let of_client = self.claim(server, *terms)?;
            // Boxed, because few requests need it, and it would enlarge the future of every request.
            let deadline = self.clock.now() + self.settings.connect_timeout;
            let made = Box::pin(self.dialer.connect(server, *terms, deadline)).await?;
            let mut origin = Origin::new(server, made, false, None, of_client);
            origin.belongs_to(own);
            return Ok(origin);
        }
        Box::pin(self.share(server, *terms, now)).await
    }

    /// Returns true if the client was asked to authenticate its connection to a server, or has done so.
    /// Never true if the upstream is HTTP/2 only, because there each request has its own credentials.
    fn is_authenticating(&self, server: &Server, own: Option<&OnceLock<Arc<OwnConnections>>>) -> bool {
        self.settings.protocol != UpstreamProtocol::Http2
            && own.and_then(OnceLock::get).is_some_and(|own| own.is_authenticating_at(&server.pool))
    }

    /// A connection on which the client may authenticate. It is the client's own connection, kept or new,
    /// which serves no other client. For a request without a client, it is a new connection that ends
    /// with the request. The connection uses HTTP/1 if possible, because all clients share HTTP/2
    /// connections.
    async fn open_authenticated(
        self: &Arc<Self>,
        server: &Server,
        terms: OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        let http1 = terms.http1 || self.settings.protocol == UpstreamProtocol::Auto;
        let terms = OpeningTerms { http1, authenticates: true, ..terms };
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
        let deadline = self.clock.now() + self.settings.connect_timeout;
        let made = self.dialer.connect(server, terms, deadline).await?;
        let mut origin = Origin::new(server, made, false, None, of_client);
        origin.authenticates(own, turn);
        Ok(origin)
    }

    /// Reserves the connection for this client alone, if the origin authenticates the client on it. If
    /// it is a shared connection, the client's next request gets a connection of its own instead.
    pub fn bind(&self, origin: &mut Origin, own: &OnceLock<Arc<OwnConnections>>) {
        let Some(server) = self.servers.get(origin.server()).filter(|_| origin.binds()) else { return };
        let own = own.get_or_init(Arc::default);
        own.authenticates_at(&server.pool);
        if origin.is_for_all() {
            let turn = own.first_turn(&server.pool);
            // If several streams of a client are challenged at the same time, the client keeps the
            // connection of one of them, and the other connections end with their requests.
            origin.authenticates(Some(own).filter(|_| turn.is_some()), turn);
        }
    }

    /// A kept connection. With `own`, only a connection that belongs to this client connection.
    pub(super) fn kept(
        &self,
        server: &Server,
        terms: OpeningTerms<'_>,
        own: Option<&Arc<OwnConnections>>,
        now: Instant,
    ) -> Result<Option<Origin>, Error> {
        let protocol = self.settings.protocol;
        if protocol != UpstreamProtocol::Http1
            && !terms.http1
            && let Some(lease) = server.pool.lease(now, Ages::of(&self.settings))
        {
            let of_client = self.claim_stream(server, terms)?;
            return Ok(Some(Origin::new(server, NewConnection::H2(lease), true, None, of_client)));
        }
        if protocol == UpstreamProtocol::Http2 {
            return Ok(None);
        }
        let of_client = self.claim(server, terms)?;
        let kept = server.pool.take(now, Ages::of(&self.settings), own);
        self.excess.report(server);
        Ok(kept.map(|(link, made)| Origin::new(server, NewConnection::H1(link), true, Some(made), of_client)))
    }

    /// Counts a connection for the client that it serves alone. Fails if the client has so many that too
    /// few are left for others.
    pub(super) fn claim(&self, server: &Server, terms: OpeningTerms<'_>) -> Result<Option<OfClient>, Error> {
        let Some(client) = terms.client else { return Ok(None) };
        let claimed = OfClient::claim(client, || self.dialer.pools.idle());
        if claimed.is_none() {
            let now = self.clock.now();
            server.record.health.inconclusive(now, now);
            tracing::debug!(server = %server.label, "too many connections to origins for one client");
        }
        claimed.map(Some).ok_or(Error::NoDescriptors)
    }

    /// Counts a stream of a shared connection for its client, if the server allows so few streams per
    /// connection that a stream is nearly a connection.
    pub(super) fn claim_stream(
        &self,
        server: &Server,
        terms: OpeningTerms<'_>,
    ) -> Result<Option<OfClient>, Error> {
        if server.pool.takes_few_streams() { self.claim(server, terms) } else { Ok(None) }
    }

    /// Keeps a new connection that was not used for a request.
    pub fn put_back(&self, mut origin: Origin, now: Instant) {
        origin.was_not_asked();
        self.keep(origin, now);
    }

    /// Keeps the connection for another request, if it is reusable.
    pub(super) fn keep(&self, origin: Origin, now: Instant) {
        let Some(server) = self.servers.get(origin.server()) else { return };
        let binds = origin.binds();
        let Some((link, mut made)) = origin.into_idle() else { return };
        let own = made.own.as_ref().and_then(Weak::upgrade);
        // If the client connection has ended, this connection is not kept, because it has no other user.
        // If the client connection ends after this check, its end drops this connection from the pool.
        if (made.own.is_some() || binds || self.settings.send_proxy.is_some())
            && !own.as_ref().is_some_and(|own| own.keeps_in(&server.pool))
        {
            return;
        }
        made.of_client = None;
        // The turn ends after the connection is in the pool, so that the client's next request finds it.
        let turn = made.turn.take();
        server.pool.put(link, made, now, self.settings.keep_alive_connections);
        drop(turn);
    }
}
