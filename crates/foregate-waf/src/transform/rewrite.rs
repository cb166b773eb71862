//! A value with parts of it replaced.

use std::borrow::Cow;

/// Replaces parts of a value, front to back. The text between two replaced parts is copied in one piece, and nothing is
/// allocated before the first change.
pub(super) struct Rewrite<'a> {
    input: &'a [u8],
    out: Vec<u8>,
    /// The length of the input that has been copied or replaced in `out`; 0 before the first change.
    done: usize,
    changed: bool,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, out: Vec::new(), done: 0, changed: false }
    }

    /// Replaces `len` bytes at `at` by `by`. `at` must be behind all parts replaced so far.
    pub(super) fn replace(&mut self, at: usize, len: usize, by: &[u8]) {
        if !self.changed {
            if &self.input[at..at + len] == by {
                return;
            }
            self.changed = true;
            self.out.reserve(self.input.len());
        }
        self.out.extend_from_slice(&self.input[self.done..at]);
        self.out.extend_from_slice(by);
        self.done = at + len;
    }

    pub(super) fn remove(&mut self, at: usize, len: usize) {
        self.replace(at, len, b"");
    }

    /// Drops the input from `at` on and returns the result.
    pub(super) fn cut(mut self, at: usize) -> Cow<'a, [u8]> {
        if !self.changed {
            return Cow::Borrowed(&self.input[..at]);
        }
        self.out.extend_from_slice(&self.input[self.done..at]);
        Cow::Owned(self.out)
    }

    pub(super) fn finish(self) -> Cow<'a, [u8]> {
        let end = self.input.len();
        self.cut(end)
    }
}

/// The value of a hexadecimal digit.
pub(super) fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The value of two hexadecimal digits; `None` if they are not digits, or one is missing.
pub(super) fn pair(digits: &[u8]) -> Option<u8> {
    match digits {
        [high, low, ..] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// The byte for a code of four hexadecimal digits: the lower byte of the code. Full-width letters (U+FF01 to U+FF5E)
/// become the ASCII letters.
pub(super) fn narrow(digits: &[u8]) -> Option<u8> {
    let (high, low) = (pair(digits)?, pair(digits.get(2..)?)?);
    Some(if high == 0xff && (0x01..0x5f).contains(&low) { low + 0x20 } else { low })
}

/// Returns true for white space as in C: the space, and the bytes from tab to carriage return.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
