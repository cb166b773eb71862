//! `foregate waf explain`.

mod configured;
mod request;
mod scores;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use foregate_module::Pipeline;
use foregate_waf::engine::{Compile, Engine, Match, Options, Transaction, Verdict};
use foregate_waf::model::{EngineMode, Rule, RuleSet, Severity, Transformation};
use foregate_waf::seclang::Source;
use serde::Serialize;

use self::configured::WafOfRequest;
use self::request::Request;
use self::scores::{ScoreAddition, Scores};
use super::super::arguments::{ConfigFile, Json};
use super::super::output::{Outcome, complain, print, print_json};
use super::{line, load_sources};

#[derive(Debug, Args)]
pub(in super::super) struct WafExplain {
    /// A file of rules alone, in the order in which they hold; `*` and `?` stand for parts of names [default: the configuration]
    #[arg(short, long = "rules", value_name = "FILE", conflicts_with = "config")]
    rules: Vec<String>,
    /// The configuration file, the `waf` of whose route the request meets [default: foregate.kdl, else /etc/foregate/foregate.kdl]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The method and the URL, such as `POST http://example.com/path?query`; GET may be left out
    #[arg(value_names = ["METHOD", "URL"], num_args = 1..=2, required_unless_present = "request")]
    line: Vec<String>,
    /// A field of the request
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", requires = "line")]
    headers: Vec<String>,
    /// The body of the request, or `@FILE`
    #[arg(short, long, value_name = "BODY", requires = "line")]
    data: Option<String>,
    /// A file with the request as it is sent: request line, fields, an empty line, body
    #[arg(long, value_name = "FILE", conflicts_with = "line")]
    request: Option<PathBuf>,
    /// Set a variable before the rules run, such as tx.blocking_paranoia_level=4
    #[arg(long = "set", value_name = "VARIABLE=VALUE", requires = "rules")]
    set: Vec<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    client: IpAddr,
    #[command(flatten)]
    output: Json,
}

/// The result of the rules for a request, with reasons.
#[derive(Debug, Default, Serialize)]
struct RulesExplanation {
    /// The site, route, mode and exclusions, if a configuration is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    configured: Option<WafOfRequest>,
    /// The verdict of the rules, as if the engine were on.
    verdict: String,
    blocked: bool,
    matches: Vec<MatchedRule>,
    /// The number of matches that the report left out.
    omitted: u64,
    /// The variables to which matches added, with their final values.
    scores: Vec<(String, String)>,
    /// The score by which the Core Rule Set decides; it blocks from `inbound_threshold` on.
    inbound_score: Option<i64>,
    inbound_threshold: Option<String>,
    notes: Vec<String>,
}

/// A rule that matched, if its matches are logged.
#[derive(Debug, Serialize)]
struct MatchedRule {
    id: u64,
    file: String,
    line: u32,
    phase: u8,
    severity: Option<&'static str>,
    message: String,
    data: String,
    operator: String,
    parameter: String,
    /// The variable that matched last.
    variable: String,
    value: String,
    /// All matched variables with their values.
    values: Vec<(String, String)>,
    /// The transformations that were applied to the value.
    transformations: Vec<&'static str>,
    /// The match's additions to variables, with the sums.
    scores: Vec<ScoreAddition>,
}

impl WafExplain {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let request = match self.asked() {
            Ok(request) => request,
            Err(reason) => {
                complain(&format!("error: {reason}"));
                return Outcome::Usage;
            }
        };
        let explained = if self.rules.is_empty() {
            let file = ConfigFile { config: self.config.clone() }.path();
            configured::explain(&file, pipeline, &request, self.client, self.output.json)
        } else {
            self.by_rules(&request)
        };
        let explanation = match explained {
            Ok(explanation) => explanation,
            Err(outcome) => return outcome,
        };
        if self.output.json {
            print_json(&explanation);
        } else {
            print(&text(&explanation));
        }
        if explanation.blocked { Outcome::Wrong } else { Outcome::Fine }
    }

    /// Returns the result of the rules on the command line. If there are errors, shows them and returns the exit code.
    fn by_rules(&self, request: &Request) -> Result<RulesExplanation, Outcome> {
        let set = load_sources(&self.sources(), self.output.json)?;
        let engine = Engine::compile(set.clone(), Compile::default()).map_err(|problem| {
            complain(&line("error", &problem));
            Outcome::Wrong
        })?;
        Ok(explain(&Arc::new(engine), &set, request, self.client))
    }

    fn asked(&self) -> Result<Request, String> {
        match (&self.request, &*self.line) {
            (Some(file), _) => Request::read(file),
            (None, [method, url]) => Request::of(method, url, &self.headers, self.data.as_deref()),
            (None, [url]) if !url.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                let method = if self.data.is_some() { "POST" } else { "GET" };
                Request::of(method, url, &self.headers, self.data.as_deref())
            }
            _ => Err("a URL is missing: `foregate waf explain GET http://example.com/path`".into()),
        }
    }

    /// The rules' sources. The first one is a rule that sets the variables given by `--set`.
    fn sources(&self) -> Vec<Source> {
        let set: String =
            self.set.iter().map(|set| format!(",setvar:'{}'", set.replace('\'', "\\'"))).collect();
        let first = format!("SecAction \"id:{},phase:1,pass,nolog{}\"", u64::MAX, set.replace('"', "\\\""));
        let first = (!self.set.is_empty()).then(|| Source::text("--set", first));
        first.into_iter().chain(self.rules.iter().map(Source::files)).collect()
    }
}

fn explain(engine: &Arc<Engine>, set: &RuleSet, request: &Request, client: IpAddr) -> RulesExplanation {
    let mut notes = Vec::new();
    // With detection only, the rules continue after one that would stop the request, so all matches are found.
    let options = Options { mode: Some(EngineMode::DetectionOnly), ..Options::default() };
    let mut transaction = Transaction::new(engine, options);
    let port = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    transaction.connection(SocketAddr::new(client, 40_000), port);
    transaction.request_line(&request.method, &request.target, &request.protocol);
    if let Some((path, query)) = request.normal_target() {
        transaction.normal_target(&path, query);
    }
    for (name, value) in &request.fields {
        transaction.request_field(name, value);
    }
    transaction.request_headers();
    match transaction.request_body_limit() {
        Some(limit) => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(request.body.len());
            transaction.request_body(&request.body[..limit], limit == request.body.len());
        }
        None => {
            if !request.body.is_empty() {
                let why = match set.settings.request_body_access {
                    true => {
                        "a rule has said that none looks at the body (`ctl:requestBodyAccess`, `ctl:ruleEngine`)"
                    }
                    false => "the rules do not look at the body: `SecRequestBodyAccess On` makes them",
                };
                notes.push(why.into());
            }
            transaction.request_body(b"", true);
        }
    }
    if set.settings.engine == Some(EngineMode::Off) {
        notes.push("the rules say `SecRuleEngine Off`; these are the matches if they were on".into());
    }
    conclude(transaction, set, notes)
}

/// The explanation of a finished transaction.
fn conclude(transaction: Transaction, set: &RuleSet, notes: Vec<String>) -> RulesExplanation {
    let mut scores = Scores::new(set, &transaction);
    let threshold = transaction.variable("inbound_anomaly_score_threshold");
    let report = transaction.log();
    let matches = report.matches.iter().map(|matched| {
        let rule = set.rules.iter().find(|rule| rule.id == matched.rule);
        show(matched, rule, rule.map(|rule| scores.add(rule)).unwrap_or_default())
    });
    let matches = matches.collect();
    RulesExplanation {
        configured: None,
        verdict: verdict(&report.would),
        blocked: !report.would.passes(),
        matches,
        omitted: report.omitted,
        scores: scores.totals(),
        inbound_score: report.inbound_score,
        inbound_threshold: threshold.map(|text| String::from_utf8_lossy(&text).into_owned()),
        notes,
    }
}

fn show(matched: &Match, rule: Option<&Rule>, scores: Vec<ScoreAddition>) -> MatchedRule {
    // The report names the operator that matched last, so the last link with this operator is the one that matched.
    let plain = matched.operator.trim_start_matches('!');
    let link = rule.and_then(|rule| rule.links.iter().rev().find(|link| link.operator.name() == plain));
    let transformations =
        link.map(|link| link.transformations.iter().copied().map(Transformation::name).collect());
    MatchedRule {
        id: matched.rule,
        file: matched.place.file.to_string(),
        line: matched.place.line,
        phase: matched.phase.number(),
        severity: matched.severity.map(Severity::name),
        message: matched.message.clone(),
        data: matched.data.clone(),
        operator: matched.operator.clone(),
        parameter: matched.parameter.clone(),
        variable: matched.variable.clone(),
        value: matched.value.clone(),
        values: matched.values.clone(),
        transformations: transformations.unwrap_or_default(),
        scores,
    }
}

fn verdict(verdict: &Verdict) -> String {
    let by = verdict.rule().map(|rule| format!(" by the rule {rule}")).unwrap_or_default();
    match verdict {
        Verdict::Pass => "it passes".into(),
        Verdict::Deny { status, .. } => format!("it is denied with {status}{by}"),
        Verdict::Redirect { status, to, .. } => {
            format!("it is redirected with {status} to {}{by}", String::from_utf8_lossy(to))
        }
        Verdict::Drop { .. } => format!("its connection is closed{by}"),
    }
}

fn text(explanation: &RulesExplanation) -> String {
    let mut text = explanation.configured.as_ref().map(ToString::to_string).unwrap_or_default();
    for matched in &explanation.matches {
        let severity = matched.severity.map(|severity| format!(", {severity}")).unwrap_or_default();
        text += &format!(
            "{} {}:{} (phase {}{severity})\n",
            matched.id, matched.file, matched.line, matched.phase
        );
        let mut row = |row: String| text += &format!("    {}\n", one_line(&row));
        if !matched.message.is_empty() {
            row(matched.message.clone());
        }
        if !matched.operator.is_empty() {
            let (not, name) = match matched.operator.strip_prefix('!') {
                Some(name) => ("not ", name),
                None => ("", &*matched.operator),
            };
            row(format!("{not}@{name} {}", matched.parameter).trim_end().to_owned());
        }
        if !matched.transformations.is_empty() {
            row(format!("after {}", matched.transformations.join(", ")));
        }
        for (variable, value) in &matched.values {
            row(format!("{variable}: {value}"));
        }
        if !matched.data.is_empty() {
            row(matched.data.clone());
        }
        for step in &matched.scores {
            row(format!("{} {:+} = {}", step.variable, step.by, step.comes_to));
        }
    }
    if explanation.omitted > 0 {
        text += &format!("{} more matches\n", explanation.omitted);
    }
    for (name, value) in &explanation.scores {
        text += &format!("{name}: {value}\n");
    }
    if let (Some(score), Some(threshold)) = (explanation.inbound_score, &explanation.inbound_threshold) {
        text += &format!("inbound anomaly score {score}, blocked from {threshold} on\n");
    }
    for note in &explanation.notes {
        text += &format!("note: {note}\n");
    }
    text + &explanation.verdict + "\n"
}

/// The text on one line, without control characters: the values may come from attacks, and could command the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|found| if found.is_control() { '\u{fffd}' } else { found }).collect()
}
