//! A rule, its parts, and the set of all rules.

use std::fmt;
use std::sync::Arc;

use super::{Action, Disruptive, Exclusion, Index, Operator, Settings, Target, Template, Transformation};

/// The number of a rule, unique in its set, never 0.
pub type RuleId = u64;

/// All rules and settings that were loaded.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules in the order of the files, without the removed ones.
    pub rules: Vec<Rule>,
    /// The settings from directives other than rules.
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
    /// The links: the rule itself and the rules chained to it, in order; never empty. The rule matches if all links
    /// match. The actions of a link are performed when that link matches, whether the links after it match or not.
    pub links: Vec<Link>,
    /// The effect on the transaction when the rule matches. `block` has been replaced with the default action.
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
    /// `skip` and `skipAfter`: the position in [`RuleSet::rules`] at which the phase continues if this rule
    /// matches. It is always after this rule, and may be just after the last rule.
    pub skip_to: Option<usize>,
}

/// A link: one rule of a chain, or a rule that is not chained.
#[derive(Clone, Debug)]
pub struct Link {
    /// The start of its directive.
    pub place: Place,
    /// The targets, in order; empty for a `SecAction`, which always matches.
    pub targets: Vec<Target>,
    /// The exclusions from all targets.
    pub exclusions: Vec<Exclusion>,
    /// Set if the link matches values that the operator does not match (`!@operator`).
    pub negated: bool,
    /// The operator that is applied to each value.
    pub operator: Operator,
    /// The transformations of each value, in order, including those of the defaults.
    pub transformations: Vec<Transformation>,
    /// `multiMatch`: the operator sees the value before the first transformation and after each that changed it.
    pub multi_match: bool,
    /// `capture`: the groups of the pattern are stored in `TX.0` to `TX.9`.
    pub capture: bool,
    /// The actions that are performed if this link matches, in order.
    pub actions: Vec<Action>,
}

/// The phase in which a rule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Phase 1: after the head of the request.
    RequestHeaders,
    /// Phase 2: after the body of the request.
    RequestBody,
    /// Phase 3: after the head of the response.
    ResponseHeaders,
    /// Phase 4: after the body of the response.
    ResponseBody,
    /// Phase 5: after the end of the transaction.
    Logging,
}

impl Phase {
    /// All values, in order.
    pub const ALL: [Self; 5] =
        [Self::RequestHeaders, Self::RequestBody, Self::ResponseHeaders, Self::ResponseBody, Self::Logging];

    /// The number of the phase, 1 to 5.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// The severity of a match. A smaller number is worse.
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

    /// The number of the severity, 0 to 7.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name of the severity, in capitals.
    pub fn name(self) -> &'static str {
        // The table has the order of the variants.
        Self::ALL[self as usize].0
    }
}

/// A place in a file of rules.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The name of the file, as given, or as found by a pattern.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
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
    /// The place of the error.
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
