//! The plan that rules are compiled to.

use std::sync::Arc;

use super::bits::Bits;
use super::chains::Node;
use super::expression::Expression;
use super::tx::{Slot, Value};
use super::values::{FAMILIES, Family, Half};
use crate::model::{
    self, AuditEngine, AuditPartsChange, BodyProcessor, EngineMode, Mask, PersistentCollection, Phase,
    Variable, XmlArguments,
};
use crate::operator::Test;
use crate::scan::{Pattern, Scan};

/// A rule in the form for running it.
#[derive(Debug)]
pub(crate) struct PlanRule {
    /// The rule's own metadata.
    pub(crate) about: model::Rule,
    /// The links, in order.
    pub(crate) links: Box<[PlanLink]>,
    pub(crate) message: Option<Expression>,
    pub(crate) data: Option<Expression>,
    pub(crate) tags: Box<[Expression]>,
    /// Set if it exempts requests from inspection: it allows, or removes rules, targets or bodies.
    pub(crate) lets_through: bool,
    /// The target of `redirect`.
    pub(crate) redirect: Option<Expression>,
}

/// A link in the form for running it.
#[derive(Debug)]
pub(crate) struct PlanLink {
    pub(crate) targets: Box<[PlanTarget]>,
    pub(crate) test: Test,
    pub(crate) negated: bool,
    /// The chain of transformations.
    pub(crate) node: Node,
    /// With `multiMatch`: every step of the chain, no transformation at all first; empty without.
    pub(crate) steps: Box<[Node]>,
    pub(crate) capture: bool,
    pub(crate) effects: Box<[Effect]>,
}

/// A target of a link.
#[derive(Debug)]
pub(crate) struct PlanTarget {
    pub(crate) variable: Variable,
    pub(crate) source: ValueSource,
    pub(crate) pick: Pick,
    pub(crate) count: bool,
    /// The excluded names.
    pub(crate) without: Box<[Pick]>,
}

/// The location of a variable's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ValueSource {
    /// In a family.
    Units(Family, Half),
    /// One value, in the family of scalars.
    Scalar(Variable),
    /// In `TX`.
    Tx,
    /// In the store.
    Stored(PersistentCollection),
    /// In `ENV`.
    Env,
    /// The list of matches: values or names, all or the last.
    Matched { names: bool, all: bool },
    /// In the rule itself.
    Rule,
    /// Computed when a rule reads it.
    Computed(Variable),
}

/// The selection of a source's values.
#[derive(Debug)]
pub(crate) enum Pick {
    /// All.
    All,
    /// The values of a name: its number in the family's table (or its slot of `TX`), and the name in small letters.
    Name(u16, Box<[u8]>),
    /// The values with names that match a pattern. For `TX`, the slots with such names are precomputed.
    Pattern(Box<Pattern>, Box<[Slot]>),
}

impl Pick {
    /// Returns true if a name is picked.
    pub(crate) fn takes(&self, known: u16, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Name(number, _) => *number == known,
            Self::Pattern(pattern, _) => pattern.is_match(name),
        }
    }
}

/// The effect of a link that matches.
#[derive(Debug)]
pub(crate) enum Effect {
    SetTx(Name, VariableChange),
    /// After this many seconds the variable would go: transactions are over before that.
    SetStored(PersistentCollection, Expression, VariableChange),
    Expire(PersistentCollection, Expression, Amount),
    Deprecate(PersistentCollection, Expression, u32, u32),
    Open(PersistentCollection, Expression, Option<Variable>),
    SetEnv(Expression, Expression),
    Remove(Removal),
    RemoveTarget(Box<Bits>, ValueSource, Pick),
    Engine(EngineMode),
    RequestBodyAccess(bool),
    RequestBodyLimit(u64),
    RequestBodyProcessor(BodyProcessor),
    ForceRequestBody(bool),
    ResponseBodyAccess(bool),
    ResponseBodyLimit(u64),
    XmlArguments(XmlArguments),
    Audit(AuditEngine),
    AuditParts(AuditPartsChange),
    Mask(Mask),
}

/// Rules that do not run any more.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) rules: Box<Bits>,
    /// The last place, by phase and rule, at which the folded plan relies on a rule among these that it leaves out.
    pub(crate) unfolds: Option<(Phase, usize)>,
}

/// The name of a variable that is set.
#[derive(Debug)]
pub(crate) enum Name {
    Slot(Slot),
    Made(Expression),
}

/// A change of a variable.
#[derive(Debug)]
pub(crate) enum VariableChange {
    Set(Value),
    SetMade(Expression),
    Add(Amount),
    Subtract(Amount),
    Unset,
}

/// A number.
#[derive(Debug)]
pub(crate) enum Amount {
    Fixed(i64),
    Slot(Slot),
    Made(Expression),
}

/// One phase.
#[derive(Debug, Default)]
pub(crate) struct PhasePlan {
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
    /// Steps that are done whatever the values are.
    pub(crate) always: Bits,
    /// The literals of candidates, if there are any.
    pub(crate) scan: Option<Scan>,
    /// For each candidate, its step.
    pub(crate) candidates: Vec<u32>,
    /// Words that a set of candidates takes.
    pub(crate) words: usize,
    pub(crate) interests: Vec<Interest>,
    /// Which interest applies to the values of each family.
    pub(crate) families: [FamilyInterests; FAMILIES],
}

impl PhasePlan {
    /// The first step that belongs to `rule` or a later one.
    pub(crate) fn step_at(&self, rule: usize) -> usize {
        self.steps.partition_point(|step| step.rule() < rule)
    }
}

/// A step of a phase.
#[derive(Debug)]
pub(crate) enum Step {
    /// Run a rule; with the number of its candidate.
    Run { rule: usize, candidate: Option<u32>, skip: usize },
    /// Assign the values that the rules up to this one are known to set, each with its rule.
    Assign { rule: usize, values: Box<[(usize, Slot, Value)]> },
}

impl Step {
    /// The rule that the step stands for: the last of several.
    pub(crate) fn rule(&self) -> usize {
        match self {
            Self::Run { rule, .. } | Self::Assign { rule, .. } => *rule,
        }
    }
}

/// Which interest applies to the values of a family.
#[derive(Debug, Default)]
pub(crate) struct FamilyInterests {
    /// To those under names that no rule mentions.
    pub(crate) others: u16,
    /// To those under known names, and to scalars by their variable.
    pub(crate) known: Box<[u16]>,
}

/// The transformations of a value that the rules of a phase need, and the candidates for each result.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// The transformations to compute, parents first.
    pub(crate) program: Box<[Instruction]>,
    /// For each node, its place in the program plus one; zero if the program does not have it.
    pub(crate) places: Box<[u16]>,
    /// Candidates that look at the value as it is.
    pub(crate) raw: Option<Bits>,
    /// All candidates that look at any form of it.
    pub(crate) all: Option<Bits>,
    /// Set if any rule uses the value.
    pub(crate) wanted: bool,
}

/// One transformation of a program.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) transformation: crate::transform::Transformation,
    /// The parent's place in the program plus one; zero for the value itself.
    pub(crate) parent: u16,
    /// Set if a case-insensitive search has the same result on input and output.
    pub(crate) same_to_scan: bool,
    /// The candidates for the output.
    pub(crate) candidates: Option<Bits>,
}

/// Names of a family that rules mention.
pub(crate) type NameTable = foldhash::HashMap<Box<[u8]>, u16>;

/// Everything that the rules were compiled to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rules: Vec<PlanRule>,
    /// The phases as the files have them.
    pub(crate) plain: [PhasePlan; 5],
    /// The plans after constant folding.
    pub(crate) folded: [PhasePlan; 5],
    pub(crate) chains: super::chains::Chains,
    pub(crate) names: super::tx::Names,
    pub(crate) tables: [NameTable; FAMILIES],
    /// The variables that rules or their texts look at.
    pub(crate) used: Bits,
    pub(crate) settings: model::Settings,
    pub(crate) store: Arc<super::store::Store>,
    pub(crate) limits: super::limits::TransactionLimits,
}
