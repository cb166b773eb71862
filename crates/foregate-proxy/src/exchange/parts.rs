//! Partial responses: an origin has sent a part of a body, and a step needs all of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::reply::BodySource;
use super::shape::drop_source;
use super::state::{Exchange, Step};
use foregate_module::Source as MadeBy;

/// Returns true if the origin has sent a part of a body, and a step needs all of it. That happens at most once, because
/// the request has no `Range` the second time.
pub(super) fn needs_whole(exchange: &mut Exchange<'_>) -> bool {
    let tries_parts = exchange.plan().is_some_and(|plan| !plan.parts().is_empty());
    if !tries_parts || !exchange.request.length.is_empty() || !exchange.request.asks_for_part() {
        return false;
    }
    exchange.response_is_from(MadeBy::Upstream);
    let config = exchange.config;
    let Some(plan) = exchange.plan() else { return false };
    let Some((mut view, state)) = exchange.view() else { return false };
    let pipeline = &config.settings.pipeline;
    match catch_unwind(AssertUnwindSafe(|| pipeline.asks_whole(plan, &mut view, state))) {
        Ok(None) => false,
        Ok(Some(step)) => {
            if let Some(counters) = exchange.proxy.steps.get(step) {
                counters.count("whole-asked", 1);
            }
            true
        }
        Err(_) => {
            exchange.proxy.metrics.panics.inc();
            false
        }
    }
}

/// Drops the partial response, which no step has seen, and asks the origin again for the whole body.
pub(super) fn ask_whole(exchange: &mut Exchange<'_>, source: BodySource) -> Step {
    drop_source(exchange, source, None);
    exchange.request.ask_for_all();
    if let Some(ask) = &mut exchange.ask {
        ask.start_over();
    }
    Step::Ask
}
