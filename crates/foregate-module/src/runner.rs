//! Runs the steps of a plan: a cursor over phases and steps, driven by every platform.
//!
//! A [`Runner`] does no input or output. The platform calls [`Runner::run`] with the last phase that may run now; the result is the work
//! for the platform ([`Next`]): receive a body, make fetches, run a step on another thread, or send a response. Once that
//! is done, the platform calls again, and the steps continue.

use alloc::boxed::Box;
use alloc::format;
use core::mem;
use core::time::Duration;

use crate::action::Action;
use crate::exchange::Exchange;
use crate::output::{EditResponse, Output};
use crate::phase_id::PhaseId;
use crate::pipeline::{Entry, Pipeline};
use crate::plan::{Plan, PlannedStep};
use crate::response::Response;
use crate::state::State;
use crate::step::{Load, Verdict, WhenFull};

/// The start of the request's body is received after this phase.
const BEFORE_BODY: PhaseId = PhaseId::RequestSecurity;

/// The progress of an exchange through its steps.
#[derive(Debug, Default)]
pub struct Runner {
    /// The order of the next phase; earlier phases have run, or were skipped.
    next: usize,
    /// The number of steps of that phase that have had their turn.
    begun: usize,
    /// The number of steps of `response-body` that ran over a response which was then replaced: they do not run again.
    resume: usize,
    /// The state of the last step that has begun.
    turn: Turn,
    /// Set once the start of the request's body has been received.
    has_body: bool,
}

/// The state of the step that has begun last.
#[derive(Debug, Default)]
enum Turn {
    /// The step is over.
    #[default]
    Over,
    /// The platform runs the step on another thread.
    Away,
    /// The step runs on this thread, because no other thread was free.
    Here,
    /// The platform has reported the step's verdict, or the reason why there is none.
    Told(Result<Verdict, Fault>),
}

/// The work for the platform.
#[derive(Debug)]
pub enum Next<'p> {
    /// Nothing is left to do: all phases up to the requested one have run.
    Done,
    /// Receive the start of the request's body, if it has one, and call [`Runner::has_body`].
    Body,
    /// Make the requests of [`State::fetches`], and write their answers into the slots.
    Fetch,
    /// Run a step on another thread by [`Pipeline::run`], and pass its verdict to [`Runner::tell`]; without a free thread,
    /// pass [`Fault::Full`].
    Offload {
        /// The step.
        planned: &'p PlannedStep,
        /// The treatment if the queue is full, or no thread is free in time.
        when_full: WhenFull,
        /// The longest wait for a thread.
        wait: Duration,
    },
    /// A step has answered or aborted the request, or has failed.
    Ended(StepEnd),
}

/// The way in which a step has ended a request.
#[derive(Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// Send this response, which the step of this name has made.
    Answer(Box<Response>, &'static str),
    /// Close the connection or reset the stream, because the step of this name requires it.
    Abort(&'static str),
    /// The step of this name has failed, and the request cannot go on without it.
    Failed(&'static str, Fault),
}

/// The reason for a missing or invalid verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step has panicked.
    Panicked,
    /// The step is skipped because it has panicked too often.
    Broken,
    /// There was no thread for the step.
    Full(WhenFull),
    /// The step reads the request's body, and the stored body could not be read back.
    Unread,
    /// There is no memory for the values that the step has written.
    Memory,
    /// The exchange ended while the step was on another thread.
    Lost,
}

/// The thread that runs a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPlace {
    /// On this thread.
    Here,
    /// The thread that the step declares: see [`Pipeline::load`] and [`Platform::load`].
    Asked,
    /// Another thread, whatever the step declares.
    Elsewhere {
        /// The treatment if the queue is full, or no thread is free in time.
        when_full: WhenFull,
        /// The longest wait for a thread.
        wait: Duration,
    },
    /// No thread: the step is switched off for this exchange.
    Off,
    /// No thread: the step has panicked too often.
    Broken,
}

/// The platform that a [`Runner`] runs steps for.
pub trait Platform {
    /// Runs `work`. Returns false if it panicked: this crate itself cannot catch a panic.
    fn unharmed(work: impl FnOnce()) -> bool;

    /// The exchange as steps see it, and the values of steps.
    fn parts(&mut self) -> (&mut dyn Exchange, &mut State);

    /// Called before steps of a phase run. `anew` is true if the phase begins, and false if it continues after a wait.
    /// Default: does nothing.
    fn begins(&mut self, _phase: PhaseId, _anew: bool) {}

    /// The thread for the next step. Default: the thread that the step declares.
    fn place(&mut self, _entry: &Entry, _planned: &PlannedStep) -> StepPlace {
        StepPlace::Asked
    }

    /// The thread for a step that has asked for `load`. Default: as the step asks.
    fn load(&mut self, _entry: &Entry, _planned: &PlannedStep, load: Load) -> Load {
        load
    }

    /// Called after a step on this thread. `ran` is true if the step has run without a panic, and false if a filter has
    /// excluded it. Default: does nothing.
    fn took(&mut self, _planned: &PlannedStep, _ran: bool) {}

    /// A step has come to a verdict: counts that. Default: nothing.
    fn ran(&mut self, _planned: &PlannedStep) {}

    /// Called when a step has left something to count or to write: takes events, tallies and lines out of the state.
    fn news(&mut self, entry: &Entry, planned: &PlannedStep);

    /// Counts further memory that values hold. Returns false if so much is not available. Default: true.
    fn hold(&mut self, _bytes: usize) -> bool {
        true
    }

    /// A step ends the request, or would have in a dry run: counts that.
    fn stopped(&mut self, entry: &Entry, planned: &PlannedStep);

    /// A step has failed: counts that, and whether the request goes on without it.
    fn failed(&mut self, entry: &Entry, planned: &PlannedStep, fault: Fault, goes_on: bool);
}

/// The reason why a run over steps on this thread has ended.
enum Came {
    /// All steps have run.
    All,
    /// The step that has begun last has to be judged.
    Verdict(Result<Verdict, Fault>),
    /// The step that has begun last has to run on another thread.
    Leaves(WhenFull, Duration),
}

/// The steps of a route.
#[derive(Clone, Copy)]
struct Route<'p> {
    pipeline: &'p Pipeline,
    plan: &'p Plan,
}

impl Runner {
    /// A runner for the phase `log` alone.
    pub fn of_log() -> Self {
        Self { next: PhaseId::Log.order(), ..Self::default() }
    }

    /// The position of the phase that is running or comes next. Earlier phases have run or were skipped.
    #[inline]
    pub fn next(&self) -> usize {
        self.next
    }

    /// Leaves out the phases before `phase` that have not run.
    pub fn skip_to(&mut self, phase: PhaseId) {
        if self.next < phase.order() {
            (self.next, self.begun, self.turn) = (phase.order(), 0, Turn::Over);
        }
    }

    /// The start of the request's body has been received, or there is none.
    pub fn has_body(&mut self) {
        self.has_body = true;
    }

    /// Takes the verdict of the step that was [to run on another thread](Next::Offload), or the reason why there is none.
    /// After [`Fault::Full`] with [`WhenFull::Inline`], the step runs on this thread.
    pub fn tell(&mut self, verdict: Result<Verdict, Fault>) {
        if matches!(self.turn, Turn::Away) {
            self.turn = match verdict {
                Err(Fault::Full(WhenFull::Inline)) => Turn::Here,
                verdict => Turn::Told(verdict),
            };
        }
    }

    /// If up to the end of phase `last` no step has to run and no body has to be received, skips to the next phase and
    /// returns true. Otherwise changes nothing and returns false.
    #[inline]
    pub fn passes(&mut self, plan: &Plan, last: PhaseId) -> bool {
        let passes = plan.next_phase(self.next, last).is_none() && !self.wants_body(plan, last);
        if passes {
            self.go_on_at(last.order() + 1);
        }
        passes
    }

    /// Runs the steps of all phases up to `last` that have not run yet. Stops when the platform has to do something first.
    pub fn run<'p>(
        &mut self,
        pipeline: &'p Pipeline,
        plan: &'p Plan,
        last: PhaseId,
        platform: &mut impl Platform,
    ) -> Next<'p> {
        let run = self.phases(Route { pipeline, plan }, last, platform);
        run.unwrap_or_else(|ended| {
            // No step will read the fetches of a phase that was cut short.
            platform.parts().1.forget_fetches();
            Next::Ended(ended)
        })
    }

    /// The response is replaced: the steps that ran over the head of the old response run again over the new head.
    /// `last` is the step that replaced the response or has failed. It does not run again, so there is no endless loop.
    pub fn start_over(
        &mut self,
        pipeline: &Pipeline,
        plan: &Plan,
        last: Option<&PlannedStep>,
        state: &mut State,
    ) {
        // If all steps of a phase have run, `next` is the phase after it.
        let at = PhaseId::ALL.get(self.next).copied().unwrap_or(PhaseId::Log).min(PhaseId::ResponseBody);
        if !starts_over(Route { pipeline, plan }, at, last) {
            return;
        }
        forget_response(Route { pipeline, plan }, last, state);
        if self.next >= PhaseId::ResponseBody.order() {
            let all = plan.phase(PhaseId::ResponseBody).len();
            self.resume = if self.next == PhaseId::ResponseBody.order() { self.begun } else { all };
        }
        (self.next, self.begun, self.turn) = (PhaseId::ResponseHeaders.order(), 0, Turn::Over);
    }

    fn phases<'p>(
        &mut self,
        route: Route<'p>,
        last: PhaseId,
        platform: &mut impl Platform,
    ) -> Result<Next<'p>, StepEnd> {
        let wants_body = self.wants_body(route.plan, last);
        let last = if wants_body { BEFORE_BODY } else { last };
        while let Some(phase) = route.plan.next_phase(self.next, last) {
            self.go_on_at(phase.order());
            platform.begins(phase, self.begun == 0);
            if let Some(next) = self.steps(route, route.plan.phase(phase), platform)? {
                return Ok(next);
            }
            if !platform.parts().1.fetches.is_empty() {
                return Ok(Next::Fetch);
            }
            self.go_on_at(phase.order() + 1);
        }
        self.go_on_at(last.order() + 1);
        Ok(if wants_body { Next::Body } else { Next::Done })
    }

    /// Returns true if the start of the request's body has to be received on the way to `last`.
    #[inline]
    fn wants_body(&self, plan: &Plan, last: PhaseId) -> bool {
        !self.has_body && self.next <= BEFORE_BODY.order() + 1 && last > BEFORE_BODY && plan.body() > 0
    }

    /// Moves the cursor to `phase`: the phases before it have run, or have been left out.
    #[inline]
    fn go_on_at(&mut self, phase: usize) {
        if self.next < phase {
            self.next = phase;
            let resumes = phase == PhaseId::ResponseBody.order();
            self.begun = if resumes { mem::take(&mut self.resume) } else { 0 };
        }
    }

    /// Runs the steps of a phase that have not run yet, up to one that belongs on another thread.
    fn steps<'p, P: Platform>(
        &mut self,
        route: Route<'p>,
        steps: &'p [PlannedStep],
        platform: &mut P,
    ) -> Result<Option<Next<'p>>, StepEnd> {
        loop {
            let came = match mem::take(&mut self.turn) {
                Turn::Told(verdict) => Came::Verdict(verdict),
                // If the verdict of a step is missing, the step must not count as if it had let the request pass.
                Turn::Away => Came::Verdict(Err(Fault::Lost)),
                turn @ (Turn::Over | Turn::Here) => {
                    let is_here = matches!(turn, Turn::Here);
                    // A panic leaves this initial value.
                    let mut came = Came::Verdict(Err(Fault::Panicked));
                    P::unharmed(|| came = self.run_on(route.pipeline, steps, is_here, platform));
                    came
                }
            };
            let planned = self.begun.checked_sub(1).and_then(|last| steps.get(last));
            match (came, planned) {
                (Came::All, _) | (_, None) => return Ok(None),
                (Came::Leaves(when_full, wait), Some(planned)) => {
                    self.turn = Turn::Away;
                    return Ok(Some(Next::Offload { planned, when_full, wait }));
                }
                (Came::Verdict(verdict), Some(planned)) => self.judge(route, planned, verdict, platform)?,
            }
        }
    }

    /// Runs steps one after the other on this thread, as long as no decision is needed. With `is_here`, starts with the
    /// step that was begun last and has not run yet. One call runs many steps, because catching a panic costs about as
    /// much as a cheap step.
    fn run_on(
        &mut self,
        pipeline: &Pipeline,
        steps: &[PlannedStep],
        mut is_here: bool,
        platform: &mut impl Platform,
    ) -> Came {
        loop {
            // Counted before the step runs, because the step may panic.
            self.begun += usize::from(!is_here);
            let Some(planned) = self.begun.checked_sub(1).and_then(|last| steps.get(last)) else {
                self.begun = steps.len();
                return Came::All;
            };
            let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
            if platform.parts().1.skipped.contains(usize::from(planned.step)) {
                is_here = false;
                continue;
            }
            let place =
                if mem::take(&mut is_here) { StepPlace::Here } else { platform.place(entry, planned) };
            match place {
                StepPlace::Here => {}
                StepPlace::Off => continue,
                place => match leaves(pipeline, entry, planned, place, platform) {
                    Leaves::Passed => continue,
                    Leaves::Came(came) => return came,
                    Leaves::Stays => {}
                },
            }
            let (exchange, state) = platform.parts();
            let verdict = match pipeline.is_wanted(planned, exchange, state) {
                true => pipeline.run(planned, exchange, state),
                false => Verdict::Passed,
            };
            platform.took(planned, !matches!(verdict, Verdict::Passed));
            match verdict {
                Verdict::Passed => {}
                Verdict::Continue if !platform.parts().1.has_news() => platform.ran(planned),
                verdict => return Came::Verdict(Ok(verdict)),
            }
        }
    }

    /// Applies a step's verdict to the request.
    fn judge<P: Platform>(
        &mut self,
        route: Route<'_>,
        planned: &PlannedStep,
        verdict: Result<Verdict, Fault>,
        platform: &mut P,
    ) -> Result<(), StepEnd> {
        let Route { pipeline, plan } = route;
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { return Ok(()) };
        let fault = match verdict {
            Ok(Verdict::Passed) => return Ok(()),
            Ok(Verdict::Continue) => {
                platform.ran(planned);
                platform.news(entry, planned);
                let more = mem::take(&mut platform.parts().1.held);
                if more == 0 || platform.hold(more) {
                    return Ok(());
                }
                Fault::Memory
            }
            Ok(Verdict::Stop(action)) => {
                platform.ran(planned);
                return self.stop(route, (entry, planned), action, platform);
            }
            Err(fault) => fault,
        };
        let goes_on = goes_on(pipeline, entry, planned, fault);
        platform.failed(entry, planned, fault, goes_on);
        if goes_on && fault == Fault::Memory {
            // The request goes on without these values.
            let forgotten = P::unharmed(|| pipeline.forget(planned, platform.parts().1));
            if !forgotten {
                platform.failed(entry, planned, Fault::Panicked, true);
            }
        }
        if goes_on || self.is_in_log() {
            return Ok(());
        }
        self.start_over(pipeline, plan, Some(planned), platform.parts().1);
        Err(StepEnd::Failed(entry.decl().name, fault))
    }

    fn stop(
        &mut self,
        route: Route<'_>,
        (entry, planned): (&Entry, &PlannedStep),
        action: Action,
        platform: &mut impl Platform,
    ) -> Result<(), StepEnd> {
        let name = entry.decl().name;
        platform.stopped(entry, planned);
        let (_, state) = platform.parts();
        if planned.dry_run {
            let note = match &action {
                Action::Respond(response) => format!("{name}: {} {}", action.name(), response.status),
                Action::Abort => format!("{name}: {}", action.name()),
            };
            state.notes.push(("dry-run".into(), note.into()));
            return Ok(());
        }
        match action {
            _ if self.is_in_log() => Ok(()),
            Action::Abort => Err(StepEnd::Abort(name)),
            Action::Respond(response) => {
                // An error page keeps the fields of the error response that it replaces.
                if self.next != PhaseId::ResponseErrorPage.order() {
                    self.start_over(route.pipeline, route.plan, Some(planned), state);
                }
                Err(StepEnd::Answer(Box::new(response), name))
            }
        }
    }

    /// Returns true if the exchange is over: a step can no longer end it.
    fn is_in_log(&self) -> bool {
        self.next == PhaseId::Log.order()
    }
}

/// The thread for a step.
enum Leaves {
    /// A filter excludes the step. It is skipped on this thread, because handing it to another thread would only cost
    /// time.
    Passed,
    Stays,
    Came(Came),
}

fn leaves(
    pipeline: &Pipeline,
    entry: &Entry,
    planned: &PlannedStep,
    place: StepPlace,
    platform: &mut impl Platform,
) -> Leaves {
    let (exchange, state) = platform.parts();
    if !pipeline.applies(planned, exchange, state) {
        return Leaves::Passed;
    }
    let load = match place {
        StepPlace::Broken => return Leaves::Came(Came::Verdict(Err(Fault::Broken))),
        StepPlace::Elsewhere { when_full, wait } => Load::Heavy { when_full, wait },
        _ => pipeline.load(planned, exchange, state),
    };
    match platform.load(entry, planned, load) {
        Load::Light => Leaves::Stays,
        Load::Heavy { when_full, wait } => Leaves::Came(Came::Leaves(when_full, wait)),
    }
}

/// Returns true if a request goes on after a step has failed.
fn goes_on(pipeline: &Pipeline, entry: &Entry, planned: &PlannedStep, fault: Fault) -> bool {
    match fault {
        Fault::Full(WhenFull::Shed) => true,
        Fault::Panicked | Fault::Broken if entry.decl().optional => true,
        Fault::Panicked | Fault::Broken | Fault::Full(_) | Fault::Unread | Fault::Memory => {
            pipeline.may_fail(planned)
        }
        Fault::Lost => false,
    }
}

/// The phases with steps that run again over another response.
const ANEW: [PhaseId; 2] = [PhaseId::ResponseHeaders, PhaseId::ResponseErrorPage];

/// Returns true if a response is replaced in the phase `at` after steps from `response-headers` on have changed it:
/// these steps then run again.
fn starts_over(route: Route<'_>, at: PhaseId, last: Option<&PlannedStep>) -> bool {
    let Route { pipeline, plan } = route;
    let is_last = |planned: &PlannedStep| last.is_some_and(|last| last.step == planned.step);
    let edits = |planned: &PlannedStep| {
        let entry = pipeline.entries().get(usize::from(planned.step));
        let edits =
            |entry: &Entry| entry.decl().outputs.iter().any(|output| output.name == EditResponse::SLOT.name);
        entry.is_some_and(edits)
    };
    match at {
        PhaseId::ResponseHeaders => plan.phase(at).iter().take_while(|planned| !is_last(planned)).any(edits),
        PhaseId::ResponseErrorPage | PhaseId::ResponseBody => {
            ANEW.iter().any(|phase| !plan.phase(*phase).is_empty())
        }
        _ => false,
    }
}

/// Removes the values that steps have written about the old response, because they do not apply to the new response.
fn forget_response(route: Route<'_>, last: Option<&PlannedStep>, state: &mut State) {
    let Route { pipeline, plan } = route;
    if let Some(last) = last {
        state.skipped = state.skipped.with(usize::from(last.step));
    }
    for planned in ANEW.iter().flat_map(|phase| plan.phase(*phase)) {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
        // A value that was only passed through in this phase does not belong to the response.
        for slot in entry.emits().filter(|slot| !entry.takes().any(|taken| taken == *slot)) {
            state.slots.unwrite(slot);
        }
    }
    state.decided = plan.decided_by_request().both(state.decided);
    state.wanted = plan.decided_by_request().both(state.wanted);
}
