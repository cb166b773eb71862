//! An HTTP/2 client: its connection is a task, and so is each of its streams.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use h2::Reason;
use tokio::io::AsyncWrite;

use super::Connection;
use crate::configuration::Settings;
use crate::error::Error;
use crate::exchange;
use crate::exchange::client::{Client, MovedEnds, Peer};
use crate::http2::{
    self, COLLECT, ClientStream, CompleteRequest, HEADS, NewStream, RefusedHead, SharedState,
};
use crate::limits::account::Account;
use crate::limits::clients::{Holdings, RegisteredConnection};
use crate::limits::pressure;
use crate::link::{H2Link, Link, LinkError, ReceiveOutcome};
use crate::message::request::HeadTerms;
use crate::message::scratch::Scratch;
use crate::proxy::{ConnectionTerms, Proxy};
use crate::time::clock;
use crate::time::poll_length::WatchedTask;
use crate::time::timer::Timer;
use crate::transport::buffer::Buffer;
use crate::transport::progress::{DropBudget, Taking};
use crate::transport::stream::Stream;

/// The amount of pending output, bytes, at which reading pauses, because input may require further output. Bodies and
/// heads alone never reach it, so a PING or the reset of a download is read even while a body is being written.
const PAUSE: usize = 4 * COLLECT;
/// The size of a read, bytes: a whole frame, and others after it.
const READ: usize = 64 * 1024;
/// The most reads in a row before other tasks of the worker have their turn.
const READS: u32 = 4;
/// How long a client may be silent at the end of a connection if output was sent to it shortly before.
const LINGER: Duration = Duration::from_secs(5);
/// The longest time that the end of a connection may take, whatever the client sends, as a multiple of `write-stall`.
const LONGEST: u32 = 4;
/// If a response ends before its request, the stream is reset this long after the end of the response. Input of the
/// request starts this time anew.
const RESET_AFTER: Duration = Duration::from_millis(200);
/// The time limit for a client to close the connection after it got an error.
const FAREWELL: Duration = Duration::from_secs(1);
/// The most requests of one connection that begin before other connections have their turn, and before the
/// connection checks whether its client has left. Otherwise a client could send a hundred requests and leave, and we
/// would connect to origins for all of them. The first turn begins one request, and each further turn twice as many,
/// up to this limit.
const BEGUN_IN_A_ROW: u32 = 16;

/// Serves the connection until it ends.
pub(super) async fn serve(connection: Connection, stream: Stream) {
    let Connection { proxy, terms, peer, registered, born, .. } = connection;
    let windows = proxy.upload_windows.share(Account::of(peer.addresses.client.map(|client| client.ip())));
    let mut session = H2Session {
        shared: SharedState::new(&terms.limits, registered.holdings().cloned(), Some(windows)),
        stream,
        input: Buffer::new(),
        held_back: false,
        output: Buffer::new(),
        taking: Taking::default(),
        unflushed: false,
        seen_at: born,
        registered,
        gathering: false,
        timer: Timer::new(terms.timeouts.keep_alive_h2),
        streams: Arc::new(AtomicUsize::new(0)),
        requests: 0,
        quiet: true,
        busy_at: clock::now(),
        told_at: born,
        ending: false,
        peer: Arc::from(peer),
        proxy,
        terms,
        born,
    };
    session.run().await;
}

struct H2Session {
    shared: Arc<SharedState>,
    stream: Stream,
    /// Unprocessed input: an incomplete frame, or frames that are held back.
    input: Buffer,
    /// True if further input is processed only after the earlier requests have been started.
    held_back: bool,
    /// The output being written.
    output: Buffer,
    /// Tracks if the system accepts output, which it does as long as the client reads.
    taking: Taking,
    /// True if TLS still buffers some of the output.
    unflushed: bool,
    /// When the client last sent input, or was last seen to take output.
    seen_at: Instant,
    registered: RegisteredConnection,
    /// Set while ready streams run before their output is written.
    gathering: bool,
    timer: Timer,
    streams: Arc<AtomicUsize>,
    requests: u64,
    /// True if no stream was active at the last check.
    quiet: bool,
    /// When a stream was last seen active.
    busy_at: Instant,
    /// When the client got the first GOAWAY.
    told_at: Instant,
    /// The connection accepts only streams that the client opens before it learns of the end.
    ending: bool,
    peer: Arc<Peer>,
    proxy: Arc<Proxy>,
    terms: Arc<ConnectionTerms>,
    born: Instant,
}

/// Tells the streams, which are separate tasks, if the connection was cut off: otherwise they would believe that the
/// client has ended it. If the connection ended in order, the streams have its result already, and this has no effect.
impl Drop for H2Session {
    fn drop(&mut self) {
        self.shared.fail(LinkError::CutOff);
    }
}

enum Event {
    /// The client has begun a stream.
    Arrived(NewStream),
    /// A connection error.
    Fault(Reason),
    /// A head, or an acknowledgement, takes the client too long.
    Stalled,
    /// The client reads nothing.
    Blocked,
    /// The client is gone.
    Gone(LinkError),
    /// There is nothing more to do.
    Ended,
}

impl H2Session {
    async fn run(&mut self) {
        let (mut begun, mut heads, mut most) = (0, 0, 1);
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                // The client has not acknowledged the end of the connection in time; it may retry
                // elsewhere.
                Event::Arrived(NewStream::Request(asked)) if self.has_ended() => {
                    ClientStream::new(&self.shared, asked.stream).refuse();
                    asked.scratch.give();
                }
                Event::Arrived(arrived) => {
                    heads += arrived.size();
                    match arrived {
                        NewStream::Request(asked) => {
                            self.start(asked);
                            begun += 1;
                        }
                        NewStream::Refused(refused) => self.refuse(refused),
                    }
                    if begun == most {
                        most = BEGUN_IN_A_ROW.min(2 * most);
                    } else if heads < HEADS {
                        continue;
                    }
                    (begun, heads) = (0, 0);
                    tokio::task::yield_now().await;
                }
                Event::Fault(reason) => return self.expel(reason).await,
                Event::Stalled => return self.expel(Reason::NO_ERROR).await,
                Event::Blocked => {
                    self.shared.fail(LinkError::Io(ErrorKind::TimedOut));
                    // Unread output would stay in the system's memory for minutes.
                    return self.stream.reset_on_close();
                }
                Event::Gone(error) => {
                    self.shared.fail(error);
                    return self.drop_rest();
                }
                Event::Ended => return self.end().await,
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        self.shared.poll_by(cx);
        let has_more = match self.poll_input(cx) {
            Poll::Ready(Err(event)) => return Poll::Ready(event),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        if let Some(arrived) = self.shared.next() {
            return Poll::Ready(Event::Arrived(arrived));
        }
        if self.gives_way() {
            pressure::REFUSED_BODIES.inc();
            // Until the connection has ended, its memory would still count, and other connections would be asked to release
            // memory, too.
            self.shared.give_up_holding();
            return Poll::Ready(Event::Fault(Reason::ENHANCE_YOUR_CALM));
        }
        // Streams that are ready to run may add output: let them run first, so that one write takes all of it.
        if !self.gathering && self.waiting() > 0 && self.streams.load(Ordering::Relaxed) > 0 {
            self.gathering = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gathering = false;
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Event::Gone(error.into()));
        }
        if has_more && self.waiting() < PAUSE {
            cx.waker().wake_by_ref();
        }
        if !self.has_output() && self.shared.is_done() {
            return Poll::Ready(Event::Ended);
        }
        let now = clock::now();
        let quiet = self.streams.load(Ordering::Relaxed) == 0;
        if !quiet || !std::mem::replace(&mut self.quiet, quiet) {
            self.busy_at = now;
            self.quiet = quiet;
        }
        let told = self.registered.poll_told(cx) || self.peer.outdated.load(Ordering::Relaxed);
        if !self.ending {
            self.poll_reasons_to_end(now, told);
        }
        self.poll_limits(cx, now)
    }

    /// Reads available input before the next request is started. Otherwise a client that opens streams and resets them, or
    /// leaves, would make us connect to origins at no cost to itself. As far as it fits, all input is read before any is
    /// processed: under overload many clients have left, and no time is spent on their requests. Ready if there may be more
    /// input.
    ///
    /// Does nothing if the pending heads are large, or memory is short: otherwise we would have to hold all the requests
    /// that a client sends before its earlier ones are started.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Event>> {
        let mut unseen = false;
        let mut has_more = true;
        for _ in 0..READS {
            let heads = self.shared.waiting_heads();
            if self.waiting() >= PAUSE || heads >= HEADS || heads > 0 && pressure::is_felt() {
                // Input stays unread here, so the socket is asked whether the client has left.
                if heads > 0 && self.stream.socket().has_ended(cx) {
                    return Poll::Ready(Err(Event::Gone(LinkError::Io(ErrorKind::BrokenPipe))));
                }
                break;
            }
            if self.held_back {
                self.receive().map_err(Event::Fault)?;
                continue;
            }
            let Poll::Ready(read) = self.input.poll_fill(cx, &mut self.stream, READ) else {
                has_more = false;
                break;
            };
            match read {
                Ok(0) => return Poll::Ready(Err(Event::Gone(LinkError::Io(ErrorKind::BrokenPipe)))),
                Ok(_) if self.input.len() < READ => unseen = true,
                Ok(_) => {
                    unseen = false;
                    self.receive().map_err(Event::Fault)?;
                }
                Err(error) => return Poll::Ready(Err(Event::Gone(error.into()))),
            }
        }
        if unseen {
            self.receive().map_err(Event::Fault)?;
        }
        if has_more || self.held_back { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Processes input.
    fn receive(&mut self) -> Result<(), Reason> {
        self.seen_at = clock::now();
        let limits = self.proxy.config().head_limits;
        let terms = HeadTerms { secure: self.peer.is_secure(), limits };
        let http2::InputResult { bytes, held_back, withdrawn } =
            self.shared.receive(self.input.unread(), &terms);
        self.held_back = held_back;
        if withdrawn > 0 {
            self.requests += withdrawn;
            self.proxy.metrics.requests_reset.add(withdrawn);
        }
        self.input.consume(bytes?);
        Ok(())
    }

    /// Processes all input, without waiting for requests to be started. For connections that start no more requests.
    fn receive_all(&mut self) -> Result<(), Reason> {
        loop {
            let before = self.input.len();
            self.receive()?;
            if !self.held_back || self.input.len() == before {
                return Ok(());
            }
        }
    }

    /// Pending output, bytes.
    fn waiting(&self) -> usize {
        self.output.len() + self.shared.output()
    }

    /// Returns true if some output has not left the process.
    fn has_output(&self) -> bool {
        self.unflushed || self.waiting() > 0
    }

    /// Writes all pending output. Ready once it has left the process.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.poll_write(cx);
        if flushed.is_ready() {
            if self.taking.has_all() {
                self.seen_at = clock::now();
            }
            return flushed;
        }
        let now = clock::now();
        if self.taking.waits(self.stream.sent(), 1, now) {
            self.seen_at = now;
        }
        // While output waits, input may stay unread. So a head that seems late may have arrived: its time limit is extended.
        self.shared.excuse_head();
        Poll::Pending
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.output.is_empty() {
                self.shared.take_output(&mut self.output);
            }
            if self.output.is_empty() {
                self.output.release();
                let flushed = Pin::new(&mut self.stream).poll_flush(cx);
                self.unflushed = flushed.is_pending();
                return flushed;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.output.unread()))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => {
                    self.output.consume(written);
                    self.shared.wrote(written);
                }
            }
        }
    }

    /// Returns true if this connection has to end to release memory: memory is short, its client holds the most of it, and
    /// this connection holds at least half as much as the client's connections hold on average.
    fn gives_way(&self) -> bool {
        let takes_back = |client: &Arc<Holdings>| client.takes_back(|| self.shared.holding());
        pressure::is_short() && self.registered.holdings().is_some_and(takes_back)
    }

    /// Begins to end the connection when it is time to.
    fn poll_reasons_to_end(&mut self, now: Instant, told: bool) {
        let (timeouts, limits) = (&self.terms.timeouts, &self.terms.limits);
        let idle = self.quiet && now.saturating_duration_since(self.busy_at) >= timeouts.keep_alive_h2;
        let old = now.saturating_duration_since(self.born) >= timeouts.connection_age;
        let tight = self.requests > 0 && pressure::is_tight(self.registered.holdings());
        if tight {
            pressure::DRAINED.inc();
        }
        if idle || old || self.requests >= limits.requests_per_connection || told || tight {
            self.shared.begin_to_end();
            // Active streams go on, under their own time limits.
            self.ending = true;
            self.registered.begins_to_end();
            self.told_at = now;
        }
    }

    /// Returns true if the client has had time to learn that the connection ends. Until it acknowledges a PING, new streams
    /// are accepted; an honest client does that within a round trip.
    fn has_ended(&self) -> bool {
        let known = clock::now().saturating_duration_since(self.told_at);
        self.ending && known >= self.terms.timeouts.write_stall
    }

    /// Ready if the client exceeds a time limit.
    fn poll_limits(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Event> {
        let timeouts = &self.terms.timeouts;
        let quiet = self.quiet;
        // A client that reads no output is given up after a while.
        let blocked = self.taking.stuck().map(|since| since + timeouts.write_stall);
        if blocked.is_some_and(|deadline| deadline <= now) {
            return Poll::Ready(Event::Blocked);
        }
        // Set while a head arrives byte by byte.
        let head = self.shared.head_since().map(|since| since + timeouts.head);
        if head.is_some_and(|deadline| deadline <= now) {
            return Poll::Ready(Event::Stalled);
        }
        let idle = timeouts.keep_alive_h2;
        let mut deadline = (self.busy_at + idle).min(self.born + timeouts.connection_age);
        if self.ending && quiet {
            let since = self.busy_at.max(self.told_at);
            let longest = since + LONGEST * timeouts.write_stall;
            // An idle client only has to close; others may first have to read output up to the
            // GOAWAY.
            let was_idle =
                self.requests == 0 || self.told_at.saturating_duration_since(self.busy_at) >= LINGER;
            let silence = match was_idle {
                _ if self.has_output() => timeouts.write_stall,
                true => FAREWELL,
                false => LINGER.min(timeouts.write_stall),
            };
            deadline = longest.min(self.seen_at.max(since) + silence);
            // `now` is the time at which this poll began, which may be before the deadline.
            let now = Instant::now();
            if deadline <= now && now < longest && !self.stream.is_sent() {
                self.seen_at = now;
                deadline = longest.min(now + silence);
            }
        }
        if !quiet && deadline <= now {
            deadline = now + idle;
        }
        let own = deadline;
        let held = self.shared.release_openings(now);
        deadline = [blocked, head, held].into_iter().flatten().fold(deadline, Instant::min);
        ready!(self.timer.poll(cx, deadline));
        if deadline == own && self.ending && quiet {
            return Poll::Ready(Event::Stalled);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn start(&mut self, asked: CompleteRequest) {
        self.requests += 1;
        self.quiet = false;
        let CompleteRequest { stream, mut scratch, understood } = asked;
        let place = StreamPlace::take(&self.streams);
        let link = Box::new(ClientStream::new(&self.shared, stream));
        // Admission comes before the task runs: otherwise more requests could begin than there is memory for.
        scratch.admitted = exchange::admit(&mut scratch.request, &self.peer, understood);
        let (proxy, peer) = (Arc::clone(&self.proxy), Arc::clone(&self.peer));
        let task = serve_stream(proxy, peer, scratch, link, place);
        // Boxed, so that it is not copied on its way into the runtime.
        tokio::spawn(WatchedTask::new(Box::pin(task), Arc::clone(&self.proxy.metrics)));
    }

    /// Logs a request with a refused stream.
    fn refuse(&mut self, refused: RefusedHead) {
        let mut scratch = Scratch::take();
        scratch.request.describe_h2(&refused.fields, self.peer.is_secure());
        self.log_refused(scratch, refused.error);
    }

    /// Logs all remaining requests at the end of the connection.
    fn refuse_rest(&mut self) {
        while let Some(arrived) = self.shared.next() {
            match arrived {
                NewStream::Refused(refused) => self.refuse(refused),
                NewStream::Request(asked) => {
                    drop(ClientStream::new(&self.shared, asked.stream));
                    let error = asked.understood.err().unwrap_or(Error::Client(LinkError::H2));
                    self.log_refused(asked.scratch, error);
                }
            }
        }
    }

    /// Drops the requests of a client that has gone, without sending them to an origin.
    fn drop_rest(&mut self) {
        while let Some(arrived) = self.shared.next() {
            match arrived {
                NewStream::Refused(refused) => self.refuse(refused),
                NewStream::Request(asked) => {
                    self.proxy.metrics.requests_reset.inc();
                    drop(ClientStream::new(&self.shared, asked.stream));
                    asked.scratch.give();
                }
            }
        }
    }

    fn log_refused(&mut self, scratch: Box<Scratch>, error: Error) {
        self.requests += 1;
        self.quiet = false;
        let place = StreamPlace::take(&self.streams);
        let task =
            serve_refused_stream(Arc::clone(&self.proxy), Arc::clone(&self.peer), scratch, error, place);
        tokio::spawn(WatchedTask::new(Box::pin(task), Arc::clone(&self.proxy.metrics)));
    }

    /// Sends the reason, and ends the connection.
    async fn expel(&mut self, reason: Reason) {
        self.shared.expel(reason);
        self.refuse_rest();
        self.say_farewell().await;
    }

    /// Sends pending output and shuts the connection down. If the client does not take it in time, the connection ends
    /// anyway.
    async fn say_farewell(&mut self) {
        let gone = poll_fn(|cx| {
            ready!(self.poll_flush(cx))?;
            Pin::new(&mut self.stream).poll_shutdown(cx)
        });
        let _ = tokio::time::timeout(FAREWELL, gone).await;
    }

    /// Ends a connection without open streams. Waits until the client has read all output or has closed its side: if the
    /// client sends window updates after a close, the system resets the connection, and unread parts of responses are lost.
    async fn end(&mut self) {
        self.shared.ask_whether_read();
        self.seen_at = clock::now();
        let until = self.seen_at + LONGEST * self.terms.timeouts.write_stall;
        // The system reports unsent output only before the end is sent.
        while self.is_awaited(until) {
            match poll_fn(|cx| Poll::Ready(self.poll_flush(cx))).await {
                Poll::Ready(Ok(())) if self.stream.is_sent() => break,
                Poll::Ready(Err(_)) => return,
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            if self.hear(FAREWELL, true).await == Heard::End {
                return;
            }
        }
        self.say_farewell().await;
        while self.is_awaited(until) {
            if self.hear(LINGER, false).await != Heard::Something {
                return;
            }
        }
    }

    /// Returns true if it is worth waiting for a client that has not read everything.
    fn is_awaited(&self, until: Instant) -> bool {
        let now = clock::now();
        let silence = now.saturating_duration_since(self.seen_at);
        now < until && silence < self.terms.timeouts.write_stall && !self.shared.has_read_all()
    }

    /// Waits for input and processes it, for at most `silence`. With `writes`, pending output is written meanwhile.
    async fn hear(&mut self, silence: Duration, writes: bool) -> Heard {
        let heard = poll_fn(|cx| {
            if writes && matches!(self.poll_flush(cx), Poll::Ready(Err(_))) {
                return Poll::Ready(Heard::End);
            }
            match ready!(self.input.poll_fill(cx, &mut self.stream, READ)) {
                Ok(1..) if self.receive_all().is_ok() => Poll::Ready(Heard::Something),
                _ => Poll::Ready(Heard::End),
            }
        });
        tokio::time::timeout(silence, heard).await.unwrap_or(Heard::Nothing)
    }
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Something,
    /// Silence.
    Nothing,
    /// The client is gone, or has caused a connection error.
    End,
}

/// A stream's place among those at work.
struct StreamPlace(Arc<AtomicUsize>);

impl StreamPlace {
    fn take(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one stream.
fn serve_stream(
    proxy: Arc<Proxy>,
    peer: Arc<Peer>,
    mut scratch: Box<Scratch>,
    link: Box<ClientStream>,
    place: StreamPlace,
) -> impl Future<Output = ()> {
    // Made here and not within the future, which would reserve room for its arguments twice.
    let mut config = proxy.config();
    let mut timer = Timer::new(config.settings.timeouts.body_idle);
    let mut client = Client::new(Link::Client(link));
    client.may_move = true;
    async move {
        let Scratch { request, response, admitted } = &mut *scratch;
        let admitted = std::mem::replace(admitted, Ok(()));
        let served = exchange::ServedRequest {
            proxy: &proxy,
            config: &config,
            peer: &peer,
            client: &mut client,
            request,
            response,
            timer: &mut timer,
        };
        exchange::serve(served, admitted).await;
        if let Some(moved) = client.moved.take() {
            config = moved.config();
            let (proxy, peer, client, timer) = (&*proxy, &*peer, &mut client, &mut timer);
            let ends = MovedEnds { proxy, peer, client, request, response, timer };
            moved.go_on(ends).await;
        }
        scratch.give();
        if let Link::Client(stream) = &mut client.link
            && stream.is_answered_early()
        {
            Box::pin(drain(stream, &config.settings, &mut timer)).await;
        }
        // The rest of the request is not needed: dropping the stream signals that (RFC 9113, section
        // 8.1).
        drop(client);
        drop(place);
    }
}

/// Reads and drops the rest of an answered request. Clients such as curl 7.88 lose a response if they read it together
/// with a reset after it. So a short rest is read to its end, and the stream of a longer rest is reset only later.
async fn drain(stream: &mut ClientStream, settings: &Settings, timer: &mut Timer) {
    let latest = clock::now() + settings.timeouts.early_response_drain;
    let mut budget = DropBudget::new(settings.limits.early_response_drain, latest);
    let mut deadline = budget.within(RESET_AFTER, clock::now());
    poll_fn(|cx| {
        while !budget.is_spent() {
            match stream.poll_receive(cx) {
                Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                    let count = stream.data().len();
                    stream.consume(count);
                    let _ = budget.spend(count);
                    if !stream.is_of_ending_connection() {
                        deadline = budget.within(RESET_AFTER, clock::now());
                    }
                }
                Poll::Ready(Ok(ReceiveOutcome::End) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return timer.poll(cx, deadline),
            }
        }
        // A stream that has ended needs no reset, even with unread data.
        if stream.poll_abandoned(cx).is_ready() || !stream.is_answered_early() {
            return Poll::Ready(());
        }
        timer.poll(cx, deadline)
    })
    .await;
}

/// Logs a request with a refused head, and shows it to steps that read refused requests.
async fn serve_refused_stream(
    proxy: Arc<Proxy>,
    peer: Arc<Peer>,
    mut scratch: Box<Scratch>,
    error: Error,
    place: StreamPlace,
) {
    let config = proxy.config();
    let Scratch { request, response, .. } = &mut *scratch;
    let mut timer = Timer::new(config.settings.timeouts.body_idle);
    let mut client = Client::new(Link::H2(Box::new(H2Link::new(None, None))));
    let served = exchange::ServedRequest {
        proxy: &proxy,
        config: &config,
        peer: &peer,
        client: &mut client,
        request,
        response,
        timer: &mut timer,
    };
    exchange::refuse(served, error).await;
    scratch.give();
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, D, E, F: Future>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// Each stream allocates it, and creating it copies it.
    #[test]
    fn a_stream_holds_little() {
        let size = size(serve_stream);
        assert!(size <= 1920, "the future of a stream has {size} bytes");
    }
}
