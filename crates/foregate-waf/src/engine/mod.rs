//! Rules compiled to a plan, and transactions that follow it.
//!
//! | file | contents |
//! |---|---|
//! | `compile/` | the model to the plan: targets, effects; `fold.rs` constant folding; `interests.rs` the operators for each value |
//! | `plan.rs`, `expression.rs`, `chains.rs` | the plan: rules, links, texts with macros, chains of transformations |
//! | `transaction.rs` | the interface: parts of a request in, verdicts out |
//! | `intake.rs`, `request.rs`, `cookies.rs`, `response.rs`, `bodies.rs` | heads and bodies to names and values |
//! | `values.rs`, `tx.rs`, `store.rs` | names and values of a transaction, variables that rules set, collections that outlive it |
//! | `state.rs`, `would.rs` | the state of a transaction; the verdict that a blocking host would have applied |
//! | `feed.rs`, `run.rs` | a phase: values transformed and scanned, then the rules that are live |
//! | `expand.rs`, `perform.rs` | the view of rules on values: macros, and values that change; actions |
//! | `report.rs`, `audit.rs`, `secrets/`, `masks.rs` | matches as lines and records, without secrets |
//! | `limits.rs`, `budget.rs` | bounds on a transaction; the work and text that are left |

mod audit;
mod bits;
mod bodies;
mod budget;
mod chains;
mod compile;
mod cookies;
mod expand;
pub(crate) mod expression;
mod feed;
mod intake;
mod limits;
mod masks;
mod media;
mod perform;
pub(crate) mod plan;
mod report;
mod request;
mod response;
mod run;
mod secrets;
mod state;
mod store;
mod transaction;
pub(crate) mod tx;
mod values;
mod verdict;
mod would;

use std::sync::Arc;

use crate::model::{Phase, Problem, RuleSet};
pub use budget::Over;
pub use limits::{BODY_TEXT, Beyond, ENVIRONMENT, LOOK, NAMES, TransactionLimits, Unreadable};
pub use report::{Match, Report};
pub use store::Store;
pub use transaction::{Options, Transaction};
pub use verdict::Verdict;

/// Compiled rules, which all transactions share.
#[derive(Debug)]
pub struct Engine {
    plan: plan::Plan,
}

/// The options for compiling rules.
#[derive(Clone, Debug)]
pub struct Compile {
    /// Bounds on one transaction.
    pub limits: TransactionLimits,
    /// The collections that outlive transactions. They are kept across rule sets if the same store is passed.
    pub store: Arc<Store>,
    /// If true, values are first scanned for literals that patterns require, and only the possible patterns are
    /// tried. Default: true. The results are the same if false, which tests check.
    pub prefilter: bool,
}

impl Default for Compile {
    fn default() -> Self {
        Self { limits: TransactionLimits::default(), store: Arc::default(), prefilter: true }
    }
}

impl Engine {
    /// Compiles rules. An error tells the place of the rule.
    pub fn compile(rules: RuleSet, options: Compile) -> Result<Self, Problem> {
        let Compile { limits, store, prefilter } = options;
        Ok(Self { plan: compile::compile(rules, limits, store, prefilter)? })
    }

    /// The settings in the rules' files.
    pub fn settings(&self) -> &crate::model::Settings {
        &self.plan.settings
    }

    /// Returns true if rules may read bodies of responses.
    pub fn looks_at_responses(&self) -> bool {
        let turns_on = |rule: &plan::PlanRule| {
            let mut effects = rule.links.iter().flat_map(|link| &link.effects);
            effects.any(|effect| matches!(effect, plan::Effect::ResponseBodyAccess(true)))
        };
        let rules = &self.plan.rules;
        rules.iter().any(|rule| rule.about.phase == Phase::ResponseBody)
            && (self.plan.settings.response_body_access || rules.iter().any(turns_on))
    }

    /// Returns true if rules read bodies of responses with this `Content-Type`.
    pub fn looks_at_type(&self, field: &[u8]) -> bool {
        let kind = field.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        // A setting for all types does not include event streams: the client would never get a stream that is held
        // until its end.
        let is_stream = kind.eq_ignore_ascii_case(b"text/event-stream");
        let is_it =
            |wanted: &str| kind.eq_ignore_ascii_case(wanted.as_bytes()) || (wanted == "*" && !is_stream);
        self.plan.settings.response_body_types.iter().any(|wanted| is_it(wanted))
    }

    /// The number of rules.
    pub fn rules(&self) -> usize {
        self.plan.rules.len()
    }
}
