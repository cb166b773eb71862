//! The steps over literal requests.

use std::sync::Arc;

use foregate_coding::ContentCoding;
use foregate_module::settings::{FromNode, Node, Problem};
use foregate_module::testing::{self, Literals, Sample, node};
use foregate_module::{
    Action, Body, Condition, Conditions, Expression, GiveWay, Load, Now, PhaseId, Step, Take, Time, Unseen,
    Value, Verdict, View,
};

use super::values::{HeldTransaction, TransactionValue};
use super::{
    Begin, Blocked, Log, MatchedRule, OverBudget, RequestBody, RequestHead, ResponseHead, ResponseStart,
    Score, WafSettings,
};

const RULES: &str = r#"
SecRequestBodyAccess On
SecRule ARGS "@contains evil" "id:7,phase:2,deny,status:403,log,msg:'Evil',setvar:tx.blocking_inbound_anomaly_score=+5"
SecRule RESPONSE_BODY "@contains secret" "id:8,phase:4,deny,status:502,log"
SecRule REQUEST_HEADERS:X-Bad "@streq 1" "id:9,phase:1,deny,status:406,log,tag:'bad'"
"#;

fn waf(mode: &str) -> Node {
    node("waf").prop_literal("mode", mode).with_child(node("rules").arg_literal("rules.conf"))
}

fn read_with(node: &Node, rules: &str) -> Result<WafSettings, Problem> {
    let mut literals = Literals { files: vec![("rules.conf", rules.into())], ..Literals::default() };
    WafSettings::from_nodes(std::slice::from_ref(node), &mut literals)
}

fn read(node: &Node) -> WafSettings {
    read_with(node, RULES).unwrap_or_else(|problem| panic!("{problem:?}"))
}

fn status(verdict: &Verdict) -> Option<u16> {
    match verdict {
        Verdict::Stop(Action::Respond(response)) => Some(response.status),
        _ => None,
    }
}

/// Runs the steps of a request; the status with which one of them ends it.
fn ask(sample: &mut Sample, settings: &WafSettings) -> Option<u16> {
    sample.run(&Begin::default(), settings);
    let head = sample.run(&RequestHead, settings);
    status(&head).or_else(|| status(&sample.run(&RequestBody, settings)))
}

fn lines(sample: &mut Sample, settings: &WafSettings) -> Vec<String> {
    sample.run(&Log, settings);
    sample.state.lines.iter().map(|line| String::from_utf8_lossy(&line.line).into_owned()).collect()
}

#[test]
fn requests_are_stopped_and_logged() {
    let settings = read(&waf("block").prop_literal("log", "waf.log"));
    let mut sample = Sample::get("/?a=evil").field("Host", "h");
    assert_eq!(ask(&mut sample, &settings), Some(403));
    let mut sample = sample.response(403);
    let lines = lines(&mut sample, &settings);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let start = "[Thu Jan 01 00:00:00.000000 2026] [security2:error] [client 192.0.2.1:40000] [client 192.0.2.1] \
                 ModSecurity: Access denied with code 403 (phase 2). ";
    assert!(lines[0].starts_with(start), "{}", lines[0]);
    assert!(lines[0].contains("[id \"7\"]") && lines[0].contains("[unique_id \"0000000000000004\"]"));
    let notes: Vec<_> = sample.state.notes.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
    assert_eq!(notes, ["waf.score", "waf.rule", "waf.verdict", "waf.id"]);
}

#[test]
fn what_rules_need_is_warned_of() {
    let warnings = |rules: &str, more: Option<Node>| {
        let mut literals = Literals { files: vec![("rules.conf", rules.into())], ..Literals::default() };
        let node = more.into_iter().fold(waf("block"), Node::with_child);
        WafSettings::from_nodes(std::slice::from_ref(&node), &mut literals).unwrap();
        literals.warnings.into_iter().map(|warning| warning.message).collect::<Vec<_>>()
    };
    let blind = "SecRule ARGS \"@contains blind\" \"id:71,phase:2,deny\"\n";
    assert_eq!(
        warnings(blind, None),
        [
            "rules.conf:1:1: bodies of requests are not looked at, and the rule 71 would: what a POST sends passes"
        ]
    );
    assert_eq!(
        warnings(blind, Some(node("body-limit").arg_literal("0"))),
        ["rules do not see all: bodies of requests pass unseen"]
    );
    assert_eq!(warnings(&format!("SecRequestBodyAccess On\n{blind}"), None), [""; 0]);
    assert_eq!(warnings(&blind.replace("phase:2", "phase:1"), None), [""; 0]);
}

#[test]
fn detection_stops_nothing_and_tells_expressions() {
    let settings = read(&waf("detect"));
    let mut sample = Sample::get("/?a=evil");
    assert_eq!(ask(&mut sample, &settings), None);
    assert_eq!(sample.value::<Score>(), Some(&5));
    assert_eq!((sample.value::<Blocked>(), sample.value::<MatchedRule>()), (Some(&true), Some(&7)));
    let mut sample = Sample::get("/");
    assert_eq!(ask(&mut sample, &settings), None);
    assert_eq!((sample.value::<Score>(), sample.value::<Blocked>()), (Some(&0), Some(&false)));
    assert_eq!(sample.value::<MatchedRule>(), None);
}

#[test]
fn expressions_are_told_of_budgets() {
    let many = format!("/?a=evil{}", "&a".repeat(1_001));
    let settings = read(&waf("detect").prop_literal("log", "waf.log"));
    let mut sample = Sample::get(&many);
    assert_eq!(ask(&mut sample, &settings), None);
    assert_eq!((sample.value::<Score>(), sample.value::<Blocked>()), (Some(&5), Some(&true)));
    assert_eq!(sample.value::<OverBudget>(), Some(&"arguments"));
    let lines = lines(&mut sample.response(200), &settings);
    assert!(
        lines.len() == 2 && lines[1].contains("Warning. Over the budget by the limit `arguments'."),
        "{lines:?}"
    );
    let mut sample = Sample::get("/?a=evil");
    ask(&mut sample, &settings);
    assert_eq!(sample.value::<OverBudget>(), None);
    let settings = read(&waf("block"));
    assert_eq!(ask(&mut Sample::get(&many), &settings), Some(413));
}

#[test]
fn responses_are_held_where_rules_look_at_them() {
    let with = node("response-body").arg_literal("1KiB").prop_literal("types", "text/plain");
    let settings = read(&waf("block").with_child(with));
    let answer = |kind: &str, coding: &str, body: &str| {
        let mut sample = Sample::get("/");
        assert_eq!(ask(&mut sample, &settings), None);
        let mut sample = sample.response(200).response_field("content-type", kind);
        if !coding.is_empty() {
            sample = sample.response_field("content-encoding", coding);
        }
        sample.run(&ResponseHead, &settings);
        sample.response_body = (body.into(), true);
        (sample.state.hold, status(&sample.run(&ResponseStart, &settings)))
    };
    assert_eq!(answer("text/plain; charset=utf-8", "", "a secret"), (1024, Some(502)));
    assert_eq!(answer("text/plain", "", "nothing"), (1024, None));
    assert_eq!(answer("image/png", "", "a secret"), (0, None));
    assert_eq!(answer("text/plain", "compress", "a secret"), (0, None));
    assert_eq!(answer("text/plain", "gzip, gzip", "a secret"), (0, None));
    assert_eq!(answer("text/plain", "identity", "a secret"), (1024, Some(502)));
    // The body is not in its declared coding.
    assert_eq!(answer("text/plain", "gzip", "a secret"), (1024, None));
}

#[test]
fn responses_are_looked_at_without_their_coding() {
    let with = node("response-body").arg_literal("1KiB").prop_literal("types", "text/plain");
    let settings = read(&waf("block").with_child(with));
    let answer = |coding: ContentCoding, body: &str| {
        let encoder = foregate_coding::encoder("test", coding, 1, None);
        let mut chain = foregate_module::Chain::new(vec![encoder]);
        let mut coded = Vec::new();
        chain.write(body.as_bytes(), &mut coded).unwrap();
        chain.end(&mut coded).unwrap();
        let mut sample = Sample::get("/");
        assert_eq!(ask(&mut sample, &settings), None);
        let mut sample = sample
            .response(200)
            .response_field("content-type", "text/plain")
            .response_field("content-encoding", coding.token());
        sample.run(&ResponseHead, &settings);
        sample.response_body = (coded, true);
        status(&sample.run(&ResponseStart, &settings))
    };
    for coding in ContentCoding::ALL {
        assert_eq!(answer(coding, "a secret"), Some(502));
        assert_eq!(answer(coding, "nothing"), None);
        assert_eq!(answer(coding, &("x".repeat(1000) + "a secret")), Some(502));
        assert_eq!(answer(coding, &("x".repeat(1020) + "a secret")), None, "beyond what is looked at");
    }
}

#[test]
fn refused_requests_are_logged() {
    let settings = read(&waf("block").prop_literal("log", "waf.log"));
    let mut sample = Sample::get("/a").field("X-Bad", "1").response(400);
    sample.refusal = Some(("host", "two \"hosts\"".into()));
    let lines = lines(&mut sample, &settings);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("refused before any rule: two \\\"hosts\\\". [msg \"host\"]"), "{}", lines[0]);
    // The client did not get this status.
    assert!(lines[1].contains("ModSecurity: Warning.") && lines[1].contains("[id \"9\"]"), "{}", lines[1]);
    assert_eq!(sample.state.events, ["refused"]);
}

#[test]
fn exclusions_are_rules() {
    let by_id = node("exclude").prop_literal("id", 7_u64);
    let settings = read(&waf("block").with_child(by_id));
    assert_eq!(ask(&mut Sample::get("/?a=evil"), &settings), None);
    assert_eq!(ask(&mut Sample::get("/").field("X-Bad", "1"), &settings), Some(406));
    let by_tag = node("exclude").prop_literal("tag", "bad");
    let settings = read(&waf("block").with_child(by_tag));
    assert_eq!(ask(&mut Sample::get("/").field("X-Bad", "1"), &settings), None);
    for wrong in ["a'b", "", "/a/", "a,b"] {
        let node = waf("block").with_child(node("exclude").prop_literal("tag", wrong));
        assert!(read_with(&node, RULES).is_err(), "{wrong}");
    }
    assert!(read_with(&waf("block").with_child(node("exclude")), RULES).is_err());
}

/// A condition that a field is present.
struct HasField(String);

impl Condition for HasField {
    fn holds(&self, view: &View<'_>) -> bool {
        view.exchange().request_fields().get(&self.0).is_some()
    }
}

/// Expressions that are the name of a field.
struct Names;

impl testing::Compile for Names {
    fn condition(&self, text: &str, _: PhaseId) -> Result<Arc<dyn Condition>, String> {
        Ok(Arc::new(HasField(text.to_owned())))
    }

    fn expression(&self, _: &str, _: PhaseId) -> Result<Arc<dyn Expression>, String> {
        Err("there are none".to_owned())
    }

    fn conditions(&self, _: &[&str], _: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)> {
        Err((0, "there are none".to_owned()))
    }
}

#[test]
fn exclusions_are_all_there_or_an_error() {
    let exclude = |id: u64| node("exclude").prop_literal("id", id);
    let read = |excludes: Vec<Node>| {
        let node = excludes.into_iter().fold(waf("block"), Node::with_child);
        let files = vec![("rules.conf", RULES.into())];
        let mut literals = Literals { files, compile: Some(Box::new(Names)), ..Literals::default() };
        WafSettings::from_nodes(&[node], &mut literals)
    };
    let with = |number: u64, field: &str| exclude(number).prop_literal("when", field);
    // Any number of exclusions for all requests apply, and the last matching one with a condition.
    let mut many: Vec<Node> = (100..200).map(exclude).collect();
    many.push(exclude(7));
    many.extend((0..63).map(|number| with(300 + number, "Host")));
    many.push(with(9, "Here"));
    let settings = read(many.clone()).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(ask(&mut Sample::get("/?a=evil"), &settings), None);
    assert_eq!(
        ask(&mut Sample::get("/").field("Host", "h").field("Here", "").field("X-Bad", "1"), &settings),
        None
    );
    assert_eq!(ask(&mut Sample::get("/").field("X-Bad", "1"), &settings), Some(406));
    many.push(with(10, "Host"));
    let problem = read(many).err().map(|problem| problem.message).unwrap_or_default();
    assert!(problem.contains("more than 64 `exclude`s with `when`"), "{problem}");
}

#[test]
fn bodies_that_rules_do_not_see_are_not_too_long() {
    let refusing = |size: &str| node("body-limit").arg_literal(size).prop_literal("beyond", "refuse");
    let outcome = |node: &Node, rules: &str| {
        let settings = read_with(node, rules).unwrap_or_else(|problem| panic!("{problem:?}"));
        let mut sample = Sample::get("/");
        sample.body = (b"a=1"[..settings.body.min(3)].to_vec(), false);
        ask(&mut sample, &settings)
    };
    assert_eq!(outcome(&waf("block").with_child(refusing("1KiB")), RULES), Some(413));
    assert_eq!(outcome(&waf("block").with_child(refusing("0")), RULES), None);
    let off = RULES.replace("Access On", "Access Off");
    assert_eq!(outcome(&waf("block").with_child(refusing("1KiB")), &off), None);
}

#[test]
fn what_is_held_in_memory_is_said_by_rules_or_settings() {
    let in_memory = |node: &Node, rules: &str| {
        RequestBody::body_in_memory(&read_with(node, rules).unwrap_or_else(|problem| panic!("{problem:?}")))
    };
    let limit = || node("body-limit").arg_literal("8MiB");
    assert_eq!(in_memory(&waf("block").with_child(limit()), RULES), 1 << 20);
    let rules = |limit: u64| format!("SecRequestBodyInMemoryLimit {limit}\n{RULES}");
    assert_eq!(in_memory(&waf("block").with_child(limit()), &rules(4096)), 1 << 20);
    assert_eq!(in_memory(&waf("block").with_child(limit()), &rules(3 << 20)), 3 << 20);
    let said = waf("block").with_child(limit().prop_literal("memory", "64KiB"));
    assert_eq!(in_memory(&said, &rules(3 << 20)), 64 << 10);
}

#[test]
fn a_body_in_a_file_weighs_what_it_is_long() {
    let settings = read(&waf("block"));
    let mut sample = Sample::get("/");
    sample.run(&Begin::default(), &settings);
    let time = Time(Now { unix_ms: 0, steady_ms: 0 });
    let body = Body { bytes: b"", length: 1 << 20, whole: true };
    let load = RequestBody.load(
        &settings,
        &(Take(sample.take::<TransactionValue>()), body, time, Unseen(None), GiveWay(|| {})),
    );
    assert_ne!(load, Load::Light);
}

#[test]
fn values_of_heads_weigh() {
    let settings = read(&waf("block").with_child(node("heavy").arg_literal("1KiB")));
    let loads = |target: &str, cookie: &str| {
        let mut sample = Sample::get(target).field("Cookie", cookie);
        sample.run(&Begin::default(), &settings);
        let time = Time(Now { unix_ms: 0, steady_ms: 0 });
        let head = (Take(sample.take::<TransactionValue>()), time, GiveWay(|| {}));
        let is_heavy = RequestHead.load(&settings, &head) != Load::Light;
        let (held, ..) = head;
        let body = RequestBody.load(
            &settings,
            &(held, Body { bytes: b"", length: 0, whole: true }, time, Unseen(None), GiveWay(|| {})),
        );
        (is_heavy, body != Load::Light)
    };
    assert_eq!(loads("/?a=1", "a=1"), (false, false));
    assert_eq!(loads(&format!("/?{}", "a&".repeat(20)), "a=1"), (true, true));
    assert_eq!(loads("/", &"a=1; ".repeat(20)), (true, true));
}

#[test]
fn equal_rules_are_compiled_once() {
    let begin = Begin::default();
    let read_with = |node: Node, rules: &str| {
        let mut literals = Literals { files: vec![("rules.conf", rules.into())], ..Literals::default() };
        begin.decode(&[node], &mut literals).unwrap_or_else(|problem| panic!("{problem:?}"))
    };
    let first = read_with(waf("block"), RULES);
    let second = read_with(waf("detect").prop_literal("log", "other.log"), RULES);
    assert!(Arc::ptr_eq(first.engine(), second.engine()));
    let changed = read_with(waf("block"), &format!("{RULES}\n# changed"));
    assert!(!Arc::ptr_eq(first.engine(), changed.engine()));
    let limited = read_with(waf("block").with_child(node("budget").arg_literal("1MiB")), RULES);
    assert!(!Arc::ptr_eq(first.engine(), limited.engine()));
    // Rules that no settings use any more are dropped.
    let forgotten = Arc::downgrade(first.engine());
    drop((first, second));
    assert!(forgotten.upgrade().is_none());
}

#[test]
fn large_things_are_heavy() {
    let settings = read(&waf("block").with_child(node("heavy").arg_literal("1KiB")));
    let is_heavy = |bytes, values| settings.load(bytes, || values) != Load::Light;
    assert!(!is_heavy(1000, 0) && is_heavy(1024, 0));
    assert!(!is_heavy(100, 14) && is_heavy(100, 15));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let told = |problem: Result<WafSettings, Problem>| {
        problem.err().map(|problem| problem.message).unwrap_or_default()
    };
    let message = told(read_with(&waf("block"), "SecRule ARGZ \"@rx a\" \"id:1\"\nSecFoo\n"));
    assert!(message.starts_with("rules.conf:1:9: there is no variable `ARGZ`"), "{message}");
    assert!(message.contains("\nrules.conf:2:1: "), "{message}");
    for (key, value) in [
        ("sample", "0%"),
        ("sample", "101%"),
        ("sample", "10"),
        ("sample", "1.005%"),
        ("heavy", "2MiB"),
        ("deadline", "6s"),
    ] {
        assert!(
            read_with(&waf("block").with_child(node(key).arg_literal(value)), RULES).is_err(),
            "{key} {value}"
        );
    }
    assert!(read_with(&node("waf"), RULES).is_err());
}

fn notes(sample: &Sample) -> Vec<(String, String)> {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    sample.state.notes.iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn bodies_beyond_the_limit_are_told_of() {
    let limit = node("body-limit").arg_literal("1KiB").prop_literal("beyond", "refuse");
    let ask_with = |mode: &str| {
        let settings = read(&waf(mode).prop_literal("log", "waf.log").with_child(limit.clone()));
        let mut sample = Sample::get("/");
        sample.body = (vec![b'x'; 1024], false);
        let status = ask(&mut sample, &settings);
        let mut sample = sample.response(status.unwrap_or(200));
        let lines = lines(&mut sample, &settings);
        (status, lines, notes(&sample))
    };
    let id = ("waf.id".to_owned(), "0000000000000004".to_owned());
    let (status, lines, notes) = ask_with("block");
    assert_eq!((status, lines.len()), (Some(413), 1), "{lines:?}");
    let line = "Access denied with code 413. The request's body is longer than the limit `body-limit'.";
    assert!(lines[0].contains(line) && lines[0].contains("[unique_id \"0000000000000004\"]"), "{}", lines[0]);
    assert_eq!(notes, [("waf.verdict".to_owned(), "refused".to_owned()), id.clone()]);
    let (status, lines, notes) = ask_with("detect");
    assert_eq!((status, lines.len()), (None, 1), "{lines:?}");
    assert!(lines[0].contains("Warning. The request's body is longer"), "{}", lines[0]);
    assert_eq!(notes, [("waf.verdict".to_owned(), "would-refuse".to_owned()), id]);
}

#[test]
fn no_rule_has_a_firewall_that_detects_stop_requests() {
    let rules = format!("SecAction \"id:1,phase:1,pass,nolog,ctl:ruleEngine=On\"\n{RULES}");
    let settings = read_with(&waf("detect"), &rules).unwrap();
    assert_eq!(ask(&mut Sample::get("/?a=evil"), &settings), None);
    let settings = read_with(&waf("block"), &rules).unwrap();
    assert_eq!(ask(&mut Sample::get("/?a=evil"), &settings), Some(403));
}

/// A step that fails loses the transaction; the log says nevertheless that rules have not seen the body.
#[test]
fn what_rules_have_not_seen_is_told_also_where_they_know_nothing_more() {
    let settings = read(&waf("detect").prop_literal("log", "waf.log"));
    let mut sample = Sample::get("/path?a=evil").field("Host", "h");
    assert_eq!(ask(&mut sample, &settings), None);
    assert!(sample.take::<TransactionValue>().is_some());
    let mut sample = sample.response(200);
    sample.unseen = Some("step");
    let lines = lines(&mut sample, &settings);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = "ModSecurity: Warning. Rules have not seen the request's body, or not all of it: step. [msg \"unseen\"] \
                [hostname \"h\"] [uri \"/path\"] [unique_id \"0000000000000004\"]";
    assert!(lines[0].ends_with(line), "{}", lines[0]);
    let note = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(notes(&sample), [note("waf.unseen", "step"), note("waf.id", "0000000000000004")]);
    assert_eq!(sample.state.events, ["unseen"]);
}

/// Without memory for the transaction, the findings remain.
#[test]
fn what_was_found_is_told_also_where_it_cannot_be_kept() {
    let settings = read(&waf("detect").prop_literal("log", "waf.log"));
    let mut sample = Sample::get("/?a=evil");
    assert_eq!(ask(&mut sample, &settings), None);
    let mut held = sample.take::<TransactionValue>().unwrap();
    assert!(TransactionValue::shrink(&mut held) && held.transaction.is_none());
    assert!(!TransactionValue::shrink(&mut Box::new(nothing())));
    sample.put::<TransactionValue>(held);
    let mut sample = sample.response(200);
    sample.unseen = Some("filter_memory");
    let lines = lines(&mut sample, &settings);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("ModSecurity: Warning.") && lines[0].contains("[id \"7\"]"), "{}", lines[0]);
    assert!(
        lines[1].contains("did not fit into memory: none have run since: filter_memory."),
        "{}",
        lines[1]
    );
    assert_eq!(sample.state.events, ["detected", "unseen"]);
}

/// The value of a lost transaction.
fn nothing() -> HeldTransaction {
    HeldTransaction {
        transaction: None,
        report: None,
        id: "0".into(),
        began: 0,
        head: 0,
        values: 0,
        is_cut: false,
        answered: false,
        holds: false,
        coding: None,
        limit: 0,
        counted: 0,
    }
}

#[test]
fn what_rules_redirect_to_is_a_target() {
    let rules = r#"SecRule ARGS:u "@unconditionalMatch" "id:1,phase:1,redirect:'/x?%{ARGS.u}',status:302""#;
    let settings = read_with(&waf("block"), rules).unwrap();
    let location = |target: &str| {
        let mut sample = Sample::get(target);
        sample.run(&Begin::default(), &settings);
        let Verdict::Stop(Action::Respond(response)) = sample.run(&RequestHead, &settings) else {
            panic!("{target}");
        };
        let field = response.fields.iter().find(|field| field.name() == b"location").unwrap();
        (response.status, String::from_utf8_lossy(field.value()).into_owned())
    };
    for (target, expected) in [
        ("/?u=a%0d%0aSet-Cookie:x=1", "/x?aSet-Cookie:x=1"),
        ("/?u=%00a%7f", "/x?a"),
        ("/?u=a%20b%ff%22%3c%5c", "/x?a%20b%FF%22%3C%5C"),
        ("/?u=%25%2Fb", "/x?%/b"),
    ] {
        assert_eq!(location(target), (302, expected.to_owned()), "{target}");
    }
}

#[test]
fn exclusions_that_mean_no_rule_are_warned_of() {
    let mut literals = Literals { files: vec![("rules.conf", RULES.into())], ..Literals::default() };
    let exclude = |name: &str, value: &str| match name {
        "id" => node("exclude").prop_literal("id", value.parse::<u64>().unwrap()),
        name => node("exclude").prop_literal(name, value),
    };
    let node = [("id", "9"), ("id", "9421"), ("tag", "bad"), ("tag", "baad")]
        .into_iter()
        .fold(waf("block"), |node, (name, value)| node.with_child(exclude(name, value)));
    WafSettings::from_nodes(std::slice::from_ref(&node), &mut literals).unwrap();
    let warnings: Vec<_> = literals.warnings.into_iter().map(|warning| warning.message).collect();
    assert_eq!(warnings, ["no rule has the id 9421", "no rule has the tag `baad`"]);
}
