use super::scene::{Fields, Origin, Scene, Source, again_in, check};
use foregate_cache::{NotStored, Policy, SetCookie};

#[test]
fn directives_forbid_storing() {
    check(&[
        ("RFC 9111 5.2.2.7", "private", &[("Cache-Control", "private, max-age=3600")], false),
        ("RFC 9111 5.2.2.5", "no-store", &[("Cache-Control", "no-store")], false),
        ("RFC 9111 5.2", "in another case", &[("Cache-Control", "max-age=3600, No-StOrE")], false),
        (
            "RFC 9111 5.2.2.5",
            "no-store with a lifetime",
            &[("Cache-Control", "max-age=10000, no-store"), ("Expires", "@10000"), ("Date", "@0")],
            false,
        ),
        (
            "RFC 9111 5.2.2.5",
            "in a second line",
            &[("Cache-Control", "max-age=10000"), ("Cache-Control", "no-store")],
            false,
        ),
        ("RFC 9111 5.2", "with a needless argument", &[("Cache-Control", "max-age=60, no-store=1")], false),
        ("RFC 9111 5.2", "with a broken argument", &[("Cache-Control", "max-age=60, no-store=\"")], false),
        (
            "RFC 9111 5.2",
            "behind a string without end",
            &[("Cache-Control", "max-age=60, a=\"b, no-store")],
            false,
        ),
        ("RFC 9111 5.2", "separated by semicolons", &[("Cache-Control", "max-age=3600; private")], false),
        (
            "RFC 9111 5.2",
            "separated by semicolons, first",
            &[("Cache-Control", "private; max-age=3600")],
            false,
        ),
        ("RFC 9111 5.2", "separated by a blank", &[("Cache-Control", "no-store max-age=3600")], false),
        (
            "RFC 9111 5.2",
            "in the string of another directive",
            &[("Cache-Control", "a=\"no-store\", max-age=3600")],
            true,
        ),
        (
            "RFC 9111 5.2.2.7",
            "private with an empty list",
            &[("Cache-Control", "private=\"\", max-age=3600")],
            false,
        ),
        (
            "RFC 9111 5.2.2.7",
            "private with no name in its list",
            &[("Cache-Control", "private=\"a b\", max-age=3600")],
            false,
        ),
        ("RFC 9111 4.1", "Vary: *", &[("Cache-Control", "max-age=3600"), ("Vary", "*")], false),
    ]);
}

#[test]
fn listed_fields_are_not_stored() {
    let rows = [
        ("RFC 9111 5.2.2.4", "no-cache=\"a\"", &["a"][..]),
        ("RFC 9111 5.2.2.4", "no-cache=a", &["a"]),
        ("RFC 9111 5.2.2.4", "no-cache=\"A, b\"", &["a", "b"]),
        ("RFC 9111 5.2.2.7", "private=\"b\"", &["b"]),
        ("RFC 9111 5.2.2.7", "private=\"set-cookie, a\"", &["set-cookie", "a"]),
    ];
    for (section, directive, gone) in rows {
        let mut scene = Scene::with(Policy { set_cookie: SetCookie::Store, ..Policy::default() });
        let fields = [
            ("Cache-Control", directive),
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("Set-Cookie", "x"),
            ("Cache-Control", "max-age=3600"),
        ];
        scene.get(&[], &Origin::Reply(200, &fields));
        scene.wait(3);
        let seen = scene.get(&[], &Origin::Down);
        assert_eq!(seen.source, Source::Store, "{section}: {directive}");
        for name in ["a", "b", "c", "set-cookie"] {
            assert_eq!(seen.field(name).is_none(), gone.contains(&name), "{section}: {directive}: {name}");
        }
    }
}

#[test]
fn credentials_need_permission() {
    for (directives, stored) in [
        ("max-age=3600", false),
        ("max-age=3600, public", true),
        ("max-age=3600, must-revalidate", true),
        ("s-maxage=3600", true),
        ("max-age=3600, proxy-revalidate", false),
    ] {
        let mut scene = Scene::new();
        scene.get(
            &[("Authorization", "FOO")],
            &Origin::Reply(200, &[("Cache-Control", directives), ("Date", "@0")]),
        );
        scene.wait(3);
        let expected = if stored { Source::Store } else { Source::Origin };
        assert_eq!(scene.get(&[], &Origin::Reply(200, &[])).source, expected, "RFC 9111 3.5: {directives}");
    }
}

#[test]
fn cookies_are_stored_only_on_demand() {
    let fields = [("Cache-Control", "max-age=3600"), ("Set-Cookie", "a=b")];
    for (set_cookie, reused, sent) in [
        (SetCookie::Refuse, Source::Origin, Some("a=b")),
        (SetCookie::Drop, Source::Store, None),
        (SetCookie::Store, Source::Store, Some("a=b")),
    ] {
        let mut scene = Scene::with(Policy { set_cookie, ..Policy::default() });
        scene.get(&[], &Origin::Reply(200, &fields));
        let seen = scene.get(&[], &Origin::Reply(200, &fields));
        assert_eq!((seen.source, seen.field("set-cookie").as_deref()), (reused, sent));
    }
    // The origin itself takes the cookie out.
    let mut scene = Scene::new();
    let listed = [("Cache-Control", "max-age=3600, no-cache=\"set-cookie\""), ("Set-Cookie", "a=b")];
    assert_eq!(again_in(&mut scene, 200, &listed), Source::Store);
    // A request with a cookie may be answered from the store.
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=3600")]));
    assert_eq!(scene.get(&[("Cookie", "a=b")], &Origin::Down).source, Source::Store);
}

#[test]
fn each_refusal_has_its_reason() {
    let many_tags = (0..1001).map(|number| format!("t{number}")).collect::<Vec<_>>().join(" ");
    let many_names = (0..40).map(|number| format!("n{number}")).collect::<Vec<_>>().join(",");
    let rows: &[(u16, Fields<'_>, NotStored)] = &[
        (206, &[("Cache-Control", "max-age=9"), ("Content-Range", "bytes 0-1/2")], NotStored::Status),
        (428, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (429, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (431, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (511, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (304, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (600, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (199, &[("Cache-Control", "max-age=9")], NotStored::Status),
        (200, &[("Cache-Control", "no-store")], NotStored::NoStore),
        (200, &[("Cache-Control", "private")], NotStored::Private),
        (200, &[("Cache-Control", "max-age=9"), ("Vary", "a b")], NotStored::Vary),
        (200, &[("Cache-Control", "max-age=9"), ("Vary", &many_names)], NotStored::Vary),
        (200, &[("Cache-Control", "max-age=9"), ("Surrogate-Key", &many_tags)], NotStored::Tags),
        (200, &[], NotStored::Lifetime),
        (200, &[("Cache-Control", "no-cache, max-age=9")], NotStored::Lifetime),
    ];
    for (status, fields, reason) in rows {
        let seen = Scene::new().get(&[], &Origin::Reply(*status, fields));
        assert_eq!(seen.stored, Some(Err(*reason)), "{status} {fields:?}");
    }
    let useful: &[Fields<'_>] = &[
        &[("ETag", "\"a\"")],
        &[("Cache-Control", "no-cache"), ("Last-Modified", "@-1")],
        &[("Cache-Control", "max-age=0, stale-while-revalidate=9")],
    ];
    for fields in useful {
        assert_eq!(Scene::new().get(&[], &Origin::Reply(200, fields)).stored, Some(Ok(())), "{fields:?}");
    }
}

#[test]
fn tags_are_read_and_removed() {
    use foregate_cache::Tag;
    let fields = [
        ("Cache-Control", "max-age=9"),
        ("Cache-Tag", "a, b c"),
        ("Surrogate-Key", "d  e\tA"),
        ("Cache-Tag", ",f,a"),
    ];
    for keep_tags in [false, true] {
        let mut scene = Scene::with(Policy { keep_tags, ..Policy::default() });
        scene.get(&[], &Origin::Reply(200, &fields));
        let stored = &scene.objects[0].0;
        let tag = |text: &str| Tag::new(text.as_bytes());
        let mut expected = ["a", "b c", "d", "e", "A", "f"].map(tag);
        expected.sort_unstable();
        assert_eq!(*stored.tags, expected);
        assert_eq!(stored.headers.get_name(b"cache-tag").is_some(), keep_tags);
        assert_eq!(stored.headers.get_name(b"surrogate-key").is_some(), keep_tags);
    }
}
