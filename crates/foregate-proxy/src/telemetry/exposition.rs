//! The metrics in the OpenMetrics text format.

mod certificates;
mod folders;
mod latencies;
mod routes;
mod traces;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_supervisor::exposition::without_exemplar;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::latencies::WrittenExemplars;
use super::disks;
use super::process::ProcessExposition;
use crate::counters::cache::CacheFigures;
use crate::counters::certificates::KeeperCounts;
use crate::counters::fallbacks::{FallbackCount, HERE};
use crate::counters::metrics::{
    BETWEEN, BLOCKED_BUCKETS, CertificateExpiry, Metrics, STATUS_CLASSES, ServerCounters, UpstreamCounters,
};
use crate::counters::steps::{StepCounter, StepCounters};
use crate::folders::Folder;
use crate::limits::budget::Budget;
use crate::limits::gates::GateLoad;
use crate::limits::pressure;
use crate::limits::spool::Spools;

/// The text formats in which metrics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, for tools such as `promtool check metrics`.
    Prometheus,
}

impl ExpositionFormat {
    /// The format that a scraper asks for by `Accept`: OpenMetrics if the field names it, else the
    /// text format of Prometheus.
    pub fn for_accept(accept: &str) -> Self {
        let openmetrics = |part: &str| {
            let mut parameters = part.split(';').map(str::trim);
            parameters.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"))
                && !parameters.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
        };
        if accept.split(',').any(openmetrics) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Converts an OpenMetrics text to this format.
    pub(crate) fn of(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Prometheus => prometheus_text(&openmetrics),
        }
    }

    /// The media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics as a scraper gets them.
#[derive(Debug)]
pub struct Exposition {
    metrics: Arc<Metrics>,
    certificates: Vec<CertificateExpiry>,
    obtained: KeeperCounts,
    filter_memory: Arc<Budget>,
    spools: Arc<Spools>,
    folders: Vec<Arc<Folder>>,
    cache: CacheFigures,
    request_gates: Vec<GateLoad>,
    exemplars: WrittenExemplars,
}

impl Exposition {
    /// Shows these counters alone; the `with_*` methods add the other metrics.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            certificates: Vec::new(),
            obtained: KeeperCounts::default(),
            filter_memory: Arc::default(),
            spools: Arc::default(),
            folders: Vec::new(),
            cache: CacheFigures::default(),
            request_gates: Vec::new(),
            exemplars: WrittenExemplars::default(),
        }
    }

    /// Shows the expiry of `certificates` as well.
    pub fn with_certificates(self, certificates: Vec<CertificateExpiry>) -> Self {
        Self { certificates, ..self }
    }

    /// Shows counts of the certificates that the proxy obtains itself.
    pub fn with_obtained(self, obtained: KeeperCounts) -> Self {
        Self { obtained, ..self }
    }

    /// Shows the memory that body filters use, and the bodies that are stored in temporary files.
    pub(crate) fn with_bodies(self, filter_memory: &Arc<Budget>, spools: &Arc<Spools>) -> Self {
        Self { filter_memory: Arc::clone(filter_memory), spools: Arc::clone(spools), ..self }
    }

    /// Shows the disks of served folders.
    pub(crate) fn with_folders(self, folders: &[Arc<Folder>]) -> Self {
        Self { folders: folders.to_vec(), ..self }
    }

    /// Shows the store of the cache.
    pub(crate) fn with_cache(self, cache: CacheFigures) -> Self {
        Self { cache, ..self }
    }

    /// Shows the limits on requests in flight.
    pub(crate) fn with_request_gates(self, request_gates: Vec<GateLoad>) -> Self {
        Self { request_gates, ..self }
    }

    /// Everything as text.
    pub fn render(self, format: ExpositionFormat) -> String {
        let mut registry = Registry::default();
        let exemplars = self.exemplars.clone();
        let process = ProcessExposition { started: self.metrics.started() };
        registry.sub_registry_with_prefix("foregate").register_collector(Box::new(self));
        registry.register_collector(Box::new(process));
        let mut text = String::new();
        if let Err(fmt::Error) = encode(&mut text, &registry) {
            tracing::error!("the metrics could not be written");
        }
        match format {
            ExpositionFormat::OpenMetrics => exemplars.write_into(text),
            ExpositionFormat::Prometheus => format.of(text),
        }
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        build(&mut encoder)?;
        requests(&mut encoder, metrics)?;
        latencies::encode(&mut encoder, metrics, &self.exemplars)?;
        fallbacks(&mut encoder, metrics)?;
        comparisons(&mut encoder, metrics)?;
        upstreams(&mut encoder, metrics)?;
        request_gates(&mut encoder, &self.request_gates)?;
        connections(&mut encoder, metrics)?;
        certificates::expiries(&mut encoder, &self.certificates)?;
        certificates::obtained(&mut encoder, &self.obtained)?;
        process(&mut encoder, metrics)?;
        traces::encode(&mut encoder, metrics)?;
        cache(&mut encoder, metrics, &self.cache)?;
        modules(&mut encoder, self)?;
        folders::encode(&mut encoder, &self.folders)?;
        let help = "Time for which one task blocked its worker";
        histogram(&mut encoder, "event_loop_blocked", help, metrics.blocked_counts())
    }
}

/// Converts an OpenMetrics text to the text format of Prometheus, version 0.0.4. In that format, a
/// counter's family has the name of its samples (`_total`), and there are no units, no exemplars and
/// no `# EOF`.
fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The HELP line of a family comes before its TYPE line.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(family) = line.strip_prefix("# HELP ") {
            help = family.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, total, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([without_exemplar(line), "\n"]);
        }
    }
    text
}

fn build(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    encoder
        .encode_descriptor("build_info", "The version that runs", None, MetricType::Gauge)?
        .encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?
        .encode_gauge(&1)
}

fn requests(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help = "Requests by site and class of the response's status";
    let sites = metrics.sites();
    let mut requests = counters(encoder, "requests", help)?;
    for (site, counters) in &sites {
        for (class, count) in STATUS_CLASSES.into_iter().zip(counters.requests()) {
            // A site without requests has one series nevertheless, so that the site is visible.
            if count > 0 || class == "2xx" {
                labelled(&mut requests, &[("site", site.as_ref()), ("status", class)], count)?;
            }
        }
    }
    routes::encode(encoder, metrics)?;
    let help = "Failed requests by kind, side at fault, site and upstream";
    let mut errors = counters(encoder, "request_errors", help)?;
    for (site, counters) in &sites {
        for error in counters.errors() {
            let labels = [
                ("kind", error.kind),
                ("side", error.side),
                ("site", &**site),
                ("upstream", &*error.upstream),
            ];
            labelled(&mut errors, &labels, error.count)?;
        }
    }
    encoder
        .encode_descriptor(
            "requests_active",
            "Requests in progress, including tunnels",
            None,
            MetricType::Gauge,
        )?
        .encode_gauge(&metrics.requests_active.get())?;
    encoder
        .encode_descriptor(
            "requests_waiting",
            "Requests in the queues of listeners, sites and upstreams",
            None,
            MetricType::Gauge,
        )?
        .encode_gauge(&metrics.requests_waiting.get())?;
    counter(
        encoder,
        "requests_queued",
        "Requests that have waited in the queues of listeners, sites and upstreams",
        metrics.requests_queued.get(),
    )?;
    counter(encoder, "mirrored", "Copies of requests that were answered", metrics.mirrored.get())?;
    counter(
        encoder,
        "mirrored_failed",
        "Copies of requests that were not answered",
        metrics.mirrored_failed.get(),
    )?;
    counter(
        encoder,
        "mirrored_skipped",
        "Copies of requests that were not made",
        metrics.mirrored_skipped.get(),
    )?;
    counter(
        encoder,
        "requests_buffered",
        "Requests whose bodies were received before an origin was asked",
        metrics.requests_buffered.get(),
    )?;
    counter(
        encoder,
        "requests_buffered_in_files",
        "Requests whose bodies went through a temporary file before an origin was asked",
        metrics.requests_buffered_in_files.get(),
    )?;
    counter(
        encoder,
        "responses_buffered",
        "Responses whose origin was free before their clients had them",
        metrics.responses_buffered.get(),
    )?;
    counter(
        encoder,
        "responses_buffered_in_files",
        "Responses that went through a temporary file on their way to the client",
        metrics.responses_buffered_in_files.get(),
    )?;
    counter(encoder, "retries", "Further attempts of requests", metrics.retries.get())?;
    counter(
        encoder,
        "hedges",
        "Second attempts beside a first one that had brought no response yet",
        metrics.hedges.get(),
    )?;
    counter(
        encoder,
        "hedges_won",
        "Second attempts beside a first one whose response came first",
        metrics.hedges_won.get(),
    )?;
    counter(
        encoder,
        "retries_elsewhere",
        "Further attempts of requests at another upstream",
        metrics.retries_elsewhere.get(),
    )?;
    counter(
        encoder,
        "retries_denied",
        "Further attempts that the budget did not allow",
        metrics.retries_denied.get(),
    )
}

fn comparisons(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help = "Requests of routes with `compare`, by the class of the outcome";
    let mut classes = counters(encoder, "comparisons", help)?;
    for (class, count) in metrics.comparisons.all() {
        labelled(&mut classes, &[("class", class)], count)?;
    }
    let dropped = metrics.comparisons.dropped.get();
    counter(encoder, "comparisons_dropped", "Comparisons that were dropped since too many waited", dropped)?;
    let failed = metrics.comparisons.samples_failed.get();
    let refused = metrics.comparisons.ids_refused.get();
    let help = "Requests at a tap whose id belongs to no comparison under way";
    counter(encoder, "comparison_ids_refused", help, refused)?;
    counter(encoder, "comparison_samples_failed", "Samples of comparisons that could not be written", failed)
}

fn fallbacks(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help =
        "Requests of a configuration with a fallback, by site, route, where they are served and why there";
    let mut requests = counters(encoder, "fallback_requests", help)?;
    for FallbackCount { site, route, reason, count } in metrics.fallbacks.all() {
        let served = if reason == HERE { "here" } else { "there" };
        let labels = [("site", &*site), ("route", &*route), ("served", served), ("reason", reason)];
        labelled(&mut requests, &labels, count)?;
    }
    Ok(())
}

fn upstreams(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    type Read = fn(&UpstreamCounters) -> u64;
    let all = metrics.upstreams();
    let families: [(&str, &str, Read); 5] = [
        ("upstream_connections_opened", "Connections to origins that were opened", |upstream| {
            upstream.opened.get()
        }),
        ("upstream_connections_reused", "Requests sent on a kept connection", |upstream| {
            upstream.reused.get()
        }),
        ("upstream_connections_failed", "Connections to origins that could not be opened", |upstream| {
            upstream.failed.get()
        }),
        (
            "upstream_connections_distrusted",
            "Connections closed after a response without a body, because their server had sent excess bytes",
            |upstream| upstream.distrusted.get(),
        ),
        (
            "upstream_all_down",
            "Requests for which all servers were down, so that one was tried anyway",
            |upstream| upstream.all_down.get(),
        ),
    ];
    for (name, help, read) in families {
        let mut family = counters(encoder, name, help)?;
        for (upstream, counters) in &all {
            labelled(&mut family, &[("upstream", upstream.as_ref())], read(counters))?;
        }
    }
    let mut family = counters(encoder, "upstream_server_failures", "Failed attempts at a server")?;
    for (name, counters) in metrics.servers() {
        let (upstream, server) = name.split_once(BETWEEN).unwrap_or((&name, &name));
        labelled(&mut family, &[("upstream", upstream), ("server", server)], counters.failures.get())?;
    }
    servers(encoder, metrics)?;
    let help = "1 while a server gets requests, 0 while it is skipped after failures";
    let mut family = encoder.encode_descriptor("upstream_server_up", help, None, MetricType::Gauge)?;
    for (name, counters) in metrics.servers() {
        let (upstream, server) = name.split_once(BETWEEN).unwrap_or((&name, &name));
        let up = i64::from(!counters.is_down.load(Ordering::Relaxed));
        family.encode_family(&[("upstream", upstream), ("server", server)])?.encode_gauge(&up)?;
    }
    names(encoder, metrics)
}

fn request_gates(encoder: &mut DescriptorEncoder<'_>, gates: &[GateLoad]) -> fmt::Result {
    type Read = fn(&GateLoad) -> i64;
    let families: [(&str, &str, Read); 3] = [
        ("requests_limit", "The limit on requests in flight at present", |gate| as_gauge(gate.limit)),
        ("requests_limited", "Requests in flight that count towards a limit", |gate| {
            as_gauge(gate.in_flight)
        }),
        ("requests_limit_waiting", "Requests in the queue of a limit", |gate| as_gauge(gate.waiting)),
    ];
    for (name, help, read) in families {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for gate in gates {
            let labels = [("scope", gate.scope), ("name", gate.name.as_str())];
            family.encode_family(&labels)?.encode_gauge(&read(gate))?;
        }
    }
    Ok(())
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn servers(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    type Read<T> = fn(&ServerCounters) -> T;
    let servers = metrics.servers();
    let split = |name: &str| {
        let (upstream, server) = name.split_once(BETWEEN).unwrap_or((name, name));
        (upstream.to_owned(), server.to_owned())
    };
    let help = "Times that requests began to pass over a server: for failures in a row, its share of failures or its latency, or because it hung";
    let mut family = counters(encoder, "upstream_server_ejections", help)?;
    for (name, counters) in &servers {
        let (upstream, server) = split(name);
        labelled(&mut family, &[("upstream", &upstream), ("server", &server)], counters.ejections.get())?;
    }
    let mut family =
        counters(encoder, "upstream_server_health_checks", "Health checks of a server, by result")?;
    for (name, counters) in &servers {
        let (upstream, server) = split(name);
        for (result, count) in [("passed", &counters.probes_passed), ("failed", &counters.probes_failed)] {
            let labels = [("upstream", &*upstream), ("server", &*server), ("result", result)];
            labelled(&mut family, &labels, count.get())?;
        }
    }
    let gauges: [(&str, &str, Read<i64>); 3] = [
        ("upstream_server_requests_active", "Requests in flight at a server", |counters| {
            counters.in_flight.get()
        }),
        ("upstream_server_connections", "Open connections to a server", |counters| {
            counters.connections.get()
        }),
        ("upstream_server_weight", "The present weight of a server", |counters| counters.weight.get()),
    ];
    for (name, help, read) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (name, counters) in &servers {
            let (upstream, server) = split(name);
            family
                .encode_family(&[("upstream", &*upstream), ("server", &*server)])?
                .encode_gauge(&read(counters))?;
        }
    }
    Ok(())
}

fn names(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help = "Known addresses of a server's name; 0 if it does not resolve";
    let mut family = encoder.encode_descriptor("upstream_server_addresses", help, None, MetricType::Gauge)?;
    for (name, counters) in metrics.servers() {
        if let Some(addresses) = counters.name.load().as_ref().map(|name| name.addresses.get()) {
            let (upstream, server) = name.split_once(BETWEEN).unwrap_or((&name, &name));
            family.encode_family(&[("upstream", upstream), ("server", server)])?.encode_gauge(&addresses)?;
        }
    }
    let mut lookups = counters(encoder, "name_lookups", "Lookups of servers' names, by outcome")?;
    let counts = &metrics.name_lookups;
    for (result, count) in [("found", &counts.found), ("absent", &counts.absent), ("failed", &counts.failed)]
    {
        labelled(&mut lookups, &[("result", result)], count.get())?;
    }
    Ok(())
}

fn connections(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    counter(
        encoder,
        "connections_accepted",
        "Client connections accepted",
        metrics.connections_accepted.get(),
    )?;
    counter(
        encoder,
        "connections_refused",
        "Client connections closed at once, because of `connections-per-client` or exhausted memory",
        metrics.connections_refused.get(),
    )?;
    counter(
        encoder,
        "requests_reset",
        "HTTP/2 requests that were reset or abandoned by their clients before processing began",
        metrics.requests_reset.get(),
    )?;
    encoder
        .encode_descriptor("connections_active", "Client connections open now", None, MetricType::Gauge)?
        .encode_gauge(&metrics.connections_active.get())?;
    let help = "Connections closed because of their PROXY protocol header, by fault";
    let mut headers = counters(encoder, "proxy_header_errors", help)?;
    for (kind, count) in metrics.proxy_headers_refused() {
        labelled(&mut headers, &[("kind", kind)], count)?;
    }
    let mut handshakes = counters(encoder, "tls_handshakes", "TLS handshakes with clients")?;
    labelled(&mut handshakes, &[("result", "ok")], metrics.handshakes_ok.get())?;
    let failures = metrics.handshake_failures();
    let failed = failures.iter().map(|(_, count)| count).sum();
    labelled(&mut handshakes, &[("result", "failed")], failed)?;
    let help = "Failed TLS handshakes with clients, by kind of failure";
    let mut errors = counters(encoder, "tls_handshake_errors", help)?;
    for (kind, count) in failures {
        labelled(&mut errors, &[("kind", kind)], count)?;
    }
    counter(
        encoder,
        "tls_handshakes_resumed",
        "TLS handshakes with clients that resumed a session",
        metrics.handshakes_resumed.get(),
    )
}

fn process(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    counter(encoder, "access_log_dropped", "Access-log lines dropped", metrics.access_log_dropped.get())?;
    let help = "Lines dropped from log files of modules";
    counter(encoder, "module_log_dropped", help, metrics.module_log_dropped.get())?;
    let help = "Responses that began before their lines in log files of modules were written";
    counter(encoder, "module_log_late", help, metrics.module_log_late.get())?;
    let mut reloads = counters(encoder, "reloads", "Reloads of the configuration")?;
    labelled(&mut reloads, &[("result", "ok")], metrics.reloads_ok.get())?;
    labelled(&mut reloads, &[("result", "refused")], metrics.reloads_refused.get())?;
    counter(encoder, "panics", "Panics that were caught", metrics.panics.get())?;
    memory(encoder)
}

fn cache(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics, figures: &CacheFigures) -> fmt::Result {
    let cache = &metrics.cache;
    let mut family = counters(encoder, "cache_requests", "Requests on routes that cache, by outcome")?;
    for (outcome, count) in cache.requests() {
        labelled(&mut family, &[("outcome", outcome)], count)?;
    }
    let mut family = counters(encoder, "cache_not_stored", "Responses that were not stored, by reason")?;
    for (reason, count) in cache.reasons() {
        labelled(&mut family, &[("reason", reason)], count)?;
    }
    labelled(&mut family, &[("reason", "too_large")], cache.too_large.get())?;
    let help = "Requests that waited for the fetch of another one";
    counter(encoder, "cache_collapsed", help, cache.collapsed.get())?;
    counter(encoder, "cache_fetches", "Requests to origins for the cache", cache.fetches.get())?;
    counter(encoder, "cache_validated", "Stored responses found to be current", cache.validated.get())?;
    counter(encoder, "cache_stored", "Responses that were stored", cache.stored.get())?;
    counter(encoder, "cache_received_bytes", "Bytes of bodies received for the store", cache.bytes_in.get())?;
    counter(encoder, "cache_purges", "Purges", cache.purges.get())?;
    counter(encoder, "cache_invalidated", "Addresses that requests made invalid", cache.invalidated.get())?;
    let help = "Stored responses that went to make room";
    counter(encoder, "cache_evictions", help, figures.evicted)?;
    let gauges = [
        ("cache_memory", "Bytes of memory of stored responses", figures.bytes),
        ("cache_memory_limit", "Limit of the memory of stored responses, in bytes", figures.limit),
        ("cache_fetching", "Bytes of responses that are being fetched", figures.fetching),
        ("cache_held", "Bytes of responses that left the store and that clients still read", figures.held),
    ];
    for (name, help, bytes) in gauges {
        encoder
            .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?
            .encode_gauge(&i64::try_from(bytes).unwrap_or(i64::MAX))?;
    }
    encoder
        .encode_descriptor("cache_entries", "Stored responses", None, MetricType::Gauge)?
        .encode_gauge(&i64::try_from(figures.entries).unwrap_or(i64::MAX))?;
    disks::disks(encoder, &figures.disks)?;
    figures.reserve.as_ref().map_or(Ok(()), |reserve| disks::reserve(encoder, reserve))?;
    figures.shield.as_ref().map_or(Ok(()), |shield| disks::shield(encoder, shield))
}

fn memory(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (held, limit) = pressure::held();
    let gauges = [
        ("memory_held", "Bytes of memory held for peers", held),
        ("memory_limit", "Limit of the memory held for peers, in bytes", limit),
    ];
    for (name, help, bytes) in gauges {
        encoder
            .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?
            .encode_gauge(&i64::try_from(bytes).unwrap_or(i64::MAX))?;
    }
    let help = "Times that memory pressure reached a stage, by the measure that was taken";
    let mut family = counters(encoder, "memory_short", help)?;
    for (stage, reached) in pressure::STAGES.into_iter().zip(pressure::reached()) {
        labelled(&mut family, &[("without", stage)], reached)?;
    }
    let help = "Connections ended early by memory pressure";
    counter(encoder, "memory_drained", help, pressure::DRAINED.get())?;
    let refused = [
        ("head", &pressure::REFUSED_HEADS),
        ("request", &pressure::REFUSED_REQUESTS),
        ("body", &pressure::REFUSED_BODIES),
        ("connection", &pressure::REFUSED_CONNECTIONS),
    ];
    let mut family = counters(encoder, "memory_refused", "Refusals by memory pressure, by kind")?;
    for (what, count) in refused {
        labelled(&mut family, &[("what", what)], count.get())?;
    }
    Ok(())
}

fn modules(encoder: &mut DescriptorEncoder<'_>, shown: &Exposition) -> fmt::Result {
    let metrics = &shown.metrics;
    if let Some(counters) = metrics.known_steps() {
        steps(encoder, counters)?;
    }
    encoder
        .encode_descriptor("offload_queue", "Heavy steps that wait for a thread", None, MetricType::Gauge)?
        .encode_gauge(&metrics.offload_queue.get())?;
    let help = "Bytes held by body filters";
    let held = i64::try_from(shown.filter_memory.held()).unwrap_or(i64::MAX);
    encoder
        .encode_descriptor("filter_memory", help, Some(&Unit::Bytes), MetricType::Gauge)?
        .encode_gauge(&held)?;
    let refused = shown.filter_memory.refused.get();
    counter(encoder, "filter_memory_refused", "Bodies that exceeded the free filter memory", refused)?;
    files(encoder, &shown.spools)?;
    let help = "Time that heavy steps waited for a thread";
    histogram(encoder, "offload_wait", help, metrics.offload_wait.counts())
}

fn files(encoder: &mut DescriptorEncoder<'_>, spools: &Spools) -> fmt::Result {
    let help = "Bytes of bodies in temporary files";
    let held = i64::try_from(spools.budget.held()).unwrap_or(i64::MAX);
    encoder
        .encode_descriptor("filter_files", help, Some(&Unit::Bytes), MetricType::Gauge)?
        .encode_gauge(&held)?;
    let help = "Bodies that exceeded the free space for temporary files";
    counter(encoder, "filter_files_refused", help, spools.budget.refused.get())?;
    let help = "Failures to create, write or read a temporary file";
    counter(encoder, "filter_files_failed", help, spools.failed.get())
}

fn steps(encoder: &mut DescriptorEncoder<'_>, counters: &StepCounters) -> fmt::Result {
    type Read = fn(&StepCounter) -> u64;
    let families: [(&str, &str, Read); 12] = [
        ("step_stops", "Requests that a step ended", |step| step.stops.get()),
        ("step_dry_run_stops", "Requests that a step in a dry run would have ended", |step| {
            step.dry_stops.get()
        }),
        ("step_panics", "Panics of a step", |step| step.panics.get()),
        ("step_broken", "Requests without a run of a step because it had panicked often", |step| {
            step.broken.get()
        }),
        ("step_shed", "Requests without a run of a step because the queue was full", |step| step.shed.get()),
        ("step_bails", "Bodies that the filter of a step passed unchanged", |step| step.bails.get()),
        ("step_breaks", "Bodies that the filter of a step cut off", |step| step.breaks.get()),
        ("step_fetches", "Fetches by a step and its filters", |step| step.fetches.get()),
        ("step_fetches_failed", "Fetches by a step and its filters that failed", |step| {
            step.fetches_failed.get()
        }),
        ("step_timed", "Timed runs of a step", |step| step.timed.get()),
        (
            "step_blocked",
            "Timed runs of a step, and bodies at its filter, that blocked their worker for more than 10 ms",
            |step| step.blocked.get(),
        ),
        ("step_moved", "Requests for which a slow light step ran on the threads for heavy work", |step| {
            step.moved.get()
        }),
    ];
    // A step that was never used is left out.
    let used: Vec<_> = counters.all().filter(|(step, runs)| *runs > 0 || step.has_news()).collect();
    let mut family = self::counters(encoder, "step_runs", "Requests on which a step ran")?;
    for (step, runs) in &used {
        labelled(&mut family, &[("step", step.name)], *runs)?;
    }
    for (name, help, read) in families {
        let mut family = self::counters(encoder, name, help)?;
        for (step, _) in &used {
            labelled(&mut family, &[("step", step.name)], read(step))?;
        }
    }
    let mut family = self::counters(encoder, "step_events", "Events counted by a step, by its own names")?;
    for (step, _) in &used {
        for (event, count) in step.events() {
            labelled(&mut family, &[("step", step.name), ("event", event)], count)?;
        }
    }
    let help = "Events counted by a step for a part of the configuration, such as a rule";
    let mut family = self::counters(encoder, "step_tally", help)?;
    for (step, _) in &used {
        for (event, part, count) in step.tallies() {
            labelled(&mut family, &[("step", step.name), ("event", event), ("part", &part)], count)?;
        }
    }
    let help = "Total time of the timed runs of a step";
    let mut family =
        encoder.encode_descriptor("step_timed", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for (step, _) in &used {
        let seconds = step.nanos.get() as f64 / 1e9;
        family.encode_family(&[("step", step.name)])?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
    }
    filters(encoder, counters)
}

fn filters(encoder: &mut DescriptorEncoder<'_>, counters: &StepCounters) -> fmt::Result {
    let used: Vec<_> = counters.all().map(|(step, _)| step).filter(|step| step.filter_in.get() > 0).collect();
    let mut family =
        self::counters(encoder, "filter_bytes", "Bytes that went into and out of the filters of a step")?;
    for step in &used {
        labelled(&mut family, &[("step", step.name), ("direction", "in")], step.filter_in.get())?;
        labelled(&mut family, &[("step", step.name), ("direction", "out")], step.filter_out.get())?;
    }
    let help = "Total time of the filters of a step";
    let mut family = encoder.encode_descriptor("filter", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for step in &used {
        let seconds = step.filter_nanos.get() as f64 / 1e9;
        family.encode_family(&[("step", step.name)])?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
    }
    Ok(())
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    (counts, nanos): ([u64; BLOCKED_BUCKETS.len() + 1], u64),
) -> fmt::Result {
    let ends = BLOCKED_BUCKETS.iter().map(|end| *end as f64 / 1e9).chain([f64::INFINITY]);
    let buckets: Vec<_> = ends.zip(counts).collect();
    encoder
        .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(nanos as f64 / 1e9, counts.iter().sum(), &buckets, None)
}

/// A family of counters with labels.
fn counters<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn labelled<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    count: u64,
) -> fmt::Result {
    family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    counters(encoder, name, help)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

#[cfg(test)]
mod tests;
