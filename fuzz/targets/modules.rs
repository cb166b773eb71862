//! Invariants of modules for any input of clients and origins. The body of a fuzz target, also run over its corpus by
//! `cargo test`.
//!
//! The first byte of an input chooses the route, the second the splits of bodies and the facts of the connection. Then
//! come the request and the response, each as a line, fields, an empty line and, behind the response, the body, which is
//! that of the request and of fetches as well.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use foregate::config::load_text;
use foregate_module::testing::{Handshake, List, Sample};
use foregate_module::{
    Bail, Chain, Entry, Exchange, Fault, FetchError, FetchResponse, FetchResult, Field, Fields, FieldsMut,
    Filtered, Next, PhaseId, Pipeline, Plan, PlannedStep, Platform, Runner, State, StepEnd,
};
use foregate_wire::{HeaderList, Slashes, normalize_path, parse_authority};

const ROUTES: usize = 9;

struct Host {
    pipeline: Arc<Pipeline>,
    plans: Vec<Arc<Plan>>,
}

static HOST: LazyLock<Host> = LazyLock::new(|| {
    let pipeline = Arc::new(foregate::shipped());
    let text = include_str!("modules.kdl").to_owned();
    let settings = load_text(Path::new("modules.kdl"), text, &pipeline);
    let settings = settings.unwrap_or_else(|refused| panic!("{}", refused.plain()));
    let site = settings.sites.find(b"a.example").expect("a site for every host");
    let plan = |number: usize| {
        let route = settings.sites.route(site, format!("/{number}/").as_bytes()).expect("a route");
        Arc::clone(route.plan.get().expect("it has modules"))
    };
    let plans = (0..ROUTES).map(plan).collect();
    Host { pipeline, plans }
});

/// A message: its first line and its fields, as a parser would have let them pass.
struct Head<'d> {
    line: &'d [u8],
    fields: List,
}

impl<'d> Head<'d> {
    fn read(rest: &mut &'d [u8]) -> Self {
        let mut line = || {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = &rest[..end];
            *rest = rest.get(end + 1..).unwrap_or_default();
            line
        };
        let mut head = Self { line: line(), fields: List::default() };
        let mut checked = HeaderList::new();
        loop {
            let field = line();
            if field.is_empty() {
                break;
            }
            let colon = field.iter().position(|byte| *byte == b':').unwrap_or(field.len());
            let _ = checked.try_push(&field[..colon], field.get(colon + 1..).unwrap_or_default());
        }
        for field in &checked {
            head.fields.append(field.name, field.value);
        }
        head
    }
}

/// The outcome of an exchange, without the parts that differ from one to the next.
#[derive(PartialEq, Eq)]
struct Outcome {
    target: (Vec<u8>, Option<Vec<u8>>),
    request: List,
    status: Option<u16>,
    response: List,
    notes: List,
    request_body: Result<Vec<u8>, Bail>,
    response_body: Result<Vec<u8>, Bail>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {:?}, {:?}", self.target.0.escape_ascii(), self.target.1, self.status)?;
        for (name, value) in [&self.request, &self.response, &self.notes].into_iter().flat_map(|list| &list.0)
        {
            writeln!(f, "{}: {}", name.escape_ascii(), value.escape_ascii())?;
        }
        for body in [&self.request_body, &self.response_body] {
            match body {
                Ok(body) => writeln!(f, "{}", body.escape_ascii())?,
                Err(bail) => writeln!(f, "{bail:?}")?,
            }
        }
        Ok(())
    }
}

/// The state that steps see and write.
struct Stage {
    sample: Sample,
    state: State,
}

impl Platform for Stage {
    /// A panic is a finding.
    fn unharmed(work: impl FnOnce()) -> bool {
        work();
        true
    }

    fn parts(&mut self) -> (&mut dyn Exchange, &mut State) {
        (&mut self.sample, &mut self.state)
    }

    fn took(&mut self, _: &PlannedStep, _: bool) {
        check_fields(&self.sample.request);
        check_fields(&self.sample.response);
    }

    /// Lines are looked at in the end.
    fn news(&mut self, _: &Entry, _: &PlannedStep) {}

    fn stopped(&mut self, _: &Entry, _: &PlannedStep) {}

    fn failed(&mut self, entry: &Entry, _: &PlannedStep, fault: Fault, _: bool) {
        panic!("{} has failed: {fault:?}", entry.decl().name);
    }
}

struct Run<'d> {
    host: &'static Host,
    plan: &'static Plan,
    stage: Stage,
    runner: Runner,
    answer: FetchResult,
    body: &'d [u8],
    stride: usize,
}

impl Run<'_> {
    /// Runs the remaining steps up to a phase; returns the end, if one ended it.
    fn phases(&mut self, last: PhaseId) -> Option<StepEnd> {
        let pipeline = &self.host.pipeline;
        loop {
            match self.runner.run(pipeline, self.plan, last, &mut self.stage) {
                Next::Done => return None,
                Next::Body => self.runner.has_body(),
                Next::Fetch => self.fetch(),
                Next::Offload { planned, .. } => {
                    let Stage { sample, state } = &mut self.stage;
                    let verdict = pipeline.run(planned, sample, state);
                    self.stage.took(planned, true);
                    self.runner.tell(Ok(verdict));
                }
                Next::Ended(ended) => return Some(ended),
            }
        }
    }

    /// Answers all that steps have asked for.
    fn fetch(&mut self) {
        let state = &mut self.stage.state;
        for (slot, _) in std::mem::take(&mut state.fetches) {
            let Some(question) = state.slots.take_question(slot) else { continue };
            assert!(question.request.path.starts_with(b"/"));
            if let Some(slot) = self.host.pipeline.answer_slot(slot) {
                state.slots.answer(slot, self.answer.clone(), question.dry);
            }
        }
    }

    fn skip_to(&mut self, first: PhaseId) {
        self.runner.skip_to(first);
        self.stage.state.fetches.clear();
    }

    fn respond(&mut self, ended: StepEnd) -> bool {
        let StepEnd::Answer(response, _) = ended else { return false };
        assert!((200..1000).contains(&response.status));
        let Stage { sample, state } = &mut self.stage;
        sample.status = Some(response.status);
        sample.response = fields(&response.fields);
        check_fields(&sample.response);
        sample.response_body = (response.body.to_vec(), true);
        state.response_filters.clear();
        self.skip_to(PhaseId::ResponseHeaders);
        true
    }

    /// All of an exchange.
    fn all(mut self, response: &Head<'_>) -> Outcome {
        let mut request_body = Ok(Vec::new());
        let mut answered = true;
        if let Some(ended) = self.phases(PhaseId::UpstreamRequest) {
            answered = self.respond(ended);
        } else {
            let filters = std::mem::take(&mut self.stage.state.request_filters);
            request_body = through(filters, self.body, self.stride, &self.answer);
            let status = std::str::from_utf8(response.line).ok().and_then(|text| text.parse().ok());
            let sample = &mut self.stage.sample;
            sample.status = status.filter(|status| (200..1000).contains(status)).or(Some(200));
            sample.response = response.fields.clone();
            sample.response_body = (self.body.to_vec(), true);
            self.skip_to(PhaseId::UpstreamResponse);
        }
        while answered {
            let Some(ended) = self.phases(PhaseId::ResponseBody) else { break };
            answered = self.respond(ended);
        }
        let filters = std::mem::take(&mut self.stage.state.response_filters);
        let body = std::mem::take(&mut self.stage.sample.response_body.0);
        let mut response_body = through(filters, &body, self.stride, &self.answer);
        if self.stage.sample.response.get("content-encoding").is_some() {
            // An encoder may write the same in more than one way.
            response_body = response_body.map(|_| Vec::new());
        }
        self.skip_to(PhaseId::Log);
        assert!(self.phases(PhaseId::Log).is_none());
        let Stage { sample, state } = self.stage;
        for line in &state.lines {
            assert!(!line.line.contains(&b'\n'), "a line of a log is one line");
        }
        let Sample { path, query, request, status, response, .. } = sample;
        let notes = state.notes.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        // The rest of a limit decreases each time.
        let response = response.0.into_iter().filter(|(name, _)| !name.starts_with(b"ratelimit")).collect();
        Outcome {
            target: (path, query),
            request,
            status,
            response: List(response),
            notes: List(notes),
            request_body,
            response_body,
        }
    }
}

fn fields(fields: &[Field]) -> List {
    List(fields.iter().map(|field| (field.name().to_vec(), field.value().to_vec())).collect())
}

fn check_fields(fields: &List) {
    let mut list = HeaderList::new();
    for (name, value) in &fields.0 {
        assert_eq!(list.try_push(name, value), Ok(()), "{name:?}: {value:?}");
    }
}

/// The output of filters for a body, with this answer to all fetches.
fn through(
    filters: Vec<Filtered>,
    body: &[u8],
    stride: usize,
    answer: &FetchResult,
) -> Result<Vec<u8>, Bail> {
    let budget = filters.iter().map(|filtered| filtered.budget).fold(0, usize::saturating_add);
    let mut chain = Chain::new(filters);
    let mut out = Vec::new();
    for piece in body.chunks(stride) {
        chain.write(piece, &mut out).map_err(|(bail, _)| bail)?;
        settle(&mut chain, answer, &mut out)?;
        assert!(chain.held() <= budget, "{} bytes are held, and {budget} may be", chain.held());
    }
    chain.end(&mut out).map_err(|(bail, _)| bail)?;
    settle(&mut chain, answer, &mut out)?;
    assert!(!chain.is_waiting() && !chain.is_pending());
    Ok(out)
}

fn settle(chain: &mut Chain, answer: &FetchResult, out: &mut Vec<u8>) -> Result<(), Bail> {
    /// A body is a few KiB long, its output at most some MiB.
    const ROUNDS: usize = 10_000;
    for _ in 0..ROUNDS {
        if chain.is_pending() {
            chain.resume(out).map_err(|(bail, _)| bail)?;
        } else if chain.is_waiting() {
            let question = chain.question().expect("who waits asks");
            assert!(question.path.starts_with(b"/"));
            chain.answer(answer.clone(), out).map_err(|(bail, _)| bail)?;
        } else {
            return Ok(());
        }
    }
    panic!("filters come to no end");
}

/// Modules make well-formed messages of well-formed ones, the same each time and wherever bodies are split.
pub(crate) fn modules(data: &[u8]) {
    let [route, choice, rest @ ..] = data else { return };
    let mut rest = rest;
    let (request, response) = (Head::read(&mut rest), Head::read(&mut rest));
    let number = usize::from(*route) % ROUTES;
    let Some(sample) = sample(number, *choice, &request, rest) else { return };
    let run = |stride| {
        let answer = match choice >> 5 {
            0 => Err(FetchError::Timeout),
            1 => Ok((200, rest)),
            2 => Ok((404, rest)),
            _ => Ok((200, b"{}".as_slice())),
        };
        let answer = answer.map(|(status, body)| FetchResponse {
            status,
            fields: response
                .fields
                .0
                .iter()
                .flat_map(|(name, value)| Field::new(name.clone(), value.clone()))
                .collect(),
            body: body.to_vec().into(),
        });
        let sample = copy(&sample);
        let (stage, plan) = (Stage { sample, state: State::default() }, &HOST.plans[number]);
        let runner = Runner::default();
        Run { host: &HOST, plan, stage, runner, answer, body: rest, stride }.all(&response)
    };
    let whole = run(Chain::PIECE);
    let split = run([1, 2, 7, 64][usize::from(choice & 3)]);
    assert!(whole == split, "in pieces:\n{split}\nwhole:\n{whole}");
}

/// The request: a method, a path below the route's, a host.
fn sample(number: usize, choice: u8, request: &Head<'_>, body: &[u8]) -> Option<Sample> {
    let mut words = request.line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next().unwrap_or_default());
    let question = target.iter().position(|byte| *byte == b'?');
    let (path, query) = target.split_at(question.unwrap_or(target.len()));
    let mut sample = Sample::get("/");
    sample.path = format!("/{number}").into_bytes();
    let mut below = Vec::new();
    normalize_path(path, Slashes::Merge, &mut below).ok()?;
    sample.path.extend(below);
    sample.query = query.get(1..).map(Into::into);
    sample.raw_target = target.into();
    sample.method = method.into();
    let mut host = String::new();
    if parse_authority(request.fields.get("host").unwrap_or(b"a.example"), &mut host).is_ok() {
        sample.host = host;
    }
    sample.request = request.fields.clone();
    sample.body = (body.into(), choice & 4 == 0);
    sample.tls = (choice & 8 != 0).then(Handshake::default);
    if choice & 16 != 0 {
        (sample.client, sample.peer) = (None, None);
    }
    Some(sample)
}

fn copy(sample: &Sample) -> Sample {
    let mut copy = Sample::get("/");
    copy.path.clone_from(&sample.path);
    copy.query.clone_from(&sample.query);
    copy.raw_target.clone_from(&sample.raw_target);
    copy.method.clone_from(&sample.method);
    copy.host.clone_from(&sample.host);
    copy.request.clone_from(&sample.request);
    copy.body.clone_from(&sample.body);
    copy.tls.clone_from(&sample.tls);
    (copy.client, copy.peer) = (sample.client, sample.peer);
    copy
}
