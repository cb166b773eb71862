//! `foregate certificates`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::{Args, Subcommand};
use foregate_module::Pipeline;
use serde_json::Value;
use time::OffsetDateTime;

use super::admin::{ResourceRequest, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json, show_refused};
use super::reload::ask_process;
use crate::config::{self, RefusedConfiguration};

/// The folder for added authorities on Debian and related systems, and the command that adds them to the trusted ones.
const DEBIAN: (&str, &[&str]) = ("/usr/local/share/ca-certificates", &["update-ca-certificates"]);
/// The folder and the command on Fedora and related systems.
const FEDORA: (&str, &[&str]) = ("/etc/pki/ca-trust/source/anchors", &["update-ca-trust", "extract"]);

const SECONDS_PER_DAY: i64 = 86_400;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Certificates {
    #[command(subcommand)]
    verb: Option<CertificatesVerb>,
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Subcommand)]
enum CertificatesVerb {
    /// Print the root certificate of the internal authority, which clients must trust
    Root(Root),
}

#[derive(Debug, Args)]
struct Root {
    #[command(flatten)]
    file: ConfigFile,
    /// The storage folder [default: the one that the configuration names, else $STATE_DIRECTORY,
    /// /var/lib/foregate or ~/.local/share/foregate]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    storage: Option<PathBuf>,
    /// Add it to the authorities that this machine trusts (needs root)
    #[arg(long)]
    install: bool,
}

impl Certificates {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        if let Some(CertificatesVerb::Root(root)) = &self.verb {
            return root.run(pipeline);
        }
        let json = self.output.json;
        let request = ResourceRequest::get("/v1/certificates");
        let answer = match ask_process(&self.file, self.admin.as_deref(), &request, json) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        if answer.get("ok") != Some(&Value::Bool(true)) {
            complain(reason(&answer));
            return Outcome::Wrong;
        }
        if json {
            print_json(&answer);
        } else {
            print(&table(&answer, OffsetDateTime::now_utc().unix_timestamp()));
        }
        Outcome::Fine
    }
}

/// The process's answer, formatted as a table.
fn table(answer: &Value, now: i64) -> String {
    let list = |name: &str| answer.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let (certificates, files) = (list("certificates"), list("files"));
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_i64).unwrap_or_default();
    let mut rows = Vec::new();
    let ocsp_error = |one: &Value| one.get("ocsp").map_or_else(String::new, |ocsp| text(ocsp, "error"));
    for one in &certificates {
        let left = left(number(one, "not_after") - now);
        let errors = [text(one, "error"), ocsp_error(one)];
        rows.push((text(one, "name"), text(one, "state"), left, text(one, "issuer"), errors));
    }
    for one in &files {
        let seconds = number(one, "not_after") - now;
        // An older process reports no state of files.
        let by_time = if seconds > 0 { "valid" } else { "expired" };
        let state = one.get("state").and_then(Value::as_str).unwrap_or(by_time);
        rows.push((
            text(one, "file"),
            state.to_owned(),
            left(seconds),
            "file".to_owned(),
            [text(one, "error"), ocsp_error(one)],
        ));
    }
    if rows.is_empty() {
        return "no certificates are in use\n".to_owned();
    }
    let width = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0).clamp(4, 48);
    let states = rows.iter().map(|row| row.1.len()).max().unwrap_or(0).max(9);
    let mut shown = format!("{:width$}  {:states$}  {:>9}  ISSUER\n", "NAME", "STATE", "LEFT");
    for (name, state, left, issuer, errors) in rows {
        shown.push_str(format!("{name:width$}  {state:states$}  {left:>9}  {issuer}").trim_end());
        shown.push('\n');
        for error in errors.iter().filter(|error| !error.is_empty()) {
            shown.push_str(&format!("    {error}\n"));
        }
    }
    shown
}

fn left(seconds: i64) -> String {
    if seconds <= 0 { "-".to_owned() } else { lasting(seconds) }
}

/// A duration in its largest fitting unit.
pub(super) fn lasting(seconds: i64) -> String {
    match seconds {
        _ if seconds >= 2 * SECONDS_PER_DAY => format!("{} days", seconds / SECONDS_PER_DAY),
        _ if seconds >= 2 * 3600 => format!("{} hours", seconds / 3600),
        _ if seconds >= 120 => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

impl Root {
    /// The storage folder: from the command line, else from the configuration, else the system's default.
    fn folder(&self, pipeline: &Arc<Pipeline>) -> Result<PathBuf, Box<RefusedConfiguration>> {
        if let Some(folder) = &self.storage {
            return Ok(folder.clone());
        }
        let file = self.file.config.clone().unwrap_or_else(config::default_file);
        if self.file.config.is_none() && !file.exists() {
            return Ok(config::default_storage());
        }
        if let Some(folder) = config::storage(&file)? {
            return Ok(folder);
        }
        // The default folder applies only if the file has no `acme`. A file with errors may name another folder, so its errors
        // are reported first.
        config::load(&file, pipeline)?;
        Ok(config::default_storage())
    }

    fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let folder = match self.folder(pipeline) {
            Ok(folder) => folder,
            Err(refused) => return show_refused(&refused, false),
        };
        let root = match foregate_acme::root_certificate(&folder) {
            Ok(root) => root,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                complain(&format!("error: {} has no internal authority", folder.display()));
                complain(
                    "  help: the proxy makes it when a listener or site with `tls \"internal\"` starts; `-c FILE` reads the folder from a configuration",
                );
                return Outcome::Wrong;
            }
            Err(error) => {
                complain(&format!("error: {}: {error}", folder.display()));
                complain(
                    "  help: run it as the user that runs the proxy, or name its folder: `--storage FOLDER`",
                );
                return Outcome::Wrong;
            }
        };
        if !self.install {
            print(&root);
            return Outcome::Fine;
        }
        match install(&root) {
            Ok(file) => {
                print(&format!(
                    "{} is trusted by this machine; browsers with a list of their own need it, too\n",
                    file.display()
                ));
                Outcome::Fine
            }
            Err(error) => {
                complain(&format!("error: {error}"));
                complain(
                    "  help: print it with `foregate certificates root`, and install it as the system's documentation says",
                );
                Outcome::Wrong
            }
        }
    }
}

fn install(root: &str) -> Result<PathBuf, String> {
    let found = [DEBIAN, FEDORA].into_iter().find(|(folder, _)| Path::new(folder).is_dir());
    let (folder, command) = found.ok_or("this system has no known folder for authorities")?;
    let file = Path::new(folder).join("foregate-internal.crt");
    fs::write(&file, root).map_err(|error| format!("{}: {error}", file.display()))?;
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let status = Command::new(program).args(arguments).stdout(std::process::Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(file),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_to_do() {
        let answer = serde_json::json!({
            "certificates": [
                { "name": "a.example", "state": "valid", "issuer": "https://ca.test/dir", "not_after": 10 * SECONDS_PER_DAY,
                  "ocsp": { "until": 0, "error": "no OCSP response; wait" } },
                { "name": "b.example", "state": "temporary", "issuer": "", "not_after": 90, "error": "no route; wait" },
            ],
            "files": [
                { "file": "site.pem", "state": "expired", "not_after": -5, "ocsp": null },
                { "file": "other.pem", "state": "revoked", "not_after": 90, "ocsp": { "until": 0, "error": "no answer; wait" } },
            ],
        });
        let table = table(&answer, 0);
        assert!(
            table.contains(
                "a.example  valid        10 days  https://ca.test/dir\n    no OCSP response; wait\n"
            ),
            "{table}"
        );
        assert!(table.contains("b.example  temporary       90 s\n    no route; wait\n"), "{table}");
        assert!(table.contains("site.pem   expired            -  file\n"), "{table}");
        assert!(table.contains("other.pem  revoked         90 s  file\n    no answer; wait\n"), "{table}");
        assert_eq!(super::table(&serde_json::json!({}), 0), "no certificates are in use\n");
    }
}
