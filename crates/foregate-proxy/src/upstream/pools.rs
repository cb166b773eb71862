//! The pools of all upstreams, found by what connections to a server have in common.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foregate_wire::HeadLimits;
use parking_lot::Mutex;

use super::Pool;
use crate::address::ServerAddress;
use crate::settings::{ProxyProtocolVersion, UpstreamProtocol};
use crate::tls::Connector;

/// What must be equal for two servers to share connections, across upstreams and reloads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub address: ServerAddress,
    pub protocol: UpstreamProtocol,
    pub tls: Option<Connector>,
    pub send_proxy: Option<ProxyProtocolVersion>,
    /// To which connections over HTTP/2 hold from when they are made.
    pub head_limits: Option<HeadLimits>,
}

/// All pools of the process.
#[derive(Debug, Default)]
pub struct Pools(Mutex<HashMap<PoolKey, Weak<Pool>>>);

impl Pools {
    /// The pool for a server, a new one where nobody has it.
    pub(super) fn get(&self, key: PoolKey) -> Arc<Pool> {
        let mut pools = self.0.lock();
        pools.retain(|_, pool| pool.strong_count() > 0);
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        let pool = Arc::new(Pool::default());
        pools.insert(key, Arc::downgrade(&pool));
        pool
    }

    /// Closes the connection that has been idle for longest, whoever it belongs to, to make room for another; whether there was
    /// one. Looks at all pools: for when descriptors are scarce.
    pub fn evict(&self) -> bool {
        loop {
            let oldest = {
                let pools = self.0.lock();
                let ages = pools.values().filter_map(Weak::upgrade);
                ages.filter_map(|pool| Some((pool.oldest()?, pool))).min_by_key(|(since, _)| *since)
            };
            match oldest {
                None => return false,
                Some((_, pool)) if pool.evict() => return true,
                // Somebody has taken it meanwhile.
                Some(_) => {}
            }
        }
    }

    /// How many connections are idle. Looks at all pools, as [`evict`](Self::evict) does.
    pub fn idle(&self) -> usize {
        self.0.lock().values().filter_map(Weak::upgrade).map(|pool| pool.idle()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::net::UnixStream;

    use super::*;
    use crate::link::{H1Link, Socket, Stream};
    use crate::upstream::pool::Made;

    fn key(path: &str) -> PoolKey {
        let address = ServerAddress::Unix(path.into());
        PoolKey { address, protocol: UpstreamProtocol::Http1, tls: None, send_proxy: None, head_limits: None }
    }

    #[tokio::test]
    async fn the_oldest_of_all_goes_first() {
        let pools = Pools::default();
        let (one, other) = (pools.get(key("/one")), pools.get(key("/other")));
        assert!(Arc::ptr_eq(&one, &pools.get(key("/one"))) && !pools.evict());
        let start = Instant::now();
        let mut peers = Vec::new();
        for (second, pool) in [(0, &one), (1, &other), (2, &one)] {
            let (ours, peer) = UnixStream::pair().unwrap();
            peers.push(peer);
            let link = Box::new(H1Link::new(Stream::Plain(Socket::from(ours))));
            let made = Box::new(Made { born: start, address: None, of_client: None });
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
