//! The idle connections to one origin server, shared by all threads.
//!
//! HTTP/1 connections are used last-in first-out, so that surplus connections grow old and are closed.
//! If the origin closes idle connections early, the connections that the load needs take turns
//! (`idle_limit.rs`). HTTP/2 connections are shared: each request is a stream.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::excess::Excess;
use super::idle::{Ages, ConnectionStart, Idle, IdleLists, OpenCount};
use super::idle_limit::IdleLimit;
use super::own::OwnConnections;
use super::queue::ConnectQueue;
use super::shared::{Lease, STREAMS_AT_FIRST, SharedConnection};
use super::wear::Wear;
use crate::counters::metrics::ShardedGauge;
use crate::link::H1Link;
use crate::time::clock;
use crate::transport::stream::IdleState;

/// If connections allow no more streams than this, each stream counts as a connection of its client.
/// Otherwise a client could use up the descriptors of others with such connections.
const FEW_STREAMS: u32 = 8;
/// After a connection has reached its limit of resets, new connections are made ahead of demand for this
/// time.
const WEARS_FOR: Duration = Duration::from_secs(10);
/// The longest wait for the SETTINGS of a new connection that is full. It is worth waiting for them,
/// because they may allow more streams and arrive with the connection's first bytes.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

/// Connections to one origin server.
#[derive(Debug)]
pub struct ServerPool {
    idle: Mutex<IdleLists>,
    /// The number of open HTTP/1 connections, including those in use.
    open: Arc<AtomicUsize>,
    pub(super) idle_limit: IdleLimit,
    shared: Mutex<Vec<Arc<SharedConnection>>>,
    /// The requests that wait for a shared connection.
    pub(super) queue: Arc<ConnectQueue>,
    /// True if the connection that was made last uses HTTP/1.
    pub(super) speaks_http1: AtomicBool,
    /// The number of streams that a connection allows, according to the last SETTINGS; 0 before the first.
    pub(super) streams: Arc<AtomicU32>,
    wear: Mutex<Wear>,
    /// The number of idle connections in all pools.
    all_idle: Arc<ShardedGauge>,
    /// The record of bytes that the server sent after the end of a response.
    pub(super) excess: Excess,
}

impl ServerPool {
    /// A pool without connections. Idle connections are counted in `all_idle`.
    pub fn new(all_idle: &Arc<ShardedGauge>) -> Self {
        Self {
            idle: Mutex::default(),
            open: Arc::default(),
            idle_limit: IdleLimit::default(),
            shared: Mutex::default(),
            queue: Arc::default(),
            speaks_http1: AtomicBool::new(false),
            streams: Arc::default(),
            wear: Mutex::default(),
            all_idle: Arc::clone(all_idle),
            excess: Excess::new(),
        }
    }

    /// Returns true if an idle connection in this state has no input. Input is recorded as excess bytes.
    fn is_quiet(&self, state: IdleState, now: Instant) -> bool {
        if state == IdleState::Excess {
            self.excess.note(now);
        }
        state == IdleState::Quiet
    }

    /// Learns the origin's idle limit from the state in which an idle connection is found.
    fn learn(&self, entry: &Idle, state: IdleState, now: Instant) {
        match state {
            IdleState::Ended => self.idle_limit.closed_after(now.saturating_duration_since(entry.since)),
            IdleState::Quiet if self.idle_limit.get().is_some() => {
                self.idle_limit.open_after(now.saturating_duration_since(entry.since));
            }
            IdleState::Quiet | IdleState::Excess => {}
        }
    }

    /// Counts a connection to this server among the open ones from now on.
    pub(super) fn count_open(&self, made: &mut ConnectionStart) {
        made.open = Some(OpenCount::count(&self.open));
    }

    /// Takes an idle connection with its facts: the one used last, or the oldest one if the origin would
    /// close it soon (see `idle_limit.rs`). With `own`, only connections that belong to that client
    /// connection are taken. Connections that have died or have input are dropped on the way. The kernel
    /// is asked for input, because bytes that the event loop has not reported yet would be taken for the
    /// response to the next request.
    pub fn take(
        &self,
        now: Instant,
        ages: Ages,
        own: Option<&Arc<OwnConnections>>,
    ) -> Option<(Box<H1Link>, Box<ConnectionStart>)> {
        loop {
            let limit = self.idle_limit.get();
            let mut entry = match own {
                None => self.idle.lock().pop_common(limit, self.open.load(Ordering::Relaxed), now)?,
                Some(own) => self.idle.lock().pop_own(Arc::as_ptr(own))?,
            };
            self.all_idle.add(-1);
            let fresh = clock::is_within(now, entry.since, ages.idle)
                && clock::is_within(now, entry.made.born, ages.total);
            let state = entry.link.stream_mut().look_now();
            self.learn(&entry, state, now);
            if self.is_quiet(state, now) && fresh {
                return Some((entry.link, entry.made));
            }
        }
    }

    /// Returns true if there is an idle connection that belongs to this client connection.
    pub(super) fn has_own(&self, own: &Arc<OwnConnections>) -> bool {
        let own = Arc::as_ptr(own);
        self.idle.lock().own.iter().any(|entry| entry.is_of(own))
    }

    /// Drops the idle connections that belong to a client connection, because it has ended.
    pub fn drop_own(&self, own: *const OwnConnections) {
        self.drop_idle(|entry| entry.is_of(own));
    }

    /// Keeps a connection for the next request. If there are more than `most`, the oldest one is closed.
    pub fn put(&self, mut link: Box<H1Link>, made: Box<ConnectionStart>, now: Instant, most: usize) {
        link.release();
        let evicted = {
            let mut idle = self.idle.lock();
            idle.push(Idle { link, made, since: now });
            if idle.len() > most { idle.pop_for_room() } else { None }
        };
        if evicted.is_none() {
            self.all_idle.add(1);
        }
    }

    /// Drops connections that are too old or have died, and forgets closed HTTP/2 connections.
    pub fn sweep(&self, now: Instant, ages: Ages) {
        let gone = |entry: &mut Idle| {
            let state = entry.link.look();
            self.learn(entry, state, now);
            !self.is_quiet(state, now)
                || now.saturating_duration_since(entry.since) >= ages.idle
                || now.saturating_duration_since(entry.made.born) >= ages.total
        };
        self.drop_idle(gone);
        retain(&mut self.shared.lock(), |shared| {
            let idle = shared.streams.load(Ordering::Relaxed) == 0;
            let old = now.saturating_duration_since(shared.born) >= ages.total
                || now.saturating_duration_since(shared.rest.lock().since) >= ages.idle;
            shared.takes_more() && !(idle && old)
        });
    }

    /// Drops idle connections that were made before `moved` to an address that is `gone`. HTTP/2
    /// connections to such an address accept no more streams.
    pub fn retire(&self, moved: Instant, gone: impl Fn(IpAddr) -> bool) {
        retain(&mut self.shared.lock(), |shared| {
            let retired = shared.born < moved && shared.address.is_some_and(&gone);
            if retired {
                shared.close();
            }
            !retired
        });
        self.drop_idle(|entry| entry.made.born < moved && entry.made.address.is_some_and(&gone));
    }

    /// Closes all idle connections. HTTP/2 connections end with their last streams.
    pub(super) fn close_idle(&self) {
        let shared = std::mem::take(&mut *self.shared.lock());
        shared.iter().for_each(|shared| shared.close());
        self.drop_idle(|_| true);
    }

    fn drop_idle(&self, gone: impl Fn(&mut Idle) -> bool) {
        let mut dropped = Vec::new();
        let mut idle = self.idle.lock();
        let IdleLists { common, own, .. } = &mut *idle;
        for list in [common, own] {
            let mut index = 0;
            while index < list.len() {
                if list.get_mut(index).is_some_and(&gone) {
                    dropped.extend(list.remove(index));
                } else {
                    index += 1;
                }
            }
        }
        // The connections are dropped after the lock is released, so that other threads need not wait.
        drop(idle);
        self.count_less(dropped.len());
    }

    fn count_less(&self, idle: usize) {
        self.all_idle.add(-i64::try_from(idle).unwrap_or(0));
    }

    /// The time since which the longest idle connection has been idle.
    pub fn oldest(&self) -> Option<Instant> {
        let idle = self.idle.lock().oldest();
        let shared = self.shared.lock().iter().filter_map(|shared| shared.idle_since()).min();
        idle.into_iter().chain(shared).min()
    }

    /// Closes the connection that has been idle for longest. Returns true if there was one. An HTTP/2
    /// connection ends a little later.
    pub fn evict(&self) -> bool {
        let oldest = self.oldest();
        let mut shared = self.shared.lock();
        // No stream can be opened on it meanwhile: that needs the list, which is locked.
        let is_oldest =
            |shared: &Arc<SharedConnection>| shared.idle_since().is_some_and(|since| Some(since) == oldest);
        if let Some(at) = shared.iter().position(is_oldest) {
            let evicted = shared.remove(at);
            evicted.is_hidden();
            evicted.close();
            return true;
        }
        drop(shared);
        let evicted = self.idle.lock().pop_oldest();
        self.count_less(usize::from(evicted.is_some()));
        evicted.is_some()
    }

    /// A place for a stream, on a connection that has room for one more.
    pub fn lease(&self, now: Instant, ages: Ages) -> Option<Lease> {
        let mut shared = self.shared.lock();
        retain(&mut shared, |shared| {
            if shared.resets_left() == 0 {
                self.wear.lock().out(now);
            }
            shared.takes_more()
        });
        shared
            .iter()
            .filter(|shared| now.saturating_duration_since(shared.born) < ages.total)
            .find_map(SharedConnection::lease)
    }

    /// Waits a moment for the SETTINGS of the latest connection, unless its stream limit is known.
    pub async fn settled(&self) {
        let latest = self.shared.lock().last().filter(|shared| shared.is_to_be_waited_for()).cloned();
        if let Some(shared) = latest {
            let _ = tokio::time::timeout(SETTLED_WITHIN, shared.settled()).await;
        }
    }

    /// The number of streams that a new connection may open before its SETTINGS arrive, and the place to
    /// store the limit from its SETTINGS.
    pub fn streams_at_first(&self) -> (u32, Arc<AtomicU32>) {
        let said = self.streams.load(Ordering::Relaxed);
        (if said == 0 { STREAMS_AT_FIRST } else { said }, Arc::clone(&self.streams))
    }

    /// The number of streams that a connection allows, according to the last SETTINGS.
    pub(super) fn streams_said(&self) -> Option<u32> {
        Some(self.streams.load(Ordering::Relaxed)).filter(|said| *said > 0)
    }

    /// Returns true if connections accept only a few streams.
    pub(super) fn takes_few_streams(&self) -> bool {
        self.streams_said().is_some_and(|said| said <= FEW_STREAMS)
    }

    /// Returns true if a connection has recently reached its limit of resets.
    pub(super) fn wears_out(&self, now: Instant) -> bool {
        let last = self.wear.lock().last;
        last.is_some_and(|(last, _)| now.saturating_duration_since(last) < WEARS_FOR)
    }

    /// The number of connections that should be made now to replace those that reach their limit of
    /// resets.
    pub(super) fn missing(&self, now: Instant) -> u32 {
        let is_fresh = |shared: &&Arc<SharedConnection>| shared.takes_more() && !shared.is_short();
        let fresh = self.shared.lock().iter().filter(is_fresh).count();
        self.wear.lock().needed(now).saturating_sub(u32::try_from(fresh).unwrap_or(u32::MAX))
    }

    /// Records that a connection could not be made.
    pub(super) fn has_failed(&self, now: Instant) {
        self.wear.lock().failed = Some(now);
    }

    /// Records the protocol of a connection, and the time that it took to open.
    pub(super) fn has_made(&self, is_http1: bool, took: Duration) {
        self.speaks_http1.store(is_http1, Ordering::Relaxed);
        let mut wear = self.wear.lock();
        (wear.made_in, wear.failed) = (took, None);
    }

    /// Shares a new HTTP/2 connection.
    pub fn share(&self, shared: Arc<SharedConnection>) {
        shared.is_found(&self.all_idle);
        self.shared.lock().push(shared);
    }
}

impl Drop for ServerPool {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().len();
        self.count_less(idle);
        retain(self.shared.get_mut(), |_| false);
    }
}

/// Drops connections that fail the predicate.
fn retain(shared: &mut Vec<Arc<SharedConnection>>, is_kept: impl Fn(&SharedConnection) -> bool) {
    shared.retain(|shared| {
        let is_kept = is_kept(shared);
        if !is_kept {
            shared.is_hidden();
        }
        is_kept
    });
}

#[cfg(test)]
impl ServerPool {
    /// The number of idle connections, counted one by one.
    pub fn count_idle(&self) -> usize {
        let has_no_stream = |shared: &&Arc<SharedConnection>| shared.streams.load(Ordering::Acquire) == 0;
        self.idle.lock().len() + self.shared.lock().iter().filter(has_no_stream).count()
    }
}
