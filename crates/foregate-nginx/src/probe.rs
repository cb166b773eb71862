//! A module for tests against NGINX: steps that panic, and a filter that makes much of little.
//!
//! ```kdl
//! probe panic="request"
//! probe grow=40
//! ```

use core::ops::ControlFlow;

use foregate_module::settings::Prop;
use foregate_module::{
    Bail, BodyFilter, Context, EditRequest, Edits, Filter, FilterResponseBody, Filtered, FromNode, Key,
    Never, Node, Problem, Sink, Step, phase, pipeline,
};

/// The most that the filter writes at once, bytes.
const BURST: usize = 16 * 1024;

const KEY: Key = Key::one("probe", "panic=PLACE grow=NUMBER", "probe grow=2", "Does what tests need.")
    .args(0, 0)
    .props(&[
        Prop {
            name: "panic",
            usage: "\"request\"|\"response\"|\"body\"|\"log\"",
            required: false,
            default: "",
            about: "Where to panic.",
        },
        Prop {
            name: "grow",
            usage: "NUMBER",
            required: false,
            default: "",
            about: "How often each byte of a body is written.",
        },
    ]);

/// The settings of `probe`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    panic: String,
    grow: usize,
}

impl FromNode for Settings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.last() else { return Ok(Self::default()) };
        Ok(Self {
            panic: node.prop("panic").map_or(Ok(""), |argument| argument.text())?.to_owned(),
            grow: node.prop("grow").map_or(Ok(0), |argument| argument.number(0..=10_000))? as usize,
        })
    }
}

impl Settings {
    #[allow(clippy::panic, reason = "this is what the step is for")]
    fn panic_in(&self, place: &str) {
        if self.panic == place {
            panic!("as the test wants it");
        }
    }
}

/// Panics in a request, and counts how often it runs for one.
#[derive(Debug, Default)]
pub struct ProbeRequest;

impl Step for ProbeRequest {
    type At = phase::RequestEarly;
    type Settings = Settings;
    type In<'r> = ();
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "probe-request";
    const ABOUT: &'static str = "Adds `x-probe` to the request.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Settings, (): ()) -> ControlFlow<Never, Self::Out> {
        settings.panic_in("request");
        ControlFlow::Continue((EditRequest(Edits::new().append("x-probe", "1")),))
    }
}

/// Panics in a response, or filters its body.
#[derive(Debug, Default)]
pub struct ProbeResponse;

impl Step for ProbeResponse {
    type At = phase::ResponseBody;
    type Settings = Settings;
    type In<'r> = ();
    type Out = (FilterResponseBody,);
    type Stop = Never;
    const NAME: &'static str = "probe-response";
    const ABOUT: &'static str = "Writes each byte of the body several times.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Settings, (): ()) -> ControlFlow<Never, Self::Out> {
        settings.panic_in("response");
        let filter = Grow { settings: settings.clone(), held: Vec::new(), at: 0, done: 0 };
        let wanted = settings.grow > 0 || settings.panic == "body";
        ControlFlow::Continue((FilterResponseBody(wanted.then(|| Filtered::new(Self::NAME, filter))),))
    }
}

/// Panics in the log.
#[derive(Debug, Default)]
pub struct ProbeLog;

impl Step for ProbeLog {
    type At = phase::Log;
    type Settings = Settings;
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "probe-log";
    const ABOUT: &'static str = "Does nothing else.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Settings, (): ()) -> ControlFlow<Never, ()> {
        settings.panic_in("log");
        ControlFlow::Continue(())
    }
}

/// Writes each byte several times, a burst at a time.
struct Grow {
    settings: Settings,
    held: Vec<u8>,
    /// The byte that is written now, and how often it has been.
    at: usize,
    done: usize,
}

impl Grow {
    fn burst(&mut self, out: &mut dyn Sink) {
        let mut burst = Vec::with_capacity(BURST);
        while burst.len() < BURST
            && let Some(byte) = self.held.get(self.at)
        {
            let count = (self.settings.grow - self.done).min(BURST - burst.len());
            burst.resize(burst.len() + count, *byte);
            self.done += count;
            if self.done == self.settings.grow {
                self.at += 1;
                self.done = 0;
            }
        }
        out.write(&burst);
        if self.at == self.held.len() {
            self.held.clear();
            self.at = 0;
        }
    }
}

impl BodyFilter for Grow {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.settings.panic_in("body");
        self.held.extend_from_slice(piece);
        self.burst(out);
        Ok(())
    }

    fn pending(&self) -> bool {
        !self.held.is_empty()
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(b"END");
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        while self.pending() {
            self.burst(out);
        }
        Ok(())
    }
}

pipeline! {
    /// What ships, and the probe.
    pub fn probed { use foregate_modules::shipped; ProbeRequest, ProbeResponse, ProbeLog }
}
