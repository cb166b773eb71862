//! The behaviour of small rule sets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod actions;
mod budget;
mod corpus;
mod detect;
mod reports;
mod targets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foregate_waf::engine::{
    Compile, Engine, Options, Over, Report, Store, Transaction, TransactionLimits, Verdict,
};
use foregate_waf::seclang::{NoFiles, Source, load};

/// Rules, compiled.
pub fn engine(rules: &str) -> Arc<Engine> {
    compiled(rules, Compile::default())
}

/// Rules, compiled in a certain way.
pub fn compiled(rules: &str, options: Compile) -> Arc<Engine> {
    let set = load(&[Source::text("rules.conf", rules)], &mut NoFiles)
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    Arc::new(Engine::compile(set, options).unwrap())
}

/// A transaction over them at the beginning of 2024.
pub fn transaction(engine: &Arc<Engine>) -> Transaction {
    let started = Duration::from_secs(1_704_067_200);
    let mut transaction =
        Transaction::new(engine, Options { unique_id: "u1".into(), started, ..Options::default() });
    transaction.connection(SocketAddr::from(([192, 0, 2, 7], 4711)), SocketAddr::from(([192, 0, 2, 1], 80)));
    transaction
}

/// A GET through all phases.
pub fn get(engine: &Arc<Engine>, target: &str) -> Report {
    request(engine, target, &[])
}

/// A GET with fields through all phases.
pub fn request(engine: &Arc<Engine>, target: &str, fields: &[(&str, &str)]) -> Report {
    let mut transaction = transaction(engine);
    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
    transaction.request_field(b"Host", b"example.com");
    for (name, value) in fields {
        transaction.request_field(name.as_bytes(), value.as_bytes());
    }
    transaction.request_headers();
    transaction.request_body(b"", true);
    transaction.response_headers(200, b"HTTP/1.1", [(&b"Content-Type"[..], &b"text/html"[..])]);
    transaction.response_body(b"<p>hello</p>", true);
    transaction.log()
}

/// The rules that matched and log.
pub fn ids(report: &Report) -> Vec<u64> {
    report.matches.iter().filter(|found| found.log).map(|found| found.rule).collect()
}

/// The report's text for the last match.
pub fn message(report: &Report) -> String {
    report.matches.last().map(|found| found.message.clone()).unwrap_or_default()
}

#[test]
fn budgets_end_transactions() {
    let rules = r#"SecRule ARGS "@rx (.)(.)b" "id:1,phase:2,pass,log""#;
    let limits = TransactionLimits { work: 1_000, ..TransactionLimits::default() };
    let engine = compiled(rules, Compile { limits, ..Compile::default() });
    let report = get(&engine, &format!("/?a={}", "ab".repeat(1_000)));
    assert_eq!(report.verdict, Verdict::Deny { status: 413, rule: None });
    assert!(report.over.is_some());
    assert_eq!(get(&engine, "/?a=aab").verdict, Verdict::Pass);
}

#[test]
fn what_outlives_a_transaction() {
    let rules = r#"
        SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR}"
        SecRule REQUEST_URI "@beginsWith /login" "id:2,phase:1,pass,nolog,setvar:ip.tries=+1,expirevar:ip.tries=60"
        SecRule IP:tries "@gt 2" "id:3,phase:1,deny,status:429,log,msg:'%{ip.tries} tries'"
    "#;
    let store = Arc::new(Store::default());
    let engine = compiled(rules, Compile { store: Arc::clone(&store), ..Compile::default() });
    let verdicts: Vec<bool> = (0..4).map(|_| get(&engine, "/login").verdict.passes()).collect();
    assert_eq!(verdicts, [true, true, false, false]);
    assert_eq!(message(&get(&engine, "/other")), "4 tries");
    let later = compiled(rules, Compile { store, ..Compile::default() });
    assert!(!get(&later, "/other").verdict.passes(), "another engine knows the same");
}

/// Counters in a collection count at any size; when there is no more room, the request is over its
/// budget. Values are kept whole.
#[test]
fn what_outlives_a_transaction_is_not_left_out() {
    let rules = r#"
        SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR}"
        SecRule ARGS "@rx ." "id:2,phase:1,pass,nolog,setvar:'ip.tries_%{MATCHED_VAR}=+1',expirevar:'ip.tries_%{MATCHED_VAR}=60'"
        SecRule IP:/^tries_/ "@gt 2" "id:3,phase:1,deny,status:429,log,msg:'%{MATCHED_VAR_NAME}'"
        SecRule &IP:agent "@eq 1" "id:4,phase:1,deny,status:403,log,chain"
            SecRule REQUEST_HEADERS:User-Agent "!@streq %{ip.agent}" "t:none"
        SecRule REQUEST_HEADERS:User-Agent "@rx ." "id:5,phase:1,pass,nolog,setvar:'ip.agent=%{MATCHED_VAR}'"
    "#;
    let long = format!("bob{}", "%20".repeat(2_000));
    for name in ["bob", &*long] {
        let engine = engine(rules);
        for at in 0..300 {
            assert!(get(&engine, &format!("/?a=other{at}")).verdict.passes());
        }
        let verdicts = (0..4).map(|_| get(&engine, &format!("/?a={name}")).verdict.passes());
        assert_eq!(verdicts.collect::<Vec<_>>(), [true, true, false, false], "{}", name.len());
    }
    let engine = engine(rules);
    let agent = "a".repeat(1_500);
    for _ in 0..3 {
        assert_eq!(request(&engine, "/", &[("User-Agent", &agent)]).verdict, Verdict::Pass);
    }
    assert!(!request(&engine, "/", &[("User-Agent", &agent[..1_400])]).verdict.passes());
    let mut last = None;
    for at in 0..200 {
        let names: Vec<String> = (0..200).map(|name| format!("x=n{at}_{name}")).collect();
        last = Some(get(&engine, &format!("/?{}", names.join("&"))));
    }
    let last = last.unwrap();
    assert_eq!((last.verdict, last.over), (Verdict::Deny { status: 413, rule: None }, Some(Over::Variables)));
}

#[test]
fn phases_that_are_left_out_run_all_the_same() {
    let engine = engine(
        r#"
        SecAction "id:1,phase:1,pass,nolog,setvar:tx.a=1"
        SecAction "id:2,phase:2,pass,nolog,setvar:tx.a=+1"
        SecRule TX:a "@eq 2" "id:3,phase:3,deny,status:502"
        SecRule TX:a "@eq 2" "id:4,phase:5,pass,log"
    "#,
    );
    let mut transaction = transaction(&engine);
    let verdict = transaction.response_headers(200, b"HTTP/1.1", []);
    assert_eq!(verdict, Verdict::Deny { status: 502, rule: Some(3) });
    assert_eq!(transaction.response_body(b"", true), verdict, "what was decided stays so");
    assert_eq!(ids(&transaction.log()), [3, 4]);
}

#[test]
fn bodies_beyond_their_limits() {
    let rules = r#"
        SecRequestBodyAccess On
        SecArgumentsLimit 3
        SecRequestBodyNoFilesLimit 100
        SecRule REQUEST_HEADERS:Content-Type "@contains json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
    "#;
    let post = |rules: &str, kind: &str, body: &str| {
        let engine = engine(rules);
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        transaction.request_body(body.as_bytes(), true)
    };
    let form = "application/x-www-form-urlencoded";
    let denied = Verdict::Deny { status: 413, rule: None };
    assert_eq!(post(rules, form, "a&b&c"), Verdict::Pass);
    assert_eq!(post(rules, form, "a&b&c&d"), denied);
    assert_eq!(post(rules, "application/json", "[1,2,3]"), Verdict::Pass);
    assert_eq!(post(rules, "application/json", "[1,2,3,4]"), denied);
    assert_eq!(post(rules, form, &"a".repeat(101)), denied);
    let xml = rules.replace("JSON", "XML").replace("json", "xml");
    assert_eq!(post(&xml, "text/xml", "<a b='1' c='2' d='3'/>"), Verdict::Pass);
    assert_eq!(post(&xml, "text/xml", "<a b='1' c='2' d='3' e='4'/>"), denied);
    // Depth and paths are limits as well; a body that is no document cannot be read, and no rule handles that.
    let unreadable = Verdict::Deny { status: 400, rule: None };
    let wide = |rules: &str| {
        let wide = rules.replace("NoFilesLimit 100", "NoFilesLimit 100000");
        format!("{wide}SecRequestBodyJsonDepthLimit 5\n")
    };
    let long = "a".repeat(8_200);
    for (rules, kind, fine, deep, path) in [
        (rules, "application/json", "[[[[[1]]]]]", "[[[[[[1]]]]]]", format!("{{\"{long}\":1}}")),
        (
            &*xml,
            "text/xml",
            "<a><a><a><a><a/></a></a></a></a>",
            "<a><a><a><a><a><a/></a></a></a></a></a>",
            format!("<{long}/>"),
        ),
    ] {
        assert_eq!(post(&wide(rules), kind, fine), Verdict::Pass);
        assert_eq!(post(&wide(rules), kind, deep), denied, "{deep}");
        assert_eq!(post(&wide(rules), kind, &path), denied);
        assert_eq!(post(&wide(rules), kind, "}{"), unreadable);
        let asks = "SecRule REQBODY_ERROR \"@eq 1\" \"id:9,phase:2,pass\"\n";
        assert_eq!(post(&(wide(rules) + asks), kind, "}{"), Verdict::Pass);
    }
    let part = |lines: usize, len: usize| {
        let line = format!("X: {}\r\n", "y".repeat(len));
        let header = format!("{}Content-Disposition: form-data; name=a\r\n\r\n", line.repeat(lines));
        post(&wide(rules), "multipart/form-data; boundary=b", &format!("--b\r\n{header}1\r\n--b--\r\n"))
    };
    // A field of a part that is there twice is read otherwise by some.
    assert_eq!((part(63, 10), part(1, 4_000)), (unreadable, Verdict::Pass));
    assert_eq!((part(64, 10), part(1, 4_200)), (denied.clone(), denied.clone()));
    let partial = format!("{rules}SecRequestBodyLimitAction ProcessPartial\n");
    assert_eq!(post(&partial, form, &"a".repeat(101)), Verdict::Pass);
}

/// A transaction goes to another thread and back; rules are shared.
#[test]
fn transactions_travel() {
    fn travels<T: Send + 'static>() {}
    fn is_shared<T: Send + Sync + 'static>() {}
    travels::<Transaction>();
    is_shared::<Engine>();
}

/// The memory of a transaction is a small multiple of its input, regardless of the names in the body.
#[test]
fn names_of_a_body_are_not_held_over_and_over() {
    let rules = r#"
        SecRequestBodyAccess On
        SecRule REQUEST_HEADERS:Content-Type "@contains json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
        SecRule REQUEST_HEADERS:Content-Type "@contains xml" "id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=XML,ctl:parseXmlIntoArgs=On"
    "#;
    let engine = engine(rules);
    let post = |kind: &str, body: &str| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        let verdict = transaction.request_body(body.as_bytes(), true);
        (verdict.passes(), transaction.over(), transaction.text())
    };
    let long = "a".repeat(8_000);
    let ones = vec!["1"; 900].join(",");
    let (passes, over, text) = post("application/json", &format!("{{\"{long}\":[{ones}]}}"));
    assert_eq!((passes, over), (false, Some(Over::Text)));
    assert!(text < (2 << 20), "{text}");
    let elements = "<b/>".repeat(900);
    let (passes, over, text) = post("text/xml", &format!("<{long}>{elements}</{long}>"));
    assert_eq!((passes, over), (false, Some(Over::Text)));
    assert!(text < (2 << 20), "{text}");
    let few = vec!["1"; 100].join(",");
    assert!(post("application/json", &format!("{{\"{}\":[{few}]}}", &long[..1_000])).0);
    let lines: String = (0..50).map(|number| format!("X{number}: y\r\n")).collect();
    let name = &long[..4_000];
    let part = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{lines}\r\n\r\n");
    let body = format!("{}--b--\r\n", part.repeat(3));
    let (passes, _, text) = post("multipart/form-data; boundary=b", &body);
    assert!(passes && text < 5 * body.len(), "{text} for {}", body.len());
}

/// Text that rules make is bounded as well.
#[test]
fn text_that_rules_make_is_bounded() {
    let rules: String = (1..=40)
        .map(|id| format!("SecRule ARGS \"@rx a\" \"id:{id},phase:2,pass,nolog,setvar:'tx.v%{{MATCHED_VAR_NAME}}=b%{{REQUEST_URI}}'\"\n"))
        .collect();
    let limits = TransactionLimits { text: 256 << 10, ..TransactionLimits::default() };
    let engine = compiled(&rules, Compile { limits, ..Compile::default() });
    let query: Vec<String> = (0..200).map(|number| format!("n{number}=a")).collect();
    let report = get(&engine, &format!("/?{}", query.join("&")));
    assert_eq!((report.verdict, report.over), (Verdict::Deny { status: 413, rule: None }, Some(Over::Text)));
}
