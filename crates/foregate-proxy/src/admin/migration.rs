//! The progress of a migration from another proxy.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::counters::fallbacks::{FallbackCount, HERE, SpanCounts};
use crate::proxy::Proxy;

/// The most routes that are listed.
const ROUTES: usize = 10;

/// The counts of a route: the requests that were served here, and the requests that have fallen back, by reason.
#[derive(Default)]
struct RouteCounts {
    here: u64,
    there: u64,
    reasons: BTreeMap<&'static str, u64>,
}

/// The shares of requests that were served here and that have fallen back, over time and by route.
pub(super) fn report(proxy: &Proxy) -> Value {
    let counters = &proxy.metrics.fallbacks;
    let counts = counters.all();
    let (minutes, hours) = counters.over_time();
    let sum = |here: bool| -> u64 {
        counts.iter().filter(|count| (count.reason == HERE) == here).map(|count| count.count).sum()
    };
    let spans = |spans: &[SpanCounts]| -> Vec<Value> {
        spans
            .iter()
            .map(|span| json!({ "start": span.start, "here": span.here, "there": span.there }))
            .collect()
    };
    json!({
        "ok": true,
        "falls_back": proxy.config().settings.falls_back,
        "here": sum(true),
        "there": sum(false),
        "minutes": spans(&minutes),
        "hours": spans(&hours),
        "routes": routes(&counts),
    })
}

/// The routes that fall back most.
fn routes(counts: &[FallbackCount]) -> Vec<Value> {
    let mut routes = BTreeMap::<(&str, &str), RouteCounts>::new();
    for count in counts {
        let route = routes.entry((&*count.site, &*count.route)).or_default();
        if count.reason == HERE {
            route.here += count.count;
        } else {
            route.there += count.count;
            *route.reasons.entry(count.reason).or_default() += count.count;
        }
    }
    let mut routes: Vec<_> = routes.into_iter().filter(|(_, counts)| counts.there > 0).collect();
    routes.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.there));
    let shown = routes.into_iter().take(ROUTES).map(|((site, route), counts)| {
        let RouteCounts { here, there, reasons } = counts;
        json!({ "site": site, "route": route, "here": here, "there": there, "reasons": reasons })
    });
    shown.collect()
}
