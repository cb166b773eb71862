//! How a server is chosen, for `foregate explain`.

use foregate_config::value::show_duration;
use foregate_proxy::settings::{Balance, HashBy, HealthCheck, Probe, ServerSettings, UpstreamSettings};

/// A server with its properties, as they are configured.
pub(super) fn server(server: &ServerSettings) -> String {
    let mut text = server.address.to_string();
    if server.weight != 1 {
        text.push_str(&format!(" weight={}", server.weight));
    }
    for (name, is_set) in [("backup", server.backup), ("drain", server.drain)] {
        if is_set {
            text.push_str(&format!(" {name}"));
        }
    }
    for (name, most) in [("max-requests", server.max_requests), ("max-connections", server.max_connections)] {
        if let Some(most) = most {
            text.push_str(&format!(" {name}={most}"));
        }
    }
    if !server.slow_start.is_zero() {
        text.push_str(&format!(" slow-start={}", show_duration(server.slow_start)));
    }
    if let Some(zone) = &server.zone {
        text.push_str(&format!(" zone={zone}"));
    }
    text
}

/// Sentences on the choice of a server, in the order in which they apply.
pub(super) fn choice(upstream: &UpstreamSettings) -> Vec<String> {
    let mut choice = Vec::new();
    if upstream.servers.len() > 1 {
        if let Some(sticky) = &upstream.sticky {
            choice.push(format!("the server that the cookie `{}` names, while that is up", sticky.cookie));
        }
        if let Some(zone) = &upstream.zone
            && upstream.servers.iter().any(|server| server.zone.as_ref() == Some(zone))
        {
            choice.push(format!("servers of the zone `{zone}` while half of their weight can take requests"));
        }
        if upstream.servers.iter().any(|server| server.backup) {
            choice.push("backups while no other server can take requests".to_owned());
        }
        choice.push(method(&upstream.balance));
    }
    choice.extend(upstream.health.as_ref().map(health));
    let eject = &upstream.eject;
    let statuses = if eject.statuses.is_empty() { "" } else { " (some statuses count)" };
    choice.push(format!("{} failures in a row{statuses} take a server out", eject.failures));
    if let Some(share) = eject.share {
        choice.push(format!("{share} % of failures within ten seconds take a server out"));
    }
    if let Some(factor) = eject.latency {
        choice.push(format!("a median latency of {factor} times that of the others takes a server out"));
    }
    choice
}

fn method(balance: &Balance) -> String {
    let by = |by: &HashBy| match by {
        HashBy::Client => "the client's address".to_owned(),
        HashBy::Path => "the path".to_owned(),
        HashBy::Target => "path and query".to_owned(),
        HashBy::Header(name) => format!("the field `{name}`"),
        HashBy::Cookie(name) => format!("the cookie `{name}`"),
    };
    match balance {
        Balance::RoundRobin => "in turns, by weight".to_owned(),
        Balance::LeastRequests => "the fewest requests in flight for the weight".to_owned(),
        Balance::TwoChoices => "of two drawn by weight, the one with fewer requests in flight".to_owned(),
        Balance::PeakEwma => "of two drawn by weight, the one with the shorter expected wait".to_owned(),
        Balance::Random => "at random, by weight".to_owned(),
        Balance::Hash(part) => format!("by a hash of {}", by(part)),
        Balance::Maglev(part) => format!("by a Maglev table and {}", by(part)),
    }
}

fn health(check: &HealthCheck) -> String {
    let probe = match &check.probe {
        Probe::Tcp => "a connection".to_owned(),
        Probe::Tls => "a TLS handshake".to_owned(),
        Probe::Http(probe) => format!("{} {}", probe.method, probe.path),
        Probe::Grpc { service, .. } if service.is_empty() => "the gRPC health service".to_owned(),
        Probe::Grpc { service, .. } => format!("the gRPC health service for {service}"),
    };
    let HealthCheck { fall, rise, .. } = check;
    let every = show_duration(check.every);
    format!("{probe} every {every} probes each server: down after {fall} failures, up after {rise} successes")
}
