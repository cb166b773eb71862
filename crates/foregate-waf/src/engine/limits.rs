//! Limits on one transaction, in addition to the directives for bodies and arguments.

/// Bounds on the work and the memory of one transaction. Each field states the effect of exceeding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLimits {
    /// The largest number of request or response fields; rules do not see further ones, which counts as exceeding the
    /// budget. Default 1,000.
    pub fields: usize,
    /// Work of one transaction, in bytes that patterns look at: a value of 100 bytes that 30 rules look at exactly counts
    /// as 3,000, and each look costs [`LOOK`] more. Default 64 Mi.
    pub work: u64,
    /// The largest amount of text of one transaction, bytes: received text, transformed values and variables set by rules, plus
    /// [`BODY_TEXT`] for each byte of its bodies, and a quarter of that beyond a MiB. A transaction with more
    /// is over its budget. Default 4 MiB: with the Core Rule Set on its highest level, a head of 64 KiB needs up to
    /// 1.5 MiB.
    pub text: usize,
    /// Most variables that rules set under names made from the request, and as many of `ENV`. Further ones are not set, which
    /// counts as work beyond the budget. Default 2,000.
    pub variables: usize,
    /// Most matches kept for the report; further ones are counted. Default 200.
    pub matches: usize,
    /// The largest number of values that may match one rule and are kept in `MATCHED_VARS`. Further ones are dropped, which counts as
    /// exceeding the budget. Default 65,536, ten times the number in a request within the other limits.
    pub matched_values: usize,
    /// Most bytes of a matched value that a report shows. Default 200.
    pub shown: usize,
    /// Most bytes of an expanded `msg` or `logdata`. Default 1,024.
    pub message: usize,
    /// The treatment of a transaction over its budget.
    pub beyond: Beyond,
    /// The treatment of a request with an unreadable body if no rule handles it. Default: 400.
    pub unreadable: Unreadable,
    /// Treats files that some programs read as text as arguments too: see
    /// [`unclear_files`](crate::body::BodyLimits::unclear_files). Default: false.
    pub unclear_files: bool,
}

/// The fixed cost of one exact look at a value, in units of [`TransactionLimits::work`].
pub const LOOK: u64 = 32;

/// After this much work, in units of [`TransactionLimits::work`], a transaction lets others go first: some tens of microseconds.
pub(super) const TURN: u64 = 32 << 10;

/// The text, bytes, that each byte of a body may become: itself, its arguments, and their transformations by
/// a rule set. The Core Rule Set on its highest level needs up to 20.
pub const BODY_TEXT: usize = 32;

/// The length of body to which [`BODY_TEXT`] applies, and the factor for further bytes: long bodies are mostly files, which
/// become no text.
pub(super) const BODY_TEXT_OF: usize = 1 << 20;
pub(super) const LONG_BODY_TEXT: usize = 8;

/// The most bytes of the names of one document's values, each counted as often as it is passed on: the name of a value of JSON or XML
/// is its whole path. A request with more is over its budget for text.
pub const NAMES: usize = 1 << 20;

/// Most variables of `ENV` that the host of a transaction sets. Rules have room of their own, for [`TransactionLimits::variables`].
pub const ENVIRONMENT: usize = 64;

/// The treatment of a transaction that needs more than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Rules continue over the values that were accepted. Once all work is spent, only rules over variables of
    /// rules, such as scores, and those of phase 5 run. The report says so.
    Continue,
    /// The request is denied with this status.
    Deny(u16),
}

/// The treatment of a request with a body that rules cannot read, or that two programs read differently, if no rule
/// uses `REQBODY_ERROR` or `MULTIPART_STRICT_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The request passes; rules have seen the readable part.
    Pass,
    /// The request is denied with this status.
    Deny(u16),
}

impl Default for TransactionLimits {
    fn default() -> Self {
        Self {
            fields: 1_000,
            work: 64 << 20,
            text: 4 << 20,
            variables: 2_000,
            matches: 200,
            matched_values: 1 << 16,
            shown: 200,
            message: 1_024,
            beyond: Beyond::Deny(413),
            unreadable: Unreadable::Deny(400),
            unclear_files: false,
        }
    }
}
