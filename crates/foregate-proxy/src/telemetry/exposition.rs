//! The metrics in the OpenMetrics text format.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::metrics::{BLOCKED_BUCKETS, Metrics, STATUS_CLASSES, UpstreamCounters};

#[derive(Debug)]
pub(super) struct Exposition(pub(super) Arc<Metrics>);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        requests(&mut encoder, metrics)?;
        upstreams(&mut encoder, metrics)?;
        connections(&mut encoder, metrics)?;
        process(&mut encoder, metrics)?;
        blocked(&mut encoder, metrics)
    }
}

fn requests(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help = "Requests by site and class of the response's status";
    let mut requests = counters(encoder, "requests", help)?;
    for (site, counters) in metrics.sites() {
        for (class, count) in STATUS_CLASSES.into_iter().zip(counters.requests()) {
            // A site that has had no request yet still shows that it is there.
            if count > 0 || class == "2xx" {
                labelled(&mut requests, &[("site", site.as_ref()), ("status", class)], count)?;
            }
        }
    }
    let mut errors = counters(encoder, "request_errors", "Failed requests by kind and side at fault")?;
    for error in metrics.errors() {
        labelled(&mut errors, &[("kind", error.kind), ("side", error.side)], error.count)?;
    }
    counter(encoder, "retries", "Further attempts of requests", metrics.retries.get())?;
    counter(
        encoder,
        "retries_denied",
        "Further attempts that the budget did not allow",
        metrics.retries_denied.get(),
    )
}

fn upstreams(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    type Read = fn(&UpstreamCounters) -> u64;
    let all = metrics.upstreams();
    let families: [(&str, &str, Read); 3] = [
        ("upstream_connections_opened", "Connections to origins that were opened", |upstream| {
            upstream.opened.get()
        }),
        ("upstream_connections_reused", "Requests sent on a connection that was there already", |upstream| {
            upstream.reused.get()
        }),
        ("upstream_connections_failed", "Connections to origins that could not be opened", |upstream| {
            upstream.failed.get()
        }),
    ];
    for (name, help, read) in families {
        let mut family = counters(encoder, name, help)?;
        for (upstream, counters) in &all {
            labelled(&mut family, &[("upstream", upstream.as_ref())], read(counters))?;
        }
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
        "Client connections closed at once, over a limit",
        metrics.connections_refused.get(),
    )?;
    encoder
        .encode_descriptor("connections_active", "Client connections open now", None, MetricType::Gauge)?
        .encode_gauge(&metrics.connections_active.get())?;
    let mut handshakes = counters(encoder, "tls_handshakes", "TLS handshakes with clients")?;
    labelled(&mut handshakes, &[("result", "ok")], metrics.handshakes_ok.get())?;
    labelled(&mut handshakes, &[("result", "failed")], metrics.handshakes_failed.get())?;
    counter(
        encoder,
        "tls_handshakes_resumed",
        "TLS handshakes with clients that resumed a session",
        metrics.handshakes_resumed.get(),
    )
}

fn process(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    counter(encoder, "access_log_dropped", "Access-log lines dropped", metrics.access_log_dropped.get())?;
    let mut reloads = counters(encoder, "reloads", "Reloads of the configuration")?;
    labelled(&mut reloads, &[("result", "ok")], metrics.reloads_ok.get())?;
    labelled(&mut reloads, &[("result", "refused")], metrics.reloads_refused.get())?;
    counter(encoder, "panics", "Panics that were caught", metrics.panics.get())
}

fn blocked(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let (counts, nanos) = metrics.blocked_counts();
    let ends = BLOCKED_BUCKETS.iter().map(|end| *end as f64 / 1e9).chain([f64::INFINITY]);
    let buckets: Vec<_> = ends.zip(counts).collect();
    let help = "How long a poll kept its worker from other tasks";
    encoder
        .encode_descriptor("event_loop_blocked", help, Some(&Unit::Seconds), MetricType::Histogram)?
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
