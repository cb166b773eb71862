//! A rule, its parts, and the set of all rules.

use std::fmt;
use std::sync::Arc;

use super::{Action, Disruptive, Exclusion, Index, Operator, Settings, Target, Template, Transformation};

/// The number of a rule, unique in its set, never 0.
pub type RuleId = u64;

/// Everything that was loaded.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules in the order of the files. Removed ones are not among them.
    pub rules: Vec<Rule>,
    /// The settings of directives that are no rules.
    pub settings: Settings,
    /// Warnings: directives without effect here, and probable mistakes.
    pub warnings: Vec<Problem>,
}

impl RuleSet {
    /// An index of [`rules`](Self::rules), for resolving many selections.
    pub fn index(&self) -> Index {
        Index::new(self.rules.iter().map(|rule| (rule.id, &*rule.tags, rule.message.as_ref())))
    }
}

/// One rule: a `SecRule` or `SecAction` with the links chained to it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `id`.
    pub id: RuleId,
    /// The start of its directive.
    pub place: Place,
    /// `phase`: the phase in which it runs.
    pub phase: Phase,
    /// The rule itself and those chained to it, in order; never empty. The rule matches when all of them do. The
    /// actions of a link are performed when that link matches, whether the links after it match or not.
    pub links: Vec<Link>,
    /// The effect on the transaction when it matches. `block` has been resolved.
    pub disruptive: Disruptive,
    /// Set if matches are written to the log.
    pub log: bool,
    /// Set if a match makes the transaction relevant to the audit log.
    pub audit_log: bool,
    /// `msg`.
    pub message: Option<Template>,
    /// `logdata`.
    pub data: Option<Template>,
    /// `severity`.
    pub severity: Option<Severity>,
    /// `tag`, in order.
    pub tags: Vec<Template>,
    /// `rev`.
    pub revision: Option<Box<str>>,
    /// `ver`.
    pub version: Option<Box<str>>,
    /// `maturity`, 1 to 9.
    pub maturity: Option<u8>,
    /// `accuracy`, 1 to 9.
    pub accuracy: Option<u8>,
    /// `skip` and `skipAfter`: when it matches, the rules of its phase that follow are left out up to the one at this
    /// position in [`RuleSet::rules`], which may be just beyond the last. Always beyond this rule.
    pub skip_to: Option<usize>,
}

/// A rule of a chain, or the only one.
#[derive(Clone, Debug)]
pub struct Link {
    /// The start of its directive.
    pub place: Place,
    /// The targets, in order; empty for a `SecAction`, which always matches.
    pub targets: Vec<Target>,
    /// The exclusions from all targets.
    pub exclusions: Vec<Exclusion>,
    /// Set if it matches where the operator does not (`!@operator`).
    pub negated: bool,
    /// The comparison for each value.
    pub operator: Operator,
    /// The transformations of each value, in order, including those of the defaults.
    pub transformations: Vec<Transformation>,
    /// `multiMatch`: the operator sees the value before the first transformation and after each that changed it.
    pub multi_match: bool,
    /// `capture`: the groups of the pattern are stored in `TX.0` to `TX.9`.
    pub capture: bool,
    /// The actions of a match of this link, in order.
    pub actions: Vec<Action>,
}

/// When a rule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// 1: the head of the request is there.
    RequestHeaders,
    /// 2: the body of the request is there.
    RequestBody,
    /// 3: the head of the response is there.
    ResponseHeaders,
    /// 4: the body of the response is there.
    ResponseBody,
    /// 5: the transaction is over.
    Logging,
}

impl Phase {
    /// All values, in order.
    pub const ALL: [Self; 5] =
        [Self::RequestHeaders, Self::RequestBody, Self::ResponseHeaders, Self::ResponseBody, Self::Logging];

    /// 1 to 5.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// The severity of a finding; the smaller the number, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// 0
    Emergency,
    /// 1
    Alert,
    /// 2
    Critical,
    /// 3
    Error,
    /// 4
    Warning,
    /// 5
    Notice,
    /// 6
    Info,
    /// 7
    Debug,
}

impl Severity {
    /// All values with their names, the worst first.
    pub const ALL: &[(&str, Self)] = &[
        ("EMERGENCY", Self::Emergency),
        ("ALERT", Self::Alert),
        ("CRITICAL", Self::Critical),
        ("ERROR", Self::Error),
        ("WARNING", Self::Warning),
        ("NOTICE", Self::Notice),
        ("INFO", Self::Info),
        ("DEBUG", Self::Debug),
    ];

    /// 0 to 7.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its name, in capitals.
    pub fn name(self) -> &'static str {
        // In the order of the variants.
        Self::ALL[self as usize].0
    }
}

/// A place in a file of rules.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file's name, as given or found.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error or a probable mistake, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The message, one line.
    pub message: String,
    /// The suggested replacement.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        self.suggestion.iter().try_for_each(|suggestion| write!(f, " ({suggestion})"))
    }
}

impl std::error::Error for Problem {}
