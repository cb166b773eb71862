//! The runner against a relay that passes bytes on: cases that must pass, and cases that must fail with a reason.

#![allow(clippy::panic, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};

use foregate_cases::parse::parse;
use foregate_cases::run::{Options, load, run};

/// Cargo builds examples beside the folder of the tests.
fn relay() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in PROFILE/deps");
    profile.join("examples/relay")
}

/// The report of a case, `None` when it passed.
fn report(source: &str) -> Option<String> {
    let case = parse("self", Path::new("self.case"), source).unwrap_or_else(|error| panic!("{error}"));
    run(&case, &Options { binary: relay(), jobs: 1, keep: false }).report
}

fn passes(source: &str) {
    if let Some(report) = report(source) {
        panic!("{report}");
    }
}

fn fails_with(source: &str, parts: &[&str]) {
    let report = report(source).expect("this case has to fail");
    for part in parts {
        assert!(report.contains(part), "no `{part}` in:\n{report}");
    }
}

#[test]
fn a_request_and_its_response() {
    passes(
        r#"# request and response
origin
    receive POST /x
    expect field X-A 1 "2 3"
    expect body "abc"
    expect framing length
    respond 200 "hello"
        | X-B: y
    receive GET /two
    respond 204

client
    request POST /x "abc"
        | X-A: 1
        | x-a: 2 3
    receive 200
    expect field X-B y
    expect no field X-A
    expect body "hello"
    expect reason OK
    send "GET /two HTTP/1.1\r\nHost: b\r\n\r\n"
    receive 204
    expect framing none
    quiet 30ms
"#,
    );
}

#[test]
fn chunks_trailers_interim_responses_and_marks() {
    passes(
        r#"# raw messages and order between scripts
origin
    receive head GET /
    respond 103
        | Link: </a>
    await hinted
    send
        | HTTP/1.1 200 OK
        | Transfer-Encoding: chunked
        |
        | 3
        | abc
        | 0
        | T: 1
        |
    shutdown

client
    request GET /
    receive 103
    expect field Link "</a>"
    mark hinted
    receive head 200
    receive data "ab"
    receive body
    expect trailer T 1
    expect body "abc"
    closed cleanly
"#,
    );
}

#[test]
fn many_connections_at_an_origin_for_each() {
    passes(
        r#"# an origin for everybody
origin each
    receive GET
    respond 200 times=1000 "0123456789"

client one
    repeat 3
    connect
    request GET /
    receive 200
    expect body size 10000
    end

client two
    repeat 3
    request GET /
    receive 200
    end
    send "GE" drip=5ms
    send piece=2 "T / HTTP/1.1\r\n\r\n"
    receive 200
"#,
    );
}

#[test]
fn http2_both_ways() {
    passes(
        r#"# frames
origin h2
    receive POST /up
    expect field x-a 1
    expect body "${repeat:100000:a}"
    respond 200 "${repeat:200000:b}"
    receive GET /b
    headers
        | :status: 200
    data "part"
    rst CANCEL
    receive GET /c
    respond 404

client h2
    request POST /up "${repeat:100000:a}"
        | x-a: 1
    receive 200
    expect body size 200000
    receive settings
    receive settings-ack
    request GET /b
    receive cut 200
    expect body "part"
    request GET /c
    receive refusal
    expect status 404
    ping
    receive pong
"#,
    );
}

#[test]
fn a_close_and_a_reset() {
    passes(
        r#"# ends
origin
    receive GET /
    respond 200 open "abc"
        | Content-Length: 5
    close
    accept
    receive GET /
    close

client
    request GET /
    receive cut 200
    closed
    connect
    request GET /
    closed within=1s
"#,
    );
}

#[test]
fn commands() {
    passes(
        r#"# a command
command say hello
    stdout "hello"
    no stdout "bye"
    no stderr "hello"

command unknown
    exit 2
"#,
    );
    fails_with(
        "# a command\ncommand say hello\n    stdout \"bye\"\n",
        &["self.case:3", "does not hold `bye`"],
    );
}

#[test]
fn a_wrong_expectation_tells_line_and_message() {
    fails_with(
        r#"# the body differs
origin
    receive GET /
    respond 200 "hello"

client
    request GET /
    receive 200
    expect body "bye"
"#,
        &["self.case:9", "the body is \"hello\", not \"bye\"", "receive 200", "configuration"],
    );
}

#[test]
fn what_nobody_expects_fails() {
    let second = r#"# a second request
origin
    receive GET /
    respond 200

client
    request GET /
    receive 200
    request GET /again
"#;
    fails_with(second, &["bytes that the script does not expect", "GET /again"]);
    let untouched = "# untouched\norigin untouched\nclient\n    request GET /\n    quiet 50ms\n";
    fails_with(untouched, &["not one byte may arrive here", "GET / HTTP/1.1"]);
    let rest = "# rest\norigin\n    receive\n    respond 200\n    send \"x\"\nclient\n    request GET /\n    receive 200\n    pause 20ms\n";
    fails_with(rest, &["bytes that the script does not expect: \"x\""]);
}

#[test]
fn time_counts() {
    let slow = r#"# too early
origin
    receive GET /
    respond 200

client
    request GET /
    receive 200 after=500ms
"#;
    fails_with(slow, &["too early"]);
    let late =
        "# late\norigin\n    receive\n    pause 2s\nclient\n    request GET /\n    receive 200 within=50ms\n";
    fails_with(late, &["no message in time"]);
}

#[test]
fn a_panic_of_the_proxy_fails() {
    let source = r#"# panic
config top
    // panic
origin
    receive
    respond 200
client
    request GET /
    receive 200
"#;
    fails_with(source, &["the proxy panicked"]);
}

#[test]
fn mistakes_in_the_text_have_a_line() {
    let wrong =
        |source: &str| parse("x", Path::new("x.case"), source).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(wrong("client\n").unwrap_err().split(": ").next(), Some("x.case:1"));
    let unknown = wrong("# x\nclient\n    jump\n").unwrap_err();
    assert_eq!(unknown, "x.case:3: no step `jump`");
    assert_eq!(wrong("# x\nclient\n    close now\n").unwrap_err(), "x.case:3: `now` is one word too many");
    assert_eq!(
        wrong("# x\nclient\n    repeat 2\n    close\n").unwrap_err(),
        "x.case:3: `repeat` or `eventually` without `end`"
    );
    assert!(wrong("# x\nclient\n    send \"a\\q\"\n").unwrap_err().contains("unknown escape"));
    assert!(wrong("# x\norigin\n").unwrap_err().contains("needs a client"));
}

#[test]
fn every_case_of_the_repository_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let cases = load(&folder).unwrap();
    assert!(cases.len() >= 400, "{} cases", cases.len());
    for case in &cases {
        assert!(!case.title.is_empty(), "{} does not say what it shows", case.name);
    }
}
