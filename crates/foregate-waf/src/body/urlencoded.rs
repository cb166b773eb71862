//! `application/x-www-form-urlencoded`, and query strings.

use memchr::memchr;

use super::sink::{BodyLimits, Sink};
use crate::transform::Transformation;

/// The errors of a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrlEncoded {
    /// Set if a percent sign is not followed by two hexadecimal digits (`URLENCODED_ERROR`).
    pub invalid_encoding: bool,
    /// Set if there were more arguments than the limit allows.
    pub over_limit: bool,
}

/// Splits a text into arguments at the separator (`&`, or that of `SecArgumentSeparator`), and each argument
/// at its first `=` into a name and a value. Empty arguments are skipped.
///
/// Some parsers, such as Rack 2 and CGI.pm, also split at an unencoded `;`. The arguments that they see are
/// emitted too, and count towards the limit.
pub fn urlencoded(text: &[u8], separator: u8, limits: &BodyLimits, sink: &mut dyn Sink) -> UrlEncoded {
    let mut reader = UrlencodedReader { outcome: UrlEncoded::default(), left: limits.arguments, sink };
    for pair in text.split(|byte| *byte == separator).filter(|pair| !pair.is_empty()) {
        if !reader.pair(pair, false) {
            break;
        }
        let Some(end) = memchr(b';', pair).filter(|_| separator == b'&') else { continue };
        // The first argument has been emitted already. For parsers that end it at the `;`, its value is shorter, so
        // that value is emitted too.
        let first = end == 0 || !pair[..end].contains(&b'=') || reader.pair(&pair[..end], true);
        let others = pair[end + 1..].split(|byte| *byte == b';').map(<[u8]>::trim_ascii_start);
        if !first || !others.filter(|other| other.contains(&b'=')).all(|other| reader.pair(other, false)) {
            break;
        }
    }
    reader.outcome
}

struct UrlencodedReader<'a> {
    outcome: UrlEncoded,
    /// The number of arguments that are still accepted.
    left: usize,
    sink: &'a mut dyn Sink,
}

impl UrlencodedReader<'_> {
    /// Emits an argument or, if `again`, the value that other parsers read for the last argument. Returns false if
    /// there are too many arguments.
    fn pair(&mut self, pair: &[u8], again: bool) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            self.outcome.over_limit = true;
            return false;
        };
        self.left = left;
        let end = memchr(b'=', pair).unwrap_or(pair.len());
        let (name, value) = (&pair[..end], pair.get(end + 1..).unwrap_or_default());
        self.outcome.invalid_encoding |= is_invalid(name) || is_invalid(value);
        let (name, value) = (Transformation::UrlDecode.apply(name), Transformation::UrlDecode.apply(value));
        match again {
            true => self.sink.value(&name, &value),
            false => self.sink.argument(&name, &value),
        }
        true
    }
}

fn is_invalid(text: &[u8]) -> bool {
    memchr::memchr_iter(b'%', text).any(|at| match text[at + 1..] {
        [high, low, ..] => !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit(),
        _ => true,
    })
}
