//! What this folder wants of the language of expressions, so that one place knows who speaks it.

use std::ops::Range;
use std::sync::Arc;

use foregate_module::{Condition, Conditions, Expression, PhaseId, Pipeline};

/// A mistake in an expression.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Where, in bytes of the text. Empty where something is missing.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// What the entries of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListType {
    /// Addresses, networks, ranges.
    Ip,
    /// Hosts, and names below which all count.
    Host,
    /// Texts.
    String,
}

/// Compiles expressions for one pipeline, whose values they may read.
pub(super) trait Expressions {
    /// Adds a named list, one entry on each line of `text`.
    ///
    /// # Errors
    ///
    /// The number of the line at fault, from 1, and what is wrong with it.
    fn list(&mut self, name: &str, kind: ListType, text: &str) -> Result<(), (usize, String)>;

    /// A condition, for steps of `phase`.
    fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, Mistake>;

    /// A value, for steps of `phase`.
    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, Mistake>;

    /// Conditions that are evaluated together; on a mistake, the number of the text that it is in.
    fn conditions(&self, texts: &[&str], phase: PhaseId) -> Result<Arc<dyn Conditions>, (usize, Mistake)>;
}

/// The compiler for a pipeline.
pub(super) fn compiler(_: &Pipeline) -> Box<dyn Expressions> {
    Box::new(Absent)
}

/// Stands here until a compiler does.
struct Absent;

impl Absent {
    fn mistake() -> Mistake {
        Mistake { span: 0..0, message: "expressions are not available".into(), help: None }
    }
}

impl Expressions for Absent {
    fn list(&mut self, _: &str, _: ListType, _: &str) -> Result<(), (usize, String)> {
        Ok(())
    }

    fn condition(&self, _: &str, _: PhaseId) -> Result<Arc<dyn Condition>, Mistake> {
        Err(Self::mistake())
    }

    fn expression(&self, _: &str, _: PhaseId) -> Result<Arc<dyn Expression>, Mistake> {
        Err(Self::mistake())
    }

    fn conditions(&self, _: &[&str], _: PhaseId) -> Result<Arc<dyn Conditions>, (usize, Mistake)> {
        Err((0, Self::mistake()))
    }
}
