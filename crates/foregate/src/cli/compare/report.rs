//! `foregate compare report`, `show` and `ignore`: the comparisons of a running proxy.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::admin::{ResourceRequest, reason};
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
    fn ask(&self, request: &ResourceRequest, json: bool) -> Result<Value, Outcome> {
        let answer = ask_process(&self.file, self.admin.as_deref(), request, json)?;
        if answer.get("ok") == Some(&Value::Bool(true)) {
            return Ok(answer);
        }
        match json {
            true => print_json(&answer),
            false => complain(reason(&answer)),
        }
        Err(Outcome::Wrong)
    }

    /// Returns the report in one of its formats.
    fn report(&self, format: &str, json: bool) -> Result<Value, Outcome> {
        let request = ResourceRequest::get("/v1/comparisons").with("format", format);
        let mut answer = self.ask(&request, json)?;
        if answer["compares"] == Value::Bool(false) {
            complain("the configuration has no `compare`");
        }
        Ok(answer["report"].take())
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
            let page = match self.process.report("html", json) {
                Ok(page) => page,
                Err(outcome) => return outcome,
            };
            if let Err(error) = std::fs::write(file, page.as_str().unwrap_or_default()) {
                complain(&format!("{}: {error}", file.display()));
                return Outcome::Wrong;
            }
        }
        match self.process.report(if json { "json" } else { "text" }, json) {
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
        let request = ResourceRequest::get("/v1/comparisons/sample").with("id", &self.id);
        match self.process.ask(&request, false) {
            Ok(answer) => {
                print_json(&answer["sample"]);
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
        let request = ResourceRequest::post("/v1/comparisons/ignore").with_body(json!({ "part": self.part }));
        match self.process.ask(&request, false) {
            Ok(answer) => {
                let part = answer["part"].as_str().unwrap_or_default();
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
