//! Compiled operators, which compare values.

mod checks;
mod text;

use std::sync::Arc;

use crate::engine::expression::Expression;
use crate::engine::plan::Amount;
use crate::engine::tx::leading_number;
use crate::injection;
use crate::model::{ByteSet, Comparison, Network};
use crate::scan::{Pattern, Words};
pub(crate) use checks::Checksum;
pub(crate) use text::TextTest;

/// A compiled operator.
#[derive(Debug)]
pub(crate) enum Test {
    /// Matches every value.
    Always,
    /// Matches no value.
    Never,
    /// Values in which a pattern matches.
    Rx(Box<Pattern>),
    /// Like `Rx`, but the captures are those of all matches of the pattern.
    RxGlobal(Box<Pattern>),
    /// Values that contain one of many phrases. The case of ASCII letters is ignored.
    Phrases(Box<Words>),
    /// Values that have this relation to a text.
    Text(TextTest, Expression),
    /// Values for which the comparison with a number holds.
    Compare(Comparison, Amount),
    /// Addresses within one of these networks.
    Networks(Arc<[Network]>),
    /// SQL injection.
    Sqli,
    /// Cross-site scripting.
    Xss,
    /// Values with a byte that is not in this set.
    Bytes(Box<[bool; 256]>),
    /// Values with broken percent-encoding.
    UrlEncoding,
    /// Values with broken UTF-8.
    Utf8,
    /// Values in which the pattern matches a number with valid check digits.
    Checked(Checksum, Box<Pattern>),
}

/// The argument of an operator, with its macros expanded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    /// There is no argument, or the operator itself contains it.
    None,
    /// A text.
    Text(&'a [u8]),
    /// A number.
    Number(i64),
}

/// The most captures that are kept: `TX.0` to `TX.9`.
pub(crate) const GROUPS: usize = 10;

/// The captures of an operator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Captures {
    /// The start and end of each capture in the value.
    pub(crate) groups: [Option<(usize, usize)>; GROUPS],
    /// The fingerprint of an SQL injection. It replaces the first capture, although it is not a part of the value.
    pub(crate) fingerprint: Option<[u8; FINGERPRINT]>,
}

/// The number of bytes for a fingerprint. A shorter fingerprint ends in zeros.
pub(crate) const FINGERPRINT: usize = 8;

impl Test {
    /// Returns true if the value matches. Stores captures in `captured`, if it is given.
    pub(crate) fn passes(
        &self,
        value: &[u8],
        argument: Argument<'_>,
        captured: Option<&mut Captures>,
    ) -> bool {
        match (self, argument) {
            (Self::Always, _) => true,
            (Self::Never, _) => false,
            (Self::Rx(pattern), _) => match captured {
                Some(captured) => first_captures(pattern, value, captured),
                None => pattern.is_match(value),
            },
            (Self::RxGlobal(pattern), _) => match captured {
                Some(captured) => all_captures(pattern, value, captured),
                None => pattern.is_match(value),
            },
            (Self::Phrases(phrases), _) => first_phrase(phrases, value, captured),
            (Self::Text(test, _), Argument::Text(text)) => test.passes(value, text),
            (Self::Compare(comparison, _), Argument::Number(number)) => {
                comparison.holds(leading_number(value), number)
            }
            (Self::Text(..) | Self::Compare(..), _) => false,
            (Self::Networks(networks), _) => checks::within(networks, value),
            (Self::Sqli, _) => sqli(value, captured),
            (Self::Xss, _) => xss(value, captured),
            (Self::Bytes(valid), _) => value.iter().any(|byte| !valid[usize::from(*byte)]),
            (Self::UrlEncoding, _) => checks::broken_url_encoding(value),
            (Self::Utf8, _) => std::str::from_utf8(value).is_err(),
            // `Look::checked` handles this operator, because it has to try each number in the value.
            (Self::Checked(..), _) => false,
        }
    }

    /// Returns true if the operator has to search the value, which costs as much as a pattern.
    pub(crate) fn is_search(&self) -> bool {
        !matches!(self, Self::Always | Self::Never | Self::Compare(..) | Self::Networks(_))
    }
}

/// The bytes of a set, as a table.
pub(crate) fn table(bytes: &ByteSet) -> Box<[bool; 256]> {
    let mut table = Box::new([false; 256]);
    for byte in 0..=u8::MAX {
        table[usize::from(byte)] = bytes.contains(byte);
    }
    table
}

fn first_phrase(phrases: &Words, value: &[u8], captured: Option<&mut Captures>) -> bool {
    let found = phrases.find(value);
    if let (Some(found), Some(captured)) = (&found, captured) {
        captured.groups[0] = Some((found.start, found.end));
    }
    found.is_some()
}

fn first_captures(pattern: &Pattern, value: &[u8], captured: &mut Captures) -> bool {
    let Some(groups) = pattern.captures(value, 0) else { return false };
    captured.groups = groups.map(|group| group.map(|group| (group.start, group.end)));
    true
}

fn all_captures(pattern: &Pattern, value: &[u8], captured: &mut Captures) -> bool {
    let mut filled = 0;
    let mut from = 0;
    while from <= value.len() && filled < GROUPS {
        let Some(groups) = pattern.captures(value, from) else { break };
        let end = groups[0].as_ref().map_or(from, |whole| whole.end);
        for group in groups.into_iter().flatten() {
            if let Some(place) = captured.groups.get_mut(filled) {
                *place = Some((group.start, group.end));
                filled += 1;
            }
        }
        from = end.max(from + 1);
    }
    filled > 0
}

fn sqli(value: &[u8], captured: Option<&mut Captures>) -> bool {
    let Some(found) = injection::sqli(value) else { return false };
    if let Some(captured) = captured {
        let mut fingerprint = [0; FINGERPRINT];
        for (place, byte) in fingerprint.iter_mut().zip(found.as_str().as_bytes()) {
            *place = *byte;
        }
        captured.fingerprint = Some(fingerprint);
    }
    true
}

fn xss(value: &[u8], captured: Option<&mut Captures>) -> bool {
    let found = injection::xss(value);
    if let (true, Some(captured)) = (found, captured) {
        captured.groups[0] = Some((0, value.len()));
    }
    found
}
