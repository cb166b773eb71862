//! Fetches a response that is not stored, or that has to be validated. One request leads the fetch, and other requests
//! for the response follow it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use foregate_cache::{
    Conditions, Content, Demands, Failure, FetchFailure, FlightPart, Follow, FollowedHead, Key, KeyText,
    Lead, MemoryLookup, Object, Representation, Reuse, StoredHead, evaluate, other_variant, parse_date,
    reuse,
};
use foregate_module::Source as MadeBy;
use foregate_wire::{BodyLength, HeaderList, NameId, ResponseHead};
use tokio::sync::mpsc;

use super::super::send;
use super::super::spans;
use super::key::StorePlace;
use super::{answer, serve, strip_prefix, write_status};
use crate::cache::{Fill, LeaderParts, OriginAnswer, stated_length};
use crate::counters::cache::CacheOutcome;
use crate::error::Error;
use crate::exchange::reply::BodySource;
use crate::exchange::shape::shape_or_send;
use crate::exchange::state::{Exchange, Step, StepResult};
use crate::exchange::{ask, prepare, shield};
use crate::link::{CachedLink, Link, StoredBody};
use crate::settings::{BufferResponses, CacheSettings};
use crate::upstream::{Origin, named};

/// The most interim responses that wait for their client. Further ones are dropped.
const INTERIM: usize = 7;
/// If a client has asked for a part and the fetch brings a whole response that is not stored, the client gets the whole
/// response up to this length, bytes. For a longer response the origin is asked again.
const WHOLE_MOST: u64 = 256 << 10;
/// How much of a body of unknown length is kept for a slow reader, in memory and in a file. If a reader falls back
/// further, the other readers wait some time, and then the slow reader is cut off.
const AHEAD: BufferResponses = BufferResponses { memory: 128 << 10, size: 1 << 30 };
/// How often a request joins a fetch again after one without a result. After that it goes to the origin on its own.
const ROUNDS: usize = 8;

/// A response that has to be fetched.
pub(super) struct NeededResponse {
    text: KeyText,
    key: Key,
    /// The key under which the fetch is shared.
    shared: Key,
    demands: Demands,
    /// The fields of the client's request that the cache uses: those before it was prepared for the origin.
    fields: HeaderList,
    stale: Option<Arc<Object>>,
    /// Set if the client gets the stale response while the fetch runs: the outcome to record for that response.
    meanwhile: Option<CacheOutcome>,
    /// True if the request has its final form for the origin.
    prepared: bool,
}

/// The result for a request that waits for a fetch.
enum WaitResult {
    Head(FollowedHead),
    Handed(LeaderParts),
}

impl NeededResponse {
    pub fn new(
        exchange: &mut Exchange<'_>,
        located: StorePlace,
        variant: Option<Key>,
        demands: Demands,
        stale: Option<Arc<Object>>,
        meanwhile: Option<CacheOutcome>,
    ) -> Box<Self> {
        let fields = exchange.request.head.headers.clone();
        located.forward_query(exchange);
        strip_prefix(exchange);
        let StorePlace { text, key, .. } = located;
        let shared = variant.unwrap_or(key);
        Box::new(Self { text, key, shared, demands, fields, stale, meanwhile, prepared: false })
    }

    /// Fetches the response, or waits for another request's fetch of it.
    pub async fn fetch(
        mut self,
        exchange: &mut Exchange<'_>,
        settings: &Arc<CacheSettings>,
        upstream: usize,
    ) -> StepResult {
        for _ in 0..ROUNDS {
            let cache = &exchange.proxy.cache;
            let is_current =
                |sequence| !cache.store.floors().may_concern(self.key, self.text.as_bytes(), sequence);
            let joined = cache
                .flights
                .join_current(self.shared, self.key, cache.time(), is_current, || self.look_again(exchange));
            let (follow, hand) = match joined {
                FlightPart::Found(object) => {
                    set_outcome(exchange, CacheOutcome::Hit);
                    return Ok(self.serve(exchange, settings, &object));
                }
                FlightPart::Alone(reason) if self.stale.is_none() => {
                    if let Some(cached) = &mut exchange.rare.cached {
                        cached.reason = reason.map(foregate_cache::NotStored::as_str).or(cached.reason);
                    }
                    return Ok(self.pass(upstream));
                }
                FlightPart::Alone(_) | FlightPart::Follow(_) if self.meanwhile.is_some() => {
                    return Ok(self.serve_stale(exchange, settings));
                }
                FlightPart::Alone(_) => {
                    let lead = cache.flights.alone(self.shared, self.key);
                    match self.lead(exchange, settings, upstream, lead).await? {
                        Ok(led) => led,
                        Err(step) => return Ok(step),
                    }
                }
                FlightPart::Lead(lead) => match self.lead(exchange, settings, upstream, lead).await? {
                    Ok(led) => led,
                    Err(step) => return Ok(step),
                },
                FlightPart::Follow(follow) => {
                    if let Some(cached) = &mut exchange.rare.cached {
                        cached.collapsed = true;
                    }
                    exchange.proxy.metrics.cache.collapsed.inc();
                    (follow, None)
                }
            };
            if self.meanwhile.is_some() {
                return Ok(self.serve_stale(exchange, settings));
            }
            if let Some(next) = self.follow(exchange, settings, upstream, follow, hand).await? {
                return Ok(next);
            }
        }
        Ok(self.pass(upstream))
    }

    /// Looks in memory again, because a fetch may have ended since the first lookup.
    fn look_again(&self, exchange: &Exchange<'_>) -> Option<Arc<Object>> {
        let cache = &exchange.proxy.cache;
        let MemoryLookup::Object { object, outdated } = cache.store.get(self.key, &self.text, &self.fields)
        else {
            return None;
        };
        (reuse(&object.head, &self.demands, outdated, cache.time()) == Reuse::Fresh).then_some(object)
    }

    /// Begins a fetch in a separate task. If the request turns out not to go to an origin, returns its next step as the
    /// inner error.
    async fn lead(
        &mut self,
        exchange: &mut Exchange<'_>,
        settings: &Arc<CacheSettings>,
        upstream: usize,
        lead: Lead,
    ) -> Result<
        Result<(Follow, Option<mpsc::Receiver<LeaderParts>>), Step>,
        crate::exchange::state::ExchangeEnd,
    > {
        if !self.prepared {
            match prepare::run(exchange, upstream).await? {
                Step::Ask => self.prepared = true,
                other => return Ok(Err(other)),
            }
        }
        let Some(upstream) = exchange.upstream() else { return Err(Error::Internal.into()) };
        let follow = lead.follow();
        let (hand, handed) = mpsc::channel(INTERIM + 3);
        let owner = shield::owner(exchange, settings, upstream, &self.text, &self.demands);
        let retry = exchange.routed.route.map(|route| route.retry.clone()).unwrap_or_default();
        let rules = retry.get().unwrap_or(&upstream.settings.retry);
        let others = named(rules, &exchange.config.upstreams);
        let fill = Fill {
            cache: Arc::clone(&exchange.proxy.cache),
            settings: Arc::clone(settings),
            upstream: Arc::clone(upstream),
            request: exchange.request.for_fetch(),
            // HEAD begins a fetch, too, if it is answered with a stale response.
            demands: self.demands.of_get(),
            fields: self.fields.clone(),
            text: self.text.clone(),
            key: self.key,
            lead,
            stale: self.stale.clone(),
            from_reserve: false,
            owner,
            tags: Vec::new(),
            hand: self.meanwhile.is_none().then_some(hand),
            times: exchange.down.origin_times(&upstream.settings),
            behalf: exchange.client_address(),
            client: exchange.down.peer.holdings.clone(),
            account: exchange.account(),
            retry,
            others,
            span: spans::span_parent(exchange),
        };
        fill.spawn();
        Ok(Ok((follow, self.meanwhile.is_none().then_some(handed))))
    }

    /// Waits for a fetch. `None` if it has no result, and the request joins again.
    async fn follow(
        &mut self,
        exchange: &mut Exchange<'_>,
        settings: &Arc<CacheSettings>,
        upstream: usize,
        mut follow: Follow,
        mut hand: Option<mpsc::Receiver<LeaderParts>>,
    ) -> Result<Option<Step>, crate::exchange::state::ExchangeEnd> {
        let is_own = hand.is_some();
        let got = loop {
            match wait(exchange, &mut follow, &mut hand).await? {
                WaitResult::Handed(LeaderParts::Interim(head)) => {
                    **exchange.response = *head;
                    ask::relay_interim(exchange).await?;
                }
                WaitResult::Handed(LeaderParts::Asked(record)) => {
                    if let Some(cached) = &mut exchange.rare.cached {
                        cached.fetched = Some(Box::new(record));
                    }
                }
                WaitResult::Handed(LeaderParts::FromOwner) => {
                    if let Some(cached) = &mut exchange.rare.cached {
                        cached.reason = Some("shield");
                    }
                }
                got => break got,
            }
        };
        let head = match got {
            WaitResult::Handed(LeaderParts::Interim(_) | LeaderParts::FromOwner | LeaderParts::Asked(_)) => {
                return Ok(None);
            }
            WaitResult::Handed(LeaderParts::Failed(error)) => {
                if self.covers_failure(exchange) {
                    return Ok(Some(self.serve_stale(exchange, settings)));
                }
                return Err(error.into());
            }
            WaitResult::Handed(LeaderParts::Found(object, outcome)) => {
                if let Some(cached) = &mut exchange.rare.cached {
                    (cached.outcome, cached.reason) = (outcome, Some("reserve"));
                }
                return Ok(Some(self.serve(exchange, settings, &object)));
            }
            WaitResult::Handed(LeaderParts::Own(head)) => {
                return Ok(Some(self.serve_shared(exchange, settings, &head, follow)));
            }
            WaitResult::Handed(LeaderParts::Validated(object)) => {
                set_outcome(exchange, CacheOutcome::Revalidated);
                return Ok(Some(self.serve(exchange, settings, &object)));
            }
            WaitResult::Handed(LeaderParts::Origin(head, answer, reason)) => {
                drop(follow);
                if let Some(cached) = &mut exchange.rare.cached {
                    cached.reason = reason.map(foregate_cache::NotStored::as_str).or(cached.reason);
                }
                return self.take(exchange, *head, answer).map(Some);
            }
            WaitResult::Head(head) => head,
        };
        let secret = &exchange.proxy.cache.secret;
        let other =
            |head: &StoredHead| other_variant(head, self.key, &self.fields, secret).filter(|_| !is_own);
        match head {
            FollowedHead::Arrived(head) => match other(&head) {
                Some(variant) => self.shared = variant,
                None => return Ok(Some(self.serve_shared(exchange, settings, &head, follow))),
            },
            FollowedHead::Complete(object) => match other(&object.head) {
                Some(variant) => self.shared = variant,
                None => {
                    if self.is_refreshed(&object) {
                        set_outcome(exchange, CacheOutcome::Revalidated);
                        return Ok(Some(self.serve(exchange, settings, &object)));
                    }
                    return Ok(Some(self.serve_stored(exchange, settings, &object)));
                }
            },
            FollowedHead::Failed(FetchFailure::Abandoned) => {}
            FollowedHead::Failed(FetchFailure::Origin) => {
                if self.covers_failure(exchange) {
                    return Ok(Some(self.serve_stale(exchange, settings)));
                }
                return Err(Error::SharedFetch.into());
            }
            FollowedHead::Uncacheable => return Ok(Some(self.pass(upstream))),
        }
        Ok(None)
    }

    /// Returns whether an object is the validated stale response: the same body with a new head.
    fn is_refreshed(&self, object: &Object) -> bool {
        let same = |stale: &Arc<Object>| match (stale.body.pieces().first(), object.body.pieces().first()) {
            (Some(one), Some(other)) => one.as_ptr() == other.as_ptr(),
            (None, None) => true,
            _ => false,
        };
        self.stale.as_ref().is_some_and(same)
    }

    /// Returns whether the stale response may be served in place of a failure of the origin.
    fn covers_failure(&self, exchange: &Exchange<'_>) -> bool {
        let now = exchange.proxy.cache.time();
        self.stale.as_ref().is_some_and(|stale| stale.head.covers_failure(Failure::NoResponse, now))
    }

    /// The step with which the request goes to the origin on its own, past the cache.
    fn pass(&self, upstream: usize) -> Step {
        if self.prepared { Step::Ask } else { Step::Prepare(upstream) }
    }

    fn serve(&mut self, exchange: &mut Exchange<'_>, settings: &CacheSettings, object: &Arc<Object>) -> Step {
        let body = StoredBody::Memory(Arc::clone(object));
        serve(exchange, settings, (object, body), &self.demands, Some(&mut self.fields))
    }

    /// Answers with a response that the fetch has just stored.
    fn serve_stored(
        &mut self,
        exchange: &mut Exchange<'_>,
        settings: &CacheSettings,
        object: &Arc<Object>,
    ) -> Step {
        if let Some(cached) = &mut exchange.rare.cached {
            cached.stored = true;
        }
        self.serve(exchange, settings, object)
    }

    fn serve_stale(&mut self, exchange: &mut Exchange<'_>, settings: &CacheSettings) -> Step {
        let Some(stale) = self.stale.take() else { return Step::Failed(Error::Internal) };
        if let Some(cached) = &mut exchange.rare.cached {
            cached.failed = self.meanwhile.is_none();
            cached.outcome = self.meanwhile.unwrap_or(CacheOutcome::StaleError);
        }
        self.serve(exchange, settings, &stale)
    }

    /// Answers with the body of a fetch under way.
    fn serve_shared(
        &mut self,
        exchange: &mut Exchange<'_>,
        settings: &CacheSettings,
        head: &StoredHead,
        follow: Follow,
    ) -> Step {
        let length = stated_length(head);
        let mut answered = answer(exchange, head, &self.demands, Some(&mut self.fields), length);
        if let Content::Parts(_) = answered.content {
            // The parts may be in any order, and the body arrives in its own order, so all of it is sent.
            answered = answer(exchange, head, &self.demands, Some(&mut self.fields), None);
        }
        if let Some(cached) = &mut exchange.rare.cached {
            cached.stored = true;
        }
        write_status(exchange, settings, head, answered.status);
        let (part, framing) = match answered.content {
            Content::None => (Some(0..0), BodyLength::Empty),
            Content::Part(part) => {
                let length = part.end - part.start;
                (Some(part), BodyLength::Fixed(length))
            }
            Content::Whole | Content::Parts(_) => {
                (None, length.map_or(BodyLength::Chunked, BodyLength::Fixed))
            }
        };
        let mut link = Link::Cached(Box::new(CachedLink::shared(follow, part)));
        if length.is_none() {
            // The body may be too long for the store. Then all readers share a window, and a slow reader without a buffer would
            // hold up the others.
            send::receive_ahead(exchange, &mut link, AHEAD);
        }
        exchange.response_is_from(MadeBy::Upstream);
        shape_or_send(exchange, BodySource::Cached(link, framing))
    }

    /// Answers with a response that is not stored, and that the fetch has handed over with its connection.
    fn take(
        &mut self,
        exchange: &mut Exchange<'_>,
        head: ResponseHead,
        answer: OriginAnswer,
    ) -> Result<Step, crate::exchange::state::ExchangeEnd> {
        let OriginAnswer { upstream, origin, length } = answer;
        let is_short = matches!(length, BodyLength::Fixed(0..=WHOLE_MOST));
        if head.status == 200 && self.fields.contains(NameId::Range) && !is_short {
            // The client wants only a part, and the fetch has asked for the whole response.
            upstream.connections.drop_rest(origin);
            return Ok(Step::Ask);
        }
        // A retry rule may have chosen another upstream. The connection belongs to that one.
        let answering = exchange.config.upstreams.iter().find(|known| Arc::ptr_eq(known, &upstream));
        if let (Some(ask), Some(answering)) = (&mut exchange.ask, answering) {
            ask.upstream = answering;
        }
        **exchange.response = head;
        let is_success = (200..300).contains(&exchange.response.status);
        if is_success {
            let now = exchange.proxy.cache.now().wall;
            let headers = &exchange.response.headers;
            let last_modified = headers.get(NameId::LastModified).and_then(|date| parse_date(date, now));
            let date = headers.get(NameId::Date).and_then(|date| parse_date(date, now)).unwrap_or(now);
            let of = Representation { etag: headers.get(NameId::Etag), last_modified, date };
            let status = match evaluate(&self.fields, &of, now) {
                Conditions::Met => None,
                Conditions::NotModified => Some(304),
                Conditions::Failed => Some(412),
            };
            if let Some(status) = status {
                return Ok(refuse_body(exchange, origin, length, status));
            }
        }
        ask::take(exchange, origin, length)
    }
}

/// Answers without a body, because the client's conditions demand that. The origin has not seen these conditions,
/// so it may have sent a body, which is dropped.
fn refuse_body(exchange: &mut Exchange<'_>, origin: Origin, length: BodyLength, status: u16) -> Step {
    if let Some(upstream) = exchange.upstream() {
        upstream.connections.drop_rest(origin);
    }
    let _ = length;
    exchange.response.status = status;
    super::answered(exchange);
    let headers = &mut exchange.response.headers;
    foregate_wire::connection::strip_hop_by_hop(headers, false);
    headers.remove_each(&[
        NameId::TransferEncoding,
        NameId::ContentLength,
        NameId::ContentType,
        NameId::ContentEncoding,
        NameId::ContentLanguage,
        NameId::ContentRange,
    ]);
    exchange.response_is_from(MadeBy::Upstream);
    let nothing = Link::Cached(Box::new(CachedLink::empty()));
    shape_or_send(exchange, BodySource::Cached(nothing, BodyLength::Empty))
}

/// Waits for the head of a fetch, or for the client to leave.
async fn wait(
    exchange: &mut Exchange<'_>,
    follow: &mut Follow,
    hand: &mut Option<mpsc::Receiver<LeaderParts>>,
) -> Result<WaitResult, Error> {
    poll_fn(|cx| {
        if let Some(handed) = hand {
            match handed.poll_recv(cx) {
                Poll::Ready(Some(handed)) => return Poll::Ready(Ok(WaitResult::Handed(handed))),
                Poll::Ready(None) => *hand = None,
                Poll::Pending => {}
            }
        }
        match follow.poll_head(cx) {
            // The fetch hands the response over through `hand`.
            Poll::Ready(FollowedHead::Uncacheable) if hand.is_some() => {}
            // The fetch hands the error over through `hand`, too.
            Poll::Ready(FollowedHead::Failed(FetchFailure::Origin)) if hand.is_some() => {}
            Poll::Ready(head) => return Poll::Ready(Ok(WaitResult::Head(head))),
            Poll::Pending => {}
        }
        if let Poll::Ready(error) = exchange.down.poll_total(cx) {
            return Poll::Ready(Err(error));
        }
        exchange.down.poll_gone(cx).map(Err)
    })
    .await
}

fn set_outcome(exchange: &mut Exchange<'_>, outcome: CacheOutcome) {
    if let Some(cached) = &mut exchange.rare.cached {
        cached.outcome = outcome;
    }
}
