//! White space, zero bytes, the case of letters, parity, and the normal form of command lines.

use std::borrow::Cow;

use memchr::memchr;

use super::rewrite::{Rewrite, is_space};

/// Replaces each run of white space by one space.
pub(super) fn compress(input: &[u8]) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = input[at..].iter().position(|byte| is_space(*byte)) {
        at += found;
        let len = input[at..].iter().take_while(|byte| is_space(**byte)).count();
        rewrite.replace(at, len, b" ");
        at += len;
    }
    rewrite.finish()
}

/// Removes white space, and the bytes of a no-break space in Latin-1 and UTF-8 (0xa0, 0xc2) wherever they occur.
pub(super) fn remove(input: &[u8]) -> Cow<'_, [u8]> {
    retain(input, |byte| !is_space(byte) && byte != 0xa0 && byte != 0xc2)
}

fn retain(input: &[u8], keep: impl Fn(u8) -> bool) -> Cow<'_, [u8]> {
    let Some(first) = input.iter().position(|byte| !keep(*byte)) else { return Cow::Borrowed(input) };
    let mut out = Vec::with_capacity(input.len());
    out.extend_from_slice(&input[..first]);
    out.extend(input[first..].iter().copied().filter(|byte| keep(*byte)));
    Cow::Owned(out)
}

pub(super) fn trim_left(input: &[u8]) -> &[u8] {
    let start = input.iter().take_while(|byte| is_space(**byte)).count();
    &input[start..]
}

pub(super) fn trim_right(input: &[u8]) -> &[u8] {
    let spaces = input.iter().rev().take_while(|byte| is_space(**byte)).count();
    &input[..input.len() - spaces]
}

pub(super) fn remove_nulls(input: &[u8]) -> Cow<'_, [u8]> {
    if memchr(0, input).is_none() {
        return Cow::Borrowed(input);
    }
    retain(input, |byte| byte != 0)
}

pub(super) fn replace_nulls(input: &[u8]) -> Cow<'_, [u8]> {
    if memchr(0, input).is_none() {
        return Cow::Borrowed(input);
    }
    map(input, |byte| if byte == 0 { b' ' } else { byte })
}

/// Replaces each byte by the result of `change`.
pub(super) fn map(input: &[u8], change: impl Fn(u8) -> u8) -> Cow<'_, [u8]> {
    if input.iter().all(|byte| change(*byte) == *byte) {
        return Cow::Borrowed(input);
    }
    Cow::Owned(input.iter().map(|byte| change(*byte)).collect())
}

/// Sets the highest bit so that the number of ones in the byte's eight bits is even or odd.
pub(super) fn parity(byte: u8, odd: bool) -> u8 {
    let set = (byte.count_ones() % 2 == 1) != odd;
    if set { byte | 0x80 } else { byte & 0x7f }
}

/// Removes quotes, backslashes and carets, and converts letters to lower case. A run of white space, commas and
/// semicolons becomes one space, or nothing before a slash or an opening parenthesis.
pub(super) fn command_line(input: &[u8]) -> Cow<'_, [u8]> {
    let changes = |byte: &u8| {
        matches!(byte, b'"' | b'\'' | b'\\' | b'^' | b' ' | b',' | b';' | b'\t' | b'\r' | b'\n' | b'A'..=b'Z')
    };
    let Some(first) = input.iter().position(changes) else { return Cow::Borrowed(input) };
    let mut out = Vec::with_capacity(input.len());
    out.extend_from_slice(&input[..first]);
    let mut space = false;
    for &byte in &input[first..] {
        match byte {
            b'"' | b'\'' | b'\\' | b'^' => {}
            b' ' | b',' | b';' | b'\t' | b'\r' | b'\n' => {
                if !space {
                    out.push(b' ');
                }
                space = true;
            }
            b'/' | b'(' => {
                if space {
                    out.pop();
                }
                space = false;
                out.push(byte);
            }
            byte => {
                space = false;
                out.push(byte.to_ascii_lowercase());
            }
        }
    }
    // A value in which only single spaces made `changes` true is usually unchanged.
    if out == input { Cow::Borrowed(input) } else { Cow::Owned(out) }
}
