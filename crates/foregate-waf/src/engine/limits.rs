//! What one transaction may use, beside what directives say of bodies and arguments.

/// Bounds on the work and the memory of one transaction. What lies beyond is said at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most request or response fields; further ones are left out of what rules see, which counts as work beyond the
    /// budget. Default 1,000.
    pub fields: usize,
    /// Work of one transaction, in bytes that patterns look at: a value of 100 bytes that 30 rules look at exactly counts
    /// as 3,000, and each look costs [`LOOK`] more. Default 64 Mi.
    pub work: u64,
    /// Most bytes of text of one transaction: what it received, transformed values and variables set by rules, beside
    /// [`BODY_TEXT`] for each byte of its bodies, and a quarter of that for those beyond a MiB. Beyond it the transaction
    /// is over its budget. Default 4 MiB: with the Core Rule Set on its highest level, a head of 64 KiB needs up to
    /// 1.5 MiB.
    pub text: usize,
    /// Most variables that rules set under names made from the request, and as many of `ENV`. Further ones are not set, which
    /// counts as work beyond the budget. Default 2,000.
    pub variables: usize,
    /// Most matches kept for the report; further ones are counted. Default 200.
    pub matches: usize,
    /// Most values that may match one rule, all of which are in `MATCHED_VARS`. Further ones are left out, which counts as work
    /// beyond the budget. Default 65,536, some ten times what a request has that is within the other limits.
    pub matched_values: usize,
    /// Most bytes of a matched value that a report shows. Default 200.
    pub shown: usize,
    /// Most bytes of an expanded `msg` or `logdata`. Default 1,024.
    pub message: usize,
    /// What happens to a transaction that is over its budget.
    pub beyond: Beyond,
    /// What happens to a request whose body cannot be read, where no rule asks for that. Default: 400.
    pub unreadable: Unreadable,
    /// Whether files that are texts to some programs are arguments as well: see
    /// [`unclear_files`](crate::body::Limits::unclear_files). Default no.
    pub unclear_files: bool,
}

/// What one exact look at a value costs beside its bytes, in units of [`Limits::work`].
pub const LOOK: u64 = 32;

/// After so much work, in units of [`Limits::work`], a transaction lets others go first: some tens of microseconds.
pub(super) const TURN: u64 = 32 << 10;

/// Bytes of text that each byte of a body may become: itself, its arguments, and what the transformations of a rule set
/// make of them. The Core Rule Set on its highest level needs up to 20.
pub const BODY_TEXT: usize = 32;

/// How many bytes of a body that is said of, and what each further byte may become: bodies as long are mostly files, which
/// become no text at all.
pub(super) const BODY_TEXT_OF: usize = 1 << 20;
pub(super) const LONG_BODY_TEXT: usize = 8;

/// Most bytes that the names of one document's values have together, each as often as it is handed on: a value of JSON or
/// XML has its whole path for a name. A request with more is over its budget for text.
pub const NAMES: usize = 1 << 20;

/// Most variables of `ENV` that the host of a transaction sets. Rules have room of their own, for [`Limits::variables`].
pub const ENVIRONMENT: usize = 64;

/// What happens when a transaction needs more than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Rules go on over what was taken. Once all work is spent, only those do that look at no values but variables of
    /// rules, such as scores, and those of phase 5. The report says so.
    Continue,
    /// The request is denied with this status.
    Deny(u16),
}

/// What happens to a request with a body that rules cannot read, or of which two programs read different things, where no rule
/// looks at `REQBODY_ERROR` or `MULTIPART_STRICT_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It goes on; rules have seen what could be read.
    Pass,
    /// It is denied with this status.
    Deny(u16),
}

impl Default for Limits {
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
