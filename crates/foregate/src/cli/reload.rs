//! `foregate reload`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config;
use clap::Args;
use serde_json::Value;

use super::output::{Outcome, complain, print, print_json, show_refused};
use super::{ConfigFile, Json};

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
        let admin = match &self.admin {
            Some(admin) => admin.clone(),
            // Nothing else is judged here: the process has an environment and a user of its own.
            None => match config::admin(&self.file.path()) {
                Ok(Some(admin)) => admin,
                Ok(None) => {
                    complain("the configuration names no `admin` socket; send SIGHUP to the process instead");
                    return Outcome::Wrong;
                }
                Err(refused) => {
                    let outcome = show_refused(&refused, json);
                    complain("read here to find `admin`; `--admin PATH` asks the process itself");
                    return outcome;
                }
            },
        };
        match ask(&admin, "reload") {
            Ok(answer) => show(&answer, json),
            Err(error) => {
                complain(&format!("cannot ask {}: {error}", admin.display()));
                complain(
                    "  help: is it running? if `admin` has changed, `--admin PATH` names the present one",
                );
                Outcome::Wrong
            }
        }
    }
}

/// One line of JSON there, one back.
fn ask(admin: &Path, verb: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::json!({ "verb": verb })).as_bytes())?;
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
