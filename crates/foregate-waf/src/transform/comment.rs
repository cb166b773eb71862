//! Comments of SQL, C and HTML.

use std::borrow::Cow;

use memchr::{memchr2, memchr3, memmem};

use super::rewrite::Rewrite;

/// Replaces each `/* */` comment by one space. A comment without its `*/` extends to the end of the input.
pub(super) fn replace(input: &[u8]) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(found) = memmem::find(&input[at..], b"/*") {
        at += found;
        let end = memmem::find(&input[at + 2..], b"*/").map_or(input.len(), |end| at + 2 + end + 2);
        rewrite.replace(at, end - at, b" ");
        at = end;
    }
    rewrite.finish()
}

/// Removes comments with their marks, and everything from `--` or `#` on. A comment without an end becomes a space.
pub(super) fn remove(input: &[u8]) -> Cow<'_, [u8]> {
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while let Some(next) = input.get(at) {
        let rest = &input[at..];
        let open = match next {
            b'#' => return rewrite.cut(at),
            b'-' if rest.starts_with(b"--") => return rewrite.cut(at),
            b'/' if rest.starts_with(b"/*") => 2,
            b'<' if rest.starts_with(b"<!--") => 4,
            _ => {
                at += 1;
                continue;
            }
        };
        let Some(end) = closes(input, at + open) else {
            rewrite.replace(at, rest.len(), b" ");
            break;
        };
        if end == input.len() {
            // ModSecurity copies the byte after a comment. Here that is the zero byte behind the end of its buffer.
            rewrite.replace(at, rest.len(), b"\0");
            break;
        }
        rewrite.remove(at, end - at);
        // The byte after a comment is kept even if it begins another comment.
        at = end + 1;
    }
    rewrite.finish()
}

/// The end of a comment whose text starts at `from`: after the first `*/` or `-->`, regardless of the mark that opened
/// the comment.
fn closes(input: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr2(b'*', b'-', &input[at..])?;
        let rest = &input[at..];
        if rest.starts_with(b"*/") {
            return Some(at + 2);
        }
        if rest.starts_with(b"-->") {
            return Some(at + 3);
        }
        at += 1;
    }
}

/// Removes the marks of comments and keeps the text between the marks.
pub(super) fn remove_marks(input: &[u8]) -> Cow<'_, [u8]> {
    const MARKS: [&[u8]; 6] = [b"/*", b"*/", b"<!--", b"-->", b"--", b"#"];
    if memchr3(b'#', b'-', b'*', input).is_none() {
        // Each mark contains one of these bytes.
        return Cow::Borrowed(input);
    }
    let mut rewrite = Rewrite::new(input);
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let mark = match rest[0] {
            b'/' | b'*' | b'<' | b'-' | b'#' => MARKS.iter().find(|mark| rest.starts_with(mark)),
            _ => None,
        };
        match mark {
            Some(mark) => {
                rewrite.remove(at, mark.len());
                at += mark.len();
            }
            None => at += 1,
        }
    }
    rewrite.finish()
}
