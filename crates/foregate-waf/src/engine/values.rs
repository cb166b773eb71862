//! The request and response as rules see them: names and values, grouped in families. All text is in one
//! buffer.
//!
//! Text is referenced by [`Span`], never by pointer: a value, a captured part of it, and a variable
//! that was set to it are eight bytes each, and a match copies nothing.

use crate::model::Variable;

/// A piece of the transaction's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// The empty piece.
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0 };

    /// Its length in bytes.
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// A part of this piece. The bounds are clipped at the piece's end.
    pub(crate) fn part(self, from: usize, to: usize) -> Self {
        let from = from.min(self.len());
        let to = to.clamp(from, self.len());
        Self { start: self.start + from as u32, len: (to - from) as u32 }
    }
}

/// All text of a transaction, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// Appends a piece. A piece that does not fit into 4 GiB becomes empty; the limits of text are far below that.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Span {
        let start = self.bytes.len();
        if start + piece.len() > u32::MAX as usize {
            return Span::EMPTY;
        }
        self.bytes.extend_from_slice(piece);
        Span { start: start as u32, len: piece.len() as u32 }
    }

    /// Appends the output of `write` as one piece.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.bytes.len();
        write(&mut self.bytes);
        if self.bytes.len() > u32::MAX as usize {
            self.bytes.truncate(start);
            return Span::EMPTY;
        }
        Span { start: start as u32, len: (self.bytes.len() - start) as u32 }
    }

    /// The piece's bytes.
    #[inline]
    pub(crate) fn get(&self, span: Span) -> &[u8] {
        self.bytes.get(span.start as usize..span.start as usize + span.len()).unwrap_or_default()
    }

    /// Truncates to this length. No span after it may be in use.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// The length of the text, bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A list of values of one kind. Arguments of the query and of the body are in one family, those of the query
/// first. `ARGS`, `ARGS_GET` and `ARGS_POST` are therefore ranges of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Family {
    /// Values of arguments.
    Args,
    /// Names of arguments.
    ArgNames,
    /// Values of request fields.
    Headers,
    /// Names of request fields.
    HeaderNames,
    /// Values of cookies.
    Cookies,
    /// Names of cookies.
    CookieNames,
    /// File names that the client gave to uploaded files.
    Files,
    /// Names of the form fields with which files were uploaded.
    FileNames,
    /// Sizes of uploaded files.
    FileSizes,
    /// The content of uploaded files.
    FileContents,
    /// `filename` of the parts of a multipart body.
    PartFileNames,
    /// `name` of the parts of a multipart body.
    PartNames,
    /// Header lines of the parts of a multipart body.
    PartHeaders,
    /// Text of an XML body.
    XmlText,
    /// Values of attributes of an XML body.
    XmlAttributes,
    /// Values of response fields.
    ResponseHeaders,
    /// Names of response fields.
    ResponseHeaderNames,
    /// Variables with one value that does not change within a phase.
    Scalars,
}

/// The number of families.
pub(crate) const FAMILIES: usize = Family::Scalars as usize + 1;

/// The part of a family that a variable refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    /// The whole family.
    Whole,
    /// Values from the request's target.
    Query,
    /// Values from the request's body.
    Body,
}

/// The initial capacity for text, bytes. Most requests do not exceed it, including transformed values.
const TEXT_ROOM: usize = 8 << 10;
/// The initial capacity for fields and arguments, which most requests do not exceed.
const UNITS_ROOM: usize = 16;
/// The initial capacity for the scalars of a request and its response.
const SCALARS_ROOM: usize = 32;

/// A name and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// The name as received; empty for a scalar.
    pub(crate) name: Span,
    /// The value.
    pub(crate) value: Span,
    /// The number of the name among the names that rules mention for this family; [`UNNAMED`] for others.
    pub(crate) known: u16,
    /// The number of the interest that applies to the value in the current phase.
    pub(crate) interest: u16,
    /// The position of the value's transformed forms in the phase's list. [`UNCHANGED`] if each form is equal to the
    /// value, and [`UNFED`] if the forms were not prepared.
    pub(crate) forms: u32,
    /// The position of the value's candidates in the phase's list of words; [`UNFED`] if they were not computed.
    pub(crate) candidates: u32,
}

/// [`Unit::known`] of names that no rule mentions.
pub(crate) const UNNAMED: u16 = u16::MAX;
/// [`Unit::forms`] of a value that no transformation of the phase changes.
pub(crate) const UNCHANGED: u32 = u32::MAX - 1;
/// [`Unit::forms`] and [`Unit::candidates`] of a value that was not prepared.
pub(crate) const UNFED: u32 = u32::MAX;

impl Unit {
    fn new(name: Span, value: Span, known: u16) -> Self {
        Self { name, value, known, interest: 0, forms: UNFED, candidates: UNFED }
    }
}

/// All names and values.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) text: Text,
    families: [Vec<Unit>; FAMILIES],
    /// The number of argument values that came from the query, and the number of argument names.
    from_query: (usize, usize),
    /// The position of a scalar in its family, plus one; zero if it has no value.
    scalars: Vec<u8>,
    /// The positions of the normal forms, for scalars that were sent in another form. Usually empty.
    normal: Vec<(Variable, u8)>,
}

impl Values {
    /// Creates an empty collection with the capacity that most requests need, so that it is seldom moved while it
    /// grows.
    pub(crate) fn with_room() -> Self {
        let mut values = Self::default();
        values.text.bytes.reserve(TEXT_ROOM);
        for family in [Family::Headers, Family::HeaderNames, Family::Args, Family::ArgNames] {
            values.families[family as usize].reserve(UNITS_ROOM);
        }
        values.families[Family::Scalars as usize].reserve(SCALARS_ROOM);
        values
    }

    /// Adds a name and value, given as pieces of the text.
    pub(crate) fn add(&mut self, family: Family, name: Span, value: Span, known: u16) {
        self.families[family as usize].push(Unit::new(name, value, known));
    }

    /// Marks the end of the query: arguments that are added later come from the body.
    pub(crate) fn end_of_query(&mut self) {
        let len = |family: Family| self.families[family as usize].len();
        self.from_query = (len(Family::Args), len(Family::ArgNames));
    }

    /// Sets a scalar to a piece of the text.
    pub(crate) fn set(&mut self, scalar: Variable, value: Span) {
        if self.scalars.is_empty() {
            self.scalars.resize(Variable::ALL.len(), 0);
        }
        let units = &mut self.families[Family::Scalars as usize];
        let place = &mut self.scalars[scalar as usize];
        match units.get_mut(usize::from(*place).wrapping_sub(1)) {
            Some(unit) => unit.value = value,
            None => {
                units.push(Unit::new(Span::EMPTY, value, scalar as u16));
                *place = units.len() as u8;
            }
        }
    }

    /// Adds the normal form of a scalar to the value that was sent. To be called at most once for each scalar.
    pub(crate) fn set_normal(&mut self, scalar: Variable, value: Span) {
        let units = &mut self.families[Family::Scalars as usize];
        if let Ok(place) = u8::try_from(units.len()) {
            units.push(Unit::new(Span::EMPTY, value, scalar as u16));
            self.normal.push((scalar, place));
        }
    }

    /// The position of a scalar's normal form in its family; `None` if it was sent in that form.
    #[inline]
    pub(crate) fn normal_place(&self, scalar: Variable) -> Option<usize> {
        self.normal.iter().find(|(known, _)| *known == scalar).map(|(_, place)| usize::from(*place))
    }

    /// Sets a scalar to text.
    pub(crate) fn set_text(&mut self, scalar: Variable, value: &[u8]) {
        let span = self.text.push(value);
        self.set(scalar, span);
    }

    /// Sets a scalar to a number.
    pub(crate) fn set_number(&mut self, scalar: Variable, value: u64) {
        let mut digits = [0; 20];
        let span = self.text.push(decimal(value, &mut digits));
        self.set(scalar, span);
    }

    /// A scalar's value, or the empty piece.
    pub(crate) fn scalar(&self, scalar: Variable) -> Span {
        self.scalar_place(scalar)
            .map_or(Span::EMPTY, |place| self.families[Family::Scalars as usize][place].value)
    }

    /// The position of a scalar in its family.
    #[inline]
    pub(crate) fn scalar_place(&self, scalar: Variable) -> Option<usize> {
        self.scalars.get(scalar as usize).and_then(|place| usize::from(*place).checked_sub(1))
    }

    /// The range of a family that a variable refers to.
    #[inline]
    pub(crate) fn range(&self, family: Family, half: Half) -> std::ops::Range<usize> {
        let len = self.families[family as usize].len();
        let from_query = if family == Family::ArgNames { self.from_query.1 } else { self.from_query.0 };
        match half {
            Half::Whole => 0..len,
            Half::Query => 0..from_query.min(len),
            Half::Body => from_query.min(len)..len,
        }
    }

    /// The values of a family.
    #[inline]
    pub(crate) fn units(&self, family: Family) -> &[Unit] {
        &self.families[family as usize]
    }

    /// The values of a family, for preparing them.
    pub(crate) fn units_mut(&mut self, family: Family) -> &mut [Unit] {
        &mut self.families[family as usize]
    }
}

/// Writes a number in decimal into a buffer and returns its digits.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Appends a signed number in decimal.
pub(crate) fn push_decimal(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(decimal(number.unsigned_abs(), &mut [0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_set_once_and_again() {
        let mut values = Values::default();
        assert_eq!(values.scalar_place(Variable::RequestMethod), None);
        values.set_text(Variable::RequestMethod, b"GET");
        values.set_number(Variable::RequestBodyLength, 120);
        values.set_text(Variable::RequestMethod, b"POST");
        assert_eq!(values.text.get(values.scalar(Variable::RequestMethod)), b"POST");
        assert_eq!(values.text.get(values.scalar(Variable::RequestBodyLength)), b"120");
        assert_eq!(values.units(Family::Scalars).len(), 2);
    }

    #[test]
    fn parts_of_spans_stay_inside() {
        let mut text = Text::default();
        let span = text.push(b"abcdef");
        assert_eq!(text.get(span.part(2, 4)), b"cd");
        assert_eq!(text.get(span.part(4, 99)), b"ef");
        assert_eq!(text.get(span.part(99, 1)), b"");
    }

    #[test]
    fn decimal_of_extremes() {
        let mut out = Vec::new();
        for number in [0, 7, -1, i64::MAX, i64::MIN] {
            out.clear();
            push_decimal(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
