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
//!
//! Some bodies also depend on the configuration: inserted markup, replaced texts. If it changes, the origin's resource
//! stays the same, and its 304 would keep the old body in use. The steps that change such bodies therefore add the
//! [version](crate::Plan::version) of the plan to the validator: `W/"a~0a1b2c3d"`. The origin gets validators of the
//! present version without it. One of another version may be an origin's own that looks alike, so it is treated such that
//! neither a wrong body stays in use nor a write is lost: a `GET` does not name it, `If-Match` keeps it as it is, and
//! `If-None-Match` of a write has it in both forms. The origin never gets the time of a body: such bodies have no
//! `Last-Modified`.

use alloc::format;
use alloc::vec::Vec;
use core::str;

use crate::exchange::Exchange;
use crate::fields::{Edit, Edits, Field, Fields};

/// The digits of a version in a validator.
const DIGITS: usize = 8;
/// Stands before the version.
const MARK: u8 = b'~';

/// Replaces the validators in a request by those that the origin knows. Platforms call this before they send the
/// request, if a plan [changes bodies](crate::Plan::changes_bodies). `version` is the version of the plan.
pub fn restore_validators(exchange: &mut dyn Exchange, version: u32) {
    let fields = exchange.request_fields();
    let weak = |value: &[u8]| strong_form(value.trim_ascii()).is_some();
    let ranges = fields.get("if-range").is_some_and(weak);
    let joined = |name| {
        let values: Vec<_> = fields.all(name).collect();
        fields.get(name).map(|_| values.join(&b", "[..]))
    };
    let matches = joined("if-match").and_then(|list| restored(&list, version));
    let is_read = matches!(exchange.method(), b"GET" | b"HEAD");
    let none_match = joined("if-none-match").and_then(|list| match is_read {
        true => of_version(&list, version),
        false => of_any_version(&list, version),
    });
    let fields = exchange.request_fields_mut();
    if ranges {
        fields.remove(b"if-range");
        fields.remove(b"range");
    }
    if let Some(restored) = matches {
        fields.set(b"If-Match", &restored);
    }
    match none_match {
        Some(list) if list.is_empty() => {
            fields.remove(b"if-none-match");
            // It has no effect beside `If-None-Match` (RFC 9110, section 13.1.3), and must not get one now.
            fields.remove(b"if-modified-since");
        }
        Some(list) => fields.set(b"If-None-Match", &list),
        None => {}
    }
}

/// The changes of a head whose body a step changes as the configuration says: the validator gets the version of the
/// plan, and `Last-Modified` is removed. With the version 0, nothing changes.
pub fn versioned_validators(response: &dyn Fields, version: u32) -> Edits {
    let mut edits = Edits::new();
    if version == 0 {
        return edits;
    }
    if response.get("last-modified").is_some() {
        edits.push(Edit::Remove("last-modified".into()));
    }
    if let Some(tag) = response.get("etag") {
        let versioned = versioned(tag, version).and_then(|tag| Field::new("ETag", tag).ok());
        edits.push(versioned.map_or_else(|| Edit::Remove("etag".into()), Edit::Set));
    }
    edits
}

/// The weak validator with the version of a plan, which it may have already. `None` if `tag` is no validator.
pub fn versioned(tag: &[u8], version: u32) -> Option<Vec<u8>> {
    if without_version(tag).is_some_and(|(_, own)| own == version) {
        return Some(tag.into());
    }
    let strong = strong_form(tag).unwrap_or(tag);
    let opaque = strong.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let version = format!("{version:0DIGITS$x}");
    Some([b"W/\"", opaque, &[MARK], version.as_bytes(), b"\""].concat())
}

/// A weak validator without its version, and the version. `None` if it has none.
fn without_version(tag: &[u8]) -> Option<(Vec<u8>, u32)> {
    let opaque = tag.strip_prefix(b"W/\"")?.strip_suffix(b"\"")?;
    let (opaque, version) = opaque.split_at_checked(opaque.len().checked_sub(DIGITS)?)?;
    let opaque = opaque.strip_suffix(&[MARK])?;
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let digits = str::from_utf8(version).ok().filter(|digits| digits.bytes().all(|byte| is_digit(&byte)))?;
    Some(([b"W/\"", opaque, b"\""].concat(), u32::from_str_radix(digits, 16).ok()?))
}

/// The elements of a list of validators. A quoted validator has no escapes, and may contain commas (RFC 9110, section
/// 8.8.3).
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let parts = list.split(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    });
    parts.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// A list of validators in which those of this version have lost it, and those of other versions are missing. `None` if
/// none has a version.
fn of_version(list: &[u8], version: u32) -> Option<Vec<u8>> {
    let mut changed = false;
    let kept: Vec<Vec<u8>> = elements(list)
        .filter_map(|element| match without_version(element) {
            Some((tag, own)) => {
                changed = true;
                (own == version).then_some(tag)
            }
            None => Some(element.into()),
        })
        .collect();
    changed.then(|| kept.join(&b", "[..]))
}

/// A list of validators in which those of this version have lost it, and those of other versions are there with and
/// without it. `None` if none has a version.
fn of_any_version(list: &[u8], version: u32) -> Option<Vec<u8>> {
    let mut changed = false;
    let mut named: Vec<Vec<u8>> = Vec::new();
    for element in elements(list) {
        let plain = without_version(element);
        changed |= plain.is_some();
        if plain.as_ref().is_none_or(|(_, own)| *own != version) {
            named.push(element.into());
        }
        named.extend(plain.map(|(tag, _)| tag));
    }
    changed.then(|| named.join(&b", "[..]))
}

/// The strong form of a weak validator; `None` if it is not weak.
fn strong_form(tag: &[u8]) -> Option<&[u8]> {
    tag.strip_prefix(b"W/").filter(|strong| strong.starts_with(b"\""))
}

/// A list of validators in which each weak one is replaced by its strong form, without this version. `None` if none is
/// weak.
fn restored(list: &[u8], version: u32) -> Option<Vec<u8>> {
    elements(list).any(|element| strong_form(element).is_some()).then(|| {
        let restored: Vec<Vec<u8>> = elements(list)
            .map(|element| {
                let plain = without_version(element).filter(|(_, own)| *own == version).map(|(tag, _)| tag);
                let plain = plain.as_deref().unwrap_or(element);
                strong_form(plain).unwrap_or(plain).into()
            })
            .collect();
        restored.join(&b", "[..])
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;
    use crate::testing::Sample;

    #[test]
    fn weak_validators_are_those_that_the_origin_knows() {
        for (list, expected) in [
            ("W/\"a\"", Some("\"a\"")),
            ("\"a\"", None),
            ("*", None),
            ("", None),
            ("W/\"a\", \"b\" ,W/\"c,W/\"", Some("\"a\", \"b\", \"c,W/\"")),
            ("W/\"a~0a1b2c3d\", W/\"b~0a1b2c3\"", Some("\"a\", \"b~0a1b2c3\"")),
            ("W/\"a~ffffffff\"", Some("\"a~ffffffff\"")),
            ("\"W/\", W/\"\"", Some("\"W/\", \"\"")),
            ("W/a", None),
            ("w/\"a\"", None),
            ("W/", None),
        ] {
            let restored = restored(list.as_bytes(), 0x0a1b_2c3d);
            assert_eq!(restored.as_deref(), expected.map(str::as_bytes), "{list}");
        }
    }

    #[test]
    fn validators_of_another_version_do_not_reach_the_origin() {
        for (list, expected) in [
            ("W/\"a~0a1b2c3d\"", Some("W/\"a\"")),
            ("W/\"a~ffffffff\"", Some("")),
            ("\"x,y\", W/\"a~ffffffff\",W/\"~0a1b2c3d\"", Some("\"x,y\", W/\"\"")),
            ("W/\"a\", *, \"a~0a1b2c3d\", W/\"a~0A1B2C3D\", W/\"0a1b2c3d\", W/\"a~+a1b2c3d\"", None),
            ("", None),
        ] {
            let of_version = of_version(list.as_bytes(), 0x0a1b_2c3d);
            assert_eq!(of_version.as_deref(), expected.map(str::as_bytes), "{list}");
        }
    }

    #[test]
    fn a_head_gets_the_version() {
        let of = |tag: &str, version| {
            let mut head = Sample::get("/")
                .response(200)
                .response_field("etag", tag)
                .response_field("last-modified", "x")
                .response;
            versioned_validators(&head, version).apply(&mut head);
            (
                head.get("etag").map(|tag| String::from_utf8_lossy(tag).into_owned()),
                head.get("last-modified").is_some(),
            )
        };
        assert_eq!(of("\"a\"", 0), (Some("\"a\"".into()), true));
        assert_eq!(of("\"a\"", 0x2c3d), (Some("W/\"a~00002c3d\"".into()), false));
        assert_eq!(of("W/\"a\"", 1), (Some("W/\"a~00000001\"".into()), false));
        assert_eq!(of("W/\"a~00000001\"", 1), (Some("W/\"a~00000001\"".into()), false), "by another step");
        assert_eq!(of("a", 1), (None, false));
    }

    #[test]
    fn a_time_does_not_take_the_place_of_an_old_validator() {
        let asked = |tag: &str| {
            let mut sample = Sample::get("/")
                .field("If-None-Match", tag)
                .field("If-Modified-Since", "Mon, 01 Jan 2024 00:00:00 GMT");
            restore_validators(&mut sample, 1);
            let has = |name| sample.request.get(name).is_some();
            (has("if-none-match"), has("if-modified-since"))
        };
        assert_eq!(asked("W/\"a~00000002\""), (false, false));
        assert_eq!(asked("W/\"a~00000001\""), (true, true));
    }

    #[test]
    fn a_write_does_not_lose_a_condition() {
        let asked = |tag: &str| {
            let mut sample = Sample::get("/").method("PUT").field("If-None-Match", tag);
            restore_validators(&mut sample, 1);
            sample.request.get("if-none-match").map(|list| String::from_utf8_lossy(list).into_owned())
        };
        assert_eq!(asked("W/\"a~00000001\"").as_deref(), Some("W/\"a\""));
        assert_eq!(asked("W/\"a~00000002\"").as_deref(), Some("W/\"a~00000002\", W/\"a\""));
        assert_eq!(asked("*").as_deref(), Some("*"));
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
        restore_validators(&mut sample, 0);
        assert_eq!(sample.request.get("if-match"), Some(&b"\"a\", \"b\""[..]));
        assert_eq!(sample.request.get("if-none-match"), Some(&b"W/\"c\""[..]));
        assert_eq!((sample.request.get("if-range"), sample.request.get("range")), (None, None));
        let mut sample = Sample::get("/").field("If-Range", "\"a\"").field("Range", "bytes=0-1");
        restore_validators(&mut sample, 0);
        assert!(sample.request.get("if-range").is_some() && sample.request.get("range").is_some());
    }
}
