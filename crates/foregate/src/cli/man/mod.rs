//! `foregate man`: the manual pages, made from the command line's own description and from the table of keys.

mod commands;
mod keys;
mod roff;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use foregate_module::Pipeline;

use super::output::{Outcome, complain, print};

#[derive(Debug, Args)]
pub(super) struct Man {
    /// The page: `foregate`, a command such as `run`, or `foregate.kdl` for the keys of the configuration
    #[arg(default_value = "foregate", conflicts_with = "to")]
    page: String,
    /// Write all pages into this folder, for `man`
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// One manual page.
pub(super) struct Page {
    /// The name by which `man` finds the page.
    name: String,
    /// The section of the manual: 1 for commands, 5 for files.
    section: u8,
    text: String,
}

impl Man {
    pub(super) fn run(&self, pipeline: &Pipeline, command: clap::Command) -> Outcome {
        let mut pages = commands::pages(command);
        pages.push(keys::page(pipeline));
        match &self.to {
            Some(folder) => write_all(folder, &pages),
            None => show(&self.page, &pages),
        }
    }
}

fn show(name: &str, pages: &[Page]) -> Outcome {
    let full = format!("foregate-{name}");
    match pages.iter().find(|page| page.name == name || page.name == full) {
        Some(page) => {
            if !io::stdout().is_terminal() || !read_by_man(&page.text) {
                print(&page.text);
            }
            Outcome::Fine
        }
        None => {
            let names: Vec<&str> = pages.iter().map(|page| &*page.name).collect();
            complain(&format!("there is no page `{name}`; there are {}", names.join(", ")));
            Outcome::Usage
        }
    }
}

/// Shows a page on the terminal by `man`; returns false if `man` is not installed.
fn read_by_man(text: &str) -> bool {
    let started = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = started else { return false };
    if let Some(mut input) = man.stdin.take() {
        // The reader may quit `man` before all is written.
        let _ = input.write_all(text.as_bytes());
    }
    man.wait().is_ok_and(|status| status.success())
}

fn write_all(folder: &Path, pages: &[Page]) -> Outcome {
    for page in pages {
        let path = folder.join(format!("{}.{}", page.name, page.section));
        if let Err(error) = std::fs::write(&path, &page.text) {
            complain(&format!("cannot write {}: {error}", path.display()));
            return Outcome::Wrong;
        }
    }
    Outcome::Fine
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_and_each_key_is_in_the_pages() {
        let pipeline = crate::shipped();
        let command = super::super::Cli::command();
        let names: Vec<String> =
            command.get_subcommands().map(|verb| format!("foregate-{}", verb.get_name())).collect();
        let mut pages = commands::pages(command);
        pages.push(keys::page(&pipeline));
        for name in names {
            assert!(pages.iter().any(|page| page.name == name), "{name}");
        }
        let file = pages.iter().find(|page| page.name == "foregate.kdl").unwrap();
        for key in ["listen", "upstream", "head\\-bytes", "basic\\-auth"] {
            assert!(file.text.contains(key), "{key}");
        }
        for page in &pages {
            let lines = page.text.lines();
            let wrong: Vec<&str> = lines.filter(|line| line.starts_with('\'')).collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}", page.name);
        }
    }
}
