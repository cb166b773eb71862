//! The runner on a platform of literals.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foregate_module::settings::{Context, FromNode, Key, Node, Problem, UpstreamId};
use foregate_module::testing::Sample;
use foregate_module::{
    Abort, Configured, EditRequest, EditResponse, Edits, Either, Emit, Entry, Exchange, Fault, Fetch,
    FetchKey, FetchRequest, Filter, Holds, Never, Next, PhaseId, Pipeline, Plan, PlanBuilder, PlannedStep,
    Platform, Replace, RequestFields, Respond, Response, Runner, State, Step, StepEnd, StepPlace, Steps,
    Take, Value, Verdict, Weight, WhenFull, erase, phase,
};

/// Settings of steps that some routes have in a dry run.
#[derive(Debug, Clone, Default)]
struct Set;

impl FromNode for Set {
    const KEY: Option<&'static Key> = Some(&Key::one("set", "", "set", "For tests."));

    fn from_nodes(_: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self)
    }
}

struct Asks;
impl FetchKey for Asks {
    const NAME: &'static str = "asks.request";
    const ANSWER: &'static str = "asks.answer";
}

struct Long;
impl Value for Long {
    type Data = Vec<u8>;
    const NAME: &'static str = "long";
    const ABOUT: &'static str = "Something long.";
}

/// The word of a request's field `x-do` that belongs to a step: `name=word`.
fn told<'r>(fields: RequestFields<'r>, name: &str) -> &'r [u8] {
    let words = fields.0.get("x-do").unwrap_or_default().split(|byte| *byte == b' ');
    let mut words = words.filter_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    words.next().unwrap_or_default()
}

macro_rules! steps {
    ($($type:ident $name:literal at $at:ident with $settings:ty, $weight:expr, body $body:literal:
       $out:ty | $stop:ty = $run:expr;)*) => { $(
        #[derive(Default)]
        struct $type;

        impl Step for $type {
            type At = phase::$at;
            type Settings = $settings;
            type In<'r> = (RequestFields<'r>,);
            type Out = $out;
            type Stop = $stop;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = "For tests.";
            const FILTERS: &'static [Filter] = &[];
            const WEIGHT: Weight = $weight;

            fn body(_: &$settings) -> usize {
                $body
            }

            fn run(&self, _: &$settings, (fields,): Self::In<'_>) -> ControlFlow<$stop, $out> {
                let run: fn(&[u8]) -> ControlFlow<$stop, $out> = $run;
                run(told(fields, $name))
            }
        }
    )* };
}

fn edits(value: &'static str) -> EditResponse {
    EditResponse(Edits::new().append("x-step", value))
}

steps! {
    First "first" at RequestEarly with (), Weight::Light, body 0: () | Either<Respond, Abort> = |word| match word {
        b"answer" => Break(Either::A(Respond(Response::new(403)))),
        b"abort" => Break(Either::B(Abort)),
        b"panic" => panic!("for the test"),
        _ => Continue(()),
    };
    Set1 "set" at RequestEarly with Set, Weight::Light, body 0: () | Respond = |word| match word {
        b"answer" => Break(Respond(Response::new(403))),
        b"panic" => panic!("for the test"),
        _ => Continue(()),
    };
    Asker "asker" at RequestIdentity with (), Weight::Light, body 0: (Emit<Fetch<Asks>>,) | Never = |_| {
        Continue((Emit(Some(FetchRequest::get(UpstreamId(0), "/"))),))
    };
    Guard "guard" at RequestIdentity with (), Weight::Light, body 0: () | Respond = |word| match word {
        b"answer" => Break(Respond(Response::new(401))),
        _ => Continue(()),
    };
    Heavy "heavy" at RequestSecurity with (), Weight::Heavy(WhenFull::Error), body 0: (EditRequest,) | Never = |_| {
        Continue((EditRequest(Edits::new().set("x-heavy", "yes")),))
    };
    Reader "reader" at RequestBody with (), Weight::Light, body 9: (Emit<Long>, Holds) | Never = |_| {
        Continue((Emit(Some(b"long".to_vec())), Holds(4)))
    };
    Edit "edit" at ResponseHeaders with (), Weight::Light, body 0: (EditResponse,) | Never = |_| {
        Continue((edits("edit"),))
    };
    Replacer "replacer" at ResponseHeaders with (), Weight::Light, body 0: () | Replace = |word| match word {
        b"replace" => Break(Replace(Response::new(500))),
        _ => Continue(()),
    };
    Page "page" at ResponseErrorPage with (), Weight::Light, body 0: () | Replace = |word| match word {
        b"replace" => Break(Replace(Response::new(502))),
        b"panic" => panic!("for the test"),
        _ => Continue(()),
    };
    Early "early" at ResponseBody with (), Weight::Light, body 0: () | Never = |_| Continue(());
    Late "late" at ResponseBody with (), Weight::Light, body 0: () | Replace = |word| match word {
        b"replace" => Break(Replace(Response::new(502))),
        _ => Continue(()),
    };
    LogA "log-a" at Log with (), Weight::Light, body 0: () | Never = |word| match word {
        b"panic" => panic!("for the test"),
        _ => Continue(()),
    };
    LogB "log-b" at Log with (), Weight::Light, body 0: () | Never = |_| Continue(());
}

fn pipeline() -> Pipeline {
    Pipeline::new(Vec::from([Vec::from([
        erase::<First>(),
        erase::<Set1>(),
        erase::<Asker>(),
        erase::<Guard>(),
        erase::<Heavy>(),
        erase::<Reader>(),
        erase::<Edit>(),
        erase::<Replacer>(),
        erase::<Page>(),
        erase::<Early>(),
        erase::<Late>(),
        erase::<LogA>(),
        erase::<LogB>(),
    ])]))
}

/// A platform that records its calls.
struct Script {
    pipeline: Arc<Pipeline>,
    plan: Arc<Plan>,
    sample: Sample,
    state: State,
    told: Vec<String>,
    /// Steps that are switched off, or left out after panics.
    off: Steps,
    broken: Steps,
    has_memory: bool,
}

impl Platform for Script {
    fn unharmed(work: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_ok()
    }

    fn parts(&mut self) -> (&mut dyn Exchange, &mut State) {
        (&mut self.sample, &mut self.state)
    }

    fn place(&mut self, _: &Entry, planned: &PlannedStep) -> StepPlace {
        match usize::from(planned.step) {
            step if self.off.contains(step) => StepPlace::Off,
            step if self.broken.contains(step) => StepPlace::Broken,
            _ => StepPlace::Asked,
        }
    }

    fn ran(&mut self, planned: &PlannedStep) {
        let name = self.pipeline.entries()[usize::from(planned.step)].decl().name;
        self.told.push(name.into());
    }

    fn news(&mut self, _: &Entry, _: &PlannedStep) {}

    fn hold(&mut self, _: usize) -> bool {
        self.has_memory
    }

    fn stopped(&mut self, _: &Entry, planned: &PlannedStep) {
        self.told.push(if planned.dry_run { "would stop".into() } else { "stopped".into() });
    }

    fn failed(&mut self, entry: &Entry, _: &PlannedStep, fault: Fault, goes_on: bool) {
        let end = if goes_on { ", goes on" } else { "" };
        self.told.push(format!("{} {fault:?}{end}", entry.decl().name));
    }
}

impl Script {
    /// A request with a field `x-do` that scripts the steps.
    fn of(does: &str) -> Self {
        Self::dry(does, false)
    }

    fn dry(does: &str, dry_run: bool) -> Self {
        Self::new(pipeline(), does, dry_run)
    }

    fn new(pipeline: Pipeline, does: &str, dry_run: bool) -> Self {
        let mut builder = PlanBuilder::new(&pipeline);
        let settings = Arc::new(Set);
        builder.configure(Configured { key: "set", settings, when: None, dry_run, reads: [].into() });
        Self {
            plan: builder.build(true).into(),
            pipeline: pipeline.into(),
            sample: Sample::get("/").field("x-do", does),
            state: State::default(),
            told: Vec::new(),
            off: Steps::NONE,
            broken: Steps::NONE,
            has_memory: true,
        }
    }

    fn step(&self, name: &str) -> usize {
        self.pipeline.steps().position(|decl| decl.name == name).unwrap()
    }

    /// The next work, in words.
    fn run(&mut self, runner: &mut Runner, last: PhaseId) -> String {
        let (pipeline, plan) = (Arc::clone(&self.pipeline), Arc::clone(&self.plan));
        match runner.run(&pipeline, &plan, last, self) {
            Next::Done => "done".into(),
            Next::Body => "body".into(),
            Next::Fetch => "fetch".into(),
            Next::Offload { planned, when_full, .. } => {
                let name = self.pipeline.entries()[usize::from(planned.step)].decl().name;
                format!("{name} elsewhere, else {when_full:?}")
            }
            Next::Ended(StepEnd::Answer(response, step)) => format!("{} by {step}", response.status),
            Next::Ended(ended) => format!("{ended:?}"),
        }
    }

    /// The steps with a verdict since the last call.
    fn ran(&mut self) -> String {
        std::mem::take(&mut self.told).join(" ")
    }

    /// Runs all steps up to a phase, and does the requested work.
    fn run_all(&mut self, runner: &mut Runner, last: PhaseId) -> String {
        loop {
            match &*self.run(runner, last) {
                "fetch" => self.state.fetches.clear(),
                "body" => runner.has_body(),
                "heavy elsewhere, else Error" => runner.tell(Ok(Verdict::Continue)),
                next => return next.into(),
            }
        }
    }
}

#[test]
fn steps_run_in_their_order_and_wait_for_what_they_need() {
    let (mut script, mut runner) = (Script::of(""), Runner::default());
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "done");
    assert_eq!(script.ran(), "first set");
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "done");
    assert_eq!(script.ran(), "", "no step runs twice");
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "fetch");
    assert_eq!(script.ran(), "asker guard", "all steps of the phase ask at once");
    script.state.fetches.clear();
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "heavy elsewhere, else Error");
    runner.tell(Ok(Verdict::Continue));
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "body");
    assert_eq!(script.ran(), "heavy");
    assert_eq!(runner.next(), PhaseId::RequestBody.order());
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "body", "until it is there");
    runner.has_body();
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "done");
    assert_eq!(script.ran(), "reader");
    assert!(runner.passes(&script.plan, PhaseId::UpstreamRequest));
    assert!(!runner.passes(&script.plan, PhaseId::ResponseHeaders));
}

#[test]
fn where_nothing_is_planned_phases_pass() {
    let mut runner = Runner::default();
    assert!(runner.passes(&Plan::default(), PhaseId::ResponseBody));
    assert_eq!(runner.next(), PhaseId::Log.order());
}

#[test]
fn a_step_ends_a_request() {
    for (does, ended) in [
        ("first=answer", "403 by first"),
        ("first=abort", "Abort(\"first\")"),
        ("first=panic", "Failed(\"first\", Panicked)"),
    ] {
        let (mut script, mut runner) = (Script::of(does), Runner::default());
        assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), ended);
        assert!(!script.ran().contains("set"));
    }
}

#[test]
fn a_dry_run_ends_nothing() {
    let (mut script, mut runner) = (Script::dry("set=answer", true), Runner::default());
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "done");
    assert_eq!(script.ran(), "first set would stop");
    assert_eq!(&*script.state.notes[0].1, b"set: respond 403");
    let (mut script, mut runner) = (Script::dry("set=panic", true), Runner::default());
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "done");
    assert_eq!(script.ran(), "first set Panicked, goes on");
}

#[test]
fn what_a_step_has_asked_for_is_forgotten_where_another_ends_the_request() {
    let (mut script, mut runner) = (Script::of("guard=answer"), Runner::default());
    assert_eq!(script.run(&mut runner, PhaseId::UpstreamRequest), "401 by guard");
    assert!(script.state.fetches.is_empty());
}

#[test]
fn a_step_that_cannot_run_elsewhere_does_as_is_said() {
    let heavy = |verdict: Option<Result<Verdict, Fault>>| {
        let (mut script, mut runner) = (Script::of(""), Runner::default());
        runner.skip_to(PhaseId::RequestSecurity);
        assert_eq!(script.run(&mut runner, PhaseId::RequestSecurity), "heavy elsewhere, else Error");
        if let Some(verdict) = verdict {
            runner.tell(verdict);
        }
        let next = script.run(&mut runner, PhaseId::RequestSecurity);
        (next, script.ran())
    };
    let failed = |fault: &str| (format!("Failed(\"heavy\", {fault})"), format!("heavy {fault}"));
    let done = |ran: &str| ("done".into(), ran.into());
    assert_eq!(heavy(Some(Ok(Verdict::Passed))), done(""));
    assert_eq!(heavy(Some(Err(Fault::Full(WhenFull::Inline)))), done("heavy"));
    assert_eq!(heavy(Some(Err(Fault::Full(WhenFull::Shed)))), done("heavy Full(Shed), goes on"));
    assert_eq!(heavy(Some(Err(Fault::Full(WhenFull::Error)))), failed("Full(Error)"));
    assert_eq!(heavy(Some(Err(Fault::Panicked))), failed("Panicked"));
    assert_eq!(heavy(None), failed("Lost"), "a step is not left out because its verdict is missing");
}

#[test]
fn steps_are_left_out() {
    let (mut script, mut runner) = (Script::of("first=answer set=answer"), Runner::default());
    script.off = Steps::NONE.with(script.step("first"));
    script.broken = Steps::NONE.with(script.step("set"));
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "Failed(\"set\", Broken)");
    assert_eq!(script.ran(), "set Broken");
    let (mut script, mut runner) = (Script::of("first=answer"), Runner::default());
    script.state.skipped = Steps::NONE.with(script.step("first"));
    assert_eq!(script.run(&mut runner, PhaseId::RequestEarly), "done");
    assert_eq!(script.ran(), "set");
}

#[test]
fn what_has_no_memory_is_not_kept() {
    let (mut script, mut runner) = (Script::of(""), Runner::default());
    script.has_memory = false;
    runner.has_body();
    runner.skip_to(PhaseId::RequestBody);
    assert_eq!(script.run(&mut runner, PhaseId::RequestBody), "Failed(\"reader\", Memory)");
    assert_eq!(script.ran(), "reader reader Memory");
}

/// How often a step that writes `x-step` has run over the response.
fn edited(script: &Script) -> usize {
    script.sample.response.0.len()
}

#[test]
fn steps_run_again_over_another_response() {
    let (mut script, mut runner) = (Script::of("replacer=replace"), Runner::default());
    runner.skip_to(PhaseId::ResponseHeaders);
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "500 by replacer");
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(
        script.ran(),
        "edit replacer stopped edit page early late",
        "but not the one that has made it"
    );
}

#[test]
fn steps_of_the_body_go_on_where_they_were() {
    let (mut script, mut runner) = (Script::of("late=replace page=panic"), Runner::default());
    script.off = Steps::NONE.with(script.step("page"));
    runner.skip_to(PhaseId::ResponseHeaders);
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "502 by late");
    assert_eq!((script.ran(), edited(&script)), ("edit replacer early late stopped".into(), 1));
    // An error page fails over the new response, which an error replaces once more.
    script.off = Steps::NONE;
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "Failed(\"page\", Panicked)");
    assert_eq!((script.ran(), edited(&script)), ("edit replacer page Panicked".into(), 2));
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(
        (script.ran(), edited(&script)),
        ("edit replacer".into(), 3),
        "early and late have had their turn"
    );
}

#[test]
fn an_error_behind_all_steps_starts_over_and_runs_none_of_the_body_again() {
    let (mut script, mut runner) = (Script::of(""), Runner::default());
    runner.skip_to(PhaseId::ResponseHeaders);
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    script.ran();
    let (pipeline, plan) = (Arc::clone(&script.pipeline), Arc::clone(&script.plan));
    runner.start_over(&pipeline, &plan, None, &mut script.state);
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(script.ran(), "edit replacer page");
}

/// Takes a value, and emits it again.
#[derive(Default)]
struct Mover;

impl Step for Mover {
    type At = phase::ResponseHeaders;
    type Settings = ();
    type In<'r> = (Take<Long>,);
    type Out = (Emit<Long>,);
    type Stop = Never;
    const NAME: &'static str = "mover";
    const ABOUT: &'static str = "For tests.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, (): &(), (Take(long),): Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        Continue((Emit(long),))
    }
}

#[test]
fn a_value_that_moves_through_a_response_outlives_it() {
    let steps = [erase::<Reader>(), erase::<Mover>(), erase::<Edit>(), erase::<Late>()];
    let pipeline = Pipeline::new(Vec::from([Vec::from(steps)]));
    let (mut script, mut runner) = (Script::new(pipeline, "late=replace", false), Runner::default());
    assert_eq!(script.run_all(&mut runner, PhaseId::ResponseBody), "502 by late");
    assert_eq!(script.ran(), "reader mover edit late stopped");
    assert!(script.state.slots.get(0).is_some());
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(script.ran(), "mover edit");
    assert!(script.state.slots.get(0).is_some());
}

#[test]
fn a_page_keeps_the_fields_of_the_error() {
    let (mut script, mut runner) = (Script::of("page=replace"), Runner::default());
    runner.skip_to(PhaseId::ResponseHeaders);
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "502 by page");
    assert_eq!(script.run(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(script.ran(), "edit replacer page stopped early late");
}

#[test]
fn nothing_ends_the_log() {
    let mut script = Script::of("log-a=panic");
    assert_eq!(script.run(&mut Runner::of_log(), PhaseId::Log), "done");
    assert_eq!(script.ran(), "log-a Panicked log-b");
}

#[test]
fn phases_that_are_skipped_do_not_run() {
    let (mut script, mut runner) = (Script::of("first=answer"), Runner::default());
    runner.skip_to(PhaseId::UpstreamResponse);
    runner.skip_to(PhaseId::RequestEarly);
    assert_eq!(script.run_all(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(script.ran(), "edit replacer page early late");
    let (mut script, mut runner) = (Script::of(""), Runner::default());
    assert_eq!(script.run_all(&mut runner, PhaseId::ResponseBody), "done");
    assert_eq!(script.ran(), "first set asker guard heavy reader edit replacer page early late");
}
