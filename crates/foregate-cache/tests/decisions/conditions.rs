use super::scene::{Fields, Origin, START, Scene, Source};
use foregate_cache::{Conditions, Representation, evaluate};

/// A fresh response with these fields, then a request with those: the status of the answer.
fn status(stored: Fields<'_>, request: Fields<'_>) -> u16 {
    let mut scene = Scene::new();
    let fields = [&[("Cache-Control", "max-age=100000"), ("Date", "@0")], stored].concat();
    scene.get(&[], &Origin::Reply(200, &fields));
    scene.wait(3);
    let seen = scene.get(request, &Origin::Down);
    assert_eq!(seen.source, Source::Store);
    seen.status
}

#[test]
fn entity_tags_are_compared() {
    let rows = [
        ("RFC 9110 13.1.2", "\"abcdef\"", "\"abcdef\"", 304),
        ("RFC 9110 13.1.2", "\"abcdef\"", "\"abcde\"", 200),
        ("RFC 9110 13.1.2", "\"abcdef\u{fc}\"", "\"abcdef\u{fc}\"", 304),
        ("RFC 9110 8.8.3.2, weak", "W/\"abcdef\"", "W/\"abcdef\"", 304),
        ("RFC 9110 8.8.3.2, weak", "\"abcdef\"", "W/\"abcdef\"", 304),
        ("RFC 9110 8.8.3.2, weak", "W/\"abcdef\"", "\"abcdef\"", 304),
        ("RFC 9110 13.1.2", "\"abcdef\"", "*", 304),
        ("RFC 9110 13.1.2, first", "\"abcdef\"", "\"abcdef\", \"1234\", \"5678\"", 304),
        ("RFC 9110 13.1.2, middle", "\"abcdef\"", "\"1234\", \"abcdef\", \"5678\"", 304),
        ("RFC 9110 13.1.2, last", "\"abcdef\"", "\"1234\", \"5678\", \"abcdef\"", 304),
        ("RFC 9110 8.8.3, a comma within", "\"a,b\"", "\"x\", \"a,b\"", 304),
        ("RFC 9110 8.8.3, a comma within", "\"b\"", "\"a,\"b\"\"", 200),
        ("as it came, without quotes", "abcdef", "abcdef", 304),
        ("as it came, another weakness flag", "w/\"abcdef\"", "w/\"abcdef\"", 304),
        ("as it came, another weakness flag", "W\\\"abcdef\"", "W\\\"abcdef\"", 304),
        ("quotes count", "\"abcdef\"", "abcdef", 200),
    ];
    for (section, etag, condition, expected) in rows {
        assert_eq!(
            status(&[("ETag", etag)], &[("If-None-Match", condition)]),
            expected,
            "{section}: {etag} {condition}"
        );
    }
    assert_eq!(status(&[], &[("If-None-Match", "\"a\"")]), 200);
    assert_eq!(status(&[], &[("If-None-Match", "*")]), 304);
    assert_eq!(status(&[("ETag", "\"a\"")], &[("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")]), 304);
}

#[test]
fn dates_are_compared() {
    let modified: Fields<'_> = &[("Last-Modified", "@-3000")];
    let rows: &[(&str, Fields<'_>, &str, u16)] = &[
        ("RFC 9110 13.1.3, equal", modified, "@-3003", 304),
        ("RFC 9110 13.1.3, later", modified, "@-2000", 304),
        ("RFC 9110 13.1.3, earlier", modified, "@-4000", 200),
        ("RFC 9110 13.1.3, no date", modified, "yesterday", 200),
        ("RFC 9110 5.6.7, another form", modified, "Saturday, 28-Nov-26 12:00:00 GMT", 304),
        ("RFC 9111 4.3.2, by Date", &[], "@0", 304),
        ("RFC 9111 4.3.2, by Date", &[], "@-3000", 200),
    ];
    for (section, stored, condition, expected) in rows {
        assert_eq!(status(stored, &[("If-Modified-Since", condition)]), *expected, "{section}");
    }
    let two: Fields<'_> = &[("If-Modified-Since", "@0"), ("If-Modified-Since", "@0")];
    assert_eq!(status(modified, two), 200);
}

#[test]
fn conditions_have_an_order() {
    let stored: Fields<'_> = &[("ETag", "\"a\""), ("Last-Modified", "@-5000")];
    let rows: &[(&str, Fields<'_>, u16)] = &[
        ("If-None-Match wins", &[("If-None-Match", "\"a\""), ("If-Modified-Since", "@-10000")], 304),
        ("If-None-Match wins", &[("If-None-Match", "\"b\""), ("If-Modified-Since", "@0")], 200),
        ("If-Match", &[("If-Match", "\"a\"")], 200),
        ("If-Match", &[("If-Match", "\"b\", \"a\"")], 200),
        ("If-Match", &[("If-Match", "*")], 200),
        ("If-Match", &[("If-Match", "\"b\"")], 412),
        ("If-Match is strong", &[("If-Match", "W/\"a\"")], 412),
        ("If-Match comes first", &[("If-Match", "\"b\""), ("If-None-Match", "\"a\"")], 412),
        ("If-Match met, If-None-Match too", &[("If-Match", "\"a\""), ("If-None-Match", "\"a\"")], 304),
        ("If-Match wins", &[("If-Match", "\"a\""), ("If-Unmodified-Since", "@-9000")], 200),
        ("If-Unmodified-Since", &[("If-Unmodified-Since", "@-9000")], 412),
        ("If-Unmodified-Since", &[("If-Unmodified-Since", "@0")], 200),
        ("If-Unmodified-Since, no date", &[("If-Unmodified-Since", "x")], 200),
    ];
    for (name, request, expected) in rows {
        assert_eq!(status(stored, request), *expected, "RFC 9110 13.2.2: {name}");
    }
    assert_eq!(status(&[("ETag", "W/\"a\"")], &[("If-Match", "W/\"a\"")]), 412, "RFC 9110 13.1.1");
    assert_eq!(status(&[], &[("If-Unmodified-Since", "@-9000")]), 200, "RFC 9110 13.1.4: no Last-Modified");
    let file = Representation { etag: None, last_modified: None, date: START };
    let mut request = foregate_wire::HeaderList::new();
    request.push(b"If-Match", b"\"a\"");
    assert_eq!(evaluate(&request, &file, START), Conditions::Failed, "RFC 9110 13.1.1: no ETag");
}

#[test]
fn a_304_has_its_fields_and_none_of_the_content() {
    let mut scene = Scene::new();
    let fields = [
        ("Cache-Control", "max-age=60"),
        ("ETag", "\"a\""),
        ("Content-Type", "text/css"),
        ("Content-Length", "11"),
        ("Content-Encoding", "gzip"),
        ("Content-Location", "/x"),
        ("Vary", "Foo"),
        ("Access-Control-Allow-Origin", "*"),
    ];
    scene.get(&[], &Origin::Reply(200, &fields));
    scene.wait(3);
    let seen = scene.get(&[("If-None-Match", "\"a\"")], &Origin::Down);
    assert_eq!((seen.status, seen.body.len()), (304, 0));
    for name in
        ["cache-control", "etag", "content-location", "vary", "date", "age", "access-control-allow-origin"]
    {
        assert!(seen.field(name).is_some(), "RFC 9110 15.4.5: {name}");
    }
    for name in ["content-type", "content-length", "content-encoding"] {
        assert!(seen.field(name).is_none(), "RFC 9110 15.4.5: {name}");
    }
}

#[test]
fn conditions_apply_to_successes_alone() {
    for (status, expected) in [(404, 404), (301, 301), (204, 304)] {
        let mut scene = Scene::new();
        scene.get(&[], &Origin::Reply(status, &[("Cache-Control", "max-age=60"), ("ETag", "\"a\"")]));
        let seen = scene.get(&[("If-None-Match", "\"a\"")], &Origin::Down);
        assert_eq!(seen.status, expected, "RFC 9110 13.2.1: {status}");
    }
}

#[test]
fn a_stale_response_is_validated_before_the_client_gets_its_304() {
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=2"), ("Last-Modified", "@-3000")]));
    scene.wait(3);
    let origin = Origin::Reply(304, &[("Cache-Control", "max-age=2"), ("Date", "@0")]);
    let seen = scene.get(&[("If-Modified-Since", "@-1000")], &origin);
    assert_eq!((seen.source, seen.status), (Source::Validated, 304), "RFC 9111 4.3.2");
    assert_eq!(
        seen.sent("if-modified-since").as_deref(),
        Some("Sat, 28 Nov 2026 11:10:00 GMT"),
        "RFC 9111 4.3.1"
    );
}
