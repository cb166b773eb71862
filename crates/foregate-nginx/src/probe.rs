//! A module for tests against NGINX: steps that panic, and a filter that makes much of little.
//!
//! ```kdl
//! probe panic="request"
//! probe grow=40
//! ```

use core::ops::ControlFlow;

use foregate_module::settings::Prop;
use foregate_module::{
    Bail, Body, BodyFilter, Context, EditRequest, EditResponse, Edits, Filter, FilterResponseBody, Filtered,
    FromNode, HoldResponseBody, Key, LogId, LogLine, Never, Node, Problem, ReceivedRequest, Replace, Respond,
    Response, ResponseBody, Sink, Step, WriteLog, phase, pipeline,
};

/// The most that the filter writes at once, bytes.
const BURST: usize = 16 * 1024;

const KEY: Key = Key::one("probe", "panic=PLACE grow=NUMBER body=SIZE hold=SIZE log=FILE", "probe grow=2", "Does what tests need.")
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
        Prop {
            name: "body",
            usage: "SIZE",
            required: false,
            default: "",
            about: "How much of the request's body to look at: `x-body` tells the origin.",
        },
        Prop {
            name: "hold",
            usage: "SIZE",
            required: false,
            default: "",
            about: "How much of the response's body to look at: `x-held` tells the client; one with `attack` is refused.",
        },
        Prop { name: "log", usage: "FILE", required: false, default: "", about: "Where to write a line." },
    ]);

/// The settings of `probe`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    panic: String,
    grow: usize,
    body: usize,
    hold: usize,
    log: Option<LogId>,
}

impl FromNode for Settings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.last() else { return Ok(Self::default()) };
        let size = |name| node.prop(name).map_or(Ok(0), |argument| argument.size(0..=1 << 20));
        Ok(Self {
            body: size("body")? as usize,
            hold: size("hold")? as usize,
            log: node.prop("log").map(|path| context.log(path)).transpose()?,
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
    type In<'r> = (ResponseBody<'r>,);
    type Out = (FilterResponseBody, EditResponse);
    type Stop = Replace;
    const NAME: &'static str = "probe-response";
    const ABOUT: &'static str = "Writes each byte of the body several times.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &Settings,
        (ResponseBody { bytes, whole },): Self::In<'_>,
    ) -> ControlFlow<Replace, Self::Out> {
        settings.panic_in("response");
        if bytes.windows(6).any(|window| window == b"attack") {
            return ControlFlow::Break(Replace(Response::new(403).body("text/plain", "refused")));
        }
        let mut edits = Edits::new();
        if settings.hold > 0 {
            edits = edits.set("x-held", format!("{} {whole}", bytes.len()));
        }
        let filter = Grow { settings: settings.clone(), held: Vec::new(), at: 0, done: 0 };
        let wanted = settings.grow > 0 || settings.panic == "body";
        let filtered = wanted.then(|| Filtered::new(Self::NAME, filter));
        ControlFlow::Continue((FilterResponseBody(filtered), EditResponse(edits)))
    }
}

/// Looks at the request's body.
#[derive(Debug, Default)]
pub struct ProbeBody;

impl Step for ProbeBody {
    type At = phase::RequestBody;
    type Settings = Settings;
    type In<'r> = (Body<'r>,);
    type Out = (EditRequest,);
    type Stop = Respond;
    const NAME: &'static str = "probe-body";
    const ABOUT: &'static str = "Tells the origin how much of the body it has seen.";
    const FILTERS: &'static [Filter] = &[];

    fn body(settings: &Settings) -> usize {
        settings.body
    }

    fn run(
        &self,
        settings: &Settings,
        (Body { bytes, whole },): Self::In<'_>,
    ) -> ControlFlow<Respond, Self::Out> {
        if bytes.windows(6).any(|window| window == b"attack") {
            return ControlFlow::Break(Respond(Response::new(403).body("text/plain", "refused")));
        }
        let mut edits = Edits::new();
        if settings.body > 0 {
            edits = edits.set("x-body", format!("{} {whole}", bytes.len()));
        }
        ControlFlow::Continue((EditRequest(edits),))
    }
}

/// Asks for the response's body.
#[derive(Debug, Default)]
pub struct ProbeHold;

impl Step for ProbeHold {
    type At = phase::ResponseHeaders;
    type Settings = Settings;
    type In<'r> = ();
    type Out = (HoldResponseBody,);
    type Stop = Never;
    const NAME: &'static str = "probe-hold";
    const ABOUT: &'static str = "Asks for the start of the response's body.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Settings, (): ()) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((HoldResponseBody((settings.hold > 0).then_some(settings.hold)),))
    }
}

/// Panics in the log.
#[derive(Debug, Default)]
pub struct ProbeLog;

impl Step for ProbeLog {
    type At = phase::Log;
    type Settings = Settings;
    type In<'r> = (ReceivedRequest<'r>,);
    type Out = (WriteLog,);
    type Stop = Never;
    const NAME: &'static str = "probe-log";
    const ABOUT: &'static str = "Writes what was received into a log file.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &Settings,
        (ReceivedRequest(received),): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        settings.panic_in("log");
        let line = || {
            let kept = received.fields.get("x-gone").map(String::from_utf8_lossy);
            let client = received.client.map(|client| client.ip());
            format!("{received:?} {kept:?} {client:?} {:?}", received.server.map(|server| server.ip()))
        };
        let lines = settings.log.map(|log| LogLine { log, line: line().into() });
        ControlFlow::Continue((WriteLog(lines.into_iter().collect()),))
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
    pub fn probed { use crate::modules::shipped; ProbeRequest, ProbeBody, ProbeHold, ProbeResponse, ProbeLog }
}
