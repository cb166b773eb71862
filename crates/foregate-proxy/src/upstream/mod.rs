//! Origins: which server is tried, and the connections to it.

mod balance;
mod connect;
mod origin;
mod pool;
mod pools;
pub mod resolve;
mod tried;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foregate_wire::HeadLimits;

pub use self::origin::{Addresses, Origin, Terms};
pub use self::pool::Pool;
pub use self::pools::Pools;
pub use self::tried::Tried;

use self::balance::RoundRobin;
use self::pool::Ages;
use self::pools::PoolKey;
use self::resolve::{Resolved, Resolver};
use tokio::sync::Semaphore;

use crate::address::ServerAddress;
use crate::error::Error;
use crate::settings;
use crate::telemetry::metrics::{Metrics, UpstreamCounters};
use crate::tls::{Connector, TlsError};

/// Consecutive failures to connect after which a server is passed over.
const FAILURES_UNTIL_DOWN: u32 = 3;
/// How long a server is passed over at first, and at most: the span doubles while it keeps failing.
const DOWN_FOR: Duration = Duration::from_millis(500);
const DOWN_FOR_AT_MOST: Duration = Duration::from_secs(10);
/// How long a server's failures are not told of again: one that fails and answers in turns would fill the log.
const TOLD_FOR: Duration = Duration::from_secs(10);
/// How often pools are looked through for connections that are too old or have died.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Requests that steps of modules may have under way to one upstream. Beyond, they get none.
const FETCHES: usize = 1024;

/// An upstream at work.
#[derive(Debug)]
pub struct Upstream {
    /// What was configured.
    pub settings: Arc<settings::Upstream>,
    /// Its servers, in the order of the configuration.
    pub servers: Vec<Server>,
    /// Its metrics.
    pub counters: Arc<UpstreamCounters>,
    /// Limits for the heads of responses.
    pub head_limits: HeadLimits,
    /// Places for requests that steps of modules make.
    pub fetches: Semaphore,
    pools: Arc<Pools>,
    balance: RoundRobin,
    connector: Option<Connector>,
    active: AtomicU32,
    retrying: AtomicU32,
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    /// Where it is.
    pub address: ServerAddress,
    /// The same as text, for logs.
    pub label: Arc<str>,
    resolved: Option<Arc<Resolved>>,
    pool: Arc<Pool>,
    health: Health,
}

/// Tells from the outcome of connecting whether a server is worth trying.
#[derive(Debug)]
struct Health {
    failures: AtomicU32,
    /// Milliseconds after `epoch` until which the server is passed over.
    down_until: AtomicU64,
    /// Milliseconds after `epoch` before which failures are not told of.
    quiet_until: AtomicU64,
    /// Whether operators were told that the server fails, and not yet that it answers again.
    told: AtomicBool,
    epoch: Instant,
}

/// What operators are to be told of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// It has failed so often that it is passed over.
    Fails,
    /// It answers again.
    Answers,
}

impl Health {
    fn new() -> Self {
        Self {
            failures: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            quiet_until: AtomicU64::new(0),
            told: AtomicBool::new(false),
            epoch: Instant::now(),
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    fn is_up(&self, now: Instant) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        until == 0 || until <= self.millis(now)
    }

    fn succeeded(&self) -> Option<News> {
        if self.failures.load(Ordering::Relaxed) == 0 && !self.told.load(Ordering::Relaxed) {
            return None;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.down_until.store(0, Ordering::Relaxed);
        self.told.swap(false, Ordering::Relaxed).then_some(News::Answers)
    }

    fn failed(&self, now: Instant) -> Option<News> {
        if !self.is_up(now) {
            // Many requests fail at once when a server goes down; that is one failure.
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= FAILURES_UNTIL_DOWN {
            let doubled = DOWN_FOR * 2u32.saturating_pow((failures - FAILURES_UNTIL_DOWN).min(8));
            let span = u64::try_from(doubled.min(DOWN_FOR_AT_MOST).as_millis()).unwrap_or(0);
            // Spread by up to an eighth, so that many proxies do not come back to a server at once.
            let now = self.millis(now);
            let jitter = now % (span / 8).max(1);
            self.down_until.store(now + span + jitter, Ordering::Relaxed);
            if now >= self.quiet_until.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed) {
                let quiet = u64::try_from(TOLD_FOR.as_millis()).unwrap_or(0);
                self.quiet_until.store(now + quiet, Ordering::Relaxed);
                return Some(News::Fails);
            }
        }
        None
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
        Self { resolver: Resolver::new(), metrics, pools: Arc::default() }
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
        let old: HashMap<&str, &Arc<Upstream>> =
            old.iter().map(|upstream| (&*upstream.settings.name, upstream)).collect();
        settings
            .iter()
            .map(|settings| match old.get(&*settings.name) {
                // With files of its own it is made anew, because their contents may have changed; its connections
                // are shared by what the files hold.
                Some(old)
                    if old.settings == *settings
                        && settings.tls.is_none()
                        && old.head_limits == head_limits =>
                {
                    Ok(Arc::clone(old))
                }
                _ => self.start(settings, head_limits).map(Arc::new),
            })
            .collect()
    }

    fn start(
        &self,
        settings: &Arc<settings::Upstream>,
        head_limits: HeadLimits,
    ) -> Result<Upstream, TlsError> {
        let connector =
            settings.tls.as_ref().map(|tls| Connector::new(tls, settings.protocol)).transpose()?;
        let servers = settings.servers.iter().map(|server| {
            let key = PoolKey {
                address: server.address.clone(),
                protocol: settings.protocol,
                tls: connector.clone(),
                send_proxy: settings.send_proxy,
            };
            Server {
                address: server.address.clone(),
                label: server.address.to_string().into(),
                resolved: match &server.address {
                    ServerAddress::Name { host, .. } => Some(self.resolver.resolve(host)),
                    _ => None,
                },
                pool: self.pools.get(key),
                health: Health::new(),
            }
        });
        Ok(Upstream {
            servers: servers.collect(),
            counters: self.metrics.upstream(&settings.name),
            fetches: Semaphore::new(FETCHES),
            pools: Arc::clone(&self.pools),
            balance: RoundRobin::new(
                &settings.servers.iter().map(|server| server.weight).collect::<Vec<_>>(),
            ),
            settings: Arc::clone(settings),
            head_limits,
            connector,
            active: AtomicU32::new(0),
            retrying: AtomicU32::new(0),
        })
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
                server.pool.sweep(now, upstream.ages());
            }
        }
    }
}

impl Upstream {
    fn ages(&self) -> Ages {
        Ages { idle: self.settings.keep_alive, total: self.settings.connection_age }
    }

    /// The first server to try: one that is up, or any if none is.
    pub fn pick(&self, now: Instant) -> Option<usize> {
        if self.servers.len() == 1 {
            return Some(0);
        }
        self.balance.pick(|server| self.is_up(server, now)).or_else(|| self.balance.pick(|_| true))
    }

    /// Another server that is up, beside those that were tried.
    pub fn other(&self, tried: &Tried, now: Instant) -> Option<usize> {
        self.balance.pick(|server| !tried.contains(server) && self.is_up(server, now))
    }

    /// Whether there is one.
    pub fn has_other(&self, tried: &Tried, now: Instant) -> bool {
        (0..self.servers.len()).any(|server| !tried.contains(server) && self.is_up(server, now))
    }

    /// Whether a server is thought to be up.
    pub fn is_up(&self, server: usize, now: Instant) -> bool {
        self.servers.get(server).is_some_and(|server| server.health.is_up(now))
    }

    /// Takes note that a server has answered.
    pub fn succeeded(&self, server: usize) {
        if let Some(server) = self.servers.get(server)
            && server.health.succeeded() == Some(News::Answers)
        {
            tracing::info!(upstream = %self.settings.name, server = %server.label, "the server answers again");
        }
    }

    /// Takes note that a server closed a new connection without an answer.
    pub fn failed(&self, server: usize, now: Instant) {
        if let Some(server) = self.servers.get(server) {
            self.note_failure(server, now, &Error::OriginClosed);
        }
    }

    fn note_failure(&self, server: &Server, now: Instant, reason: &Error) {
        if server.health.failed(now) == Some(News::Fails) {
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %reason,
                "the server has failed {FAILURES_UNTIL_DOWN} times in a row and is passed over for a while"
            );
        }
    }

    /// Counts a request as active for as long as the result lives.
    pub fn enter(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active { upstream: Arc::clone(self), retrying: false }
    }
}

/// A request that is being served by an upstream.
#[derive(Debug)]
pub struct Active {
    upstream: Arc<Upstream>,
    retrying: bool,
}

impl Active {
    /// Whether the budget of the upstream allows this request a further attempt.
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
        self.retrying
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.upstream.active.fetch_sub(1, Ordering::Relaxed);
        if self.retrying {
            self.upstream.retrying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_failing_is_passed_over_for_a_while() {
        let health = Health::new();
        let now = Instant::now();
        health.failed(now);
        health.failed(now);
        assert!(health.is_up(now));
        health.failed(now);
        assert!(!health.is_up(now));
        assert!(health.is_up(now + Duration::from_secs(1)));
        health.succeeded();
        assert!(health.is_up(now));
    }

    #[test]
    fn failures_and_their_end_are_told_once() {
        let health = Health::new();
        // A server that is passed over is tried again after some ten seconds at most.
        let mut now = Instant::now();
        let mut fail = |times: usize| {
            let mut news = Vec::new();
            for _ in 0..times {
                now += DOWN_FOR_AT_MOST * 2;
                news.extend(health.failed(now));
            }
            news
        };
        assert_eq!(fail(2), []);
        assert_eq!(health.succeeded(), None);
        assert_eq!(fail(20), [News::Fails]);
        assert_eq!(health.succeeded(), Some(News::Answers));
        assert_eq!(health.succeeded(), None);
        assert_eq!(fail(3), [News::Fails]);
    }

    #[test]
    fn a_server_that_fails_and_answers_in_turns_is_told_of_now_and_then() {
        let health = Health::new();
        let start = Instant::now();
        let mut told = 0;
        for turn in 0..1000 {
            let now = start + Duration::from_millis(20) * turn;
            told += (0..3).filter(|_| health.failed(now).is_some()).count();
            health.succeeded();
        }
        // Twenty seconds.
        assert_eq!(told, 2);
    }
}
