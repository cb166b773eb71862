//! `application/x-www-form-urlencoded`.

use foregate_waf::body::{BodyLimits, urlencoded};

use crate::body::{FEW, SeenParameters};

#[test]
fn forms_are_names_and_values() {
    let cases: &[(&str, &[&str], bool)] = &[
        ("a=1&b=2", &["a=1", "b=2"], false),
        ("a+b=c%20d&%41=%00", &["a b=c d", "A=\\x00"], false),
        ("a&=b&&c=", &["a=", "=b", "c="], false),
        ("a=b=c", &["a=b=c"], false),
        ("a=%zz", &["a=%zz"], true),
        ("a%4=1", &["a%4=1"], true),
        ("a=%", &["a=%"], true),
        ("", &[], false),
        // What stands between semicolons is besides.
        ("a=/*;id=1&b=2", &["a=/*;id=1", "a=/*", "id=1", "b=2"], false),
        ("a=1;b; c=2;=;", &["a=1;b; c=2;=;", "a=1", "c=2", "="], false),
        ("a;b=1", &["a;b=1", "b=1"], false),
        ("a=1;", &["a=1;", "a=1"], false),
        ("a=x%3bb=1", &["a=x;b=1"], false),
    ];
    for (body, expected, invalid) in cases {
        let mut seen = SeenParameters::default();
        let outcome = urlencoded(body.as_bytes(), b'&', &BodyLimits::default(), &mut seen);
        assert_eq!(seen.0, *expected, "{body}");
        assert_eq!((outcome.invalid_encoding, outcome.over_limit), (*invalid, false), "{body}");
    }
    let mut seen = SeenParameters::default();
    assert!(urlencoded(b"a;b;c;d", b';', &FEW, &mut seen).over_limit);
    assert_eq!(seen.0, ["a=", "b=", "c="]);
    assert!(!urlencoded(b"a;b;c;", b';', &FEW, &mut seen).over_limit);
    assert!(!urlencoded(b"a=1;b=2", b'&', &FEW, &mut seen).over_limit);
    assert!(urlencoded(b"a=1;b=2;c=3", b'&', &FEW, &mut seen).over_limit, "they count");
}
