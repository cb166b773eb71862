//! Limits on one transaction, in addition to the directives for bodies and arguments.

/// Bounds on the work and the memory of one transaction. Each field states the effect of exceeding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLimits {
    /// The largest number of request or response fields; rules do not see further ones, which counts as exceeding the
    /// budget. Default 1,000.
    pub fields: usize,
    /// The work of one transaction, in bytes that patterns look at. A value of 100 bytes to which 30 rules apply their
    /// operators counts as 3,000, plus [`LOOK`] for each of the 30 operators. Default 64 Mi.
    pub work: u64,
    /// The largest amount of text of one transaction, bytes: received text, transformed values and variables set by
    /// rules. A body raises this limit: each byte of its first MiB by [`BODY_TEXT`], and each further byte by a quarter
    /// of [`BODY_TEXT`]. A transaction with more text is over its budget. Default 4 MiB. With the Core Rule Set on its
    /// highest level, a head of 64 KiB needs up to 1.5 MiB.
    pub text: usize,
    /// The most variables of `TX` that rules set under names made from the request, and the most variables of
    /// `ENV` that rules set. Further variables are not set, which counts as exceeding the budget. Default 2,000.
    pub variables: usize,
    /// The most matches that are kept for the report. Further matches are only counted. Default 200.
    pub matches: usize,
    /// The most matching values of one rule that are kept in `MATCHED_VARS`. Further values are dropped, which
    /// counts as exceeding the budget. Default 65,536: a request within the other limits has at most a tenth of
    /// that.
    pub matched_values: usize,
    /// The most bytes of a matched value that a report shows. Default 200.
    pub shown: usize,
    /// The most bytes of an expanded `msg` or `logdata`. Default 1,024.
    pub message: usize,
    /// The treatment of a transaction over its budget.
    pub beyond: Beyond,
    /// The treatment of a request with an unreadable body if no rule handles it. Default: 400.
    pub unreadable: Unreadable,
    /// If true, files that some programs read as texts are also emitted as arguments: see
    /// [`unclear_files`](crate::body::BodyLimits::unclear_files). Default: false.
    pub unclear_files: bool,
}

/// The fixed cost of applying one operator to a value, in units of [`TransactionLimits::work`].
pub const LOOK: u64 = 32;

/// After this much work, in units of [`TransactionLimits::work`], a transaction yields the thread to other tasks. This
/// work takes some tens of microseconds.
pub(super) const TURN: u64 = 32 << 10;

/// The bytes of text that each byte of a body may produce: the body itself, its arguments, and their
/// transformed values. The Core Rule Set on its highest level needs up to 20.
pub const BODY_TEXT: usize = 32;

/// The length of a body, in bytes, up to which [`BODY_TEXT`] applies. Further bytes count less, because long
/// bodies are mostly files, and the contents of files are not transformed.
pub(super) const BODY_TEXT_OF: usize = 1 << 20;
pub(super) const LONG_BODY_TEXT: usize = 8;

/// The most bytes of the names of all values in one JSON or XML document. The name of a value is its whole
/// path, so these names can become long. A request with more is over its budget for text.
pub const NAMES: usize = 1 << 20;

/// The most variables of `ENV` that the host of a transaction sets. The variables of `ENV` that rules set have a limit
/// of their own, [`TransactionLimits::variables`].
pub const ENVIRONMENT: usize = 64;

/// The treatment of a transaction that needs more than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Rules continue over the values that were accepted. Once all work is spent, only two kinds of rules still
    /// run: those that read only variables set by rules, such as scores, and those of phase 5. The report says
    /// so.
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
