//! Makes the HTTP/2 connections that requests share, for all waiting requests together.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::connect::{Addresses, NewConnection};
use super::idle::Ages;
use super::opening::{Connections, OpeningTerms};
use super::origin::Origin;
use super::queue::Making;
use super::server::Server;
use crate::error::Error;
use crate::time::clock;

impl OpeningTerms<'_> {
    /// The terms of a connection that is made for all clients.
    const OF_NOBODY: Self = Self {
        fresh: true,
        addresses: Addresses::NONE,
        behalf: None,
        client: None,
        own: None,
        http1: false,
        authenticates: false,
        handed_over: None,
    };
}

impl Connections {
    /// A stream on a shared connection. A connection is made if none has room.
    pub(super) async fn share(
        self: &Arc<Self>,
        server: &Server,
        terms: OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Origin, Error> {
        let began = self.clock.now();
        let deadline = began + self.settings.connect_timeout;
        // With an HTTP/1 origin, each request needs a connection of its own, and does not wait for those
        // of others.
        if !server.pool.speaks_http1.load(Ordering::Relaxed) {
            // Requests wait here for connections that are being made, each for at most its connect timeout.
            let Ok(origin) = timeout_at(deadline.into(), self.share_in_turn(server, terms, now)).await else {
                // The attempt to connect, which runs in its own task, records the cause.
                server.record.health.inconclusive(began, self.clock.now());
                return Err(Error::ConnectTimeout);
            };
            if let Some(origin) = origin? {
                return Ok(origin);
            }
        }
        let of_client = self.claim(server, terms)?;
        let made = self.dialer.connect(server, terms, deadline).await?;
        server.pool.has_made(made.is_http1(), self.clock.now().saturating_duration_since(began));
        // A connection that many requests can share does not count for a single client.
        let of_client = of_client.filter(|_| made.is_http1() || server.pool.takes_few_streams());
        Ok(Origin::new(server, made, false, None, of_client))
    }

    /// A stream on a connection that other requests have made meanwhile, or on a new one. `None` if the
    /// server turns out to need a connection for each request.
    async fn share_in_turn(
        self: &Arc<Self>,
        server: &Server,
        terms: OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Option<Origin>, Error> {
        let place = server.pool.queue.join();
        loop {
            let mut next = pin!(place.next());
            // Registered before the checks below, so that no event after them is missed.
            next.as_mut().enable();
            if let Some(origin) = self.shared(server, terms, now)? {
                return Ok(Some(origin));
            }
            if server.pool.speaks_http1.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // To a failing server, connections are made one at a time.
            let requests = server.pool.streams_said().filter(|_| server.record.health.failures() == 0);
            match place.make(requests) {
                Some(making) => return self.make_shared(server, terms, now, making).await.map(Some),
                None => next.await,
            }
        }
    }

    /// Makes a connection for all waiters, unless the latest connection turns out to have room.
    async fn make_shared(
        self: &Arc<Self>,
        server: &Server,
        terms: OpeningTerms<'_>,
        now: Instant,
        making: Making,
    ) -> Result<Origin, Error> {
        server.pool.settled().await;
        if let Some(origin) = self.shared(server, terms, now)? {
            return Ok(origin);
        }
        let of_client = self.claim(server, terms)?;
        let (tell, made) = oneshot::channel();
        tokio::spawn(Arc::clone(self).connect_for_all(server.number, making, tell));
        let made = made.await.map_err(|_| Error::Internal)??;
        // A connection that many requests can share does not count for a single client.
        let of_client = of_client.filter(|_| made.is_http1() || server.pool.takes_few_streams());
        Ok(Origin::new(server, made, false, None, of_client))
    }

    /// Connects to a server in a detached task: shared connections outlive the client that
    /// triggered them, and have the full connect timeout.
    async fn connect_for_all(
        self: Arc<Self>,
        server: usize,
        making: Making,
        tell: oneshot::Sender<Result<NewConnection, Error>>,
    ) {
        let Some(server) = self.servers.get(server) else { return };
        let began = self.clock.now();
        let made =
            self.dialer.connect(server, OpeningTerms::OF_NOBODY, began + self.settings.connect_timeout).await;
        match &made {
            Ok(made) => {
                let took = self.clock.now().saturating_duration_since(began);
                server.pool.has_made(made.is_http1(), took);
            }
            Err(_) => server.pool.has_failed(self.clock.now()),
        }
        drop(making);
        if let Err(Ok(NewConnection::H1(link))) = tell.send(made) {
            let origin = Origin::new(server, NewConnection::H1(link), false, None, None);
            self.put_back(origin, self.clock.now());
        }
    }

    /// Makes the next connection ahead of demand, if this one will soon accept no more streams because
    /// many of them were reset. No request has to wait for the new connection then.
    pub(super) fn make_successor(self: &Arc<Self>, server: &Server, origin: &Origin) {
        let Some(lease) = origin.lease() else { return };
        let now = clock::now();
        let wears_out = lease.is_worn() || server.pool.wears_out(now);
        if !wears_out || !lease.is_short() || server.record.health.failures() > 0 {
            return;
        }
        if let Some(making) = server.pool.queue.make_ahead(server.pool.missing(now)) {
            let (tell, _) = oneshot::channel();
            tokio::spawn(Arc::clone(self).connect_for_all(server.number, making, tell));
        }
    }

    /// A stream on an existing shared connection, or an idle HTTP/1 connection.
    fn shared(
        &self,
        server: &Server,
        terms: OpeningTerms<'_>,
        now: Instant,
    ) -> Result<Option<Origin>, Error> {
        let origin = match server.pool.lease(now, Ages::of(&self.settings)) {
            Some(lease) => {
                let of_client = self.claim_stream(server, terms)?;
                Some(Origin::new(server, NewConnection::H2(lease), true, None, of_client))
            }
            None if terms.fresh => None,
            None => self.kept(server, terms, None, now)?,
        };
        if origin.is_some() {
            self.counters.reused.inc();
        }
        Ok(origin)
    }
}
