//! No head makes a decision panic, or take more than linear time.

use std::time::{Duration, Instant};

use super::scene::{Origin, START, Scene};
use foregate_cache::{CacheStatus, Forward, Policy, SetCookie, parse_date};
use foregate_wire::Method;
use proptest::prelude::*;

const NAMES: [&str; 26] = [
    "Cache-Control",
    "CDN-Cache-Control",
    "Expires",
    "Date",
    "Age",
    "Vary",
    "ETag",
    "Last-Modified",
    "Set-Cookie",
    "Connection",
    "Content-Type",
    "Content-Length",
    "Pragma",
    "Range",
    "If-Range",
    "If-None-Match",
    "If-Modified-Since",
    "If-Match",
    "If-Unmodified-Since",
    "Cache-Tag",
    "Surrogate-Key",
    "Location",
    "Accept-Encoding",
    "Accept-Language",
    "Foo",
    "Authorization",
];

/// Pieces of which hostile values are made.
const PIECES: [&str; 44] = [
    "max-age",
    "s-maxage",
    "no-cache",
    "no-store",
    "private",
    "public",
    "must-revalidate",
    "stale-if-error",
    "stale-while-revalidate",
    "=",
    "=\"",
    "\"",
    "\\",
    ",",
    ", ",
    ";",
    " ",
    "\t",
    "0",
    "1",
    "60",
    "-1",
    "99999999999999999999",
    "1.5",
    "*",
    "foo",
    "a",
    "W/",
    "(",
    ")",
    "?1",
    ":",
    "bytes=",
    "-",
    "0-1",
    "Thu, ",
    "18 Aug 2050 ",
    "02:01:18 GMT",
    "Thursday, 18-Aug-50 ",
    "q=0.5",
    "gzip",
    "http://",
    "//",
    "\u{fc}",
];

fn value() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat())
}

fn fields() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec((prop::sample::select(&NAMES[..]), value()), 0..10)
}

fn borrowed<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, &**value)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_head_makes_a_decision_panic(
        first in fields(), response in fields(), second in fields(), update in fields(),
        status in prop::sample::select(&[200_u16, 204, 206, 301, 304, 404, 503, 999][..]),
        wait in 0_u64..100, lenient: bool, head: bool,
    ) {
        let policy = Policy {
            client_directives: lenient,
            set_cookie: if lenient { SetCookie::Store } else { SetCookie::Refuse },
            ..Policy::default()
        };
        let mut scene = Scene::with(policy);
        scene.get(&borrowed(&first), &Origin::Reply(status, &borrowed(&response)));
        scene.wait(wait);
        let update = borrowed(&update);
        let method = if head { Method::Head } else { Method::Get };
        let origins = [Origin::Reply(304, &update), Origin::Reply(200, &update), Origin::Down];
        for origin in &origins {
            let seen = scene.request(method, &borrowed(&second), origin);
            prop_assert!(seen.status >= 200);
            scene.wait(wait);
        }
        for (stored, _) in &scene.objects {
            prop_assert!(stored.headers.get_name(b"age").is_none());
            prop_assert!(stored.headers.get_name(b"connection").is_none());
        }
    }

    #[test]
    fn dates_of_any_bytes_are_read_or_refused(bytes: Vec<u8>, now: u64) {
        parse_date(&bytes, now);
    }

    #[test]
    fn status_members_are_one_line(cache: String, key: Vec<u8>, detail: String, ttl: i64) {
        let forward = (ttl % 2 == 0).then_some(Forward::Stale);
        let status = CacheStatus { forward, ttl: Some(ttl), key: Some(&key), detail: Some(&detail), ..CacheStatus::default() };
        let rendered = status.render(&cache);
        prop_assert!(rendered.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
}

#[test]
fn cache_status_is_rendered() {
    let hit = CacheStatus { ttl: Some(376), ..CacheStatus::default() };
    assert_eq!(hit.render("Foregate"), "Foregate; hit; ttl=376", "RFC 9211 2.1");
    let miss = CacheStatus {
        forward: Some(Forward::UriMiss),
        forward_status: Some(304),
        stored: true,
        collapsed: true,
        key: Some(b"a\"b"),
        detail: Some("x"),
        ttl: Some(-5),
    };
    let expected =
        "\"a b\"; fwd=uri-miss; fwd-status=304; ttl=-5; stored; collapsed; key=\"a\\\"b\"; detail=\"x\"";
    assert_eq!(miss.render("a b"), expected, "RFC 9211 2");
}

/// The time for a value of some length, the least of three tries.
fn time(unit: &str, name: &str, bytes: usize) -> Duration {
    let value = unit.repeat(bytes / unit.len());
    let tries = (0..3).map(|_| {
        let mut scene = Scene::new();
        let start = Instant::now();
        scene.get(&[(name, &value)], &Origin::Reply(200, &[(name, &value), ("Cache-Control", "max-age=9")]));
        scene.get(&[(name, &value)], &Origin::Reply(200, &[]));
        start.elapsed()
    });
    tries.min().unwrap()
}

#[test]
fn time_is_linear_in_the_length_of_a_value() {
    let units = [
        "\"\\",
        "\\\"",
        "a=\"\\\"",
        ",",
        "a,",
        "a=\"b\",",
        "\"",
        "max-age=1;",
        "a;q=",
        "(",
        "(a ",
        "0-0,",
        "W/\"a\",",
        "no-cache=\"a\",",
    ];
    for name in NAMES {
        for unit in units {
            let (short, long) = (time(unit, name, 1 << 12), time(unit, name, 1 << 17));
            // 32 times the length; quadratic work would be 1,000 times the time, some 10 s.
            let bound = short * 400 + Duration::from_millis(250);
            assert!(long < bound, "{name}: {unit}: {short:?} for 4 KiB, {long:?} for 128 KiB");
        }
    }
    assert_eq!(parse_date(b"", START), None);
}
