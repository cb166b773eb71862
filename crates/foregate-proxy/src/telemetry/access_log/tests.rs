//! Lines and their writing.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, UNIX_EPOCH};

use super::*;
use crate::counters::metrics::Counter;
use crate::settings::{self, LineFormat, LogTarget, TemplatePart};
use crate::telemetry::log_file::LogFiles;

fn opened(files: &LogFiles, path: &std::path::Path, dropped: &Arc<Counter>) -> AccessLog {
    let file = files.open(&LogTarget::file(path), dropped).unwrap();
    AccessLog::new(settings::AccessLogSettings::json(path.to_owned()), file)
}

fn entry() -> LogEntry<'static> {
    LogEntry {
        time: UNIX_EPOCH + Duration::from_millis(1_795_246_119_007),
        client: Some([192, 0, 2, 1].into()),
        method: b"GET",
        scheme: "https",
        host: b"a.example",
        path: b"/",
        protocol: "HTTP/1.1",
        status: Some(200),
        bytes_in: 0,
        bytes_out: 1024,
        duration: Duration::from_micros(150),
        site: None,
        route: None,
        action: Some("proxy"),
        upstream: None,
        server: None,
        attempts: 0,
        upstream_first_byte: None,
        upstream_reused: None,
        cache: None,
        cache_reason: None,
        fallback: None,
        error: None,
        error_side: None,
        ended_by: None,
        tls: None,
        user_agent: None,
        referer: None,
        notes: &[],
    }
}

/// With everything that a proxied request has.
fn full() -> LogEntry<'static> {
    LogEntry {
        site: Some("a.example"),
        route: Some("/api/**"),
        upstream: Some("app"),
        server: Some("127.0.0.1:3000"),
        attempts: 1,
        upstream_first_byte: Some(Duration::from_micros(120)),
        upstream_reused: Some(true),
        tls: Some("TLSv1.3"),
        user_agent: Some(b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
        referer: Some(b"https://a.example/somewhere/else?with=query"),
        notes: &[],
        cache: Some("miss"),
        cache_reason: Some("private"),
        fallback: Some("share"),
        error: Some("timeout"),
        error_side: Some("upstream"),
        ended_by: Some("client"),
        path: b"/api/v1/things/12345?expand=all&page=2",
        ..entry()
    }
}

fn formatted(entry: &LogEntry<'_>) -> String {
    let mut line = Vec::new();
    format::line(&mut line, entry);
    String::from_utf8(line).unwrap()
}

#[test]
fn notes_of_one_name_are_one_member() {
    let told = |notes: &[(&'static str, &'static str)]| {
        let notes: Vec<_> = notes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let line = formatted(&LogEntry { notes: &notes, ..entry() });
        line.split_once(",\"notes\":").map(|(_, notes)| notes.trim_end().to_owned())
    };
    assert_eq!(told(&[]), None);
    assert_eq!(told(&[("a", "1")]).as_deref(), Some(r#"{"a":"1"}}"#));
    let several = [("a", "1"), ("b", "2"), ("a", "\""), ("b", "2"), ("a", "1"), ("a", "3")];
    assert_eq!(told(&several).as_deref(), Some(r#"{"a":["1","\"","3"],"b":"2"}}"#));
}

struct Path(PathBuf);

impl Path {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("foregate-log-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn lines(&self) -> usize {
        fs::read_to_string(&self.0).unwrap().lines().count()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_line_has_what_is_known() {
    assert_eq!(
        formatted(&entry()),
        "{\"time\":\"2026-11-21T07:28:39.007Z\",\"client\":\"192.0.2.1\",\"method\":\"GET\",\
         \"scheme\":\"https\",\"host\":\"a.example\",\"path\":\"/\",\"protocol\":\"HTTP/1.1\",\"status\":200,\
         \"bytes_in\":0,\"bytes_out\":1024,\"duration_us\":150,\"action\":\"proxy\"}\n"
    );
    assert_eq!(
        formatted(&full()),
        "{\"time\":\"2026-11-21T07:28:39.007Z\",\"client\":\"192.0.2.1\",\"method\":\"GET\",\
         \"scheme\":\"https\",\"host\":\"a.example\",\"path\":\"/api/v1/things/12345?expand=all&page=2\",\
         \"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes_in\":0,\"bytes_out\":1024,\"duration_us\":150,\
         \"site\":\"a.example\",\"route\":\"/api/**\",\"action\":\"proxy\",\"upstream\":\"app\",\"server\":\"127.0.0.1:3000\",\
         \"attempts\":1,\"upstream_first_byte_us\":120,\"upstream_reused\":true,\"cache\":\"miss\",\"cache_reason\":\"private\",\"fallback\":\"share\",\"error\":\"timeout\",\
         \"error_side\":\"upstream\",\"ended_by\":\"client\",\"tls\":\"TLSv1.3\",\
         \"user_agent\":\"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\",\
         \"referer\":\"https://a.example/somewhere/else?with=query\"}\n"
    );
}

#[test]
fn any_byte_can_be_logged() {
    let path = |path: &[u8]| {
        let line = formatted(&LogEntry { path, ..entry() });
        let start = line.find("\"path\":\"").unwrap() + 8;
        line[start..line.find("\",\"protocol\"").unwrap()].to_owned()
    };
    assert_eq!(path(b"a\"b\\c\n\r\t\0\x1f\x7f"), "a\\\"b\\\\c\\n\\r\\t\\u0000\\u001f\\u007f");
    assert_eq!(path("gr\u{fc}n \u{1f980}".as_bytes()), "gr\u{fc}n \u{1f980}");
    assert_eq!(path(b"\xff\xc3(\xe2\x82"), "\\u00ff\\u00c3(\\u00e2\\u0082");
    assert_eq!(path(&[b'a'; 100_000]).len(), 16 * 1024);
    for byte in 0..=255u8 {
        let line = formatted(&LogEntry { user_agent: Some(&[byte, b'x']), ..entry() });
        assert_eq!(line.lines().count(), 1);
        assert!(line.bytes().all(|byte| byte == b'\n' || byte >= 0x20));
    }
}

#[test]
fn what_is_written_of_a_value_is_bounded() {
    let value = |line: &str, name: &str| {
        let (_, value) = line.split_once(&format!("\"{name}\":\"")).unwrap();
        value[..value.find(['"', '}']).unwrap()].to_owned()
    };
    for (one, written, length) in [
        (&b"a"[..], "a", 2048),
        (b"\xff", "\\u00ff", 2046),
        (b"\0", "\\u0000", 2046),
        (b"\t", "\\t", 2048),
        ("\u{1f980}".as_bytes(), "\u{1f980}", 2048),
        ("\u{20ac}".as_bytes(), "\u{20ac}", 2046),
    ] {
        let long = one.repeat(20_000);
        let line =
            formatted(&LogEntry { path: &long, user_agent: Some(&long), referer: Some(&long), ..entry() });
        for name in ["user_agent", "referer"] {
            assert_eq!(value(&line, name), written.repeat(length / written.len()), "{name}");
        }
        let path = value(&line, "path");
        assert_eq!(path, written.repeat(16 * 1024 / written.len()));
        assert!(line.ends_with("\"}\n"));
    }
    // The text before the cut may be of any length.
    for before in 0..7 {
        let long = ["a".repeat(2040 + before).as_bytes(), &b"\xff\"\\\xe2\x82\xac".repeat(9)].concat();
        let line = formatted(&LogEntry { user_agent: Some(&long), ..entry() });
        let (_, rest) = line.split_once("\"user_agent\":\"").unwrap();
        let written = rest.strip_suffix("\"}\n").unwrap();
        let cut = ["a".repeat(2040 + before), "\\u00ff\\\"\\\\\u{20ac}".repeat(9)].concat();
        assert!(cut.starts_with(written) && (2043..=2048).contains(&written.len()), "{written}");
        assert!(!written.ends_with('\\') || written.ends_with("\\\\"), "{written}");
    }
}

#[test]
fn times_and_addresses_are_in_their_usual_form() {
    let time = |seconds: u64| {
        formatted(&LogEntry { time: UNIX_EPOCH + Duration::from_secs(seconds), ..entry() })[9..28].to_owned()
    };
    assert_eq!(time(0), "1970-01-01T00:00:00");
    assert_eq!(time(951_782_399), "2000-02-28T23:59:59");
    assert_eq!(time(951_782_400), "2000-02-29T00:00:00");
    assert_eq!(time(951_868_800), "2000-03-01T00:00:00");
    assert_eq!(time(1_735_689_599), "2024-12-31T23:59:59");
    assert_eq!(time(4_107_542_400), "2100-03-01T00:00:00");
    let line = formatted(&LogEntry { client: Some("2001:db8::1".parse().unwrap()), ..entry() });
    assert!(line.contains("\"client\":\"2001:db8::1\""));
    let line = formatted(&LogEntry { client: Some("::ffff:10.20.30.255".parse().unwrap()), ..entry() });
    assert!(line.contains("\"client\":\"10.20.30.255\""));
}

#[test]
fn lines_of_all_threads_reach_the_file() {
    let files = LogFiles::default();
    let file = Path::new();
    let dropped = Arc::new(Counter::default());
    let log = opened(&files, file.0.as_ref(), &dropped);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| log.record(&full(), &[])));
        }
    });
    assert!(files.flush(Duration::from_secs(5)));
    assert_eq!((file.lines(), dropped.get()), (2000, 0));
    log.record(&entry(), &[]);
    let patience = Instant::now() + Duration::from_secs(5);
    while file.lines() < 2001 {
        assert!(Instant::now() < patience, "a lone line is not written by itself");
        std::thread::yield_now();
    }
    log.record(&entry(), &[]);
    drop(log);
    while file.lines() < 2002 {
        assert!(Instant::now() < patience, "the last line is not written at the end");
        std::thread::yield_now();
    }
}

#[test]
fn a_rotated_file_is_left_and_a_new_one_begun() {
    let files = LogFiles::default();
    let (file, old) = (Path::new(), Path::new());
    let log = opened(&files, file.0.as_ref(), &Arc::default());
    log.record(&entry(), &[]);
    fs::rename(
        {
            files.flush(Duration::from_secs(5));
            &file.0
        },
        &old.0,
    )
    .unwrap();
    log.record(&entry(), &[]);
    files.reopen();
    let patience = Instant::now() + Duration::from_secs(5);
    while !file.0.exists() {
        assert!(Instant::now() < patience, "no new file");
        std::thread::yield_now();
    }
    log.record(&entry(), &[]);
    assert!(files.flush(Duration::from_secs(5)));
    assert_eq!((old.lines(), file.lines()), (2, 1));
}

#[test]
fn what_cannot_be_written_is_counted() {
    let files = LogFiles::default();
    let dropped = Arc::new(Counter::default());
    let log = opened(&files, "/dev/full".as_ref(), &dropped);
    (0..10).for_each(|_| log.record(&entry(), &[]));
    assert!(files.flush(Duration::from_secs(5)));
    assert_eq!(dropped.get(), 10);
    assert!(files.open(&LogTarget::file("/nonexistent/log".as_ref()), &dropped).is_err());
}

#[test]
fn a_backlog_has_an_end() {
    let files = LogFiles::default();
    // A pipe without a reader stops the writer.
    let pipe = Path::new();
    assert!(std::process::Command::new("mkfifo").arg(&pipe.0).status().unwrap().success());
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe.0).unwrap();
    let dropped = Arc::new(Counter::default());
    let log = opened(&files, pipe.0.as_ref(), &dropped);
    let length = formatted(&full()).len();
    let fits = crate::telemetry::log_file::BACKLOG_LIMIT / length;
    (0..2 * fits).for_each(|_| log.record(&full(), &[]));
    let lost = usize::try_from(dropped.get()).unwrap();
    assert!((fits / 2..=fits + 2).contains(&lost), "{lost} of {} lost", 2 * fits);
    assert!(!files.flush(Duration::from_millis(10)));
    drop(reader);
}

/// `cargo test --release -p foregate-proxy --lib -- --ignored --nocapture cost_of_a_line`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_line() {
    const LINES: u32 = 2_000_000;
    let files = LogFiles::default();
    let log = opened(&files, "/dev/null".as_ref(), &Arc::default());
    let start = Instant::now();
    (0..LINES).for_each(|_| log.record(std::hint::black_box(&full()), &[]));
    let nanos = start.elapsed().as_nanos() as f64 / f64::from(LINES);
    println!("{} bytes a line: {nanos:.0} ns", formatted(&full()).len());
}

#[test]
fn a_file_is_open_once_and_for_as_long_as_somebody_writes_to_it() {
    let files = LogFiles::default();
    let (file, moved, dropped) = (Path::new(), Path::new(), Arc::default());
    let first = opened(&files, file.0.as_ref(), &dropped);
    let second = opened(&files, file.0.as_ref(), &dropped);
    fs::rename(&file.0, &moved.0).unwrap();
    second.record(&entry(), &[]);
    drop(second);
    first.record(&entry(), &[]);
    assert!(files.flush(Duration::from_secs(5)));
    assert!(!file.0.exists(), "it was not opened a second time");
    assert_eq!(moved.lines(), 2);
    // No handle is left, but pending lines have to be written.
    first.record(&entry(), &[]);
    drop(first);
    assert!(files.flush(Duration::from_secs(5)));
    assert_eq!(moved.lines(), 3);
}

#[test]
fn other_formats_escape_like_nginx() {
    let mut entry = entry();
    entry.path = b"/a\"b\n127.0.0.1 - \\ \xff";
    entry.user_agent = Some(b"x\" 200\r\n");
    let line = |format: LineFormat, added: &[Option<Vec<u8>>]| {
        let mut log = settings::AccessLogSettings::json("log".into());
        log.format = format;
        for number in 0..added.len() {
            log.fields.push((format!("f{number}").into(), Arc::new(Nothing)));
        }
        let mut line = Vec::new();
        layout::line(&mut line, &entry, &log, added);
        String::from_utf8(line).unwrap()
    };
    let common = r#"192.0.2.1 - - [21/Nov/2026:07:28:39 +0000] "GET /a\x22b\x0A127.0.0.1 - \x5C \xFF HTTP/1.1" 200 1024"#;
    assert_eq!(line(LineFormat::Common, &[]), format!("{common}\n"));
    assert_eq!(
        line(LineFormat::Combined, &[Some(b"a\nb".to_vec()), None]),
        format!("{common} \"-\" \"x\\x22 200\\x0D\\x0A\" \"a\\x0Ab\" \"-\"\n")
    );
    let parts = vec![
        TemplatePart::Known(7),
        TemplatePart::Text(" of ".into()),
        TemplatePart::Known(5),
        TemplatePart::Added(0),
        TemplatePart::Known(11),
    ];
    assert_eq!(
        line(LineFormat::Template(parts), &[Some(b"\n".to_vec())]),
        "200 of /a\\x22b\\x0A127.0.0.1 - \\x5C \\xFF\\x0A-\n"
    );
    let object = line(LineFormat::JsonOf(vec![1, 7, 0]), &[Some(b"a\n\"".to_vec()), None]);
    assert_eq!(
        object,
        "{\"client\":\"192.0.2.1\",\"status\":200,\"time\":\"2026-11-21T07:28:39.007Z\",\"f0\":\"a\\n\\\"\"}\n"
    );
    assert!(line(LineFormat::Json, &[Some(b"x".to_vec())]).ends_with(",\"f0\":\"x\"}\n"));
    assert_eq!(line(LineFormat::JsonOf(vec![11]), &[]), "{}\n");
}

#[test]
fn each_name_of_a_field_has_a_value() {
    let entry =
        LogEntry { attempts: 1, error: Some("x"), error_side: Some("x"), ended_by: Some("client"), ..full() };
    let mut log = settings::AccessLogSettings::json("log".into());
    let without_notes = settings::LOG_FIELDS.len() - 1;
    for number in 0..without_notes {
        log.format = LineFormat::JsonOf(vec![number]);
        let mut line = Vec::new();
        layout::line(&mut line, &entry, &log, &[]);
        let name = settings::LOG_FIELDS[number];
        assert!(
            line.starts_with(format!("{{\"{name}\":").as_bytes()),
            "{name}: {}",
            String::from_utf8_lossy(&line)
        );
    }
}

struct Nothing;

impl foregate_module::Expression for Nothing {
    fn evaluate<'v>(&'v self, _: &foregate_module::View<'v>) -> Option<std::borrow::Cow<'v, [u8]>> {
        None
    }
}
