//! The connections of clients: how many there are, of whom, and how to reach them for a graceful end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use foregate_wire::client_network;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Parts of the table that are locked on their own.
const SHARDS: usize = 16;

/// The connections of clients.
#[derive(Debug)]
pub struct Registry {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
    next: AtomicUsize,
    emptied: Notify,
    /// Whether a listener waits for a connection to end, and how it is told.
    awaited: AtomicBool,
    left: Notify,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<usize, Arc<Entry>, foldhash::fast::RandomState>,
    clients: HashMap<IpAddr, Arc<Holdings>, foldhash::fast::RandomState>,
}

/// What the connections of one client, or of its network, have together.
#[derive(Debug)]
pub struct Holdings {
    network: IpAddr,
    connections: AtomicUsize,
    /// Connections to origins that serve it.
    pub origins: AtomicUsize,
}

impl Holdings {
    /// Nothing, of the client with this address.
    pub fn new(client: IpAddr) -> Self {
        let network = client_network(client);
        Self { network, connections: AtomicUsize::new(0), origins: AtomicUsize::new(0) }
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Entry {
    listener: usize,
    waker: Mutex<Option<Waker>>,
    told: AtomicBool,
    task: Mutex<ServedBy>,
}

/// What serves a connection.
#[derive(Debug, Default)]
enum ServedBy {
    /// It has been accepted just now.
    #[default]
    Unknown,
    Task(AbortHandle),
    /// Nothing: it has been cut off, if only before it had a task.
    Cut,
}

impl Registry {
    /// No connections yet.
    pub fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            emptied: Notify::new(),
            awaited: AtomicBool::new(false),
            left: Notify::new(),
        }
    }

    /// Takes note of a connection, unless its client has `most` of them already.
    ///
    /// `listener` tells the connections of one listener from those of others.
    pub fn enter(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        most: usize,
        listener: usize,
    ) -> Option<Registered> {
        let holdings = match client {
            Some(client) => Some(self.hold(client, most)?),
            None => None,
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry { listener, ..Entry::default() });
        self.shards[id % SHARDS].lock().entries.insert(id, Arc::clone(&entry));
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(Registered { registry: Arc::clone(self), id, holdings, entry })
    }

    /// Counts one connection more of a client, unless it has `most` of them already.
    fn hold(&self, client: IpAddr, most: usize) -> Option<Arc<Holdings>> {
        let network = client_network(client);
        let mut shard = self.client_shard(network).lock();
        let holdings = shard.clients.entry(network).or_insert_with(|| Arc::new(Holdings::new(client)));
        if holdings.connections() >= most {
            return None;
        }
        holdings.connections.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(holdings))
    }

    /// How many connections a client has, with the others of its network.
    pub fn of(&self, client: IpAddr) -> usize {
        let client = client_network(client);
        let shard = self.client_shard(client).lock();
        shard.clients.get(&client).map_or(0, |holdings| holdings.connections())
    }

    /// How many connections there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Has all connections end gracefully, or those of one listener.
    pub fn drain(&self, listener: Option<usize>) {
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().entries.values().cloned().collect();
            for entry in entries.iter().filter(|entry| listener.is_none_or(|wanted| wanted == entry.listener))
            {
                entry.told.store(true, Ordering::SeqCst);
                if let Some(waker) = entry.waker.lock().take() {
                    waker.wake();
                }
            }
        }
    }

    /// Ends what is left of the connections of one listener at once; how many that were.
    pub fn cut(&self, listener: usize) -> usize {
        let mut cut = 0;
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().entries.values().cloned().collect();
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

    /// Has all idle connections look again whether they shall go on.
    pub fn wake(&self) {
        for shard in &self.shards {
            let entries: Vec<_> = shard.lock().entries.values().cloned().collect();
            for waker in entries.iter().filter_map(|entry| entry.waker.lock().take()) {
                waker.wake();
            }
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
            // What is over by then is over: whoever waits looks again.
            let _ = tokio::time::timeout(pause, left).await;
        }
    }

    fn client_shard(&self, client: IpAddr) -> &Mutex<Shard> {
        let bits = match client {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u32 ^ (address.to_bits() >> 96) as u32,
        };
        &self.shards[(bits ^ (bits >> 16) ^ (bits >> 8)) as usize % SHARDS]
    }
}

impl Registered {
    /// Counts the connection as one of `client`'s, unless that one has `most` of them already.
    pub fn attribute(&mut self, client: IpAddr, most: usize) -> bool {
        if self.holdings.is_none() {
            self.holdings = self.registry.hold(client, most);
        }
        self.holdings.is_some()
    }

    /// What the client has, with its other connections; `None` if it is not known who that is.
    pub fn holdings(&self) -> Option<&Arc<Holdings>> {
        self.holdings.as_ref()
    }
}

/// A connection that is taken note of for as long as this value lives.
#[derive(Debug)]
pub struct Registered {
    registry: Arc<Registry>,
    id: usize,
    holdings: Option<Arc<Holdings>>,
    entry: Arc<Entry>,
}

impl Registered {
    /// Where to say which task serves the connection, once there is one.
    pub fn task(&self) -> Task {
        Task(Arc::clone(&self.entry))
    }

    /// Has the connection end gracefully, before its task has begun.
    pub fn tell(&self) {
        self.entry.told.store(true, Ordering::SeqCst);
    }

    /// Whether the connection shall end gracefully.
    pub fn is_told(&self) -> bool {
        self.entry.told.load(Ordering::SeqCst)
    }

    /// Whether the connection shall end gracefully; if not, the task is woken when it shall.
    pub fn poll_told(&self, cx: &mut Context<'_>) -> bool {
        if self.entry.told.load(Ordering::SeqCst) {
            return true;
        }
        let mut waker = self.entry.waker.lock();
        match &mut *waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            waker => *waker = Some(cx.waker().clone()),
        }
        drop(waker);
        self.entry.told.load(Ordering::SeqCst)
    }
}

/// Where the task of a connection belongs.
#[derive(Debug)]
pub struct Task(Arc<Entry>);

impl Task {
    /// This one serves the connection, unless that has been cut off already.
    pub fn is(self, task: AbortHandle) {
        match &mut *self.0.task.lock() {
            ServedBy::Cut => task.abort(),
            served_by => *served_by = ServedBy::Task(task),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.shards[self.id % SHARDS].lock().entries.remove(&self.id);
        if let Some(holdings) = &self.holdings {
            let mut shard = self.registry.client_shard(holdings.network).lock();
            if holdings.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
                // What its streams still have is about to end with the connection.
                shard.clients.remove(&holdings.network);
            }
        }
        if self.registry.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.registry.emptied.notify_waiters();
        }
        if self.registry.awaited.load(Ordering::SeqCst) && self.registry.awaited.swap(false, Ordering::SeqCst)
        {
            self.registry.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_connections_and_no_more() {
        let registry = Arc::new(Registry::new());
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        let first = registry.enter(client, 2, 0).expect("the first");
        let _second = registry.enter(client, 2, 0).expect("the second");
        assert!(registry.enter(client, 2, 0).is_none());
        assert!(registry.enter(Some(IpAddr::from([192, 0, 2, 2])), 2, 1).is_some());
        assert_eq!(registry.of(IpAddr::from([192, 0, 2, 1])), 2);
        drop(first);
        assert!(registry.enter(client, 2, 0).is_some());
        assert_eq!(registry.count(), 1);
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_of_it() {
        let registry = Arc::new(Registry::new());
        let (first, _second) = (registry.enter(None, 2, 0), registry.enter(None, 2, 0));
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
        let here = registry.enter(None, 1, 7).expect("one");
        let there = registry.enter(None, 1, 8).expect("another");
        registry.drain(Some(7));
        assert!(here.is_told() && !there.is_told());
        registry.drain(None);
        assert!(there.is_told());
    }

    #[tokio::test]
    async fn who_is_cut_off_before_there_is_a_task_is_not_served() {
        let registry = Arc::new(Registry::new());
        let registered = registry.enter(None, 1, 7).expect("a connection");
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
                let registered = registry.enter(None, 1, listener).expect("a connection");
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
