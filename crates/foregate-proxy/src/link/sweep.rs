//! Checks of fields for which no step runs: those of interim responses, and trailers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foregate_module::{Pipeline, Plan, PlannedStep, Steps, Swept};
use foregate_wire::HeaderList;
use foregate_wire::connection::{self, NamedOptions};

use super::copy::{BodyCopy, Underscores};
use crate::message::response::clean_rewritten;

/// The steps of a route that check such fields.
pub struct Sweep {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// The route's plan.
    pub plan: Arc<Plan>,
    /// The owner of the fields.
    pub of: Of,
    /// The steps that do not apply to this exchange, by their number in the plan's list.
    pub left_out: Steps,
}

/// The message that the fields of a [`Sweep`] belong to.
pub enum Of {
    /// The trailers of a request. Holds the field names of its head, each with a line end. Trailers with
    /// these names are removed. Otherwise an origin could merge them into fields of the head that steps
    /// have set or checked (RFC 9110, section 6.5.1).
    Request(Vec<u8>),
    /// The trailers of a response, and interim responses.
    Response,
}

impl Of {
    /// The steps that see the fields.
    pub fn steps<'p>(&self, plan: &'p Plan) -> &'p [PlannedStep] {
        match self {
            Self::Request(_) => plan.request_sweeps(),
            Self::Response => plan.sweeps(),
        }
    }
}

impl Sweep {
    /// Removes the fields that a step rejects. For a request, also removes trailers with names that are in
    /// its head or reserved by modules. If a step panics, all fields are removed.
    pub fn clean(&self, swept: Swept, fields: &mut HeaderList) {
        let steps = self.of.steps(&self.plan).iter().enumerate();
        let steps = || steps.clone().filter(|(number, _)| !self.left_out.contains(*number));
        let keeps = |name: &[u8]| {
            self.is_free(name) && steps().all(|(_, planned)| self.pipeline.keeps(planned, swept, name))
        };
        let cleaned = catch_unwind(AssertUnwindSafe(|| fields.retain(|field| keeps(field.name))));
        if cleaned.is_err() {
            fields.clear();
        }
    }

    /// Returns true if no field of the head has this name, and it is not reserved for modules that
    /// identify the client to the origin.
    fn is_free(&self, name: &[u8]) -> bool {
        let Of::Request(head) = &self.of else { return true };
        let mut taken =
            head.split(|byte| *byte == b'\n').chain(self.plan.identity().iter().map(|name| &**name));
        !taken.any(|taken| connection::is_spelling(taken, name))
    }
}

/// The cleaning of a body's trailers.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    named: Option<NamedOptions>,
    forbidden: &'static [&'static [u8]],
    sweep: Option<Sweep>,
}

impl BodyCopy {
    /// Removes the trailers that `Connection` in the message's head has named (RFC 9110, section
    /// 7.6.1).
    pub fn leave_out(&mut self, named: Option<NamedOptions>) {
        if named.is_some() || self.trailers.is_some() {
            self.trailers.get_or_insert_default().named = named;
        }
    }

    /// Removes trailers of these names, in any spelling.
    pub fn forbid(&mut self, names: &'static [&'static [u8]]) {
        self.trailers.get_or_insert_default().forbidden = names;
    }

    /// Checks trailers with these steps.
    pub fn sweep(&mut self, sweep: Option<Sweep>) {
        if sweep.is_some() || self.trailers.is_some() {
            self.trailers.get_or_insert_default().sweep = sweep;
        }
    }

    /// Removes the trailers that must not be forwarded.
    pub fn clean(&self, trailers: &mut HeaderList) {
        if trailers.is_empty() {
            return;
        }
        if self.filter.as_ref().is_some_and(|filter| filter.rewrites) {
            clean_rewritten(trailers);
        }
        match self.underscores {
            Underscores::All => 0,
            Underscores::Own => connection::drop_misspelt_names_before(trailers, usize::MAX),
            Underscores::None => connection::drop_underscore_names(trailers),
        };
        let Some(Trailers { named, forbidden, sweep }) = self.trailers.as_deref() else { return };
        if let Some(named) = named {
            named.remove_from(trailers);
        }
        if !forbidden.is_empty() {
            trailers.retain(|field| !forbidden.iter().any(|name| connection::is_spelling(field.name, name)));
        }
        if let Some(sweep) = sweep {
            sweep.clean(Swept::Trailers, trailers);
        }
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep").finish_non_exhaustive()
    }
}
