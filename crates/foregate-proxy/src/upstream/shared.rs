//! Connections of HTTP/2 that requests share by stream.

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

/// Streams that are opened on one HTTP/2 connection at the same time, whatever the origin allows.
pub(super) const STREAMS_PER_CONNECTION: u32 = 100;
/// The number of streams of one HTTP/2 connection that we reset, because their clients have gone,
/// before it gets no new ones. Many origins end a connection with a few hundred resets, or with
/// many in a short time, and all of its streams with it. Open streams count as well, since each may
/// be reset.
pub(super) const RESETS_PER_CONNECTION: u32 = 100;
/// Streams on a new connection before the origin has stated its limit, if no earlier connection has
/// learned it. Further requests wait hardly longer than a connect takes; more streams might be
/// refused.
pub(super) const STREAMS_AT_FIRST: u32 = 8;

/// An HTTP/2 connection to an origin server.
#[derive(Debug)]
pub struct SharedConnection {
    sender: SendRequest<Piece>,
    /// The receiver that reports the origin's SETTINGS, until they have arrived.
    unsettled: tokio::sync::Mutex<Option<PingPong>>,
    pub(super) born: Instant,
    /// The address that it leads to, unless that is a socket file.
    pub(super) address: Option<IpAddr>,
    pub(super) streams: AtomicU32,
    /// The limit of streams until the origin has sent its own.
    streams_at_first: u32,
    /// Where others are told how many that are.
    streams_said: Arc<AtomicU32>,
    /// That the origin says so was waited for.
    waited_for: AtomicBool,
    pub(super) rest: Mutex<IdleTracker>,
    signs: Arc<Signs>,
    unread: Arc<Unread>,
    unsent: Arc<Unsent>,
    /// Tells the connection's task when nobody has it any more.
    _used: oneshot::Sender<Infallible>,
}

/// Tracks if an HTTP/2 connection is idle. One that has ended counts until its pool is scanned.
#[derive(Debug)]
pub(super) struct IdleTracker {
    /// When the last stream ended.
    pub(super) since: Instant,
    /// The gauge that counts the connection while it is idle, if it is in a pool.
    counts_in: Option<Arc<ShardedGauge>>,
    /// The stream is counted in the gauge.
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

    /// Returns true if it accepts more requests, now or once others are over.
    pub(super) fn takes_more(&self) -> bool {
        !self.signs.is_closed() && self.resets_left() > 0
    }

    /// The number of its streams that may still be reset.
    pub(super) fn resets_left(&self) -> u32 {
        RESETS_PER_CONNECTION.saturating_sub(self.signs.resets())
    }

    /// Returns true if it has little room for more streams, now and after resets of all open ones.
    pub(super) fn is_short(&self) -> bool {
        let allowed = self.streams_allowed();
        let room = allowed.min(self.resets_left()).saturating_sub(self.streams.load(Ordering::Relaxed));
        room <= allowed / 2
    }

    /// A stream's place, unless all are taken.
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

    /// The number of concurrent streams that it takes.
    fn streams_allowed(&self) -> u32 {
        let allowed = u32::try_from(self.sender.current_max_send_streams()).unwrap_or(u32::MAX);
        let allowed = allowed.min(STREAMS_PER_CONNECTION);
        if allowed != self.streams_at_first && self.streams_said.load(Ordering::Relaxed) != allowed {
            // A connection that takes no stream now may take some later.
            self.streams_said.store(allowed.max(1), Ordering::Relaxed);
        }
        allowed
    }

    /// Returns true if the origin may not have stated its stream limit yet. A request waits for it
    /// only once.
    pub(super) fn is_to_be_waited_for(&self) -> bool {
        self.takes_more()
            && self.streams_allowed() == self.streams_at_first
            && !self.waited_for.swap(true, Ordering::Relaxed)
    }

    /// Waits for the origin's SETTINGS, which come before any response (RFC 9113, section 3.4).
    pub(super) async fn settled(&self) {
        let mut unsettled = self.unsettled.lock().await;
        if let Some(pings) = &mut *unsettled {
            // A PING of an earlier waiter may be out. A failure is that of the connection, which
            // its next use meets.
            let _ = pings.send_ping(Ping::opaque());
            let _ = poll_fn(|cx| pings.poll_pong(cx)).await;
            *unsettled = None;
        }
    }

    /// Since when it has no streams; `None` while it has some, or takes no more.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Ordering::Acquire) == 0 && !self.signs.is_closed();
        is_idle.then(|| self.rest.lock().since)
    }

    /// Puts the connection in a pool: from here on it counts while it is idle.
    pub(super) fn is_found(&self, all_idle: &Arc<ShardedGauge>) {
        let mut rest = self.rest.lock();
        rest.counts_in = Some(Arc::clone(all_idle));
        self.count(&mut rest);
    }

    /// Nobody finds it any more.
    pub(super) fn is_hidden(&self) {
        let mut rest = self.rest.lock();
        if let Some(all_idle) = rest.counts_in.take()
            && std::mem::take(&mut rest.counted)
        {
            all_idle.add(-1);
        }
    }

    /// Counts the connection if it is idle now. Tasks that change its number of streams from or to
    /// zero call this afterwards, one after the other, so that the last one sees the final state.
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

    /// Returns true if streams of it were reset.
    pub fn is_worn(&self) -> bool {
        self.shared.resets_left() < RESETS_PER_CONNECTION
    }

    /// The connection refuses new streams: nobody else should try it.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Where the connection leads, unless that is a file.
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
    /// A connection with a silent origin.
    pub async fn unanswered(now: Instant) -> Arc<Self> {
        let (ours, _theirs) = tokio::io::duplex(1024);
        let (sender, mut connection) =
            h2::client::Builder::new().handshake(ours).await.expect("no answer is awaited");
        let told = (Arc::new(Signs::new(now)), Arc::default(), Arc::default());
        let streams = (STREAMS_AT_FIRST, Arc::default());
        Arc::new(Self::new(sender, connection.ping_pong(), now, None, streams, told, oneshot::channel().0))
    }
}
