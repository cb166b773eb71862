//! `foregate compare run`: one set of requests against two systems.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use foregate_compare::case::Case;
use foregate_compare::{
    Class, Name, Outcome as Answered, Report, Rules, Tally, Variables, judge, page, template, write_case,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::client::{Base, Client, Connection};
use super::options::{self, RequestOptions, percent, variable};
use super::pace::Pace;
use super::source::{Chain, Chains, Format, Unreadable, start};
use crate::cli::arguments::Json;
use crate::cli::output::{Outcome, complain, print, print_json};
use crate::cli::progress::Progress;

/// The number of first requests of each route that the old system gets twice, to learn its noise.
const LEARNED_FIRST: u64 = 5;
/// The most requests of a route that the old system gets twice, including those repeated because of a difference.
const LEARNED_MOST: u64 = 100;

#[derive(Debug, Args)]
pub(crate) struct CompareRun {
    /// Files of cases, HAR recordings, access logs, or folders of samples
    #[arg(value_name = "CASES", required = true)]
    files: Vec<PathBuf>,
    /// The old system
    #[arg(long, value_name = "URL")]
    old: Base,
    /// The new system
    #[arg(long, value_name = "URL")]
    new: Base,
    /// The format of the files [default: by their names and first bytes]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Leave out a part of the answers: NAME of a field, `cookie NAME`, `json $.PATH`, `body`, `status`
    #[arg(long, value_name = "PART", value_parser = Name::read)]
    ignore: Vec<Name>,
    /// Compare the order of fields
    #[arg(long)]
    header_order: bool,
    /// The share of requests that the old system is asked twice, to learn its noise
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    learn: f64,
    /// Send recorded requests with other methods than GET, HEAD, OPTIONS and TRACE, too
    #[arg(long)]
    unsafe_methods: bool,
    /// Read at most so many requests
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// Write the requests as cases that expect the answers of the old system
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The value of a template, {{NAME}}
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    #[command(flatten)]
    asking: RequestOptions,
    #[command(flatten)]
    output: Json,
}

/// The state that workers share.
struct RunState {
    old: Client,
    new: Client,
    rules: Rules,
    pace: Pace,
    tally: Mutex<Tally>,
    chains: tokio::sync::Mutex<Receiver<Result<Chain, Unreadable>>>,
    variables: Variables,
    /// One in this many requests is sent to the old system twice.
    learn_every: Option<usize>,
    unsafe_methods: bool,
    save: Option<Mutex<BufWriter<File>>>,
    done: AtomicUsize,
    different: AtomicUsize,
    /// Messages about expectations that an answer did not meet.
    unmet: Mutex<Vec<String>>,
}

/// The most unmet expectations that are told.
const UNMET_MOST: usize = 50;

impl CompareRun {
    pub(crate) fn run(&self) -> Outcome {
        match self.compare() {
            Ok((report, unmet)) => self.show(&report, &unmet),
            Err(message) => {
                complain(&message);
                Outcome::Wrong
            }
        }
    }

    fn compare(&self) -> Result<(Report, Vec<String>), String> {
        let settings = self.asking.client(1 << 20);
        let mut rules = Rules::new(self.header_order, settings.body_limit);
        for name in &self.ignore {
            rules.ignore(name.clone());
        }
        let save = match &self.save {
            Some(file) => {
                let opened = File::options().write(true).create(true).truncate(true).mode(0o600).open(file);
                Some(Mutex::new(BufWriter::new(
                    opened.map_err(|error| format!("{}: {error}", file.display()))?,
                )))
            }
            None => None,
        };
        let Chains { chains, read, without_host } = start(self.files.clone(), self.format, self.limit);
        let shared = Arc::new(RunState {
            old: Client::new(Some(self.old.clone()), &settings)?,
            new: Client::new(Some(self.new.clone()), &settings)?,
            rules,
            pace: Pace::new(self.asking.rate),
            tally: Mutex::new(Tally::default()),
            chains: tokio::sync::Mutex::new(chains),
            variables: self.variables.iter().cloned().collect(),
            learn_every: (self.learn > 0.0).then(|| (100.0 / self.learn).round().max(1.0) as usize),
            unsafe_methods: self.unsafe_methods,
            save,
            done: AtomicUsize::new(0),
            different: AtomicUsize::new(0),
            unmet: Mutex::new(Vec::new()),
        });
        options::runtime()?.block_on(drive(&shared, self.asking.jobs, &read))?;
        let without_host = without_host.load(Ordering::Relaxed);
        if self.asking.host.is_none() && without_host > 0 {
            complain(&format!(
                "warning: {without_host} requests of the log name no host, and were sent with those of --old and --new: --host NAME sets it"
            ));
        }
        if let Some(save) = &shared.save {
            save.lock().flush().map_err(|error| format!("--save: {error}"))?;
        }
        let report = Report::new(&shared.tally.lock(), shared.rules.ignored());
        let unmet = std::mem::take(&mut *shared.unmet.lock());
        Ok((report, unmet))
    }

    fn show(&self, report: &Report, unmet: &[String]) -> Outcome {
        if let Some(file) = &self.html
            && let Err(error) = std::fs::write(file, page(report))
        {
            complain(&format!("{}: {error}", file.display()));
            return Outcome::Wrong;
        }
        if self.output.json {
            print_json(report);
        } else {
            print(&report.text());
        }
        unmet.iter().for_each(|line| complain(line));
        if report.is_different() || !unmet.is_empty() { Outcome::Wrong } else { Outcome::Fine }
    }
}

/// Runs the workers until no case is left.
async fn drive(shared: &Arc<RunState>, jobs: usize, read: &AtomicUsize) -> Result<(), String> {
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
                let remark = format!("{} differ so far", shared.different.load(Ordering::Relaxed));
                let (done, all) = (shared.done.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
                progress.tell(done as u64, all as u64, &remark);
            }
        }
    };
    progress.end();
    result
}

async fn worker(shared: &RunState) -> Result<(), Unreadable> {
    let mut connections = (Connection::default(), Connection::default());
    loop {
        let chain = shared.chains.lock().await.recv().await;
        let Some(chain) = chain.transpose()? else { return Ok(()) };
        let mut variables = (shared.variables.clone(), shared.variables.clone());
        for case in &chain.cases {
            shared.one(&chain, case, &mut connections, &mut variables).await;
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RunState {
    /// Sends a case to both systems, and compares.
    async fn one(
        &self,
        chain: &Chain,
        case: &Case,
        connections: &mut (Connection, Connection),
        variables: &mut (Variables, Variables),
    ) {
        let path = case.url.split_once("://").map_or(&*case.url, |(_, behind)| {
            behind.find('/').and_then(|at| behind.get(at..)).unwrap_or("/")
        });
        let route = format!("{} {}", case.method, template(path));
        let not_compared = |reason: &str| self.tally.lock().not_compared(&route, reason);
        if let Some(reason) = chain.unknown {
            return not_compared(reason);
        }
        if chain.recorded && !case.is_safe() && !self.unsafe_methods {
            return not_compared("the method is not safe; --unsafe-methods sends it");
        }
        let filled = |variables: &Variables| {
            case.filled(variables)
                .map_err(|name| format!("no value for the variable `{name}`; --variable sets one"))
        };
        let prepared = filled(&variables.0)
            .and_then(|old| Ok((self.old.prepare(&old)?, self.new.prepare(&filled(&variables.1)?)?)));
        let (to_old, to_new) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return not_compared(&reason),
        };
        self.pace.turn().await;
        let (old, new) = tokio::join!(
            self.old.send(&mut connections.0, &to_old),
            self.new.send(&mut connections.1, &to_new)
        );
        let is_due = |at: usize| self.learn_every.is_some_and(|every| at.is_multiple_of(every));
        let mut learns = case.is_safe()
            && self.learn_every.is_some()
            && (self.tally.lock().should_learn(&route, LEARNED_FIRST)
                || is_due(self.done.load(Ordering::Relaxed)));
        if learns {
            let again = self.old.send(&mut connections.0, &to_old).await;
            self.tally.lock().learn(&route, &old, &again, &self.rules);
        }
        let found = {
            let mut tally = self.tally.lock();
            let found = tally.compare(&route, &old, &new, &self.rules);
            tally.example(&route, &found.differences, None);
            learns = !learns && found.class.is_difference() && tally.should_learn(&route, LEARNED_MOST);
            found
        };
        if learns && case.is_safe() && self.learn_every.is_some() && found.class > Class::OnlyNew {
            // The difference may be noise of the old system that has not been seen yet.
            let again = self.old.send(&mut connections.0, &to_old).await;
            self.tally.lock().learn(&route, &old, &again, &self.rules);
        }
        if found.class.is_difference() {
            self.different.fetch_add(1, Ordering::Relaxed);
        }
        self.judge(chain, case, "old", &old, &mut variables.0);
        self.judge(chain, case, "new", &new, &mut variables.1);
        if let Some(save) = &self.save {
            let text =
                write_case(case, if let Answered::Answered(answer) = &old { Some(answer) } else { None });
            // An error of the file is reported by the flush at the end.
            let _ = save.lock().write_all(text.as_bytes());
        }
    }

    /// Stores the captures of an answer in `variables`, and records the expectations that the answer does not meet.
    fn judge(
        &self,
        chain: &Chain,
        case: &Case,
        system: &str,
        answered: &Answered,
        variables: &mut Variables,
    ) {
        let Answered::Answered(answer) = answered else { return };
        for wrong in judge(case, answer, variables) {
            let mut unmet = self.unmet.lock();
            if unmet.len() < UNMET_MOST {
                unmet.push(format!("{}:{}: {system}: {}", chain.file.display(), wrong.line, wrong.message));
            }
        }
    }
}
