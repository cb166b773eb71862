//! Phase 5: the logs.

use std::ops::ControlFlow;
use std::time::Duration;

use foregate_module::{
    Authority, ClientAddress, Counts, DryRun, ErrorKind, Filter, Findings, Load, LogLine, Never, Note, Now,
    Random, Received, ReceivedRequest, Refusal, Status, Step, Take, Tally, Text, Time, Unseen, Weight,
    WriteLog, phase,
};

use super::begin::begin;
use super::settings::WafSettings;
use super::time::apache;
use super::values::{HeldTransaction, TransactionValue};
use crate::engine::{Report, Transaction, Verdict};

/// The width of the ranges in which scores are counted, in points.
const STEP: i64 = 5;
/// The upper bound of the ranges: higher scores are counted in one last range.
const HIGHEST: i64 = 100;

/// The most rules that the access log lists as contributing to the score. The rule that decided comes after
/// them.
const RULES: usize = 10;

/// The note if rules have not seen all of a body because it is longer than `body-limit`.
const CUT: &str = "body_limit";
/// The note for a body that rules could not read, but that passed.
const UNREAD: &str = "unreadable";

/// The step that runs phase 5. For requests that were refused as malformed, it runs all phases.
#[derive(Debug, Default)]
pub struct Log;

impl Step for Log {
    type At = phase::Log;
    type Settings = WafSettings;
    type In<'r> = (
        Take<TransactionValue>,
        ReceivedRequest<'r>,
        ClientAddress,
        Authority<'r>,
        Time,
        Random,
        Status,
        DryRun,
        Unseen,
        ErrorKind<'r>,
    );
    type Out = (WriteLog, Findings, Tally, Counts);
    type Stop = Never;
    const NAME: &'static str = "waf-log";
    const ABOUT: &'static str =
        "Writes what the firewall's rules found, also in requests that were refused as malformed.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn logs_first(settings: &WafSettings) -> bool {
        settings.log_sync
    }

    fn load(&self, settings: &WafSettings, (_, ReceivedRequest(received), ..): &Self::In<'_>) -> Load {
        // For a request that was refused, all phases run here, so its head may be a heavy input.
        let values = |head| memchr::memchr3_iter(b'\n', b'&', b';', head).count();
        received
            .refusal
            .map_or(Load::Light, |refusal| settings.load(refusal.head.len(), || values(refusal.head)))
    }

    fn run(&self, settings: &WafSettings, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (
            Take(held),
            ReceivedRequest(received),
            ClientAddress(client),
            Authority(authority),
            Time(now),
            Random(random),
            Status(status),
            DryRun(dry_run),
            Unseen(unseen),
            ErrorKind(error),
        ) = input;
        let start = || {
            let sampled = settings.is_sampled(random);
            let begin = || {
                let with = (settings.engine(), settings.mode);
                begin(with, &received, client, authority, now, random, dry_run).transaction
            };
            sampled.then(begin).flatten()
        };
        let has_begun = held.is_some();
        let out_of_memory = held.as_ref().is_some_and(|held| held.report.is_some());
        let unseen = unseen.or(held.as_ref().and_then(|held| held.is_cut.then_some(CUT)));
        let found = match (held, received.refusal) {
            (Some(held), _) => held.found(now),
            (None, Some(_)) => start().map(|transaction| of_refused(transaction, &received, status)),
            (None, None) => None,
        };
        // If a step has failed, the transaction may be lost; the report is then that of a new one.
        let Some(report) = found.or_else(|| unseen.and_then(|_| start()).map(Transaction::lost)) else {
            let nothing = (WriteLog::default(), Findings(Vec::new()), Tally(Vec::new()), Counts(Vec::new()));
            return ControlFlow::Continue(nothing);
        };
        let unseen = unseen.or(report.unread.then_some(UNREAD));
        let refusal = received.refusal.filter(|_| !has_begun);
        let mut lines = Vec::new();
        if let Some(log) = settings.log {
            let start = prefix(now.unix_ms, &received);
            let refused = refusal.map(|refusal| refused(&refusal, &report));
            let unseen = unseen.map(|kind| {
                let what = match (error == Some(kind), out_of_memory) {
                    (true, _) => format!("Answered with {status}, as rules could not see the request's body"),
                    (false, false) => "Rules have not seen the request's body, or not all of it".to_owned(),
                    (false, true) => {
                        "The state of the rules did not fit into memory: none have run since".to_owned()
                    }
                };
                // The line is no accusation of the client, so it has no status.
                report.line(None, &format!("{what}: {kind}."), "unseen")
            });
            let matched = refused.into_iter().chain(report.lines()).chain(unseen);
            lines.extend(matched.map(|line| LogLine { log, line: format!("{start}{line}").into() }));
        }
        if let (Some(log), Some(record)) = (settings.audit, &report.audit) {
            lines.push(LogLine { log, line: record.clone().into() });
        }
        let counts = Counts(events(&report, refusal.is_some(), unseen.is_some()));
        let findings = Findings(notes(&report, unseen));
        ControlFlow::Continue((WriteLog(lines), findings, tally(&report), counts))
    }
}

impl HeldTransaction {
    /// Runs phase 5 after the client has its answer, and returns the report.
    fn found(self, now: Now) -> Option<Report> {
        let Some(mut transaction) = self.transaction else { return self.report };
        transaction.answered();
        transaction.elapsed(Duration::from_millis(now.steady_ms.saturating_sub(self.began)));
        Some(transaction.log())
    }
}

/// The report for a request that was refused before any rule ran. All phases run now, only for the log.
fn of_refused(mut transaction: Transaction, received: &Received<'_>, status: u16) -> Report {
    transaction.answered();
    transaction.request_headers();
    transaction.request_body(&[], true);
    transaction.response_headers(status, received.protocol, []);
    transaction.log()
}

/// The events to count for a request.
fn events(report: &Report, refused: bool, unseen: bool) -> Vec<&'static str> {
    let event = match (refused, report.verdict.passes(), report.would.passes()) {
        (true, ..) => Some("refused"),
        (false, false, _) => Some("blocked"),
        (false, true, false) => Some("detected"),
        (false, true, true) => None,
    };
    let over = report.over.map(|_| "over-budget");
    event.into_iter().chain(over).chain(unseen.then_some("unseen")).collect()
}

/// The start of each log line, in Apache's format, which tools search for.
fn prefix(unix_ms: u64, received: &Received<'_>) -> String {
    let client = received.client.map_or("unix:".to_owned(), |client| client.to_string());
    format!("[{}] [security2:error] [client {client}] ", apache(unix_ms))
}

/// The log line for a request that the parser has refused.
fn refused(refusal: &Refusal<'_>, report: &Report) -> String {
    let Refusal { kind, reason, .. } = refusal;
    let (client, host, uri, id) = (&report.client, &report.host, &report.uri, &report.unique_id);
    let clean = |text: &str| text.escape_default().to_string();
    format!(
        "[client {client}] ModSecurity: Request refused before any rule: {}. [msg \"{kind}\"] [hostname \"{}\"] \
         [uri \"{}\"] [unique_id \"{id}\"]",
        clean(reason),
        clean(host),
        clean(uri)
    )
}

/// The notes for the access log. There are none for a request without matches.
fn notes(report: &Report, unseen: Option<&'static str>) -> Vec<Note> {
    let note = |name: &'static str, value: String| Note { name: name.into(), value: value.into() };
    let score = report.inbound_score.filter(|score| *score > 0);
    let decided = if report.verdict.passes() { &report.would } else { &report.verdict };
    let mut notes = Vec::new();
    notes.extend(score.map(|score| note("waf.score", score.to_string())));
    let mut rules = if score.is_some() { report.scoring_rules(RULES) } else { Vec::new() };
    rules.extend(decided.rule().filter(|rule| !rules.contains(rule)));
    if !rules.is_empty() {
        let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
        notes.push(note("waf.rule", rules.join(",")));
    }
    let word = match (decided, report.verdict.passes()) {
        (Verdict::Pass, _) => None,
        (Verdict::Drop { .. }, false) => Some("dropped"),
        (_, false) => Some("refused"),
        (Verdict::Drop { .. }, true) => Some("would-drop"),
        (_, true) => Some("would-refuse"),
    };
    notes.extend(word.map(|word| note("waf.verdict", word.to_owned())));
    notes.extend(unseen.map(|kind| note("waf.unseen", kind.to_owned())));
    if !notes.is_empty() {
        notes.push(note("waf.id", report.unique_id.to_string()));
    }
    notes
}

/// Counts the matches of each rule, and the score by its range of [`STEP`] points.
fn tally(report: &Report) -> Tally {
    let logged = report.matches.iter().filter(|matched| matched.log);
    let mut tallies: Vec<(&'static str, Text)> =
        logged.map(|matched| ("rule", Text::from(matched.rule.to_string()))).collect();
    if let Some(score) = report.inbound_score.filter(|score| *score > 0) {
        let bucket = (score / STEP * STEP).min(HIGHEST);
        tallies.push(("score", bucket.to_string().into()));
    }
    Tally(tallies)
}
