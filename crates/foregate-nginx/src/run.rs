//! Runs the steps of a request, phase by phase.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use foregate_module::{
    Action, Chain, Exchange as _, Filtered, PhaseId, Pipeline, Planned, Question, Response, Source, Verdict,
};

use crate::body::{Body, Broken, Moved};
use crate::exchange::Exchange;
use crate::fetch::{Asked, For};
use crate::ffi::{BodyOf, Facts, Host, Level, Maker, Outcome, Shaped, Summary};
use crate::request::{Request, Run};

/// The most that is kept of a response's body for the steps that look at it, bytes.
const HOLD_LIMIT: usize = 1 << 20;

/// Steps and filters that have panicked in this process.
pub(crate) static PANICS: AtomicU64 = AtomicU64::new(0);

/// How a step has ended the usual way of a request.
enum Ended {
    /// Answer with this, made by the step of this name.
    Answer(Box<Response>, &'static str),
    /// Break off.
    Abort,
    /// A step has failed, and the request cannot go on without it.
    Failed,
    /// It has not ended: what steps have asked for has to come first.
    Fetch,
}

/// Why a step gave no verdict.
struct Panicked;

/// Runs the steps of the request.
pub(crate) fn request(request: &mut Request, host: Host<'_>, facts: &Facts<'_>) -> Outcome {
    let Request { run, kept } = request;
    kept.now = host.now();
    let mut exchange = Exchange::of_request(host, facts, kept);
    match run.request_phases(&mut exchange) {
        Ok(outcome) => outcome,
        Err(Ended::Answer(response, step)) => {
            run.step = step;
            exchange.answer(&response, step);
            Outcome::Answer
        }
        Err(Ended::Abort) => Outcome::Abort,
        Err(Ended::Failed) => Outcome::Failed,
        Err(Ended::Fetch) => Outcome::Fetch,
    }
}

/// Runs the steps of the response, whoever made it; says what becomes of its body.
pub(crate) fn response(
    request: &mut Request,
    host: Host<'_>,
    facts: &Facts<'_>,
    status: u16,
    maker: Maker,
    body: BodyOf,
) -> (Outcome, Shaped) {
    let Request { run, kept } = request;
    kept.now = host.now();
    let first = match maker {
        Maker::Origin => {
            kept.source = Source::Upstream;
            PhaseId::UpstreamResponse
        }
        Maker::Step => PhaseId::ResponseHeaders,
        Maker::Error => {
            kept.source = Source::Error("nginx");
            PhaseId::ResponseHeaders
        }
    };
    run.skip_to(first);
    let mut exchange = Exchange::of_response(host, facts, kept, status);
    let mut body = body;
    // Steps that have run do not run again, so that this comes to an end.
    loop {
        let held = run.phases(&mut exchange, PhaseId::ResponseErrorPage);
        if held.is_ok() && run.state.hold > 0 && body == BodyOf::Sent && exchange.kept.response_body.is_none()
        {
            let hold = run.state.hold.min(HOLD_LIMIT);
            return (Outcome::Hold, Shaped { hold, ..Shaped::default() });
        }
        let (answer, step) = match held.and_then(|()| run.phases(&mut exchange, PhaseId::ResponseBody)) {
            Ok(()) => break,
            Err(Ended::Answer(answer, step)) => (answer, step),
            Err(Ended::Failed) => {
                let response =
                    Response::new(500).body("text/plain; charset=utf-8", "500: a module has failed\n");
                (Box::new(response), "foregate")
            }
            Err(Ended::Abort) => return (Outcome::Abort, Shaped::default()),
            Err(Ended::Fetch) => return (Outcome::Fetch, Shaped::default()),
        };
        run.step = step;
        // They were chosen for another response.
        run.state.response_filters.clear();
        exchange.answer(&answer, step);
        run.skip_to(PhaseId::ResponseHeaders);
        run.replaced = true;
        body = match (answer.body.is_empty() || answer.status == 204, body) {
            (true, _) => BodyOf::Empty,
            _ if exchange.method() == b"HEAD" || answer.status == 304 => BodyOf::Unsent,
            (false, _) => BodyOf::Sent,
        };
    }
    let status = exchange.status;
    let outcome = if run.replaced { Outcome::Answer } else { Outcome::GoOn };
    (outcome, run.take_filters(status, body))
}

/// Moves the response's body through its filters; `None` when there are none. Nothing moves while a filter waits for what it
/// has asked for.
pub(crate) fn body(
    request: &mut Request,
    host: Host<'_>,
    input: &[u8],
    (end, flush): (bool, bool),
    out: &mut [u8],
) -> Option<Result<Moved, Broken>> {
    let Request { run, kept } = request;
    let body = run.body.as_mut()?;
    // At most one is asked for by a filter at a time.
    if run.asked.iter().any(Asked::is_answered)
        && let Some(asked) = run.asked.pop()
    {
        body.give(asked.into_answer());
    }
    let mut moved = body.move_on(input, end, flush, out);
    if let Ok(Moved { question: Some(question), .. }) = &mut moved {
        kept.now = host.now();
        let (answers, now) = (&run.route.answers, kept.now.steady_ms);
        let asked = Asked::new(For::Filter, question.clone(), host, &kept.authority, answers, now);
        run.asked = vec![asked];
    }
    Some(moved)
}

/// Runs the steps of the log.
pub(crate) fn log(request: &mut Request, host: Host<'_>, facts: &Facts<'_>, status: u16, summary: Summary) {
    let Request { run, kept } = request;
    kept.now = host.now();
    kept.summary = summary;
    let mut exchange = Exchange::of_response(host, facts, kept, status);
    run.skip_to(PhaseId::Log);
    if let Some(mut body) = run.body.take() {
        body.report(&mut |finding| run.count(finding.step, finding.event, finding.count));
    }
    // Nothing is left that could be ended.
    let _ = run.phases(&mut exchange, PhaseId::Log);
}

impl Run {
    /// Runs the phases of the request, or as many as can without its body.
    fn request_phases(&mut self, exchange: &mut Exchange<'_, '_>) -> Result<Outcome, Ended> {
        let route = Rc::clone(&self.route);
        if self.next == 0 && route.plan.keeps_received() {
            exchange.keep_received();
        }
        if self.next <= PhaseId::RequestIdentity.order() {
            self.phases(exchange, PhaseId::RequestIdentity)?;
            exchange.remove_identity(route.plan.identity());
        }
        self.phases(exchange, PhaseId::RequestSecurity)?;
        let wants_body = route.plan.body() > 0 && exchange.request_length() != Some(0);
        if wants_body && exchange.kept.request_body.is_none() {
            return Ok(Outcome::ReadBody);
        }
        self.phases(exchange, PhaseId::UpstreamRequest)?;
        self.check_upload(exchange.host)?;
        Ok(Outcome::GoOn)
    }

    /// Leaves out the phases before `phase` that have not run.
    fn skip_to(&mut self, phase: PhaseId) {
        if self.next < phase.order() {
            self.next = phase.order();
            self.begun = 0;
            // Nobody asks for it any more.
            self.state.fetches.clear();
            self.asked.clear();
        }
    }

    /// Runs the steps of all phases up to `last` that have not run yet, or as many as can without an answer that is not there.
    fn phases(&mut self, exchange: &mut Exchange<'_, '_>, last: PhaseId) -> Result<(), Ended> {
        let route = Rc::clone(&self.route);
        while self.next <= last.order() {
            let Some(phase) = PhaseId::ALL.get(self.next) else { break };
            self.hand_over(&route.pipeline);
            let steps = route.plan.phase(*phase).get(self.begun..).unwrap_or_default();
            for planned in steps {
                self.begun += 1;
                let verdict = self.step(&route.pipeline, planned, exchange);
                self.judge(&route.pipeline, planned, verdict, exchange.host)?;
            }
            if self.ask(exchange) {
                return Err(Ended::Fetch);
            }
            self.hand_over(&route.pipeline);
            self.next += 1;
            self.begun = 0;
        }
        Ok(())
    }

    fn step(
        &mut self,
        pipeline: &Pipeline,
        planned: &Planned,
        exchange: &mut Exchange<'_, '_>,
    ) -> Result<Verdict, Panicked> {
        let number = usize::from(planned.step);
        if self.off.contains(number) || self.state.skipped.contains(number) {
            return Ok(Verdict::Passed);
        }
        let state = &mut self.state;
        catch_unwind(AssertUnwindSafe(|| match pipeline.is_wanted(planned, exchange, state) {
            true => pipeline.run(planned, exchange, state),
            false => Verdict::Passed,
        }))
        .map_err(|_| Panicked)
    }

    /// What a step's verdict means for the request.
    fn judge(
        &mut self,
        pipeline: &Pipeline,
        planned: &Planned,
        verdict: Result<Verdict, Panicked>,
        host: Host<'_>,
    ) -> Result<(), Ended> {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { return Ok(()) };
        let (name, optional) = (entry.decl().name, entry.decl().optional);
        match verdict {
            Ok(Verdict::Passed) => Ok(()),
            Ok(Verdict::Continue) => {
                for event in std::mem::take(&mut self.state.events) {
                    self.count(name, event, 1);
                }
                for (what, which) in std::mem::take(&mut self.state.tallies) {
                    self.count(name, &format!("{what}.{}", String::from_utf8_lossy(&which)), 1);
                }
                self.write_logs(host);
                Ok(())
            }
            Ok(Verdict::Stop(action)) if planned.dry_run => {
                let what = match &action {
                    Action::Respond(response) => format!("{} {}", action.name(), response.status),
                    Action::Abort => action.name().to_owned(),
                };
                self.state.notes.push(("dry-run".into(), format!("{name}: {what}").into()));
                Ok(())
            }
            Ok(Verdict::Stop(Action::Respond(response))) => Err(Ended::Answer(Box::new(response), name)),
            Ok(Verdict::Stop(Action::Abort)) => {
                self.step = name;
                Err(Ended::Abort)
            }
            Err(Panicked) => {
                PANICS.fetch_add(1, Ordering::Relaxed);
                host.log(Level::Error, &format!("step \"{name}\" has panicked"));
                self.count(name, "panic", 1);
                if optional || planned.dry_run { Ok(()) } else { Err(Ended::Failed) }
            }
        }
    }

    fn write_logs(&mut self, host: Host<'_>) {
        for line in std::mem::take(&mut self.state.lines) {
            if let Some(file) = self.route.logs.get(line.log.0 as usize) {
                host.write_log(*file, &line.line);
            }
        }
    }

    /// Takes what steps have asked the platform to fetch; says whether it has to be waited for.
    fn ask(&mut self, exchange: &Exchange<'_, '_>) -> bool {
        for slot in std::mem::take(&mut self.state.fetches) {
            let Some(Question { request, dry }) = self.state.slots.take_question(slot) else { continue };
            let (host, now) = (exchange.host, exchange.kept.now.steady_ms);
            let whom = For::Step { slot, dry };
            let asked = Asked::new(whom, request, host, exchange.authority(), &self.route.answers, now);
            self.asked.push(asked);
        }
        self.asked.iter().any(|asked| !asked.is_answered())
    }

    /// Hands over to steps what they have asked for.
    fn hand_over(&mut self, pipeline: &Pipeline) {
        for asked in std::mem::take(&mut self.asked) {
            if let For::Step { slot, dry } = asked.whom
                && let Some(slot) = pipeline.answer_slot(slot)
            {
                self.state.slots.answer(slot, asked.into_answer(), dry);
            }
        }
    }

    /// Refuses filters of the request's body. Files that lead to some are refused already.
    fn check_upload(&mut self, host: Host<'_>) -> Result<(), Ended> {
        let filters = std::mem::take(&mut self.state.request_filters);
        let Some(filter) = filters.first() else { return Ok(()) };
        let name = filter.name;
        host.log(
            Level::Error,
            &format!("step \"{name}\" filters the request's body, which is not done inside NGINX"),
        );
        Err(Ended::Failed)
    }

    /// Takes the filters that steps have put before the response's body, as far as they fit the response.
    fn take_filters(&mut self, status: Option<u16>, body: BodyOf) -> Shaped {
        let mut filters = std::mem::take(&mut self.state.response_filters);
        if status == Some(206) {
            // A part of a body cannot be changed as if it were all of it.
            filters.retain(|filter| filter.keeps_length);
        }
        if filters.is_empty() || body == BodyOf::Empty {
            return Shaped::default();
        }
        let changes = filters.iter().any(Filtered::changes_length);
        if body == BodyOf::Unsent {
            return Shaped { changes, ..Shaped::default() };
        }
        self.body = Some(Body::new(Chain::new(filters)));
        Shaped { filters: true, changes, hold: 0 }
    }
}
