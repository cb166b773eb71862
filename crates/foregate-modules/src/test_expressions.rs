//! Expressions for tests: the few that the tests of modules need, in a notation of their own.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use foregate_module::testing::{Compile, Literals};
use foregate_module::{Condition, Conditions, Expression, PhaseId, View};

/// `field NAME` is the value of a request's field. `late NAME` is the same, but is not known before `request-body`.
/// As a condition, both are true if there is such a field.
#[derive(Default)]
pub struct OfFields;

/// The services for modules, with these expressions.
pub fn literals() -> Literals {
    Literals { compile: Some(Box::new(OfFields)), ..Literals::default() }
}

struct OfField(String);

impl Expression for OfField {
    fn evaluate<'v>(&'v self, view: &View<'v>) -> Option<Cow<'v, [u8]>> {
        view.exchange().request_fields().get(&self.0).map(Cow::Borrowed)
    }
}

impl Condition for OfField {
    fn holds(&self, view: &View<'_>) -> bool {
        view.exchange().request_fields().get(&self.0).is_some()
    }
}

impl OfFields {
    fn read(text: &str, phase: PhaseId) -> Result<OfField, String> {
        match text.split_once(' ') {
            Some(("field", name)) => Ok(OfField(name.to_string())),
            Some(("late", name)) if phase >= PhaseId::RequestBody => Ok(OfField(name.to_string())),
            _ => Err(format!("`{text}` is not known in phase {phase}")),
        }
    }
}

impl Compile for OfFields {
    fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, String> {
        Ok(Arc::new(Self::read(text, phase)?))
    }

    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, String> {
        Ok(Arc::new(Self::read(text, phase)?))
    }

    fn conditions(&self, _: &[&str], _: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)> {
        Err((0, "not needed".to_string()))
    }
}
