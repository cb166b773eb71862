//! `foregate diff`: the differences between two configurations, and their effects on the requests of an access log.

mod changes;
mod logged;
mod replay;
mod request;
mod treatment;
mod tried;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use foregate_config::{Problems, Tree};
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use serde::Serialize;

use self::changes::TreeChange;
use self::logged::Assumed;
use self::replay::Replay;
use super::arguments::Json;
use super::output::{Outcome, complain, print, print_json, show_refused};
use crate::config;

pub(super) use self::tried::{TrialResult, TriedRequest, try_request};

/// The most groups of differing requests in the output for people; `--json` shows all.
const GROUPS_SHOWN: usize = 20;

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 0 without differences, 1 with some, 2 if a configuration or the log cannot be read. \
                        With --replay only the requests count."
)]
pub(super) struct Diff {
    /// The configuration file as it was
    old: PathBuf,
    /// The configuration file as it is to be
    new: PathBuf,
    /// Judge the requests of this access log by both, without an origin: JSON lines, or NGINX's combined format
    #[arg(long, value_name = "LOG")]
    replay: Option<PathBuf>,
    /// The host of requests whose log line names none
    #[arg(long, value_name = "HOST", requires = "replay")]
    host: Option<String>,
    /// The scheme of requests whose log line names none
    #[arg(long, value_name = "SCHEME", requires = "replay", default_value = "http")]
    scheme: LoggedScheme,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoggedScheme {
    Http,
    Https,
}

/// The output for machines.
#[derive(Serialize)]
struct DiffReport {
    /// True if the exit code reports no difference.
    same: bool,
    changes: Vec<TreeChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replay>,
}

impl Diff {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let settings =
            match self.load(&self.old, pipeline).and_then(|old| Ok((old, self.load(&self.new, pipeline)?))) {
                Ok(settings) => settings,
                Err(outcome) => return outcome,
            };
        let (old, new) = (read(&self.old), read(&self.new));
        let changes = changes::between(&old, &new, pipeline);
        let replay = match &self.replay {
            None => None,
            Some(log) => match self.replay_log(log, &settings) {
                Ok(replay) => Some(replay),
                Err(message) => {
                    complain(&message);
                    return Outcome::Usage;
                }
            },
        };
        // The process ends, so dropping 100,000 sites would be wasted work.
        std::mem::forget(settings);
        let same = replay.as_ref().map_or(changes.is_empty(), |replay| replay.different == 0);
        let report = DiffReport { same, changes, replay };
        if self.output.json {
            print_json(&report);
        } else {
            print(&text(&report));
        }
        if same { Outcome::Fine } else { Outcome::Wrong }
    }

    fn load(&self, path: &Path, pipeline: &Arc<Pipeline>) -> Result<Settings, Outcome> {
        config::load(path, pipeline).map_err(|refused| {
            show_refused(&refused, self.output.json);
            Outcome::Usage
        })
    }

    fn replay_log(&self, log: &Path, (old, new): &(Settings, Settings)) -> Result<Replay, String> {
        let secure = self.scheme == LoggedScheme::Https;
        let assumed = Assumed { host: self.host.as_deref(), secure };
        replay::replay(log, old, new, &assumed)
    }
}

/// Reads a file that has been checked already.
fn read(path: &Path) -> Tree {
    Tree::read(path, &mut Problems::default())
}

fn text(report: &DiffReport) -> String {
    let mut text = String::new();
    if report.changes.is_empty() {
        text.push_str("the configurations say the same\n");
    }
    for change in &report.changes {
        text.push_str(&format!("{}  ({})\n", change.words, change.place));
    }
    let Some(replay) = &report.replay else { return text };
    let Replay { requests, different, unread, groups, .. } = replay;
    text.push_str(&format!("replay: {different} of {requests} requests would be treated differently\n"));
    for group in groups.iter().take(GROUPS_SHOWN) {
        text.push_str(&format!("{:>8}  {}\n", group.count, group.old));
        text.push_str(&format!("{:>8}  {}\n", "now", group.new));
        for example in &group.examples {
            text.push_str(&format!("          line {}: {}", example.line, example.request));
            match &example.detail {
                Some(detail) => text.push_str(&format!("; {detail}\n")),
                None => text.push('\n'),
            }
        }
    }
    if let Some(more @ 1..) = groups.len().checked_sub(GROUPS_SHOWN) {
        text.push_str(&format!("          and {more} more kinds of differences: --json has all\n"));
    }
    if replay.ungrouped > 0 {
        text.push_str(&format!("          and {} requests of further kinds\n", replay.ungrouped));
    }
    if *unread > 0 {
        let lines = if *unread == 1 { "line is no request" } else { "lines are no requests" };
        text.push_str(&format!("replay: {unread} {lines}\n"));
    }
    for (step, count) in &replay.assumed {
        text.push_str(&format!(
            "replay: `{step}` would have asked an upstream {count} times; it was taken to agree\n"
        ));
    }
    text
}
