//! One request to an upstream, with all of its attempts: connecting, sending, waiting for the head
//! of a response, and trying again.
//!
//! This module knows no client and no exchange: an [`Asker`] provides the request and moves its
//! body. Interim responses are events.

mod choice;
mod hanging;
mod second;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_wire::{BodyLength, ResponseHead, connection, response_length};

use self::hanging::{HeadWait, has_another_attempt, poll_try_timeout};
use super::admission::enter;
use super::attempts::Attempts;
use super::authentication;
use super::judging::LOOK_AGAIN;
use super::members::{ActiveRequest, Upstream};
use super::opening::OpeningTerms;
use super::origin::Origin;
use super::retry::{RetryCause, Rules};
use super::server::Server;
use super::traced::{AttemptEnd, AttemptSpans};
use crate::error::Error;
use crate::limits::account::Account;
use crate::limits::gates::{RequestGate, RequestPass};
use crate::link::Link;
use crate::message::request::Request;
use crate::settings::{self, Retry, UpstreamProtocol};
use crate::spans::SpanParent;
use crate::time::clock;

/// The most bytes of the heads of all interim responses to a request. If there are more, the client
/// gets 502.
const INTERIM_BYTES: u32 = 64 * 1024;

/// The asking side: it has the request and its body, and sets the time limits for the origin.
pub trait Asker {
    /// The request as the origin gets it, and the place for the response's head.
    fn heads(&mut self) -> (&mut Request, &mut ResponseHead);

    /// Ready if the response is no longer wanted. It is polled while a connection is made.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error>;

    /// Called when an origin has got the head of the request. The body must be sent from its beginning.
    fn begin_body(&mut self, now: Instant);

    /// Moves as much of the body as the origin accepts. Returns false while the asker has no room for
    /// the head of a response.
    ///
    /// # Errors
    ///
    /// The request body will never be complete.
    fn poll_body(&mut self, cx: &mut Context<'_>, origin: &mut Link) -> Result<bool, Error>;

    /// Ready with true once the origin has the whole body, and with false if it will never get all of
    /// it; pending while more of the body has to be moved.
    fn body_is_whole(&self) -> Poll<bool>;

    /// Returns true if the origin has all of the body so far, and the rest has to come from elsewhere.
    fn awaits_body(&self) -> bool {
        false
    }

    /// Waits for the deadline that applies now. It is polled when nothing can be moved.
    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &settings::UpstreamSettings,
    ) -> Poll<Result<(), Error>>;

    /// The time since which only the origin can act: when it got the last part of the request. `None` while the next part is
    /// awaited, or while the asker has no room for the head of a response.
    fn awaits_origin_since(&self) -> Option<Instant>;

    /// Ready once `until` has passed.
    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()>;

    /// Returns true if the request is still available for another attempt after `error`.
    fn may_repeat(&mut self, error: &Error) -> bool;
}

/// An event during a request.
#[derive(Debug)]
pub enum Answer {
    /// An interim response has arrived, and the asker has its head. The final response is still to come.
    Interim,
    /// The final response has begun, and the asker has its head. The body, with this framing, must be
    /// read from the origin.
    Final(Origin, BodyLength),
}

/// A request to an upstream.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The upstream that is asked.
    pub upstream: &'a Arc<Upstream>,
    /// The time until the head of the last attempt's final response, or until its failure if a response had begun.
    pub first_byte: Option<Duration>,
    /// True if the connection of the last attempt had served others before.
    pub reused: Option<bool>,
    pub(super) terms: OpeningTerms<'a>,
    pub(super) active: ActiveRequest<'a>,
    pub(super) attempts: Attempts,
    /// The state of the rules for further attempts, if there are any.
    pub(super) rules: Option<Box<Rules<'a>>>,
    /// The request's turn, if the upstream limits its requests in flight. `None` if the limit does not apply to it.
    pub(super) turn: Option<Box<RequestTurn>>,
    /// Records the attempts, if the request's trace is recorded.
    pub(super) spans: Option<Box<AttemptSpans>>,
    /// When the last attempt began.
    pub(super) began: Instant,
    /// The connection of the present attempt, on which the response will arrive.
    pub(super) origin: Option<Origin>,
    /// The bytes of the interim responses so far, counted as if in HTTP/1 format.
    pub(super) interim: u32,
    /// The time from the start of the last attempt to its connection, in microseconds.
    pub(super) opened: u32,
    /// The time of the next check whether the server hangs, in milliseconds after the attempt began; 0
    /// before the first check.
    pub(super) look_at: u32,
    /// True if the request was sent to a second server as well, because the first one may hang.
    pub(super) is_doubled: bool,
}

/// The place of a request among those in flight to an upstream.
#[derive(Debug)]
pub(super) struct RequestTurn {
    /// The client whose turn it is.
    account: Account,
    /// The place, once the request has it.
    pass: Option<RequestPass>,
}

/// Waits for a place among the requests in flight. The future is boxed, so that requests that need no place reserve no
/// room for it.
fn enter_boxed<'f, A: Asker>(
    gate: &'f Arc<RequestGate>,
    account: Account,
    upstream: &'f Upstream,
    asker: &'f mut A,
) -> Pin<Box<impl Future<Output = Result<RequestPass, Error>> + use<'f, A>>> {
    Box::pin(enter(gate, account, &upstream.metrics, |cx| asker.poll_gone(cx)))
}

impl<'a> Ask<'a> {
    /// A new request. `terms` apply to its connections, and are completed from the request.
    pub fn new(upstream: &'a Arc<Upstream>, terms: OpeningTerms<'a>) -> Self {
        let now = clock::now();
        Self {
            upstream,
            first_byte: None,
            reused: None,
            terms,
            active: upstream.enter(),
            attempts: Attempts::default(),
            rules: Rules::new(&upstream.settings.retry, &[]),
            turn: None,
            spans: None,
            began: now,
            origin: None,
            interim: 0,
            opened: 0,
            look_at: 0,
            is_doubled: false,
        }
    }

    /// Makes further attempts follow these rules instead of the upstream's. The attempts may also go to `others`.
    ///
    /// This method and the next two change the request in place: it is large, and moving it would cost every request time.
    pub fn set_rules(&mut self, rules: &'a [Retry], others: &'a [Arc<Upstream>]) {
        self.rules = Rules::new(rules, others);
    }

    /// Makes the request wait for a place, if the upstream limits its requests in flight. Waiting requests of different
    /// clients take turns.
    pub fn set_account(&mut self, account: Account) {
        if self.upstream.gate.is_some() || self.rules.is_some() {
            self.turn = Some(Box::new(RequestTurn { account, pass: None }));
        }
    }

    /// Records the attempts as children of this span, if there is one.
    pub fn set_span(&mut self, parent: Option<SpanParent>) {
        if let Some(parent) = parent {
            self.spans = Some(AttemptSpans::new(parent));
        }
    }

    /// How many attempts there have been.
    pub fn attempts(&self) -> u32 {
        self.attempts.made()
    }

    /// The server that was tried last.
    pub fn server(&self) -> Option<&'a Server> {
        self.upstream.servers.get(self.attempts.last()?)
    }

    /// Waits until a response has begun. After a failed attempt, further attempts follow if they are safe
    /// and the upstream allows them.
    ///
    /// # Errors
    ///
    /// The error of the last attempt. [`Error::is_before_sending`] and
    /// [`Error::is_before_response`] tell if the caller may repeat the request.
    pub async fn answer<A: Asker>(&mut self, asker: &mut A) -> Result<Answer, Error> {
        if self.attempts.made() == 0 && self.passes_over(asker) {
            self.enter_next();
        }
        loop {
            let error = match self.attempt(asker).await {
                Ok(Answer::Interim) => {
                    if let Some(rules) = &mut self.rules {
                        rules.has_relayed();
                    }
                    return Ok(Answer::Interim);
                }
                Ok(answer) => return Ok(answer),
                // The response was dropped because of its status, and another attempt follows.
                Err(Error::Unwanted) => continue,
                Err(error @ (Error::TryTimeout | Error::OriginHangs)) if self.origin.is_some() => {
                    if self.may_go_on(asker, &error) {
                        self.note_pace(None);
                        self.end_attempt(&error);
                        self.enter_next();
                    } else if let Some(rules) = self.rules.as_mut().filter(|_| error == Error::TryTimeout) {
                        // No other attempt may follow, so this one gets the upstream's full time limit.
                        rules.try_timeout = None;
                    }
                    continue;
                }
                Err(Error::NoUpgrade) if self.may_use_http1() => {
                    // Nothing was sent, so the attempt continues over HTTP/1.1.
                    (self.origin, self.terms.http1) = (None, true);
                    self.attempts.go_on();
                    continue;
                }
                Err(error) => error,
            };
            if error.is_failure_of_the_server() {
                self.note_pace(None);
            }
            self.end_attempt(&error);
            if !self.may_go_on(asker, &error) {
                return Err(error);
            }
            self.enter_next();
        }
    }

    /// Gives up the request's place among those in flight: the origin no longer works on it.
    pub fn leave(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.pass = None;
        }
    }

    /// Returns true if a request that HTTP/2 does not accept may be sent over HTTP/1.1 instead.
    fn may_use_http1(&self) -> bool {
        !self.terms.http1 && self.upstream.settings.protocol == UpstreamProtocol::Auto
    }

    async fn attempt<A: Asker>(&mut self, asker: &mut A) -> Result<Answer, Error> {
        if self.origin.is_none() {
            self.connect(asker).await?;
            self.send_head(asker).await?;
            asker.begin_body(clock::now());
        }
        self.wait_for_head(asker).await?;
        if self.rules.is_some() && asker.heads().1.status >= 200 && self.is_unwanted(asker) {
            return Err(Error::Unwanted);
        }
        let (request, head) = asker.heads();
        if let (Some(verbatim), Some(origin)) = (&mut request.verbatim, &self.origin) {
            verbatim.response.clear();
            verbatim.response.extend_from_slice(origin.kept_head());
        }
        match head.status {
            200.. => self.begin_final(asker),
            101 => {
                agree_on_protocol(request, head)?;
                // The request body must be complete, because the origin reads everything after the switch as
                // the new protocol (RFC 9110, section 7.8).
                poll_fn(|cx| self.poll_rest(cx, asker)).await?;
                self.begin_final(asker)
            }
            _ => {
                self.count_interim(head)?;
                // The response has no body, whatever its fields say. But contradictory lengths are an error,
                // since they may be a sign of request smuggling (RFC 9112, section 6.3).
                response_length(&request.head.method, head).map_err(Error::ResponseFraming)?;
                Ok(Answer::Interim)
            }
        }
    }

    /// Sends the head of the request in the form for this upstream.
    async fn send_head<A: Asker>(&mut self, asker: &mut A) -> Result<(), Error> {
        let origin = self.origin.as_mut().ok_or(Error::Internal)?;
        let request = asker.heads().0;
        if let Some(spans) = &self.spans {
            spans.tell(request);
        }
        let diversions = self.rules.as_ref().map_or(&[][..], |rules| rules.diversions());
        if diversions.is_empty() {
            return origin.send_head(request, &self.upstream.settings).await;
        }
        let present = request.present();
        request.divert(diversions);
        let sent = origin.send_head(request, &self.upstream.settings).await;
        request.return_to(present);
        sent
    }

    /// Chooses a server and gets a connection to it.
    async fn connect<A: Asker>(&mut self, asker: &mut A) -> Result<(), Error> {
        let upstream = self.upstream;
        if let (Some(gate), Some(turn)) = (&upstream.gate, &mut self.turn)
            && turn.pass.is_none()
        {
            // Boxed, because few requests need it, and it would enlarge the future of every request.
            turn.pass = Some(enter_boxed(gate, turn.account, upstream, asker).await?);
        }
        let now = clock::now();
        let bound = upstream.bound_server(self.terms.own.and_then(OnceLock::get));
        let (request, _) = asker.heads();
        let (server, fresh) =
            self.begin_attempt(request, bound, now).ok_or_else(|| upstream.without_server())?;
        (self.first_byte, self.began, self.opened, self.look_at) = (None, now, 0, 0);
        (self.interim, self.is_doubled) = (0, false);
        let repeats = request.is_repeatable();
        let try_timeout = self.rules.as_mut().and_then(|rules| rules.begin(request, repeats));
        if let Some(spans) = &mut self.spans
            && let Some(server) = upstream.servers.get(server)
        {
            spans.begin(upstream, server, request, self.attempts.made());
        }
        self.terms.fresh = fresh;
        self.terms.authenticates = authentication::has_credentials(&request.head.headers);
        let (opened, late) = self.open(asker, (server, now), try_timeout.map(|time| now + time)).await;
        match opened {
            Ok(origin) => {
                self.reused = Some(origin.reused);
                let took = clock::now().saturating_duration_since(self.began).as_micros();
                self.opened = u32::try_from(took).unwrap_or(u32::MAX);
                if let Some(spans) = &mut self.spans {
                    spans.connected(origin.reused, origin.link.is_h2());
                }
                self.origin = Some(origin);
                Ok(())
            }
            Err(error) => {
                // The request was abandoned, so other requests must not wait for its result.
                if let Error::Client(_) = error {
                    upstream.judge.failed(server, self.began, clock::now(), &error);
                } else if let Some(late) = late {
                    upstream.judge.failed(server, self.began, clock::now(), &late);
                }
                Err(error)
            }
        }
    }

    /// Gets a connection to a server. The second value is `Some` if the attempt was given up before it had a
    /// connection, and the server was the cause; it then has the reason.
    fn open<A: Asker>(
        &mut self,
        asker: &mut A,
        (server, now): (usize, Instant),
        until: Option<Instant>,
    ) -> impl Future<Output = (Result<Origin, Error>, Option<Error>)> {
        // The fields are borrowed, because a copy would enlarge each request in flight.
        let Self { upstream, terms, attempts, rules, active, .. } = self;
        let upstream = *upstream;
        let mut late = None;
        // A server with a full accept queue hangs as well. An attempt cannot be resumed after it was given up, so it is
        // given up only if there is another server.
        let mut look_at =
            upstream.judge.first_look().filter(|_| !terms.authenticates).map(|after| now + after);
        // These variables stay outside of the future, which would otherwise reserve room for them twice.
        async move {
            let mut open = pin!(upstream.connections.open(server, terms, now));
            let opened = poll_fn(|cx| {
                let opened = open.as_mut().poll(cx);
                if let Poll::Ready(Ok(Origin { reused: true, .. }) | Err(_)) = opened {
                    return opened;
                }
                if opened.is_pending()
                    && let Some(until) = until
                    && asker.poll_until(cx, until).is_ready()
                {
                    late = Some(Error::TryTimeout);
                    return Poll::Ready(Err(Error::ConnectTimeout));
                }
                while opened.is_pending()
                    && let Some(at) = look_at
                    && asker.poll_until(cx, at).is_ready()
                {
                    let now = upstream.clock.now();
                    look_at = Some(now + LOOK_AGAIN.0);
                    let mut has_another = || {
                        let is_allowed = asker.may_repeat(&Error::ConnectTimeout) && active.has_budget(now);
                        let so_far = (&*attempts, rules.as_deref());
                        is_allowed && has_another_attempt(so_far, Error::ConnectTimeout, upstream, now)
                    };
                    if upstream.judge.hangs(server, now) && has_another() {
                        late = Some(Error::OriginHangs);
                        return Poll::Ready(Err(Error::ConnectTimeout));
                    }
                }
                // Connecting takes a while, and the asker may have left in the meantime.
                let Poll::Ready(error) = asker.poll_gone(cx) else { return opened };
                if let Poll::Ready(Ok(origin)) = opened {
                    upstream.connections.put_back(origin, clock::now());
                }
                Poll::Ready(Err(error))
            })
            .await;
            (opened, late)
        }
    }

    /// Waits for the head of a response while the body of the request is on its way.
    fn poll_head<A: Asker>(&mut self, cx: &mut Context<'_>, asker: &mut A) -> Poll<Result<HeadWait, Error>> {
        let Some(origin) = &mut self.origin else { return Poll::Ready(Err(Error::Internal)) };
        // While the asker has no room for the head, the head is not read.
        if asker.poll_body(cx, &mut origin.link)?
            && let Poll::Ready(result) = origin.poll_head(cx, &self.upstream.connections, asker.heads().1)
        {
            return Poll::Ready(result.map(|()| HeadWait::Arrived));
        }
        if poll_try_timeout(self, cx, asker).is_ready() {
            return Poll::Ready(Err(Error::TryTimeout));
        }
        if let Poll::Ready(result) = asker.poll_deadline(cx, &self.upstream.settings) {
            return Poll::Ready(result.map(|()| HeadWait::Arrived));
        }
        self.poll_hanging(cx, asker)
    }

    /// Moves the rest of the request's body.
    fn poll_rest<A: Asker>(&mut self, cx: &mut Context<'_>, asker: &mut A) -> Poll<Result<(), Error>> {
        let Some(origin) = &mut self.origin else { return Poll::Ready(Err(Error::Internal)) };
        asker.poll_body(cx, &mut origin.link)?;
        match asker.body_is_whole() {
            Poll::Ready(true) => Poll::Ready(Ok(())),
            Poll::Ready(false) => {
                Poll::Ready(Err(Error::Switch("a switch of protocols before the request was whole")))
            }
            Poll::Pending => asker.poll_deadline(cx, &self.upstream.settings),
        }
    }

    fn count_interim(&mut self, head: &ResponseHead) -> Result<(), Error> {
        const LINE: usize = "HTTP/1.1 103 \r\n".len() + "\r\n".len();
        let fields = head.headers.iter().map(|field| field.name.len() + field.value.len() + ": \r\n".len());
        let bytes = LINE + head.reason().len() + fields.sum::<usize>();
        self.interim = self.interim.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        match self.interim <= INTERIM_BYTES {
            true => Ok(()),
            false => Err(Error::Interim("more than 64 KiB of interim responses")),
        }
    }

    /// Begins the final response, and records that the server has answered.
    fn begin_final<A: Asker>(&mut self, asker: &mut A) -> Result<Answer, Error> {
        let (upstream, terms) = (self.upstream, self.terms);
        let origin = self.origin.as_mut().ok_or(Error::Internal)?;
        let (request, head) = asker.heads();
        let length = origin.begin_body(&upstream.connections, request, head)?;
        origin.final_has_begun();
        let now = clock::now();
        let took = now.saturating_duration_since(self.began);
        self.first_byte = Some(took);
        if let Some(own) = terms.own {
            upstream.connections.bind(origin, own);
        }
        if let Some(server) = self.attempts.last() {
            upstream.judge.answered(server, head.status, took, now);
            if let Some(server) = upstream.servers.get(server) {
                origin.address_answered(server);
            }
            self.note_pace((head.status != 503).then_some(took));
            upstream.picker.bind_client(server, &request.head.headers, &mut head.headers);
        }
        if let Some(spans) = &mut self.spans {
            spans.end(AttemptEnd::Answered(head.status));
        }
        self.active.answered();
        if let Some(rules) = &mut self.rules {
            rules.answered();
        }
        self.origin.take().map(|origin| Answer::Final(origin, length)).ok_or(Error::Internal)
    }

    /// Ends the attempt without a response.
    pub fn end_attempt(&mut self, error: &Error) {
        if let Some(spans) = &mut self.spans {
            spans.end(AttemptEnd::Failed(error));
        }
        if let Some(origin) = self.origin.take() {
            self.has_failed(&origin, error);
        }
    }

    /// Records that a response has failed on its connection, before or after the end of its head.
    pub fn has_failed(&mut self, origin: &Origin, error: &Error) {
        // A kept connection that turns out to be dead is no failure of the server.
        let is_race = self.attempts.failed_on(origin, error);
        if origin.has_begun() {
            self.first_byte.get_or_insert_with(|| self.began.elapsed());
        }
        origin.gave_up(error, &self.upstream.settings);
        if let Some(server) = self.attempts.last().filter(|_| !is_race) {
            self.upstream.judge.attempt_failed(server, origin, self.began, clock::now(), error);
        }
    }

    /// Records that no response has arrived within `patience`, the time limit for all attempts together.
    pub fn ran_out(&mut self, patience: Duration) {
        let (upstream, now) = (self.upstream, self.upstream.clock.now());
        if let Some(spans) = &mut self.spans {
            spans.end(AttemptEnd::Failed(&Error::FirstByteTimeout));
        }
        let origin = self.origin.take();
        if let Some(origin) = &origin {
            self.ran_out_on(origin);
        }
        let Some(server) = self.attempts.last() else { return };
        // An earlier attempt at another server may have used up most of the time: this server is not
        // blamed then.
        if 2 * now.saturating_duration_since(self.began) < patience {
            return upstream.judge.gave_up(server, self.began, now);
        }
        if let (Some(origin), Some(server)) = (&origin, upstream.servers.get(server)) {
            origin.address_failed(server, now);
        }
        upstream.judge.failed(server, self.began, now, &Error::FirstByteTimeout);
    }

    /// Records that the body of a response timed out.
    pub fn ran_out_on(&self, origin: &Origin) {
        origin.gave_up_after(self.opened_at().elapsed());
    }

    /// The time at which the last attempt got its connection.
    fn opened_at(&self) -> Instant {
        self.began + Duration::from_micros(self.opened.into())
    }

    /// Prepares for another request, because the response to this one cannot be used. This is not a failure, and the
    /// new request gets the full number of attempts.
    pub fn start_over(&mut self) {
        self.attempts.start_over();
    }

    /// Tells the gate how long an attempt took, or that it failed (`None`). The gate adjusts an adaptive limit to
    /// this.
    fn note_pace(&self, took: Option<Duration>) {
        if let Some(gate) = &self.upstream.gate {
            gate.answered(took, clock::now());
        }
    }

    fn may_go_on<A: Asker>(&mut self, asker: &mut A, error: &Error) -> bool {
        // A response that has begun is not repeated.
        if self.interim > 0 || self.first_byte.is_some() || !asker.may_repeat(error) {
            return false;
        }
        let request = &*asker.heads().0;
        let (repeatable, now) = (request.is_repeatable(), clock::now());
        match &mut self.rules {
            None => self.attempts.may_go_on(&mut self.active, error, repeatable, now),
            Some(rules) => {
                self.attempts.may_repeat_for_free(self.upstream, error, repeatable, now)
                    || rules.allow(
                        (&mut self.attempts, &mut self.active),
                        RetryCause::Error(*error),
                        request,
                        now,
                    )
            }
        }
    }

    /// Returns true if the response was dropped because of its status, so that another attempt can follow.
    fn is_unwanted<A: Asker>(&mut self, asker: &mut A) -> bool {
        let Some(rules) = &mut self.rules else { return false };
        let (request, head) = asker.heads();
        let cause = RetryCause::of_response(head);
        if !rules.is_about(cause)
            || authentication::has_credentials(&request.head.headers)
            || !asker.may_repeat(&Error::OriginRefused)
        {
            return false;
        }
        let (request, now) = (&*asker.heads().0, clock::now());
        if !rules.allow((&mut self.attempts, &mut self.active), cause, request, now) {
            return false;
        }
        self.drop_response(asker);
        self.enter_next();
        true
    }

    /// Ends an attempt with an unwanted response. For the health of the server, the attempt counts as answered.
    fn drop_response<A: Asker>(&mut self, asker: &mut A) {
        let is_whole = matches!(asker.body_is_whole(), Poll::Ready(true));
        let (request, head) = asker.heads();
        if let Some(spans) = &mut self.spans {
            spans.end(AttemptEnd::Answered(head.status));
        }
        let Some(mut origin) = self.origin.take() else { return };
        origin.final_has_begun();
        if let Some(server) = self.attempts.last_before() {
            let now = clock::now();
            let took = now.saturating_duration_since(self.began);
            self.upstream.judge.answered(server, head.status, took, now);
            self.note_pace((head.status != 503).then_some(took));
        }
        match origin.begin_body(&self.upstream.connections, request, head) {
            Ok(length) if is_whole && length != BodyLength::Tunnel => {
                self.upstream.connections.drop_rest(origin);
            }
            _ => origin.link.abort(),
        }
    }

    /// Switches to the upstream that a rule has chosen for the next attempt, if any.
    fn enter_next(&mut self) {
        let Some(next) = self.rules.as_mut().and_then(|rules| rules.next.take()) else { return };
        let before = std::mem::replace(&mut self.active, next.enter());
        if let Some(rules) = &mut self.rules {
            rules.enter(next, before);
        }
        (self.upstream, self.terms.http1) = (next, false);
        if let Some(turn) = &mut self.turn {
            turn.pass = None;
        }
        self.attempts.change_upstream();
    }
}

/// Checks that the origin switches to a protocol that the request offered.
fn agree_on_protocol(request: &mut Request, head: &ResponseHead) -> Result<(), Error> {
    let Some(offered) = request.upgrade.as_deref() else {
        return Err(Error::Switch("a protocol switch that was not asked for"));
    };
    let chosen = connection::upgrade(&head.headers).ok_or(Error::Switch("a switch to no protocol"))?;
    if !offered.split(|byte| *byte == b',').any(|offer| offer.trim_ascii().eq_ignore_ascii_case(chosen)) {
        return Err(Error::Switch("a switch to a protocol that was not offered"));
    }
    // The accept value is checked only if the key is ours. A client that sent its own key checks the
    // value itself.
    if let Some(key) = &request.websocket_key
        && chosen.eq_ignore_ascii_case(b"websocket")
        && head.headers.get_name(b"sec-websocket-accept")
            != Some(crate::websocket::accept(key.as_bytes()).as_bytes())
    {
        return Err(Error::Switch("a WebSocket without the answer to its key"));
    }
    request.upgrade = Some(chosen.to_vec());
    Ok(())
}
