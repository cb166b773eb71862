//! `foregate waf`: rules of the web application firewall.

mod check;
mod explain;
mod files;
mod install;
mod test;

use std::sync::Arc;

use clap::Subcommand;
use foregate_module::Pipeline;
use foregate_waf::model::{Problem, RuleSet};
use foregate_waf::seclang::{Source, load};
use serde::Serialize;

use super::output::{Outcome, complain, print_json};

#[derive(Debug, Subcommand)]
pub(super) enum Waf {
    /// Load rules and report mistakes in them
    Check(check::WafCheck),
    /// Run rules, or the `waf` of a configuration, on a request: show every match, its effect on scores, and the
    /// verdict. Exits with 1 if the rules would stop the request
    Explain(explain::WafExplain),
    /// Run the regression files of rules, in the form of those of the OWASP Core Rule Set, against a proxy with these rules.
    /// Exits with 1 if a case fails
    Test(test::Test),
    /// Fetch a release of the OWASP Core Rule Set, verify its digest and unpack it
    InstallCrs(install::Install),
}

impl Waf {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        match self {
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(pipeline),
            Self::Test(test) => test.run(),
            Self::InstallCrs(install) => install.run(),
        }
    }
}

/// A problem in JSON, in the same form as the problems of configuration files.
#[derive(Debug, Serialize)]
struct ProblemReport<'p> {
    file: &'p str,
    line: u32,
    column: u32,
    message: &'p str,
    help: Option<&'p str>,
}

impl<'p> From<&'p Problem> for ProblemReport<'p> {
    fn from(problem: &'p Problem) -> Self {
        Self {
            file: &problem.place.file,
            line: problem.place.line,
            column: problem.place.column,
            message: &problem.message,
            help: problem.suggestion.as_deref(),
        }
    }
}

/// Loads the rules in these files, in this order. If there are errors, shows them and returns the exit code.
fn rules(files: &[String], json: bool) -> Result<RuleSet, Outcome> {
    load_sources(&files.iter().map(Source::files).collect::<Vec<_>>(), json)
}

/// Loads the rules of any sources, with the same errors as [`rules`].
fn load_sources(sources: &[Source], json: bool) -> Result<RuleSet, Outcome> {
    load(sources, &mut files::Disk).map_err(|errors| {
        if json {
            let shown: Vec<ProblemReport<'_>> = errors.iter().map(ProblemReport::from).collect();
            print_json(&serde_json::json!({ "ok": false, "count": errors.len(), "errors": shown }));
        } else {
            errors.iter().for_each(|error| complain(&line("error", error)));
        }
        Outcome::Wrong
    })
}

/// Formats a problem as one line.
fn line(kind: &str, problem: &Problem) -> String {
    let help = problem.suggestion.iter().map(|help| format!("\n    {help}")).collect::<String>();
    format!("{}: {kind}: {}{help}", problem.place, problem.message)
}
