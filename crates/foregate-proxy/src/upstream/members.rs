//! Upstreams at work, and the requests that they are serving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::budget::RetryBudget;
use super::choosing::ServerPicker;
use super::judging::ServerJudge;
use super::opening::{Connections, OpeningTerms};
use super::origin::Origin;
use super::own::OwnConnections;
use super::server::Server;
use super::services::PresentServers;
use crate::counters::metrics::Metrics;
use crate::error::Error;
use crate::limits::account::Places;
use crate::limits::gates::RequestGate;
use crate::settings;
use crate::time::clock::Clock;

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    /// The settings.
    pub settings: Arc<settings::UpstreamSettings>,
    /// The servers, in the order of the configuration. The servers of a service take its place.
    pub servers: Arc<[Server]>,
    pub(super) expanded: PresentServers,
    /// The choice of servers.
    pub picker: ServerPicker,
    /// The judgement of servers by the outcomes of requests.
    pub judge: Arc<ServerJudge>,
    /// The connections for requests.
    pub connections: Arc<Connections>,
    pub(super) clock: Clock,
    /// Limits the copies of requests in flight.
    pub mirrors: Arc<Places>,
    /// Limits the requests in flight that steps of modules make.
    pub fetches: Arc<Places>,
    /// The limit on requests in flight, if there is one.
    pub(super) gate: Option<Arc<RequestGate>>,
    pub(super) active: AtomicU32,
    pub(super) budget: RetryBudget,
    pub(crate) metrics: Arc<Metrics>,
}

impl Upstream {
    /// Returns true if the servers are still those that its services resolve to.
    pub(super) fn is_current(&self) -> bool {
        self.expanded.is_current()
    }

    /// Waits at most `limit` for the first lookups of its services.
    pub async fn looked_up(&self, limit: Duration) {
        self.expanded.looked_up(limit).await;
    }

    /// The error if there is no server to try.
    pub(super) fn without_server(&self) -> Error {
        if self.expanded.want() { Error::Unresolved } else { Error::NoServer }
    }

    /// The server with a connection on which the client authenticates. The client's requests must go
    /// there, because no other server knows the client.
    pub fn bound_server(&self, own: Option<&Arc<OwnConnections>>) -> Option<usize> {
        let own = own?;
        self.servers.iter().position(|server| own.is_bound_to(&server.pool))
    }

    /// A new connection to the next server, for bytes that are not HTTP. If this fails, the other
    /// servers are tried.
    ///
    /// # Errors
    ///
    /// The errors of the last attempt of [`Connections::open`].
    pub async fn open_for_bytes(&self, terms: &OpeningTerms<'_>) -> Result<Origin, Error> {
        let now = self.clock.now();
        let first = self.picker.pick(None, now).ok_or_else(|| self.without_server())?;
        let mut opened = self.connections.open(first, terms, now).await;
        let others = (0..self.servers.len()).filter(|server| *server != first);
        for server in others.take(self.settings.retries as usize) {
            if opened.is_ok() {
                break;
            }
            opened = self.connections.open(server, terms, self.clock.now()).await;
        }
        opened
    }

    /// Counts a request as active for as long as the result lives.
    pub fn enter(&self) -> ActiveRequest<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.budget.enter();
        ActiveRequest { upstream: self, retrying: false }
    }
}

/// Counts a request that an upstream is serving.
#[derive(Debug)]
pub struct ActiveRequest<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) retrying: bool,
}

impl<'a> ActiveRequest<'a> {
    /// The upstream that serves the request.
    pub fn upstream(&self) -> &'a Upstream {
        self.upstream
    }

    /// The limits on further attempts: their percentage of the requests, and a number that is always
    /// allowed.
    pub(super) fn share(&self) -> (u64, u64) {
        let settings = &self.upstream.settings;
        (settings.retry_budget_percent.into(), settings.retry_budget_min.into())
    }

    /// The number of further attempts that may be in flight now.
    pub(super) fn most_in_flight(&self) -> u64 {
        let (percent, least) = self.share();
        (u64::from(self.upstream.active.load(Ordering::Relaxed)) * percent / 100).max(least)
    }

    /// Returns true if the budget of the upstream has room for a further attempt.
    pub fn has_budget(&self, now: Instant) -> bool {
        let (budget, share) = (&self.upstream.budget, self.share());
        match self.retrying {
            true => budget.has_room_over_time(share, now),
            false => budget.has_room(self.most_in_flight(), share, now),
        }
    }

    /// Returns true if the budget of the upstream allows this request a further attempt. A denial
    /// is counted.
    pub fn may_retry(&mut self, now: Instant) -> bool {
        let budget = &self.upstream.budget;
        self.retrying = self.retrying || budget.begin(self.most_in_flight());
        let may = self.retrying && budget.take(self.share(), now);
        if !may {
            self.upstream.metrics.retries_denied.inc();
        }
        may
    }

    /// Gives the request's place in the budget to others, because its response has begun. The rest of
    /// the response does not count.
    pub fn answered(&mut self) {
        if std::mem::take(&mut self.retrying) {
            self.upstream.budget.end();
        }
    }
}

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        self.answered();
        self.upstream.active.fetch_sub(1, Ordering::Relaxed);
    }
}
