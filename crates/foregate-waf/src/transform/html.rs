//! Character references of HTML.

use std::borrow::Cow;

use memchr::memchr;

use super::rewrite::Rewrite;

/// The named references that are decoded, matched regardless of case.
const NAMED: [(&[u8], u8); 5] =
    [(b"quot", b'"'), (b"amp", b'&'), (b"lt", b'<'), (b"gt", b'>'), (b"nbsp", 0xa0)];

/// Decodes `&#xHH;`, `&#DD;` and five named references, with or without the semicolon. A number becomes its lower byte.
pub(super) fn decode(input: &[u8]) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = memchr(b'&', &input[at..]) {
        at += found;
        let rest = &input[at + 1..];
        let (len, byte) = match rest {
            [b'#', b'x' | b'X', digits @ ..] => {
                number(digits, 16).map_or((3, None), |(len, byte)| (3 + len, byte))
            }
            [b'#', digits @ ..] => number(digits, 10).map_or((2, None), |(len, byte)| (2 + len, byte)),
            name => named(name),
        };
        let Some(byte) = byte else {
            at += len;
            continue;
        };
        let len = len + usize::from(input.get(at + len) == Some(&b';'));
        rewrite.replace(at, len, &[byte]);
        at += len;
    }
    rewrite.finish()
}

/// The number of leading digits, and the lower byte of their value. A value beyond 63 bits counts as 2^63 - 1.
fn number(digits: &[u8], radix: u32) -> Option<(usize, Option<u8>)> {
    let mut value: i64 = 0;
    let mut len = 0;
    for digit in digits.iter().map_while(|byte| char::from(*byte).to_digit(radix)) {
        value = value.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit));
        len += 1;
    }
    (len > 0).then_some((len, Some(value.to_le_bytes()[0])))
}

/// The length of a reference's name including the ampersand, and the character that the name stands for.
fn named(rest: &[u8]) -> (usize, Option<u8>) {
    let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = &rest[..len];
    let known = NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    (1 + len, known.map(|(_, byte)| *byte))
}
