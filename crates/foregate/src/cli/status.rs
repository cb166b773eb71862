//! `foregate status`.

use std::io;
use std::time::Duration;

use clap::Args;
use foregate_supervisor::client;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};
use super::reload;
use super::upgrade::no_supervisor;
use crate::config;

/// The time limit of the answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    output: Json,
}

impl Status {
    pub(super) fn run(&self) -> Outcome {
        match self.ask() {
            Ok(status) if self.output.json => {
                print_json(&status);
                Outcome::Fine
            }
            Ok(status) => {
                print(&text(&status));
                Outcome::Fine
            }
            Err(error) => no_supervisor(&error),
        }
    }

    /// The supervisor's answer. Without a supervisor, the answer of the serving process over its admin socket.
    fn ask(&self) -> io::Result<Value> {
        let path = self.file.path();
        match client::ask(&path, &json!({ "verb": "status" }), Some(PATIENCE), |_| {}) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match config::admin(&path) {
                Ok(Some(admin)) => reload::ask(&admin, &json!({ "verb": "status" })).map_err(|_| error),
                Ok(None) => {
                    complain(
                        "a process without a supervisor can be asked where the configuration names an `admin` socket",
                    );
                    Err(error)
                }
                Err(_) => Err(error),
            },
            answer => answer,
        }
    }
}

/// The status as text, with a line for each process.
fn text(status: &Value) -> String {
    let mut lines = String::new();
    if let Some(supervisor) = status.get("supervisor") {
        let memory = supervisor["memory"].as_u64().unwrap_or_default() as f64 / f64::from(1 << 20);
        lines.push_str(&format!(
            "supervisor  pid {}, version {}, {memory:.1} MiB (PSS)\n",
            supervisor["pid"],
            supervisor["version"].as_str().unwrap_or_default()
        ));
    }
    for generation in status["generations"].as_array().into_iter().flatten() {
        // A process without a supervisor does not report its memory.
        let memory =
            generation["memory"].as_u64().filter(|memory| *memory > 0).map_or_else(String::new, |memory| {
                format!(", {:.1} MiB (PSS)", memory as f64 / f64::from(1 << 20))
            });
        let cores: Vec<_> =
            generation["cores"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let cores = if cores.is_empty() { String::new() } else { format!(", cores {}", cores.join(" ")) };
        lines.push_str(&format!(
            "{:<11} pid {}, version {}, {} % of new connections, {} connections, {} requests{memory}{cores}\n",
            generation["state"].as_str().unwrap_or_default(),
            generation["pid"],
            generation["version"].as_str().unwrap_or_default(),
            generation["share"],
            generation["connections"],
            generation["requests"],
        ));
    }
    let configuration = &status["configuration"];
    if let Some(loaded) = configuration["loaded"].as_u64() {
        lines.push_str(&format!("{:<11} loaded {}\n", "config", date(loaded)));
    }
    if let (Some(time), Some(reason)) =
        (configuration["refused"]["time"].as_u64(), configuration["refused"]["reason"].as_str())
    {
        lines.push_str(&format!(
            "{:<11} the reload of {} was refused: {}\n",
            "",
            date(time),
            reason.trim_end()
        ));
    }
    lines
}

/// Formats a time in UTC.
fn date(seconds: u64) -> String {
    let time =
        i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(time) = time else { return seconds.to_string() };
    let (date, hour, minute, second) = (time.date(), time.hour(), time.minute(), time.second());
    format!("{date} {hour:02}:{minute:02}:{second:02} UTC")
}
