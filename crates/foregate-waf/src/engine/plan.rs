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

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct PlanRule {
    /// The metadata of the rule.
    pub(crate) about: model::Rule,
    /// The links, in order.
    pub(crate) links: Box<[PlanLink]>,
    pub(crate) message: Option<Expression>,
    pub(crate) data: Option<Expression>,
    pub(crate) tags: Box<[Expression]>,
    /// Set if the rule exempts requests from inspection: it allows them, or removes rules, targets or bodies.
    pub(crate) lets_through: bool,
    /// The target of `redirect`.
    pub(crate) redirect: Option<Expression>,
}

/// A compiled link.
#[derive(Debug)]
pub(crate) struct PlanLink {
    pub(crate) targets: Box<[PlanTarget]>,
    pub(crate) test: Test,
    pub(crate) negated: bool,
    /// The chain of transformations.
    pub(crate) node: Node,
    /// With `multiMatch`: the node of each step of the chain, beginning with the untransformed value. Otherwise
    /// empty.
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
    /// The values are in a family.
    Units(Family, Half),
    /// A single value, in the family of scalars.
    Scalar(Variable),
    /// The values are in `TX`.
    Tx,
    /// The values are in a collection of the store.
    Stored(PersistentCollection),
    /// The values are in `ENV`.
    Env,
    /// The list of matches: values or names, all or the last.
    Matched { names: bool, all: bool },
    /// The values are texts and numbers of the running rule.
    Rule,
    /// Computed when a rule reads it.
    Computed(Variable),
}

/// The selection of a source's values.
#[derive(Debug)]
pub(crate) enum Pick {
    /// All values.
    All,
    /// The values with one name: the number of the name in the family's table (or its slot of `TX`), and the name
    /// in small letters.
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

/// The effect of a matching link.
#[derive(Debug)]
pub(crate) enum Effect {
    SetTx(Name, VariableChange),
    /// Changes a variable of a collection in the store.
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
    /// The last phase and rule at which the folded plan relies on one of these rules without running it. If the rules
    /// are removed before that point, the transaction continues with the plain plan.
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
    /// The steps of the phase, in order.
    pub(crate) steps: Vec<Step>,
    /// Steps that always run, whatever the values are.
    pub(crate) always: Bits,
    /// The scan for the literals of all candidates, if there are any.
    pub(crate) scan: Option<Scan>,
    /// The step of each candidate.
    pub(crate) candidates: Vec<u32>,
    /// The number of 64-bit words in a set of candidates.
    pub(crate) words: usize,
    pub(crate) interests: Vec<Interest>,
    /// The interest that applies to the values of each family.
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
    /// Run a rule. `candidate` is its number among the candidates.
    Run { rule: usize, candidate: Option<u32>, skip: usize },
    /// Assign the values that some rules, up to this one, are known to set. Each value comes with its rule.
    Assign { rule: usize, values: Box<[(usize, Slot, Value)]> },
}

impl Step {
    /// The rule that the step stands for. If there are several, the last of them.
    pub(crate) fn rule(&self) -> usize {
        match self {
            Self::Run { rule, .. } | Self::Assign { rule, .. } => *rule,
        }
    }
}

/// The interests that apply to the values of a family.
#[derive(Debug, Default)]
pub(crate) struct FamilyInterests {
    /// The interest for values with names that no rule mentions.
    pub(crate) others: u16,
    /// The interest for values with each known name. For scalars, the interest for each variable.
    pub(crate) known: Box<[u16]>,
}

/// The transformations of a value that the rules of a phase need, and the candidates for each result.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// The transformations to compute, parents first.
    pub(crate) program: Box<[Instruction]>,
    /// The position of each node in the program, plus one; zero if the program does not contain the node.
    pub(crate) places: Box<[u16]>,
    /// The candidates that look at the untransformed value.
    pub(crate) raw: Option<Bits>,
    /// All candidates that look at any form of the value.
    pub(crate) all: Option<Bits>,
    /// Set if any rule uses the value.
    pub(crate) wanted: bool,
}

/// One transformation of a program.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) transformation: crate::transform::Transformation,
    /// The position of the parent in the program, plus one; zero if the parent is the value itself.
    pub(crate) parent: u16,
    /// Set if the transformation does not change the result of a case-insensitive search.
    pub(crate) same_to_scan: bool,
    /// The candidates that look at the output of the transformation.
    pub(crate) candidates: Option<Bits>,
}

/// The names of a family that rules mention, with their numbers.
pub(crate) type NameTable = foldhash::HashMap<Box<[u8]>, u16>;

/// Everything that the rules were compiled to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rules: Vec<PlanRule>,
    /// The phases without constant folding.
    pub(crate) plain: [PhasePlan; 5],
    /// The phases after constant folding.
    pub(crate) folded: [PhasePlan; 5],
    pub(crate) chains: super::chains::Chains,
    pub(crate) names: super::tx::Names,
    pub(crate) tables: [NameTable; FAMILIES],
    /// The variables that rules read, also in texts with macros.
    pub(crate) used: Bits,
    pub(crate) settings: model::Settings,
    pub(crate) store: Arc<super::store::Store>,
    pub(crate) limits: super::limits::TransactionLimits,
}
