//! Compares this proxy with an old proxy that answers the client.
//!
//! The request is sent to the old proxy with an id. The old proxy sends it on to a tap of this proxy, and the tap
//! sends it to the origin. The bodies of the request and of the origin's response are recorded on the way, up to a
//! limit. Once the client has its response, the request is served again without effect ([`super::replay`]): the
//! recorded response replaces the origin, and only the comparison gets the result.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use foregate_compare::AskedRequest;
use foregate_wire::{BodyLength, Method, NameId, ResponseHead, connection};
use tokio::sync::oneshot;

use super::compare::{TappedRequest, WatchedAnswer, shown};
use super::fallback;
use super::reply::BodySource;
use super::shape::shape_or_send;
use super::state::{Exchange, StepResult};
use crate::comparison::{ID_FIELD, Replay, TapPass, TapVisit};
use crate::error::Error;
use crate::limits::account::Account;
use crate::link::{CachedLink, Link};
use crate::loops::{MARKER, TAP_MARKER};
use crate::message::request::Request;
use crate::random;
use crate::routing::HostId;
use crate::settings::{Compare, CompareMode, Route, SHARE_WHOLE};
use crate::upstream::Upstream;

/// Begins a comparison, if this request is to be compared. The request goes to the old proxy whether or not it is
/// compared.
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
        peer: exchange.down.peer.copied(),
        request: exchange.request.for_replay(BodyLength::Empty),
        shown: shown(exchange.request),
        route,
        compare: Arc::clone(compare),
        pass,
        place,
        ours,
    };
    let tapped = Some(Box::new(tapped));
    watch(exchange, WatchedAnswer { limit, account, answer: None, ours: sender, id, tapped });
}

/// The reason why a request cannot be compared, if there is one.
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
    exchange.rare.watched = Some(Box::new(watched));
}

/// Records a request that has come to a tap, if it belongs to a comparison.
pub(super) fn arrive(exchange: &mut Exchange<'_>, upstream: &Upstream) {
    let headers = &exchange.request.head.headers;
    let ids = headers.iter().filter(|field| field.name.eq_ignore_ascii_case(ID_FIELD));
    let mut ids = ids.map(|field| field.value);
    let Some(id) = ids.next() else { return };
    let comparisons = &exchange.proxy.comparisons;
    // A request with an unknown id is only counted, and continues: the id may come from a process that has ended.
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
    watch(exchange, WatchedAnswer { limit, account, answer: None, ours: sender, id: None, tapped: None });
}

/// The request that an origin gets.
fn asked(request: &Request, upstream: &Upstream) -> AskedRequest {
    let own = [ID_FIELD, MARKER, TAP_MARKER];
    let fields = request.head.headers.iter().filter(|field| {
        let is_framing =
            field.name.eq_ignore_ascii_case(b"content-length") || field.name.eq_ignore_ascii_case(b"host");
        !is_framing && !own.iter().any(|own| field.name.eq_ignore_ascii_case(own))
    });
    let line = (request.method(), request.target.as_bytes(), request.origin_authority(&upstream.settings));
    AskedRequest::new(line, fields.map(|field| (field.name, field.value)))
}

/// Watches the response of a replay, so that it is handed over at its end. `None` if that was done before.
pub(super) fn watch_replay(replay: &Replay, account: Account) -> Option<Box<WatchedAnswer>> {
    let ours = replay.waiter()?;
    Some(Box::new(WatchedAnswer { limit: replay.limit, account, answer: None, ours, id: None, tapped: None }))
}

/// Records the request, and makes the response that replaces the origin's.
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
