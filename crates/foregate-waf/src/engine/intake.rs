//! Taking the parts of requests and responses in.

use super::plan::Plan;
use super::state::State;

/// The parts of a transaction become names and values, for the rules of its plan.
pub(crate) struct Intake<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) state: &'a mut State,
}
