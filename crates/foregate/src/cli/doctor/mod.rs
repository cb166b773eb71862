//! `foregate doctor`: checks the limits, access rights and host names on which the proxy depends, and suggests commands
//! that correct them.

mod files;
mod machine;
mod network;

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use serde::Serialize;

use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, print, print_json};
use super::privileges::with_rights_of;
use crate::config::{self, ProblemReport, Warnings};

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 0 if nothing is wrong (warnings are not), 1 otherwise. It changes nothing. Run it as the user that runs the proxy, \
                  also while the proxy runs."
)]
pub(super) struct Doctor {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    output: Json,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// The proxy works, but with restrictions.
    Warning,
    /// The proxy, or a part of it, does not work.
    Wrong,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    verdict: Verdict,
    subject: &'static str,
    text: String,
    /// The remedy, such as a command to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject, text: text.into(), help: None }
    }

    fn warning(subject: &'static str, text: impl Into<String>, help: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, subject, text: text.into(), help: Some(help.into()) }
    }

    fn wrong(subject: &'static str, text: impl Into<String>, help: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, subject, text: text.into(), help: Some(help.into()) }
    }
}

impl Doctor {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let findings = self.findings(pipeline);
        let fine = !findings.iter().any(|finding| finding.verdict == Verdict::Wrong);
        if self.output.json {
            print_json(&serde_json::json!({ "ok": fine, "findings": findings }));
        } else {
            print(&text(&findings));
        }
        if fine { Outcome::Fine } else { Outcome::Wrong }
    }

    fn findings(&self, pipeline: &Arc<Pipeline>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let is_named = self.file.config.is_some();
        let path = self.file.config.clone().unwrap_or_else(config::default_file);
        let settings = match path.exists() || is_named {
            true => load(&path, pipeline, &mut findings),
            false => {
                findings.push(Finding::warning(
                    "configuration",
                    format!("there is neither {} nor {}", config::DEFAULT_FILES[0], config::DEFAULT_FILES[1]),
                    "`foregate init` writes one; `-c FILE` names another. The machine alone is looked at",
                ));
                None
            }
        };
        findings.extend(machine::look(settings.as_ref()));
        if let Some(settings) = &settings {
            findings.extend(network::look(settings));
            findings.extend(files::look(&path, settings));
        }
        // The process ends, so dropping 100,000 sites would be wasted work.
        std::mem::forget(settings);
        findings
    }
}

fn load(path: &Path, pipeline: &Arc<Pipeline>, findings: &mut Vec<Finding>) -> Option<Settings> {
    match config::load_and_warn(path, pipeline) {
        Ok((settings, warnings)) => {
            findings.push(Finding::ok("configuration", format!("{} is valid", path.display())));
            findings.extend(warned(path, &warnings));
            findings.extend(as_user(path, pipeline, &settings, &warnings.plain()));
            Some(settings)
        }
        Err(refused) => {
            let count = refused.count();
            let first = refused.plain();
            let first = first.lines().next().unwrap_or_default().to_owned();
            let help = format!("`foregate check -c {}` shows all {count} of them", path.display());
            let help =
                if count == 1 { format!("`foregate check -c {}` shows it", path.display()) } else { help };
            findings.push(Finding::wrong("configuration", first, help));
            None
        }
    }
}

/// The warnings of the check, such as those about certificates.
fn warned(path: &Path, warnings: &Warnings) -> Vec<Finding> {
    /// The most warnings that are shown.
    const SHOWN: usize = 10;
    let shown = warnings.shown();
    let finding = |report: &ProblemReport<'_>| {
        let place = match (&report.file, report.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            _ => String::new(),
        };
        Finding {
            verdict: Verdict::Warning,
            subject: "configuration",
            text: format!("{place}{}", report.message),
            help: report.help.map(ToOwned::to_owned),
        }
    };
    let mut findings: Vec<_> = shown.iter().take(SHOWN).map(finding).collect();
    if shown.len() > SHOWN {
        let more = format!("there are {} more warnings", shown.len() - SHOWN);
        let help = format!("`foregate check -c {}` shows all", path.display());
        findings.push(Finding::warning("configuration", more, help));
    }
    findings
}

/// Reads the configuration with the rights of its `user`, and returns the problems of this user that root does not have.
/// `of_root` has the warnings of root.
fn as_user(path: &Path, pipeline: &Arc<Pipeline>, settings: &Settings, of_root: &str) -> Option<Finding> {
    const SUBJECT: &str = "user";
    let user = settings.user.as_ref()?;
    let told = with_rights_of(user, || match config::load_and_warn(path, pipeline) {
        Ok((_, warnings)) => warnings.plain(),
        Err(refused) => refused.plain(),
    })?;
    let is_new = |line: &&str| line.contains(": ") && !line.starts_with(' ') && !of_root.contains(line);
    Some(match told.lines().find(is_new) {
        Some(line) => Finding::wrong(
            SUBJECT,
            format!("as `{}`, which `user` names: {line}", user.name),
            format!(
                "let this user read and write there; `setpriv --reuid {} --regid {} --init-groups foregate check -c {}` shows all",
                user.uid,
                user.gid,
                path.display()
            ),
        ),
        None => {
            Finding::ok(SUBJECT, format!("`{}` can read and write the files of the configuration", user.name))
        }
    })
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or_default();
    let mut text = String::new();
    let mut counts = [0_usize; 2];
    for Finding { verdict, subject, text: told, help } in findings {
        let word = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => {
                counts[0] += 1;
                "warning"
            }
            Verdict::Wrong => {
                counts[1] += 1;
                "WRONG"
            }
        };
        text.push_str(&format!("{word:<8} {subject:<width$}  {told}\n"));
        if let Some(help) = help {
            text.push_str(&format!("{:<8} {:<width$}  help: {help}\n", "", ""));
        }
    }
    let [warnings, wrong] = counts;
    text.push_str(&match counts {
        [0, 0] => "all is well\n".to_owned(),
        _ => format!("{wrong} wrong, {warnings} to know\n"),
    });
    text
}
