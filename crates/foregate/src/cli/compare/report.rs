//! `foregate compare report`, `show` and `ignore`: the comparisons of a running proxy.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::arguments::{ConfigFile, Json};
use crate::cli::output::{Outcome, complain, print, print_json};
use crate::cli::reload::ask_process;

/// The options that name the process to ask.
#[derive(Debug, Args)]
struct AskedProcess {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
}

impl AskedProcess {
    /// Returns the answer of the process; errors have been shown already.
    fn ask(&self, question: (&str, &str), json: bool) -> Result<Value, Outcome> {
        let mut request = json!({ "verb": "compare" });
        if let Some(fields) = request.as_object_mut() {
            fields.insert(question.0.to_owned(), question.1.into());
        }
        let mut answer = ask_process(&self.file, self.admin.as_deref(), &request, json)?;
        if answer.get("ok") != Some(&Value::Bool(true)) {
            match json {
                true => print_json(&answer),
                false => complain(
                    answer.get("error").and_then(Value::as_str).unwrap_or("refused without a reason"),
                ),
            }
            return Err(Outcome::Wrong);
        }
        if answer.get("compares") == Some(&Value::Bool(false)) && question.0 == "report" {
            complain("the configuration has no `compare`");
        }
        Ok(answer.get_mut("answer").map(Value::take).unwrap_or_default())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    process: AskedProcess,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

impl ReportArgs {
    pub(crate) fn run(&self) -> Outcome {
        let json = self.output.json;
        if let Some(file) = &self.html {
            let page = match self.process.ask(("report", "html"), json) {
                Ok(page) => page,
                Err(outcome) => return outcome,
            };
            if let Err(error) = std::fs::write(file, page.as_str().unwrap_or_default()) {
                complain(&format!("{}: {error}", file.display()));
                return Outcome::Wrong;
            }
        }
        match self.process.ask(("report", if json { "json" } else { "text" }), json) {
            Ok(report) if json => print_json(&report),
            Ok(report) => print(report.as_str().unwrap_or_default()),
            Err(outcome) => return outcome,
        }
        Outcome::Fine
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowSample {
    /// The id of a sample, which the report shows
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    process: AskedProcess,
}

impl ShowSample {
    pub(crate) fn run(&self) -> Outcome {
        match self.process.ask(("show", &self.id), false) {
            Ok(sample) => {
                print_json(&sample);
                Outcome::Fine
            }
            Err(outcome) => outcome,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct IgnorePart {
    /// The part: the name of a field, `cookie NAME`, `$.PATH`, `body` or `status`
    #[arg(value_name = "PART")]
    part: String,
    #[command(flatten)]
    process: AskedProcess,
}

impl IgnorePart {
    pub(crate) fn run(&self) -> Outcome {
        match self.process.ask(("ignore", &self.part), false) {
            Ok(part) => {
                let part = part.as_str().unwrap_or_default().to_owned();
                print(&format!(
                    "{part} is ignored until the process ends; `ignore=\"{}\"` in `compare` keeps it so\n",
                    part.trim_start_matches("header ").trim_start_matches("json ")
                ));
                Outcome::Fine
            }
            Err(outcome) => outcome,
        }
    }
}
