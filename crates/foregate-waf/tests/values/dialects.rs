//! JSON of readers that are less strict than the standard.

use foregate_waf::body::{BodyLimits, Documents};

use super::body::{SeenParameters, json, text};

/// What readers take that are less strict than the standard is seen, and an error.
#[test]
fn json_of_less_strict_readers_is_seen() {
    for body in [
        &b"{\"a\":NaN,\"b\":\"evil\"}"[..],
        b"{\"a\":-Infinity,\"b\":\"evil\"}",
        b"{\"a\":1,/* x */\"b\":\"evil\"}",
        b"// x\n{\"b\":\"evil\"}",
        b"# x\n{\"b\":\"evil\"}",
        b"// x\r{\"b\":\"evil\"}",
        b"{} {\"b\":\"evil\"}",
        b"{},{\"b\":\"evil\"}",
        b"\"x\" {\"b\":\"evil\"}",
        b"{\"a\":\"\xff\",\"b\":\"evil\"}",
        b"{\"b\":\"e\xffvil\"}",
        b"{\"a\":\"\t\",\"b\":\"evil\"}",
        b"{'b':'evil'}",
        b"{'b':\"ev\\'il\",'c':'evil'}",
        b"{b:\"evil\"}",
        b"{b:evil}",
        b"{$b: evil , c: 1}",
        b"{\\u0062:\"evil\"}",
        b")]}',\n{\"b\":\"evil\"}",
        b"\x0c{\"b\":\"evil\"}",
        b"\x1e{\"b\":\"evil\"}",
        b"\xc2\xa0{\"b\":\"evil\"}",
        b"{\"a\":01,\"b\":\"evil\"}",
        b"{\"a\":+1,\"b\":\"evil\"}",
        b"{\"a\":.5,\"b\":\"evil\"}",
        b"{\"a\":5.,\"b\":\"evil\"}",
        b"{\"a\":0x1f,\"b\":\"evil\"}",
        b"{\"a\":True,\"b\":\"evil\"}",
        b"{\"a\":truex,\"b\":\"evil\"}",
        b"{\"b\":\"e\\x76il\"}",
        b"{\"b\":\"e\\166il\"}",
        b"{\"b\":\"e\\u{76}il\"}",
        b"{\"b\":\"\\u+065vil\"}",
        b"{\"b\":\"\\u 065vil\"}",
        b"{\"b\":\"\\u0_65vil\"}",
        b"{\"b\":\"e\\vil\"}",
        b"{\"b\":\"\\evil\"}",
        b"{\"b\":\"ev\\\nil\"}",
        b"{\"b\":\"\\u00zz evil\"}",
        b"{\"a\":1,,\"b\":\"evil\"}",
        b"{,\"b\":\"evil\"}",
        b"[,\"evil\"]",
        b"[1,\"evil\",]",
        b"[1;\"evil\"]",
        b"[1 \"evil\"]",
        b"{\"a\":1\n\"b\":\"evil\"}",
        b"{\"b\"=\"evil\"}",
        b"{\"b\"=>\"evil\"}",
        b"{\"a\",\"b\":\"evil\"}",
        b"{\"a\":,\"b\":\"evil\"}",
        b"[new Date(\"evil\")]",
        b"{a: http://x?evil}",
        b"{\0\"\0b\0\"\0:\0\"\0e\0v\0i\0l\0\"\0}\0",
        b"\xff\xfe{\0\"\0b\0\"\0:\0\"\0e\0v\0i\0l\0\"\0}\0",
        b"\0{\0\"\0b\0\"\0:\0\"\0e\0v\0i\0l\0\"\0}",
        b"[\0\0\0\"\0\0\0e\0\0\0v\0\0\0i\0\0\0l\0\0\0\"\0\0\0]\0\0\0",
    ] {
        let mut seen = SeenParameters::default();
        let outcome = json(body, true, &BodyLimits::default(), &mut seen);
        assert!(seen.0.iter().any(|line| line.contains("evil")), "{}: {:?}", text(body), seen.0);
        assert!(outcome.is_err_and(|error| !error.is_limit()), "{}", text(body));
    }
    // Where none of them reads on, the pass ends, so that other texts are not taken for arguments.
    for (body, most) in [
        (&b"{\\rtf1\\ansi\\'92 (a, b, c)}"[..], 0),
        (b"{{#each items}} a, b, c {{/each}}", 0),
        (b"[2024-01-01 10:00:00] [error] one, two, three", 2),
        (b"[section]\na=1, 2, 3", 1),
        (b"[a link](b), c, d, e", 1),
        (b"\"name\",\"age\"\n\"x\",\"y\"\n", 1),
        (b"[\x01\x02,\x03,a,b,c]", 0),
        (b"'tis the season', they said, and went", 1),
    ] {
        let mut seen = SeenParameters::default();
        assert!(json(body, true, &BodyLimits::default(), &mut seen).is_err());
        assert!(seen.0.len() <= most, "{}: {:?}", text(body), seen.0);
    }
}

/// A mark of UTF-8 is left out, and several documents are read where the type has several.
#[test]
fn marks_and_several_documents() {
    let mut seen = SeenParameters::default();
    json(b"\xef\xbb\xbf{\"a\":1}", true, &BodyLimits::default(), &mut seen).unwrap();
    assert_eq!(seen.0, ["json.a=1"]);
    for body in [&b"{\"a\":1}\n[2]\n3\n"[..], b"\x1e{\"a\":1}\n\x1e[2]\n\x1e3\n", b"{\"a\":1}[2]3"] {
        let mut seen = SeenParameters::default();
        foregate_waf::body::json(body, Documents::Many, true, &BodyLimits::default(), &mut seen).unwrap();
        assert_eq!(seen.0, ["json.a=1", "json.array_0=2", "json=3"]);
    }
    for body in [&b"{\"a\":1}\n{\"b\""[..], b"{}\nevil", b"[1],[2]"] {
        let outcome = foregate_waf::body::json(
            body,
            Documents::Many,
            true,
            &BodyLimits::default(),
            &mut SeenParameters::default(),
        );
        assert!(outcome.is_err(), "{}", text(body));
    }
}
