//! Steps of the phase `log` that run before the response begins, so that their lines are in their
//! files by then.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use foregate_module::settings::LogId;
use futures_util::future::join_all;

use super::refused::show_refused_first;
use super::run::Which;
use super::state::Exchange;
use crate::time::clock;

/// The longest time that a response waits for its log lines to be written. If the disk is slow or stuck, the
/// response is sent before the lines are written.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// Runs the steps that log before the response, once for an exchange, and waits until their lines are written. Without
/// such steps it costs only a look at the plan.
#[inline]
pub(super) async fn log_first(exchange: &mut Exchange<'_>) {
    if exchange.record.refused.is_some() {
        // Boxed, because it is rare: it searches for the route that the request seems to ask for.
        Box::pin(show_refused_first(exchange)).await;
    } else if !exchange.record.logged_first && exchange.plan().is_some_and(|plan| plan.logs_first()) {
        Box::pin(run_first_logs(exchange)).await;
    }
}

async fn run_first_logs(exchange: &mut Exchange<'_>) {
    exchange.record.logged_first = true;
    let summary = exchange.summary();
    let (Some(plan), Some(run)) = (exchange.modules.plan, &mut exchange.modules.run) else { return };
    run.facts.summary = summary;
    let logs = exchange.run_log(plan, Which::LoggedFirst).await;
    wait_until_written(exchange, &logs).await;
}

/// Waits until these files contain the added lines, at most [`WRITTEN_WITHIN`] for all.
pub(super) async fn wait_until_written(exchange: &mut Exchange<'_>, logs: &[LogId]) {
    if logs.is_empty() {
        return;
    }
    let files = logs.iter().filter_map(|log| exchange.config.log_file(*log));
    let mut written = pin!(join_all(files.map(|file| file.settle())));
    let until = clock::now() + WRITTEN_WITHIN;
    let in_time = poll_fn(|cx| match written.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending => exchange.down.timer.poll(cx, until).map(|()| false),
    })
    .await;
    if !in_time {
        exchange.proxy.metrics.module_log_late.inc();
    }
}
