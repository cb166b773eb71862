//! Reads attributes, up to the end of the tag.

use super::names::{ANNOTATION_XML, COLOR, EMPTY, ENCODING, FACE, FONT, Name, SIZE, TEXT_HTML, XHTML, push};
use super::{NAME, Scanner, State, VALUE, is_blank, run};

/// The position within a tag, after its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    /// Before the name of an attribute.
    Before,
    /// After `/`.
    Slash,
    Name,
    /// After the name.
    After,
    /// After `=`.
    Equals,
    Quoted(u8),
    Unquoted,
}

/// The reader of a tag's attributes, which looks for relevant facts.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// The element, if it matters.
    element: Option<Name>,
    name: Name,
    value: Name,
    said: bool,
}

impl Attributes {
    /// Starts to read the attributes of a tag. `element` is the name of the tag if its attributes matter.
    pub fn begin(&mut self, element: Option<Name>) {
        self.element = element;
        self.said = false;
    }

    /// Returns true if the attributes contain a relevant fact.
    pub fn said(&self) -> bool {
        self.said
    }

    #[inline]
    fn begin_one(&mut self, byte: u8) {
        (self.name, self.value) = (push(EMPTY, byte), EMPTY);
    }

    #[inline]
    fn finish_one(&mut self) {
        self.said |= match self.element {
            // With one of these attributes, `font` is an HTML element and ends SVG or MathML (HTML, section 13.2.6.5).
            Some(FONT) => matches!(self.name, COLOR | FACE | SIZE),
            Some(ANNOTATION_XML) => self.name == ENCODING && matches!(self.value, TEXT_HTML | XHTML),
            _ => false,
        };
    }
}

impl Scanner {
    /// Reads on within a tag. Returns true if the tag ends at `at`.
    pub(super) fn attribute(&mut self, mut attribute: Attribute, bytes: &[u8], at: &mut usize) -> bool {
        while let Some(&byte) = bytes.get(*at) {
            attribute = match (attribute, byte) {
                (Attribute::Before | Attribute::Slash, b'>') => {
                    self.tag.empty = attribute == Attribute::Slash;
                    return true;
                }
                (Attribute::Name | Attribute::After | Attribute::Equals | Attribute::Unquoted, b'>') => {
                    self.tag.lacks = attribute == Attribute::Equals;
                    self.attributes.finish_one();
                    return true;
                }
                (Attribute::Before | Attribute::After | Attribute::Equals, byte) if is_blank(byte) => {
                    attribute
                }
                (Attribute::Before, b'/') => Attribute::Slash,
                (Attribute::Name | Attribute::After, b'/') => {
                    self.attributes.finish_one();
                    Attribute::Slash
                }
                (Attribute::Name | Attribute::After, b'=') => Attribute::Equals,
                (Attribute::Equals, b'"' | b'\'') => Attribute::Quoted(byte),
                (Attribute::Before, byte) => {
                    self.attributes.begin_one(byte);
                    Attribute::Name
                }
                (Attribute::After, byte) => {
                    self.attributes.finish_one();
                    self.attributes.begin_one(byte);
                    Attribute::Name
                }
                (Attribute::Quoted(quote), byte) if byte == quote => {
                    self.attributes.finish_one();
                    Attribute::Before
                }
                (Attribute::Unquoted, byte) if is_blank(byte) => {
                    self.attributes.finish_one();
                    Attribute::Before
                }
                (Attribute::Name, byte) if is_blank(byte) => Attribute::After,
                // The byte begins the next attribute.
                (Attribute::Slash, _) => {
                    attribute = Attribute::Before;
                    continue;
                }
                (Attribute::Equals, _) => {
                    attribute = Attribute::Unquoted;
                    continue;
                }
                (Attribute::Name | Attribute::Unquoted | Attribute::Quoted(_), _) => {
                    *at += self.part(attribute, bytes.get(*at..).unwrap_or_default());
                    continue;
                }
            };
            *at += 1;
        }
        self.state = State::Attribute(attribute);
        false
    }

    /// The number of bytes that belong to the name or value.
    #[inline]
    fn part(&mut self, attribute: Attribute, bytes: &[u8]) -> usize {
        let length = match attribute {
            Attribute::Quoted(quote) => memchr::memchr(quote, bytes).unwrap_or(bytes.len()),
            Attribute::Name => run(bytes, NAME),
            _ => run(bytes, VALUE),
        };
        if self.attributes.element.is_some() {
            let part = match attribute {
                Attribute::Name => &mut self.attributes.name,
                _ => &mut self.attributes.value,
            };
            let bytes = bytes.get(..length).unwrap_or_default();
            *part = bytes.iter().fold(*part, |part, byte| push(part, *byte));
        }
        length
    }
}
