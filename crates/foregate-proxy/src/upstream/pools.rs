//! The pools of all upstreams. Servers with equal connection parameters share a pool.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use foregate_wire::HeadLimits;
use parking_lot::Mutex;

use super::pool::ServerPool;
use crate::address::ServerAddress;
use crate::counters::metrics::ShardedGauge;
use crate::settings::{ProxyProtocolVersion, UpstreamProtocol};
use crate::tls::Connector;

/// The connection parameters of a server. Servers with equal parameters share connections, even across
/// upstreams and reloads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub address: ServerAddress,
    pub protocol: UpstreamProtocol,
    pub tls: Option<Connector>,
    pub send_proxy: Option<ProxyProtocolVersion>,
    /// The nameservers that resolve the server's name.
    pub resolver: Option<Arc<[SocketAddr]>>,
    /// The limits on heads, which are fixed for an HTTP/2 connection when it is made.
    pub head_limits: Option<HeadLimits>,
}

/// All pools of the process.
#[derive(Debug, Default)]
pub struct Pools {
    pools: Mutex<HashMap<PoolKey, Weak<ServerPool>>>,
    idle: Arc<ShardedGauge>,
}

impl Pools {
    /// The pool for a server. A new one is created if none is in use.
    pub(super) fn get(&self, key: PoolKey) -> Arc<ServerPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        let pool = Arc::new(ServerPool::new(&self.idle));
        pools.insert(key, Arc::downgrade(&pool));
        pool
    }

    /// Forgets the pools that are no longer used. Scans all pools.
    pub(super) fn forget_unused(&self) {
        self.pools.lock().retain(|_, pool| pool.strong_count() > 0);
    }

    /// Closes all connections that are idle.
    pub(super) fn close_idle(&self) {
        let pools: Vec<_> = self.pools.lock().values().filter_map(Weak::upgrade).collect();
        pools.iter().for_each(|pool| pool.close_idle());
    }

    /// Closes the connection that has been idle for longest in any pool, to make room for another.
    /// Returns false if there was none. This scans all pools, so it is only for times when descriptors
    /// are scarce.
    pub fn evict(&self) -> bool {
        while self.idle() > 0 {
            let oldest = {
                let pools = self.pools.lock();
                let ages = pools.values().filter_map(Weak::upgrade);
                ages.filter_map(|pool| Some((pool.oldest()?, pool))).min_by_key(|(since, _)| *since)
            };
            match oldest {
                None => return false,
                Some((_, pool)) if pool.evict() => return true,
                // Another thread has taken the connection meanwhile.
                Some(_) => {}
            }
        }
        false
    }

    /// The number of idle connections. It scans no pools, because every request of a busy client may call
    /// it.
    pub fn idle(&self) -> usize {
        // The sum may be negative for a moment, because the gauge's parts are not read at once.
        usize::try_from(self.idle.get()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::net::UnixStream;

    use super::*;
    use crate::link::H1Link;
    use crate::transport::stream::{Socket, Stream};
    use crate::upstream::idle::{Ages, ConnectionStart};
    use crate::upstream::shared::SharedConnection;

    fn key(path: &str) -> PoolKey {
        let address = ServerAddress::Unix(path.into());
        PoolKey {
            address,
            protocol: UpstreamProtocol::Http1,
            tls: None,
            send_proxy: None,
            resolver: None,
            head_limits: None,
        }
    }

    fn connection(born: Instant) -> ((Box<H1Link>, Box<ConnectionStart>), UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        let link = Box::new(H1Link::new(Stream::Plain(Socket::from(ours))));
        ((link, ConnectionStart::new(born, None)), peer)
    }

    /// The number of idle connections, counted one by one.
    fn looked_at(pools: &Pools) -> usize {
        pools.pools.lock().values().filter_map(Weak::upgrade).map(|pool| pool.count_idle()).sum()
    }

    /// Numbers that look random, and are the same each time.
    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        }
    }

    #[tokio::test]
    async fn what_is_idle_is_counted_as_it_comes_and_goes() {
        const EACH: usize = 40;
        let pools = Pools::default();
        let of_all: Vec<_> = (0..3).map(|number| pools.get(key(&number.to_string()))).collect();
        let now = Instant::now();
        let (mut connections, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..4 * EACH {
            let (connection, peer) = connection(now);
            connections.push(connection);
            peers.push(peer);
        }
        let mut shared = Vec::new();
        for _ in 0..4 * EACH {
            shared.push(SharedConnection::unanswered(now).await);
        }
        let ages = |second| Ages { idle: Duration::from_secs(second), total: Duration::from_secs(60) };
        // Threads, so that concurrent changes of a connection are counted once.
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let mut connections: Vec<_> = connections.drain(..EACH).collect();
                let mut shared: Vec<_> = shared.drain(..EACH).collect();
                let (of_all, pools, runtime) = (&of_all, &pools, tokio::runtime::Handle::current());
                scope.spawn(move || {
                    let _runtime = runtime.enter();
                    let (mut number, mut leases) = (numbers(seed), Vec::new());
                    for _ in 0..20_000 {
                        let pool = &of_all[number(3) as usize];
                        match number(64) {
                            0 => pool.sweep(now + Duration::from_secs(9), ages(10 - number(2))),
                            1 => pool.retire(now, |_| true),
                            2 => drop(pools.evict()),
                            3..6 => shared.pop().into_iter().for_each(|shared| pool.share(shared)),
                            6..30 => leases.extend(pool.lease(now, ages(60))),
                            30..40 => connections.extend(pool.take(now, ages(60), None)),
                            40..50 => connections
                                .pop()
                                .into_iter()
                                .for_each(|(link, made)| pool.put(link, made, now, 20)),
                            _ => drop(leases.pop()),
                        }
                    }
                });
            }
        });
        assert_eq!(pools.idle(), looked_at(&pools));
        let pool = &of_all[0];
        let mut leases = Vec::new();
        for _ in 0..2 {
            pool.share(SharedConnection::unanswered(now).await);
            let (link, made) = connection(now).0;
            pool.put(link, made, now, 20);
            leases.extend(pool.lease(now, ages(60)));
        }
        assert!(pools.idle() >= 3);
        assert_eq!(pools.idle(), looked_at(&pools));
        drop(of_all);
        assert_eq!(pools.idle(), 0, "with the pools go the connections");
        drop(leases);
        assert_eq!(pools.idle(), 0);
    }

    #[tokio::test]
    async fn the_oldest_of_all_goes_first() {
        let pools = Pools::default();
        let (one, other) = (pools.get(key("/one")), pools.get(key("/other")));
        assert!(Arc::ptr_eq(&one, &pools.get(key("/one"))) && !pools.evict());
        let start = Instant::now();
        let mut peers = Vec::new();
        for (second, pool) in [(0, &one), (1, &other), (2, &one)] {
            let ((link, made), peer) = connection(start);
            peers.push(peer);
            pool.put(link, made, start + Duration::from_secs(second), 10);
        }
        assert_eq!(pools.idle(), 3);
        for closed in 0..3 {
            assert!(pools.evict());
            peers[closed].readable().await.unwrap();
            let ended = |peer: &UnixStream| matches!(peer.try_read(&mut [0]), Ok(0));
            assert_eq!(peers.iter().filter(|peer| ended(peer)).count(), closed + 1);
            assert!(ended(&peers[closed]));
        }
        assert!(!pools.evict() && pools.idle() == 0);
    }
}
