//! The request for the origin: hop-by-hop fields are removed, and the steps of `upstream-request`
//! run.

use foregate_module::PhaseId;
use foregate_wire::{Version, connection};

use super::bodies::{filter_request, renew, sweep_request};
use super::inspect::buffer_request;
use super::mirror;
use super::record::LoggedAction;
use super::reply::Reply;
use super::screen::limit_body;
use super::shield;
use super::spans;
use super::state::{Exchange, Step, StepResult};
use super::tap;
use crate::error::Error;
use crate::link::copy::Underscores;
use crate::link::start::KeptStart;
use crate::message::request::{FRAMING, hops};
use crate::settings::UpstreamProtocol;
use crate::upstream::{Ask, OpeningTerms};

/// Makes the request for the origin.
pub(super) async fn run(exchange: &mut Exchange<'_>, upstream: usize) -> StepResult {
    if exchange.shielded().is_some() {
        return shield::prepare(exchange, upstream);
    }
    let Some(upstream) = exchange.config.upstreams.get(upstream) else { return Err(Error::Internal.into()) };
    exchange.record.action = Some(LoggedAction::Proxy);
    if hops::go_in_circles(&exchange.request.head.headers) {
        return Err(Error::Loop.into());
    }
    if let Some(hops) = hops::left(&exchange.request.head) {
        match hops.checked_sub(1) {
            Some(left) => hops::set_left(&mut exchange.request.head.headers, left),
            None => {
                return Ok(Step::Reply(Box::new(Reply::last_hop(exchange.request.head.method.as_bytes()))));
            }
        }
    }
    exchange.take_passes().await?;
    let of_route = exchange.routed.route.and_then(|route| route.buffer_requests);
    if let Some(limit) = of_route.unwrap_or(upstream.settings.buffer_requests)
        && !exchange.request.length.is_empty()
        && !exchange.request.opens_tunnel()
    {
        // Rare, and large: kept out of the future that every request has.
        Box::pin(buffer_request(exchange, limit)).await?;
    }
    if exchange.down.peer.replay.is_none() {
        exchange.record.mirrors = mirror::choose(exchange.routed.mirror(), exchange.request);
    }
    // The body is kept for another attempt. Over HTTP/2 an origin may declare a request unprocessed, and then it may be
    // repeated whatever its method.
    let method = exchange.request.head.method.as_bytes();
    let of_route = exchange.routed.route.and_then(|route| route.retry.get());
    let rules = of_route.unwrap_or(&upstream.settings.retry);
    let keeps = exchange.request.is_repeatable()
        || upstream.settings.protocol != UpstreamProtocol::Http1
        || rules.iter().any(|rule| rule.allows_method(method))
        || exchange.record.mirrors;
    if keeps && !exchange.down.upload.is_done() {
        // The part that steps have read is sent first.
        let kept = exchange.down.upload.kept.take();
        let share = || exchange.proxy.filter_memory.share(exchange.account());
        let mut kept = kept.unwrap_or_else(|| KeptStart::new(0, share()));
        let mirror = exchange.routed.mirror().filter(|_| exchange.record.mirrors);
        let copied = mirror.map_or(0, |mirror| mirror.body);
        kept.limit = upstream.settings.retry_body.max(kept.len()).max(copied);
        exchange.down.upload.kept = Some(kept);
    }
    let terms = OpeningTerms {
        fresh: false,
        addresses: &exchange.down.peer.addresses,
        behalf: exchange.client_address(),
        client: exchange.down.peer.holdings.as_ref(),
        own: Some(&exchange.down.peer.own),
        http1: false,
        authenticates: false,
        handed_over: None,
    };
    let (account, span) = (exchange.account(), spans::span_parent(exchange));
    let ask = exchange.ask.insert(Ask::new(upstream, terms));
    ask.set_rules(rules, &exchange.config.upstreams);
    ask.set_account(account);
    ask.set_span(span);
    if upstream.settings.protocol == UpstreamProtocol::Http2 && !exchange.request.fits_extended_connect() {
        // The request continues without `Upgrade`: a server may ignore such an offer (RFC 9110, section 7.8).
        exchange.request.upgrade = None;
    }
    let underscores =
        exchange.routed.site.is_some_and(|site| exchange.config.settings.sites.allows_underscores(site));
    exchange.down.upload.underscores = if underscores { Underscores::Own } else { Underscores::None };
    let extended = exchange.request.head.version == Version::Http2 && exchange.request.upgrade.is_some();
    if extended {
        exchange.request.websocket_key = Some(crate::websocket::new_key());
        // HTTP/2 has no such key (RFC 8441, section 5): the origin gets one of ours.
        exchange.request.head.headers.remove_name(b"sec-websocket-key");
    }
    let headers = &mut exchange.request.head.headers;
    // With steps, `screen` has already done this before they ran.
    if exchange.modules.run.is_none() {
        exchange.down.upload.leave_out(connection::named_options(headers));
    }
    connection::strip_hop_by_hop(headers, true);
    match underscores {
        false => connection::drop_underscore_names_before(headers, exchange.request.sent),
        true => connection::drop_misspelt_names_before(headers, exchange.request.sent),
    };
    headers.remove_each(&FRAMING);
    let (secure, version) = (exchange.request.secure, exchange.request.head.version);
    match exchange.modules.run.as_ref().and_then(|run| run.facts.client) {
        Some(client) => exchange.request.tell_origin(&client.to_string(), secure, version),
        None => exchange.request.tell_origin(&exchange.down.peer.client_text, secure, version),
    }
    if exchange.routed.route.and_then(|route| route.cache.get()).is_some_and(|cache| cache.shield) {
        shield::add_to_loop(exchange);
    }
    if exchange.modules.run.is_some() {
        exchange.run_phases(PhaseId::UpstreamRequest).await?;
        limit_body(exchange)?;
        filter_request(exchange)?;
        renew(exchange);
        sweep_request(exchange);
    }
    if let Some(replay) = &exchange.down.peer.replay {
        return tap::answer_replay(exchange, replay, upstream);
    }
    Ok(Step::Ask)
}
