//! Keys: equal for requests that every origin answers alike, different for all others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

use std::collections::HashMap;

use foregate_cache::{Key, KeyParts, KeyText, Parameters, QueryRule, Secret, Uri};
use foregate_wire::{Scheme, Slashes, normalize_path, other_readings};
use proptest::prelude::*;

const SECRET: [u8; 16] = [3; 16];

fn text(uri: &Uri<'_>, parts: &KeyParts<'_>) -> KeyText {
    let mut text = KeyText::new();
    text.write(uri, parts);
    text
}

fn key(uri: &Uri<'_>, parts: &KeyParts<'_>) -> Key {
    text(uri, parts).key(&Secret::new(SECRET))
}

fn uri<'a>(path: &'a [u8], query: Option<&'a [u8]>) -> Uri<'a> {
    Uri { scheme: Scheme::Https, host: "example.com", port: None, path, query }
}

#[test]
fn every_part_counts() {
    let base = uri(b"/a", Some(b"q"));
    let parts = KeyParts { raw_target: None, additions: &[b"de"] };
    let others = [
        (Uri { scheme: Scheme::Http, ..base }, parts),
        (Uri { host: "example.org", ..base }, parts),
        (Uri { port: Some(8443), ..base }, parts),
        (Uri { port: Some(80), ..base }, parts),
        (Uri { path: b"/A", ..base }, parts),
        (Uri { query: None, ..base }, parts),
        (Uri { query: Some(b""), ..base }, parts),
        (base, KeyParts { additions: &[], ..parts }),
        (base, KeyParts { additions: &[b"de", b""], ..parts }),
        (base, KeyParts { additions: &[b"d", b"e"], ..parts }),
        (base, KeyParts { raw_target: Some(b"/a?q"), ..parts }),
        (base, KeyParts { raw_target: Some(b""), ..parts }),
    ];
    for (other, with) in others {
        assert_ne!(key(&other, &with), key(&base, &parts), "{other:?} {with:?}");
    }
    assert_eq!(key(&Uri { port: Some(443), ..base }, &parts), key(&base, &parts), "the port of the scheme");
    assert_ne!(text(&base, &parts).key(&Secret::new([4; 16])), key(&base, &parts), "another secret");
}

#[test]
fn a_crafted_part_does_not_pass_for_another() {
    let crafted = text(&uri(b"/b", None), &KeyParts::default());
    let inner = crafted.as_bytes().to_vec();
    let parts = KeyParts { raw_target: None, additions: &[&inner] };
    assert_ne!(key(&uri(b"/a", None), &parts), key(&uri(b"/b", None), &KeyParts::default()));
    assert_ne!(
        key(&uri(b"/a?b", None), &KeyParts::default()),
        key(&uri(b"/a", Some(b"b")), &KeyParts::default())
    );
}

/// Path, query, raw target, additions.
type Parts = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Vec<u8>>);

fn part() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&[0_u8, 1, 2, b'/', b'a'][..]), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Keys are equal exactly where all parts are.
    #[test]
    fn keys_are_injective(
        one in (part(), prop::option::of(part()), prop::option::of(part()), prop::collection::vec(part(), 0..3)),
        other in (part(), prop::option::of(part()), prop::option::of(part()), prop::collection::vec(part(), 0..3)),
    ) {
        let of = |parts: &Parts| {
            let (path, query, raw, additions) = parts;
            let additions: Vec<_> = additions.iter().map(|part| &**part).collect();
            key(&uri(path, query.as_deref()), &KeyParts { raw_target: raw.as_deref(), additions: &additions })
        };
        prop_assert_eq!(of(&one) == of(&other), one == other);
    }

    /// A path shares its key with no other reading that an origin may have of it, and with each spelling of the same normal form.
    #[test]
    fn readings_never_share_a_key(pieces in prop::collection::vec(prop::sample::select(
        &["/", "a", "b", "..", ".", "%2F", "%2f", "%2e", ";", "%3B", "%25", "2F", "\\", "%5C", "%3F", "%61", "//", "A"][..]
    ), 0..8)) {
        let raw = format!("/{}", pieces.concat());
        let mut path = Vec::new();
        prop_assume!(normalize_path(raw.as_bytes(), Slashes::Merge, &mut path).is_ok());
        let of = |path: &[u8]| key(&uri(path, None), &KeyParts::default());
        let mut keys = HashMap::from([(of(&path), path.clone())]);
        for reading in other_readings(&path, Slashes::Merge, |_| true).unwrap_or_default() {
            let known = keys.insert(of(&reading), reading.clone());
            prop_assert!(known.is_none_or(|known| known == reading));
        }
        prop_assert_eq!(keys.get(&of(&path)), Some(&path));
    }

    #[test]
    fn queries_of_any_bytes_are_taken(query: Vec<u8>, names: Vec<String>, sort: bool) {
        let mut out = Vec::new();
        for parameters in [Parameters::Keep(names.clone()), Parameters::Drop(names.clone())] {
            let rule = QueryRule { parameters, sort };
            let present = rule.apply(Some(&query), &mut out);
            prop_assert!(present || out.is_empty());
            let once = out.clone();
            rule.apply(Some(&once), &mut out);
            prop_assert_eq!(once, out.clone());
        }
    }
}

#[test]
fn parameters_are_kept_dropped_and_sorted() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = || Parameters::All;
    let keep = || Parameters::Keep(names(&["page", "q"]));
    let drop = || Parameters::Drop(names(&["utm_*", "fbclid"]));
    let rows: &[(Parameters, bool, Option<&str>, Option<&str>)] = &[
        (all(), false, None, None),
        (all(), false, Some(""), Some("")),
        (all(), false, Some("b&&a="), Some("b&&a=")),
        (all(), true, Some("b=2&a=1&b=1&a"), Some("a=1&a&b=2&b=1")),
        (all(), true, Some("&"), None),
        (keep(), false, Some("x=1&page=2&y=3"), Some("page=2")),
        (keep(), false, Some("q=1&page=2&q=3"), Some("q=1&page=2&q=3")),
        (keep(), true, Some("q=1&page=2"), Some("page=2&q=1")),
        (keep(), false, Some("x=1"), None),
        (keep(), false, Some("pages=1"), None),
        (keep(), false, Some("Page=1"), None),
        (keep(), false, Some("page"), Some("page")),
        // However it is spelt, the origin reads `page`.
        (keep(), false, Some("p%61ge=2"), Some("p%61ge=2")),
        (keep(), false, Some("%70%61%67%65=2"), Some("%70%61%67%65=2")),
        // Some origins read two parameters here.
        (keep(), false, Some("x=1;page=2"), Some("x=1;page=2")),
        (drop(), false, Some("utm_source=a&q=1&fbclid=b"), Some("q=1")),
        (drop(), false, Some("%75tm_source=a&q=1"), Some("q=1")),
        (drop(), false, Some("utm_source=a;admin=1"), Some("utm_source=a;admin=1")),
        (drop(), false, Some("utm=a"), Some("utm=a")),
        (drop(), false, Some("fbclid=a"), None),
    ];
    for (parameters, sort, query, expected) in rows {
        let mut out = b"old".to_vec();
        let rule = QueryRule { parameters: parameters.clone(), sort: *sort };
        let present = rule.apply(query.map(str::as_bytes), &mut out);
        let found = present.then(|| String::from_utf8(out).unwrap());
        assert_eq!(found.as_deref(), *expected, "{rule:?} {query:?}");
    }
}
