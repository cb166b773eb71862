use super::scene::{Fields, Origin, START, Scene, Source};
use foregate_cache::{Ranges, Representation, ranges};
use foregate_wire::{HeaderList, Method};

fn select(range: &str, length: u64) -> Ranges {
    let mut request = HeaderList::new();
    request.push(b"Range", range.as_bytes());
    ranges(&request, &Representation { etag: None, last_modified: None, date: START }, length, START)
}

#[test]
fn ranges_are_read() {
    use Ranges::{One, Several, Unsatisfiable, Whole};
    let rows = [
        ("RFC 9110 14.1.2", "bytes=0-1", 11, One(0..2)),
        ("RFC 9110 14.1.2", "bytes=1-", 11, One(1..11)),
        ("RFC 9110 14.1.2", "bytes=-1", 11, One(10..11)),
        ("RFC 9110 14.1.2", "bytes=-20", 11, One(0..11)),
        ("RFC 9110 14.1.2", "bytes=5-99", 11, One(5..11)),
        ("RFC 9110 14.1.2", "BYTES=0-0", 11, One(0..1)),
        ("RFC 9110 14.1.2", "bytes= 0-1 ,", 11, One(0..2)),
        ("RFC 9110 14.1.2", "bytes=0-18446744073709551615", 11, One(0..11)),
        ("RFC 9110 14.1.2", "bytes=0-99999999999999999999999", 11, One(0..11)),
        ("RFC 9110 15.5.17", "bytes=11-", 11, Unsatisfiable),
        ("RFC 9110 15.5.17", "bytes=11-12", 11, Unsatisfiable),
        ("RFC 9110 15.5.17", "bytes=-0", 11, Unsatisfiable),
        ("RFC 9110 15.5.17", "bytes=0-", 0, Unsatisfiable),
        ("RFC 9110 14.1.2", "bytes=-5", 0, Whole),
        ("RFC 9110 14.1.2", "bytes=0-1,11-", 11, One(0..2)),
        ("RFC 9110 14.2, another unit", "lines=0-1", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=2-1", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=-", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=a-b", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=0-1,x", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes 0-1", 11, Whole),
        ("RFC 9110 14.2, invalid", "bytes=--1", 11, Whole),
        ("RFC 9110 15.3.7.2", "bytes=8-9,0-1", 11, Several(vec![8..10, 0..2])),
        ("RFC 9110 15.3.7.2, overlap", "bytes=4-6,0-5", 11, One(0..7)),
        ("RFC 9110 15.3.7.2, touching", "bytes=0-1,2-3,9-", 11, Several(vec![0..4, 9..11])),
        (
            "RFC 9110 17.15, many",
            "bytes=0-0,2-2,4-4,6-6,8-8,10-10,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-",
            11,
            Whole,
        ),
    ];
    for (section, range, length, expected) in rows {
        assert_eq!(select(range, length), expected, "{section}: {range} of {length}");
    }
}

fn part(stored: Fields<'_>, request: Fields<'_>) -> (u16, String, Option<String>) {
    let mut scene = Scene::new();
    let fields = [&[("Cache-Control", "max-age=3600"), ("A", "1")], stored].concat();
    scene.get(&[], &Origin::Reply(200, &fields));
    let seen = scene.get(request, &Origin::Down);
    assert_eq!(seen.source, Source::Store);
    (seen.status, String::from_utf8(seen.body.clone()).unwrap(), seen.field("content-range"))
}

#[test]
fn parts_are_served_from_the_whole() {
    for (range, body, content_range) in [
        ("bytes=0-1", "01", "bytes 0-1/11"),
        ("bytes=1-", "123456789A", "bytes 1-10/11"),
        ("bytes=-1", "A", "bytes 10-10/11"),
    ] {
        let expected = (206, body.to_owned(), Some(content_range.to_owned()));
        assert_eq!(part(&[], &[("Range", range)]), expected, "RFC 9110 15.3.7: {range}");
    }
    assert_eq!(part(&[], &[("Range", "bytes=20-")]), (416, String::new(), Some("bytes */11".to_owned())));
    let mut scene = Scene::new();
    scene.get(
        &[],
        &Origin::Reply(200, &[("Cache-Control", "max-age=9"), ("A", "1"), ("Content-Length", "11")]),
    );
    let seen = scene.get(&[("Range", "bytes=0-1")], &Origin::Down);
    assert_eq!((seen.field("a").as_deref(), seen.field("content-length").as_deref()), (Some("1"), Some("2")));
    let head = scene.request(Method::Head, &[("Range", "bytes=0-1")], &Origin::Down);
    assert_eq!(head.status, 200, "RFC 9110 14.2: GET alone");
    scene.get(&[], &Origin::Reply(404, &[("Cache-Control", "max-age=9")]));
}

#[test]
fn several_parts_are_one_multipart_body() {
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=9"), ("Content-Type", "text/plain")]));
    let seen = scene.get(&[("Range", "bytes=0-1,-2")], &Origin::Down);
    let expected = "\r\n--0000000000abcdef\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/11\r\n\r\n01\
                    \r\n--0000000000abcdef\r\nContent-Type: text/plain\r\nContent-Range: bytes 9-10/11\r\n\r\n9A\
                    \r\n--0000000000abcdef--\r\n";
    assert_eq!((seen.status, String::from_utf8(seen.body.clone()).unwrap()), (206, expected.to_owned()));
    assert_eq!(
        seen.field("content-type").as_deref(),
        Some("multipart/byteranges; boundary=0000000000abcdef")
    );
    assert_eq!(seen.field("content-length"), Some(expected.len().to_string()));
    assert_eq!(seen.field("content-range"), None, "RFC 9110 15.3.7.2");
}

#[test]
fn if_range_guards_parts() {
    let stored: Fields<'_> = &[("ETag", "\"a\""), ("Last-Modified", "@-60"), ("Date", "@0")];
    let rows: &[(&str, Fields<'_>, &str, u16)] = &[
        ("the same tag", stored, "\"a\"", 206),
        ("another tag", stored, "\"b\"", 200),
        ("a weak tag", &[("ETag", "W/\"a\"")], "W/\"a\"", 200),
        ("the same date", stored, "@-60", 206),
        ("another date", stored, "@-61", 200),
        ("later than the change", stored, "@0", 200),
        ("a date within the second of the change", &[("Last-Modified", "@0"), ("Date", "@0")], "@0", 200),
        ("no validator", &[], "\"a\"", 200),
        ("neither", stored, "x", 200),
    ];
    for (name, stored, condition, expected) in rows {
        let (status, ..) = part(stored, &[("Range", "bytes=0-1"), ("If-Range", condition)]);
        assert_eq!(status, *expected, "RFC 9110 13.1.5: {name}");
    }
    let (status, ..) = part(stored, &[("Range", "bytes=0-1"), ("If-None-Match", "\"a\"")]);
    assert_eq!(status, 304, "RFC 9110 13.2.2: conditions come first");
}
