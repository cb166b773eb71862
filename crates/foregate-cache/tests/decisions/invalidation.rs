use foregate_cache::{Uri, invalidates, related};
use foregate_wire::{HeaderList, Method, Scheme, Slashes};

#[test]
fn unsafe_and_unknown_methods_invalidate_unless_they_fail() {
    for (method, unsafe_) in [
        ("GET", false),
        ("HEAD", false),
        ("OPTIONS", false),
        ("TRACE", false),
        ("CONNECT", false),
        ("POST", true),
        ("PUT", true),
        ("DELETE", true),
        ("PATCH", true),
        ("M-SEARCH", true),
        ("get", true),
    ] {
        let known = Method::from_bytes(method.as_bytes()).unwrap();
        for (status, success) in [
            (200, true),
            (201, true),
            (204, true),
            (303, true),
            (399, true),
            (400, false),
            (404, false),
            (500, false),
        ] {
            assert_eq!(invalidates(&known, status), unsafe_ && success, "RFC 9111 4.4: {method} {status}");
        }
    }
}

fn found(scheme: Scheme, port: Option<u16>, reference: &str) -> Option<String> {
    let uri = Uri { scheme, host: "example.com", port, path: b"/a/b/c", query: Some(b"q=1") };
    let mut headers = HeaderList::new();
    headers.push(b"Location", reference.as_bytes());
    let mut found = related(&headers, &uri, Slashes::Merge);
    assert!(found.len() <= 1);
    found.pop().map(|related| {
        let query = related.query.map(|query| format!("?{}", String::from_utf8(query).unwrap()));
        format!("{}{}", String::from_utf8(related.path).unwrap(), query.unwrap_or_default())
    })
}

#[test]
fn references_of_the_same_origin_are_resolved() {
    let rows = [
        ("RFC 3986 5.4", "/x", Some("/x")),
        ("RFC 3986 5.4", "x", Some("/a/b/x")),
        ("RFC 3986 5.4", "./x?y#z", Some("/a/b/x?y")),
        ("RFC 3986 5.4", "../x/", Some("/a/x/")),
        ("RFC 3986 5.4", "../../../../x", Some("/x")),
        ("RFC 3986 5.4", "?y=2", Some("/a/b/c?y=2")),
        ("RFC 3986 5.4", "", Some("/a/b/c?q=1")),
        ("RFC 3986 5.4", "#frag", Some("/a/b/c?q=1")),
        ("RFC 3986 6.2.2", "/%7Ex//y", Some("/~x/y")),
        ("RFC 9111 4.4", "http://example.com/x?y", Some("/x?y")),
        ("RFC 9111 4.4", "HTTP://EXAMPLE.com:80", Some("/")),
        ("RFC 9111 4.4", "http://example.com?y", Some("/?y")),
        ("RFC 9111 4.4", "//example.com/x", Some("/x")),
        ("RFC 9111 4.4", "//example.com./x", Some("/x")),
        ("RFC 9111 4.4, another host", "http://example.org/x", None),
        ("RFC 9111 4.4, another host", "//evil.example.com/x", None),
        ("RFC 9111 4.4, another port", "http://example.com:8080/x", None),
        ("RFC 9111 4.4, another scheme", "https://example.com/x", None),
        ("RFC 9111 4.4, user information", "http://a@example.com/x", None),
        ("RFC 3986 3", "mailto:a@b", None),
        ("RFC 3986 3", "http:x", None),
        ("RFC 3986 2.1", "/%zz", None),
    ];
    for (section, reference, expected) in rows {
        assert_eq!(found(Scheme::Http, None, reference).as_deref(), expected, "{section}: {reference}");
    }
    assert_eq!(found(Scheme::Https, Some(8443), "https://example.com:8443/x").as_deref(), Some("/x"));
    assert_eq!(found(Scheme::Https, Some(8443), "https://example.com/x"), None);
    assert_eq!(found(Scheme::Https, Some(443), "https://example.com/x").as_deref(), Some("/x"));
}

#[test]
fn both_fields_count() {
    let uri = Uri { scheme: Scheme::Http, host: "a", port: None, path: b"/", query: None };
    let mut headers = HeaderList::new();
    headers.push(b"Location", b"/x");
    headers.push(b"Content-Location", b"/y");
    let paths: Vec<_> =
        related(&headers, &uri, Slashes::Merge).into_iter().map(|related| related.path).collect();
    assert_eq!(paths, [b"/x", b"/y"], "RFC 9111 4.4");
}
