//! The values that rules see of cookies.

use super::budget::Over;
use super::intake::Intake;
use super::state::OpenCookie;
use super::values::{Family, Span};

/// The most values of cookies. Further values are not inspected, which counts as exceeding the budget.
const COOKIES: usize = 1_000;

impl Intake<'_> {
    /// Adds a `Cookie` field: pairs of name and value, separated by semicolons. A value that begins with a double
    /// quote is added a second time as RFC 2109 (and Python's libraries) read it: up to the closing quote, across
    /// semicolons and fields, with escapes decoded.
    pub(crate) fn cookies(&mut self, field: &[u8], span: Span) {
        self.continue_cookie(field);
        let mut at = 0;
        for pair in field.split(|byte| *byte == b';') {
            let start = at + pair.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let end = at + pair.len();
            at = end + 1;
            if start >= end {
                continue;
            }
            if !self.has_room_for_cookie() {
                return;
            }
            let equals =
                field[start..end].iter().position(|byte| *byte == b'=').map_or(end, |sign| start + sign);
            // Some parsers also drop white space before the `=`.
            let blanks = field[start..equals].iter().rev().take_while(|byte| byte.is_ascii_whitespace());
            let name = span.part(start, equals - blanks.count());
            let from = (equals + 1).min(end);
            self.add(Family::Cookies, Some(Family::CookieNames), name, span.part(from, end));
            let blanks = field[from..end].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if field[from + blanks..end].first() == Some(&b'"') {
                self.quoted_cookie(name, field, from + blanks + 1, end);
            }
        }
    }

    /// Adds the further values that some parsers read for a quoted value. The quoted value begins at `from`; for
    /// parsers that split at semicolons, it ends at `end`.
    fn quoted_cookie(&mut self, name: Span, field: &[u8], from: usize, end: usize) {
        let rest = &field[from..];
        let closed = closing_quote(rest);
        match closed {
            Some(len) => self.decoded_cookie(name, &rest[..len]),
            None => self.state.open_cookie = Some(OpenCookie { name, text: rest.to_vec() }),
        }
        // For some parsers, only a quote at the end of the value closes it.
        let whole = field[from..end.max(from)].trim_ascii_end().strip_suffix(b"\"");
        if let Some(whole) = whole.filter(|whole| Some(whole.len()) != closed) {
            self.decoded_cookie(name, whole);
        }
    }

    /// Continues a quoted value that the previous field has left open.
    fn continue_cookie(&mut self, field: &[u8]) {
        let Some(mut open) = self.state.open_cookie.take() else { return };
        open.text.extend_from_slice(b"; ");
        match closing_quote(field) {
            Some(len) => {
                open.text.extend_from_slice(&field[..len]);
                self.decoded_cookie(open.name, &open.text);
            }
            None => {
                open.text.extend_from_slice(field);
                self.state.open_cookie = Some(open);
            }
        }
    }

    fn decoded_cookie(&mut self, name: Span, quoted: &[u8]) {
        if self.has_room_for_cookie() {
            let value = self.state.values.text.push_with(|out| decode(quoted, out));
            self.add(Family::Cookies, None, name, value);
        }
    }

    fn has_room_for_cookie(&mut self) -> bool {
        let has_room = self.state.values.units(Family::Cookies).len() < COOKIES;
        if !has_room {
            self.state.budget.exceed(Over::Fields);
        }
        has_room
    }
}

/// The position of the first double quote that is not escaped with a backslash.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Decodes escapes: a backslash and three octal digits are a byte; a backslash before any other character is
/// dropped.
fn decode(quoted: &[u8], out: &mut Vec<u8>) {
    let mut rest = quoted;
    while let [byte, after @ ..] = rest {
        let (decoded, left) = match (byte, after) {
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', left @ ..]) => {
                ((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'), left)
            }
            (b'\\', [escaped, left @ ..]) => (*escaped, left),
            _ => (*byte, after),
        };
        out.push(decoded);
        rest = left;
    }
}
