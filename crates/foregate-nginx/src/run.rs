//! Runs the steps of a request, phase by phase.

use std::rc::Rc;

use foregate_module::{
    Bail, Chain, Exchange as _, Fault, Filtered, Next, PART_PASSED, PhaseId, Pipeline, Plan, Question,
    Response, Source, StepEnd, restore_validators,
};

use crate::body::{Body, BodyProgress};
use crate::border::{self, BodyOf, BodyTreatment, Facts, Level, Maker, Outcome};
use crate::exchange::Exchange;
use crate::fetch::{For, ModuleFetch};
use crate::ffi::{Host, Summary};
use crate::heavy::Work;
use crate::platform::RequestPlatform;
use crate::request::{Request, Run};

/// The most bytes of a response's body that are held for the steps that read it.
const HOLD_LIMIT: usize = 1 << 20;

/// The reason why no more steps run for now.
enum StopReason {
    /// The steps wait until NGINX has done this.
    Waits(Outcome),
    /// A step has ended the usual processing of the request.
    Ended(StepEnd),
}

/// A request's body cannot pass through its filters. Holds the status of the response.
pub(crate) struct Unreadable(pub u16);

/// Runs the steps of the request.
pub(crate) fn request(request: &mut Request, host: Host<'_>, facts: &Facts<'_>) -> Outcome {
    let Request { run, kept } = request;
    kept.now = host.now();
    let mut exchange = Exchange::of_request(host, facts, kept);
    match run.request_phases(&mut exchange) {
        Ok(outcome) | Err(StopReason::Waits(outcome)) => outcome,
        Err(StopReason::Ended(StepEnd::Answer(response, step))) => {
            run.step = step;
            exchange.answer(&response, step);
            Outcome::Answer
        }
        Err(StopReason::Ended(StepEnd::Abort(step))) => {
            run.step = step;
            Outcome::Abort
        }
        Err(StopReason::Ended(StepEnd::Failed(_, Fault::Full(_)))) => Outcome::Full,
        Err(StopReason::Ended(StepEnd::Failed(..))) => Outcome::Failed,
    }
}

/// Runs the steps of the response from any source; returns the treatment of its body.
pub(crate) fn response(
    request: &mut Request,
    host: Host<'_>,
    facts: &Facts<'_>,
    status: u16,
    maker: Maker,
    body: BodyOf,
) -> (Outcome, BodyTreatment) {
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
    // The loop ends, because a step that has replaced the response does not run again.
    loop {
        let held = run.phases(&mut exchange, PhaseId::ResponseErrorPage);
        if held.is_ok() && run.state.hold > 0 && body == BodyOf::Sent && exchange.kept.response_body.is_none()
        {
            let hold = run.state.hold.min(HOLD_LIMIT);
            return (Outcome::Hold, BodyTreatment { hold, ..BodyTreatment::default() });
        }
        let (answer, step) = match held.and_then(|()| run.phases(&mut exchange, PhaseId::ResponseBody)) {
            Ok(()) => break,
            Err(StopReason::Waits(outcome)) => return (outcome, BodyTreatment::default()),
            Err(StopReason::Ended(StepEnd::Answer(answer, step))) => (answer, step),
            Err(StopReason::Ended(StepEnd::Failed(_, Fault::Full(_)))) => {
                (made(503, "503: there is too much to do\n"), "foregate")
            }
            Err(StopReason::Ended(StepEnd::Failed(..))) => {
                (made(500, "500: a module has failed\n"), "foregate")
            }
            Err(StopReason::Ended(StepEnd::Abort(step))) => {
                run.step = step;
                return (Outcome::Abort, BodyTreatment::default());
            }
        };
        run.step = step;
        // The filters were chosen for another response.
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
    if status == Some(304) && run.route.plan.changes_bodies() {
        exchange.response_fields_mut().remove(b"content-length");
    }
    let outcome = if run.replaced { Outcome::Answer } else { Outcome::GoOn };
    (outcome, run.take_filters(status, body))
}

fn made(status: u16, text: &'static str) -> Box<Response> {
    Box::new(Response::new(status).body("text/plain; charset=utf-8", text))
}

/// Moves the request's body through its filters.
///
/// # Errors
///
/// The body cannot be moved further; the request is answered with the status in the error.
pub(crate) fn upload(
    request: &mut Request,
    host: Host<'_>,
    input: &[u8],
    end: bool,
    out: &mut [u8],
) -> Result<BodyProgress, Unreadable> {
    let run = &mut request.run;
    let failed = |step: &str, why: &str, status: u16| {
        // Errors below 500 are caused by the client.
        let level = if status < 500 { Level::Info } else { Level::Error };
        host.log(level, &format!("filter \"{step}\" of a request's body: {why}"));
        Unreadable(status)
    };
    let body = run.upload.as_mut().ok_or_else(|| failed("", "there is none", 500))?;
    let moved = match body.move_on(input, end, false, out) {
        // A filter of the request's body cannot wait for a fetch.
        Ok(BodyProgress { question: Some(_), .. }) => return Err(failed("", "it asks for something", 500)),
        Ok(moved) => moved,
        Err((Bail::TooLarge, step)) => return Err(failed(step, "it is too large", 413)),
        Err((_, step)) => return Err(failed(step, "it cannot be read", 400)),
    };
    run.bailed(&moved, host);
    if end && !moved.more && moved.consumed == input.len() {
        run.report_upload();
    }
    Ok(moved)
}

/// Moves the response's body through its filters. Returns `None` on an error. Nothing moves while a filter waits for a
/// fetch.
pub(crate) fn body(
    request: &mut Request,
    host: Host<'_>,
    input: &[u8],
    (end, flush): (bool, bool),
    out: &mut [u8],
) -> Option<BodyProgress> {
    let Request { run, kept } = request;
    let failed = |line: &str| host.log(Level::Error, line);
    let Some(body) = run.body.as_mut() else {
        failed("a body without filters");
        return None;
    };
    // Filters make at most one fetch at a time.
    if run.asked.iter().any(ModuleFetch::is_answered)
        && let Some(asked) = run.asked.pop()
    {
        body.give(asked.into_answer());
    }
    let moved = match body.move_on(input, end, flush, out) {
        Ok(moved) => moved,
        Err((Bail::TooLarge, step)) => {
            failed(&format!("filter \"{step}\": the body is too large"));
            return None;
        }
        Err((_, step)) => {
            failed(&format!("filter \"{step}\" has broken off a body"));
            return None;
        }
    };
    run.bailed(&moved, host);
    if let Some(question) = &moved.question {
        kept.now = host.now();
        let (answers, now) = (&run.route.answers, kept.now.steady_ms);
        let asked = ModuleFetch::new(For::Filter, question.clone(), host, &kept.authority, answers, now);
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
    run.report_upload();
    if let Some(mut body) = run.body.take() {
        body.report(&mut |finding| run.count(finding.step, finding.event, finding.count));
    }
    // The request is over, so there is nothing that a step could end.
    let _ = run.phases(&mut exchange, PhaseId::Log);
}

impl Run {
    /// Runs the phases of the request, or as many of them as can run before its body has been received.
    fn request_phases(&mut self, exchange: &mut Exchange<'_, '_>) -> Result<Outcome, StopReason> {
        let route = Rc::clone(&self.route);
        if self.runner.next() == 0 && route.plan.keeps_received() && exchange.kept.received.is_none() {
            exchange.keep_received();
        }
        if self.runner.next() <= PhaseId::RequestEarly.order() {
            self.phases(exchange, PhaseId::RequestEarly)?;
            // The fields are removed before a condition or the key of a limit reads them: a client may have forged them.
            exchange.remove_identity(route.plan.identity());
        }
        if exchange.request_length() == Some(0) || exchange.kept.request_body.is_some() {
            self.runner.has_body();
        }
        self.phases(exchange, PhaseId::UpstreamRequest)?;
        if exchange.kept.target_is_wrong {
            let answer = made(400, "400: a rule has made no path of this one\n");
            return Err(StopReason::Ended(StepEnd::Answer(answer, "foregate")));
        }
        if route.plan.changes_bodies() {
            restore_validators(exchange, 0);
        }
        if route.plan.renews() {
            Plan::renew(exchange);
        }
        Ok(self.take_upload_filters(exchange))
    }

    /// Records a filter that has given up.
    fn bailed(&mut self, moved: &BodyProgress, host: Host<'_>) {
        if let Some(step) = moved.bailed {
            self.count(step, "bailed", 1);
            host.log(Level::Warn, &format!("filter \"{step}\" has let the rest of a body pass unchanged"));
        }
    }

    /// Reports the findings of the request body's filters.
    fn report_upload(&mut self) {
        if let Some(mut body) = self.upload.take() {
            body.report(&mut |finding| self.count(finding.step, finding.event, finding.count));
        }
    }

    /// Leaves out the phases before `phase` that have not run.
    fn skip_to(&mut self, phase: PhaseId) {
        if self.runner.next() < phase.order() {
            self.runner.skip_to(phase);
            // The result is not needed any more.
            self.work = None;
            self.state.fetches.clear();
            self.asked.clear();
        }
    }

    /// Runs all phases up to `last` whose steps have not run yet, until a step needs input that is not available.
    fn phases(&mut self, exchange: &mut Exchange<'_, '_>, last: PhaseId) -> Result<(), StopReason> {
        let route = Rc::clone(&self.route);
        loop {
            self.hand_over(&route.pipeline);
            let mut platform = RequestPlatform {
                exchange,
                state: &mut self.state,
                events: &mut self.events,
                route: &route,
                off: self.off,
            };
            match self.runner.run(&route.pipeline, &route.plan, last, &mut platform) {
                Next::Done => return Ok(()),
                Next::Body => return Err(StopReason::Waits(Outcome::ReadBody)),
                Next::Fetch => {
                    if self.ask(exchange) {
                        return Err(StopReason::Waits(Outcome::Fetch));
                    }
                }
                Next::Offload { planned, when_full, wait } => {
                    let step = (&route.pipeline, planned);
                    self.work = Some(Work::new(exchange, &mut self.state, step, (when_full, wait)));
                    return Err(StopReason::Waits(Outcome::Offload));
                }
                Next::Ended(ended) => return Err(StopReason::Ended(ended)),
            }
        }
    }

    /// Prepares the fetches that steps have asked for. Returns true if the request has to wait for an answer.
    fn ask(&mut self, exchange: &Exchange<'_, '_>) -> bool {
        for (slot, _) in std::mem::take(&mut self.state.fetches) {
            let Some(Question { request, dry }) = self.state.slots.take_question(slot) else { continue };
            let Some(host) = exchange.host else { continue };
            let now = exchange.kept.now.steady_ms;
            let whom = For::Step { slot, dry };
            let asked = ModuleFetch::new(whom, request, host, exchange.authority(), &self.route.answers, now);
            self.asked.push(asked);
        }
        self.asked.iter().any(|asked| !asked.is_answered())
    }

    /// Passes the answers to the steps.
    fn hand_over(&mut self, pipeline: &Pipeline) {
        for asked in std::mem::take(&mut self.asked) {
            if let For::Step { slot, dry } = asked.whom
                && let Some(slot) = pipeline.answer_slot(slot)
            {
                self.state.slots.answer(slot, asked.into_answer(), dry);
            }
        }
    }

    /// Creates the filters that steps have chosen for the request's body, if there is a body.
    fn take_upload_filters(&mut self, exchange: &Exchange<'_, '_>) -> Outcome {
        let filters = std::mem::take(&mut self.state.request_filters);
        if !filters.is_empty() && exchange.request_length() != Some(0) {
            self.upload = Some(Body::new(Chain::guarded(filters, border::unharmed)));
        }
        if self.upload.is_some() { Outcome::FilterBody } else { Outcome::GoOn }
    }

    /// Takes the filters that steps have chosen for the response's body, if the response has a body that can be filtered.
    fn take_filters(&mut self, status: Option<u16>, body: BodyOf) -> BodyTreatment {
        let mut filters = std::mem::take(&mut self.state.response_filters);
        if status == Some(206) {
            Filtered::keep_for_part(&mut filters, |step| self.count(step, PART_PASSED, 1));
        }
        if filters.is_empty() || body == BodyOf::Empty {
            return BodyTreatment::default();
        }
        let changes = filters.iter().any(Filtered::changes_length);
        if body == BodyOf::Unsent {
            return BodyTreatment { changes, ..BodyTreatment::default() };
        }
        self.body = Some(Body::new(Chain::guarded(filters, border::unharmed)).streams());
        BodyTreatment { filters: true, changes, hold: 0 }
    }
}
