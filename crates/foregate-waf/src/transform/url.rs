//! Percent-encoding.

use std::borrow::Cow;

use memchr::memchr2;

use super::rewrite::{Rewrite, digit, narrow, pair};
use super::unicode::UnicodeMap;

/// Decodes `%HH` and `+`; invalid escapes are kept.
pub(super) fn decode(input: &[u8]) -> Cow<'_, [u8]> {
    decode_by(input, b'+', |_| UnicodeEscape::None)
}

/// Decodes only `%HH`: in a path, a plus is not a space.
pub(super) fn decode_path(input: &[u8]) -> Cow<'_, [u8]> {
    decode_by(input, b'%', |_| UnicodeEscape::None)
}

/// Like [`decode`], and decodes `%uHHHH` as well: to the map's byte if the map has the code, otherwise to the code's
/// lower byte.
pub(super) fn decode_uni<'a>(input: &'a [u8], map: Option<&UnicodeMap>) -> Cow<'a, [u8]> {
    decode_by(input, b'+', |rest| match rest {
        [b'u' | b'U', digits @ ..] => {
            let Some(byte) = narrow(digits) else { return UnicodeEscape::Broken };
            UnicodeEscape::Byte(map.and_then(|map| map.get(code(digits))).unwrap_or(byte))
        }
        _ => UnicodeEscape::None,
    })
}

/// The content of a percent escape in the Unicode encoding.
enum UnicodeEscape {
    /// Another kind of escape.
    None,
    /// A malformed escape.
    Broken,
    Byte(u8),
}

/// The value of four hexadecimal digits; the caller has checked them.
fn code(digits: &[u8]) -> u16 {
    digits.iter().take(4).filter_map(|byte| digit(*byte)).fold(0, |code, digit| code << 4 | u16::from(digit))
}

/// Decodes `%HH`, the escapes for which `wide` returns a byte, and the byte `space` (to a space). The caller passes `%`
/// as `space` if no byte stands for a space.
fn decode_by(input: &[u8], space: u8, wide: impl Fn(&[u8]) -> UnicodeEscape) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = memchr2(b'%', space, &input[at..]) {
        at += found;
        if input[at] != b'%' {
            rewrite.replace(at, 1, b" ");
            at += 1;
            continue;
        }
        let rest = &input[at + 1..];
        let (len, byte) = match wide(rest) {
            UnicodeEscape::Byte(byte) => (6, Some(byte)),
            UnicodeEscape::Broken => (2, None),
            UnicodeEscape::None => pair(rest).map_or((1, None), |byte| (3, Some(byte))),
        };
        if let Some(byte) = byte {
            rewrite.replace(at, len, &[byte]);
        }
        at += len;
    }
    rewrite.finish()
}

/// Encodes all bytes except letters, digits and `*` as `%hh`, and a space as `+`.
pub(super) fn encode(input: &[u8]) -> Cow<'_, [u8]> {
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'*';
    let Some(first) = input.iter().position(|byte| !stays(*byte)) else { return Cow::Borrowed(input) };
    let mut out = Vec::with_capacity(input.len() + 16);
    out.extend_from_slice(&input[..first]);
    for &byte in &input[first..] {
        match byte {
            b' ' => out.push(b'+'),
            byte if stays(byte) => out.push(byte),
            byte => {
                out.push(b'%');
                out.extend_from_slice(&super::hex::digits(byte));
            }
        }
    }
    Cow::Owned(out)
}
