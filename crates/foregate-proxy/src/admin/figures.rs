//! The figures of the process at one moment, for the dashboard and `foregate top`. They are the same numbers as in the
//! metrics. The viewer computes rates from the figures of two moments.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{cache, servers};
use crate::counters::metrics::{
    BETWEEN, BLOCKED_BUCKETS, DURATION_BUCKETS, Metrics, STATUS_CLASSES, SiteCounters,
};
use crate::limits::pressure;
use crate::proxy::Proxy;
use crate::telemetry::live::{LiveRequests, LiveRouteCounts};
use crate::telemetry::process;

/// The most sites that are shown: those with the most requests. The totals count all sites.
const SITES: usize = 50;
/// The most routes that are shown.
const ROUTES: usize = 50;
/// The most steps that are shown: those that took the most time.
const STEPS: usize = 30;
/// The most rules of the firewall that are shown: those that matched most often.
const RULES: usize = 10;
/// The most active requests that are shown: those that began first.
const UNDER_WAY: usize = 10;

/// The figures now.
pub(super) fn figures(proxy: &Proxy) -> Value {
    let metrics = &proxy.metrics;
    let config = proxy.config();
    let now = SystemTime::now();
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (held, limit) = pressure::held();
    json!({
        "time": seconds(now),
        "started": seconds(metrics.started()),
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "draining": proxy.is_draining(),
        "status_classes": STATUS_CLASSES,
        "duration_bounds_ms": DURATION_BUCKETS.iter().map(|end| *end as f64 / 1e3).collect::<Vec<_>>(),
        "wait_bounds_ms": BLOCKED_BUCKETS.iter().map(|end| *end as f64 / 1e6).collect::<Vec<_>>(),
        "connections": {
            "accepted": metrics.connections_accepted.get(),
            "active": metrics.connections_active.get(),
            "refused": metrics.connections_refused.get(),
        },
        "requests_active": metrics.requests_active.get(),
        "memory": { "held": held, "limit": limit, "resident": process::resident() },
        "sites": sites(metrics),
        "routes": routes(&proxy.live),
        "upstreams": upstreams(proxy, &config.upstreams),
        "cache": cache::stat(proxy),
        "event_loop_blocked": histogram(metrics.blocked_counts()),
        "offload": { "queue": metrics.offload_queue.get(), "wait": histogram(metrics.offload_wait.counts()) },
        "steps": steps(metrics),
        "firewall": firewall(metrics),
        "under_way": under_way(&proxy.live),
        "slowest": lines(&proxy.live.slowest()),
        "failures": proxy.live.failed(),
    })
}

/// The latest requests that failed in the proxy or at an origin, the latest first, as lines of an access log.
pub(super) fn failures(proxy: &Proxy) -> Value {
    let (last, count) = proxy.live.failures();
    let requests = last.iter().map(|(number, line)| {
        let request = serde_json::from_str::<Value>(line).unwrap_or_default();
        json!({ "number": number, "request": request })
    });
    json!({ "count": count, "last": requests.collect::<Vec<_>>() })
}

/// Totals of all sites, and those with the most requests.
fn sites(metrics: &Metrics) -> Value {
    let sites = metrics.sites();
    let (mut classes, mut durations, mut micros) =
        ([0; STATUS_CLASSES.len()], [0; DURATION_BUCKETS.len() + 1], 0_u64);
    let mut all: Vec<(&str, [u64; STATUS_CLASSES.len()], &SiteCounters)> = Vec::with_capacity(sites.len());
    for (name, site) in &sites {
        let requests = site.requests();
        let (of_site, time) = site.durations();
        classes.iter_mut().zip(requests).for_each(|(sum, count)| *sum += count);
        durations.iter_mut().zip(of_site).for_each(|(sum, count)| *sum += count);
        micros = micros.wrapping_add(time);
        all.push((name, requests, site));
    }
    all.sort_by(|(a, of_a, _), (b, of_b, _)| {
        of_b.iter().sum::<u64>().cmp(&of_a.iter().sum()).then_with(|| a.cmp(b))
    });
    let shown = all.iter().take(SITES).map(|(name, classes, site)| {
        let (durations, micros) = site.durations();
        json!({ "site": name, "classes": classes, "durations": durations, "seconds": micros as f64 / 1e6 })
    });
    json!({
        "classes": classes,
        "durations": durations,
        "seconds": micros as f64 / 1e6,
        "count": all.len(),
        "shown": shown.collect::<Vec<_>>(),
    })
}

fn routes(live: &LiveRequests) -> Vec<Value> {
    let routes = live.routes().into_iter().take(ROUTES);
    let shown = routes.map(|((site, route), LiveRouteCounts { classes, durations })| {
        json!({ "site": &*site, "route": &*route, "classes": classes, "durations": durations })
    });
    shown.collect()
}

/// The upstreams with their servers, and the counters of each.
fn upstreams(proxy: &Proxy, upstreams: &[Arc<crate::upstream::Upstream>]) -> Vec<Value> {
    let mut list = servers::list(upstreams);
    let counters = proxy.metrics.upstreams();
    let down: Vec<_> = proxy.metrics.servers();
    for shown in &mut list {
        let name = shown["upstream"].as_str().unwrap_or_default().to_owned();
        if let Some((_, counters)) = counters.iter().find(|(known, _)| **known == *name) {
            shown["connections_opened"] = counters.opened.get().into();
            shown["connections_reused"] = counters.reused.get().into();
            shown["connections_failed"] = counters.failed.get().into();
        }
        let of_upstream = down.iter().filter(|(label, _)| label.split(BETWEEN).next() == Some(&name));
        let skipped = of_upstream.filter(|(_, server)| server.is_down.load(Ordering::Relaxed)).count();
        shown["skipped"] = skipped.into();
    }
    list
}

fn histogram<const N: usize>((buckets, nanos): ([u64; N], u64)) -> Value {
    json!({ "buckets": buckets.as_slice(), "seconds": nanos as f64 / 1e9 })
}

/// The steps that took most time in the runs that were timed.
fn steps(metrics: &Metrics) -> Vec<Value> {
    let Some(counters) = metrics.known_steps() else { return Vec::new() };
    let mut used: Vec<_> = counters.all().filter(|(_, runs)| *runs > 0).collect();
    let cost = |step: &crate::counters::steps::StepCounter, runs: u64| {
        let timed = step.timed.get();
        if timed == 0 { 0.0 } else { step.nanos.get() as f64 / timed as f64 * runs as f64 }
    };
    used.sort_by(|(a, runs_a), (b, runs_b)| cost(b, *runs_b).total_cmp(&cost(a, *runs_a)));
    let shown = used.into_iter().take(STEPS).map(|(step, runs)| {
        let timed = step.timed.get();
        let micros = if timed == 0 { 0.0 } else { step.nanos.get() as f64 / timed as f64 / 1e3 };
        json!({
            "step": step.name, "runs": runs, "stops": step.stops.get(), "dry_run_stops": step.dry_stops.get(),
            "blocked": step.blocked.get(), "panics": step.panics.get(), "mean_us": micros, "timed": timed,
        })
    });
    shown.collect()
}

/// Scores and rules of the firewall, and the requests that it stopped.
fn firewall(metrics: &Metrics) -> Value {
    let (mut scores, mut rules) = (Vec::new(), Vec::new());
    let (mut stops, mut dry_stops, mut runs) = (0, 0, 0);
    for (step, count) in metrics.known_steps().iter().flat_map(|counters| counters.all()) {
        if !step.name.starts_with("waf") {
            continue;
        }
        stops += step.stops.get();
        dry_stops += step.dry_stops.get();
        runs = runs.max(count);
        for (event, part, count) in step.tallies() {
            match event {
                "score" => scores.push((part.parse::<u64>().unwrap_or_default(), count)),
                "rule" => rules.push((part, count)),
                _ => {}
            }
        }
    }
    scores.sort_unstable();
    rules.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
    rules.truncate(RULES);
    let scores: Vec<_> =
        scores.iter().map(|(from, count)| json!({ "from": from, "requests": count })).collect();
    let rules: Vec<_> = rules.iter().map(|(rule, count)| json!({ "rule": rule, "matches": count })).collect();
    json!({ "requests": runs, "stops": stops, "dry_run_stops": dry_stops, "scores": scores, "rules": rules })
}

fn under_way(live: &LiveRequests) -> Vec<Value> {
    let now = Instant::now();
    let shown = live.under_way(UNDER_WAY).into_iter().map(|request| {
        let millis = now.saturating_duration_since(request.began).as_secs_f64() * 1e3;
        json!({ "method": request.method, "host": request.host, "target": request.target, "ms": millis })
    });
    shown.collect()
}

fn lines(lines: &[Arc<str>]) -> Vec<Map<String, Value>> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
