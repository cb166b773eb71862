//! Chooses the format of a body or part from its media type.

use super::json::Documents;
use super::sink::is_token;

/// The format in which a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json(Documents),
    Xml,
    UrlEncoded,
    /// A form, or any other type with parts between boundaries.
    Multipart,
    /// A type that is not read.
    Other,
}

/// The media type at the start of a `Content-Type`: token characters and slashes. Some parsers skip other
/// characters before it as white space, and some end it at a comma or a blank.
pub(crate) fn media_type(field: &[u8]) -> &[u8] {
    let start = field.iter().take_while(|byte| !is_token(byte)).count();
    let rest = field.get(start..).unwrap_or_default();
    let len = rest.iter().take_while(|byte| is_token(byte) || **byte == b'/').count();
    rest.get(..len).unwrap_or_default()
}

/// Chooses the format from the value of a `Content-Type`.
pub(crate) fn kind(field: &[u8]) -> BodyFormat {
    let lower = media_type(field).to_ascii_lowercase();
    let mut halves = lower.splitn(2, |byte| *byte == b'/');
    let (family, name) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    // The suffix decides: `vnd.api+json` is JSON.
    let last = name.rsplit(|byte| *byte == b'+').next().unwrap_or_default();
    let last = last.strip_prefix(b"x-").unwrap_or(last);
    match (family, last) {
        (b"multipart", _) if !name.is_empty() => BodyFormat::Multipart,
        (b"application", b"www-form-urlencoded") => BodyFormat::UrlEncoded,
        (b"application", _) if name == b"stream+json" => BodyFormat::Json(Documents::Many),
        (_, b"json") | (b"application", b"csp-report") => BodyFormat::Json(Documents::One),
        (
            _,
            b"ndjson" | b"jsonl" | b"jsonlines" | b"json-lines" | b"json-seq" | b"json-stream" | b"ldjson",
        ) => BodyFormat::Json(Documents::Many),
        (b"application" | b"text", b"xml") => BodyFormat::Xml,
        _ => BodyFormat::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_what_is_read() {
        let (one, many) = (BodyFormat::Json(Documents::One), BodyFormat::Json(Documents::Many));
        for (field, expected) in [
            ("application/json", one),
            ("Application/JSON; charset=utf-8", one),
            ("application/json, text/plain", one),
            ("text/json", one),
            ("text/x-json", one),
            ("application/x-json", one),
            ("application/vnd.api+json", one),
            ("model/gltf+json", one),
            ("application/x-ndjson", many),
            ("application/ndjson", many),
            ("application/jsonl", many),
            ("application/x-jsonlines", many),
            ("application/json-seq", many),
            ("application/geo+json-seq", many),
            ("application/stream+json", many),
            ("application/vnd.elasticsearch+x-ndjson;compatible-with=8", many),
            ("text/xml", BodyFormat::Xml),
            ("application/soap+xml; action=x", BodyFormat::Xml),
            ("image/svg+xml", BodyFormat::Other),
            ("application/x-www-form-urlencoded", BodyFormat::UrlEncoded),
            ("multipart/related; boundary=x", BodyFormat::Multipart),
            ("multipart/", BodyFormat::Other),
            ("application/json5", BodyFormat::Other),
            ("text/plain", BodyFormat::Other),
            ("", BodyFormat::Other),
        ] {
            assert_eq!(kind(field.as_bytes()), expected, "{field}");
        }
    }
}
