use super::scene::{Fields, Origin, Scene, Source};
use foregate_cache::{NotStored, Policy};
use foregate_wire::Method;

/// A response that becomes stale, and its validation.
fn validated(stored: Fields<'_>, response: Fields<'_>) -> (Scene, super::scene::Seen) {
    let mut scene = Scene::new();
    let stored = [&[("Date", "@0"), ("Cache-Control", "max-age=2")], stored].concat();
    scene.get(&[], &Origin::Reply(200, &stored));
    scene.wait(3);
    let seen = scene.get(&[], &Origin::Reply(304, response));
    (scene, seen)
}

#[test]
fn a_304_renews_all_fields_but_those_of_the_stored_body() {
    let rows = [
        ("Test-Header", "a", "b", "b"),
        ("X-Test-Header", "a", "b", "b"),
        ("Content-Foo", "a", "b", "b"),
        ("Content-Type", "text/plain", "text/css", "text/css"),
        ("Content-Location", "/a", "/b", "/b"),
        ("Content-MD5", "a", "b", "b"),
        ("Content-Security-Policy", "a", "b", "b"),
        (
            "Expires",
            "Fri, 01 Jan 2038 01:01:01 GMT",
            "Mon, 11 Jan 2038 11:11:11 GMT",
            "Mon, 11 Jan 2038 11:11:11 GMT",
        ),
        ("X-Frame-Options", "deny", "sameorigin", "sameorigin"),
        ("Content-Length", "11", "10", "11"),
        ("Content-Encoding", "gzip", "br", "gzip"),
        ("Content-Range", "a", "b", "a"),
    ];
    for (name, old, new, expected) in rows {
        let response = [("ETag", "\"e\""), ("Cache-Control", "max-age=2"), ("Date", "@0"), (name, new)];
        let (mut scene, seen) = validated(&[("ETag", "\"e\""), (name, old)], &response);
        assert_eq!(seen.source, Source::Validated, "RFC 9111 4.3.4: {name}");
        assert_eq!(seen.sent("if-none-match").as_deref(), Some("\"e\""));
        assert_eq!(seen.field(name).as_deref(), Some(expected), "RFC 9111 3.2: {name}");
        let seen = scene.get(&[], &Origin::Down);
        assert_eq!(
            (seen.source, seen.field(name).as_deref()),
            (Source::Store, Some(expected)),
            "RFC 9111 3.2: {name}"
        );
        assert_eq!(seen.headers.get_all_name(name.as_bytes()).count(), 1, "{name}");
    }
}

#[test]
fn fields_that_a_304_omits_stay() {
    let modified = "Wed, 01 Jan 2020 00:00:00 GMT";
    let response = [
        ("Last-Modified", modified),
        ("Date", "@0"),
        ("Connection", "Hop"),
        ("Hop", "1"),
        ("X", "1"),
        ("X", "2"),
    ];
    let (mut scene, seen) =
        validated(&[("Last-Modified", modified), ("Test-Header", "a"), ("X", "0")], &response);
    assert_eq!(
        (seen.source, seen.field("test-header").as_deref()),
        (Source::Validated, Some("a")),
        "RFC 9111 3.2"
    );
    assert_eq!(seen.sent("if-modified-since").as_deref(), Some(modified));
    assert_eq!((seen.field("hop"), seen.field("connection")), (None, None), "RFC 9111 3.1");
    assert_eq!(seen.headers.get_all_name(b"x").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(seen.field("age").as_deref(), Some("0"));
    scene.wait(1);
    assert_eq!(scene.get(&[], &Origin::Down).source, Source::Store);
}

#[test]
fn ages_begin_anew() {
    // The stored Age and a Date of the past do not outlive the validation.
    let (mut scene, seen) = validated(&[("ETag", "\"e\""), ("Age", "1")], &[("ETag", "\"e\"")]);
    assert_eq!((seen.source, seen.field("age").as_deref()), (Source::Validated, Some("0")), "RFC 9111 4.2.3");
    scene.wait(1);
    let seen = scene.get(&[], &Origin::Down);
    assert_eq!((seen.source, seen.field("age").as_deref()), (Source::Store, Some("1")));
    let (_, seen) = validated(&[("ETag", "\"e\"")], &[("Age", "1")]);
    assert_eq!(seen.field("age").as_deref(), Some("1"));
}

#[test]
fn a_304_about_another_representation_updates_nothing() {
    let rows: &[(Fields<'_>, Fields<'_>, bool)] = &[
        (&[("ETag", "\"a\"")], &[("ETag", "\"a\"")], true),
        (&[("ETag", "\"a\"")], &[("ETag", "\"b\"")], false),
        (&[("ETag", "\"a\"")], &[("ETag", "W/\"a\"")], true),
        (&[("ETag", "\"a\"")], &[], true),
        (&[("Last-Modified", "@-90")], &[("ETag", "\"b\"")], true),
        (&[("Last-Modified", "@-90")], &[("Last-Modified", "@-93")], true),
        (&[("Last-Modified", "@-90")], &[("Last-Modified", "@-500")], false),
        (&[("Last-Modified", "@-90")], &[("Last-Modified", "x")], true),
    ];
    for (stored, response, same) in rows {
        let (_, seen) = validated(stored, response);
        let expected = if *same { Source::Validated } else { Source::Origin };
        assert_eq!(seen.source, expected, "RFC 9111 4.3.4: {stored:?} {response:?}");
    }
}

#[test]
fn a_304_can_forbid_further_use() {
    for (field, reason) in [
        (("Cache-Control", "no-store"), NotStored::NoStore),
        (("Cache-Control", "private"), NotStored::Private),
        (("Set-Cookie", "a=b"), NotStored::SetCookie),
        (("Vary", "*"), NotStored::Vary),
    ] {
        let (mut scene, seen) = validated(&[("ETag", "\"e\""), ("X", "1")], &[field]);
        assert_eq!(
            (seen.source, seen.stored),
            (Source::Validated, Some(Err(reason))),
            "RFC 9111 3: {field:?}"
        );
        assert_eq!((seen.field(field.0).as_deref(), seen.field("x").as_deref()), (Some(field.1), Some("1")));
        assert_eq!(seen.body, scene.body);
        assert_eq!(scene.get(&[], &Origin::Reply(200, &[])).source, Source::Origin, "{field:?}");
    }
}

#[test]
fn tags_outlive_a_304_without_them() {
    use foregate_cache::Tag;
    for (new, expected) in [(&[][..], "a"), (&[("Cache-Tag", "b")], "b")] {
        let response = [&[("ETag", "\"e\"")], new].concat();
        let (scene, _) = validated(&[("ETag", "\"e\""), ("Cache-Tag", "a")], &response);
        assert_eq!(*scene.objects[0].0.tags, [Tag::new(expected.as_bytes())]);
    }
}

#[test]
fn a_head_updates_the_stored_get() {
    let rows: &[(u16, Fields<'_>, Source, Option<&str>)] = &[
        (200, &[("Cache-Control", "max-age=1000"), ("T", "2")], Source::Store, Some("2")),
        (
            200,
            &[("Cache-Control", "max-age=1000"), ("T", "2"), ("Content-Length", "11")],
            Source::Store,
            Some("2"),
        ),
        (200, &[("Cache-Control", "max-age=1000"), ("U", "2")], Source::Store, Some("1")),
        (200, &[("Cache-Control", "max-age=1000"), ("Content-Length", "12")], Source::Origin, None),
        (200, &[("Cache-Control", "max-age=1000"), ("ETag", "\"b\"")], Source::Origin, None),
        (410, &[("Cache-Control", "max-age=1000"), ("T", "2")], Source::Origin, None),
        (304, &[("Cache-Control", "max-age=1000"), ("T", "2")], Source::Store, Some("2")),
    ];
    for (status, response, expected, field) in rows {
        let mut scene = Scene::new();
        scene.get(
            &[],
            &Origin::Reply(
                200,
                &[("Cache-Control", "max-age=2"), ("Date", "@0"), ("T", "1"), ("ETag", "\"a\"")],
            ),
        );
        scene.wait(3);
        let seen = scene.request(Method::Head, &[], &Origin::Reply(*status, response));
        assert!(seen.sent.is_some(), "RFC 9111 4.3.5: the HEAD goes to the origin");
        assert_eq!(seen.body.len(), 0);
        let seen = scene.get(&[], &Origin::Reply(200, &[]));
        assert_eq!(seen.source, *expected, "RFC 9111 4.3.5: {status} {response:?}");
        if let Some(value) = field {
            assert_eq!((seen.field("t").as_deref(), seen.body.len()), (Some(*value), 11));
        }
    }
}

#[test]
fn a_head_without_anything_to_compare_updates_nothing() {
    let fields: Fields<'_> = &[("Cache-Control", "max-age=2"), ("Date", "@0")];
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, fields));
    scene.wait(3);
    scene.request(Method::Head, &[], &Origin::Reply(200, &[("Cache-Control", "max-age=1000")]));
    assert_eq!(scene.get(&[], &Origin::Reply(200, &[])).source, Source::Origin);
}

#[test]
fn a_response_that_was_never_fresh_is_not_for_clients_that_accept_stale_ones() {
    let fields: Fields<'_> = &[("Cache-Control", "max-age=0"), ("ETag", "\"a\"")];
    let mut scene = Scene::new();
    scene.get(&[("Cookie", "a=1")], &Origin::Reply(200, fields));
    let seen = scene.get(&[("Cache-Control", "max-stale")], &Origin::Reply(200, fields));
    assert_eq!(seen.source, Source::Origin);
}

#[test]
fn a_head_fills_nothing_and_a_fresh_get_answers_it() {
    let mut scene = Scene::with(Policy::default());
    let seen = scene.request(Method::Head, &[], &Origin::Reply(200, &[("Cache-Control", "max-age=60")]));
    assert_eq!(seen.stored, Some(Err(NotStored::Method)));
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=60")]));
    let seen = scene.request(Method::Head, &[], &Origin::Down);
    assert_eq!((seen.source, seen.body.len()), (Source::Store, 0));
}
