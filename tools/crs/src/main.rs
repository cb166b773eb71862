//! Runs the regression files of the OWASP Core Rule Set against the binary.
//!
//! The proxy gets the rule set and an origin that answers as requests ask for. Every request of the suite is sent over a
//! connection of its own, byte by byte as it is written, several at a time; then the proxy ends, so that its log is
//! complete, and each case is judged by the lines that name its client's port. Nothing here is shared with the proxy.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what it finds is for whoever has called it")]

mod client;
mod judge;
mod origin;
mod proxy;
mod suite;

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Got;
use crate::judge::{Log, judge};
use crate::proxy::Proxy;
use crate::suite::{Case, Override};

/// Requests on their way at the same time: most of the time of a case is spent waiting.
const AT_ONCE: usize = 16;

#[derive(Debug, Parser)]
#[command(about, version)]
struct Arguments {
    /// The binary of the proxy
    #[arg(long)]
    binary: PathBuf,
    /// The folder of the rule set: `rules` and `tests` of the Go module coraza-coreruleset
    #[arg(long)]
    crs: PathBuf,
    /// Deviations, each with its reason
    #[arg(long)]
    overrides: Option<PathBuf>,
    /// Keep the folder with the proxy's configuration and log
    #[arg(long)]
    keep: bool,
    /// Run only cases whose names begin with one of these: 942100, 942100-3
    filters: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let all = suite::read(&arguments.crs.join("tests"))?;
    let overrides = arguments.overrides.as_deref().map(suite::overrides).transpose()?.unwrap_or_default();
    if let Some(unknown) = overrides.iter().find(|known| all.iter().all(|case| case.name != known.case)) {
        return Err(format!("there is no case {}, which has an override", unknown.case));
    }
    let wanted = |case: &Case| {
        arguments.filters.is_empty() || arguments.filters.iter().any(|filter| is_named(&case.name, filter))
    };
    let cases: Vec<Case> = all.into_iter().filter(wanted).collect();
    if cases.is_empty() {
        return Err("no case has such a name".into());
    }
    let folder = std::env::temp_dir().join(format!("foregate-crs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let origin = origin::start().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let binary = arguments.binary.canonicalize().map_err(|error| error.to_string())?;
    let crs = arguments.crs.canonicalize().map_err(|error| error.to_string())?;
    let proxy = Proxy::start(&binary, &crs, origin, &folder)?;
    let started = began.elapsed();
    let (got, kept) = send_all(&proxy, &cases)?;
    let said = proxy.said();
    // Each has had a port of its own, by which lines of the log are told apart.
    drop(kept);
    let log = proxy.finish()?;
    let log = Log::read(&log)?;
    let verdicts = judge_all(&cases, &overrides, &got, &log)?;
    report(&cases, &verdicts, &overrides);
    let requests: usize = cases.iter().map(|case| case.stages.len()).sum();
    println!(
        "{requests} requests, {} lines of log, started in {:.2} s, done in {:.1} s",
        log.len(),
        started.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    if arguments.keep {
        println!("kept {}", folder.display());
    } else {
        // Whatever is left there does no harm.
        let _ = std::fs::remove_dir_all(&folder);
    }
    if said.contains("panicked") {
        println!("the proxy has panicked:\n{said}");
        return Ok(false);
    }
    Ok(verdicts.iter().all(Vec::is_empty))
}

fn is_named(name: &str, filter: &str) -> bool {
    name.strip_prefix(filter).is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || filter.len() < 6)
}

/// Sends the requests of all cases; gives what came of each.
fn send_all(proxy: &Proxy, cases: &[Case]) -> Result<(Vec<Vec<Got>>, Vec<TcpStream>), String> {
    allow_descriptors();
    let kept = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let results = Mutex::new((vec![Vec::new(); cases.len()], None));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ask = |stage: &suite::Stage| {
                        let (got, connection) = client::ask(proxy.address, &stage.request)?;
                        kept.lock().push(connection);
                        Ok::<_, std::io::Error>(got)
                    };
                    let got: Result<Vec<Got>, _> = case.stages.iter().map(ask).collect();
                    let mut results = results.lock();
                    let place = cases.iter().position(|other| std::ptr::eq(other, case));
                    match (got, place) {
                        (Ok(got), Some(place)) => results.0[place] = got,
                        (Err(error), _) => results.1 = Some(format!("{}: {error}", case.name)),
                        (Ok(_), None) => {}
                    }
                }
            });
        }
    });
    match results.into_inner() {
        (_, Some(error)) => Err(format!("{error}\n{}", proxy.said())),
        (got, None) => Ok((got, kept.into_inner())),
    }
}

/// As many connections as the system allows: all are kept.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, connecting fails in time.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What is wrong with each case.
fn judge_all(
    cases: &[Case],
    overrides: &[Override],
    got: &[Vec<Got>],
    log: &Log<'_>,
) -> Result<Vec<Vec<String>>, String> {
    let judge_case = |(case, got): (&Case, &Vec<Got>)| {
        let instead = overrides.iter().find(|known| known.case == case.name).map(|known| &known.expected);
        let mut wrong = Vec::new();
        for (stage, got) in case.stages.iter().zip(got) {
            let expected = instead.unwrap_or(&stage.expected);
            let found = judge(expected, *got, log).map_err(|error| format!("{}: {error}", case.name))?;
            if !found.is_empty() {
                wrong.push(format!(
                    "{} (status {:?}, matched {:?})",
                    found.join(", "),
                    got.status,
                    log.ids(got.port)
                ));
            }
        }
        Ok(wrong)
    };
    cases.iter().zip(got).map(judge_case).collect()
}

fn report(cases: &[Case], verdicts: &[Vec<String>], overrides: &[Override]) {
    for (case, wrong) in cases.iter().zip(verdicts).filter(|(_, wrong)| !wrong.is_empty()) {
        println!("FAILED {}: {}", case.name, wrong.join("; "));
    }
    for known in overrides.iter().filter(|known| cases.iter().any(|case| case.name == known.case)) {
        println!("differs {}: {}", known.case, known.reason);
    }
    let failed = verdicts.iter().filter(|wrong| !wrong.is_empty()).count();
    let differs = overrides.iter().filter(|known| cases.iter().any(|case| case.name == known.case)).count();
    println!(
        "{} cases: {} passed, {failed} failed, {differs} by a deviation",
        cases.len(),
        cases.len() - failed
    );
}
