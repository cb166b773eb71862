//! Anchors: conditions that are necessary for a rule to match, and that a scan can evaluate.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lists::List;
use crate::literals::Place;
use crate::program::{Address, AddressTest, Cond, Number, NumberTest, Quantor, Source, Text, TextTest};
use crate::scheme::FieldId;
use crate::sets::{IpRange, IpSet, TextSet};

/// A set with more texts than this is tested as a whole, instead of by a test for each text.
const MAX_SPREAD: usize = 256;

/// The input of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Input {
    Text {
        of: Texts,
        /// True if the texts are converted to lower case.
        fold: bool,
    },
    Address(FieldId),
    Number(FieldId),
}

/// Texts of a request that a scan reads: a field, an entry of a map, and a choice of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Texts {
    pub(super) field: FieldId,
    /// The name of an entry, for a map.
    pub(super) name: Option<Box<[u8]>>,
    pub(super) which: Which,
}

/// The values of a field that a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Which {
    /// The single value of a text field.
    Only,
    /// The value at this position of an array or map entry.
    At(u32),
    /// Each value of an array or map.
    Each,
}

/// A condition on an input.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// The input has a text.
    Present,
    Is(Box<[u8]>),
    StartsWith(Box<[u8]>),
    EndsWith(Box<[u8]>),
    Contains(Box<[u8]>),
    /// The input is in a set that is tested as a whole.
    Member(Member),
    Within(IpRange),
    Number(i64),
}

/// A set of texts or addresses, shared with the rules. Two sets are equal only if they share memory.
#[derive(Clone, Debug)]
pub(super) enum Member {
    Texts(Arc<TextSet>),
    List(Arc<List>),
}

impl Member {
    fn address(&self) -> usize {
        match self {
            Self::Texts(set) => Arc::as_ptr(set) as usize,
            Self::List(list) => Arc::as_ptr(list) as usize,
        }
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

/// The key under which equal tests are counted.
#[derive(PartialEq, Eq, Hash)]
enum AnchorKey<'a> {
    Present,
    Text(u8, &'a [u8]),
    Member(usize),
    Within(bool, u128, u128),
    Number(i64),
}

impl Test {
    fn key(&self) -> AnchorKey<'_> {
        match self {
            Self::Present => AnchorKey::Present,
            Self::Is(text) => AnchorKey::Text(0, text),
            Self::StartsWith(text) => AnchorKey::Text(1, text),
            Self::EndsWith(text) => AnchorKey::Text(2, text),
            Self::Contains(text) => AnchorKey::Text(3, text),
            Self::Member(member) => AnchorKey::Member(member.address()),
            Self::Within(range) => AnchorKey::Within(range.v4, range.first, range.last),
            Self::Number(number) => AnchorKey::Number(*number),
        }
    }

    /// The estimated frequency with which the test holds, relative to a comparison with a whole text.
    fn weight(&self) -> u64 {
        match self {
            Self::Is(_) | Self::Number(_) => 1,
            Self::Within(_) => 2,
            Self::StartsWith(_) | Self::EndsWith(_) => 4,
            Self::Contains(_) => 8,
            Self::Member(_) => 16,
            Self::Present => 32,
        }
    }
}

/// An anchor: a necessary condition of a rule, made of tests.
pub(super) enum Anchor {
    /// One of these tests of one input holds. True if that decides the condition.
    Tests(Input, Vec<Test>, bool),
    /// One of these anchors holds.
    AnyOf(Vec<Anchor>),
    /// All of these anchors hold. It is enough to scan for the rarest.
    AllOf(Vec<Anchor>),
}

impl Anchor {
    /// Returns true if the anchor implies the condition, so that nothing is left to evaluate.
    pub(super) fn decides(&self) -> bool {
        match self {
            Self::Tests(_, _, decides) => *decides,
            Self::AnyOf(anchors) => anchors.iter().all(Self::decides),
            Self::AllOf(_) => false,
        }
    }
}

/// The estimated frequency of each test over all rules.
#[derive(Default)]
pub(super) struct Frequencies<'a>(HashMap<(&'a Input, AnchorKey<'a>), u64>);

impl<'a> Frequencies<'a> {
    pub(super) fn count(&mut self, anchor: &'a Anchor) {
        match anchor {
            Anchor::Tests(input, tests, _) => {
                for test in tests {
                    *self.0.entry((input, test.key())).or_default() += test.weight();
                }
            }
            Anchor::AnyOf(anchors) | Anchor::AllOf(anchors) => {
                anchors.iter().for_each(|anchor| self.count(anchor));
            }
        }
    }

    /// The tests to scan for, and their estimated frequency in total. They are the rarest tests that are sufficient.
    pub(super) fn rarest(&self, anchor: &'a Anchor) -> (u64, Vec<(&'a Input, &'a Test)>) {
        match anchor {
            Anchor::Tests(input, tests, _) => {
                let often = tests.iter().filter_map(|test| self.0.get(&(input, test.key())));
                (often.sum(), tests.iter().map(|test| (input, test)).collect())
            }
            Anchor::AnyOf(anchors) => anchors.iter().map(|anchor| self.rarest(anchor)).fold(
                (0, Vec::new()),
                |(sum, mut all), (often, tests)| {
                    all.extend(tests);
                    (sum + often, all)
                },
            ),
            Anchor::AllOf(anchors) => {
                let each = anchors.iter().map(|anchor| self.rarest(anchor));
                each.min_by_key(|(often, _)| *often).unwrap_or_default()
            }
        }
    }
}

/// The anchor of a condition; `None` if no scan can test a necessary condition of it. `element` is the array over whose
/// elements the condition ranges.
pub(super) fn anchor(cond: &Cond, element: Option<&Source>) -> Option<Anchor> {
    match cond {
        Cond::Const(false) => Some(Anchor::AnyOf(Vec::new())),
        Cond::All(parts) => {
            let anchors: Vec<_> = parts.iter().filter_map(|part| anchor(part, element)).collect();
            (!anchors.is_empty()).then_some(Anchor::AllOf(anchors))
        }
        Cond::Any(parts) => {
            parts.iter().map(|part| anchor(part, element)).collect::<Option<_>>().map(Anchor::AnyOf)
        }
        // Only an outermost `any` has an anchor: within another `any`, the outer array must have an element, too.
        Cond::Each(source, each, Quantor::Any) if element.is_none() => anchor(each, Some(source)),
        Cond::Text(text, test) => text_anchor(text, test, element),
        Cond::Address(Address::Field(field), test) => address_anchor(*field, test, element.is_none()),
        Cond::Number(Number::Field(field), test) => number_anchor(*field, test, element.is_none()),
        Cond::HasKey(field, Text::Literal(name)) => {
            let of = Texts { field: *field, name: Some(name.clone()), which: Which::At(0) };
            let input = Input::Text { of, fold: false };
            Some(Anchor::Tests(input, vec![Test::Present], element.is_none()))
        }
        _ => None,
    }
}

fn text_input(text: &Text, element: Option<&Source>, fold: bool) -> Option<Input> {
    let (source, which) = match text {
        Text::Field(field) => {
            let of = Texts { field: *field, name: None, which: Which::Only };
            return Some(Input::Text { of, fold });
        }
        Text::Lower(inner) if !fold => return text_input(inner, element, true),
        Text::Element => (element?, Which::Each),
        Text::At(source, at) => (&**source, Which::At(*at)),
        _ => return None,
    };
    let (field, name) = match source {
        Source::Field(field) => (*field, None),
        Source::Named(field, name) => (*field, Some(name.clone())),
        Source::Split(..) => return None,
    };
    Some(Input::Text { of: Texts { field, name, which }, fold })
}

/// Returns true if the text is the current element or, in a condition that does not range over the elements of an
/// array, a text of the request.
fn is_about(text: &Text, element: Option<&Source>) -> bool {
    match text {
        Text::Lower(inner) => is_about(inner, element),
        Text::Field(_) | Text::At(..) => element.is_none(),
        Text::Element => element.is_some(),
        _ => false,
    }
}

fn text_anchor(text: &Text, test: &TextTest, element: Option<&Source>) -> Option<Anchor> {
    let mut input = text_input(text, element, false)?;
    let mut fold_input = |folds: bool| {
        if let (true, Input::Text { fold, .. }) = (folds, &mut input) {
            *fold = true;
        }
    };
    // True if a passed test implies the condition.
    let mut whole = true;
    let tests = match test {
        TextTest::Eq(text) => vec![Test::Is(text.clone())],
        TextTest::StartsWith(start) => vec![Test::StartsWith(start.clone())],
        TextTest::EndsWith(end) => vec![Test::EndsWith(end.clone())],
        TextTest::Contains(finder) if !finder.needle().is_empty() => {
            vec![Test::Contains(finder.needle().into())]
        }
        TextTest::In(set) if set.len() <= MAX_SPREAD => set.iter().cloned().map(Test::Is).collect(),
        TextTest::In(set) => vec![Test::Member(Member::Texts(Arc::clone(set)))],
        TextTest::InList(list) => vec![Test::Member(Member::List(Arc::clone(list)))],
        TextTest::Wildcard(wildcard) => {
            fold_input(!wildcard.strict);
            whole = wildcard.suffix.is_none();
            match &wildcard.suffix {
                None => vec![Test::Is(wildcard.prefix.clone())],
                Some(suffix) if suffix.len() > wildcard.prefix.len() => vec![Test::EndsWith(suffix.clone())],
                Some(_) if wildcard.prefix.is_empty() => return None,
                Some(_) => vec![Test::StartsWith(wildcard.prefix.clone())],
            }
        }
        TextTest::Matches(regex) => {
            let needs = regex.needs.as_ref()?;
            fold_input(needs.fold);
            whole = needs.decides;
            let test = match needs.place {
                Place::Anywhere => Test::Contains,
                Place::Start => Test::StartsWith,
                Place::End => Test::EndsWith,
                Place::Whole => Test::Is,
            };
            needs.texts.iter().cloned().map(test).collect()
        }
        TextTest::Contains(_) | TextTest::Order(..) => return None,
    };
    // Within `any`, a condition that is not about the element decides nothing, because the array may have no elements.
    Some(Anchor::Tests(input, tests, whole && is_about(text, element)))
}

fn address_anchor(field: FieldId, test: &AddressTest, decides: bool) -> Option<Anchor> {
    let within = |set: &IpSet| set.ranges().map(Test::Within).collect();
    let tests = match test {
        AddressTest::Eq(address) => vec![Test::Within(IpRange::single(*address))],
        AddressTest::In(set) => within(set),
        AddressTest::InList(list) => vec![Test::Member(Member::List(Arc::clone(list)))],
    };
    Some(Anchor::Tests(Input::Address(field), tests, decides))
}

fn number_anchor(field: FieldId, test: &NumberTest, decides: bool) -> Option<Anchor> {
    let tests = match test {
        NumberTest::Eq(number) => vec![Test::Number(*number)],
        NumberTest::In(set) => {
            let numbers: Vec<_> =
                set.ranges().iter().flat_map(|&(first, last)| first..=last).take(MAX_SPREAD + 1).collect();
            if numbers.len() > MAX_SPREAD {
                return None;
            }
            numbers.into_iter().map(Test::Number).collect()
        }
        NumberTest::Order(..) => return None,
    };
    Some(Anchor::Tests(Input::Number(field), tests, decides))
}
