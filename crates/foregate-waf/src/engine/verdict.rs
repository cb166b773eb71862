//! The decision of a phase.

use crate::model::RuleId;

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request continues.
    Pass,
    /// The request is answered with this status.
    Deny {
        /// The status, 100 to 999.
        status: u16,
        /// The rule that decided; `None` if the transaction exceeded its budget or a limit.
        rule: Option<RuleId>,
    },
    /// The client is redirected.
    Redirect {
        /// The status, 300 to 399.
        status: u16,
        /// The target, in the bytes that the rule produced.
        to: Vec<u8>,
        /// The rule that decided.
        rule: RuleId,
    },
    /// The connection is closed without an answer.
    Drop {
        /// The rule that decided.
        rule: RuleId,
    },
}

impl Verdict {
    /// Returns true if the request continues.
    pub fn passes(&self) -> bool {
        *self == Self::Pass
    }

    /// The rule that decided.
    pub fn rule(&self) -> Option<RuleId> {
        match self {
            Self::Pass => None,
            Self::Deny { rule, .. } => *rule,
            Self::Redirect { rule, .. } | Self::Drop { rule } => Some(*rule),
        }
    }
}
