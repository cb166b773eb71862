//! The view of operators on servers, and their orders.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use super::balance;
use super::members::{Server, Upstream};
use super::record::Order;
use crate::time::steady;

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Gets requests.
    Up,
    /// Gets requests, and no probe has ended yet.
    Unchecked,
    /// The server has failed, and single requests test whether it answers again.
    Trial,
    /// Is skipped after failures of requests.
    Ejected,
    /// Its health checks fail.
    Down,
    /// The server gets no new clients.
    Draining,
    /// An operator has taken it out.
    Off,
}

impl ServerState {
    /// For output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unchecked => "unchecked",
            Self::Trial => "trial",
            Self::Ejected => "ejected",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Off => "off",
        }
    }
}

/// The state of a server, for operators.
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// Its address, as it is configured.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// The reason for its state.
    pub reason: String,
    /// When that changed.
    pub since: SystemTime,
    /// The present weight.
    pub weight: u32,
    /// The server is a backup.
    pub backup: bool,
    /// Its zone.
    pub zone: Option<Box<str>>,
    /// Requests in flight.
    pub in_flight: u32,
    /// Open connections.
    pub connections: u32,
    /// Responses so far.
    pub responses: u64,
    /// Recent latencies: 50th, 90th and 99th percentile. `None` without any.
    pub latency: Option<[Duration; 3]>,
    /// Failed attempts by their kind.
    pub failures: Vec<(&'static str, u64)>,
    /// The number of its ejections.
    pub ejections: u64,
    /// Probes that succeeded and that failed, and why the last one did; `None` where none are
    /// configured.
    pub probes: Option<(u64, u64, Option<String>)>,
}

impl Upstream {
    /// The servers as they are now.
    pub fn report(&self, now: Instant) -> Vec<ServerReport> {
        self.servers.iter().map(|server| self.report_server(server, now)).collect()
    }

    fn report_server(&self, server: &Server, now: Instant) -> ServerReport {
        let record = &server.record;
        let change = record.change();
        let latencies = record.pace.latencies();
        let latency =
            || Some([latencies.percentile(50)?, latencies.percentile(90)?, latencies.percentile(99)?]);
        let checked = &record.checked;
        let probes = self.settings.health.as_ref().map(|_| {
            let count = |probes: &std::sync::atomic::AtomicU64| probes.load(Ordering::Relaxed);
            (count(&checked.passed), count(&checked.failed), checked.reason())
        });
        ServerReport {
            server: server.label.to_string(),
            state: self.state(server, now),
            reason: change.reason,
            since: change.at,
            weight: server.weight(),
            backup: server.settings.backup,
            zone: server.settings.zone.clone(),
            in_flight: record.load.get(),
            connections: record.connections.load(Ordering::Relaxed),
            responses: record.pace.count(),
            latency: latency(),
            failures: record.failures.all(),
            ejections: record.ejections.load(Ordering::Relaxed),
            probes,
        }
    }

    fn state(&self, server: &Server, now: Instant) -> ServerState {
        let record = &server.record;
        match () {
            () if record.order() == Order::Down => ServerState::Off,
            () if record.checked.is_down() => ServerState::Down,
            () if record.health.is_down() && record.health.is_up(now) => ServerState::Trial,
            () if record.health.is_down() => ServerState::Ejected,
            () if server.drains() => ServerState::Draining,
            () if self.settings.health.is_some() && record.checked.is_unknown() => ServerState::Unchecked,
            () => ServerState::Up,
        }
    }

    /// The number of the server with this address.
    pub fn find_server(&self, address: &str) -> Option<usize> {
        self.servers.iter().position(|server| *server.label == *address)
    }

    /// Follows an operator's order for a server. [`Order::Up`] also forgets its failures and the
    /// weight that an operator gave it.
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

    /// Gives a server another weight than the configured one.
    pub fn set_weight(&self, server: usize, weight: u32) {
        let Some(server) = self.servers.get(server) else { return };
        server.record.set_ordered_at(steady::millis(Instant::now()).max(1));
        server.record.set_weight(Some(weight));
        server.record.changed(format!("an operator has given it the weight {weight}"));
        tracing::info!(upstream = %self.settings.name, server = %server.label, weight, "an operator's order");
        self.reweigh();
    }

    /// Passes the present weights to the method of balancing.
    pub fn reweigh(&self) {
        let servers = self.servers.iter().map(|server| (&*server.label, server.weight()));
        self.balance.store(std::sync::Arc::new(balance::method(&self.settings.balance, servers)));
    }

    /// Tells the metrics about load and latency, which change too often to be told each time.
    pub(super) fn show_load(&self) {
        for server in &self.servers {
            server.counters.in_flight.set(server.record.load.get() as usize);
            server.counters.connections.set(server.record.connections.load(Ordering::Relaxed) as usize);
            server.counters.weight.set(server.weight() as usize);
        }
    }
}
