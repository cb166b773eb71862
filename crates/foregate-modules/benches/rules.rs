//! The cost of rules, redirects and steps for a request: `cargo bench -p foregate-modules --bench rules`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark may stop"
)]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use foregate_module::settings::{FromNode, Node};
use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{
    Configured, Emit, Filter, Never, Path, PhaseId, Pipeline, Plan, PlanBuilder, Read, State, Step, Value,
    Verdict, erase, phase,
};
use foregate_modules::expressions::Compiler;
use foregate_modules::redirects::RedirectLists;
use foregate_modules::rules::Rules;
use foregate_rules::Lists;

const HOSTS: usize = 10_000;
const NETWORKS: usize = 1000;

fn rule(expression: &str) -> Node {
    let action = node("set-header").arg_literal("x-rule").arg_literal("matched");
    node("rule").arg_literal(expression).with_child(action)
}

/// 10,000 rules with a host each, and 1,000 with two networks each.
fn rules(pipeline: &Pipeline) -> Rules {
    let host = |number| rule(&format!(r#"http.host eq "host-{number}.example""#));
    let network = |number: usize| {
        let (high, low) = (number / 250, number % 250);
        rule(&format!("ip.src in {{10.{high}.{low}.0/24 2001:db8:{high:x}:{low:x}::/64}}"))
    };
    let nodes: Vec<_> = (0..HOSTS).map(host).chain((0..NETWORKS).map(network)).collect();
    let compiler = Compiler::new(pipeline, Lists::new()).unwrap();
    let mut context = Literals { compile: Some(Box::new(compiler)), ..Literals::default() };
    Rules::from_nodes(&nodes, &mut context).unwrap_or_else(|problem| panic!("{problem:?}"))
}

fn planned<T: Send + Sync + 'static>(pipeline: &Pipeline, key: &'static str, settings: T) -> Plan {
    let mut builder = PlanBuilder::new(pipeline);
    builder.configure(Configured {
        key,
        settings: Arc::new(settings),
        when: None,
        dry_run: false,
        reads: Box::default(),
    });
    builder.build(true)
}

/// Runs the phases of a request as a platform does; returns how many steps wanted to end it.
fn run(pipeline: &Pipeline, plan: &Plan, sample: &mut Sample, state: &mut State) -> usize {
    state.clear();
    let mut stops = 0;
    for phase in PhaseId::ALL {
        for step in plan.phase(phase) {
            if !state.skipped.contains(step.step.into()) && step.when.is_none() {
                stops += usize::from(matches!(pipeline.run(step, sample, state), Verdict::Stop(_)));
            }
        }
    }
    stops
}

/// A request with twenty fields.
fn request(host: &str, client: &str) -> Sample {
    let mut sample = (0..20).fold(Sample::get("/static/css/main.css?v=1"), |sample, number| {
        sample.field(&format!("x-field-{number}"), "some value of usual length")
    });
    sample.host = host.to_owned();
    sample.from(client)
}

fn many_rules(criterion: &mut Criterion) {
    let pipeline = foregate_modules::shipped();
    let plan = planned(&pipeline, "rule", rules(&pipeline));
    let mut group = criterion.benchmark_group("10,000 hosts and 1,000 networks");
    for (name, host, client, expected) in [
        ("no rule matches", "www.example.com", "192.0.2.7", 0),
        ("a host matches", "host-7777.example", "192.0.2.7", 1),
        ("a network matches", "www.example.com", "10.3.77.9", 1),
        ("both match", "host-9999.example", "2001:db8:2:10::1", 1),
    ] {
        let mut sample = request(host, client);
        let mut state = State::default();
        run(&pipeline, &plan, &mut sample, &mut state);
        let set = sample.request.0.iter().filter(|(name, _)| name == b"x-rule").count();
        assert_eq!(set, expected, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| run(&pipeline, &plan, black_box(&mut sample), &mut state));
        });
    }
    group.finish();
}

fn many_redirects(criterion: &mut Criterion) {
    let pipeline = foregate_modules::shipped();
    let list: String = (0..100_000).map(|number| format!("/article/{number},/archive/{number}\n")).collect();
    let text = list.len() - 200_000;
    let files = vec![("moved.csv", list.into_bytes())];
    let mut context = Literals { files, ..Literals::default() };
    let nodes = [node("redirects").arg_literal("moved.csv")];
    let lists =
        RedirectLists::from_nodes(&nodes, &mut context).unwrap_or_else(|problem| panic!("{problem:?}"));
    let each = |bytes: usize| bytes as f64 / lists.len() as f64;
    println!(
        "{} redirects: {:.1} bytes each, {:.1} of them text",
        lists.len(),
        each(lists.memory()),
        each(text)
    );
    let plan = planned(&pipeline, "redirects", lists);
    let mut group = criterion.benchmark_group("100,000 redirects");
    for (name, path, expected) in [("found", "/article/77777", 1), ("not found", "/static/css/main.css", 0)] {
        let mut sample = request("www.example.com", "192.0.2.7");
        sample.path = path.into();
        let mut state = State::default();
        assert_eq!(run(&pipeline, &plan, &mut sample, &mut state), expected, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| run(&pipeline, &plan, black_box(&mut sample), &mut state));
        });
    }
    group.finish();
}

/// A value of a trivial step.
struct Count<const N: usize>;

/// Reads the path and the value of the step before, and writes its own.
#[derive(Default)]
struct Counting<const N: usize>;

/// Reads the path, and does nothing.
#[derive(Default)]
struct Looking<const N: usize>;

struct Switch;

impl FromNode for Switch {
    const KEY: Option<&'static foregate_module::Key> =
        Some(&foregate_module::Key::flag("trivial", "#false", "trivial", "Turns on the trivial steps."));
    fn from_nodes(
        _: &[Node],
        _: &mut dyn foregate_module::Context,
    ) -> Result<Self, foregate_module::Problem> {
        Ok(Self)
    }
}

macro_rules! trivial {
    ($($number:literal)*) => {
        $(
            impl Value for Count<$number> {
                type Data = usize;
                const NAME: &'static str = concat!("count-", $number);
                const ABOUT: &'static str = "A number.";
            }

            impl Step for Counting<$number> {
                type At = phase::RequestEarly;
                type Settings = Switch;
                type In<'r> = (Path<'r>, Read<'r, Count<{ if $number == 0 { 0 } else { $number - 1 } }>>);
                type Out = (Emit<Count<$number>>,);
                type Stop = Never;
                const NAME: &'static str = concat!("counting-", $number);
                const ABOUT: &'static str = "Counts.";
                const FILTERS: &'static [Filter] = &[];
                fn run(&self, _: &Switch, (Path(path), Read(before)): Self::In<'_>) -> ControlFlow<Never, Self::Out> {
                    ControlFlow::Continue((Emit(Some(path.len() + before.copied().unwrap_or_default())),))
                }
            }

            impl Step for Looking<$number> {
                type At = phase::RequestEarly;
                type Settings = Switch;
                type In<'r> = (Path<'r>,);
                type Out = ();
                type Stop = Never;
                const NAME: &'static str = concat!("looking-", $number);
                const ABOUT: &'static str = "Looks.";
                const FILTERS: &'static [Filter] = &[];
                fn run(&self, _: &Switch, (Path(path),): Self::In<'_>) -> ControlFlow<Never> {
                    black_box(path.len());
                    ControlFlow::Continue(())
                }
            }
        )*

        fn counting() -> Pipeline {
            Pipeline::new(vec![vec![$(erase::<Counting<$number>>()),*]])
        }

        fn looking() -> Pipeline {
            Pipeline::new(vec![vec![$(erase::<Looking<$number>>()),*]])
        }
    };
}

trivial! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
    35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66
    67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98
    99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122
    123 124 125 126 127 128 129
}

fn many_steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("130 steps");
    for (name, pipeline) in [("that read", looking()), ("that read and write a value", counting())] {
        let (none, all) = (PlanBuilder::new(&pipeline).build(true), planned(&pipeline, "trivial", Switch));
        assert_eq!((none.steps().len(), all.steps().len()), (0, 130));
        let mut sample = request("www.example.com", "192.0.2.7");
        let mut state = State::default();
        for (enabled, plan) in [("none enabled", &none), ("all enabled", &all)] {
            group.bench_function(format!("{name}, {enabled}"), |bencher| {
                bencher.iter(|| run(&pipeline, plan, black_box(&mut sample), &mut state));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, many_rules, many_redirects, many_steps);
criterion_main!(benches);
