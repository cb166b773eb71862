//! The exchange as the platform of the runner. It decides on which thread steps run, and counts them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_module::settings::LogId;
use foregate_module::{
    self as module, Entry, Fault, Load, PhaseId, PlannedStep, Runner, State, StepPlace, Weight, WhenFull,
};

use super::super::state::ExchangeEnd;
use crate::counters::steps::{StepCounter, StepInput};
use crate::error::Error;
use crate::exchange::open_spans::ExchangeSpans;
use crate::exchange::run::Which;
use crate::exchange::state::Exchange;
use crate::exchange::view::{View, now};
use crate::limits::account::Account;
use crate::offload::{LONG_BODY, LONGEST_WAIT, LONGEST_WAIT_OF_LONG};
use crate::proxy::Proxy;
use crate::time::clock;

/// An exchange that runs steps until one has to wait for something.
pub(in crate::exchange) struct ExchangePlatform<'e> {
    proxy: &'e Proxy,
    view: View<'e>,
    state: &'e mut State,
    which: Which,
    /// True once the steps have got the time.
    is_told: bool,
    /// Set if any step is watched.
    is_watched: bool,
    /// When the last step has ended, if steps are timed.
    since: Option<Instant>,
    /// The step whose processor time is being measured, its input, and the processor time before its run.
    suspect: Option<(&'e StepCounter, StepInput, Duration)>,
    /// The error because of which a step on another thread has no verdict.
    lost: Option<Error>,
    /// The spans, if the trace of the request is recorded.
    spans: Option<&'e mut ExchangeSpans>,
    /// The log files for which steps have written lines.
    pub logs: Vec<LogId>,
}

impl<'e> ExchangePlatform<'e> {
    /// When the phase began, in milliseconds of the steady clock.
    fn began(&self) -> u64 {
        self.view.facts.now.steady_ms
    }

    fn account(&self) -> Account {
        let peer = || self.view.peer.addresses.client.map(|client| client.ip());
        Account::of(self.view.facts.client.or_else(peer))
    }

    fn counters(&self, planned: &PlannedStep) -> Option<&'e StepCounter> {
        self.proxy.steps.get(planned.step)
    }

    /// Decides where a step runs that is heavy, reads a file, or is watched.
    fn place_of(&mut self, entry: &Entry, planned: &PlannedStep) -> StepPlace {
        let began = self.began();
        let Some(counters) = self.counters(planned) else { return StepPlace::Asked };
        if counters.is_broken(began) {
            return StepPlace::Broken;
        }
        if !self.may_leave() {
            self.suspect(counters, planned);
            return StepPlace::Here;
        }
        if !matches!(entry.decl().weight, Weight::Light) {
            return StepPlace::Asked;
        }
        if self.reads_file(entry) || counters.is_slow(|| self.view.input_of(planned), began) {
            // On its worker the step would delay other requests, including those of other routes.
            let when_full = if entry.decl().optional { WhenFull::Shed } else { WhenFull::Error };
            return StepPlace::Elsewhere { when_full, wait: LONGEST_WAIT };
        }
        self.suspect(counters, planned);
        StepPlace::Here
    }

    /// Returns true if steps may run on another thread. In the phase `log` they may not, because the end of an exchange
    /// does not wait.
    fn may_leave(&self) -> bool {
        matches!(self.which, Which::All | Which::OfRefused)
    }

    /// Returns true if a step reads a body in a file. Workers neither read files nor hold their
    /// contents.
    fn reads_file(&self, entry: &Entry) -> bool {
        self.view.facts.spool.is_some() && entry.reads_body()
    }

    /// Before a suspected step runs, notes the processor time and the step's input. The input is noted now, because the
    /// step may make the head longer.
    fn suspect(&mut self, counters: &'e StepCounter, planned: &PlannedStep) {
        if counters.is_suspected(self.began()) {
            self.suspect = Some((counters, self.view.input_of(planned), clock::thread_time()));
        }
    }

    fn cleared(&mut self) {
        if let Some((counters, input, before)) = self.suspect.take() {
            counters.used(clock::thread_time().saturating_sub(before), input, self.began());
        }
    }

    fn is_off(&self, entry: &Entry, planned: &PlannedStep) -> bool {
        match self.which {
            Which::All => false,
            Which::LoggedFirst => !entry.logs_first(&planned.settings),
            Which::Logged { first } => first && entry.logs_first(&planned.settings),
            Which::OfRefused => !entry.reads_received(),
        }
    }

    /// Ends the span of the last phase. The steps of that phase have run.
    pub(super) fn ends(&mut self) {
        if let Some(spans) = &mut self.spans {
            spans.end_phase();
        }
    }

    /// Converts a step's end of the request into the end of the exchange.
    pub(super) fn ended(&mut self, ended: module::StepEnd) -> ExchangeEnd {
        match ended {
            module::StepEnd::Answer(response, _) if response.too_long => {
                ExchangeEnd::Failed(Error::ResponseTooLarge)
            }
            module::StepEnd::Answer(response, step) => ExchangeEnd::Answer(response, step),
            module::StepEnd::Abort(step) => ExchangeEnd::Abort(step),
            module::StepEnd::Failed(step, fault) => ExchangeEnd::Failed(self.error_of(step, fault)),
        }
    }

    fn error_of(&self, step: &'static str, fault: Fault) -> Error {
        match fault {
            Fault::Full(_) => Error::StepQueue(step),
            Fault::Panicked | Fault::Broken => Error::Step(step),
            Fault::Unread => Error::TemporaryFile,
            Fault::Memory => Error::FilterMemory,
            Fault::Lost => self.lost.unwrap_or(Error::Internal),
        }
    }
}

impl module::Platform for ExchangePlatform<'_> {
    #[inline]
    fn unharmed(work: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_ok()
    }

    #[inline]
    fn parts(&mut self) -> (&mut dyn module::Exchange, &mut State) {
        (&mut self.view, self.state)
    }

    fn begins(&mut self, phase: PhaseId, anew: bool) {
        if let Some(spans) = &mut self.spans {
            spans.begin_phase(phase.name());
        }
        // All steps of a phase get the same time, and so do all phases of one poll.
        if anew && !self.is_told {
            self.view.facts.now = now();
            self.view.facts.memory_is_short = self.proxy.filter_memory.is_short(self.account());
            self.is_told = true;
        }
        self.is_watched = self.proxy.steps.any_is_watched(self.began());
        self.since = self.proxy.steps.is_timed(clock::now).then(Instant::now);
    }

    #[inline]
    fn place(&mut self, entry: &Entry, planned: &PlannedStep) -> StepPlace {
        if self.which != Which::All && self.is_off(entry, planned) {
            return StepPlace::Off;
        }
        let is_plain = matches!(entry.decl().weight, Weight::Light)
            && !self.reads_file(entry)
            && !(self.is_watched && self.proxy.steps.is_watched(planned.step, self.began()));
        if is_plain { StepPlace::Here } else { self.place_of(entry, planned) }
    }

    fn load(&mut self, entry: &Entry, planned: &PlannedStep, load: Load) -> Load {
        let in_file = self.reads_file(entry);
        match load {
            Load::Heavy { when_full: WhenFull::Shed | WhenFull::Error, .. } => load,
            Load::Light if !in_file => {
                if let Some(counters) = self.counters(planned) {
                    self.suspect(counters, planned);
                }
                load
            }
            _ if self.view.is_long(entry) => {
                Load::Heavy { when_full: WhenFull::Error, wait: LONGEST_WAIT_OF_LONG }
            }
            load => load,
        }
    }

    #[inline]
    fn took(&mut self, planned: &PlannedStep, ran: bool) {
        if let Some(before) = self.since.filter(|_| ran) {
            let now = Instant::now();
            if let Some(counters) = self.counters(planned) {
                counters.took(now - before, self.began());
            }
            self.since = Some(now);
        }
        if self.suspect.is_some() {
            self.cleared();
        }
    }

    #[inline]
    fn ran(&mut self, planned: &PlannedStep) {
        self.proxy.steps.ran(planned.step);
    }

    fn news(&mut self, _: &Entry, planned: &PlannedStep) {
        let Some(counters) = self.counters(planned) else { return };
        self.state.events.drain(..).for_each(|event| counters.count(event, 1));
        self.state.tallies.drain(..).for_each(|(event, part)| counters.tally(event, &part));
        for line in self.state.lines.drain(..) {
            self.view.config.log(&line);
            if !self.logs.contains(&line.log) {
                self.logs.push(line.log);
            }
        }
    }

    fn hold(&mut self, bytes: usize) -> bool {
        let account = self.account();
        let none = || (0, self.proxy.filter_memory.share(account));
        let (held, share) = self.view.facts.held.get_or_insert_with(none);
        let holds = share.hold(held.saturating_add(bytes));
        if holds {
            *held = held.saturating_add(bytes);
        }
        holds
    }

    fn stopped(&mut self, _: &Entry, planned: &PlannedStep) {
        if let Some(counters) = self.counters(planned) {
            if planned.dry_run { counters.dry_stops.inc() } else { counters.stops.inc() }
        }
    }

    fn failed(&mut self, entry: &Entry, planned: &PlannedStep, fault: Fault, goes_on: bool) {
        self.cleared();
        if entry.reads_body() || fault == Fault::Memory {
            self.view.facts.unseen = Some(self.error_of(entry.decl().name, fault).kind());
        }
        let Some(counters) = self.counters(planned) else { return };
        match fault {
            Fault::Panicked => {
                self.proxy.metrics.panics.inc();
                counters.panics.inc();
                // Only optional steps are suspended after panics. If a required step were suspended, one client could cause an
                // outage for all with crafted requests.
                if entry.decl().optional {
                    counters.panicked(now().steady_ms);
                }
            }
            Fault::Broken => counters.broken.inc(),
            Fault::Full(_) => counters.shed.inc(),
            Fault::Memory if goes_on => counters.shed.inc(),
            Fault::Memory | Fault::Unread | Fault::Lost => {}
        }
    }
}

impl View<'_> {
    /// The input of a step: its settings, and the size of the request. A body in a file does not count, because steps that
    /// read it never run on workers.
    pub(in crate::exchange) fn input_of(&self, planned: &PlannedStep) -> StepInput {
        let head = self.request.head.headers.arena_len() + self.request.head.target().len();
        let size = head + self.facts.body().len();
        StepInput { settings: Arc::as_ptr(&planned.settings).addr(), size }
    }

    /// Returns true if a step reads a long body, in memory or in a file: it queues for a thread.
    pub(in crate::exchange) fn is_long(&self, entry: &Entry) -> bool {
        entry.reads_body() && (self.facts.spool.is_some() || self.facts.body().len() >= LONG_BODY)
    }
}

impl Exchange<'_> {
    /// The exchange as a platform for the steps of `which`, and the runner; `None` if the route uses no steps.
    pub(in crate::exchange) fn platform(
        &mut self,
        which: Which,
    ) -> Option<(ExchangePlatform<'_>, &mut Runner)> {
        let (proxy, lost) = (self.proxy, self.modules.run.as_ref()?.lost);
        let (view, state, runner, spans) = self.parts()?;
        let platform = ExchangePlatform {
            proxy,
            view,
            state,
            which,
            is_told: false,
            is_watched: false,
            since: None,
            suspect: None,
            lost,
            spans,
            logs: Vec::new(),
        };
        Some((platform, runner))
    }
}
