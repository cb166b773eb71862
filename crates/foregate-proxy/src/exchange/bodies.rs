//! Filters of bodies and checks of trailers, set up by steps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foregate_module::{Filtered, Finding, PART_PASSED, Plan, Steps, Traffic, restore_validators};
use foregate_wire::BodyLength;

use super::state::Exchange;
use crate::counters::metrics::Counter;
use crate::counters::steps::StepCounter;
use crate::error::Error;
use crate::link::filter::{Filter, chain};
use crate::link::sweep::{Of, Sweep};

/// The filters that steps have added to the response's body. Filters that do not fit the response are left out.
pub(super) fn take_response_filters(exchange: &mut Exchange<'_>) -> Vec<Filtered> {
    let Some(run) = &mut exchange.modules.run else { return Vec::new() };
    let mut filters = std::mem::take(&mut run.state.response_filters);
    if exchange.response.status == 206 {
        Filtered::keep_for_part(&mut filters, |step| {
            if let Some(counters) = exchange.proxy.steps.named(step) {
                counters.count(PART_PASSED, 1);
            }
        });
    }
    filters
}

/// Counts the traffic, events and failures of filters.
pub(super) fn count_filters(exchange: &Exchange<'_>, filter: &mut Filter) {
    let faults = &filter.faults;
    let count = |step: &str, counter: fn(&StepCounter) -> &Counter| {
        if let Some(counters) = exchange.proxy.steps.named(step) {
            counter(counters).inc();
        }
    };
    for step in &faults.bailed {
        count(step, |counters| &counters.bails);
    }
    if let Some(step) = faults.broke {
        count(step, |counters| &counters.breaks);
    }
    if let Some(step) = faults.panicked {
        exchange.proxy.metrics.panics.inc();
        count(step, |counters| &counters.panics);
    }
    let steps = &exchange.proxy.steps;
    let mut moved = |traffic: Traffic| {
        if let Some(counters) = steps.named(traffic.step) {
            counters.filtered(traffic);
        }
    };
    let mut found = |finding: Finding| {
        let Some(counters) = steps.named(finding.step) else { return };
        if finding.event == Finding::PANIC {
            exchange.proxy.metrics.panics.inc();
            counters.panics.inc();
        } else {
            counters.count(finding.event, finding.count);
        }
    };
    filter.chain.report(&mut moved, &mut found);
}

/// Changes the request so that the origin sends a whole response. This is done in two cases: a step changes each
/// response differently, or a step may need the whole response and the request could not be sent again.
pub(super) fn renew(exchange: &mut Exchange<'_>) {
    let Some(plan) = exchange.plan() else { return };
    let (renews, tries_parts) = (plan.renews(), !plan.parts().is_empty());
    if plan.changes_bodies()
        && let Some((mut view, _)) = exchange.view()
    {
        restore_validators(&mut view, plan.version());
    }
    if renews && let Some((mut view, _)) = exchange.view() {
        Plan::renew(&mut view);
    }
    if tries_parts && !exchange.request.length.is_empty() && exchange.request.asks_for_part() {
        exchange.request.ask_for_all();
    }
}

/// Adds the filters that steps have asked for to the request's body.
pub(super) fn filter_request(exchange: &mut Exchange<'_>) -> Result<(), Error> {
    let account = exchange.account();
    let Some(run) = &mut exchange.modules.run else { return Ok(()) };
    let filters = std::mem::take(&mut run.state.request_filters);
    if filters.is_empty() || exchange.request.length.is_empty() {
        return Ok(());
    }
    let changes = filters.iter().any(Filtered::changes_length);
    let share = exchange.proxy.filter_memory.share(account);
    exchange.down.upload.filter_from_start(chain(filters), share).map_err(Error::of_upload)?;
    if changes {
        exchange.request.length = BodyLength::Chunked;
    }
    Ok(())
}

/// The checks for fields of interim responses and trailers on their way to the client; `None` if
/// there are none.
pub(super) fn sweep(exchange: &mut Exchange<'_>) -> Option<Sweep> {
    let nothing = exchange.plan()?.sweeps().is_empty();
    if nothing { None } else { sweep_of(exchange, Of::Response) }
}

/// The checks for the trailers of the request, once its head is final.
pub(super) fn sweep_request(exchange: &mut Exchange<'_>) {
    let length = exchange.request.length;
    let may_have = length == BodyLength::Chunked || exchange.down.client.link.is_h2();
    if may_have && !length.is_empty() {
        let names = exchange.request.head.headers.iter().flat_map(|field| [field.name, b"\n"]);
        let names = names.flatten().copied().collect();
        let sweep = sweep_of(exchange, Of::Request(names));
        exchange.down.upload.sweep(sweep);
    }
}

fn sweep_of(exchange: &mut Exchange<'_>, of: Of) -> Option<Sweep> {
    let config = exchange.config;
    let pipeline = &config.settings.pipeline;
    let plan = exchange.plan()?;
    let (view, state) = exchange.view()?;
    let mut left_out = Steps::NONE;
    for (number, planned) in of.steps(plan).iter().enumerate() {
        let skipped = state.skipped.contains(usize::from(planned.step));
        let wanted = catch_unwind(AssertUnwindSafe(|| pipeline.is_wanted(planned, &view, state)));
        if skipped || !wanted.unwrap_or(true) {
            left_out = left_out.with(number);
        }
    }
    Some(Sweep { pipeline: Arc::clone(pipeline), plan: Arc::clone(plan), of, left_out })
}
