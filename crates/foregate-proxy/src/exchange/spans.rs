//! The spans of an exchange with a recorded trace: the request itself, phases of steps, and the proxy's own work.
//!
//! The trace is known only after `request-early`, so spans are recorded from then on. The span of `request-early`
//! itself is added with its earlier start.

use std::time::Instant;

use foregate_module::{Doubt, View as ModuleView};

use super::log::see_outcome;
use super::open_spans::ExchangeSpans;
use super::record::LoggedAction;
use super::state::{Exchange, Step};
use crate::error::{Error, Side};
use crate::settings::TlsVersion;
use crate::spans::{Attributes, RequestTrace, Span, SpanId, SpanKind, SpanParent};
use crate::upstream::traced::{method, without_secrets};

/// The name of the span for a step of the exchange. `None` for steps that take no time, or have parts with spans.
fn name_of(step: &Step) -> Option<&'static str> {
    Some(match step {
        Step::Files { .. } => "files",
        Step::Cached(_) => "cache",
        Step::Transfer(_) => "transfer",
        Step::Tunnel(_) | Step::TunnelOn(_) => "tunnel",
        _ => return None,
    })
}

/// The present time, for the start of `request-early`, if a trace may be recorded.
pub(super) fn may_trace(exchange: &Exchange<'_>) -> Option<Instant> {
    exchange.config.settings.trace_export.as_ref().map(|_| Instant::now())
}

/// Begins the spans, if the trace that a step has set is recorded. `early` is the time at which `request-early` began.
pub(super) fn begin_spans(exchange: &mut Exchange<'_>, early: Instant) {
    let trace = exchange.modules.run.as_ref().and_then(|run| run.facts.trace);
    let Some(context) = trace.filter(|trace| trace.is_sampled()) else { return };
    if exchange.down.peer.replay.is_some() {
        return;
    }
    let trace = RequestTrace::new(context, &exchange.proxy.spans);
    exchange.rare.spans = Some(Box::new(ExchangeSpans::new(trace, early)));
}

/// Begins the span for a step of the exchange.
pub(super) fn begin_work(exchange: &mut Exchange<'_>, step: &Step) {
    if let Some(spans) = &mut exchange.rare.spans
        && let Some(name) = name_of(step)
    {
        spans.begin_work(name);
    }
}

/// Ends the span of the step, if it has one.
pub(super) fn end_work(exchange: &mut Exchange<'_>) {
    let Some(spans) = &mut exchange.rare.spans else { return };
    let mut attributes = Attributes::default();
    if let Some(cached) = exchange.rare.cached.as_ref().filter(|_| spans.is_at("cache")) {
        attributes.text("foregate.cache", cached.outcome.as_str().as_bytes());
    }
    spans.end_work(&attributes);
}

/// The parent for new spans.
pub(super) fn span_parent(exchange: &Exchange<'_>) -> Option<SpanParent> {
    exchange.rare.spans.as_ref().map(|spans| spans.present())
}

/// Ends the spans of a finished exchange. Either all of them are exported, or none.
pub(super) fn end_spans(exchange: &mut Exchange<'_>) {
    let Some(mut spans) = exchange.rare.spans.take() else { return };
    spans.end_work(&Attributes::default());
    // Attempts that are under way are dropped, so that their spans end first.
    exchange.ask = None;
    let attributes = attributes(exchange);
    let (status, error) = (exchange.record.status, exchange.record.error);
    let route = exchange.routed.route.map(|route| &*route.pattern);
    let name = method(exchange.request, &mut Attributes::default());
    let name = route.map_or_else(|| name.to_string(), |route| format!("{name} {route}"));
    let context = *spans.trace.context();
    let began = exchange.record.start;
    spans.trace.record(&Span {
        id: SpanId(context.span),
        parent: context.parent.map(SpanId),
        name: &name,
        kind: SpanKind::Server,
        began,
        ended: Instant::now(),
        attributes: &attributes,
        failed: status.is_some_and(|status| status >= 500)
            || error.is_some_and(|error| error.side() != Side::Downstream),
    });
    let sent = is_exported(exchange);
    spans.trace.end(sent);
}

/// Returns true if the conditions of the export hold for the exchange.
fn is_exported(exchange: &mut Exchange<'_>) -> bool {
    let config = exchange.config;
    let Some(export) = &config.settings.trace_export else { return false };
    if export.when.is_empty() {
        return true;
    }
    see_outcome(exchange);
    let pipeline = &config.settings.pipeline;
    let Some((view, state)) = exchange.view() else { return false };
    let view = ModuleView::new(&view, &state.slots, pipeline.values()).in_doubt(Doubt::Ignored);
    export.when.iter().all(|condition| condition.holds(&view))
}

/// The attributes of the exchange, by the semantic conventions for HTTP servers.
fn attributes(exchange: &Exchange<'_>) -> Attributes {
    let mut all = Attributes::default();
    let (request, record) = (&*exchange.request, &exchange.record);
    method(request, &mut all);
    all.text("url.scheme", request.scheme().as_bytes());
    let target = without_secrets(request.head.target());
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    all.text("url.path", parts.next().unwrap_or_default());
    if let Some(query) = parts.next() {
        all.text("url.query", query);
    }
    all.text("server.address", request.authority.host().as_bytes());
    let authority = request.authority.as_str();
    let port =
        authority.get(request.authority.host().len()..).and_then(|port| port.strip_prefix(':')?.parse().ok());
    all.number("server.port", port.unwrap_or(if request.scheme() == "https" { 443 } else { 80 }));
    let version = request.head.version.as_str();
    all.text("network.protocol.version", version.strip_prefix("HTTP/").unwrap_or(version).as_bytes());
    if let Some(client) = exchange.client_address() {
        all.text("client.address", client.to_canonical().to_string().as_bytes());
    }
    if let Some(peer) = exchange.down.peer.addresses.client {
        all.text("network.peer.address", peer.ip().to_canonical().to_string().as_bytes());
        all.number("network.peer.port", peer.port().into());
    }
    if let Some(info) = &exchange.down.peer.tls {
        let version: &[u8] = if info.version == TlsVersion::Tls12 { b"1.2" } else { b"1.3" };
        all.text("tls.protocol.version", version);
    }
    let asked = exchange.modules.run.as_ref().and_then(|run| run.asked.fields());
    let headers = asked.unwrap_or(&request.head.headers);
    if let Some(agent) = headers.get(foregate_wire::NameId::UserAgent) {
        all.text("user_agent.original", agent);
    }
    if let Some(route) = exchange.routed.route {
        all.text("http.route", route.pattern.as_bytes());
    }
    if let Some(status) = record.status {
        all.number("http.response.status_code", status.into());
    }
    match (&record.error, record.status) {
        (Some(error), _) => all.text("error.type", Error::kind(error).as_bytes()),
        (None, Some(status)) if status >= 500 => all.text("error.type", status.to_string().as_bytes()),
        _ => {}
    }
    all.number("http.request.body.size", exchange.down.upload.moved);
    all.number("http.response.body.size", exchange.down.download.sent);
    if let Some(site) = exchange.routed.site {
        all.text("foregate.site", exchange.config.settings.sites.site(site).name.as_bytes());
    }
    if let Some(action) = record.action.map(LoggedAction::name) {
        all.text("foregate.action", action.as_bytes());
    }
    if let Some(cached) = &exchange.rare.cached {
        all.text("foregate.cache", cached.outcome.as_str().as_bytes());
    }
    all
}
