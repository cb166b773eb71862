//! `foregate compare` and `foregate test`.

mod client;
mod options;
mod pace;
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
    Run(run::CompareRun),
}

impl Compare {
    pub(super) fn run(&self) -> Outcome {
        match self {
            Self::Run(run) => run.run(),
        }
    }
}
