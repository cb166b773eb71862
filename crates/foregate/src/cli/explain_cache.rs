//! The cache of a route, in words.

use foregate_cache::{Parameters, Policy, SetCookie};
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::{CacheSettings, Route};

/// The rules of the route's cache, a line each; none without a cache.
pub(super) fn cache(settings: &Settings, route: &Route) -> Vec<String> {
    let Some(cache) = route.cache.get().filter(|_| route.action.upstream().is_some()) else {
        return Vec::new();
    };
    let mut lines = vec![tiers(settings)];
    if route.cache.is_of_site() {
        lines.push("these rules are the `cache` of the site".to_owned());
    }
    lines.extend(lifetimes(&cache.policy));
    lines.push(stale(&cache.policy));
    lines.push(key(cache));
    lines.extend(others(cache));
    if let Some(shield) = settings.shield.as_ref().filter(|_| cache.shield) {
        let (name, own, count) = (&shield.name, shield.own_name(), shield.nodes.len());
        lines.push(format!("misses: from the owner in the shield {name} ({count} nodes, this one is {own})"));
    }
    lines
}

fn tiers(settings: &Settings) -> String {
    let store = &settings.cache_store;
    let mut tiers = format!("stores responses in memory ({} MiB)", store.memory >> 20);
    for disk in &store.disks {
        tiers.push_str(&format!(", on disk ({}, {} MiB)", disk.folder.display(), disk.size >> 20));
    }
    if let Some(reserve) = &store.reserve {
        tiers.push_str(&format!(", in the bucket {} at {}", reserve.bucket, reserve.endpoint));
    }
    tiers
}

fn lifetimes(policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    for lifetime in &policy.lifetimes {
        let (first, last) = (lifetime.statuses.start(), lifetime.statuses.end());
        let statuses = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let whose = if lifetime.over_origin { ", instead of the origin's" } else { "" };
        let condition = if lifetime.condition.is_some() { ", where its expression holds" } else { "" };
        lines.push(format!("status {statuses}: for {}{whose}{condition}", duration(lifetime.seconds)));
    }
    if let Some(extensions) = &policy.extensions {
        let ttl = duration(extensions.seconds);
        lines.push(format!("{} extensions: for {ttl}, if Content-Type fits", extensions.extensions.len()));
    }
    let heuristics = &policy.heuristics;
    let others = match heuristics.percent {
        0 => "others: as long as the origin says".to_owned(),
        percent => format!(
            "others: as long as the origin says, or {percent} % of the time since Last-Modified, at most {}",
            duration(heuristics.cap)
        ),
    };
    lines.push(others);
    lines
}

fn stale(policy: &Policy) -> String {
    format!(
        "stale: {} while it is validated, {} if the origin fails",
        duration(policy.stale_while_revalidate),
        duration(policy.stale_if_error)
    )
}

fn key(cache: &CacheSettings) -> String {
    let mut key = "key: scheme, host, port, path".to_owned();
    match &cache.query.parameters {
        Parameters::All => key.push_str(", query"),
        Parameters::Keep(names) if names.is_empty() => {}
        Parameters::Keep(names) => key.push_str(&format!(", query with {} alone", names.join(", "))),
        Parameters::Drop(names) => key.push_str(&format!(", query without {}", names.join(", "))),
    }
    match cache.key.len() {
        0 => {}
        1 => key.push_str(", 1 expression"),
        count => key.push_str(&format!(", {count} expressions")),
    }
    key
}

fn others(cache: &CacheSettings) -> Vec<String> {
    let mut lines = Vec::new();
    match cache.bypass.len() {
        0 => {}
        1 => lines.push("bypass: where 1 expression holds".to_owned()),
        count => lines.push(format!("bypass: where one of {count} expressions holds")),
    }
    match cache.policy.set_cookie {
        SetCookie::Refuse => {}
        SetCookie::Drop => lines.push("Set-Cookie: stored without it".to_owned()),
        SetCookie::Store => lines.push("Set-Cookie: stored with it, for all clients".to_owned()),
    }
    if cache.ignores_removed_authorization {
        lines.push("Authorization: does not count where a step has removed it".to_owned());
    }
    if cache.policy.client_directives {
        lines.push("clients may ask for fresh responses".to_owned());
    }
    if cache.purge_token.is_some() {
        lines.push("PURGE over HTTP, with the token".to_owned());
    }
    lines
}

fn duration(seconds: u32) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds} s"), |(unit, name)| format!("{} {name}", seconds / unit))
}
