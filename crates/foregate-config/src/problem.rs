//! Errors in a configuration, and their display.

use std::fmt::Write;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde::Serialize;

use super::document::Span;
use super::load::Tree;
use super::references::References;

/// The most problems that are kept. Further problems are only counted.
const PROBLEMS_LIMIT: usize = 100;

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of the file in its [`Tree`].
    pub file: u32,
    /// The range.
    pub span: Span,
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place; `None` if there is no single place.
    pub place: Option<Place>,
    /// The error. Never the content of a secret.
    pub message: String,
    /// How to fix the problem.
    pub help: Option<String>,
    /// A second place that belongs to the problem, and its role.
    pub also: Option<(Place, &'static str)>,
}

impl Problem {
    /// A problem without advice.
    pub fn new(place: Option<Place>, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), help: None, also: None }
    }

    /// Adds a suggestion.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Adds a second place.
    pub fn also(self, place: Place, what: &'static str) -> Self {
        Self { also: Some((place, what)), ..self }
    }
}

/// All problems that were found, up to a limit.
#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    more: usize,
    /// `true` if a part of the files was not checked, because there were too many errors already.
    stopped: bool,
    /// The number of errors that say that a file is missing.
    missing: usize,
    warnings: Vec<Problem>,
    /// The references to the environment and to files whose values were used. No text shows these values.
    references: References,
}

impl Problems {
    /// Hides a value: texts of later problems show this reference in its place.
    pub(crate) fn hide(&mut self, reference: &str, value: &str) {
        self.references.add(reference, value);
    }

    fn without_values(&self, problem: Problem) -> Problem {
        let Problem { place, message, help, also } = problem;
        let shown = |text: String| self.references.in_place_of_values(text);
        Problem { place, message: shown(message), help: help.map(shown), also }
    }

    /// Adds an error.
    pub fn push(&mut self, problem: Problem) {
        if self.kept.len() < PROBLEMS_LIMIT {
            let problem = self.without_values(problem);
            self.kept.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// Puts a problem before all others.
    pub(crate) fn push_first(&mut self, problem: Problem) {
        self.kept.insert(0, problem);
    }

    /// Adds an error that says that a file cannot be included.
    pub(crate) fn push_missing(&mut self, problem: Problem) {
        self.push(problem);
        self.missing += 1;
    }

    /// Returns true if included files are missing. Names that they would define are unknown then, so unknown names
    /// are not reported.
    pub fn miss_files(&self) -> bool {
        self.missing > 0
    }

    /// Returns true if missing files are the only errors, so that the rest of the configuration can be checked.
    pub(crate) fn are_of_missing_files(&self) -> bool {
        self.count() == self.missing
    }

    /// Adds a warning about a valid part of the configuration that has no effect, or an unexpected effect.
    pub fn warn(&mut self, warning: Problem) {
        if self.warnings.len() < PROBLEMS_LIMIT {
            let warning = self.without_values(warning);
            self.warnings.push(warning);
        }
    }

    /// Logs the warnings, in the order of the files.
    pub(crate) fn tell_warnings(&self, tree: &Tree) {
        for warning in in_order(&self.warnings) {
            let (message, help) = (&warning.message, warning.help.as_deref());
            match warning.place.and_then(|place| tree.line_of(place)) {
                Some(line) => tracing::warn!(help, "{line}: {message}"),
                None => tracing::warn!(help, "{message}"),
            }
        }
    }

    /// The number of errors, including those that are not kept.
    pub fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    /// Returns true if there is no error.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns true if further errors are only counted.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= PROBLEMS_LIMIT
    }

    /// Records that the rest of the files is not checked.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// The line about the errors that are not shown.
    fn rest(&self) -> Option<String> {
        match (self.more, self.stopped) {
            (_, true) => Some(format!("these are the first {PROBLEMS_LIMIT}, and no more were looked for")),
            (0, false) => None,
            (more, false) => Some(format!("and {more} more")),
        }
    }
}

fn in_order(problems: &[Problem]) -> Vec<&Problem> {
    let mut problems: Vec<_> = problems.iter().collect();
    problems.sort_by_key(|problem| problem.place.map(|place| (place.file, place.span.start)));
    problems
}

/// The warnings about a configuration that was accepted.
#[derive(Debug)]
pub struct Warnings {
    tree: Tree,
    problems: Problems,
}

impl Warnings {
    pub(crate) fn new(tree: Tree, problems: Problems) -> Self {
        Self { tree, problems }
    }

    /// The tree of its files.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The warnings, in the order of the files.
    pub fn shown(&self) -> Vec<ProblemReport<'_>> {
        in_order(&self.problems.warnings).into_iter().map(|warning| show(&self.tree, warning)).collect()
    }

    /// Like [`RefusedConfiguration::plain`], with `warning` for `error`.
    pub fn plain(&self) -> String {
        let mut text = String::new();
        self.shown().iter().for_each(|shown| shown.write(&mut text, "warning"));
        text
    }
}

/// The errors and warnings in a configuration. There may be none.
#[derive(Debug)]
pub struct Findings {
    tree: Tree,
    problems: Problems,
}

impl Findings {
    pub(crate) fn new(tree: Tree, problems: Problems) -> Self {
        Self { tree, problems }
    }

    /// The tree of its files.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The errors, in the order of the files.
    pub fn errors(&self) -> Vec<&Problem> {
        in_order(&self.problems.kept)
    }

    /// The warnings, in the order of the files; with errors, the list may be incomplete.
    pub fn warnings(&self) -> Vec<&Problem> {
        in_order(&self.problems.warnings)
    }
}

/// A configuration that was refused.
#[derive(Debug)]
pub struct RefusedConfiguration {
    tree: Tree,
    problems: Problems,
}

/// A problem in the form for JSON output.
#[derive(Debug, Serialize)]
pub struct ProblemReport<'r> {
    /// The path of the file, if the problem has a place.
    pub file: Option<String>,
    /// From 1.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// The length of the place in bytes.
    pub length: Option<u32>,
    /// The error.
    pub message: &'r str,
    /// A second place that belongs to the problem, with its role.
    pub note: Option<String>,
    /// How to fix the problem.
    pub help: Option<&'r str>,
}

impl ProblemReport<'_> {
    fn write(&self, text: &mut String, what: &str) {
        if let (Some(file), Some(line), Some(column)) = (&self.file, self.line, self.column) {
            let _ = write!(text, "{file}:{line}:{column}: ");
        }
        let _ = writeln!(text, "{what}: {}", self.message);
        if let Some(note) = &self.note {
            let _ = writeln!(text, "  note: {note}");
        }
        if let Some(help) = self.help {
            let _ = writeln!(text, "  help: {help}");
        }
    }
}

impl RefusedConfiguration {
    pub(crate) fn new(tree: Tree, problems: Problems) -> Self {
        Self { tree, problems }
    }

    /// The tree of its files, as far as they could be read.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The problems, in the order of the files.
    pub fn shown(&self) -> Vec<ProblemReport<'_>> {
        in_order(&self.problems.kept).into_iter().map(|problem| show(&self.tree, problem)).collect()
    }

    /// The number of problems, including those that are not shown.
    pub fn count(&self) -> usize {
        self.problems.kept.len() + self.problems.more
    }

    /// The problems as plain text: one line for each, `FILE:LINE:COLUMN: error: MESSAGE`, and further lines for its
    /// note and help.
    pub fn plain(&self) -> String {
        let mut text = String::new();
        self.shown().iter().for_each(|shown| shown.write(&mut text, "error"));
        if let Some(rest) = self.problems.rest() {
            let _ = writeln!(text, "error: {rest}");
        }
        text
    }

    /// Returns true if all of the configuration was checked.
    pub fn is_complete(&self) -> bool {
        !self.problems.stopped
    }

    /// The problems with the lines of the file, for a terminal, with or without colours.
    pub fn graphical(&self, width: usize, colours: bool) -> String {
        let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width);
        let mut text = String::new();
        for problem in in_order(&self.problems.kept) {
            let _ = handler.render_report(&mut text, self.report(problem).as_ref());
            text.push('\n');
        }
        if let Some(rest) = self.problems.rest() {
            let _ = writeln!(text, "{rest}");
        }
        text
    }

    fn report(&self, problem: &Problem) -> Report {
        let mut labels = Vec::new();
        let mut diagnostic = MietteDiagnostic::new(problem.message.clone());
        diagnostic.help.clone_from(&problem.help);
        let Some(place) = problem.place else { return diagnostic.into() };
        let Some(file) = self.tree.file(place.file) else { return diagnostic.into() };
        let range = |span: Span| span.start as usize..span.end();
        labels.push(LabeledSpan::new_primary_with_span(None, range(place.span)));
        if let Some((also, what)) = problem.also {
            if also.file == place.file {
                labels.push(LabeledSpan::new_with_span(Some(what.into()), range(also.span)));
            } else if let Some(line) = self.line_of(also) {
                diagnostic.help = Some(format!("{what}: {line}"));
            }
        }
        diagnostic.labels = Some(labels);
        let excerpt = NamedSource::new(file.path.display().to_string(), file.document.source().to_owned());
        Report::new(diagnostic).with_source_code(excerpt)
    }

    fn line_of(&self, place: Place) -> Option<String> {
        self.tree.line_of(place)
    }
}

fn show<'p>(tree: &Tree, problem: &'p Problem) -> ProblemReport<'p> {
    let position = problem.place.and_then(|place| {
        let file = tree.file(place.file)?;
        let (line, column) = line_and_column(file.document.source(), place.span.start as usize);
        Some((file.path.display().to_string(), line, column, place.span.len))
    });
    let (file, line, column, length) = match position {
        Some((file, line, column, length)) => (Some(file), Some(line), Some(column), Some(length)),
        None => (None, None, None, None),
    };
    let note = problem.also.and_then(|(place, what)| Some(format!("{what}: {}", tree.line_of(place)?)));
    ProblemReport {
        file,
        line,
        column,
        length,
        message: &problem.message,
        note,
        help: problem.help.as_deref(),
    }
}

/// The line and column, both from 1, of a byte.
pub(super) fn line_and_column(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        assert_eq!(line_and_column("a\nbüc", 5), (2, 3));
        assert_eq!(line_and_column("", 0), (1, 1));
    }
}
