//! The part of `foregate explain` about the choice of a server, and about further attempts with another server.

use foregate_config::value::{show_duration, show_size};
use foregate_proxy::settings::{
    Balance, HashBy, HealthCheck, HedgeAfter, Mirror, NewPath, Probe, RequestLimit, Retry, SHARE_WHOLE,
    ServerSettings, UpstreamSettings,
};

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
    }
    // A name may stand for several servers, so a hash is also shown for a single one.
    if upstream.servers.len() > 1 || matches!(upstream.balance, Balance::Hash(_) | Balance::Maglev(_)) {
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
        HashBy::Client => "the client's address (`by=\"client\"`)".to_owned(),
        HashBy::Path => "the path (`by=\"path\"`)".to_owned(),
        HashBy::Target => "path and query (`by=\"target\"`)".to_owned(),
        HashBy::Header(name) => format!("the field `{name}` (`by=\"header:{name}\"`)"),
        HashBy::Cookie(name) => format!("the cookie `{name}` (`by=\"cookie:{name}\"`)"),
        HashBy::Expression(expression) => match query_name(&expression.text) {
            Some(name) => format!("the first argument `{name}` of the query (`by=\"query:{name}\"`)"),
            None => format!("the expression `{}` (`key`)", expression.text),
        },
    };
    match balance {
        Balance::RoundRobin => "in turns, by weight".to_owned(),
        Balance::LeastRequests => "the fewest requests in flight for the weight".to_owned(),
        Balance::TwoChoices => "of two drawn by weight, the one with fewer requests in flight".to_owned(),
        Balance::PeakEwma => "of two drawn by weight, the one with the shorter expected wait".to_owned(),
        Balance::Random => "at random, by weight".to_owned(),
        Balance::Hash(part) => format!("by a hash of {}", by(part)),
        Balance::Maglev(part) => format!("by a hash of {} in a Maglev table", by(part)),
    }
}

/// The name in the expression for which `by="query:NAME"` stands.
fn query_name(expression: &str) -> Option<&str> {
    let name = expression.strip_prefix("http.request.uri.args[\"")?.strip_suffix("\"][0]")?;
    (!name.contains(['"', '\\'])).then_some(name)
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

/// Sentences on further attempts, in the order in which the rules are tried. `of_route` has the route's own rules, if
/// any.
pub(super) fn retry(upstream: &UpstreamSettings, of_route: Option<&[Retry]>) -> Vec<String> {
    let rules = of_route.unwrap_or(&upstream.retry);
    let mut retry: Vec<String> = match (rules, upstream.retries) {
        ([], 0) if upstream.hedge.is_none() => return vec!["never".to_owned()],
        ([], 0) => Vec::new(),
        ([], most) => {
            vec![format!("{most} further attempts where no response has begun and repeating is safe")]
        }
        (rules, _) => rules.iter().map(rule).collect(),
    };
    retry.extend(upstream.hedge.map(|after| match after {
        HedgeAfter::Time(time) => {
            format!("also at a second server after {} without a response", show_duration(time))
        }
        HedgeAfter::Percentile(percent) => {
            format!("also at a second server after {percent} % of the latencies without a response")
        }
    }));
    let (percent, least) = (upstream.retry_budget_percent, upstream.retry_budget_min);
    retry.push(format!("at most {percent} % of the requests, or {least} at a time"));
    retry
}

fn rule(rule: &Retry) -> String {
    let on = [("connect", rule.on.connect), ("reset", rule.on.reset), ("timeout", rule.on.timeout)];
    let mut failures: Vec<String> =
        on.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (*name).to_owned()).collect();
    failures.extend(rule.on.statuses.iter().map(|range| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }));
    let mut text = format!("on {}: {} further at ", failures.join(" "), rule.attempts);
    match &rule.elsewhere {
        None => text.push_str("the next server"),
        Some(elsewhere) => {
            text.push_str(&format!("the upstream `{}`", elsewhere.upstream));
            if let Some(host) = &elsewhere.host {
                text.push_str(&format!(", with host {host}"));
            }
            match &elsewhere.path {
                None => {}
                Some(NewPath::Whole(path)) => text.push_str(&format!(", with path {path}")),
                Some(NewPath::Before(start)) => text.push_str(&format!(", with {start} before the path")),
            }
            if !elsewhere.edits.is_empty() {
                text.push_str(", with other fields");
            }
        }
    }
    if let Some(timeout) = rule.try_timeout {
        text.push_str(&format!(", {} each", show_duration(timeout)));
    }
    if !rule.methods.is_empty() {
        let methods: Vec<_> = rule.methods.iter().map(|method| String::from_utf8_lossy(method)).collect();
        text.push_str(&format!(", also {}", methods.join(" ")));
    }
    text
}

/// A sentence on the copies of requests that an upstream gets.
pub(super) fn mirror(mirror: &Mirror, shadow: &str) -> String {
    let share = f64::from(mirror.share) * 100.0 / f64::from(SHARE_WHOLE);
    let body = show_size(mirror.body as u64);
    format!(
        "copies of {share} % of the requests to `{shadow}`, with bodies up to {body}; their responses are dropped"
    )
}

/// A sentence on a limit on requests in flight.
pub(super) fn limit(of: &str, limit: RequestLimit) -> String {
    let requests = match limit.adaptive_from {
        Some(least) => format!("{least} to {}, by latency,", limit.requests),
        None => limit.requests.to_string(),
    };
    let beyond = match limit.queue {
        0 => "others get 503".to_owned(),
        queue => format!("{queue} more wait for {}", show_duration(limit.timeout)),
    };
    format!("{requests} requests in flight for the {of}, {beyond}")
}
