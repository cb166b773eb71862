//! Computes for each phase which operators it applies to which values, and which rules a value cannot match.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use foldhash::HashMap;

use super::{TOO_MANY, problem};
use crate::engine::bits::Bits;
use crate::engine::chains::{Chains, Node, RAW};
use crate::engine::expression::Expression;
use crate::engine::plan::{
    FamilyInterests, Instruction, Interest, PhasePlan, Pick, Plan, PlanLink, PlanTarget, Step, ValueSource,
};
use crate::engine::values::{FAMILIES, Family};
use crate::model::{Operator, Place, Problem, Variable};
use crate::operator::Test;
use crate::scan::{Literals, Scan};
use crate::transform::Transformation;

/// Fills in the interests of both plans. The plain plan has no prefilter, because it is used only for the
/// rare transactions in which `ctl` has changed the rules.
pub(super) fn add(plan: &mut Plan, prefilter: bool) -> Result<(), Problem> {
    let mut folded = std::mem::take(&mut plan.folded);
    let mut plain = std::mem::take(&mut plan.plain);
    for phase in &mut folded {
        prepare(plan, phase, prefilter)?;
    }
    for phase in &mut plain {
        prepare(plan, phase, false)?;
    }
    plan.folded = folded;
    plan.plain = plain;
    Ok(())
}

/// The form of a value that a rule reads, and the number of the candidate that stands for the rule, if it has
/// one.
type Want = (Node, Option<u32>);

fn prepare(plan: &Plan, phase: &mut PhasePlan, prefilter: bool) -> Result<(), Problem> {
    let mut literals: Vec<Literals> = Vec::new();
    phase.always = Bits::new(phase.steps.len());
    for (at, step) in phase.steps.iter_mut().enumerate() {
        let Step::Run { rule, candidate, .. } = step else {
            phase.always.insert(at);
            continue;
        };
        let rule = &plan.rules[*rule];
        let required = prefilter.then(|| required(&rule.links[0], &rule.about.links[0].operator)).flatten();
        match required {
            Some(required) => {
                *candidate = Some(literals.len() as u32);
                phase.candidates.push(at as u32);
                literals.push(required);
            }
            None => phase.always.insert(at),
        }
    }
    phase.words = literals.len().div_ceil(64);
    if !literals.is_empty() {
        let entries = (0_u32..).zip(literals.iter().map(Literals::texts));
        phase.scan =
            Some(Scan::new(entries).map_err(|error| problem(first_place(plan), &error.to_string()))?);
    }
    OperatorFamilies::of(plan, phase)
        .into_interests(plan, phase)
        .ok_or_else(|| problem(first_place(plan), TOO_MANY))
}

/// The place that is reported for an error of all rules together.
fn first_place(plan: &Plan) -> &Place {
    // If there are no rules, errors have no place.
    static NOWHERE: LazyLock<Place> = LazyLock::new(|| Place { file: "".into(), line: 1, column: 1 });
    plan.rules.first().map_or(&*NOWHERE, |rule| &rule.about.place)
}

/// A set of literals of which every matching value contains at least one. `None` if the link has no such set,
/// or if some of its inputs are not known at the start of the phase.
fn required(link: &PlanLink, operator: &Operator) -> Option<Literals> {
    let fixed = |target: &PlanTarget| {
        !target.count && matches!(target.source, ValueSource::Units(..) | ValueSource::Scalar(_))
    };
    if link.negated || link.targets.is_empty() || !link.targets.iter().all(fixed) {
        return None;
    }
    match (&link.test, operator) {
        (Test::Rx(pattern) | Test::RxGlobal(pattern), _) => pattern.required().cloned(),
        (Test::Phrases(_), Operator::Pm(phrases)) => Literals::of_words(phrases.iter()),
        (Test::Text(test, Expression::Fixed(text)), _) if test.requires_text() => {
            Literals::of_words(std::iter::once(&**text))
        }
        _ => None,
    }
}

/// The operators to apply to the values of each family.
struct OperatorFamilies {
    /// The operators for all values of the family, each with the names of excepted values.
    all: [Vec<(Want, Vec<u16>)>; FAMILIES],
    /// The operators for the values under one name, each with that name.
    named: [Vec<(Want, u16)>; FAMILIES],
}

impl OperatorFamilies {
    fn of(plan: &Plan, phase: &PhasePlan) -> Self {
        let mut gathered =
            Self { all: std::array::from_fn(|_| Vec::new()), named: std::array::from_fn(|_| Vec::new()) };
        for step in &phase.steps {
            let Step::Run { rule, candidate, .. } = step else { continue };
            let link = &plan.rules[*rule].links[0];
            for target in link.targets.iter().filter(|target| !target.count) {
                let nodes: &[Node] = if link.steps.is_empty() { &[link.node] } else { &link.steps };
                for node in nodes {
                    gathered.want(target, (*node, *candidate));
                }
            }
        }
        gathered
    }

    fn want(&mut self, target: &PlanTarget, want: Want) {
        match (target.source, &target.pick) {
            (ValueSource::Scalar(variable), _) => {
                self.named[Family::Scalars as usize].push((want, variable as u16));
            }
            (ValueSource::Units(family, _), Pick::Name(number, _)) => {
                self.named[family as usize].push((want, *number));
            }
            (ValueSource::Units(family, _), Pick::All | Pick::Pattern(..)) => {
                let without = target.without.iter().filter_map(|pick| match pick {
                    Pick::Name(number, _) => Some(*number),
                    _ => None,
                });
                self.all[family as usize].push((want, without.collect()));
            }
            _ => {}
        }
    }

    fn into_interests(self, plan: &Plan, phase: &mut PhasePlan) -> Option<()> {
        let mut made = Interests {
            chains: &plan.chains,
            candidates: phase.candidates.len(),
            places: HashMap::default(),
            list: Vec::new(),
        };
        made.place(Vec::new())?;
        for family in 0..FAMILIES {
            let (all, named) = (&self.all[family], &self.named[family]);
            let known = if family == Family::Scalars as usize {
                Variable::ALL.len()
            } else {
                plan.tables[family].len()
            };
            let others = made.place(all.iter().map(|(want, _)| *want).collect())?;
            let mut known = vec![others; known];
            // Names with the same operators share an interest, which is computed only once. There are many such names if
            // updates exclude them from all rules.
            let mut made_for: HashMap<Apart, u16> = HashMap::default();
            for (name, apart) in apart(all, named) {
                let place = match made_for.get(&apart) {
                    Some(place) => *place,
                    None => {
                        let place = made.place(apart.wants(all))?;
                        made_for.insert(apart, place);
                        place
                    }
                };
                if let Some(known) = known.get_mut(usize::from(name)) {
                    *known = place;
                }
            }
            phase.families[family] = FamilyInterests { others, known: known.into() };
        }
        phase.interests = made.list;
        Some(())
    }
}

/// The difference between the operators for values of one name and those for all values of the family.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Apart {
    /// Positions, ascending, of the operators of the family that skip these values.
    without: Vec<u32>,
    own: Vec<Want>,
}

impl Apart {
    fn wants(&self, all: &[(Want, Vec<u16>)]) -> Vec<Want> {
        let mut without = self.without.iter().peekable();
        let general = (0_u32..).zip(all).filter(|(at, _)| without.next_if_eq(&at).is_none());
        general.map(|(_, (want, _))| *want).chain(self.own.iter().copied()).collect()
    }
}

/// The difference for each name with operators that differ from those of the family.
fn apart(all: &[(Want, Vec<u16>)], named: &[(Want, u16)]) -> BTreeMap<u16, Apart> {
    let mut apart: BTreeMap<u16, Apart> = BTreeMap::new();
    for (at, (_, without)) in (0_u32..).zip(all) {
        for name in without {
            let without = &mut apart.entry(*name).or_default().without;
            if without.last() != Some(&at) {
                without.push(at);
            }
        }
    }
    for (want, name) in named {
        apart.entry(*name).or_default().own.push(*want);
    }
    apart
}

struct Interests<'a> {
    chains: &'a Chains,
    candidates: usize,
    places: HashMap<Vec<Want>, u16>,
    list: Vec<Interest>,
}

impl Interests<'_> {
    /// The number of the interest with these operators, which is added if it is new.
    fn place(&mut self, mut wants: Vec<Want>) -> Option<u16> {
        wants.sort_unstable();
        wants.dedup();
        if let Some(place) = self.places.get(&wants) {
            return Some(*place);
        }
        let place = u16::try_from(self.list.len()).ok()?;
        self.list.push(self.interest(&wants)?);
        self.places.insert(wants, place);
        Some(place)
    }

    fn interest(&self, wants: &[Want]) -> Option<Interest> {
        let mut nodes: Vec<Node> = wants.iter().flat_map(|(node, _)| self.chains.path(*node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut places = vec![0_u16; self.chains.len()];
        for (at, node) in nodes.iter().enumerate() {
            places[usize::from(*node)] = u16::try_from(at + 1).ok()?;
        }
        let program = nodes.iter().map(|node| {
            let (parent, transformation) = self.chains.node(*node)?;
            Some(Instruction {
                transformation,
                parent: places[usize::from(parent)],
                same_to_scan: matches!(transformation, Transformation::Lowercase | Transformation::Uppercase),
                candidates: self.candidates_at(wants, Some(*node)),
            })
        });
        Some(Interest {
            program: program.collect::<Option<_>>()?,
            raw: self.candidates_at(wants, Some(RAW)),
            all: self.candidates_at(wants, None),
            wanted: !wants.is_empty(),
            places: places.into(),
        })
    }

    fn candidates_at(&self, wants: &[Want], node: Option<Node>) -> Option<Bits> {
        let mut bits = Bits::new(self.candidates);
        for (at, candidate) in wants {
            if let Some(candidate) = candidate
                && node.is_none_or(|node| node == *at)
            {
                bits.insert(*candidate as usize);
            }
        }
        (!bits.is_empty()).then_some(bits)
    }
}
