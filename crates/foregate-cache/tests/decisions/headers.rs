use super::scene::{Origin, Scene, Source};

#[test]
fn all_fields_are_stored_but_those_of_the_connection() {
    let stored = [
        ("Test-Header", "a"),
        ("X-Test-Header", "a"),
        ("Content-Foo", "a"),
        ("X-Content-Foo", "a"),
        ("Cache-Control", "max-age=3600"),
        ("Content-Encoding", "a"),
        ("Content-Length", "11"),
        ("Content-Location", "/bar"),
        ("Content-MD5", "N7UdGUp1E+RbVvZSTy1R8g=="),
        ("Content-Range", "a"),
        ("Content-Security-Policy", "default-src 'self'"),
        ("Content-Type", "text/plain;charset=utf-8"),
        ("Clear-Site-Data", "cookies"),
        ("ETag", "\"ghijkl\""),
        ("Expires", "Mon, 11 Jan 2038 11:11:11 GMT"),
        ("Public-Key-Pins", "a"),
        ("Set-Cookie2", "a=c"),
        ("X-Frame-Options", "sameorigin"),
        ("X-XSS-Protection", "1; mode=block"),
    ];
    let dropped = [
        ("Connection", "x-hop, X-Other"),
        ("X-Hop", "a"),
        ("x-other", "a"),
        ("Keep-Alive", "a"),
        ("Proxy-Authenticate", "a"),
        ("Proxy-Authentication-Info", "a"),
        ("Proxy-Authorization", "a"),
        ("Proxy-Connection", "a"),
        ("TE", "a"),
        ("Trailer", "a"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "a"),
    ];
    let fields = [&stored[..], &dropped[..]].concat();
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &fields));
    scene.wait(3);
    let seen = scene.get(&[], &Origin::Down);
    assert_eq!(seen.source, Source::Store);
    for (name, value) in stored {
        assert_eq!(seen.field(name).as_deref(), Some(value), "RFC 9111 3.1: {name}");
    }
    for (name, _) in dropped {
        assert_eq!(seen.field(name), None, "RFC 9111 3.1: {name}");
    }
    assert_eq!(seen.headers.len(), stored.len() + 2, "Date and Age: {:?}", seen.headers);
}

#[test]
fn the_length_of_the_body_is_stated_once() {
    for fields in [
        vec![("Cache-Control", "max-age=60")],
        vec![("Cache-Control", "max-age=60"), ("Content-Length", "11")],
    ] {
        let mut scene = Scene::new();
        scene.get(&[], &Origin::Reply(200, &fields));
        let seen = scene.get(&[], &Origin::Down);
        assert_eq!(seen.headers.get_all_name(b"content-length").collect::<Vec<_>>(), [b"11"]);
        let head = scene.request(foregate_wire::Method::Head, &[], &Origin::Down);
        assert_eq!((head.source, head.body.len()), (Source::Store, 0));
        assert_eq!(head.field("content-length").as_deref(), Some("11"));
    }
    let mut scene = Scene { body: Vec::new(), ..Scene::new() };
    scene.get(&[], &Origin::Reply(204, &[("Cache-Control", "max-age=60")]));
    assert_eq!(scene.get(&[], &Origin::Down).field("content-length"), None);
}
