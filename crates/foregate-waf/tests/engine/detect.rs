//! In detection, the reported verdict equals the one of blocking.

use std::sync::Arc;

use foregate_waf::engine::{Compile, Engine, Options, Report, Transaction, TransactionLimits, Verdict};
use foregate_waf::model::EngineMode;

use super::{compiled, engine, ids};

const RULES: &str = r#"
SecRequestBodyAccess On
SecResponseBodyAccess On
SecArgumentsLimit 8
SecRequestBodyNoFilesLimit 100
SecAction "id:1,phase:1,deny,status:400,log,chain"
    SecRule ARGS:first "@eq 1" "t:none"
SecRule ARGS:allow "@streq all" "id:10,phase:1,allow,nolog"
SecRule ARGS:allow "@streq request" "id:11,phase:1,allow:request,nolog"
SecRule ARGS:allow "@streq phase" "id:12,phase:1,allow:phase,nolog"
SecRule ARGS:engine "@streq detect" "id:13,phase:1,pass,nolog,ctl:ruleEngine=DetectionOnly"
SecRule ARGS:engine "@streq off" "id:14,phase:1,pass,nolog,ctl:ruleEngine=Off"
SecRule ARGS:engine "@streq on" "id:15,phase:1,pass,nolog,ctl:ruleEngine=On"
SecRule ARGS:engine "@streq itself" "id:16,phase:1,deny,status:401,nolog,ctl:ruleEngine=DetectionOnly"
SecRule ARGS:p1 "@eq 1" "id:20,phase:1,deny,status:401,log"
SecRule ARGS:late "@streq phase" "id:30,phase:2,allow:phase,nolog"
SecRule ARGS:late "@streq on" "id:31,phase:2,pass,nolog,ctl:ruleEngine=On"
SecRule ARGS:p2 "@eq 1" "id:40,phase:2,deny,status:402,log"
SecRule ARGS:p2 "@eq 1" "id:41,phase:2,drop,log"
SecRule ARGS:late "@streq all" "id:50,phase:3,allow,nolog"
SecRule ARGS:p3 "@eq 1" "id:60,phase:3,deny,status:403,log"
SecRule ARGS:p4 "@eq 1" "id:70,phase:4,redirect:/%{ARGS.p4},log"
SecRule ARGS:p5 "@eq 1" "id:80,phase:5,deny,log"
"#;

/// Each rule that stops a request, with everything that keeps it from that.
fn targets() -> Vec<String> {
    let stops = ["", "p1=1", "p2=1", "p3=1", "p4=1", "p5=1", "p1=1&p2=1&p3=1&p4=1", "a&b&c&d&e&f&g&h&i"];
    let first = ["", "allow=all", "allow=request", "allow=phase", "first=1"];
    let engines = ["", "engine=detect", "engine=off", "engine=on", "engine=itself"];
    let late = ["", "late=phase", "late=on", "late=all"];
    let mut all = Vec::new();
    for first in first {
        for engine in engines {
            for late in late {
                all.extend(stops.map(|stop| format!("/?{first}&{engine}&{late}&{stop}")));
            }
        }
    }
    // Where a rule that lets the request through does not keep others from running, one of them may turn the engine off.
    all.retain(|target| !target.contains("allow=") || !target.contains("engine=off"));
    all
}

/// Runs a form through all phases and returns the numbers of the rules that would stop it.
fn post(engine: &Arc<Engine>, options: Options, target: &str, body: &str) -> (Report, Vec<u64>) {
    let mut transaction = Transaction::new(engine, options);
    transaction.request_line(b"POST", target.as_bytes(), b"HTTP/1.1");
    transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
    if transaction.request_headers().passes() && transaction.request_body(body.as_bytes(), true).passes() {
        let fields = [(&b"Content-Type"[..], &b"text/html"[..])];
        if transaction.response_headers(200, b"HTTP/1.1", fields).passes() {
            transaction.response_body(b"<p>hello</p>", true);
        }
    }
    let would = transaction.would_stop();
    (transaction.log(), would)
}

fn mode(mode: EngineMode) -> Options {
    Options { mode: Some(mode), ..Options::default() }
}

#[test]
fn what_detection_tells_is_what_blocking_does() {
    let alone = engine(RULES);
    let of_files = engine(&format!("SecRuleEngine DetectionOnly\n{RULES}"));
    let mut stopped = 0;
    for target in targets() {
        for body in ["x=y", &"x".repeat(200)] {
            let what = format!("{target} with {} bytes", body.len());
            let (blocked, none) = post(&alone, mode(EngineMode::On), &target, body);
            assert_eq!((&blocked.would, &none[..]), (&Verdict::Pass, &[][..]), "{what}");
            let (detected, rules) = post(&alone, mode(EngineMode::DetectionOnly), &target, body);
            assert_eq!(detected.verdict, Verdict::Pass, "{what}");
            match &blocked.verdict {
                Verdict::Pass => assert_eq!((detected.would, &rules[..]), (Verdict::Pass, &[][..]), "{what}"),
                // A rule is told of rather than a limit.
                Verdict::Deny { rule: None, .. } => {
                    assert_eq!((detected.would.passes(), rules[0]), (false, 0), "{what}");
                }
                verdict => {
                    let found = verdict.rule().is_some_and(|rule| rules.contains(&rule));
                    assert_eq!((&detected.would, found), (verdict, true), "{what}");
                }
            }
            let dry = Options { dry_run: true, ..mode(EngineMode::On) };
            assert_eq!(post(&alone, dry, &target, body).0.would, blocked.verdict, "{what}");
            // Where files have it detect, a rule may have it stop.
            let (found, _) = post(&of_files, Options::default(), &target, body);
            if found.verdict.passes() {
                assert_eq!(found.would.passes(), blocked.verdict.passes(), "{what}");
            }
            stopped += usize::from(!blocked.verdict.passes());
        }
    }
    assert!((100..1_000).contains(&stopped), "{stopped}");
}

/// Whatever would have been let through, its matches are told of.
#[test]
fn detection_finds_what_would_be_let_through() {
    let engine = engine(RULES);
    let found = |target: &str| {
        let (report, would) = post(&engine, mode(EngineMode::DetectionOnly), target, "x=y");
        (ids(&report), report.would.rule(), would)
    };
    let all = vec![20, 40, 41, 60, 70];
    assert_eq!(found("/?p1=1&p2=1&p3=1&p4=1"), (all.clone(), Some(20), all.clone()));
    assert_eq!(found("/?p1=1&p2=1&p3=1&p4=1&allow=all"), (all.clone(), None, vec![]));
    assert_eq!(found("/?p1=1&p2=1&p3=1&p4=1&allow=request"), (all.clone(), Some(60), vec![60, 70]));
    assert_eq!(found("/?p1=1&p2=1&p3=1&p4=1&allow=phase"), (all.clone(), Some(40), vec![40, 41, 60, 70]));
    assert_eq!(found("/?p1=1&p2=1&p3=1&p4=1&engine=detect"), (all.clone(), None, vec![]));
    assert_eq!(
        found("/?p1=1&p2=1&p3=1&p4=1&engine=detect&late=on"),
        (all.clone(), Some(40), vec![40, 41, 60, 70])
    );
    // A rule that would not run switches nothing.
    assert_eq!(found("/?p4=1&allow=request&engine=detect"), (vec![70], Some(70), vec![70]));
}

/// A budget that only rules spend that would not have run is none that stops a request.
#[test]
fn what_is_let_through_goes_beyond_no_budget() {
    let rules = r#"
        SecRule ARGS:a "@eq 1" "id:1,phase:1,allow,nolog"
        SecRule ARGS:d "@eq 1" "id:2,phase:1,pass,nolog,ctl:ruleEngine=DetectionOnly"
        SecRule ARGS "@rx (.)(.)b" "id:3,phase:2,pass,log"
    "#;
    let limits = TransactionLimits { work: 1_000, ..TransactionLimits::default() };
    let engine = compiled(rules, Compile { limits, ..Compile::default() });
    let long = "ab".repeat(1_000);
    for (asked, stops) in [("", true), ("a=1&", false), ("d=1&", false)] {
        let target = format!("/?{asked}x={long}");
        let (blocked, _) = post(&engine, mode(EngineMode::On), &target, "");
        let (detected, would) = post(&engine, mode(EngineMode::DetectionOnly), &target, "");
        assert_eq!((blocked.verdict.passes(), detected.would.passes()), (!stops, !stops), "{asked}");
        assert_eq!((would, detected.over.is_some()), (vec![0; usize::from(stops)], true), "{asked}");
    }
}
