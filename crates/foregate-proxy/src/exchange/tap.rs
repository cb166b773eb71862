//! Comparing with an old proxy that answers the client.
//!
//! The request goes to the old proxy with an id, and comes back on a tap of ours, which sends it to the origin. The body of the
//! request and the one response of the origin are remembered as they pass, up to a limit. Once the client has its
//! answer, the request is served again without effect: nobody but this file sees its response, and in the place of an
//! origin the remembered response answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use foregate_compare::{Answer, AskedRequest, Body, Outcome as Answered};
use foregate_wire::{BodyLength, Method, NameId, ResponseHead, connection};
use tokio::sync::oneshot;

use super::client::{Client, Peer};
use super::compare::{WatchedAnswer, shown};
use super::fallback;
use super::reply::BodySource;
use super::shape::shape_or_send;
use super::state::{Exchange, ServedRequest, StepResult};
use crate::comparison::{
    AskedPair, ComparedRequest, ID_FIELD, Pair, Replay, TapPass, TapVisit, WatchedOutcome,
};
use crate::error::Error;
use crate::limits::account::{Account, AccountPlace};
use crate::link::{CachedLink, H1Link, Link};
use crate::loops::{MARKER, TAP_MARKER};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proxy::{Config, Proxy};
use crate::random;
use crate::routing::HostId;
use crate::settings::{Compare, CompareMode, Route, SHARE_WHOLE};
use crate::time::timer::Timer;
use crate::transport::stream::{Socket, Stream};
use crate::upstream::Upstream;

/// How long the end of the origin's response may lie behind that of the old proxy's.
const LAG: Duration = Duration::from_secs(5);
/// How long a request may take that is served once more.
const PATIENCE: Duration = Duration::from_secs(30);

/// All that a comparison needs beside the responses.
struct TappedRequest {
    proxy: Arc<Proxy>,
    config: Arc<Config>,
    peer: Peer,
    request: Request,
    shown: ComparedRequest,
    route: Arc<str>,
    compare: Arc<Compare>,
    pass: Option<TapPass>,
    place: AccountPlace,
}

/// Begins a comparison of the request, if it is one of those that are compared. The old proxy gets it in any case.
pub(super) fn begin(exchange: &mut Exchange<'_>, site: HostId, route: &Route, compare: &Arc<Compare>) {
    if !random::hits(compare.share, SHARE_WHOLE) || fallback::is_marked(exchange.request) {
        return;
    }
    let name = &exchange.config.settings.sites.site(site).name;
    let route: Arc<str> = format!("{name} {}", route.pattern).into();
    let comparisons = &exchange.proxy.comparisons;
    let account = exchange.account();
    let proxy = exchange.proxy.shared.get().and_then(Weak::upgrade);
    let begun = match (unfit(exchange.request, compare.rules.body_limit), proxy) {
        (Some(reason), _) => Err(reason),
        (None, None) => Err("the process ends"),
        (None, Some(proxy)) => comparisons.begin(account).map(|place| (proxy, place)),
    };
    let (proxy, place) = match begun {
        Ok(begun) => begun,
        Err(reason) => return comparisons.not_compared(route, reason),
    };
    let pass = (compare.mode == CompareMode::Tap).then(|| comparisons.taps.enter(compare.rules.body_limit));
    let id = pass.as_ref().map(TapPass::id);
    let limit = compare.rules.body_limit;
    let (sender, ours) = oneshot::channel();
    let tapped = TappedRequest {
        proxy,
        config: Arc::clone(exchange.config),
        peer: exchange.peer.copied(),
        request: exchange.request.for_replay(BodyLength::Empty),
        shown: shown(exchange.request),
        route,
        compare: Arc::clone(compare),
        pass,
        place,
    };
    watch(exchange, WatchedAnswer { limit, account, answer: None, ours: sender, id });
    tokio::spawn(tapped.run(ours));
}

/// Why a request is not compared.
fn unfit(request: &Request, limit: usize) -> Option<&'static str> {
    if request.opens_tunnel() || request.head.method == Method::Connect {
        return Some("it switches protocols");
    }
    let is_long = matches!(request.length, BodyLength::Fixed(length) if length > limit as u64);
    is_long.then_some("its body is longer than `body`")
}

fn watch(exchange: &mut Exchange<'_>, watched: WatchedAnswer) {
    if !exchange.request.length.is_empty() {
        let seen = exchange.proxy.comparisons.reader(watched.account, watched.limit);
        exchange.down.upload.seen = Some(Box::new(seen));
    }
    exchange.watched = Some(Box::new(watched));
}

/// A request has come to a tap: takes note of it if it belongs to a comparison.
pub(super) fn arrive(exchange: &mut Exchange<'_>, upstream: &Upstream) {
    let headers = &exchange.request.head.headers;
    let ids = headers.iter().filter(|field| field.name.eq_ignore_ascii_case(ID_FIELD));
    let mut ids = ids.map(|field| field.value);
    let Some(id) = ids.next() else { return };
    let comparisons = &exchange.proxy.comparisons;
    // The request itself goes on: an id may be one of a process that has ended.
    let known = comparisons.taps.find(id).filter(|_| ids.next().is_none());
    let Some(limit) = known else { return comparisons.refuse_id() };
    let (sender, ended) = oneshot::channel();
    let mut sent = exchange.request.as_sent(BodyLength::Empty);
    fallback::leave_hop(&mut sent.head.headers);
    let request = asked(&sent, upstream);
    comparisons.taps.visit(id, TapVisit { request, ended });
    if exchange.request.opens_tunnel() {
        return;
    }
    let account = exchange.account();
    watch(exchange, WatchedAnswer { limit, account, answer: None, ours: sender, id: None });
}

/// The request that an origin gets.
fn asked(request: &Request, upstream: &Upstream) -> AskedRequest {
    let own = [ID_FIELD, MARKER, TAP_MARKER];
    let fields = request.head.headers.iter().filter(|field| {
        let is_framing =
            field.name.eq_ignore_ascii_case(b"content-length") || field.name.eq_ignore_ascii_case(b"host");
        !is_framing && !own.iter().any(|own| field.name.eq_ignore_ascii_case(own))
    });
    let line = (request.method(), request.target(), request.origin_authority(&upstream.settings));
    AskedRequest::new(line, fields.map(|field| (field.name, field.value)))
}

impl TappedRequest {
    /// Waits for the client's response, serves the request once more, and hands all over.
    async fn run(self, ours: oneshot::Receiver<WatchedOutcome>) {
        let comparisons = Arc::clone(&self.proxy.comparisons);
        let route = Arc::clone(&self.route);
        if let Err(reason) = self.compare(ours).await {
            comparisons.not_compared(route, reason);
        }
    }

    async fn compare(mut self, ours: oneshot::Receiver<WatchedOutcome>) -> Result<(), &'static str> {
        let Ok(WatchedOutcome { answer: old, sent, all_sent, mut held }) = ours.await else {
            return Err("the client left before the end of the response");
        };
        let body = sent.unwrap_or_default();
        if !all_sent {
            return Err("the old proxy has answered before the end of the request's body");
        }
        if !body.is_whole() {
            return Err("its body is longer than `body`");
        }
        let visit = match &self.pass {
            None => None,
            Some(pass) => {
                let mut visits = pass.visits();
                match (visits.pop(), visits.is_empty()) {
                    (_, false) => return Err("the old proxy has asked the origin more than once"),
                    (visit, true) => visit,
                }
            }
        };
        let is_tapped = self.pass.is_some();
        let (of_old, answer) = match (visit, &old) {
            (Some(visit), _) => {
                let (request, answer) = end_of(visit, &mut held).await?;
                (Some(request), Some(answer))
            }
            (None, Answered::Answered(old)) if !is_tapped => (None, Some((**old).clone())),
            (None, _) => (None, None),
        };
        if answer.as_ref().is_some_and(|answer| !answer.body.is_whole()) {
            return Err("the body of the response is longer than the memory for it");
        }
        let (new, of_new) = self.replay(&body, answer, &mut held).await?;
        let length = body.length;
        let of_new = of_new.map(|asked| asked.with_body(body));
        let samples = Arc::clone(&self.config.settings.compare_samples);
        let Self { proxy, route, compare, shown: mut request, place, .. } = self;
        request.length = length;
        let asked = Some(Box::new(AskedPair { old: of_old, new: of_new, is_tapped }));
        proxy.comparisons.compare(Pair {
            route,
            compare,
            samples,
            request,
            old,
            again: None,
            new,
            asked,
            held,
            place,
        });
        Ok(())
    }

    /// Serves the request once more, with this response of the origin. Returns the response, and the request that the origin
    /// would have got.
    async fn replay(
        &mut self,
        body: &Body,
        answer: Option<Answer>,
        held: &mut Vec<crate::limits::budget::BudgetShare>,
    ) -> Result<(Answered, Option<AskedRequest>), &'static str> {
        const NO_END: &str = "this proxy has not served it once more in time";
        let (sender, ended) = oneshot::channel();
        let replay = Arc::new(Replay::new(answer, self.compare.rules.body_limit, sender));
        self.peer.replay = Some(Arc::clone(&replay));
        if !body.bytes.is_empty() {
            self.request.length = BodyLength::Fixed(body.length);
        }
        let served = serve_again(self, Socket::memory(body.bytes.clone()));
        tokio::time::timeout(PATIENCE, served).await.map_err(|_| NO_END)?;
        let WatchedOutcome { answer, held: of_ours, .. } = ended.await.map_err(|_| NO_END)?;
        held.extend(of_ours);
        Ok((answer, replay.asked()))
    }
}

/// The request of the old proxy at the tap, and the response of the origin.
async fn end_of(
    visit: TapVisit,
    held: &mut Vec<crate::limits::budget::BudgetShare>,
) -> Result<(AskedRequest, Answer), &'static str> {
    const NO_END: &str = "the origin's response has not passed the tap as a whole";
    let TapVisit { request, ended } = visit;
    let ended = tokio::time::timeout(LAG, ended).await;
    let Ok(Ok(WatchedOutcome { answer: Answered::Answered(answer), sent, held: of_tap, .. })) = ended else {
        return Err(NO_END);
    };
    held.extend(of_tap);
    Ok((request.with_body(sent.unwrap_or_default()), *answer))
}

/// Serves the request as if it came from this client.
async fn serve_again(tapped: &mut TappedRequest, client: Socket) {
    let TappedRequest { proxy, config, peer, request, .. } = tapped;
    let mut client = Client::new(Link::H1(Box::new(H1Link::new(Stream::Plain(client)))));
    if let Link::H1(link) = &mut client.link {
        link.begin_receive(request.length, &config.head_limits);
    }
    let (mut response, mut timer) = (Response::new(), Timer::new(PATIENCE));
    let served = ServedRequest {
        proxy,
        config,
        peer,
        client: &mut client,
        request,
        response: &mut response,
        timer: &mut timer,
    };
    super::serve(served, Ok(())).await;
}

/// The response of a replay is handed over at its end.
pub(super) fn watch_replay(replay: &Replay, account: Account) -> Option<Box<WatchedAnswer>> {
    let ours = replay.waiter()?;
    Some(Box::new(WatchedAnswer { limit: replay.limit, account, answer: None, ours, id: None }))
}

/// Takes note of the request, and makes the response that stands for that of the origin.
pub(super) fn answer_replay(exchange: &mut Exchange<'_>, replay: &Replay, upstream: &Upstream) -> StepResult {
    let mut request = asked(exchange.request, upstream);
    request.body_is_unknown = exchange.down.upload.filter.is_some();
    replay.asks(request);
    exchange.down.upload.give_up();
    let Some(answer) = &replay.answer else { return Err(Error::Internal.into()) };
    let mut head = ResponseHead::new();
    head.status = answer.status;
    for (name, value) in answer.fields.iter() {
        head.headers.push(name.as_bytes(), value);
    }
    connection::strip_hop_by_hop(&mut head.headers, false);
    head.headers.remove(NameId::TransferEncoding);
    **exchange.response = head;
    let bodiless =
        exchange.request.head.method == Method::Head || matches!(answer.status, 100..=199 | 204 | 304);
    let length = if bodiless { BodyLength::Empty } else { BodyLength::Fixed(answer.body.length) };
    let body = Bytes::copy_from_slice(if bodiless { &[] } else { &answer.body.bytes });
    let source = BodySource::Cached(Link::Cached(Box::new(CachedLink::bytes(body))), length);
    Ok(shape_or_send(exchange, source))
}
