//! Runs a phase: the live rules in order, and each of their links over the values of its targets.

use super::bits;
use super::budget::Over;
use super::chains::{Node, RAW};
use super::expand::{Item, View};
use super::expression::Expression;
use super::feed;
use super::limits::{Beyond, LOOK};
use super::plan::{Effect, PhasePlan, Pick, PlanLink, PlanTarget, Step, ValueSource};
use super::state::{MatchedValue, NameRef};
use super::tx::{self, Value};
use super::values::{Family, Span, UNCHANGED, UNFED, Unit};
use super::verdict::Verdict;
use crate::model::{EngineMode, Phase, Variable};
use crate::operator::{Argument, Captures, Checksum, Test};
use crate::scan::Pattern;

/// For each rule that runs, checking this many removed targets costs one unit of work.
const REMOVED: u64 = 16;

/// A transaction together with its plan.
pub(crate) struct Run<'a> {
    pub(crate) view: View<'a>,
}

/// The argument of a link's operator, its macros expanded.
#[derive(Clone, Copy)]
enum HeldValue<'p> {
    None,
    Fixed(&'p [u8]),
    Text(Span),
    Number(i64),
}

impl<'p> Run<'p> {
    /// Runs a phase and returns its verdict.
    pub(crate) fn phase(&mut self, phase: Phase) -> Verdict {
        self.view.state.phase = phase;
        if self.view.state.switches.mode == EngineMode::Off || self.view.state.allowed.covers(phase) {
            return Verdict::Pass;
        }
        let mut plan = self.phase_plan(phase);
        let map = self.view.plan.settings.unicode_map.as_deref();
        feed::feed(self.view.state, map, plan);
        let mut at = 0;
        while let Some(step) = self.view.state.live.next(at) {
            at = step + 1;
            if let Some(verdict) = self.beyond() {
                return verdict;
            }
            let (rule, candidate, skip) = match &plan.steps[step] {
                Step::Run { rule, candidate, skip } => (*rule, *candidate, *skip),
                Step::Assign { values, .. } => {
                    self.assign(values);
                    continue;
                }
            };
            let runs =
                phase == Phase::Logging || !self.view.state.budget.is_exhausted() || self.is_cheap(rule);
            if !runs || self.is_removed(rule) || !self.rule(rule, candidate) {
                continue;
            }
            if let Some(verdict) = self.finish(rule) {
                return verdict;
            }
            if self.view.state.switches.mode == EngineMode::Off || self.view.state.allowed.covers(phase) {
                return Verdict::Pass;
            }
            if self.ends_phase(rule) {
                break;
            }
            at = at.max(skip);
            let current = self.phase_plan(phase);
            if !std::ptr::eq(plan, current) {
                plan = current;
                at = plan.step_at(self.view.plan.rules[rule].about.skip_to.unwrap_or(0).max(rule + 1));
                self.view.state.live.copy_from(&plan.always);
            }
        }
        self.beyond().unwrap_or(Verdict::Pass)
    }

    fn phase_plan(&self, phase: Phase) -> &'p PhasePlan {
        let plans = if self.view.state.folded { &self.view.plan.folded } else { &self.view.plan.plain };
        &plans[phase as usize]
    }

    /// The verdict for a transaction over its budget. `None` if rules continue with the accepted values; rules of
    /// the logging phase always do.
    fn beyond(&mut self) -> Option<Verdict> {
        let state = &mut *self.view.state;
        state.budget.over().filter(|_| state.phase != Phase::Logging)?;
        let Beyond::Deny(status) = self.view.plan.limits.beyond else { return None };
        if state.switches.mode == EngineMode::On {
            return Some(Verdict::Deny { status, rule: None });
        }
        state.would.exceed(status, state.phase);
        None
    }

    /// Returns true if a rule reads only named variables of `TX`, and its operators do not search texts. Such rules add
    /// up a score and compare it. They run even when all work is spent.
    fn is_cheap(&self, rule: usize) -> bool {
        let named =
            |target: &PlanTarget| target.source == ValueSource::Tx && matches!(target.pick, Pick::Name(..));
        let links = &self.view.plan.rules[rule].links;
        links.iter().all(|link| !link.test.is_search() && link.targets.iter().all(named))
    }

    fn assign(&mut self, values: &[(usize, tx::Slot, Value)]) {
        for (rule, slot, value) in values {
            if !self.is_removed(*rule) {
                self.view.state.tx.set(*slot, *value);
            }
        }
    }

    fn is_removed(&self, rule: usize) -> bool {
        self.view.state.removed.as_ref().is_some_and(|removed| removed.contains(rule))
    }

    /// Runs a rule's links. Returns true if all of them match.
    fn rule(&mut self, rule: usize, candidate: Option<u32>) -> bool {
        self.view.state.rule = rule;
        self.view.state.matched.clear();
        self.find_removed();
        let links = &self.view.plan.rules[rule].links;
        links
            .iter()
            .enumerate()
            .all(|(number, link)| self.link(link, number, candidate.filter(|_| number == 0)))
    }

    /// Finds the exclusions by `ctl` that apply to the running rule. Done once for each rule, because there may
    /// be many exclusions and many values.
    fn find_removed(&mut self) {
        self.view.state.removed_here.clear();
        if self.view.state.removed_targets.is_empty() {
            return;
        }
        self.view.state.budget.spend(self.view.state.removed_targets.len() as u64 / REMOVED);
        let mut here = std::mem::take(&mut self.view.state.removed_here);
        here.extend(self.view.state.removed_targets.iter().filter(|place| self.is_removed_here(**place)));
        self.view.state.removed_here = here;
    }

    /// Returns true if the exclusion in this rule, link and effect applies to the running rule.
    pub(crate) fn is_removed_here(&self, (rule, link, effect): (usize, usize, usize)) -> bool {
        match &self.view.plan.rules[rule].links[link].effects[effect] {
            Effect::RemoveTarget(rules, ..) => rules.contains(self.view.state.rule),
            _ => false,
        }
    }

    fn link(&mut self, link: &'p PlanLink, number: usize, candidate: Option<u32>) -> bool {
        if link.targets.is_empty() {
            let matches = matches!(link.test, Test::Always) != link.negated;
            if matches {
                self.effects(link, number);
            }
            return matches;
        }
        let mut held = None;
        let mut matched = false;
        for target in &link.targets {
            let mut look = Look { run: self, link, number, target, held: &mut held };
            matched |= match target.source {
                _ if target.count => look.count(),
                ValueSource::Units(family, half) => {
                    let range = look.run.view.state.values.range(family, half);
                    let mut any = false;
                    for at in range {
                        any |= look.unit(family, at, candidate);
                    }
                    any
                }
                ValueSource::Scalar(variable) => look.scalar(variable, candidate),
                _ => look.others(),
            };
        }
        matched
    }

    fn held(&mut self, test: &'p Test) -> HeldValue<'p> {
        match test {
            Test::Text(_, Expression::Fixed(text)) => HeldValue::Fixed(text),
            Test::Text(_, text) => HeldValue::Text(self.view.expand(text)),
            Test::Compare(_, amount) => HeldValue::Number(self.view.amount(amount)),
            _ => HeldValue::None,
        }
    }

    /// The output of a chain of transformations for a value.
    fn form(&mut self, unit: &Unit, node: Node) -> Span {
        if node == RAW || unit.forms == UNCHANGED {
            return unit.value;
        }
        if unit.forms != UNFED
            && let Some(interest) =
                self.phase_plan(self.view.state.phase).interests.get(usize::from(unit.interest))
            && let Some(place) = usize::from(interest.places[usize::from(node)]).checked_sub(1)
        {
            return self.view.state.forms[unit.forms as usize + place];
        }
        self.view.transformed(unit.value, node)
    }
}

/// The evaluation of one target of one link.
struct Look<'r, 'p> {
    run: &'r mut Run<'p>,
    link: &'p PlanLink,
    number: usize,
    target: &'p PlanTarget,
    /// The operator's expanded argument; `None` until it is needed.
    held: &'r mut Option<HeldValue<'p>>,
}

impl Look<'_, '_> {
    /// Evaluates a scalar. If it has two values, the form that was sent and the normal form, one match is enough,
    /// and the rule's actions are performed once. A rule that exempts requests uses only the normal form, because
    /// the origin gets that form.
    fn scalar(&mut self, variable: Variable, candidate: Option<u32>) -> bool {
        let run = &*self.run;
        let Some(sent) = run.view.state.values.scalar_place(variable) else { return false };
        match run.view.state.values.normal_place(variable) {
            None => self.unit(Family::Scalars, sent, candidate),
            Some(normal) if run.view.plan.rules[run.view.state.rule].lets_through => {
                self.unit(Family::Scalars, normal, candidate)
            }
            Some(normal) => [sent, normal].into_iter().any(|at| self.unit(Family::Scalars, at, candidate)),
        }
    }

    /// Evaluates a value of a family.
    fn unit(&mut self, family: Family, at: usize, candidate: Option<u32>) -> bool {
        let unit = self.run.view.state.values.units(family)[at];
        if let Some(candidate) = candidate
            && unit.candidates != UNFED
            && !bits::contains(&self.run.view.state.words[unit.candidates as usize..], candidate as usize)
        {
            return false;
        }
        let name = if family == Family::Scalars { NameRef::None } else { NameRef::Span(unit.name) };
        if family != Family::Scalars {
            let name = self.run.view.state.values.text.get(unit.name);
            if !self.target.pick.takes(unit.known, name)
                || self.target.without.iter().any(|pick| pick.takes(unit.known, name))
            {
                return false;
            }
        }
        if self.is_removed(unit.known, name) {
            return false;
        }
        if self.link.steps.is_empty() {
            let value = self.run.form(&unit, self.link.node);
            return self.test(name, Item::Text(value));
        }
        let mut matched = false;
        let mut before = None;
        for node in &self.link.steps {
            let value = self.run.form(&unit, *node);
            if before.replace(value) != Some(value) {
                matched |= self.test(name, Item::Text(value));
            }
        }
        matched
    }

    /// Evaluates a value that was not prepared at the start of the phase.
    fn loose(&mut self, name: NameRef, item: Item) -> bool {
        if self.is_removed(u16::MAX, name) {
            return false;
        }
        let number = matches!(self.link.test, Test::Compare(..)) && self.link.node == RAW;
        if let (Item::Number(_), true) = (item, number) {
            return self.test(name, item);
        }
        let value = self.run.view.text(item);
        if self.link.steps.is_empty() {
            let value = self.run.view.transformed(value, self.link.node);
            return self.test(name, Item::Text(value));
        }
        let mut matched = false;
        let mut before = None;
        for node in &self.link.steps {
            let value = self.run.view.transformed(value, *node);
            if before.replace(value) != Some(value) {
                matched |= self.test(name, Item::Text(value));
            }
        }
        matched
    }

    /// Evaluates values that change while rules run.
    fn others(&mut self) -> bool {
        if let (ValueSource::Tx, Pick::Name(slot, _), true) =
            (self.target.source, &self.target.pick, self.target.without.is_empty())
        {
            let value = self.run.view.state.tx.get(*slot);
            return self.run.view.item(value).is_some_and(|item| self.loose(NameRef::Slot(*slot), item));
        }
        let mut found = Vec::new();
        self.run.view.collect(self.target.source, &self.target.pick, &self.target.without, &mut found);
        let mut matched = false;
        for (name, item) in found {
            matched |= self.loose(name, item);
        }
        matched
    }

    /// Evaluates the number of values.
    fn count(&mut self) -> bool {
        let target = self.target;
        let count = match target.source {
            ValueSource::Units(family, half) => {
                let range = self.run.view.state.values.range(family, half);
                let mut count = 0;
                for at in range {
                    let unit = self.run.view.state.values.units(family)[at];
                    let name = self.run.view.state.values.text.get(unit.name);
                    let picked = target.pick.takes(unit.known, name)
                        && !target.without.iter().any(|pick| pick.takes(unit.known, name));
                    count += i64::from(picked && !self.is_removed(unit.known, NameRef::Span(unit.name)));
                }
                count
            }
            ValueSource::Scalar(variable) => {
                i64::from(self.run.view.state.values.scalar_place(variable).is_some())
            }
            source => match (source, &target.pick) {
                (ValueSource::Tx, Pick::Name(slot, _)) => {
                    i64::from(self.run.view.state.tx.get(*slot) != Value::Unset)
                }
                (_, pick) => {
                    let mut found = Vec::new();
                    self.run.view.collect(source, pick, &target.without, &mut found);
                    found.len() as i64
                }
            },
        };
        let name = match &target.pick {
            Pick::Name(_, name) => NameRef::Span(self.run.view.push(name)),
            _ => NameRef::None,
        };
        self.test(name, Item::Number(count))
    }

    /// Returns true if `ctl` excluded a value from the running rule.
    fn is_removed(&self, known: u16, name: NameRef) -> bool {
        let state = &*self.run.view.state;
        state.removed_here.iter().any(|(rule, link, effect)| {
            let effect = &self.run.view.plan.rules[*rule].links[*link].effects[*effect];
            let Effect::RemoveTarget(_, source, pick) = effect else { return false };
            if *source != self.target.source {
                return false;
            }
            match (pick, name) {
                (Pick::All, _) => true,
                (_, NameRef::None) => false,
                (Pick::Name(slot, _), NameRef::Slot(name)) => *slot == name,
                (Pick::Name(number, lower), NameRef::Span(name)) => match source {
                    ValueSource::Units(..) => *number == known,
                    _ => state.values.text.get(name).eq_ignore_ascii_case(lower),
                },
                (Pick::Pattern(_, slots), NameRef::Slot(name)) => slots.contains(&name),
                (Pick::Pattern(pattern, _), NameRef::Span(name)) => {
                    pattern.is_match(state.values.text.get(name))
                }
            }
        })
    }

    fn test(&mut self, name: NameRef, item: Item) -> bool {
        let link = self.link;
        let held = match *self.held {
            Some(held) => held,
            None => {
                let held = self.run.held(&link.test);
                *self.held = Some(held);
                held
            }
        };
        if let (Item::Number(number), Test::Compare(comparison, _), HeldValue::Number(argument)) =
            (item, &link.test, held)
        {
            if comparison.holds(number, argument) == link.negated {
                return false;
            }
            let value = self.run.view.text(item);
            self.hit(name, value, None);
            return true;
        }
        let value = self.run.view.text(item);
        if link.test.is_search() {
            self.run.view.state.looks += 1;
            if !self.run.view.state.budget.spend(value.len() as u64 + LOOK) {
                return false;
            }
        }
        if let Test::Checked(checksum, pattern) = &link.test {
            return self.checked(*checksum, pattern, name, value);
        }
        let text = &self.run.view.state.values.text;
        let argument = match held {
            HeldValue::None => Argument::None,
            HeldValue::Fixed(argument) => Argument::Text(argument),
            HeldValue::Text(span) => Argument::Text(text.get(span)),
            HeldValue::Number(number) => Argument::Number(number),
        };
        let mut captured = (link.capture && !link.negated).then(Captures::default);
        if link.test.passes(text.get(value), argument, captured.as_mut()) == link.negated {
            return false;
        }
        self.hit(name, value, captured);
        true
    }

    /// Searches a value for a number with valid check digits. All matches are tried, since invalid numbers before
    /// a valid one must not hide it. Each try counts as work.
    fn checked(&mut self, checksum: Checksum, pattern: &Pattern, name: NameRef, value: Span) -> bool {
        let link = self.link;
        let mut from = 0;
        let found = loop {
            let text = self.run.view.state.values.text.get(value);
            let rest = if from <= text.len() { pattern.captures(text, from) } else { None };
            let Some(whole) = rest.and_then(|[whole, ..]| whole) else { break None };
            if checksum.holds(&text[whole.clone()]) {
                break Some(whole);
            }
            if !self.run.view.state.budget.spend((whole.end - from) as u64 + LOOK) {
                return false;
            }
            // A match with wrong check digits may overlap a valid number.
            from = whole.start + 1;
        };
        if found.is_some() == link.negated {
            return false;
        }
        let captured = found.filter(|_| link.capture).map(|whole| {
            let mut captured = Captures::default();
            captured.groups[0] = Some((whole.start, whole.end));
            captured
        });
        self.hit(name, value, captured);
        true
    }

    /// Handles a match of a value.
    fn hit(&mut self, name: NameRef, value: Span, captured: Option<Captures>) {
        if let Some(captured) = captured {
            self.run.capture(value, &captured);
        }
        let found = MatchedValue { variable: self.target.variable, name, value, link: self.number };
        let matched = &mut self.run.view.state.matched;
        if matched.len() < self.run.view.plan.limits.matched_values {
            matched.push(found);
        } else {
            // The list is full, so the last entry is replaced. A later link may then miss a value, so the budget counts
            // as exceeded.
            if let Some(last) = matched.last_mut() {
                *last = found;
            }
            self.run.view.state.budget.exceed(Over::Variables);
        }
        self.run.effects(self.link, self.number);
        // The effects may have changed values in the operator's argument, which has to be expanded again.
        *self.held = None;
    }
}
