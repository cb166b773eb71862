//! The regression files, run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foregate_waf::engine::{Engine, Options, Report, Transaction};
use foregate_waf::model::EngineMode;

use super::cases::{self, Input, Output, Stage};
use super::rules;

/// A request as a client sends it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub version: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The request of a stage.
    pub fn of(input: &Input) -> Self {
        if let Some(encoded) = &input.encoded_request {
            let plain: String = encoded.split_whitespace().collect();
            let plain = plain.replace("\\n", "");
            let bytes =
                foregate_waf::transform::Transformation::Base64Decode.apply(plain.as_bytes()).into_owned();
            return Self::parse(&bytes);
        }
        let text =
            |value: &Option<String>, default: &str| value.as_deref().unwrap_or(default).as_bytes().to_vec();
        let body = text(&input.data, "");
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = input
            .headers
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        if input.autocomplete_headers.unwrap_or(true) {
            let mut add = |name: &str, value: String| {
                if !fields.iter().any(|(have, _)| have.eq_ignore_ascii_case(name.as_bytes())) {
                    fields.push((name.as_bytes().to_vec(), value.into_bytes()));
                }
            };
            add("Connection", "close".into());
            if !body.is_empty() {
                add("Content-Length", body.len().to_string());
                add("Content-Type", "application/x-www-form-urlencoded".into());
            }
        }
        Self {
            method: text(&input.method, "GET"),
            target: text(&input.uri, "/"),
            version: text(&input.version, "HTTP/1.1"),
            fields,
            body,
        }
        .framed()
    }

    /// With the body that a server reads, as the fields say.
    fn framed(mut self) -> Self {
        if self.field("transfer-encoding").is_some() {
            self.body = unchunk(&self.body);
        } else {
            let length = self.field("content-length").and_then(|value| std::str::from_utf8(value).ok());
            self.body.truncate(length.and_then(|text| text.trim().parse().ok()).unwrap_or(0));
        }
        self
    }

    fn parse(bytes: &[u8]) -> Self {
        let find = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|window| window == text);
        let end = find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
        let mut lines = bytes[..end].split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end());
        let line = lines.next().unwrap_or_default();
        let mut parts = line.splitn(3, |byte| *byte == b' ').map(<[u8]>::to_vec);
        let mut next = || parts.next().unwrap_or_default();
        let mut request = Self { method: next(), target: next(), version: next(), ..Self::default() };
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
            request.fields.push((line[..colon].to_vec(), value.to_vec()));
        }
        request.body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        request.framed()
    }

    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(have, _)| have.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| &**value)
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size =
            std::str::from_utf8(&bytes[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        body.extend_from_slice(bytes.get(end + 2..end + 2 + size).unwrap_or_default());
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    body
}

/// The origin's response: the body of a request to `/reflect` describes it.
fn answer(request: &Request) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let plain = (200, vec![("Content-Type".to_owned(), "text/plain".to_owned())], Vec::new());
    if !request.target.starts_with(b"/reflect") {
        return plain;
    }
    let Ok(wanted) = serde_json::from_slice::<serde_json::Value>(&request.body) else { return plain };
    let status = wanted["status"].as_u64().unwrap_or(200) as u16;
    let mut fields: Vec<(String, String)> = wanted["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        fields.push(("Content-Type".to_owned(), "text/plain".to_owned()));
    }
    let body = match wanted["encodedBody"].as_str() {
        Some(text) => {
            foregate_waf::transform::Transformation::Base64Decode.apply(text.as_bytes()).into_owned()
        }
        None => wanted["body"].as_str().unwrap_or_default().as_bytes().to_vec(),
    };
    (status, fields, body)
}

/// Runs a request and the origin's answer.
pub fn run(engine: &Arc<Engine>, request: &Request) -> Report {
    run_in(engine, request, None)
}

/// Runs a request in a mode that overrides the rules.
fn run_in(engine: &Arc<Engine>, request: &Request, mode: Option<EngineMode>) -> Report {
    let options = Options {
        unique_id: "a1b2c3".into(),
        started: Duration::from_secs(1_700_000_000),
        mode,
        ..Options::default()
    };
    let mut transaction = Transaction::new(engine, options);
    let address = |port| SocketAddr::from(([127, 0, 0, 2], port));
    transaction.connection(address(50_000), address(80));
    if request.version.is_empty() {
        transaction.unreadable(&[&request.method[..], b" ", &request.target].concat());
    } else {
        transaction.request_line(&request.method, &request.target, &request.version);
    }
    for (name, value) in &request.fields {
        transaction.request_field(name, value);
    }
    let mut verdict = transaction.request_headers();
    if verdict.passes() {
        verdict = transaction.request_body(&request.body, true);
    }
    if verdict.passes() {
        let (status, fields, body) = answer(request);
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        verdict = transaction.response_headers(status, b"HTTP/1.1", fields);
        if verdict.passes() && transaction.response_body_limit().is_some() {
            transaction.response_body(&body, true);
        }
    }
    transaction.log()
}

/// The differences between the outcome of a stage and the expected one.
fn wrong(report: &Report, output: &Output) -> Vec<String> {
    let ids: Vec<u64> = report.matches.iter().filter(|found| found.log).map(|found| found.rule).collect();
    let lines: Vec<String> = report.lines().collect();
    let mut wrong = Vec::new();
    let log = &output.log;
    wrong
        .extend(log.expect_ids.iter().filter(|id| !ids.contains(id)).map(|id| format!("{id} did not match")));
    wrong.extend(log.no_expect_ids.iter().filter(|id| ids.contains(id)).map(|id| format!("{id} matched")));
    let matches = |pattern: &str| {
        let pattern = regex::bytes::RegexBuilder::new(pattern.trim()).unicode(false).build().unwrap();
        lines.iter().any(|line| pattern.is_match(line.as_bytes()))
    };
    if let Some(pattern) = &log.match_regex
        && !matches(pattern)
    {
        wrong.push(format!("no line has {pattern}"));
    }
    if let Some(pattern) = &log.no_match_regex
        && matches(pattern)
    {
        wrong.push(format!("a line has {pattern}"));
    }
    wrong
}

/// Returns true if a stage expects something in the log, and not only a refusal by the server itself.
fn is_about_rules(stage: &Stage) -> bool {
    let log = &stage.output.log;
    !log.expect_ids.is_empty()
        || !log.no_expect_ids.is_empty()
        || log.match_regex.is_some()
        || log.no_match_regex.is_some()
}

/// Stages that a server decides before rules run.
const BEFORE_RULES: &[(u64, u32, &str)] = &[
    (
        920_181,
        1,
        "expects a server that leaves out Content-Length beside Transfer-Encoding; this one is refused",
    ),
    (920_620, 1, "expects a server that joins two fields of one name; rules see both here"),
    (921_140, 1, "a carriage return within a field is refused"),
];

#[test]
fn regression_files() {
    let Some(folder) = rules::folder() else { return };
    let engine = rules::for_tests(&folder, 4, true);
    let (mut passed, mut failed, mut silent) = (0, Vec::new(), 0);
    for file in cases::read(&folder) {
        for test in &file.tests {
            for (number, stage) in test.stages.iter().enumerate() {
                let before =
                    BEFORE_RULES.iter().any(|(rule, id, _)| (*rule, *id) == (file.rule_id, test.test_id));
                if before || !is_about_rules(stage) {
                    silent += 1;
                    continue;
                }
                let report = run(&engine, &Request::of(&stage.input));
                let wrong = wrong(&report, &stage.output);
                if wrong.is_empty() {
                    passed += 1;
                } else {
                    let place = format!("{}-{} stage {}", file.rule_id, test.test_id, number + 1);
                    failed.push(format!("{place}: {}", wrong.join(", ")));
                }
            }
        }
    }
    println!("{passed} stages as expected, {} not, {silent} are not about rules", failed.len());
    failed.iter().for_each(|line| println!("  {line}"));
    assert!(failed.is_empty(), "{} stages are not as expected", failed.len());
}

/// The report without the costs.
pub fn outcome(mut report: Report) -> Report {
    report.looks = 0;
    report.work = 0;
    report
}

/// The results with and without the prefilter are equal, for every request of the regression files, at the lowest and the highest
/// paranoia.
#[test]
fn prefilter_changes_nothing() {
    let Some(folder) = rules::folder() else { return };
    let files = cases::read(&folder);
    for paranoia in [1, 4] {
        let with = rules::for_tests(&folder, paranoia, true);
        let without = rules::for_tests(&folder, paranoia, false);
        let (mut looks_with, mut looks_without) = (0, 0);
        for file in &files {
            for stage in file.tests.iter().flat_map(|test| &test.stages) {
                let request = Request::of(&stage.input);
                let (one, other) = (run(&with, &request), run(&without, &request));
                looks_with += one.looks;
                looks_without += other.looks;
                assert_eq!(outcome(one), outcome(other), "{} at paranoia {paranoia}", file.rule_id);
            }
        }
        println!("paranoia {paranoia}: {looks_with} looks at values instead of {looks_without}");
    }
}

/// The hypothetical verdict equals the real one, for every request of the regression files, at the lowest and the highest paranoia.
#[test]
fn detection_tells_what_blocking_does() {
    let Some(folder) = rules::folder() else { return };
    let files = cases::read(&folder);
    let mut stopped = 0;
    for paranoia in [1, 4] {
        let engine = rules::for_site(&folder, paranoia);
        for file in &files {
            for stage in file.tests.iter().flat_map(|test| &test.stages) {
                let request = Request::of(&stage.input);
                let blocked = run_in(&engine, &request, Some(EngineMode::On)).verdict;
                let would = run_in(&engine, &request, Some(EngineMode::DetectionOnly)).would;
                stopped += usize::from(!blocked.passes());
                assert_eq!(blocked, would, "{} at paranoia {paranoia}", file.rule_id);
            }
        }
    }
    assert!(stopped > 1_000, "{stopped}");
}

/// An archive of the largest size that is sent as it is takes a part of the budget.
#[test]
fn long_uploads_are_within_the_budget() {
    let Some(folder) = rules::folder() else { return };
    let engine = rules::for_site(&folder, 1);
    let mut seed = 1_u32;
    let next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let body: Vec<u8> = std::iter::repeat_with(next).take(12 << 20).collect();
    for kind in ["application/octet-stream", "application/zip"] {
        let mut transaction = Transaction::new(&engine, Options::default());
        transaction.request_line(b"PUT", b"/a", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        transaction.request_body(&body, true);
        assert_eq!(transaction.over(), None, "{kind}");
        assert!(transaction.work() < 32 << 20, "{} for {kind}", transaction.work());
    }
}

/// Bodies and heads of the largest size, encoded in every way that transformations undo, have room for all that the
/// rules make of them.
#[test]
fn bodies_have_room_for_their_transformations() {
    let Some(folder) = rules::folder() else { return };
    let engine = rules::for_tests(&folder, 4, true);
    let pieces = [
        "Ab%2541%u0042+/*x*/%20",
        "\\u0041\\x42 %26lt%3B&#65;Aé",
        "%C3%A9%E4%BD%A0+'%22A../a//b\\\\c^",
        "%00%0A%09A^\"'\\\\,;%20%20//./x",
        "éÄ",
    ];
    for piece in pieces {
        let value = piece.replace('&', "%26").repeat((128 << 10) / piece.len() / 100 - 8);
        let fields: Vec<String> = (0..100).map(|number| format!("Field{number}={value}")).collect();
        let form = fields.join("&");
        let whole = format!("a={}", piece.replace('&', "%26").repeat((120 << 10) / piece.len()));
        for (body, kind) in [
            (form.as_str(), "application/x-www-form-urlencoded"),
            (whole.as_str(), "application/x-www-form-urlencoded"),
        ] {
            let mut transaction = Transaction::new(&engine, Options::default());
            transaction.request_line(b"POST", b"/a", b"HTTP/1.1");
            transaction.request_field(b"Content-Type", kind.as_bytes());
            transaction.request_headers();
            let before = transaction.text();
            transaction.request_body(body.as_bytes(), true);
            let made = transaction.text() - before;
            assert!(
                made < 24 * body.len() && transaction.over().is_none(),
                "{made} of {} with {piece}",
                body.len()
            );
        }
        let mut transaction = Transaction::new(&engine, Options::default());
        transaction.request_line(b"GET", format!("/?{}", &form[..form.len() / 4]).as_bytes(), b"HTTP/1.1");
        transaction.request_field(b"Referer", &form.as_bytes()[..form.len() / 8]);
        transaction.request_field(b"Cookie", &form.as_bytes()[..form.len() / 8]);
        transaction.request_headers();
        transaction.request_body(b"", true);
        assert!(transaction.text() < (2 << 20) && transaction.over().is_none(), "{piece}");
    }
}
