//! Errors in expressions, with their place.

use std::fmt;
use std::ops::Range;

use crate::lists::Entries;

/// An error in an expression: a place in its text, one sentence, and a suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    span: Range<usize>,
    message: String,
    help: Option<String>,
    missing_list: Option<Entries>,
}

impl Error {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None, missing_list: None }
    }

    pub(crate) fn with_missing_list(mut self, holds: Entries) -> Self {
        self.missing_list = Some(holds);
        self
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The place in the text, in bytes. It is empty if something is missing there.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The error, one sentence without full stop.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A suggestion, if there is one.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The kind of values for the missing list, if the error is that a named list does not exist.
    #[must_use]
    pub fn missing_list(&self) -> Option<Entries> {
        self.missing_list
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at byte {}: {}", self.span.start, self.message)?;
        match &self.help {
            Some(help) => write!(formatter, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
