//! The metrics in the OpenMetrics text format.

mod cache;
mod certificates;
mod families;
mod folders;
mod format;
mod latencies;
mod modules;
mod requests;
mod routes;
mod traces;
mod upstreams;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::families::{counter, counters, histogram, labelled};
pub use self::format::ExpositionFormat;
use self::latencies::WrittenExemplars;
use super::process::ProcessExposition;
use crate::counters::cache::CacheFigures;
use crate::counters::certificates::KeeperCounts;
use crate::counters::metrics::{CertificateExpiry, Metrics};
use crate::folders::Folder;
use crate::limits::budget::Budget;
use crate::limits::gates::GateLoad;
use crate::limits::pressure;
use crate::limits::spool::Spools;

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
        requests::requests(&mut encoder, metrics)?;
        latencies::encode(&mut encoder, metrics, &self.exemplars)?;
        requests::fallbacks(&mut encoder, metrics)?;
        requests::comparisons(&mut encoder, metrics)?;
        upstreams::encode(&mut encoder, metrics)?;
        requests::gates(&mut encoder, &self.request_gates)?;
        connections(&mut encoder, metrics)?;
        certificates::expiries(&mut encoder, &self.certificates)?;
        let revoked = self.certificates.iter().filter(|certificate| certificate.is_revoked).count();
        certificates::obtained(&mut encoder, &self.obtained, revoked as u64)?;
        process(&mut encoder, metrics)?;
        traces::encode(&mut encoder, metrics)?;
        cache::encode(&mut encoder, metrics, &self.cache)?;
        modules::encode(&mut encoder, metrics, &self.filter_memory, &self.spools)?;
        folders::encode(&mut encoder, &self.folders)?;
        let help = "Time for which one task blocked its worker";
        histogram(&mut encoder, "event_loop_blocked", help, metrics.blocked_counts())
    }
}

fn build(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    encoder
        .encode_descriptor("build_info", "The version that runs", None, MetricType::Gauge)?
        .encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?
        .encode_gauge(&1)
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

#[cfg(test)]
mod tests;
