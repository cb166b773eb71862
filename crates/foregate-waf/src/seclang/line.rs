//! Splits text into directives, and a directive into its arguments, with the place of each byte in the file.

use std::sync::Arc;

use super::findings::Findings;
use super::limits::MAX_DIRECTIVE;
use crate::model::Place;

/// A directive with the lines that continue it, joined.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Its text, without white space around it.
    pub(super) text: String,
    /// The starts of its lines, in order.
    starts: Vec<LineStart>,
}

/// The start of a line of the file within the directive's text: byte `at` of the text is at this line and
/// column of the file.
#[derive(Debug)]
struct LineStart {
    at: usize,
    line: u32,
    column: u32,
}

impl Line {
    /// The place of a byte of the text in its file.
    pub(super) fn place(&self, file: &Arc<str>, at: usize) -> Place {
        let start = self.starts.iter().rev().find(|start| start.at <= at);
        let (line, column) = start.map_or((1, 1), |start| {
            let before = self.text.get(start.at..at.min(self.text.len())).unwrap_or_default();
            (
                start.line,
                start.column.saturating_add(u32::try_from(before.chars().count()).unwrap_or(u32::MAX)),
            )
        });
        Place { file: Arc::clone(file), line, column }
    }

    /// An empty line at this place, for errors that concern a place rather than a text.
    pub(super) fn at(line: u32, column: u32) -> Self {
        Self { text: String::new(), starts: vec![LineStart { at: 0, line, column }] }
    }

    /// Adds one line of the file; `None` if that exceeds [`MAX_DIRECTIVE`].
    fn push(&mut self, text: &str, number: u32, indent: usize) -> Option<()> {
        if self.text.len() + text.len() > MAX_DIRECTIVE {
            return None;
        }
        let column = u32::try_from(indent + 1).unwrap_or(u32::MAX);
        self.starts.push(LineStart { at: self.text.len(), line: number, column });
        self.text.push_str(text);
        Some(())
    }
}

/// An error in a line. Parsing ends after each of these, except after `Commented`.
pub(super) enum LineError {
    /// The directive that starts in this line is larger than [`MAX_DIRECTIVE`].
    TooLarge(u32),
    /// The last line, which has this number, ends with `\`, but there is no next line.
    Continued(u32),
    /// This line continues a comment and looks like a directive.
    Commented(u32),
}

/// The directives of a file, in order. Parsing stops at an error, except for [`LineError::Commented`].
pub(super) fn directives(text: &str) -> impl Iterator<Item = Result<Line, LineError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut numbered = (1u32..).zip(text.lines());
    let (mut over, mut is_comment) = (false, false);
    std::iter::from_fn(move || {
        while !over {
            let (number, first) = numbered.next()?;
            let trimmed = first.trim();
            if trimmed.is_empty() {
                is_comment = false;
                continue;
            }
            let continues = std::mem::replace(&mut is_comment, false);
            if continues || trimmed.starts_with('#') {
                is_comment = trimmed.ends_with('\\') && (continues || is_commented_rule(trimmed));
                if continues && trimmed.starts_with("Sec") {
                    return Some(Err(LineError::Commented(number)));
                }
                continue;
            }
            let outcome = directive(number, first, &mut numbered);
            over = outcome.is_err();
            return Some(outcome);
        }
        None
    })
}

/// Returns true if a comment is a disabled rule or directive. As in ModSecurity 3, continuation lines after
/// it belong to the comment; other comments end with their line. An empty line ends both kinds, although
/// ModSecurity sometimes continues after it. It is safer so: a rule that is loaded by mistake is noticed, but
/// a missing rule is not.
fn is_commented_rule(comment: &str) -> bool {
    let text = comment.strip_prefix('#').unwrap_or(comment).trim_start_matches([' ', '\t']);
    text.starts_with("SecRule") || text.starts_with("SecAction")
}

/// Reads the directive that starts with this line.
fn directive<'t>(
    number: u32,
    first: &'t str,
    rest: &mut impl Iterator<Item = (u32, &'t str)>,
) -> Result<Line, LineError> {
    let mut joined = Line::default();
    let (mut at, mut text) = (number, first.trim_start());
    let mut indent = first[..first.len() - text.len()].chars().count();
    loop {
        let continued = text.strip_suffix('\\');
        joined.push(continued.unwrap_or(text), at, indent).ok_or(LineError::TooLarge(number))?;
        if continued.is_none() {
            joined.text.truncate(joined.text.trim_end().len());
            return Ok(joined);
        }
        // White space at the start of a continuation line is kept, because it may be in a quoted text.
        (at, text) = rest.next().ok_or(LineError::Continued(at))?;
        indent = 0;
    }
}

/// A part of a directive as it is written, with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'l> {
    /// The original text.
    pub(super) raw: &'l str,
    /// The position of its first byte in the directive.
    pub(super) at: usize,
    /// The quotes that are escaped with `\` in this part.
    quotes: &'static str,
}

impl<'l> Part<'l> {
    /// The text without the `\` before a quote.
    pub(super) fn text(self) -> String {
        let mut text = String::with_capacity(self.raw.len());
        let mut rest = self.raw.chars().peekable();
        while let Some(found) = rest.next() {
            if found == '\\' && rest.peek().is_some_and(|next| self.quotes.contains(*next)) {
                continue;
            }
            text.push(found);
            if found == '\\' {
                // The character after a backslash is escaped, so it is copied without being examined.
                text.extend(rest.next());
            }
        }
        text
    }

    /// The same text as a value in `'` within an argument in `"`: both quotes are escaped in it.
    pub(super) fn in_both_quotes(self) -> Self {
        Self { quotes: "\"'", ..self }
    }

    /// This part without white space around it.
    pub(super) fn trim(self) -> Self {
        let start = self.raw.len() - self.raw.trim_start().len();
        Self { raw: self.raw.trim(), at: self.at + start, ..self }
    }

    /// This part from a byte on.
    pub(super) fn from(self, start: usize) -> Self {
        Self {
            raw: self.raw.get(start..).unwrap_or_default(),
            at: self.at + start.min(self.raw.len()),
            ..self
        }
    }

    /// This part up to a byte.
    pub(super) fn to(self, end: usize) -> Self {
        Self { raw: self.raw.get(..end).unwrap_or(self.raw), ..self }
    }

    /// Splits at the first separator.
    pub(super) fn split(self, separator: char) -> Option<(Self, Self)> {
        let found = self.raw.find(separator)?;
        Some((self.to(found), self.from(found + separator.len_utf8())))
    }

    /// The non-empty parts between separators.
    pub(super) fn split_all(self, is_separator: fn(char) -> bool) -> impl Iterator<Item = Self> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let start = rest.raw.find(|found| !is_separator(found))?;
            let from = rest.from(start);
            let end = from.raw.find(is_separator).unwrap_or(from.raw.len());
            rest = from.from(end);
            Some(from.to(end))
        })
    }

    /// The part after `prefix`, if this part starts with it.
    pub(super) fn strip(self, prefix: char) -> Option<Self> {
        self.raw.starts_with(prefix).then(|| self.from(prefix.len_utf8()))
    }
}

/// Splits a directive into its name and arguments. Returns `None` if a quote is not closed, which is reported.
pub(super) fn words<'l>(line: &'l Line, findings: &mut Findings) -> Option<Vec<Part<'l>>> {
    let mut words = Vec::new();
    let mut rest = Part { raw: &line.text, at: 0, quotes: "" }.trim();
    while let Some(first) = rest.raw.chars().next() {
        let (word, after) = match first {
            '"' => quoted(rest.from(1), '"', "\"", findings)?,
            '\'' => quoted(rest.from(1), '\'', "'", findings)?,
            _ => {
                let end = end_of_plain(rest.raw);
                (rest.to(end), rest.from(end))
            }
        };
        words.push(word);
        rest = after.trim();
    }
    if let Some(last) = words.last().filter(|last| last.raw == "\\" && last.quotes.is_empty()) {
        findings.error(last.at, "`\\` stands alone", Some(CONTINUATION.into()));
        return None;
    }
    Some(words)
}

/// The explanation of the probable mistake if `\` is the last visible character of a line.
const CONTINUATION: &str =
    "white space follows the `\\` at the end of the line, so that the next line does not continue it";

/// Splits at the closing quote.
fn quoted<'l>(
    part: Part<'l>,
    quote: char,
    quotes: &'static str,
    findings: &mut Findings,
) -> Option<(Part<'l>, Part<'l>)> {
    let Some(end) = end_of_quoted(part.raw, quote) else {
        let suggestion = part.raw.trim_end().ends_with('\\').then(|| CONTINUATION.to_owned());
        findings.error(part.at.saturating_sub(1), format!("the quote `{quote}` is not closed"), suggestion);
        return None;
    };
    let after = part.from(end + quote.len_utf8());
    if after.raw.starts_with(|next: char| !next.is_whitespace()) {
        let suggestion = Some(format!("a quote in a quoted text is written `\\{quote}`"));
        findings.error(after.at, "white space has to follow a closing quote", suggestion);
        return None;
    }
    Some((Part { quotes, ..part.to(end) }, after))
}

/// The position of the first such quote that is not escaped with `\`.
pub(super) fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, found)| {
        let ends = found == quote && !escaped;
        escaped = found == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// The position at which an unquoted word ends. A selector in the word may be quoted (`ARGS:'a b'`).
fn end_of_plain(text: &str) -> usize {
    let mut from = 0;
    loop {
        let end = text[from..].find(char::is_whitespace).map_or(text.len(), |end| from + end);
        let Some(open) = text[from..end].find(":'").map(|open| from + open + 2) else { return end };
        match end_of_quoted(&text[open..], '\'') {
            Some(close) => from = open + close + 1,
            None => return end,
        }
    }
}
