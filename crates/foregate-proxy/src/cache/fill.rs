//! A fetch for the cache, or the validation of a stored response, in a task of its own: it continues when its client
//! leaves.

use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, Demands, Failure, FetchFailure, FlightWatch, Key, KeyText, Lead, Moment, Object,
    Response, Reuse, Sequence, StoredHead, Tag, ask_for_whole, ask_to_validate, refresh, reuse, store,
};
use foregate_wire::{BodyLength, HeaderList, NameId, ResponseHead};
use tokio::sync::mpsc;

use super::readers::SlowReaders;
use super::{Cache, OwnerAsk};
use crate::counters::cache::CacheOutcome;
use crate::error::Error;
use crate::limits::account::Account;
use crate::limits::clients::Holdings;
use crate::limits::pressure::Charge;
use crate::link::{Link, ReceiveOutcome};
use crate::message::request::Request;
use crate::settings::{self, OriginTimes, RouteRetry};
use crate::spans::SpanParent;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::upstream::{Addresses, Answer, Ask, Asker, OpeningTerms, Origin, Upstream};

/// Pieces that are taken from an origin at a time. Beyond, other tasks of the worker have their
/// turn.
const BURST: usize = 16;

/// Fetches under way that a client may have caused and that go on without it. Further ones end with
/// the requests that wait for them.
const DETACHED_MOST: usize = 64;
/// How often such a fetch looks if a request still waits for it.
const LOOK: Duration = Duration::from_millis(500);

/// A fetch in the account of its client.
struct CountedFetch(Option<Arc<Holdings>>);

impl CountedFetch {
    /// Counts it. Returns true with it if the client has caused many.
    fn new(client: Option<Arc<Holdings>>) -> (Self, bool) {
        let before = client.as_ref().map(|client| client.fetches.fetch_add(1, Ordering::Relaxed));
        (Self(client), before.is_some_and(|before| before >= DETACHED_MOST))
    }
}

impl Drop for CountedFetch {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            client.fetches.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A fetch that is about to begin.
#[derive(Debug)]
pub struct Fill {
    /// The cache that it fills.
    pub cache: Arc<Cache>,
    /// The settings of the route.
    pub settings: Arc<settings::CacheSettings>,
    /// The upstream that is asked.
    pub upstream: Arc<Upstream>,
    /// The time limit of an origin.
    pub times: OriginTimes,
    /// The request for the origin, without conditions and ranges.
    pub request: Request,
    /// The demands of the client that has caused it.
    pub demands: Demands,
    /// The fields of that client's request, from which those that Vary names are taken.
    pub fields: HeaderList,
    /// The text of the key, and the key of the address.
    pub text: KeyText,
    /// See `text`.
    pub key: Key,
    /// Its place in the table of fetches.
    pub lead: Lead,
    /// The stored response that is validated.
    pub stale: Option<Arc<Object>>,
    /// The node of the shield that is asked instead of the origin, if there is one.
    pub owner: Option<Box<OwnerAsk>>,
    /// The tags of a response that came from there, sorted.
    pub tags: Vec<Tag>,
    /// The stored response came from the reserve, so the client that caused the fetch does not know it.
    pub from_reserve: bool,
    /// The client that has caused it, if it waits for more than the others get.
    pub hand: Option<mpsc::Sender<LeaderParts>>,
    /// The client's address, where the upstream chooses servers by it.
    pub behalf: Option<IpAddr>,
    /// The account of the client, on which connections are made.
    pub client: Option<Arc<Holdings>>,
    /// The client whose turn the request takes, where the upstream bounds its requests.
    pub account: Account,
    /// The route's rules for further attempts, instead of the upstream's.
    pub retry: RouteRetry,
    /// The upstreams to which rules may send further attempts.
    pub others: Vec<Arc<Upstream>>,
    /// The span that it is a part of, where the trace of that client's request is recorded.
    pub span: Option<SpanParent>,
}

/// The parts of a response for the client that caused the fetch, in addition to its followers.
#[derive(Debug)]
pub enum LeaderParts {
    /// The head of an interim response.
    Interim(Box<ResponseHead>),
    /// The attempts that led to the response or the failure that follows.
    Asked(FetchRecord),
    /// A response that is not stored, with its body.
    Origin(Box<ResponseHead>, OriginAnswer, Option<foregate_cache::NotStored>),
    /// The head of a response that is stored but is not for others; the body is followed.
    Own(Arc<StoredHead>),
    /// A stored response that the origin has found current for this client. Others ask for
    /// themselves.
    Validated(Arc<Object>),
    /// The response comes from the node of the shield that owns its address.
    FromOwner,
    /// A response of the reserve, and how it was used.
    Found(Arc<Object>, CacheOutcome),
    /// The error, which others know in general only.
    Failed(Error),
}

/// The attempts of a fetch, for the access log of the client that caused it.
#[derive(Debug)]
pub struct FetchRecord {
    /// The upstream that was asked last.
    pub upstream: Arc<Upstream>,
    /// The address of the server that was asked last.
    pub server: Option<String>,
    /// The number of attempts.
    pub attempts: u32,
    /// The time from the last attempt's start to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// True if the last connection had served other requests before.
    pub reused: Option<bool>,
}

impl FetchRecord {
    fn new(ask: &Ask<'_>) -> Self {
        Self {
            upstream: Arc::clone(ask.upstream),
            server: ask.server().map(|server| server.label.to_string()),
            attempts: ask.attempts(),
            first_byte: ask.first_byte,
            reused: ask.reused,
        }
    }
}

/// A response whose body is still to come, and the upstream that sends it.
#[derive(Debug)]
pub struct OriginAnswer {
    /// The upstream: a rule may have sent the request to another one.
    pub upstream: Arc<Upstream>,
    /// The connection.
    pub origin: Origin,
    /// The framing of the body.
    pub length: BodyLength,
}

/// The fill asks an upstream, without a body.
pub(super) struct FillAsks {
    pub request: Request,
    pub head: ResponseHead,
    since: Instant,
    first_byte: Duration,
    finished: bool,
    timer: Timer,
}

impl FillAsks {
    pub fn new(request: Request, first_byte: Duration) -> Self {
        Self {
            request,
            head: ResponseHead::new(),
            since: clock::now(),
            first_byte,
            finished: false,
            timer: Timer::new(first_byte),
        }
    }
}

impl Asker for FillAsks {
    fn heads(&mut self) -> (&mut Request, &mut ResponseHead) {
        (&mut self.request, &mut self.head)
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<Error> {
        Poll::Pending
    }

    fn begin_body(&mut self, now: Instant) {
        (self.since, self.finished) = (now, true);
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, origin: &mut Link) -> Result<bool, Error> {
        if let Poll::Ready(Err(_)) = origin.poll_flush(cx) {
            // An origin may close its side and still have an answer for us, which comes next.
        }
        Ok(true)
    }

    fn body_is_whole(&self) -> Poll<bool> {
        if self.finished { Poll::Ready(true) } else { Poll::Pending }
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        _: &settings::UpstreamSettings,
    ) -> Poll<Result<(), Error>> {
        let until = self.since + self.first_byte;
        self.timer.poll(cx, until).map(|()| Err(Error::FirstByteTimeout))
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        self.timer.poll(cx, until)
    }

    fn may_repeat(&mut self, _: &Error) -> bool {
        true
    }
}

/// A response after its head has arrived.
pub(super) struct FetchedResponse {
    pub origin: Origin,
    pub length: BodyLength,
    pub sent: Moment,
    pub received: Moment,
    pub sequence: Sequence,
}

impl Fill {
    /// Begins it.
    pub fn spawn(mut self) {
        match &self.stale {
            Some(stale) => ask_to_validate(&mut self.request.head.headers, &stale.head),
            None => ask_for_whole(&mut self.request.head.headers),
        }
        let (counted, is_one_of_many) = CountedFetch::new(self.client.clone());
        tokio::spawn(async move {
            let _counted = counted;
            if !is_one_of_many {
                return self.run().await;
            }
            let watch = self.lead.watch();
            tokio::select! {
                () = self.run() => {}
                () = nobody_follows(watch) => {}
            }
        });
    }

    async fn run(mut self) {
        if let Some(owner) = self.owner.take() {
            self = match Box::pin(self.ask_owner(*owner)).await {
                ControlFlow::Break(()) => return,
                ControlFlow::Continue(fill) => fill,
            };
        }
        if self.cache.reserve.is_some() && self.stale.is_none() {
            self = match self.ask_reserve().await {
                Some(fill) => fill,
                None => return,
            };
        }
        let upstream = Arc::clone(&self.upstream);
        let (client, retry, others) =
            (self.client.take(), std::mem::take(&mut self.retry), std::mem::take(&mut self.others));
        let rules = retry.get().unwrap_or(&upstream.settings.retry);
        let terms = OpeningTerms {
            fresh: false,
            addresses: Addresses::NONE,
            behalf: self.behalf,
            client: client.as_ref(),
            // The response is for others too: no user is bound to the connection.
            own: None,
            http1: false,
            authenticates: false,
            handed_over: None,
        };
        let mut asks = FillAsks::new(std::mem::take(&mut self.request), self.times.first_byte);
        loop {
            // Before the request is sent, since a purge from here on concerns the response.
            let sequence = self.cache.store.floors().begin();
            self.lead.begin(sequence);
            let sent = self.cache.now();
            self.cache.metrics.cache.fetches.inc();
            let mut ask = Ask::new(&upstream, terms);
            ask.set_rules(rules, &others);
            ask.set_account(self.account);
            ask.set_span(self.span.clone());
            let answered = final_head(&mut ask, &mut asks, self.hand.as_ref()).await;
            if let Some(hand) = self.hand.as_ref().filter(|hand| hand.capacity() > 1) {
                let _ = hand.try_send(LeaderParts::Asked(FetchRecord::new(&ask)));
            }
            let (origin, length) = match answered {
                Ok(answered) => answered,
                Err(error) => return self.fail(error),
            };
            self.upstream = Arc::clone(ask.upstream);
            let arrived = FetchedResponse { origin, length, sent, received: self.cache.now(), sequence };
            self = match self.answered(arrived, &mut asks, &ask).await {
                ControlFlow::Break(()) => return,
                ControlFlow::Continue(fill) => fill,
            };
            // The 304 was about another response than the stored one.
            ask_for_whole(&mut asks.request.head.headers);
        }
    }

    /// Looks for the response in the reserve. `None`: it was found there, and answers all waiting requests.
    async fn ask_reserve(mut self) -> Option<Self> {
        let Some(reserve) = &self.cache.reserve else { return Some(self) };
        // A purge from here on concerns it, whatever the reserve knows.
        let sequence = self.cache.store.floors().begin();
        self.lead.begin(sequence);
        let Some(found) = reserve.get(&self.text, &self.fields).await else { return Some(self) };
        let now = self.cache.time();
        let Some(object) = found.object(&self.cache.secret, &self.fields, sequence, now) else {
            return Some(self);
        };
        match reuse(&object.head, &self.demands, object.is_outdated(), now) {
            Reuse::Fresh | Reuse::Stale if self.cache.store.floors().admits(&object) => {
                self.cache.store.insert(Arc::clone(&object), now);
                if let Some(hand) = self.hand.take() {
                    let _ = hand.try_send(LeaderParts::Found(Arc::clone(&object), CacheOutcome::Hit));
                }
                self.lead.refreshed(object);
                None
            }
            Reuse::Fresh | Reuse::Stale | Reuse::Unavailable => Some(self),
            Reuse::StaleWhileRevalidate | Reuse::Validate(_) => {
                ask_to_validate(&mut self.request.head.headers, &object.head);
                (self.stale, self.from_reserve) = (Some(object), true);
                Some(self)
            }
        }
    }

    /// A stale response of the reserve hides a failure from the client that has caused the fetch.
    fn hand_stale(&mut self, failure: Failure) -> bool {
        let now = self.cache.time();
        let covers = |stale: &Arc<Object>| self.from_reserve && stale.head.covers_failure(failure, now);
        match (self.stale.take_if(|stale| covers(stale)), self.hand.take()) {
            (Some(stale), Some(hand)) => {
                let _ = hand.try_send(LeaderParts::Found(stale, CacheOutcome::StaleError));
                true
            }
            (_, hand) => {
                self.hand = hand;
                false
            }
        }
    }

    /// Later requests get the stale response at once.
    fn note_failure(&self) {
        if let Some(stale) = &self.stale {
            stale.origin_failed(self.cache.time());
        }
    }

    /// Reports the error to the client that caused the fetch; the followers only learn that the origin has failed.
    pub(super) fn fail(mut self, error: Error) {
        self.note_failure();
        if !self.hand_stale(Failure::NoResponse)
            && let Some(hand) = self.hand
        {
            let _ = hand.try_send(LeaderParts::Failed(error));
        }
        self.lead.fail(FetchFailure::Origin);
    }

    pub(super) async fn answered(
        mut self,
        arrived: FetchedResponse,
        asks: &mut FillAsks,
        ask: &Ask<'_>,
    ) -> ControlFlow<(), Self> {
        let status = asks.head.status;
        if status == 304 && self.stale.is_some() {
            return self.validated(arrived, asks);
        }
        let covers =
            |stale: &Arc<Object>| stale.head.covers_failure(Failure::Status(status), arrived.received.cache);
        if self.stale.as_ref().is_some_and(covers) {
            self.upstream.connections.drop_rest(arrived.origin);
            self.note_failure();
            self.hand_stale(Failure::Status(status));
            self.lead.fail(FetchFailure::Origin);
            return ControlFlow::Break(());
        }
        let response =
            Response { status, headers: &asks.head.headers, sent: arrived.sent, received: arrived.received };
        let asked = AnsweredRequest {
            demands: &self.demands,
            headers: &self.fields,
            path: asks.request.target.path(),
        };
        let head = match store(&asked, &response, &self.settings.policy, &self.cache.secret) {
            Ok(head) => Arc::new(self.tagged(head)),
            Err(reason) => {
                self.cache.not_stored(reason);
                if let Some(stale) = self.stale.take().filter(|_| status < 500) {
                    self.cache.store.remove(&stale);
                }
                self.hand_on(arrived, std::mem::take(&mut asks.head), Some(reason));
                return ControlFlow::Break(());
            }
        };
        let length = match arrived.length {
            BodyLength::Fixed(length) => Some(length),
            BodyLength::Empty => Some(0),
            _ => None,
        };
        let too_large = length.is_some_and(|length| length > self.cache.store.largest());
        let file = if too_large { self.cache.store.fill(self.key) } else { None };
        if too_large && file.is_none() {
            self.cache.metrics.cache.too_large.inc();
            self.hand_on(arrived, std::mem::take(&mut asks.head), None);
            return ControlFlow::Break(());
        }
        let variant = head.vary.as_ref().map(|vary| self.key.variant(vary.variant, &self.cache.secret));
        let own = head.for_first_client(&asks.head.headers, &self.settings.policy).map(Arc::new);
        if let Some(own) = &own {
            self.lead.own_head(Arc::clone(own));
        }
        let is_shared = self.lead.head(Arc::clone(&head), length, variant, arrived.received.cache);
        if !is_shared && head.life.is_shareable() && file.is_none() {
            // There is no memory for it at the moment.
            self.hand_on(arrived, std::mem::take(&mut asks.head), None);
            return ControlFlow::Break(());
        }
        if !is_shared && let Some(hand) = self.hand.take() {
            let _ = hand.try_send(LeaderParts::Own(own.unwrap_or_else(|| Arc::clone(&head))));
        }
        self.body(arrived, (head, variant), file, ask).await;
        ControlFlow::Break(())
    }

    /// The head with the tags that its owner knows.
    fn tagged(&self, mut head: StoredHead) -> StoredHead {
        if !self.tags.is_empty() {
            head.tags = self.tags.as_slice().into();
        }
        head
    }

    /// The response is only for the client that caused the fetch, if it is still there. Other clients fetch for
    /// themselves.
    fn hand_on(
        mut self,
        arrived: FetchedResponse,
        head: ResponseHead,
        reason: Option<foregate_cache::NotStored>,
    ) {
        let upstream = Arc::clone(&self.upstream);
        let answer = OriginAnswer { upstream, origin: arrived.origin, length: arrived.length };
        let handed = LeaderParts::Origin(Box::new(head), answer, reason);
        let unwanted = match self.hand.take() {
            Some(hand) => hand.try_send(handed).err().map(mpsc::error::TrySendError::into_inner),
            None => Some(handed),
        };
        if let Some(LeaderParts::Origin(_, answer, _)) = unwanted {
            answer.upstream.connections.drop_rest(answer.origin);
        }
        self.lead.uncacheable(arrived.received.cache, reason);
    }

    /// The origin says that the stored response is current.
    fn validated(mut self, arrived: FetchedResponse, asks: &FillAsks) -> ControlFlow<(), Self> {
        let Some(stale) = self.stale.take() else { return ControlFlow::Break(()) };
        let asked = AnsweredRequest {
            demands: &self.demands,
            headers: &self.fields,
            path: asks.request.target.path(),
        };
        let response = Response {
            status: asks.head.status,
            headers: &asks.head.headers,
            sent: arrived.sent,
            received: arrived.received,
        };
        self.upstream.connections.recycle(arrived.origin, clock::now());
        let (policy, secret) = (&self.settings.policy, &self.cache.secret);
        let Some(mut refreshed) = refresh(&asked, &stale.head, &response, policy, secret) else {
            self.cache.store.remove(&stale);
            return ControlFlow::Continue(self);
        };
        refreshed.stored = self.tagged(refreshed.stored);
        let own = refreshed.stored.for_first_client(&asks.head.headers, policy);
        let object = Arc::new(stale.refreshed(refreshed.stored, arrived.sequence));
        let own = own.map(|own| Arc::new(stale.refreshed(own, arrived.sequence)));
        let is_stored = match refreshed.storable {
            Ok(()) => {
                self.cache.put_in_reserve(&object, &self.fields);
                self.cache.store.insert(Arc::clone(&object), arrived.received.cache)
            }
            Err(reason) => {
                self.cache.not_stored(reason);
                false
            }
        };
        if !is_stored {
            self.cache.store.remove(&stale);
        }
        self.cache.metrics.cache.validated.inc();
        let is_shared = is_stored && object.head.life.is_shareable();
        if let Some(hand) = self.hand.take().filter(|_| !is_shared || own.is_some()) {
            let _ = hand.try_send(LeaderParts::Validated(own.unwrap_or_else(|| Arc::clone(&object))));
        }
        match is_shared {
            true => self.lead.refreshed(object),
            // The origin has answered this client; the others have to ask for themselves.
            false => self.lead.uncacheable(arrived.received.cache, refreshed.storable.err()),
        }
        ControlFlow::Break(())
    }

    /// Receives the body, for the followers and the store. One that is too long for the memory goes
    /// to a `file` on the disk meanwhile.
    async fn body(
        mut self,
        mut arrived: FetchedResponse,
        (head, variant): (Arc<StoredHead>, Option<Key>),
        mut file: Option<foregate_disk::Fill>,
        ask: &Ask<'_>,
    ) {
        let idle = self.times.idle;
        let mut timer = Timer::new(idle);
        let (mut charge, mut held, mut pieces) = (Charge::new(), 0_usize, 0_usize);
        let mut readers = SlowReaders::default();
        loop {
            if !readers.room(&mut self.lead, &mut timer).await && file.is_none() {
                // The fetch has no reader, and the response is too long for the store.
                arrived.origin.link.abort();
                return self.lead.fail(FetchFailure::Abandoned);
            }
            let (link, until) = (&mut arrived.origin.link, Instant::now() + idle);
            let received = poll_fn(|cx| match link.poll_receive(cx) {
                Poll::Ready(received) => Poll::Ready(received.map_err(Error::Origin)),
                Poll::Pending => timer.poll(cx, until).map(|()| Err(Error::OriginIdle)),
            });
            match received.await {
                Ok(ReceiveOutcome::Data) => {
                    let piece = Bytes::copy_from_slice(link.data());
                    link.consume(piece.len());
                    if let Some(to) = &mut file
                        && to.push(&piece).await.is_err()
                    {
                        // The clients get the rest all the same.
                        file = None;
                    }
                    held += piece.len();
                    readers.pass(piece.len());
                    self.cache.metrics.cache.bytes_in.add(piece.len() as u64);
                    if self.lead.push(piece) {
                        charge.set(held);
                    }
                }
                Ok(_) => break,
                Err(error) => {
                    ask.ran_out_on(&arrived.origin);
                    arrived.origin.gave_up(&error, &self.upstream.settings);
                    arrived.origin.link.abort();
                    tracing::debug!(%error, "a response for the cache breaks off");
                    return self.lead.fail(FetchFailure::Origin);
                }
            }
            pieces += 1;
            if pieces.is_multiple_of(BURST) {
                tokio::task::yield_now().await;
            }
        }
        self.upstream.connections.recycle(arrived.origin, clock::now());
        let now = self.cache.time();
        let Self { cache, key, text, lead, stale, fields, .. } = self;
        if let Some(file) = file {
            let object = Object::new((*head).clone(), Body::default(), key, &text, arrived.sequence);
            // The end of the body waits for the file to have its name: a client with the whole body
            // finds it stored.
            let whole = matches!(arrived.length, BodyLength::Fixed(length) if length == held as u64);
            if whole && file.finish(&object).await.is_ok() {
                cache.metrics.cache.stored.inc();
                cache.flights.unmark(variant.unwrap_or(key));
            }
            lead.complete(|_| None);
            return;
        }
        let object = lead.complete(|body| {
            let object = Object::new((*head).clone(), body, key, &text, arrived.sequence);
            let object = Arc::new(object);
            cache.put_in_reserve(&object, &fields);
            cache.store.insert(Arc::clone(&object), now).then_some(object)
        });
        match (&object, stale) {
            (Some(_), _) if head.life.is_shareable() => {
                cache.metrics.cache.stored.inc();
                cache.flights.unmark(variant.unwrap_or(key));
            }
            (Some(_), _) => cache.metrics.cache.stored.inc(),
            // The stored response is another one by now.
            (None, Some(stale)) => cache.store.remove(&stale),
            (None, None) => {}
        }
    }
}

/// Ends when no request waits for a fetch any more.
async fn nobody_follows(watch: FlightWatch) {
    while watch.is_followed() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for the final response. Interim ones go to the client that has caused the fetch, while it
/// takes them.
pub(super) async fn final_head(
    ask: &mut Ask<'_>,
    asks: &mut FillAsks,
    hand: Option<&mpsc::Sender<LeaderParts>>,
) -> Result<(Origin, BodyLength), Error> {
    loop {
        match ask.answer(asks).await? {
            Answer::Final(_, BodyLength::Tunnel) => {
                return Err(Error::Switch("a protocol switch that was not asked for"));
            }
            Answer::Final(origin, length) => return Ok((origin, length)),
            Answer::Interim => {
                asks.since = clock::now();
                // The last two places in the channel are for the record of the attempts and for the
                // final response.
                if let Some(hand) = hand.filter(|hand| hand.capacity() > 2) {
                    let _ = hand.try_send(LeaderParts::Interim(Box::new(asks.head.clone())));
                }
            }
        }
    }
}

/// The length that a stored head states, if it does.
pub(crate) fn stated_length(head: &StoredHead) -> Option<u64> {
    std::str::from_utf8(head.headers.get(NameId::ContentLength)?).ok()?.parse().ok()
}
