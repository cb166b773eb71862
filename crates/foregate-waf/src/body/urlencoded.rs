//! `application/x-www-form-urlencoded`, and query strings.

use memchr::memchr;

use super::{Limits, Sink};
use crate::transform::Transformation;

/// What was wrong with a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrlEncoded {
    /// A percent sign without two hexadecimal digits (`URLENCODED_ERROR`).
    pub invalid_encoding: bool,
    /// There were more arguments than the limit allows.
    pub over_limit: bool,
}

/// Arguments between separators (`&`, unless `SecArgumentSeparator` says otherwise), each a name up to the first `=` and
/// its value. What is between two separators in a row is none.
pub fn urlencoded(text: &[u8], separator: u8, limits: &Limits, sink: &mut dyn Sink) -> UrlEncoded {
    let mut outcome = UrlEncoded::default();
    let pairs = text.split(|byte| *byte == separator).filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count == limits.arguments {
            outcome.over_limit = true;
            break;
        }
        let end = memchr(b'=', pair).unwrap_or(pair.len());
        let (name, value) = (&pair[..end], pair.get(end + 1..).unwrap_or_default());
        outcome.invalid_encoding |= is_invalid(name) || is_invalid(value);
        sink.argument(&Transformation::UrlDecode.apply(name), &Transformation::UrlDecode.apply(value));
    }
    outcome
}

fn is_invalid(text: &[u8]) -> bool {
    memchr::memchr_iter(b'%', text).any(|at| match text[at + 1..] {
        [high, low, ..] => !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit(),
        _ => true,
    })
}
