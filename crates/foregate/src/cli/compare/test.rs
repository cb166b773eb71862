//! `foregate test`: cases against one system.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use foregate_compare::case::Case;
use foregate_compare::{Outcome as Answered, Variables, judge};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::client::{Base, Client, Connection};
use super::options::{self, RequestOptions, variable};
use super::pace::Pace;
use super::source::{Chain, Chains, Format, Unreadable, start};
use crate::cli::arguments::Json;
use crate::cli::output::{Outcome, complain, print, print_json};
use crate::cli::progress::Progress;

/// Bytes of an answer that expectations see.
const BODY: usize = 16 << 20;
/// The most failures that are kept.
const FAILURES_MOST: usize = 1000;

/// Sends the cases of files to one system, and judges its answers.
#[derive(Debug, Args)]
pub(crate) struct TestCases {
    /// Files of cases, in a subset of Hurl's syntax
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The system that is asked [default: the one that each URL names]
    #[arg(long, value_name = "URL")]
    to: Option<Base>,
    /// The value of a template, {{NAME}}
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    #[command(flatten)]
    asking: RequestOptions,
    #[command(flatten)]
    output: Json,
}

/// The state that workers share.
struct TestState {
    client: Client,
    pace: Pace,
    chains: tokio::sync::Mutex<Receiver<Result<Chain, Unreadable>>>,
    variables: Variables,
    passed: AtomicUsize,
    failed: AtomicUsize,
    failures: Mutex<Vec<FailedCase>>,
}

/// A case that has failed.
struct FailedCase {
    file: String,
    case: usize,
    request: String,
    reasons: Vec<(usize, String)>,
}

impl TestCases {
    pub(crate) fn run(&self) -> Outcome {
        match self.test() {
            Ok(shared) => self.show(&shared),
            Err(message) => {
                complain(&message);
                Outcome::Wrong
            }
        }
    }

    fn test(&self) -> Result<Arc<TestState>, String> {
        let Chains { chains, read, .. } = start(self.files.clone(), Some(Format::Cases), usize::MAX);
        let shared = Arc::new(TestState {
            client: Client::new(self.to.clone(), &self.asking.client(BODY))?,
            pace: Pace::new(self.asking.rate),
            chains: tokio::sync::Mutex::new(chains),
            variables: self.variables.iter().cloned().collect(),
            passed: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            failures: Mutex::new(Vec::new()),
        });
        options::runtime()?.block_on(drive(&shared, self.asking.jobs, &read))?;
        Ok(shared)
    }

    fn show(&self, shared: &TestState) -> Outcome {
        let (passed, failed) = (shared.passed.load(Ordering::Relaxed), shared.failed.load(Ordering::Relaxed));
        let mut failures = shared.failures.lock();
        failures.sort_by(|a, b| (&a.file, a.case).cmp(&(&b.file, b.case)));
        if self.output.json {
            let failures = failures.iter().map(|failure| {
                let reasons =
                    failure.reasons.iter().map(|(line, message)| json!({ "line": line, "message": message }));
                json!({
                    "file": failure.file, "line": failure.case, "request": failure.request,
                    "reasons": reasons.collect::<Vec<_>>(),
                })
            });
            print_json(&json!({
                "ok": failed == 0, "passed": passed, "failed": failed, "failures": failures.collect::<Vec<_>>(),
            }));
        } else {
            for failure in &*failures {
                print(&format!("{}:{}: {}\n", failure.file, failure.case, failure.request));
                for (line, message) in &failure.reasons {
                    print(&format!("  {}:{line}: {message}\n", failure.file));
                }
            }
            print(&format!("{passed} passed, {failed} failed\n"));
        }
        if failed == 0 { Outcome::Fine } else { Outcome::Wrong }
    }
}

async fn drive(shared: &Arc<TestState>, jobs: usize, read: &AtomicUsize) -> Result<(), String> {
    let mut workers = JoinSet::new();
    for _ in 0..jobs {
        let shared = Arc::clone(shared);
        workers.spawn(async move { worker(&shared).await });
    }
    let mut progress = Progress::new("requests");
    let result = loop {
        match tokio::time::timeout(Duration::from_millis(200), workers.join_next()).await {
            Ok(None) => break Ok(()),
            Ok(Some(Ok(Ok(())))) => {}
            Ok(Some(Ok(Err(Unreadable(message))))) => break Err(message),
            Ok(Some(Err(_))) => break Err("a worker has failed".to_owned()),
            Err(_) => {
                let failed = shared.failed.load(Ordering::Relaxed);
                let done = shared.passed.load(Ordering::Relaxed) + failed;
                let all = read.load(Ordering::Relaxed);
                progress.tell(done as u64, all as u64, &format!("{failed} failed so far"));
            }
        }
    };
    progress.end();
    result
}

async fn worker(shared: &TestState) -> Result<(), Unreadable> {
    let mut connection = Connection::default();
    loop {
        let chain = shared.chains.lock().await.recv().await;
        let Some(chain) = chain.transpose()? else { return Ok(()) };
        let mut variables = shared.variables.clone();
        for case in &chain.cases {
            let reasons = shared.one(case, &mut connection, &mut variables).await;
            if reasons.is_empty() {
                shared.passed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            shared.failed.fetch_add(1, Ordering::Relaxed);
            let mut failures = shared.failures.lock();
            if failures.len() < FAILURES_MOST {
                let request = format!("{} {}", case.method, case.url);
                failures.push(FailedCase {
                    file: chain.file.display().to_string(),
                    case: case.line,
                    request,
                    reasons,
                });
            }
        }
    }
}

impl TestState {
    /// Sends a case; the reasons why it has failed.
    async fn one(
        &self,
        case: &Case,
        connection: &mut Connection,
        variables: &mut Variables,
    ) -> Vec<(usize, String)> {
        let filled = case.filled(variables).map_err(|name| format!("no value for the variable `{name}`"));
        let prepared = match filled.and_then(|case| self.client.prepare(&case)) {
            Ok(prepared) => prepared,
            Err(reason) => return vec![(case.line, reason)],
        };
        self.pace.turn().await;
        match self.client.send(connection, &prepared).await {
            Answered::Failed(reason) => vec![(case.line, reason)],
            Answered::Answered(answer) => {
                judge(case, &answer, variables).into_iter().map(|wrong| (wrong.line, wrong.message)).collect()
            }
        }
    }
}
