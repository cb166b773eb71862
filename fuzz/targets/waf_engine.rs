//! Invariants of the firewall's engine for any request. The bodies of fuzz targets, also run over their
//! corpora by `cargo test`.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use foregate_waf::engine::{Compile, Engine, Options, Report, Transaction, TransactionLimits};
use foregate_waf::model::EngineMode;
use foregate_waf::seclang::{NoFiles, Source, load};
use foregate_waf::transform::Transformation;

/// A rule for each operator, among them some that depend on each other.
const RULES: &str = r#"
SecRequestBodyAccess On
SecResponseBodyAccess On
SecAuditEngine On
SecAuditLogParts ABCEFHIJKZ
SecRule REQUEST_HEADERS:Content-Type "@contains json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRule REQUEST_HEADERS:Content-Type "@contains xml" "id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:X-Off "@streq rule" "id:3,phase:1,pass,nolog,ctl:ruleRemoveById=40"
SecRule REQUEST_HEADERS:X-Off "@streq target" "id:4,phase:1,pass,nolog,ctl:ruleRemoveTargetById=50;ARGS:a"
SecRule REQUEST_HEADERS:X-Off "@streq body" "id:5,phase:1,pass,nolog,ctl:forceRequestBodyVariable=On"
SecRule REQUEST_HEADERS:X-Off "@streq all" "id:6,phase:1,allow,nolog"
SecRule REQUEST_HEADERS:X-Off "@streq engine" "id:7,phase:1,pass,nolog,ctl:ruleEngine=DetectionOnly"
SecAction "id:10,phase:1,pass,nolog,setvar:tx.level=1,setvar:tx.score=0"
SecRule ARGS|ARGS_NAMES|XML:/* "@detectSQLi" "id:11,phase:2,pass,log,capture,setvar:tx.score=+1,msg:'%{TX.0}'"
SecRule ARGS|REQUEST_COOKIES|XML://@* "@detectXSS" "id:12,phase:2,pass,log,setvar:tx.score=+1"
SecRule ARGS|FILES|!ARGS:free "@pm union select passwd ../ <script" "id:13,phase:2,pass,log,capture,msg:'%{TX.0}'"
SecRule ARGS|REQUEST_HEADERS|!REQUEST_HEADERS:Cookie "@rx (?i)(\w+)\s*=\s*(\w+)" "id:14,phase:2,pass,log,capture,chain"
    SecRule TX:1 "@streq %{TX.2}" "setvar:'tx.same_%{MATCHED_VAR_NAME}=%{TX.1}'"
SecRule TX:/^same_/ "@within abc def %{REQUEST_METHOD}" "id:15,phase:2,pass,log"
SecRule REQUEST_URI "!@beginsWith /" "id:16,phase:1,pass,log"
SecRule REQUEST_BASENAME "@endsWith .php" "id:17,phase:1,pass,log"
SecRule ARGS "@containsWord select" "id:18,phase:2,pass,log,t:lowercase"
SecRule ARGS "@strmatch attack" "id:19,phase:2,pass,log,multiMatch,t:urlDecode,t:lowercase"
SecRule ARGS "@validateByteRange 32-126" "id:20,phase:2,pass,log"
SecRule REQUEST_URI_RAW "@validateUrlEncoding" "id:21,phase:1,pass,log"
SecRule ARGS|REQUEST_FILENAME "@validateUtf8Encoding" "id:22,phase:2,pass,log"
SecRule REMOTE_ADDR "@ipMatch 192.0.2.0/24,2001:db8::/32" "id:23,phase:1,pass,log"
SecRule ARGS "@verifyCC \d{13,16}" "id:24,phase:2,pass,log"
SecRule ARGS "@rxGlobal ([a-z])\d" "id:25,phase:2,pass,log,capture,msg:'%{TX.1}%{TX.3}'"
SecRule ARGS:n "@gt 5" "id:26,phase:2,pass,nolog,skip:1"
SecRule ARGS:n "@le 5" "id:27,phase:2,pass,log"
SecRule &ARGS "@ge 3" "id:28,phase:2,pass,log"
SecRule MULTIPART_PART_HEADERS|MULTIPART_STRICT_ERROR "@rx form-data|1" "id:29,phase:2,pass,log"
SecRule TX:level "@lt 2" "id:40,phase:2,pass,nolog,skipAfter:HIGH"
SecRule ARGS "@rx a+b" "id:41,phase:2,pass,log"
SecMarker HIGH
SecRule ARGS|REQUEST_BODY "@contains a" "id:50,phase:2,pass,log"
SecRule RESPONSE_BODY "@rx (?i)warning: \w+" "id:51,phase:4,pass,log"
SecRule TX:score "@ge 2" "id:60,phase:2,deny,status:403,log,msg:'%{tx.score}'"
SecRule REQUEST_COOKIES|MATCHED_VAR "!@rx ^[^;]*$" "id:61,phase:5,pass,log"
"#;

/// No limit: the place at which one is reached depends on the prefilter.
const WORK: u64 = u64::MAX;

fn engine(prefilter: bool) -> Arc<Engine> {
    let mut rules = RULES.to_owned();
    for (at, (name, _)) in Transformation::ALL.iter().enumerate() {
        let (one, two) = (1_000 + at, 2_000 + at);
        rules.push_str(&format!(
            "SecRule ARGS|ARGS_NAMES|REQUEST_COOKIES|REQUEST_HEADERS \"@rx union.{{1,8}}select|<script|/etc/|\\x5c0|[0-9a-f]{{32}}\" \
             \"id:{one},phase:2,pass,log,t:none,t:{name}\"\n\
             SecRule ARGS|REQUEST_URI \"@pm union 4 passwd %25 AAAA <svg\" \
             \"id:{two},phase:2,pass,log,t:none,t:urlDecodeUni,t:{name},t:lowercase\"\n"
        ));
    }
    let set = load(&[Source::text("rules.conf", rules)], &mut NoFiles).expect("these rules are right");
    let limits = TransactionLimits { work: WORK, ..TransactionLimits::default() };
    Arc::new(
        Engine::compile(set, Compile { prefilter, limits, ..Compile::default() })
            .expect("and can be compiled"),
    )
}

static ENGINES: LazyLock<[Arc<Engine>; 2]> = LazyLock::new(|| [engine(true), engine(false)]);

/// The prefilter does not change the report, and no log line can be broken out of; in detection,
/// the hypothetical verdict is reported.
pub(crate) fn waf_engine(data: &[u8]) {
    differential(&ENGINES, data);
    let report = |mode| run(&ENGINES[0], data, Some(mode));
    let (stops, tells) = (report(EngineMode::On), report(EngineMode::DetectionOnly));
    // Of a limit and a rule behind it, the rule is told of.
    match stops.over {
        Some(_) => assert_eq!(stops.verdict.passes(), tells.would.passes()),
        None => assert_eq!(stops.verdict, tells.would),
    }
}

/// The same invariants for any rules: they come before a line `#request`.
pub(crate) fn waf_rules(data: &[u8]) {
    const MARK: &[u8] = b"\n#request\n";
    let Some(at) = data.windows(MARK.len()).position(|window| window == MARK) else { return };
    let Ok(rules) = std::str::from_utf8(&data[..at]) else { return };
    let engine = |prefilter| {
        let set = load(&[Source::text("rules.conf", rules)], &mut NoFiles).ok()?;
        let limits = TransactionLimits { work: WORK, ..TransactionLimits::default() };
        Engine::compile(set, Compile { prefilter, limits, ..Compile::default() }).ok().map(Arc::new)
    };
    match [engine(true), engine(false)] {
        [Some(with), Some(without)] => differential(&[with, without], &data[at + MARK.len()..]),
        [with, without] => assert_eq!(with.is_some(), without.is_some()),
    }
}

fn differential([with, without]: &[Arc<Engine>; 2], data: &[u8]) {
    let (mut one, mut other) = (run(with, data, None), run(without, data, None));
    assert!(one.looks <= other.looks, "{} looks instead of {}", one.looks, other.looks);
    for line in one.lines() {
        assert!(line.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{line:?}");
        // A limit that is exceeded is no rule, and neither is a body that cannot be read.
        let is_limit = line.split_once(". ").is_some_and(|(_, rest)| {
            rest.starts_with("Over the budget") || rest.starts_with("Rules cannot read")
        });
        assert_eq!(line.matches(" [id \"").count(), usize::from(!is_limit), "{line}");
    }
    if let Some(record) = &one.audit {
        assert!(!record.contains('\n'));
        serde_json::from_str::<serde_json::Value>(record).expect("a record is JSON");
    }
    for report in [&mut one, &mut other] {
        (report.looks, report.work) = (0, 0);
    }
    assert_eq!(one, other);
}

/// The input is a request with LF or CRLF after each line; its body is the response's as well.
fn run(engine: &Arc<Engine>, data: &[u8], mode: Option<EngineMode>) -> Report {
    let options = Options { unique_id: "fuzz".into(), mode, ..Options::default() };
    let mut transaction = Transaction::new(engine, options);
    let address = |last, port| SocketAddr::from(([192, 0, 2, last], port));
    transaction.connection(address(1, 40_000), address(2, 80));
    let mut rest = data;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    };
    transaction.unreadable(line());
    loop {
        let field = line();
        if field.is_empty() {
            break;
        }
        let colon = field.iter().position(|byte| *byte == b':').unwrap_or(field.len());
        transaction.request_field(&field[..colon], field.get(colon + 1..).unwrap_or_default().trim_ascii());
    }
    transaction.elapsed(Duration::from_millis(3));
    if transaction.request_headers().passes() && transaction.request_body(rest, true).passes() {
        let fields = [(&b"Content-Type"[..], &b"text/html"[..])];
        if transaction.response_headers(200, b"HTTP/1.1", fields).passes() {
            transaction.response_body(rest, true);
        }
    }
    transaction.log()
}
