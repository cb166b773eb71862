//! Whether all who read a `Content-Type` (RFC 9110 section 8.3) take the same out of it.

use memchr::memmem;

use super::request::{is_token, media_type};

/// Charsets in which what is ASCII to rules is ASCII to all.
const CHARSETS: &[&str] = &["utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"];
/// What stands in the names of types for which bodies are taken apart. Some look for these anywhere in the field.
const TYPES: &[&[u8]] = &[b"json", b"xml", b"multipart", b"urlencoded"];

/// Why some may take the body for another one than others do, and than rules do; `None` if all agree.
pub(super) fn unclear(field: &[u8]) -> Option<&'static str> {
    if is_odd(field) {
        return Some("the field Content-Type has characters that do not belong there");
    }
    let lower = field.to_ascii_lowercase();
    if !is_clear_charset(field, &lower) {
        return Some("the field Content-Type has a charset that some read otherwise, or several");
    }
    names_another(&lower).then_some("a parameter of the field Content-Type names another type")
}

/// Whether it has what is white space to some, who leave it out, and a part of the type to others.
fn is_odd(field: &[u8]) -> bool {
    let is_odd = |byte: &u8| !matches!(byte, b'\t' | b' '..=b'~');
    field.first().is_some_and(|first| !is_token(first)) || field.iter().any(is_odd)
}

/// Whether there is at most one charset, and one of which rules see all that an application sees: it is known, or its name is
/// in small letters and its value well-formed, so that what is allowed is for rules to say, as those of the Core Rule Set do
/// (920480). Quotes around several parameters count for nothing: to some they are none.
fn is_clear_charset(field: &[u8], lower: &[u8]) -> bool {
    const NAME: &[u8] = b"charset";
    let begins = |at: &usize| at.checked_sub(1).is_none_or(|before| !is_token(&lower[before]));
    let mut known = None;
    for at in memmem::find_iter(lower, NAME).filter(begins) {
        let rest = &lower[at + NAME.len()..];
        // `charset*` and `charset*0` are names of it too (RFC 8187, RFC 2231).
        if rest.first() == Some(&b'*') {
            return false;
        }
        let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else { continue };
        if known.is_some() {
            return false;
        }
        let Some(value) = charset(value.trim_ascii_start()) else { return false };
        let is_plain = field[at..].starts_with(NAME);
        known = Some(is_plain || CHARSETS.iter().any(|charset| charset.as_bytes() == value));
    }
    known.unwrap_or(true)
}

/// A charset that is a token, in quotes or not, with nothing behind it that could belong to it.
fn charset(text: &[u8]) -> Option<&[u8]> {
    let quote = text.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let text = if quote.is_some() { &text[1..] } else { text };
    let len = text.iter().take_while(|byte| is_token(byte) && **byte != b'\'').count();
    let (value, rest) = text.split_at(len);
    let rest = match quote {
        Some(quote) => rest.strip_prefix(&[quote])?,
        None => rest,
    };
    let ends = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    (ends && !value.is_empty()).then_some(value)
}

/// Whether something behind the type is the name of another: some take the body for that then. A form's boundary is any text.
/// XML is never anything else as well, and JSON that says `json` again is JSON. Of other multipart types (RFC 2387) parameters
/// say what is in them.
fn names_another(lower: &[u8]) -> bool {
    let kind = media_type(lower);
    let is_form = kind == b"multipart/form-data";
    if kind.ends_with(b"xml") || kind.starts_with(b"multipart/") && !is_form {
        return false;
    }
    let is_json = kind.ends_with(b"json");
    let behind = memmem::find(lower, kind).map_or(0, |at| at + kind.len());
    let mut parameters = lower[behind..].split(|byte| *byte == b';');
    parameters.any(|parameter| {
        let is_boundary = is_form && parameter.trim_ascii_start().starts_with(b"boundary");
        let names =
            |word: &&[u8]| memmem::find(parameter, word).is_some() && !(is_json && **word == *b"json");
        !is_boundary && TYPES.iter().any(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_are_clear() {
        for clear in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;Charset=UTF-8",
            "application/json; CHARSET = \"iso-8859-1\"",
            "application/json; charset=utf-8; boundary=x",
            // What rules see themselves is for them to say.
            "application/json; charset=utf-7",
            "application/json; charset=\"utf-16\"",
            "application/json; charset='utf-8'",
            "application/json; charset = utf-7 ; x=y",
            "application/json; accept-charset=x",
            "application/json; charset",
        ] {
            assert_eq!(unclear(clear.as_bytes()), None, "{clear}");
        }
        for unsure in [
            "application/json; Charset=utf-7",
            "application/json; CHARSET=utf-16le",
            "application/json; charset=''utf-7",
            "application/json; charset=\"\"utf-7\"\"",
            "application/json; charset*=utf-8''utf-7",
            "application/json; charset*0=utf-7",
            "application/json; charset=utf-8; charset=utf-8",
            "application/json; charset=utf-8; x=\"charset=utf-7\"",
            "application/json; x=\"y;CHARSET=utf-7\"",
            "application/json; charset=utf-8,utf-7",
            "application/json; charset=\"utf\\-7\"",
            "application/json; charset=\"utf-8\" utf-7",
            "application/json; charset=",
            "application/json, charset=utf-8; Charset=utf-7",
        ] {
            assert!(unclear(unsure.as_bytes()).is_some_and(|why| why.contains("charset")), "{unsure}");
        }
    }

    #[test]
    fn second_types() {
        for (field, clear) in [
            ("application/x-www-form-urlencoded; type=json", false),
            ("application/x-www-form-urlencoded; a=b; x=a+JSON", false),
            ("application/x-www-form-urlencoded; boundary=json", false),
            ("application/x-www-form-urlencoded, text/xml", false),
            ("multipart/form-data; boundary=x; type=json", false),
            ("multipart/form-data; boundary=--MultipartBoundary--x", true),
            ("multipart/related; type=\"application/xop+xml\"; boundary=x", true),
            ("application/json; x=multipart/form-data", false),
            ("application/json; profile=\"json-ld\"", true),
            ("application/ld+json; profile=\"http://www.w3.org/ns/json-ld#compacted\"", true),
            ("application/soap+xml; action=\"urn:xml\"", true),
            ("text/plain; x=/json", false),
            ("text/plain; format=flowed", true),
        ] {
            assert_eq!(unclear(field.as_bytes()).is_none(), clear, "{field}");
        }
    }
}
