//! Modules for tests with NGINX: steps that panic, a filter with output much longer than its input, and slow steps.
//!
//! ```kdl
//! probe panic="request"
//! probe grow=40
//! probe-busy in="request" time="100ms"
//! ```

use core::ops::ControlFlow;
use std::time::Duration;

use foregate_module::settings::Prop;
use foregate_module::{
    Bail, Body, BodyFilter, ClientAddress, Context, EditRequest, EditResponse, Edits, Emit, Filter,
    FilterResponseBody, Filtered, FromNode, HoldResponseBody, Key, Load, LogId, LogLine, Never, Node, Path,
    Problem, Read, ReceivedRequest, Replace, RequestFields, Respond, Response, ResponseBody, ResponseFields,
    Sink, Step, Value, Weight, WhenFull, WriteLog, phase, pipeline,
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
        let filter = GrowProbe { settings: settings.clone(), held: Vec::new(), at: 0, done: 0 };
        let wanted = settings.grow > 0 || settings.panic == "body";
        let filtered = wanted.then(|| Filtered::new(Self::NAME, filter));
        ControlFlow::Continue((FilterResponseBody(filtered), EditResponse(edits)))
    }
}

/// Reads the request's body.
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
        (Body { bytes, whole, .. },): Self::In<'_>,
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
struct GrowProbe {
    settings: Settings,
    held: Vec<u8>,
    /// The position of the byte that is being written; `done` is the number of times that it has been written.
    at: usize,
    done: usize,
}

impl GrowProbe {
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

impl BodyFilter for GrowProbe {
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

    fn held(&self) -> usize {
        self.held.len().saturating_sub(self.at)
    }
}

const BUSY: Key =
    Key::one("probe-busy", "in=PLACE time=DURATION", "probe-busy in=\"request\"", "Takes its time.")
        .args(0, 0)
        .props(&[
            Prop {
                name: "in",
                usage: "\"request\"|\"response\"|\"both\"|\"panic\"",
                required: true,
                default: "",
                about: "Where.",
            },
            Prop { name: "time", usage: "DURATION", required: false, default: "\"0s\"", about: "How long." },
        ]);

/// The settings of `probe-busy`.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    place: String,
    time: Duration,
}

impl FromNode for Busy {
    const KEY: Option<&'static Key> = Some(&BUSY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.last() else { return Ok(Self::default()) };
        let time = |time: &foregate_module::Argument| time.duration(Duration::ZERO..=Duration::from_secs(60));
        Ok(Self {
            place: node.prop("in").map_or(Ok(""), |argument| argument.text())?.to_owned(),
            time: node.prop("time").map_or(Ok(Duration::ZERO), time)?,
        })
    }
}

impl Busy {
    #[allow(clippy::panic, reason = "this is what the step is for")]
    #[allow(clippy::disallowed_methods, reason = "a heavy step has a thread for itself")]
    fn is_busy(&self, place: &str) -> bool {
        if self.place == "panic" {
            panic!("as the test wants it");
        }
        let busy = self.place == place || self.place == "both";
        if busy {
            std::thread::sleep(self.time);
        }
        busy
    }
}

/// The record of a slow step that ran over the request.
#[derive(Debug)]
pub struct SeenOfRequest;

impl Value for SeenOfRequest {
    type Data = String;
    const NAME: &'static str = "probe.seen-of-request";
    const ABOUT: &'static str = "The request as a busy step has seen it.";
}

/// The record of a slow step that ran over the response.
#[derive(Debug)]
pub struct SeenOfResponse;

impl Value for SeenOfResponse {
    type Data = String;
    const NAME: &'static str = "probe.seen-of-response";
    const ABOUT: &'static str = "The response as a busy step has seen it.";
}

/// A slow step over the request.
#[derive(Debug, Default)]
pub struct BusyRequest;

impl Step for BusyRequest {
    type At = phase::RequestSecurity;
    type Settings = Busy;
    type In<'r> = (Path<'r>, RequestFields<'r>, ClientAddress);
    type Out = (Emit<SeenOfRequest>,);
    type Stop = Respond;
    const NAME: &'static str = "probe-busy-request";
    const ABOUT: &'static str = "Takes its time with the request.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Heavy(WhenFull::Error);

    fn run(
        &self,
        settings: &Busy,
        (Path(path), RequestFields(fields), ClientAddress(client)): Self::In<'_>,
    ) -> ControlFlow<Respond, Self::Out> {
        if !settings.is_busy("request") {
            return ControlFlow::Continue((Emit(None),));
        }
        let kept = fields.get("x-kept").map(String::from_utf8_lossy).unwrap_or_default();
        if kept == "stop" {
            return ControlFlow::Break(Respond(Response::new(403).body("text/plain", "stopped")));
        }
        let seen = format!("{} {kept} {}", String::from_utf8_lossy(path), client.is_some());
        ControlFlow::Continue((Emit(Some(seen)),))
    }
}

/// Sends the record to the origin.
#[derive(Debug, Default)]
pub struct TellOrigin;

impl Step for TellOrigin {
    type At = phase::RequestRewrite;
    type Settings = Busy;
    type In<'r> = (Read<'r, SeenOfRequest>,);
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "probe-tell-origin";
    const ABOUT: &'static str = "Tells the origin what has been seen.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, _: &Busy, (Read(seen),): Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let edits = seen.map_or_else(Edits::new, |seen| Edits::new().set("x-seen", seen.clone()));
        ControlFlow::Continue((EditRequest(edits),))
    }
}

/// A slow step over the response.
#[derive(Debug, Default)]
pub struct BusyResponse;

impl Step for BusyResponse {
    type At = phase::ResponseHeaders;
    type Settings = Busy;
    type In<'r> = (ResponseFields<'r>, RequestFields<'r>, Read<'r, SeenOfRequest>);
    type Out = (Emit<SeenOfResponse>,);
    type Stop = Replace;
    const NAME: &'static str = "probe-busy-response";
    const ABOUT: &'static str = "Takes its time with the response.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn load(&self, settings: &Busy, _: &Self::In<'_>) -> Load {
        match settings.place.as_str() {
            "request" => Load::Light,
            _ => Load::Heavy { when_full: WhenFull::Inline, wait: Duration::from_secs(1) },
        }
    }

    fn run(
        &self,
        settings: &Busy,
        (ResponseFields(response), RequestFields(request), Read(seen)): Self::In<'_>,
    ) -> ControlFlow<Replace, Self::Out> {
        if !settings.is_busy("response") {
            return ControlFlow::Continue((Emit(None),));
        }
        if request.get("x-kept") == Some(b"replace") {
            return ControlFlow::Break(Replace(Response::new(410).body("text/plain", "replaced")));
        }
        let origin = response.get("x-origin").map_or("none".into(), String::from_utf8_lossy);
        ControlFlow::Continue((Emit(Some(format!("{origin} {}", seen.is_some()))),))
    }
}

/// Sends the record to the client.
#[derive(Debug, Default)]
pub struct TellClient;

impl Step for TellClient {
    type At = phase::ResponseHeaders;
    type Settings = Busy;
    type In<'r> = (Read<'r, SeenOfResponse>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "probe-tell-client";
    const ABOUT: &'static str = "Tells the client what has been seen.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, _: &Busy, (Read(seen),): Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let edits = seen.map_or_else(Edits::new, |seen| Edits::new().set("x-seen", seen.clone()));
        ControlFlow::Continue((EditResponse(edits),))
    }
}

pipeline! {
    /// The shipped modules, and the probes.
    pub fn probed {
        use crate::modules::shipped;
        ProbeRequest, BusyRequest, ProbeBody, TellOrigin, ProbeHold, BusyResponse, TellClient, ProbeResponse, ProbeLog
    }
}
