//! Fields that go to a client without any step having seen them: those of interim responses, and trailers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foregate_module::{Pipeline, Plan, Steps};
use foregate_wire::{HeaderList, connection};

use super::copy::Copy;

/// Which steps of a route such fields go through.
pub struct Sweep {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// The route's plan.
    pub plan: Arc<Plan>,
    /// Which of [`Plan::sweeps`], by their number there, do not count for this exchange.
    pub left_out: Steps,
}

impl Sweep {
    /// Takes away the fields that one of the steps does not keep. If a step panics, all of them go.
    pub fn clean(&self, fields: &mut HeaderList) {
        let steps =
            || self.plan.sweeps().iter().enumerate().filter(|(number, _)| !self.left_out.contains(*number));
        let keeps = |name: &[u8]| steps().all(|(_, planned)| self.pipeline.keeps(planned, name));
        let cleaned = catch_unwind(AssertUnwindSafe(|| fields.retain(|field| keeps(field.name))));
        if cleaned.is_err() {
            fields.clear();
        }
    }
}

impl Copy {
    /// Takes away what of a body's trailers does not go on.
    pub fn clean(&self, trailers: &mut HeaderList) {
        if trailers.is_empty() {
            return;
        }
        if self.drop_trailers {
            trailers.clear();
        } else if self.drop_underscores {
            connection::drop_underscore_names(trailers);
        }
        if let Some(sweep) = &self.sweep {
            sweep.clean(trailers);
        }
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep").finish_non_exhaustive()
    }
}
