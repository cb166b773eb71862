//! Runs the steps of a request, phase by phase.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_module::{
    Action, Bail, Chain, Exchange as _, Filtered, Load, PART_PASSED, PhaseId, Pipeline, Plan, Planned,
    Question, Response, Source, Verdict, Weight, WhenFull, restore_validators,
};

use crate::body::{Body, Moved};
use crate::border::{self, BodyOf, Facts, Level, Maker, Outcome, PANICS, Shaped};
use crate::exchange::Exchange;
use crate::fetch::{Asked, For};
use crate::ffi::{Host, Summary};
use crate::heavy::{self, Fault, Turn, Work};
use crate::request::{Request, Run};

/// The most that is kept of a response's body for the steps that look at it, bytes.
const HOLD_LIMIT: usize = 1 << 20;

/// How a step has ended the usual way of a request.
enum Ended {
    /// Answer with this, made by the step of this name.
    Answer(Box<Response>, &'static str),
    /// Break off.
    Abort,
    /// A step has failed, and the request cannot go on without it.
    Failed,
    /// There was no thread for a heavy step.
    Full,
    /// It has not ended: what steps have asked for has to come first.
    Fetch,
    /// It has not ended: the next step runs on a thread.
    Offload,
}

/// The body of a request cannot go through its filters: the status that says why.
pub(crate) struct Unreadable(pub u16);

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
        Err(Ended::Full) => Outcome::Full,
        Err(Ended::Fetch) => Outcome::Fetch,
        Err(Ended::Offload) => Outcome::Offload,
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
    // A step that has replaced the response does not run again, so that this comes to an end.
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
            Err(Ended::Failed) => (made(500, "500: a module has failed\n"), "foregate"),
            Err(Ended::Full) => (made(503, "503: there is too much to do\n"), "foregate"),
            Err(Ended::Abort) => return (Outcome::Abort, Shaped::default()),
            Err(Ended::Fetch) => return (Outcome::Fetch, Shaped::default()),
            Err(Ended::Offload) => return (Outcome::Offload, Shaped::default()),
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
/// It cannot go on; the request is answered with this status.
pub(crate) fn upload(
    request: &mut Request,
    host: Host<'_>,
    input: &[u8],
    end: bool,
    out: &mut [u8],
) -> Result<Moved, Unreadable> {
    let run = &mut request.run;
    let failed = |step: &str, why: &str, status: u16| {
        // Clients can send what they like.
        let level = if status < 500 { Level::Info } else { Level::Error };
        host.log(level, &format!("filter \"{step}\" of a request's body: {why}"));
        Unreadable(status)
    };
    let body = run.upload.as_mut().ok_or_else(|| failed("", "there is none", 500))?;
    let moved = match body.move_on(input, end, false, out) {
        // Nobody answers while a request is on its way.
        Ok(Moved { question: Some(_), .. }) => return Err(failed("", "it asks for something", 500)),
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

/// Moves the response's body through its filters; `None` when it cannot go on. Nothing moves while a filter waits for what it
/// has asked for.
pub(crate) fn body(
    request: &mut Request,
    host: Host<'_>,
    input: &[u8],
    (end, flush): (bool, bool),
    out: &mut [u8],
) -> Option<Moved> {
    let Request { run, kept } = request;
    let failed = |line: &str| host.log(Level::Error, line);
    let Some(body) = run.body.as_mut() else {
        failed("a body without filters");
        return None;
    };
    // At most one is asked for by a filter at a time.
    if run.asked.iter().any(Asked::is_answered)
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
    run.report_upload();
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
        if self.next == 0 && route.plan.keeps_received() && exchange.kept.received.is_none() {
            exchange.keep_received();
        }
        if self.next <= PhaseId::RequestEarly.order() {
            self.phases(exchange, PhaseId::RequestEarly)?;
            // Before any condition or key looks at the fields: they would believe the client.
            exchange.remove_identity(route.plan.identity());
        }
        self.phases(exchange, PhaseId::RequestSecurity)?;
        let wants_body = route.plan.body() > 0 && exchange.request_length() != Some(0);
        if wants_body && exchange.kept.request_body.is_none() {
            return Ok(Outcome::ReadBody);
        }
        self.phases(exchange, PhaseId::UpstreamRequest)?;
        if exchange.kept.target_is_wrong {
            return Err(Ended::Answer(made(400, "400: a rule has made no path of this one\n"), "foregate"));
        }
        if route.plan.changes_bodies() {
            restore_validators(exchange);
        }
        if route.plan.renews() {
            Plan::renew(exchange);
        }
        Ok(self.take_upload_filters(exchange))
    }

    /// Takes note of a filter that has given up.
    fn bailed(&mut self, moved: &Moved, host: Host<'_>) {
        if let Some(step) = moved.bailed {
            self.count(step, "bailed", 1);
            host.log(Level::Warn, &format!("filter \"{step}\" has let the rest of a body pass unchanged"));
        }
    }

    /// Tells what the filters of the request's body have come across.
    fn report_upload(&mut self) {
        if let Some(mut body) = self.upload.take() {
            body.report(&mut |finding| self.count(finding.step, finding.event, finding.count));
        }
    }

    /// Leaves out the phases before `phase` that have not run.
    fn skip_to(&mut self, phase: PhaseId) {
        if self.next < phase.order() {
            self.next = phase.order();
            self.begun = 0;
            self.turn = Turn::Open;
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
                let verdict = self.step_somewhere(&route.pipeline, planned, exchange)?;
                self.begun += 1;
                self.judge(&route.pipeline, planned, verdict, exchange)?;
            }
            if self.ask(exchange) {
                return Err(Ended::Fetch);
            }
            self.hand_over(&route.pipeline);
            self.next += 1;
            let resumes = self.next == PhaseId::ResponseBody.order();
            self.begun = if resumes { std::mem::take(&mut self.resume) } else { 0 };
        }
        Ok(())
    }

    /// Runs a step, or says that it is to run on a thread; once it has, it is asked for again and gives its verdict.
    fn step_somewhere(
        &mut self,
        pipeline: &Arc<Pipeline>,
        planned: &Planned,
        exchange: &mut Exchange<'_, '_>,
    ) -> Result<Result<Verdict, Fault>, Ended> {
        match std::mem::take(&mut self.turn) {
            Turn::Told(verdict) => return Ok(verdict),
            Turn::Here => return Ok(self.step(pipeline, planned, exchange)),
            Turn::Open | Turn::Work(_) | Turn::Away => {}
        }
        let load = match self.load(pipeline, planned, exchange) {
            Ok(load) => load,
            Err(fault) => return Ok(Err(fault)),
        };
        match Work::new(exchange, &mut self.state, (pipeline, planned), load) {
            Some(work) => {
                self.turn = Turn::Work(work);
                Err(Ended::Offload)
            }
            None => Ok(self.step(pipeline, planned, exchange)),
        }
    }

    /// Where a step is to run. What does not run at all is not worth the way to a thread.
    fn load(
        &mut self,
        pipeline: &Pipeline,
        planned: &Planned,
        exchange: &Exchange<'_, '_>,
    ) -> Result<Load, Fault> {
        let number = usize::from(planned.step);
        let heavy = pipeline.entries().get(number).is_some_and(|entry| {
            !matches!(entry.decl().weight, Weight::Light) && heavy::can_leave(entry.decl())
        });
        // Nothing waits for the log.
        let goes = self.route.threads && self.next < PhaseId::Log.order();
        if !heavy || !goes || self.off.contains(number) || self.state.skipped.contains(number) {
            return Ok(Load::Light);
        }
        let state = &mut self.state;
        catch_unwind(AssertUnwindSafe(|| match pipeline.applies(planned, exchange, state) {
            true => pipeline.load(planned, exchange, state),
            false => Load::Light,
        }))
        .map_err(|_| Fault::Panicked)
    }

    fn step(
        &mut self,
        pipeline: &Pipeline,
        planned: &Planned,
        exchange: &mut Exchange<'_, '_>,
    ) -> Result<Verdict, Fault> {
        let number = usize::from(planned.step);
        if self.off.contains(number) || self.state.skipped.contains(number) {
            return Ok(Verdict::Passed);
        }
        let state = &mut self.state;
        catch_unwind(AssertUnwindSafe(|| match pipeline.is_wanted(planned, exchange, state) {
            true => pipeline.run(planned, exchange, state),
            false => Verdict::Passed,
        }))
        .map_err(|_| Fault::Panicked)
    }

    /// What a step's verdict means for the request.
    fn judge(
        &mut self,
        pipeline: &Pipeline,
        planned: &Planned,
        verdict: Result<Verdict, Fault>,
        exchange: &mut Exchange<'_, '_>,
    ) -> Result<(), Ended> {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { return Ok(()) };
        let (name, optional) = (entry.decl().name, entry.decl().optional);
        if let Some(fault) = verdict.as_ref().err().filter(|_| entry.reads_body()) {
            exchange.kept.unseen = Some(fault.kind());
        }
        match verdict {
            Ok(Verdict::Passed) => Ok(()),
            Ok(Verdict::Continue) => {
                for event in std::mem::take(&mut self.state.events) {
                    self.count(name, event, 1);
                }
                for (what, which) in std::mem::take(&mut self.state.tallies) {
                    self.count(name, &format!("{what}.{}", String::from_utf8_lossy(&which)), 1);
                }
                self.write_logs(exchange);
                Ok(())
            }
            Ok(Verdict::Stop(action)) if planned.dry_run => {
                let what = match &action {
                    Action::Respond(response) => format!("{} {}", action.name(), response.status),
                    Action::Abort => action.name().to_owned(),
                };
                self.state.notes.push(("dry-run".into(), format!("{name}: {what}").into()));
                self.count(name, "dry-run-stop", 1);
                Ok(())
            }
            Ok(Verdict::Stop(Action::Respond(response))) => {
                // Where a page takes the place of an error, it keeps the fields.
                if self.next != PhaseId::ResponseErrorPage.order() {
                    self.start_over(planned);
                }
                Err(Ended::Answer(Box::new(response), name))
            }
            Ok(Verdict::Stop(Action::Abort)) => {
                self.step = name;
                Err(Ended::Abort)
            }
            Err(Fault::Panicked) => {
                PANICS.fetch_add(1, Ordering::Relaxed);
                exchange.log(Level::Error, &format!("step \"{name}\" has panicked"));
                self.count(name, "panic", 1);
                if optional || pipeline.may_fail(planned) {
                    return Ok(());
                }
                self.start_over(planned);
                Err(Ended::Failed)
            }
            Err(Fault::Full(full)) => {
                exchange.log(Level::Warn, &format!("there is no thread for the step \"{name}\""));
                self.count(name, "shed", 1);
                if full == WhenFull::Shed || pipeline.may_fail(planned) {
                    return Ok(());
                }
                self.start_over(planned);
                Err(Ended::Full)
            }
        }
    }

    /// The response is to be another one: what steps have done to the head of the old one, they do to that of the new one.
    /// `last` is the step that has replaced it or has failed.
    fn start_over(&mut self, last: &Planned) {
        let route = Rc::clone(&self.route);
        let at = PhaseId::ALL.get(self.next).copied().unwrap_or(PhaseId::Log);
        if route.pipeline.starts_over(&route.plan, at, Some(last), &mut self.state) {
            self.resume = if at == PhaseId::ResponseBody { self.begun } else { 0 };
            (self.next, self.begun) = (PhaseId::ResponseHeaders.order(), 0);
        }
    }

    fn write_logs(&mut self, exchange: &Exchange<'_, '_>) {
        for line in std::mem::take(&mut self.state.lines) {
            if let (Some(host), Some(file)) = (exchange.host, self.route.logs.get(line.log.0 as usize)) {
                host.write_log(*file, &line.line);
            }
        }
    }

    /// Takes what steps have asked the platform to fetch; says whether it has to be waited for.
    fn ask(&mut self, exchange: &Exchange<'_, '_>) -> bool {
        for (slot, _) in std::mem::take(&mut self.state.fetches) {
            let Some(Question { request, dry }) = self.state.slots.take_question(slot) else { continue };
            let Some(host) = exchange.host else { continue };
            let now = exchange.kept.now.steady_ms;
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

    /// Takes the filters that steps have put before the request's body, if it has one.
    fn take_upload_filters(&mut self, exchange: &Exchange<'_, '_>) -> Outcome {
        let filters = std::mem::take(&mut self.state.request_filters);
        if !filters.is_empty() && exchange.request_length() != Some(0) {
            self.upload = Some(Body::new(Chain::guarded(filters, border::unharmed)));
        }
        if self.upload.is_some() { Outcome::FilterBody } else { Outcome::GoOn }
    }

    /// Takes the filters that steps have put before the response's body, as far as they fit the response.
    fn take_filters(&mut self, status: Option<u16>, body: BodyOf) -> Shaped {
        let mut filters = std::mem::take(&mut self.state.response_filters);
        if status == Some(206) {
            Filtered::keep_for_part(&mut filters, |step| self.count(step, PART_PASSED, 1));
        }
        if filters.is_empty() || body == BodyOf::Empty {
            return Shaped::default();
        }
        let changes = filters.iter().any(Filtered::changes_length);
        if body == BodyOf::Unsent {
            return Shaped { changes, ..Shaped::default() };
        }
        self.body = Some(Body::new(Chain::guarded(filters, border::unharmed)).streams());
        Shaped { filters: true, changes, hold: 0 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
mod tests {
    use foregate_module::{Plan, Steps};

    use super::*;
    use crate::border::{FactsOf, Which};
    use crate::exchange::Head;
    use crate::fetch::Answers;
    use crate::heavy::Queue;
    use crate::route::Route;

    /// The step `waf-body` in a dry run could not run: what steps are told afterwards.
    fn told(fault: Fault) -> Option<&'static str> {
        let pipeline = Arc::new(crate::modules::shipped());
        let step = pipeline.steps().position(|decl| decl.name == "waf-body").unwrap();
        let planned = Planned {
            step: step as u16,
            key: 0,
            dry_run: true,
            guards: false,
            decides: false,
            settings: Arc::new(()),
            when: None,
        };
        let route = Rc::new(Route {
            pipeline: Arc::clone(&pipeline),
            plan: Plan::default(),
            logs: Vec::new(),
            off: Steps::NONE,
            asks: Vec::new(),
            choices: Vec::new(),
            threads: true,
            queue: Queue::default(),
            answers: Answers::default(),
        });
        let none: &[u8] = b"";
        let facts = FactsOf {
            client: None,
            https: false,
            raw_is_valid: true,
            chunked: false,
            version: 1001,
            content_length: 3,
            method: &b"POST"[..],
            server: none,
            host: none,
            uri: &b"/"[..],
            args: none,
            raw: &b"/"[..],
            site: none,
            route: none,
        };
        let Request { mut run, mut kept } = Request::new(route, &facts);
        let heads = (Head::lent(Which::Request, &[]), Head::lent(Which::Response, &[]));
        let mut exchange = Exchange::lent(&facts, &mut kept, heads, None, None);
        assert!(run.judge(&pipeline, &planned, Err(fault), &mut exchange).is_ok());
        exchange.request_body_unseen()
    }

    #[test]
    fn steps_are_told_of_a_body_that_another_could_not_look_at() {
        assert_eq!(told(Fault::Panicked), Some("step"));
        assert_eq!(told(Fault::Full(WhenFull::Error)), Some("step_queue"));
    }
}
