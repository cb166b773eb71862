//! One request as a client would send it, judged by a configuration: the trial of `foregate explain`.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_module::Now;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::Listen;

use super::logged::LoggedRequest;
use super::treatment::Judge;

/// A trial request.
pub(in super::super) struct TriedRequest<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub secure: bool,
    pub fields: &'a [(String, String)],
    pub client: IpAddr,
}

/// The treatment of a tried request by a configuration.
pub(in super::super) struct TrialResult {
    /// The pattern of the route, and its conditions.
    pub route: Option<String>,
    /// The outcome in words, such as `403 by rules-stop`.
    pub outcome: String,
    /// The notes of steps, such as `rule` with its name.
    pub notes: Vec<(String, String)>,
    /// The steps that would have asked an upstream, with its name. The trial assumes that the
    /// upstream answers with 200.
    pub asked: Vec<String>,
}

/// Tries a request that comes in through a listener.
pub(in super::super) fn try_request(
    settings: &Settings,
    listener: Option<&Listen>,
    tried: &TriedRequest<'_>,
) -> TrialResult {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let unix_ms = u64::try_from(unix).unwrap_or(u64::MAX);
    let field = |wanted: &str| {
        let found = tried.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.clone())
    };
    let request = LoggedRequest {
        client: Some(tried.client),
        method: tried.method.to_owned(),
        secure: tried.secure,
        host: field("host").unwrap_or_else(|| tried.host.to_owned()),
        target: tried.target.to_owned(),
        protocol: "HTTP/1.1".into(),
        body: field("content-length").and_then(|length| length.parse().ok()).unwrap_or_default(),
        tls: tried.secure.then(|| "TLSv1.3".into()),
        fields: tried.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")).cloned().collect(),
        unix_ms,
        ..LoggedRequest::default()
    };
    let judge = Judge::for_trial(settings, listener);
    let treatment = judge.judge(&request, Now { unix_ms, steady_ms: 1_000_000 });
    let location = match &*treatment.location {
        [] => String::new(),
        location => format!(", to {}", String::from_utf8_lossy(location)),
    };
    TrialResult {
        route: treatment.route,
        outcome: format!("{}{location}", treatment.outcome),
        notes: treatment.notes,
        asked: treatment.asked.into_iter().map(|(step, whom)| format!("{step} asks {whom}")).collect(),
    }
}
