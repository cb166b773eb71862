//! `foregate upstreams`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::admin::{ResourceRequest, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};
use super::reload::ask_process;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Upstreams {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    process: Process,
}

/// The options that name the process to ask.
#[derive(Debug, Args)]
struct Process {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Give a server another weight, drain it, take it out, or put it to work again
    Set {
        /// The name of the upstream
        upstream: String,
        /// The address of the server, as it is configured
        server: String,
        /// weight=N, drain (no new clients), down (no requests), or up
        order: String,
        #[command(flatten)]
        process: Process,
    },
}

impl Upstreams {
    pub(super) fn run(&self) -> Outcome {
        let (process, request) = match &self.change {
            None => (&self.process, ResourceRequest::get("/v1/upstreams")),
            Some(Change::Set { upstream, server, order, process }) => {
                let set = json!({ "upstream": upstream, "server": server, "order": order });
                (process, ResourceRequest::post("/v1/servers").with_body(set))
            }
        };
        let json = process.output.json;
        let answer = match ask_process(&process.file, process.admin.as_deref(), &request, json) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        let fine = answer.get("ok") == Some(&Value::Bool(true));
        match (fine, json, answer.get("upstreams")) {
            (_, true, Some(upstreams)) => print_json(upstreams),
            (_, true, None) => print_json(&answer),
            (true, false, Some(upstreams)) => print(&table(upstreams)),
            (true, false, None) => print("done: `foregate upstreams` shows the state\n"),
            (false, false, _) => complain(reason(&answer)),
        }
        if fine { Outcome::Fine } else { Outcome::Wrong }
    }
}

fn table(upstreams: &Value) -> String {
    let mut text = String::new();
    for upstream in upstreams.as_array().into_iter().flatten() {
        let name = upstream.get("upstream").and_then(Value::as_str).unwrap_or_default();
        let servers =
            upstream.get("servers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut rows = vec![
            ["server", "state", "weight", "active", "conns", "p50", "p99", "since", "reason"]
                .map(str::to_owned),
        ];
        rows.extend(servers.iter().map(row));
        text.push_str(&format!("upstream \"{name}\"\n"));
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
        let widths: [usize; 9] = std::array::from_fn(width);
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            text.push_str(&format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
        }
        for server in servers {
            if let Some(line) = failures(server) {
                text.push_str(&line);
            }
        }
    }
    if text.is_empty() { "no upstreams\n".to_owned() } else { text }
}

fn row(server: &Value) -> [String; 9] {
    let text = |name: &str| server.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| server.get(name).and_then(Value::as_u64).unwrap_or_default();
    let latency = |name: &str| {
        let millis = server.get("latency_ms").and_then(|latency| latency.get(name)).and_then(Value::as_f64);
        millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.1} ms"))
    };
    let mut state = text("state");
    if server.get("backup") == Some(&Value::Bool(true)) {
        state.push_str(" (backup)");
    }
    let since = UNIX_EPOCH + Duration::from_secs(number("since"));
    let ago = SystemTime::now().duration_since(since).unwrap_or_default().as_secs();
    let ago = match ago {
        0..120 => format!("{ago} s"),
        120..7200 => format!("{} min", ago / 60),
        7200..172_800 => format!("{} h", ago / 3600),
        _ => format!("{} d", ago / 86_400),
    };
    [
        text("server"),
        state,
        number("weight").to_string(),
        number("requests_in_flight").to_string(),
        number("connections").to_string(),
        latency("p50"),
        latency("p99"),
        ago,
        text("reason"),
    ]
}

/// The line about a server's failures, if there were any.
fn failures(server: &Value) -> Option<String> {
    let failures = server.get("failures")?.as_object()?;
    let mut parts: Vec<_> = failures.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let checks = server.get("health_checks");
    if let Some(failed) =
        checks.and_then(|checks| checks.get("failed")?.as_u64()).filter(|failed| *failed > 0)
    {
        parts.push(format!("health checks {failed}"));
    }
    let name = server.get("server").and_then(Value::as_str)?;
    (!parts.is_empty()).then(|| format!("  failures of {name}: {}\n", parts.join(", ")))
}
