//! Reads one line of a file of cases, word by word.

use super::CaseError;

/// A line that is being read, and the position up to which it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    pub number: usize,
    /// The whole line.
    text: &'t str,
    /// Bytes that have been read.
    at: usize,
}

impl<'t> Line<'t> {
    pub fn new(number: usize, text: &'t str) -> Self {
        Self { number, text, at: 0 }
    }

    pub fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    pub fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns true if only a comment is left.
    pub fn is_over(&mut self) -> bool {
        self.skip_spaces();
        self.rest().is_empty() || self.rest().starts_with('#')
    }

    pub fn error(&self, message: impl Into<String>) -> CaseError {
        let column = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        CaseError::new(self.number, column, message)
    }

    /// A word up to the next space; empty at the end of the line.
    pub fn word(&mut self) -> &'t str {
        self.skip_spaces();
        let rest = self.rest();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        self.at += end;
        word
    }

    /// The next word, without moving past it.
    pub fn peek(&self) -> &'t str {
        let mut copy = *self;
        copy.word()
    }

    /// A text in double quotes, with escapes.
    pub fn quoted(&mut self) -> Result<String, CaseError> {
        self.skip_spaces();
        let start = *self;
        let Some(inner) = self.rest().strip_prefix('"') else {
            return Err(self.error("expected a text in double quotes"));
        };
        let mut text = String::new();
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += 1 + at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some(c @ ('"' | '\\' | '/' | '#' | '`')) => text.push(c),
                    Some('u') => {
                        let hex: String =
                            chars.by_ref().take_while(|(_, c)| *c != '}').map(|(_, c)| c).collect();
                        let code = hex.strip_prefix('{').and_then(|hex| u32::from_str_radix(hex, 16).ok());
                        match code.and_then(char::from_u32) {
                            Some(c) => text.push(c),
                            None => return Err(start.error("a character is written `\\u{1F600}`")),
                        }
                    }
                    _ => {
                        return Err(start
                            .error("unknown escape in a text")
                            .help("known are \\n \\r \\t \\\" \\\\ \\u{..}"));
                    }
                },
                c => text.push(c),
            }
        }
        Err(start.error("the text does not end").help("close it with `\"` on the same line"))
    }

    /// An expression between slashes, or in quotes.
    pub fn expression(&mut self) -> Result<regex::Regex, CaseError> {
        self.skip_spaces();
        let start = *self;
        let text = match self.rest().strip_prefix('/') {
            Some(inner) => {
                let mut escaped = false;
                let end = inner.char_indices().find(|(_, c)| {
                    let ends = *c == '/' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                let Some((end, _)) = end else {
                    return Err(start.error("the expression does not end").help("close it with `/`"));
                };
                self.at += end + 2;
                inner.get(..end).unwrap_or_default().replace("\\/", "/")
            }
            None => self.quoted()?,
        };
        let built = regex::RegexBuilder::new(&text).size_limit(1 << 20).build();
        built.map_err(|error| {
            start.error(format!(
                "no regular expression: {}",
                error.to_string().lines().last().unwrap_or_default()
            ))
        })
    }

    /// Refuses further text on the line.
    pub fn end(&mut self) -> Result<(), CaseError> {
        if self.is_over() {
            Ok(())
        } else {
            Err(self.error(format!("unexpected `{}`", self.rest().trim_end())))
        }
    }
}
