//! The state of servers as operators see it, and the orders of operators.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use super::members::Upstream;
use super::record::Order;
use super::server::Server;
use crate::settings::UpstreamSettings;

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// The server gets requests.
    Up,
    /// The server gets requests, but no probe has ended yet.
    Unchecked,
    /// The server has failed, and single requests test whether it answers again.
    Trial,
    /// The server is avoided after failed requests.
    Ejected,
    /// The server's health checks fail.
    Down,
    /// The server gets no new clients.
    Draining,
    /// An operator has taken it out.
    Off,
}

impl ServerState {
    /// The name of the state for output.
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
    /// The server's address, as configured.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// The reason for its state.
    pub reason: String,
    /// The time of the last change of the state.
    pub since: SystemTime,
    /// The present weight.
    pub weight: u32,
    /// True if the server is a backup.
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
    /// The number of successful probes, the number of failed ones, and the reason if the last one failed;
    /// `None` if no probes are configured.
    pub probes: Option<(u64, u64, Option<String>)>,
}

impl Upstream {
    /// The servers as they are now.
    pub fn report(&self, now: Instant) -> Vec<ServerReport> {
        self.servers.iter().map(|server| server.report(&self.settings, now)).collect()
    }

    /// The number of the server with this address.
    pub fn find_server(&self, address: &str) -> Option<usize> {
        self.servers.iter().position(|server| *server.label == *address)
    }
}

impl Server {
    fn report(&self, settings: &UpstreamSettings, now: Instant) -> ServerReport {
        let record = &self.record;
        let change = record.change();
        let latencies = record.pace.latencies();
        let latency =
            || Some([latencies.percentile(50)?, latencies.percentile(90)?, latencies.percentile(99)?]);
        let checked = &record.checked;
        let probes = settings.health.as_ref().map(|_| {
            let count = |probes: &std::sync::atomic::AtomicU64| probes.load(Ordering::Relaxed);
            (count(&checked.passed), count(&checked.failed), checked.reason())
        });
        ServerReport {
            server: self.label.to_string(),
            state: self.state(settings.health.is_some(), now),
            reason: change.reason,
            since: change.at,
            weight: self.weight(),
            backup: self.settings.backup,
            zone: self.settings.zone.clone(),
            in_flight: record.load.get(),
            connections: record.connections.load(Ordering::Relaxed),
            responses: record.pace.count(),
            latency: latency(),
            failures: record.failures.all(),
            ejections: record.ejections.load(Ordering::Relaxed),
            probes,
        }
    }

    fn state(&self, is_checked: bool, now: Instant) -> ServerState {
        let record = &self.record;
        match () {
            () if record.order() == Order::Down => ServerState::Off,
            () if record.checked.is_down() => ServerState::Down,
            () if record.health.is_down() && record.health.is_up(now) => ServerState::Trial,
            () if record.health.is_down() => ServerState::Ejected,
            () if self.drains() => ServerState::Draining,
            () if is_checked && record.checked.is_unknown() => ServerState::Unchecked,
            () => ServerState::Up,
        }
    }

    /// Updates the metrics of load, connections and weights. Load changes too often to update its metric
    /// each time.
    pub(super) fn show_load(&self) {
        self.counters.in_flight.set(self.record.load.get() as usize);
        self.counters.connections.set(self.record.connections.load(Ordering::Relaxed) as usize);
        self.counters.weight.set(self.weight() as usize);
    }
}
