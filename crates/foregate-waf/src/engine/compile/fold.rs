//! Constant folding: evaluates rules in advance if they read only variables that other rules have set
//! to constants.
//!
//! The paranoia levels of the Core Rule Set consist of such rules: `TX:DETECTION_PARANOIA_LEVEL "@lt 2"`
//! skips the rules after it. The fold runs the rules of a phase in order over the known values of variables.
//! A rule with a known outcome is removed from the plan, or replaced by the values that it sets. The rules
//! that it skips are removed as well.
//!
//! At run time, `ctl` can remove a rule on which the fold relies. The transaction then continues with the
//! plain plan (see `Removal::unfolds`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::of_phase;
use crate::engine::bits::Bits;
use crate::engine::plan::{
    Amount, Effect, Name, Pick, Plan, PlanLink, PlanRule, Step, ValueSource, VariableChange,
};
use crate::engine::tx::{Slot, Value, leading_number, push_value};
use crate::engine::values::Text;
use crate::model::{Disruptive, Phase};
use crate::operator::{Argument, GROUPS, Test};

/// Fills the steps of both plans.
pub(super) fn plan(plan: &mut Plan) {
    let mut folder = Folder {
        plan,
        known: vec![Some(Value::Unset); plan.names.len()],
        uncertain: false,
        reliances: Vec::new(),
        phase: Phase::RequestHeaders,
    };
    let targets_removed = plan.rules.iter().flat_map(|rule| &rule.links).flat_map(|link| &link.effects);
    let open = targets_removed
        .into_iter()
        .any(|effect| matches!(effect, Effect::RemoveTarget(_, ValueSource::Tx, _)));
    let folded = Phase::ALL.map(|phase| match phase {
        // `ctl` may remove targets in `TX` from rules, so the outcome of rules over `TX` is unknown.
        _ if open => of_phase(folder.plan, phase).map(run).collect(),
        // The last phase runs even if a rule has ended the earlier ones, so no values are known there.
        Phase::Logging => of_phase(folder.plan, phase).map(run).collect(),
        _ => folder.phase(phase),
    });
    let reliances = folder.reliances;
    for (phase, steps) in Phase::ALL.into_iter().zip(folded) {
        plan.folded[phase as usize].steps = steps;
        plan.plain[phase as usize].steps = of_phase(plan, phase).map(run).collect();
    }
    let skips: Vec<Option<usize>> = plan.rules.iter().map(|rule| rule.about.skip_to).collect();
    for phase in plan.folded.iter_mut().chain(&mut plan.plain) {
        for at in 0..phase.steps.len() {
            let to = skips[phase.steps[at].rule()].map_or(0, |to| phase.step_at(to));
            if let Step::Run { skip, .. } = &mut phase.steps[at] {
                *skip = to;
            }
        }
    }
    for effect in plan.rules.iter_mut().flat_map(|rule| &mut rule.links).flat_map(|link| &mut link.effects) {
        if let Effect::Remove(removal) = effect {
            removal.unfolds = reliances
                .iter()
                .filter(|reliance| reliance.broken_by(&removal.rules))
                .map(Reliance::at)
                .max();
        }
    }
}

fn run(rule: usize) -> Step {
    Step::Run { rule, candidate: None, skip: 0 }
}

/// A rule that the folded plan does not run, although the plan relies on the outcome.
struct Reliance {
    phase: Phase,
    rule: usize,
    /// Set if assignments replaced the rule.
    assigns: bool,
    /// The rules of the phase that it skips.
    skips: Vec<usize>,
}

impl Reliance {
    /// Returns true if the folded plan is invalid once these rules are removed. It stays valid if the rule only
    /// skips others and all of those are removed too.
    fn broken_by(&self, removed: &Bits) -> bool {
        removed.contains(self.rule)
            && (self.assigns || !self.skips.iter().all(|rule| removed.contains(*rule)))
    }

    fn at(&self) -> (Phase, usize) {
        (self.phase, self.rule)
    }
}

struct Folder<'a> {
    plan: &'a Plan,
    /// The value of each slot; `None` if it is not known.
    known: Vec<Option<Value>>,
    /// Set once a rule may have ended the phase. Assignments after that rule are uncertain.
    uncertain: bool,
    reliances: Vec<Reliance>,
    phase: Phase,
}

/// The outcome of a rule.
enum Outcome {
    /// The outcome depends on the request.
    Open,
    /// The outcome is known: the values that the rule sets, and true if it matches.
    Known { sets: Vec<(Slot, Value)>, matches: bool },
}

impl Folder<'_> {
    fn phase(&mut self, phase: Phase) -> Vec<Step> {
        self.phase = phase;
        let rules: Vec<usize> = of_phase(self.plan, phase).collect();
        let mut steps: Vec<Step> = Vec::with_capacity(rules.len());
        // The positions to which the remaining rules may skip.
        let mut landings: BTreeSet<usize> = BTreeSet::new();
        let mut next = 0;
        while let Some(&at) = rules.get(next) {
            next += 1;
            let rule = &self.plan.rules[at];
            let conditional = self.uncertain || landings.last().is_some_and(|landing| *landing > at);
            let skip_to = rule.about.skip_to;
            let lands_inside = |to: usize| at + 1 < to && landings.range(at + 1..to).next().is_some();
            match self.outcome(rule) {
                Outcome::Known { sets, matches } if !(matches && skip_to.is_some_and(lands_inside)) => {
                    let to = skip_to.filter(|_| matches).unwrap_or(at + 1);
                    let skips: Vec<usize> =
                        rules[next..].iter().copied().take_while(|rule| *rule < to).collect();
                    next += skips.len();
                    if !sets.is_empty() || !skips.is_empty() {
                        self.reliances.push(Reliance { phase, rule: at, assigns: !sets.is_empty(), skips });
                    }
                    for (slot, value) in &sets {
                        self.learn(*slot, *value, conditional);
                    }
                    assign(&mut steps, at, sets, &landings);
                }
                _ => {
                    steps.push(run(at));
                    landings.extend(skip_to);
                    self.forget(rule);
                }
            }
        }
        steps
    }

    fn learn(&mut self, slot: Slot, value: Value, conditional: bool) {
        let known = &mut self.known[usize::from(slot)];
        if !conditional {
            *known = Some(value);
        } else if *known != Some(value) {
            *known = None;
        }
    }

    /// Forgets the variables that a rule may change at run time.
    fn forget(&mut self, rule: &PlanRule) {
        for link in &rule.links {
            if link.capture {
                self.known[..GROUPS].fill(None);
            }
            for effect in &link.effects {
                match effect {
                    Effect::SetTx(Name::Slot(slot), _) => self.known[usize::from(*slot)] = None,
                    Effect::SetTx(Name::Made(name), _) => {
                        let beginning = name.beginning().to_ascii_lowercase();
                        for (slot, known) in self.known.iter_mut().enumerate() {
                            if self.plan.names.name(slot as Slot).starts_with(&beginning) {
                                *known = None;
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        self.uncertain |= matches!(rule.about.disruptive, Disruptive::Allow(_));
    }

    fn outcome(&self, rule: &PlanRule) -> Outcome {
        let mut sets = Vec::new();
        for link in &rule.links {
            let Some(times) = self.matches(link, &sets) else { return Outcome::Open };
            if times == 0 {
                return Outcome::Known { sets, matches: false };
            }
            if link.capture {
                return Outcome::Open;
            }
            for effect in (0..times).flat_map(|_| &link.effects) {
                let Some(set) = self.set(effect, &sets) else { return Outcome::Open };
                sets.push(set);
            }
        }
        let about = &rule.about;
        if about.log || about.audit_log || about.severity.is_some() || about.disruptive != Disruptive::Pass {
            return Outcome::Open;
        }
        Outcome::Known { sets, matches: true }
    }

    /// The number of a link's values that match; `None` if it is not known.
    fn matches(&self, link: &PlanLink, sets: &[(Slot, Value)]) -> Option<usize> {
        if link.targets.is_empty() {
            return matches!(link.test, Test::Always).then_some(usize::from(!link.negated));
        }
        let mut times = 0;
        for target in &link.targets {
            let (ValueSource::Tx, Pick::Name(slot, _), true) =
                (target.source, &target.pick, target.without.is_empty())
            else {
                return None;
            };
            let value = self.value(*slot, sets)?;
            let value = match (target.count, value) {
                (true, value) => Value::Number(i64::from(value != Value::Unset)),
                (false, Value::Unset) => continue,
                (false, value) => value,
            };
            times += usize::from(self.passes(link, value, sets)?);
        }
        Some(times)
    }

    fn passes(&self, link: &PlanLink, value: Value, sets: &[(Slot, Value)]) -> Option<bool> {
        if !link.steps.is_empty() {
            return None;
        }
        let mut text = Cow::Owned(self.text(value));
        for node in self.plan.chains.path(link.node) {
            let (_, transformation) = self.plan.chains.node(node)?;
            let map = self.plan.settings.unicode_map.as_deref();
            text = Cow::Owned(transformation.apply_with(&text, map).into_owned());
        }
        let operand;
        let argument = match &link.test {
            Test::Compare(_, amount) => Argument::Number(self.number(amount, sets)?),
            Test::Text(_, expression) => {
                operand = match (expression.slot(), expression.beginning(), expression) {
                    (Some(slot), ..) => self.text(self.value(slot, sets)?),
                    (None, text, crate::engine::expression::Expression::Fixed(_)) => text.to_vec(),
                    _ => return None,
                };
                Argument::Text(&operand)
            }
            _ => Argument::None,
        };
        Some(link.test.passes(&text, argument, None) != link.negated)
    }

    fn set(&self, effect: &Effect, sets: &[(Slot, Value)]) -> Option<(Slot, Value)> {
        let Effect::SetTx(Name::Slot(slot), change) = effect else { return None };
        let before = || self.value(*slot, sets).map(|value| leading_number(&self.text(value)));
        let value = match change {
            VariableChange::Set(value) => *value,
            // An unset variable expands to the empty text, which is not a known value here.
            VariableChange::SetMade(expression) => {
                self.value(expression.slot()?, sets).filter(|value| *value != Value::Unset)?
            }
            VariableChange::Add(amount) => {
                Value::Number(before()?.saturating_add(self.number(amount, sets)?))
            }
            VariableChange::Subtract(amount) => {
                Value::Number(before()?.saturating_sub(self.number(amount, sets)?))
            }
            VariableChange::Unset => Value::Unset,
        };
        Some((*slot, value))
    }

    fn number(&self, amount: &Amount, sets: &[(Slot, Value)]) -> Option<i64> {
        match amount {
            Amount::Fixed(number) => Some(*number),
            Amount::Slot(slot) => Some(leading_number(&self.text(self.value(*slot, sets)?))),
            Amount::Made(_) => None,
        }
    }

    /// The known value of a slot. Assignments of the present rule (`sets`) come first.
    fn value(&self, slot: Slot, sets: &[(Slot, Value)]) -> Option<Value> {
        let own = sets.iter().rev().find(|(set, _)| *set == slot).map(|(_, value)| *value);
        own.or(self.known[usize::from(slot)])
    }

    fn text(&self, value: Value) -> Vec<u8> {
        let mut out = Vec::new();
        // Known values are constants, so the text of a transaction is not needed.
        push_value(value, &self.plan.names, &Text::default(), &mut out);
        out
    }
}

/// Adds assignments to the last step, if that is also an assignment and no jump lands between the two.
/// Otherwise adds a new step.
fn assign(steps: &mut Vec<Step>, at: usize, sets: Vec<(Slot, Value)>, landings: &BTreeSet<usize>) {
    if sets.is_empty() {
        return;
    }
    let mut all: Vec<(usize, Slot, Value)> = Vec::new();
    if let Some(Step::Assign { rule, values }) = steps.last()
        && landings.range(*rule + 1..=at).next().is_none()
    {
        all.extend_from_slice(values);
        steps.pop();
    }
    all.extend(sets.into_iter().map(|(slot, value)| (at, slot, value)));
    steps.push(Step::Assign { rule: at, values: all.into() });
}
