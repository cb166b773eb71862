//! The record of a transaction for the audit log: one JSON object on one line.

use super::plan::Plan;
use super::report::{Match, Report, shorten};
use super::state::State;
use super::transaction::shown_fields;
use super::values::Family;
use super::verdict::Verdict;
use crate::model::{AuditEngine, Settings, Severity, Variable};

/// The most bytes of a body that a record shows.
const BODY: usize = 4_096;

/// Returns true if the transaction is recorded.
pub(super) fn is_wanted(state: &State, settings: &Settings) -> bool {
    match state.switches.audit {
        AuditEngine::On => true,
        AuditEngine::Off => false,
        AuditEngine::RelevantOnly => {
            let status = state.values.text.get(state.values.scalar(Variable::ResponseStatus));
            let status = match &state.verdict {
                Some(Verdict::Deny { status, .. } | Verdict::Redirect { status, .. }) => Some(*status),
                _ => std::str::from_utf8(status).ok().and_then(|text| text.parse().ok()),
            };
            state.audit_relevant
                || status.is_some_and(|status| settings.audit_relevant_status.contains(status))
        }
    }
}

/// Writes the record of a transaction.
pub(super) fn record(state: &State, report: &Report, plan: &Plan) -> String {
    let parts = state.switches.audit_parts;
    let mut json = Json::default();
    json.open('{');
    json.key("transaction").open('{');
    json.key("unique_id").text(&report.unique_id);
    json.key("started").number(state.clock.started.as_millis());
    json.key("duration_ms").number(state.clock.elapsed.as_millis());
    json.key("client").text(&report.client);
    json.key("client_port").text(&shown(state, Variable::RemotePort));
    json.key("server").text(&shown(state, Variable::ServerAddr));
    json.key("server_port").text(&shown(state, Variable::ServerPort));
    if let Some(sensor) = &plan.settings.sensor_id {
        json.key("sensor").text(sensor);
    }
    json.close('}');
    messages(&mut json, state, report);
    if parts.has('H') {
        json.key("engine").open('{');
        plan.settings.components.iter().enumerate().for_each(|(at, component)| {
            json.key(&format!("component_{at}")).text(component);
        });
        json.key("mode").text(&format!("{:?}", state.switches.mode));
        json.close('}');
    }
    decision(&mut json, report);
    json.key("matches").open('[');
    for matched in report.matches.iter().filter(|matched| matched.audit_log || matched.log) {
        json.item();
        found(&mut json, matched);
    }
    json.close(']');
    json.close('}');
    json.out
}

/// The value of a variable, with its secrets masked.
fn shown(state: &State, variable: Variable) -> String {
    let values = &state.values;
    String::from_utf8_lossy(&state.masks.hide_of(variable, values.text.get(values.scalar(variable))))
        .into_owned()
}

/// The start of a body, with its secrets masked.
fn shown_body(state: &State, variable: Variable) -> String {
    // Masking shortens the text. Therefore four times the shown length is masked, rather than all of a large body.
    let start = state.values.scalar(variable).part(0, 4 * BODY);
    shorten(&state.masks.hide_of(variable, state.values.text.get(start)), BODY)
}

/// Writes the request and the response.
fn messages(json: &mut Json, state: &State, report: &Report) {
    let parts = state.switches.audit_parts;
    json.key("request").open('{');
    json.key("method").text(&shown(state, Variable::RequestMethod));
    json.key("host").text(&report.host);
    json.key("uri").text(&shown(state, Variable::RequestUriRaw));
    json.key("protocol").text(&shown(state, Variable::RequestProtocol));
    if parts.has('B') {
        json.fields("headers", &shown_fields(state, Family::Headers));
    }
    if parts.has('C') || parts.has('I') {
        json.key("body").text(&shown_body(state, Variable::RequestBody));
    }
    if parts.has('J') {
        json.fields("files", &shown_fields(state, Family::Files));
    }
    json.close('}');
    json.key("response").open('{');
    json.key("status").text(&shown(state, Variable::ResponseStatus));
    if parts.has('F') {
        json.fields("headers", &shown_fields(state, Family::ResponseHeaders));
    }
    if parts.has('E') {
        json.key("body").text(&shown_body(state, Variable::ResponseBody));
    }
    json.close('}');
}

fn decision(json: &mut Json, report: &Report) {
    json.key("decision").open('{');
    json.key("verdict").text(name(&report.verdict));
    json.key("would").text(name(&report.would));
    if let Some(rule) = report.verdict.rule().or(report.would.rule()) {
        json.key("rule").number(rule);
    }
    if let Some(score) = report.inbound_score {
        json.key("inbound_score").number(score);
    }
    if let Some(score) = report.outbound_score {
        json.key("outbound_score").number(score);
    }
    if let Some(over) = report.over {
        json.key("over_budget").text(&format!("{over:?}"));
    }
    if let Some(limit) = report.beyond {
        json.key("beyond").text(limit);
    }
    if let Some(why) = &report.unreadable {
        json.key("unreadable").text(why);
    }
    json.key("omitted_matches").number(report.omitted);
    json.close('}');
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Deny { .. } => "deny",
        Verdict::Redirect { .. } => "redirect",
        Verdict::Drop { .. } => "drop",
    }
}

fn found(json: &mut Json, matched: &Match) {
    json.open('{');
    json.key("id").number(matched.rule);
    json.key("phase").number(matched.phase.number());
    json.key("file").text(&matched.place.file);
    json.key("line").number(matched.place.line);
    json.key("msg").text(&matched.message);
    json.key("data").text(&matched.data);
    json.key("severity").text(matched.severity.map_or("", Severity::name));
    json.key("ver").text(matched.version.as_deref().unwrap_or_default());
    json.key("operator").text(&matched.operator);
    json.key("parameter").text(&matched.parameter);
    json.key("verdict").text(name(&matched.verdict));
    json.key("tags").open('[');
    for tag in &matched.tags {
        json.item();
        json.text(tag);
    }
    json.close(']');
    json.fields("values", &matched.values);
    json.close('}');
}

/// A writer of JSON, which puts the commas between elements.
#[derive(Default)]
struct Json {
    out: String,
    /// Set if the open object or list already has an element.
    follows: bool,
}

impl Json {
    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.follows = false;
    }

    fn close(&mut self, bracket: char) {
        self.out.push(bracket);
        self.follows = true;
    }

    fn item(&mut self) {
        if std::mem::replace(&mut self.follows, true) {
            self.out.push(',');
        }
    }

    fn key(&mut self, key: &str) -> &mut Self {
        self.item();
        self.text(key);
        self.out.push(':');
        self
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        self.out.push_str(&number.to_string());
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                    self.out.push_str(&format!("\\u{:04x}", control as u32));
                }
                letter => self.out.push(letter),
            }
        }
        self.out.push('"');
    }

    fn fields(&mut self, key: &str, fields: &[(String, String)]) {
        self.key(key).open('[');
        for (name, value) in fields {
            self.item();
            self.open('[');
            self.text(name);
            self.out.push(',');
            self.text(value);
            self.close(']');
        }
        self.close(']');
    }
}
