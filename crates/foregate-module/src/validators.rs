//! Validators of responses that filters may change, as requests name them.
//!
//! If a filter changes a body, the strong validator `"a"` of the response becomes the weak one `W/"a"` (RFC 9110,
//! section 8.8.1). Clients send the weak one back:
//!
//! - `If-None-Match` is compared weakly (section 13.1.2), so it is sent to the origin unchanged.
//! - `If-Match` is compared strongly (section 13.1.1): a weak validator never matches, and every `PUT` of an API would
//!   fail with 412. So the weak validator is turned back into the strong one. Both stand for the same state of the
//!   resource: the state that the client has seen.
//! - `If-Range` with a weak validator never matches either (section 13.1.5), so the origin has to send the whole body.
//!   Not all origins do, and a client must not join a part of the original body with a part of the changed one. So
//!   `If-Range` and `Range` are removed.

use alloc::vec::Vec;

use crate::exchange::Exchange;

/// Replaces the validators in a request by those that the origin knows. Platforms call this before they send the
/// request, if a plan [changes bodies](crate::Plan::changes_bodies).
pub fn restore_validators(exchange: &mut dyn Exchange) {
    let fields = exchange.request_fields();
    let weak = |value: &[u8]| strong_form(value.trim_ascii()).is_some();
    let ranges = fields.get("if-range").is_some_and(weak);
    let matches = fields.get("if-match").is_some().then(|| {
        let values: Vec<_> = fields.all("if-match").collect();
        restored(&values.join(&b", "[..]))
    });
    let fields = exchange.request_fields_mut();
    if ranges {
        fields.remove(b"if-range");
        fields.remove(b"range");
    }
    if let Some(restored) = matches.flatten() {
        fields.set(b"If-Match", &restored);
    }
}

/// The strong form of a weak validator; `None` if it is not weak.
fn strong_form(tag: &[u8]) -> Option<&[u8]> {
    tag.strip_prefix(b"W/").filter(|strong| strong.starts_with(b"\""))
}

/// A list of validators in which each weak one is replaced by its strong form; `None` if none is weak.
fn restored(list: &[u8]) -> Option<Vec<u8>> {
    let (mut restored, mut rest) = (Vec::with_capacity(list.len()), list);
    let mut quoted = false;
    while let [byte, behind @ ..] = rest {
        // A quoted validator has no escapes (RFC 9110, section 8.8.3).
        match strong_form(rest).filter(|_| !quoted) {
            Some(strong) => rest = strong,
            None => {
                quoted ^= *byte == b'"';
                restored.push(*byte);
                rest = behind;
            }
        }
    }
    (restored.len() < list.len()).then_some(restored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fields;
    use crate::testing::Sample;

    #[test]
    fn weak_validators_are_those_that_the_origin_knows() {
        for (list, expected) in [
            ("W/\"a\"", Some("\"a\"")),
            ("\"a\"", None),
            ("*", None),
            ("", None),
            ("W/\"a\", \"b\" ,W/\"c,W/\"", Some("\"a\", \"b\" ,\"c,W/\"")),
            ("\"W/\", W/\"\"", Some("\"W/\", \"\"")),
            ("W/a", None),
            ("w/\"a\"", None),
            ("W/", None),
        ] {
            let restored = restored(list.as_bytes());
            assert_eq!(restored.as_deref(), expected.map(str::as_bytes), "{list}");
        }
    }

    #[test]
    fn requests_name_them_in_each_of_their_fields() {
        let mut sample = Sample::get("/")
            .method("PUT")
            .field("If-Match", "W/\"a\"")
            .field("if-match", "W/\"b\"")
            .field("If-None-Match", "W/\"c\"")
            .field("If-Range", "W/\"a\"")
            .field("Range", "bytes=0-1");
        restore_validators(&mut sample);
        assert_eq!(sample.request.get("if-match"), Some(&b"\"a\", \"b\""[..]));
        assert_eq!(sample.request.get("if-none-match"), Some(&b"W/\"c\""[..]));
        assert_eq!((sample.request.get("if-range"), sample.request.get("range")), (None, None));
        let mut sample = Sample::get("/").field("If-Range", "\"a\"").field("Range", "bytes=0-1");
        restore_validators(&mut sample);
        assert!(sample.request.get("if-range").is_some() && sample.request.get("range").is_some());
    }
}
