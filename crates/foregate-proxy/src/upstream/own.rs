//! Connections to origins that were made for one connection of a client, and serve no other: their PROXY header says whose they are.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Pool;

/// Servers at which a client's connection has such connections wait for its next request. At others they end with the request.
const SERVERS_MOST: usize = 16;

/// What a connection of a client has kept in pools. It is closed with that connection.
#[derive(Debug, Default)]
pub struct Own(Mutex<Vec<Weak<Pool>>>);

impl Own {
    /// Whether a connection may be kept in this pool.
    pub(super) fn keeps_in(&self, pool: &Arc<Pool>) -> bool {
        let mut pools = self.0.lock();
        if pools.iter().any(|kept_in| std::ptr::eq(kept_in.as_ptr(), &**pool)) {
            return true;
        }
        // Those of servers that are gone, with a reload or as names changed, have nothing any more.
        if pools.len() >= SERVERS_MOST {
            pools.retain(|kept_in| kept_in.strong_count() > 0);
        }
        if pools.len() >= SERVERS_MOST {
            return false;
        }
        pools.push(Arc::downgrade(pool));
        true
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let own: *const Self = self;
        for pool in self.0.get_mut().iter().filter_map(Weak::upgrade) {
            pool.drop_own(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::net::UnixStream;

    use super::*;
    use crate::link::{H1Link, Socket, Stream};
    use crate::upstream::pool::{Ages, Made};

    fn keep(pool: &Pool, own: &Arc<Own>, now: Instant) -> UnixStream {
        let (ours, peer) = UnixStream::pair().unwrap();
        let mut made = Made::new(now, None);
        made.own = Arc::downgrade(own);
        pool.put(Box::new(H1Link::new(Stream::Plain(Socket::from(ours)))), made, now, 10);
        peer
    }

    #[tokio::test]
    async fn each_has_its_own_until_it_ends() {
        let (pool, now) = (Arc::new(Pool::new(&Arc::default())), Instant::now());
        let (one, other) = (Arc::new(Own::default()), Arc::new(Own::default()));
        let ages = Ages { idle: Duration::from_secs(60), total: Duration::from_secs(60) };
        assert!(one.keeps_in(&pool) && one.keeps_in(&pool));
        let peers = [keep(&pool, &one, now), keep(&pool, &one, now)];
        assert!(pool.take(now, ages, Some(&other)).is_none());
        let taken = pool.take(now, ages, Some(&one));
        assert!(taken.is_some());
        drop(one);
        assert!(pool.oldest().is_none());
        peers[0].readable().await.unwrap();
        assert!(matches!(peers[0].try_read(&mut [0]), Ok(0)));
        assert!(peers[1].try_read(&mut [0]).is_err(), "it is in use");
    }

    #[test]
    fn it_is_kept_at_so_many_servers() {
        let own = Own::default();
        let mut pools: Vec<_> = (0..=SERVERS_MOST).map(|_| Arc::new(Pool::new(&Arc::default()))).collect();
        let kept = |pool: &Arc<Pool>| own.keeps_in(pool);
        assert_eq!(pools.iter().filter(|pool| kept(pool)).count(), SERVERS_MOST);
        assert!(kept(&pools[0]), "there it was before");
        pools.remove(1);
        assert!(kept(&pools[SERVERS_MOST - 1]), "one of the others is gone");
    }
}
