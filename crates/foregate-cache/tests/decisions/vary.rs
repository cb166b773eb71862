use super::scene::{Fields, Origin, Scene, Source};

fn second(vary: &[&str], first: Fields<'_>, second: Fields<'_>) -> Source {
    let mut scene = Scene::new();
    let mut fields = vec![("Cache-Control", "max-age=5000"), ("Last-Modified", "@-3000"), ("Date", "@0")];
    fields.extend(vary.iter().map(|vary| ("Vary", *vary)));
    scene.get(first, &Origin::Reply(200, &fields));
    scene.get(second, &Origin::Reply(200, &fields)).source
}

#[test]
fn selecting_fields_have_to_match() {
    let rows: &[(&str, Fields<'_>, Fields<'_>, bool)] = &[
        ("Foo", &[("Foo", "1")], &[("Foo", "1")], true),
        ("Foo", &[("Foo", "1")], &[("Foo", "2")], false),
        ("Foo", &[], &[("Foo", "1")], false),
        ("Foo", &[("Foo", "1")], &[], false),
        ("Foo", &[], &[("Foo", "")], false),
        ("foo", &[("FOO", "1"), ("Other", "2")], &[("Foo", "1"), ("Other", "3")], true),
        ("Foo, Bar", &[("Foo", "1"), ("Bar", "abc")], &[("Bar", "abc"), ("Foo", "1")], true),
        ("Foo, Bar", &[("Foo", "1"), ("Bar", "abc")], &[("Foo", "2"), ("Bar", "abc")], false),
        ("Foo, Bar", &[("Foo", "1"), ("Bar", "abc")], &[], false),
        ("Foo, Bar", &[("Foo", "1"), ("Bar", "2")], &[("Foo", "2"), ("Bar", "1")], false),
        (
            "Foo, Bar, Baz",
            &[("Foo", "1"), ("Bar", "abc"), ("Baz", "7")],
            &[("Foo", "1"), ("Baz", "7"), ("Bar", "abcde")],
            false,
        ),
        ("Foo, Bar, Baz", &[("Foo", "1"), ("Baz", "7")], &[("Foo", "1"), ("Baz", "7")], true),
        ("", &[("Foo", "1")], &[("Foo", "2")], true),
        // Case counts where nothing else is known.
        ("Foo", &[("Foo", "a")], &[("Foo", "A")], false),
    ];
    for (vary, first, request, reused) in rows {
        let expected = if *reused { Source::Store } else { Source::Origin };
        assert_eq!(second(&[vary], first, request), expected, "RFC 9111 4.1: {vary}: {first:?} {request:?}");
    }
}

#[test]
fn a_star_anywhere_matches_nothing() {
    let same: Fields<'_> = &[("Foo", "1"), ("Baz", "789")];
    for vary in [
        &["*"][..],
        &["*, *"],
        &["*", "*"],
        &[", *"],
        &["", "*"],
        &["*, Foo"],
        &["Foo, *"],
        &["Foo", "Baz,*"],
    ] {
        assert_eq!(second(vary, same, same), Source::Origin, "RFC 9110 12.5.5: {vary:?}");
    }
    assert_eq!(second(&[",Foo", "", "Baz ,"], same, same), Source::Store);
}

#[test]
fn values_with_the_same_meaning_are_one() {
    let rows: &[(&str, &[&str], &[&str], bool)] = &[
        ("Foo", &["1, 2"], &["1", "2"], true),
        ("Foo", &["1,2"], &[" 1, 2 "], true),
        ("Foo", &["1,2"], &["2,1"], false),
        ("Foo", &["\"a, b\""], &["\"a,b\""], false),
        ("Foo", &["1,2"], &["1,,2"], false),
        ("Foo", &["1"], &["1,"], false),
        ("Origin", &["https://a.example"], &["https://a.example,"], false),
        ("Referer", &["a, b"], &["a,b"], false),
        // Servers take the first one.
        ("Accept-Language", &["en, de"], &["de, en"], false),
        ("Accept-Language", &["en;q=0.5, de"], &["de, en;q=0.5"], true),
        ("Accept-Language", &["en, de"], &["eN, De"], true),
        ("Accept-Language", &["en, de"], &[" en ,   de"], true),
        ("Accept-Language", &["en, de"], &["en", "de"], true),
        ("Accept-Language", &["en, de;q=0.5"], &["de ; q=0.500 , en;q=1"], true),
        ("Accept-Language", &["en, de;q=0.5"], &["de, en;q=0.5"], false),
        ("Accept-Language", &["en, de"], &["en"], false),
        ("Accept-Encoding", &["gzip, br"], &["br,gzip"], true),
        ("Accept-Encoding", &["gzip"], &["X-GZIP"], true),
        ("Accept-Encoding", &["gzip;q=1.0"], &["gzip"], true),
        ("Accept-Encoding", &["gzip;q=0"], &["gzip"], false),
        ("Accept-Encoding", &["gzip;q=2"], &["gzip"], false),
        ("Accept-Encoding", &["gzip, br"], &["gzip"], false),
        ("Cookie", &["a=1, b=2"], &["a=1,b=2"], false),
        ("Cookie", &["a=1"], &["a=1"], true),
    ];
    for (name, first, other, same) in rows {
        let fields = |values: &[&'static str]| values.iter().map(|value| (*name, *value)).collect::<Vec<_>>();
        let (first, other) = (fields(first), fields(other));
        let expected = if *same { Source::Store } else { Source::Origin };
        assert_eq!(second(&[name], &first, &other), expected, "RFC 9111 4.1: {first:?} {other:?}");
    }
}

#[test]
fn several_variants_are_kept_and_validated_with_their_own_fields() {
    let mut scene = Scene::new();
    let fields: Fields<'_> = &[("Cache-Control", "max-age=2"), ("ETag", "\"a\""), ("Vary", "Abc")];
    for value in ["123", "456"] {
        assert_eq!(scene.get(&[("Abc", value)], &Origin::Reply(200, fields)).source, Source::Origin);
    }
    for value in ["123", "456"] {
        assert_eq!(scene.get(&[("Abc", value)], &Origin::Down).source, Source::Store);
    }
    scene.wait(3);
    let seen = scene.get(&[("Abc", "123")], &Origin::Reply(304, fields));
    assert_eq!(seen.source, Source::Validated, "RFC 9111 4.3.1");
    assert_eq!(
        (seen.sent("abc").as_deref(), seen.sent("if-none-match").as_deref()),
        (Some("123"), Some("\"a\""))
    );
}
