//! Decoding of KDL 2 strings: escapes, and the common indentation of texts of several lines.

use super::document::{Span, SyntaxError};
use super::scan::{is_newline, is_space};

/// Resolves the escapes of the text between the quotes of a string. `start` is the position of the text in the
/// file.
pub(super) fn unescape(body: &str, start: usize) -> Result<String, SyntaxError> {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let offset = start + (body.len() - rest.len()) + at;
        rest = &rest[at + 1..];
        let escape = rest.chars().next();
        let fail = |len: usize| SyntaxError::new(Span::new(offset, offset + len), "this escape is not known");
        let plain = match escape {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('s') => ' ',
            Some(c @ ('"' | '\\')) => c,
            Some('u') => {
                let (c, len) =
                    unicode(&rest[1..]).ok_or_else(|| fail(2).help("write \\u{1F600}: one to six digits"))?;
                text.push(c);
                rest = &rest[1 + len..];
                continue;
            }
            Some(c) if is_space(c) || is_newline(c) => {
                rest = rest.trim_start_matches(|c| is_space(c) || is_newline(c));
                continue;
            }
            Some(c) => return Err(fail(1 + c.len_utf8()).help("write `\\\\` for a backslash")),
            None => return Err(fail(1)),
        };
        text.push(plain);
        rest = &rest[1..];
    }
    text.push_str(rest);
    Ok(text)
}

/// Reads `{...}` after `\u`. Returns the character and the number of bytes that were read.
fn unicode(text: &str) -> Option<(char, usize)> {
    let text = text.strip_prefix('{')?;
    let digits = &text[..text.find('}')?];
    if !(1..=6).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    Some((c, digits.len() + 2))
}

/// The text of a string of several lines: `body` is the source between its triple quotes.
pub(super) fn multi_line(body: &str, start: usize, raw: bool) -> Result<String, SyntaxError> {
    // Escaped line breaks are removed before the text is split into lines. All other escapes are resolved
    // afterwards.
    let joined = if raw { body.to_owned() } else { join_lines(body) };
    let text = with_line_feeds(&joined);
    let text = text.strip_prefix('\n').unwrap_or(&text);
    let (lines, indent) = text.rsplit_once('\n').unwrap_or(("", text));
    let at = Span::new(start, start);
    if !indent.chars().all(is_space) {
        return Err(SyntaxError::new(
            Span::new(start + body.len(), start + body.len() + 3),
            "write the closing `\"\"\"` on a line of its own",
        ));
    }
    let mut plain = String::with_capacity(lines.len());
    let single = text.len() == indent.len();
    for (number, line) in lines.split('\n').enumerate() {
        if number > 0 {
            plain.push('\n');
        }
        if line.chars().all(is_space) {
            continue;
        }
        let line = line.strip_prefix(indent).ok_or_else(|| {
            SyntaxError::new(at, "a line of this text is indented less than its closing `\"\"\"`")
        })?;
        if raw { plain.push_str(line) } else { plain.push_str(&unescape(line, start)?) }
    }
    Ok(if single { String::new() } else { plain })
}

/// Removes each backslash before a line break or space, together with all space after it.
fn join_lines(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.chars().next() {
            Some(c) if is_space(c) || is_newline(c) => {
                rest = rest.trim_start_matches(|c| is_space(c) || is_newline(c));
            }
            Some(c) => {
                text.push('\\');
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
            None => text.push('\\'),
        }
    }
    text.push_str(rest);
    text
}

/// Replaces each line break, of any kind, by one line feed.
fn with_line_feeds(text: &str) -> String {
    text.replace("\r\n", "\n").replace(is_newline, "\n")
}
