use super::scene::{Fields, Origin, Scene, Source, again_in, check};
use foregate_cache::Policy;

#[test]
fn the_targeted_field_wins_where_it_is_valid() {
    let long = ("CDN-Cache-Control", "max-age=3600");
    check(&[
        ("RFC 9213 2.1", "alone", &[long], true),
        ("RFC 9213 2.1", "2^31", &[("CDN-Cache-Control", "max-age=2147483648")], true),
        ("RFC 9213 2.1", "beyond 32 bits", &[("CDN-Cache-Control", "max-age=99999999999")], true),
        ("RFC 9213 2.1", "zero", &[("CDN-Cache-Control", "max-age=0")], false),
        (
            "RFC 9213 2.1",
            "negative",
            &[("CDN-Cache-Control", "max-age=-1"), ("Cache-Control", "max-age=60")],
            false,
        ),
        ("RFC 9213 2.1", "Age beyond it", &[("Date", "@0"), long, ("Age", "7200")], false),
        ("RFC 9213 2.1", "an extension before", &[("CDN-Cache-Control", "foobar, max-age=3600")], true),
        ("RFC 9213 2.1", "parameters are ignored", &[("CDN-Cache-Control", "max-age=3600;a=1")], true),
        ("RFC 9213 2.2", "a past Expires", &[long, ("Expires", "@-10000"), ("Date", "@0")], true),
        ("RFC 9213 2.2", "a bad Expires", &[long, ("Expires", "0"), ("Date", "@0")], true),
        (
            "RFC 9213 2.2",
            "a future Expires",
            &[("CDN-Cache-Control", "max-age=0"), ("Expires", "@10000"), ("Date", "@0")],
            false,
        ),
        ("RFC 9213 2.2", "a short max-age", &[("Cache-Control", "max-age=1"), long], true),
        (
            "RFC 9213 2.2",
            "a long max-age",
            &[("Cache-Control", "max-age=3600"), ("CDN-Cache-Control", "max-age=1")],
            false,
        ),
        (
            "RFC 9213 2.2",
            "private",
            &[("CDN-Cache-Control", "private"), ("Cache-Control", "max-age=10000"), ("Expires", "@10000")],
            false,
        ),
        (
            "RFC 9213 2.2",
            "no-cache",
            &[("CDN-Cache-Control", "no-cache"), ("Cache-Control", "max-age=10000"), ("Expires", "@10000")],
            false,
        ),
        (
            "RFC 9213 2.2",
            "no-store",
            &[("CDN-Cache-Control", "no-store"), ("Cache-Control", "max-age=10000")],
            false,
        ),
        (
            "RFC 9213 2.2",
            "over no-store",
            &[("Cache-Control", "no-store"), ("CDN-Cache-Control", "max-age=10000")],
            true,
        ),
        (
            "RFC 9213 2.2",
            "a directive alone hides Expires",
            &[("CDN-Cache-Control", "foo"), ("Expires", "@10000")],
            false,
        ),
        ("RFC 9213 2.1", "the value false", &[("CDN-Cache-Control", "max-age=3600, no-store=?0")], true),
        ("RFC 9651 3.2", "of two the last", &[("CDN-Cache-Control", "max-age=1, max-age=3600")], true),
        (
            "RFC 9651 4.2",
            "two lines",
            &[("CDN-Cache-Control", "max-age=3600"), ("CDN-Cache-Control", "no-store")],
            false,
        ),
        ("RFC 9213 2.1", "s-maxage", &[("CDN-Cache-Control", "max-age=1, s-maxage=3600")], true),
    ]);
}

#[test]
fn a_field_that_is_no_dictionary_is_ignored() {
    let no_store = ("Cache-Control", "no-store");
    check(&[
        ("RFC 9213 2.1", "no key", &[("CDN-Cache-Control", "max-age=10000, &&&&&"), no_store], false),
        ("RFC 9213 2.1", "another type", &[("CDN-Cache-Control", "max-age=\"10000\""), no_store], false),
        (
            "RFC 9213 2.1",
            "another type, else cacheable",
            &[("CDN-Cache-Control", "max-age=\"1\""), ("Cache-Control", "max-age=60")],
            true,
        ),
        (
            "RFC 9213 2.1",
            "no-store with a number",
            &[("CDN-Cache-Control", "no-store=1"), ("Cache-Control", "max-age=60")],
            true,
        ),
        ("RFC 9213 2.1", "upper case", &[("CDN-Cache-Control", "MaX-aGe=3600")], false),
        (
            "RFC 9213 2.1",
            "blank before the sign",
            &[("Cache-Control", "max-age=1"), ("CDN-Cache-Control", "max-age =100")],
            false,
        ),
        (
            "RFC 9213 2.1",
            "blank behind the sign",
            &[("Cache-Control", "max-age=1"), ("CDN-Cache-Control", "max-age= 100")],
            false,
        ),
        ("RFC 9213 2.1", "empty", &[("CDN-Cache-Control", ""), ("Cache-Control", "max-age=60")], true),
        (
            "RFC 9213 2.1",
            "decimal",
            &[("CDN-Cache-Control", "max-age=1.5"), ("Cache-Control", "max-age=60")],
            true,
        ),
    ]);
}

#[test]
fn targets_have_an_order() {
    let targeted = ["Edge-Cache-Control", "CDN-Cache-Control"].map(str::to_owned).to_vec();
    let rows: &[(&str, Fields<'_>, bool)] = &[
        ("the first", &[("cdn-cache-control", "no-store"), ("edge-cache-control", "max-age=9")], true),
        ("the first", &[("CDN-Cache-Control", "max-age=9"), ("Edge-Cache-Control", "no-store")], false),
        ("the second", &[("CDN-Cache-Control", "max-age=9"), ("Cache-Control", "no-store")], true),
        ("the first is invalid", &[("Edge-Cache-Control", "="), ("CDN-Cache-Control", "max-age=9")], true),
        ("the first is empty", &[("Edge-Cache-Control", ""), ("CDN-Cache-Control", "max-age=9")], true),
        ("none", &[("Cache-Control", "max-age=9")], true),
    ];
    for (name, fields, reused) in rows {
        let mut scene = Scene::with(Policy { targeted: targeted.clone(), ..Policy::default() });
        let expected = if *reused { Source::Store } else { Source::Origin };
        assert_eq!(again_in(&mut scene, 200, fields), expected, "RFC 9213 2.2: {name}");
    }
    let mut scene = Scene::with(Policy { targeted: Vec::new(), ..Policy::default() });
    assert_eq!(again_in(&mut scene, 200, &[("CDN-Cache-Control", "max-age=9")]), Source::Origin);
}

#[test]
fn targeted_directives_have_the_same_effects() {
    let gone = [("private=\"a b\"", ["a", "b"]), ("no-cache=(a \"b\")", ["a", "b"])];
    for (directive, names) in gone {
        let value = format!("max-age=60, {directive}");
        let mut scene = Scene::new();
        scene.get(
            &[],
            &Origin::Reply(200, &[("CDN-Cache-Control", &value), ("a", "1"), ("b", "1"), ("c", "1")]),
        );
        let seen = scene.get(&[], &Origin::Down);
        assert_eq!((seen.source, seen.field("c").is_some()), (Source::Store, true));
        assert!(names.iter().all(|name| seen.field(name).is_none()), "RFC 9213 2.1: {directive}");
        assert_eq!(seen.field("cdn-cache-control").as_deref(), Some(&*value), "the field is forwarded");
    }
    for (directives, expected) in [
        ("max-age=2", Source::Stale),
        ("max-age=2, stale-if-error=9", Source::Stale),
        ("max-age=2, stale-if-error=0", Source::Nothing),
        ("max-age=2, must-revalidate", Source::Nothing),
        ("max-age=2, s-maxage=2", Source::Nothing),
        ("max-age=2, stale-while-revalidate=9", Source::StaleRefreshing),
    ] {
        let mut scene = Scene::new();
        // Cache-Control does not matter.
        scene.get(
            &[],
            &Origin::Reply(
                200,
                &[("CDN-Cache-Control", directives), ("Cache-Control", "must-revalidate, max-age=9")],
            ),
        );
        scene.wait(3);
        assert_eq!(scene.get(&[], &Origin::Down).source, expected, "RFC 9213 2.2: {directives}");
    }
    for (directives, stored) in [("max-age=9", false), ("max-age=9, public", true), ("s-maxage=9", true)] {
        let mut scene = Scene::new();
        let fields = [("CDN-Cache-Control", directives), ("Cache-Control", "public")];
        let seen = scene.get(&[("Authorization", "a")], &Origin::Reply(200, &fields));
        assert_eq!(seen.stored.is_some_and(|stored| stored.is_ok()), stored, "RFC 9111 3.5: {directives}");
    }
}
