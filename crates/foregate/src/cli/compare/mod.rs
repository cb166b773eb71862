//! `foregate compare` and `foregate test`.

mod client;
mod options;
mod pace;
mod report;
mod run;
mod source;
mod test;

use clap::Subcommand;

pub(super) use self::test::TestCases;
use super::output::Outcome;

/// A verb of the comparison.
#[derive(Debug, Subcommand)]
pub(super) enum Compare {
    /// Send one set of requests to two systems, and report the differences of their answers
    Run(Box<run::CompareRun>),
    /// Show the differences that the routes with `compare` of a running proxy have found, the worst route first
    Report(report::ReportArgs),
    /// Show a sample: a request, and both responses
    Show(report::ShowSample),
    /// Leave a part of the responses out of the comparisons of a running proxy, and forget its differences
    Ignore(report::IgnorePart),
}

impl Compare {
    pub(super) fn run(&self) -> Outcome {
        match self {
            Self::Run(run) => run.run(),
            Self::Report(report) => report.run(),
            Self::Show(show) => show.run(),
            Self::Ignore(ignore) => ignore.run(),
        }
    }
}
