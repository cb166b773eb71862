//! `foregate migrate`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin::{ResourceRequest, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};
use super::reload::ask_process;

/// Characters of a full bar.
const BAR: u64 = 40;

#[derive(Debug, Subcommand)]
pub(super) enum Migrate {
    /// Show the shares of requests that are served here and that fall back, over time, and the routes that fall back most
    Status(MigrationStatus),
}

#[derive(Debug, Args)]
pub(super) struct MigrationStatus {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

impl Migrate {
    pub(super) fn run(&self) -> Outcome {
        let Self::Status(MigrationStatus { file, admin, output }) = self;
        let request = ResourceRequest::get("/v1/migration");
        let answer = match ask_process(file, admin.as_deref(), &request, output.json) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        let fine = answer.get("ok") == Some(&Value::Bool(true));
        match (fine, output.json) {
            (_, true) => print_json(&answer),
            (true, false) => print(&text(&answer)),
            (false, false) => complain(reason(&answer)),
        }
        if fine { Outcome::Fine } else { Outcome::Wrong }
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn text(answer: &Value) -> String {
    let (here, there) = (number(answer, "here"), number(answer, "there"));
    let mut text = String::new();
    if answer.get("falls_back") == Some(&Value::Bool(false)) {
        text.push_str("The configuration has no `fallback`: every request is served here.\n");
    }
    text.push_str(&format!("since the start   {}\n", shares(here, there)));
    for (name, span) in [("hours", 3600), ("minutes", 60)] {
        let spans = answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for served in spans.iter().rev().take(12).rev() {
            let start = UNIX_EPOCH + Duration::from_secs(number(served, "start"));
            let seconds = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
            let unit = if span == 3600 { "hour  " } else { "minute" };
            let clock = format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
            let (here, there) = (number(served, "here"), number(served, "there"));
            text.push_str(&format!("{unit} {clock} UTC  {}  {}\n", shares(here, there), bar(here, there)));
        }
    }
    let routes = answer.get("routes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !routes.is_empty() {
        text.push_str("routes that fall back most\n");
    }
    for route in routes {
        let name = |key: &str| route.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let or_none = |name: String| if name.is_empty() { "(none)".to_owned() } else { name };
        let reasons = route.get("reasons").and_then(Value::as_object);
        let reasons: Vec<_> =
            reasons.into_iter().flatten().map(|(reason, count)| format!("{reason} {count}")).collect();
        text.push_str(&format!(
            "  {} {}  {}  ({})\n",
            or_none(name("site")),
            or_none(name("route")),
            shares(number(route, "here"), number(route, "there")),
            reasons.join(", ")
        ));
    }
    text
}

fn shares(here: u64, there: u64) -> String {
    let all = here + there;
    if all == 0 {
        return "no requests".to_owned();
    }
    let percent = |part: u64| 100.0 * part as f64 / all as f64;
    format!("here {here} ({:.1} %), there {there} ({:.1} %)", percent(here), percent(there))
}

/// A bar for the share of requests that is served here.
fn bar(here: u64, there: u64) -> String {
    let full = (BAR * here).checked_div(here + there).unwrap_or_default() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR as usize - full))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shares_are_shown_over_time_and_by_route() {
        let answer = json!({
            "ok": true, "falls_back": true, "here": 3, "there": 1,
            "minutes": [{ "start": 3660, "here": 3, "there": 1 }], "hours": [],
            "routes": [{ "site": "a", "route": "/**", "here": 0, "there": 1, "reasons": { "route": 1 } }],
        });
        let shown = text(&answer);
        assert!(shown.contains("here 3 (75.0 %), there 1 (25.0 %)"), "{shown}");
        assert!(
            shown.contains("minute 01:01 UTC")
                && shown.contains("[##############################..........]")
        );
        assert!(shown.contains("  a /**  here 0 (0.0 %), there 1 (100.0 %)  (route 1)"), "{shown}");
    }
}
