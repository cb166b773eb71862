//! Steps of the phase `log` that run before the response begins, so that their lines are in their files by then.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use foregate_module::settings::LogId;
use foregate_module::{PhaseId, Planned, Verdict};
use futures_util::future::join_all;

use super::Exchange;
use super::modules::Fault;
use super::view::now;
use crate::time::clock;

/// How long a response waits for lines to be written: a disk may be slow or stuck, and the response is worth more.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

impl Exchange<'_> {
    /// Runs those steps once for an exchange, and waits until their lines are written. Costs a look at the plan where there are none.
    #[inline]
    pub(super) async fn log_first(&mut self) {
        if self.refused.is_some() {
            // Which route it seems to ask for takes some looking.
            Box::pin(self.show_refused_first()).await;
        } else if !self.logged_first && self.plan().is_some_and(|plan| plan.logs_first()) {
            Box::pin(self.run_first_logs()).await;
        }
    }

    /// Whether a step runs before the response begins.
    pub(super) fn is_logged_first(&self, planned: &Planned) -> bool {
        let entry = self.config.settings.pipeline.entries().get(usize::from(planned.step));
        entry.is_some_and(|entry| entry.logs_first(&planned.settings))
    }

    async fn run_first_logs(&mut self) {
        self.logged_first = true;
        let summary = self.summary();
        let Some(run) = &mut self.run else { return };
        run.facts.summary = summary;
        run.facts.now = now();
        let mut logs = Vec::new();
        let steps = self.plan.map_or(&[][..], |plan| plan.phase(PhaseId::Log));
        for planned in steps {
            if self.is_logged_first(planned) {
                let verdict = self.run_light(planned, &self.config.settings.pipeline);
                self.note_first(planned, verdict, &mut logs);
            }
        }
        self.wait_until_written(&logs).await;
    }

    /// Takes what a step has to say, and adds the files that its lines go to.
    pub(super) fn note_first(
        &mut self,
        planned: &Planned,
        verdict: Result<Verdict, Fault>,
        logs: &mut Vec<LogId>,
    ) {
        if let Some(run) = &self.run {
            for line in &run.state.lines {
                if !logs.contains(&line.log) {
                    logs.push(line.log);
                }
            }
        }
        // Nothing is left that could be ended.
        let _ = self.judge(planned, &self.config.settings.pipeline, verdict);
    }

    /// Waits until these files have what was added to them, at most [`WRITTEN_WITHIN`] for all.
    pub(super) async fn wait_until_written(&mut self, logs: &[LogId]) {
        if logs.is_empty() {
            return;
        }
        let files = logs.iter().filter_map(|log| self.config.log_file(*log));
        let mut written = pin!(join_all(files.map(|file| file.settle())));
        let until = clock::now() + WRITTEN_WITHIN;
        let in_time = poll_fn(|cx| match written.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => self.down.timer.poll(cx, until).map(|()| false),
        })
        .await;
        if !in_time {
            self.proxy.metrics.module_log_late.inc();
        }
    }
}
