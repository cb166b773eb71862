//! Upstreams at work, their servers, and the requests that they are serving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use foregate_wire::HeadLimits;

use super::balance::BalanceMethod;
use super::budget::RetryBudget;
use super::idle::Ages;
use super::own::OwnConnections;
use super::pool::ServerPool;
use super::pools::Pools;
use super::record::ServerRecord;
use super::remembered::ServerMemory;
use super::services::PresentServers;
use super::sticky::StickyCookies;
use crate::address::ServerAddress;
use crate::counters::metrics::{Metrics, ServerCounters, UpstreamCounters};
use crate::error::Error;
use crate::limits::account::Places;
use crate::limits::gates::RequestGate;
use crate::names::ResolvedName;
use crate::settings;
use crate::time::clock::Clock;
use crate::time::notices::Notices;
use crate::tls::{Connector, Refusal};

/// An upstream at work.
#[derive(Debug)]
pub struct Upstream {
    /// The settings.
    pub settings: Arc<settings::UpstreamSettings>,
    /// Its servers, in the order of the configuration; those of a service in its place.
    pub servers: Vec<Server>,
    pub(super) clock: Clock,
    pub(super) expanded: PresentServers,
    /// Its metrics.
    pub counters: Arc<UpstreamCounters>,
    /// Limits for the heads of responses.
    pub head_limits: HeadLimits,
    /// Places for copies of requests.
    pub mirrors: Arc<Places>,
    /// Places for requests that steps of modules make.
    pub fetches: Arc<Places>,
    pub(super) pools: Arc<Pools>,
    pub(super) balance: ArcSwap<Box<dyn BalanceMethod>>,
    /// True if the method weighs latencies.
    pub(super) weighs_time: AtomicBool,
    pub(super) sticky: Option<StickyCookies>,
    /// There are zones or backups.
    pub(super) has_tiers: bool,
    /// Microseconds that a request waits before it is looked at whether its server hangs; 0 while
    /// nothing is known.
    pub(super) patience: AtomicU64,
    /// Microseconds after which a second attempt begins, by the recent latencies; 0 before there are enough.
    pub(super) hedge_after: AtomicU64,
    pub(super) all_down: Notices,
    /// Of single failures, before a server counts as down.
    pub(super) failing: Notices,
    pub(super) connector: Option<Connector>,
    /// The bound on its requests in flight, if there is one.
    pub(super) gate: Option<Arc<RequestGate>>,
    pub(super) active: AtomicU32,
    pub(super) budget: RetryBudget,
    pub(crate) metrics: Arc<Metrics>,
}

/// A server at work. A clone is the same server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its place among those of its upstream.
    pub(super) number: usize,
    /// Where it is.
    pub address: ServerAddress,
    /// The address as text, for logs.
    pub label: Arc<str>,
    pub(super) resolved: Option<Arc<ResolvedName>>,
    pub(super) pool: Arc<ServerPool>,
    pub(super) settings: Arc<settings::ServerSettings>,
    /// Its connections may be shared by stream.
    pub(super) shares: bool,
    pub(super) record: Arc<ServerRecord>,
    pub(super) remembered: Arc<ServerMemory>,
    pub(super) counters: Arc<ServerCounters>,
}

impl Server {
    /// Tells metrics whether the server gets requests.
    pub(super) fn show(&self) {
        let is_down = self.record.health.is_down() || self.record.checked.is_down();
        self.counters.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Counts that requests pass over the server from now on.
    pub(super) fn count_ejection(&self) {
        self.record.ejections.fetch_add(1, Ordering::Relaxed);
        self.counters.ejections.inc();
    }

    /// Operators are told that it has ended a handshake that was over for us.
    pub(super) fn tell_of_refusal(&self, error: Refusal, now: Instant) -> Error {
        self.remembered.tls_failed(&error);
        if self.remembered.handshake.take(now) {
            tracing::warn!(server = %self.label, %error, "TLS handshake with an origin failed");
        }
        Error::OriginTls
    }

    /// Drops idle connections that are too old, have died, or lead to where its name has not led
    /// for a while.
    pub(super) fn sweep(&self, now: Instant, ages: Ages) {
        self.pool.sweep(now, ages);
        let Some(resolved) = &self.resolved else { return };
        // A reload puts servers to work where there is no runtime.
        resolved.start();
        let moved = match resolved.addresses() {
            Some(addresses) if resolved.is_complete() => self.remembered.see_all(&addresses, now),
            Some(addresses) => self.remembered.see(&addresses, now),
            None if resolved.is_absent() => self.remembered.see_all(&[], now),
            None => None,
        };
        if let Some(moved) = moved {
            self.pool.retire(moved, |address| !self.remembered.has(address));
        }
    }
}

impl Upstream {
    /// Returns true if it has the present servers of its services.
    pub(super) fn is_current(&self) -> bool {
        self.expanded.is_current()
    }

    /// Waits for the first lookups of its services to end, `limit` at most.
    pub async fn looked_up(&self, limit: Duration) {
        self.expanded.looked_up(limit).await;
    }

    /// Why no server can be tried.
    pub(super) fn without_server(&self) -> Error {
        if self.expanded.want() { Error::Unresolved } else { Error::NoServer }
    }

    /// Of the servers that `may` be taken, those of the lowest rank that has any.
    pub(super) fn preferred(&self, may: impl Fn(usize) -> bool) -> impl Fn(usize) -> bool {
        let rank = |server: usize| self.expanded.ranks.get(server).copied();
        let lowest = match self.expanded.ranks.is_empty() {
            true => None,
            false => (0..self.servers.len()).filter(|server| may(*server)).filter_map(rank).min(),
        };
        move |server| may(server) && lowest.is_none_or(|lowest| rank(server) == Some(lowest))
    }

    pub(super) fn ages(&self) -> Ages {
        Ages { idle: self.settings.keep_alive, total: self.settings.connection_age }
    }

    /// The server with a connection on which the client authenticates: the client is known nowhere
    /// else.
    pub fn bound_server(&self, own: Option<&Arc<OwnConnections>>) -> Option<usize> {
        let own = own?;
        self.servers.iter().position(|server| own.is_bound_to(&server.pool))
    }

    /// Counts a request as active for as long as the result lives.
    pub fn enter(&self) -> ActiveRequest<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.budget.enter();
        ActiveRequest { upstream: self, retrying: false }
    }
}

/// A request that is being served by an upstream.
#[derive(Debug)]
pub struct ActiveRequest<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) retrying: bool,
}

impl<'a> ActiveRequest<'a> {
    /// The upstream that serves it.
    pub fn upstream(&self) -> &'a Upstream {
        self.upstream
    }

    /// The share of the requests that may be further attempts, per cent, and their least number.
    pub(super) fn share(&self) -> (u64, u64) {
        let settings = &self.upstream.settings;
        (settings.retry_budget_percent.into(), settings.retry_budget_min.into())
    }

    /// The further attempts that may be in flight at present.
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

    /// The request has its response: its part of the budget is free for others, regardless of the
    /// rest.
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
