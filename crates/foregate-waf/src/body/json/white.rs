//! White space, and characters that some parsers skip like white space.

use memchr::{memchr, memmem};

use super::{Documents, JsonFault, JsonReader};

/// Characters beyond ASCII that some parsers treat as white space: the byte order mark, no-break and other
/// spaces, and line ends.
const SPACES: &[&[u8]] = &[
    b"\xef\xbb\xbf",
    b"\xc2\xa0",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xa9",
    b"\xe2\x80\xaf",
    b"\xe2\x81\x9f",
    b"\xe3\x80\x80",
    b"\xe1\x9a\x80",
];
/// Characters that end a line for some parsers, but not for all.
const LINE_ENDS: &[&[u8]] = &[b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"];

const NO_COMMENTS: &str = "a token of JSON, which has no comments";

/// The number of bytes at the start of a text that are white space to any parser.
pub(super) fn length(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some(after) = ascii(rest).or_else(|| other(rest)) {
        rest = after;
    }
    text.len() - rest.len()
}

/// Returns true if a text begins like a document, after a prefix that some parsers skip.
pub(super) fn begins_document(text: &[u8]) -> bool {
    let mut rest = text;
    loop {
        rest = rest.get(length(rest)..).unwrap_or_default();
        let comment = match rest {
            [b'/', b'*', inner @ ..] => memmem::find(inner, b"*/").map(|at| at + 4),
            [b'/', b'/', ..] | [b'#', ..] => memchr(b'\n', rest).map(|at| at + 1),
            _ => None,
        };
        match comment {
            Some(end) => rest = rest.get(end..).unwrap_or_default(),
            None => return matches!(rest.first(), Some(b'{' | b'[' | b'"' | b'\'')),
        }
    }
}

fn ascii(text: &[u8]) -> Option<&[u8]> {
    text.split_first().filter(|(byte, _)| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).map(|(_, rest)| rest)
}

/// The text after its first character, if only some parsers treat that as white space.
fn other(text: &[u8]) -> Option<&[u8]> {
    match text {
        [0x0b | 0x0c | 0x1c..=0x1f, rest @ ..] => Some(rest),
        // U+2000 to U+200B.
        [0xe2, 0x80, 0x80..=0x8b, rest @ ..] => Some(rest),
        [0xc2 | 0xe1..=0xe3 | 0xef, ..] => SPACES.iter().find_map(|space| text.strip_prefix(*space)),
        _ => None,
    }
}

impl<'a> JsonReader<'a> {
    /// Skips white space and comments; returns the next byte.
    pub(super) fn white(&mut self) -> Result<u8, JsonFault> {
        self.new_line = false;
        loop {
            let rest = self.rest();
            match rest {
                [] => return Err(JsonFault::End),
                [b' ' | b'\t', ..] => self.at += 1,
                [b'\n' | b'\r', ..] => {
                    self.new_line = true;
                    self.at += 1;
                }
                [b'/', b'/' | b'*', ..] | [b'#', ..] => self.comment(rest)?,
                [byte @ b'!'..=b'~', ..] => return Ok(*byte),
                // In a text sequence, the record separator begins each document.
                [0x1e, ..] if self.documents == Documents::Many => self.at += 1,
                [byte, ..] => {
                    let Some(after) = other(rest) else { return Ok(*byte) };
                    self.odd("white space of JSON");
                    self.at += rest.len() - after.len();
                }
            }
        }
    }

    /// Skips a comment. If some parsers end the comment earlier, and read its rest as JSON, the whole comment is also
    /// emitted as a value.
    fn comment(&mut self, rest: &'a [u8]) -> Result<(), JsonFault> {
        self.odd(NO_COMMENTS);
        let end = match rest {
            [b'/', b'*', inner @ ..] => memmem::find(inner, b"*/").map(|at| at + 4),
            _ => {
                self.new_line = true;
                memchr(b'\n', rest).map(|at| at + 1).or(Some(rest.len()))
            }
        };
        let Some(comment) = end.and_then(|end| rest.get(..end)) else {
            self.at = self.body.len();
            return Err(JsonFault::End);
        };
        self.at += comment.len();
        let line = comment.strip_suffix(b"\n").unwrap_or(comment);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.starts_with(b"/*") && LINE_ENDS.iter().any(|end| memmem::find(line, end).is_some()) {
            self.count()?;
            self.sink.argument(&self.path, line);
        }
        Ok(())
    }
}
