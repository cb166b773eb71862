//! The guarantees of the contract beyond its types: order, merging, plans, values, edits, chains of filters.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

use foregate_module::settings::{Context, FromNode, Key, Node, Problem};
use foregate_module::testing::Sample;
use foregate_module::{
    Action, Add, Added, Bail, BodyFilter, Chain, Condition, Configured, Doubt, Edit, EditResponse, Edits,
    Emit, EmitAnd, Fetch, FetchKey, FetchRequest, Fetched, Fields, FieldsMut, Filter, FilterResponseBody,
    Filtered, Kind, Never, PhaseId, Pipeline, Plan, PlanBuilder, PlannedStep, Read, Respond, Response, Shown,
    Sink, State, Step, Steps, Take, UpstreamId, Value, Verdict, View, phase, pipeline,
};

/// A count that expressions see.
struct Count;

impl Value for Count {
    type Data = i64;
    const NAME: &'static str = "test.count";
    const ABOUT: &'static str = "A count.";
    const SHOWS: Option<Kind> = Some(Kind::Int);
    fn show(count: &i64) -> Option<Shown<'_>> {
        Some(Shown::Int(*count))
    }
}

/// A value that only steps see.
struct Secret;

impl Value for Secret {
    type Data = String;
    const NAME: &'static str = "test.secret";
    const ABOUT: &'static str = "A secret.";
}

struct Question;

impl FetchKey for Question {
    const NAME: &'static str = "test.question";
    const ANSWER: &'static str = "test.answer";
}

/// `test NUMBER`: how much of the body a step wants.
struct Settings(usize);

impl FromNode for Settings {
    const KEY: Option<&'static Key> = Some(&Key::one("test", "NUMBER", "test 1", "Tests."));
    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self(nodes.iter().map(|node| node.arg(0)?.number(0..=9)).sum::<Result<u64, _>>()? as usize))
    }
}

/// Steps with bodies that are expressions over settings and inputs.
macro_rules! steps {
    ($($name:ident $label:literal $at:ident, $settings:ty, ($($input:ty),*) -> ($($output:ty),*), $stop:ty,
       $filters:expr, |$with:pat_param, $in:pat_param| $run:expr;)*) => { $(
        #[derive(Default)]
        struct $name;

        impl Step for $name {
            type At = phase::$at;
            type Settings = $settings;
            type In<'r> = ($($input,)*);
            type Out = ($($output,)*);
            type Stop = $stop;
            const NAME: &'static str = $label;
            const ABOUT: &'static str = "A step.";
            const FILTERS: &'static [Filter] = $filters;
            fn body(settings: &$settings) -> usize {
                let settings: &dyn Any = settings;
                settings.downcast_ref::<Settings>().map_or(0, |settings| settings.0)
            }
            fn run(&self, $with: &$settings, $in: Self::In<'_>) -> ControlFlow<$stop, Self::Out> {
                $run
            }
        }
    )* };
}

steps! {
    Counts "counts" RequestEarly, Settings, () -> (Emit<Count>, Emit<Secret>), Never, &[],
        |settings, ()| ControlFlow::Continue((Emit(Some(settings.0 as i64)), Emit(Some("hidden".into()))));
    Asks "asks" RequestIdentity, (), () -> (Emit<Fetch<Question>>), Never, &[Filter::Proxied],
        |(), ()| ControlFlow::Continue((Emit(Some(FetchRequest::get(UpstreamId(0), "/"))),));
    Refuses "refuses" RequestSecurity, (), (Read<'r, Count>) -> (), Respond, &[Filter::Method("GET")],
        |(), (Read(count),)| match count {
            Some(5..) => ControlFlow::Break(Respond(Response::new(403))),
            _ => ControlFlow::Continue(()),
        };
    Hears "hears" RequestSecurity, (), (Read<'r, Fetched<Question>>) -> (), Never, &[Filter::Proxied],
        |(), _| ControlFlow::Continue(());
    Marks "marks" ResponseHeaders, Settings, () -> (EditResponse), Never, &[],
        |_, ()| ControlFlow::Continue((EditResponse(Edits::new().set("x-mark", "1")),));
    First "first" RequestEarly, (), () -> (), Never, &[], |(), ()| ControlFlow::Continue(());
    Last "last" Log, (), () -> (), Never, &[Filter::Answered], |(), ()| ControlFlow::Continue(());
}

pipeline! { fn theirs { Counts, Asks, Marks } }
pipeline! { fn steps_of_two { use theirs; First, Refuses, Hears, Last } }

fn names(pipeline: &Pipeline, plan: &Plan) -> Vec<&'static str> {
    let name = |planned: &PlannedStep| pipeline.entries()[usize::from(planned.step)].decl().name;
    plan.steps().iter().map(name).collect()
}

fn with_settings(pipeline: &Pipeline, number: usize, dry_run: bool, proxied: bool) -> Plan {
    let mut builder = PlanBuilder::new(pipeline);
    builder.configure(Configured {
        key: "test",
        settings: Arc::new(Settings(number)),
        when: None,
        dry_run,
        reads: Box::default(),
    });
    builder.build(proxied)
}

#[test]
fn groups_are_merged_phase_by_phase() {
    let pipeline = steps_of_two();
    let names: Vec<_> = pipeline.steps().map(|decl| decl.name).collect();
    assert_eq!(names, ["counts", "first", "asks", "refuses", "hears", "marks", "last"]);
    assert_eq!(
        pipeline.keys().iter().map(|(key, step)| (key.name, *step)).collect::<Vec<_>>(),
        [("test", 0)]
    );
    assert_eq!(pipeline.named("test"), Steps::NONE.with(0).with(5));
    assert_eq!(pipeline.named("hears"), Steps::NONE.with(4));
    assert!(pipeline.named("nobody").is_empty());
}

#[test]
fn values_have_slots_in_the_order_of_their_steps() {
    let pipeline = steps_of_two();
    let values: Vec<_> =
        pipeline.values().iter().map(|value| (value.name, value.shows, value.phase)).collect();
    let (early, identity) = (PhaseId::RequestEarly, PhaseId::RequestIdentity);
    assert_eq!(
        values,
        [
            ("test.count", Some(Kind::Int), early),
            ("test.secret", None, early),
            ("test.question", None, identity),
            ("test.answer", None, identity),
        ]
    );
    assert_eq!((pipeline.answer_slot(2), pipeline.answer_slot(0)), (Some(3), None));
}

#[test]
fn a_plan_has_what_is_configured_and_what_is_always_on() {
    let pipeline = steps_of_two();
    let none = PlanBuilder::new(&pipeline).build(true);
    assert_eq!(names(&pipeline, &none), ["first", "asks", "refuses", "hears"]);
    assert!(!none.is_empty() && none.body() == 0);
    let all = with_settings(&pipeline, 7, false, true);
    assert_eq!(names(&pipeline, &all), ["counts", "first", "asks", "refuses", "hears", "marks"]);
    assert_eq!(all.body(), 7);
    let answered = with_settings(&pipeline, 7, false, false);
    assert_eq!(names(&pipeline, &answered), ["counts", "first", "refuses", "marks", "last"]);

    let of = |phase| all.phase(phase).iter().map(|planned| planned.step).collect::<Vec<_>>();
    assert_eq!(of(PhaseId::RequestEarly), [0, 1]);
    assert_eq!(of(PhaseId::RequestSecurity), [3, 4]);
    assert!(of(PhaseId::CacheKey).is_empty() && of(PhaseId::Log).is_empty());
    assert!(all.has_any(PhaseId::RequestBody, PhaseId::ResponseHeaders));
    assert!(!all.has_any(PhaseId::RequestBody, PhaseId::UpstreamResponse));
    assert!(!all.has_any(PhaseId::Log, PhaseId::Log));
    assert!(Plan::default().is_empty() && Plan::default().phase(PhaseId::Log).is_empty());
}

/// Runs the steps of a phase as a platform does.
fn run(
    pipeline: &Pipeline,
    plan: &Plan,
    phase: PhaseId,
    sample: &mut Sample,
    state: &mut State,
) -> Vec<Verdict> {
    plan.phase(phase).iter().map(|planned| pipeline.run(planned, sample, state)).collect()
}

#[test]
fn values_are_written_by_one_step_and_read_by_later_ones() {
    let pipeline = steps_of_two();
    let plan = with_settings(&pipeline, 5, false, true);
    let (mut sample, mut state) = (Sample::get("/"), State::default());
    run(&pipeline, &plan, PhaseId::RequestEarly, &mut sample, &mut state);
    let view = View::new(&sample, &state.slots, pipeline.values());
    assert_eq!(view.value(0), Some(Shown::Int(5)));
    assert_eq!(view.value(1), None, "only steps see it");
    assert_eq!(view.value(9), None);
    run(&pipeline, &plan, PhaseId::RequestIdentity, &mut sample, &mut state);
    assert_eq!(state.fetches, [(2, "asks")]);
    let verdicts = run(&pipeline, &plan, PhaseId::RequestSecurity, &mut sample, &mut state);
    assert_eq!(verdicts, [Verdict::Stop(Action::Respond(Response::new(403))), Verdict::Continue]);
    sample.method = b"POST".to_vec();
    let verdicts = run(&pipeline, &plan, PhaseId::RequestSecurity, &mut sample, &mut state);
    assert_eq!(verdicts[0], Verdict::Passed, "filtered out");
    state.clear();
    assert!(state.slots.get(0).is_none() && state.fetches.is_empty());
}

#[test]
fn a_dry_run_writes_nothing() {
    let pipeline = steps_of_two();
    for (dry_run, marked) in [(false, true), (true, false)] {
        let plan = with_settings(&pipeline, 5, dry_run, true);
        let (mut sample, mut state) = (Sample::get("/").response(200), State::default());
        run(&pipeline, &plan, PhaseId::RequestEarly, &mut sample, &mut state);
        run(&pipeline, &plan, PhaseId::ResponseHeaders, &mut sample, &mut state);
        assert_eq!(state.slots.get(0).is_some(), marked);
        assert_eq!(sample.response.get("x-mark").is_some(), marked);
    }
}

#[test]
fn sets_of_steps_have_a_limit() {
    let last = Steps::LIMIT - 1;
    let steps = Steps::NONE.with(0).with(last).with(Steps::LIMIT);
    assert!(steps.contains(0) && steps.contains(last) && !steps.contains(Steps::LIMIT) && !steps.contains(1));
    assert_eq!(steps.and(Steps::NONE.with(1)), Steps::NONE.with(0).with(1).with(last));
}

#[test]
fn the_framing_is_nobodys_to_change() {
    let framing =
        ["Content-Length", "transfer-encoding", "CONNECTION", "keep-alive", "upgrade", "te", "trailer"];
    let mut sample = Sample::get("/");
    for name in framing {
        sample.request.append(name.as_bytes(), b"as it came");
    }
    sample.request.append(b"x-own", b"1");
    let before = sample.request.clone();
    for name in framing {
        let mut edits = Edits::new().set(name, "new").append(name, "new").remove(name);
        assert!(edits.is_empty(), "{name}");
        // By number, and made by hand.
        edits.push(Edit::Remove(name.into()));
        edits.push(Edit::RemoveNumbers(vec![0b111_1111]));
        edits.apply(&mut sample.request);
        assert_eq!(sample.request, before, "{name}");
    }
    Edits::new().set("X-OWN", "2").append("x-more", "3").set("x-bad", "a\r\nb: c").apply(&mut sample.request);
    assert_eq!(sample.request.get("x-own"), Some(&b"2"[..]));
    assert_eq!(sample.request.get("x-more"), Some(&b"3"[..]));
    assert_eq!(sample.request.get("x-bad"), None);
    let mut edits = Edits::new();
    edits.push(Edit::RemoveNumbers(vec![1 << 7]));
    edits.apply(&mut sample.request);
    assert_eq!(sample.request.get("x-own"), None);
}

/// Holds everything, and writes it reversed at the end.
#[derive(Default)]
struct Reversed(Vec<u8>);

impl BodyFilter for Reversed {
    fn write(&mut self, piece: &[u8], _: &mut dyn Sink) -> Result<(), Bail> {
        self.0.extend(piece);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.reverse();
        out.write(&std::mem::take(&mut self.0));
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&std::mem::take(&mut self.0));
        Ok(())
    }

    fn held(&self) -> usize {
        self.0.len()
    }
}

/// Writes capitals, until a `!`, where it ends as it is told.
struct Capitals(Bail);

impl BodyFilter for Capitals {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        match piece.iter().position(|byte| *byte == b'!') {
            None => out.write(&piece.to_ascii_uppercase()),
            Some(_) if self.0 == Bail::Pass => {
                out.write(piece);
                return Err(Bail::Pass);
            }
            Some(_) => return Err(self.0),
        }
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}

fn reversed(budget: usize) -> Filtered {
    Filtered { budget, ..Filtered::new("reversed", Reversed::default()) }
}

#[test]
fn a_filter_beyond_its_budget_gives_back_every_byte() {
    for (budget, expected) in [(6, "fedcba"), (5, "abcdef"), (1, "abcdef")] {
        let mut chain = Chain::new(vec![reversed(budget)]);
        let mut out = Vec::new();
        let mut bailed = Vec::new();
        for piece in [&b"ab"[..], b"cd", b"ef"] {
            bailed.extend(chain.write(piece, &mut out).unwrap().bailed);
        }
        chain.end(&mut out).unwrap();
        assert_eq!(out, expected.as_bytes(), "budget {budget}");
        assert_eq!(bailed.len(), usize::from(budget < 6), "told once");
    }
}

#[test]
fn what_one_filter_gives_up_the_next_one_still_gets() {
    let mut chain = Chain::new(vec![reversed(3), Filtered::new("capitals", Capitals(Bail::Pass))]);
    let mut out = Vec::new();
    assert_eq!(chain.write(b"ab", &mut out).unwrap().bailed, None);
    assert_eq!(chain.write(b"cd", &mut out).unwrap().bailed, Some("reversed"));
    assert_eq!(chain.write(b"ef", &mut out).unwrap().bailed, None);
    assert_eq!(chain.write(b"g!", &mut out).unwrap().bailed, Some("capitals"));
    chain.write(b"hi", &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"ABCDEFg!hi");
}

#[test]
fn a_filter_that_breaks_the_body_off_is_named_wherever_it_stands() {
    for bail in [Bail::Break, Bail::TooLarge] {
        let mut chain = Chain::new(vec![reversed(9), Filtered::new("capitals", Capitals(bail))]);
        let mut out = Vec::new();
        chain.write(b"ab!", &mut out).unwrap();
        assert_eq!(chain.end(&mut out).unwrap_err(), (bail, "capitals"), "while the first one ends");
        let mut chain = Chain::new(vec![reversed(2), Filtered::new("capitals", Capitals(bail))]);
        assert_eq!(
            chain.write(b"ab!", &mut out).unwrap_err(),
            (bail, "capitals"),
            "while the first one bails out"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn a_chain_without_filters_passes_everything() {
    let mut chain = Chain::new(Vec::new());
    let mut out = Vec::new();
    chain.write(b"abc", &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert!(chain.is_empty());
    assert_eq!(out, b"abc");
}

/// Conditions see values that steps have written.
struct AtLeast(i64);

impl Condition for AtLeast {
    fn holds(&self, view: &View<'_>) -> bool {
        matches!(view.value(0), Some(Shown::Int(count)) if count >= self.0)
    }
}

#[test]
fn conditions_of_a_key_reach_all_its_steps() {
    let pipeline = steps_of_two();
    let mut builder = PlanBuilder::new(&pipeline);
    let when: Arc<dyn Condition> = Arc::new(AtLeast(5));
    builder.configure(Configured {
        key: "test",
        settings: Arc::new(Settings(5)),
        when: Some(when),
        dry_run: false,
        reads: Box::default(),
    });
    let plan = builder.build(true);
    let with: Vec<_> = plan.steps().iter().map(|planned| planned.when.is_some()).collect();
    assert_eq!(with, [true, false, false, false, false, true]);
    let (mut sample, mut state) = (Sample::get("/"), State::default());
    let holds = |sample: &Sample, state: &State| {
        plan.steps()[0].when.as_ref().unwrap().holds(&View::new(sample, &state.slots, pipeline.values()))
    };
    assert!(!holds(&sample, &state));
    run(&pipeline, &plan, PhaseId::RequestEarly, &mut sample, &mut state);
    assert!(holds(&sample, &state));
}

/// `guard #true|#false`: whether the first step guards something.
struct Guard(bool);

impl FromNode for Guard {
    const KEY: Option<&'static Key> = Some(&Key::one("guard", "#true", "guard", "Tests."));
    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self(nodes.first().is_some_and(|node| !node.turns_off())))
    }
}

#[derive(Default)]
struct Judges;

impl Step for Judges {
    type At = phase::RequestSecurity;
    type Settings = Guard;
    type In<'r> = (View<'r>,);
    type Out = (Emit<Count>,);
    type Stop = Never;
    const NAME: &'static str = "judges";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn guards(settings: &Guard) -> bool {
        settings.0
    }
    fn run(&self, _: &Guard, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((Emit(Some(i64::from(view.doubt() == Doubt::Refuses))),))
    }
}

steps! {
    Dresses "dresses" ResponseBody, Guard, () -> (FilterResponseBody), Never, &[],
        |_, ()| ControlFlow::Continue((FilterResponseBody(None),));
}

pipeline! { fn steps_that_guard { Judges, Dresses } }

/// A guarding step in doubt refuses the request.
struct InDoubt;

impl Condition for InDoubt {
    fn holds(&self, view: &View<'_>) -> bool {
        view.doubt() == Doubt::Refuses
    }
}

#[test]
fn only_what_guards_before_the_response_refuses_in_doubt() {
    let pipeline = steps_that_guard();
    let of = |guards: bool, dry_run: bool| {
        let mut builder = PlanBuilder::new(&pipeline);
        let when: Arc<dyn Condition> = Arc::new(InDoubt);
        let settings = Arc::new(Guard(guards));
        builder.configure(Configured {
            key: "guard",
            settings,
            when: Some(when),
            dry_run,
            reads: Box::default(),
        });
        let plan = builder.build(true);
        let (mut sample, mut state) = (Sample::get("/"), State::default());
        let guards: Vec<_> = plan.steps().iter().map(|planned| planned.guards).collect();
        let wanted = pipeline.is_wanted(&plan.steps()[0], &sample, &mut state);
        pipeline.run(&plan.steps()[0], &mut sample, &mut state);
        let view = View::new(&sample, &state.slots, pipeline.values());
        let refuses = matches!(view.dry(dry_run).value(0), Some(Shown::Int(1)));
        (guards, wanted, refuses)
    };
    assert_eq!(of(true, false), (vec![true, true], true, true));
    assert_eq!(of(false, false), (vec![false, false], false, false));
    assert_eq!(of(true, true), (vec![true, true], false, false));
}

#[test]
fn plans_tell_whether_bodies_of_responses_may_change() {
    let pipeline = steps_that_guard();
    let changes = |dry_run: Option<bool>| {
        let mut builder = PlanBuilder::new(&pipeline);
        if let Some(dry_run) = dry_run {
            let settings = Arc::new(Guard(false));
            builder.configure(Configured {
                key: "guard",
                settings,
                when: None,
                dry_run,
                reads: Box::default(),
            });
        }
        builder.build(true).changes_bodies()
    };
    assert!(changes(Some(false)) && !changes(Some(true)) && !changes(None));
}

/// A list that several steps write.
struct Wishes;

impl Value for Wishes {
    type Data = usize;
    const NAME: &'static str = "test.wishes";
    const ABOUT: &'static str = "What is wished for.";
}

/// The inputs read.
struct Heard;

impl Value for Heard {
    type Data = Vec<(usize, bool)>;
    const NAME: &'static str = "test.heard";
    const ABOUT: &'static str = "What was read.";
}

steps! {
    WishesOne "wishes-one" RequestEarly, (), () -> (Add<Wishes>), Never, &[],
        |(), ()| ControlFlow::Continue((Add(Some(1)),));
    WishesMore "wishes-more" RequestSecurity, Settings, () -> (Add<Wishes>), Never, &[],
        |settings, ()| ControlFlow::Continue((Add(Some(settings.0)),));
    Grants "grants" ResponseHeaders, (), (Added<'r, Wishes>) -> (Emit<Heard>), Never,
        &[Filter::Written("test.wishes")],
        |(), (wishes,)| ControlFlow::Continue((Emit(Some(wishes.iter().map(|(wish, dry)| (*wish, dry)).collect())),));
    Wonders "wonders" ResponseHeaders, (), () -> (), Never, &[Filter::Written("test.count")],
        |(), ()| ControlFlow::Continue(());
}

pipeline! { fn wishing { Counts, WishesOne, WishesMore, Grants, Wonders } }
pipeline! { fn wishing_little { WishesMore, Grants } }

#[test]
fn steps_that_carry_out_what_others_ask_for_run_where_somebody_asks() {
    let pipeline = wishing();
    assert_eq!(names(&pipeline, &PlanBuilder::new(&pipeline).build(true)), ["wishes-one", "grants"]);
    let pipeline = wishing_little();
    assert!(PlanBuilder::new(&pipeline).build(true).is_empty());
    assert_eq!(names(&pipeline, &with_settings(&pipeline, 2, false, true)), ["wishes-more", "grants"]);
}

#[test]
fn several_steps_add_to_a_list_and_dry_runs_are_told_apart() {
    let pipeline = wishing();
    let mut sample = Sample::get("/").response(200);
    let mut state = State::default();
    for planned in with_settings(&pipeline, 7, true, true).steps() {
        pipeline.run(planned, &mut sample, &mut state);
    }
    let heard = pipeline.values().iter().position(|value| value.name == "test.heard").unwrap() as u16;
    let heard = state.slots.get(heard).unwrap().downcast_ref::<Vec<(usize, bool)>>().unwrap();
    assert_eq!(heard, &[(1, false), (7, true)]);
}

steps! {
    Ordinary "ordinary" ResponseBody, (), () -> (), Never, &[], |(), ()| ControlFlow::Continue(());
    Own "own" ResponseBody, (), () -> (), Never, &[], |(), ()| ControlFlow::Continue(());
}

/// A step that sees the changes of all others.
#[derive(Default)]
struct Closing;

impl Step for Closing {
    type At = phase::ResponseBody;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "closing";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    const LAST: bool = true;
    fn run(&self, (): &(), (): ()) -> ControlFlow<Never> {
        ControlFlow::Continue(())
    }
}

pipeline! { fn closed { Closing, Ordinary, Last } }
pipeline! { fn opened_again { use closed; Own } }

#[test]
fn what_comes_last_comes_behind_the_steps_of_later_groups() {
    let names = |pipeline: Pipeline| pipeline.steps().map(|decl| decl.name).collect::<Vec<_>>();
    assert_eq!(names(closed()), ["ordinary", "closing", "last"]);
    assert_eq!(names(opened_again()), ["ordinary", "own", "closing", "last"]);
}

/// Another module's settings under the same key, word for word.
struct Same;

impl FromNode for Same {
    const KEY: Option<&'static Key> = Settings::KEY;
    fn from_nodes(_: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self)
    }
}

steps! {
    Another "another" RequestRewrite, Same, () -> (), Never, &[], |_, ()| ControlFlow::Continue(());
}

pipeline! { fn clashing { use theirs; Another } }

#[test]
fn settings_of_two_types_under_one_key_are_told() {
    assert!(steps_of_two().conflicting_keys().is_none(), "steps of a module share a type");
    let clash = clashing().conflicting_keys().map(|decls| decls.map(|decl| decl.name));
    assert_eq!(clash, Some(["counts", "another"]));
}

/// A value that moves.
struct Purse;

impl Value for Purse {
    type Data = Vec<&'static str>;
    const NAME: &'static str = "test.purse";
    const ABOUT: &'static str = "What moves from step to step.";
}

/// Takes the purse, puts a word in, and emits it again.
fn put(Take(purse): Take<Purse>, word: &'static str) -> Option<Vec<&'static str>> {
    purse.map(|mut purse| {
        purse.push(word);
        purse
    })
}

steps! {
    Fills "fills" RequestEarly, Settings, () -> (Emit<Purse>), Never, &[],
        |_, ()| ControlFlow::Continue((Emit(Some(vec!["fills"])),));
    Carries "carries" RequestSecurity, (), (Take<Purse>) -> (Emit<Purse>), EmitAnd<Purse, Respond>,
        &[], |(), (purse,)| match put(purse, "carries") {
            Some(purse) if purse.len() > 2 => {
                let stop = Respond(Response::new(403));
                ControlFlow::Break(EmitAnd { value: Some(purse), stop })
            }
            purse => ControlFlow::Continue((Emit(purse),)),
        };
}

steps! {
    Spends "spends" Log, (), (Take<Purse>) -> (), Never, &[], |(), _| ControlFlow::Continue(());
    SpendsToo "spends-too" Log, (), (Take<Purse>) -> (), Never, &[], |(), _| ControlFlow::Continue(());
}

pipeline! { fn purses { Fills, Carries, Spends } }

#[test]
fn values_move_from_step_to_step() {
    let mut sample = Sample::get("/");
    sample.run(&Fills, &Settings(0));
    assert_eq!(sample.run(&Carries, &()), Verdict::Continue);
    assert_eq!(sample.value::<Purse>(), Some(&vec!["fills", "carries"]));
    // It ends the request, and the value is there for the log.
    assert!(
        matches!(sample.run(&Carries, &()), Verdict::Stop(Action::Respond(response)) if response.status == 403)
    );
    assert_eq!(sample.value::<Purse>(), Some(&vec!["fills", "carries", "carries"]));
    sample.run(&Spends, &());
    assert_eq!(sample.value::<Purse>(), None);
    assert_eq!(sample.run(&Carries, &()), Verdict::Continue, "and nothing is made of nothing");
    assert_eq!(sample.value::<Purse>(), None);
}

#[test]
fn a_dry_run_takes_nothing_from_others() {
    let mut sample = Sample::get("/");
    sample.run(&Fills, &Settings(0));
    sample.run_dry(&Spends, &());
    assert_eq!(sample.value::<Purse>(), Some(&vec!["fills"]));
    let mut sample = Sample::get("/");
    sample.run_dry(&Fills, &Settings(0));
    sample.run(&Spends, &());
    sample.run_dry(&Carries, &());
    assert_eq!(sample.value::<Purse>(), None, "it is one of a dry run");
}

#[test]
fn plans_in_which_a_taken_value_is_not_there_are_refused() {
    let pipeline = purses();
    assert!(with_settings(&pipeline, 1, false, true).untakable(&pipeline).is_none());
    let without = PlanBuilder::new(&pipeline).build(true).untakable(&pipeline).unwrap();
    assert_eq!(
        without.to_string(),
        "the step `carries` takes `test.purse`, but no step before it on this route emits it"
    );
    // One of a dry run is not there for others.
    assert!(with_settings(&pipeline, 1, true, true).untakable(&pipeline).is_some());
    // A pipeline that no compiler has looked at.
    let steps = vec![
        foregate_module::erase::<Fills>(),
        foregate_module::erase::<Spends>(),
        foregate_module::erase::<SpendsToo>(),
    ];
    let pipeline = Pipeline::new(vec![steps]);
    let twice = with_settings(&pipeline, 1, false, true).untakable(&pipeline).unwrap();
    assert_eq!(
        twice.to_string(),
        "the step `spends-too` takes `test.purse`, but `spends` has taken it and does not emit it again"
    );
}
