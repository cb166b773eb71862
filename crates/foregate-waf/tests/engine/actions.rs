//! Effects of matching rules.

use foregate_waf::engine::{Over, Verdict};

use super::{engine, get, ids, message, request, transaction};

#[test]
fn variables_add_up() {
    let engine = engine(
        r#"
        SecAction "id:1,phase:1,pass,nolog,setvar:tx.five=5,setvar:tx.score=0"
        SecRule ARGS "@rx ^bad" "id:2,phase:2,pass,nolog,setvar:tx.score=+%{tx.five},setvar:tx.seen_%{MATCHED_VAR_NAME}=%{MATCHED_VAR}"
        SecRule TX:score "@ge 10" "id:3,phase:2,deny,status:406,msg:'%{tx.score} for %{tx.seen_args:b} %{TX.nothing}.'"
    "#,
    );
    assert_eq!(get(&engine, "/?a=bad").verdict, Verdict::Pass);
    let report = get(&engine, "/?a=bad1&b=bad2&c=good");
    assert_eq!(report.verdict, Verdict::Deny { status: 406, rule: Some(3) });
    assert_eq!(message(&report), "10 for bad2 .");
}

#[test]
fn chains_act_link_by_link() {
    let engine = engine(
        r#"
        SecRule ARGS:a "@rx ^(x)(y)?" "id:1,phase:2,pass,log,capture,setvar:tx.first=1,chain"
            SecRule TX:1 "@streq x" "chain,setvar:tx.second=1"
            SecRule TX:2 "@streq y" "setvar:tx.third=1"
        SecRule &TX:third "@eq 0" "id:2,phase:2,pass,log,msg:'%{tx.first}%{tx.second}'"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/?a=xy")), [1]);
    let report = get(&engine, "/?a=xz");
    assert_eq!(ids(&report), [2]);
    assert_eq!(message(&report), "11", "links before the one that does not match have acted");
    assert_eq!(message(&get(&engine, "/?a=z")), "");
}

#[test]
fn rules_are_skipped() {
    let engine = engine(
        r#"
        SecRule ARGS:n "@eq 1" "id:1,phase:2,pass,nolog,skip:1"
        SecAction "id:2,phase:2,pass,log"
        SecRule ARGS:n "@eq 2" "id:3,phase:2,pass,nolog,skipAfter:END"
        SecAction "id:4,phase:2,pass,log"
        SecMarker END
        SecAction "id:5,phase:2,pass,log"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/?n=1")), [4, 5]);
    assert_eq!(ids(&get(&engine, "/?n=2")), [2, 5]);
    assert_eq!(ids(&get(&engine, "/?n=3")), [2, 4, 5]);
}

/// Known values are folded out of the plan, until a `ctl` removes a rule that the fold relied on.
#[test]
fn ladders_fold_and_unfold() {
    let engine = engine(
        r#"
        SecRule ARGS:off "@eq 1" "id:1,phase:1,pass,nolog,ctl:ruleRemoveById=20"
        SecRule ARGS:off "@eq 2" "id:2,phase:1,pass,nolog,ctl:ruleRemoveById=10"
        SecRule ARGS:off "@eq 3" "id:3,phase:1,pass,nolog,ctl:ruleRemoveByTag=all"
        SecRule ARGS:off "@eq 4" "id:4,phase:1,pass,nolog,setvar:tx.%{ARGS.name}=2"
        SecRule &TX:level "@eq 0" "id:10,phase:1,pass,nolog,setvar:tx.level=1"
        SecRule TX:level "@lt 2" "id:20,phase:2,pass,nolog,tag:all,skipAfter:END"
        SecRule TX:level "@ge 0" "id:30,phase:2,pass,log,tag:all,msg:'level %{tx.level}'"
        SecMarker END
        SecRule TX:level "@eq 1" "id:40,phase:2,pass,log"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/")), [40]);
    assert_eq!(ids(&get(&engine, "/?off=1")), [30, 40]);
    assert_eq!(ids(&get(&engine, "/?off=2")), [30, 40][..0], "without a level, there is nothing to compare");
    assert_eq!(ids(&get(&engine, "/?off=3")), [40]);
    assert_eq!(ids(&get(&engine, "/?off=4&name=level")), [30]);
}

#[test]
fn the_engine_is_switched() {
    let rules = r#"
        SecRuleEngine On
        SecRule ARGS:mode "@streq off" "id:1,phase:1,pass,nolog,ctl:ruleEngine=Off"
        SecRule ARGS:mode "@streq detect" "id:2,phase:1,pass,nolog,ctl:ruleEngine=DetectionOnly"
        SecRule ARGS:mode "@streq allow" "id:3,phase:1,allow,nolog"
        SecRule ARGS:mode "@streq phase" "id:4,phase:1,allow:phase,nolog"
        SecAction "id:5,phase:1,pass,log"
        SecAction "id:6,phase:2,deny,log"
        SecAction "id:7,phase:5,pass,log"
    "#;
    let engine = engine(rules);
    let outcome = |target: &str| {
        let report = get(&engine, target);
        (ids(&report), report.verdict.passes())
    };
    assert_eq!(outcome("/"), (vec![5, 6, 7], false));
    assert_eq!(outcome("/?mode=off"), (vec![], true));
    assert_eq!(outcome("/?mode=detect"), (vec![5, 6, 7], true));
    assert_eq!(outcome("/?mode=allow"), (vec![7], true));
    assert_eq!(outcome("/?mode=phase"), (vec![6, 7], false));
    assert_eq!(get(&engine, "/?mode=detect").would, Verdict::Pass, "that is what the rules want");
}

/// Where rules have turned themselves off for a request, it goes beyond no limit, whatever it has.
#[test]
fn nothing_is_beyond_a_limit_once_the_engine_is_off() {
    let engine = engine(
        r#"
        SecRuleEngine On
        SecRequestBodyAccess On
        SecArgumentsLimit 3
        SecRequestBodyNoFilesLimit 100
        SecRule ARGS:mode "@streq off" "id:1,phase:1,pass,nolog,ctl:ruleEngine=Off"
    "#,
    );
    let post = |target: &str, body: &str, whole: bool| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", target.as_bytes(), b"HTTP/1.1");
        transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.request_headers();
        if !whole {
            transaction.deny_for("body-limit");
        }
        transaction.request_body(body.as_bytes(), whole);
        let report = transaction.log();
        let lines = report.lines().count();
        (report.verdict.passes(), report.would.passes(), report.over.is_none(), lines)
    };
    let long = "a".repeat(200);
    for (body, whole) in [("a&b&c&d", true), (&*long, true), ("a", false)] {
        assert!(!post("/", body, whole).0, "{body}");
        assert_eq!(post("/?mode=off", body, whole), (true, true, true, 0), "{body}");
    }
}

#[test]
fn requests_are_dropped_and_sent_elsewhere() {
    let engine = engine(
        r#"
        SecRule ARGS:a "@streq drop" "id:1,phase:1,drop"
        SecRule ARGS:a "@streq away" "id:2,phase:1,redirect:'https://%{REQUEST_HEADERS.host}/no',status:307"
    "#,
    );
    assert_eq!(get(&engine, "/?a=drop").verdict, Verdict::Drop { rule: 1 });
    let to = b"https://example.com/no".to_vec();
    assert_eq!(get(&engine, "/?a=away").verdict, Verdict::Redirect { status: 307, to, rule: 2 });
}

#[test]
fn rules_and_targets_are_removed_for_a_request() {
    let engine = engine(
        r#"
        SecRule REQUEST_FILENAME "@beginsWith /a" "id:1,phase:1,pass,nolog,ctl:ruleRemoveById=10-19"
        SecRule REQUEST_FILENAME "@beginsWith /b" "id:2,phase:1,pass,nolog,ctl:ruleRemoveTargetById=10;ARGS:text"
        SecRule REQUEST_FILENAME "@beginsWith /c" "id:3,phase:1,pass,nolog,ctl:ruleRemoveTargetByTag=x;ARGS:/^te/"
        SecRule REQUEST_FILENAME "@beginsWith /d" "id:4,phase:1,pass,nolog,ctl:ruleRemoveTargetById=10;ARGS"
        SecRule ARGS|REQUEST_HEADERS:x "@contains attack" "id:10,phase:2,pass,log,tag:x,msg:'%{MATCHED_VAR_NAME}'"
    "#,
    );
    let matched = |path: &str, field: &str| {
        let report = request(&engine, &format!("{path}?text=attack&other=%20"), &[("X", field)]);
        message(&report)
    };
    assert_eq!(matched("/", ""), "ARGS:text");
    for path in ["/a", "/b", "/c", "/d"] {
        assert_eq!(matched(path, ""), "", "{path}");
    }
    assert_eq!(matched("/d", "attack"), "REQUEST_HEADERS:X");
    assert_eq!(matched("/a", "attack"), "");
}

/// However many targets are removed, of one rule or of many, they are removed, and that alone is over no limit.
#[test]
fn any_number_of_targets_is_removed() {
    let removals: String = (0..400)
        .map(|at| {
            format!(
                "SecAction \"id:{},phase:1,pass,nolog,ctl:ruleRemoveTargetById=1;ARGS:a{at}\"\n",
                100 + at
            )
        })
        .collect();
    let rules = format!(
        "{removals}\
         SecRule ARGS \"@contains evil\" \"id:1,phase:2,deny,status:403,log\"\n\
         SecRule ARGS:b|ARGS:c \"@contains evil\" \"id:2,phase:2,pass,log,ctl:ruleRemoveTargetById=2;ARGS:c\"\n"
    );
    let engine = engine(&rules);
    let outcome = |target: &str| {
        let report = get(&engine, target);
        (report.verdict.passes(), report.over, ids(&report))
    };
    let target = (0..400).map(|at| format!("a{at}=evil")).collect::<Vec<_>>().join("&");
    assert_eq!(outcome(&format!("/?{target}")), (true, None, vec![]));
    assert_eq!(outcome("/?a400=evil"), (false, None, vec![1]));
    assert!(!get(&engine, "/?a0=evil&b=evil").verdict.passes());
}

/// A rule that removes a target of itself does not look at it any more.
#[test]
fn a_rule_removes_its_own_targets() {
    let engine = engine(
        r#"SecRule ARGS:b|ARGS:c "@contains evil" "id:2,phase:2,pass,log,ctl:ruleRemoveTargetById=2;ARGS:c,setvar:tx.n=+1"
        SecRule TX:n "@ge 1" "id:3,phase:2,pass,log,msg:'%{tx.n}'""#,
    );
    assert_eq!(message(&get(&engine, "/?c=evil&b=evil")), "1");
    assert_eq!(message(&get(&engine, "/?c=evil")), "1");
}

/// `setenv` sets a variable anew, and has room for as many as rules may set.
#[test]
fn environments_have_room() {
    let many: String = (0..100)
        .map(|at| format!("SecAction \"id:{},phase:1,pass,nolog,setenv:'v{at}=%{{ARGS.v}}'\"\n", 100 + at))
        .collect();
    let rules = format!(
        "{many}\
         SecRule ARGS:w \"@rx .\" \"id:1,phase:1,pass,nolog,setenv:'w=%{{MATCHED_VAR}}'\"\n\
         SecRule ENV:v99 \"@streq evil\" \"id:2,phase:1,deny,status:403,log\"\n\
         SecRule ENV:w \"@streq last\" \"id:3,phase:1,pass,log,msg:'%{{ENV.w}} %{{ENV.host}}'\"\n\
         SecRule ARGS_NAMES \"@beginsWith n\" \"id:4,phase:1,pass,nolog,setenv:'%{{MATCHED_VAR}}=1'\"\n"
    );
    let engine = engine(&rules);
    assert_eq!(get(&engine, "/?v=evil").verdict, Verdict::Deny { status: 403, rule: Some(2) });
    let mut transaction = transaction(&engine);
    (0..64).for_each(|_| transaction.environment(b"host", b"told"));
    transaction.request_line(b"GET", b"/?v=evi&w=first&w=last", b"HTTP/1.1");
    assert_eq!(transaction.request_headers(), Verdict::Pass);
    assert_eq!(message(&transaction.log()), "last told");
    let rules = format!("SecArgumentsLimit 5000\n{rules}");
    let engine = super::engine(&rules);
    let names = |count: usize| (0..count).map(|at| format!("n{at}")).collect::<Vec<_>>().join("&");
    assert!(get(&engine, &format!("/?{}", names(1_800))).verdict.passes());
    assert_eq!(get(&engine, &format!("/?{}", names(2_001))).over, Some(Over::Variables));
}
