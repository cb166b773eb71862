//! Escapes with a backslash: CSS, JavaScript, ANSI C.

use std::borrow::Cow;

use memchr::memchr;

use super::rewrite::{Rewrite, digit, is_space, narrow, pair};

/// The replacement for a backslash and the text after it.
struct Escape {
    /// The length of the escape in bytes, including the backslash.
    len: usize,
    /// The byte that replaces the escape; `None` if the escape is only removed.
    byte: Option<u8>,
}

/// Replaces escapes; `read` receives the text after a backslash and returns `None` if the backslash is kept.
fn decode(input: &[u8], read: impl Fn(&[u8]) -> Option<Escape>) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &input[at..]) {
        at += found;
        match read(&input[at + 1..]) {
            Some(Escape { len, byte }) => {
                rewrite.replace(at, len, byte.as_slice());
                at += len;
            }
            None => at += 1,
        }
    }
    rewrite.finish()
}

/// Decodes escapes of CSS 2. A backslash is followed by one of these:
/// - up to six hexadecimal digits, of which the last two count, and perhaps one white space;
/// - a line feed: the escape is removed;
/// - any other byte, which stands for itself.
pub(super) fn css(input: &[u8]) -> Cow<'_, [u8]> {
    decode(input, |rest| {
        let digits = rest.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
        Some(match (digits, rest.first()) {
            (0, None) => Escape { len: 1, byte: None },
            (0, Some(b'\n')) => Escape { len: 2, byte: None },
            (0, Some(byte)) => Escape { len: 2, byte: Some(*byte) },
            (digits, _) => {
                let space = rest.get(digits).is_some_and(|byte| is_space(*byte));
                Escape { len: 1 + digits + usize::from(space), byte: css_byte(&rest[..digits]) }
            }
        })
    })
}

fn css_byte(digits: &[u8]) -> Option<u8> {
    match digits {
        [one] => digit(*one),
        // A code of four digits may be a full-width letter.
        [_, _, _, _] => narrow(digits),
        [b'0', rest @ ..] if rest.len() == 4 => narrow(rest),
        [b'0', b'0', rest @ ..] if rest.len() == 4 => narrow(rest),
        more => pair(&more[more.len() - 2..]),
    }
}

/// Decodes escapes of JavaScript: `\uHHHH` (to the lower byte), `\xHH`, octal up to `\377`, and control characters
/// such as `\n`. Any other byte after the backslash stands for itself.
pub(super) fn js(input: &[u8]) -> Cow<'_, [u8]> {
    decode(input, |rest| {
        let escaped = match rest {
            [b'u', digits @ ..] if let Some(byte) = narrow(digits) => Escape { len: 6, byte: Some(byte) },
            [b'x', digits @ ..] if let Some(byte) = pair(digits) => Escape { len: 4, byte: Some(byte) },
            [b'0'..=b'7', ..] => {
                let most = if rest[0] > b'3' { 2 } else { 3 };
                let (digits, byte) = octal(rest, most);
                Escape { len: 1 + digits, byte: Some(byte) }
            }
            [byte, ..] => Escape { len: 2, byte: Some(control(*byte).unwrap_or(*byte)) },
            [] => return None,
        };
        Some(escaped)
    })
}

/// Decodes escapes of ANSI C: control characters such as `\n`, `\xHH`, and up to three octal digits (to the lower
/// byte). Any other byte after the backslash stands for itself.
pub(super) fn ansi(input: &[u8]) -> Cow<'_, [u8]> {
    decode(input, |rest| {
        let escaped = match rest {
            [b'x' | b'X', digits @ ..] if let Some(byte) = pair(digits) => {
                Escape { len: 4, byte: Some(byte) }
            }
            [b'0'..=b'7', ..] => {
                let (digits, byte) = octal(rest, 3);
                Escape { len: 1 + digits, byte: Some(byte) }
            }
            [byte, ..] => Escape { len: 2, byte: Some(control(*byte).unwrap_or(*byte)) },
            [] => return None,
        };
        Some(escaped)
    })
}

/// The number of octal digits among the first `most` bytes, and the lower byte of their value.
fn octal(rest: &[u8], most: usize) -> (usize, u8) {
    let digits = rest.iter().take(most).take_while(|byte| matches!(byte, b'0'..=b'7'));
    digits.fold((0, 0), |(count, byte), digit| (count + 1, byte << 3 | (digit - b'0')))
}

/// The control character that a letter stands for after a backslash.
fn control(letter: u8) -> Option<u8> {
    Some(match letter {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        _ => return None,
    })
}
