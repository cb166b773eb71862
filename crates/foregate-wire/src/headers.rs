//! The ordered list of fields that every part of the proxy reads.

use core::fmt;

use crate::chars::{eq_but_case, has, is_token, is_value_byte, trim};
use crate::name_id::{FieldName, NameId};
use crate::serialise::write_field;

/// The longest field name a list holds, in bytes.
pub const MAX_NAME: usize = u16::MAX as usize;

/// The separator of name and value in HTTP/1.
const SEPARATOR: &[u8; 2] = b": ";
const LINE_END: &[u8; 2] = b"\r\n";

/// The bit in the mask of present ids that is set for names with a `_`: a program may confuse these with other names.
const UNDERSCORE: u128 = 1 << 127;

/// Why a field was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The name is empty or holds a byte that is no token character (RFC 9110, 5.1).
    #[error("the field name is empty or holds a byte that is not allowed in a token")]
    BadName,
    /// The value holds a control byte (RFC 9110, 5.5).
    #[error("the field value holds a control byte")]
    BadValue,
    /// The name is longer than [`MAX_NAME`], or the list would outgrow 4 GiB.
    #[error("the field is too long")]
    TooLong,
}

/// One field of a [`HeaderList`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The id of the name.
    pub id: NameId,
    /// The name in the case in which it came.
    pub name: &'a [u8],
    /// The value without blanks around it.
    pub value: &'a [u8],
}

impl fmt::Debug for Field<'_> {
    /// Writes `<masked>` for the value of a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name.escape_ascii())?;
        if self.id.is_secret() { f.write_str("<masked>") } else { write!(f, "{}", self.value.escape_ascii()) }
    }
}

/// The position of a field's bytes in the arena. An entry has 16 bytes, so that four entries fit a cache line.
#[derive(Clone, Copy)]
struct FieldEntry {
    name_start: u32,
    value_start: u32,
    value_len: u32,
    name_len: u16,
    id: NameId,
}

const _: () = assert!(size_of::<FieldEntry>() == 16);

impl FieldEntry {
    #[inline]
    fn name(self, arena: &[u8]) -> &[u8] {
        let start = self.name_start as usize;
        arena.get(start..start + usize::from(self.name_len)).unwrap_or_default()
    }

    #[inline]
    fn value(self, arena: &[u8]) -> &[u8] {
        let start = self.value_start as usize;
        arena.get(start..start + self.value_len as usize).unwrap_or_default()
    }

    /// Returns true if the field has this name, regardless of case. `name` is compared only if the id is unknown and the
    /// lengths are equal.
    #[inline(always)]
    fn is(self, id: NameId, name: &[u8], arena: &[u8]) -> bool {
        self.id == id
            && (id != NameId::Unknown
                || usize::from(self.name_len) == name.len() && self.is_spelt(name, arena))
    }

    #[inline(never)]
    fn is_spelt(self, name: &[u8], arena: &[u8]) -> bool {
        eq_but_case(self.name(arena), name)
    }

    #[inline]
    fn field(self, arena: &[u8]) -> Field<'_> {
        Field { id: self.id, name: self.name(arena), value: self.value(arena) }
    }

    /// The end of the field's line in the buffer, if the buffer holds exactly `name: value CRLF` for it.
    #[inline]
    fn line_end(self, arena: &[u8]) -> Option<usize> {
        let (start, name_len) = (self.name_start as usize, usize::from(self.name_len));
        let value_start = self.value_start as usize;
        let end = value_start + self.value_len as usize + LINE_END.len();
        let line = arena.get(start..end)?;
        let whole = start + name_len + SEPARATOR.len() == value_start
            && line.get(name_len..)?.first_chunk() == Some(SEPARATOR)
            && line.last_chunk() == Some(LINE_END);
        whole.then_some(end)
    }
}

/// The ids of names that may be present, a bit each, and [`UNDERSCORE`]: a bit that is not set proves absence without a look at
/// the fields.
#[derive(Clone, Copy, Default)]
struct PresentIds(u128);

impl PresentIds {
    #[inline]
    fn may_have(self, id: NameId) -> bool {
        self.0 & id.bit() != 0
    }

    #[inline]
    fn may_have_underscores(self) -> bool {
        self.0 & UNDERSCORE != 0
    }
}

/// The bytes of fields, and where each of them is.
#[derive(Default)]
struct FieldTable {
    arena: Vec<u8>,
    entries: Vec<FieldEntry>,
}

impl FieldTable {
    /// The position of the first field with a name, from `from` on. Most names that are looked up are absent, so lengths
    /// are compared first, and bytes only if the lengths are equal.
    #[inline]
    fn position_of(&self, id: NameId, name: &[u8], from: usize) -> Option<usize> {
        let entries = self.entries.get(from..)?;
        let at = match id {
            NameId::Unknown => entries.iter().position(|entry| entry.is(NameId::Unknown, name, &self.arena)),
            id => entries.iter().position(|entry| entry.id == id),
        };
        at.map(|at| from + at)
    }

    /// The number of bytes for which the arena has room, because offsets are 32 bits wide.
    fn room(&self) -> usize {
        (u32::MAX as usize).saturating_sub(self.arena.len())
    }

    #[inline]
    fn has_room(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() <= MAX_NAME && self.room() >= line_len(name, value)
    }

    /// Writes a field as a line of HTTP/1 to the arena; where its value begins.
    #[inline]
    fn write_line(&mut self, name: &[u8], value: &[u8]) -> u32 {
        let value_start = (self.arena.len() + name.len() + SEPARATOR.len()) as u32;
        self.arena.reserve(line_len(name, value));
        self.arena.extend_from_slice(name);
        self.arena.extend_from_slice(SEPARATOR);
        self.arena.extend_from_slice(value);
        self.arena.extend_from_slice(LINE_END);
        value_start
    }

    fn replace_value(&mut self, at: usize, value: &[u8]) {
        if self.room() < value.len() {
            return;
        }
        let Some(entry) = self.entries.get_mut(at) else { return };
        let mut start = entry.value_start as usize;
        let fits = value.len() <= entry.value_len as usize;
        match self.arena.get_mut(start..start + value.len()).filter(|_| fits) {
            Some(room) => room.copy_from_slice(value),
            None => {
                start = self.arena.len();
                self.arena.extend_from_slice(value);
            }
        }
        entry.value_start = start as u32;
        entry.value_len = value.len() as u32;
    }

    /// Removes the fields of a name from this position on and returns their number.
    fn remove_from(&mut self, from: usize, id: NameId, name: &[u8]) -> usize {
        let Some(first) = self.position_of(id, name, from) else { return 0 };
        self.entries.remove(first);
        // Usually there is no other field with the name.
        if self.position_of(id, name, first).is_none() {
            return 1;
        }
        let (before, arena, mut at) = (self.entries.len(), &self.arena, 0);
        self.entries.retain(|entry| {
            at += 1;
            at <= first || !entry.is(id, name, arena)
        });
        1 + before - self.entries.len()
    }
}

/// Fields in the order in which they came, with their case and their duplicates.
///
/// One buffer holds the bytes of all fields, and each field has an entry of 16 bytes. So a list that is cleared and
/// filled again allocates nothing. The bytes of removed fields remain in the buffer until [`clear`](Self::clear). If
/// possible, the buffer holds a field as its HTTP/1 line, so that a head is written by copying a few pieces.
#[derive(Default)]
pub struct HeaderList {
    table: FieldTable,
    present: PresentIds,
}

impl HeaderList {
    /// An empty list that has not allocated.
    pub const fn new() -> Self {
        Self { table: FieldTable { arena: Vec::new(), entries: Vec::new() }, present: PresentIds(0) }
    }

    /// Removes all fields and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.table.arena.clear();
        self.table.entries.clear();
        self.present = PresentIds(0);
    }

    /// Gives back memory beyond these sizes: bytes of the buffer, and number of fields.
    pub fn shrink_to(&mut self, arena: usize, fields: usize) {
        self.table.arena.shrink_to(arena);
        self.table.entries.shrink_to(fields);
    }

    /// Reserves memory for this many more bytes and fields.
    pub fn reserve(&mut self, arena: usize, fields: usize) {
        self.table.arena.reserve(arena);
        self.table.entries.reserve(fields);
    }

    /// The memory that the list has allocated, in bytes.
    pub fn memory(&self) -> usize {
        self.table.arena.capacity() + self.table.entries.capacity() * size_of::<FieldEntry>()
    }

    /// Number of fields, duplicates counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Returns true if there is no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }

    /// Bytes in use in the buffer, including removed fields and separators.
    #[inline]
    pub fn arena_len(&self) -> usize {
        self.table.arena.len()
    }

    /// Adds a field at the end.
    ///
    /// The caller (a parser, or HTTP/2's decoder) has validated name and value; for bytes from anywhere else use
    /// [`try_push`](Self::try_push). A name beyond [`MAX_NAME`] or a list beyond 4 GiB leaves the list as it was.
    #[inline]
    pub fn push<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        let name = name.into();
        self.push_with_id(name.id(), name.bytes(), value);
    }

    /// Adds a field with a known name at the end, the name in its canonical case. Does nothing for
    /// [`NameId::Unknown`].
    #[inline]
    pub fn push_id(&mut self, id: NameId, value: &[u8]) {
        if id != NameId::Unknown {
            self.push_with_id(id, id.as_canonical().as_bytes(), value);
        }
    }

    /// Checks name and value and adds the field at the end. Blanks around the value are left out.
    pub fn try_push(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        let value = check_field(name, value)?;
        if !self.table.has_room(name, value) {
            return Err(FieldError::TooLong);
        }
        self.push(name, value);
        Ok(())
    }

    /// Adds the fields of another list at the end. A field that would make the list larger than 4 GiB is not added.
    pub fn append(&mut self, other: &Self) {
        if self.table.room() < other.table.arena.len() {
            return;
        }
        let behind = self.table.arena.len() as u32;
        self.table.arena.extend_from_slice(&other.table.arena);
        self.present.0 |= other.present.0;
        self.table.entries.extend(other.table.entries.iter().map(|entry| FieldEntry {
            name_start: entry.name_start + behind,
            value_start: entry.value_start + behind,
            ..*entry
        }));
    }

    /// The fields in order.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { arena: &self.table.arena, entries: self.table.entries.iter() }
    }

    /// The field with this number, from 0.
    #[inline]
    pub fn at(&self, number: usize) -> Option<Field<'_>> {
        self.table.entries.get(number).map(|entry| entry.field(&self.table.arena))
    }

    /// The first value of a known name.
    #[inline]
    pub fn get(&self, id: NameId) -> Option<&[u8]> {
        if !self.present.may_have(id) {
            return None;
        }
        self.table.entries.iter().find(|entry| entry.id == id).map(|entry| entry.value(&self.table.arena))
    }

    /// All values of a known name, in order.
    #[inline]
    pub fn get_all(&self, id: NameId) -> impl Iterator<Item = &[u8]> {
        let entries = if self.present.may_have(id) { &self.table.entries[..] } else { &[] };
        entries.iter().filter(move |entry| entry.id == id).map(|entry| entry.value(&self.table.arena))
    }

    /// The number and the value of the first field with this name, regardless of case, from number `from` on.
    #[inline]
    pub fn find_name(&self, name: &[u8], from: usize) -> Option<(usize, &[u8])> {
        let at = self.position_of(NameId::from_name(name), name, from)?;
        self.table.entries.get(at).map(|entry| (at, entry.value(&self.table.arena)))
    }

    /// The number and the value of the next field with the same name as field number `at`. The name is not looked up again.
    pub fn find_again(&self, at: usize) -> Option<(usize, &[u8])> {
        let entry = *self.table.entries.get(at)?;
        let at = self.position_of(entry.id, entry.name(&self.table.arena), at + 1)?;
        self.table.entries.get(at).map(|entry| (at, entry.value(&self.table.arena)))
    }

    /// The first value of a field with this name, regardless of case. The name need not be a known one.
    pub fn get_name(&self, name: &[u8]) -> Option<&[u8]> {
        let mut values = self.get_all_name(name);
        values.next()
    }

    /// All values of the fields with this name, regardless of case, in order. The name need not be a known one.
    pub fn get_all_name<'a, 'n>(&'a self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let id = NameId::from_name(name);
        let arena = &self.table.arena;
        let entries = if self.present.may_have(id) { &self.table.entries[..] } else { &[] };
        entries.iter().filter(move |entry| entry.is(id, name, arena)).map(|entry| entry.value(arena))
    }

    /// Returns true if a known name is present.
    #[inline]
    pub fn contains(&self, id: NameId) -> bool {
        self.present.may_have(id) && self.table.entries.iter().any(|entry| entry.id == id)
    }

    /// How often a known name is present.
    #[inline]
    pub fn count(&self, id: NameId) -> usize {
        if !self.present.may_have(id) {
            return 0;
        }
        self.table.entries.iter().filter(|entry| entry.id == id).count()
    }

    /// Removes all fields of a known name and returns their number.
    #[inline]
    pub fn remove(&mut self, id: NameId) -> usize {
        if !self.present.may_have(id) || id == NameId::Unknown {
            return 0;
        }
        let removed = self.table.remove_from(0, id, b"");
        self.present.0 &= !id.bit();
        removed
    }

    /// Removes all fields with this name, regardless of case, and returns their number. The name need not be a known one.
    pub fn remove_name<'n>(&mut self, name: impl Into<FieldName<'n>>) -> usize {
        let name = name.into();
        let (id, name) = (name.id(), name.bytes());
        if !self.present.may_have(id) {
            return 0;
        }
        let removed = self.table.remove_from(0, id, name);
        if id != NameId::Unknown {
            self.present.0 &= !id.bit();
        }
        removed
    }

    /// Keeps the fields for which `keep` returns true, in their order. One pass.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let arena = &self.table.arena;
        let mut present = self.present.0 & UNDERSCORE;
        self.table.entries.retain(|entry| {
            let kept = keep(entry.field(arena));
            if kept {
                present |= entry.id.bit();
            }
            kept
        });
        self.present = PresentIds(present);
    }

    /// Keeps the fields that `keep` accepts, and all fields that were added after [`arena_len`](Self::arena_len) was
    /// `mark`. Replacing a field's value does not make it a new field.
    pub fn retain_before(&mut self, mark: usize, mut keep: impl FnMut(Field<'_>) -> bool) {
        let arena = &self.table.arena;
        let mut present = self.present.0 & UNDERSCORE;
        self.table.entries.retain(|entry| {
            let kept = entry.name_start as usize >= mark || keep(entry.field(arena));
            if kept {
                present |= entry.id.bit();
            }
            kept
        });
        self.present = PresentIds(present);
    }

    /// Gives a known name exactly this value: the first field with the name gets it and keeps its place, and the others are
    /// removed. If there is none, the field is added at the end. The caller has validated the value.
    pub fn set(&mut self, id: NameId, value: &[u8]) {
        if id == NameId::Unknown {
            return;
        }
        self.set_with_id(id, id.as_canonical().as_bytes(), value);
    }

    /// As [`set`](Self::set), for any name. The caller has validated name and value.
    pub fn set_name<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        let name = name.into();
        self.set_with_id(name.id(), name.bytes(), value);
    }

    fn set_with_id(&mut self, id: NameId, name: &[u8], value: &[u8]) {
        match self.position_of(id, name, 0) {
            Some(first) => {
                self.table.remove_from(first + 1, id, name);
                self.table.replace_value(first, value);
            }
            None => self.push_with_id(id, name, value),
        }
    }

    #[inline]
    fn position_of(&self, id: NameId, name: &[u8], from: usize) -> Option<usize> {
        if !self.present.may_have(id) {
            return None;
        }
        self.table.position_of(id, name, from)
    }

    /// Removes the fields of all ids in the mask. One pass over the entries.
    #[inline]
    pub(crate) fn remove_all(&mut self, ids: u128) {
        if self.present.0 & ids != 0 {
            self.table.entries.retain(|entry| entry.id.bit() & ids == 0);
            self.present.0 &= !ids;
        }
    }

    /// Removes all fields of these known names.
    #[inline]
    pub fn remove_each(&mut self, ids: &[NameId]) {
        let mask = ids.iter().fold(0, |mask, id| mask | id.bit());
        self.remove_all(mask & !NameId::Unknown.bit());
    }

    /// Bit mask of ids that may be present.
    #[inline]
    pub(crate) fn present(&self) -> u128 {
        self.present.0
    }

    /// Returns true if a name may contain a `_`; removed names count as well.
    #[inline]
    pub fn may_have_underscores(&self) -> bool {
        self.present.may_have_underscores()
    }

    #[inline]
    fn push_with_id(&mut self, id: NameId, name: &[u8], value: &[u8]) {
        if !self.table.has_room(name, value) {
            return;
        }
        let name_start = self.table.arena.len() as u32;
        let value_start = self.table.write_line(name, value);
        // No known name has a `_`.
        let underscore = id == NameId::Unknown && has(name, b'_');
        self.push_entry(id, underscore, name_start, name.len() as u16, value_start, value.len() as u32);
    }

    /// Appends the fields to `out` as HTTP/1 writes them, in order.
    pub(crate) fn write_lines(&self, out: &mut Vec<u8>) {
        let FieldTable { arena, entries } = &self.table;
        out.reserve(arena.len());
        // Lines that are contiguous in the buffer are copied as one piece.
        let (mut start, mut end) = (0, 0);
        for entry in entries {
            let line_end = entry.line_end(arena);
            if line_end.is_none() || entry.name_start as usize != end {
                out.extend_from_slice(arena.get(start..end).unwrap_or_default());
                start = entry.name_start as usize;
            }
            end = line_end.unwrap_or_else(|| {
                write_field(out, entry.name(arena), entry.value(arena));
                start
            });
        }
        out.extend_from_slice(arena.get(start..end).unwrap_or_default());
    }

    /// For the head parser: adds a field with bytes at these offsets of the arena. The parser
    /// appends the bytes with [`append_arena`](Self::append_arena) before the list is read.
    #[inline]
    pub(crate) fn push_entry(
        &mut self,
        id: NameId,
        underscore: bool,
        name_start: u32,
        name_len: u16,
        value_start: u32,
        value_len: u32,
    ) {
        self.present.0 |= id.bit() | if underscore { UNDERSCORE } else { 0 };
        self.table.entries.push(FieldEntry { name_start, value_start, value_len, name_len, id });
    }

    /// For the head parser: copies all fields of `earlier` if `text` begins with exactly their lines and the empty line.
    /// Returns the length of these lines.
    #[inline]
    pub(crate) fn repeat(&mut self, earlier: &Self, text: &[u8]) -> Option<usize> {
        if earlier.table.arena.is_empty() || !text.starts_with(&earlier.table.arena) {
            return None;
        }
        self.clone_from(earlier);
        Some(earlier.table.arena.len())
    }

    /// For the head parser: adds the next field of `earlier`, which is a complete head, if `text` begins with the same
    /// line. The field's bytes are, or will be, at `offset` in the arena. Returns the length of the line.
    #[inline]
    pub(crate) fn repeat_line(&mut self, earlier: &Self, offset: usize, text: &[u8]) -> Option<usize> {
        let number = self.table.entries.len();
        let entry = *earlier.table.entries.get(number)?;
        let start = entry.name_start as usize;
        let end = match earlier.table.entries.get(number + 1) {
            Some(next) => next.name_start as usize,
            None => earlier.table.arena.len().saturating_sub(LINE_END.len()),
        };
        let line = earlier.table.arena.get(start..end)?;
        if !text.starts_with(line) {
            return None;
        }
        let unknown = entry.id == NameId::Unknown && earlier.may_have_underscores();
        let underscore = unknown && has(entry.name(&earlier.table.arena), b'_');
        let (offset, value) = (offset as u32, entry.value_start - entry.name_start);
        self.push_entry(entry.id, underscore, offset, entry.name_len, offset + value, entry.value_len);
        Some(line.len())
    }

    /// For the head parser: appends bytes to which entries point already.
    #[inline]
    pub(crate) fn append_arena(&mut self, bytes: &[u8]) {
        self.table.arena.extend_from_slice(bytes);
    }
}

fn line_len(name: &[u8], value: &[u8]) -> usize {
    name.len().saturating_add(value.len()).saturating_add(SEPARATOR.len() + LINE_END.len())
}

/// Checks a field that no parser has validated, and returns its value without the blanks around it.
pub(crate) fn check_field<'a>(name: &[u8], value: &'a [u8]) -> Result<&'a [u8], FieldError> {
    if !is_token(name) {
        return Err(FieldError::BadName);
    }
    if !value.iter().all(|&byte| is_value_byte(byte)) {
        return Err(FieldError::BadValue);
    }
    Ok(trim(value))
}

impl Clone for HeaderList {
    fn clone(&self) -> Self {
        let FieldTable { arena, entries } = &self.table;
        Self { table: FieldTable { arena: arena.clone(), entries: entries.clone() }, present: self.present }
    }

    /// Copies `source` into the memory that this list has already.
    fn clone_from(&mut self, source: &Self) {
        self.table.arena.clone_from(&source.table.arena);
        self.table.entries.clone_from(&source.table.entries);
        self.present = source.present;
    }
}

impl fmt::Debug for HeaderList {
    /// One line per field; secrets show as `<masked>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a HeaderList {
    type Item = Field<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl PartialEq for HeaderList {
    /// Same fields in the same order, names compared with their case.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for HeaderList {}

/// The fields of a [`HeaderList`], in order.
#[derive(Clone)]
pub struct Iter<'a> {
    arena: &'a [u8],
    entries: core::slice::Iter<'a, FieldEntry>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        self.entries.next().map(|entry| entry.field(self.arena))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}
