//! Requests by site, route and place, and the limits on requests in flight.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::families::{counter, counters, labelled};
use super::routes;
use crate::counters::fallbacks::{FallbackCount, HERE};
use crate::counters::metrics::{Metrics, STATUS_CLASSES};
use crate::limits::gates::GateLoad;

pub(super) fn requests(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
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

pub(super) fn comparisons(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
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

pub(super) fn fallbacks(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
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

pub(super) fn gates(encoder: &mut DescriptorEncoder<'_>, gates: &[GateLoad]) -> fmt::Result {
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
