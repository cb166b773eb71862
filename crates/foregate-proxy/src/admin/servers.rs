//! Shows operators the state of the servers of upstreams, and carries out operators' orders for a server.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::proxy::Proxy;
use crate::upstream::{Order, ServerReport, Upstream};

/// The largest weight that an operator may give.
const WEIGHT_MOST: u64 = 1000;

/// The upstreams, each with the state of its servers.
pub(super) fn list(upstreams: &[Arc<Upstream>]) -> Vec<Value> {
    let now = Instant::now();
    let upstream = |upstream: &Arc<Upstream>| {
        let servers: Vec<Value> = upstream.report(now).iter().map(server).collect();
        json!({ "upstream": &*upstream.settings.name, "servers": servers })
    };
    upstreams.iter().map(upstream).collect()
}

fn server(report: &ServerReport) -> Value {
    let millis = |latency: &Duration| latency.as_micros() as f64 / 1000.0;
    let since = report.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let failures: Map<String, Value> =
        report.failures.iter().map(|(kind, count)| ((*kind).to_owned(), (*count).into())).collect();
    let mut shown = json!({
        "server": report.server,
        "state": report.state.as_str(),
        "reason": report.reason,
        "since": since.as_secs(),
        "weight": report.weight,
        "backup": report.backup,
        "zone": report.zone,
        "requests_in_flight": report.in_flight,
        "connections": report.connections,
        "responses": report.responses,
        "latency_ms": null,
        "failures": failures,
        "ejections": report.ejections,
        "health_checks": null,
    });
    if let Some([p50, p90, p99]) = &report.latency {
        shown["latency_ms"] = json!({ "p50": millis(p50), "p90": millis(p90), "p99": millis(p99) });
    }
    if let Some((passed, failed, reason)) = &report.probes {
        shown["health_checks"] = json!({ "passed": passed, "failed": failed, "last_failure": reason });
    }
    shown
}

/// Carries out an order such as `{"upstream":"app","server":"127.0.0.1:3000","order":"drain"}`. Other versions that
/// serve at the same time carry it out as well.
pub(super) async fn order(proxy: &Proxy, set: &Value) -> Result<(), String> {
    follow(&proxy.config().upstreams, set)?;
    proxy.handover.tell_orders().await;
    Ok(())
}

fn follow(upstreams: &[Arc<Upstream>], set: &Value) -> Result<(), String> {
    let text = |name: &str| set.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, address, order) = (text("upstream"), text("server"), text("order"));
    let names = || upstreams.iter().map(|upstream| &*upstream.settings.name).collect::<Vec<_>>().join(", ");
    let upstream = upstreams.iter().find(|upstream| *upstream.settings.name == *name);
    let upstream =
        upstream.ok_or_else(|| format!("there is no upstream {name:?}; there are: {}", names()))?;
    let server = upstream.find_server(address).ok_or_else(|| {
        let servers: Vec<_> = upstream.servers.iter().map(|server| &*server.label).collect();
        format!("the upstream {name:?} has no server {address:?}; it has: {}", servers.join(", "))
    })?;
    match order {
        "up" => upstream.picker.order(server, Order::Up),
        "drain" => upstream.picker.order(server, Order::Drain),
        "down" => upstream.picker.order(server, Order::Down),
        order => {
            let weight = order.strip_prefix("weight=").and_then(|weight| weight.parse::<u64>().ok());
            let weight =
                weight.filter(|weight| *weight <= WEIGHT_MOST).and_then(|weight| u32::try_from(weight).ok());
            let weight = weight.ok_or_else(|| {
                if order.starts_with("weight=") {
                    return format!("{order:?}: a weight is a whole number from 0 to {WEIGHT_MOST}");
                }
                format!("unknown order {order:?}; write weight=N (0 to {WEIGHT_MOST}), drain, up or down")
            })?;
            upstream.picker.set_weight(server, weight);
        }
    }
    // The server may belong to other upstreams as well.
    upstreams.iter().for_each(|upstream| upstream.picker.reweigh());
    Ok(())
}
