//! Steps of modules on a running proxy: isolation, heavy work, fetches, bodies, replaced responses.
//!
//! The steps are this test's own (`steps.rs`). Each runs only where a request has its field, so that one proxy
//! (`front.rs`) serves all tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

mod front;
mod steps;

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use front::{ask, connect, front, metric, receive, send, start};

#[test]
fn a_panic_costs_one_request() {
    let front = start(1023);
    for _ in 0..7 {
        let answer = receive(send(&front, "GET", "/", "x-panic", ""));
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        let answer = receive(send(&front, "GET", "/", "x-none", ""));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // Any number of times: a client that can cause a panic must not be able to disable the step for
    // all.
    assert_eq!(metric(&front, "foregate_step_panics_total{step=\"Panics\"}"), 7);
    assert_eq!(metric(&front, "foregate_step_broken_total{step=\"Panics\"}"), 0);
}

#[test]
fn an_optional_step_may_panic_and_is_left_out_for_a_while() {
    let front = start(1022);
    for _ in 0..7 {
        let answer = receive(send(&front, "GET", "/", "x-stumble", ""));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(metric(&front, "foregate_step_panics_total{step=\"Stumbles\"}"), 5);
    assert_eq!(metric(&front, "foregate_step_broken_total{step=\"Stumbles\"}"), 2);
}

#[test]
fn steps_answer_abort_and_edit() {
    assert!(ask("GET", "/", "x-refuse", "").starts_with("HTTP/1.1 403 "));
    assert_eq!(ask("GET", "/", "x-abort", ""), "");
    assert!(ask("GET", "/", "x-sign", "").contains("x-signed: 200\r\n"));
}

#[test]
fn heavy_steps_keep_no_worker_from_other_requests() {
    let front = front();
    let heavy = send(front, "GET", "/", "x-spin", "");
    // There is one worker: were the step on it, this would have to wait for it.
    let answer = receive(send(front, "GET", "/", "x-none", ""));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    heavy.set_nonblocking(true).unwrap();
    let first = heavy.peek(&mut [0]);
    assert!(first.is_err(), "the heavy step was over before the other request");
    heavy.set_nonblocking(false).unwrap();
    let answer = receive(heavy);
    assert!(answer.contains("x-thread: foregate-offload\r\n"), "{answer}");
}

#[test]
fn a_full_queue_answers_as_the_step_says() {
    let front = start(1);
    let all: Vec<_> = (0..5).map(|_| send(&front, "GET", "/", "x-spin", "")).collect();
    let answers: Vec<_> = all.into_iter().map(receive).collect();
    let count = |status: &str| answers.iter().filter(|answer| answer.starts_with(status)).count();
    let (done, refused) = (count("HTTP/1.1 200 "), count("HTTP/1.1 503 "));
    assert!(done >= 1 && refused >= 1 && done + refused == 5, "{answers:?}");
    assert_eq!(metric(&front, "foregate_step_shed_total{step=\"Spins\"}"), refused as u64);
}

/// The thread on which a step has run, which tells it the origin.
fn thread_of(answer: &str) -> String {
    let rest = answer.split_once("x-thread: ").unwrap().1;
    rest.split_once("\r\n").unwrap().0.to_owned()
}

#[test]
fn a_light_step_that_holds_its_worker_is_moved() {
    let front = start(1021);
    let threads: Vec<_> =
        (0..10).map(|_| thread_of(&receive(send(&front, "GET", "/", "x-drag", "")))).collect();
    assert_eq!(threads.first().map(String::as_str), Some("foregate-worker"));
    assert_eq!(threads.last().map(String::as_str), Some("foregate-offload"), "{threads:?}");
    let moved = threads.iter().filter(|thread| *thread == "foregate-offload").count();
    assert_eq!(metric(&front, "foregate_step_moved_total{step=\"Drags\"}"), moved as u64);
}

#[test]
fn fetches_are_answered_or_time_out() {
    let answer = ask("GET", "/", "x-ask", "");
    assert!(answer.contains("x-heard: 200 GET /aske"), "{answer}");
    let answer = ask("GET", "/silent", "x-ask", "");
    assert!(answer.contains("x-heard: Timeout\r\n"), "{answer}");
}

#[test]
fn steps_see_the_start_of_a_body_and_the_origin_all_of_it() {
    let answer = ask("POST", "/", "x-look", "0123456789abcdef");
    assert!(answer.contains("x-looked: 8 false\r\n") && answer.ends_with("0123456789abcdef"), "{answer}");
    let answer = ask("POST", "/", "x-look", "01234");
    assert!(answer.contains("x-looked: 5 true\r\n") && answer.ends_with("01234"), "{answer}");
}

#[test]
fn an_upgrade_hides_no_body() {
    let mut stream = connect(front().address);
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nx-look: 1\r\nConnection: upgrade\r\nUpgrade: other\r\nContent-Length: 5\r\n\r\n01234")
        .unwrap();
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&got).ends_with("01234") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&buffer[..read]);
    }
    let answer = String::from_utf8_lossy(&got);
    assert!(answer.contains("x-looked: 5 true\r\n"), "{answer}");
}

#[test]
fn filters_change_bodies_and_their_framing() {
    let answer = ask("POST", "/", "x-shout-out", "abc");
    assert!(answer.contains("Transfer-Encoding: chunked") && answer.contains("AABBCC"), "{answer}");
    let answer = ask("GET", "/", "x-shout-back", "");
    assert!(answer.contains("ETag: W/\"a\"\r\n"), "{answer}");
    assert!(answer.contains("Transfer-Encoding: chunked\r\n") && answer.contains("GGEETT  //"), "{answer}");
    let large = "x".repeat(100_000);
    let answer = ask("POST", "/", "x-shout-out", &large);
    assert_eq!(answer.matches('X').count(), 200_000 + answer.matches("X-Forwarded").count());
}

#[test]
fn parts_of_bodies_pass_filters_that_change_lengths_and_are_counted() {
    let count = || metric(front(), "foregate_step_events_total{step=\"ShoutsBack\",event=\"part-passed\"}");
    let before = count();
    let answer = ask("GET", "/partly", "x-shout-back", "");
    assert!(answer.contains("GET /partly") && answer.contains("ETag: \"a\"\r\n"), "{answer}");
    assert_eq!(count(), before + 1);
}

/// The lengths of a response's chunks, and their content.
fn unchunked(answer: &str) -> (Vec<usize>, String) {
    let mut rest = answer.split_once("\r\n\r\n").unwrap().1;
    let (mut lengths, mut text) = (Vec::new(), String::new());
    loop {
        let (line, behind) = rest.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(line, 16).unwrap();
        lengths.push(length);
        if length == 0 {
            return (lengths, text);
        }
        text.push_str(&behind[..length]);
        rest = &behind[length + 2..];
    }
}

#[test]
fn what_filters_write_is_sent_early_and_then_in_larger_pieces() {
    let (lengths, _) = unchunked(&ask("POST", "/", "x-shout-back", &"x".repeat(100_000)));
    assert_eq!(lengths[0], 2 * 512, "the first is small: {lengths:?}");
    assert!(lengths.iter().any(|length| *length > 12 * 1024), "others are gathered: {lengths:?}");
    let (lengths, _) = unchunked(&ask("POST", "/", "x-shout-back", "small"));
    assert_eq!(lengths.len(), 2, "what is small is in one: {lengths:?}");
}

#[test]
fn what_is_left_of_a_body_passes_by_filters_that_are_over() {
    let body = format!("{}~{}", "x".repeat(10_000), "y".repeat(200_000));
    let (lengths, text) = unchunked(&ask("POST", "/", "x-shout-back", &body));
    let (loud, rest) = text.rsplit_once('~').unwrap();
    assert!(loud.ends_with(&"X".repeat(20_000)) && rest == "y".repeat(200_000));
    assert!(lengths.iter().any(|length| *length > 16 * 1024), "{lengths:?}");

    let answer = ask("POST", "/", "x-shout-out", &body);
    assert_eq!((answer.matches('y').count(), answer.matches('Y').count()), (200_000, 0));
    assert_eq!(answer.matches('X').count(), 20_000 + answer.matches("X-Forwarded").count());
}

#[test]
fn a_filter_that_panics_costs_one_request_and_is_named() {
    let front = start(1020);
    let one = |field: &str, body: &str| receive(send(&front, "POST", "/", field, body));
    assert!(one("x-shy-out: 1", "abc").contains("AABBCC"));
    assert!(one("x-shy-out: 1", "ab!").starts_with("HTTP/1.1 500 "));
    assert_eq!(metric(&front, "foregate_step_panics_total{step=\"ShiesOut\"}"), 1);
    assert_eq!(metric(&front, "foregate_step_panics_total{step=\"ShoutsOut\"}"), 0);
    assert_eq!(metric(&front, "foregate_panics_total"), 1);
    assert!(one("x-shy-out: 1", "abc").contains("AABBCC"));
}

#[test]
fn responses_that_tell_of_an_error_can_be_replaced() {
    let answer = ask("GET", "/broken", "x-page", "");
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.ends_with("<p>sorry\n"), "{answer}");
}

#[test]
fn what_steps_note_stands_in_the_log() {
    let answer = ask("GET", "/told", "x-tell", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1.len();
    await_in(&front().log, &format!("\"notes\":{{\"told\":\"200 {body}\"}}"));
}

/// Waits until a file has a text.
fn await_in(file: &std::path::Path, wanted: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        if log.contains(wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{wanted} is not in {log}");
        thread::yield_now();
    }
}

#[test]
fn steps_see_what_the_client_has_sent() {
    let mut stream = connect(front().address);
    let head = "GET /a/../b?x=%41 HTTP/1.1\r\nhoST: a\r\nX-Seen: 1\r\nx-a: 1\r\nX-A: 2\r\nConnection: close, x-a\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let answer = receive(stream);
    let saw = "x-saw: GET /a/../b?x=%41 HTTP/1.1 hoST=a|X-Seen=1|x-a=1|X-A=2|Connection=close, x-a true\r\n";
    assert!(answer.contains(saw) && answer.contains("x-seen: 2\r\n"), "{answer}");
}

#[test]
fn steps_are_shown_requests_that_were_refused() {
    let cases = [
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "400", "request: GET /a b HTTP/1.1 \"Host\" 30"),
        ("GET /one HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", "host: GET /one HTTP/1.1 \"Host\" 0"),
        ("G\x00T /two HTTP/1.1\nX-B : a\r\n\r\n", "400", "request: G\0T /two HTTP/1.1 \"X-B \" 29"),
        (
            "POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
            "400",
            "request_framing: POST /both HTTP/1.1 \"Host\" 0",
        ),
    ];
    for (request, status, line) in cases {
        let mut stream = connect(front().address);
        stream.write_all(request.as_bytes()).unwrap();
        let answer = receive(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        await_in(&front().lines, &format!("{line}\n"));
    }
}

#[test]
fn a_response_is_held_until_steps_have_seen_its_start() {
    let answer = ask("GET", "/", "x-hold", "");
    assert!(answer.contains("x-held: 16 false\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\nGET / HTTP/1.1\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = ask("GET", "/secret", "x-hold", "");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nkept\n"), "{answer}");
    // While the request's body is on its way as well, and through a filter.
    let large = "y".repeat(300_000);
    let answer = ask("POST", "/", "x-shout-back: 1\r\nx-hold", &large);
    assert!(answer.contains("x-held: 16 false\r\n"), "{}", &answer[..400]);
    assert_eq!(answer.matches('Y').count(), 600_000, "{}", &answer[..400]);
}

#[test]
fn a_step_is_heavy_where_it_says_so() {
    let front = start(1021);
    let ask = |path: &str| receive(send(&front, "GET", path, "x-sway", ""));
    assert_eq!(thread_of(&ask("/light")), "foregate-worker");
    assert_eq!(thread_of(&ask("/heavy")), "foregate-offload");
    // The one thread is busy for longer than this step waits.
    let busy = send(&front, "GET", "/", "x-spin", "");
    while metric(&front, "foregate_offload_wait_seconds_count") < 2 {}
    assert_eq!(thread_of(&ask("/soon")), "foregate-worker");
    assert_eq!(thread_of(&receive(busy)), "foregate-offload");
    assert_eq!(thread_of(&ask("/heavy")), "foregate-offload");
}

#[test]
fn steps_write_into_log_files_and_count_by_number() {
    let answer = ask("GET", "/written", "x-write", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    await_in(&front().lines, "/written\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    let name = "foregate_step_tally_total{step=\"Writes\",event=\"path\",part=\"8\"}";
    while metric(front(), name) != 1 {
        assert!(Instant::now() < deadline, "{name} is not counted");
    }
}
