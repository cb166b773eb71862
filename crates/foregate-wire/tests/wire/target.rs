//! Targets, paths, queries and hosts.

use foregate_wire::{
    Authority, HostError, HostKind, Method, Scheme, Slashes, Target, TargetError, TargetForm, normalize_path,
    normalize_query, other_readings, parse_authority, request_authority,
};

use super::request_of;

fn normal(raw: &str, slashes: Slashes) -> Result<String, TargetError> {
    let mut out = Vec::new();
    normalize_path(raw.as_bytes(), slashes, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn paths_have_one_form() {
    for (raw, merged, kept) in [
        ("/", "/", "/"),
        ("/a/b.html", "/a/b.html", "/a/b.html"),
        ("/a/", "/a/", "/a/"),
        ("//", "/", "//"),
        ("/a//b///c", "/a/b/c", "/a//b///c"),
        ("/./a", "/a", "/a"),
        ("/a/.", "/a/", "/a/"),
        ("/a/..", "/", "/"),
        ("/a/b/../c", "/a/c", "/a/c"),
        ("/../../a", "/a", "/a"),
        ("/..", "/", "/"),
        ("/a/b/../../../c", "/c", "/c"),
        ("/a//../b", "/b", "/a/b"),
        ("//../b", "/b", "/b"),
        ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
        ("/...", "/...", "/..."),
        ("/a/..b/.c.", "/a/..b/.c.", "/a/..b/.c."),
        ("/%61%7E%2d", "/a~-", "/a~-"),
        ("/%2e%2E/a/%2e/b/.%2e/c", "/a/c", "/a/c"),
        ("/a%2fb%2Fc", "/a%2Fb%2Fc", "/a%2Fb%2Fc"),
        ("/a%2f..%2fb", "/a%2F..%2Fb", "/a%2F..%2Fb"),
        ("/a\\b%5c..%5C", "/a%5Cb%5C..%5C", "/a%5Cb%5C..%5C"),
        ("/a\\..\\b", "/a%5C..%5Cb", "/a%5C..%5Cb"),
        ("/%252e%252e/a", "/%252e%252e/a", "/%252e%252e/a"),
        ("/a;p=1/..;/b", "/a;p=1/..;/b", "/a;p=1/..;/b"),
        ("/\u{e4}%c3%a4", "/%C3%A4%C3%A4", "/%C3%A4%C3%A4"),
        ("/\"<>[]{}|^`", "/%22%3C%3E%5B%5D%7B%7D%7C%5E%60", "/%22%3C%3E%5B%5D%7B%7D%7C%5E%60"),
        ("/!$&'()*+,;=:@", "/!$&'()*+,;=:@", "/!$&'()*+,;=:@"),
        ("/%21%20", "/%21%20", "/%21%20"),
    ] {
        assert_eq!(normal(raw, Slashes::Merge).as_deref(), Ok(merged), "{raw}");
        assert_eq!(normal(raw, Slashes::Keep).as_deref(), Ok(kept), "{raw}");
    }
    for (raw, error) in [
        ("", TargetError::BadForm),
        ("a", TargetError::BadForm),
        ("/%", TargetError::BadPercent),
        ("/%2", TargetError::BadPercent),
        ("/%2g", TargetError::BadPercent),
        ("/%+1", TargetError::BadPercent),
        ("/%00", TargetError::Nul),
        ("/a\0", TargetError::Nul),
    ] {
        assert_eq!(normal(raw, Slashes::Merge), Err(error), "{raw}");
    }
}

#[test]
fn queries_keep_their_spelling() {
    for (raw, expected) in [
        ("a=b&c=%2f%zz%", "a=b&c=%2f%zz%"),
        ("../..?//", "../..?//"),
        ("[]{}|\\^`'", "[]{}|\\^`'"),
        ("\"<>\u{e4} \0#", "%22%3C%3E%C3%A4%20%00%23"),
    ] {
        let mut out = Vec::new();
        normalize_query(raw.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn forms_of_targets() {
    let target = Target::parse(&Method::Get, b"/a?b?c").unwrap();
    assert_eq!((target.form, target.path), (TargetForm::Origin, &b"/a"[..]));
    assert_eq!(target.query, Some(&b"b?c"[..]));
    assert_eq!(Target::parse(&Method::Get, b"/?").unwrap().query, Some(&b""[..]));

    for (raw, scheme, authority, path, query) in [
        ("http://a", Scheme::Http, "a", "/", None),
        ("HTTPS://A:1/b?c", Scheme::Https, "A:1", "/b", Some("c")),
        ("http://a?b/c", Scheme::Http, "a", "/", Some("b/c")),
        ("http://[::1]:80/", Scheme::Http, "[::1]:80", "/", None),
    ] {
        let target = Target::parse(&Method::Get, raw.as_bytes()).unwrap();
        let form = TargetForm::Absolute { scheme, authority: authority.as_bytes() };
        assert_eq!((target.form, target.path), (form, path.as_bytes()), "{raw}");
        assert_eq!(target.query, query.map(str::as_bytes), "{raw}");
    }
    let all = Target::parse(&Method::Options, b"*").unwrap();
    assert_eq!((all.form, all.path), (TargetForm::Asterisk, &b"*"[..]));
    assert_eq!(Target::parse(&Method::Options, b"http://a").unwrap().path, b"*");
    assert_eq!(Target::parse(&Method::Options, b"http://a/").unwrap().path, b"/");
    let tunnel = Target::parse(&Method::Connect, b"a:443").unwrap();
    assert_eq!(tunnel.authority(), Some(&b"a:443"[..]));
    assert_eq!(tunnel.path, b"");
}

#[test]
fn targets_that_are_refused() {
    use TargetError as E;
    for (method, raw, error) in [
        (Method::Get, "", E::BadForm),
        (Method::Get, "a", E::BadForm),
        (Method::Get, "a:443", E::BadForm),
        (Method::Get, "*", E::Asterisk),
        (Method::Get, "*/", E::BadForm),
        (Method::Get, "?a", E::BadForm),
        (Method::Get, "/a#b", E::Fragment),
        (Method::Get, "/a?b#c", E::Fragment),
        (Method::Get, "http://a/#", E::Fragment),
        (Method::Get, "ftp://a/", E::BadForm),
        (Method::Get, "http:/a", E::BadForm),
        (Method::Get, "http:///a", E::Host(HostError::Empty)),
        (Method::Get, "http://u:p@a/", E::Host(HostError::UserInfo)),
        (Method::Get, "/a b", E::BadByte),
        (Method::Connect, "/", E::BadForm),
        (Method::Connect, "a", E::BadForm),
        (Method::Connect, "a:", E::BadForm),
        (Method::Connect, ":443", E::BadForm),
        (Method::Connect, "http://a:443", E::BadForm),
        (Method::Connect, "a:443/x", E::BadForm),
        (Method::Connect, "a:443?x", E::BadForm),
        (Method::Connect, "u@a:443", E::Host(HostError::UserInfo)),
        (Method::Connect, "*", E::BadForm),
    ] {
        assert_eq!(Target::parse(&method, raw.as_bytes()), Err(error), "{method} {raw}");
    }
    // A user in the path is nobody's.
    assert!(Target::parse(&Method::Get, b"http://a/u@b").is_ok());
    assert!(Target::parse(&Method::Get, b"http://a?u@b").is_ok());
}

#[test]
fn hosts_have_one_form() {
    for (raw, host, port) in [
        ("example.com", "example.com", None),
        ("EXAMPLE.Com.:8080", "example.com", Some(8080)),
        ("a:", "a", None),
        ("a:0", "a", Some(0)),
        ("a:65535", "a", Some(65535)),
        ("a:00080", "a", Some(80)),
        ("_dmarc.xn--bcher-kva.example", "_dmarc.xn--bcher-kva.example", None),
        ("127.0.0.1:1", "127.0.0.1", Some(1)),
        ("[::1]", "[::1]", None),
        ("[2001:DB8:0:0::1]:443", "[2001:db8::1]", Some(443)),
        ("[::FFFF:1.2.3.4]:", "[::ffff:1.2.3.4]", None),
        ("1.2.3", "1.2.3", None),
    ] {
        let mut out = "before".to_owned();
        let authority = parse_authority(raw.as_bytes(), &mut out).unwrap();
        assert_eq!((authority.host, authority.port), (host, port), "{raw}");
    }
    let mut out = String::new();
    let v4 = parse_authority(b"1.2.3.4", &mut out).unwrap();
    assert_eq!(v4, Authority { host: "1.2.3.4", port: None, kind: HostKind::Ipv4([1, 2, 3, 4].into()) });
}

#[test]
fn hosts_that_are_refused() {
    use HostError as E;
    let long = "a".repeat(256);
    for (raw, error) in [
        ("", E::Empty),
        (".", E::Empty),
        (":80", E::Empty),
        ("a..b", E::BadName),
        (".a", E::BadName),
        ("a..", E::BadName),
        ("a b", E::BadName),
        ("a/b", E::BadName),
        ("a\\b", E::BadName),
        ("%61", E::BadName),
        ("a,b", E::BadName),
        ("\u{e4}", E::BadName),
        ("a\0", E::BadName),
        ("u@a", E::UserInfo),
        ("a:80@b", E::UserInfo),
        ("a:80:80", E::BadPort),
        ("a:65536", E::BadPort),
        ("a:99999999999999999999", E::BadPort),
        ("a:-1", E::BadPort),
        ("a:+1", E::BadPort),
        ("a: 1", E::BadPort),
        ("[::1", E::BadIpv6),
        ("[]", E::BadIpv6),
        ("[1.2.3.4]", E::BadIpv6),
        ("[::1]a", E::BadIpv6),
        ("[fe80::1%25eth0]", E::BadIpv6),
        ("::1", E::BadPort),
        (&long, E::TooLong),
    ] {
        assert_eq!(parse_authority(raw.as_bytes(), &mut String::new()), Err(error), "{raw}");
    }
}

#[test]
fn the_authority_of_a_request() {
    let of = |lines: &[&str]| -> Result<Option<(String, Option<u16>)>, HostError> {
        let head = request_of(lines);
        let target = Target::parse(&head.method, head.target()).unwrap();
        let mut out = String::new();
        let authority = request_authority(&head, &target, &mut out)?;
        Ok(authority.map(|authority| (authority.host.to_owned(), authority.port)))
    };
    assert_eq!(of(&["GET / HTTP/1.1", "Host: A:1"]), Ok(Some(("a".into(), Some(1)))));
    assert_eq!(of(&["GET http://B/ HTTP/1.1", "Host: a:1"]), Ok(Some(("b".into(), None))));
    assert_eq!(of(&["GET http://b/ HTTP/1.0"]), Ok(Some(("b".into(), None))));
    assert_eq!(of(&["GET / HTTP/1.0"]), Ok(None));
    assert_eq!(of(&["GET / HTTP/1.1"]), Err(HostError::Missing));
    assert_eq!(of(&["GET http://b/ HTTP/1.1"]), Err(HostError::Missing));
    assert_eq!(of(&["GET / HTTP/1.1", "Host: a", "host: a"]), Err(HostError::Repeated));
    assert_eq!(of(&["GET / HTTP/1.0", "Host: a", "host: b"]), Err(HostError::Repeated));
    assert_eq!(of(&["GET / HTTP/1.1", "Host:"]), Err(HostError::Empty));
    assert_eq!(of(&["GET http://b/ HTTP/1.1", "Host:"]), Err(HostError::Empty));
    assert_eq!(of(&["GET http://b/ HTTP/1.1", "Host: a b"]), Err(HostError::BadName));
    assert_eq!(of(&["GET http://b/ HTTP/1.1", "Host: a, b"]), Err(HostError::BadName));
}

#[test]
fn paths_that_servers_read_otherwise() {
    let read = |path: &str| -> Vec<String> {
        let readings = other_readings(path.as_bytes(), Slashes::Merge, |_| true).unwrap();
        readings.into_iter().map(|reading| String::from_utf8(reading).unwrap()).collect()
    };
    for plain in ["/", "/a/b.html", "/a%20b", "/100%25", "/a%2500", "/a%25zz"] {
        assert_eq!(read(plain), [""; 0], "{plain}");
    }
    for (path, reading) in [
        ("/sub%2Fsecret", "/sub/secret"),
        ("/x%2F..%2Fsub/secret", "/sub/secret"),
        ("/x/..%2Fsub/secret", "/sub/secret"),
        ("/x%5C..%5Csub", "/sub"),
        ("/sub;a=1/secret", "/sub/secret"),
        ("/x/..;/sub", "/sub"),
        ("/x/..;a=1%2F..%2Fsub", "/sub"),
        ("/x/..%3B/sub", "/sub"),
        ("/sub%252Fsecret", "/sub/secret"),
        ("/s%2575b/secret", "/sub/secret"),
        ("/x/%252e%252e/sub/100%25", "/sub/100%25"),
        ("/x%2F..%2Fsub/foo%25zz", "/sub/foo%25zz"),
        ("/x%25252F..%25252Fsub", "/sub"),
        ("/a%5Cb/..%2Fsub", "/sub"),
        ("/a%2Fb%5C../sub", "/a/sub"),
        ("/;%2Fb//%2Fsub", "/sub"),
        ("/%2F.;.%2Fb/sub", "/b/sub"),
        ("/%40sub", "/@sub"),
        ("/sub%3Fx", "/sub"),
    ] {
        assert!(read(path).iter().any(|found| found == reading), "{path}: {:?}", read(path));
    }
}

#[test]
fn paths_with_too_many_readings() {
    let layered = format!("/{}", "a;%2F%5C%253B..%252F".repeat(40));
    assert!(
        other_readings(layered.as_bytes(), Slashes::Merge, |_| true)
            .is_none_or(|readings| readings.len() < 128)
    );
    let nested = format!("/a%{}2Fb", "25".repeat(1000));
    assert!(
        other_readings(nested.as_bytes(), Slashes::Merge, |_| true)
            .is_some_and(|readings| readings.len() < 8)
    );
    let kept = other_readings(b"/a//b", Slashes::Keep, |_| true).unwrap();
    assert_eq!(kept, [b"/a/b"]);
}

/// How often a path was read, and whether all of its readings are known.
fn looks(path: &str) -> (usize, bool) {
    let mut normal = Vec::new();
    normalize_path(path.as_bytes(), Slashes::Merge, &mut normal).unwrap();
    let mut looks = 0;
    let readings = other_readings(&normal, Slashes::Merge, |_| {
        looks += 1;
        true
    });
    (looks, readings.is_some())
}

#[test]
fn a_long_path_is_read_a_few_times() {
    for layers in ["/a%5c..;%2e%252e%2f", "/%2541%252f%255c%253b", "/%252541%25252f%25255c%25253b"] {
        let (looks, is_read) = looks(&layers.repeat(3800 / layers.len()));
        assert!(looks <= 32 && !is_read, "{layers}: {looks}");
    }
    let url = "/to/https%3A%2F%2Fexample.com%2Fa%3Fb%3D".to_owned();
    for (path, least) in [
        ("/abcdefgh".repeat(430), 0),
        ("/ab%20cd%C3%A9gh".repeat(250), 0),
        ("/ab%40cd".repeat(480), 1),
        ("/abcdefgh".repeat(430) + ";v=1%2Fb", 3),
        (url.clone() + &"abc%26".repeat(600), 3),
        (url + &"abc%26".repeat(2400), 3),
    ] {
        let (looks, is_read) = looks(&path);
        assert!(looks >= least && is_read, "{path}: {looks}");
    }
}

#[test]
fn nothing_is_read_behind_what_is_not_admitted() {
    let mut looks = 0;
    let readings = other_readings(b"/a%2Fb;c%5Cd", Slashes::Merge, |_| {
        looks += 1;
        false
    });
    assert_eq!((looks, readings), (1, None));
}
