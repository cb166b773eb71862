//! Foregate with modules that misbehave, each for requests with a field of its own.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use foregate_module::settings::{Context, FromNode, Key, Node, Problem};
use foregate_module::{
    Emit, Fetch, FetchKey, FetchRequest, Fetched, Filter, Never, Read, Step, UpstreamId, Weight, WhenFull,
    phase,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

foregate_module::pipeline! {
    /// All that ships, and these.
    pub fn steps { use foregate::shipped; Panics, Stumbles, Asks, Drags, Labours, Hears }
}

fn main() -> ExitCode {
    foregate::main(steps())
}

/// How long a step spins.
const SPIN: Duration = Duration::from_millis(200);

macro_rules! step {
    ($name:ident, $about:literal, $at:ident, $field:literal, $settings:ty, $in:ty, $out:ty, |$setting:pat_param| $run:expr $(, $more:item)*) => {
        #[doc = $about]
        #[derive(Debug, Default)]
        pub struct $name;
        impl Step for $name {
            type At = phase::$at;
            type Settings = $settings;
            type In<'r> = $in;
            type Out = $out;
            type Stop = Never;
            const NAME: &'static str = concat!("misbehaving-", $field);
            const ABOUT: &'static str = $about;
            const FILTERS: &'static [Filter] = &[Filter::RequestField($field)];
            $($more)*
            fn run(&self, $setting: &$settings, _: Self::In<'_>) -> ControlFlow<Never, $out> {
                $run
            }
        }
    };
}

step!(Panics, "Panics.", RequestEarly, "x-panic", (), (), (), |()| panic!("as asked"));
step!(
    Stumbles,
    "Panics, and requests may go on without it.",
    RequestEarly,
    "x-stumble",
    (),
    (),
    (),
    |()| panic!("as asked"),
    const OPTIONAL: bool = true;
);
step!(Drags, "Spins, and says that it is light.", RequestSecurity, "x-drag", (), (), (), |()| spin());
step!(
    Labours,
    "Spins, and says so.",
    RequestSecurity,
    "x-labour",
    (),
    (),
    (),
    |()| spin(),
    const WEIGHT: Weight = Weight::Heavy(WhenFull::Error);
);

fn spin() -> ControlFlow<Never> {
    let began = Instant::now();
    while began.elapsed() < SPIN {
        std::hint::spin_loop();
    }
    ControlFlow::Continue(())
}

/// The upstream to ask, which does not answer.
#[derive(Debug)]
pub struct Silent(UpstreamId);

static KEY: Key =
    Key::one("misbehaving-asks", "UPSTREAM", "misbehaving-asks \"silent\"", "Asks an upstream.").args(1, 1);

impl FromNode for Silent {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let argument = nodes.first().and_then(|node| node.args().first());
        let Some(argument) = argument else { return Err(Problem::new(Default::default(), "whom to ask?")) };
        Ok(Self(context.upstream(argument)?))
    }
}

/// The fetch, and its answer.
#[derive(Debug)]
pub struct Question;

impl FetchKey for Question {
    const NAME: &'static str = "misbehaving.question";
    const ANSWER: &'static str = "misbehaving.answer";
}

step!(
    Asks,
    "Asks who never answers.",
    RequestIdentity,
    "x-ask",
    Silent,
    (),
    (Emit<Fetch<Question>>,),
    |Silent(upstream)| {
        let ask = FetchRequest { timeout: Duration::from_secs(60), ..FetchRequest::get(*upstream, "/never") };
        ControlFlow::Continue((Emit(Some(ask)),))
    }
);
step!(Hears, "Hears the answer.", RequestSecurity, "x-hear", (), (Read<'r, Fetched<Question>>,), (), |()| {
    ControlFlow::Continue(())
});
