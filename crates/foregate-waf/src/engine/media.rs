//! Checks that all parsers read the same type from a `Content-Type` (RFC 9110 section 8.3).

use memchr::memmem;

use crate::body::{charset, is_token, media_type};

/// Words in media types that select a parser. Some programs search for them anywhere in the field.
const TYPES: &[&[u8]] = &[b"json", b"xml", b"multipart", b"urlencoded"];

/// The reason why some programs may read the body as another type than others, or than rules; `None` if all agree.
pub(super) fn unclear(field: &[u8]) -> Option<&'static str> {
    if is_odd(field) {
        return Some("the field Content-Type has characters that do not belong there");
    }
    if let Some(why) = charset::unclear(field) {
        return Some(why);
    }
    let lower = field.to_ascii_lowercase();
    names_another(&lower).then_some("a parameter of the field Content-Type names another type")
}

/// Returns true if the field has characters that some parsers skip as white space and others read as part of the type.
fn is_odd(field: &[u8]) -> bool {
    let is_odd = |byte: &u8| !matches!(byte, b'\t' | b' '..=b'~');
    field.first().is_some_and(|first| !is_token(first)) || field.iter().any(is_odd)
}

/// Returns true if a parameter contains the name of another type, which some programs use instead. Exceptions are:
/// - the boundary of a form, which is arbitrary text;
/// - the parameters of XML, which is never read as another type;
/// - `json` in a parameter of JSON, which is the same type;
/// - the parameters of other multipart types (RFC 2387), which describe their content.
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
