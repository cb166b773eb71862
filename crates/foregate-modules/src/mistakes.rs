//! What is wrong with the parts of settings, to be told at once.

use foregate_module::Problem;

/// What is wrong with some of many parts.
#[derive(Default)]
pub(crate) struct Mistakes(Option<Problem>);

impl Mistakes {
    /// What was read, unless something is wrong with it, of which note is taken.
    pub(crate) fn kept<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.add(problem)).ok()
    }

    /// Takes note of one.
    pub(crate) fn add(&mut self, problem: Problem) {
        self.0 = Some(match self.0.take() {
            Some(first) => first.and(problem),
            None => problem,
        });
    }

    /// Nothing is wrong.
    ///
    /// # Errors
    ///
    /// All that is, as one problem.
    pub(crate) fn none(self) -> Result<(), Problem> {
        self.0.map_or(Ok(()), Err)
    }
}
