#![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

use std::time::Duration;

use crate::case::{self, CaseError};
use crate::*;

fn answer(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Outcome {
    let mut reader = BodyReader::new(1 << 20);
    body.chunks(1000).for_each(|piece| reader.take(piece));
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Outcome::Answered(Box::new(Answer { body: reader.end(), ..Answer::new(status, fields) }))
}

fn found(old: &Outcome, new: &Outcome, rules: &Rules) -> Vec<(Class, String)> {
    compare(old, new, rules).into_iter().map(|difference| (difference.class, difference.part)).collect()
}

const HTML: &[(&str, &str)] = &[
    ("Content-Type", "text/html"),
    ("Cache-Control", "max-age=60, public"),
    ("Set-Cookie", "sid=1; Path=/; HttpOnly"),
];

fn with(
    fields: &[(&'static str, &'static str)],
    name: &str,
    value: &'static str,
) -> Vec<(&'static str, &'static str)> {
    fields.iter().map(|(own, old)| (*own, if *own == name { value } else { *old })).collect()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut chain = foregate_coding::encoder("test", foregate_coding::ContentCoding::Gzip, 5, None);
    let mut out = Vec::new();
    chain.filter.write(body, &mut out).unwrap();
    chain.filter.end(&mut out).unwrap();
    out
}

#[test]
fn planted_differences_are_found_and_classed() {
    let rules = Rules::new(true, 1 << 20);
    let json = |body: &str| answer(200, &[("content-type", "application/json")], body.as_bytes());
    let base = answer(200, HTML, b"<p>hello</p>");
    let long = vec![b'x'; 900_000];
    let mut late = long.clone();
    late[899_999] = b'y';
    let beyond = vec![b'x'; 3 << 20];
    let mut later = beyond.clone();
    later[(3 << 20) - 1] = b'y';
    let gz = answer(200, &[("content-encoding", "gzip")], &gzip(b"<p>hello</p>"));
    let other_gz = answer(200, &[("content-encoding", "gzip")], &gzip(b"<p>hallo</p>"));
    let broken_gz = answer(200, &[("content-encoding", "gzip")], b"<p>hello</p>");
    let html = |fields: &[(&str, &str)]| answer(200, fields, b"<p>hello</p>");
    let fail = || Outcome::Failed("connection refused".into());
    let cases: Vec<(&str, Outcome, Outcome, Class, &str)> = vec![
        ("status", base.clone(), answer(500, HTML, b"<p>hello</p>"), Class::Status, "status"),
        (
            "header value",
            base.clone(),
            html(&with(HTML, "Content-Type", "text/plain")),
            Class::Header,
            "header content-type",
        ),
        ("header missing", base.clone(), html(&HTML[1..]), Class::Header, "header content-type"),
        ("header added", html(&HTML[1..]), base.clone(), Class::Header, "header content-type"),
        (
            "member of a list",
            base.clone(),
            html(&with(HTML, "Cache-Control", "public, max-age=61")),
            Class::Header,
            "header cache-control",
        ),
        ("order", base.clone(), html(&[HTML[1], HTML[0], HTML[2]]), Class::Header, "order"),
        (
            "duplicate",
            html(&[("x-a", "1")]),
            html(&[("x-a", "1"), ("x-a", "1")]),
            Class::Header,
            "header x-a",
        ),
        (
            "cookie value",
            base.clone(),
            html(&with(HTML, "Set-Cookie", "sid=2; Path=/; HttpOnly")),
            Class::Header,
            "cookie sid",
        ),
        (
            "cookie attribute",
            base.clone(),
            html(&with(HTML, "Set-Cookie", "sid=1; Path=/")),
            Class::Header,
            "cookie sid; httponly",
        ),
        ("cookie missing", base.clone(), html(&HTML[..2]), Class::Header, "cookie sid"),
        (
            "json value",
            json(r#"{"a":{"b":[1,2]}}"#),
            json(r#"{"a":{"b":[1,3]}}"#),
            Class::Body,
            "json $.a.b[*]",
        ),
        ("json member", json(r#"{"a":1}"#), json(r#"{"a":1,"b":2}"#), Class::Body, "json $.b"),
        ("json type", json(r#"{"a":1}"#), json(r#"{"a":"1"}"#), Class::Body, "json $.a"),
        ("late byte", answer(200, &[], &long), answer(200, &[], &late), Class::Body, "body"),
        ("byte behind the limit", answer(200, &[], &beyond), answer(200, &[], &later), Class::Body, "body"),
        ("body cut off", answer(200, &[], b"hello"), answer(200, &[], b"hell"), Class::Body, "body"),
        ("compression", html(&[]), gz.clone(), Class::Header, "header content-encoding"),
        ("compressed content", gz.clone(), other_gz, Class::Body, "body"),
        ("wrong encoding", html(&[]), broken_gz, Class::Body, "body"),
        (
            "charset",
            html(&[("content-type", "text/html")]),
            html(&[("content-type", "text/html; charset=utf-8")]),
            Class::Header,
            "header content-type",
        ),
        ("only old", base.clone(), fail(), Class::OnlyOld, "answer"),
        ("only new", fail(), base.clone(), Class::OnlyNew, "answer"),
        ("neither", fail(), fail(), Class::Error, "answer"),
    ];
    assert!(cases.len() >= 20);
    for (name, old, new, class, part) in &cases {
        let differences = found(old, new, &rules);
        assert!(differences.contains(&(*class, (*part).to_owned())), "{name}: {differences:?}");
        let mut tally = Tally::default();
        assert_eq!(tally.compare("r", old, new, &rules).class, *class, "{name}");
    }
}

#[test]
fn equal_answers_have_no_difference() {
    let rules = Rules::new(true, 1 << 20);
    let pairs = [
        (
            answer(200, &[("date", "a"), ("x-request-id", "1"), ("age", "1")], b"x"),
            answer(200, &[("Date", "b"), ("X-Request-Id", "2"), ("via", "1.1 b")], b"x"),
        ),
        (
            answer(200, &[("vary", "Accept, Cookie")], b""),
            answer(200, &[("Vary", "cookie"), ("vary", "accept")], b""),
        ),
        (
            answer(200, &[("set-cookie", "a=1; Path=/; Secure")], b""),
            answer(200, &[("set-cookie", "a=1; secure; path=/")], b""),
        ),
        (answer(200, &[], br#"{"a":1,"b":2.0}"#), answer(200, &[], b"{ \"b\": 2, \"a\": 1 }\n")),
        (
            answer(200, &[("content-length", "5")], b"hello"),
            answer(200, &[("transfer-encoding", "chunked")], b"hello"),
        ),
    ];
    for (old, new) in pairs {
        assert_eq!(found(&old, &new, &Rules::default()), []);
    }
    let coded = [("etag", "W/\"1\""), ("content-encoding", "gzip"), ("content-length", "25")];
    let (plain, coded) = (
        answer(200, &[("etag", "\"1\""), ("content-length", "1")], b"hello"),
        answer(200, &coded, &gzip(b"hello")),
    );
    assert_eq!(found(&plain, &coded, &rules), [(Class::Header, "header content-encoding".to_owned())]);
}

#[test]
fn the_first_difference_is_shown_with_its_surroundings() {
    let (mut old, mut new) = (vec![b'.'; 1000], vec![b'.'; 1000]);
    (old[500], new[500]) = (b'a', b'b');
    let differences = compare(&answer(200, &[], &old), &answer(200, &[], &new), &Rules::default());
    let [difference] = &differences[..] else { panic!("{differences:?}") };
    assert_eq!(difference.place.as_deref(), Some("byte 500"));
    assert_eq!(difference.new.as_deref(), Some(&*format!("{}b{}", ".".repeat(32), ".".repeat(31))));
}

/// Numbers that look random, and are the same in each run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn a_hundred_thousand_requests_with_random_answers_report_nothing() {
    let (mut state, mut tally, rules) = (1, Tally::default(), Rules::default());
    let made = |state: &mut u64| {
        let (id, flag) = (random(state).to_string(), random(state).is_multiple_of(3));
        let cookie = format!("sid={id}; Path=/");
        let mut fields =
            vec![("x-node", if flag { "a" } else { "b" }), ("etag", &*id), ("set-cookie", &*cookie)];
        if random(state).is_multiple_of(50) {
            fields.push(("x-rare", "1"));
        }
        answer(200, &fields, format!(r#"{{"id":{id},"name":"anna","at":"{id}Z"}}"#).as_bytes())
    };
    for at in 0..100_000 {
        let route = ["/a", "/b", "/c"][at % 3];
        let (old, new) = (made(&mut state), made(&mut state));
        if tally.should_learn(route, 30) || at.is_multiple_of(20) {
            let again = made(&mut state);
            tally.learn(route, &old, &again, &rules);
        }
        tally.compare(route, &old, &new, &rules);
    }
    let report = Report::new(&tally, rules.ignored());
    assert_eq!((report.compared, report.different), (100_000, 0), "{}", report.text());
    assert!(!report.is_different());
    assert!(report.classes["noise"] > 90_000);
}

#[test]
fn a_difference_beside_noise_is_reported() {
    let (mut state, mut tally, rules) = (1, Tally::default(), Rules::default());
    for _ in 0..1000 {
        let mut made = |name: &str| {
            let id = random(&mut state);
            answer(200, &[("x-id", &*id.to_string())], format!(r#"{{"id":{id},"name":"{name}"}}"#).as_bytes())
        };
        let (old, again, new) = (made("anna"), made("anna"), made("Anna"));
        tally.learn("/a", &old, &again, &rules);
        let found = tally.compare("/a", &old, &new, &rules);
        tally.example("/a", &found.differences, Some(10));
    }
    let report = Report::new(&tally, rules.ignored());
    let route = &report.routes[0];
    assert_eq!((route.different, route.classes["body"]), (1000, 1000));
    let told: Vec<_> = route.parts.iter().map(|part| (&*part.part, part.verdict)).collect();
    assert_eq!(told[0], ("json $.name", Verdict::Difference));
    assert!(told[1..].iter().all(|(_, verdict)| *verdict == Verdict::Noise), "{told:?}");
    assert!(report.text().contains("[show a]") && report.text().contains("\"Anna\""));
    assert!(page(&report).contains("&quot;Anna&quot;"));
}

#[test]
fn a_slower_system_is_reported() {
    for (factor, slower) in [(1, false), (3, true)] {
        let (mut tally, rules) = (Tally::default(), Rules::default());
        for at in 0..100 {
            let timed = |micros: u64| {
                let Outcome::Answered(mut answer) = answer(200, &[], b"") else { panic!() };
                answer.time = Duration::from_micros(micros);
                Outcome::Answered(answer)
            };
            tally.compare("/a", &timed(10_000 + at * 10), &timed((10_000 + at * 13) * factor), &rules);
        }
        let report = Report::new(&tally, rules.ignored());
        assert_eq!(report.routes[0].time.slower, slower, "{:?}", report.routes[0].time);
        assert_eq!(report.slower, u64::from(slower));
    }
}

#[test]
fn what_is_ignored_on_request_is_forgotten() {
    let (mut tally, mut rules) = (Tally::default(), Rules::default());
    for _ in 0..10 {
        tally.compare(
            "/a",
            &answer(200, &[("x-a", "1")], b"{\"t\":{\"x\":1}}"),
            &answer(200, &[], b"{\"t\":{\"x\":2}}"),
            &rules,
        );
    }
    for name in ["x-a", "$.t"] {
        rules.ignore(Name::read(name).unwrap());
    }
    tally.forget(&rules);
    let report = Report::new(&tally, rules.ignored());
    assert_eq!((report.different, report.classes["same"]), (0, 10));
    assert!(Name::read("header a b").is_err() && Name::read("").is_err());
}

#[test]
fn memory_of_a_tally_is_bounded() {
    let (mut tally, rules) = (Tally::default(), Rules::default());
    for at in 0..3000 {
        let name = format!("x-{at}");
        tally.compare(&format!("/{at}"), &answer(200, &[(&*name, "1")], b""), &answer(200, &[], b""), &rules);
        tally.compare("/0", &answer(200, &[(&*name, "1")], b""), &answer(200, &[], b""), &rules);
    }
    assert!(tally.routes.len() <= 1001);
    assert!(tally.routes["/0"].parts.len() <= 201 && tally.routes["/0"].combinations.len() <= 402);
    assert_eq!(Report::new(&tally, rules.ignored()).compared, 6000);
}

#[test]
fn secrets_are_hashed() {
    let redaction = Redaction::Hashed(Key::new([7; 32]));
    assert!(redaction.field("Authorization", b"Bearer abc").starts_with("hash:"));
    assert_eq!(redaction.field("accept", b"text/html"), "text/html");
    let target = redaction.target("/a?token=abc&x=&plain");
    assert!(
        target.starts_with("/a?token=hash:") && target.contains("&x=&hash:") && !target.contains("abc"),
        "{target}"
    );
    let old = answer(
        200,
        &[("set-cookie", "sid=secret1"), ("x-api-key", "secret2"), ("location", "/a?code=secret3")],
        b"{\"p\":\"secret4\"}",
    );
    let new = answer(
        200,
        &[("set-cookie", "sid=secret5"), ("x-api-key", "secret6"), ("location", "/a?code=secret7")],
        b"{\"p\":\"secret8\"}",
    );
    let differences = redaction.differences(&compare(&old, &new, &Rules::default()));
    let text = format!("{differences:?} {} {}", redaction.outcome(&old), redaction.outcome(&new));
    assert_eq!(differences.len(), 4);
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(Redaction::Raw.field("cookie", b"a"), "a");
}

#[test]
fn paths_without_identities_name_a_route() {
    let paths = [
        ("/", "/"),
        ("/users/42/orders?x=1", "/users/*/orders"),
        ("/o/3fa85f64-5717-4562-b3fc-2c963f66afa6", "/o/*"),
        ("/v1/decade", "/v1/decade"),
        ("/a/b/c/d/e/f/g", "/a/b/c/d/e/f/**"),
    ];
    for (path, expected) in paths {
        assert_eq!(template(path), expected);
    }
}

const CASES: &str = r#"# A login
POST http://example.com/login
X-A: 1
[Cookies]
a: b
[Query]
next: /a b
{
  "user": "anna"
}
HTTP 201
Content-Type: application/json
[Captures]
token: jsonpath "$.token"
[Asserts]
header "Cache-Control" contains "no-store" # here
jsonpath "$.roles" count == 2
jsonpath "$.roles[-1]" == "b"
cookie "sid[httponly]" exists
body not contains "error"
duration < 1000

GET /me
Authorization: Bearer {{token}}
HTTP *
"#;

#[test]
fn cases_are_read_and_judged() {
    let cases = case::read(CASES).unwrap();
    let [login, me] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!(
        (&*login.url, login.line, login.status),
        ("http://example.com/login?next=%2Fa%20b", 2, Some(201))
    );
    assert_eq!(login.fields, [("X-A".into(), "1".into()), ("Cookie".into(), "a=b".into())]);
    assert!(login.body.starts_with(b"{") && login.is_linked() && me.is_linked() && !login.is_safe());
    let fields = [
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
        ("Set-Cookie", "sid=1; HttpOnly"),
    ];
    let Outcome::Answered(good) = answer(201, &fields, br#"{"token":"t","roles":["a","b"]}"#) else {
        panic!()
    };
    let mut variables = Variables::new();
    assert_eq!(judge(login, &good, &mut variables), []);
    assert_eq!(me.filled(&variables).unwrap().fields[0].1, "Bearer t");
    assert_eq!(me.filled(&Variables::new()).unwrap_err(), "token");
    let Outcome::Answered(bad) = answer(200, &[], b"error") else { panic!() };
    let wrong = judge(login, &bad, &mut Variables::new());
    let lines: Vec<_> = wrong.iter().map(|wrong| wrong.line).collect();
    assert_eq!(lines, [2, 12, 16, 17, 18, 19, 20, 14], "{wrong:#?}");
}

#[test]
fn errors_of_cases_have_a_place_and_advice() {
    let errors = [
        ("GTE http://a/", 1, 1, "did you mean `GET`?"),
        ("GET", 1, 4, "write http://host/path, or /path for the host of the system"),
        ("GET /a\nHTTP 99", 2, 6, "write a number such as 200, or `*` for any"),
        ("GET /a\nHTTP 200\n[Assert]", 3, 1, "did you mean `Asserts`?"),
        ("GET /a\nHTTP 200\n[Asserts]\nheder \"a\" exists", 4, 1, "did you mean `header`?"),
        ("GET /a\nHTTP 200\n[Asserts]\nheader \"a\" contain \"b\"", 4, 12, "did you mean `contains`?"),
        (
            "GET /a\nHTTP 200\n[Asserts]\nstatus == abc",
            4,
            11,
            "a text stands in double quotes; numbers, true, false and null without",
        ),
        ("GET /a\n{\n\"a\"", 2, 1, "a bracket or a quote of its JSON is not closed"),
        ("GET /a\nnonsense", 2, 1, "a field is written `Name: value`"),
        (
            "GET /a\n[Options]\nlocation: true",
            2,
            1,
            "redirects are not followed; an address is given by --to, --old and --new",
        ),
        ("HTTP 200", 1, 1, "a request stands before it: GET http://host/path"),
    ];
    for (text, line, column, help) in errors {
        let CaseError { line: at, column: of, message, help: advice } = case::read(text).unwrap_err();
        assert_eq!((at, of, advice.as_deref()), (line, column, Some(help)), "{text:?}: {message}");
    }
    assert!(case::read("GET /a\n{\n \"a\": ,\n}").unwrap_err().line == 3);
}

#[test]
fn any_text_is_read_without_a_panic() {
    for end in 0..CASES.len() {
        let _ = case::read(&CASES[..end]);
        let _ = case::read(&CASES[end..]);
    }
}

#[test]
fn written_cases_are_read_again() {
    let cases = case::read("POST /a?b\nX-A: 1\n`{\"é\": 1}`").unwrap();
    let Outcome::Answered(answer) = answer(302, &[("location", "/b"), ("x-b", "1")], b"") else { panic!() };
    let text = write_case(&cases[0], Some(&answer));
    let again = case::read(&text).unwrap();
    assert_eq!(
        (&again[0].url, &again[0].fields, &again[0].body),
        (&cases[0].url, &cases[0].fields, &cases[0].body)
    );
    assert_eq!((again[0].status, again[0].asserts.len()), (Some(302), 1));
}

#[test]
fn recordings_are_read_entry_by_entry() {
    let entry = r#"{"startedDateTime":"x","request":{"method":"POST","url":"https://a/b?c#d","headers":[{"name":":path","value":"/"},{"name":"Host","value":"a"},{"name":"X-A","value":"{{1}}"}],"postData":{"mimeType":"t","text":"hi"}},"response":{"content":{"text":"…"}}}"#;
    let text = format!(r#"{{"other":[1],"log":{{"version":"1.2","entries":[{entry},{entry}],"pages":[]}}}}"#);
    let mut cases = Vec::new();
    har::read(text.as_bytes(), |case| {
        cases.push(case);
        true
    })
    .unwrap();
    assert_eq!((cases.len(), &*cases[0].url, &*cases[0].body), (2, "https://a/b?c", &b"hi"[..]));
    assert_eq!(cases[0].fields, [("X-A".to_owned(), "{{1}}".to_owned())]);
    let mut count = 0;
    har::read(text.as_bytes(), |_| {
        count += 1;
        false
    })
    .unwrap();
    assert_eq!(count, 1);
    assert!(har::read(&b"{}"[..], |_| true).unwrap_err().contains("log.entries"));
    assert!(har::read(&text.as_bytes()[..200], |_| true).unwrap_err().contains("line 1"));
}

#[test]
fn lines_of_access_logs_are_read() {
    let combined =
        r#"10.0.0.1 - - [28/Nov/2026:23:00:00 +0000] "GET /a?b=\x22 HTTP/1.1" 200 12 "-" "curl/8.0""#;
    let case = access_log::read(combined, 7).unwrap().unwrap();
    assert_eq!((&*case.method, &*case.url, case.line), ("GET", "/a?b=\"", 7));
    assert_eq!(case.fields, [("User-Agent".to_owned(), "curl/8.0".to_owned())]);
    let ours = r#"{"time":"x","method":"HEAD","scheme":"https","host":"a.example","path":"/x?y","status":200,"referer":"r"}"#;
    let case = access_log::read(ours, 1).unwrap().unwrap();
    assert_eq!((&*case.method, &*case.url), ("HEAD", "https://a.example/x?y"));
    assert!(access_log::read("nonsense", 1).is_err() && access_log::read(" ", 1).unwrap().is_none());
    assert!(access_log::read(r#"1 - - [x] "\x16\x03" 400 0 "-" "-""#, 1).is_err());
}

#[test]
fn a_quick_look_sees_all_that_the_thorough_one_sees() {
    /// The fields, and whether they are equal in any order, and in this one.
    type Row<'r> = (&'r [(&'r str, &'r str)], bool, bool);
    let base: &[(&str, &str)] = &[("A", "1"), ("B", "2"), ("B", "3"), ("Content-Length", "5"), ("Date", "x")];
    let others: &[Row<'_>] = &[
        (base, true, false),
        (&[("Server", "s"), ("a", "1"), ("b", "2"), ("b", "3")], true, true),
        (&[("B", "2"), ("B", "3"), ("A", "1"), ("X-Request-Id", "9")], true, false),
        (&[("A", "1"), ("B", "3"), ("B", "2")], false, false),
        (&[("A", "1"), ("B", "2")], false, false),
        (&[("A", "1"), ("B", "2"), ("B", "3"), ("B", "3")], false, false),
        (&[("A", "1"), ("B", "2"), ("B", "3"), ("Content-Length", "6")], false, false),
    ];
    let Outcome::Answered(old) = answer(200, base, b"hello") else { panic!() };
    for (fields, in_any_order, in_order) in others {
        let Outcome::Answered(new) = answer(200, fields, b"hello") else { panic!() };
        assert_eq!(are_equal(&old, &new, false), *in_any_order, "{fields:?}");
        assert_eq!(are_equal(&old, &new, true), *in_order, "{fields:?}");
        if *in_any_order {
            assert!(
                compare(&answer(200, base, b"hello"), &answer(200, fields, b"hello"), &Rules::default())
                    .is_empty()
            );
        }
        for (status, body) in [(201, &b"hello"[..]), (200, &b"hallo"[..])] {
            let Outcome::Answered(new) = answer(status, fields, body) else { panic!() };
            assert!(!are_equal(&old, &new, false));
        }
    }
    let many: Vec<(String, String)> = (0..100).map(|at| (format!("f{at}"), "1".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    let many = answer(200, &many, b"");
    let Outcome::Answered(both) = &many else { panic!() };
    assert!(!are_equal(both, both, false) && compare(&many, &many, &Rules::default()).is_empty());
}
