//! Bounds on the requests in flight through a listener, to a site, to an upstream or of a client. Requests beyond a
//! bound wait in its queue. Clients take turns there, and the requests of one client are served in the order of
//! arrival.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::account::{Account, Ledger};
use super::adaptive::{AdaptiveBound, BoundRange};
use crate::settings::RequestLimit;

/// A bound on requests in flight, and the queue of requests that wait.
#[derive(Debug)]
pub struct RequestGate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    limit: RequestLimit,
    /// The current bound, if the bound follows the latency.
    adaptive: Option<AdaptiveBound>,
    inside: usize,
    waiting: usize,
    /// The last number given to a waiter or to a client's turn.
    tickets: u64,
    /// The waiters of each client.
    lanes: HashMap<Account, ClientLane, foldhash::fast::RandomState>,
    /// The clients with waiters, in the order of their turns.
    order: BTreeMap<u64, Account>,
    /// The clients by the number of their waiters.
    by_length: BTreeSet<(usize, Account)>,
}

/// The waiters of a client, by their tickets.
#[derive(Debug, Default)]
struct ClientLane {
    turn: u64,
    waiters: BTreeMap<u64, oneshot::Sender<RequestPass>>,
}

/// A request in flight. It counts until this value is dropped.
#[derive(Debug)]
pub struct RequestPass(Option<Arc<RequestGate>>);

/// The bound of a gate and the number of requests in it, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLoad {
    /// `listener`, `site` or `upstream`.
    pub scope: &'static str,
    /// The name of the listener, site or upstream.
    pub name: String,
    /// The bound.
    pub limit: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests in the queue.
    pub waiting: usize,
}

/// An answer of a gate.
#[derive(Debug)]
pub enum GateAnswer {
    /// The request is in flight.
    Inside(RequestPass),
    /// The request has a place in the queue.
    Waits(GatePlace),
    /// The queue is full.
    Full,
}

/// A place in the queue of a gate.
#[derive(Debug)]
pub struct GatePlace {
    gate: Arc<RequestGate>,
    account: Account,
    ticket: u64,
    pass: oneshot::Receiver<RequestPass>,
}

impl RequestGate {
    fn new(limit: RequestLimit) -> Self {
        Self(Mutex::new(GateState {
            limit,
            adaptive: range(limit).map(|range| AdaptiveBound::new(range, Instant::now())),
            inside: 0,
            waiting: 0,
            tickets: 0,
            lanes: HashMap::default(),
            order: BTreeMap::new(),
            by_length: BTreeSet::new(),
        }))
    }

    /// How long a request waits in the queue.
    pub fn timeout(&self) -> Duration {
        self.0.lock().limit.timeout
    }

    /// The current load. `scope` and `name` identify the listener, site or upstream that has the bound.
    pub fn load(&self, scope: &'static str, name: String) -> GateLoad {
        let state = self.0.lock();
        GateLoad { scope, name, limit: state.most(), in_flight: state.inside, waiting: state.waiting }
    }

    /// Asks the gate to admit a request of this client.
    pub fn enter(self: &Arc<Self>, account: Account) -> GateAnswer {
        let mut state = self.0.lock();
        if state.inside < state.most() {
            state.inside += 1;
            return GateAnswer::Inside(RequestPass(Some(Arc::clone(self))));
        }
        let evicted = match state.waiting < state.limit.queue {
            true => None,
            false => match state.evict_for(account) {
                None => return GateAnswer::Full,
                evicted => evicted,
            },
        };
        let (tell, pass) = oneshot::channel();
        let ticket = state.join(account, tell);
        drop(state);
        // Dropped after the lock is released, because this wakes the task of the evicted waiter.
        drop(evicted);
        GateAnswer::Waits(GatePlace { gate: Arc::clone(self), account, ticket, pass })
    }

    /// Replaces the bound. If the new bound is larger, waiting requests enter at once; if it is smaller, requests in flight
    /// go on, and others wait until enough of these have finished.
    pub fn set(self: &Arc<Self>, limit: RequestLimit) {
        {
            let mut state = self.0.lock();
            state.limit = limit;
            match (&mut state.adaptive, range(limit)) {
                (Some(adaptive), Some(range)) => adaptive.set(range),
                (adaptive, range) => {
                    *adaptive = range.map(|range| AdaptiveBound::new(range, Instant::now()));
                }
            }
        }
        self.fill();
    }

    /// Records how long an attempt took, or that it failed (`None`), and adjusts an adaptive bound.
    pub fn answered(self: &Arc<Self>, took: Option<Duration>, now: Instant) {
        let may_have_room = {
            let mut state = self.0.lock();
            let in_flight = state.inside;
            state.adaptive.as_mut().is_some_and(|adaptive| adaptive.note(took, in_flight, now))
        };
        if may_have_room {
            self.fill();
        }
    }

    /// Admits waiters as long as there is room.
    fn fill(self: &Arc<Self>) {
        loop {
            {
                let mut state = self.0.lock();
                if state.inside >= state.most() || state.waiting == 0 {
                    return;
                }
                state.inside += 1;
            }
            self.hand_on();
        }
    }

    /// Gives the place of a finished request to the next waiter.
    fn hand_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let next = if state.inside > state.most() { None } else { state.next() };
                if next.is_none() {
                    state.inside -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(RequestPass(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // This waiter has given up: the pass goes to the next one.
                Err(mut unused) => unused.0 = None,
            }
        }
    }
}

/// The range of a bound that follows the latency.
fn range(limit: RequestLimit) -> Option<BoundRange> {
    limit.adaptive_from.map(|least| (least, limit.requests))
}

impl GateState {
    fn most(&self) -> usize {
        self.adaptive.as_ref().map_or(self.limit.requests, AdaptiveBound::limit)
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn join(&mut self, account: Account, tell: oneshot::Sender<RequestPass>) -> u64 {
        let (ticket, turn) = (self.ticket(), self.ticket());
        let lane = self.lanes.entry(account).or_default();
        if lane.waiters.is_empty() {
            lane.turn = turn;
            self.order.insert(turn, account);
        }
        self.by_length.remove(&(lane.waiters.len(), account));
        lane.waiters.insert(ticket, tell);
        self.by_length.insert((lane.waiters.len(), account));
        self.waiting += 1;
        ticket
    }

    /// Removes the last waiter of the client with the most waiters, if `account` with one more waiter would still
    /// have fewer than that client. So no client can fill the queue alone.
    fn evict_for(&mut self, account: Account) -> Option<oneshot::Sender<RequestPass>> {
        let own = self.lanes.get(&account).map_or(0, |lane| lane.waiters.len());
        let (most, other) = *self.by_length.last()?;
        if most <= own + 1 {
            return None;
        }
        let ticket = *self.lanes.get(&other)?.waiters.last_key_value()?.0;
        self.take(other, ticket)
    }

    fn next(&mut self) -> Option<oneshot::Sender<RequestPass>> {
        let (_, account) = self.order.pop_first()?;
        let turn = self.ticket();
        let lane = self.lanes.get_mut(&account)?;
        lane.turn = turn;
        self.order.insert(turn, account);
        let ticket = *lane.waiters.first_key_value()?.0;
        self.take(account, ticket)
    }

    /// Removes a waiter, if it is still there.
    fn take(&mut self, account: Account, ticket: u64) -> Option<oneshot::Sender<RequestPass>> {
        let lane = self.lanes.get_mut(&account)?;
        let length = lane.waiters.len();
        let taken = lane.waiters.remove(&ticket)?;
        self.waiting -= 1;
        self.by_length.remove(&(length, account));
        if length > 1 {
            self.by_length.insert((length - 1, account));
        } else {
            self.order.remove(&lane.turn);
            self.lanes.remove(&account);
        }
        Some(taken)
    }
}

impl GatePlace {
    /// Waits for the request's turn. Returns `None` if a client with fewer waiters has got the request's place in
    /// the queue.
    pub async fn turn(&mut self) -> Option<RequestPass> {
        (&mut self.pass).await.ok()
    }
}

impl Drop for GatePlace {
    fn drop(&mut self) {
        let unused = self.gate.0.lock().take(self.account, self.ticket);
        if unused.is_none() {
            self.pass.close();
            // A pass that arrives too late goes to the next waiter.
            drop(self.pass.try_recv());
        }
    }
}

impl Drop for RequestPass {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.hand_on();
        }
    }
}

/// A request in flight of a client. It counts until this value is dropped.
#[derive(Debug)]
pub struct ClientRequest {
    ledger: Arc<Ledger>,
    account: Account,
}

impl ClientRequest {
    /// Counts one more request of this client. Returns `None` if the client already has `most` of them.
    pub fn take(ledger: &Arc<Ledger>, account: Account, most: usize) -> Option<Self> {
        let took = ledger.change(account, 0, 1, |others| others < most || !account.is_client());
        took.then(|| Self { ledger: Arc::clone(ledger), account })
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        self.ledger.change(self.account, 1, 0, |_| true);
    }
}

/// The gates of the process by their keys. They survive reloads, so that requests in flight go on counting.
#[derive(Debug)]
pub struct RequestGates<K>(Mutex<HashMap<K, Weak<RequestGate>>>);

impl<K> Default for RequestGates<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq> RequestGates<K> {
    /// Forgets the gates that no configuration and no request refers to any more.
    pub fn forget_unused(&self) {
        self.0.lock().retain(|_, gate| gate.strong_count() > 0);
    }

    /// The gate with this key; a new one has this limit.
    pub fn get(&self, key: K, limit: RequestLimit) -> Arc<RequestGate> {
        let mut gates = self.0.lock();
        if let Some(gate) = gates.get(&key).and_then(Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(RequestGate::new(limit));
        gates.insert(key, Arc::downgrade(&gate));
        gate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(last: u8) -> Account {
        Account::of(Some([192, 0, 2, last].into()))
    }

    fn gate(requests: usize, queue: usize) -> Arc<RequestGate> {
        Arc::new(RequestGate::new(RequestLimit {
            requests,
            queue,
            timeout: Duration::from_secs(1),
            adaptive_from: None,
        }))
    }

    fn waits(gate: &Arc<RequestGate>, client: u8) -> GatePlace {
        match gate.enter(of(client)) {
            GateAnswer::Waits(waits) => waits,
            other => panic!("{other:?}"),
        }
    }

    fn counts(gate: &RequestGate) -> (usize, usize, usize, usize) {
        let state = gate.0.lock();
        (state.inside, state.waiting, state.lanes.len(), state.order.len())
    }

    #[tokio::test]
    async fn clients_take_turns_in_the_queue() {
        let gate = gate(1, 10);
        let GateAnswer::Inside(mut pass) = gate.enter(of(1)) else { panic!() };
        let mut queue: Vec<_> = [1, 1, 1, 2, 3, 2].map(|client| (client, waits(&gate, client))).into();
        let mut order = Vec::new();
        while !queue.is_empty() {
            drop(pass);
            let at = queue.iter_mut().position(|(_, waits)| !waits.pass.is_empty()).unwrap();
            let (client, mut next) = queue.remove(at);
            pass = next.turn().await.unwrap();
            order.push(client);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
        drop(pass);
        assert_eq!(counts(&gate), (0, 0, 0, 0));
    }

    #[tokio::test]
    async fn one_client_does_not_have_the_queue_for_itself() {
        let gate = gate(1, 4);
        let inside = gate.enter(of(1));
        let mut greedy: Vec<_> = (0..4).map(|_| waits(&gate, 1)).collect();
        assert!(matches!(gate.enter(of(1)), GateAnswer::Full));
        let _others = [waits(&gate, 2), waits(&gate, 3)];
        assert!(matches!(gate.enter(of(2)), GateAnswer::Full));
        assert_eq!(counts(&gate), (1, 4, 3, 3));
        for evicted in greedy.drain(2..) {
            let mut evicted = evicted;
            assert!(evicted.turn().await.is_none());
        }
        assert_eq!(counts(&gate), (1, 4, 3, 3));
        drop(inside);
        assert!(greedy[0].turn().await.is_some());
    }

    #[tokio::test]
    async fn those_that_leave_make_room() {
        let gate = gate(2, 2);
        let inside = [gate.enter(of(1)), gate.enter(of(1))];
        let (first, second) = (waits(&gate, 1), waits(&gate, 2));
        assert!(matches!(gate.enter(of(3)), GateAnswer::Full));
        drop(first);
        let third = waits(&gate, 3);
        assert!(matches!(gate.enter(of(3)), GateAnswer::Full));
        drop(inside);
        // Both have been let in, and leave without having looked.
        assert_eq!(counts(&gate), (2, 0, 0, 0));
        drop((second, third));
        assert_eq!(counts(&gate), (0, 0, 0, 0));
    }

    #[tokio::test]
    async fn a_reload_changes_the_bound() {
        let gates = RequestGates::default();
        let limit = |requests| RequestLimit {
            requests,
            queue: 5,
            timeout: Duration::from_secs(1),
            adaptive_from: None,
        };
        let gate = gates.get("app", limit(1));
        assert!(Arc::ptr_eq(&gate, &gates.get("app", limit(3))));
        let GateAnswer::Inside(first) = gate.enter(of(1)) else { panic!() };
        let (mut second, mut third) = (waits(&gate, 1), waits(&gate, 1));
        gate.set(limit(3));
        let passes = (second.turn().await, third.turn().await);
        assert_eq!(counts(&gate), (3, 0, 0, 0));
        gate.set(limit(1));
        let fourth = waits(&gate, 1);
        drop(first);
        assert_eq!(counts(&gate), (2, 1, 1, 1), "there are too many still");
        drop((passes, fourth));
        assert_eq!(counts(&gate), (0, 0, 0, 0));
    }

    #[test]
    fn a_client_has_so_many_requests() {
        let ledger = Arc::<Ledger>::default();
        let two = [(); 2].map(|()| ClientRequest::take(&ledger, of(1), 2).unwrap());
        assert!(
            ClientRequest::take(&ledger, of(1), 2).is_none()
                && ClientRequest::take(&ledger, of(2), 2).is_some()
        );
        drop(two);
        assert!(ClientRequest::take(&ledger, of(1), 2).is_some());
        assert!((0..9).all(|_| ClientRequest::take(&ledger, Account::of(None), 2).is_some()));
        assert_eq!(ledger.clients(), 0);
    }
}
