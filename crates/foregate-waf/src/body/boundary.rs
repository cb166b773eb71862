//! The boundary of a form, from its `Content-Type` (RFC 9110 section 8.3.1, RFC 2046 section 5.1.1).
//!
//! Clients send the parameter first or last, quoted or not, with a charset before or after it. A field from
//! which two programs could read different boundaries is an error: the word `boundary` outside of the
//! parameter, several such parameters, or `boundary*` (RFC 2231). Some parsers end an unquoted value earlier
//! than others. This alone is no error; it becomes an error if the body contains the shorter boundary too
//! ([`Boundary::cut`]).

use memchr::memmem;

use super::sink::is_token;

/// The longest `Content-Type` that is accepted, bytes.
const MAX_CONTENT_TYPE: usize = 1024;

const NAME: &[u8] = b"boundary";

/// A boundary, and the way in which the field spells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Boundary<'a> {
    pub(super) text: &'a [u8],
    /// The shorter boundary that some parsers read: PHP ends the boundary at a comma, and Werkzeug at a slash.
    pub(super) cut: Option<&'a [u8]>,
    pub(super) quoted: bool,
    /// Set if there is white space around the `=`.
    pub(super) whitespace: bool,
    /// Set if the semicolon before the parameter is missing.
    pub(super) missing_semicolon: bool,
}

/// A parameter of the field.
struct Parameter<'a> {
    name: &'a [u8],
    value: &'a [u8],
    quoted: bool,
    whitespace: bool,
    /// The text before the parameter's name and after its value.
    before: &'a [u8],
    behind: &'a [u8],
}

/// Reads the boundary from a `Content-Type`.
pub(super) fn boundary(field: &[u8]) -> Result<Boundary<'_>, &'static str> {
    if field.len() > MAX_CONTENT_TYPE {
        return Err("Invalid boundary in C-T (length).");
    }
    let kind = field.iter().take_while(|byte| is_token(byte) || **byte == b'/').count();
    let lower = field[..kind].to_ascii_lowercase();
    if !lower.starts_with(b"multipart/") || lower.len() == b"multipart/".len() {
        return Err("Invalid MIME type.");
    }
    let mut rest = &field[kind..];
    let mut found = None;
    let mut missing_semicolon = false;
    loop {
        let after = trim_start(rest);
        let next = match after {
            [] => break,
            [b';', next @ ..] => trim_start(next),
            // Some clients omit the semicolon before the boundary. Before other parameters, a missing semicolon is an
            // error.
            _ if found.is_none() && after.len() < rest.len() && after.starts_with(NAME) => {
                missing_semicolon = true;
                after
            }
            _ => return Err("Invalid boundary in C-T (malformed)."),
        };
        if next.is_empty() {
            break;
        }
        let parameter = parameter(field, next)?;
        rest = parameter.behind;
        if parameter.name.eq_ignore_ascii_case(NAME) {
            if found.is_some() {
                return Err("Multiple boundary parameters in C-T.");
            }
            found = Some(parameter);
        } else if names_it(parameter.name) {
            return Err("Invalid boundary in C-T (parameter name).");
        }
    }
    let found = found.ok_or("Boundary not found in C-T.")?;
    check(&found)?;
    let Parameter { value: text, quoted, whitespace, .. } = found;
    let cut = if quoted { None } else { cut(text) };
    Ok(Boundary { text, cut, quoted, whitespace, missing_semicolon })
}

/// The parameter that begins at this position.
fn parameter<'a>(field: &'a [u8], text: &'a [u8]) -> Result<Parameter<'a>, &'static str> {
    let before = &field[..field.len() - text.len()];
    let len = text.iter().take_while(|byte| is_token(byte)).count();
    let (name, rest) = text.split_at(len);
    let after = trim_start(rest);
    let Some(value) = after.strip_prefix(b"=") else {
        return Err(match names_it(name) && !after.is_empty() && !after.starts_with(b";") {
            true => "Invalid boundary in C-T (parameter name).",
            false => "Invalid boundary in C-T (malformed).",
        });
    };
    let text = trim_start(value);
    let whitespace = after.len() < rest.len() || text.len() < value.len();
    if let Some(text) = text.strip_prefix(b"\"") {
        let end = memchr::memchr(b'"', text).ok_or("Invalid boundary in C-T (quote).")?;
        let (value, behind) = (&text[..end], &text[end + 1..]);
        if value.contains(&b'\\') {
            // Some parsers take the quote after a backslash for the end of the value.
            return Err("Invalid boundary in C-T (quote).");
        }
        return Ok(Parameter { name, value, quoted: true, whitespace, before, behind });
    }
    let end = memchr::memchr(b';', text).unwrap_or(text.len());
    let value = text[..end].trim_ascii_end();
    Ok(Parameter { name, value, quoted: false, whitespace, before, behind: &text[end..] })
}

/// Returns an error unless all parsers find the same boundary in the parameter.
fn check(parameter: &Parameter<'_>) -> Result<(), &'static str> {
    let Parameter { value, quoted, before, behind, .. } = parameter;
    // Some parsers use the first `boundary` in the field, and some the last.
    if names_it(before) || names_it(behind) || names_another(value) {
        return Err("Multiple boundary parameters in C-T.");
    }
    if value.is_empty() {
        return Err("Invalid boundary in C-T (empty).");
    }
    if !quoted && value.contains(&b'"') {
        return Err("Invalid boundary in C-T (quote).");
    }
    let is_fine = if *quoted { is_quotable(value) } else { is_plain(value) };
    if is_fine { Ok(()) } else { Err("Invalid boundary in C-T (characters).") }
}

/// Returns true if a quoted boundary contains only characters that are allowed in one.
fn is_quotable(text: &[u8]) -> bool {
    let is_known = |byte: &u8| is_token(byte) || b" (),/:=?".contains(byte);
    text.iter().all(is_known) && text.last() != Some(&b' ')
}

/// Returns true if an unquoted boundary contains only characters of a boundary (RFC 2046 section 5.1.1), and none that
/// starts another element of the field. The boundary need not be a token. The standard requires quotes around a
/// boundary that is no token, but many clients omit the quotes.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| is_token(byte) || b",/:=?".contains(byte))
}

/// The start of a boundary that a parser keeps if it reads the boundary as a token; `None` if it keeps the whole
/// boundary.
fn cut(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| !is_token(byte))?;
    text.get(..end).filter(|cut| !cut.is_empty())
}

fn names_it(text: &[u8]) -> bool {
    memmem::find(&text.to_ascii_lowercase(), NAME).is_some()
}

/// Returns true if a parser that searches the field for `boundary` would find another such parameter in the
/// value.
fn names_another(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    memmem::find_iter(&lower, NAME)
        .any(|at| matches!(trim_start(&lower[at + NAME.len()..]).first(), Some(b'=' | b'*')))
}

fn trim_start(text: &[u8]) -> &[u8] {
    let white = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    &text[white..]
}
