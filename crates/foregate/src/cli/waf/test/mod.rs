//! `foregate waf test`: the regression files of a rule set against this program, over sockets.
//!
//! The program starts itself again, as a proxy with the rules and a scripted origin. Every request of the files is sent over
//! a connection of its own, byte by byte as it is written, several at a time; then the proxy ends, so that its log is
//! complete, and each case is judged by the lines that name its client's port. The sending and judging parts share nothing
//! with the proxy but the program's file.

mod client;
mod input;
mod judge;
mod origin;
mod proxy;
mod suite;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use clap::Args;
use foregate_waf::seclang::Source;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use self::client::TestAnswer;
use self::judge::{Log, judge};
use self::proxy::Proxy;
use self::suite::{Case, Override, Stage};
use super::super::arguments::Json;
use super::super::output::{Outcome, complain, print, print_json};
use super::load_sources;

/// Requests on their way at the same time: most of the time of a case is spent waiting.
const AT_ONCE: usize = 16;

#[derive(Debug, Args)]
pub(in super::super) struct Test {
    /// A file of rules, in the order in which they hold; `*` and `?` stand for parts of names
    #[arg(short, long = "rules", value_name = "FILE", required = true)]
    rules: Vec<String>,
    /// Cases that end otherwise than their files say, each with its reason
    #[arg(long, value_name = "FILE")]
    overrides: Option<PathBuf>,
    /// Run only cases of this name, such as 942100-3, or all of a rule, 942100; `*` at its end stands for any
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Keep the folder with the proxy's configuration and log
    #[arg(long)]
    keep: bool,
    /// Regression files, and folders with such
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Json,
}

/// How it went.
#[derive(Debug, Serialize)]
struct Results<'c> {
    ok: bool,
    cases: usize,
    passed: usize,
    requests: usize,
    /// Lines of the log.
    lines: usize,
    failed: Vec<Failure<'c>>,
    /// Cases that were expected to end otherwise than their files say.
    overridden: Vec<Reason<'c>>,
    /// The folder that was kept.
    kept: Option<&'c Path>,
    /// Until the rules were loaded and the proxy listened.
    started_s: f64,
    /// Altogether.
    took_s: f64,
}

#[derive(Debug, Serialize)]
struct Failure<'c> {
    case: &'c str,
    wrong: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Reason<'c> {
    case: &'c str,
    reason: &'c str,
}

/// The results of all requests.
struct TestResults {
    /// By case and stage.
    got: Vec<Vec<TestAnswer>>,
    /// Each has a port of its own, by which lines of the log are told apart.
    connections: Vec<TcpStream>,
}

impl Test {
    pub(super) fn run(&self) -> Outcome {
        let (cases, overrides) = match self.cases() {
            Ok(cases) => cases,
            Err(error) => {
                complain(&format!("error: {error}"));
                return Outcome::Usage;
            }
        };
        // The proxy would say it too, but not as the other verbs do.
        if let Err(outcome) =
            load_sources(&self.rules.iter().map(Source::files).collect::<Vec<_>>(), self.output.json)
        {
            return outcome;
        }
        match self.judged(&cases, &overrides) {
            Ok(outcome) => outcome,
            Err(error) => {
                complain(&format!("error: {error}"));
                Outcome::Wrong
            }
        }
    }

    /// The selected cases, with their overrides.
    fn cases(&self) -> Result<(Vec<Case>, Vec<Override>), String> {
        let all = suite::read(&self.paths)?;
        let overrides = self.overrides.as_deref().map(suite::overrides).transpose()?.unwrap_or_default();
        if let Some(unknown) = overrides.iter().find(|known| all.iter().all(|case| case.name != known.case)) {
            return Err(format!("there is no case {}, which has an override", unknown.case));
        }
        let wanted =
            |case: &Case| self.only.is_empty() || self.only.iter().any(|only| is_named(&case.name, only));
        let cases: Vec<Case> = all.into_iter().filter(wanted).collect();
        if cases.is_empty() {
            return Err("there are no such cases".into());
        }
        Ok((cases, overrides))
    }

    /// Sends the requests of the cases, and reports the results.
    fn judged(&self, cases: &[Case], overrides: &[Override]) -> Result<Outcome, String> {
        let folder = std::env::temp_dir().join(format!("foregate-waf-test-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let outcome = self.judged_in(&folder, cases, overrides);
        if !self.keep {
            // A folder that stays does no harm.
            let _ = std::fs::remove_dir_all(&folder);
        }
        outcome
    }

    fn judged_in(&self, folder: &Path, cases: &[Case], overrides: &[Override]) -> Result<Outcome, String> {
        allow_descriptors();
        let began = Instant::now();
        let origin = origin::start().map_err(|error| error.to_string())?;
        let proxy = Proxy::start(&self.rules, origin, folder)?;
        let started = began.elapsed();
        let TestResults { got, connections } = send_all(&proxy, cases)?;
        drop(connections);
        let (log, said) = proxy.finish()?;
        if said.contains("panicked") {
            return Err(format!("the proxy has panicked:\n{said}"));
        }
        let log = Log::read(&log)?;
        let failed = judge_all(cases, overrides, &got, &log)?;
        let known = overrides.iter().filter(|known| cases.iter().any(|case| case.name == known.case));
        let results = Results {
            ok: failed.is_empty(),
            cases: cases.len(),
            passed: cases.len() - failed.len(),
            requests: cases.iter().map(|case| case.stages.len()).sum(),
            lines: log.len(),
            failed,
            overridden: known.map(|known| Reason { case: &known.case, reason: &known.reason }).collect(),
            kept: self.keep.then_some(folder),
            started_s: started.as_secs_f64(),
            took_s: began.elapsed().as_secs_f64(),
        };
        if self.output.json {
            print_json(&results);
        } else {
            print(&text(&results));
        }
        Ok(if results.ok { Outcome::Fine } else { Outcome::Wrong })
    }
}

/// Returns true if `only` selects a case such as `942100-3`.
fn is_named(name: &str, only: &str) -> bool {
    if let Some(start) = only.strip_suffix('*') {
        return name.starts_with(start);
    }
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Sends the requests of all cases.
fn send_all(proxy: &Proxy, cases: &[Case]) -> Result<TestResults, String> {
    let connections = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let results = Mutex::new((vec![Vec::new(); cases.len()], None));
    let send_some = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(place) else { return };
            let ask = |stage: &Stage| {
                let (got, connection) = client::ask(proxy.address, &stage.request)?;
                connections.lock().push(connection);
                Ok::<_, std::io::Error>(got)
            };
            match case.stages.iter().map(ask).collect::<Result<Vec<TestAnswer>, _>>() {
                Ok(got) => results.lock().0[place] = got,
                Err(error) => results.lock().1 = Some(format!("{}: {error}", case.name)),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(send_some);
        }
    });
    match results.into_inner() {
        (_, Some(error)) => Err(format!("{error}\n{}", proxy.said())),
        (got, None) => Ok(TestResults { got, connections: connections.into_inner() }),
    }
}

/// As many connections as the system allows: all are kept.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this is refused, connecting fails in time.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The errors of the failed cases.
fn judge_all<'c>(
    cases: &'c [Case],
    overrides: &[Override],
    got: &[Vec<TestAnswer>],
    log: &Log<'_>,
) -> Result<Vec<Failure<'c>>, String> {
    let mut failed = Vec::new();
    for (case, got) in cases.iter().zip(got) {
        let instead = overrides.iter().find(|known| known.case == case.name).map(|known| &known.expected);
        let mut wrong = Vec::new();
        for (stage, got) in case.stages.iter().zip(got) {
            let expected = instead.unwrap_or(&stage.expected);
            let found = judge(expected, *got, log).map_err(|error| format!("{}: {error}", case.name))?;
            if !found.is_empty() {
                let status = got.status.map_or("no answer".to_owned(), |status| format!("status {status}"));
                wrong.push(format!("{} ({status}, matched {:?})", found.join(", "), log.ids(got.port)));
            }
        }
        if !wrong.is_empty() {
            failed.push(Failure { case: &case.name, wrong });
        }
    }
    Ok(failed)
}

fn text(results: &Results<'_>) -> String {
    let mut text = String::new();
    for Failure { case, wrong } in &results.failed {
        text += &format!("FAILED {case}: {}\n", wrong.join("; "));
    }
    for Reason { case, reason } in &results.overridden {
        text += &format!("differs {case}: {reason}\n");
    }
    let Results { cases, passed, requests, lines, started_s, took_s, .. } = results;
    text += &format!(
        "{cases} cases: {passed} passed, {} failed, {} by an override\n\
         {requests} requests, {lines} lines of log, started in {started_s:.2} s, done in {took_s:.1} s\n",
        results.failed.len(),
        results.overridden.len(),
    );
    if let Some(folder) = results.kept {
        text += &format!("kept {}\n", folder.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn names_are_those_of_cases_or_of_rules() {
        for (only, named) in
            [("942100", true), ("942100-3", true), ("942*", true), ("942", false), ("942100-", false)]
        {
            assert_eq!(is_named("942100-3", only), named, "{only}");
        }
        assert!(!is_named("942100-31", "942100-3"));
    }
}
