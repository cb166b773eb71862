//! What this folder wants of the language of expressions, so that one place knows who speaks it.

use std::ops::Range;
use std::sync::Arc;

use foregate_module::{Condition, Conditions, Expression, PhaseId, Pipeline};
use foregate_modules::expressions::Compiler;
use foregate_rules::{List, Lists};

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
///
/// # Panics
///
/// A module gives a value the name of a field that every request has: a mistake in the program.
pub(super) fn compiler(pipeline: &Pipeline) -> Box<dyn Expressions> {
    let compiler = Compiler::new(pipeline, Lists::new());
    Box::new(compiler.expect("the values of a pipeline have names that no field of a request has"))
}

impl From<foregate_modules::expressions::Mistake> for Mistake {
    fn from(mistake: foregate_modules::expressions::Mistake) -> Self {
        Self { span: mistake.span, message: mistake.message, help: mistake.help }
    }
}

impl Expressions for Compiler {
    fn list(&mut self, name: &str, kind: ListType, text: &str) -> Result<(), (usize, String)> {
        let list = match kind {
            ListType::Ip => List::parse_ips(text),
            ListType::Host => List::parse_hosts(text),
            ListType::String => List::parse_strings(text),
        };
        let list = list.map_err(|error| (error.line, error.message))?;
        self.lists_mut().insert(name, list);
        Ok(())
    }

    fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, Mistake> {
        Ok(Self::condition(self, text, phase)?)
    }

    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, Mistake> {
        Ok(Self::expression(self, text, phase)?)
    }

    fn conditions(&self, texts: &[&str], phase: PhaseId) -> Result<Arc<dyn Conditions>, (usize, Mistake)> {
        Self::conditions(self, texts, phase).map_err(|(number, mistake)| (number, mistake.into()))
    }
}
