//! Injections, compared with libinjection.

use std::time::{Duration, Instant};

use foregate_waf::injection::{sqli, xss};
use proptest::prelude::*;

/// The length of the shorter ones of the inputs that are compared by time, bytes.
const SHORT: usize = 2_000;

const VECTORS: &str = include_str!("injection.txt");

/// The bytes of a text with the escapes of `escape_ascii`.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().expect("an escape") {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
                u8::from_str_radix(&String::from_utf8_lossy(&digits), 16).expect("digits")
            }
            other => other,
        });
    }
    out
}

fn vectors() -> impl Iterator<Item = (&'static str, bool, Vec<u8>)> {
    VECTORS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut parts = line.splitn(3, ' ');
        let mut next = || parts.next().expect("three parts");
        (next(), next() == "xss", unescape(next()))
    })
}

#[test]
fn inputs_are_judged_as_by_the_original() {
    let mut count = 0;
    for (fingerprint, is_xss, input) in vectors() {
        let found = sqli(&input);
        let found = found.as_ref().map_or("-", |found| found.as_str());
        assert_eq!(found, fingerprint, "{}", input.escape_ascii());
        assert_eq!(xss(&input), is_xss, "{}", input.escape_ascii());
        count += 1;
    }
    assert!(count > 2000, "{count} vectors");
}

#[test]
fn attacks_are_found_and_texts_are_not() {
    let attack = sqli(b"1' or '1'='1").unwrap();
    assert_eq!((attack.as_str(), attack.to_string()), ("s&sos", "s&sos".to_owned()));
    assert_eq!(sqli(b"-1 union select password from users").unwrap().as_str(), "1UEnk");
    assert_eq!(sqli(b"/*! union */ 1").unwrap().as_str(), "X");
    for text in [
        "",
        "word",
        "WORD_2",
        "union",
        "0b1",
        "x1",
        "hello world",
        "O'Reilly and friends",
        "1234",
        "select a colour",
        "a -- b",
    ] {
        assert_eq!(sqli(text.as_bytes()), None, "{text}");
    }
    assert!(xss(b"<script>alert(1)</script>"));
    assert!(xss(b"\" onload=alert(1) "));
    assert!(xss(b"<a href=\" java&#115;cript:1\">"));
    assert!(!xss(b"a < b and b > c"));
    assert!(!xss(b"<b>bold</b> <a href=\"/index.html\">"));
}

/// How long judging an input takes, of a few tries the shortest: what else the machine does can only lengthen one.
fn shortest(input: &[u8], tries: usize) -> Duration {
    let once = || {
        let start = Instant::now();
        sqli(input);
        xss(input);
        start.elapsed()
    };
    (0..tries).map(|_| once()).min().unwrap_or_default()
}

/// An input of sixteen times the length takes sixteen times as long, and 256 times if the time is quadratic. A machine that is
/// busy at the wrong moments gets more tries.
#[test]
fn long_inputs_take_linear_time() {
    let pieces = [
        "like.",
        "'",
        "\\",
        "\\'",
        "$a$",
        "$$",
        "$a ",
        "/*",
        "/*/",
        "`",
        "--",
        "#",
        "q'(",
        "nq'",
        "[",
        "{a",
        "((",
        "))",
        "b'0",
        "b'",
        "x'1",
        "0x",
        "1e",
        "@@",
        "@",
        "a.",
        "union ",
        "not ",
        "1,",
        "1+",
        ";",
        "::",
        "in ",
        "a collate a_ ",
        "u&'",
        "\0",
        "\"'",
        "&#",
        "&#x",
        "&#0",
        "<",
        "<a ",
        "<a/",
        "</",
        "<a b=",
        "<!--",
        "--",
        "-\0",
        "<![CDATA[",
        "]",
        "<%",
        "=\"",
        "='",
        "/",
        " ",
        "<a href=&#32;",
        "<a href=\"&#",
        "a=",
        ">",
        "<!",
    ];
    for piece in pieces {
        for prefix in ["", "1 ", "<a href="] {
            let input =
                |length: usize| [prefix.as_bytes(), &piece.as_bytes().repeat(length / piece.len())].concat();
            let (short, long) = (input(SHORT), input(16 * SHORT));
            let is_linear = |tries| {
                let least = shortest(&short, tries).max(Duration::from_micros(10));
                shortest(&long, tries) < 80 * least
            };
            assert!(
                [2, 8, 32, 128].into_iter().any(is_linear),
                "{prefix}{piece}... takes more than linear time"
            );
        }
    }
}

proptest! {
    /// Whatever comes, there is an answer, and a fingerprint has up to five letters.
    #[test]
    fn any_input_is_judged(input in prop::collection::vec(any::<u8>(), 0..200)) {
        xss(&input);
        if let Some(fingerprint) = sqli(&input) {
            prop_assert!((1..=5).contains(&fingerprint.as_str().len()));
        }
    }
}
