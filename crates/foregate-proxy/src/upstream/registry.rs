//! All upstreams of the process: they are made from settings, keep their state over reloads, and have their pools
//! swept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use foregate_wire::HeadLimits;
use tokio::sync::watch;

use super::budget::RetryBudget;
use super::choosing::ServerPicker;
use super::connect::Dialer;
use super::idle::Ages;
use super::judging::ServerJudge;
use super::leftovers::ExcessReport;
use super::members::Upstream;
use super::opening::Connections;
use super::pools::{PoolKey, Pools};
use super::probe::attend;
use super::record::{RecordKey, ServerRecords};
use super::server::Server;
use super::services::PresentServers;
use crate::address::ServerAddress;
use crate::counters::metrics::Metrics;
use crate::limits::account::Places;
use crate::limits::gates::RequestGates;
use crate::names::Resolver;
use crate::settings::{self, UpstreamProtocol};
use crate::time::clock::Clock;
use crate::tls::{Connector, TlsError};

/// The interval at which connections that are too old or have died are removed from the pools.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The most requests of module steps in flight to one upstream; one client may have a part of them.
/// Further requests are refused.
const FETCHES: usize = 1024;

/// The most copies of requests in flight to one upstream. Further copies are not made.
const MIRRORS: usize = 512;

/// The scope of a limit on requests in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GateKey {
    /// The clients of a listener.
    Listener(settings::ListenAddress),
    /// A site, by its name.
    Site(Arc<str>),
    /// An upstream, by its name.
    Upstream(Arc<str>),
}

/// The pools and other state from which upstreams are made. It survives reloads.
#[derive(Debug)]
pub struct Upstreams {
    clock: Clock,
    pub(super) resolver: Resolver,
    metrics: Arc<Metrics>,
    pools: Arc<Pools>,
    records: ServerRecords,
    gates: RequestGates<GateKey>,
}

impl Upstreams {
    /// A registry without pools. `clock` decides when a failed server is tried again, and when connections and names expire.
    pub fn new(metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self {
            clock,
            resolver: Resolver::new(Arc::clone(&metrics), clock),
            metrics,
            pools: Arc::default(),
            records: ServerRecords::default(),
            gates: RequestGates::default(),
        }
    }

    /// The clock of the upstreams.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The limits on requests in flight.
    pub fn gates(&self) -> &RequestGates<GateKey> {
        &self.gates
    }

    /// Closes idle connections to servers and ends probes, because there will be no new requests.
    pub fn rest(&self) {
        self.records.end_probes();
        self.pools.close_idle();
    }

    /// The pools of all upstreams.
    pub fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Creates the upstreams of `settings`. An upstream of `old` with equal settings is reused with its
    /// connections, health and other state.
    ///
    /// # Errors
    ///
    /// A TLS file that cannot be used.
    pub fn build(
        &self,
        settings: &[Arc<settings::UpstreamSettings>],
        head_limits: HeadLimits,
        old: &[Arc<Upstream>],
    ) -> Result<Vec<Arc<Upstream>>, TlsError> {
        self.pools.forget_unused();
        self.records.forget_unused();
        let old: HashMap<&str, &Arc<Upstream>> =
            old.iter().map(|upstream| (&*upstream.settings.name, upstream)).collect();
        settings
            .iter()
            .map(|settings| {
                let tls = settings.tls.as_ref();
                // A connector equals the old one if the contents of its files are the same.
                let connector = tls.map(|tls| Connector::new(tls, settings.protocol)).transpose()?;
                match old.get(&*settings.name) {
                    Some(old)
                        if old.is_current()
                            && old.settings == *settings
                            && old.connections.dialer.connector == connector
                            && old.connections.dialer.head_limits == head_limits =>
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

    /// The upstreams with the current servers of their services; `None` if no servers have changed.
    pub fn renew(&self, old: &[Arc<Upstream>]) -> Option<Vec<Arc<Upstream>>> {
        if old.iter().all(|old| old.is_current()) {
            return None;
        }
        let renewed = old.iter().map(|old| match old.is_current() {
            true => Arc::clone(old),
            false => {
                let Dialer { connector, head_limits, .. } = &old.connections.dialer;
                Arc::new(self.start(&old.settings, connector.clone(), *head_limits, Some(old)))
            }
        });
        Some(renewed.collect())
    }

    /// Resolves names.
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Changes when [`Self::renew`] may find other servers.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.resolver.service_changes()
    }

    /// Creates an upstream. If the `old` one has the same servers, their state is kept.
    pub(super) fn start(
        &self,
        settings: &Arc<settings::UpstreamSettings>,
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
        let mut expanded = PresentServers::new(settings, &self.resolver);
        let servers = expanded.servers.iter().enumerate();
        let servers: Arc<[Server]> = servers
            .map(|(number, server)| {
                self.server(settings, (number, server), connector.as_ref(), head_limits, old)
            })
            .collect();
        let counters = self.metrics.upstream(&settings.name);
        let picker =
            ServerPicker::new(settings, &servers, &counters, self.clock, std::mem::take(&mut expanded.ranks));
        let judge = Arc::new(ServerJudge::new(settings, &servers, &counters, picker.weighs_time()));
        let dialer = Dialer {
            settings: Arc::clone(settings),
            clock: self.clock,
            counters: Arc::clone(&counters),
            metrics: Arc::clone(&self.metrics),
            judge: Arc::clone(&judge),
            pools: Arc::clone(&self.pools),
            connector,
            head_limits,
        };
        let excess = ExcessReport {
            upstream: Arc::clone(&settings.name),
            counters: Arc::clone(&counters),
            metrics: Arc::clone(&self.metrics),
        };
        let connections = Connections {
            settings: Arc::clone(settings),
            servers: Arc::clone(&servers),
            clock: self.clock,
            counters,
            dialer,
            excess,
        };
        Upstream {
            clock: self.clock,
            expanded,
            picker,
            judge,
            connections: Arc::new(connections),
            servers,
            mirrors: Places::new(MIRRORS),
            fetches: Places::new(FETCHES),
            settings: Arc::clone(settings),
            gate: settings
                .requests
                .map(|limit| self.gates.get(GateKey::Upstream(Arc::clone(&settings.name)), limit)),
            active: AtomicU32::new(0),
            budget: RetryBudget::default(),
            metrics: Arc::clone(&self.metrics),
        }
    }

    fn server(
        &self,
        settings: &settings::UpstreamSettings,
        (number, server): (usize, &settings::ServerSettings),
        connector: Option<&Connector>,
        head_limits: HeadLimits,
        old: Option<&Upstream>,
    ) -> Server {
        let resolver = settings.resolver.clone().filter(|_| server.address.is_name());
        let key = PoolKey {
            address: server.address.clone(),
            protocol: settings.protocol,
            tls: connector.cloned(),
            send_proxy: settings.send_proxy,
            resolver: resolver.clone(),
            head_limits: (settings.protocol != UpstreamProtocol::Http1).then_some(head_limits),
        };
        let of_old = old.and_then(|old| old.servers.iter().find(|of_old| of_old.address == server.address));
        let remembered = of_old.map(|old| Arc::clone(&old.remembered));
        let label: Arc<str> = server.address.to_string().into();
        let resolved = match &server.address {
            ServerAddress::Name { host, .. } => Some(self.resolver.resolve(host, settings.resolver.as_ref())),
            _ => None,
        };
        let counters = self.metrics.server(&settings.name, &label);
        counters.name.store(resolved.as_ref().map(|resolved| Arc::clone(resolved.counters())));
        let (record, is_new) = self.records.get(RecordKey {
            address: server.address.clone(),
            resolver,
            tls: connector.is_some(),
            probe: settings.health.as_ref().map(|check| (check.probe.clone(), check.port)),
        });
        if is_new && old.is_some() {
            record.start_slowly(self.clock.now());
        }
        let server = Server {
            number,
            address: server.address.clone(),
            settings: Arc::new(server.clone()),
            shares: settings.protocol != UpstreamProtocol::Http1 && settings.send_proxy.is_none(),
            counters,
            label,
            resolved,
            pool: self.pools.get(key),
            record,
            remembered: remembered.unwrap_or_default(),
        };
        server.show();
        server
    }
}

/// Sweeps the pools of the present upstreams once a second, for as long as the process lives.
pub async fn sweep(clock: Clock, mut present: impl FnMut() -> Vec<Arc<Upstream>>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = clock.now();
        for upstream in present() {
            for server in upstream.servers.iter() {
                server.sweep(now, Ages::of(&upstream.settings));
                upstream.connections.excess.report(server);
                attend(&upstream, server);
            }
            upstream.budget.turn(now);
            upstream.judge.review(now);
            upstream.servers.iter().for_each(Server::show_load);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::error::Error;
    use crate::upstream::tried::TriedServers;

    /// An upstream of `count` servers of equal weight.
    fn upstream(count: u16) -> Upstream {
        let server =
            |number: u16| settings::ServerSettings::new(ServerAddress::Ip(([192, 0, 2, 1], number).into()));
        let settings = settings::UpstreamSettings::new("app", (0..count).map(server).collect());
        let upstreams = Upstreams::new(Arc::default(), Clock::default());
        upstreams.start(&Arc::new(settings), None, HeadLimits::default(), None)
    }

    fn fail(upstream: &Upstream, server: usize, now: Instant) {
        for _ in 0..3 {
            upstream.judge.failed(server, now, now, &Error::FirstByteTimeout);
        }
    }

    #[test]
    fn further_attempts_leave_first_ones_their_turns() {
        let (upstream, now) = (upstream(2), Instant::now());
        let mut slow = 0;
        for _ in 0..48 {
            let mut tried = TriedServers::default();
            tried.push(upstream.picker.pick(None, now).unwrap());
            if tried.contains(0) {
                slow += 1;
                assert_eq!(upstream.picker.other(None, &tried, now), Some(1));
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
            shares[upstream.picker.pick(None, now).unwrap()] += 1;
        }
        assert_eq!(shares, [0, 150, 150]);
        assert_eq!(upstream.servers[0].counters.failures.get(), 3);
    }

    #[test]
    fn all_are_tried_when_all_are_down() {
        let (upstream, now) = (upstream(3), Instant::now());
        (0..3).for_each(|server| fail(&upstream, server, now));
        let picked: Vec<_> = (0..6).filter_map(|_| upstream.picker.pick(None, now)).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        assert_eq!(upstream.connections.counters.all_down.get(), 6);
        assert_eq!(upstream.picker.other(None, &TriedServers::default(), now), None);
    }

    #[test]
    fn one_request_tries_a_server_again() {
        let (upstream, now) = (upstream(2), Instant::now());
        fail(&upstream, 0, now);
        let later = now + Duration::from_secs(1);
        let picked =
            (0..20).filter_map(|_| upstream.picker.pick(None, later)).filter(|server| *server == 0).count();
        assert_eq!(picked, 1);
    }

    #[test]
    fn a_further_attempt_is_not_for_trying_a_server_again() {
        let (upstream, now) = (upstream(7), Instant::now());
        (1..7).for_each(|server| fail(&upstream, server, now));
        let mut later = now;
        for _ in 0..200 {
            later += Duration::from_secs(1);
            let mut tried = TriedServers::default();
            let first = upstream.picker.pick(None, later).unwrap();
            tried.push(first);
            if first != 0 {
                upstream.judge.failed(first, later, later, &Error::FirstByteTimeout);
                assert_eq!(upstream.picker.other(None, &tried, later), Some(0));
            }
        }
    }

    #[test]
    fn what_says_nothing_about_a_server_is_no_failure() {
        let (upstream, now) = (upstream(2), Instant::now());
        for error in [Error::NoUpgrade, Error::OriginRefused, Error::BodyTimeout, Error::Internal] {
            (0..10).for_each(|_| upstream.judge.failed(0, now, now, &error));
        }
        assert!(upstream.picker.is_up(0, now));
        assert_eq!(upstream.servers[0].counters.failures.get(), 0);
    }
}
