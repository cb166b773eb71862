//! The steps of modules, run between the platform's own.

mod bodies;
mod verdicts;

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use foregate_module::{
    self as module, Entry, FetchRequest, FetchResult, FetchTarget, Load, PhaseId, Pipeline, Plan, Planned,
    Question, Source, State, Summary, Verdict, Weight, WhenFull,
};

use super::asked::Asked;
use super::client::Client;
use super::fetch;
use super::inner::Judged;
use super::received::Head;
use super::respond::Answer;
use super::view::{Facts, View, now};
use super::{Exchange, Step};
use crate::counters::steps::{Input, StepCounters};
use crate::error::Error;
use crate::limits::account::Account;
use crate::link::LinkError;
use crate::offload::{LONG_BODY, LONGEST_WAIT, LONGEST_WAIT_OF_LONG};
use crate::time::clock;
use crate::time::timer::Timer;

thread_local! {
    /// The memory of exchanges that are over.
    #[allow(clippy::vec_box, reason = "the boxes are what is handed on")]
    static SHELF: RefCell<Vec<Box<Run>>> = const { RefCell::new(Vec::new()) };
}

/// How much of it a thread keeps.
const SHELVED: usize = 32;

/// What an exchange has beside its heads when its route uses steps.
pub(super) struct Run {
    /// What steps have written.
    pub state: State,
    /// What they have said of the exchange.
    pub facts: Facts,
    /// What the client has asked, where steps will look at that.
    pub asked: Asked,
    /// The order of the next phase; those before it have run, or have been left out.
    next: usize,
    /// How many steps of that phase have run already: a step that replaced the response ends its own turn, not the phase.
    begun: usize,
    /// How many steps of `response-body` have run over a response that another has replaced since: they do not run again.
    resume: usize,
}

impl Run {
    /// The phase that is running, or comes next.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// The phases before this one have run, or have been left out.
    fn go_on_at(&mut self, phase: usize) {
        if self.next < phase {
            self.next = phase;
            let resumes = phase == PhaseId::ResponseBody.order();
            self.begun = if resumes { std::mem::take(&mut self.resume) } else { 0 };
        }
    }
}

/// What stands in the way of the next steps.
enum Wait<'a> {
    /// What the steps of the phase have asked for.
    Fetches,
    /// A step belongs on another thread.
    Heavy { planned: &'a Planned, when_full: WhenFull, wait: Duration },
}

/// How a step has ended the usual way of a request.
pub(super) enum Ended {
    /// Answer with this, made by the step of this name.
    Answer(Box<module::Response>, &'static str),
    /// Break off, says the step of this name.
    Abort(&'static str),
    /// A step has failed, and the request cannot go on without it.
    Failed(Error),
}

impl From<Ended> for Step {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Answer(response, step) => Self::Answer(Answer::module(*response, step)),
            Ended::Abort(step) => Self::Broken(Error::Aborted(step)),
            Ended::Failed(error) => Self::Failed(error),
        }
    }
}

/// Why a step gave no verdict.
pub(super) enum Fault {
    Panicked,
    Broken,
    Full(WhenFull),
    /// The request is over, for another reason than the step.
    Lost(Error),
}

impl<'a> Exchange<'a> {
    /// Takes the steps of `plan` along.
    pub(super) fn use_plan(&mut self, plan: Option<&'a Arc<Plan>>) {
        self.plan = plan;
        self.run = plan.map(|plan| {
            let mut facts = Facts::new(self.request.length.is_empty());
            if plan.keeps_received() && self.refused.is_none() {
                facts.received = Some(Box::new(Head::of(self.request)));
            }
            match SHELF.with_borrow_mut(Vec::pop) {
                Some(mut run) => {
                    (run.facts, run.next, run.begun, run.resume) = (facts, 0, 0, 0);
                    run
                }
                None => {
                    let (state, asked) = (State::default(), Asked::default());
                    Box::new(Run { state, facts, asked, next: 0, begun: 0, resume: 0 })
                }
            }
        });
    }

    /// The exchange is over: another one of this thread may use its memory.
    pub(super) fn shelve_run(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        SHELF.with_borrow_mut(|shelf| {
            if shelf.len() < SHELVED {
                run.state.clear();
                run.asked.put_away();
                (run.facts.body, run.facts.spool, run.facts.held) = (None, None, None);
                (run.facts.response_body, run.facts.response_share) = (Vec::new(), None);
                run.facts.received = None;
                run.facts.shares = Vec::new();
                shelf.push(run);
            }
        });
    }

    /// The steps of the route, unless they are away with all that the exchange has for them.
    #[inline]
    pub(super) fn plan(&self) -> Option<&'a Arc<Plan>> {
        self.run.as_ref().and(self.plan)
    }

    /// Whether any step is planned in the phases from `first` to `last`.
    pub(super) fn has_steps(&self, first: PhaseId, last: PhaseId) -> bool {
        self.plan().is_some_and(|plan| plan.has_any(first, last))
    }

    /// Whether a body goes through filters.
    pub(super) fn has_filters(&self) -> bool {
        self.down.upload.filter.is_some() || self.down.download.filter.is_some()
    }

    /// Whom the request is taken to come from.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        let said = match &self.run {
            Some(run) => run.facts.client,
            None => self.away.as_ref().and_then(|away| away.client),
        };
        said.or_else(|| self.peer.client.map(|client| client.ip()))
    }

    /// The client on whose account the request holds memory and places.
    pub(super) fn account(&self) -> Account {
        Account::of(self.client_address())
    }

    /// Leaves out the phases before `phase` that have not run.
    pub(super) fn skip_to(&mut self, phase: PhaseId) {
        if let Some(run) = &mut self.run
            && run.next < phase.order()
        {
            run.next = phase.order();
            run.begun = 0;
        }
    }

    /// Tells steps who has made the response that they are about to see.
    pub(super) fn response_is_from(&mut self, source: Source<'static>) {
        if let Some(run) = &mut self.run {
            run.facts.source = source;
        }
    }

    /// Runs the steps of all phases up to `last` that have not run yet.
    #[inline]
    pub(super) async fn run_phases(&mut self, last: PhaseId) -> Result<(), Ended> {
        while self.next_phase(last).is_some() {
            let ran = match self.run_ahead(last) {
                Ok(None) => break,
                // Seldom, and large.
                Ok(Some(wait)) => Box::pin(self.wait_for(wait)).await,
                Err(ended) => Err(ended),
            };
            if let Err(ended) = ran {
                self.forget_fetches();
                return Err(ended);
            }
        }
        self.go_on_behind(last);
        Ok(())
    }

    /// Runs them as far as nothing has to be waited for.
    #[inline(never)]
    fn run_ahead(&mut self, last: PhaseId) -> Result<Option<Wait<'a>>, Ended> {
        let mut is_told = false;
        while let Some(phase) = self.next_phase(last) {
            // All steps of a phase are told the same, and so are all phases of one poll.
            let account = self.account();
            if let Some(run) = self.run.as_mut().filter(|run| !is_told && run.begun == 0) {
                run.facts.now = now();
                run.facts.memory_is_short = self.proxy.filter_memory.is_short(account);
                is_told = true;
            }
            if let Some(heavy) = self.run_phase(phase)? {
                return Ok(Some(heavy));
            }
            if self.run.as_ref().is_some_and(|run| !run.state.fetches.is_empty()) {
                return Ok(Some(Wait::Fetches));
            }
            self.go_on_behind(phase);
        }
        Ok(None)
    }

    /// The next phase up to `last` that has steps.
    #[inline]
    fn next_phase(&mut self, last: PhaseId) -> Option<PhaseId> {
        let plan = self.plan?;
        let run = self.run.as_mut()?;
        let phase = plan.next_phase(run.next, last)?;
        run.go_on_at(phase.order());
        Some(phase)
    }

    /// The phases up to this one have run.
    fn go_on_behind(&mut self, phase: PhaseId) {
        if let Some(run) = &mut self.run {
            run.go_on_at(phase.order() + 1);
        }
    }

    /// Waits for what stands in the way of the next steps.
    async fn wait_for(&mut self, wait: Wait<'_>) -> Result<(), Ended> {
        match wait {
            Wait::Fetches => self.fetch_all().await,
            Wait::Heavy { planned, when_full, wait } => {
                let verdict = self.run_heavy(planned, when_full, wait).await;
                self.judge(planned, &self.config.settings.pipeline, verdict)
            }
        }
    }

    /// The response is to be another one: what steps have done to the head of the old one, they do to that of the new one.
    /// `last` is the step that has replaced it or has failed.
    pub(super) fn start_over(&mut self, last: Option<&Planned>) {
        let Some(plan) = self.plan else { return };
        let Some(run) = self.run.as_mut().filter(|_| !self.record.logged) else { return };
        // Where the steps of a phase have all run, `next` is behind it.
        let at = PhaseId::ALL.get(run.next).copied().unwrap_or(PhaseId::Log).min(PhaseId::ResponseBody);
        if self.config.settings.pipeline.starts_over(plan, at, last, &mut run.state) {
            if run.next >= PhaseId::ResponseBody.order() {
                let all = plan.phase(PhaseId::ResponseBody).len();
                run.resume = if run.next == PhaseId::ResponseBody.order() { run.begun } else { all };
            }
            (run.next, run.begun) = (PhaseId::ResponseHeaders.order(), 0);
        }
    }

    /// Nobody will read what the steps of an ended phase have asked for.
    fn forget_fetches(&mut self) {
        if let Some(run) = &mut self.run {
            for (slot, _) in std::mem::take(&mut run.state.fetches) {
                run.state.slots.take_question(slot);
            }
        }
    }

    /// Runs the steps of a phase that have not run yet, up to one that belongs on another thread.
    fn run_phase(&mut self, phase: PhaseId) -> Result<Option<Wait<'a>>, Ended> {
        let pipeline = &self.config.settings.pipeline;
        let mut since = self.proxy.steps.is_timed(clock::now).then(Instant::now);
        let steps = self.plan.map_or(&[][..], |plan| plan.phase(phase));
        while let Some(planned) = self.run_calmly(steps, &mut since)? {
            if let Some(run) = &mut self.run {
                run.begun += 1;
            }
            let verdict = match self.load(planned, pipeline) {
                Err(fault) => Err(fault),
                Ok(Load::Heavy { when_full, wait }) => {
                    return Ok(Some(Wait::Heavy { planned, when_full, wait }));
                }
                Ok(Load::Light) => {
                    let verdict = self.run_light(planned, pipeline);
                    if let Ok(Verdict::Continue | Verdict::Stop(_)) = &verdict {
                        took(&self.proxy.steps, planned, &mut since, self.phase_began());
                    }
                    verdict
                }
            };
            self.judge(planned, pipeline, verdict)?;
        }
        Ok(None)
    }

    /// Runs steps of a phase one after the other on this thread, as far as there is nothing to think about: up to one that may
    /// belong on another thread, which it gives.
    fn run_calmly(
        &mut self,
        steps: &'a [Planned],
        since: &mut Option<Instant>,
    ) -> Result<Option<&'a Planned>, Ended> {
        let (pipeline, counters) = (&self.config.settings.pipeline, &self.proxy.steps);
        let began = self.phase_began();
        let watched = counters.any_is_watched(began);
        loop {
            let Some((mut view, state, begun)) = self.parts() else { return Ok(None) };
            let in_file = view.facts.spool.is_some();
            // The verdict that has to be judged, of the step that ran last.
            let last = catch_unwind(AssertUnwindSafe(|| {
                for planned in steps.get(*begun..).unwrap_or_default() {
                    let entry = pipeline.entries().get(usize::from(planned.step))?;
                    let light = matches!(entry.decl().weight, Weight::Light);
                    if !light
                        || (in_file && entry.reads_body())
                        || (watched && counters.is_watched(planned.step, began))
                    {
                        return None;
                    }
                    *begun += 1;
                    if state.skipped.contains(usize::from(planned.step)) {
                        continue;
                    }
                    let verdict = call(planned, pipeline, &mut view, state);
                    if verdict != Verdict::Passed {
                        took(counters, planned, since, began);
                    }
                    match verdict {
                        Verdict::Passed => {}
                        Verdict::Continue if !state.has_news() => counters.ran(planned.step),
                        verdict => return Some(verdict),
                    }
                }
                None
            }));
            let verdict = match last {
                Ok(None) => return Ok(steps.get(*begun)),
                Ok(Some(verdict)) => Ok(verdict),
                Err(_) => Err(Fault::Panicked),
            };
            if let Some(planned) = begun.checked_sub(1).and_then(|ran| steps.get(ran)) {
                self.judge(planned, pipeline, verdict)?;
            }
        }
    }

    /// Where a step is to run. What does not run at all is not worth the way to another thread.
    fn load(&mut self, planned: &Planned, pipeline: &Pipeline) -> Result<Load, Fault> {
        let entry = pipeline.entries().get(usize::from(planned.step));
        let light = entry.is_none_or(|entry| matches!(entry.decl().weight, Weight::Light));
        // No worker reads files, nor holds what it would have read.
        let (in_file, is_long) = (self.is_in_file(planned), self.is_long(planned));
        if (light && !in_file && !self.is_slow(planned)) || self.is_broken(planned) {
            return Ok(Load::Light);
        }
        let Some((view, state)) = self.view() else { return Ok(Load::Light) };
        if state.skipped.contains(usize::from(planned.step)) {
            return Ok(Load::Light);
        }
        catch_unwind(AssertUnwindSafe(|| match pipeline.applies(planned, &view, state) {
            // On its worker it would hold up the requests of others, also those of other routes.
            true if light => {
                let optional = entry.is_some_and(|entry| entry.decl().optional);
                let when_full = if optional { WhenFull::Shed } else { WhenFull::Error };
                Load::Heavy { when_full, wait: LONGEST_WAIT }
            }
            true => match pipeline.load(planned, &view, state) {
                load @ Load::Heavy { when_full: WhenFull::Shed | WhenFull::Error, .. } => load,
                Load::Light if !in_file => Load::Light,
                _ if is_long => Load::Heavy { when_full: WhenFull::Error, wait: LONGEST_WAIT_OF_LONG },
                load => load,
            },
            false => Load::Light,
        }))
        .map_err(|_| Fault::Panicked)
    }

    /// Whether a step reads a body that lies in a file.
    pub(super) fn is_in_file(&self, planned: &Planned) -> bool {
        let entries = self.config.settings.pipeline.entries();
        self.run.as_ref().is_some_and(|run| run.facts.spool.is_some())
            && entries.get(usize::from(planned.step)).is_some_and(Entry::reads_body)
    }

    /// Whether a step reads a body that is long, wherever it lies: it waits for a thread in its turn.
    pub(super) fn is_long(&self, planned: &Planned) -> bool {
        let entries = self.config.settings.pipeline.entries();
        self.run.as_ref().is_some_and(|run| run.facts.spool.is_some() || run.facts.body().len() >= LONG_BODY)
            && entries.get(usize::from(planned.step)).is_some_and(Entry::reads_body)
    }

    /// Runs a step where it wants to.
    pub(super) async fn run_somewhere(
        &mut self,
        planned: &Planned,
        pipeline: &Pipeline,
    ) -> Result<Verdict, Fault> {
        match self.load(planned, pipeline)? {
            Load::Light => self.run_light(planned, pipeline),
            Load::Heavy { when_full, wait } => Box::pin(self.run_heavy(planned, when_full, wait)).await,
        }
    }

    /// Runs a step on this thread.
    pub(super) fn run_light(&mut self, planned: &Planned, pipeline: &Pipeline) -> Result<Verdict, Fault> {
        let (broken, now) = (self.is_broken(planned), self.phase_began());
        let suspect = self.proxy.steps.get(planned.step).filter(|step| step.is_suspected(now));
        // What the step is run with: it may make the head longer.
        let before = suspect.map(|step| (step, self.input_of(planned), clock::thread_time()));
        let Some((mut view, state)) = self.view() else { return Ok(Verdict::Passed) };
        if state.skipped.contains(usize::from(planned.step)) {
            return Ok(Verdict::Passed);
        }
        let verdict = catch_unwind(AssertUnwindSafe(|| match broken {
            false => Ok(call(planned, pipeline, &mut view, state)),
            true if pipeline.applies(planned, &view, state) => Err(Fault::Broken),
            true => Ok(Verdict::Passed),
        }))
        .unwrap_or(Err(Fault::Panicked));
        if let Some((step, input, before)) = before {
            step.used(clock::thread_time().saturating_sub(before), input, now);
        }
        verdict
    }

    /// When the phase began, in milliseconds of the steady clock.
    pub(super) fn phase_began(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.facts.now.steady_ms)
    }

    /// What a step may see and change; `None` where the route uses none.
    pub(super) fn view(&mut self) -> Option<(View<'_>, &mut State)> {
        self.parts().map(|(view, state, _)| (view, state))
    }

    /// The same, and how many steps of the phase have run.
    fn parts(&mut self) -> Option<(View<'_>, &mut State, &mut usize)> {
        let run = self.run.as_deref_mut()?;
        let view = View {
            request: self.request,
            response: self.response,
            peer: self.peer,
            config: self.config,
            site: self.site,
            route: self.route.map(|route| &**route),
            facts: &mut run.facts,
            asked: &run.asked,
            away: false,
        };
        Some((view, &mut run.state, &mut run.begun))
    }

    fn is_broken(&self, planned: &Planned) -> bool {
        self.proxy.steps.get(planned.step).is_some_and(|step| step.is_broken(self.phase_began()))
    }

    /// Whether a step that is said to be light has held a worker lately, with these settings and at most twice as much to look at.
    pub(super) fn is_slow(&self, planned: &Planned) -> bool {
        let counters = self.proxy.steps.get(planned.step);
        counters.is_some_and(|step| step.is_slow(|| self.input_of(planned), self.phase_began()))
    }

    /// What a step is run with: settings, and a request of some size, without what of it lies in a file: steps that read that are
    /// never run on workers.
    pub(super) fn input_of(&self, planned: &Planned) -> Input {
        let body = self.run.as_ref().map_or(0, |run| run.facts.body().len());
        let head = self.request.head.headers.arena_len() + self.request.head.target().len();
        Input { settings: Arc::as_ptr(&planned.settings).addr(), size: head + body }
    }

    /// Performs what the steps of the phase have asked for, all at once, unless the client gives up.
    async fn fetch_all(&mut self) -> Result<(), Ended> {
        let Some(run) = &mut self.run else { return Ok(()) };
        let asked: Vec<(u16, &str, Question)> = std::mem::take(&mut run.state.fetches)
            .into_iter()
            .filter_map(|(slot, step)| Some((slot, step, run.state.slots.take_question(slot)?)))
            .collect();
        let pipeline = Arc::clone(&self.config.settings.pipeline);
        let asker = self.asker();
        let (proxy, config, request) = (self.proxy, self.config, &*self.request);
        let answers = asked.into_iter().map(|(slot, step, Question { request: ask, dry })| {
            let asks = (request.authority(), asker.clone());
            async move { (slot, dry, fetch::fetch(proxy, config, asks, step, ask).await) }
        });
        let answers = std::pin::pin!(futures_util::future::join_all(answers));
        let answers = unless_gone(self.down.client, self.down.timer, answers).await.map_err(gone)?;
        if let Some(run) = &mut self.run {
            for (slot, dry, fetched) in answers {
                if let Some(slot) = pipeline.answer_slot(slot) {
                    run.state.slots.answer(slot, fetched.answer, dry);
                    // A step may answer the client with it.
                    run.facts.shares.extend(fetched.share.filter(|share| share.held() > 0));
                }
            }
        }
        Ok(())
    }

    /// Makes one request for the filter of a step before the response, unless the client gives up.
    pub(super) async fn fetch_one(
        &mut self,
        step: &'static str,
        mut ask: FetchRequest,
    ) -> Result<FetchResult, LinkError> {
        if ask.target == FetchTarget::Site {
            match Box::pin(self.judge_inner(ask)).await? {
                Judged::Ask(judged) => ask = judged,
                Judged::Answered(answer) => {
                    fetch::count(self.proxy, step, answer.as_ref().err());
                    return Ok(answer);
                }
            }
        }
        let asker = self.asker();
        let (proxy, config, request) = (self.proxy, self.config, &*self.request);
        let asks = (request.authority(), asker);
        let fetched = std::pin::pin!(fetch::fetch(proxy, config, asks, step, ask));
        // From here on it counts as the filter's.
        unless_gone(self.down.client, self.down.timer, fetched).await.map(|fetched| fetched.answer)
    }

    fn asker(&self) -> fetch::Asker {
        fetch::Asker { account: self.account(), holdings: self.peer.holdings.clone() }
    }

    /// What became of the exchange so far.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            bytes_in: self.down.upload.moved,
            bytes_out: self.down.download.sent,
            duration: self.record.start.elapsed(),
        }
    }

    /// Runs the steps of the phase `log`, whatever has become of the request.
    pub(super) fn run_log_phase(&mut self) {
        for mut filter in
            [self.down.upload.filter.take(), self.down.download.filter.take()].into_iter().flatten()
        {
            self.count_filters(&mut filter);
        }
        let summary = self.summary();
        let config = self.config;
        let Some(run) = &mut self.run else { return };
        run.facts.summary = summary;
        run.facts.now = now();
        for planned in self.plan.map_or(&[][..], |plan| plan.phase(PhaseId::Log)) {
            if self.logged_first && self.is_logged_first(planned) {
                continue;
            }
            let verdict = self.run_light(planned, &config.settings.pipeline);
            // Nothing is left that could be ended.
            let _ = self.judge(planned, &config.settings.pipeline, verdict);
        }
    }
}

/// Waits for `future`, or for the client to give up on the exchange.
async fn unless_gone<F: Future + Unpin>(
    client: &mut Client,
    timer: &mut Timer,
    mut future: F,
) -> Result<F::Output, LinkError> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(cx) {
            return Poll::Ready(Ok(output));
        }
        client.poll_abandoned(cx, timer).map(Err)
    })
    .await
}

fn gone(error: LinkError) -> Ended {
    Ended::Failed(Error::Client(error))
}

fn call(planned: &Planned, pipeline: &Pipeline, view: &mut View<'_>, state: &mut State) -> Verdict {
    if !pipeline.is_wanted(planned, view, state) {
        return Verdict::Passed;
    }
    pipeline.run(planned, view, state)
}

/// Counts how long a step took, if that is of interest.
fn took(counters: &StepCounters, planned: &Planned, since: &mut Option<Instant>, began: u64) {
    let Some(before) = *since else { return };
    let now = Instant::now();
    if let Some(counters) = counters.get(planned.step) {
        counters.took(now - before, began);
    }
    *since = Some(now);
}
