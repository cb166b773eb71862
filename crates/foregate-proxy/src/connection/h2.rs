//! An HTTP/2 client: each stream is a task of its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_wire::{BodyLength, HeadLimits, RequestError};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};

use super::Connection;
use super::metered::{Control, Metered, metered};
use super::registry::{Holdings, Registered};
use crate::error::Error;
use crate::exchange;
use crate::exchange::client::{Client, Peer};
use crate::exchange::request::Request;
use crate::exchange::scratch::Scratch;
use crate::link::head_gate::RefusedHead;
use crate::link::unread::Unread;
use crate::link::unsent::{Piece, Unsent};
use crate::link::{CUT_OFF, H2Link, Link, Stream};
use crate::pressure;
use crate::proxy::{Proxy, Terms};
use crate::settings::Limits;
use crate::telemetry::blocked::Watched;
use crate::telemetry::clock;
use crate::timer::Timer;

/// What is buffered per stream for a client that does not read, in bytes.
const SEND_BUFFER: usize = 32 * 1024;
/// The largest frame that clients may send, in bytes.
const FRAME: u32 = 16 * 1024;
/// Resets that `h2` makes of itself before it gives a connection up, by those that [`FrameMeter`] allows. Most that an honest client
/// causes answer what came late for a stream that `h2` has forgotten, which the meter judges more mildly.
///
/// [`FrameMeter`]: super::frame_meter::FrameMeter
const LATE_FACTOR: usize = 4;
/// How long a client may take to go away after it was told why.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves the connection until it ends.
pub(super) async fn serve(connection: Connection, stream: Stream) {
    let Connection { proxy, terms, peer, registered, born, .. } = connection;
    let (io, control) = metered(stream, &terms.limits, FRAME as usize);
    if let Some(client) = registered.holdings() {
        control.unread().belongs_to(client);
    }
    let handshake = builder(&terms.limits).handshake::<_, Piece>(io);
    tokio::pin!(handshake);
    let shaken = poll_fn(|cx| {
        let shaken = handshake.as_mut().poll(cx);
        // Our SETTINGS do not wait for the client's.
        match control.poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(None),
            _ => shaken.map(Result::ok),
        }
    });
    let Ok(Some(h2)) = tokio::time::timeout(terms.timeouts.head, shaken).await else { return };
    let mut session = Session {
        h2,
        unread: control.unread(),
        unsent: control.unsent(),
        registered,
        control,
        gathering: false,
        timer: Timer::new(terms.timeouts.keep_alive_h2),
        streams: Arc::new(AtomicUsize::new(0)),
        requests: 0,
        busy_at: clock::now(),
        told_at: born,
        ending: false,
        ended: false,
        peer: Arc::new(peer),
        proxy,
        terms,
        born,
    };
    session.run().await;
    session.ended = true;
}

/// The largest list of fields that clients are told of, in bytes.
pub(super) fn list_limit(limits: &Limits) -> u32 {
    u32::try_from(limits.head_bytes).unwrap_or(u32::MAX)
}

pub(crate) fn builder(limits: &Limits) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(limits.h2_stream_window)
        .initial_connection_window_size(limits.h2_connection_window)
        .max_frame_size(FRAME)
        // What is larger is refused before. `h2` would refuse what is as large, too; `Metered` tells the client of the limit.
        .max_header_list_size(list_limit(limits).saturating_add(1))
        .max_concurrent_streams(limits.h2_streams)
        .max_concurrent_reset_streams(64)
        // How many the client may reset is for `FrameMeter` to say.
        .max_pending_accept_reset_streams(limits.h2_resets_total as usize)
        .max_local_error_reset_streams(Some((limits.h2_resets_total as usize).saturating_mul(LATE_FACTOR)))
        .reset_stream_duration(Duration::from_secs(1))
        // It would end the connection of a client that stays within its windows; what DATA frames cost is counted, and bounded, by
        // `FrameMeter`.
        .data_frame_budget(usize::MAX)
        .max_send_buffer_size(SEND_BUFFER)
        .header_table_size(limits.h2_header_table)
        .enable_connect_protocol();
    builder
}

/// The most requests of one connection that are begun before those of others have their turn, and before it is looked at whether their
/// client is still there: one that asks for a hundred things and leaves would have us connect to origins for all of them. A connection
/// begins with one, and twice as many each time.
const BEGUN_IN_A_ROW: u32 = 16;

struct Session {
    h2: h2::server::Connection<Metered<Stream>, Piece>,
    registered: Registered,
    control: Control<Stream>,
    unread: Arc<Unread>,
    unsent: Arc<Unsent>,
    /// Whether streams that are ready to run have been let run before their output is written.
    gathering: bool,
    timer: Timer,
    streams: Arc<AtomicUsize>,
    requests: u64,
    /// When a stream was last at work.
    busy_at: Instant,
    /// When the client was told that the connection is ending.
    told_at: Instant,
    /// It takes no more streams than the client opens before it knows.
    ending: bool,
    /// It has come to its end, and was not cut off.
    ended: bool,
    peer: Arc<Peer>,
    proxy: Arc<Proxy>,
    terms: Arc<Terms>,
    born: Instant,
}

/// Its streams are tasks of their own, to which a connection that was cut off would look like one that the client has ended.
impl Drop for Session {
    fn drop(&mut self) {
        // A panic may have left `h2` with a lock that nobody can take any more.
        if !self.ended && !std::thread::panicking() {
            self.h2.abrupt_shutdown(*CUT_OFF);
        }
    }
}

impl Session {
    async fn run(&mut self) {
        let (mut begun, mut most) = (0, 1);
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                // The client has not even acknowledged that the connection is ending; what it opens may be asked elsewhere.
                Event::Request(_, mut respond) if self.has_ended() => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                }
                Event::Request(request, respond) => {
                    self.start(request, respond);
                    begun += 1;
                    if begun == most {
                        (begun, most) = (0, BEGUN_IN_A_ROW.min(2 * most));
                        tokio::task::yield_now().await;
                    }
                }
                Event::Refused(refused) => self.refuse(refused),
                Event::Fault(reason) => {
                    self.refuse_rest();
                    return self.expel(reason).await;
                }
                Event::Stalled => return self.expel(Reason::NO_ERROR).await,
                // What it does not take would stay in the system's memory for minutes.
                Event::Blocked => return self.control.reset_on_close(),
                Event::Ended => {
                    self.refuse_rest();
                    return self.say_farewell().await;
                }
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        // The first request comes once all that there is to read has been looked at.
        while let Poll::Ready(accepted) = self.h2.poll_accept(cx) {
            let Some(Ok((request, mut respond))) = accepted else { return Poll::Ready(Event::Ended) };
            let resets = self.control.resets();
            if let Some(reason) = resets.flood {
                return Poll::Ready(Event::Fault(reason));
            }
            if !resets.any || respond.poll_reset(cx).is_pending() {
                return Poll::Ready(Event::Request(Box::new(request), respond));
            }
            // Who opens streams and resets them in one breath would have us connect to origins at no cost of its own.
            self.requests += 1;
            self.proxy.metrics.requests_reset.inc();
        }
        if let Some(refused) = self.control.take_refused() {
            return Poll::Ready(Event::Refused(refused));
        }
        if let Some(reason) = self.control.fault() {
            return Poll::Ready(Event::Fault(reason));
        }
        if self.gives_way() {
            pressure::REFUSED_BODIES.inc();
            // It takes a moment to end, in which others would be asked for the same.
            self.unread.give_up();
            return Poll::Ready(Event::Fault(Reason::ENHANCE_YOUR_CALM));
        }
        // Streams that wait for their turn may have more to say: one write for all of them.
        if !self.gathering && self.control.has_output() && self.streams.load(Ordering::Relaxed) > 0 {
            self.gathering = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gathering = false;
        if let Poll::Ready(Err(_)) = self.control.poll_flush(cx) {
            return Poll::Ready(Event::Ended);
        }
        let now = clock::now();
        let told = self.registered.poll_told(cx);
        if !self.ending {
            self.poll_reasons_to_end(cx, now, told);
        }
        self.poll_limits(cx, now)
    }

    /// Whether memory is short, its client holds the most of it, and this connection has a part in that.
    fn gives_way(&self) -> bool {
        let takes_back = |client: &Arc<Holdings>| client.takes_back(|| self.unread.held());
        pressure::is_short() && self.registered.holdings().is_some_and(takes_back)
    }

    /// Begins to end the connection when it is time to.
    fn poll_reasons_to_end(&mut self, cx: &mut Context<'_>, now: Instant, told: bool) {
        let (timeouts, limits) = (&self.terms.timeouts, &self.terms.limits);
        let idle = self.streams.load(Ordering::Relaxed) == 0
            && now.saturating_duration_since(self.busy_at) >= timeouts.keep_alive_h2;
        let old = now.saturating_duration_since(self.born) >= timeouts.connection_age;
        let tight = self.requests > 0 && pressure::is_tight(self.registered.holdings());
        if tight {
            pressure::DRAINED.inc();
        }
        if idle || old || self.requests >= limits.requests_per_connection || told || tight {
            self.h2.graceful_shutdown();
            // Streams at work have time limits of their own; who has told us may cut them short.
            self.ending = true;
            self.told_at = now;
            cx.waker().wake_by_ref();
        }
    }

    /// Whether the client has known for long that the connection is ending. `h2` takes streams until a PING has come back, for
    /// which an honest client needs a round trip.
    fn has_ended(&self) -> bool {
        let known = clock::now().saturating_duration_since(self.told_at);
        self.ending && known >= self.terms.timeouts.write_stall
    }

    /// Whether what the client makes us wait for takes too long.
    fn poll_limits(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Event> {
        let timeouts = &self.terms.timeouts;
        if self.streams.load(Ordering::Relaxed) > 0 {
            self.busy_at = now;
        }
        // What has been answered but is not taken by the client holds memory: no longer than a stall may last.
        let quiet = self.streams.load(Ordering::Relaxed) == 0;
        let unread = quiet && self.h2.has_streams();
        if quiet && !unread {
            self.control.nothing_is_unread();
        }
        let idle = if unread { timeouts.write_stall } else { timeouts.keep_alive_h2 };
        // A peer that reads nothing gets nothing written: no more is read from it, and it is given up in time.
        let blocked = self.control.blocked_since().map(|since| since + timeouts.write_stall);
        if blocked.is_some_and(|deadline| deadline <= now) {
            return Poll::Ready(Event::Blocked);
        }
        // A head that comes byte by byte.
        let head = self.control.head_since().map(|since| since + timeouts.head);
        if head.is_some_and(|deadline| deadline <= now) {
            return Poll::Ready(Event::Stalled);
        }
        let mut deadline = (self.busy_at + idle).min(self.born + timeouts.connection_age);
        if self.ending && quiet {
            // A client that has nothing more to come only has to go.
            deadline = self.busy_at.max(self.told_at) + if unread { idle } else { FAREWELL };
        }
        if !quiet && deadline <= now {
            deadline = now + idle;
        }
        let own = deadline;
        deadline = [blocked, head].into_iter().flatten().fold(deadline, Instant::min);
        if self.timer.poll(cx, deadline).is_pending() {
            return Poll::Pending;
        }
        if deadline == own && (unread || self.ending && quiet) {
            return Poll::Ready(Event::Stalled);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn start(&mut self, request: Box<http::Request<RecvStream>>, respond: SendResponse<Piece>) {
        self.requests += 1;
        self.busy_at = clock::now();
        let place = Place::take(&self.streams);
        let unread = (!request.body().is_end_stream()).then(|| Arc::clone(&self.unread));
        let counted = (unread, Arc::clone(&self.unsent));
        let shared = (Arc::clone(&self.proxy), Arc::clone(&self.peer));
        let task = stream(shared, request, respond, counted, place);
        // Boxed, so that it is not copied on its way into the runtime.
        tokio::spawn(Watched::new(Box::pin(task), Arc::clone(&self.proxy.metrics)));
    }

    /// Has a request logged whose stream is being reset.
    fn refuse(&mut self, refused: RefusedHead) {
        self.requests += 1;
        self.busy_at = clock::now();
        let place = Place::take(&self.streams);
        let task = refused_stream(Arc::clone(&self.proxy), Arc::clone(&self.peer), refused, place);
        tokio::spawn(Watched::new(Box::pin(task), Arc::clone(&self.proxy.metrics)));
    }

    fn refuse_rest(&mut self) {
        while let Some(refused) = self.control.take_refused() {
            self.refuse(refused);
        }
    }

    /// Says why, and ends the connection.
    async fn expel(&mut self, reason: Reason) {
        self.h2.abrupt_shutdown(reason);
        let told = poll_fn(|cx| {
            // What is refused from now on is nobody's any more; untaken, it would have this polled again and again.
            while self.control.take_refused().is_some() {}
            let closed = self.h2.poll_closed(cx);
            match self.control.poll_flush(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => closed.map(|_| ()),
            }
        });
        // Whether it came through or not, the connection is over.
        let _ = tokio::time::timeout(FAREWELL, told).await;
    }

    /// Sends what h2 has left behind when it ended the connection: a GOAWAY with the reason, for one.
    async fn say_farewell(&mut self) {
        let flushed = poll_fn(|cx| self.control.poll_flush(cx));
        let _ = tokio::time::timeout(FAREWELL, flushed).await;
    }
}

enum Event {
    Request(Box<http::Request<RecvStream>>, SendResponse<Piece>),
    Refused(RefusedHead),
    /// It does what no connection survives.
    Fault(Reason),
    /// What it has begun, or was told, takes it too long.
    Stalled,
    /// It reads nothing.
    Blocked,
    Ended,
}

/// A stream's place among those at work.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one stream.
async fn stream(
    (proxy, peer): (Arc<Proxy>, Arc<Peer>),
    asked: Box<http::Request<RecvStream>>,
    respond: SendResponse<Piece>,
    counted: (Option<Arc<Unread>>, Arc<Unsent>),
    place: Place,
) {
    let config = proxy.config();
    let mut scratch = Scratch::take();
    let Scratch { request, response } = &mut *scratch;
    let mut timer = Timer::new(config.settings.timeouts.body_idle);
    let (link, understood) = understand(request, *asked, counted, peer.is_secure(), &config.head_limits);
    let mut client = Client::new(Link::H2(link), Some(respond));
    let served = exchange::Served {
        proxy: &proxy,
        config,
        peer: &peer,
        client: &mut client,
        request,
        response,
        timer: &mut timer,
    };
    // What is left of the request is not needed: dropping the stream says so once the response has been sent
    // (RFC 9113, section 8.1).
    exchange::serve(served, understood).await;
    scratch.give();
    drop(place);
}

/// Takes what was asked. Apart from [`stream`], whose future would have room for the head for as long as it lives.
fn understand(
    request: &mut Request,
    asked: http::Request<RecvStream>,
    (unread, unsent): (Option<Arc<Unread>>, Arc<Unsent>),
    secure: bool,
    limits: &HeadLimits,
) -> (Box<H2Link>, Result<(), Error>) {
    let (parts, body) = asked.into_parts();
    let understood = request.understand_h2(&parts, unread.is_none(), secure, limits);
    request.count();
    let mut link = Box::new(H2Link::new(unread.is_some().then_some(body), None));
    if let Some(unread) = unread {
        link.count_in(unread);
    }
    link.count_out(unsent);
    if let BodyLength::Fixed(length) = request.length {
        link.expect(length);
    }
    (link, understood)
}

/// Logs a request whose head was refused, and shows it to steps that ask for such.
async fn refused_stream(proxy: Arc<Proxy>, peer: Arc<Peer>, refused: RefusedHead, place: Place) {
    let config = proxy.config();
    let mut scratch = Scratch::take();
    let Scratch { request, response } = &mut *scratch;
    let mut timer = Timer::new(config.settings.timeouts.body_idle);
    request.describe_h2(&refused.fields, peer.is_secure());
    let mut client = Client::new(Link::H2(Box::new(H2Link::new(None, None))), None);
    let served = exchange::Served {
        proxy: &proxy,
        config,
        peer: &peer,
        client: &mut client,
        request,
        response,
        timer: &mut timer,
    };
    let error = refused.fault.map_or(Error::Request(RequestError::HeadTooLarge), Error::Malformed);
    exchange::refuse(served, error).await;
    scratch.give();
    drop(place);
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::link::frames::{flag, kind, written};

    /// As many as `FrameMeter` lets pass at once, and one that is not reset.
    #[tokio::test]
    async fn requests_that_are_reset_before_anybody_takes_them_end_nothing() {
        let limits = Limits::default();
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend(written(kind::SETTINGS, 0, 0, b""));
        // `GET http://a/`.
        let head = b"\x82\x84\x86\x41\x01a";
        for stream in 0..=limits.h2_resets_burst {
            sent.extend(written(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * stream + 1, head));
            if stream < limits.h2_resets_burst {
                sent.extend(written(kind::RST_STREAM, 0, 2 * stream + 1, &[0, 0, 0, 8]));
            }
        }
        far.write_all(&sent).await.unwrap();
        let mut session = builder(&limits).handshake::<_, Piece>(near).await.unwrap();
        for _ in 0..=limits.h2_resets_burst {
            assert!(session.accept().await.is_some_and(|stream| stream.is_ok()));
        }
    }

    fn size<A, B, C, D, E, F: Future>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// Each stream allocates it, and creating it copies it.
    #[test]
    fn a_stream_holds_little() {
        let size = size(stream);
        assert!(size <= 1920, "the future of a stream has {size} bytes");
    }
}
