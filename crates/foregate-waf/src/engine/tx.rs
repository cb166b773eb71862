//! `TX`: the variables that rules set.
//!
//! Each name that rules write out has a slot with a fixed number. A variable is then read and set by an
//! index, without a lookup: a rule that adds to a score only performs an addition.

use super::values::{Span, Text, push_decimal};
use foldhash::HashMap;

/// A value of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Value {
    /// The variable is not set.
    #[default]
    Unset,
    /// A number.
    Number(i64),
    /// A text from the rules: its index in [`Names::constants`].
    Constant(u32),
    /// A piece of the transaction's text.
    Text(Span),
}

/// The number of a slot.
pub(crate) type Slot = u16;

/// Names and constant texts that the rules write out.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<Box<[u8]>, Slot>,
    names: Vec<Box<[u8]>>,
    constants: Vec<Box<[u8]>>,
}

impl Names {
    /// The slot of a name, in any case; a new name gets a new slot. `None` if there are too many names.
    pub(crate) fn intern(&mut self, name: &[u8]) -> Option<Slot> {
        let lower = name.to_ascii_lowercase().into_boxed_slice();
        if let Some(slot) = self.by_name.get(&lower) {
            return Some(*slot);
        }
        let slot = Slot::try_from(self.names.len()).ok().filter(|slot| *slot < Slot::MAX)?;
        self.names.push(lower.clone());
        self.by_name.insert(lower, slot);
        Some(slot)
    }

    /// The slot of a name in small letters.
    pub(crate) fn find(&self, lower: &[u8]) -> Option<Slot> {
        self.by_name.get(lower).copied()
    }

    /// The name of a slot, in small letters.
    pub(crate) fn name(&self, slot: Slot) -> &[u8] {
        self.names.get(usize::from(slot)).map(AsRef::as_ref).unwrap_or_default()
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Stores a constant text and returns its index.
    pub(crate) fn constant(&mut self, text: &[u8]) -> u32 {
        if let Some(place) = self.constants.iter().position(|known| **known == *text) {
            return place as u32;
        }
        self.constants.push(text.into());
        self.constants.len() as u32 - 1
    }

    /// The constant text with this index.
    pub(crate) fn text(&self, constant: u32) -> &[u8] {
        self.constants.get(constant as usize).map(AsRef::as_ref).unwrap_or_default()
    }

    /// The value for a text: a number if the text is exactly its decimal form, and otherwise a constant.
    pub(crate) fn value(&mut self, text: &[u8]) -> Value {
        match exact_number(text) {
            Some(number) => Value::Number(number),
            None => Value::Constant(self.constant(text)),
        }
    }
}

/// Parses a text that is the decimal form of a number.
pub(crate) fn exact_number(text: &[u8]) -> Option<i64> {
    if text.len() > 20 {
        return None;
    }
    let number = std::str::from_utf8(text).ok()?.parse::<i64>().ok()?;
    let canonical = match text {
        [b'0'] => true,
        [b'-', rest @ ..] => rest.first().is_some_and(|digit| (b'1'..=b'9').contains(digit)),
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    canonical.then_some(number)
}

/// The number at the start of a text, after optional white space and a sign; zero if there is none. A number
/// that does not fit into 64 bits becomes the nearest one that does.
pub(crate) fn leading_number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut number = 0_i64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        number = number.saturating_mul(10);
        number = if negative { number.saturating_sub(digit) } else { number.saturating_add(digit) };
    }
    number
}

/// A variable with a name that was made from the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeVariable {
    /// The name in its original form.
    pub(crate) name: Span,
    /// Its value.
    pub(crate) value: Value,
}

/// The variables of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    slots: Vec<Value>,
    made: Vec<MadeVariable>,
    by_made_name: HashMap<u64, u32>,
    /// Its key is random in each process, so that a client cannot cause collisions.
    hasher: foldhash::quality::RandomState,
}

impl Variables {
    /// Prepares this many slots, none of them set.
    pub(crate) fn start(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, Value::Unset);
        self.made.clear();
        self.by_made_name.clear();
    }

    /// A slot's value.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Value {
        self.slots.get(usize::from(slot)).copied().unwrap_or_default()
    }

    /// Sets a slot.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, value: Value) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = value;
        }
    }

    /// All slots.
    pub(crate) fn slots(&self) -> &[Value] {
        &self.slots
    }

    /// The variables with names made from the request, in the order in which they were first set.
    pub(crate) fn made(&self) -> &[MadeVariable] {
        &self.made
    }

    /// The position of the variable with a name made from the request, in any case.
    pub(crate) fn find_made(&self, name: &[u8], text: &Text) -> Option<usize> {
        let at = *self.by_made_name.get(&self.hash(name))? as usize;
        self.made.get(at).filter(|made| text.get(made.name).eq_ignore_ascii_case(name)).map(|_| at)
    }

    /// The value of the variable with a name made from the request.
    pub(crate) fn get_made(&self, name: &[u8], text: &Text) -> Value {
        self.find_made(name, text).map_or(Value::Unset, |at| self.made[at].value)
    }

    /// Sets the variable with a name made from the request. Returns false if the variable is new and there are already
    /// `limit` such variables.
    pub(crate) fn set_made(&mut self, name: Span, value: Value, text: &Text, limit: usize) -> bool {
        if let Some(at) = self.find_made(text.get(name), text) {
            self.made[at].value = value;
            return true;
        }
        if self.made.len() >= limit {
            return false;
        }
        let hash = self.hash(text.get(name));
        self.by_made_name.insert(hash, self.made.len() as u32);
        self.made.push(MadeVariable { name, value });
        true
    }

    /// A hash of a name, regardless of case. If two names of a transaction have the same hash, the index finds only the
    /// later one.
    fn hash(&self, name: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = self.hasher.build_hasher();
        for byte in name {
            hasher.write_u8(byte.to_ascii_lowercase());
        }
        hasher.finish()
    }
}

/// Appends a value's text.
pub(crate) fn push_value(value: Value, names: &Names, text: &Text, out: &mut Vec<u8>) {
    match value {
        Value::Unset => {}
        Value::Number(number) => push_decimal(number, out),
        Value::Constant(constant) => out.extend_from_slice(names.text(constant)),
        Value::Text(span) => out.extend_from_slice(text.get(span)),
    }
}

/// A value as a number.
pub(crate) fn number(value: Value, names: &Names, text: &Text) -> i64 {
    match value {
        Value::Unset => 0,
        Value::Number(number) => number,
        Value::Constant(constant) => leading_number(names.text(constant)),
        Value::Text(span) => leading_number(text.get(span)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_text_begins_with() {
        for (text, number) in [
            ("", 0),
            ("5", 5),
            (" +7x", 7),
            ("-12-3", -12),
            ("abc", 0),
            ("99999999999999999999", i64::MAX),
            ("-99999999999999999999", i64::MIN),
        ] {
            assert_eq!(leading_number(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn only_texts_that_come_back_the_same_are_numbers() {
        for text in ["0", "5", "-3", "4250"] {
            assert_eq!(exact_number(text.as_bytes()).map(|number| number.to_string()).as_deref(), Some(text));
        }
        for text in ["", "00", "05", "+5", "5 ", "-0", "1e3", "99999999999999999999"] {
            assert_eq!(exact_number(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn made_names_ignore_case_and_are_bounded() {
        let mut text = Text::default();
        let mut variables = Variables::default();
        let (first, again, other) =
            (text.push(b"Counter_A"), text.push(b"counter_a"), text.push(b"counter_b"));
        assert!(variables.set_made(first, Value::Number(1), &text, 1));
        assert!(variables.set_made(again, Value::Number(2), &text, 1));
        assert!(!variables.set_made(other, Value::Number(3), &text, 1));
        assert_eq!(variables.get_made(b"COUNTER_A", &text), Value::Number(2));
        assert_eq!(variables.get_made(b"counter_b", &text), Value::Unset);
    }
}
