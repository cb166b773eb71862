//! Connections to origins that belong to one client connection and serve no other: either their PROXY
//! header names the client, or the client has authenticated on them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pool::ServerPool;

/// The most servers at which a client connection keeps connections of its own. At further servers, such
/// connections end with the request.
const SERVERS_MOST: usize = 16;

/// The connections to origins that belong to one connection of a client, and end with it.
#[derive(Debug, Default)]
pub struct OwnConnections(Mutex<Vec<OwnServer>>);

/// A server to which a client connection has, or had, connections of its own.
#[derive(Debug)]
struct OwnServer {
    pool: Weak<ServerPool>,
    /// The right to use the connection on which the client authenticates; `None` if it does not
    /// authenticate at this server.
    turn: Option<Arc<Semaphore>>,
}

impl OwnServer {
    fn is_at(&self, pool: &Arc<ServerPool>) -> bool {
        std::ptr::eq(self.pool.as_ptr(), &**pool)
    }
}

/// The right to use the connection on which a client authenticates. The requests of an HTTP/2 client
/// take turns, because the several requests of an authentication must use one connection.
#[derive(Debug)]
pub struct OwnTurn {
    _permit: OwnedSemaphorePermit,
}

impl From<OwnedSemaphorePermit> for OwnTurn {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit }
    }
}

impl OwnConnections {
    /// Returns true if a connection may be kept in this pool.
    pub(super) fn keeps_in(&self, pool: &Arc<ServerPool>) -> bool {
        self.with(pool, |_| {}).is_some()
    }

    /// Records that the client authenticates at this server. From now on, the client uses connections of
    /// its own there.
    pub(super) fn authenticates_at(&self, pool: &Arc<ServerPool>) {
        self.with(pool, |server| {
            server.turn.get_or_insert_with(|| Arc::new(Semaphore::new(1)));
        });
    }

    /// Returns true if the client authenticates at this server.
    pub(super) fn is_authenticating_at(&self, pool: &Arc<ServerPool>) -> bool {
        self.turns_at(pool).is_some()
    }

    /// Returns true if the client has a connection on which it authenticates, in use or idle.
    pub(super) fn is_bound_to(self: &Arc<Self>, pool: &Arc<ServerPool>) -> bool {
        self.turns_at(pool).is_some_and(|turns| turns.available_permits() == 0 || pool.has_own(self))
    }

    /// Waits for the turn to use the connection on which the client authenticates. `None` if that takes
    /// longer than `patience`, for example because of a response that does not end. The request then uses
    /// another connection.
    pub(super) async fn turn(&self, pool: &Arc<ServerPool>, patience: Duration) -> Option<OwnTurn> {
        let turns = self.turns_at(pool)?;
        tokio::time::timeout(patience, turns.acquire_owned()).await.ok()?.ok().map(OwnTurn::from)
    }

    /// The turn for the first connection on which the client is asked to authenticate; `None` if the
    /// client has such a connection already.
    pub(super) fn first_turn(self: &Arc<Self>, pool: &Arc<ServerPool>) -> Option<OwnTurn> {
        if self.is_bound_to(pool) {
            return None;
        }
        self.turns_at(pool)?.try_acquire_owned().ok().map(OwnTurn::from)
    }

    fn turns_at(&self, pool: &Arc<ServerPool>) -> Option<Arc<Semaphore>> {
        self.0.lock().iter().find(|server| server.is_at(pool))?.turn.clone()
    }

    /// Calls `with` for the entry of a server, which is created if needed. `None` if there are too many
    /// servers.
    fn with<R>(&self, pool: &Arc<ServerPool>, with: impl FnOnce(&mut OwnServer) -> R) -> Option<R> {
        let mut servers = self.0.lock();
        if let Some(server) = servers.iter_mut().find(|server| server.is_at(pool)) {
            return Some(with(server));
        }
        // Entries of servers that no longer exist, after a reload or a change of names, are dropped first.
        if servers.len() >= SERVERS_MOST {
            servers.retain(|server| server.pool.strong_count() > 0);
        }
        if servers.len() >= SERVERS_MOST {
            return None;
        }
        let mut server = OwnServer { pool: Arc::downgrade(pool), turn: None };
        let result = with(&mut server);
        servers.push(server);
        Some(result)
    }
}

impl Drop for OwnConnections {
    fn drop(&mut self) {
        let own: *const Self = self;
        for pool in self.0.get_mut().iter().filter_map(|server| server.pool.upgrade()) {
            pool.drop_own(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::UnixStream;

    use super::*;
    use crate::link::H1Link;
    use crate::transport::stream::{Socket, Stream};
    use crate::upstream::idle::{Ages, ConnectionStart};

    const AGES: Ages = Ages { idle: Duration::from_secs(60), total: Duration::from_secs(60) };

    fn keep(pool: &ServerPool, own: Option<&Arc<OwnConnections>>, now: Instant, most: usize) -> UnixStream {
        let (ours, peer) = UnixStream::pair().unwrap();
        let mut made = ConnectionStart::new(now, None);
        made.own = own.map(Arc::downgrade);
        pool.put(Box::new(H1Link::new(Stream::Plain(Socket::from(ours)))), made, now, most);
        peer
    }

    #[tokio::test]
    async fn each_has_its_own_until_it_ends() {
        let (pool, now) = (Arc::new(ServerPool::new(&Arc::default())), Instant::now());
        let (one, other) = (Arc::new(OwnConnections::default()), Arc::new(OwnConnections::default()));
        assert!(one.keeps_in(&pool) && one.keeps_in(&pool));
        let peers = [keep(&pool, Some(&one), now, 10), keep(&pool, Some(&one), now, 10)];
        assert!(pool.take(now, AGES, Some(&other)).is_none());
        assert!(pool.take(now, AGES, None).is_none(), "they are for nobody else");
        let taken = pool.take(now, AGES, Some(&one));
        assert!(taken.is_some());
        drop(one);
        assert!(pool.oldest().is_none());
        peers[0].readable().await.unwrap();
        assert!(matches!(peers[0].try_read(&mut [0]), Ok(0)));
        assert!(peers[1].try_read(&mut [0]).is_err(), "it is in use");
    }

    #[tokio::test]
    async fn those_of_one_client_do_not_push_out_those_of_all() {
        let (pool, now) = (Arc::new(ServerPool::new(&Arc::default())), Instant::now());
        let own = Arc::new(OwnConnections::default());
        let _peers: Vec<_> = (0..4).map(|_| keep(&pool, None, now, 8)).collect();
        let _own_peers: Vec<_> = (0..40).map(|_| keep(&pool, Some(&own), now, 8)).collect();
        let common = std::iter::from_fn(|| pool.take(now, AGES, None)).count();
        let owned = std::iter::from_fn(|| pool.take(now, AGES, Some(&own))).count();
        assert_eq!((common, owned), (4, 4));
    }

    #[test]
    fn it_is_kept_at_so_many_servers() {
        let own = OwnConnections::default();
        let mut pools: Vec<_> =
            (0..=SERVERS_MOST).map(|_| Arc::new(ServerPool::new(&Arc::default()))).collect();
        let kept = |pool: &Arc<ServerPool>| own.keeps_in(pool);
        assert_eq!(pools.iter().filter(|pool| kept(pool)).count(), SERVERS_MOST);
        assert!(kept(&pools[0]), "there it was before");
        pools.remove(1);
        assert!(kept(&pools[SERVERS_MOST - 1]), "one of the others is gone");
    }

    #[tokio::test]
    async fn the_connection_on_which_a_client_authenticates_is_used_in_turns() {
        let (pool, now, soon) =
            (Arc::new(ServerPool::new(&Arc::default())), Instant::now(), Duration::from_millis(5));
        let own = Arc::new(OwnConnections::default());
        own.keeps_in(&pool);
        assert!(!own.is_authenticating_at(&pool) && own.turn(&pool, soon).await.is_none());
        own.authenticates_at(&pool);
        assert!(own.is_authenticating_at(&pool) && !own.is_bound_to(&pool));
        let turn = own.turn(&pool, soon).await;
        assert!(turn.is_some() && own.is_bound_to(&pool));
        assert!(own.turn(&pool, soon).await.is_none());
        let _peer = keep(&pool, Some(&own), now, 10);
        drop(turn);
        assert!(own.turn(&pool, soon).await.is_some());
        assert!(own.is_bound_to(&pool), "it is idle");
        assert!(pool.take(now, AGES, Some(&own)).is_some() && !own.is_bound_to(&pool));
    }
}
