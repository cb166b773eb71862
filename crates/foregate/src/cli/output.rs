//! Output and exit codes.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use crate::config::RefusedConfiguration;
use serde::Serialize;

/// The width of a report in columns, if the terminal's width is unknown.
const WIDTH: usize = 100;

/// The first error in writing to the standard output.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    /// Success: exit code 0.
    Fine,
    /// An error in the subject of the command, such as the configuration: exit code 1.
    Wrong,
    /// An error in the command line: exit code 2.
    Usage,
    /// The exit code of a process that the command has run.
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

/// The text without control characters: it may contain parts of requests and responses, which could command the
/// terminal.
fn printable(text: &str) -> Cow<'_, str> {
    let is_command = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    // A file with Windows line ends has a carriage return before each line feed.
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive("\r\n").map(|line| {
        let (line, end) = line.strip_suffix("\r\n").map_or((line, ""), |line| (line, "\r\n"));
        line.replace(is_command, "\u{fffd}") + end
    });
    Cow::Owned(lines.collect())
}

/// Writes to the standard output. It is no error if the reader, such as `head`, has gone; [`ended`] reports any other error.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(printable(text).as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNWRITTEN.set(error);
    }
}

/// The exit code of a verb. One whose output could not be written, for example to a full disk, has not succeeded.
pub(super) fn ended(outcome: Outcome) -> ExitCode {
    match UNWRITTEN.get() {
        Some(error) if outcome == Outcome::Fine => {
            complain(&format!("error: the output cannot be written: {error}"));
            Outcome::Wrong.into()
        }
        _ => outcome.into(),
    }
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
    let _ = writeln!(err, "{}", printable(text.trim_end()));
}

/// The errors of a configuration in JSON.
pub(super) fn refused_json(refused: &RefusedConfiguration) -> serde_json::Value {
    let (count, complete) = (refused.count(), refused.is_complete());
    serde_json::json!({ "ok": false, "count": count, "complete": complete, "errors": refused.shown() })
}

/// Shows the errors of a configuration: with `json` on the standard output, otherwise on the standard error. A terminal
/// also shows the lines of the file.
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

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn nothing_that_is_printed_commands_a_terminal() {
        for (text, shown) in [
            ("a\tb\nä\r\n", "a\tb\nä\r\n"),
            ("path \u{1b}]0;x\u{7}\n", "path \u{fffd}]0;x\u{fffd}\n"),
            ("a\rb\r\n\u{9b}2J", "a\u{fffd}b\r\n\u{fffd}2J"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
