//! Encoded texts in the parameters of header fields.

use crate::transform::Transformation;

/// Decodes `charset'language'text` (RFC 8187); returns the text and the rest of the input. The charset has to
/// be UTF-8, the one that clients send. With other charsets, some parsers read the text and others skip the
/// parameter.
pub(super) fn extended_value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    const WRONG: &str = "has a filename* with a character that does not belong there";
    let mut parts = text.splitn(3, |byte| *byte == b'\'');
    if !parts.next().is_some_and(|charset| charset.eq_ignore_ascii_case(b"utf-8")) {
        return Err("has a filename* that is not in UTF-8");
    }
    let is_language =
        |language: &[u8]| language.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let (Some(true), Some(mut rest)) = (parts.next().map(is_language), parts.next()) else {
        return Err("has a filename* without language");
    };
    let mut decoded = Vec::new();
    loop {
        rest = match rest {
            [] | [b';', ..] => break,
            [b'%', high, low, after @ ..] => {
                decoded.push(hex(*high, *low).ok_or(WRONG)?);
                after
            }
            [byte, after @ ..] if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(byte) => {
                decoded.push(*byte);
                after
            }
            _ => return Err(WRONG),
        };
    }
    if is_plain(&decoded) { Ok((decoded, rest)) } else { Err("has a filename* that is empty or no text") }
}

/// Decodes a value that is an encoded word (RFC 2047), the form in which .NET clients send other characters than ASCII:
/// `=?utf-8?B?...?=`. Some parsers decode it, others keep it. Several words, a word in the middle and other charsets are errors.
pub(super) fn encoded_word(value: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    const WRONG: &str = "has an encoded word that not all read";
    // Most names contain no `?`, so they have no encoded word.
    if !value.contains(&b'?') {
        return Ok(None);
    }
    let Some(start) = memchr::memmem::find(value, b"=?") else { return Ok(None) };
    if memchr::memmem::rfind(value, b"?=").is_none_or(|end| end < start + 2) {
        return Ok(None);
    }
    let inner = value.strip_prefix(b"=?").and_then(|inner| inner.strip_suffix(b"?=")).ok_or(WRONG)?;
    let mut parts = inner.split(|byte| *byte == b'?');
    let (Some(charset), Some(kind), Some(text), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(WRONG);
    };
    if !charset.eq_ignore_ascii_case(b"utf-8") {
        return Err(WRONG);
    }
    let decoded = match kind {
        b"b" | b"B" => base64(text).ok_or(WRONG)?,
        b"q" | b"Q" => quoted_printable(text).ok_or(WRONG)?,
        _ => return Err(WRONG),
    };
    if is_plain(&decoded) { Ok(Some(decoded)) } else { Err(WRONG) }
}

/// Returns true if all parsers accept these characters in a name.
fn is_plain(text: &[u8]) -> bool {
    !text.is_empty() && std::str::from_utf8(text).is_ok_and(|text| !text.chars().any(char::is_control))
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_whole = text.len().is_multiple_of(4) && text.len() - end <= 2 && text[..end].iter().all(is_digit);
    is_whole.then(|| Transformation::Base64Decode.apply(text).into_owned())
}

fn quoted_printable(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Some(decoded),
            [b'=', high, low, after @ ..] => {
                decoded.push(hex(*high, *low)?);
                after
            }
            [b'=', ..] => return None,
            [byte, after @ ..] => {
                decoded.push(if *byte == b'_' { b' ' } else { *byte });
                after
            }
        };
    }
}
