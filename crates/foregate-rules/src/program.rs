//! The compiled form of an expression. Each type of value has its own kind of tree, so that evaluation cannot meet a
//! value of a wrong type.

use std::net::IpAddr;
use std::sync::Arc;

use memchr::memmem::Finder;

use crate::lists::List;
use crate::pattern::{Regex, Replacement, Wildcard};
use crate::scheme::FieldId;
use crate::sets::{IntSet, IpSet, TextSet};

/// A condition.
#[derive(Debug)]
pub(crate) enum Cond {
    Const(bool),
    Field(FieldId),
    /// The boolean field is known and has this value.
    FieldIs(FieldId, bool),
    /// The current element of an array of booleans.
    Element,
    At(Box<Source>, u32),
    Not(Box<Cond>),
    All(Box<[Cond]>),
    Any(Box<[Cond]>),
    /// True if an odd number of the conditions is true.
    Odd(Box<[Cond]>),
    Text(Text, TextTest),
    Number(Number, NumberTest),
    Address(Address, AddressTest),
    StartsWith(Box<(Text, Text)>),
    EndsWith(Box<(Text, Text)>),
    /// All or any of the elements fulfil the condition.
    Each(Box<Source>, Box<Cond>, Quantor),
    /// The map has a value under this name.
    HasKey(FieldId, Text),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantor {
    Any,
    All,
}

#[derive(Debug)]
pub(crate) enum TextTest {
    Eq(Box<[u8]>),
    Order(Order, Box<[u8]>),
    Contains(Box<Finder<'static>>),
    StartsWith(Box<[u8]>),
    EndsWith(Box<[u8]>),
    Matches(Box<Regex>),
    Wildcard(Box<Wildcard>),
    In(Arc<TextSet>),
    InList(Arc<List>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Lt,
    Le,
    Gt,
    Ge,
}

impl Order {
    pub(crate) fn holds<T: Ord + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Lt => left < right,
            Self::Le => left <= right,
            Self::Gt => left > right,
            Self::Ge => left >= right,
        }
    }
}

#[derive(Debug)]
pub(crate) enum NumberTest {
    Eq(i64),
    Order(Order, i64),
    In(IntSet),
}

#[derive(Debug)]
pub(crate) enum AddressTest {
    Eq(IpAddr),
    In(IpSet),
    InList(Arc<List>),
}

#[derive(Debug)]
pub(crate) enum Text {
    Literal(Box<[u8]>),
    Absent,
    Field(FieldId),
    Element,
    At(Box<Source>, u32),
    Lower(Box<Text>),
    Upper(Box<Text>),
    Concat(Box<[Text]>),
    /// A part of a text, from a start to an end or, if no end is given, to the end of the text. Negative positions
    /// count from the end of the text.
    Substring(Box<Text>, Box<Number>, Option<Box<Number>>),
    RemoveBytes(Box<Text>, Box<[u8]>),
    Replace(Box<Text>, Box<Replacement>),
    UrlDecode(Box<Text>, UrlDecoding),
    Json(Box<Text>, Box<[JsonKey]>),
    Join(Box<Source>, Box<Item>, Box<Text>),
    Sha256(Box<Text>),
    EncodeBase64(Box<Text>, Base64),
    DecodeBase64(Box<Text>),
    OfNumber(Box<Number>),
    OfAddress(Box<Address>),
    OfCond(Box<Cond>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UrlDecoding {
    pub(crate) repeated: bool,
    pub(crate) unicode: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Base64 {
    pub(crate) url_safe: bool,
    pub(crate) padded: bool,
}

#[derive(Debug)]
pub(crate) enum JsonKey {
    Name(Box<str>),
    At(usize),
}

#[derive(Debug)]
pub(crate) enum Number {
    Literal(i64),
    Absent,
    Field(FieldId),
    /// A field that holds a length, in a comparison. An unknown length counts as greater than any number.
    Length(FieldId),
    Element,
    At(Box<Source>, u32),
    Len(Box<Text>),
    Count(Box<Source>),
    Json(Box<Text>, Box<[JsonKey]>),
}

#[derive(Debug)]
pub(crate) enum Address {
    Literal(IpAddr),
    Absent,
    Field(FieldId),
    Element,
    At(Box<Source>, u32),
    /// An address cut to its first bits: the first number of them for IPv4, the second for IPv6.
    Cidr(Box<Address>, u8, u8),
}

/// The source of the elements of an array.
#[derive(Debug)]
pub(crate) enum Source {
    /// An array field, or all values of a map field.
    Field(FieldId),
    /// The value of a map under a name.
    Named(FieldId, Box<[u8]>),
    Split(Text, Box<Finder<'static>>, usize),
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left == right,
            (Self::Named(left, a), Self::Named(right, b)) => left == right && a == b,
            _ => false,
        }
    }
}

/// A mapping of an element.
#[derive(Debug)]
pub(crate) enum Item {
    Cond(Cond),
    Text(Text),
    Number(Number),
    Address(Address),
}

/// The costs are rough times in nanoseconds. Only their order matters: cheap conditions are evaluated first.
impl Cond {
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Const(_) | Self::Element => 0,
            Self::Field(_) | Self::FieldIs(..) => 3,
            Self::At(source, _) => source.cost(),
            Self::Not(inner) => inner.cost(),
            Self::All(parts) | Self::Any(parts) | Self::Odd(parts) => {
                parts.iter().fold(0, |sum, part| sum.saturating_add(part.cost()))
            }
            Self::Text(text, test) => text.cost().saturating_add(test.cost()),
            Self::Number(number, _) => number.cost() + 1,
            Self::Address(address, test) => address.cost() + test.cost(),
            Self::StartsWith(pair) | Self::EndsWith(pair) => pair.0.cost().saturating_add(pair.1.cost()),
            Self::Each(source, each, _) => source.cost().saturating_add(each.cost().saturating_mul(4)),
            Self::HasKey(_, name) => name.cost().saturating_add(40),
        }
    }
}

impl TextTest {
    fn cost(&self) -> u32 {
        match self {
            Self::Eq(_) | Self::StartsWith(_) | Self::EndsWith(_) | Self::Order(..) => 2,
            Self::In(_) | Self::InList(_) => 15,
            Self::Contains(_) => 25,
            Self::Wildcard(_) => 40,
            Self::Matches(_) => 150,
        }
    }
}

impl AddressTest {
    fn cost(&self) -> u32 {
        match self {
            Self::Eq(_) => 2,
            Self::In(_) | Self::InList(_) => 15,
        }
    }
}

impl Source {
    fn cost(&self) -> u32 {
        match self {
            Self::Field(_) | Self::Named(..) => 40,
            Self::Split(text, ..) => text.cost().saturating_add(60),
        }
    }
}

impl Text {
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Literal(_) | Self::Absent | Self::Element => 0,
            Self::Field(_) => 5,
            Self::At(source, _) => source.cost(),
            Self::Lower(text) | Self::Upper(text) => text.cost().saturating_add(20),
            Self::Concat(texts) => texts.iter().fold(40, |sum, text| sum.saturating_add(text.cost())),
            Self::Substring(text, ..) => text.cost().saturating_add(5),
            Self::RemoveBytes(text, _) | Self::EncodeBase64(text, _) | Self::DecodeBase64(text) => {
                text.cost().saturating_add(60)
            }
            Self::UrlDecode(text, _) => text.cost().saturating_add(60),
            Self::Replace(text, _) | Self::Sha256(text) => text.cost().saturating_add(400),
            Self::Json(text, _) => text.cost().saturating_add(500),
            Self::Join(source, ..) => source.cost().saturating_add(100),
            Self::OfNumber(number) => number.cost().saturating_add(40),
            Self::OfAddress(address) => address.cost().saturating_add(60),
            Self::OfCond(cond) => cond.cost(),
        }
    }
}

impl Number {
    fn cost(&self) -> u32 {
        match self {
            Self::Literal(_) | Self::Absent | Self::Element => 0,
            Self::Field(_) | Self::Length(_) => 3,
            Self::At(source, _) | Self::Count(source) => source.cost(),
            Self::Len(text) => text.cost(),
            Self::Json(text, _) => text.cost().saturating_add(500),
        }
    }
}

impl Address {
    fn cost(&self) -> u32 {
        match self {
            Self::Literal(_) | Self::Absent | Self::Element => 0,
            Self::Field(_) => 3,
            Self::At(source, _) => source.cost(),
            Self::Cidr(inner, ..) => inner.cost() + 2,
        }
    }
}
