//! Upstreams and their servers, with the addresses of names.

use std::fmt;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::families::{counters, labelled};
use crate::counters::metrics::{BETWEEN, Metrics, ServerCounters, UpstreamCounters};

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
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
        let (upstream, server) = split(&name);
        labelled(&mut family, &[("upstream", upstream), ("server", server)], counters.failures.get())?;
    }
    servers(encoder, metrics)?;
    let help = "1 while a server gets requests, 0 while it is skipped after failures";
    let mut family = encoder.encode_descriptor("upstream_server_up", help, None, MetricType::Gauge)?;
    for (name, counters) in metrics.servers() {
        let (upstream, server) = split(&name);
        let up = i64::from(!counters.is_down.load(Ordering::Relaxed));
        family.encode_family(&[("upstream", upstream), ("server", server)])?.encode_gauge(&up)?;
    }
    names(encoder, metrics)
}

fn servers(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    type Read<T> = fn(&ServerCounters) -> T;
    let servers = metrics.servers();
    let help = "Times that requests began to pass over a server: for failures in a row, its share of failures or its latency, or because it hung";
    let mut family = counters(encoder, "upstream_server_ejections", help)?;
    for (name, counters) in &servers {
        let (upstream, server) = split(name);
        labelled(&mut family, &[("upstream", upstream), ("server", server)], counters.ejections.get())?;
    }
    let mut family =
        counters(encoder, "upstream_server_health_checks", "Health checks of a server, by result")?;
    for (name, counters) in &servers {
        let (upstream, server) = split(name);
        for (result, count) in [("passed", &counters.probes_passed), ("failed", &counters.probes_failed)] {
            let labels = [("upstream", upstream), ("server", server), ("result", result)];
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
                .encode_family(&[("upstream", upstream), ("server", server)])?
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
            let (upstream, server) = split(&name);
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

/// The upstream and the server in a key of [`Metrics::servers`].
fn split(key: &str) -> (&str, &str) {
    key.split_once(BETWEEN).unwrap_or((key, key))
}
