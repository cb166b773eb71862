//! Requests that are over their budget are looked at all the same.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use foregate_waf::engine::{Beyond, Compile, Options, Over, Report, Transaction, TransactionLimits, Verdict};
use foregate_waf::model::EngineMode;

use super::{compiled, ids};

const RULES: &str = r#"
SecRule ARGS|REQUEST_COOKIES "@contains evil" "id:1,phase:2,pass,log,setvar:tx.points=+5"
SecRule REQBODY_ERROR "@eq 1" "id:2,phase:2,pass,log,logdata:'%{REQBODY_ERROR_MSG}'"
SecRule ARGS "@rx ^(slow)+$" "id:3,phase:2,pass,log"
SecAction "id:8,phase:2,pass,nolog,setvar:tx.sum=+%{tx.points}"
SecRule TX:sum "@ge 5" "id:9,phase:2,deny,status:403,log"
"#;

fn get(mode: EngineMode, limits: TransactionLimits, target: &str, cookie: &str) -> (Report, Verdict) {
    let engine = compiled(RULES, Compile { limits, ..Compile::default() });
    let options = Options { unique_id: "u1".into(), mode: Some(mode), ..Options::default() };
    let mut transaction = Transaction::new(&engine, options);
    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
    transaction.request_field(b"Cookie", cookie.as_bytes());
    transaction.request_headers();
    transaction.request_body(b"", true);
    let would = transaction.would();
    (transaction.log(), would)
}

const REFUSED: Verdict = Verdict::Deny { status: 413, rule: None };

fn passing() -> TransactionLimits {
    TransactionLimits { beyond: Beyond::Continue, ..TransactionLimits::default() }
}

#[test]
fn rules_go_on_over_what_was_taken() {
    let denied = Verdict::Deny { status: 403, rule: Some(9) };
    let arguments = format!("/?x=evil{}", "&a".repeat(1_001));
    let cookies = format!("a=evil{}", ";a=b".repeat(1_001));
    for (target, cookie, over, found) in
        [(&*arguments, "", Over::Arguments, &[1, 2, 9][..]), ("/", &*cookies, Over::Fields, &[1, 9])]
    {
        let (report, would) = get(EngineMode::DetectionOnly, TransactionLimits::default(), target, cookie);
        assert_eq!((report.over, ids(&report), would), (Some(over), found.to_vec(), denied.clone()));
        let (report, _) = get(EngineMode::On, passing(), target, cookie);
        assert_eq!((report.over, ids(&report), report.verdict), (Some(over), found.to_vec(), denied.clone()));
        let (report, _) = get(EngineMode::On, TransactionLimits::default(), target, cookie);
        assert_eq!((report.over, report.verdict), (Some(over), REFUSED));
    }
    // Values beyond the limit are not read; the excess is reported.
    let behind = format!("/?{}&x=evil", "a&".repeat(1_001));
    let (report, would) = get(EngineMode::DetectionOnly, TransactionLimits::default(), &behind, "");
    assert_eq!((ids(&report), would), (vec![2], REFUSED));
    assert_eq!(get(EngineMode::DetectionOnly, passing(), &behind, "").1, Verdict::Pass);
}

#[test]
fn scores_are_summed_up_when_all_work_is_spent() {
    let limits = || TransactionLimits { work: 12_000, ..passing() };
    let target = format!("/?x=evil&y={}", "slow".repeat(2_000));
    let (report, _) = get(EngineMode::On, limits(), &target, "");
    assert_eq!((report.over, ids(&report)), (Some(Over::Work), vec![1, 9]));
    assert!(!report.verdict.passes());
    let few = format!("/?{}&y={}", "a&".repeat(1_001), "slow".repeat(2_000));
    assert_eq!(get(EngineMode::On, limits(), &few, "").0.verdict, Verdict::Pass);
}

#[test]
fn others_go_first_now_and_then() {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    let engine = compiled(RULES, Compile { limits: TransactionLimits::default(), ..Compile::default() });
    let times = |values: usize| {
        TIMES.store(0, Relaxed);
        let mut transaction = Transaction::new(&engine, Options::default());
        transaction.give_way(|| {
            TIMES.fetch_add(1, Relaxed);
        });
        let target = format!("/?{}", format!("a={}&", "slow".repeat(100)).repeat(values));
        transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
        transaction.request_headers();
        transaction.request_body(b"", true);
        TIMES.load(Relaxed)
    };
    assert_eq!(times(10), 0);
    // Two rules look at each, which costs 432 units.
    assert!((18..=21).contains(&times(800)), "{}", times(800));
}

/// A link over the matches of the previous one sees all of them, however many; otherwise the request is
/// over its budget.
#[test]
fn all_values_that_match_are_looked_at() {
    let rules = r#"
        SecRequestBodyAccess On
        SecArgumentsLimit 3000
        SecRule ARGS|ARGS_NAMES "@rx ^a" "id:1,phase:2,deny,status:403,log,chain"
            SecRule MATCHED_VARS "@contains evil" "t:none"
        SecRule ARGS_NAMES "@rx ^evil" "id:2,phase:2,deny,status:403,log,chain"
            SecRule MATCHED_VARS_NAMES "@contains evil" "t:none,chain"
            SecRule &MATCHED_VARS "@gt 1200" "t:none"
    "#;
    let post = |limits: TransactionLimits, body: &str| {
        let engine = compiled(rules, Compile { limits, ..Compile::default() });
        let mut transaction = Transaction::new(&engine, Options::default());
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.request_headers();
        transaction.request_body(body.as_bytes(), true);
        let report = transaction.log();
        (report.verdict, report.over)
    };
    let form = |count: usize, name: &str| {
        let values =
            (0..count).map(|at| format!("{name}{at}=a{}", if at == count / 2 { "evil" } else { "" }));
        values.collect::<Vec<_>>().join("&")
    };
    let denied = |rule| (Verdict::Deny { status: 403, rule: Some(rule) }, None);
    for count in [3, 700, 2_500] {
        assert_eq!(post(TransactionLimits::default(), &form(count, "a")), denied(1), "{count}");
    }
    let innocent = form(2_500, "a").replace("evil", "");
    assert_eq!(post(TransactionLimits::default(), &innocent), (Verdict::Pass, None));
    assert_eq!(post(TransactionLimits::default(), &form(1_000, "evil").replace("aevil", "b")), denied(2));
    let few = || TransactionLimits { matched_values: 100, ..TransactionLimits::default() };
    assert_eq!(post(few(), &form(40, "b")), denied(1));
    assert_eq!(post(few(), &form(90, "a").replace("evil", "")), (REFUSED, Some(Over::Variables)));
}

/// An archive or a picture that is sent as it is, of any type: rules over the raw body see its texts, and it is not refused for
/// the work of looking at megabytes of anything else.
#[test]
fn long_uploads_are_within_the_budget() {
    let chains =
        ["none", "lowercase", "urlDecodeUni", "htmlEntityDecode", "jsDecode", "cssDecode", "base64Decode"];
    let rules: String = chains
        .iter()
        .enumerate()
        .map(|(id, chain)| {
            format!(
                "SecRule REQUEST_BODY \"@rx needle\" \"id:{},phase:2,deny,status:403,t:none,t:{chain}\"\n",
                id + 1
            )
        })
        .collect();
    let rules = format!(
        "SecRequestBodyAccess On\nSecRequestBodyLimit 13107200\nSecRequestBodyNoFilesLimit 131072\n{rules}"
    );
    let engine = compiled(&rules, Compile::default());
    let put = |kind: Option<&str>, body: &[u8]| {
        let mut transaction = super::transaction(&engine);
        transaction.request_line(b"PUT", b"/a", b"HTTP/1.1");
        if let Some(kind) = kind {
            transaction.request_field(b"Content-Type", kind.as_bytes());
        }
        transaction.request_headers();
        (transaction.request_body(body, true), transaction.work())
    };
    let mut seed = 1_u32;
    let mut body: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    })
    .take(12 << 20)
    .collect();
    for kind in [Some("application/octet-stream"), None] {
        let (verdict, work) = put(kind, &body);
        assert_eq!(verdict, Verdict::Pass, "{kind:?}");
        assert!(work < 24 << 20, "{work}");
    }
    let middle = body.len() / 2;
    body.splice(middle..middle + 12, *b"\0a %4eeedle!\0");
    let found = |id| Verdict::Deny { status: 403, rule: Some(id) };
    assert_eq!(put(None, &body).0, Verdict::Pass, "the rules look for small letters");
    body.splice(middle..middle + 12, *b"\xff needle here");
    assert_eq!(put(None, &body).0, found(1));
    // A text is all text.
    let text = "long enough \u{e9} ".repeat(20_000) + "needle";
    assert_eq!(put(Some("text/plain"), text.as_bytes()).0, found(1));
}
