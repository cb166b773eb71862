//! `foregate-cases [FILTER...]`: runs the text cases against the proxy's binary.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command-line tool")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use foregate_cases::case::Case;
use foregate_cases::run::{JOBS, Options, Verdict, default_binary, load, run_all};

/// Runs the text cases against the proxy.
#[derive(Parser)]
#[command(name = "foregate-cases", version)]
struct Arguments {
    /// Run only cases whose name contains one of these.
    filters: Vec<String>,
    /// The proxy's binary [default: $FOREGATE, or foregate in the release build].
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The folder of the cases [default: tests/cases].
    #[arg(long, value_name = "FOLDER")]
    cases: Option<PathBuf>,
    /// Print the names and purposes of the cases, run nothing.
    #[arg(long)]
    list: bool,
    /// How many run at a time.
    #[arg(long, short, default_value_t = JOBS)]
    jobs: usize,
    /// Run each case so many times, to find those that pass only mostly.
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: usize,
    /// Keep the folders with configuration and output.
    #[arg(long)]
    keep: bool,
    /// Name the cases that pass, too, with their time.
    #[arg(long, short)]
    verbose: bool,
}

/// Exit code for wrong usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let folder = arguments.cases.clone().unwrap_or_else(default_folder);
    let mut cases = match load(&folder) {
        Ok(cases) => cases,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    cases.retain(|case| {
        arguments.filters.is_empty()
            || arguments.filters.iter().any(|filter| case.name.contains(filter.as_str()))
    });
    if arguments.list {
        list(&cases);
        return ExitCode::SUCCESS;
    }
    if cases.is_empty() {
        eprintln!("no case has such a name");
        return ExitCode::from(USAGE);
    }
    run(&cases, &arguments)
}

fn list(cases: &[Case]) {
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    for case in cases {
        println!("{:width$}  {}", case.name, case.title);
    }
}

fn run(cases: &[Case], arguments: &Arguments) -> ExitCode {
    let binary = arguments.binary.clone().unwrap_or_else(default_binary);
    let binary = match binary.canonicalize() {
        Ok(binary) => binary,
        Err(error) => {
            eprintln!("{}: {error}; build it, or name it with --binary or $FOREGATE", binary.display());
            return ExitCode::from(USAGE);
        }
    };
    let options = Options { binary, jobs: arguments.jobs, keep: arguments.keep };
    let start = Instant::now();
    let mut verdicts = Vec::new();
    for _ in 0..arguments.repeat.max(1) {
        verdicts.extend(run_all(cases, &options, |verdict| tell(verdict, arguments.verbose)));
    }
    let failed: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.report.is_some()).collect();
    for verdict in &failed {
        println!("\nFAILED {}\n{}", verdict.name, verdict.report.as_deref().unwrap_or_default());
    }
    for verdict in &failed {
        println!("failed: {}", verdict.name);
    }
    println!(
        "{} passed, {} failed in {:.1} s",
        verdicts.len() - failed.len(),
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(verdict: &Verdict, verbose: bool) {
    let word = if verdict.report.is_some() { "FAILED" } else { "ok" };
    if verbose || verdict.report.is_some() {
        println!("{word:6} {} ({:.2} s)", verdict.name, verdict.took.as_secs_f64());
    }
}

/// `tests/cases` here, or in the repository that this was built in.
fn default_folder() -> PathBuf {
    let here = Path::new("tests/cases");
    if here.is_dir() {
        here.to_owned()
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")
    }
}
