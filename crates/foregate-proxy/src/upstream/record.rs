//! The state of a server, kept by its address. It survives reloads, even if the upstream's name or the
//! server's weight changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::checked::ProbeResults;
use super::health::Health;
use super::pace::Pace;
use crate::address::ServerAddress;
use crate::counters::metrics::Kinds;
use crate::settings::Probe;

/// The length of the window of [`Outcomes`].
const WINDOW: Duration = Duration::from_secs(10);
/// Marks that an operator has set no weight.
const NO_WEIGHT: u32 = u32::MAX;

/// The identity of a server for health. Upstreams that probe an address in different ways have
/// different records of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RecordKey {
    pub address: ServerAddress,
    pub resolver: Option<Arc<[SocketAddr]>>,
    pub tls: bool,
    pub probe: Option<(Probe, Option<u16>)>,
}

/// The records of all servers that are in use.
#[derive(Debug, Default)]
pub(super) struct ServerRecords(Mutex<HashMap<RecordKey, Weak<ServerRecord>>>);

impl ServerRecords {
    /// The record of a server; true if it is new.
    pub(super) fn get(&self, key: RecordKey) -> (Arc<ServerRecord>, bool) {
        let mut records = self.0.lock();
        if let Some(record) = records.get(&key).and_then(Weak::upgrade) {
            return (record, false);
        }
        let record = Arc::new(ServerRecord::new());
        records.insert(key, Arc::downgrade(&record));
        (record, true)
    }

    /// Ends all probes for good.
    pub(super) fn end_probes(&self) {
        self.0.lock().values().filter_map(Weak::upgrade).for_each(|record| record.checked.rest());
    }

    /// Forgets the records of servers that are no longer in any configuration.
    pub(super) fn forget_unused(&self) {
        self.0.lock().retain(|_, record| record.strong_count() > 0);
    }
}

/// The record of one server.
#[derive(Debug)]
pub(super) struct ServerRecord {
    /// Passive health.
    pub health: Health,
    /// Active health.
    pub checked: ProbeResults,
    /// Requests in flight.
    pub load: Load,
    /// Open connections.
    pub connections: AtomicU32,
    /// Unwanted responses whose rest is awaited.
    rests: AtomicU32,
    /// Latencies.
    pub pace: Pace,
    /// Recent attempts and failures.
    pub outcomes: Outcomes,
    /// Failed attempts by their kind.
    pub failures: Kinds,
    /// The number of times that the server was ejected: for failures in a row, its share of failures or its
    /// latency, or because it hung.
    pub ejections: AtomicU64,
    /// The start of the server's slow start, in milliseconds of `pace`; 0 without one.
    started: AtomicU64,
    order: AtomicU8,
    weight: AtomicU32,
    /// The time at which an operator last changed the order or the weight, in milliseconds of the steady clock; 0 if
    /// never.
    ordered_at: AtomicU64,
    change: Mutex<StateChange>,
}

/// The last change of a server's state.
#[derive(Debug, Clone)]
pub(super) struct StateChange {
    pub at: SystemTime,
    pub reason: String,
}

/// An operator's order for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// There is no order, so health decides.
    Up,
    /// The server gets no new requests, except those of sessions that are bound to it.
    Drain,
    /// The server gets no requests at all.
    Down,
}

impl ServerRecord {
    fn new() -> Self {
        let change = StateChange { at: SystemTime::now(), reason: "configured".to_owned() };
        Self {
            health: Health::new(),
            checked: ProbeResults::default(),
            load: Load::default(),
            connections: AtomicU32::new(0),
            rests: AtomicU32::new(0),
            pace: Pace::new(),
            outcomes: Outcomes::default(),
            failures: Kinds::default(),
            ejections: AtomicU64::new(0),
            started: AtomicU64::new(0),
            order: AtomicU8::new(0),
            weight: AtomicU32::new(NO_WEIGHT),
            ordered_at: AtomicU64::new(0),
            change: Mutex::new(change),
        }
    }

    /// Returns true if the server is up according to requests and probes, or due for a trial.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        !self.checked.is_down() && self.health.is_up(now)
    }

    /// The present order.
    pub(super) fn order(&self) -> Order {
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Up,
            1 => Order::Drain,
            _ => Order::Down,
        }
    }

    /// Gives an order.
    pub(super) fn set_order(&self, order: Order) {
        self.order.store(order as u8, Ordering::Relaxed);
    }

    /// The weight that an operator has set in place of the configured one.
    pub(super) fn weight(&self) -> Option<u32> {
        Some(self.weight.load(Ordering::Relaxed)).filter(|weight| *weight != NO_WEIGHT)
    }

    /// Sets or removes the weight that replaces the configured one.
    pub(super) fn set_weight(&self, weight: Option<u32>) {
        self.weight.store(weight.unwrap_or(NO_WEIGHT), Ordering::Relaxed);
    }

    /// When the order or the weight was last changed, in any process; 0 for never.
    pub(super) fn ordered_at(&self) -> u64 {
        self.ordered_at.load(Ordering::Relaxed)
    }

    /// Sets the time of the last change to the order or the weight, milliseconds of the steady
    /// clock.
    pub(super) fn set_ordered_at(&self, millis: u64) {
        self.ordered_at.store(millis, Ordering::Relaxed);
    }

    /// Records that the server's state changes now.
    pub(super) fn changed(&self, reason: impl Into<String>) {
        *self.change.lock() = StateChange { at: SystemTime::now(), reason: reason.into() };
    }

    /// Records a change of state that another process has seen.
    pub(super) fn changed_at(&self, at: SystemTime, reason: &str) {
        *self.change.lock() = StateChange { at, reason: reason.to_owned() };
    }

    /// The last change.
    pub(super) fn change(&self) -> StateChange {
        self.change.lock().clone()
    }

    /// Begins a slow start, because the server has come up: its share of requests grows from now on.
    pub(super) fn start_slowly(&self, now: Instant) {
        self.started.store(self.pace.millis(now).max(1), Ordering::Relaxed);
    }

    /// The part of its usual requests that the server gets, in thousandths; less than 1000 during its slow
    /// start.
    pub(super) fn ramp(&self, span: Duration, now: Instant) -> u64 {
        let (since, span) = (self.started.load(Ordering::Relaxed), span.as_millis() as u64);
        if since == 0 || span == 0 {
            return 1000;
        }
        // The result is never 0, because this server may be the only one.
        (self.pace.millis(now).saturating_sub(since).saturating_mul(1000) / span).clamp(20, 1000)
    }

    /// The time for which requests have been waiting at the server without any answer.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        if self.load.waiting() == 0 {
            return Duration::ZERO;
        }
        let since = self.load.waiting_since.load(Ordering::Relaxed).max(self.pace.last());
        Duration::from_millis(self.pace.millis(now).saturating_sub(since))
    }

    /// Counts a request for as long as the result lives.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> DialingRequest {
        self.begin_waiting(now);
        DialingRequest(Some(Arc::clone(self)))
    }

    fn begin_waiting(&self, now: Instant) {
        if self.load.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.load.waiting_since.store(self.pace.millis(now), Ordering::Relaxed);
        }
    }

    /// Counts a connection for as long as the result lives.
    pub(super) fn open(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(self))
    }

    /// Counts an unwanted response for as long as the result lives. `None` if there are `most` already.
    pub(super) fn await_rest(self: &Arc<Self>, most: u32) -> Option<AwaitedRest> {
        let add = |count| (count < most).then_some(count + 1);
        self.rests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(AwaitedRest(Arc::clone(self)))
    }
}

/// The requests in flight of one server. It has a cache line of its own, because threads change it with
/// each request.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Load {
    /// The number of requests whose final response has not begun.
    waiting: AtomicU32,
    /// The number of the other requests: those whose final response has begun, such as downloads and tunnels, and those whose
    /// clients are slow in sending the body.
    answered: AtomicU32,
    /// The time since which requests have been waiting, in milliseconds of [`Pace`].
    waiting_since: AtomicU64,
}

impl Load {
    /// The number of requests in flight.
    pub(super) fn get(&self) -> u32 {
        self.waiting().saturating_add(self.answered.load(Ordering::Relaxed))
    }

    /// The number of requests in flight that wait for the head of a final response.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A request that waits for a connection to a server. It counts as long as this lives.
#[derive(Debug)]
pub(super) struct DialingRequest(Option<Arc<ServerRecord>>);

impl Drop for DialingRequest {
    fn drop(&mut self) {
        if let Some(record) = &self.0 {
            record.load.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A request in flight at a server. It counts as long as this lives.
#[derive(Debug)]
pub(super) struct InFlight {
    /// `None` while the request does not count.
    record: Option<Arc<ServerRecord>>,
    /// The number of the server in its upstream. It lies here because an origin would be larger with both.
    server: u32,
    is_answered: bool,
}

impl InFlight {
    /// A request that does not count, such as a health check.
    pub(super) fn uncounted(server: usize) -> Self {
        Self { record: None, server: u32::try_from(server).unwrap_or(u32::MAX), is_answered: false }
    }

    /// The number of the server.
    pub(super) fn server(&self) -> usize {
        usize::try_from(self.server).unwrap_or(usize::MAX)
    }

    /// Counts from now on, in place of the time before.
    pub(super) fn follow(&mut self, mut waiting: DialingRequest) {
        self.record = waiting.0.take();
    }

    /// Records that the final response has begun, so that the request no longer waits.
    pub(super) fn answered(&mut self) {
        if let Some(record) = &self.record
            && !std::mem::replace(&mut self.is_answered, true)
        {
            record.load.answered.fetch_add(1, Ordering::Relaxed);
            record.load.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Changes whether the request waits for its response. It does not while the server has only a part of its body.
    pub(super) fn set_waiting(&mut self, waits: bool, now: Instant) {
        if !waits {
            self.answered();
        } else if let Some(record) = self.record.as_ref().filter(|_| self.is_answered) {
            record.begin_waiting(now);
            record.load.answered.fetch_sub(1, Ordering::Relaxed);
            self.is_answered = false;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            let count = if self.is_answered { &record.load.answered } else { &record.load.waiting };
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Counts an open connection to a server.
#[derive(Debug)]
pub struct OpenConnection(Arc<ServerRecord>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts an unwanted response whose rest is awaited.
#[derive(Debug)]
pub(super) struct AwaitedRest(Arc<ServerRecord>);

impl Drop for AwaitedRest {
    fn drop(&mut self) {
        self.0.rests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of attempts in a window of time, and of the failed ones among them.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    all: AtomicU32,
    bad: AtomicU32,
    since: Mutex<Option<Instant>>,
}

impl Outcomes {
    /// Counts an attempt. If it failed, and there were at least `minimum` attempts, returns the
    /// percentage of failures.
    pub(super) fn count(&self, is_bad: bool, minimum: u32) -> Option<u32> {
        let all = self.all.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let bad = self.bad.fetch_add(u32::from(is_bad), Ordering::Relaxed) + u32::from(is_bad);
        (is_bad && all >= minimum)
            .then(|| u32::try_from(u64::from(bad) * 100 / u64::from(all)).unwrap_or(100))
    }

    /// Begins a new window once the last one is over. Half of the old counts stay, so that failures
    /// around the end of a window are not lost.
    pub(super) fn turn(&self, now: Instant) {
        let mut since = self.since.lock();
        if now.saturating_duration_since(*since.get_or_insert(now)) >= WINDOW {
            *since = Some(now);
            for count in [&self.all, &self.bad] {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all attempts.
    pub(super) fn forget(&self) {
        self.all.store(0, Ordering::Relaxed);
        self.bad.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str) -> RecordKey {
        RecordKey { address: address.parse().unwrap(), resolver: None, tls: false, probe: None }
    }

    #[test]
    fn a_record_lives_as_long_as_a_server_has_it() {
        let records = ServerRecords::default();
        let (first, is_new) = records.get(key("127.0.0.1:1"));
        assert!(is_new);
        let (again, is_new) = records.get(key("127.0.0.1:1"));
        assert!(!is_new && Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &records.get(RecordKey { tls: true, ..key("127.0.0.1:1") }).0));
        drop((first, again));
        records.forget_unused();
        assert!(records.0.lock().is_empty());
        assert!(records.get(key("127.0.0.1:1")).1);
    }

    #[test]
    fn requests_in_flight_are_counted_until_they_end() {
        let (record, now) = (Arc::new(ServerRecord::new()), Instant::now());
        let two = [record.enter(now), record.enter(now)];
        assert_eq!(record.load.get(), 2);
        drop(two);
        assert_eq!(record.load.get(), 0);
    }

    #[test]
    fn the_rests_that_are_awaited_are_bounded() {
        let record = Arc::new(ServerRecord::new());
        let two = [record.await_rest(2), record.await_rest(2)];
        assert!(two.iter().all(Option::is_some) && record.await_rest(2).is_none());
        drop(two);
        assert!(record.await_rest(1).is_some() && record.await_rest(0).is_none());
    }

    #[test]
    fn silence_lasts_from_the_last_answer_or_the_first_request() {
        let (record, now) = (Arc::new(ServerRecord::new()), Instant::now());
        let second = Duration::from_secs(1);
        let near = |silence: Duration, seconds: u32| silence.abs_diff(second * seconds) < second / 10;
        assert_eq!(record.silence(now + second), Duration::ZERO, "nobody waits");
        let one = record.enter(now + second);
        let other = record.enter(now + 2 * second);
        assert!(near(record.silence(now + 3 * second), 2));
        record.pace.answered(second, now + 4 * second, false);
        drop(one);
        assert!(near(record.silence(now + 9 * second), 5));
        drop(other);
        assert_eq!(record.silence(now + 9 * second), Duration::ZERO);
    }

    #[test]
    fn a_request_whose_response_has_begun_is_in_flight_but_does_not_wait() {
        let (record, now) = (Arc::new(ServerRecord::new()), Instant::now());
        let second = Duration::from_secs(1);
        let mut download = InFlight::uncounted(0);
        download.answered();
        download.follow(record.enter(now));
        assert_eq!((record.load.get(), record.load.waiting()), (1, 1));
        download.answered();
        assert_eq!((record.load.get(), record.load.waiting()), (1, 0));
        assert_eq!(record.silence(now + 9 * second), Duration::ZERO);
        download.set_waiting(false, now);
        let waiting = record.enter(now + 9 * second);
        assert_eq!((record.load.get(), record.load.waiting()), (2, 1));
        assert!(record.silence(now + 10 * second) < second * 2, "it waits for a second");
        drop((download, waiting));
        assert_eq!((record.load.get(), record.load.waiting()), (0, 0));
    }

    #[test]
    fn the_share_of_failures_is_that_of_the_last_seconds() {
        let (outcomes, now) = (Outcomes::default(), Instant::now());
        outcomes.turn(now);
        for attempt in 0..20 {
            let share = outcomes.count(attempt % 2 == 1, 20);
            assert_eq!(share, (attempt == 19).then_some(50));
        }
        outcomes.turn(now + WINDOW);
        outcomes.turn(now + WINDOW);
        assert_eq!(outcomes.count(true, 11), Some(54), "half of them is left");
        outcomes.forget();
        assert_eq!(outcomes.count(true, 1), Some(100));
    }

    #[test]
    fn a_share_grows_from_a_little_to_all() {
        let (record, now) = (ServerRecord::new(), Instant::now());
        let span = Duration::from_secs(10);
        assert_eq!(record.ramp(span, now), 1000, "it has not started anew");
        record.start_slowly(now + span);
        assert_eq!(record.ramp(span, now + span), 20);
        assert!((490..510).contains(&record.ramp(span, now + span * 3 / 2)));
        assert_eq!(record.ramp(span, now + span * 2), 1000);
        assert_eq!(record.ramp(Duration::ZERO, now + span), 1000);
    }
}
