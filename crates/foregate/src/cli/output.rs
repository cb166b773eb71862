//! Output and exit codes.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::config::RefusedConfiguration;
use serde::Serialize;

/// Columns of a report when the terminal does not say.
const WIDTH: usize = 100;

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    /// All is well: 0.
    Fine,
    /// The subject has an error: 1.
    Wrong,
    /// The command itself is: 2.
    Usage,
    /// Another process has ended so.
    Code(ExitCode),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Fine => Self::SUCCESS,
            Outcome::Wrong => Self::from(1),
            Outcome::Usage => Self::from(2),
            Outcome::Code(code) => code,
        }
    }
}

/// Writes to the standard output. A reader that went away, such as `head`, is no mistake.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes one JSON value.
pub(super) fn print_json(value: &impl Serialize) {
    let text =
        serde_json::to_string_pretty(value).expect("only texts, numbers and lists of them are printed");
    print(&format!("{text}\n"));
}

/// Writes a message to the standard error.
pub(super) fn complain(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", text.trim_end());
}

/// The errors of a configuration for machines.
pub(super) fn refused_json(refused: &RefusedConfiguration) -> serde_json::Value {
    let (count, complete) = (refused.count(), refused.is_complete());
    serde_json::json!({ "ok": false, "count": count, "complete": complete, "errors": refused.shown() })
}

/// Shows the errors of a configuration: as JSON on the standard output, else on the standard error, with the
/// lines of the file when that is a terminal.
pub(super) fn show_refused(refused: &RefusedConfiguration, json: bool) -> Outcome {
    if json {
        print_json(&refused_json(refused));
    } else if io::stderr().is_terminal() {
        // See no-color.org.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        complain(&refused.graphical(columns(), colours));
    } else {
        complain(&refused.plain());
    }
    Outcome::Wrong
}

fn columns() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH).clamp(40, 200)
}
