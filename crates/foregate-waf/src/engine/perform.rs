//! Performs the actions of rules: those on variables and the transaction when a link matches, and those on
//! the request when all links have matched.

use super::budget::Over;
use super::expand::Item;
use super::plan::{Effect, Name, Removal, VariableChange};
use super::run::Run;
use super::store::Handle;
use super::tx::{Value, exact_number};
use super::values::Span;
use super::verdict::Verdict;
use crate::model::{
    AllowScope, AuditParts, AuditPartsChange, Disruptive, EngineMode, PersistentCollection, Variable,
};
use crate::operator::Captures;

impl<'p> Run<'p> {
    /// Performs the actions of a link that matched.
    pub(crate) fn effects(&mut self, link: &'p super::plan::PlanLink, number: usize) {
        for (at, effect) in link.effects.iter().enumerate() {
            self.effect(effect, (self.view.state.rule, number, at));
        }
    }

    fn effect(&mut self, effect: &'p Effect, place: (usize, usize, usize)) {
        let switches = &mut self.view.state.switches;
        match effect {
            Effect::SetTx(name, change) => self.set_tx(name, change),
            Effect::SetStored(collection, name, change) => self.set_stored(*collection, name, change),
            Effect::Expire(collection, name, seconds) => {
                let seconds = u64::try_from(self.view.amount(seconds)).unwrap_or(0);
                let name = self.view.expand(name);
                self.stored(*collection, |handle, run| {
                    run.view.plan.store.expire(handle, run.view.bytes(name), seconds);
                });
            }
            Effect::Deprecate(collection, name, amount, seconds) => {
                let name = self.view.expand(name);
                self.stored(*collection, |handle, run| {
                    run.view.plan.store.deprecate(handle, run.view.bytes(name), *amount, *seconds);
                });
            }
            Effect::Open(collection, key, known_as) => self.open(*collection, key, *known_as),
            Effect::SetEnv(name, value) => {
                let (name, value) = (self.view.expand(name), self.view.expand(value));
                self.set_environment(name, value);
            }
            Effect::Remove(removal) => self.remove(removal),
            Effect::RemoveTarget(..) => {
                if self.view.state.removed_targets.insert(place) && self.is_removed_here(place) {
                    self.view.state.removed_here.push(place);
                }
            }
            Effect::Engine(mode) => self.switch(*mode),
            Effect::RequestBodyAccess(on) => switches.request_body = *on,
            Effect::RequestBodyLimit(limit) => switches.request_body_limit = *limit,
            Effect::RequestBodyProcessor(processor) => self.view.state.set_processor(*processor),
            Effect::ForceRequestBody(on) => switches.force_request_body = *on,
            Effect::ResponseBodyAccess(on) => switches.response_body = *on,
            Effect::ResponseBodyLimit(limit) => switches.response_body_limit = *limit,
            Effect::XmlArguments(arguments) => switches.xml_arguments = *arguments,
            Effect::Audit(mode) => switches.audit = *mode,
            Effect::AuditParts(change) => switches.audit_parts = changed(switches.audit_parts, *change),
            Effect::Mask(mask) => self.mask(mask),
        }
    }

    fn switch(&mut self, mode: EngineMode) {
        let state = &mut *self.view.state;
        state.would.switch(mode, state.phase);
        // If the host only detects, rules cannot switch blocking on.
        let detects = state.switches.detects && mode == EngineMode::On;
        state.switches.mode = if detects { EngineMode::DetectionOnly } else { mode };
    }

    /// Sets a variable of `ENV`, and replaces one of the same name that rules have set.
    fn set_environment(&mut self, name: Span, value: Span) {
        let text = &self.view.state.values.text;
        let own = self.view.state.env.iter().skip(self.view.state.env_of_host);
        let of_rules = own.len();
        let known = own.clone().position(|(known, _)| text.get(*known) == text.get(name));
        self.view.state.budget.spend(of_rules as u64);
        match known {
            Some(at) => self.view.state.env[self.view.state.env_of_host + at].1 = value,
            None if of_rules < self.view.plan.limits.variables => self.view.state.env.push((name, value)),
            None => self.view.state.budget.exceed(Over::Variables),
        }
    }

    /// Removes rules for the rest of the transaction.
    fn remove(&mut self, removal: &Removal) {
        let state = &mut *self.view.state;
        let none = || Box::new(super::bits::Bits::new(self.view.plan.rules.len()));
        state.removed.get_or_insert_with(none).add(&removal.rules);
        if removal.unfolds.is_some_and(|last| last > (state.phase, state.rule)) {
            state.folded = false;
        }
    }

    fn set_tx(&mut self, name: &Name, change: &VariableChange) {
        let (slot, made) = match name {
            Name::Slot(slot) => (Some(*slot), Span::EMPTY),
            Name::Made(name) => {
                let name = self.view.expand(name);
                (self.view.plan.names.find(&self.view.bytes(name).to_ascii_lowercase()), name)
            }
        };
        let before = match slot {
            Some(slot) => self.view.state.tx.get(slot),
            None => self.view.state.tx.get_made(self.view.bytes(made), &self.view.state.values.text),
        };
        let value = match change {
            VariableChange::Set(value) => *value,
            VariableChange::SetMade(text) => match text.slot() {
                Some(slot) => self.copied(self.view.state.tx.get(slot)),
                None => {
                    let text = self.view.expand(text);
                    exact_number(self.view.bytes(text)).map_or(Value::Text(text), Value::Number)
                }
            },
            VariableChange::Add(amount) => {
                Value::Number(self.view.number(before).saturating_add(self.view.amount(amount)))
            }
            VariableChange::Subtract(amount) => {
                Value::Number(self.view.number(before).saturating_sub(self.view.amount(amount)))
            }
            VariableChange::Unset => Value::Unset,
        };
        match slot {
            Some(slot) => self.view.state.tx.set(slot, value),
            None => {
                let limit = self.view.plan.limits.variables;
                if !self.view.state.tx.set_made(made, value, &self.view.state.values.text, limit) {
                    self.view.state.budget.exceed(Over::Variables);
                }
            }
        }
    }

    /// The value to set if a variable is set to the value of another variable. If the other variable is unset, this is
    /// the empty text.
    fn copied(&mut self, value: Value) -> Value {
        match value {
            Value::Unset => Value::Text(Span::EMPTY),
            value => value,
        }
    }

    fn set_stored(
        &mut self,
        collection: PersistentCollection,
        name: &super::expression::Expression,
        change: &VariableChange,
    ) {
        let timeout = self.view.plan.settings.collection_timeout;
        let name = self.view.expand(name);
        let set = match change {
            VariableChange::Set(value) => {
                let item = self.view.item(*value).unwrap_or(Item::Text(Span::EMPTY));
                let value = self.view.text(item);
                self.stored(collection, |handle, run| {
                    run.view.plan.store.set(handle, run.view.bytes(name), run.view.bytes(value), timeout)
                })
            }
            VariableChange::SetMade(text) => {
                let value = self.view.expand(text);
                self.stored(collection, |handle, run| {
                    run.view.plan.store.set(handle, run.view.bytes(name), run.view.bytes(value), timeout)
                })
            }
            VariableChange::Add(by) | VariableChange::Subtract(by) => {
                let is_less = matches!(change, VariableChange::Subtract(_));
                let by = self.view.amount(by);
                let by = if is_less { by.saturating_neg() } else { by };
                self.stored(collection, |handle, run| {
                    run.view.plan.store.add(handle, run.view.bytes(name), by, timeout)
                })
            }
            VariableChange::Unset => self.stored(collection, |handle, run| {
                run.view.plan.store.unset(handle, run.view.bytes(name));
                Ok(())
            }),
        };
        // If a counter could not be stored, the requests that it limits would pass. Therefore the budget counts as
        // exceeded.
        if set.is_some_and(|set| set.is_err()) {
            self.view.state.budget.exceed(Over::Variables);
        }
    }

    /// Calls a function with a record of the store, if `initcol` has opened the record.
    fn stored<T>(
        &self,
        collection: PersistentCollection,
        act: impl FnOnce(Handle<'_>, &Self) -> T,
    ) -> Option<T> {
        let key = self.view.state.keys[collection as usize]?;
        Some(act(Handle { collection, key: self.view.bytes(key), now: self.view.state.clock.now() }, self))
    }

    fn open(
        &mut self,
        collection: PersistentCollection,
        key: &super::expression::Expression,
        as_: Option<Variable>,
    ) {
        let key = self.view.expand(key);
        match as_ {
            Some(Variable::SessionId) => self.view.state.session_id = Some(key),
            Some(Variable::UserId) => self.view.state.user_id = Some(key),
            _ => {}
        }
        // Applications have separate records, except in `GLOBAL`.
        let app = self
            .view
            .plan
            .settings
            .web_app_id
            .as_deref()
            .filter(|_| collection != PersistentCollection::Global);
        let key = match app {
            Some(app) => {
                let whole = [app.as_bytes(), b"\0", self.view.bytes(key)].concat();
                self.view.push(&whole)
            }
            None => key,
        };
        self.view.state.keys[collection as usize] = Some(key);
    }

    /// Stores the captures of an operator in `TX.0` to `TX.9`. Unsets those without a capture.
    pub(crate) fn capture(&mut self, value: Span, captured: &Captures) {
        if captured.fingerprint.is_none() && captured.groups.iter().all(Option::is_none) {
            return;
        }
        for (slot, group) in captured.groups.iter().enumerate() {
            let value = group.map_or(Value::Unset, |(from, to)| Value::Text(value.part(from, to)));
            self.view.state.tx.set(slot as u16, value);
        }
        if let Some(fingerprint) = captured.fingerprint {
            let len = fingerprint.iter().position(|byte| *byte == 0).unwrap_or(fingerprint.len());
            let text = self.view.push(&fingerprint[..len]);
            self.view.state.tx.set(0, Value::Text(text));
        }
    }

    /// Records a rule's match and returns its verdict, if any.
    pub(crate) fn finish(&mut self, rule: usize) -> Option<Verdict> {
        let about = &self.view.plan.rules[rule].about;
        if let Some(severity) = about.severity.map(|severity| severity.number()) {
            let highest = &mut self.view.state.highest_severity;
            *highest = Some(highest.map_or(severity, |highest| highest.min(severity)));
        }
        let verdict = match &about.disruptive {
            Disruptive::Pass | Disruptive::Allow(_) => None,
            Disruptive::Deny { status } => Some(Verdict::Deny { status: *status, rule: Some(about.id) }),
            Disruptive::Drop => Some(Verdict::Drop { rule: about.id }),
            Disruptive::Redirect { status, .. } => {
                let to = self.view.plan.rules[rule]
                    .redirect
                    .as_ref()
                    .map_or(Span::EMPTY, |to| self.view.expand(to));
                Some(Verdict::Redirect { status: *status, to: self.view.bytes(to).to_vec(), rule: about.id })
            }
        };
        let on = self.view.state.switches.mode == EngineMode::On;
        // In the logging phase, the response has been sent, so nothing can be denied.
        let verdict = verdict.filter(|_| self.view.state.phase != crate::model::Phase::Logging);
        self.view.state.audit_relevant |= about.audit_log;
        if about.log || about.audit_log {
            self.view.record(rule, verdict.as_ref().filter(|_| on));
        }
        let phase = self.view.state.phase;
        if let Disruptive::Allow(scope) = about.disruptive {
            self.view.state.would.allow(scope, phase);
            if on {
                self.view.state.allowed.add(scope);
            }
        }
        if on {
            return verdict;
        }
        if let Some(verdict) = verdict {
            self.view.state.would.stop(about.id, verdict, phase);
        }
        None
    }

    /// Returns true if a match of this rule ends only its phase (`allow:phase`).
    pub(crate) fn ends_phase(&self, rule: usize) -> bool {
        self.view.plan.rules[rule].about.disruptive == Disruptive::Allow(AllowScope::Phase)
            && self.view.state.switches.mode == EngineMode::On
    }
}

fn changed(parts: AuditParts, change: AuditPartsChange) -> AuditParts {
    let letters = |set: AuditParts| AuditParts::LETTERS.chars().filter(move |letter| set.has(*letter));
    match change {
        AuditPartsChange::Add(more) => letters(more).fold(parts, AuditParts::with),
        AuditPartsChange::Remove(fewer) => letters(fewer).fold(parts, AuditParts::without),
        AuditPartsChange::Set(set) => set,
    }
}
