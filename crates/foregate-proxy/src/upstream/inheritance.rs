//! The knowledge about servers that the next process takes over: their health, the orders of operators, and the
//! behaviour of their connections. The format is JSON. A reader skips unknown fields, and uses defaults for missing
//! ones, so that different versions understand each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use super::health_state::Moment;
use super::health_state::{ActiveHealth, PassiveHealth};
use super::members::Upstream;
use super::pool::ServerPool;
use super::record::{Order, ServerRecord};
use super::server::Server;
use crate::time::steady;

/// The most servers for which state is passed to another process. That process starts without knowledge of
/// further servers.
const SERVERS_MOST: usize = 20_000;
/// The most bytes of a reason.
const REASON_MOST: usize = 300;

/// The state of a server's health.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HealthState {
    upstream: String,
    server: String,
    /// The settings of the server's probe. The results of a different probe are not taken over.
    probe: String,
    pub(super) passive: PassiveHealth,
    pub(super) active: ActiveHealth,
    /// An operator's order: `up`, `drain` or `down`.
    order: String,
    weight: Option<u32>,
    /// The time at which an operator last changed `order` or `weight`, in milliseconds of the steady clock; 0 for
    /// never.
    ordered_at: u64,
    /// The time at which this state was written, in milliseconds of the steady clock; 0 if it was written by a version
    /// that does not record the time.
    saved_at: u64,
    ejections: u64,
    reason: String,
    /// The time of the last change, in milliseconds of the Unix clock.
    since: u64,
}

/// The behaviour of a server's connections.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OriginState {
    upstream: String,
    server: String,
    /// The configured protocol. If it has changed, the observations here do not count.
    protocol: String,
    /// True if the connection that was made last uses HTTP/1.
    pub(super) http1: bool,
    /// The number of streams that an HTTP/2 connection allows.
    pub(super) streams: u32,
    /// The remaining time in milliseconds for which the server is distrusted, because it sent bytes after
    /// the end of a response.
    pub(super) distrusted_for: u64,
    /// The time in microseconds after which the server closes an idle connection; 0 if unknown.
    pub(super) idle_limit: u64,
}

/// The servers of all upstreams, the first [`SERVERS_MOST`] of them.
fn servers(upstreams: &[Arc<Upstream>]) -> impl Iterator<Item = (&Upstream, &Server)> {
    let all =
        upstreams.iter().flat_map(|upstream| upstream.servers.iter().map(|server| (&**upstream, server)));
    all.take(SERVERS_MOST)
}

fn encoded<T: Serialize>(states: &[T]) -> Vec<u8> {
    serde_json::to_vec(states).unwrap_or_default()
}

/// The states by upstream and server; empty if the bytes are no valid list.
fn decoded<T: for<'a> Deserialize<'a>>(
    bytes: &[u8],
    key: impl Fn(&T) -> (String, String),
) -> HashMap<(String, String), T> {
    // States are parsed one by one, so that an unreadable one does not affect the others.
    let states: Vec<serde_json::Value> = serde_json::from_slice(bytes).unwrap_or_default();
    let states = states.into_iter().filter_map(|state| serde_json::from_value::<T>(state).ok());
    states.map(|state| (key(&state), state)).collect()
}

fn name(upstream: &Upstream, server: &Server) -> (String, String) {
    (upstream.settings.name.to_string(), server.label.to_string())
}

/// The health of all servers, apart from those of which nothing is known.
pub fn save_health(upstreams: &[Arc<Upstream>], now: Instant) -> Vec<u8> {
    let states: Vec<_> =
        servers(upstreams).filter_map(|(upstream, server)| HealthState::of(upstream, server, now)).collect();
    encoded(&states)
}

/// Takes over the health of servers from another process.
pub fn restore_health(upstreams: &[Arc<Upstream>], bytes: &[u8], moment: Moment, now: Instant) {
    let states = decoded(bytes, |state: &HealthState| (state.upstream.clone(), state.server.clone()));
    let mut reweighs = false;
    for (upstream, server) in servers(upstreams) {
        let weight = server.record.weight();
        match states.get(&name(upstream, server)) {
            Some(state) => state.apply(upstream, server, moment, now),
            // The other process has no state of this server, so an order that this process got from it
            // earlier is over. But an order that an operator gave to this process stays.
            None if server.record.ordered_at() > 0 => {}
            None if moment == Moment::Later && server.record.order() != Order::Up => {
                server.record.set_order(Order::Up);
                server.record.set_weight(None);
                server.show();
            }
            None if moment == Moment::Later => server.record.set_weight(None),
            None => {}
        }
        reweighs |= server.record.weight() != weight;
    }
    if reweighs {
        // All upstreams are updated, because a server may belong to several of them.
        upstreams.iter().for_each(|upstream| upstream.picker.reweigh());
    }
}

/// The behaviour of all servers' connections.
pub fn save_origins(upstreams: &[Arc<Upstream>], now: Instant) -> Vec<u8> {
    let states: Vec<_> = servers(upstreams)
        .filter_map(|(upstream, server)| {
            let ours = server.pool.save(now);
            let (name, server) = name(upstream, server);
            let protocol = protocol(upstream);
            (ours != OriginState::default()).then_some(OriginState {
                upstream: name,
                server,
                protocol,
                ..ours
            })
        })
        .collect();
    encoded(&states)
}

/// Takes over the behaviour of servers' connections from another process.
pub fn restore_origins(upstreams: &[Arc<Upstream>], bytes: &[u8], moment: Moment, now: Instant) {
    let states = decoded(bytes, |state: &OriginState| (state.upstream.clone(), state.server.clone()));
    for (upstream, server) in servers(upstreams) {
        if let Some(state) =
            states.get(&name(upstream, server)).filter(|state| state.protocol == protocol(upstream))
        {
            server.pool.restore(state, moment, now);
        }
    }
}

fn protocol(upstream: &Upstream) -> String {
    format!("{:?}", upstream.settings.protocol)
}

fn probe(upstream: &Upstream) -> String {
    upstream
        .settings
        .health
        .as_ref()
        .map(|check| format!("{:?} {:?}", check.probe, check.port))
        .unwrap_or_default()
}

impl HealthState {
    /// The state of a server; `None` if nothing is known of it.
    fn of(upstream: &Upstream, server: &Server, now: Instant) -> Option<Self> {
        let record = &server.record;
        let (passive, active) = (record.health.save(now), record.checked.save());
        let (order, weight) = (record.order(), record.weight());
        let ejections = record.ejections.load(Ordering::Relaxed);
        let is_new = passive == PassiveHealth::default()
            && active == ActiveHealth::default()
            && order == Order::Up
            && weight.is_none()
            && record.ordered_at() == 0
            && ejections == 0;
        if is_new {
            return None;
        }
        let change = record.change();
        let (name, label) = name(upstream, server);
        Some(Self {
            upstream: name,
            server: label,
            probe: probe(upstream),
            passive,
            active,
            order: match order {
                Order::Up => "up",
                Order::Drain => "drain",
                Order::Down => "down",
            }
            .to_owned(),
            weight,
            ordered_at: record.ordered_at(),
            saved_at: steady::millis(now),
            ejections,
            reason: change.reason.chars().take(REASON_MOST).collect(),
            since: change.at.duration_since(UNIX_EPOCH).map_or(0, millis),
        })
    }

    /// When this state was written, if that is known.
    fn saved(&self, now: Instant) -> Option<Instant> {
        let age = steady::millis(now).checked_sub(self.saved_at).filter(|_| self.saved_at > 0)?;
        now.checked_sub(Duration::from_millis(age))
    }

    fn apply(&self, upstream: &Upstream, server: &Server, moment: Moment, now: Instant) {
        let record: &ServerRecord = &server.record;
        let longest = upstream.settings.eject.longest.saturating_mul(2);
        // A state may arrive after a newer one. A late state must not undo an operator's order, nor bring back the
        // failures that an order to use the server has forgiven.
        let is_late = self.ordered_at < record.ordered_at();
        let mut changed = false;
        if !is_late {
            record.set_order(match &*self.order {
                "drain" => Order::Drain,
                "down" => Order::Down,
                _ => Order::Up,
            });
            record.set_weight(self.weight);
            record.set_ordered_at(self.ordered_at);
        }
        if !is_late && !record.health.came_up_since(self.saved(now)) {
            changed |= record.health.restore(&self.passive, moment, now, longest);
        }
        if self.probe == probe(upstream) {
            changed |= record.checked.restore(&self.active, moment);
        }
        if moment == Moment::Start {
            record.ejections.store(self.ejections, Ordering::Relaxed);
        }
        if changed && let Some(since) = UNIX_EPOCH.checked_add(Duration::from_millis(self.since)) {
            record.changed_at(since.min(SystemTime::now()), &self.reason);
        }
        server.show();
    }
}

impl ServerPool {
    fn save(&self, now: Instant) -> OriginState {
        OriginState {
            http1: self.speaks_http1.load(Ordering::Relaxed),
            streams: self.streams.load(Ordering::Relaxed),
            distrusted_for: millis(self.excess.left(now)),
            idle_limit: self
                .idle_limit
                .get()
                .map_or(0, |limit| u64::try_from(limit.as_micros()).unwrap_or(0)),
            ..OriginState::default()
        }
    }

    fn restore(&self, state: &OriginState, moment: Moment, now: Instant) {
        self.excess.distrust(Duration::from_millis(state.distrusted_for), now);
        // After the start, this process knows the rest better from its own connections.
        if moment == Moment::Start {
            self.speaks_http1.store(state.http1, Ordering::Relaxed);
            self.streams.store(state.streams, Ordering::Relaxed);
            if state.idle_limit > 0 {
                self.idle_limit.closed_after(Duration::from_micros(state.idle_limit));
            }
        }
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use foregate_wire::HeadLimits;
    use proptest::prelude::*;

    use super::*;
    use crate::address::ServerAddress;
    use crate::settings::{ServerSettings, UpstreamSettings};
    use crate::time::clock::Clock;
    use crate::upstream::registry::Upstreams;

    const SECOND: Duration = Duration::from_secs(1);

    /// An upstream with two servers, as a process has it that has just started.
    fn process() -> Vec<Arc<Upstream>> {
        let server = |number: u16| ServerSettings::new(ServerAddress::Ip(([192, 0, 2, 1], number).into()));
        let settings = UpstreamSettings::new("app", vec![server(1), server(2)]);
        Upstreams::new(Arc::default(), Clock::default())
            .build(&[Arc::new(settings)], HeadLimits::default(), &[])
            .unwrap()
    }

    fn is_up(process: &[Arc<Upstream>], number: usize, now: Instant) -> bool {
        process[0].servers[number].record.is_up(now)
    }

    #[test]
    fn an_ejected_server_stays_ejected_and_is_tried_in_time() {
        let (old, new, now) = (process(), process(), Instant::now());
        let eject = &old[0].settings.eject;
        let health = &old[0].servers[1].record.health;
        for _ in 0..eject.failures {
            health.failed(now, eject);
        }
        assert!(is_up(&old, 0, now) && !is_up(&old, 1, now));
        restore_health(&new, &save_health(&old, now), Moment::Start, now);
        assert!(is_up(&new, 0, now) && !is_up(&new, 1, now));
        assert!(is_up(&new, 1, now + 2 * SECOND), "it is due for a trial");
        assert!(new[0].servers[1].record.health.is_down(), "until it answers");
    }

    #[test]
    fn orders_and_failures_of_the_other_process_count_later_too() {
        let (old, new, now) = (process(), process(), Instant::now());
        restore_health(&new, &save_health(&old, now), Moment::Start, now);
        let record = &old[0].servers[0].record;
        record.set_order(Order::Drain);
        record.set_weight(Some(7));
        record.health.eject(now, &old[0].settings.eject);
        // A server that failed only in this process stays down.
        new[0].servers[1].record.health.eject(now, &new[0].settings.eject);
        restore_health(&new, &save_health(&old, now), Moment::Later, now);
        let record = &new[0].servers[0].record;
        assert_eq!((record.order(), record.weight()), (Order::Drain, Some(7)));
        assert!(!is_up(&new, 0, now) && !is_up(&new, 1, now));
    }

    #[test]
    fn a_state_that_arrives_late_does_not_replace_what_was_learned_since() {
        let (old, new, now) = (process(), process(), Instant::now());
        steady::millis(now.checked_sub(60 * SECOND).unwrap_or(now));
        old[0].picker.order(0, Order::Drain);
        old[0].servers[1].record.health.eject(now, &old[0].settings.eject);
        let late = save_health(&old, now);
        restore_health(&new, &late, Moment::Start, now);
        assert!(!is_up(&new, 1, now));
        // The new version gets an order of an operator, and one of its servers answers again.
        new[0].picker.order(0, Order::Up);
        new[0].picker.set_weight(0, 3);
        let ordered_at = old[0].servers[0].record.ordered_at();
        new[0].servers[0].record.set_ordered_at(ordered_at + 1);
        let later = now + 2 * SECOND;
        let health = &new[0].servers[1].record.health;
        assert!(health.admit(later));
        health.succeeded(later, later);
        health.succeeded(later, later);
        assert!(!health.is_down());
        restore_health(&new, &late, Moment::Later, later);
        restore_health(&new, &save_health(&process(), now), Moment::Later, later);
        let record = &new[0].servers[0].record;
        assert_eq!((record.order(), record.weight()), (Order::Up, Some(3)));
        assert!(is_up(&new, 1, later), "it has come up since");
        // A failure that the old version learns of afterwards counts.
        old[0].servers[1].record.health.eject(later + SECOND, &old[0].settings.eject);
        restore_health(&new, &save_health(&old, later + SECOND), Moment::Later, later + SECOND);
        assert!(!is_up(&new, 1, later + SECOND));
    }

    #[test]
    fn the_behaviour_of_connections_is_known_at_once() {
        let (old, new, now) = (process(), process(), Instant::now());
        let pool = &old[0].servers[0].pool;
        pool.speaks_http1.store(true, Ordering::Relaxed);
        pool.streams.store(40, Ordering::Relaxed);
        pool.excess.note(now);
        pool.idle_limit.closed_after(SECOND * 5);
        restore_origins(&new, &save_origins(&old, now), Moment::Start, now);
        let restored = &new[0].servers[0].pool;
        assert!(
            restored.excess.is_distrusted(now + SECOND * 599)
                && !restored.excess.is_distrusted(now + SECOND * 601)
        );
        assert_eq!(restored.save(now), pool.save(now));
        assert_eq!(new[0].servers[1].pool.save(now), OriginState::default());
    }

    #[test]
    fn fields_of_other_versions_are_skipped_and_missing_ones_have_defaults() {
        let (new, now) = (process(), Instant::now());
        let state = br#"[7, {"upstream": "app", "server": 3}, {"upstream": "app", "server": "192.0.2.1:2", "mood": "fine",
            "passive": {"down": true, "wait": 5000}}]"#;
        restore_health(&new, state, Moment::Start, now);
        assert!(is_up(&new, 0, now) && !is_up(&new, 1, now));
        assert!(!is_up(&new, 1, now + SECOND * 4) && is_up(&new, 1, now + SECOND * 6));
        let record = &new[0].servers[1].record;
        assert!(record.health.admit(now + SECOND * 6));
        record.health.succeeded(now + SECOND * 6, now + SECOND * 6);
        record.health.succeeded(now + SECOND * 6, now + SECOND * 6);
        assert!(!record.health.is_down(), "two answers, as always");
    }

    proptest! {
        #[test]
        fn any_bytes_are_restored_without_a_panic(bytes: Vec<u8>, wait: u64, failures: u32, since: u64) {
            let (new, now) = (process(), Instant::now());
            restore_health(&new, &bytes, Moment::Start, now);
            restore_origins(&new, &bytes, Moment::Start, now);
            let state = serde_json::json!([{
                "upstream": "app", "server": "192.0.2.1:1", "order": "nonsense", "since": since,
                "passive": { "down": true, "wait": wait, "failures": failures, "relapses": failures, "up_for": wait },
                "active": { "up": false, "failed": failures },
                "protocol": "Http1", "distrusted_for": wait, "idle_limit": wait,
            }]);
            let bytes = state.to_string().into_bytes();
            for moment in [Moment::Start, Moment::Later] {
                restore_health(&new, &bytes, moment, now);
                restore_origins(&new, &bytes, moment, now);
            }
            let record = &new[0].servers[0].record;
            // Nothing that is said keeps a server out for ever.
            prop_assert!(record.health.is_up(now + new[0].settings.eject.longest * 2));
            record.health.failed(now + new[0].settings.eject.longest * 2, &new[0].settings.eject);
        }
    }
}
