//! A fetch for the cache, or the validation of a stored response. It runs in a task of its own, so that it continues
//! if its client leaves.

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

/// The most pieces that are read from an origin in a row. Then other tasks of the worker get a
/// turn.
const BURST: usize = 16;

/// The most fetches of one client that continue without it. If a client has caused more, each further fetch ends when
/// no request waits for it.
const DETACHED_MOST: usize = 64;
/// How often such a further fetch checks whether a request still waits for it.
const LOOK: Duration = Duration::from_millis(500);

/// Counts a fetch in the account of its client, until it is dropped.
struct CountedFetch(Option<Arc<Holdings>>);

impl CountedFetch {
    /// Counts a fetch. The flag is true if the client has already caused `DETACHED_MOST` fetches.
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
    /// The cache that the fetch fills.
    pub cache: Arc<Cache>,
    /// The settings of the route.
    pub settings: Arc<settings::CacheSettings>,
    /// The upstream that is asked.
    pub upstream: Arc<Upstream>,
    /// The time limit of an origin.
    pub times: OriginTimes,
    /// The request for the origin, without conditions and ranges.
    pub request: Request,
    /// The demands (cache directives) of the client that has caused the fetch.
    pub demands: Demands,
    /// The fields of that client's request: `Vary` selects some of them.
    pub fields: HeaderList,
    /// The text of the key; `key` is its hash, which stands for the address.
    pub text: KeyText,
    /// See `text`.
    pub key: Key,
    /// The place of this fetch in the table of shared fetches.
    pub lead: Lead,
    /// The stored response that is validated.
    pub stale: Option<Arc<Object>>,
    /// The node of the shield that is asked instead of the origin, if there is one.
    pub owner: Option<Box<OwnerAsk>>,
    /// The tags of a response that came from this node, sorted.
    pub tags: Vec<Tag>,
    /// The stored response came from the reserve, so the client that caused the fetch does not know it.
    pub from_reserve: bool,
    /// The channel to the client that has caused the fetch, if this client waits for the parts that only it gets.
    pub hand: Option<mpsc::Sender<LeaderParts>>,
    /// The client's address, if the upstream chooses servers by it.
    pub behalf: Option<IpAddr>,
    /// The account of the client, in which connections to the origin are counted.
    pub client: Option<Arc<Holdings>>,
    /// The client in whose turn the request is sent, if the upstream limits the number of its requests.
    pub account: Account,
    /// The route's rules for further attempts, instead of the upstream's.
    pub retry: RouteRetry,
    /// The upstreams to which rules may send further attempts.
    pub others: Vec<Arc<Upstream>>,
    /// The parent span of the fetch, if the trace of the client's request is recorded.
    pub span: Option<SpanParent>,
}

/// The parts of a response that only the client which caused the fetch gets, and not the followers of the fetch.
#[derive(Debug)]
pub enum LeaderParts {
    /// The head of an interim response.
    Interim(Box<ResponseHead>),
    /// The attempts that led to the response or the failure that follows.
    Asked(FetchRecord),
    /// A response that is not stored, with its body.
    Origin(Box<ResponseHead>, OriginAnswer, Option<foregate_cache::NotStored>),
    /// The head of a stored response, in the form for the client that caused the fetch. This client reads the body like
    /// the followers.
    Own(Arc<StoredHead>),
    /// A stored response that the origin has confirmed for this client only. Other clients have to ask for
    /// themselves.
    Validated(Arc<Object>),
    /// The response comes from the node of the shield that owns its address.
    FromOwner,
    /// A response of the reserve, and its outcome for the access log.
    Found(Arc<Object>, CacheOutcome),
    /// The error. The followers only learn that the origin has failed.
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

/// A response with a body still to come, and the upstream that sends it.
#[derive(Debug)]
pub struct OriginAnswer {
    /// The upstream, which is another one than asked first if a rule has sent the request there.
    pub upstream: Arc<Upstream>,
    /// The connection.
    pub origin: Origin,
    /// The framing of the body.
    pub length: BodyLength,
}

/// The fill as the client of an upstream. Its request has no body.
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
            // Ignored: an origin that has closed its side may still have sent an answer, which is read next.
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

    fn awaits_origin_since(&self) -> Option<Instant> {
        Some(self.since)
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
    /// Begins the fetch, in a task of its own.
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
            // The response is for others as well, so the connection must not be one that is bound to a user.
            own: None,
            http1: false,
            authenticates: false,
            handed_over: None,
        };
        let mut asks = FillAsks::new(std::mem::take(&mut self.request), self.times.first_byte);
        loop {
            // Taken before the request is sent: the response must be subject to every purge from here on.
            let fetch = self.cache.store.floors().begin_fetch();
            let sequence = fetch.sequence();
            self.lead.begin(fetch);
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
            // The 304 does not match the stored response.
            ask_for_whole(&mut asks.request.head.headers);
        }
    }

    /// Looks for the response in the reserve. Returns `None` if it was found there: it then answers all waiting requests.
    async fn ask_reserve(mut self) -> Option<Self> {
        let Some(reserve) = &self.cache.reserve else { return Some(self) };
        // The response is subject to every purge from here on, whether the reserve knows of the purge or not.
        let fetch = self.cache.store.floors().begin_fetch();
        let sequence = fetch.sequence();
        self.lead.begin(fetch);
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

    /// After a failure, sends a stale response of the reserve to the client that has caused the fetch, if its head allows
    /// that. Returns true if it was sent.
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

    /// Notes in the stale response that the origin has failed, so that later requests get the stale response at once.
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
        let file = if too_large { self.cache.store.fill(self.key, length) } else { None };
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
            // There is no memory to share the response at the moment.
            self.hand_on(arrived, std::mem::take(&mut asks.head), None);
            return ControlFlow::Break(());
        }
        if !is_shared && let Some(hand) = self.hand.take() {
            let _ = hand.try_send(LeaderParts::Own(own.unwrap_or_else(|| Arc::clone(&head))));
        }
        self.body(arrived, (head, variant), file, ask).await;
        ControlFlow::Break(())
    }

    /// Adds the tags of the node that owns the address to a head.
    fn tagged(&self, mut head: StoredHead) -> StoredHead {
        if !self.tags.is_empty() {
            head.tags = self.tags.as_slice().into();
        }
        head
    }

    /// Passes the response on to the client that caused the fetch, if it is still there. Other clients have to fetch for
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

    /// Handles a 304: the stored response is still current.
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
            // The answer holds only for this client; the other clients have to ask for themselves.
            false => self.lead.uncacheable(arrived.received.cache, refreshed.storable.err()),
        }
        ControlFlow::Break(())
    }

    /// Receives the body, for the followers and the store. A body that is too long for the memory is written
    /// to a `file` on the disk at the same time.
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
        // `whole` is true once all bytes of the announced length are here. The body is counted from then until it is stored.
        let (mut whole, mut _unwritten) = (false, None);
        loop {
            if !whole && !readers.room(&mut self.lead, &mut timer).await && file.is_none() {
                // The fetch has no reader, and the response is too long for the store: receiving it is useless.
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
                        // Without the file, the response is not stored, but the clients still get the rest.
                        file = None;
                    }
                    held += piece.len();
                    readers.pass(piece.len());
                    self.cache.metrics.cache.bytes_in.add(piece.len() as u64);
                    whole = matches!(arrived.length, BodyLength::Fixed(length) if length == held as u64);
                    if whole {
                        _unwritten = self.cache.store.unwritten();
                    }
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
            // Clients get the end of the body only when the file has its final name: so a client that has
            // the whole body finds the response stored.
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
            // The new response has replaced the stored one at the origin, but cannot be stored itself.
            (None, Some(stale)) => cache.store.remove(&stale),
            (None, None) => {}
        }
    }
}

/// Completes when no request waits for a fetch any more.
async fn nobody_follows(watch: FlightWatch) {
    while watch.is_followed() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for the final response. Interim responses are passed to the client that has caused the fetch, as long as it
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
                // The last two slots of the channel are reserved for the record of the attempts and for the
                // final response.
                if let Some(hand) = hand.filter(|hand| hand.capacity() > 2) {
                    let _ = hand.try_send(LeaderParts::Interim(Box::new(asks.head.clone())));
                }
            }
        }
    }
}

/// The length of the body that a stored head states, if any.
pub(crate) fn stated_length(head: &StoredHead) -> Option<u64> {
    std::str::from_utf8(head.headers.get(NameId::ContentLength)?).ok()?.parse().ok()
}
