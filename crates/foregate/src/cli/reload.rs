//! `foregate reload`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config;
use clap::Args;
use serde_json::Value;

use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json, show_refused};

/// How long a reload may take: 100,000 sites need about a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an answer.
const ANSWER_LIMIT: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct Reload {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

impl Reload {
    pub(super) fn run(&self) -> Outcome {
        let json = self.output.json;
        let request = serde_json::json!({ "verb": "reload" });
        match ask_process(&self.file, self.admin.as_deref(), &request, json) {
            Ok(answer) => show(&answer, json),
            Err(outcome) => outcome,
        }
    }
}

/// Asks the process over its admin socket: `admin`, or the one that the configuration names. Where that fails, it has been told why.
pub(super) fn ask_process(
    file: &ConfigFile,
    admin: Option<&Path>,
    request: &Value,
    json: bool,
) -> Result<Value, Outcome> {
    let admin = match admin {
        Some(admin) => admin.to_owned(),
        // Nothing else is judged here: the process has an environment and a user of its own.
        None => match config::admin(&file.path()) {
            Ok(Some(admin)) => admin,
            Ok(None) => {
                complain(match request.get("verb").and_then(Value::as_str) {
                    Some("reload") => {
                        "the configuration names no `admin` socket; send SIGHUP to the process instead"
                    }
                    _ => {
                        "the configuration names no `admin` socket; add `admin \"PATH\"` and restart or reload"
                    }
                });
                return Err(Outcome::Wrong);
            }
            Err(refused) => {
                let outcome = show_refused(&refused, json);
                complain("read here to find `admin`; `--admin PATH` asks the process itself");
                return Err(outcome);
            }
        },
    };
    ask(&admin, request).map_err(|error| {
        complain(&format!("cannot ask {}: {error}", admin.display()));
        complain("  help: is it running? if `admin` has changed, `--admin PATH` names the present one");
        Outcome::Wrong
    })
}

/// One line of JSON there, one back.
pub(super) fn ask(admin: &Path, request: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut line)?;
    serde_json::from_str(&line)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the answer is not JSON"))
}

fn show(answer: &Value, json: bool) -> Outcome {
    let fine = answer.get("ok") == Some(&Value::Bool(true));
    if json {
        print_json(answer);
    } else if fine {
        print("reloaded\n");
    } else {
        complain(answer.get("error").and_then(Value::as_str).unwrap_or("refused without a reason"));
    }
    if fine { Outcome::Fine } else { Outcome::Wrong }
}
