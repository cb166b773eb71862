//! HTTP/2 connections that several requests share: each request is a stream.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use h2::client::SendRequest;
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::guarded::Signs;
use crate::counters::metrics::ShardedGauge;
use crate::link::unread::Unread;
use crate::link::unsent::{Piece, Unsent};
use crate::time::clock;

/// The most streams that are open on one HTTP/2 connection at the same time, even if the origin allows
/// more.
pub(super) const STREAMS_PER_CONNECTION: u32 = 100;
/// The most streams of one HTTP/2 connection that we may reset, for example because their clients have
/// left. Many origins end a connection, with all of its streams, after a few hundred resets or after
/// many resets in a short time. At this number, the connection gets no new streams. Open streams count as
/// well, because each may be reset.
pub(super) const RESETS_PER_CONNECTION: u32 = 100;
/// The most streams on a new connection before its SETTINGS have arrived, if no earlier connection has
/// learned the origin's limit. More streams might be refused. Further requests wait for the SETTINGS,
/// hardly longer than for a new connection.
pub(super) const STREAMS_AT_FIRST: u32 = 8;

/// An HTTP/2 connection to an origin server.
#[derive(Debug)]
pub struct SharedConnection {
    sender: SendRequest<Piece>,
    /// The receiver that reports the origin's SETTINGS, until they have arrived.
    unsettled: tokio::sync::Mutex<Option<PingPong>>,
    pub(super) born: Instant,
    /// The peer's address; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) streams: AtomicU32,
    /// The limit of streams that applies until the origin has sent its own.
    streams_at_first: u32,
    /// The pool's record of the origin's stream limit, for other connections.
    streams_said: Arc<AtomicU32>,
    /// True if a request has waited for the origin's stream limit.
    waited_for: AtomicBool,
    pub(super) rest: Mutex<IdleTracker>,
    signs: Arc<Signs>,
    unread: Arc<Unread>,
    unsent: Arc<Unsent>,
    /// Tells the connection's task, by being dropped, that the connection is no longer used.
    _used: oneshot::Sender<Infallible>,
}

/// Tracks if an HTTP/2 connection is idle. A connection that has ended counts as idle until its pool is
/// scanned.
#[derive(Debug)]
pub(super) struct IdleTracker {
    /// When the last stream ended.
    pub(super) since: Instant,
    /// The gauge that counts the connection while it is idle, if it is in a pool.
    counts_in: Option<Arc<ShardedGauge>>,
    /// True if the connection is counted in the gauge now.
    counted: bool,
}

impl SharedConnection {
    /// A connection without streams.
    pub fn new(
        sender: SendRequest<Piece>,
        pings: Option<PingPong>,
        now: Instant,
        address: Option<IpAddr>,
        (streams_at_first, streams_said): (u32, Arc<AtomicU32>),
        (signs, unread, unsent): (Arc<Signs>, Arc<Unread>, Arc<Unsent>),
        used: oneshot::Sender<Infallible>,
    ) -> Self {
        Self {
            sender,
            unsettled: tokio::sync::Mutex::new(pings),
            born: now,
            address,
            streams: AtomicU32::new(0),
            streams_at_first,
            streams_said,
            waited_for: AtomicBool::new(false),
            rest: Mutex::new(IdleTracker { since: now, counts_in: None, counted: false }),
            signs,
            unread,
            unsent,
            _used: used,
        }
    }

    /// Returns true if the connection accepts more requests, now or when others have ended.
    pub(super) fn takes_more(&self) -> bool {
        !self.signs.is_closed() && self.resets_left() > 0
    }

    /// The number of streams that may still be reset.
    pub(super) fn resets_left(&self) -> u32 {
        RESETS_PER_CONNECTION.saturating_sub(self.signs.resets())
    }

    /// Returns true if the connection has little room for more streams, either now or because most of its
    /// resets are used up.
    pub(super) fn is_short(&self) -> bool {
        let allowed = self.streams_allowed();
        let room = allowed.min(self.resets_left()).saturating_sub(self.streams.load(Ordering::Relaxed));
        room <= allowed / 2
    }

    /// A place for a stream; `None` if all are taken.
    pub fn lease(shared: &Arc<Self>) -> Option<Lease> {
        let most = shared.streams_allowed().min(shared.resets_left());
        let taken = shared.streams.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |streams| {
            (streams < most).then_some(streams + 1)
        });
        if taken.ok()? == 0 {
            shared.count(&mut shared.rest.lock());
        }
        shared.signs.was_asked(clock::now());
        Some(Lease { shared: Arc::clone(shared) })
    }

    /// The number of concurrent streams that the connection allows.
    fn streams_allowed(&self) -> u32 {
        let allowed = u32::try_from(self.sender.current_max_send_streams()).unwrap_or(u32::MAX);
        let allowed = allowed.min(STREAMS_PER_CONNECTION);
        if allowed != self.streams_at_first && self.streams_said.load(Ordering::Relaxed) != allowed {
            // At least 1 is recorded: 0 would mean unknown, and the origin may allow streams later.
            self.streams_said.store(allowed.max(1), Ordering::Relaxed);
        }
        allowed
    }

    /// Returns true if a request should wait for the connection's stream limit, which may not have
    /// arrived yet. True only once for each connection.
    pub(super) fn is_to_be_waited_for(&self) -> bool {
        self.takes_more()
            && self.streams_allowed() == self.streams_at_first
            && !self.waited_for.swap(true, Ordering::Relaxed)
    }

    /// Waits for the origin's SETTINGS, which come before any response (RFC 9113, section 3.4).
    pub(super) async fn settled(&self) {
        let mut unsettled = self.unsettled.lock().await;
        if let Some(pings) = &mut *unsettled {
            // This fails if a PING of an earlier waiter is unanswered, which does not matter. If the
            // connection has failed, its next use reports it.
            let _ = pings.send_ping(Ping::opaque());
            let _ = poll_fn(|cx| pings.poll_pong(cx)).await;
            *unsettled = None;
        }
    }

    /// The time since which the connection has no streams; `None` while it has some, or if it accepts no
    /// more.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Ordering::Acquire) == 0 && !self.signs.is_closed();
        is_idle.then(|| self.rest.lock().since)
    }

    /// Records that the connection is in a pool. From now on, it is counted while it is idle.
    pub(super) fn is_found(&self, all_idle: &Arc<ShardedGauge>) {
        let mut rest = self.rest.lock();
        rest.counts_in = Some(Arc::clone(all_idle));
        self.count(&mut rest);
    }

    /// Records that the connection is no longer in a pool.
    pub(super) fn is_hidden(&self) {
        let mut rest = self.rest.lock();
        if let Some(all_idle) = rest.counts_in.take()
            && std::mem::take(&mut rest.counted)
        {
            all_idle.add(-1);
        }
    }

    /// Counts the connection in the gauge exactly if it is idle now. A task that changes the number of
    /// streams from or to zero calls this afterwards, with the lock held, so the last caller sees the
    /// final state.
    fn count(&self, rest: &mut IdleTracker) {
        let Some(all_idle) = &rest.counts_in else { return };
        let is_idle = self.streams.load(Ordering::Acquire) == 0;
        if is_idle != rest.counted {
            rest.counted = is_idle;
            all_idle.add(if is_idle { 1 } else { -1 });
        }
    }

    /// Marks the connection: it takes no more requests.
    pub fn close(&self) {
        self.signs.close();
    }
}

/// A stream's place on an HTTP/2 connection; dropping it makes room for another.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<SharedConnection>,
}

impl Lease {
    /// The sender for the request.
    pub fn sender(&self) -> SendRequest<Piece> {
        self.shared.sender.clone()
    }

    /// The counter of the stream's unread bodies.
    pub fn unread(&self) -> Arc<Unread> {
        Arc::clone(&self.shared.unread)
    }

    /// The counter of the stream's output.
    pub fn unsent(&self) -> Arc<Unsent> {
        Arc::clone(&self.shared.unsent)
    }

    /// Waits for the origin's SETTINGS.
    pub async fn settled(&self) {
        self.shared.settled().await;
    }

    /// Returns true if the connection may soon accept no more streams.
    pub fn is_short(&self) -> bool {
        self.shared.is_short()
    }

    /// Returns true if streams of the connection were reset.
    pub fn is_worn(&self) -> bool {
        self.shared.resets_left() < RESETS_PER_CONNECTION
    }

    /// Marks the connection: it refuses new streams, so no other request should try it.
    pub fn close(&self) {
        self.shared.close();
    }

    /// The peer's address; `None` for a Unix socket.
    pub fn address(&self) -> Option<IpAddr> {
        self.shared.address
    }

    /// The facts about the connection.
    pub fn signs(&self) -> &Signs {
        &self.shared.signs
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.shared.streams.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut rest = self.shared.rest.lock();
            rest.since = clock::now();
            self.shared.count(&mut rest);
        }
    }
}

#[cfg(test)]
impl SharedConnection {
    /// A connection to an origin that never responds, for tests.
    pub async fn unanswered(now: Instant) -> Arc<Self> {
        let (ours, _theirs) = tokio::io::duplex(1024);
        let (sender, mut connection) =
            h2::client::Builder::new().handshake(ours).await.expect("no answer is awaited");
        let told = (Arc::new(Signs::new(now)), Arc::default(), Arc::default());
        let streams = (STREAMS_AT_FIRST, Arc::default());
        Arc::new(Self::new(sender, connection.ping_pong(), now, None, streams, told, oneshot::channel().0))
    }
}
