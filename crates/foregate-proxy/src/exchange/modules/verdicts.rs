//! What becomes of what a step has said, or of its fault.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foregate_module::{Action, PhaseId, Pipeline, Planned, Verdict, WhenFull};

use super::{Ended, Fault};
use crate::counters::steps::StepCounter;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::exchange::view::now;

impl Exchange<'_> {
    /// What a step's verdict means for the request.
    pub(in crate::exchange) fn judge(
        &mut self,
        planned: &Planned,
        pipeline: &Pipeline,
        verdict: Result<Verdict, Fault>,
    ) -> Result<(), Ended> {
        let (Some(counters), Some(entry)) =
            (self.proxy.steps.get(planned.step), pipeline.entries().get(usize::from(planned.step)))
        else {
            return Ok(());
        };
        let decl = entry.decl();
        match verdict {
            Ok(Verdict::Passed) => Ok(()),
            Ok(Verdict::Continue) => {
                self.proxy.steps.ran(planned.step);
                if let Some(run) = &mut self.run {
                    run.state.events.drain(..).for_each(|event| counters.count(event, 1));
                    run.state.tallies.drain(..).for_each(|(event, part)| counters.tally(event, &part));
                    run.state.lines.drain(..).for_each(|line| self.config.log(&line));
                }
                self.count_held(planned, pipeline, counters)
            }
            Ok(Verdict::Stop(action)) => {
                self.proxy.steps.ran(planned.step);
                self.stop(planned, counters, action)
            }
            Err(fault) => {
                self.count_fault(counters, &fault, decl.optional);
                let error = match fault {
                    Fault::Lost(error) => error,
                    Fault::Full(_) => Error::StepQueue(decl.name),
                    Fault::Panicked | Fault::Broken => Error::Step(decl.name),
                };
                let goes_on = match fault {
                    Fault::Lost(Error::TemporaryFile) => pipeline.may_fail(planned),
                    Fault::Lost(_) => false,
                    Fault::Full(full) => full == WhenFull::Shed || pipeline.may_fail(planned),
                    Fault::Panicked | Fault::Broken => decl.optional || pipeline.may_fail(planned),
                };
                if let Some(run) = self.run.as_mut().filter(|_| entry.reads_body()) {
                    run.facts.unseen = Some(error.kind());
                }
                if goes_on {
                    return Ok(());
                }
                self.start_over(Some(planned));
                Err(Ended::Failed(error))
            }
        }
    }

    /// Counts what values hold that the last step has written.
    fn count_held(
        &mut self,
        planned: &Planned,
        pipeline: &Pipeline,
        counters: &StepCounter,
    ) -> Result<(), Ended> {
        let account = self.account();
        let Some(run) = &mut self.run else { return Ok(()) };
        let more = std::mem::take(&mut run.state.held);
        if more == 0 {
            return Ok(());
        }
        let none = || (0, self.proxy.filter_memory.share(account));
        let (held, share) = run.facts.held.get_or_insert_with(none);
        if share.hold(held.saturating_add(more)) {
            *held = held.saturating_add(more);
            return Ok(());
        }
        run.facts.unseen = Some(Error::FilterMemory.kind());
        if !pipeline.may_fail(planned) {
            self.start_over(Some(planned));
            return Err(Ended::Failed(Error::FilterMemory));
        }
        // The request goes on without what it would have held.
        let forgets = || pipeline.forget(planned, &mut run.state);
        if catch_unwind(AssertUnwindSafe(forgets)).is_err() {
            self.count_fault(counters, &Fault::Panicked, false);
        }
        counters.shed.inc();
        Ok(())
    }

    fn stop(&mut self, planned: &Planned, counters: &StepCounter, action: Action) -> Result<(), Ended> {
        if planned.dry_run {
            counters.dry_stops.inc();
            let what = match &action {
                Action::Respond(response) => format!("{} {}", action.name(), response.status),
                Action::Abort => action.name().to_owned(),
            };
            if let Some(run) = &mut self.run {
                let note = format!("{}: {what}", counters.name);
                run.state.notes.push(("dry-run".into(), note.into()));
            }
            return Ok(());
        }
        counters.stops.inc();
        // Where a page takes the place of an error, it keeps the fields.
        if self.run.as_ref().is_some_and(|run| run.next() != PhaseId::ResponseErrorPage.order()) {
            self.start_over(Some(planned));
        }
        Err(match action {
            Action::Respond(response) if response.too_long => Ended::Failed(Error::ResponseTooLarge),
            Action::Respond(response) => Ended::Answer(Box::new(response), counters.name),
            Action::Abort => Ended::Abort(counters.name),
        })
    }

    fn count_fault(&self, counters: &StepCounter, fault: &Fault, optional: bool) {
        match fault {
            Fault::Panicked => {
                self.proxy.metrics.panics.inc();
                counters.panics.inc();
                // Requests need the others: to leave them out would make of one crafted request an outage for all.
                if optional {
                    counters.panicked(now().steady_ms);
                }
            }
            Fault::Broken => counters.broken.inc(),
            Fault::Full(_) => counters.shed.inc(),
            Fault::Lost(_) => {}
        }
    }
}
