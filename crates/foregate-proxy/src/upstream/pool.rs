//! Connections to one origin server that wait for their next request, shared by all threads.
//!
//! HTTP/1 connections are used last-in first-out: the warmest first, and those that are not needed grow old.
//! HTTP/2 connections are shared by stream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use h2::client::SendRequest;
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::connect::Connected;
use super::excess::Excess;
use super::guarded::Signs;
use super::own::{Own, Turn};
use super::queue::Queue;
use crate::descriptors::OfClient;
use crate::link::unread::Unread;
use crate::link::unsent::{Piece, Unsent};
use crate::link::{H1Link, IdleState};
use crate::telemetry::clock;
use crate::telemetry::metrics::ShardedGauge;

/// Streams that are opened on one HTTP/2 connection at the same time, whatever the origin allows.
pub(super) const STREAMS_PER_CONNECTION: u32 = 100;
/// Streams of one HTTP/2 connection that we reset, because their clients have gone, before it gets no new ones. Many origins end
/// a connection on which there are a few hundred, or many in a short time, and all that is under way on it with them. Streams that
/// are open count as well, since each may come to be reset.
pub(super) const RESETS_PER_CONNECTION: u32 = 100;
/// Streams that are opened on a connection before the origin has said how many it takes, where none has said so yet. Those that wait
/// for more do so for little longer than a connection takes to be made; more might be refused.
const STREAMS_AT_FIRST: u32 = 8;
/// Where a connection takes no more streams than this, each counts as a connection of its client's: a client must not use up the
/// descriptors of others by one stream after the other either.
const FEW_STREAMS: u32 = 8;
/// How long after a connection has borne all its resets the next one is made before those that are there are full.
const WEARS_FOR: Duration = Duration::from_secs(10);
/// How long after a connection could not be made none is made before somebody needs it.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long a connection that has no more room is waited for to say that it has. Its SETTINGS come with its first bytes.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

/// Connections to one origin server.
#[derive(Debug)]
pub struct Pool {
    idle: Mutex<IdleLists>,
    shared: Mutex<Vec<Arc<Shared>>>,
    /// Who waits for a connection to share.
    pub(super) queue: Arc<Queue>,
    /// The connection that was made last speaks HTTP/1.
    pub(super) speaks_http1: AtomicBool,
    /// How many streams a connection takes, as one has said last; 0 before.
    streams: Arc<AtomicU32>,
    wear: Mutex<Wear>,
    /// How many connections are idle, here and in all other pools.
    all_idle: Arc<ShardedGauge>,
    /// Bytes of the server behind the ends of responses.
    pub(super) excess: Excess,
}

/// What is known of a connection of HTTP/1 from when it was made.
#[derive(Debug)]
pub struct Made {
    /// When that was.
    pub born: Instant,
    /// Where it leads, if its server's name may have several addresses: once it is broken nobody can tell.
    pub address: Option<IpAddr>,
    /// Counts it among those that serve its client; one that waits is nobody's.
    pub of_client: Option<OfClient>,
    /// The client's connection that it belongs to, where it is for no other. With one that is gone it serves nobody any more.
    pub own: Option<Weak<Own>>,
    /// The turn in which it is used, where the client authenticates on it.
    pub turn: Option<Turn>,
}

impl Made {
    /// Of a connection that is made at `born`, and leads to `address`.
    pub fn new(born: Instant, address: Option<IpAddr>) -> Box<Self> {
        Box::new(Self { born, address, of_client: None, own: None, turn: None })
    }
}

#[derive(Debug)]
struct Idle {
    link: Box<H1Link>,
    made: Box<Made>,
    since: Instant,
}

impl Idle {
    fn is_of(&self, own: *const Own) -> bool {
        self.made.own.as_ref().is_some_and(|of| std::ptr::eq(of.as_ptr(), own))
    }
}

/// The idle connections of HTTP/1, each list from the one that has been idle for longest. Those of one client's connection stand apart,
/// so that nobody else looks through them.
#[derive(Debug, Default)]
struct IdleLists {
    common: VecDeque<Idle>,
    own: VecDeque<Idle>,
}

impl IdleLists {
    fn len(&self) -> usize {
        self.common.len() + self.own.len()
    }

    fn push(&mut self, entry: Idle) {
        let list = if entry.made.own.is_some() { &mut self.own } else { &mut self.common };
        list.push_back(entry);
    }

    /// Makes room: the longer list loses its oldest, so that those of one kind do not push out the others.
    fn pop_for_room(&mut self) -> Option<Idle> {
        if self.own.len() > self.common.len() { self.own.pop_front() } else { self.common.pop_front() }
    }

    fn pop_own(&mut self, own: *const Own) -> Option<Idle> {
        let at = self.own.iter().rposition(|entry| entry.is_of(own))?;
        self.own.remove(at)
    }

    fn pop_oldest(&mut self) -> Option<Idle> {
        let since = |list: &VecDeque<Idle>| list.front().map(|entry| entry.since);
        match (since(&self.common), since(&self.own)) {
            (Some(common), Some(own)) if own < common => self.own.pop_front(),
            (None, _) => self.own.pop_front(),
            _ => self.common.pop_front(),
        }
    }

    fn oldest(&self) -> Option<Instant> {
        [&self.common, &self.own].into_iter().filter_map(|list| list.front()).map(|entry| entry.since).min()
    }
}

/// How long connections may be kept and used.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    /// Longest time without a request.
    pub idle: Duration,
    /// Longest time since the connection was made.
    pub total: Duration,
}

/// An HTTP/2 connection to an origin server.
#[derive(Debug)]
pub struct Shared {
    sender: SendRequest<Piece>,
    /// For asking whether the origin's SETTINGS have come, until they have.
    unsettled: tokio::sync::Mutex<Option<PingPong>>,
    born: Instant,
    /// Where it leads, unless that is a file.
    address: Option<IpAddr>,
    streams: AtomicU32,
    /// How many there may be until the origin has said so.
    streams_at_first: u32,
    /// Where others are told how many that are.
    streams_said: Arc<AtomicU32>,
    /// That the origin says so was waited for.
    waited_for: AtomicBool,
    rest: Mutex<Rest>,
    signs: Arc<Signs>,
    unread: Arc<Unread>,
    unsent: Arc<Unsent>,
    /// Tells the connection's task when nobody has it any more.
    _used: oneshot::Sender<Infallible>,
}

/// Whether an HTTP/2 connection is idle. One that has ended counts until its pool is looked through.
#[derive(Debug)]
struct Rest {
    /// When its last stream ended.
    since: Instant,
    /// Where it counts while it is idle, if others can find it.
    counts_in: Option<Arc<ShardedGauge>>,
    /// It counts there.
    counted: bool,
}

impl Pool {
    /// Without connections. Those that will be idle count in `all_idle`.
    pub fn new(all_idle: &Arc<ShardedGauge>) -> Self {
        Self {
            idle: Mutex::default(),
            shared: Mutex::default(),
            queue: Arc::default(),
            speaks_http1: AtomicBool::new(false),
            streams: Arc::default(),
            wear: Mutex::default(),
            all_idle: Arc::clone(all_idle),
            excess: Excess::new(),
        }
    }

    /// Whether nothing has come on an idle connection, which is in this state. What has is taken note of.
    fn is_quiet(&self, state: IdleState, now: Instant) -> bool {
        if state == IdleState::Excess {
            self.excess.note(now);
        }
        state == IdleState::Quiet
    }

    /// The connection used last, and how it was made; of those that are for one connection of a client alone, where that is `own`.
    /// Those that have died while idle, or on which anything has come, are dropped on the way: the kernel is asked, since bytes that
    /// the event loop has not heard of yet would become the response to the next request.
    pub fn take(&self, now: Instant, ages: Ages, own: Option<&Arc<Own>>) -> Option<(Box<H1Link>, Box<Made>)> {
        loop {
            let mut entry = match own {
                None => self.idle.lock().common.pop_back()?,
                Some(own) => self.idle.lock().pop_own(Arc::as_ptr(own))?,
            };
            self.all_idle.add(-1);
            let fresh = clock::is_within(now, entry.since, ages.idle)
                && clock::is_within(now, entry.made.born, ages.total);
            if self.is_quiet(entry.link.look_now(), now) && fresh {
                return Some((entry.link, entry.made));
            }
        }
    }

    /// Whether one is idle that belongs to this connection of a client.
    pub(super) fn has_own(&self, own: &Arc<Own>) -> bool {
        let own = Arc::as_ptr(own);
        self.idle.lock().own.iter().any(|entry| entry.is_of(own))
    }

    /// Drops the connections that are for this connection of a client, which has ended.
    pub fn drop_own(&self, own: *const Own) {
        self.drop_idle(|entry| entry.is_of(own));
    }

    /// Keeps a connection for the next request; beyond `most` the oldest is closed.
    pub fn put(&self, mut link: Box<H1Link>, made: Box<Made>, now: Instant, most: usize) {
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
            !self.is_quiet(entry.link.look(), now)
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

    /// Drops idle connections that were made before `moved` and lead to an address that is `gone`. Those of HTTP/2 take no more streams.
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

    fn drop_idle(&self, gone: impl Fn(&mut Idle) -> bool) {
        let mut dropped = Vec::new();
        let mut idle = self.idle.lock();
        let IdleLists { common, own } = &mut *idle;
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
        // Closed once others can go on.
        drop(idle);
        self.count_less(dropped.len());
    }

    fn count_less(&self, idle: usize) {
        self.all_idle.add(-i64::try_from(idle).unwrap_or(0));
    }

    /// Since when the connection that has been idle for longest is.
    pub fn oldest(&self) -> Option<Instant> {
        let idle = self.idle.lock().oldest();
        let shared = self.shared.lock().iter().filter_map(|shared| shared.idle_since()).min();
        idle.into_iter().chain(shared).min()
    }

    /// Closes that connection; whether there was one. One of HTTP/2 ends itself, soon after.
    pub fn evict(&self) -> bool {
        let oldest = self.oldest();
        let mut shared = self.shared.lock();
        // Streams are opened only on what is found in the list.
        let is_oldest = |shared: &Arc<Shared>| shared.idle_since().is_some_and(|since| Some(since) == oldest);
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

    /// A stream's place on a connection that has room for one more.
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
            .find_map(Shared::lease)
    }

    /// Waits for a moment for what the origin of the latest connection says of its streams, unless it has.
    pub async fn settled(&self) {
        let latest = self.shared.lock().last().filter(|shared| shared.is_to_be_waited_for()).cloned();
        if let Some(shared) = latest {
            let _ = tokio::time::timeout(SETTLED_WITHIN, shared.settled()).await;
        }
    }

    /// How many streams a new connection takes before its origin has said so, and where that is to be told.
    pub fn streams_at_first(&self) -> (u32, Arc<AtomicU32>) {
        let said = self.streams.load(Ordering::Relaxed);
        (if said == 0 { STREAMS_AT_FIRST } else { said }, Arc::clone(&self.streams))
    }

    /// How many streams a connection takes, as one has said last.
    pub(super) fn streams_said(&self) -> Option<u32> {
        Some(self.streams.load(Ordering::Relaxed)).filter(|said| *said > 0)
    }

    /// Whether connections take but a few streams.
    pub(super) fn takes_few_streams(&self) -> bool {
        self.streams_said().is_some_and(|said| said <= FEW_STREAMS)
    }

    /// Whether a connection has borne all its resets not long ago.
    pub(super) fn wears_out(&self, now: Instant) -> bool {
        let last = self.wear.lock().last;
        last.is_some_and(|(last, _)| now.saturating_duration_since(last) < WEARS_FOR)
    }

    /// How many connections should be made beside those that are there, so that one takes the place of each that has borne all its resets.
    pub(super) fn missing(&self, now: Instant) -> u32 {
        let is_fresh = |shared: &&Arc<Shared>| shared.takes_more() && !shared.is_short();
        let fresh = self.shared.lock().iter().filter(is_fresh).count();
        self.wear.lock().needed(now).saturating_sub(u32::try_from(fresh).unwrap_or(u32::MAX))
    }

    /// Takes note that a connection could not be made.
    pub(super) fn has_failed(&self, now: Instant) {
        self.wear.lock().failed = Some(now);
    }

    /// Takes note of what a connection speaks, and how long it has taken to make it.
    pub(super) fn has_made(&self, made: &Connected, took: Duration) {
        self.speaks_http1.store(matches!(made, Connected::H1(_)), Ordering::Relaxed);
        let mut wear = self.wear.lock();
        (wear.made_in, wear.failed) = (took, None);
    }

    /// Shares a new HTTP/2 connection.
    pub fn share(&self, shared: Arc<Shared>) {
        shared.is_found(&self.all_idle);
        self.shared.lock().push(shared);
    }
}

/// How soon connections take no more streams, as too many were reset, and how long it takes to make others.
#[derive(Debug, Default)]
struct Wear {
    made_in: Duration,
    /// When one last did, and how long after the one before.
    last: Option<(Instant, Duration)>,
    /// When one could not be made last.
    failed: Option<Instant>,
}

impl Wear {
    /// The most connections that are made before they are needed.
    const AHEAD: u32 = 16;

    fn out(&mut self, now: Instant) {
        let lasted = self.last.map(|(last, _)| now.saturating_duration_since(last));
        self.last = Some((now, lasted.unwrap_or(Duration::MAX)));
    }

    /// One, and as many more as wear out while one is made.
    fn needed(&self, now: Instant) -> u32 {
        if self.failed.is_some_and(|failed| now.saturating_duration_since(failed) < AFTER_FAILURE) {
            return 0;
        }
        let Some((last, lasted)) = self.last else { return 1 };
        let lasted = lasted.max(now.saturating_duration_since(last)).as_micros().max(1);
        let meanwhile = self.made_in.as_micros().div_ceil(lasted);
        1 + u32::try_from(meanwhile).unwrap_or(u32::MAX).min(Self::AHEAD)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().len();
        self.count_less(idle);
        retain(self.shared.get_mut(), |_| false);
    }
}

/// Drops what is not to be kept.
fn retain(shared: &mut Vec<Arc<Shared>>, is_kept: impl Fn(&Shared) -> bool) {
    shared.retain(|shared| {
        let is_kept = is_kept(shared);
        if !is_kept {
            shared.is_hidden();
        }
        is_kept
    });
}

impl Shared {
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
            rest: Mutex::new(Rest { since: now, counts_in: None, counted: false }),
            signs,
            unread,
            unsent,
            _used: used,
        }
    }

    /// Whether it takes more requests, now or once others are over.
    fn takes_more(&self) -> bool {
        !self.signs.is_closed() && self.resets_left() > 0
    }

    /// How many more of its streams may be reset.
    fn resets_left(&self) -> u32 {
        RESETS_PER_CONNECTION.saturating_sub(self.signs.resets())
    }

    /// Whether it has little room for more streams, now and once those that are open are reset as well.
    fn is_short(&self) -> bool {
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

    /// How many streams it takes at the same time.
    fn streams_allowed(&self) -> u32 {
        let allowed = u32::try_from(self.sender.current_max_send_streams()).unwrap_or(u32::MAX);
        let allowed = allowed.min(STREAMS_PER_CONNECTION);
        if allowed != self.streams_at_first && self.streams_said.load(Ordering::Relaxed) != allowed {
            // One that takes none now may take some later.
            self.streams_said.store(allowed.max(1), Ordering::Relaxed);
        }
        allowed
    }

    /// Whether its origin may not have said yet how many streams it takes. That is waited for once.
    fn is_to_be_waited_for(&self) -> bool {
        self.takes_more()
            && self.streams_allowed() == self.streams_at_first
            && !self.waited_for.swap(true, Ordering::Relaxed)
    }

    /// Waits until the origin has said what it can do: its SETTINGS come before it answers anything (RFC 9113, section 3.4).
    async fn settled(&self) {
        let mut unsettled = self.unsettled.lock().await;
        if let Some(pings) = &mut *unsettled {
            // One may be out for somebody who has stopped waiting. A failure is one of the connection, which the next use of it meets.
            let _ = pings.send_ping(Ping::opaque());
            let _ = poll_fn(|cx| pings.poll_pong(cx)).await;
            *unsettled = None;
        }
    }

    /// Since when it has no streams; `None` while it has some, or takes no more.
    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Ordering::Acquire) == 0 && !self.signs.is_closed();
        is_idle.then(|| self.rest.lock().since)
    }

    /// Others can find it from here on: it counts while it is idle.
    fn is_found(&self, all_idle: &Arc<ShardedGauge>) {
        let mut rest = self.rest.lock();
        rest.counts_in = Some(Arc::clone(all_idle));
        self.count(&mut rest);
    }

    /// Nobody finds it any more.
    fn is_hidden(&self) {
        let mut rest = self.rest.lock();
        if let Some(all_idle) = rest.counts_in.take()
            && std::mem::take(&mut rest.counted)
        {
            all_idle.add(-1);
        }
    }

    /// Has it count if it is idle now. Whoever changes its streams from or to none comes here behind that, one after the other, so
    /// that the last one sees what is.
    fn count(&self, rest: &mut Rest) {
        let Some(all_idle) = &rest.counts_in else { return };
        let is_idle = self.streams.load(Ordering::Acquire) == 0;
        if is_idle != rest.counted {
            rest.counted = is_idle;
            all_idle.add(if is_idle { 1 } else { -1 });
        }
    }

    /// The connection takes no more requests.
    pub fn close(&self) {
        self.signs.close();
    }
}

/// A stream's place on an HTTP/2 connection; dropping it makes room for another.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
}

impl Lease {
    /// Where to send the request.
    pub fn sender(&self) -> SendRequest<Piece> {
        self.shared.sender.clone()
    }

    /// Where the stream counts what it takes of bodies.
    pub fn unread(&self) -> Arc<Unread> {
        Arc::clone(&self.shared.unread)
    }

    /// Where the stream counts what it sends.
    pub fn unsent(&self) -> Arc<Unsent> {
        Arc::clone(&self.shared.unsent)
    }

    /// Waits until the origin has said what it can do.
    pub async fn settled(&self) {
        self.shared.settled().await;
    }

    /// Whether the connection may soon take no more streams.
    pub fn is_short(&self) -> bool {
        self.shared.is_short()
    }

    /// Whether streams of it were reset.
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

    /// What is known of the connection.
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
impl Pool {
    /// How many are idle, looked at one by one.
    pub fn count_idle(&self) -> usize {
        let has_no_stream = |shared: &&Arc<Shared>| shared.streams.load(Ordering::Acquire) == 0;
        self.idle.lock().len() + self.shared.lock().iter().filter(has_no_stream).count()
    }
}

#[cfg(test)]
impl Shared {
    /// A connection whose origin says nothing.
    pub async fn unanswered(now: Instant) -> Arc<Self> {
        let (ours, _theirs) = tokio::io::duplex(1024);
        let (sender, mut connection) =
            h2::client::Builder::new().handshake(ours).await.expect("no answer is awaited");
        let told = (Arc::new(Signs::new(now)), Arc::default(), Arc::default());
        let streams = (STREAMS_AT_FIRST, Arc::default());
        Arc::new(Self::new(sender, connection.ping_pong(), now, None, streams, told, oneshot::channel().0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_made_ahead_as_wear_out_meanwhile() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut wear = Wear { made_in: Duration::from_millis(100), ..Wear::default() };
        assert_eq!(wear.needed(start), 1);
        wear.out(start);
        assert_eq!(wear.needed(start), 2, "how soon the next one does is not known");
        wear.out(at(60));
        assert_eq!((wear.needed(at(60)), wear.needed(at(200))), (3, 2));
        wear.out(at(201));
        wear.out(at(202));
        assert_eq!(wear.needed(at(202)), 1 + Wear::AHEAD);
        wear.failed = Some(at(202));
        assert_eq!(
            (wear.needed(at(5000)), wear.needed(at(5202))),
            (0, 2),
            "an origin that takes none is left alone"
        );
    }
}
