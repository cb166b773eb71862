//! Collects errors and warnings with their places.

use std::rc::Rc;
use std::sync::Arc;

use super::limits::{MAX_ERRORS, MAX_WARNINGS};
use super::line::Line;
use super::nearest::nearest;
use crate::model::{Place, Problem};

/// The errors and warnings so far, and the directive that is being read.
pub(super) struct Findings {
    /// Errors: the rules are unusable.
    pub(super) errors: Vec<Problem>,
    /// Warnings: the rules load.
    pub(super) warnings: Vec<Problem>,
    file: Arc<str>,
    line: Rc<Line>,
}

impl Findings {
    /// Makes an empty collection.
    pub(super) fn new() -> Self {
        Self { errors: Vec::new(), warnings: Vec::new(), file: Arc::from(""), line: Rc::default() }
    }

    /// Starts a directive: later places refer to it.
    pub(super) fn enter(&mut self, file: &Arc<str>, line: &Rc<Line>) {
        self.file = Arc::clone(file);
        self.line = Rc::clone(line);
    }

    /// The place of this byte of the directive.
    pub(super) fn place(&self, at: usize) -> Place {
        self.line.place(&self.file, at)
    }

    /// The file of the directive.
    pub(super) fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// Records an error at this byte of the directive.
    pub(super) fn error(&mut self, at: usize, message: impl Into<String>, suggestion: Option<String>) {
        self.error_at(self.place(at), message, suggestion);
    }

    /// Records an error at this place.
    pub(super) fn error_at(&mut self, place: Place, message: impl Into<String>, suggestion: Option<String>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Problem { place, message: message.into(), suggestion });
        }
    }

    /// Reports an unknown name, with the nearest known one.
    pub(super) fn unknown<'n>(
        &mut self,
        at: usize,
        kind: &str,
        name: &str,
        known: impl Iterator<Item = &'n str>,
    ) {
        let suggestion = nearest(name, known).map(|near| format!("did you mean `{near}`?"));
        let shown: String = name.chars().take(MAX_SHOWN).collect();
        let more = if shown.len() < name.len() { "…" } else { "" };
        self.error(at, format!("there is no {kind} `{shown}{more}`"), suggestion);
    }

    /// Records a warning at this byte of the directive.
    pub(super) fn warn(&mut self, at: usize, message: impl Into<String>, suggestion: Option<String>) {
        self.warn_at(self.place(at), message, suggestion);
    }

    /// Records a warning at this place.
    pub(super) fn warn_at(&mut self, place: Place, message: impl Into<String>, suggestion: Option<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(Problem { place, message: message.into(), suggestion });
        }
    }

    /// Returns true if there are so many errors that no further one is recorded.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }
}

/// The most characters of a name that an error shows.
const MAX_SHOWN: usize = 80;
