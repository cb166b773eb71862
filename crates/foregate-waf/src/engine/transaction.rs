//! The interface for the host: a transaction takes the parts of a request and its response and returns
//! verdicts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::budget::Over;
use super::expand::View;
use super::intake::Intake;
use super::limits::ENVIRONMENT;
use super::report::Report;
use super::run::Run;
use super::secrets::{HIDDEN, is_secret_field};
use super::state::State;
use super::tx;
use super::values::Family;
use super::verdict::Verdict;
use crate::model::{BeyondLimit, EngineMode, Phase, RuleId, Variable};

/// The options for starting a transaction.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The id of the transaction, unique among the transactions of a log.
    pub unique_id: Arc<str>,
    /// The time at which the transaction began, since 1970. The engine itself reads no clock.
    pub started: Duration,
    /// Overrides `SecRuleEngine`. If neither is set, rules run and stop requests.
    pub mode: Option<EngineMode>,
    /// If true, rules only detect, and the report tells the verdicts that would have been applied.
    pub dry_run: bool,
}

/// One request and its response as rules see them. The host supplies the parts in order and asks for the verdict after
/// each; phases that the host skips still run in their order, without values. After a verdict other than
/// [`Verdict::Pass`], phases 1 to 4 decide nothing more; [`log`](Self::log) runs phase 5.
///
/// The transaction owns all of its data, so it can move to another thread and back.
pub struct Transaction {
    engine: Arc<Engine>,
    state: Box<State>,
    unique_id: Arc<str>,
    dry_run: bool,
    /// Set if the client had its answer before anything was decided.
    answered: bool,
    /// The next phase to run.
    next: usize,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("unique_id", &self.unique_id).field("next", &self.next).finish()
    }
}

impl Transaction {
    /// Starts a transaction without any input yet.
    pub fn new(engine: &Arc<Engine>, options: Options) -> Self {
        let plan = &engine.plan;
        let mode = options.mode.or(plan.settings.engine).unwrap_or(EngineMode::On);
        let mut state = Box::new(State::new(plan, mode, options.started));
        state.switches.detects = options.mode == Some(EngineMode::DetectionOnly);
        state.values.set_text(Variable::UniqueId, options.unique_id.as_bytes());
        if let Some(app) = &plan.settings.web_app_id {
            state.values.set_text(Variable::WebAppId, app.as_bytes());
        }
        state.values.set_text(Variable::ReqbodyProcessor, b"");
        for flag in [Variable::ReqbodyError, Variable::UrlencodedError, Variable::MultipartStrictError] {
            state.values.set_text(flag, b"0");
        }
        Self {
            engine: Arc::clone(engine),
            state,
            unique_id: options.unique_id,
            dry_run: options.dry_run,
            answered: false,
            next: 0,
        }
    }

    fn run(&mut self) -> Run<'_> {
        Run { view: View { plan: &self.engine.plan, state: &mut self.state } }
    }

    fn intake(&mut self) -> Intake<'_> {
        Intake { plan: &self.engine.plan, state: &mut self.state }
    }

    /// Sets the addresses of both ends.
    pub fn connection(&mut self, client: SocketAddr, server: SocketAddr) {
        let values = &mut self.state.values;
        let address = client.ip().to_canonical().to_string();
        values.set_text(Variable::RemoteAddr, address.as_bytes());
        values.set_text(Variable::RemoteHost, address.as_bytes());
        values.set_number(Variable::RemotePort, u64::from(client.port()));
        values.set_text(Variable::ServerAddr, server.ip().to_canonical().to_string().as_bytes());
        values.set_number(Variable::ServerPort, u64::from(server.port()));
    }

    /// Adds the request line as received: method, target and protocol (`HTTP/1.1`).
    pub fn request_line(&mut self, method: &[u8], target: &[u8], protocol: &[u8]) {
        self.intake().request_line(method, target, protocol);
    }

    /// Sets the normal form of the target, which is sent to the origin. To be called after the request line. If the
    /// normal form differs from the form that the client sent, `REQUEST_URI`, `REQUEST_FILENAME`, `REQUEST_BASENAME`
    /// and `PATH_INFO` have two values, and it is enough for a rule if one of the two values matches. A rule that
    /// exempts requests uses the normal form alone. Such rules have `allow`, `skipAfter`, `ctl:ruleRemoveById` and the
    /// like, or only set variables of `TX` to fixed values.
    pub fn normal_target(&mut self, path: &[u8], query: Option<&[u8]>) {
        self.intake().normal_target(path, query);
    }

    /// Sets the requested host in its normal form, with or without port. To be called after the fields. If the
    /// host differs from the field `Host`, `SERVER_NAME` has two values; rules that exempt requests use the
    /// normal form alone.
    pub fn normal_host(&mut self, authority: &[u8]) {
        self.intake().normal_host(authority);
    }

    /// Sets the first line, as received, of a request that the parser refused. The line is split at
    /// spaces. If it has no protocol, `HTTP/0.9` is assumed.
    pub fn unreadable(&mut self, line: &[u8]) {
        let mut parts = line.trim_ascii().splitn(2, |byte| *byte == b' ');
        let method = parts.next().unwrap_or_default();
        let rest = parts.next().unwrap_or_default();
        let (target, protocol) = match memchr::memrchr(b' ', rest) {
            Some(space) if rest[space + 1..].starts_with(b"HTTP/") => (&rest[..space], &rest[space + 1..]),
            _ => (rest, &b"HTTP/0.9"[..]),
        };
        self.intake().request_line(method, target, protocol);
        self.state.values.set_text(Variable::RequestLine, line);
    }

    /// Adds a field of the request, as received.
    pub fn request_field(&mut self, name: &[u8], value: &[u8]) {
        self.intake().request_field(name, value);
    }

    /// Sets the time since the start of the transaction. Rules and the expiry of collections use it.
    pub fn elapsed(&mut self, elapsed: Duration) {
        self.state.clock.elapsed = elapsed;
    }

    /// Sets a function that is called from time to time while rules run, to yield the thread. Default: none.
    pub fn give_way(&mut self, call: fn()) {
        self.state.budget.set_give_way(call);
    }

    /// Sets a variable of `ENV`, like `setenv`, before the first phase. With such variables, the host passes facts to
    /// rules. It may set at most [`ENVIRONMENT`] of them.
    pub fn environment(&mut self, name: &[u8], value: &[u8]) {
        if self.state.env.len() < ENVIRONMENT {
            let text = &mut self.state.values.text;
            let pair = (text.push(name), text.push(value));
            self.state.env.push(pair);
            self.state.env_of_host += 1;
        }
    }

    /// The verdict that a blocking host would have applied so far, if this host only detects. [`Verdict::Pass`]
    /// if there is none, or if this host blocks. Exemptions count: after `allow` or
    /// `ctl:ruleEngine=DetectionOnly`, later rules would not have stopped the request.
    pub fn would(&self) -> Verdict {
        let would = &self.state.would;
        let over = || would.over.map(|status| Verdict::Deny { status, rule: None });
        would.verdict.clone().or_else(over).unwrap_or(Verdict::Pass)
    }

    /// The ids of all rules that would have stopped the transaction so far, in ascending order; [`would`](Self::would)
    /// tells only the first rule. The list begins with a 0 if the transaction would have been stopped for its budget or
    /// a limit.
    pub fn would_stop(&self) -> Vec<RuleId> {
        let would = &self.state.would;
        let limit = would.limited || would.over.is_some();
        limit.then_some(0).into_iter().chain(would.rules.iter().copied()).collect()
    }

    /// Runs phase 1, after the head of the request.
    pub fn request_headers(&mut self) -> Verdict {
        self.phase(Phase::RequestHeaders)
    }

    /// The number of bytes of the request's body that rules read; `None` if they read none. To be called after
    /// phase 1.
    pub fn request_body_limit(&self) -> Option<u64> {
        let switches = &self.state.switches;
        let looks = switches.request_body && switches.mode != EngineMode::Off && !self.state.allowed.request;
        (looks && !self.state.allowed.transaction).then_some(switches.request_body_limit)
    }

    /// Runs phase 2 on the body of the request. If `whole` is false, `body` is only the part that rules read. Has
    /// to be called for requests without a body as well.
    pub fn request_body(&mut self, body: &[u8], whole: bool) -> Verdict {
        if self.state.switches.request_body && self.next <= Phase::RequestBody as usize {
            self.run_up_to(Phase::RequestBody);
            // If no rule will run, nothing is parsed and no limit applies.
            let is_off = self.state.switches.mode == EngineMode::Off;
            if !is_off && !self.intake().request_body(body, whole) {
                self.reject_body();
            }
        }
        match self.phase(Phase::RequestBody) {
            Verdict::Pass => self.refuse_unreadable(),
            stopped => stopped,
        }
    }

    /// Denies a request with an unreadable body, unless the rules check for unreadable bodies themselves or use
    /// no body.
    fn refuse_unreadable(&mut self) -> Verdict {
        if self.request_body_limit().is_none() {
            return Verdict::Pass;
        }
        let Some(status) = self.intake().refuses_unreadable() else { return Verdict::Pass };
        if self.deny(status) {
            self.state.refused_unreadable = true;
        }
        self.verdict()
    }

    /// Denies a request with a body that exceeds the limit, if `SecRequestBodyLimitAction` demands it.
    fn reject_body(&mut self) {
        if self.engine.plan.settings.request_body_limit_action == BeyondLimit::Reject {
            self.deny_for("SecRequestBodyNoFilesLimit");
        }
    }

    /// Denies the request with 413 because its body exceeds this limit, if the host lets rules stop requests. Otherwise
    /// the denial is recorded as hypothetical. If a rule has switched the engine off or to detection, the request is
    /// not denied, and no denial is recorded. In detection, the report still tells the limit.
    pub fn deny_for(&mut self, limit: &'static str) -> Verdict {
        if self.deny(413) {
            self.state.beyond = Some(limit);
        }
        self.verdict()
    }

    /// Denies the request with a status, as [`deny_for`](Self::deny_for) describes. Returns true if the denial has to be reported.
    fn deny(&mut self, status: u16) -> bool {
        let state = &mut self.state;
        let (decided, stops) = match state.switches.mode {
            EngineMode::On => (&mut state.verdict, true),
            EngineMode::DetectionOnly => {
                let stops = state.would.is_on();
                state.would.limited |= stops;
                (&mut state.would.verdict, stops)
            }
            EngineMode::Off => return false,
        };
        let is_first = decided.is_none();
        if is_first {
            *decided = stops.then_some(Verdict::Deny { status, rule: None });
        }
        is_first
    }

    /// Runs phase 3, after the head of the response.
    pub fn response_headers<'a>(
        &mut self,
        status: u16,
        protocol: &[u8],
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Verdict {
        self.intake().response_head(status, protocol);
        for (name, value) in fields {
            self.intake().response_field(name, value);
        }
        self.phase(Phase::ResponseHeaders)
    }

    /// The number of bytes of the response's body that rules read; `None` if they read none, because of its type
    /// or because a rule says so. To be called after phase 3.
    pub fn response_body_limit(&self) -> Option<u64> {
        let switches = &self.state.switches;
        if !switches.response_body || switches.mode == EngineMode::Off || self.state.allowed.transaction {
            return None;
        }
        let kind = self.state.values.text.get(self.state.values.scalar(Variable::ResponseContentType));
        self.engine.looks_at_type(kind).then_some(switches.response_body_limit)
    }

    /// Runs phase 4 on the body of the response. If `whole` is false, `body` is only the part that rules read.
    pub fn response_body(&mut self, body: &[u8], whole: bool) -> Verdict {
        if self.state.switches.response_body && self.next <= Phase::ResponseBody as usize {
            self.state.budget.add_room(body.len());
            let values = &mut self.state.values;
            values.set_text(Variable::ResponseBody, body);
            values.set_text(Variable::OutboundDataError, if whole { b"0" } else { b"1" });
        }
        self.phase(Phase::ResponseBody)
    }

    /// Tells the transaction that the response was sent. Verdicts of phases that run later have no effect.
    pub fn answered(&mut self) {
        self.answered |= self.state.verdict.is_none();
    }

    /// Runs phase 5 at the end of the transaction and returns the report.
    pub fn log(mut self) -> Report {
        self.run_up_to(Phase::Logging);
        self.run().phase(Phase::Logging);
        self.report()
    }

    /// Ends the transaction without running further rules, because the rest of its input was lost. Returns the
    /// report.
    pub fn lost(self) -> Report {
        self.report()
    }

    /// The value of a variable of `TX` as text, for tests and explanations; `None` if it is not set.
    pub fn variable(&self, name: &str) -> Option<Vec<u8>> {
        let names = &self.engine.plan.names;
        let lower = name.to_ascii_lowercase();
        let text = &self.state.values.text;
        let value = match names.find(lower.as_bytes()) {
            Some(slot) => self.state.tx.get(slot),
            None => self.state.tx.get_made(lower.as_bytes(), text),
        };
        let mut out = Vec::new();
        tx::push_value(value, names, text, &mut out);
        (value != tx::Value::Unset).then_some(out)
    }

    /// The verdict so far.
    pub fn verdict(&self) -> Verdict {
        self.state.verdict.clone().unwrap_or(Verdict::Pass)
    }

    /// The work so far, in units of [`Limits::work`](super::TransactionLimits::work). Expensive requests can be
    /// recognised by it.
    pub fn work(&self) -> u64 {
        self.engine.plan.limits.work.saturating_sub(self.state.budget.left())
    }

    /// The size of the transaction's text, bytes: received text, variables and transformed values.
    pub fn text(&self) -> usize {
        self.state.values.text.len()
    }

    /// The exceeded limit, if any.
    pub fn over(&self) -> Option<Over> {
        self.state.budget.over()
    }

    /// Runs the phases before this one that have not run yet.
    fn run_up_to(&mut self, phase: Phase) {
        while self.next < phase as usize {
            let missing = Phase::ALL[self.next];
            // If there was no response, rules have nothing to look at in its phases.
            let reached = missing <= Phase::RequestBody
                || self.state.values.scalar_place(Variable::ResponseStatus).is_some();
            if reached {
                self.phase(missing);
            } else {
                self.next += 1;
            }
        }
    }

    fn phase(&mut self, phase: Phase) -> Verdict {
        self.run_up_to(phase);
        if self.next > phase as usize || self.state.verdict.is_some() {
            self.next = self.next.max(phase as usize + 1);
            return self.verdict();
        }
        self.next = phase as usize + 1;
        let verdict = self.run().phase(phase);
        self.state.forget_matched();
        if !verdict.passes() {
            self.state.verdict = Some(verdict.clone());
        }
        verdict
    }

    fn report(mut self) -> Report {
        let state = &self.state;
        let text = &state.values.text;
        let show = |variable| String::from_utf8_lossy(text.get(state.values.scalar(variable))).into_owned();
        let uri = text.get(state.values.scalar(Variable::RequestUriRaw));
        let path = uri.split(|byte| *byte == b'?').next().unwrap_or_default();
        let score = |name: &str| {
            let slot = self.engine.plan.names.find(name.as_bytes())?;
            let value = state.tx.get(slot);
            (value != tx::Value::Unset).then(|| tx::number(value, &self.engine.plan.names, text))
        };
        let mut report = Report {
            unique_id: Arc::clone(&self.unique_id),
            client: show(Variable::RemoteAddr),
            host: show(Variable::ServerName),
            uri: super::report::shorten(
                &state.masks.hide_of(Variable::RequestUriRaw, path),
                self.engine.plan.limits.message,
            ),
            matches: Vec::new(),
            omitted: state.omitted,
            verdict: state.verdict.clone().unwrap_or(Verdict::Pass),
            would: self.would(),
            over: state.budget.over(),
            beyond: state.beyond,
            unreadable: state.unreadable.clone().filter(|_| state.refused_unreadable),
            unread: state.unreadable.is_some()
                && !state.refused_unreadable
                && state.verdict.is_none()
                && self.would().passes()
                && self.request_body_limit().is_some(),
            highest_severity: state.highest_severity,
            inbound_score: score("blocking_inbound_anomaly_score"),
            outbound_score: score("blocking_outbound_anomaly_score"),
            looks: state.looks,
            work: self.work(),
            audit: None,
        };
        report.matches = self.run().view.shown_matches();
        if self.dry_run || self.answered {
            report.stopped_nothing();
            // The client did not receive this status.
            self.state.verdict = None;
        }
        if self.dry_run && self.state.switches.mode == EngineMode::On {
            self.state.switches.mode = EngineMode::DetectionOnly;
        }
        if super::audit::is_wanted(&self.state, &self.engine.plan.settings) {
            report.audit = Some(super::audit::record(&self.state, &report, &self.engine.plan));
        }
        report
    }
}

/// The fields of a head, with secrets hidden.
pub(crate) fn shown_fields(state: &State, family: Family) -> Vec<(String, String)> {
    let text = &state.values.text;
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let variable = match family {
        Family::Files => Some(Variable::Files),
        family => super::secrets::variable_of(family),
    };
    let fields = state.values.units(family).iter().map(|unit| {
        let (name, value) = (text.get(unit.name), text.get(unit.value));
        let is_masked = variable.is_some_and(|variable| state.masks.covers(variable, name));
        let is_secret = is_secret_field(name) || is_masked;
        let value = if is_secret { HIDDEN.to_vec() } else { state.masks.hide(value) };
        (show(name), show(&value))
    });
    fields.collect()
}
