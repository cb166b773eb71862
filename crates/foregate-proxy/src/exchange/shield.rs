//! Requests between the nodes of a shield: those that a node sends, and those that the owner of an address serves.
//!
//! The asking node routes the request and runs its steps. The owner serves the resulting request from its cache or from
//! the origin: it runs no steps, and asks no other node.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::{Demands, KeyText, Tag};
use foregate_module::{Source as MadeBy, Text};
use foregate_wire::{HeaderList, Method, Slashes, connection};

use super::record::LoggedAction;
use super::reply::Reply;
use super::shielded::ShieldedRequest;
use super::spans;
use super::state::{Detour, Exchange, Step, StepResult};
use crate::cache::{AnswerKind, CallKind, FetchCall, NodeCall, OwnerAsk, SHIELD_FIELD, TAGS_FIELD};
use crate::error::Error;
use crate::message::request::FRAMING;
use crate::routing::HostId;
use crate::settings::{CacheSettings, Route};
use crate::upstream::{Addresses, Ask, OpeningTerms, Upstream};

/// The field with the networks that a request has passed (RFC 8586).
const CDN_LOOP: &[u8] = b"CDN-Loop";
/// How long a question for purges waits here for a new purge.
const NEWS: Duration = Duration::from_secs(1);
/// The most hashed tags in one field line of an answer.
const TAGS: usize = 400;

/// Handles a request on the listener of the group.
pub(super) async fn arrive(exchange: &mut Exchange<'_>) -> StepResult {
    let shield = &exchange.proxy.cache.shield;
    let request = &mut *exchange.request;
    let mut fields = request.head.headers.get_all_name(SHIELD_FIELD);
    let (field, others) = (fields.next(), fields.count());
    let group = shield.group();
    let call = match (&group, field, others) {
        (Some(group), Some(field), 0) => {
            group.verify(field, request.target.as_bytes(), request.authority.as_str().as_bytes())
        }
        _ => None,
    };
    let (Some(group), Some(NodeCall { from, nonce, kind })) = (group, call) else {
        shield.counters.refused.inc();
        exchange.down.client.close = true;
        return Err(Error::ShieldRefused.into());
    };
    request.head.headers.remove_name(SHIELD_FIELD);
    // These fields concern only the connection between the nodes.
    connection::strip_hop_by_hop(&mut request.head.headers, true);
    request.head.headers.remove_each(&FRAMING);
    match kind {
        CallKind::Purges(position) => {
            // Each node sends such a request each second, so it is not logged.
            exchange.record.is_quiet = true;
            let purges = shield.purges_for(&from, position, NEWS).await;
            let proof = group.prove(AnswerKind::Purges, nonce, 200, &purges);
            let mut reply = Reply::new(200, "application/octet-stream", Text::Owned(purges), MadeBy::Route);
            reply.head.headers.push(SHIELD_FIELD, proof.as_bytes());
            Ok(Step::Reply(Box::new(reply)))
        }
        CallKind::Fetch(call) => {
            if !group.knows(&call.known).await {
                return Err(Error::ShieldDeclined.into());
            }
            exchange.proxy.cache.shield.counters.served.inc();
            begin(exchange, ShieldedRequest { group, nonce, call: *call })
        }
    }
}

/// Finds the route that the asking node has named, and begins to serve the request there.
fn begin(exchange: &mut Exchange<'_>, shielded: ShieldedRequest) -> StepResult {
    let call = &shielded.call;
    let declined = || Error::ShieldDeclined;
    let text = shielded.text().ok_or_else(declined)?;
    if exchange.request.head.method != Method::Get || !exchange.request.length.is_empty() {
        return Err(declined().into());
    }
    let settings = &exchange.config.settings;
    let site = find_site(exchange, call).ok_or_else(declined)?;
    let (plain, conditional) = settings.sites.candidates(site, text.path());
    let mut routes = conditional.map(|(_, route)| route).chain(plain);
    let route = routes.find(|route| name_of(route) == call.route).ok_or_else(declined)?;
    let caches = route.cache.get().is_some_and(|cache| cache.shield);
    let mut upstreams = exchange.config.upstreams.iter();
    let upstream = upstreams.position(|upstream| *upstream.settings.name == *call.upstream);
    let Some(upstream) = upstream.filter(|_| caches) else { return Err(declined().into()) };
    if settings.sites.keeps_slashes(site) && exchange.request.normalise(Slashes::Keep).is_err() {
        return Err(declined().into());
    }
    exchange.down.limit_times(&route.timeouts);
    exchange.routed.site = Some(site);
    exchange.routed.route = Some(route);
    exchange.request.secure = call.secure;
    if let Some(authority) = &call.authority {
        exchange.request.choose_authority(authority);
    }
    exchange.rare.detour = Some(Box::new(Detour::Shielded(shielded)));
    Ok(Step::Cached(upstream))
}

fn find_site(exchange: &Exchange<'_>, call: &FetchCall) -> Option<HostId> {
    let (settings, host) = (&exchange.config.settings, call.host.as_bytes());
    let is_it = |site: &HostId| *settings.sites.site(*site).name == *call.site;
    let everywhere = settings.sites.find(host).filter(is_it);
    everywhere.or_else(|| {
        // The client came through another listener of the asking node, so the sites of all listeners are searched.
        let listeners = settings.listeners.iter().filter(|_| settings.sites.depends_on_listener());
        listeners
            .filter_map(|listen| settings.sites.explain_on(host, &listen.address))
            .map(|(site, _)| site)
            .find(is_it)
    })
}

/// The name of a route, which is the same in all nodes with equal configurations.
fn name_of(route: &Route) -> String {
    format!("{}{:?}", route.pattern, route.conditions)
}

/// Prepares a request of another node for the origin. It is in its final form already and is not changed.
pub(super) fn prepare(exchange: &mut Exchange<'_>, upstream: usize) -> StepResult {
    let Some(upstream) = exchange.config.upstreams.get(upstream) else { return Err(Error::Internal.into()) };
    exchange.record.action = Some(LoggedAction::Proxy);
    let rules = exchange.routed.route.and_then(|route| route.retry.get());
    let rules = rules.unwrap_or(&upstream.settings.retry);
    let terms = OpeningTerms {
        fresh: false,
        addresses: Addresses::NONE,
        behalf: exchange.client_address(),
        client: None,
        own: None,
        http1: false,
        authenticates: false,
        handed_over: None,
    };
    let (account, span) = (exchange.account(), spans::span_parent(exchange));
    let ask = exchange.ask.insert(Ask::new(upstream, terms));
    ask.set_rules(rules, &exchange.config.upstreams);
    ask.set_account(account);
    ask.set_span(span);
    Ok(Step::Ask)
}

/// Adds to the demands those of the client that only the asking node knows.
pub(super) fn complete(demands: &mut Demands, call: &FetchCall) {
    demands.set_conditions(call.conditions);
    if call.credentials {
        demands.add_credentials();
    }
}

/// Returns true if the store may be used, because all purges of the group are known. Counts the request otherwise.
pub(super) fn is_current(exchange: &Exchange<'_>) -> bool {
    let shield = &exchange.proxy.cache.shield;
    let is_current = shield.group().is_none_or(|group| group.is_current());
    if !is_current {
        shield.counters.behind.inc();
    }
    is_current
}

/// The node to ask for a response instead of the origin. `None` if this node owns the address, or if the owner is away.
pub(super) fn owner(
    exchange: &Exchange<'_>,
    settings: &CacheSettings,
    upstream: &Upstream,
    text: &KeyText,
    demands: &Demands,
) -> Option<Box<OwnerAsk>> {
    if !settings.shield || exchange.shielded().is_some() {
        return None;
    }
    let shield = &exchange.proxy.cache.shield;
    let group = shield.group()?;
    let node = group.owner(text.as_bytes()).filter(|node| *node != group.settings.own)?;
    let name = group.settings.upstream_name(node);
    let way = exchange.config.upstreams.iter().find(|upstream| *upstream.settings.name == *name)?;
    if !group.is_up(node) {
        shield.counters.direct.inc();
        return None;
    }
    let (site, route) = (exchange.routed.site?, exchange.routed.route?);
    let request = &exchange.request;
    let call = FetchCall {
        host: request.authority.host().to_owned(),
        site: exchange.config.settings.sites.site(site).name.to_string(),
        route: name_of(route),
        upstream: upstream.settings.name.to_string(),
        text: text.as_bytes().to_vec(),
        conditions: demands.conditions(),
        credentials: demands.has_credentials(),
        secure: request.secure,
        client: exchange.client_address(),
        authority: request.chosen_authority().map(str::to_owned),
        known: group.known(shield.position()),
    };
    Some(Box::new(OwnerAsk { upstream: Arc::clone(way), group, node, call }))
}

/// Returns whether the request has passed this group already.
pub(super) fn has_passed(exchange: &Exchange<'_>) -> bool {
    let Some(group) = exchange.proxy.cache.shield.group() else { return false };
    let lines = exchange.request.head.headers.get_all_name(CDN_LOOP);
    let mut members = lines.flat_map(|line| line.split(|byte| *byte == b','));
    members.any(|member| {
        let name = member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        name == group.loop_id.as_bytes()
    })
}

/// Adds this group to the networks that the request has passed.
pub(super) fn add_to_loop(exchange: &mut Exchange<'_>) {
    if let Some(group) = exchange.proxy.cache.shield.group() {
        exchange.request.head.headers.push(CDN_LOOP, group.loop_id.as_bytes());
    }
}

/// Adds the hashed tags of a stored response, which the asking node cannot learn in another way.
pub(super) fn tell_tags(tags: &[Tag], headers: &mut HeaderList) {
    headers.remove_name(TAGS_FIELD);
    for tags in tags.chunks(TAGS) {
        let mut line = String::with_capacity(tags.len() * 17);
        for tag in tags {
            // Writing to a string never fails.
            let _ = write!(line, "{}{:x}", if line.is_empty() { "" } else { " " }, tag.to_bits());
        }
        headers.push(TAGS_FIELD, line.as_bytes());
    }
}
