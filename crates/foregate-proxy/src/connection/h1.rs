//! An HTTP/1 client: one request after the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_wire::{BodyLength, HeaderList, Method, NameId, RequestError};

use super::{Connection, GRACE};
use crate::error::Error;
use crate::exchange::client::{Client, MovedEnds};
use crate::exchange::{self, Outcome};
use crate::limits::pressure;
use crate::link::h1::HeadFault;
use crate::link::{H1Link, Link, ReceiveOutcome};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::message::scratch::Scratch;
use crate::proxy::Config;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::transport::progress::DropBudget;

/// How long a quiet connection keeps the memory for its next request. This is longer than the pauses of
/// a busy client. It is not much longer, because many clients may come at once and then fall silent.
const LINGER: Duration = Duration::from_millis(50);

/// Serves the connection until it ends. `began` is the time when the first byte of the first request arrived, if that
/// was a while ago.
///
/// Not an `async fn`: its future would reserve room for the arguments in addition to the session made of them.
pub(super) fn serve(
    connection: Connection,
    link: Box<H1Link>,
    began: Option<Instant>,
) -> impl Future<Output = ()> {
    let timer = Timer::new(connection.terms.timeouts.head);
    let mut client = Client::new(Link::H1(link));
    client.half_close = connection.half_close;
    client.may_move = true;
    let mut session = H1Session { connection, client, timer, requests: 0, began, cut: false };
    async move {
        // An idle connection consists of this small future alone; the state for requests is created
        // on demand.
        while session.wait(None).await {
            if !Box::pin(session.burst()).await {
                return;
            }
        }
        session.goodbye().await;
    }
}

struct H1Session {
    connection: Connection,
    client: Client,
    timer: Timer,
    requests: u64,
    /// The time at which the first byte of the next request arrived, if it was noted before the head is read.
    began: Option<Instant>,
    /// True if unwanted input may follow: the rest of a head that was cut off, or the body of a refused request.
    cut: bool,
}

/// Why there is no request.
enum NoHead {
    /// The client has gone, or sent a malformed head.
    Fault(HeadFault<RequestError>),
    /// Its time is up.
    Late,
    /// There is not enough memory for it.
    Memory,
}

/// Why no request follows soon.
enum ConnectionEnd {
    /// The client is gone.
    Gone,
    /// The connection has to be closed, within this budget.
    Close(Drain),
    /// The client has sent no further request for a while.
    Quiet,
}

impl H1Session {
    fn link(&mut self) -> &mut H1Link {
        match &mut self.client.link {
            Link::H1(link) => link,
            Link::H2(_) | Link::Client(_) | Link::Cached(_) | Link::Ahead(_) => {
                unreachable!("an HTTP/1 session has an HTTP/1 link")
            }
        }
    }

    /// Waits for the first byte of a request, for `span`, or without `span` for the time that idle connections are kept.
    /// Returns true if it has arrived. If it has not and there was no `span`, the connection has to end.
    async fn wait(&mut self, span: Option<Duration>) -> bool {
        let timeouts = &self.connection.terms.timeouts;
        let mut deadline = clock::now() + span.unwrap_or(timeouts.keep_alive);
        let mut told = false;
        poll_fn(move |cx| {
            let Link::H1(link) = &mut self.client.link else { return Poll::Ready(false) };
            if !link.ahead().is_empty() {
                return Poll::Ready(true);
            }
            if let Poll::Ready(more) = link.poll_ahead(cx) {
                return Poll::Ready(matches!(more, Ok(true)));
            }
            // A client without a request so far is about to send one, and gets a grace period.
            if span.is_none()
                && !told
                && self.connection.registered.poll_told(cx)
                && !self.connection.registered.has_time()
            {
                told = true;
                let grace = if self.requests == 0 { GRACE } else { Duration::ZERO };
                deadline = deadline.min(clock::now() + grace);
            }
            let tight = self.requests > 0 && pressure::is_tight(self.connection.registered.holdings());
            // Input that has arrived is served even if the event loop has not reported it yet.
            let over = tight || self.timer.poll(cx, deadline).is_ready();
            if !over || span.is_none() && link.has_unread() {
                return Poll::Pending;
            }
            // A connection with a `span` will wait again without one, and is counted then.
            if tight && span.is_none() {
                pressure::DRAINED.inc();
            }
            Poll::Ready(false)
        })
        .await
    }

    /// Serves requests as long as each one comes soon after the previous one. Returns true if the
    /// connection stays open.
    async fn burst(&mut self) -> bool {
        let mut scratch = Scratch::take();
        let end = self.serve_each(&mut scratch).await;
        // The memory is released first, because the client may take long to close.
        scratch.give();
        match end {
            ConnectionEnd::Gone => return false,
            ConnectionEnd::Close(drain) => self.close(drain).await,
            ConnectionEnd::Quiet => return true,
        }
        false
    }

    async fn serve_each(&mut self, Scratch { request, response, .. }: &mut Scratch) -> ConnectionEnd {
        let proxy = Arc::clone(&self.connection.proxy);
        let mut config = proxy.config_cache();
        loop {
            match self.exchange(config.load(), request, response).await {
                Outcome::Abort => return ConnectionEnd::Gone,
                Outcome::Close => return ConnectionEnd::Close(self.drain()),
                Outcome::Reusable => {}
                Outcome::Moved => {
                    drop(config);
                    return Box::pin(self.go_on(request, response)).await;
                }
            }
            if !self.link().is_received() {
                let mut drain = self.drain();
                if !self.drain_body(&mut drain).await {
                    return ConnectionEnd::Close(drain);
                }
            }
            request.shrink();
            if self.link().ahead().is_empty() && !self.wait(Some(LINGER)).await {
                return if self.link().has_ended() { ConnectionEnd::Gone } else { ConnectionEnd::Quiet };
            }
        }
    }

    /// Serves the rest of the connection's last request without its original configuration, which has been dropped.
    async fn go_on(&mut self, request: &mut Request, response: &mut Response) -> ConnectionEnd {
        let (proxy, peer) = (&*self.connection.proxy, &*self.connection.peer);
        let (client, timer) = (&mut self.client, &mut self.timer);
        let Some(moved) = client.moved.take() else { return ConnectionEnd::Gone };
        match moved.go_on(MovedEnds { proxy, peer, client, request, response, timer }).await {
            Outcome::Abort => ConnectionEnd::Gone,
            Outcome::Close | Outcome::Reusable | Outcome::Moved => ConnectionEnd::Close(self.drain()),
        }
    }

    /// Receives one request and serves it.
    async fn exchange(
        &mut self,
        config: &Arc<Config>,
        request: &mut Request,
        response: &mut Response,
    ) -> Outcome {
        let began = self.began.take().unwrap_or_else(clock::now);
        let received = self.receive(config, request, began).await;
        self.client.head_sent = false;
        self.client.close = false;
        self.client.dropped = 0;
        self.requests += 1;
        let limits = &config.settings.limits;
        self.client.close_soon = self.connection.registered.is_told()
            || pressure::is_tight(self.connection.registered.holdings())
            || self.requests >= limits.requests_per_connection
            || !clock::is_within(clock::now(), self.connection.born, config.settings.timeouts.connection_age);
        let peer = &self.connection.peer;
        // Refused requests need the scheme, too.
        request.secure = peer.is_secure();
        let understood = match received {
            Ok(()) => request.understand_h1(peer.stands_in()),
            Err(NoHead::Fault(HeadFault::Closed | HeadFault::Link(_))) => return Outcome::Abort,
            Err(NoHead::Memory) => Err(Error::Memory),
            Err(NoHead::Late) => Err(Error::HeadTimeout),
            // Most likely a broken preface of HTTP/2, for which the connection ends (RFC 9113,
            // section 3.4).
            Err(NoHead::Fault(HeadFault::Malformed(RequestError::BadRequestLine)))
                if self.requests == 1 && names_another_protocol(self.link().ahead()) =>
            {
                return Outcome::Abort;
            }
            Err(NoHead::Fault(HeadFault::Malformed(error))) => {
                // The rest of the head, and a body that it announces, may be under way.
                self.cut = true;
                Err(Error::Request(error))
            }
        };
        match understood {
            Ok(()) => self.link().begin_receive(request.length, &config.head_limits),
            Err(_) => {
                // The following bytes may belong to a body: none of them may become a request.
                self.client.close = true;
                request.length = BodyLength::Empty;
                self.cut |= announces_body(&request.head.headers);
            }
        }
        request.began = Some(began);
        let admitted = exchange::admit(request, &self.connection.peer, understood);
        exchange::serve(
            exchange::ServedRequest {
                proxy: &self.connection.proxy,
                config,
                peer: &self.connection.peer,
                client: &mut self.client,
                request,
                response,
                timer: &mut self.timer,
            },
            admitted,
        )
        .await
    }

    /// Receives a request's head within its time limit, which runs from its first byte at `began`.
    async fn receive(
        &mut self,
        config: &Config,
        request: &mut Request,
        began: Instant,
    ) -> Result<(), NoHead> {
        let deadline = began + config.settings.timeouts.head;
        request.clear();
        self.link().head.keep(config.settings.falls_back);
        poll_fn(|cx| {
            let Link::H1(link) = &mut self.client.link else {
                return Poll::Ready(Err(NoHead::Fault(HeadFault::Closed)));
            };
            let polled = link.poll_request_head(cx, &config.head_limits, &mut request.head);
            // Method and target come together with the request line.
            request.has_method = !request.head.target().is_empty();
            let held = request.count() + link.held();
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(NoHead::Fault));
            }
            // An incomplete head must not hold too much memory.
            if held > 0 && !pressure::allows_head(held) {
                link.discard();
                link.release();
                self.cut = true;
                return Poll::Ready(Err(NoHead::Memory));
            }
            self.timer.poll(cx, deadline).map(|()| Err(NoHead::Late))
        })
        .await
    }

    /// The limits for reading the rest of an answered request.
    fn drain(&self) -> Drain {
        let terms = &self.connection.terms;
        let left = terms.limits.early_response_drain.saturating_sub(self.client.dropped);
        let deadline = Instant::now() + terms.timeouts.early_response_drain;
        Drain { budget: DropBudget::new(left, deadline), told: false }
    }

    /// Reads and drops the rest of the request's body. Returns true if it was short and arrived
    /// soon.
    async fn drain_body(&mut self, drain: &mut Drain) -> bool {
        poll_fn(|cx| {
            let Link::H1(link) = &mut self.client.link else { return Poll::Ready(false) };
            loop {
                match link.poll_receive(cx) {
                    Poll::Ready(Ok(ReceiveOutcome::End)) => return Poll::Ready(true),
                    Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                        let count = link.data().len();
                        link.consume(count);
                        if !drain.budget.spend(count) {
                            return Poll::Ready(false);
                        }
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => {
                        return drain.poll_over(cx, &self.connection, &mut self.timer).map(|()| false);
                    }
                }
            }
        })
        .await
    }

    /// Ends a connection without further output, with a close_notify under TLS. Bytes that cannot
    /// be sent at once are dropped.
    async fn goodbye(&mut self) {
        poll_fn(|cx| {
            let _ = self.link().poll_goodbye(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Ends the connection such that the client gets the whole response. A close with unread input causes a reset, which
    /// can overtake the response and drops its unsent part. So input is read and dropped up to a limit. Input beyond the
    /// limit stays unread, and the close waits until the client has had time to read the response (RFC 9112, 9.6).
    async fn close(&mut self, mut drain: Drain) {
        let all_read = !self.cut && self.link().is_received() && self.link().ahead().is_empty();
        let mut shut = false;
        let over = poll_fn(|cx| {
            let Link::H1(link) = &mut self.client.link else { return Poll::Ready(true) };
            if !shut {
                // Where nothing is unread, the close itself ends our side in good order.
                let sent = if all_read { link.poll_goodbye(cx) } else { link.poll_shutdown(cx) };
                match sent {
                    Poll::Ready(Ok(())) if all_read => return Poll::Ready(true),
                    Poll::Ready(Ok(())) => shut = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(true),
                    // The response is still on its way into the system.
                    Poll::Pending => return self.timer.poll(cx, drain.budget.deadline()).map(|()| true),
                }
            }
            loop {
                let count = link.ahead().len() + link.data().len();
                link.discard();
                if !drain.budget.spend(count) {
                    link.release();
                    return Poll::Ready(false);
                }
                match link.poll_ahead(cx) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(true),
                    Poll::Pending => {
                        return drain.poll_over(cx, &self.connection, &mut self.timer).map(|()| true);
                    }
                }
            }
        })
        .await;
        if !over {
            self.linger(drain).await;
        }
    }

    /// Gives the client the remaining time to read the response.
    async fn linger(&mut self, mut drain: Drain) {
        let Link::H1(link) = &self.client.link else { return };
        let failed = link.stream().socket().failed();
        tokio::pin!(failed);
        poll_fn(|cx| match failed.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => drain.poll_over(cx, &self.connection, &mut self.timer),
        })
        .await;
    }
}

/// The remaining budget for reading and dropping a client's data after its response.
struct Drain {
    budget: DropBudget,
    /// True once the connection has learned that the process or the listener ends.
    told: bool,
}

impl Drain {
    /// Ready once the time is up. If the process or the listener ends, the time is shortened to [`GRACE`].
    fn poll_over(&mut self, cx: &mut Context<'_>, connection: &Connection, timer: &mut Timer) -> Poll<()> {
        if !self.told && connection.registered.poll_told(cx) && !connection.registered.has_time() {
            self.told = true;
            self.budget.shorten(GRACE, Instant::now());
        }
        timer.poll(cx, self.budget.deadline())
    }
}

/// Returns true if the first line looks like a request line with an unknown method and without an
/// HTTP version at its end. A known method gets a response regardless.
fn names_another_protocol(ahead: &[u8]) -> bool {
    let line = ahead.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
    let method = words.next().and_then(Method::from_bytes);
    if !matches!(method, Some(Method::Other(_))) {
        return false;
    }
    let protocol = words.nth(1).unwrap_or_default();
    // The word may be incomplete, so only the bytes that have arrived are compared.
    let known = protocol.len().min(5);
    let is_http = protocol[..known].eq_ignore_ascii_case(&b"HTTP/"[..known]);
    !protocol.is_empty() && !is_http && words.next().is_none()
}

/// Returns true if a head, valid or not, announces a body.
fn announces_body(headers: &HeaderList) -> bool {
    headers.contains(NameId::TransferEncoding)
        || headers.get_all(NameId::ContentLength).any(|length| length.iter().any(|digit| *digit != b'0'))
}
