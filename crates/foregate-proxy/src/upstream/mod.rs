//! Origins: which server is tried, and the connections to it.

mod ask;
mod attempts;
pub(crate) mod authentication;
mod balance;
mod connect;
mod excess;
mod guarded;
mod heads;
mod health;
mod idle;
mod idle_limit;
mod opening;
mod origin;
mod own;
mod pool;
mod pools;
mod queue;
mod race;
mod remembered;
mod rest;
mod retry;
mod services;
mod shared;
mod sharing;
mod tried;
mod turns;
mod wear;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use foregate_wire::HeadLimits;

pub use self::ask::{Answer, Ask, Asker};
pub use self::opening::{Addresses, Terms};
pub use self::origin::Origin;
pub use self::own::Own;
pub use self::pool::Pool;
pub use self::pools::Pools;

use self::attempts::Attempts;
use self::balance::{Asked, Balance, Choice, Load};
use self::health::{FAILURES_UNTIL_DOWN, Health, News};
use self::idle::Ages;
use self::pools::PoolKey;
use self::remembered::Remembered;
use self::services::Expanded;
use self::tried::Tried;

use crate::address::ServerAddress;
use crate::counters::metrics::{Metrics, ServerCounters, UpstreamCounters};
use crate::error::Error;
use crate::limits::account::Places;
use crate::names::{Resolved, Resolver};
use crate::settings::{self, UpstreamProtocol};
use crate::tls::{Connector, Refusal, TlsError};
use tokio::sync::watch;

/// How often pools are looked through for connections that are too old or have died.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Requests that steps of modules may have under way to one upstream, those of one client a part of them. Beyond, they get none.
const FETCHES: usize = 1024;

/// An upstream at work.
#[derive(Debug)]
pub struct Upstream {
    /// What was configured.
    pub settings: Arc<settings::Upstream>,
    /// Its servers, in the order of the configuration; those of a service in its place.
    pub servers: Vec<Server>,
    expanded: Expanded,
    /// Its metrics.
    pub counters: Arc<UpstreamCounters>,
    /// Limits for the heads of responses.
    pub head_limits: HeadLimits,
    /// Places for requests that steps of modules make.
    pub fetches: Arc<Places>,
    pools: Arc<Pools>,
    balance: Box<dyn Balance>,
    connector: Option<Connector>,
    active: AtomicU32,
    retrying: AtomicU32,
    pub(crate) metrics: Arc<Metrics>,
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    /// Its place among those of its upstream.
    number: usize,
    /// Where it is.
    pub address: ServerAddress,
    /// The same as text, for logs.
    pub label: Arc<str>,
    resolved: Option<Arc<Resolved>>,
    pool: Arc<Pool>,
    health: Health,
    load: Arc<Load>,
    remembered: Arc<Remembered>,
    counters: Arc<ServerCounters>,
}

impl Server {
    /// Operators are told that it has ended a handshake that was over for us.
    fn tell_of_refusal(&self, error: Refusal) -> Error {
        if self.remembered.handshake.take(Instant::now()) {
            tracing::warn!(server = %self.label, %error, "TLS handshake with an origin failed");
        }
        Error::OriginTls
    }

    /// The address that a connection leads to has failed, where the name has several.
    fn address_failed(&self, origin: &Origin, now: Instant) {
        if self.resolved.is_some()
            && let Some(address) = origin.address()
        {
            self.remembered.turns.failed(address, now, true);
        }
    }

    /// Drops idle connections that are too old, have died, or lead to where its name has not led for a while.
    fn sweep(&self, now: Instant, ages: Ages) {
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

/// All pools of the process and what is needed to make upstreams. Survives reloads.
#[derive(Debug)]
pub struct Upstreams {
    resolver: Resolver,
    metrics: Arc<Metrics>,
    pools: Arc<Pools>,
}

impl Upstreams {
    /// No pools yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { resolver: Resolver::new(Arc::clone(&metrics)), metrics, pools: Arc::default() }
    }

    /// The pools of all upstreams.
    pub fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Puts `settings` to work. An upstream of `old` whose settings are the same goes on as it is: connections,
    /// health and all.
    ///
    /// # Errors
    ///
    /// A TLS file that cannot be used.
    pub fn build(
        &self,
        settings: &[Arc<settings::Upstream>],
        head_limits: HeadLimits,
        old: &[Arc<Upstream>],
    ) -> Result<Vec<Arc<Upstream>>, TlsError> {
        self.pools.forget_unused();
        let old: HashMap<&str, &Arc<Upstream>> =
            old.iter().map(|upstream| (&*upstream.settings.name, upstream)).collect();
        settings
            .iter()
            .map(|settings| {
                let tls = settings.tls.as_ref();
                // Equal when the files that it names hold the same.
                let connector = tls.map(|tls| Connector::new(tls, settings.protocol)).transpose()?;
                match old.get(&*settings.name) {
                    Some(old)
                        if old.is_current()
                            && old.settings == *settings
                            && old.connector == connector
                            && old.head_limits == head_limits =>
                    {
                        Ok(Arc::clone(old))
                    }
                    old => {
                        let old = old.map(|old| &***old);
                        Ok(Arc::new(self.start(settings, connector, head_limits, old)))
                    }
                }
            })
            .collect()
    }

    /// The same upstreams with the servers that their services have now; `None` where these are the same.
    pub fn renew(&self, old: &[Arc<Upstream>]) -> Option<Vec<Arc<Upstream>>> {
        if old.iter().all(|old| old.is_current()) {
            return None;
        }
        let renewed = old.iter().map(|old| match old.is_current() {
            true => Arc::clone(old),
            false => Arc::new(self.start(&old.settings, old.connector.clone(), old.head_limits, Some(old))),
        });
        Some(renewed.collect())
    }

    /// Tells when [`Self::renew`] may find other servers.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.resolver.service_changes()
    }

    /// Puts an upstream to work. What is known of servers that the `old` one has as well stays known.
    fn start(
        &self,
        settings: &Arc<settings::Upstream>,
        connector: Option<Connector>,
        head_limits: HeadLimits,
        old: Option<&Upstream>,
    ) -> Upstream {
        if settings.tls.as_ref().is_some_and(|tls| !tls.verify) {
            tracing::warn!(
                upstream = %settings.name,
                "the upstream is used WITHOUT CHECKING ITS CERTIFICATE (`verify #false`): \
                 whoever sits on the way can read and change everything"
            );
        }
        let expanded = Expanded::new(settings, &self.resolver);
        let of_old = |address: &ServerAddress| {
            old.and_then(|old| old.servers.iter().find(|server| server.address == *address))
        };
        let servers = expanded.servers.iter().enumerate().map(|(number, server)| {
            let key = PoolKey {
                address: server.address.clone(),
                protocol: settings.protocol,
                tls: connector.clone(),
                send_proxy: settings.send_proxy,
                resolver: settings.resolver.clone().filter(|_| server.address.is_name()),
                head_limits: (settings.protocol != UpstreamProtocol::Http1).then_some(head_limits),
            };
            let label: Arc<str> = server.address.to_string().into();
            let resolved = match &server.address {
                ServerAddress::Name { host, .. } => {
                    Some(self.resolver.resolve(host, settings.resolver.as_ref()))
                }
                _ => None,
            };
            let counters = self.metrics.server(&settings.name, &label);
            counters.name.store(resolved.as_ref().map(|resolved| Arc::clone(resolved.counters())));
            let old = of_old(&server.address);
            // Nothing is known of it yet.
            counters.is_down.store(false, Ordering::Relaxed);
            Server {
                number,
                address: server.address.clone(),
                counters,
                label,
                resolved,
                pool: self.pools.get(key),
                health: Health::new(),
                load: old.map(|old| Arc::clone(&old.load)).unwrap_or_default(),
                remembered: old.map(|old| Arc::clone(&old.remembered)).unwrap_or_default(),
            }
        });
        Upstream {
            servers: servers.collect(),
            balance: balance::method(&settings.balance, &expanded.servers),
            expanded,
            counters: self.metrics.upstream(&settings.name),
            fetches: Places::new(FETCHES),
            pools: Arc::clone(&self.pools),
            settings: Arc::clone(settings),
            head_limits,
            connector,
            active: AtomicU32::new(0),
            retrying: AtomicU32::new(0),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// Looks through the pools of the present upstreams once a second, for as long as the process lives.
pub async fn sweep(mut present: impl FnMut() -> Vec<Arc<Upstream>>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        for upstream in present() {
            for server in &upstream.servers {
                server.sweep(now, upstream.ages());
                upstream.report_excess(server);
            }
        }
    }
}

impl Upstream {
    /// Whether it has the servers that its services have now.
    fn is_current(&self) -> bool {
        self.expanded.is_current()
    }

    /// Waits for the first lookups of its services to end, `limit` at most.
    pub async fn looked_up(&self, limit: Duration) {
        self.expanded.looked_up(limit).await;
    }

    /// Why no server can be tried.
    fn without_server(&self) -> Error {
        if self.expanded.want() { Error::Unresolved } else { Error::NoServer }
    }

    /// Of the servers that `may` be taken, those of the lowest rank that has any.
    fn preferred(&self, may: impl Fn(usize) -> bool) -> impl Fn(usize) -> bool {
        let rank = |server: usize| self.expanded.ranks.get(server).copied();
        let lowest = match self.expanded.ranks.is_empty() {
            true => None,
            false => (0..self.servers.len()).filter(|server| may(*server)).filter_map(rank).min(),
        };
        move |server| may(server) && lowest.is_none_or(|lowest| rank(server) == Some(lowest))
    }

    fn ages(&self) -> Ages {
        Ages { idle: self.settings.keep_alive, total: self.settings.connection_age }
    }

    /// The part of a request by which its server is chosen, where the method goes by one.
    fn key(&self, asked: &Asked<'_>) -> Option<u64> {
        if self.servers.len() == 1 { None } else { self.balance.key(asked) }
    }

    /// The server for a first attempt: one that is up, or the one whose turn it is if none is.
    fn pick(&self, key: Option<u64>, now: Instant) -> Option<usize> {
        let is_any_up = (0..self.servers.len()).any(|server| self.is_up(server, now));
        if !is_any_up {
            self.counters.all_down.inc();
        }
        let is_preferred = self.preferred(|server| !is_any_up || self.is_up(server, now));
        let mut first = None;
        let mut admits = |server| {
            if !is_preferred(server) {
                return false;
            }
            first.get_or_insert(server);
            !is_any_up || self.admit(server, now)
        };
        let picked = match self.servers.len() {
            1 => Some(0).filter(|server| admits(*server)),
            _ => self.choose(key, false, &mut admits),
        };
        picked.or(first)
    }

    fn choose(
        &self,
        key: Option<u64>,
        is_further: bool,
        admits: &mut dyn FnMut(usize) -> bool,
    ) -> Option<usize> {
        let in_flight = |server: usize| self.servers.get(server).map_or(0, |server| server.load.get());
        self.balance.choose(&Choice { key, is_further, in_flight: &in_flight }, admits)
    }

    /// The server on one of whose connections the client authenticates: it knows the client nowhere else.
    pub fn bound_server(&self, own: Option<&Arc<Own>>) -> Option<usize> {
        let own = own?;
        self.servers.iter().position(|server| own.is_bound_to(&server.pool))
    }

    /// Another server that is up, beside those that were tried; where there is one, it is one that has not failed last: whose request
    /// has lost an attempt already is not the one to find out whether a server answers again.
    fn other(&self, key: Option<u64>, tried: &Tried, now: Instant) -> Option<usize> {
        let is_well =
            |server: usize| self.servers.get(server).is_some_and(|server| server.health.failures() == 0);
        let untried = |server: usize| !tried.contains(server);
        let is_preferred = self.preferred(|server| untried(server) && is_well(server));
        let well = self.choose(key, true, &mut |server| is_preferred(server));
        well.or_else(|| {
            let is_preferred = self.preferred(|server| untried(server) && self.is_up(server, now));
            self.choose(key, true, &mut |server| is_preferred(server) && self.admit(server, now))
        })
    }

    /// Whether there is one.
    fn has_other(&self, tried: &Tried, now: Instant) -> bool {
        (0..self.servers.len()).any(|server| !tried.contains(server) && self.is_up(server, now))
    }

    /// Whether a server is thought to be up, or is to be tried again.
    pub fn is_up(&self, server: usize, now: Instant) -> bool {
        self.servers.get(server).is_some_and(|server| server.health.is_up(now))
    }

    /// Whether any server is thought to be up, or is to be tried again.
    pub fn is_any_up(&self, now: Instant) -> bool {
        (0..self.servers.len()).any(|server| self.is_up(server, now))
    }

    fn admit(&self, server: usize, now: Instant) -> bool {
        self.servers.get(server).is_some_and(|server| server.health.admit(now))
    }

    /// Takes note that a server has answered.
    pub fn succeeded(&self, server: usize, now: Instant) {
        let Some(server) = self.servers.get(server).filter(|server| server.health.failures() > 0) else {
            return;
        };
        let news = server.health.succeeded(now);
        server.counters.is_down.store(server.health.is_down(), Ordering::Relaxed);
        if news == Some(News::Answers) {
            tracing::info!(upstream = %self.settings.name, server = %server.label, "the server answers again");
        }
    }

    /// Takes note that an attempt at a server has failed, if that says anything about the server.
    /// `began` is when it was sent there.
    pub fn failed(&self, server: usize, began: Instant, now: Instant, reason: &Error) {
        match self.servers.get(server) {
            Some(server) if reason.is_failure_of_the_server() => self.note_failure(server, now, reason),
            Some(server) => server.health.inconclusive(began, now),
            None => {}
        }
    }

    /// Takes note of how an attempt that began at `began` has failed on a connection, and of its address, where the server's name has
    /// several.
    pub fn attempt_failed(
        &self,
        server: usize,
        origin: &Origin,
        began: Instant,
        now: Instant,
        reason: &Error,
    ) {
        let Some(server) = self.servers.get(server) else { return };
        if !origin.is_failure_of_the_server(reason, now) {
            return server.health.inconclusive(began, now);
        }
        if let Some(refusal) = origin.refusal().filter(|_| *reason == Error::OriginTls) {
            server.tell_of_refusal(refusal);
        }
        self.note_failure(server, now, reason);
        server.address_failed(origin, now);
    }

    /// Takes note that nobody waits any more for a server that may have had too little time.
    pub fn gave_up(&self, server: usize, began: Instant, now: Instant) {
        if let Some(server) = self.servers.get(server) {
            server.health.inconclusive(began, now);
        }
    }

    fn note_failure(&self, server: &Server, now: Instant, reason: &Error) {
        server.counters.failures.inc();
        let news = server.health.failed(now);
        server.counters.is_down.store(server.health.is_down(), Ordering::Relaxed);
        if news == Some(News::Fails) {
            let consequence = match self.servers.len() {
                1 => "; as the only one it goes on being tried",
                _ => " and is passed over for a while",
            };
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %reason,
                "the server has failed {FAILURES_UNTIL_DOWN} times in a row{consequence}"
            );
        }
    }

    /// The address that a connection leads to has answered, where its name has several. Those that are kept lead to where a new one
    /// may not.
    pub fn address_answered(&self, server: usize, origin: &Origin) {
        if let Some(server) = self.servers.get(server).filter(|_| !origin.reused) {
            server.remembered.turns.answered(|| origin.address());
        }
    }

    /// The address that a connection leads to has failed, where its name has several.
    pub fn address_failed(&self, server: usize, origin: &Origin, now: Instant, reason: &Error) {
        if let Some(server) = self.servers.get(server)
            && reason.is_failure_of_the_server()
        {
            server.address_failed(origin, now);
        }
    }

    /// Counts a request as active for as long as the result lives.
    pub fn enter(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active { upstream: self, retrying: false }
    }
}

/// A request that is being served by an upstream.
#[derive(Debug)]
pub struct Active<'a> {
    upstream: &'a Upstream,
    retrying: bool,
}

impl<'a> Active<'a> {
    /// The upstream that serves it.
    pub fn upstream(&self) -> &'a Upstream {
        self.upstream
    }

    /// Whether the budget of the upstream allows this request a further attempt. One that is denied is counted.
    pub fn may_retry(&mut self) -> bool {
        if self.retrying {
            return true;
        }
        let settings = &self.upstream.settings;
        let active = u64::from(self.upstream.active.load(Ordering::Relaxed));
        let share = active * u64::from(settings.retry_budget_percent) / 100;
        let allowed = share.max(u64::from(settings.retry_budget_min));
        let taken = self.upstream.retrying.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |retrying| {
            (u64::from(retrying) < allowed).then_some(retrying + 1)
        });
        self.retrying = taken.is_ok();
        if !self.retrying {
            self.upstream.metrics.retries_denied.inc();
        }
        self.retrying
    }

    /// The request has its answer: what it took of the budget is there for others, however long the rest takes.
    pub fn answered(&mut self) {
        if std::mem::take(&mut self.retrying) {
            self.upstream.retrying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.answered();
        self.upstream.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upstream of `count` servers of equal weight.
    fn upstream(count: u16) -> Upstream {
        let server = |number: u16| settings::Server {
            address: ServerAddress::Ip(([192, 0, 2, 1], number).into()),
            weight: 1,
        };
        let settings = settings::Upstream::new("app", (0..count).map(server).collect());
        let upstreams = Upstreams::new(Arc::default());
        upstreams.start(&Arc::new(settings), None, HeadLimits::default(), None)
    }

    fn fail(upstream: &Upstream, server: usize, now: Instant) {
        for _ in 0..FAILURES_UNTIL_DOWN {
            upstream.failed(server, now, now, &Error::FirstByteTimeout);
        }
    }

    #[test]
    fn further_attempts_leave_first_ones_their_turns() {
        let (upstream, now) = (upstream(2), Instant::now());
        let mut slow = 0;
        for _ in 0..48 {
            let mut tried = Tried::default();
            tried.push(upstream.pick(None, now).unwrap());
            if tried.contains(0) {
                slow += 1;
                assert_eq!(upstream.other(None, &tried, now), Some(1));
            }
        }
        assert_eq!(slow, 24);
    }

    #[test]
    fn the_share_of_a_server_that_is_down_is_shared() {
        let (upstream, now) = (upstream(3), Instant::now());
        fail(&upstream, 0, now);
        let mut shares = [0; 3];
        for _ in 0..300 {
            shares[upstream.pick(None, now).unwrap()] += 1;
        }
        assert_eq!(shares, [0, 150, 150]);
        assert_eq!(upstream.servers[0].counters.failures.get(), 3);
    }

    #[test]
    fn all_are_tried_when_all_are_down() {
        let (upstream, now) = (upstream(3), Instant::now());
        (0..3).for_each(|server| fail(&upstream, server, now));
        let picked: Vec<_> = (0..6).filter_map(|_| upstream.pick(None, now)).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        assert_eq!(upstream.counters.all_down.get(), 6);
        assert_eq!(upstream.other(None, &Tried::default(), now), None);
    }

    #[test]
    fn one_request_tries_a_server_again() {
        let (upstream, now) = (upstream(2), Instant::now());
        fail(&upstream, 0, now);
        let later = now + Duration::from_secs(1);
        let picked = (0..20).filter_map(|_| upstream.pick(None, later)).filter(|server| *server == 0).count();
        assert_eq!(picked, 1);
    }

    #[test]
    fn a_further_attempt_is_not_for_trying_a_server_again() {
        let (upstream, now) = (upstream(7), Instant::now());
        (1..7).for_each(|server| fail(&upstream, server, now));
        let mut later = now;
        for _ in 0..200 {
            later += Duration::from_secs(1);
            let mut tried = Tried::default();
            let first = upstream.pick(None, later).unwrap();
            tried.push(first);
            if first != 0 {
                upstream.failed(first, later, later, &Error::FirstByteTimeout);
                assert_eq!(upstream.other(None, &tried, later), Some(0));
            }
        }
    }

    #[test]
    fn what_says_nothing_about_a_server_is_no_failure() {
        let (upstream, now) = (upstream(2), Instant::now());
        for error in [Error::NoUpgrade, Error::OriginRefused, Error::BodyTimeout, Error::Internal] {
            (0..10).for_each(|_| upstream.failed(0, now, now, &error));
        }
        assert!(upstream.is_up(0, now));
        assert_eq!(upstream.servers[0].counters.failures.get(), 0);
    }
}
