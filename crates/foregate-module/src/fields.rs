//! The fields of heads, in the form in which steps read and change them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::text::Text;

/// The fields of a head, in their order. Names are compared without regard to case.
pub trait Fields {
    /// The number of fields.
    fn count(&self) -> usize;

    /// Name and value of the field with this number, from 0.
    fn field(&self, number: usize) -> Option<(&[u8], &[u8])>;

    /// The value of the first field of this name.
    fn get(&self, name: &str) -> Option<&[u8]> {
        self.find(name.as_bytes(), 0).map(|(_, value)| value)
    }

    /// The number and value of the first field of this name, from the number `from` on. The default compares one field
    /// after the other; a platform with a faster search overrides it.
    fn find(&self, name: &[u8], from: usize) -> Option<(usize, &[u8])> {
        (from..self.count()).find_map(|number| {
            let (found, value) = self.field(number)?;
            found.eq_ignore_ascii_case(name).then_some((number, value))
        })
    }

    /// The number and value of the next field that has the same name as the field with this number.
    fn find_again(&self, number: usize) -> Option<(usize, &[u8])> {
        self.find(self.field(number)?.0, number + 1)
    }
}

impl dyn Fields + '_ {
    /// All fields, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.count()).filter_map(|number| self.field(number))
    }

    /// The values of all fields of a name.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        self.named(name.as_bytes())
    }

    /// The values of all fields of a name, which is given as bytes.
    pub fn named<'f, 'n>(&'f self, name: &'n [u8]) -> impl Iterator<Item = &'f [u8]> + use<'f, 'n> {
        let mut last = None;
        core::iter::from_fn(move || {
            let (number, value) = match last {
                None => self.find(name, 0)?,
                Some(last) => self.find_again(last)?,
            };
            last = Some(number);
            Some(value)
        })
    }
}

/// Fields that can be changed. Only the platform does; steps return [`Edits`].
pub trait FieldsMut: Fields {
    /// Adds a field at the end.
    fn append(&mut self, name: &[u8], value: &[u8]);

    /// Sets the value of a name: the first field of this name gets the value and keeps its position, and the other fields
    /// of this name are removed.
    fn set(&mut self, name: &[u8], value: &[u8]);

    /// Removes all fields of a name.
    fn remove(&mut self, name: &[u8]);

    /// Removes the fields for which `keep` returns false. It is called for each field in order.
    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool);
}

/// The reason why a module cannot set a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// The name is not a token (RFC 9110, section 5.6.2).
    Name,
    /// The value has a control byte, or a blank at an end (RFC 9110, section 5.5).
    Value,
    /// The field controls the framing of the message or the reuse of the connection. Only the platform may change it.
    Framing,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "this is not the name of a field",
            Self::Value => "this cannot be the value of a field: it has a control byte, or a blank at an end",
            Self::Framing => "this field belongs to the connection or the framing, which no module changes",
        })
    }
}

/// Fields that control the framing of a message or the reuse of its connection.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "http2-settings",
];

/// The bytes of a token (RFC 9110, section 5.6.2).
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let (mut byte, marks) = (0, b"!#$%&'*+-.^_`|~");
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};

/// A field. Its name and value are valid, and it does not control the framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    name: Text,
    value: Text,
}

impl Field {
    /// Creates a field.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the field controls the framing.
    pub fn new(name: impl Into<Text>, value: impl Into<Text>) -> Result<Self, FieldError> {
        let (name, value) = (name.into(), value.into());
        check_name(&name)?;
        check_value(&value)?;
        Ok(Self { name, value })
    }

    /// Returns a field with the same name and another value.
    ///
    /// # Errors
    ///
    /// The value is invalid.
    pub fn with_value(&self, value: impl Into<Text>) -> Result<Self, FieldError> {
        let value = value.into();
        check_value(&value)?;
        Ok(Self { name: self.name.clone(), value })
    }

    /// An edit that removes all fields with the name of this field.
    pub fn removal(&self) -> Edit {
        Edit::Remove(self.name.clone())
    }

    /// The name as it is written to the connection.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

/// Checks that a module may set or remove fields of this name.
///
/// # Errors
///
/// The name is invalid, or the field controls the framing.
pub fn check_name(name: &[u8]) -> Result<(), FieldError> {
    if name.is_empty() || !name.iter().all(|byte| TOKEN[usize::from(*byte)]) {
        return Err(FieldError::Name);
    }
    if is_framing(name) { Err(FieldError::Framing) } else { Ok(()) }
}

fn is_framing(name: &[u8]) -> bool {
    FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing.as_bytes()))
}

/// Checks that these bytes can be the value of a field.
///
/// # Errors
///
/// The bytes contain a control byte, or begin or end with a blank.
pub fn check_value(value: &[u8]) -> Result<(), FieldError> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    // Check a word at a time. The last word may overlap the one before it.
    let may_have = match value.last_chunk() {
        Some(last) => value.as_chunks().0.iter().any(may_have_control) || may_have_control(last),
        None => true,
    };
    if (may_have && value.iter().any(control)) || blank(value.first()) || blank(value.last()) {
        return Err(FieldError::Value);
    }
    Ok(())
}

/// Returns true if one of the bytes is a control byte. A tab counts as one.
#[inline]
fn may_have_control(bytes: &[u8; 8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(*bytes);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let not_del = word ^ (ONES * 0x7f);
    let del = not_del.wrapping_sub(ONES) & !not_del;
    // A borrow can make a wrong bit, but only in a byte above a control byte.
    (below_space | del) & (ONES * 0x80) != 0
}

/// One change to the fields of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Set the name to exactly this value.
    Set(Field),
    /// Append a field.
    Append(Field),
    /// Append a field, unless there is one of this name.
    Default(Field),
    /// Remove all fields of this name.
    Remove(Text),
    /// Remove the fields with these numbers. They are the numbers that the fields had when the step read them. The field
    /// `n` is bit `n % 64` of word `n / 64`.
    RemoveNumbers(Vec<u64>),
}

impl Edit {
    /// The name of the fields that the edit changes; `None` if it identifies them by number.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Set(field) | Self::Append(field) | Self::Default(field) => Some(field.name()),
            Self::Remove(name) => Some(name),
            Self::RemoveNumbers(_) => None,
        }
    }

    fn apply(&self, fields: &mut dyn FieldsMut) {
        match self {
            Self::Set(field) => fields.set(field.name(), field.value()),
            Self::Append(field) => fields.append(field.name(), field.value()),
            Self::Default(field) => {
                if fields.find(field.name(), 0).is_none() {
                    fields.append(field.name(), field.value());
                }
            }
            // No field has an invalid name.
            Self::Remove(name) if is_framing(name) => {}
            Self::Remove(name) => fields.remove(name),
            Self::RemoveNumbers(numbers) => remove_numbers(fields, numbers),
        }
    }
}

/// Changes to the fields of a head, in their order.
///
/// The methods that take a name and a value drop invalid fields without an error. A step that needs the error makes a
/// [`Field`] first.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    /// The first parts, kept without an allocation, because most steps change little. The used slots come first.
    few: [Option<Part>; 2],
    rest: Vec<Part>,
}

/// A change that is owned by the list, or a group of changes that is shared with settings.
#[derive(Debug, Clone)]
enum Part {
    Own(Box<Edit>),
    Shared(Arc<[Edit]>),
}

impl Part {
    fn edits(&self) -> &[Edit] {
        match self {
            Self::Own(edit) => core::slice::from_ref(&**edit),
            Self::Shared(edits) => edits,
        }
    }
}

impl PartialEq for Edits {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Edits {}

impl Edits {
    /// No change.
    pub const fn new() -> Self {
        Self { few: [const { None }; 2], rest: Vec::new() }
    }

    /// Starts with changes that are part of settings.
    pub fn shared(edits: &Arc<[Edit]>) -> Self {
        let mut made = Self::new();
        made.push_shared(edits);
        made
    }

    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Adds a change.
    pub fn push(&mut self, edit: Edit) {
        self.add(Part::Own(Box::new(edit)));
    }

    /// Adds changes that are part of settings. They are not copied.
    pub fn push_shared(&mut self, edits: &Arc<[Edit]>) {
        if !edits.is_empty() {
            self.add(Part::Shared(Arc::clone(edits)));
        }
    }

    /// Appends other changes.
    pub fn extend(&mut self, others: &Self) {
        others.parts().cloned().for_each(|part| self.add(part));
    }

    fn add(&mut self, part: Part) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(part),
            None => self.rest.push(part),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.few.iter().flatten().chain(&self.rest)
    }

    /// Sets a name to exactly this value. An invalid field changes nothing.
    #[must_use]
    pub fn set(mut self, name: impl Into<Text>, value: impl Into<Text>) -> Self {
        if let Ok(field) = Field::new(name, value) {
            self.push(Edit::Set(field));
        }
        self
    }

    /// Appends a field. An invalid field changes nothing.
    #[must_use]
    pub fn append(mut self, name: impl Into<Text>, value: impl Into<Text>) -> Self {
        if let Ok(field) = Field::new(name, value) {
            self.push(Edit::Append(field));
        }
        self
    }

    /// Removes all fields of a name.
    #[must_use]
    pub fn remove(mut self, name: impl Into<Text>) -> Self {
        let name = name.into();
        if check_name(&name).is_ok() {
            self.push(Edit::Remove(name));
        }
        self
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.parts().flat_map(Part::edits)
    }

    /// Returns true if the changes would modify these fields.
    pub fn change(&self, fields: &dyn Fields) -> bool {
        let all = || (0..fields.count()).filter_map(|number| fields.field(number));
        let values = |name: &[u8]| {
            all()
                .filter(|(found, _)| found.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
        };
        self.iter().any(|edit| match edit {
            Edit::Set(field) => values(field.name()) != [field.value()],
            Edit::Append(_) => true,
            Edit::Default(field) => values(field.name()).is_empty(),
            Edit::Remove(name) => !values(name).is_empty(),
            Edit::RemoveNumbers(numbers) => numbers.iter().any(|word| *word != 0),
        })
    }

    /// Applies the changes. Fields that control the framing are never changed.
    pub fn apply(&self, fields: &mut dyn FieldsMut) {
        for part in self.parts() {
            for edit in part.edits() {
                edit.apply(fields);
            }
        }
    }
}

fn remove_numbers(fields: &mut dyn FieldsMut, numbers: &[u64]) {
    let mut number = 0;
    fields.retain(&mut |name, _| {
        let word = numbers.get(number / 64).copied().unwrap_or_default();
        let named = word >> (number % 64) & 1 == 1;
        number += 1;
        !named || is_framing(name)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_no_control_bytes_but_tabs_within() {
        for length in 1..=20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut value = alloc::vec![b'a'; length];
                    value[at] = byte;
                    let edge = at == 0 || at == length - 1;
                    let fits = match byte {
                        b'\t' | b' ' => !edge,
                        byte => byte > b' ' && byte != 0x7f,
                    };
                    assert_eq!(check_value(&value).is_ok(), fits, "{byte:#x} at {at} of {length}");
                }
            }
        }
        assert_eq!(check_value(b""), Ok(()));
    }

    #[test]
    fn edits_are_made_in_their_order_however_many_there_are() {
        for count in 0..6 {
            let name = |number: u8| Vec::from([b'a' + number]);
            let edits = (0..count).fold(Edits::new(), |edits, number| match number {
                2 => {
                    let mut edits = edits;
                    edits.push_shared(&[Edit::Remove(name(2).into())].into());
                    edits
                }
                number => edits.remove(name(number)),
            });
            assert_eq!(edits.is_empty(), count == 0);
            let mut twice = Edits::new();
            twice.extend(&edits);
            twice.extend(&edits);
            let removed = |edits: &Edits| -> Vec<Text> {
                let name =
                    |edit: &Edit| if let Edit::Remove(name) = edit { Some(name.clone()) } else { None };
                edits.iter().filter_map(name).collect()
            };
            let expected: Vec<Vec<u8>> = (0..count).map(name).collect();
            assert!(removed(&edits).iter().map(|name| &**name).eq(expected.iter().map(Vec::as_slice)));
            let again = expected.iter().chain(&expected).map(Vec::as_slice);
            assert!(removed(&twice).iter().map(|name| &**name).eq(again));
        }
    }
}
