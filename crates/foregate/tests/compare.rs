//! `foregate compare run` and `foregate test`, against two systems on real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at an unexpected result, and its systems may block"
)]

use std::fmt::Write as _;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A request as a system has received it.
struct Asked {
    method: String,
    target: String,
    fields: String,
    body: String,
}

/// A system that answers with raw bytes, many requests on a connection.
fn serve(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || converse(stream.unwrap(), &*answer));
        }
    });
    address
}

fn converse(stream: TcpStream, answer: &dyn Fn(&Asked) -> Vec<u8>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut fields = String::new();
        while !fields.ends_with("\r\n\r\n") {
            if reader.read_line(&mut fields).unwrap_or(0) == 0 {
                return;
            }
        }
        let lower = fields.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        let mut words = fields.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let asked = Asked { method, target, fields: lower, body: String::from_utf8(body).unwrap() };
        let bytes = answer(&asked);
        if bytes.is_empty() || stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn response(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foregate-compare-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_foregate")).args(arguments).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The answers of the two systems to a path: equal but for one planted difference.
fn planted(is_new: bool, target: &str) -> Vec<u8> {
    let long = |late: u8| [vec![b'.'; 3 << 20], vec![late]].concat();
    let text = "a text that is long enough to be compressed, and then some more of it";
    let either = |old: &'static str, new: &'static str| if is_new { new } else { old };
    match target.split('?').next().unwrap_or_default() {
        "/header" => response(200, &[("X-A", either("1", "2"))], b"x"),
        "/missing-header" if is_new => response(200, &[], b"x"),
        "/missing-header" => response(200, &[("X-A", "1")], b"x"),
        "/list" => response(200, &[("Vary", either("accept, cookie", "accept"))], b"x"),
        "/order" => {
            response(200, &if is_new { [("B", "1"), ("A", "1")] } else { [("A", "1"), ("B", "1")] }, b"x")
        }
        "/cookie-attribute" => {
            response(200, &[("Set-Cookie", either("a=1; Secure; Path=/", "a=1; Path=/"))], b"x")
        }
        "/cookie" => response(200, &[("Set-Cookie", either("a=1", "a=2"))], b"x"),
        "/json" => response(
            200,
            &[("Content-Type", "application/json")],
            either(r#"{"user":{"name":"anna"},"n":1}"#, r#"{"n":1, "user":{"name":"Anna"}}"#).as_bytes(),
        ),
        "/late-byte" => response(200, &[], &long(if is_new { b'b' } else { b'a' })),
        "/status" => response(if is_new { 404 } else { 200 }, &[], b"x"),
        "/compression" if is_new => response(200, &[("Content-Encoding", "gzip")], &gzip(text.as_bytes())),
        "/compression" => response(200, &[], text.as_bytes()),
        "/compressed-body" => {
            let body = format!("{text}{}", either("old", "new"));
            response(200, &[("Content-Encoding", "gzip")], &gzip(body.as_bytes()))
        }
        "/encoding" => response(
            200,
            &[("Content-Type", "text/plain; charset=utf-8")],
            if is_new { b"caf\xe9" } else { "café".as_bytes() },
        ),
        "/shorter" => response(200, &[], either("hello!", "hello").as_bytes()),
        "/location" => response(302, &[("Location", either("/a", "/b"))], b""),
        "/value-case" => response(200, &[("X-Mode", either("Fast", "fast"))], b"x"),
        "/cache-control" => response(200, &[("Cache-Control", either("no-store", "private"))], b"x"),
        "/repeated" if is_new => response(200, &[("Link", "</a>"), ("Link", "</b>")], b"x"),
        "/repeated" => response(200, &[("Link", "</a>")], b"x"),
        "/json-type" => response(200, &[], either(r#"{"n":[{"id":1}]}"#, r#"{"n":[{"id":"1"}]}"#).as_bytes()),
        "/broken-coding" => {
            let body: &[u8] = if is_new { b"no gzip" } else { &gzip(text.as_bytes()) };
            response(200, &[("Content-Encoding", "gzip")], body)
        }
        "/back" if !is_new => Vec::new(),
        "/gone" if is_new => Vec::new(),
        "/same-json" => {
            response(200, &[], either(r#"{"a":1,"b":[1]}"#, r#"{ "b": [1], "a": 1.0 }"#).as_bytes())
        }
        "/same-list" => response(200, &[("Vary", either("A, B", "b,a"))], b"x"),
        "/slow" => {
            if is_new {
                std::thread::sleep(Duration::from_millis(30));
            }
            response(200, &[], b"x")
        }
        _ => response(200, &[("Date", either("1", "2")), ("Server", either("nginx", "foregate"))], b"x"),
    }
}

#[test]
fn planted_differences_are_found_and_classed() {
    let (old, new) =
        (serve(|asked| planted(false, &asked.target)), serve(|asked| planted(true, &asked.target)));
    let expected = [
        ("/header", "header", "header x-a"),
        ("/missing-header", "header", "header x-a"),
        ("/list", "header", "header vary"),
        ("/order", "header", "order"),
        ("/cookie-attribute", "header", "cookie a; secure"),
        ("/cookie", "header", "cookie a"),
        ("/json", "body", "json $.user.name"),
        ("/late-byte", "body", "body"),
        ("/status", "status", "status"),
        ("/compression", "header", "header content-encoding"),
        ("/compressed-body", "body", "body"),
        ("/encoding", "body", "body"),
        ("/shorter", "body", "body"),
        ("/location", "header", "header location"),
        ("/gone", "only-old", "answer"),
        ("/value-case", "header", "header x-mode"),
        ("/cache-control", "header", "header cache-control"),
        ("/repeated", "header", "header link"),
        ("/json-type", "body", "json $.n[*].id"),
        ("/broken-coding", "body", "body"),
        ("/back", "only-new", "answer"),
    ];
    let same = ["/same-json", "/same-list", "/other"];
    let files = Files::new("planted");
    let targets = expected.iter().map(|(target, ..)| *target).chain(same);
    files.write("all.hurl", &targets.map(|target| format!("GET {target}\n")).collect::<String>());
    files.write("slow.hurl", &"GET /slow\n".repeat(25));
    let run = |file: &str, more: &[&str]| {
        files.run(&[&["compare", "run", file, "--old", &old, "--new", &new], more].concat())
    };
    let output = run("all.hurl", &["--json", "--header-order"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    assert_eq!(
        (report["compared"].as_u64(), report["different"].as_u64()),
        (Some(24), Some(21)),
        "{report:#}"
    );
    let routes = report["routes"].as_array().unwrap();
    for (target, class, part) in expected {
        let route = routes.iter().find(|route| route["route"] == format!("GET {target}")).unwrap();
        assert_eq!(
            (&route["classes"][class], &route["parts"][0]["part"]),
            (&1.into(), &part.into()),
            "{route:#}"
        );
    }
    let late = routes.iter().find(|route| route["route"] == "GET /late-byte").unwrap();
    assert!(late["parts"][0]["place"].as_str().unwrap().contains("behind the first"), "{late:#}");
    let screen = text(&run("all.hurl", &[]).stdout);
    assert!(
        screen.lines().count() <= 40 && screen.contains("old \"anna\"") && screen.contains("new \"Anna\""),
        "{screen}"
    );
    // What an operator knows can be left out, and the page opens.
    let mut ignoring = vec!["--html", "page.html"];
    for part in [
        "x-a",
        "cookie a",
        "$.user",
        "vary",
        "body",
        "status",
        "location",
        "content-encoding",
        "x-mode",
        "cache-control",
        "link",
        "$.n",
    ] {
        ignoring.extend(["--ignore", part]);
    }
    let report = text(&run("all.hurl", &ignoring).stdout);
    assert!(report.starts_with("24 compared, 2 different"), "{report}");
    assert!(std::fs::read_to_string(files.0.join("page.html")).unwrap().starts_with("<!doctype html>"));
    let slow = text(&run("slow.hurl", &[]).stdout);
    assert!(slow.contains("slower: 1 of 1 routes"), "{slow}");
}

#[test]
fn equal_systems_with_random_ids_and_dates_do_not_differ() {
    let count = Arc::new(AtomicU64::new(1));
    let system = || {
        let count = Arc::clone(&count);
        serve(move |asked| {
            let id = count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // By no pattern of the sequence, since each comparison takes neighbouring numbers.
            let flag = BuildHasherDefault::<DefaultHasher>::default().hash_one(id).is_multiple_of(3);
            let hex = format!("{id:016x}");
            let fields = [
                ("Date", &*hex),
                ("X-Request-Id", &*hex),
                ("ETag", &*hex),
                ("X-Node", if flag { "a" } else { "b" }),
                ("Set-Cookie", &*format!("sid={hex}; Path=/; HttpOnly")),
            ];
            response(
                200,
                &fields,
                format!(r#"{{"path":"{}","id":"{hex}","at":{id}}}"#, asked.target).as_bytes(),
            )
        })
    };
    let (old, new) = (system(), system());
    let files = Files::new("equal");
    let line = |at: usize| {
        let path = ["a", "b", "c", "d"][at % 4];
        format!(
            "10.0.0.1 - - [28/Nov/2026:23:00:00 +0000] \"GET /{path}/{at}?x={at} HTTP/1.1\" 200 12 \"-\" \"curl\"\n"
        )
    };
    let requests = std::env::var("FOREGATE_COMPARED").map_or(1000, |count| count.parse().unwrap());
    files.write("access.log", &(0..requests).map(line).collect::<String>());
    let began = Instant::now();
    let output = files.run(&["compare", "run", "access.log", "--old", &old, "--new", &new, "--json"]);
    let report = json(&output);
    let allowed = Duration::from_millis(20 * requests as u64);
    assert!(began.elapsed() < allowed, "{:?}", began.elapsed());
    println!("{requests} requests to each system: {:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((report["compared"].as_u64(), report["different"].as_u64()), (Some(requests as u64), Some(0)));
}

#[test]
fn recordings_and_logs_send_safe_requests_alone_unless_that_is_asked_for() {
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let kept = Arc::clone(&log);
    let system = serve(move |asked| {
        kept.lock().push(format!("{} {} {}", asked.method, asked.target, asked.body));
        response(200, &[], b"x")
    });
    let files = Files::new("recorded");
    files.write(
        "session.har",
        r#"{"log":{"version":"1.2","entries":[
            {"request":{"method":"GET","url":"https://shop.example/a?b=1","headers":[{"name":"X-A","value":"1"}]},"response":{}},
            {"request":{"method":"POST","url":"https://shop.example/order","headers":[],"postData":{"text":"hi"}},"response":{}}]}}"#,
    );
    files.write(
        "own.log",
        "{\"time\":\"t\",\"method\":\"GET\",\"host\":\"h\",\"path\":\"/own\",\"status\":200}\n",
    );
    let run = |more: &[&str]| {
        let common =
            ["compare", "run", "session.har", "own.log", "--old", &system, "--new", &system, "--learn", "0%"];
        let output = files.run(&[&common, more].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut seen = std::mem::take(&mut *log.lock());
        seen.sort();
        seen.dedup();
        (text(&output.stdout), seen)
    };
    let (screen, seen) = run(&[]);
    assert_eq!(seen, ["GET /a?b=1 ", "GET /own "]);
    assert!(screen.contains("not compared: 1 × the method is not safe"), "{screen}");
    assert_eq!(run(&["--unsafe-methods"]).1, ["GET /a?b=1 ", "GET /own ", "POST /order hi"]);
    assert_eq!(run(&["--limit", "1"]).1, ["GET /a?b=1 "]);
    // Two requests at one a second take more than a second.
    let began = Instant::now();
    run(&["--rate", "2"]);
    assert!(began.elapsed() > Duration::from_millis(400));
}

const CASES: &str = r#"POST /login
Content-Type: application/json
{"user": "anna"}
HTTP 201
[Captures]
token: jsonpath "$.token"
[Asserts]
cookie "sid[httponly]" exists

GET /me
Authorization: Bearer {{token}}
HTTP 200
[Asserts]
jsonpath "$.name" == "anna"
"#;

fn application(name: &'static str) -> String {
    serve(move |asked| match &*asked.target {
        "/login" if asked.body.contains("anna") => {
            response(201, &[("Set-Cookie", "sid=1; HttpOnly")], br#"{"token":"t1"}"#)
        }
        "/me" if asked.fields.contains("authorization: bearer t1\r\n") => response(
            200,
            &[("Content-Type", "application/json")],
            format!(r#"{{"name":"{name}"}}"#).as_bytes(),
        ),
        _ => response(404, &[], b""),
    })
}

#[test]
fn cases_are_tests_of_one_system_and_of_two() {
    let (good, bad) = (application("anna"), application("bert"));
    let files = Files::new("cases");
    files.write("login.hurl", CASES);
    let output = files.run(&["test", "login.hurl", "--to", &good]);
    assert_eq!(
        (output.status.code(), &*text(&output.stdout)),
        (Some(0), "2 passed, 0 failed\n"),
        "{output:?}"
    );
    let output = files.run(&["test", "login.hurl", "--to", &bad]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(
        told.contains("login.hurl:10: GET /me\n  login.hurl:14: ") && told.ends_with("1 passed, 1 failed\n"),
        "{told}"
    );
    let output = files.run(&["test", "login.hurl", "--to", &bad, "--json"]);
    assert_eq!(json(&output)["failures"][0]["line"], 10);
    let output =
        files.run(&["compare", "run", "login.hurl", "--old", &good, "--new", &bad, "--save", "saved.hurl"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("json $.name"), "{output:?}");
    assert!(text(&output.stderr).contains("login.hurl:14: new: "), "{output:?}");
    let saved = std::fs::read_to_string(files.0.join("saved.hurl")).unwrap();
    assert!(saved.contains("GET /me") && saved.contains("HTTP 200"), "{saved}");
    files.write("plain.hurl", "GET /nowhere\n");
    files.run(&["compare", "run", "plain.hurl", "--old", &good, "--new", &good, "--save", "kept.hurl"]);
    let output = files.run(&["test", "kept.hurl", "--to", &bad]);
    assert_eq!(text(&output.stdout), "1 passed, 0 failed\n", "{output:?}");
}

#[test]
fn mistakes_in_files_are_told_with_their_place() {
    let files = Files::new("mistakes");
    files.write("a.hurl", "GET /a\nHTTP 200\n[Asserts]\nheder \"x\" exists\n");
    files.write("b.har", "{\"log\":{\"entries\":[\n{\"request\":3}]}}");
    files.write("c.log", "no log\n");
    for (file, expected) in [
        ("a.hurl", "a.hurl:4:1: unknown query `heder`\n  help: did you mean `header`?"),
        ("b.har", "b.har: no recording in the HAR format: invalid type"),
        ("c.log", "c.log:1:1: neither a line of our access log nor one of NGINX's combined format"),
        ("d.hurl", "d.hurl: No such file"),
    ] {
        let base = "http://127.0.0.1:1";
        let output = files.run(&["compare", "run", file, "--old", base, "--new", base]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(expected), "{file}: {output:?}");
    }
    let output = files.run(&["compare", "run", "a.hurl", "--old", "localhost", "--new", "http://a"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected a URL such as http://127.0.0.1:8080"), "{output:?}");
    files.write("e.hurl", "GET /a\n");
    let output = files.run(&["test", "e.hurl", "--to", "http://127.0.0.1:1"]);
    assert!(text(&output.stdout).contains("no connection: "), "{output:?}");
}

/// A proxy that runs until it is dropped.
struct Running {
    process: std::process::Child,
    address: String,
}

impl Running {
    fn start(files: &Files, configuration: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        files.write("foregate.kdl", &format!("listen \"{address}\"\nadmin \"admin.sock\"\n{configuration}"));
        let process = Command::new(env!("CARGO_BIN_EXE_foregate"))
            .args(["run", "--single", "-c", "foregate.kdl"])
            .current_dir(&files.0)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, address }
    }

    /// The status and the rest of the answer.
    fn get(&self, target: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: shop.example\r\nCookie: sid=verysecret\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The report once so many requests have been compared.
fn report(files: &Files, compared: u64) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let report = json(&files.run(&["compare", "report", "-c", "foregate.kdl", "--json"]));
        if report["compared"].as_u64() == Some(compared) || Instant::now() > until {
            return report;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn upstreams(old: &str, new: &str) -> String {
    let address = |url: &str| url.trim_start_matches("http://").to_owned();
    format!(
        "upstream \"old\" {{ server \"{}\" }}\nupstream \"new\" {{ server \"{}\" }}\n",
        address(old),
        address(new)
    )
}

#[test]
fn a_running_proxy_finds_planted_differences_and_keeps_samples_without_secrets() {
    let (old, new) =
        (serve(|asked| planted(false, &asked.target)), serve(|asked| planted(true, &asked.target)));
    let expected = [
        ("/header", "header", "header x-a"),
        ("/order", "header", "order"),
        ("/cookie-attribute", "header", "cookie a; secure"),
        ("/json", "body", "json $.user.name"),
        ("/late-byte", "body", "body"),
        ("/compression", "header", "header content-encoding"),
        ("/compressed-body", "body", "body"),
        ("/encoding", "body", "body"),
        ("/status", "status", "status"),
        ("/gone", "status", "status"),
    ];
    let same = ["/same-json", "/same-list", "/other?token=verysecret"];
    let routes: String = expected
        .iter()
        .map(|(target, ..)| *target)
        .chain(same)
        .map(|target| format!("route \"{}\" {{ proxy \"new\" }}\n", target.split('?').next().unwrap()))
        .collect();
    let files = Files::new("running");
    let site = format!(
        "site \"*\" {{\ncompare upstream=\"old\" mode=\"shadow\" share=\"100%\" order=#true\n{routes}}}\n"
    );
    let proxy =
        Running::start(&files, &format!("{}compare-samples \"samples\"\n{site}", upstreams(&old, &new)));
    for (target, ..) in expected {
        assert!(proxy.get(&format!("{target}?token=verysecret")).starts_with("HTTP/1.1 "));
    }
    same.iter().for_each(|target| assert!(proxy.get(target).starts_with("HTTP/1.1 200")));
    let report = report(&files, 13);
    assert_eq!(
        (report["compared"].as_u64(), report["different"].as_u64()),
        (Some(13), Some(10)),
        "{report:#}"
    );
    for (target, class, part) in expected {
        let route =
            report["routes"].as_array().unwrap().iter().find(|route| route["route"] == format!("* {target}"));
        let route = route.unwrap();
        assert_eq!(
            (&route["classes"][class], &route["parts"][0]["part"]),
            (&1.into(), &part.into()),
            "{route:#}"
        );
        let id = route["parts"][0]["sample"].as_str().unwrap();
        let sample = files.run(&["compare", "show", id, "-c", "foregate.kdl"]);
        let shown = text(&sample.stdout);
        assert!(shown.contains(target) && shown.contains("Cookie: hash:"), "{shown}");
        assert!(!shown.contains("verysecret") && !shown.contains("anna"), "{shown}");
    }
    for file in std::fs::read_dir(files.0.join("samples")).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let screen = text(&files.run(&["compare", "report", "-c", "foregate.kdl"]).stdout);
    assert!(screen.lines().count() <= 40 && screen.starts_with("13 compared, 10 different"), "{screen}");
    assert_eq!(files.run(&["compare", "ignore", "x-a", "-c", "foregate.kdl"]).status.code(), Some(0));
    let report = json(&files.run(&["compare", "report", "-c", "foregate.kdl", "--json"]));
    assert_eq!(report["different"], 9);
    let output = files.run(&["compare", "show", "123", "-c", "foregate.kdl"]);
    assert!(
        output.status.code() == Some(1) && text(&output.stderr).contains("there is no sample 123"),
        "{output:?}"
    );
}

#[test]
fn a_running_proxy_learns_the_noise_of_the_old_one_and_waits_for_none() {
    let count = Arc::new(AtomicU64::new(1));
    let system = |delay: u64| {
        let count = Arc::clone(&count);
        serve(move |asked| {
            std::thread::sleep(Duration::from_millis(delay));
            let id = count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hex = format!("{id:016x}");
            let fields = [
                ("X-Request-Id", &*hex),
                ("ETag", &*hex),
                ("X-Node", if id.is_multiple_of(3) { "a" } else { "b" }),
            ];
            response(200, &fields, format!(r#"{{"path":"{}","id":"{hex}"}}"#, asked.target).as_bytes())
        })
    };
    let (slow, new) = (system(100), system(0));
    let files = Files::new("noise");
    let site = "site \"*\" { route \"/**\" { proxy \"new\"; compare upstream=\"old\" } }\n";
    let proxy =
        Running::start(&files, &format!("{}compare-samples \"samples\"\n{site}", upstreams(&slow, &new)));
    let began = Instant::now();
    for _ in 0..100 {
        assert!(proxy.get("/a").starts_with("HTTP/1.1 200"));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "clients wait: {:?}", began.elapsed());
    let report = report(&files, 100);
    assert_eq!(
        (report["compared"].as_u64(), report["different"].as_u64()),
        (Some(100), Some(0)),
        "{report:#}"
    );
    assert!(report["routes"][0]["learned"].as_u64() >= Some(20), "{report:#}");
}

#[test]
fn samples_that_cannot_be_written_pause_comparisons_alone() {
    let (old, new) =
        (serve(|asked| planted(false, &asked.target)), serve(|asked| planted(true, &asked.target)));
    let files = Files::new("full");
    files.write("samples", "no folder");
    let site = "site \"*\" { route \"/**\" { proxy \"new\"; compare upstream=\"old\" } }\n";
    let proxy =
        Running::start(&files, &format!("{}compare-samples \"samples\"\n{site}", upstreams(&old, &new)));
    assert!(proxy.get("/header").contains("X-A: 2"));
    assert_eq!(report(&files, 1)["different"], 1);
    assert!(proxy.get("/header").contains("X-A: 2"));
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let report = report(&files, 1);
        let reasons = report["routes"][0]["not_compared"].to_string();
        if reasons.contains("samples cannot be written") {
            break;
        }
        assert!(Instant::now() < until, "{report:#}");
    }
}
