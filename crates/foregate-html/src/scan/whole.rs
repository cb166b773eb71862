//! A fast reader for tags that are complete in a piece, as nearly all tags are.
//!
//! Other tags, and tags that continue in the next piece, are left to the step-by-step reader. Both readers have to
//! agree.

use super::{NAME, VALUE, is_blank, run};

/// A tag of HTML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole<'b> {
    /// The name in lower case, in the form of [`names::name`](super::names::name).
    pub name: u64,
    pub ends: bool,
    /// The text after the `>` of the tag.
    pub behind: &'b [u8],
}

/// The longest name that is read here, bytes.
const LONGEST: usize = 7;

/// For each byte: the lower-case form of a letter, the digit itself, or 0.
static LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0;
    while byte < lower.len() {
        if (byte as u8).is_ascii_alphanumeric() {
            lower[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    lower
};

/// The text after the next occurrence of this byte. The first sixteen bytes are checked here: most texts and values are
/// shorter, and a call of a search function would take longer.
#[inline]
pub(super) fn behind(byte: u8, bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    for _ in 0..2 {
        let Some((word, further)) = rest.split_first_chunk::<8>() else { break };
        // The lowest byte with its highest bit set is the first equal byte: the subtraction borrows only after an equal byte.
        let differs = u64::from_le_bytes(*word) ^ u64::from_ne_bytes([byte; 8]);
        let equals = differs.wrapping_sub(0x0101_0101_0101_0101) & !differs & 0x8080_8080_8080_8080;
        if equals != 0 {
            return rest.get(equals.trailing_zeros() as usize / 8 + 1..);
        }
        rest = further;
    }
    rest.get(memchr::memchr(byte, rest)? + 1..)
}

impl<'b> Whole<'b> {
    /// Reads the text after `<`.
    #[inline]
    pub fn read(rest: &'b [u8]) -> Option<Self> {
        let (ends, rest) = match rest {
            [b'/', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        if !rest.first()?.is_ascii_alphabetic() {
            return None;
        }
        let (mut name, mut bytes) = (1, rest.iter());
        let last = loop {
            let byte = *bytes.next()?;
            match LOWER.get(usize::from(byte)) {
                Some(&lower) if lower != 0 => name = name << 8 | u64::from(lower),
                _ => break byte,
            }
        };
        let behind = bytes.as_slice();
        if rest.len() - behind.len() > LONGEST + 1 {
            return None;
        }
        let behind = match last {
            b'>' => behind,
            byte if is_blank(byte) || byte == b'/' => attributes(behind)?,
            _ => return None,
        };
        Some(Self { name, ends, behind })
    }
}

/// The text after the `>` that ends a tag.
fn attributes(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        rest = match rest {
            [b'>', rest @ ..] => return Some(rest),
            [byte, rest @ ..] if is_blank(*byte) || *byte == b'/' => rest,
            // The first byte of a name belongs to the name, whatever it is.
            [_, rest @ ..] => match skip(rest, NAME) {
                [b'=', rest @ ..] => value(rest)?,
                rest => match blanks(rest) {
                    [b'=', rest @ ..] => value(rest)?,
                    rest => rest,
                },
            },
            [] => return None,
        };
    }
}

#[inline]
fn skip(bytes: &[u8], ends: u8) -> &[u8] {
    bytes.get(run(bytes, ends)..).unwrap_or_default()
}

fn blanks(bytes: &[u8]) -> &[u8] {
    let count = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    bytes.get(count..).unwrap_or_default()
}

/// The text after the value of an attribute, after `=`.
#[inline]
fn value(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [quote @ (b'"' | b'\''), rest @ ..] => behind(*quote, rest),
        [byte, ..] if is_blank(*byte) => value(blanks(bytes)),
        bytes => Some(skip(bytes, VALUE)),
    }
}
