//! Hop-by-hop fields, persistence, upgrades, expectations.

use foregate_wire::connection::{
    accepts_trailers, drop_misspelt_names_before, drop_named_content_fields, drop_underscore_names,
    drop_underscore_names_before, expects_continue, has_connection_option, keep_alive, strip_hop_by_hop,
    upgrade,
};
use foregate_wire::{Expectation, HeaderList, Version};

use super::lines;

fn list(fields: &[&str]) -> HeaderList {
    let mut list = HeaderList::new();
    for field in fields {
        let (name, value) = field.split_once(':').unwrap();
        list.try_push(name.as_bytes(), value.as_bytes()).unwrap();
    }
    list
}

fn stripped(fields: &[&str]) -> Vec<String> {
    let mut headers = list(fields);
    let removed = strip_hop_by_hop(&mut headers, true);
    assert_eq!(headers.len() + removed, fields.len() + headers.count(foregate_wire::NameId::Te));
    lines(&headers)
}

#[test]
fn hop_by_hop_fields_go() {
    assert_eq!(stripped(&["A: 1", "Host: b"]), ["A: 1", "Host: b"]);
    assert_eq!(stripped(&["Connection: keep-alive", "Keep-Alive: timeout=5", "A: 1"]), ["A: 1"]);
    assert_eq!(
        stripped(&[
            "Upgrade: h2c",
            "HTTP2-Settings: x",
            "Proxy-Connection: close",
            "TE: gzip",
            "A: 1",
            "Proxy-Authenticate: Basic",
            "Trailer: A",
        ]),
        ["A: 1", "Proxy-Authenticate: Basic", "Trailer: A"]
    );
}

#[test]
fn what_connection_takes_away_says_nothing_of_the_body_before() {
    for (fields, left) in [
        (
            &["Content-Type: a", "Connection: close, content-type", "B: 1"][..],
            &["Connection: close, content-type", "B: 1"][..],
        ),
        (
            &["Content-Encoding: a", "Connection: b,CONTENT-ENCODING", "B: 1"],
            &["Connection: b,CONTENT-ENCODING", "B: 1"],
        ),
        (&["Content-Type: a", "Connection: b", "B: 1"], &["Content-Type: a", "Connection: b", "B: 1"]),
        (&["Content-Type: a"], &["Content-Type: a"]),
    ] {
        let mut headers = list(fields);
        drop_named_content_fields(&mut headers);
        assert_eq!(lines(&headers), left);
    }
}

#[test]
fn fields_that_connection_names_go() {
    assert_eq!(
        stripped(&["X-A: 1", "Connection: x-a, ,X-B,cookie", "Cookie: c", "x-b: 2", "x-c: 3"]),
        ["x-c: 3"]
    );
    assert_eq!(stripped(&["connection: close", "CONNECTION: X-A", "x-a: 1"]), [""; 0]);
    // Without these the origin would take the message for another one.
    assert_eq!(
        stripped(&["Host: a", "Content-Length: 5", "Connection: host, content-length, Transfer-Encoding"]),
        ["Host: a", "Content-Length: 5"]
    );
    let names: Vec<String> = (0..100).map(|n| format!("x{n}")).collect();
    let many = format!("Connection: {}", names.join(","));
    assert_eq!(stripped(&[&many, "x99: 1", "x1: 1", "Host: a"]), ["Host: a"]);
}

#[test]
fn te_trailers_stay() {
    assert_eq!(stripped(&["TE: gzip, Trailers;q=1", "Connection: TE"]), ["TE: trailers"]);
    let mut headers = list(&["TE: trailers"]);
    assert!(accepts_trailers(&headers));
    assert_eq!(strip_hop_by_hop(&mut headers, false), 1);
    assert!(headers.is_empty());
    assert!(!accepts_trailers(&list(&["TE: trailersx"])));
}

#[test]
fn persistence() {
    for (version, fields, alive) in [
        (Version::Http11, &[][..], true),
        (Version::Http11, &["Connection: close"], false),
        (Version::Http11, &["Connection: x, Close "], false),
        (Version::Http11, &["Connection: x", "Connection: close"], false),
        (Version::Http11, &["Connection: closed"], true),
        (Version::Http10, &[], false),
        (Version::Http10, &["Connection: Keep-Alive"], true),
        (Version::Http10, &["Connection: keep-alive, close"], false),
    ] {
        assert_eq!(keep_alive(version, &list(fields)), alive, "{version} {fields:?}");
    }
    assert!(has_connection_option(&list(&["Connection: a, b"]), b"B"));
}

#[test]
fn upgrades() {
    for (fields, offered) in [
        (&["Connection: upgrade", "Upgrade: websocket"][..], Some("websocket")),
        (&["Connection: keep-alive, Upgrade", "Upgrade: a/1, b"], Some("a/1, b")),
        (&["Upgrade: websocket"], None),
        (&["Connection: upgrade"], None),
        (&["Connection: upgrade", "Upgrade:"], None),
        (&["Connection: upgrade", "Upgrade: , "], None),
        (&["Connection: upgrade", "Upgrade: h2c"], None),
        (&["Connection: upgrade", "Upgrade: websocket, H2C"], None),
        (&["Connection: upgrade", "Upgrade: HTTP/2.0, websocket"], None),
        (&["Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c"], None),
    ] {
        assert_eq!(upgrade(&list(fields)), offered.map(str::as_bytes), "{fields:?}");
    }
}

#[test]
fn expectations() {
    for (fields, expected) in [
        (&[][..], Expectation::None),
        (&["Expect: 100-Continue"], Expectation::Continue),
        (&["Expect: 100-continue", "expect: 100-continue"], Expectation::Continue),
        (&["Expect: "], Expectation::Unknown),
        (&["Expect: 200-ok"], Expectation::Unknown),
        (&["Expect: 100-continue, x"], Expectation::Unknown),
        (&["Expect: 100-continue", "Expect: x"], Expectation::Unknown),
    ] {
        assert_eq!(expects_continue(&list(fields)), expected, "{fields:?}");
    }
}

#[test]
fn names_with_an_underscore_go() {
    let mut headers = list(&["X_Real_IP: 1", "Host: a", "_: 2", "a-b: c_d"]);
    assert_eq!(drop_underscore_names(&mut headers), 2);
    assert_eq!(drop_underscore_names(&mut headers), 0);
    assert_eq!(lines(&headers), ["Host: a", "a-b: c_d"]);
}

#[test]
fn fields_that_were_added_later_keep_their_underscores() {
    let mut headers = HeaderList::new();
    headers.push(b"x_a", b"1");
    headers.push(b"x-b", b"2");
    let mark = headers.arena_len();
    headers.push(b"x_a", b"3");
    headers.set_name(b"x-b", b"a longer value");
    assert_eq!(drop_underscore_names_before(&mut headers, mark), 1);
    let left: Vec<_> = headers.iter().map(|field| field.value).collect();
    assert_eq!(left, [&b"a longer value"[..], b"3"]);
}

#[test]
fn known_names_with_an_underscore_go_where_others_stay() {
    let mut headers = HeaderList::new();
    for name in ["X_Forwarded_For", "content_length", "x-forwarded_proto", "my_field", "host", "a-b"] {
        headers.push(name.as_bytes(), b"1");
    }
    let mark = headers.arena_len();
    assert_eq!(drop_misspelt_names_before(&mut headers, mark), 3);
    let names: Vec<_> = headers.iter().map(|field| field.name).collect();
    assert_eq!(names, [&b"my_field"[..], b"host", b"a-b"]);
}
