//! Runs the steps of modules between the proxy's own steps.

mod platform;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use foregate_module::settings::LogId;
use foregate_module::{
    Fault, FetchRequest, FetchResult, FetchTarget, Next, PhaseId, Plan, PlannedStep, Question, Runner,
    Source, State, Summary, Verdict, WhenFull,
};
use foregate_wire::NameId;

use super::bodies::count_filters;
use super::client::Client;
use super::fetch;
use super::heavy::run_heavy;
use super::inner::{InnerVerdict, judge_inner};
use super::inspect::{receive_start, wants_start};
use super::open_spans::ExchangeSpans;
use super::received::ReceivedHead;
use super::run::{Run, Which};
use super::spans;
use super::state::{Exchange, ExchangeEnd};
use super::view::{Facts, View};
use crate::counters::steps::StepInput;
use crate::error::Error;
use crate::limits::account::Account;
use crate::link::LinkError;
use crate::time::timer::Timer;

type ExchangeParts<'e> = (View<'e>, &'e mut State, &'e mut Runner, Option<&'e mut ExchangeSpans>);

impl<'a> Exchange<'a> {
    /// Starts the steps of `plan`.
    pub(super) fn use_plan(&mut self, plan: Option<&'a Arc<Plan>>) {
        self.modules.plan = plan;
        self.modules.run = plan.map(|plan| {
            let mut facts = Facts::new(self.request.length.is_empty());
            if plan.keeps_received() && self.record.refused.is_none() {
                facts.received = Some(Box::new(ReceivedHead::of(self.request)));
            }
            facts.had_authorization = self.routed.route.is_some_and(|route| route.cache.get().is_some())
                && self.request.head.headers.contains(NameId::Authorization);
            Run::of(facts)
        });
    }

    /// Creates the state for steps if the exchange has none. Returns true if it did.
    pub(super) fn begin_run(&mut self) -> bool {
        let is_new = self.modules.run.is_none();
        if is_new {
            self.modules.run = Some(Run::of(Facts::new(self.request.length.is_empty())));
        }
        is_new
    }

    /// The exchange is over: another one of this thread may use its memory.
    pub(super) fn shelve_run(&mut self) {
        if let Some(run) = self.modules.run.take() {
            run.shelve();
        }
    }

    /// The steps of the route; `None` while their state is lent to another thread.
    #[inline]
    pub(super) fn plan(&self) -> Option<&'a Arc<Plan>> {
        self.modules.run.as_ref().and(self.modules.plan)
    }

    /// Returns true if any step is planned in the phases from `first` to `last`.
    pub(super) fn has_steps(&self, first: PhaseId, last: PhaseId) -> bool {
        self.plan().is_some_and(|plan| plan.has_any(first, last))
    }

    /// Returns true if a body is filtered.
    pub(super) fn has_filters(&self) -> bool {
        self.down.upload.filter.is_some() || self.down.download.filter.is_some()
    }

    /// The effective client address.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        if let Some(shielded) = self.shielded() {
            return shielded.client();
        }
        let said = match &self.modules.run {
            Some(run) => run.facts.client,
            None => self.modules.away.as_ref().and_then(|away| away.client),
        };
        said.or_else(|| self.down.peer.addresses.client.map(|client| client.ip()))
    }

    /// The account on which the request holds memory and places.
    pub(super) fn account(&self) -> Account {
        Account::of(self.client_address())
    }

    /// Leaves out the phases before `phase` that have not run.
    pub(super) fn skip_to(&mut self, phase: PhaseId) {
        if let Some(run) = &mut self.modules.run {
            run.runner.skip_to(phase);
        }
    }

    /// Sets the source of the response for later steps.
    pub(super) fn response_is_from(&mut self, source: Source<'static>) {
        if let Some(run) = &mut self.modules.run {
            run.facts.source = source;
        }
    }

    /// Runs the steps of all phases up to `last` that have not run yet.
    #[inline]
    pub(super) async fn run_phases(&mut self, last: PhaseId) -> Result<(), ExchangeEnd> {
        loop {
            let (Some(plan), Some(run)) = (self.modules.plan, &mut self.modules.run) else { return Ok(()) };
            if run.runner.passes(plan, last) {
                return Ok(());
            }
            match self.run_ahead(plan, last)? {
                Next::Done => return Ok(()),
                // Boxed, because it is rare and large.
                next => Box::pin(self.wait_for(next)).await?,
            }
        }
    }

    /// Runs these steps until one has to wait for something.
    #[inline(never)]
    fn run_ahead(&mut self, plan: &'a Plan, last: PhaseId) -> Result<Next<'a>, ExchangeEnd> {
        let pipeline = &self.config.settings.pipeline;
        let Some((mut platform, runner)) = self.platform(Which::All) else { return Ok(Next::Done) };
        match runner.run(pipeline, plan, last, &mut platform) {
            Next::Ended(ended) => {
                platform.ends();
                Err(platform.ended(ended))
            }
            Next::Done => {
                platform.ends();
                Ok(Next::Done)
            }
            next => Ok(next),
        }
    }

    /// Does the work that the next steps wait for.
    async fn wait_for(&mut self, next: Next<'_>) -> Result<(), ExchangeEnd> {
        match next {
            Next::Done | Next::Ended(_) => {}
            Next::Fetch => self.fetch_all().await?,
            Next::Body => {
                if wants_start(self) {
                    receive_start(self).await.map_err(ExchangeEnd::Failed)?;
                }
                if let Some(run) = &mut self.modules.run {
                    run.runner.has_body();
                }
            }
            Next::Offload { planned, when_full, wait } => {
                let verdict = self.run_elsewhere(planned, when_full, wait).await;
                if let Some(run) = &mut self.modules.run {
                    run.runner.tell(verdict);
                }
            }
        }
        Ok(())
    }

    /// Runs a step on another thread.
    async fn run_elsewhere(
        &mut self,
        planned: &PlannedStep,
        when_full: WhenFull,
        wait: Duration,
    ) -> Result<Verdict, Fault> {
        run_heavy(self, planned, when_full, wait).await.unwrap_or_else(|error| {
            if let Some(run) = &mut self.modules.run {
                run.lost = Some(error);
            }
            Err(Fault::Lost)
        })
    }

    /// Runs steps of the phase `log`, on other threads if `which` allows that. Returns the files for which they have
    /// written lines. These steps cannot end the request.
    pub(super) async fn run_log(&mut self, plan: &Plan, which: Which) -> Vec<LogId> {
        let pipeline = &self.config.settings.pipeline;
        let mut runner = Runner::of_log();
        let mut logs = Vec::new();
        loop {
            let Some((mut platform, _)) = self.platform(which) else { return logs };
            let next = runner.run(pipeline, plan, PhaseId::Log, &mut platform);
            logs.append(&mut platform.logs);
            let Next::Offload { planned, when_full, wait } = next else {
                platform.ends();
                return logs;
            };
            runner.tell(Box::pin(self.run_elsewhere(planned, when_full, wait)).await);
        }
    }

    /// Restarts the steps of the response, because the response was replaced: they run again over the new head.
    pub(super) fn start_over(&mut self) {
        let Some(plan) = self.modules.plan else { return };
        let Some(run) = self.modules.run.as_mut().filter(|_| !self.record.logged) else { return };
        run.runner.start_over(&self.config.settings.pipeline, plan, None, &mut run.state);
    }

    /// Returns true while a page replaces an error.
    pub(super) fn is_at_error_page(&self) -> bool {
        self.modules.run.as_ref().is_some_and(|run| run.runner.next() == PhaseId::ResponseErrorPage.order())
    }

    /// The state that a step may see and change; `None` if the route uses no steps.
    pub(super) fn view(&mut self) -> Option<(View<'_>, &mut State)> {
        self.parts().map(|(view, state, ..)| (view, state))
    }

    /// The state, the progress of the steps, and the spans.
    fn parts(&mut self) -> Option<ExchangeParts<'_>> {
        let run = self.modules.run.as_deref_mut()?;
        let view = View {
            request: self.request,
            response: self.response,
            peer: self.down.peer,
            config: self.config,
            site: self.routed.site,
            route: self.routed.route.map(|route| &**route),
            facts: &mut run.facts,
            asked: &run.asked,
            away: false,
        };
        Some((view, &mut run.state, &mut run.runner, self.rare.spans.as_deref_mut()))
    }

    /// When the phase began, in milliseconds of the steady clock.
    pub(super) fn phase_began(&self) -> u64 {
        self.modules.run.as_ref().map_or(0, |run| run.facts.now.steady_ms)
    }

    /// Returns true if a step reads a long body, in memory or in a file: it queues for a thread.
    pub(super) fn is_long(&mut self, planned: &PlannedStep) -> bool {
        let entry = self.config.settings.pipeline.entries().get(usize::from(planned.step));
        entry.zip(self.view()).is_some_and(|(entry, (view, _))| view.is_long(entry))
    }

    /// The input of a light step that is known to be slow with such an input: with the same settings, an input of at most
    /// twice this size has recently blocked a worker. `None` for other steps.
    pub(super) fn slow_with(&mut self, planned: &PlannedStep) -> Option<StepInput> {
        let counters = self.proxy.steps.get(planned.step)?;
        let (view, _) = self.view()?;
        let input = view.input_of(planned);
        counters.is_slow(|| input, view.facts.now.steady_ms).then_some(input)
    }

    /// Makes the fetches that the steps of a phase asked for, in parallel. Stops if the client gives up.
    async fn fetch_all(&mut self) -> Result<(), ExchangeEnd> {
        let Some(run) = &mut self.modules.run else { return Ok(()) };
        let asked: Vec<(u16, &str, Question)> = std::mem::take(&mut run.state.fetches)
            .into_iter()
            .filter_map(|(slot, step)| Some((slot, step, run.state.slots.take_question(slot)?)))
            .collect();
        let pipeline = Arc::clone(&self.config.settings.pipeline);
        let asker = self.asker();
        let (proxy, config, request) = (self.proxy, self.config, &*self.request);
        let answers = asked.into_iter().map(|(slot, step, Question { request: ask, dry })| {
            let asks = (request.authority.as_str(), asker.clone());
            async move { (slot, dry, fetch::fetch(proxy, config, asks, step, ask).await) }
        });
        let answers = std::pin::pin!(futures_util::future::join_all(answers));
        let answers = unless_gone(self.down.client, self.down.timer, answers).await.map_err(gone)?;
        if let Some(run) = &mut self.modules.run {
            for (slot, dry, fetched) in answers {
                if let Some(slot) = pipeline.answer_slot(slot) {
                    run.state.slots.answer(slot, fetched.answer, dry);
                    // A step may answer the client with this body, so its memory counts until the end of the exchange.
                    run.facts.shares.extend(fetched.share.filter(|share| share.held() > 0));
                }
            }
        }
        Ok(())
    }

    /// Makes one request for a filter of the response. Stops if the client gives up.
    pub(super) async fn fetch_one(
        &mut self,
        step: &'static str,
        mut ask: FetchRequest,
    ) -> Result<FetchResult, LinkError> {
        if ask.target == FetchTarget::Site {
            match Box::pin(judge_inner(self, ask)).await? {
                InnerVerdict::Ask(judged) => ask = judged,
                InnerVerdict::Answered(answer) => {
                    fetch::count(self.proxy, step, answer.as_ref().err());
                    return Ok(answer);
                }
            }
        }
        let asker = self.asker();
        let (proxy, config, request) = (self.proxy, self.config, &*self.request);
        let asks = (request.authority.as_str(), asker);
        let fetched = std::pin::pin!(fetch::fetch(proxy, config, asks, step, ask));
        // The share of memory is dropped: from here on the answer counts as memory of the filter.
        unless_gone(self.down.client, self.down.timer, fetched).await.map(|fetched| fetched.answer)
    }

    fn asker(&self) -> fetch::FetchPayer {
        fetch::FetchPayer {
            account: self.account(),
            holdings: self.down.peer.holdings.clone(),
            trace: self.modules.run.as_ref().and_then(|run| run.facts.trace),
            span: spans::span_parent(self),
        }
    }

    /// The outcome of the exchange so far.
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
            count_filters(self, &mut filter);
        }
        let summary = self.summary();
        let (Some(plan), Some(run)) = (self.modules.plan, &mut self.modules.run) else { return };
        run.facts.summary = summary;
        let pipeline = &self.config.settings.pipeline;
        let which = Which::Logged { first: self.record.logged_first };
        if let Some((mut platform, _)) = self.platform(which) {
            // The result does not matter: the request is over, so no step can end it.
            Runner::of_log().run(pipeline, plan, PhaseId::Log, &mut platform);
            platform.ends();
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

fn gone(error: LinkError) -> ExchangeEnd {
    ExchangeEnd::Failed(Error::Client(error))
}
