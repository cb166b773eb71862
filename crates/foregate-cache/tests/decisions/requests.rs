use super::scene::{Fields, Origin, START, Scene, Source};
use foregate_cache::{Bypass, Lookup, Policy, Request, lookup};
use foregate_wire::{HeaderList, Method};

const FRESH: Fields<'static> = &[("Cache-Control", "max-age=3600"), ("Date", "@0"), ("ETag", "\"a\"")];

fn second(honoured: bool, fields: Fields<'_>, wait: u64, response: Fields<'_>) -> Source {
    let mut scene = Scene::with(Policy { client_directives: honoured, ..Policy::default() });
    scene.get(&[], &Origin::Reply(200, response));
    scene.wait(wait);
    scene.get(fields, &Origin::Reply(200, &[])).source
}

#[test]
fn directives_of_clients_count_on_demand() {
    let rows: &[(&str, Fields<'_>, u64, Fields<'_>)] = &[
        ("RFC 9111 5.2.1.1", &[("Cache-Control", "max-age=0")], 3, FRESH),
        ("RFC 9111 5.2.1.1", &[("Cache-Control", "max-age=1")], 3, FRESH),
        (
            "RFC 9111 5.2.1.1",
            &[("Cache-Control", "max-age=600")],
            3,
            &[("Cache-Control", "max-age=3600"), ("Age", "1800")],
        ),
        ("RFC 9111 5.2.1.3", &[("Cache-Control", "min-fresh=4000")], 3, FRESH),
        (
            "RFC 9111 5.2.1.3",
            &[("Cache-Control", "min-fresh=1000")],
            3,
            &[("Cache-Control", "max-age=1500"), ("Age", "1000")],
        ),
        ("RFC 9111 5.2.1.4", &[("Cache-Control", "no-cache")], 3, FRESH),
        ("RFC 9111 5.2.1.5", &[("Cache-Control", "No-Store")], 3, FRESH),
        ("RFC 9111 5.4", &[("Pragma", "no-cache")], 3, FRESH),
    ];
    for (section, fields, wait, response) in rows {
        assert_eq!(second(true, fields, *wait, response), Source::Origin, "{section} {fields:?}");
        assert_eq!(second(false, fields, *wait, response), Source::Store, "{section} {fields:?}");
    }
    let harmless: &[(&str, Fields<'_>)] = &[
        ("RFC 9111 5.2.1.1", &[("Cache-Control", "max-age=100")]),
        ("RFC 9111 5.2.1.1", &[("Cache-Control", "max-age=x")]),
        ("RFC 9111 5.2.1.3", &[("Cache-Control", "min-fresh=100")]),
        ("RFC 9111 5.4", &[("Pragma", "foo")]),
        ("RFC 9111 5.4", &[("Pragma", "no-cache"), ("Cache-Control", "foo")]),
    ];
    for (section, fields) in harmless {
        assert_eq!(second(true, fields, 3, FRESH), Source::Store, "{section} {fields:?}");
    }
}

#[test]
fn a_reload_key_reaches_the_origin_once_a_second() {
    let mut scene = Scene::with(Policy { client_directives: true, ..Policy::default() });
    scene.get(&[], &Origin::Reply(200, FRESH));
    let reload: Fields<'_> = &[("Cache-Control", "no-cache")];
    let mut sources = Vec::new();
    for _ in 0..4 {
        sources.push(scene.get(reload, &Origin::Reply(304, FRESH)).source);
        scene.time += 500;
    }
    assert_eq!(sources, [Source::Validated, Source::Store, Source::Validated, Source::Store]);
    // A response of another length of life does not count as one that a client demanded.
    scene.time += 5000;
    assert_eq!(scene.get(&[], &Origin::Down).source, Source::Store);
    assert_eq!(scene.get(reload, &Origin::Reply(200, FRESH)).source, Source::Origin);
    assert_eq!(scene.get(reload, &Origin::Down).source, Source::Store);
}

#[test]
fn clients_may_accept_stale_responses_unless_the_origin_forbids() {
    let rows: &[(&str, &str, &str, bool)] = &[
        ("RFC 9111 5.2.1.2", "max-age=2", "max-stale", true),
        ("RFC 9111 5.2.1.2", "max-age=2", "max-stale=1000", true),
        ("RFC 9111 5.2.1.2", "max-age=1", "max-stale=1", false),
        ("RFC 9111 5.2.2.2", "max-age=2, must-revalidate", "max-stale", false),
        ("RFC 9111 5.2.2.8", "max-age=2, proxy-revalidate", "max-stale", false),
        ("RFC 9111 5.2.2.10", "s-maxage=2", "max-stale", false),
        ("RFC 9111 5.2.2.4", "max-age=2, no-cache", "max-stale", false),
    ];
    for (section, response, request, stale) in rows {
        let response = [("Cache-Control", *response), ("ETag", "\"a\"")];
        let source = second(false, &[("Cache-Control", request)], 3, &response);
        assert_eq!(source, if *stale { Source::Stale } else { Source::Origin }, "{section}: {response:?}");
    }
    let aged = [("Cache-Control", "max-age=1500"), ("Age", "2000")];
    assert_eq!(second(false, &[("Cache-Control", "max-stale=1000")], 0, &aged), Source::Stale);
}

#[test]
fn only_if_cached_never_reaches_the_origin() {
    let only: Fields<'_> = &[("Cache-Control", "only-if-cached")];
    let mut scene = Scene::new();
    let seen = scene.get(only, &Origin::Reply(200, FRESH));
    assert_eq!((seen.source, seen.status), (Source::Nothing, 504), "RFC 9111 5.2.1.7");
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=2"), ("ETag", "\"a\"")]));
    assert_eq!(scene.get(only, &Origin::Down).source, Source::Store, "RFC 9111 5.2.1.7");
    scene.wait(3);
    assert_eq!(scene.get(only, &Origin::Down).status, 504, "RFC 9111 5.2.1.7");
    let only: Fields<'_> = &[("Cache-Control", "only-if-cached, max-stale")];
    assert_eq!(scene.get(only, &Origin::Down).source, Source::Stale, "RFC 9111 5.2.1.7");
}

#[test]
fn other_methods_and_bodies_pass_the_cache() {
    let headers = HeaderList::new();
    let ask = |method: &Method, has_body| {
        lookup(
            &Request { method, headers: &headers, path: b"/", has_query: false, has_body },
            &Policy::default(),
        )
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "M-SEARCH", "get"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert_eq!(ask(&method, false), Lookup::Bypass(Bypass::Method), "{method}");
    }
    assert_eq!(ask(&Method::Get, true), Lookup::Bypass(Bypass::Body));
    assert!(matches!(ask(&Method::Get, false), Lookup::Cache(demands) if !demands.is_head()));
    assert!(matches!(ask(&Method::Head, false), Lookup::Cache(demands) if demands.is_head()));
}

#[test]
fn a_miss_asks_for_the_whole_response() {
    let mut scene = Scene::new();
    let fields = [
        ("If-None-Match", "\"a\""),
        ("If-Modified-Since", "@0"),
        ("If-Match", "*"),
        ("If-Unmodified-Since", "@0"),
        ("Range", "bytes=0-1"),
        ("If-Range", "\"a\""),
        ("Foo", "1"),
    ];
    let seen = scene.get(&fields, &Origin::Reply(200, FRESH));
    assert_eq!(seen.sent.map(|sent| sent.len()), Some(1));
    assert_eq!(START, scene.now().wall);
}
