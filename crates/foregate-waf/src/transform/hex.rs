//! Hexadecimal digits.

use std::borrow::Cow;

use memchr::memchr;

use super::rewrite::{Rewrite, pair};

/// The two hexadecimal digits of a byte.
pub(crate) fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

pub(super) fn encode(input: &[u8]) -> Vec<u8> {
    input.iter().flat_map(|byte| digits(*byte)).collect()
}

/// Decodes pairs of bytes. A byte that is no digit is not refused: its value continues the sequence, so `G` is 16. An
/// odd last byte is dropped.
pub(super) fn decode(input: &[u8]) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'.. => (byte & 0xdf).wrapping_sub(b'A').wrapping_add(10),
        _ => byte.wrapping_sub(b'0'),
    };
    let byte = |[high, low]: &[u8; 2]| value(*high).wrapping_mul(16).wrapping_add(value(*low));
    input.as_chunks::<2>().0.iter().map(byte).collect()
}

/// Decodes `0xHHHH...` to its bytes, and keeps everything else.
pub(super) fn decode_sql(input: &[u8]) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = memchr(b'0', &input[at..]) {
        at += found;
        if !matches!(input.get(at + 1), Some(b'x' | b'X')) {
            at += 1;
            continue;
        }
        let bytes: Vec<u8> =
            input[at + 2..].as_chunks::<2>().0.iter().map_while(|digits| pair(digits)).collect();
        if bytes.is_empty() {
            at += 1;
            continue;
        }
        let len = 2 + 2 * bytes.len();
        rewrite.replace(at, len, &bytes);
        // As in ModSecurity, the byte after the digits cannot begin another literal.
        at = (at + len + 1).min(input.len());
    }
    rewrite.finish()
}
