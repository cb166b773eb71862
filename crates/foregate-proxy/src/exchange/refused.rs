//! Shows requests that were refused before they had a route to the steps that read such requests.

use std::ops::Range;
use std::sync::Arc;

use foregate_module::{Plan, Source};
use foregate_wire::{Slashes, normalize_path, parse_authority};

use super::log_first::wait_until_written;
use super::received::{MalformedHead, Parts, RefusedRequest, part};
use super::run::Which;
use super::state::Exchange;
use super::view::now;
use crate::error::Error;
use crate::link::Link;

/// Runs the steps that read refused requests, after the request has been answered. Does nothing if steps have seen the
/// request before the response.
pub(super) async fn show_refused(exchange: &mut Exchange<'_>, error: Error) {
    if !exchange.record.logged_first
        && let Some(plan) = take_refused(exchange, error, |_| true)
    {
        exchange.run_log(plan, Which::OfRefused).await;
    }
}

/// Shows a refused request to the plan's steps that run before the response begins, and waits until
/// their lines are written.
pub(super) async fn show_refused_first(exchange: &mut Exchange<'_>) {
    let Some(error) = exchange.record.refused.filter(|_| !exchange.record.logged_first) else { return };
    // Where there are no files there are no lines to wait for.
    if exchange.config.settings.logs.is_empty() {
        return;
    }
    let Some(plan) = take_refused(exchange, error, Plan::logs_first) else { return };
    exchange.record.logged_first = true;
    let logs = exchange.run_log(plan, Which::OfRefused).await;
    wait_until_written(exchange, &logs).await;
}

/// Chooses the plan for a refused request, and prepares the state for its steps. `None` if `wants` is false for the
/// plan.
fn take_refused<'a>(
    exchange: &mut Exchange<'a>,
    error: Error,
    wants: fn(&Plan) -> bool,
) -> Option<&'a Arc<Plan>> {
    // A malformed head is still in the connection's buffer.
    let raw = match (&error, &exchange.down.client.link) {
        (Error::Request(_) | Error::HeadTimeout, Link::H1(link)) => Some(link.ahead()),
        _ => None,
    };
    let parts = raw.map(Parts::read);
    let plan = plan_of_refused(exchange, raw, parts.as_ref()).filter(|plan| wants(plan))?;
    let unparsed = raw.zip(parts).map(|(raw, parts)| {
        let bytes = raw.get(..parts.end).unwrap_or(raw).to_vec();
        MalformedHead { bytes, parts }
    });
    let refused = RefusedRequest { kind: error.kind(), reason: error.to_string(), unparsed };
    exchange.use_plan(Some(plan));
    exchange.response_is_from(Source::Error(error.kind()));
    let summary = exchange.summary();
    if let Some(run) = &mut exchange.modules.run {
        run.facts.refused = Some(Box::new(refused));
        run.facts.summary = summary;
        run.facts.now = now();
    }
    Some(plan)
}

/// The plan for a refused request. This is the plan of the route that the request seems to ask for, or the plan of its
/// site if no route matches. If no step of that plan reads refused requests, it is the plan at the top of the
/// configuration. `None` if no step of that plan reads refused requests either.
fn plan_of_refused<'a>(
    exchange: &Exchange<'a>,
    raw: Option<&[u8]>,
    parts: Option<&Parts>,
) -> Option<&'a Arc<Plan>> {
    let settings = &exchange.config.settings;
    let looks = |plan: &&Arc<Plan>| plan.of_refused(&settings.pipeline).next().is_some();
    let (host, target) = match raw.zip(parts) {
        Some((raw, parts)) => {
            let named = |(name, _): &&(Range<usize>, Range<usize>)| {
                part(raw, name).trim_ascii().eq_ignore_ascii_case(b"host")
            };
            let host = parts.fields.iter().find(named);
            (host.map_or(&b""[..], |(_, value)| part(raw, value)), part(raw, &parts.target))
        }
        None => {
            let host = exchange.request.head.headers.get(foregate_wire::NameId::Host);
            (host.unwrap_or(exchange.request.authority.as_str().as_bytes()), exchange.request.head.target())
        }
    };
    let mut authority = String::new();
    if parse_authority(host, &mut authority).is_err() {
        authority.clear();
    }
    let mut path = Vec::new();
    let raw_path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    if !raw_path.starts_with(b"/") || normalize_path(raw_path, Slashes::Merge, &mut path).is_err() {
        path = b"/".to_vec();
    }
    let sites = &settings.sites;
    let of_site = || {
        let site = sites.find(authority.as_bytes())?;
        match sites.route(site, &path) {
            Some(route) => route.plan.get(),
            None => sites.site(site).options.unrouted.get(),
        }
    };
    of_site().filter(looks).or_else(|| settings.unrouted.get().filter(looks))
}
