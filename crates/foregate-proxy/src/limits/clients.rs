//! The connections of clients: their number, their owners, and their graceful end.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::account::Account;
use super::client_table::{ClientHolding, ClientTable};

/// The number of parts of the table. Each has its own lock.
const SHARDS: usize = 16;
/// The head of a request is counted for its client if it has at least this many bytes.
const LARGE_HEAD: usize = 8 * 1024;

/// The connections of clients.
#[derive(Debug)]
pub struct Registry {
    shards: [EntryShard; SHARDS],
    clients: ClientTable<Option<Arc<Holdings>>>,
    count: AtomicUsize,
    next: AtomicUsize,
    emptied: Notify,
    /// True if connections that end keep their ordinary time limits.
    gentle: AtomicBool,
    /// True while a listener waits for a connection to end; `left` notifies it.
    awaited: AtomicBool,
    left: Notify,
}

type EntryShard = Mutex<HashMap<usize, Arc<ClientEntry>, foldhash::fast::RandomState>>;

impl ClientHolding for Option<Arc<Holdings>> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }
}

/// The resources of all connections of one client, or of its network.
#[derive(Debug)]
pub struct Holdings {
    account: Account,
    connections: AtomicUsize,
    /// Connections to origins that serve this client.
    pub origins: AtomicUsize,
    /// Fetches for the cache that this client has caused.
    pub fetches: AtomicUsize,
    /// The memory of the client's HTTP/2 connections, bytes: unread input of bodies, and streams.
    streams: AtomicUsize,
    /// The large heads of its requests, bytes.
    heads: AtomicUsize,
    /// The part of the held memory that the client has to release.
    owed: AtomicUsize,
}

impl Holdings {
    /// The resources of the client with this address, which holds nothing yet.
    pub fn new(client: IpAddr) -> Self {
        let account = Account::of(Some(client));
        let [connections, origins, fetches, streams, heads, owed] =
            std::array::from_fn(|_| AtomicUsize::new(0));
        Self { account, connections, origins, fetches, streams, heads, owed }
    }

    /// The number of its connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Records that the memory of one of the client's HTTP/2 connections has changed from `from` to `to` bytes.
    pub fn count_held(&self, from: usize, to: usize) {
        if to >= from {
            self.streams.fetch_add(to - from, Ordering::Relaxed);
        } else {
            self.streams.fetch_sub(from - to, Ordering::Relaxed);
        }
    }

    /// The memory that the client holds in streams, their bodies, and heads, bytes.
    pub fn held(&self) -> usize {
        self.streams.load(Ordering::Relaxed) + self.heads.load(Ordering::Relaxed)
    }

    /// Returns true if a connection with this much memory has to end, because the client has to release memory. Connections
    /// with less than half the client's average stay, because the client's other connections hold at least half of
    /// its memory.
    pub fn takes_back(&self, held: impl FnOnce() -> usize) -> bool {
        if self.owed.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let held = held();
        let average = self.streams.load(Ordering::Relaxed) / self.connections().max(1);
        if held == 0 || held < average / 2 {
            return false;
        }
        let owes = |owed: usize| (owed > 0).then(|| owed.saturating_sub(held));
        self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, owes).is_ok()
    }
}

/// The head of a request that counts as its client's, for as long as this value lives.
#[derive(Debug)]
pub struct HeldHead(Arc<Holdings>, usize);

impl HeldHead {
    /// Counts a large head of this many bytes; `None` for a small one, which is not counted.
    pub fn new(client: &Arc<Holdings>, bytes: usize) -> Option<Self> {
        (bytes >= LARGE_HEAD).then(|| {
            client.heads.fetch_add(bytes, Ordering::Relaxed);
            Self(Arc::clone(client), bytes)
        })
    }
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        self.0.heads.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct ClientEntry {
    listener: usize,
    /// The resources of the client, once it is known.
    holdings: OnceLock<Arc<Holdings>>,
    waker: Mutex<Option<Waker>>,
    told: AtomicBool,
    /// True once the connection accepts no more requests, except for those already on their way.
    ending: AtomicBool,
    task: Mutex<ServedBy>,
}

/// The task that serves a connection, if it is known.
#[derive(Debug, Default)]
enum ServedBy {
    /// The connection was accepted just now.
    #[default]
    Unknown,
    Task(AbortHandle),
    /// The connection has been cut off, perhaps before it had a task.
    Cut,
}

impl Registry {
    /// No connections yet.
    pub fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            clients: ClientTable::default(),
            count: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            emptied: Notify::new(),
            gentle: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            left: Notify::new(),
        }
    }

    /// Takes a place for one more connection, if there are fewer than `most`.
    pub fn place(self: &Arc<Self>, most: usize) -> Option<ConnectionPlace> {
        let one_more = |count| (count < most).then_some(count + 1);
        self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(ConnectionPlace(Arc::clone(self)))
    }

    /// The number of connections.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one more connection of a client, unless it has `most` of them already.
    fn hold(&self, client: IpAddr, most: usize) -> Option<Arc<Holdings>> {
        let held = self.clients.update(Account::of(Some(client)), |holdings| {
            if holdings.as_ref().map_or(0, |holdings| holdings.connections()) >= most {
                return None;
            }
            let holdings = holdings.get_or_insert_with(|| Arc::new(Holdings::new(client)));
            holdings.connections.fetch_add(1, Ordering::Relaxed);
            Some(Arc::clone(holdings))
        });
        held.flatten()
    }

    /// Sets whether connections that end keep their ordinary time limits. If they do, idle connections are not
    /// closed early, so that no client sends a request on a connection that is just being closed.
    pub fn be_gentle(&self, gentle: bool) {
        self.gentle.store(gentle, Ordering::SeqCst);
    }

    /// Ends all connections gracefully, or those of one listener.
    pub fn drain(&self, listener: Option<usize>) {
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().values().cloned().collect();
            for entry in entries.iter().filter(|entry| listener.is_none_or(|wanted| wanted == entry.listener))
            {
                entry.told.store(true, Ordering::SeqCst);
                if let Some(waker) = entry.waker.lock().take() {
                    waker.wake();
                }
            }
        }
    }

    /// Ends the remaining connections of one listener at once; returns their number.
    pub fn cut(&self, listener: usize) -> usize {
        let mut cut = 0;
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().values().cloned().collect();
            for entry in entries.iter().filter(|entry| entry.listener == listener) {
                match std::mem::replace(&mut *entry.task.lock(), ServedBy::Cut) {
                    ServedBy::Task(task) => task.abort(),
                    ServedBy::Unknown => {}
                    ServedBy::Cut => continue,
                }
                cut += 1;
            }
        }
        cut
    }

    /// Makes all idle connections check again whether they should stay open.
    pub fn wake(&self) {
        self.wake_those(|_| true);
    }

    /// The number of connections that may bring another request. Call [`Self::wake`] a moment before: connections that wait
    /// for a request then register again, and only these are counted.
    pub fn may_ask(&self) -> usize {
        let may_ask =
            |entry: &Arc<ClientEntry>| !entry.ending.load(Ordering::Relaxed) && entry.waker.lock().is_some();
        let of_shard = |shard: &EntryShard| {
            let entries: Vec<_> = shard.lock().values().cloned().collect();
            entries.iter().filter(|entry| may_ask(entry)).count()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn wake_those(&self, wanted: impl Fn(&ClientEntry) -> bool) {
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().values().filter(|entry| wanted(entry)).cloned().collect();
            for waker in entries.iter().filter_map(|entry| entry.waker.lock().take()) {
                waker.wake();
            }
        }
    }

    /// Makes the clients with the most memory over HTTP/2 end connections, until `bytes` are released. Clients with less
    /// than `least` bytes keep their connections.
    pub fn take_back(&self, bytes: usize, least: usize) {
        let mut largest = Vec::new();
        self.clients.each(|holdings| {
            let Some(holdings) = holdings else { return };
            let held = holdings.streams.load(Ordering::Relaxed);
            if held >= least {
                largest.push((held, Arc::clone(holdings)));
            } else if holdings.owed.load(Ordering::Relaxed) > 0 {
                holdings.owed.store(0, Ordering::Relaxed);
            }
        });
        largest.sort_unstable_by_key(|(held, _)| Reverse(*held));
        let mut left = bytes;
        for (held, holdings) in &largest {
            holdings.owed.store(left.min(*held), Ordering::Relaxed);
            left = left.saturating_sub(*held);
        }
        if !largest.is_empty() {
            let owes = |holdings: &Arc<Holdings>| holdings.owed.load(Ordering::Relaxed) > 0;
            self.wake_those(|entry| entry.holdings.get().is_some_and(owes));
        }
    }

    /// Completes once there are no connections.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.count() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Completes once there may be fewer than `most` connections, after `pause` at the latest.
    pub async fn room(&self, most: usize, pause: Duration) {
        let left = self.left.notified();
        self.awaited.store(true, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) >= most {
            // The waiter checks again after the pause.
            let _ = tokio::time::timeout(pause, left).await;
        }
    }
}

/// A place among the connections, held until this value or the connection's [`RegisteredConnection`] is
/// dropped.
#[derive(Debug)]
pub struct ConnectionPlace(Arc<Registry>);

impl ConnectionPlace {
    /// Registers a connection of the listener with the number `listener`, unless its client has `most` connections already.
    pub fn enter(self, client: Option<IpAddr>, most: usize, listener: usize) -> Option<RegisteredConnection> {
        let registry = &self.0;
        let holdings = match client {
            Some(client) => OnceLock::from(registry.hold(client, most)?),
            None => OnceLock::new(),
        };
        let id = registry.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(ClientEntry { listener, holdings, ..ClientEntry::default() });
        registry.shards[id % SHARDS].lock().insert(id, Arc::clone(&entry));
        Some(RegisteredConnection { place: self, id, entry })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let registry = &self.0;
        if registry.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            registry.emptied.notify_waiters();
        }
        if registry.awaited.load(Ordering::SeqCst) && registry.awaited.swap(false, Ordering::SeqCst) {
            registry.left.notify_waiters();
        }
    }
}

impl RegisteredConnection {
    /// Counts the connection for `client`, unless the client has `most` connections already. Returns true if it is counted.
    pub fn attribute(&self, client: IpAddr, most: usize) -> bool {
        if self.holdings().is_some() {
            return true;
        }
        // Only this function sets the holdings later, and only one task calls it, so `set` does not fail.
        self.place.0.hold(client, most).is_some_and(|holdings| self.entry.holdings.set(holdings).is_ok())
    }

    /// The resources of the client, with its other connections; `None` if it is unknown.
    pub fn holdings(&self) -> Option<&Arc<Holdings>> {
        self.entry.holdings.get()
    }
}

/// A connection that is registered for as long as this value lives.
#[derive(Debug)]
pub struct RegisteredConnection {
    place: ConnectionPlace,
    id: usize,
    entry: Arc<ClientEntry>,
}

impl RegisteredConnection {
    /// A slot in which to register the task that serves the connection.
    pub fn task(&self) -> Task {
        Task(Arc::clone(&self.entry))
    }

    /// Asks for a graceful end of the connection, before its task has begun.
    pub fn tell(&self) {
        self.entry.told.store(true, Ordering::SeqCst);
    }

    /// Returns true if the connection may stay idle for the ordinary time before it ends; see [`Registry::be_gentle`].
    pub fn has_time(&self) -> bool {
        self.place.0.gentle.load(Ordering::SeqCst)
    }

    /// Returns true if the connection should end gracefully.
    pub fn is_told(&self) -> bool {
        self.entry.told.load(Ordering::SeqCst)
    }

    /// Records that the peer has been told that the connection accepts no more requests.
    pub fn begins_to_end(&self) {
        self.entry.ending.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection should end gracefully. Otherwise the task is woken when the connection
    /// should end, or when the task has to check again.
    pub fn poll_told(&self, cx: &mut Context<'_>) -> bool {
        let mut waker = self.entry.waker.lock();
        match &mut *waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            waker => *waker = Some(cx.waker().clone()),
        }
        drop(waker);
        self.entry.told.load(Ordering::SeqCst)
    }
}

/// The slot for the task of a connection.
#[derive(Debug)]
pub struct Task(Arc<ClientEntry>);

impl Task {
    /// Registers the task that serves the connection. If the connection has been cut off already, aborts the task.
    pub fn is(self, task: AbortHandle) {
        match &mut *self.0.task.lock() {
            ServedBy::Cut => task.abort(),
            served_by => *served_by = ServedBy::Task(task),
        }
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        let registry = &self.place.0;
        registry.shards[self.id % SHARDS].lock().remove(&self.id);
        if let Some(holdings) = self.holdings() {
            registry.clients.update(holdings.account, |held| {
                if holdings.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
                    // The client's last connection has ended, so the client holds nothing any more.
                    *held = None;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(
        registry: &Arc<Registry>,
        client: Option<IpAddr>,
        most: usize,
        listener: usize,
    ) -> Option<RegisteredConnection> {
        registry.place(usize::MAX).and_then(|place| place.enter(client, most, listener))
    }

    #[test]
    fn places_are_as_many_as_are_allowed() {
        let registry = Arc::new(Registry::new());
        let (first, second) = (registry.place(2), registry.place(2));
        assert!(first.is_some() && second.is_some() && registry.place(2).is_none());
        let refused = second.and_then(|place| place.enter(Some(IpAddr::from([192, 0, 2, 1])), 0, 0));
        assert!(refused.is_none());
        let entered = registry.place(2).and_then(|place| place.enter(None, 1, 0));
        assert!(entered.is_some() && registry.place(2).is_none());
        drop((first, entered));
        assert_eq!(registry.count(), 0);
    }

    #[test]
    fn a_client_has_so_many_connections_and_no_more() {
        let registry = Arc::new(Registry::new());
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        let first = enter(&registry, client, 2, 0).expect("the first");
        let _second = enter(&registry, client, 2, 0).expect("the second");
        assert!(enter(&registry, client, 2, 0).is_none());
        assert!(enter(&registry, Some(IpAddr::from([192, 0, 2, 2])), 2, 1).is_some());
        assert_eq!(first.holdings().map(|holdings| holdings.connections()), Some(2));
        drop(first);
        assert!(enter(&registry, client, 2, 0).is_some());
        assert_eq!(registry.count(), 1);
    }

    #[test]
    fn large_heads_count_until_their_requests_are_over() {
        let client = Arc::new(Holdings::new(IpAddr::from([192, 0, 2, 1])));
        let heads = [LARGE_HEAD - 1, LARGE_HEAD, 60_000].map(|bytes| HeldHead::new(&client, bytes));
        assert_eq!(client.held(), LARGE_HEAD + 60_000);
        drop(heads);
        assert_eq!(client.held(), 0);
    }

    #[test]
    fn those_who_hold_the_most_give_it_back_first() {
        let registry = Arc::new(Registry::new());
        let enter = |last, held| {
            let entered =
                enter(&registry, Some(IpAddr::from([192, 0, 2, last])), 8, 0).expect("a connection");
            entered.holdings().expect("a client").count_held(0, held);
            (entered, held)
        };
        let (most, less) = ([enter(1, 1000), enter(1, 100), enter(1, 900)], [enter(2, 300), enter(2, 300)]);
        let few = enter(3, 99);
        let ends = || {
            let of = |(entered, held): &(RegisteredConnection, usize)| {
                entered.holdings().unwrap().takes_back(|| *held)
            };
            (most.each_ref().map(of), less.each_ref().map(of), of(&few))
        };
        assert_eq!(ends(), ([false; 3], [false; 2], false));
        registry.take_back(950, 100);
        assert_eq!(ends(), ([true, false, false], [false; 2], false));
        registry.take_back(2001, 100);
        assert_eq!(ends(), ([true, false, true], [true, false], false));
        registry.take_back(10_000, 100);
        registry.take_back(0, 5000);
        assert_eq!(ends(), ([false; 3], [false; 2], false), "nothing is owed any more");
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_of_it() {
        let registry = Arc::new(Registry::new());
        let (first, _second) = (enter(&registry, None, 2, 0), enter(&registry, None, 2, 0));
        let waiting = Arc::clone(&registry);
        let room = tokio::spawn(async move { waiting.room(2, Duration::from_secs(60)).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!room.is_finished());
        drop(first);
        tokio::time::timeout(Duration::from_secs(10), room).await.expect("long before its time").unwrap();
        registry.room(2, Duration::from_secs(60)).await;
    }

    #[test]
    fn a_listener_is_drained_alone() {
        let registry = Arc::new(Registry::new());
        let here = enter(&registry, None, 1, 7).expect("one");
        let there = enter(&registry, None, 1, 8).expect("another");
        registry.drain(Some(7));
        assert!(here.is_told() && !there.is_told());
        registry.drain(None);
        assert!(there.is_told());
    }

    #[tokio::test]
    async fn who_is_cut_off_before_there_is_a_task_is_not_served() {
        let registry = Arc::new(Registry::new());
        let registered = enter(&registry, None, 1, 7).expect("a connection");
        let task = registered.task();
        let served = tokio::spawn(async move {
            let _registered = registered;
            std::future::pending::<()>().await;
        });
        assert_eq!((registry.cut(7), registry.cut(7)), (1, 0));
        task.is(served.abort_handle());
        let ended = tokio::time::timeout(Duration::from_secs(10), served).await.expect("at once");
        assert!(ended.is_err_and(|error| error.is_cancelled()));
        assert_eq!(registry.count(), 0);
    }

    #[tokio::test]
    async fn the_connections_of_a_listener_are_cut_alone() {
        let registry = Arc::new(Registry::new());
        let tasks: Vec<_> = [7, 7, 8]
            .into_iter()
            .map(|listener| {
                let registered = enter(&registry, None, 1, listener).expect("a connection");
                let task = registered.task();
                let served = tokio::spawn(async move {
                    let _registered = registered;
                    std::future::pending::<()>().await;
                });
                task.is(served.abort_handle());
                served
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!((registry.cut(7), registry.cut(7)), (2, 0));
        for (at, task) in tasks.into_iter().enumerate() {
            assert_eq!(at < 2, tokio::time::timeout(Duration::from_millis(50), task).await.is_ok());
        }
        assert_eq!(registry.count(), 1);
    }
}
