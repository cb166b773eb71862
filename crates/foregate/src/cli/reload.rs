//! `foregate reload`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config;
use clap::Args;
use foregate_supervisor::client;
use serde_json::Value;

use super::admin::{ResourceRequest, ask, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json, show_refused};
use super::upgrade::{self, Stages, duration, stages};

/// The resource that reads the configuration again.
const RELOAD: &str = "/v1/reload";

#[derive(Debug, Args)]
pub(super) struct Reload {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    /// Give the new configuration a growing share of the clients, and go back if it serves worse; needs the supervisor
    #[arg(long, conflicts_with = "admin")]
    gradual: bool,
    /// Shares of the clients that the new configuration gets, one after the other
    #[arg(long, value_name = "SHARES", requires = "gradual", default_value = "1% 10% 50% 100%", value_parser = stages)]
    stages: Stages,
    /// How long each stage lasts
    #[arg(long, value_name = "DURATION", requires = "gradual", default_value = "10s", value_parser = duration)]
    bake: Duration,
    #[command(flatten)]
    output: Json,
}

impl Reload {
    pub(super) fn run(&self) -> Outcome {
        if self.gradual {
            return self.run_gradually();
        }
        let json = self.output.json;
        let request = ResourceRequest::post(RELOAD);
        match ask_process(&self.file, self.admin.as_deref(), &request, json) {
            Ok(answer) => show(&answer, json),
            Err(outcome) => outcome,
        }
    }
}

impl Reload {
    /// Reloads by a gradual upgrade: the supervisor starts a process of the same version with the new configuration, and
    /// tries it like a new version.
    fn run_gradually(&self) -> Outcome {
        let json = self.output.json;
        let bake = u64::try_from(self.bake.as_millis()).unwrap_or(u64::MAX);
        let request =
            serde_json::json!({ "verb": "upgrade", "same": true, "stages": self.stages.0, "bake_ms": bake });
        match client::ask(&self.file.path(), &request, None, |line| upgrade::show(line, json)) {
            Ok(answer) if answer.get("ok") == Some(&Value::Bool(true)) => Outcome::Fine,
            Ok(answer) => {
                complain(reason(&answer));
                complain(
                    "  help: the configuration before goes on; put its file back, because the next start reads the file",
                );
                Outcome::Wrong
            }
            Err(error) => upgrade::no_supervisor(&error),
        }
    }
}

/// Sends a request to the process over its admin socket: `admin`, or the socket that the configuration names. On a
/// failure, the reason has been shown already.
pub(super) fn ask_process(
    file: &ConfigFile,
    admin: Option<&Path>,
    request: &ResourceRequest,
    json: bool,
) -> Result<Value, Outcome> {
    let admin = find_admin(file, admin, request, json)?;
    ask(&admin, request).map_err(|error| cannot_ask(&admin, &error))
}

/// Reports that the process cannot be asked over its admin socket.
pub(super) fn cannot_ask(admin: &Path, error: &io::Error) -> Outcome {
    complain(&format!("cannot ask {}: {error}", admin.display()));
    complain(match error.kind() {
        io::ErrorKind::Unsupported => {
            "  help: `foregate status` names its version; `foregate upgrade` replaces it by the version of this command"
        }
        io::ErrorKind::InvalidInput => {
            "  help: name the socket that the key `admin` of the running proxy names, in the configuration or by `--admin PATH`"
        }
        io::ErrorKind::PermissionDenied => "  help: only the user that runs the proxy may ask it, and root",
        _ => "  help: is it running? if `admin` has changed, `--admin PATH` names the present one",
    });
    Outcome::Wrong
}

/// The admin socket: `admin`, or the one that the configuration names.
pub(super) fn find_admin(
    file: &ConfigFile,
    admin: Option<&Path>,
    request: &ResourceRequest,
    json: bool,
) -> Result<PathBuf, Outcome> {
    if let Some(admin) = admin {
        return Ok(admin.to_owned());
    }
    // Only the key `admin` is checked here, because the process may have another environment and another user.
    match config::admin(&file.path()) {
        Ok(Some(admin)) => Ok(admin),
        Ok(None) => {
            let name = file.path();
            let name = name.display();
            complain(&match request.path() {
                RELOAD => format!(
                    "{name} has no `admin` socket: add `admin \"/run/foregate/admin.sock\"`, or send SIGHUP to the process"
                ),
                _ => format!(
                    "{name} has no `admin` socket: add `admin \"/run/foregate/admin.sock\"`, then reload with SIGHUP or restart"
                ),
            });
            Err(Outcome::Wrong)
        }
        Err(refused) => {
            let outcome = show_refused(&refused, json);
            complain(
                "  help: the file is read here to find the `admin` socket; `--admin PATH` names the socket itself",
            );
            Err(outcome)
        }
    }
}

fn show(answer: &Value, json: bool) -> Outcome {
    let fine = answer.get("ok") == Some(&Value::Bool(true));
    if json {
        print_json(answer);
    } else if fine {
        print("reloaded\n");
    } else {
        complain(reason(answer));
    }
    if fine { Outcome::Fine } else { Outcome::Wrong }
}
