//! The state of a request, from its first step to its last.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use foregate_module::{Fields, Now, Runner, Source, State, Steps, Summary, Text};
use serde_json::Value;

use crate::body::Body;
use crate::border::Facts;
use crate::fetch::ModuleFetch;
use crate::heavy::Work;
use crate::route::Route;
use crate::target;

/// The most events that are stored for the access log. Any more are dropped.
const EVENTS_LIMIT: usize = 64;

/// One request on its way through the steps of a route.
pub(crate) struct Request {
    pub run: Run,
    pub kept: ExchangeChanges,
}

/// The progress of a request's steps, and their effects.
pub(crate) struct Run {
    pub route: Rc<Route>,
    /// The values of steps.
    pub state: State,
    /// Steps that are switched off for this request.
    pub off: Steps,
    /// The progress through the steps.
    pub runner: Runner,
    /// The step that is to run on another thread, if any.
    pub work: Option<Box<Work>>,
    /// The fetches, running and completed.
    pub asked: Vec<ModuleFetch>,
    /// Set if a step has replaced the response.
    pub replaced: bool,
    /// The filters of the request's body, until the whole body has passed through them.
    pub upload: Option<Body>,
    /// The filters of the response's body.
    pub body: Option<Body>,
    /// The step that has made the response.
    pub step: &'static str,
    /// The events to count.
    pub events: Events,
    /// The text of the last report, which C may still read.
    pub told: String,
}

/// Events to count: for each the step, the event, and the count.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<(&'static str, String, u64)>);

impl Events {
    pub(crate) fn count(&mut self, step: &'static str, event: &str, count: u64) {
        if let Some(same) = self.0.iter_mut().find(|same| same.0 == step && same.1 == event) {
            same.2 += count;
        } else if self.0.len() < EVENTS_LIMIT {
            self.0.push((step, event.to_owned(), count));
        }
    }
}

/// The changes that steps have made to the exchange, and the facts that steps can read, without the heads.
pub(crate) struct ExchangeChanges {
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
    pub authority: String,
    pub client: Option<IpAddr>,
    pub secure: Option<bool>,
    /// The number of the upstream that steps have chosen.
    pub upstream: Option<u32>,
    /// Set if a step asked for an invalid path.
    pub target_is_wrong: bool,
    pub source: Source<'static>,
    pub summary: Summary,
    pub now: Now,
    /// The start of the request's body, once it has been received for the steps; the flag is true if it is the whole body.
    pub request_body: Option<(Vec<u8>, bool)>,
    /// If a step that reads the request's body has not run: the reason, as the kind of an error.
    pub unseen: Option<&'static str>,
    /// The start of the response's body; the flag is true if it is the whole body.
    pub response_body: Option<(Vec<u8>, bool)>,
    /// The request as it was received, if a step of the plan reads it.
    pub received: Option<ReceivedFacts>,
}

/// The facts about the request as it was received that steps may change later.
pub(crate) struct ReceivedFacts {
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub server: Option<SocketAddr>,
}

impl Fields for ReceivedFacts {
    fn count(&self) -> usize {
        self.fields.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get(number).map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

impl Request {
    pub(crate) fn new(route: Rc<Route>, facts: &Facts<'_>) -> Self {
        let (path, query) = Some(facts.raw)
            .filter(|_| facts.raw_is_valid)
            .and_then(target::of_raw)
            .unwrap_or_else(|| target::of_decoded(facts.uri, facts.args));
        let kept = ExchangeChanges {
            path,
            query,
            authority: authority(facts),
            client: None,
            secure: None,
            upstream: None,
            target_is_wrong: false,
            source: Source::Nobody,
            summary: Summary::default(),
            now: Now::default(),
            request_body: None,
            unseen: None,
            response_body: None,
            received: None,
        };
        let run = Run {
            state: State::default(),
            off: route.off,
            runner: Runner::default(),
            work: None,
            asked: Vec::new(),
            replaced: false,
            upload: None,
            body: None,
            step: "",
            events: Events::default(),
            told: String::new(),
            route,
        };
        Self { run, kept }
    }
}

impl ExchangeChanges {
    /// Moves this data out for a step on another thread; small values are copied.
    pub(crate) fn lend(&mut self) -> Self {
        Self {
            path: self.path.clone(),
            query: self.query.clone(),
            authority: self.authority.clone(),
            client: self.client,
            secure: self.secure,
            upstream: self.upstream,
            target_is_wrong: self.target_is_wrong,
            source: self.source,
            summary: self.summary,
            now: self.now,
            request_body: self.request_body.take(),
            unseen: self.unseen,
            response_body: self.response_body.take(),
            received: self.received.take(),
        }
    }
}

impl Run {
    /// The name of the upstream that steps have chosen.
    pub(crate) fn upstream(&self, kept: &ExchangeChanges) -> &str {
        let chosen = self.route.choices.iter().find(|(number, _)| Some(*number) == kept.upstream);
        chosen.map_or("", |(_, name)| name)
    }

    /// Adds to the count of an event of a step.
    pub(crate) fn count(&mut self, step: &'static str, event: &str, count: u64) {
        self.events.count(step, event, count);
    }

    /// Switches the steps of a key on or off. Returns 1 if this has an effect, 0 if all of these steps have already had
    /// their turn, -1 if the route has no such key.
    pub(crate) fn switch(&mut self, name: &str, on: bool) -> i32 {
        let steps = self.route.pipeline.named(name);
        let planned: Vec<_> = self
            .route
            .plan
            .steps()
            .iter()
            .map(|planned| usize::from(planned.step))
            .filter(|step| steps.contains(*step))
            .collect();
        if planned.is_empty() {
            return -1;
        }
        let all = 0..self.route.pipeline.entries().len();
        let is_off = |step: &usize| if steps.contains(*step) { !on } else { self.off.contains(*step) };
        self.off = all.filter(is_off).fold(Steps::NONE, Steps::with);
        let phase = |step: &usize| self.route.pipeline.steps().nth(*step).map(|decl| decl.phase.order());
        i32::from(planned.iter().any(|step| phase(step).is_some_and(|phase| phase >= self.runner.next())))
    }

    /// The notes of steps for the access log, as a JSON object. If a name has several values, they are an array.
    pub(crate) fn notes(&self) -> String {
        notes(&self.state.notes)
    }

    /// The events, as `step.event=count`, separated by commas.
    pub(crate) fn events(&self) -> String {
        let events = self.events.0.iter().map(|(step, event, count)| format!("{step}.{event}={count}"));
        events.collect::<Vec<_>>().join(",")
    }
}

/// Host and port; the default port of the scheme is left out.
fn authority(facts: &Facts<'_>) -> String {
    let own: &[u8] = if facts.https { b"443" } else { b"80" };
    let mut authority = String::from_utf8_lossy(facts.server).into_owned();
    // An IPv6 address contains colons, but it stands in brackets.
    let after = facts.host.iter().rposition(|byte| *byte == b']').unwrap_or_default();
    let tail = facts.host.get(after..).unwrap_or_default();
    let port =
        tail.iter().position(|byte| *byte == b':').and_then(|at| tail.get(at + 1..)).unwrap_or_default();
    if !port.is_empty() && port != own && port.iter().all(u8::is_ascii_digit) {
        authority.push(':');
        authority.extend(port.iter().map(|byte| char::from(*byte)));
    }
    authority
}

/// Notes as a JSON object, or nothing.
fn notes(noted: &[(Text, Text)]) -> String {
    if noted.is_empty() {
        return String::new();
    }
    let text = |text: &Text| String::from_utf8_lossy(text).into_owned();
    let mut notes: serde_json::Map<String, Value> = serde_json::Map::new();
    for (name, value) in noted {
        let value = Value::from(text(value));
        match notes.get_mut(&text(name)) {
            None => {
                notes.insert(text(name), value);
            }
            Some(Value::Array(values)) if values.contains(&value) => {}
            Some(Value::Array(values)) => values.push(value),
            Some(first) if *first == value => {}
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Value::Object(notes).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn notes_of_one_name_are_one_member() {
        let told = |notes: &[(&'static str, &'static str)]| {
            super::notes(
                &notes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect::<Vec<_>>(),
            )
        };
        assert_eq!(told(&[]), "");
        let several = [("a", "1"), ("b", "2"), ("a", "\""), ("b", "2"), ("a", "1")];
        assert_eq!(told(&several), r#"{"a":["1","\""],"b":"2"}"#);
    }
}
