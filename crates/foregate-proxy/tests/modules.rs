//! Steps of modules on a running proxy: isolation, heavy work, fetches, bodies, replaced responses.
//!
//! The steps are this test's own. Each runs only where a request has its field, so that one proxy
//! serves all tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use foregate_module::{
    Abort, Bail, Body, BodyFilter, EditRequest, EditResponse, Edits, Emit, Fetch, FetchKey, FetchRequest,
    Fetched, Filter, FilterRequestBody, FilterResponseBody, Filtered, HoldResponseBody, Load, LogId, LogLine,
    Never, Note, Notes, Outcome, Path, PlanBuilder, Read as ReadValue, ReceivedRequest, Replace, Respond,
    Response, ResponseBody, Sink, Status, Step, Tally, UpstreamId, Weight, WhenFull, WriteLog, phase,
    pipeline,
};
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::{HostPattern, SiteTableBuilder};
use foregate_proxy::server;
use foregate_proxy::settings::{
    AccessLogSettings, Action, Listen, ListenAddress, Route, RoutePlan, ServerSettings, SiteOptions,
    UpstreamSettings,
};

macro_rules! step {
    ($name:ident, $at:ident, $field:literal, $in:ty, $out:ty, $stop:ty, |$input:pat_param| $run:expr $(, $more:item)*) => {
        #[derive(Default)]
        struct $name;
        impl Step for $name {
            type At = phase::$at;
            type Settings = ();
            type In<'r> = $in;
            type Out = $out;
            type Stop = $stop;
            const NAME: &'static str = stringify!($name);
            const ABOUT: &'static str = "A step of this test.";
            const FILTERS: &'static [Filter] = &[Filter::RequestField($field)];
            $($more)*
            fn run(&self, (): &(), $input: Self::In<'_>) -> ControlFlow<$stop, $out> {
                $run
            }
        }
    };
}

fn edit(name: &'static str, value: impl Into<foregate_module::Text>) -> EditRequest {
    EditRequest(Edits::new().set(name, value))
}

step!(Panics, RequestEarly, "x-panic", (), (), Never, |()| panic!("as asked"));
step!(
    Stumbles,
    RequestEarly,
    "x-stumble",
    (),
    (),
    Never,
    |()| panic!("as asked"),
    const OPTIONAL: bool = true;
);
step!(Refuses, RequestSecurity, "x-refuse", (), (), Respond, |()| ControlFlow::Break(Respond(
    Response::new(403).body("text/plain", "no\n")
)));
step!(Aborts, RequestSecurity, "x-abort", (), (), Abort, |()| ControlFlow::Break(Abort));
step!(
    Spins,
    RequestSecurity,
    "x-spin",
    (),
    (EditRequest,),
    Never,
    |()| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {}
        ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),))
    },
    const WEIGHT: Weight = Weight::Heavy(WhenFull::Error);
);

step!(Drags, RequestSecurity, "x-drag", (), (EditRequest,), Never, |()| {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {}
    ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),))
});

struct Asked;
impl FetchKey for Asked {
    const NAME: &'static str = "asked.request";
    const ANSWER: &'static str = "asked.answer";
}
step!(Asks, RequestIdentity, "x-ask", (Path<'r>,), (Emit<Fetch<Asked>>,), Never, |(Path(path),)| {
    let upstream = if path.starts_with(b"/silent") { 1 } else { 0 };
    let ask = FetchRequest {
        timeout: Duration::from_millis(500),
        ..FetchRequest::get(UpstreamId(upstream), "/asked")
    };
    ControlFlow::Continue((Emit(Some(ask)),))
});
step!(Hears, RequestSecurity, "x-ask", (ReadValue<'r, Fetched<Asked>>,), (EditRequest,), Never, |(
    ReadValue(answer),
)| {
    let said = match answer {
        Some(Ok(answer)) => format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body[..9])),
        Some(Err(error)) => format!("{error:?}"),
        None => "nothing".to_owned(),
    };
    ControlFlow::Continue((edit("x-heard", said),))
});
step!(
    Looks,
    RequestBody,
    "x-look",
    (Body<'r>,),
    (EditRequest,),
    Never,
    |(body,)| ControlFlow::Continue((edit("x-looked", format!("{} {}", body.bytes.len(), body.whole)),)),
    fn body((): &()) -> usize {
        8
    }
);

/// Writes every byte twice, in upper case; the text behind a tilde passes.
#[derive(Default)]
struct Louder(bool);
impl BodyFilter for Louder {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        let end = piece.iter().position(|byte| *byte == b'~').filter(|_| !self.0);
        let (loud, rest) = piece.split_at(end.unwrap_or(if self.0 { 0 } else { piece.len() }));
        let louder: Vec<u8> = loud.iter().flat_map(|byte| [byte.to_ascii_uppercase(); 2]).collect();
        self.0 |= end.is_some();
        out.write(&louder);
        out.write(rest);
        Ok(())
    }
    fn is_over(&self) -> bool {
        self.0
    }
    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }
    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}
/// Panics when it sees an exclamation mark.
struct Shy;
impl BodyFilter for Shy {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        assert!(!piece.contains(&b'!'), "as asked");
        out.write(piece);
        Ok(())
    }
    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }
    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}
step!(ShiesOut, RequestRewrite, "x-shy-out", (), (FilterRequestBody, FilterRequestBody), Never, |()| {
    let shy = FilterRequestBody(Some(Filtered::new("ShiesOut", Shy)));
    ControlFlow::Continue((FilterRequestBody(Some(Filtered::new("ShoutsOut", Louder::default()))), shy))
});
step!(ShoutsOut, RequestRewrite, "x-shout-out", (), (FilterRequestBody,), Never, |()| {
    ControlFlow::Continue((FilterRequestBody(Some(Filtered::new("ShoutsOut", Louder::default()))),))
});
step!(Signs, ResponseHeaders, "x-sign", (Status,), (EditResponse,), Never, |(Status(status),)| {
    ControlFlow::Continue((EditResponse(Edits::new().set("x-signed", status.to_string())),))
});
step!(Pages, ResponseErrorPage, "x-page", (Status,), (), Replace, |(Status(status),)| match status {
    500.. => ControlFlow::Break(Replace(Response::new(status).body("text/html", "<p>sorry\n"))),
    _ => ControlFlow::Continue(()),
});
step!(ShoutsBack, ResponseBody, "x-shout-back", (), (FilterResponseBody,), Never, |()| {
    ControlFlow::Continue((FilterResponseBody(Some(Filtered::new("ShoutsBack", Louder::default()))),))
});
step!(Tells, Log, "x-tell", (Status, Outcome), (Notes,), Never, |(Status(status), Outcome(summary))| {
    let value = format!("{status} {}", summary.bytes_out);
    ControlFlow::Continue((Notes(vec![Note { name: "told".into(), value: value.into() }]),))
});

step!(Strips, RequestEarly, "x-seen", (), (EditRequest,), Never, |()| ControlFlow::Continue((EditRequest(
    Edits::new().remove("x-seen").set("x-seen", "2")
),)));
step!(Sees, RequestSecurity, "x-seen", (ReceivedRequest<'r>,), (EditRequest,), Never, |(
    ReceivedRequest(received),
)| {
    let fields: Vec<_> = received
        .fields
        .iter()
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
        .collect();
    let (client, server) = (received.client.unwrap(), received.server.unwrap());
    let ports = client.port() != 0 && server.port() != 0 && client != server;
    ControlFlow::Continue((edit("x-saw", format!("{received:?} {} {ports}", fields.join("|"))),))
});
step!(
    Sways,
    RequestSecurity,
    "x-sway",
    (Path<'r>,),
    (EditRequest,),
    Never,
    |_| ControlFlow::Continue((edit("x-thread", thread::current().name().unwrap_or_default().to_owned()),)),
    const WEIGHT: Weight = Weight::Varies;,
    fn load(&self, (): &(), (Path(path),): &(Path<'_>,)) -> Load {
        match *path {
            b"/heavy" => Load::Heavy { when_full: WhenFull::Error, wait: Duration::from_secs(5) },
            b"/soon" => Load::Heavy { when_full: WhenFull::Inline, wait: Duration::from_millis(50) },
            _ => Load::Light,
        }
    }
);
step!(Holds, ResponseHeaders, "x-hold", (Status,), (HoldResponseBody,), Never, |_| ControlFlow::Continue((
    HoldResponseBody(Some(16)),
)));
step!(Searches, ResponseBody, "x-hold", (ResponseBody<'r>,), (EditResponse,), Replace, |(body,)| {
    if body.bytes.starts_with(b"GET /secret") {
        return ControlFlow::Break(Replace(Response::new(403).body("text/plain", "kept\n")));
    }
    let held = format!("{} {}", body.bytes.len(), body.whole);
    ControlFlow::Continue((EditResponse(Edits::new().set("x-held", held)),))
});
step!(Writes, Log, "x-write", (Path<'r>,), (WriteLog, Tally), Never, |(Path(path),)| {
    let line = LogLine { log: LogId(0), line: path.to_vec().into() };
    ControlFlow::Continue((WriteLog(vec![line]), Tally(vec![("path", path.len().to_string().into())])))
});

/// Tells of requests that were refused.
#[derive(Default)]
struct Witness;
impl Step for Witness {
    type At = phase::Log;
    type Settings = ();
    type In<'r> = (ReceivedRequest<'r>,);
    type Out = (WriteLog,);
    type Stop = Never;
    const NAME: &'static str = "witness";
    const ABOUT: &'static str = "A step of this test.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;
    fn load(&self, (): &(), _: &Self::In<'_>) -> Load {
        Load::Heavy { when_full: WhenFull::Inline, wait: Duration::from_secs(5) }
    }
    fn run(&self, (): &(), (ReceivedRequest(received),): Self::In<'_>) -> ControlFlow<Never, (WriteLog,)> {
        let line = received.refusal.map(|refusal| {
            let first = received.fields.field(0).unwrap_or_default();
            let text = format!(
                "{}: {received:?} {:?} {}",
                refusal.kind,
                String::from_utf8_lossy(first.0),
                String::from_utf8_lossy(refusal.head).len()
            );
            LogLine { log: LogId(0), line: text.into() }
        });
        ControlFlow::Continue((WriteLog(line.into_iter().collect()),))
    }
}

pipeline! {
    fn steps {
        Panics, Stumbles, Strips, Asks, Refuses, Aborts, Spins, Drags, Hears, Sees, Sways, Looks, ShiesOut, ShoutsOut, Signs,
        Holds, Pages, Searches, ShoutsBack, Tells, Writes, Witness,
    }
}

/// A proxy in front of an origin that echoes its input, and of a silent one.
struct Front {
    address: SocketAddr,
    metrics: SocketAddr,
    log: std::path::PathBuf,
    /// The log file of the steps.
    lines: std::path::PathBuf,
}

/// The proxy of all tests.
fn front() -> &'static Front {
    static FRONT: OnceLock<Front> = OnceLock::new();
    FRONT.get_or_init(|| start(1024))
}

fn start(queue: usize) -> Front {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    thread::spawn(move || {
        // Kept open, never answered.
        let _kept: Vec<_> = silent.incoming().collect();
    });
    let address = free_address();
    let metrics = free_address();
    let log = std::env::temp_dir().join(format!("foregate-modules-{}-{queue}.log", std::process::id()));
    let lines = log.with_extension("lines");
    let pipeline = Arc::new(steps());
    let mut sites = SiteTableBuilder::default();
    let pattern = sites.pattern("/**").unwrap();
    let plan = RoutePlan::new(PlanBuilder::new(&pipeline).build(true));
    let route = Route { plan, ..Route::new(pattern.text().clone(), Action::Proxy(0)) };
    let route = sites.route(route);
    let routes = sites.route_set(vec![(pattern, route)]).unwrap();
    let site = sites.site("*".into(), SiteOptions::default(), routes);
    sites.host(site, &HostPattern::Any).unwrap();
    let upstream = |name, address: SocketAddr| {
        let address = address.to_string().parse().unwrap();
        Arc::new(UpstreamSettings::new(name, vec![ServerSettings::new(address)]))
    };
    let mut settings = Settings::new(pipeline);
    settings.workers = std::num::NonZeroUsize::new(1);
    settings.offload_threads = std::num::NonZeroUsize::new(1);
    settings.limits.offload_queue = queue;
    settings.listeners.push(Listen::new(ListenAddress::Tcp(address)));
    settings.metrics = Some(metrics);
    settings.access_logs.push(AccessLogSettings::json(log.clone()));
    settings.logs = vec![lines.clone()];
    settings.upstreams = vec![upstream("echo", echo()), upstream("silent", silent_address)];
    settings.sites = sites.build();
    // The proxy runs until the process ends.
    thread::spawn(move || {
        server::run(settings, Arc::new(|| Err("this test reloads nothing".to_owned())), None)
    });
    Front { address, metrics, log, lines }
}

/// An origin that answers with the head and the body that it got; with 500 on `/broken`, with 206
/// on `/partly`.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while !is_whole(&got) {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => got.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let asks = |path: &[u8]| got.windows(path.len()).any(|part| part == path);
    let status = match () {
        () if asks(b"/broken") => "500 Oops",
        () if asks(b"/partly") => "206 Partial Content",
        () => "200 OK",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"a\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        got.len()
    );
    stream.write_all(&[head.as_bytes(), &got].concat()).unwrap();
}

/// Returns true if a request has arrived with all of its body.
fn is_whole(got: &[u8]) -> bool {
    let text = String::from_utf8_lossy(got).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length {
        Some(length) => body.len() >= length.parse().unwrap(),
        None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "the proxy does not listen: {error}"),
        }
        thread::yield_now();
    }
}

fn send(front: &Front, method: &str, path: &str, field: &str, body: &str) -> TcpStream {
    let mut stream = connect(front.address);
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{field}: 1\r\n{length}Connection: close\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

fn receive(mut stream: TcpStream) -> String {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    String::from_utf8_lossy(&got).into_owned()
}

fn ask(method: &str, path: &str, field: &str, body: &str) -> String {
    receive(send(front(), method, path, field, body))
}

/// A metric of the proxy, 0 where it is not shown.
fn metric(front: &Front, name: &str) -> u64 {
    let mut stream = connect(front.metrics);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let text = receive(stream);
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

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
