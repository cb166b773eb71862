//! Expands texts with macros, and reads values that change while rules run.

use super::chains::Node;
use super::expression::{Expression, ExpressionPiece};
use super::feed;
use super::plan::{Amount, Pick, Plan, ValueSource};
use super::secrets::{HIDDEN, may_copy, variable_of};
use super::state::{MatchedValue, NameRef, State};
use super::store::Handle;
use super::tx::{self, Value, push_value};
use super::values::{Family, Half, Span, decimal, push_decimal};
use crate::date::Date;
use crate::model::{PersistentCollection, Variable};
use crate::operator::GROUPS;

/// `HIGHEST_SEVERITY` before a rule with a severity has matched.
const NO_SEVERITY: u8 = 255;

/// The values of a transaction as its rules see and show them.
pub(crate) struct View<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) state: &'a mut State,
}

/// A value to which an operator is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Text(Span),
    Number(i64),
}

impl View<'_> {
    /// Expands a text. Missing values expand to nothing.
    pub(crate) fn expand(&mut self, expression: &Expression) -> Span {
        match expression {
            Expression::Fixed(text) => self.push_expanded(text),
            Expression::Pieces(pieces) => {
                if self.state.piece == usize::MAX
                    && let [ExpressionPiece::Tx(slot)] = &**pieces
                    && let Value::Text(span) = self.state.tx.get(*slot)
                {
                    return span;
                }
                let mut out = std::mem::take(&mut self.state.scratch.text);
                out.clear();
                for piece in pieces {
                    let from = out.len();
                    self.expand_piece(piece, &mut out);
                    self.hide(piece, from, &mut out);
                }
                let span = self.push_expanded(&out);
                self.state.scratch.text = out;
                span
            }
        }
    }

    fn push_expanded(&mut self, text: &[u8]) -> Span {
        match self.state.piece {
            usize::MAX => self.push(text),
            // Text for reports is not counted as work: it is bounded and removed again.
            _ => self.state.values.text.push(text),
        }
    }

    /// Masks secrets in the expansion of a piece of text that will be shown.
    fn hide(&mut self, piece: &ExpressionPiece, from: usize, out: &mut Vec<u8>) {
        if self.state.piece == usize::MAX {
            return;
        }
        let matched = &self.state.matched;
        let is_capture = matches!(piece, ExpressionPiece::Tx(slot) if usize::from(*slot) < GROUPS);
        let copies = match piece {
            ExpressionPiece::Text(_) => false,
            ExpressionPiece::Tx(_) if !is_capture => true,
            ExpressionPiece::Value(ValueSource::Env | ValueSource::Stored(_), _) => true,
            ExpressionPiece::Tx(_) | ExpressionPiece::Value(ValueSource::Matched { .. }, _) => {
                matched.iter().any(|found| may_copy(found.variable))
            }
            ExpressionPiece::Value(..) => false,
        };
        if !copies {
            return;
        }
        // A capture from `FULL_REQUEST` may be a part of a secret.
        let parts = is_capture && matched.iter().any(|found| found.variable == Variable::FullRequest);
        let is_xml = is_capture || matches!(piece, ExpressionPiece::Value(ValueSource::Matched { .. }, _));
        let xml = is_xml
            && matched
                .iter()
                .filter(|found| may_copy(found.variable))
                .all(|found| found.variable == Variable::Xml);
        let shown = self.without_secrets(&out[from..], parts, xml);
        out.truncate(from);
        out.extend_from_slice(&shown);
    }

    fn expand_piece(&mut self, piece: &ExpressionPiece, out: &mut Vec<u8>) {
        match piece {
            ExpressionPiece::Text(text) => out.extend_from_slice(text),
            ExpressionPiece::Tx(slot) if self.state.hiding && usize::from(*slot) < GROUPS => {
                out.extend_from_slice(HIDDEN);
            }
            ExpressionPiece::Value(ValueSource::Matched { names: false, .. }, _) if self.state.hiding => {
                out.extend_from_slice(HIDDEN);
            }
            ExpressionPiece::Tx(slot) => {
                let from = out.len();
                push_value(self.state.tx.get(*slot), &self.plan.names, &self.state.values.text, out);
                out.truncate(from.saturating_add(self.state.piece));
            }
            ExpressionPiece::Value(source, pick) => match self.first(*source, pick) {
                Some(Item::Text(span)) => {
                    out.extend_from_slice(self.state.values.text.get(span.part(0, self.state.piece)));
                }
                Some(Item::Number(number)) => push_decimal(number, out),
                None => {}
            },
        }
    }

    /// The first value that a macro refers to.
    fn first(&mut self, source: ValueSource, pick: &Pick) -> Option<Item> {
        match source {
            ValueSource::Scalar(variable) => self
                .state
                .values
                .scalar_place(variable)
                .map(|_| Item::Text(self.state.values.scalar(variable))),
            ValueSource::Units(family, half) => {
                let (name, value) = self.first_unit(family, half, pick)?;
                let is_secret = self.state.piece != usize::MAX
                    && variable_of(family).is_some_and(|variable| {
                        self.is_secret_value(variable, self.state.values.text.get(name))
                    });
                Some(Item::Text(if is_secret { self.state.values.text.push(HIDDEN) } else { value }))
            }
            _ => {
                let mut found = Vec::new();
                self.collect(source, pick, &[], &mut found);
                found.first().map(|(_, item)| *item)
            }
        }
    }

    /// The name and value of the first entry of a family that is picked.
    fn first_unit(&self, family: Family, half: Half, pick: &Pick) -> Option<(Span, Span)> {
        let values = &self.state.values;
        let units = values.units(family).get(values.range(family, half))?;
        let unit = units.iter().find(|unit| pick.takes(unit.known, values.text.get(unit.name)))?;
        Some((unit.name, unit.value))
    }

    /// Collects all values of a source that changes while rules run.
    pub(crate) fn collect(
        &mut self,
        source: ValueSource,
        pick: &Pick,
        without: &[Pick],
        found: &mut Vec<(NameRef, Item)>,
    ) {
        match source {
            ValueSource::Tx => self.collect_tx(pick, without, found),
            ValueSource::Stored(collection) => self.collect_stored(collection, pick, without, found),
            ValueSource::Env => {
                for at in 0..self.state.env.len() {
                    let (name, value) = self.state.env[at];
                    if self.picks_text(pick, without, name) {
                        found.push((NameRef::Span(name), Item::Text(value)));
                    }
                }
            }
            ValueSource::Matched { names, all } => self.collect_matched(names, all, pick, found),
            ValueSource::Rule => self.collect_rule(pick, found),
            ValueSource::Computed(variable) => {
                found.extend(self.computed(variable).map(|item| (NameRef::None, item)));
            }
            ValueSource::Units(..) | ValueSource::Scalar(_) => {}
        }
    }

    fn collect_tx(&mut self, pick: &Pick, without: &[Pick], found: &mut Vec<(NameRef, Item)>) {
        let excluded = |slot: u16| {
            without.iter().any(|pick| match pick {
                Pick::All => true,
                Pick::Name(number, _) => *number == slot,
                Pick::Pattern(_, slots) => slots.contains(&slot),
            })
        };
        let slots = self.state.tx.slots().len() as u16;
        let listed: Vec<u16> = match pick {
            Pick::All => (0..slots).collect(),
            Pick::Name(slot, _) => vec![*slot],
            Pick::Pattern(_, slots) => slots.to_vec(),
        };
        for slot in listed.into_iter().filter(|slot| !excluded(*slot)) {
            if let Some(item) = self.item(self.state.tx.get(slot)) {
                found.push((NameRef::Slot(slot), item));
            }
        }
        if matches!(pick, Pick::Name(..)) {
            return;
        }
        for at in 0..self.state.tx.made().len() {
            let made = self.state.tx.made()[at];
            if self.picks_text(pick, without, made.name)
                && let Some(item) = self.item(made.value)
            {
                found.push((NameRef::Span(made.name), item));
            }
        }
    }

    fn collect_stored(
        &mut self,
        collection: PersistentCollection,
        pick: &Pick,
        without: &[Pick],
        found: &mut Vec<(NameRef, Item)>,
    ) {
        let Some(key) = self.state.keys[collection as usize] else { return };
        let key = self.state.values.text.get(key);
        let handle = Handle { collection, key, now: self.state.clock.now() };
        let elements = match pick {
            Pick::Name(_, lower) if without.is_empty() => {
                self.plan.store.element(handle, lower).into_iter().collect()
            }
            _ => {
                let picks = |name: &[u8]| is_picked(pick, without, name);
                let (elements, of) = self.plan.store.elements(handle, picks);
                self.state.budget.spend(of as u64);
                elements
            }
        };
        for (name, value) in elements {
            let (name, value) = (self.push(&name), self.push(&value));
            found.push((NameRef::Span(name), Item::Text(value)));
        }
    }

    fn collect_matched(&mut self, names: bool, all: bool, pick: &Pick, found: &mut Vec<(NameRef, Item)>) {
        let from = if all { 0 } else { self.state.matched.len().saturating_sub(1) };
        for at in from..self.state.matched.len() {
            let matched = self.state.matched[at];
            let label = self.label(matched.variable, matched.name);
            if !self.picks_text(pick, &[], label) {
                continue;
            }
            let value = if names { label } else { matched.value };
            let name = if all { NameRef::Span(label) } else { NameRef::None };
            found.push((name, Item::Text(value)));
        }
    }

    fn collect_rule(&mut self, pick: &Pick, found: &mut Vec<(NameRef, Item)>) {
        let plan = self.plan;
        let rule = &plan.rules[self.state.rule];
        let about = &rule.about;
        let id = self.push_number(about.id as i64);
        let mut parts = vec![(&b"id"[..], Item::Text(id))];
        if let Some(severity) = about.severity {
            parts.push((b"severity", Item::Number(i64::from(severity.number()))));
        }
        if let Some(revision) = &about.revision {
            parts.push((b"rev", Item::Text(self.push(revision.as_bytes()))));
        }
        for (name, text) in [(&b"msg"[..], &rule.message), (b"logdata", &rule.data)] {
            if let Some(text) = text {
                // The text is not expanded, because it may contain a macro for this same rule's text.
                parts.push((name, Item::Text(self.push(text.beginning()))));
            }
        }
        for (name, item) in parts {
            let name = self.push(name);
            if self.picks_text(pick, &[], name) {
                found.push((NameRef::Span(name), item));
            }
        }
    }

    /// Returns true if a name of a value that is in no family is picked and not excluded.
    fn picks_text(&self, pick: &Pick, without: &[Pick], name: Span) -> bool {
        is_picked(pick, without, self.state.values.text.get(name))
    }

    fn computed(&mut self, variable: Variable) -> Option<Item> {
        let clock = self.state.clock;
        let now = clock.now();
        let date = Date::of(now);
        Some(match variable {
            Variable::Duration => Item::Number(i64::try_from(clock.elapsed.as_millis()).unwrap_or(i64::MAX)),
            Variable::HighestSeverity => {
                Item::Number(i64::from(self.state.highest_severity.unwrap_or(NO_SEVERITY)))
            }
            Variable::SessionId => Item::Text(self.state.session_id?),
            Variable::UserId => Item::Text(self.state.user_id?),
            Variable::Time => {
                let text = format!("{:02}:{:02}:{:02}", date.hour, date.minute, date.second);
                Item::Text(self.push(text.as_bytes()))
            }
            Variable::TimeEpoch => Item::Number(now as i64),
            Variable::TimeYear => Item::Number(date.year),
            Variable::TimeMon => Item::Number(date.month - 1),
            Variable::TimeDay => Item::Number(date.day),
            Variable::TimeWday => Item::Number(date.weekday),
            Variable::TimeHour => Item::Number(date.hour),
            Variable::TimeMin => Item::Number(date.minute),
            Variable::TimeSec => Item::Number(date.second),
            _ => return None,
        })
    }

    /// The full name of a value, such as `ARGS:q`.
    pub(crate) fn label(&mut self, variable: Variable, name: NameRef) -> Span {
        let mut out = std::mem::take(&mut self.state.scratch.text);
        out.clear();
        self.push_label(variable, name, usize::MAX, &mut out);
        let span = self.push(&out);
        self.state.scratch.text = out;
        span
    }

    /// Appends the full name of a value, with at most `most` bytes of the part after the colon.
    pub(crate) fn push_label(&self, variable: Variable, name: NameRef, most: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(variable.name().as_bytes());
        let name = match name {
            NameRef::None => return,
            NameRef::Span(span) => self.state.values.text.get(span),
            NameRef::Slot(slot) => self.plan.names.name(slot),
        };
        out.push(b':');
        out.extend_from_slice(name.get(..most).unwrap_or(name));
    }

    /// The value that matched last.
    pub(crate) fn last(&self) -> Option<MatchedValue> {
        self.state.matched.last().copied()
    }

    /// The value of a number in a rule.
    pub(crate) fn amount(&mut self, amount: &Amount) -> i64 {
        match amount {
            Amount::Fixed(number) => *number,
            Amount::Slot(slot) => self.number(self.state.tx.get(*slot)),
            Amount::Made(text) => {
                let text = self.expand(text);
                tx::leading_number(self.state.values.text.get(text))
            }
        }
    }

    /// A variable's value as a number.
    pub(crate) fn number(&self, value: Value) -> i64 {
        tx::number(value, &self.plan.names, &self.state.values.text)
    }

    /// A variable's value as an item.
    pub(crate) fn item(&mut self, value: Value) -> Option<Item> {
        Some(match value {
            Value::Unset => return None,
            Value::Number(number) => Item::Number(number),
            Value::Text(span) => Item::Text(span),
            Value::Constant(constant) => Item::Text(self.push(self.plan.names.text(constant))),
        })
    }

    /// Appends text that rules produce, which counts as work. If there is no room for it, the transaction is over
    /// its budget and the returned piece is empty.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Span {
        if !self.state.budget.spend(piece.len() as u64) || !self.state.has_room(piece.len()) {
            return Span::EMPTY;
        }
        self.state.values.text.push(piece)
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, number: i64) -> Span {
        let mut out = [0; 21];
        let mut digits = [0; 20];
        let digits = decimal(number.unsigned_abs(), &mut digits);
        let sign = usize::from(number < 0);
        out[0] = b'-';
        out[sign..sign + digits.len()].copy_from_slice(digits);
        self.push(&out[..sign + digits.len()])
    }

    /// An item as text.
    pub(crate) fn text(&mut self, item: Item) -> Span {
        match item {
            Item::Text(span) => span,
            Item::Number(number) => self.push_number(number),
        }
    }

    /// The output of a chain of transformations for a value that was not prepared at the start of the phase.
    pub(super) fn transformed(&mut self, value: Span, node: Node) -> Span {
        let Some((parent, transformation)) = self.plan.chains.node(node) else { return value };
        let from = self.transformed(value, parent);
        self.state.budget.spend(from.len() as u64);
        if !self.state.has_room(from.len()) {
            return from;
        }
        let map = self.plan.settings.unicode_map.as_deref();
        feed::transform(&mut self.state.values.text, from, transformation, map)
    }

    /// The bytes of a piece of text.
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        self.state.values.text.get(span)
    }
}

/// Returns true if a name of a value that is in no family is picked and not excluded.
fn is_picked(pick: &Pick, without: &[Pick], name: &[u8]) -> bool {
    let takes = |pick: &Pick| match pick {
        Pick::All => true,
        Pick::Name(_, lower) => name.eq_ignore_ascii_case(lower),
        Pick::Pattern(pattern, _) => pattern.is_match(name),
    };
    takes(pick) && !without.iter().any(takes)
}
