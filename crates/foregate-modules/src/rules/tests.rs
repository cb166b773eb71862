use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use foregate_module::settings::{FURTHER_LIMIT, FromNode, Node, Problem};
use foregate_module::testing::{Handshake, Literals, Sample, node};
use foregate_module::{
    Action, Configured, Fields, PhaseId, Pipeline, PlanBuilder, Response, Step, Swept, UpstreamId, Verdict,
};
use foregate_rules::{List, Lists};
use sha2::{Digest, Sha256};

use super::{ChangeRequest, ChangeResponse, EvaluateRewrite, Rules};
use crate::expressions::Compiler;

const KEY: &str = "0123456789abcdef";

fn rule(expression: &str, actions: impl IntoIterator<Item = Node>) -> Node {
    actions.into_iter().fold(node("rule").arg_literal(expression), Node::with_child)
}

fn action(name: &str, arguments: &[&str]) -> Node {
    arguments.iter().fold(node(name), |node, argument| node.arg_literal(*argument))
}

/// An action with expressions as values.
fn computed(name: &str, arguments: &[&str]) -> Node {
    action(name, arguments).prop_literal("expression", true)
}

fn block() -> Node {
    node("block")
}

fn settings(nodes: &[Node], pipeline: &Pipeline) -> Result<Rules, Problem> {
    let mut lists = Lists::new();
    lists.insert("office", List::parse_ips("192.0.2.0/24\n").expect("a list"));
    let compiler = Compiler::new(pipeline, lists).expect("names that fit");
    let mut context = Literals {
        upstreams: Vec::from(["app", "other"]),
        files: Vec::from([
            ("page.html", b"{{cookie}} {{token}} {{difficulty}} {{max-age}} {{other}}".to_vec()),
            ("plain.html", b"no token".to_vec()),
        ]),
        steps: Vec::from([("redirect", pipeline.named("redirect")), ("rule", pipeline.named("rule"))]),
        compile: Some(Box::new(compiler)),
        logs: Vec::new(),
        ..Literals::default()
    };
    Rules::from_nodes(nodes, &mut context)
}

fn refused(nodes: &[Node]) -> (String, Option<String>) {
    let problem = settings(nodes, &crate::shipped()).err();
    problem.map(|problem| (problem.message, problem.help)).unwrap_or_default()
}

/// The outcome of a request.
struct Done {
    sample: Sample,
    answer: Option<Response>,
    ran: Vec<&'static str>,
}

impl Done {
    fn status(&self) -> u16 {
        self.answer.as_ref().map_or(0, |answer| answer.status)
    }

    fn location(&self) -> Option<&str> {
        let field = self.answer.as_ref()?.fields.iter().find(|field| field.name() == b"location")?;
        core::str::from_utf8(field.value()).ok()
    }

    fn sent(&self, name: &str) -> Option<String> {
        Some(String::from_utf8_lossy(self.sample.request.get(name)?).into_owned())
    }

    fn received(&self, name: &str) -> Option<String> {
        Some(String::from_utf8_lossy(self.sample.response.get(name)?).into_owned())
    }

    fn notes(&self) -> Vec<String> {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let notes = self.sample.state.notes.iter();
        notes.map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }
}

/// Runs all steps as a platform does; an origin answers with 200.
fn run(nodes: &[Node], sample: Sample) -> Done {
    let pipeline = crate::shipped();
    let settings = settings(nodes, &pipeline).unwrap_or_else(|problem| panic!("{problem:?}"));
    let mut plan = PlanBuilder::new(&pipeline);
    plan.configure(Configured {
        key: "rule",
        settings: Arc::new(settings),
        when: None,
        dry_run: false,
        reads: Box::default(),
    });
    let plan = plan.build(true);
    let mut done = Done { sample, answer: None, ran: Vec::new() };
    let mut state = core::mem::take(&mut done.sample.state);
    for planned in plan.steps() {
        let decl = pipeline.entries()[usize::from(planned.step)].decl();
        let of_response = decl.phase >= PhaseId::UpstreamResponse;
        if state.skipped.contains(planned.step.into()) || (done.answer.is_some() && !of_response) {
            continue;
        }
        if of_response && done.sample.status.is_none() {
            done.sample.status = Some(done.answer.as_ref().map_or(200, |answer| answer.status));
        }
        done.ran.push(decl.name);
        if let Verdict::Stop(Action::Respond(response)) = pipeline.run(planned, &mut done.sample, &mut state)
        {
            done.answer = Some(response);
        }
    }
    done.sample.state = state;
    done
}

#[test]
fn a_rule_blocks() {
    let nodes = [
        rule(r#"http.request.uri.path eq "/admin" and not ip.src in $office"#, [block()])
            .prop_literal("name", "admin"),
        rule("true", [action("set-header", &["x-passed", "yes"])]),
        rule(r#"http.host eq "gone.example""#, [node("block").arg_literal(410).arg_literal("gone\n")]),
    ];
    let blocked = run(&nodes, Sample::get("/admin").from("198.51.100.7"));
    assert_eq!((blocked.status(), blocked.sent("x-passed")), (403, None));
    assert_eq!(blocked.notes(), ["rule=admin"]);
    assert!(!blocked.ran.contains(&"rules-change"));
    let passed = run(&nodes, Sample::get("/admin"));
    assert_eq!((passed.status(), passed.sent("x-passed").as_deref()), (0, Some("yes")));
    let mut sample = Sample::get("/");
    sample.host = "gone.example".into();
    let gone = run(&nodes, sample);
    let answer = gone.answer.as_ref().expect("an answer");
    assert_eq!((answer.status, &*answer.body), (410, &b"gone\n"[..]));
    assert_eq!(answer.fields[0].value(), b"text/plain; charset=utf-8");
    assert_eq!(gone.notes(), ["rule=rule 3"]);
}

#[test]
fn a_rule_responds_and_redirects() {
    let target = r#"concat("https://new.example", http.request.uri)"#;
    let nodes = [
        rule(
            r#"http.request.uri.path eq "/hello""#,
            [node("respond")
                .arg_literal(200)
                .arg_literal(r#"concat("{\"ip\": \"", to_string(ip.src), "\"}")"#)
                .prop_literal("type", "application/json")
                .prop_literal("expression", true)],
        ),
        rule("not ssl", [computed("redirect", &[r#"concat("https://", http.host, http.request.uri)"#])]),
        rule(
            r#"http.request.uri.path eq "/x""#,
            [computed("redirect", &[r#"concat("/", http.user_agent)"#])],
        ),
        rule("true", [computed("redirect", &[target]).prop_literal("status", 308)]),
    ];
    let encrypted = |target: &str| {
        let mut sample = Sample::get(target);
        sample.tls = Some(Handshake::default());
        sample
    };
    let hello = run(&nodes, Sample::get("/hello"));
    let answer = hello.answer.expect("an answer");
    assert_eq!((answer.status, &*answer.body), (200, &br#"{"ip": "192.0.2.1"}"#[..]));
    assert_eq!(answer.fields[0].value(), b"application/json");
    let upgraded = run(&nodes, Sample::get("/a?b"));
    assert_eq!((upgraded.status(), upgraded.location()), (302, Some("https://example.com/a?b")));
    let moved = run(&nodes, encrypted("/a?b"));
    assert_eq!((moved.status(), moved.location()), (308, Some("https://new.example/a?b")));
    let astray = run(&nodes, encrypted("/x").field("user-agent", "/evil.example/ \u{e9}\\"));
    assert_eq!(astray.location(), Some("/evil.example/%20%C3%A9%5C"));
    let mut there = encrypted("/a?b");
    there.host = "new.example".into();
    assert_eq!(run(&nodes, there).status(), 0);
}

#[test]
fn a_computed_target_is_a_path_or_on_the_web() {
    let nodes = [rule("true", [computed("redirect", &["http.user_agent"])])];
    for (target, location) in [
        ("javascript:alert(1)", None),
        ("Data:text/html,x", None),
        ("HTTPS://a.example/", Some("HTTPS://a.example/")),
        ("a?b:c", Some("a?b:c")),
        ("/a:b", Some("/a:b")),
        ("//a.example/", Some("/a.example/")),
        ("", None),
    ] {
        let done = run(&nodes, Sample::get("/").field("user-agent", target));
        assert_eq!(done.location(), location, "{target}");
    }
}

#[test]
fn what_the_origin_gets_is_changed() {
    let rewrite = |name: &str, value: &str| node("rewrite").prop_literal(name, value);
    let nodes = [
        rule("true", [rewrite("path", "/one"), rewrite("query", "a=1")]),
        rule(
            r#"http.request.uri.path eq "/start""#,
            [
                rewrite("path", r#"concat("/two", http.request.uri.path)"#).prop_literal("expression", true),
                action("set-header", &["x-a", "fixed"]),
                computed("add-header", &["x-b", "http.host"]),
                computed("set-header", &["x-c", "http.user_agent"]),
                action("remove-header", &["x-secret"]),
                action("upstream", &["other"]),
            ],
        ),
    ];
    let done = run(&nodes, Sample::get("/start").field("x-secret", "1").field("x-a", "old"));
    assert_eq!((&*done.sample.path, done.sample.query.as_deref()), (&b"/two/start"[..], Some(&b"a=1"[..])));
    assert_eq!(done.sent("x-a").as_deref(), Some("fixed"));
    assert_eq!(done.sent("x-b").as_deref(), Some("example.com"));
    assert_eq!((done.sent("x-c"), done.sent("x-secret")), (None, None));
    assert_eq!(done.sample.upstream, Some(UpstreamId(1)));
    let done = run(&nodes, Sample::get("/other"));
    assert_eq!((&*done.sample.path, done.sample.upstream), (&b"/one"[..], None));
}

#[test]
fn a_computed_field_that_comes_to_nothing_goes() {
    let nodes = [
        rule(
            "true",
            [
                computed("set-header", &["x-user", r#"http.request.headers["x-absent"][0]"#]),
                computed("set-header", &["x-agent", "http.user_agent"]),
                computed("set-header", &["x-empty", r#"concat("")"#]),
                computed("add-header", &["x-added", r#"http.request.headers["x-absent"][0]"#]),
                computed("add-header", &["x-added", "http.referer"]),
                computed("set-response-header", &["server", r#"http.request.headers["x-absent"][0]"#]),
            ],
        ),
        rule("true", [computed("set-response-header", &["x-agent", "http.user_agent"])])
            .prop_literal("phase", "response"),
    ];
    let mut sample = Sample::get("/");
    for name in ["x-user", "X-User", "x-agent", "x-empty", "x-added"] {
        sample = sample.field(name, "theirs");
    }
    // This cannot stand in a field that a module sets.
    sample = sample.field("user-agent", "a\u{7f}b");
    sample.response.0.push((b"server".to_vec(), b"theirs".to_vec()));
    sample.response.0.push((b"x-agent".to_vec(), b"theirs".to_vec()));
    let done = run(&nodes, sample);
    for name in ["x-user", "x-agent", "x-empty"] {
        assert_eq!(done.sent(name), None, "{name}");
    }
    assert_eq!(done.sent("x-added").as_deref(), Some("theirs"));
    assert_eq!((done.received("server"), done.received("x-agent")), (None, None));
}

#[test]
fn rules_behind_see_what_was_set() {
    let nodes = [
        rule("true", [action("set", &["tier", "silver"]), computed("set", &["copy", r#"vars["tier"][0]"#])]),
        rule(r#"http.host eq "example.com""#, [action("set", &["tier", "gold"])]),
        rule(
            r#"vars["tier"][0] eq "gold" and vars["copy"][0] eq "silver""#,
            [action("log", &["tier", "gold"])],
        ),
        rule(r#"vars["tier"][0] eq "silver""#, [block()]),
        rule(r#"vars["tier"][0] eq "gold""#, [action("set", &["late", "1"])])
            .prop_literal("phase", "rewrite"),
        rule(
            r#"vars["late"][0] eq "1" and vars["tier"][0] eq "gold""#,
            [action("set-header", &["x-late", "1"])],
        )
        .prop_literal("phase", "rewrite"),
        rule(
            r#"vars["late"][0] eq "1""#,
            [computed("set-response-header", &["x-tier", r#"vars["tier"][0]"#])],
        )
        .prop_literal("phase", "response"),
    ];
    let done = run(&nodes, Sample::get("/"));
    assert_eq!((done.status(), done.notes()), (0, Vec::from(["tier=gold".to_string()])));
    assert_eq!(done.sent("x-late").as_deref(), Some("1"));
    assert_eq!(done.received("x-tier").as_deref(), Some("gold"));
}

#[test]
fn modules_and_rules_are_skipped() {
    let nodes = [
        rule(r#"http.request.uri.path eq "/a""#, [action("skip", &["redirect"])]),
        rule(
            r#"http.request.uri.path eq "/b""#,
            [action("skip", &["rules"]), action("set-header", &["x", "1"])],
        ),
        rule("true", [block()]),
        rule("true", [action("set-response-header", &["y", "1"])]).prop_literal("phase", "response"),
    ];
    let pipeline = crate::shipped();
    let skipped = run(&nodes, Sample::get("/a"));
    assert_eq!(skipped.sample.state.skipped, pipeline.named("redirect"));
    assert!(!skipped.sample.state.skipped.is_empty());
    assert_eq!((skipped.status(), skipped.received("y").as_deref()), (403, Some("1")));
    let passed = run(&nodes, Sample::get("/b"));
    assert_eq!((passed.status(), passed.sent("x").as_deref(), passed.received("y")), (0, Some("1"), None));
}

#[test]
fn responses_are_changed_and_replaced() {
    let nodes = [
        rule("true", [action("set-response-header", &["x-early", "1"])]),
        rule(
            "http.response.code eq 200",
            [action("remove-response-header", &["server"]), action("add-response-header", &["x-late", "2"])],
        )
        .prop_literal("phase", "response"),
        rule(r#"http.response.headers["x-bad"][0] eq "1""#, [node("respond").arg_literal(502)])
            .prop_literal("phase", "response"),
    ];
    let mut sample = Sample::get("/");
    sample.response.0.push((b"server".to_vec(), b"x".to_vec()));
    let done = run(&nodes, sample);
    assert_eq!(
        (done.received("x-early").as_deref(), done.received("x-late").as_deref()),
        (Some("1"), Some("2"))
    );
    assert_eq!((done.received("server"), done.status()), (None, 0));
    let mut sample = Sample::get("/");
    sample.response.0.push((b"x-bad".to_vec(), b"1".to_vec()));
    assert_eq!(run(&nodes, sample).status(), 502);
}

#[test]
fn a_dry_run_only_tells() {
    let nodes = [
        rule("true", [action("set", &["a", "1"]), block()])
            .prop_literal("dry-run", true)
            .prop_literal("name", "new"),
        rule(r#"vars["a"][0] eq "1""#, [block()]),
    ];
    let done = run(&nodes, Sample::get("/"));
    assert_eq!((done.status(), done.notes()), (0, Vec::from(["rule-dry-run=new".to_string()])));
}

/// A cookie that answers the page's task.
fn solved(token: &str, difficulty: u32) -> String {
    let fits = |answer: &String| {
        let hash = Sha256::digest(answer.as_bytes());
        hash.first_chunk().is_some_and(|start| u32::from_be_bytes(*start).leading_zeros() >= difficulty)
    };
    let answers = (0_u64..).map(|answer| format!("{token}.{answer}"));
    answers.into_iter().find(fits).expect("numbers do not end")
}

#[test]
fn a_challenge_lets_pass_who_has_solved_it() {
    let challenge = node("challenge")
        .arg_literal("page.html")
        .prop_literal("key", KEY)
        .prop_literal("difficulty", 8)
        .prop_literal("valid", "10m");
    let nodes = [rule("true", [challenge, action("set-header", &["x-human", "1"])])];
    let challenged = run(&nodes, Sample::get("/"));
    let answer = challenged.answer.as_ref().expect("the page");
    let page = String::from_utf8_lossy(&answer.body).into_owned();
    let parts: Vec<_> = page.split(' ').collect();
    let [cookie, token, "8", "600", "{{other}}"] = *parts else { panic!("{page}") };
    assert_eq!((cookie, answer.status), ("foregate-pass", 403));
    assert!(answer.fields.iter().any(|field| field.value() == b"no-store"));
    assert_eq!(challenged.sent("x-human"), None);

    let good = solved(token, 8);
    let ask = |value: &str, change: &dyn Fn(&mut Sample)| {
        let mut sample = Sample::get("/").field("cookie", &format!("a=b; foregate-pass={value}; c"));
        change(&mut sample);
        run(&nodes, sample).sent("x-human").is_some()
    };
    assert!(ask(&good, &|_| {}));
    assert!(ask(&good, &|sample| sample.now.unix_ms += 599_000));
    let unsolved = format!("{token}.no");
    assert!(Sha256::digest(unsolved.as_bytes())[0] != 0, "another answer for this token");
    let forged = good.replacen(&token[11..13], if &token[11..13] == "00" { "11" } else { "00" }, 1);
    let later = good.replacen("17672", "17673", 1);
    for bad in [&*unsolved, token, "", "..", &forged, &later, &format!("{good}.x"), &good.replace('.', "-")] {
        assert!(!ask(bad, &|_| {}), "{bad}");
    }
    assert!(!ask(&good, &|sample| sample.now.unix_ms += 600_000));
    assert!(!ask(&good, &|sample| sample.client = "192.0.2.2".parse().ok()));
    assert!(!ask(&good, &|sample| sample.host = "other.example".into()));
}

#[test]
fn the_simple_page_has_all_that_it_needs() {
    let nodes = [rule("true", [node("challenge").prop_literal("key", KEY).prop_literal("status", 401)])];
    let done = run(&nodes, Sample::get("/"));
    let page = String::from_utf8_lossy(&done.answer.as_ref().expect("the page").body).into_owned();
    assert_eq!(done.status(), 401);
    for part in ["token = \"17672", "bits = 12,", "\"foregate-pass=\"", "max-age=3600\""] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("{{"));
}

#[test]
fn the_page_of_a_challenge_lets_its_script_run() {
    let nodes = [rule("true", [node("challenge").prop_literal("key", KEY)])];
    let answered = |random: u64| {
        let mut sample = Sample::get("/");
        sample.random = random;
        run(&nodes, sample).answer.expect("the page")
    };
    let nonce = |answer: &Response| {
        let page = String::from_utf8_lossy(&answer.body).into_owned();
        page.split_once("<script nonce=\"").unwrap().1.split_once('"').unwrap().0.to_string()
    };
    let answer = answered(1);
    let policy = format!("script-src 'nonce-{}'; object-src 'none'; base-uri 'none'", nonce(&answer));
    assert!(answer.fields.iter().any(|field| field.value() == policy.as_bytes()), "{policy}");
    assert!(answer.meant && nonce(&answer).len() == 32 && nonce(&answer) != nonce(&answered(2)));
}

#[test]
fn texts_of_rules_are_meant() {
    let meant = |action: Node| run(&[rule("true", [action])], Sample::get("/")).answer.unwrap().meant;
    assert!(meant(node("block").arg_literal(403).arg_literal("Keep out")));
    assert!(meant(node("respond").arg_literal(404).arg_literal("Nothing")));
    assert!(!meant(node("block").arg_literal(403)) && !meant(block()));
}

#[test]
fn a_rule_uses_what_its_phase_knows() {
    let (message, help) = refused(&[rule("ssl", [block()]), rule("http.response.code eq 200", [block()])]);
    assert!(message.contains("http.response.code"), "{message}");
    let advice = "with phase=\"response\", the rule is evaluated in response-headers, where this is known";
    assert_eq!(help.as_deref(), Some(advice));
    let (_, help) = refused(&[rule("http.request.body.size gt 1", [block()])]);
    let advice = "with phase=\"rewrite\", the rule is evaluated in request-rewrite, where this is known";
    assert_eq!(help.as_deref(), Some(advice));
    let value = computed("log", &["a", "http.response.code"]);
    assert!(refused(&[rule("ssl", [value])]).1.is_some_and(|help| help.contains("phase=\"response\"")));
    let (message, help) = refused(&[rule("http.hots eq 1", [block()])]);
    assert!(message.contains("did you mean `http.host`?") && help.is_none(), "{message}");
    for name in ["set-header", "rewrite", "upstream", "challenge"] {
        let action = match name {
            "set-header" => action(name, &["a", "b"]),
            "rewrite" => node(name).prop_literal("path", "/"),
            "upstream" => action(name, &["app"]),
            _ => node(name).prop_literal("key", KEY),
        };
        let (message, _) = refused(&[rule("ssl", [action]).prop_literal("phase", "response")]);
        let expected =
            format!("`{name}` is about the request, which has been answered in phase response-headers");
        assert_eq!(message, expected);
    }
}

#[test]
fn all_that_is_wrong_is_told() {
    let header = || action("set-header", &["a b", "1"]);
    let mut nodes = Vec::from([
        rule("http.hots eq 1", [header(), action("upstream", &["none"]), block()]),
        rule("ssl", [block(), action("log", &["a", "b"])]),
        rule("http.response.code eq 200", [block()]),
        rule("ssl", [action("set", &["a", "b"])]),
        rule(r#"vars["a"][0] eq"#, [block()]),
        rule("http.host", [block()]).prop_literal("phase", "response"),
        rule("ssl", [block()]).prop_literal("phase", "later"),
        rule("ssl", []),
    ]);
    let all = |nodes: &[Node]| {
        let mut problem = settings(nodes, &crate::shipped()).err().expect("mistakes");
        let further = core::mem::take(&mut problem.further);
        core::iter::once(problem).chain(further).collect::<Vec<Problem>>()
    };
    let told = all(&nodes);
    let messages: Vec<&str> = told.iter().map(|problem| &*problem.message).collect();
    for (part, count) in [
        ("not the name of a field", 1),
        ("no upstream of this name", 1),
        ("`http.hots`", 1),
        ("`log` does not run", 1),
        ("http.response.code", 1),
        ("a rule has an action", 1),
        ("expected \"request\" or \"rewrite\" or \"response\"", 1),
    ] {
        assert_eq!(messages.iter().filter(|message| message.contains(part)).count(), count, "{messages:?}");
    }
    assert_eq!(messages.len(), 9, "{messages:?}");
    assert!(
        told.iter()
            .any(|problem| problem.help.as_ref().is_some_and(|help| help.contains("phase=\"response\"")))
    );
    assert!(told.iter().all(|problem| problem.further.is_empty()));
    nodes = Vec::from_iter(core::iter::repeat_n(rule("ssl", [header()]), 2 * FURTHER_LIMIT));
    assert_eq!(all(&nodes).len(), FURTHER_LIMIT + 1);
}

#[test]
fn all_that_is_wrong_with_one_action_is_told() {
    let two = |action: Node| {
        let problem = settings(&[rule("ssl", [action])], &crate::shipped()).err().expect("mistakes");
        let further: Vec<String> = problem.further.iter().map(|more| more.message.to_string()).collect();
        assert_eq!(further.len(), 1, "{problem:?}");
        (problem.message.to_string(), further.concat())
    };
    let (first, second) = two(action("set-header", &["a b", "lower(http.host)"]));
    assert!(first.contains("not the name of a field") && second.contains("`lower` is not called here"));
    let (first, second) = two(action("log", &["", "lower(http.host)"]));
    assert!(first.contains("a name has 1 to") && second.contains("`lower` is not called here"));
    let (first, second) = two(action("redirect", &["//a"]).prop_literal("status", 300));
    assert!(first.contains("300") || first.contains("301"), "{first}");
    assert!(second.contains("names another host"), "{second}");
    let respond = node("respond").arg_literal(1).arg_literal("lower(http.host)");
    let (first, second) = two(respond);
    assert!(first.contains("from 200 to 999") && second.contains("`lower` is not called here"));
    let (first, second) = two(action("skip", &["none", "neither"]));
    assert_eq!([&*first, &*second], ["there is no module of this name"; 2]);
}

#[test]
fn actions_that_cannot_be_are_refused() {
    let header = "this field belongs to the connection or the framing, which no module changes";
    let control = "this cannot be the value of a field: it has a control byte, or a blank at an end";
    let key = |key: &str| node("challenge").prop_literal("key", key);
    for (action, message) in [
        (node("block").arg_literal(200), "expected a whole number from 400 to 999"),
        (node("respond").arg_literal(100), "expected a whole number from 200 to 999"),
        (node("respond").arg_literal(205).arg_literal("text"), "an answer with status 205 has no body"),
        (
            action("redirect", &["//a"]),
            "a target that begins with `//` names another host; write its scheme too",
        ),
        (
            action("redirect", &["https://www.example.com$request_uri"]),
            "`$request_uri` is no variable here: it is taken as it stands",
        ),
        (
            action("redirect", &["concat(\"https://a\", http.request.uri)"]),
            "`concat` is not called here: the text is taken as it stands",
        ),
        (
            node("rewrite").prop_literal("path", "/q/${1}"),
            "`${1}` is no variable here: it is taken as it stands",
        ),
        (
            node("rewrite").prop_literal("path", "/a/../b"),
            "a path to which a request is rewritten has no `..`",
        ),
        (
            node("rewrite").prop_literal("path", "/%2E%2e"),
            "a path to which a request is rewritten has no `..`",
        ),
        (
            node("rewrite").prop_literal("path", "/%252e./..b"),
            "a path to which a request is rewritten has no `..`",
        ),
        (
            node("rewrite").prop_literal("path", "/a%2f..%2fb"),
            "a path to which a request is rewritten has no `..`",
        ),
        (
            node("rewrite").prop_literal("path", "/a\\..;x"),
            "a path to which a request is rewritten has no `..`",
        ),
        (node("rewrite").prop_literal("path", "/a%0"), "behind `%` stand two hexadecimal digits"),
        (node("rewrite").prop_literal("path", "/a%00"), "no path has a NUL in it"),
        (node("rewrite").prop_literal("query", "?a=1"), "a query is written without `?`, and has no `#`"),
        (
            node("rewrite").prop_literal("query", "a=$args"),
            "`$args` is no variable here: it is taken as it stands",
        ),
        (
            action("set-header", &["x-b", "concat(\"a\", http.host)"]),
            "`concat` is not called here: the text is taken as it stands",
        ),
        (
            action("set-response-header", &["x-b", "${host}"]),
            "`${host}` is no variable here: it is taken as it stands",
        ),
        (action("log", &["a", "$host"]), "`$host` is no variable here: it is taken as it stands"),
        (
            node("respond").arg_literal(200).arg_literal("lower(http.host)"),
            "`lower` is not called here: the text is taken as it stands",
        ),
        (node("rewrite"), "`rewrite` needs `path`, `query` or both"),
        (
            node("rewrite").prop_literal("path", "/a?b"),
            "a path begins with `/` and has no query; that has its own property",
        ),
        (action("set-header", &["content-length", "1"]), header),
        (action("remove-header", &["Transfer-Encoding"]), header),
        (computed("set-header", &["connection", "http.host"]), header),
        (action("set-header", &["a b", "1"]), "this is not the name of a field"),
        (action("set-response-header", &["a", "b\r\nc: d"]), control),
        (block().arg_literal(403).prop_literal("type", "html"), "this is not a media type"),
        (action("upstream", &["none"]), "there is no upstream of this name"),
        (action("skip", &["none"]), "there is no module of this name"),
        (action("set", &["", "1"]), "a name has 1 to 64 bytes"),
        (key("short"), "a key has at least 16 bytes"),
        (key(KEY).arg_literal("plain.html"), "the page has no `{{token}}`, which its script needs"),
        (key(KEY).prop_literal("status", 404), "expected 401, 403, 429 or 503"),
        (
            key(KEY).prop_literal("cookie", "a=b"),
            "the name of a cookie has letters, digits, `-`, `_` and `.`",
        ),
        (key(KEY).prop_literal("difficulty", 25), "expected a whole number from 0 to 24"),
        (node("challenge"), "`challenge` needs `key`"),
    ] {
        assert_eq!(refused(&[rule("ssl", [action])]).0, message);
    }
    assert_eq!(refused(&[rule("ssl", [])]).0, "a rule has an action");
    let (message, _) = refused(&[rule("ssl", [block(), action("log", &["a", "b"])])]);
    assert_eq!(message, "`log` does not run: the action before it ends the request");
}

#[test]
fn names_in_actions_do_not_come_in_trailers() {
    let pipeline = crate::shipped();
    let absent = r#"http.request.headers["x-none"][0]"#;
    let nodes = [
        rule("ssl", [action("set-header", &["x-set", "1"]), computed("set-header", &["x-made", absent])]),
        rule(
            "true",
            [action("remove-header", &["x-gone"]), action("set-response-header", &["x-shown", "1"])],
        ),
        rule("true", [action("add-response-header", &["x-more", "1"])]),
        rule("true", [action("add-header", &["x-added", "1"])]).prop_literal("phase", "rewrite"),
        rule("true", [action("remove-response-header", &["x-secret"])]).prop_literal("phase", "response"),
        rule("true", [action("set-header", &["x-dry", "1"])]).prop_literal("dry-run", true),
    ];
    let rules = settings(&nodes, &pipeline).expect("rules");
    for name in ["x-set", "X_Made", "x-gone", "x-added"] {
        assert!(!ChangeRequest.keeps(&rules, Swept::Trailers, name.as_bytes()), "{name}");
        assert!(!EvaluateRewrite.keeps(&rules, Swept::Trailers, name.as_bytes()), "{name}");
    }
    for name in ["x-dry", "x-shown", "x-secret", "x-other"] {
        assert!(ChangeRequest.keeps(&rules, Swept::Trailers, name.as_bytes()), "{name}");
    }
    for (name, kept) in [("x-shown", false), ("X-Secret", false), ("x-more", true), ("x-set", true)] {
        assert_eq!(ChangeResponse.keeps(&rules, Swept::Trailers, name.as_bytes()), kept, "{name}");
        assert!(ChangeResponse.keeps(&rules, Swept::Interim, name.as_bytes()), "{name}");
    }
    assert!(
        [ChangeRequest::sweeps, EvaluateRewrite::sweeps, ChangeResponse::sweeps]
            .iter()
            .all(|sweeps| sweeps(&rules))
    );
    let plain = settings(&[rule("ssl", [block()])], &pipeline).expect("rules");
    assert!(
        ![ChangeRequest::sweeps, EvaluateRewrite::sweeps, ChangeResponse::sweeps]
            .iter()
            .any(|sweeps| sweeps(&plain))
    );
}
