//! The effects of matching rules.

use super::Compiler;
use super::marks::Marks;
use crate::engine::bits::Bits;
use crate::engine::plan::{Effect, Name, PlanLink, Removal, VariableChange};
use crate::model::{
    self, Action, Ctl, Disruptive, EngineMode, Number, Place, Problem, RuleSelection, SetVar, Template,
    WritableCollection,
};

/// Returns true if a rule does not stop the request and exempts it from other rules, directly or by the
/// variables that it sets.
pub(super) fn lets_through(at: usize, rule: &model::Rule, links: &[PlanLink], marks: &Marks) -> bool {
    let effects = || links.iter().flat_map(|link| &link.effects);
    match rule.disruptive {
        Disruptive::Allow(_) => true,
        Disruptive::Pass => {
            rule.skip_to.is_some()
                || effects().any(leaves_out)
                || only_settles(effects()) && !marks.are_set_by(at, rule)
        }
        _ => false,
    }
}

/// Returns true if the effect reduces the inspection of the request.
fn leaves_out(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Remove(_)
            | Effect::RemoveTarget(..)
            | Effect::Engine(EngineMode::Off | EngineMode::DetectionOnly)
            | Effect::RequestBodyAccess(false)
            | Effect::RequestBodyLimit(_)
            | Effect::RequestBodyProcessor(_)
            | Effect::XmlArguments(_)
            | Effect::ResponseBodyAccess(false)
            | Effect::ResponseBodyLimit(_)
    )
}

/// Returns true if the effects remove variables or set them to fixed values, such as thresholds and lists of
/// allowed items, and do nothing else to variables: none is set from a match or increased like a score.
fn only_settles<'e>(effects: impl Iterator<Item = &'e Effect>) -> bool {
    let mut settles = false;
    for effect in effects {
        match effect {
            Effect::SetTx(_, VariableChange::Set(_) | VariableChange::Unset) => settles = true,
            Effect::SetTx(..) | Effect::SetStored(..) => return false,
            _ => {}
        }
    }
    settles
}

impl Compiler<'_> {
    /// Compiles an action to its effect; `None` if it cannot have one.
    pub(super) fn effect(&mut self, action: &Action, place: &Place) -> Result<Option<Effect>, Problem> {
        Ok(Some(match action {
            Action::SetVar(set) => self.set(set, place)?,
            Action::ExpireVar { collection: WritableCollection::Persistent(collection), name, seconds } => {
                Effect::Expire(*collection, self.expression(name, place)?, self.amount(seconds, place)?)
            }
            // A variable of `TX` never expires, since the transaction ends earlier. Only an expiry at once has an effect.
            Action::ExpireVar { collection: WritableCollection::Tx, name, seconds } => match seconds {
                Number::Fixed(..=0) => Effect::SetTx(self.name(name, place)?, VariableChange::Unset),
                _ => return Ok(None),
            },
            Action::DeprecateVar { collection, name, amount, seconds } => {
                Effect::Deprecate(*collection, self.expression(name, place)?, *amount, *seconds)
            }
            Action::InitCol { collection, key, known_as } => {
                Effect::Open(*collection, self.expression(key, place)?, *known_as)
            }
            Action::SetEnv { name, value } => {
                Effect::SetEnv(self.expression(name, place)?, self.expression(value, place)?)
            }
            Action::Ctl(ctl) => self.control(ctl, place)?,
            Action::Mask(mask) => Effect::Mask(mask.clone()),
        }))
    }

    fn set(&mut self, set: &SetVar, place: &Place) -> Result<Effect, Problem> {
        let change = match &set.change {
            model::Change::Set(value) => match value.literal() {
                Some(text) => VariableChange::Set(self.names.value(text.as_bytes())),
                None => VariableChange::SetMade(self.expression(value, place)?),
            },
            model::Change::Add(number) => VariableChange::Add(self.amount(number, place)?),
            model::Change::Subtract(number) => VariableChange::Subtract(self.amount(number, place)?),
            model::Change::Unset => VariableChange::Unset,
        };
        Ok(match set.collection {
            WritableCollection::Tx => Effect::SetTx(self.name(&set.name, place)?, change),
            WritableCollection::Persistent(collection) => {
                Effect::SetStored(collection, self.expression(&set.name, place)?, change)
            }
        })
    }

    fn name(&mut self, name: &Template, place: &Place) -> Result<Name, Problem> {
        Ok(match name.literal() {
            Some(name) => Name::Slot(self.slot(name.as_bytes(), place)?),
            None => Name::Made(self.expression(name, place)?),
        })
    }

    fn control(&mut self, ctl: &Ctl, place: &Place) -> Result<Effect, Problem> {
        Ok(match ctl {
            Ctl::RuleEngine(mode) => Effect::Engine(*mode),
            Ctl::RemoveRules(selection) => {
                Effect::Remove(Removal { rules: self.selected(selection), unfolds: None })
            }
            Ctl::RemoveTarget(selection, exclusion) => {
                let selector = exclusion.selector.as_ref();
                let source = super::targets::source(exclusion.variable, selector);
                Effect::RemoveTarget(self.selected(selection), source, self.pick(source, selector, place)?)
            }
            Ctl::RequestBodyAccess(on) => Effect::RequestBodyAccess(*on),
            Ctl::RequestBodyLimit(limit) => Effect::RequestBodyLimit(*limit),
            Ctl::RequestBodyProcessor(processor) => Effect::RequestBodyProcessor(*processor),
            Ctl::ForceRequestBodyVariable(on) => Effect::ForceRequestBody(*on),
            Ctl::ResponseBodyAccess(on) => Effect::ResponseBodyAccess(*on),
            Ctl::ResponseBodyLimit(limit) => Effect::ResponseBodyLimit(*limit),
            Ctl::XmlArguments(arguments) => Effect::XmlArguments(*arguments),
            Ctl::AuditEngine(mode) => Effect::Audit(*mode),
            Ctl::AuditParts(change) => Effect::AuditParts(*change),
        })
    }

    fn selected(&self, selection: &RuleSelection) -> Box<Bits> {
        let mut rules = Bits::new(self.set.rules.len());
        self.index
            .get_or_init(|| self.set.index())
            .selected(selection)
            .into_iter()
            .for_each(|at| rules.insert(at));
        Box::new(rules)
    }
}
