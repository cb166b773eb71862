use super::scene::{Origin, Scene, Source, again};

const STATUSES: [u16; 20] =
    [200, 203, 204, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 410, 499, 500, 502, 503, 504, 599];

#[test]
fn any_final_status_is_stored_with_a_lifetime() {
    for status in STATUSES {
        let fresh = again(status, &[("Cache-Control", "max-age=100000"), ("Date", "@0")]);
        assert_eq!(fresh, Source::Store, "RFC 9111 3: {status}");
        let stale = again(status, &[("Expires", "@-5000"), ("Last-Modified", "@-100000"), ("Date", "@0")]);
        assert_eq!(stale, Source::Origin, "RFC 9111 4.2: {status}");
    }
}

#[test]
fn must_understand_replaces_no_store_for_known_statuses() {
    let fields = [("Cache-Control", "max-age=3600, no-store, must-understand")];
    assert_eq!(again(200, &fields), Source::Store, "RFC 9111 5.2.2.3");
    assert_eq!(again(599, &fields), Source::Origin, "RFC 9111 5.2.2.3");
    assert_eq!(
        again(599, &[("Cache-Control", "max-age=3600, must-understand")]),
        Source::Origin,
        "RFC 9111 5.2.2.3"
    );
    assert_eq!(again(404, &fields), Source::Store, "RFC 9111 5.2.2.3");
}

#[test]
fn a_newer_response_that_is_not_stored_leaves_the_older_one() {
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=10000"), ("A", "1")]));
    scene.wait(3);
    let seen = scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "no-store"), ("A", "2")]));
    assert_eq!(seen.field("a").as_deref(), Some("1"));
}
