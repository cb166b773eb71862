//! `foregate fmt`.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::config;
use clap::Args;

use super::output::{Outcome, complain, print, show_refused};

#[derive(Debug, Args)]
pub(super) struct Fmt {
    /// Change nothing; exit 1 when a file is not formatted
    #[arg(long)]
    check: bool,
    /// Change nothing; print the JSON form of the files, without their comments
    #[arg(long, conflicts_with = "check")]
    json: bool,
    /// One more file, as the other commands name it
    #[arg(short = 'c', long = "config", value_name = "FILE", hide = true)]
    config: Option<PathBuf>,
    /// Files; `-` is the standard input, formatted to the standard output
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Fmt {
    pub(super) fn run(&self) -> Outcome {
        let mut files: Vec<PathBuf> = self.files.iter().chain(&self.config).cloned().collect();
        if files.is_empty() {
            files.push(config::default_file());
        }
        let mut outcome = Outcome::Fine;
        for file in files {
            if self.file(&file) != Outcome::Fine {
                outcome = Outcome::Wrong;
            }
        }
        outcome
    }

    fn file(&self, path: &Path) -> Outcome {
        let standard = path.as_os_str() == "-";
        if !self.json && path.extension().is_some_and(|extension| extension == "json") {
            complain(&format!("{}: only KDL is formatted", path.display()));
            return Outcome::Wrong;
        }
        let source = if standard {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            config::read_to_string(path)
        };
        let source = match source {
            Ok(source) => source,
            Err(error) => {
                complain(&format!("cannot read {}: {error}", path.display()));
                return Outcome::Wrong;
            }
        };
        if self.json {
            return match config::json_form(path, source) {
                Ok(text) => {
                    print(&text);
                    Outcome::Fine
                }
                Err(refused) => show_refused(&refused, false),
            };
        }
        let text = match config::format(path, &source) {
            Ok(text) => text,
            Err(refused) => return show_refused(&refused, false),
        };
        if self.check {
            if text == source {
                return Outcome::Fine;
            }
            print(&format!("{}\n", path.display()));
            return Outcome::Wrong;
        }
        if standard {
            print(&text);
        } else if text != source
            && let Err(error) = replace(path, &text)
        {
            complain(&format!("cannot write {}: {error}", path.display()));
            return Outcome::Wrong;
        }
        Outcome::Fine
    }
}

/// Replaces a file in one step, so that no other process, such as a proxy that reloads, reads half of it. Links are
/// followed and the mode is kept.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = std::fs::File::create_new(&beside)?;
        file.set_permissions(std::fs::metadata(&path)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)
    };
    let result = write();
    if result.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    result
}
