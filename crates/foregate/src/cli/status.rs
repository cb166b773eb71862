//! `foregate status`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use foregate_supervisor::client;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::admin::{ResourceRequest, ask};
use super::arguments::{ConfigFile, Json};
use super::certificates::lasting;
use super::output::{Outcome, complain, print, print_json};
use super::reload::cannot_ask;
use super::upgrade::no_supervisor;
use crate::config;

/// The time limit of the answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket of a process, which is asked in the place of the supervisor [default: the one that the configuration
    /// names, if there is no supervisor]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

impl Status {
    pub(super) fn run(&self) -> Outcome {
        let status = match &self.admin {
            Some(admin) => of_process(admin).map_err(|error| cannot_ask(admin, &error)),
            None => self.ask(),
        };
        match status {
            Ok(status) if self.output.json => {
                print_json(&status);
                Outcome::Fine
            }
            Ok(status) => {
                print(&text(&status));
                Outcome::Fine
            }
            Err(outcome) => outcome,
        }
    }

    /// The supervisor's answer. Without a supervisor, the answer of the serving process over its admin socket. A failure has
    /// been shown already.
    fn ask(&self) -> Result<Value, Outcome> {
        let path = self.file.path();
        let error = match client::ask(&path, &json!({ "verb": "status" }), Some(PATIENCE), |_| {}) {
            Ok(status) => return Ok(status),
            Err(error) => error,
        };
        let admin = match error.kind() {
            io::ErrorKind::NotFound => config::admin(&path),
            _ => return Err(no_supervisor(&error)),
        };
        match admin {
            Ok(Some(admin)) => of_process(&admin).map_err(|unasked| match unasked.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => no_supervisor(&error),
                _ => cannot_ask(&admin, &unasked),
            }),
            Ok(None) => {
                complain(
                    "a process without a supervisor can be asked where the configuration names an `admin` socket",
                );
                Err(no_supervisor(&error))
            }
            Err(_) => Err(no_supervisor(&error)),
        }
    }
}

fn of_process(admin: &Path) -> io::Result<Value> {
    ask(admin, &ResourceRequest::get("/v1/status"))
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
        let (date, reason) = (date(time), reason.trim_end());
        lines.push_str(&match configuration["refused"]["at_start"].as_bool() {
            Some(true) => format!(
                "{:<11} after a crash, the files were refused at the start of {date}; the configuration before them serves: {reason}\n",
                ""
            ),
            _ => format!("{:<11} the reload of {date} was refused: {reason}\n", ""),
        });
    }
    let now = OffsetDateTime::now_utc().unix_timestamp();
    lines.push_str(&certificates(&status["certificates"], now));
    lines.push_str(&servers(&status["servers"]));
    lines
}

/// A line about certificates, and one for each that somebody has to look at. Empty without certificates.
fn certificates(certificates: &Value, now: i64) -> String {
    let number = |name: &str| certificates[name].as_u64().unwrap_or_default();
    let (count, wrong) = (number("count"), number("wrong"));
    if count == 0 {
        return String::new();
    }
    let end = match certificates["first_end"].as_i64().map(|end| end - now) {
        Some(left) if left <= 0 => "the first has expired".to_owned(),
        Some(left) => format!("the first ends in {}", lasting(left)),
        None => "no end is known".to_owned(),
    };
    let trouble = if wrong > 0 { format!("; {wrong} to look at:") } else { String::new() };
    let mut lines = format!("{:<11} {count}, {end}{trouble}\n", "certs");
    for one in certificates["named"].as_array().into_iter().flatten() {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        lines.push_str(&format!("{:<11} {} ({})", "", text("name"), text("state")));
        let error = if text("error").is_empty() { String::new() } else { format!(": {}", text("error")) };
        lines.push_str(&format!("{error}\n"));
    }
    lines + &further(certificates, wrong, "foregate certificates")
}

/// A line about the servers of upstreams, and one for each that gets no requests, or only some.
fn servers(servers: &Value) -> String {
    let number = |name: &str| servers[name].as_u64().unwrap_or_default();
    let (count, out) = (number("count"), number("out"));
    if count == 0 {
        return String::new();
    }
    let colon = if out > 0 { ":" } else { "" };
    let mut lines = format!("{:<11} {} of {count} up{colon}\n", "servers", count.saturating_sub(out));
    for one in servers["named"].as_array().into_iter().flatten() {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        let (upstream, server, state, reason) =
            (text("upstream"), text("server"), text("state"), text("reason"));
        lines.push_str(&format!("{:<11} {upstream} {server} {state}: {reason}\n", ""));
    }
    lines + &further(servers, out, "foregate upstreams")
}

/// A line about the entries that are not named, with the command that shows all of them.
fn further(list: &Value, all: u64, command: &str) -> String {
    let named = list["named"].as_array().map_or(0, Vec::len) as u64;
    if all > named { format!("{:<11} and {} more: `{command}`\n", "", all - named) } else { String::new() }
}

/// Formats a time in UTC.
fn date(seconds: u64) -> String {
    let time =
        i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(time) = time else { return seconds.to_string() };
    let (date, hour, minute, second) = (time.date(), time.hour(), time.minute(), time.second());
    format!("{date} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_named_with_the_command_that_shows_more() {
        let status = json!({
            "certificates": { "count": 3, "first_end": 864_000, "wrong": 1,
                "named": [{ "name": "a.test", "state": "temporary", "error": "no answer; open port 80" }] },
            "servers": { "count": 4, "out": 2,
                "named": [{ "upstream": "app", "server": "127.0.0.1:3000", "state": "ejected", "reason": "refused" }] },
        });
        assert_eq!(
            certificates(&status["certificates"], 0),
            "certs       3, the first ends in 10 days; 1 to look at:\n            a.test (temporary): no answer; open port 80\n"
        );
        assert_eq!(
            servers(&status["servers"]),
            "servers     2 of 4 up:\n            app 127.0.0.1:3000 ejected: refused\n            and 1 more: `foregate upstreams`\n"
        );
        assert_eq!((certificates(&Value::Null, 0), servers(&Value::Null)), (String::new(), String::new()));
    }
}
