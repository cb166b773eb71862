//! Request and response heads.

use foregate_wire::RequestError as E;
use foregate_wire::{HeadLimits, HeadParser, Method, NameId, RequestHead, ResponseError, Version};

use super::{lines, request, request_of, request_within, response, response_of};

#[test]
fn a_request_head_comes_apart() {
    let input = b"POST /a?b=c HTTP/1.1\r\nHost: example.com\r\nX-Own:\t one \r\nx-own: two\r\n\r\nbody";
    let (consumed, head) = request(input).unwrap().unwrap();
    assert_eq!(consumed, input.len() - 4);
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.target(), b"/a?b=c");
    assert_eq!(lines(&head.headers), ["Host: example.com", "X-Own: one", "x-own: two"]);
    assert_eq!(head.headers.get(NameId::Host), Some(&b"example.com"[..]));
}

#[test]
fn a_response_head_comes_apart() {
    let input = b"HTTP/1.1 404 nicht da\r\nServer: x\r\n\r\n";
    let (consumed, head) = response(input).unwrap().unwrap();
    assert_eq!((consumed, head.status, head.version), (input.len(), 404, Version::Http11));
    assert_eq!(head.reason(), b"nicht da");
    assert_eq!(lines(&head.headers), ["Server: x"]);
}

#[test]
fn pipelined_requests_come_one_after_the_other() {
    let input = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.0\r\n\r\nGET /3";
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let limits = HeadLimits::default();
    let first = parser.parse_request(input, &limits, &mut head).unwrap().unwrap();
    assert_eq!(head.target(), b"/1");
    let second = parser.parse_request(&input[first..], &limits, &mut head).unwrap().unwrap();
    assert_eq!((head.target(), head.version, head.headers.len()), (&b"/2"[..], Version::Http10, 0));
    let third = parser.parse_request(&input[first + second..], &limits, &mut head);
    assert_eq!(third, Ok(None));
}

/// The next head is parsed independently of the one before, regardless of common parts.
#[test]
fn fields_like_those_before_are_what_they_are_alone() {
    let fields = "Host: a\r\nX-Own:\t one \r\nx_own: two\r\nAccept: */*\r\n";
    let before = format!("GET /1 HTTP/1.1\r\n{fields}\r\n");
    let long = "/long".repeat(20);
    let usual = HeadLimits::default();
    let after = [
        format!("GET /2?longer HTTP/1.1\r\n{fields}\r\nGET /3"),
        format!("\r\nPOST {long} HTTP/1.0\r\n{fields}\r\nbody"),
        format!("GET /2 HTTP/1.1\r\n{fields}Cookie: c\r\n\r\n"),
        format!("GET /2 HTTP/1.1\r\n{fields} folded\r\n\r\n"),
        format!("GET /2 HTTP/1.1\r\n{fields}"),
        format!("GET /2 HTTP/1.1\r\n{}\r\n", fields.replace("two", "tWo")),
        format!("GET /2 HTTP/1.1\r\n{}\r\n", fields.replace("two", "t\0o")),
        "GET /2 HTTP/1.1\r\n\r\n".to_owned(),
    ];
    for limits in [
        usual,
        HeadLimits { bytes: before.len(), ..usual },
        HeadLimits { line: 14, ..usual },
        HeadLimits { fields: 3, ..usual },
        HeadLimits { fields: 4, ..usual },
    ] {
        for after in &after {
            let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
            assert_eq!(parser.parse_request(before.as_bytes(), &usual, &mut head), Ok(Some(before.len())));
            // Later changes of the fields have no effect.
            head.headers.remove(NameId::Host);
            head.headers.push(b"Via", b"x");
            let parsed = parser.parse_request(after.as_bytes(), &limits, &mut head);
            let (mut alone_parser, mut alone) = (HeadParser::new(), RequestHead::new());
            assert_eq!(
                parsed,
                alone_parser.parse_request(after.as_bytes(), &limits, &mut alone),
                "{after:?}"
            );
            if let Ok(Some(_)) = parsed {
                assert_eq!((head.target(), head.version), (alone.target(), alone.version));
                assert_eq!(lines(&head.headers), lines(&alone.headers), "{after:?}");
                assert_eq!(head.headers.arena_len(), alone.headers.arena_len());
            }
        }
    }
}

#[test]
fn request_lines_that_are_refused() {
    let cases: &[(&[u8], E)] = &[
        (b"GET  / HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET /  HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/1.1 \r\n\r\n", E::BadRequestLine),
        (b" GET / HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET\t/ HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET /\tHTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET /\r\n", E::BadRequestLine),
        (b"GET\r\n", E::BadRequestLine),
        (b"GET / \r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/1.1\n", E::BadRequestLine),
        (b"GET / HTTP/1.1\rX", E::BadRequestLine),
        (b"GET /\0 HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET / http/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/1.10\r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/11\r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/1\r\n\r\n", E::BadRequestLine),
        (b"G(T / HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"GET / HTTP/1.2\r\n\r\n", E::UnsupportedVersion),
        (b"GET / HTTP/0.9\r\n\r\n", E::UnsupportedVersion),
        (b"GET / HTTP/2.0\r\n\r\n", E::UnsupportedVersion),
        (b"PRI * HTTP/2.0\r\n\r\n", E::UnsupportedVersion),
        (b"ABCDEFGHIJKLMNOPQRSTUVWXY / HTTP/1.1\r\n\r\n", E::UnsupportedMethod),
        (b"\x16\x03\x01", E::BadRequestLine),
        (b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", E::BadRequestLine),
        (b"\rGET / HTTP/1.1\r\n\r\n", E::BareCr),
        (b"\nGET / HTTP/1.1\r\n\r\n", E::BadRequestLine),
    ];
    for (input, error) in cases {
        assert_eq!(request(input).unwrap_err(), *error, "{}", input.escape_ascii());
    }
}

#[test]
fn fields_that_are_refused() {
    let cases: &[(&[u8], E)] = &[
        (b"Host : a\r\n\r\n", E::BadFieldName),
        (b": a\r\n\r\n", E::BadFieldName),
        (b"Host\r\n\r\n", E::BadFieldName),
        (b"Ho st: a\r\n\r\n", E::BadFieldName),
        (b"H\xc3\xb6st: a\r\n\r\n", E::BadFieldName),
        (b"Ho\0st: a\r\n\r\n", E::BadFieldName),
        (b"Host: a\0b\r\n\r\n", E::BadFieldValue),
        (b"Host: a\x7f\r\n\r\n", E::BadFieldValue),
        (b"Host: a\x01\r\n\r\n", E::BadFieldValue),
        (b" Host: a\r\n\r\n", E::ObsFold),
        (b"Host: a\r\n b\r\n\r\n", E::ObsFold),
        (b"Host: a\r\n\tb: c\r\n\r\n", E::ObsFold),
        (b"Host: a\rb: c\r\n\r\n", E::BareCr),
        (b"Host: a\r\r\n\r\n", E::BareCr),
        (b"Host: a\r\n\rX\r\n", E::BareCr),
        (b"Host: a\nb: c\r\n\r\n", E::BareLf),
        (b"Host: a\r\n\n", E::BareLf),
        (b"Host\n: a\r\n\r\n", E::BareLf),
    ];
    for (fields, error) in cases {
        let input = [b"GET / HTTP/1.1\r\n", *fields].concat();
        assert_eq!(request(&input).unwrap_err(), *error, "{}", fields.escape_ascii());
    }
}

#[test]
fn an_error_shows_with_the_byte_that_makes_it_certain() {
    for input in [&b"GET / HTTP/1.1\r\nHost "[..], b"GET  ", b"GET\t", b"GET / HTTP/1.1\r\na\0", b"("] {
        assert!(request(input).is_err(), "{}", input.escape_ascii());
        assert_eq!(request(&input[..input.len() - 1]).unwrap().map(|(at, _)| at), None);
    }
}

#[test]
fn what_is_unusual_but_allowed() {
    let head = request_of(&[
        "M-SEARCH * HTTP/1.1",
        "Empty:",
        "Blank: \t ",
        "a: b:c, \"d\"",
        "!#$%&'*+-.^_`|~9: \t\u{e4}\tx ",
    ]);
    assert_eq!(head.method.as_bytes(), b"M-SEARCH");
    assert_eq!(lines(&head.headers), ["Empty: ", "Blank: ", "a: b:c, \"d\"", "!#$%&'*+-.^_`|~9: \u{e4}\tx"]);
    let (consumed, head) = request(b"\r\n\r\nGET /\xff#?\\ HTTP/1.0\r\n\r\n").unwrap().unwrap();
    assert_eq!((consumed, head.target()), (26, &b"/\xff#?\\"[..]));
    let longest = "A".repeat(24);
    assert_eq!(request_of(&[&format!("{longest} / HTTP/1.1")]).method.as_str(), longest);
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = HeadLimits { bytes: 64, line: 20, fields: 2 };
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "x".repeat(length - 14));
    assert!(request_within(&limits, format!("{}\r\n", line(20)).as_bytes()).unwrap().is_some());
    assert_eq!(request_within(&limits, line(21).as_bytes()).unwrap_err(), E::TargetTooLong);
    // Without an end of line in sight, the limit is certain once no line end can come in time.
    assert_eq!(request_within(&limits, &line(40).as_bytes()[..22]).unwrap_err(), E::TargetTooLong);

    let field = |length: usize| format!("GET / HTTP/1.1\r\na:{}\r\n\r\n", "b".repeat(length - 2));
    assert!(request_within(&limits, field(20).as_bytes()).unwrap().is_some());
    assert_eq!(request_within(&limits, field(21).as_bytes()).unwrap_err(), E::LineTooLong);

    let three = b"GET / HTTP/1.1\r\na:b\r\na:b\r\na:b\r\n\r\n";
    assert_eq!(request_within(&limits, three).unwrap_err(), E::TooManyFields);
    let two = b"GET / HTTP/1.1\r\na:b\r\na:b\r\n\r\n";
    assert!(request_within(&limits, two).unwrap().is_some());

    let exact = HeadLimits { bytes: two.len(), ..limits };
    assert!(request_within(&exact, two).unwrap().is_some());
    let short = HeadLimits { bytes: two.len() - 1, ..limits };
    assert_eq!(request_within(&short, two).unwrap_err(), E::HeadTooLarge);
    // A fault before the limit is reported as that fault.
    let fault = b"GET / HTTP/1.1\r\na b: cccccccccccccccccccccccccccccccccccccccccccccccc";
    assert_eq!(request_within(&limits, fault).unwrap_err(), E::BadFieldName);
}

#[test]
fn errors_have_a_status() {
    let statuses = [
        (E::BadRequestLine, 400),
        (E::UnsupportedVersion, 505),
        (E::UnsupportedMethod, 501),
        (E::TargetTooLong, 414),
        (E::LineTooLong, 431),
        (E::HeadTooLarge, 431),
        (E::TooManyFields, 431),
        (E::BadFieldName, 400),
        (E::BadFieldValue, 400),
        (E::ObsFold, 400),
        (E::BareCr, 400),
        (E::BareLf, 400),
    ];
    for (error, status) in statuses {
        assert_eq!(error.status(), status, "{error}");
    }
}

#[test]
fn status_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.0 100 x", 100, "x"),
        ("HTTP/1.1 999  y\tz ", 999, " y\tz "),
    ] {
        let head = response_of(&[line]);
        assert_eq!((head.status, head.reason()), (status, reason.as_bytes()), "{line}");
    }
    use ResponseError as R;
    let cases: &[(&[u8], R)] = &[
        (b"HTTP/1.1 099 x\r\n", R::BadStatusLine),
        (b"HTTP/1.1 1000 x\r\n", R::BadStatusLine),
        (b"HTTP/1.1 20\r\n", R::BadStatusLine),
        (b"HTTP/1.1 2x0\r\n", R::BadStatusLine),
        (b"HTTP/1.1  200\r\n", R::BadStatusLine),
        (b"HTTP/1.1\t200\r\n", R::BadStatusLine),
        (b"HTTP/1.1 200\tOK\r\n", R::BadStatusLine),
        (b"HTTP/1.1200 OK\r\n", R::BadStatusLine),
        (b"HTTP/1.1\r\n", R::BadStatusLine),
        (b"http/1.1 200 OK\r\n", R::BadStatusLine),
        (b"ICY 200 OK\r\n", R::BadStatusLine),
        (b"\r\nHTTP/1.1 200 OK\r\n", R::BadStatusLine),
        (b"HTTP/1.1 200 \0\r\n", R::BadStatusLine),
        (b"HTTP/2.0 200 OK\r\n", R::UnsupportedVersion),
        (b"HTTP/1.1 200 OK\n", R::BareLf),
        (b"HTTP/1.1 200 OK\rX", R::BareCr),
        (b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", R::BareLf),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", R::ObsFold),
    ];
    for (input, error) in cases {
        assert_eq!(response(input).unwrap_err(), *error, "{}", input.escape_ascii());
    }
}

#[test]
fn a_reused_head_holds_nothing_of_the_last_one() {
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let limits = HeadLimits::default();
    parser.parse_request(b"GET /long HTTP/1.0\r\nA: b\r\n\r\n", &limits, &mut head).unwrap();
    parser.parse_request(b"PUT / HTTP/1.1\r\nC: d\r\n\r\n", &limits, &mut head).unwrap();
    assert_eq!((head.method, head.target()), (Method::Put, &b"/"[..]));
    assert_eq!(lines(&head.headers), ["C: d"]);
    // After an error and a reset as well.
    parser.parse_request(b"GET / HTTP/1.1\r\nA: b\r\nC\r\n", &limits, &mut head).unwrap_err();
    parser.reset();
    parser.parse_request(b"PUT / HTTP/1.1\r\nE: f\r\n\r\n", &limits, &mut head).unwrap();
    assert_eq!(lines(&head.headers), ["E: f"]);
}

#[test]
fn input_byte_by_byte_takes_linear_time() {
    // Quadratic work on 64 KiB in lines of 16 KiB would be 500 million steps and more; linear work is not felt.
    let field = format!("a: {}\r\n", "\t".repeat(16 * 1024 - 3));
    let input = format!("GET / HTTP/1.1\r\n{}", field.repeat(3));
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let started = std::time::Instant::now();
    for end in 0..=input.len() {
        let outcome = parser.parse_request(&input.as_bytes()[..end], &HeadLimits::default(), &mut head);
        assert_eq!(outcome, Ok(None));
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn what_was_read_of_a_refused_head_can_be_looked_at() {
    for fault in ["X: a\0b\r\n", " folded\r\n", "X : y\r\n", "(: y\r\n", "X\r\n"] {
        let input = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: q\r\n{fault}\r\n");
        for split in 0..input.len() {
            let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
            let limits = HeadLimits::default();
            let first = parser.parse_request(&input.as_bytes()[..split], &limits, &mut head);
            if first == Ok(None) {
                parser.parse_request(input.as_bytes(), &limits, &mut head).unwrap_err();
            }
            assert_eq!(head.headers.get(NameId::UserAgent), Some(&b"q"[..]), "{fault:?} split at {split}");
            assert_eq!(lines(&head.headers), ["Host: a", "User-Agent: q"]);
        }
    }
}
