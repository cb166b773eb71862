//! The end of an exchange: metrics, the steps of the phase `log`, and the access log.

use std::time::{Instant, SystemTime};

use foregate_module::PhaseId;
use foregate_wire::NameId;

use super::Exchange;
use crate::error::{Error, Side};
use crate::link::LinkError;
use crate::telemetry::access_log::Entry;
use crate::upstream::Ask;

/// The input of the log and the metrics.
#[derive(Debug)]
pub(super) struct Record {
    pub start: Instant,
    pub status: Option<u16>,
    /// The action of the route that has answered, or was about to.
    pub action: Option<Acted>,
    pub error: Option<Error>,
    /// The side that ended a tunnel, or left before the response was complete.
    pub ended_by: Option<Side>,
    /// Bytes that are not HTTP have been moved.
    pub tunnel: bool,
    /// The log knows of it.
    pub logged: bool,
    /// Why there is nothing to route.
    pub refused: Option<Error>,
    /// The steps of the phase `log` that run before the response begins have run.
    pub logged_first: bool,
}

/// The action of a route, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acted {
    Proxy,
    Respond,
    Files,
}

impl Acted {
    fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Respond => "respond",
            Self::Files => "files",
        }
    }
}

impl Record {
    /// Of a request that has just begun.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            status: None,
            action: None,
            error: None,
            ended_by: None,
            tunnel: false,
            logged: false,
            refused: None,
            logged_first: false,
        }
    }
}

/// Logs an exchange that is over, and counts it.
pub(super) fn run(exchange: &mut Exchange<'_>) {
    exchange.record.logged = true;
    if exchange.record.error == Some(Error::Client(LinkError::CutOff)) {
        exchange.record.error = Some(Error::Shutdown);
    }
    excuse_leaving(exchange);
    if exchange.record.refused.is_none()
        && (exchange.has_steps(PhaseId::Log, PhaseId::Log) || exchange.has_filters())
    {
        exchange.run_log_phase();
    }
    if let Some(step) = exchange.record.error.as_ref().and_then(Error::step)
        && let Some(run) = &mut exchange.modules.run
    {
        run.state.notes.push(("step".into(), step.into()));
    }
    let record = &exchange.record;
    let sites = &exchange.config.settings.sites;
    let duration = record.start.elapsed();
    let counters = exchange.routed.site.map_or(&*exchange.proxy.unrouted, |site| sites.counters(site));
    counters.request(record.status, duration);
    if let Some(cached) = &exchange.cached {
        exchange.proxy.metrics.cache.request(cached.outcome);
    }
    exchange.proxy.metrics.requests_active.add(-1);
    if let Some(error) = &record.error {
        let upstream = exchange.upstream().map(|upstream| &upstream.settings.name);
        counters.error(error.kind(), error.side().as_str(), upstream);
    }
    let Some(log) = exchange.config.access_log() else { return };
    let asked = exchange.modules.run.as_ref().and_then(|run| run.asked.fields());
    let headers = asked.unwrap_or(&exchange.request.head.headers);
    let ask = exchange.ask.as_ref();
    log.record(&Entry {
        time: SystemTime::now() - duration,
        client: exchange.client_address(),
        method: exchange.request.method(),
        scheme: exchange.request.scheme(),
        host: exchange.request.host().as_bytes(),
        path: exchange.request.head.target(),
        protocol: exchange.request.head.version.as_str(),
        status: record.status,
        bytes_in: exchange.down.upload.moved,
        bytes_out: exchange.down.download.sent,
        duration,
        site: exchange.routed.site.map(|site| &*sites.site(site).name),
        route: exchange.routed.route.map(|route| &*route.pattern),
        action: record.action.map(Acted::name),
        upstream: ask.map(|ask| &*ask.upstream.settings.name),
        server: ask.and_then(Ask::server).map(|server| &*server.label),
        attempts: ask.map_or(0, Ask::attempts),
        upstream_first_byte: ask.and_then(|ask| ask.first_byte),
        upstream_reused: ask.and_then(|ask| ask.reused),
        cache: exchange.cached.as_ref().map(|cached| cached.outcome.as_str()),
        cache_reason: exchange.cached.as_ref().and_then(|cached| cached.reason),
        error: record.error.as_ref().map(Error::kind),
        error_side: record.error.as_ref().map(|error| error.side().as_str()),
        ended_by: record.ended_by.map(|side| match side {
            Side::Downstream => "client",
            Side::Upstream | Side::Internal => "origin",
        }),
        tls: exchange.peer.tls.as_ref().map(|info| match info.version {
            crate::settings::TlsVersion::Tls12 => "TLSv1.2",
            crate::settings::TlsVersion::Tls13 => "TLSv1.3",
        }),
        user_agent: headers.get(NameId::UserAgent),
        referer: headers.get(NameId::Referer),
        notes: exchange.modules.run.as_ref().map_or(&[], |run| &run.state.notes),
    });
}

/// Either side may end a tunnel, and a client may leave once its response has begun, unless it owes
/// the rest of its request and does not say that it takes it back. Neither is an error of
/// anybody's.
fn excuse_leaving(exchange: &mut Exchange<'_>) {
    let Some(error) = exchange.record.error.filter(Error::is_leaving) else { return };
    let is_whole = exchange.down.upload.is_done() && !exchange.down.upload.gave_up()
        || matches!(error, Error::Client(LinkError::Reset(_)));
    let may_leave = error.side() == Side::Downstream && exchange.down.client.head_sent && is_whole;
    if exchange.record.tunnel || may_leave {
        exchange.record.error = None;
        exchange.record.ended_by.get_or_insert(error.side());
    }
}
