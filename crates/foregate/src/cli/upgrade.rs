//! `foregate upgrade`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use foregate_supervisor::client;
use serde_json::{Value, json};

use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};

/// The time limit for an answer of the supervisor that needs no work.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct Upgrade {
    #[command(flatten)]
    file: ConfigFile,
    /// The program to change to [default: the file of the running one, which may have been replaced]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Shares of the clients that the new version gets, one after the other
    #[arg(long, value_name = "SHARES", default_value = "1% 10% 50% 100%", value_parser = stages)]
    stages: Stages,
    /// How long each stage lasts
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    bake: Duration,
    /// Show the upgrade that is under way, and the last one
    #[arg(long, conflicts_with_all = ["abort", "rollback"])]
    status: bool,
    /// End the upgrade that is under way: the present version goes on
    #[arg(long, conflicts_with = "rollback")]
    abort: bool,
    /// Go back to the version before this one
    #[arg(long)]
    rollback: bool,
    #[command(flatten)]
    output: Json,
}

/// Shares in percent.
#[derive(Debug, Clone)]
pub(super) struct Stages(pub(super) Vec<f64>);

impl Upgrade {
    pub(super) fn run(&self) -> Outcome {
        let json = self.output.json;
        let request = match (self.status, self.abort, self.rollback) {
            (true, ..) => json!({ "verb": "upgrade-status" }),
            (_, true, _) => json!({ "verb": "abort" }),
            (.., true) => json!({ "verb": "rollback" }),
            _ => self.request(),
        };
        // An upgrade takes as long as its stages, so it has no time limit.
        let patience = (self.status || self.abort).then_some(PATIENCE);
        let answer = client::ask(&self.file.path(), &request, patience, |line| show(line, json));
        match answer {
            Ok(answer) if self.status => {
                if json {
                    print_json(&answer);
                } else {
                    print(&status(&answer));
                }
                Outcome::Fine
            }
            Ok(answer) if answer.get("ok") == Some(&Value::Bool(true)) => {
                // If the answer has no version, only a trial was stopped, and the old version serves as before.
                if let (true, false, Some(version)) = (self.rollback, json, answer["version"].as_str()) {
                    print(&format!(
                        "rolled back to version {version}; the file of the binary is still the newer one, and the next start takes it: put the older one back\n"
                    ));
                }
                Outcome::Fine
            }
            Ok(answer) => {
                complain(answer.get("error").and_then(Value::as_str).unwrap_or("refused without a reason"));
                Outcome::Wrong
            }
            Err(error) => no_supervisor(&error),
        }
    }

    fn request(&self) -> Value {
        let mut request = json!({
            "verb": "upgrade",
            "stages": self.stages.0,
            "bake_ms": u64::try_from(self.bake.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(binary) = &self.binary {
            // The supervisor may have another working directory.
            request["binary"] = json!(std::path::absolute(binary).unwrap_or_else(|_| binary.clone()));
        }
        request
    }
}

/// Reports that no supervisor answers, and how to start one.
pub(super) fn no_supervisor(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::NotFound => {
            complain("no supervisor of this configuration runs here");
            complain(
                "  help: `foregate run -c FILE` starts one, unless it is told `--single`; name the same file",
            );
        }
        io::ErrorKind::PermissionDenied => {
            complain("only the user that runs the proxy may ask it, and root");
        }
        _ => complain(&format!("cannot ask the supervisor: {error}")),
    }
    Outcome::Wrong
}

/// A line of progress.
pub(super) fn show(line: &Value, json: bool) {
    if json {
        print(&format!("{line}\n"));
    } else if let Some(step) = line.get("step").and_then(Value::as_str) {
        print(&format!("{step}\n"));
    }
}

fn status(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = match answer.get("running").filter(|running| !running.is_null()) {
        None => "no upgrade is under way\n".to_owned(),
        Some(running) => {
            let seconds = running["seconds"].as_f64().unwrap_or_default();
            format!(
                "under way for {seconds:.0} s, to {}: {}\n",
                text(&running["binary"]),
                text(&running["step"])
            )
        }
    };
    if let Some(last) = answer.get("last").filter(|last| !last.is_null()) {
        let binary = text(&last["binary"]);
        lines.push_str(&match last["ok"].as_bool() {
            Some(true) => format!("last: version {} of {binary} has taken over\n", text(&last["version"])),
            _ => format!("last: {binary} has not taken over: {}\n", text(&last["error"])),
        });
    }
    lines
}

pub(super) fn stages(text: &str) -> Result<Stages, String> {
    let shares = text.split([' ', ',']).filter(|word| !word.is_empty()).map(|word| {
        let share = word.strip_suffix('%').unwrap_or(word).parse::<f64>().ok();
        share
            .filter(|share| (0.01..=100.0).contains(share))
            .ok_or_else(|| format!("`{word}` is no share; write `10%`"))
    });
    let shares = shares.collect::<Result<Vec<_>, _>>()?;
    if shares.is_empty() || !shares.is_sorted() {
        return Err("write growing shares, such as `1% 10% 100%`".to_owned());
    }
    Ok(Stages(shares))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let wrong = || format!("`{text}` is no duration; write `10s`");
    let number = digits.parse::<f64>().ok().filter(|number| (0.0..1e9).contains(number)).ok_or_else(wrong)?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs_f64(number * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_durations_are_read() {
        assert_eq!(stages("1% 10%, 100").unwrap().0, [1.0, 10.0, 100.0]);
        for wrong in ["", "0%", "x", "50% 10%", "101%"] {
            assert!(stages(wrong).is_err(), "{wrong}");
        }
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        for wrong in ["", "s", "10", "-1s", "1d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
