//! The choice of a server for an attempt: health, zones, backups and limits select candidates, and
//! the method of balancing chooses among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use foregate_wire::{HeaderList, NameId};

use super::balance::{self, BalanceMethod, BalancedRequest, Choice};
use super::record::Order;
use super::server::Server;
use super::sticky::StickyCookies;
use super::tried::TriedServers;
use crate::counters::metrics::UpstreamCounters;
use crate::random;
use crate::settings::UpstreamSettings;
use crate::time::clock::Clock;
use crate::time::notices::Notices;
use crate::time::steady;

/// The servers of the proxy's own zone get all requests as long as those that are up have at least this
/// percentage of the zone's weight.
const ZONE_ENOUGH: u64 = 50;

/// A server that has answered nobody for this long, while requests wait at it, is not the first choice for a further
/// attempt.
const SILENCE_MOST: Duration = Duration::from_millis(250);

/// The group of servers that are candidates for a first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// Servers of the proxy's own zone.
    OwnZone,
    /// Servers that are no backup.
    Primary,
    /// Backups.
    Backup,
    /// All servers, because none is up.
    All,
}

impl Server {
    /// Returns true if the server accepts new requests, apart from its health: it is neither draining nor
    /// taken out by an operator, and it has room.
    fn is_open(&self) -> bool {
        !self.drains() && self.has_room() && self.record.order() != Order::Down
    }

    /// Returns true if the server gets no new clients.
    pub(super) fn drains(&self) -> bool {
        self.settings.drain || self.record.order() == Order::Drain || self.record.weight() == Some(0)
    }

    /// Returns true if the server has room for another request.
    fn has_room(&self) -> bool {
        let in_flight = self.record.load.get();
        let connections = || {
            // Without HTTP/2, each request needs a connection of its own.
            let each = if self.shares { self.pool.streams_at_first().0 } else { 1 };
            self.settings.max_connections.map(|most| most.saturating_mul(each))
        };
        self.settings.max_requests.is_none_or(|most| in_flight < most)
            && connections().is_none_or(|most| in_flight < most)
    }

    /// The weight that the server has now.
    pub(super) fn weight(&self) -> u32 {
        self.record.weight().unwrap_or(self.settings.weight)
    }
}

/// Chooses among the servers of an upstream.
#[derive(Debug)]
pub struct ServerPicker {
    settings: Arc<UpstreamSettings>,
    servers: Arc<[Server]>,
    counters: Arc<UpstreamCounters>,
    clock: Clock,
    /// The rank of each server, 0 for those that are preferred. Empty where all have the same.
    ranks: Vec<u16>,
    balance: ArcSwap<Box<dyn BalanceMethod>>,
    sticky: Option<StickyCookies>,
    /// True if the upstream has zones or backups.
    has_tiers: bool,
    all_down: Notices,
}

impl ServerPicker {
    pub(super) fn new(
        settings: &Arc<UpstreamSettings>,
        servers: &Arc<[Server]>,
        counters: &Arc<UpstreamCounters>,
        clock: Clock,
        ranks: Vec<u16>,
    ) -> Self {
        let labels = servers.iter().map(|server| &*server.label);
        Self {
            settings: Arc::clone(settings),
            servers: Arc::clone(servers),
            counters: Arc::clone(counters),
            clock,
            ranks,
            balance: ArcSwap::from_pointee(method(settings, servers)),
            sticky: settings.sticky.as_ref().map(|sticky| StickyCookies::new(sticky, labels)),
            has_tiers: settings.zone.is_some() || servers.iter().any(|server| server.settings.backup),
            all_down: Notices::default(),
        }
    }

    /// Returns true if the method of balancing weighs latencies.
    pub(super) fn weighs_time(&self) -> bool {
        self.balance.load().weighs_time()
    }

    /// Binds the client of a request to the server that has answered it, unless it is bound already.
    pub(super) fn bind_client(&self, server: usize, asked: &HeaderList, answer: &mut HeaderList) {
        if let Some(sticky) = &self.sticky
            && sticky.server(asked) != Some(server)
            && let Some(field) = sticky.field(server)
        {
            answer.push_id(NameId::SetCookie, field.as_bytes());
        }
    }

    /// The hash of the part of a request that decides on its server, if the balancing method uses one.
    pub(super) fn key(&self, asked: &BalancedRequest<'_>) -> Option<u64> {
        if self.servers.len() == 1 { None } else { self.balance.load().key(asked) }
    }

    /// The server for a first attempt: a server that is up; if all are down, the next server in
    /// turn. `None` if no server takes requests.
    pub(super) fn pick(&self, key: Option<u64>, now: Instant) -> Option<usize> {
        let tier = self.tier(now);
        if tier == Tier::All && !(0..self.servers.len()).any(|server| self.is_up(server, now)) {
            self.tell_all_down(now);
        }
        let is_preferred = self.preferred(|number| {
            let server =
                self.servers.get(number).filter(|server| server.is_open() && self.is_of(server, tier));
            server.is_some_and(|server| tier == Tier::All || server.record.is_up(now))
        });
        let mut first = None;
        let mut admits = |number: usize| {
            let Some(server) = self.servers.get(number).filter(|_| is_preferred(number)) else {
                return false;
            };
            first.get_or_insert(number);
            tier == Tier::All || is_due(server, now) && self.admit(number, now)
        };
        let picked = match self.servers.len() {
            1 => Some(0).filter(|server| admits(*server)),
            _ => self.choose(key, false, &mut admits),
        };
        picked.or(first)
    }

    /// The server that the client's session is bound to, if it can take the request.
    pub(super) fn server_of_session(&self, asked: &BalancedRequest<'_>, now: Instant) -> Option<usize> {
        let number = self.bound_by_cookie(asked)?;
        self.admit(number, now).then_some(number)
    }

    /// Returns true if [`Self::server_of_session`] would find a server.
    pub(super) fn has_session(&self, asked: &BalancedRequest<'_>, now: Instant) -> bool {
        self.bound_by_cookie(asked).is_some_and(|number| self.is_up(number, now))
    }

    /// The server that the client's cookie names, unless that is out or full.
    fn bound_by_cookie(&self, asked: &BalancedRequest<'_>) -> Option<usize> {
        let number = self.sticky.as_ref()?.server(&asked.request.head.headers)?;
        let server = self.servers.get(number)?;
        (server.record.order() != Order::Down && server.has_room()).then_some(number)
    }

    /// A predicate for the preferred servers: those that satisfy `may` and have the lowest rank among
    /// them.
    fn preferred(&self, may: impl Fn(usize) -> bool) -> impl Fn(usize) -> bool {
        let rank = |server: usize| self.ranks.get(server).copied();
        let lowest = match self.ranks.is_empty() {
            true => None,
            false => (0..self.servers.len()).filter(|server| may(*server)).filter_map(rank).min(),
        };
        move |server| may(server) && lowest.is_none_or(|lowest| rank(server) == Some(lowest))
    }

    /// Reports that no server is up, and that one is tried nevertheless.
    fn tell_all_down(&self, now: Instant) {
        self.counters.all_down.inc();
        if self.servers.len() > 1 && self.all_down.take(now) {
            tracing::warn!(upstream = %self.settings.name, "all servers are down: all of them are tried");
        }
    }

    fn tier(&self, now: Instant) -> Tier {
        let can = |server: &Server| server.record.is_up(now) && server.is_open();
        if !self.has_tiers {
            return if self.servers.iter().any(can) { Tier::Primary } else { Tier::All };
        }
        let (mut own, mut own_can) = (0, 0);
        let (mut primary, mut backup) = (false, false);
        for server in self.servers.iter() {
            let can = can(server);
            let weight = u64::from(server.weight());
            let is_own = !server.settings.backup && self.is_of(server, Tier::OwnZone);
            own += if is_own { weight } else { 0 };
            own_can += if is_own && can { weight } else { 0 };
            primary |= can && !server.settings.backup;
            backup |= can && server.settings.backup;
        }
        match (primary, backup) {
            _ if own_can > 0 && own_can * 100 >= own * ZONE_ENOUGH => Tier::OwnZone,
            (true, _) => Tier::Primary,
            (false, true) => Tier::Backup,
            (false, false) => Tier::All,
        }
    }

    fn is_of(&self, server: &Server, tier: Tier) -> bool {
        let Server { settings, .. } = server;
        match tier {
            Tier::OwnZone => {
                !settings.backup && self.settings.zone.is_some() && settings.zone == self.settings.zone
            }
            Tier::Primary => !settings.backup,
            Tier::Backup => settings.backup,
            Tier::All => true,
        }
    }

    fn choose(
        &self,
        key: Option<u64>,
        is_further: bool,
        admits: &mut dyn FnMut(usize) -> bool,
    ) -> Option<usize> {
        let balance = self.balance.load();
        let weighs_time = balance.weighs_time();
        let now = weighs_time.then(Instant::now);
        let in_flight = |number: usize| {
            let Some(server) = self.servers.get(number) else { return 0 };
            let in_flight = server.record.load.get();
            match now {
                None => in_flight,
                Some(now) => cost(server.record.pace.average(now), in_flight),
            }
        };
        balance.choose(&Choice { key, is_further, in_flight: &in_flight }, admits)
    }

    /// A server that is up and was not tried yet. Servers without recent failures are preferred: a request
    /// that has already lost an attempt should not be the one that tests a failed server. Backups come
    /// last.
    pub(super) fn other(&self, key: Option<u64>, tried: &TriedServers, now: Instant) -> Option<usize> {
        let untried = |number: usize, tier: Tier| {
            let server = self.servers.get(number).filter(|_| !tried.contains(number));
            server.filter(|server| self.is_of(server, tier) && server.is_open())
        };
        let is_well = |server: &Server| {
            let record = &server.record;
            record.health.failures() == 0 && !record.checked.is_down() && record.silence(now) < SILENCE_MOST
        };
        let tiers: &[Tier] =
            if self.has_tiers { &[Tier::OwnZone, Tier::Primary, Tier::Backup] } else { &[Tier::Primary] };
        let well = tiers.iter().find_map(|&tier| {
            let is_preferred = self.preferred(|server| untried(server, tier).is_some_and(is_well));
            self.choose(key, true, &mut |server| is_preferred(server))
        });
        well.or_else(|| {
            tiers.iter().find_map(|&tier| {
                let may = |server| untried(server, tier).is_some_and(|server| server.record.is_up(now));
                let is_preferred = self.preferred(may);
                self.choose(key, true, &mut |server| is_preferred(server) && self.admit(server, now))
            })
        })
    }

    /// Returns true if [`Self::other`] would find a server.
    pub(super) fn has_other(&self, tried: &TriedServers, now: Instant) -> bool {
        let can = |server: &Server| server.record.is_up(now) && server.is_open();
        self.servers.iter().any(|server| !tried.contains(server.number) && can(server))
    }

    /// Returns true if a server counts as up, or is due for a trial.
    pub fn is_up(&self, server: usize, now: Instant) -> bool {
        self.servers.get(server).is_some_and(|server| server.record.is_up(now))
    }

    /// Returns true if any server takes new requests: it is up or due for a trial, does not drain, and has room.
    pub fn takes_requests(&self, now: Instant) -> bool {
        self.servers.iter().any(|server| server.record.is_up(now) && server.is_open())
    }

    fn admit(&self, server: usize, now: Instant) -> bool {
        let record = self.servers.get(server).map(|server| &server.record);
        record.is_some_and(|record| !record.checked.is_down() && record.health.admit(now))
    }

    /// Carries out an operator's order for a server. [`Order::Up`] also forgets the server's failures and
    /// the weight that an operator gave it.
    pub fn order(&self, server: usize, order: Order) {
        let Some(server) = self.servers.get(server) else { return };
        let record = &server.record;
        record.set_ordered_at(steady::millis(Instant::now()).max(1));
        record.set_order(order);
        if order == Order::Up {
            record.set_weight(None);
            record.health.forgive(self.clock.now());
            self.reweigh();
        }
        let failing = record.checked.reason().filter(|_| record.checked.is_down());
        record.changed(match (order, failing) {
            (Order::Up, None) => "an operator has put it to work".to_owned(),
            (Order::Up, Some(reason)) => {
                format!("an operator has put it to work; its health check still fails: {reason}")
            }
            (Order::Drain, _) => "an operator drains it".to_owned(),
            (Order::Down, _) => "an operator has taken it out".to_owned(),
        });
        server.show();
        tracing::info!(upstream = %self.settings.name, server = %server.label, ?order, "an operator's order");
    }

    /// Replaces the configured weight of a server.
    pub fn set_weight(&self, server: usize, weight: u32) {
        let Some(server) = self.servers.get(server) else { return };
        server.record.set_ordered_at(steady::millis(Instant::now()).max(1));
        server.record.set_weight(Some(weight));
        server.record.changed(format!("an operator has given it the weight {weight}"));
        tracing::info!(upstream = %self.settings.name, server = %server.label, weight, "an operator's order");
        self.reweigh();
    }

    /// Passes the present weights to the balancing method.
    pub fn reweigh(&self) {
        self.balance.store(Arc::new(method(&self.settings, &self.servers)));
    }
}

/// The method of balancing, with the present weights.
fn method(settings: &UpstreamSettings, servers: &[Server]) -> Box<dyn BalanceMethod> {
    balance::method(&settings.balance, servers.iter().map(|server| (&*server.label, server.weight())))
}

/// Returns true if the server takes this request. During its slow start, a server takes only a random
/// part of its usual requests.
fn is_due(server: &Server, now: Instant) -> bool {
    let ramp = server.record.ramp(server.settings.slow_start, now);
    ramp >= 1000 || random::number() % 1000 < ramp
}

/// The expected wait at a server in microseconds: its latency times the number of requests in flight,
/// including this one.
fn cost(average: u64, in_flight: u32) -> u32 {
    // The assumed latency of a server that has not answered yet: it gets one request at first.
    const UNKNOWN: u64 = 1_000_000;
    let average = if average == 0 && in_flight > 0 { UNKNOWN } else { average };
    u32::try_from(average.saturating_mul(u64::from(in_flight) + 1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::balance;
    use super::super::pace::Pace;
    use super::*;
    use crate::settings;

    /// Servers answer `took` microseconds after an attempt began, one attempt in 32 after three times that. `next` gives the
    /// time of each request, from the number of requests and the time at which the one before the last `waiting` was
    /// answered. Returns the requests of each server and all latencies, sorted.
    fn peak_ewma(took: &[u64], waiting: usize, every: u64, until: u64) -> (Vec<u32>, Vec<u64>) {
        let start = Instant::now();
        let paces: Vec<Pace> = took.iter().map(|_| Pace::new()).collect();
        let names: Vec<String> = (0..took.len()).map(|number| format!("s{number}:1")).collect();
        let servers = names.iter().map(|address| (address.as_str(), 1));
        let balance = balance::method(&settings::Balance::PeakEwma, servers);
        let (mut in_flight, mut shares) = (vec![0; took.len()], vec![0; took.len()]);
        let (mut ends, mut latencies, mut now) = (Vec::<(u64, usize, u64)>::new(), Vec::new(), 0);
        while now < until {
            let at = start + Duration::from_micros(now);
            let wait = |server: usize| cost(paces[server].average(at), in_flight[server]);
            let choice = Choice { key: None, is_further: false, in_flight: &wait };
            let server = balance.choose(&choice, &mut |_| true).unwrap();
            in_flight[server] += 1;
            shares[server] += 1;
            let noise = if shares[server] % 32 == 0 { 3 } else { 1 };
            ends.push((now + took[server] * noise, server, now));
            now += every;
            // A client of many waits for an answer before it asks again; others come, whatever answers take.
            while let Some(next) = (0..ends.len()).min_by_key(|at| ends[*at])
                && (ends[next].0 <= now || ends.len() == waiting)
            {
                let (end, server, began) = ends.swap_remove(next);
                now = now.max(end);
                in_flight[server] -= 1;
                latencies.push(end - began);
                let (took, end) = (Duration::from_micros(end - began), start + Duration::from_micros(end));
                paces[server].answered(took, end, true);
            }
        }
        latencies.sort_unstable();
        (shares, latencies)
    }

    /// Eight clients ask one after the other; two servers answer in a millisecond, one in ten.
    #[test]
    fn a_slow_server_loses_nearly_all_requests_under_peak_ewma() {
        let (shares, _) = peak_ewma(&[1000, 1000, 10_000], 8, 0, 2_000_000);
        assert!(shares.iter().sum::<u32>() > 10_000, "{shares:?}");
        assert!(shares[2] * 20 < shares.iter().sum(), "{shares:?}");
    }

    /// Requests come at a steady rate, few or many at a time; two servers answer in 5 ms, one in 50 ms.
    #[test]
    fn a_slow_server_hardly_changes_the_latencies_under_peak_ewma() {
        for every in [20_000, 5000, 1250, 600, 250] {
            let p99 = |latencies: &[u64]| latencies[latencies.len() * 99 / 100];
            let (_, without) = peak_ewma(&[5000, 5000], usize::MAX, every, 20_000_000);
            let (shares, with) = peak_ewma(&[5000, 5000, 50_000], usize::MAX, every, 20_000_000);
            assert!(p99(&with) * 2 <= p99(&without) * 3, "every {every} us: {shares:?}");
            assert!(shares[2] * 100 < shares.iter().sum(), "every {every} us: {shares:?}");
        }
    }
}
