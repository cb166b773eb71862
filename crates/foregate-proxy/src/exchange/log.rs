//! The end of an exchange: metrics, the steps of the phase `log`, and the access log.

use std::time::{Duration, SystemTime};

use foregate_module::{self as module, Doubt, PhaseId, Source};
use foregate_wire::NameId;

use super::compare::{self, WatchedEnd};
use super::record::{LogRecord, LoggedAction};
use super::spans;
use super::state::Exchange;
use crate::counters::fallbacks::HERE;
use crate::error::{Error, Side};
use crate::link::LinkError;
use crate::random;
use crate::settings::FallbackReason;
use crate::telemetry::access_log::{AccessLog, LogEntry};
use crate::upstream::Ask;

/// Logs an exchange that is over, and counts it.
pub(super) fn run(exchange: &mut Exchange<'_>) {
    exchange.record.logged = true;
    if exchange.record.error == Some(Error::Client(LinkError::CutOff)) {
        exchange.record.error = Some(Error::Shutdown);
    }
    excuse_leaving(exchange);
    if exchange.down.peer.replay.is_some() || exchange.record.is_quiet {
        end_watched(exchange);
        exchange.proxy.metrics.requests_active.add(-1);
        return;
    }
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
    end_watched(exchange);
    let record = &exchange.record;
    let sites = &exchange.config.settings.sites;
    let duration = record.start.elapsed();
    let counters = exchange.routed.site.map_or(&*exchange.proxy.unrouted, |site| sites.counters(site));
    counters.request(record.status, duration);
    let route = exchange.routed.site.zip(exchange.routed.route);
    let of_route = route.map(|(site, route)| sites.route_counters(site, route));
    if let Some(of_route) = of_route {
        of_route.request(record.status, duration);
    }
    if let Some(trace) = exchange.modules.run.as_ref().and_then(|run| run.facts.trace)
        && trace.is_sampled()
    {
        counters.exemplars.take(trace.trace, duration);
        if let Some(of_route) = of_route {
            of_route.durations.exemplars.take(trace.trace, duration);
        }
    }
    if let Some(cached) = &exchange.rare.cached {
        exchange.proxy.metrics.cache.request(cached.outcome);
    }
    exchange.proxy.metrics.requests_active.add(-1);
    if let Some(error) = &record.error {
        let upstream = exchange.upstream().map(|upstream| &upstream.settings.name);
        counters.error(error.kind(), error.side().as_str(), upstream);
    }
    let is_tap = matches!(record.action, Some(LoggedAction::Tap));
    if exchange.config.settings.falls_back && record.refused.is_none() && !is_tap {
        let site = exchange.routed.site.map_or("", |site| &*sites.site(site).name);
        let route = exchange.routed.route.map_or("", |route| &*route.pattern);
        let reason = record.fallback.map_or(HERE, FallbackReason::as_str);
        exchange.proxy.metrics.fallbacks.count(site, route, reason);
    }
    if !exchange.config.access_logs().is_empty() {
        write_lines(exchange, duration);
    }
    let failed = has_failed(&exchange.record);
    if exchange.proxy.live.wants(failed) {
        exchange.proxy.live.ended(&entry(exchange, duration), failed);
    }
    // Last, because it drops the attempts, of which the lines above tell the server.
    spans::end_spans(exchange);
}

/// Hands the response over to a comparison, if it is compared.
fn end_watched(exchange: &mut Exchange<'_>) {
    if let Some(watched) = exchange.rare.watched.take() {
        let (record, download) = (&exchange.record, &mut exchange.down.download);
        let upload = &mut exchange.down.upload;
        let end = WatchedEnd {
            seen: download.seen.take(),
            sent: (upload.seen.take(), upload.is_done() && !upload.gave_up()),
            is_whole: download.is_done(),
            is_left: record.ended_by.is_some()
                || record.error.is_some_and(|error| error.side() == Side::Downstream),
            error: record.error.as_ref().map(Error::kind),
        };
        compare::end(*watched, end);
    }
}

/// Returns true if the proxy or an origin has failed, rather than the client.
fn has_failed(record: &LogRecord) -> bool {
    let by_error = record.error.is_some_and(|error| error.side() != Side::Downstream);
    by_error || record.status.is_some_and(|status| (500..600).contains(&status))
}

/// Writes the lines of an exchange that is over.
fn write_lines(exchange: &mut Exchange<'_>, duration: Duration) {
    let config = exchange.config;
    let site = exchange.routed.site.map(|site| &*config.settings.sites.site(site).name);
    for log in config.access_logs().of(site) {
        if log.settings().share.is_some_and(|share| random::number() >= share) {
            continue;
        }
        let added = if log.has_expressions() { evaluate(exchange, log) } else { Some(Vec::new()) };
        if let Some(added) = added {
            log.record(&entry(exchange, duration), &added);
        }
    }
}

/// The values of a log's own fields; `None` if its conditions do not hold.
fn evaluate(exchange: &mut Exchange<'_>, log: &AccessLog) -> Option<Vec<Option<Vec<u8>>>> {
    see_outcome(exchange);
    let pipeline = &exchange.config.settings.pipeline;
    let (view, state) = exchange.view()?;
    let view = module::View::new(&view, &state.slots, pipeline.values()).in_doubt(Doubt::Ignored);
    let settings = log.settings();
    if !settings.when.iter().all(|condition| condition.holds(&view)) {
        return None;
    }
    let values =
        settings.fields.iter().map(|(_, field)| field.evaluate(&view).map(|value| value.into_owned()));
    Some(values.collect())
}

/// Makes the outcome available to expressions. If an exchange has no steps, or ends while a step runs on another
/// thread, the state for expressions is created here.
pub(super) fn see_outcome(exchange: &mut Exchange<'_>) {
    let summary = exchange.summary();
    let client = exchange.client_address();
    let is_new = exchange.begin_run();
    let record = &exchange.record;
    let source = match (record.status, record.error, record.action) {
        (None, ..) => Source::Nobody,
        (_, Some(error), _) => Source::Error(error.kind()),
        (_, _, Some(LoggedAction::Proxy)) => Source::Upstream,
        _ => Source::Route,
    };
    if let Some(status) = record.status {
        exchange.response.status = status;
    }
    let Some(run) = &mut exchange.modules.run else { return };
    run.facts.summary = summary;
    if is_new {
        run.facts.client = client;
    }
    if run.facts.source == Source::Nobody {
        run.facts.source = source;
    }
}

fn entry<'e>(exchange: &'e Exchange<'_>, duration: Duration) -> LogEntry<'e> {
    let record = &exchange.record;
    let sites = &exchange.config.settings.sites;
    let asked = exchange.modules.run.as_ref().and_then(|run| run.asked.fields());
    let headers = asked.unwrap_or(&exchange.request.head.headers);
    let ask = exchange.ask.as_ref();
    // The task of a fetch for the cache makes the attempts, and hands their record over.
    let fetched = exchange.rare.cached.as_ref().and_then(|cached| cached.fetched.as_deref());
    let fetched = fetched.filter(|_| ask.is_none_or(|ask| ask.attempts() == 0));
    LogEntry {
        time: SystemTime::now() - duration,
        client: exchange.client_address(),
        method: exchange.request.method(),
        scheme: exchange.request.scheme(),
        host: exchange.request.authority.host().as_bytes(),
        path: exchange.request.head.target(),
        protocol: exchange.request.head.version.as_str(),
        status: record.status,
        bytes_in: exchange.down.upload.moved,
        bytes_out: exchange.down.download.sent,
        duration,
        site: exchange.routed.site.map(|site| &*sites.site(site).name),
        route: exchange.routed.route.map(|route| &*route.pattern),
        action: record.action.map(LoggedAction::name),
        upstream: match fetched {
            Some(fetched) => Some(&*fetched.upstream.settings.name),
            None => ask.map(|ask| &*ask.upstream.settings.name),
        },
        server: match fetched {
            Some(fetched) => fetched.server.as_deref(),
            None => ask.and_then(Ask::server).map(|server| &*server.label),
        },
        attempts: fetched.map_or_else(|| ask.map_or(0, Ask::attempts), |fetched| fetched.attempts),
        upstream_first_byte: match fetched {
            Some(fetched) => fetched.first_byte,
            None => ask.and_then(|ask| ask.first_byte),
        },
        upstream_reused: match fetched {
            Some(fetched) => fetched.reused,
            None => ask.and_then(|ask| ask.reused),
        },
        cache: exchange.rare.cached.as_ref().map(|cached| cached.outcome.as_str()),
        cache_reason: exchange.rare.cached.as_ref().and_then(|cached| cached.reason),
        fallback: record.fallback.map(FallbackReason::as_str),
        error: record.error.as_ref().map(Error::kind),
        error_side: record.error.as_ref().map(|error| error.side().as_str()),
        ended_by: record.ended_by.map(|side| match side {
            Side::Downstream => "client",
            Side::Upstream | Side::Internal => "origin",
        }),
        tls: exchange.down.peer.tls.as_ref().map(|info| match info.version {
            crate::settings::TlsVersion::Tls12 => "TLSv1.2",
            crate::settings::TlsVersion::Tls13 => "TLSv1.3",
        }),
        user_agent: headers.get(NameId::UserAgent),
        referer: headers.get(NameId::Referer),
        notes: exchange.modules.run.as_ref().map_or(&[], |run| &run.state.notes),
    }
}

/// Removes an error that only says that a peer has left legitimately. Either side may end a tunnel. A client may
/// leave once its response has begun, if it has sent its whole request or resets its stream.
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
