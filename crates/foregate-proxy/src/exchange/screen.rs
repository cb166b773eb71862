//! Screens a request: runs the steps from `request-early` to `upstream-select`. Then the route, or one of the steps,
//! decides where the request goes.

use std::sync::atomic::Ordering;

use foregate_module::PhaseId;
use foregate_wire::connection;

use super::record::LoggedAction;
use super::reply::Reply;
use super::route::{limit_body_to, redirect_to_https};
use super::spans;
use super::state::{Exchange, Step, StepResult};
use crate::error::Error;
use crate::message::request::remove_identity;
use crate::settings::Destination;

/// Runs the steps of the request.
pub(super) async fn run(exchange: &mut Exchange<'_>) -> StepResult {
    exchange.request.sent = exchange.request.head.headers.arena_len();
    exchange.request.begin_hop();
    exchange.down.upload.leave_out(connection::named_options(&exchange.request.head.headers));
    let early = spans::may_trace(exchange);
    exchange.run_phases(PhaseId::RequestEarly).await?;
    if let Some(early) = early {
        spans::begin_spans(exchange, early);
    }
    exchange.request.end_hop();
    if let Some(reply) = redirect_to_https(exchange) {
        return Ok(Step::Reply(reply));
    }
    // The fields are removed before any condition or key of a limit reads them, because a client could have set them.
    if let Some(plan) = exchange.plan() {
        remove_identity(&mut exchange.request.head.headers, plan.identity());
    }
    exchange.run_phases(PhaseId::RequestIdentity).await?;
    exchange.run_phases(PhaseId::RequestSecurity).await?;
    limit_body(exchange)?;
    if exchange.plan().is_some_and(|plan| plan.keeps_fields()) {
        exchange.run_phases(PhaseId::RequestBody).await?;
        if let Some(run) = &mut exchange.modules.run {
            run.asked.keep(exchange.request);
        }
    }
    exchange.run_phases(PhaseId::UpstreamSelect).await?;
    dispatch(exchange)
}

/// Chooses the next step of the exchange, as the route or a step of a module demands.
pub(super) fn dispatch(exchange: &mut Exchange<'_>) -> StepResult {
    let Some(route) = exchange.routed.route else { return Err(Error::Internal.into()) };
    if exchange.modules.run.as_ref().is_some_and(|run| run.facts.path_is_in_doubt.load(Ordering::Relaxed)) {
        return Err(Error::AmbiguousPath.into());
    }
    if exchange.modules.run.as_ref().is_some_and(|run| run.facts.target_is_wrong) {
        return Err(Error::Rewrite.into());
    }
    // A replay neither reads nor fills the cache.
    let caches = route.cache.get().is_some() && exchange.down.peer.replay.is_none();
    if !caches {
        exchange.request.target.strip_prefix(route.strip_prefix.as_deref());
    }
    let chosen = exchange.modules.run.as_ref().and_then(|run| run.facts.upstream);
    let ask = if caches { Step::Cached } else { Step::Prepare };
    let chosen = chosen.map(|upstream| upstream.0 as usize);
    Ok(match route.action.destination(chosen) {
        Destination::Files { folder, upstream } => Step::Files { folder, upstream },
        Destination::Upstream(upstream) => ask(upstream),
        Destination::Answer(fixed) => {
            exchange.record.action = Some(LoggedAction::Respond);
            Step::Reply(Box::new(Reply::fixed(fixed)))
        }
    })
}

/// Applies the limit that steps have set for the request's body.
pub(super) fn limit_body(exchange: &mut Exchange<'_>) -> Result<(), Error> {
    limit_body_to(exchange, exchange.modules.run.as_ref().and_then(|run| run.facts.body_limit))
}
