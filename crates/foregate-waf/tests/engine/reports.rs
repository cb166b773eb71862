//! The text of reports.

use foregate_waf::engine::{Options, Transaction, Verdict};
use foregate_waf::model::EngineMode;

use super::{engine, get, ids, request, transaction};

#[test]
fn lines_that_tools_understand() {
    let engine = engine(
        r#"SecRule ARGS "@rx (evil)" "id:942100,phase:2,deny,status:403,capture,t:none,log,msg:'An \"attack\"',\
            logdata:'Matched Data: %{TX.0} within %{MATCHED_VAR_NAME}',severity:CRITICAL,ver:'SET/1.0',tag:'one',tag:'two'""#,
    );
    let report = get(&engine, "/path?q=very+evil");
    let lines: Vec<String> = report.lines().collect();
    assert_eq!(
        lines,
        [
            r#"[client 192.0.2.7] ModSecurity: Access denied with code 403 (phase 2). Matched "Operator `Rx' with parameter `(evil)' against variable `ARGS:q' (Value: `very evil' ) [file "rules.conf"] [line "1"] [id "942100"] [rev ""] [msg "An \x22attack\x22"] [data "Matched Data: evil within ARGS:q"] [severity "2"] [ver "SET/1.0"] [maturity "0"] [accuracy "0"] [tag "one"] [tag "two"] [hostname "example.com"] [uri "/path"] [unique_id "u1"]"#
        ]
    );
    assert_eq!(report.highest_severity, Some(2));
}

#[test]
fn nothing_breaks_out_of_a_line() {
    let engine = engine(r#"SecRule ARGS "@contains evil" "id:1,phase:2,pass,log,logdata:'%{MATCHED_VAR}'""#);
    let line = get(&engine, "/?q=evil%22%5D%0A%5Bid+%221%22%5D").lines().next().unwrap();
    assert!(!line.contains('\n') && line.contains(r#"evil\x22]\x0a[id \x221\x22]"#), "{line}");
}

#[test]
fn secrets_are_hidden() {
    let engine = engine(
        r#"
        SecAuditEngine On
        SecAuditLogParts ABCHZ
        SecRule ARGS|REQUEST_COOKIES|REQUEST_HEADERS|REQUEST_LINE "@rx hunter\d" "id:1,phase:2,pass,log,capture,\
            logdata:'%{TX.0} in %{MATCHED_VAR}',sanitiseArg:note"
    "#,
    );
    let shown = |target: &str, fields: &[(&str, &str)]| {
        let report = request(&engine, target, fields);
        let lines: Vec<String> = report.lines().collect();
        format!("{}{}", lines.join("\n"), report.audit.unwrap_or_default())
    };
    for text in [
        shown("/?password=hunter2", &[]),
        shown("/", &[("Authorization", "Basic hunter2")]),
        shown("/", &[("Cookie", "a=hunter2")]),
    ] {
        assert!(text.contains("***") && text.contains("id \"1\"") && !text.contains("hunter2"), "{text}");
    }
    assert!(shown("/?q=hunter2", &[]).contains("hunter2"));
    for text in
        [shown("/", &[("X-Access-Token", "hunter2")]), shown("/", &[("Authorization ", "Bearer hunter2")])]
    {
        assert!(text.contains("***") && text.contains("id \"1\"") && !text.contains("hunter2"), "{text}");
    }
}

/// JSON that is sent as a form is the name of an argument.
#[test]
fn secrets_are_hidden_in_names() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecAuditEngine On
        SecRule ARGS_NAMES "@contains $(id)" "id:1,phase:2,pass,log,logdata:'%{MATCHED_VAR_NAME}: %{MATCHED_VAR}'"
    "#,
    );
    let mut transaction = transaction(&engine);
    transaction.request_line(b"POST", b"/", b"HTTP/1.1");
    transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
    transaction.request_headers();
    transaction.request_body(br#"{"user":"bob","password":"hunter2$(id)"}"#, true);
    let report = transaction.log();
    let text = format!("{:?}{}", report.lines().collect::<Vec<_>>(), report.audit.unwrap_or_default());
    assert!(text.contains("***") && text.contains("bob") && !text.contains("hunter2"), "{text}");
}

/// Rules see the text of a document as one, and know no names in it.
#[test]
fn secrets_are_hidden_in_the_text_of_xml() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecAuditEngine On
        SecRule REQUEST_HEADERS:Content-Type "@contains xml" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
        SecRule XML:/* "@contains bob" "id:2,phase:2,pass,log,t:lowercase,logdata:'%{MATCHED_VAR}'"
    "#,
    );
    let mut transaction = transaction(&engine);
    transaction.request_line(b"POST", b"/", b"HTTP/1.1");
    transaction.request_field(b"Content-Type", b"text/xml");
    transaction.request_headers();
    let body = b"<a><u>bob' or 1=1--</u><s:Password Type=\"x\">Hunt<!-- -->er2 hunter2</s:Password></a>";
    transaction.request_body(body, true);
    let report = transaction.log();
    let text = format!("{:?}{}", report.lines().collect::<Vec<_>>(), report.audit.unwrap_or_default());
    assert!(text.contains("bob' or 1=1--***") && !text.to_lowercase().contains("hunt"), "{text}");
}

/// Secrets in attributes, and in elements inside one with a secret name.
#[test]
fn secrets_are_hidden_in_attributes_and_nested_elements_of_xml() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecAuditEngine On
        SecRule REQUEST_HEADERS:Content-Type "@contains xml" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
        SecRule XML:/* "@contains bob" "id:2,phase:2,pass,log,t:lowercase,logdata:'%{MATCHED_VAR}'"
        SecRule XML://@* "@rx r" "id:3,phase:2,pass,log,logdata:'%{MATCHED_VAR}'"
    "#,
    );
    let mut transaction = transaction(&engine);
    transaction.request_line(b"POST", b"/", b"HTTP/1.1");
    transaction.request_field(b"Content-Type", b"text/xml");
    transaction.request_headers();
    let body = b"<a password='attr1r'><s:Password><v x='attr2r'>inner1<w/></v>inner2</s:Password><u ok='bar'>bob</u></a>";
    transaction.request_body(body, true);
    let report = transaction.log();
    assert_eq!(ids(&report), [2, 3]);
    let text = format!("{:?}{}", report.lines().collect::<Vec<_>>(), report.audit.unwrap_or_default());
    assert!(!["attr1", "attr2", "inner1", "inner2"].iter().any(|secret| text.contains(secret)), "{text}");
    assert!(text.contains("bob") && text.contains("bar"), "{text}");
}

#[test]
fn secrets_of_fields_are_hidden_wherever_they_come_to() {
    let secrets = ["hunter2secret", "proxysecret", "cookiesecret", "argsecret1"];
    let fields = [
        ("Authorization", "Basic hunter2secret"),
        ("Proxy-Authorization", "proxysecret"),
        ("Cookie", "a=1; sid=cookiesecret; b=2"),
    ];
    for rule in [
        r#"SecRule FULL_REQUEST "@contains x" "id:1,phase:2,pass,log,auditlog,logdata:'%{MATCHED_VAR}'""#,
        r#"SecRule FULL_REQUEST "@contains x" "id:1,phase:2,pass,log,auditlog""#,
        r#"SecRule FULL_REQUEST "@contains x" "id:1,phase:2,pass,log,auditlog,t:lowercase,t:removeWhitespace,t:urlDecode""#,
        r#"SecRule FULL_REQUEST "@rx Basic (hunter)|x" "id:1,phase:2,pass,log,auditlog,capture,logdata:'%{TX.0} %{TX.1}'""#,
        r#"SecRule FULL_REQUEST "@rx (?s)sid=.*" "id:1,phase:2,pass,log,auditlog,capture,logdata:'%{TX.0}'""#,
        r#"SecRule REQUEST_URI "@contains x" "id:1,phase:2,pass,log,auditlog,msg:'%{REQUEST_HEADERS.Authorization} %{REQUEST_HEADERS.proxy-authorization} %{REQUEST_COOKIES.sid} %{ARGS.password} %{ARGS_GET.password} %{REQUEST_HEADERS.Cookie}',tag:'%{REQUEST_COOKIES.sid}'""#,
        r#"SecRule REQUEST_URI "@contains x" "id:1,phase:2,pass,log,auditlog,setvar:'tx.kept=<%{REQUEST_HEADERS.Authorization}>%{ARGS.password}',msg:'%{TX.kept}'""#,
        r#"SecRule REQUEST_COOKIES:sid "@rx ." "id:1,phase:2,pass,nolog,setvar:'tx.kept=%{MATCHED_VAR}'"
           SecRule TX:kept "@rx ." "id:2,phase:2,pass,log,auditlog,msg:'%{TX.kept}',logdata:'%{MATCHED_VAR}'""#,
        r#"SecRule REQUEST_URI "@contains x" "id:1,phase:2,redirect:'https://h/%{REQUEST_COOKIES.sid}',log,auditlog""#,
    ] {
        let rules = format!("SecRequestBodyAccess On\nSecAuditEngine On\nSecAuditLogParts ABCHZ\n{rule}\n");
        let report = request(&engine(&rules), "/x?password=argsecret1", &fields);
        assert!(!report.matches.is_empty(), "{rule}");
        let lines: Vec<String> = report.lines().collect();
        let text = format!("{}{}", lines.join("\n"), report.audit.clone().unwrap_or_default());
        assert!(text.contains("***") && !lines.is_empty(), "{text}");
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {text} by {rule}");
        }
        assert!(!report.matches[0].data.contains("unter"), "{text}");
    }
    // A client does not hide a value by sending it as a secret as well.
    let rule =
        r#"SecRule ARGS "@rx evil.*" "id:1,phase:2,pass,log,capture,logdata:'%{TX.0} in %{MATCHED_VAR}'""#;
    let report = request(&engine(rule), "/?q=an+evil+text", &[("Cookie", "a=evil text; b=an evil text")]);
    assert_eq!(report.matches[0].data, "evil text in an evil text");
    assert_eq!(report.matches[0].value, "an evil text");
    // Other values are shown, and a redirect leads to its target.
    let rule = r#"SecRule REQUEST_URI "@contains x" "id:1,phase:1,redirect:'https://h/%{REQUEST_COOKIES.sid}',log,logdata:'%{REQUEST_HEADERS.Host} %{ARGS.q}'""#;
    let report = request(&engine(rule), "/x?q=plain&password=argsecret1", &fields);
    assert_eq!(report.matches[0].data, "example.com plain");
    let Verdict::Redirect { to, .. } = &report.verdict else { panic!("{:?}", report.verdict) };
    assert_eq!(String::from_utf8_lossy(to), "https://h/cookiesecret");
}

#[test]
fn audit_records_are_json() {
    let engine = engine(
        r#"
        SecAuditEngine RelevantOnly
        SecRule ARGS "@contains \"" "id:7,phase:2,pass,log,auditlog,msg:'a \\ and é',tag:'t'"
    "#,
    );
    assert_eq!(get(&engine, "/?q=fine").audit, None);
    let audit = get(&engine, "/?q=%22%01").audit.unwrap();
    let value: serde_json::Value = serde_json::from_str(&audit).unwrap();
    assert_eq!(value["matches"][0]["id"], 7);
    assert_eq!(value["matches"][0]["values"][0][1], "\"\u{1}");
    assert_eq!(value["transaction"]["client"], "192.0.2.7");
    assert_eq!(value["request"]["headers"][0][0], "Host");
    assert!(!audit.contains('\n'));
}

/// The mode of an audit record is that in which rules ran: only a dry run is another than they know of.
#[test]
fn audit_records_say_in_which_mode_rules_ran() {
    let engine = engine(
        r#"
        SecAuditEngine On
        SecAuditLogParts ABHZ
        SecRule ARGS "@streq a" "id:7,phase:2,pass,log"
        SecRule ARGS "@streq b" "id:8,phase:2,deny,status:403,log"
        SecAction "id:9,phase:4,deny,status:418,log"
    "#,
    );
    let recorded = |target: &str, mode, dry_run, phases: usize| {
        let options = Options { mode: Some(mode), dry_run, ..Options::default() };
        let mut transaction = Transaction::new(&engine, options);
        transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
        if phases > 0 {
            transaction.request_headers();
            transaction.request_body(b"", true);
        }
        if phases > 2 {
            transaction.response_headers(200, b"HTTP/1.1", []);
        }
        transaction.answered();
        let report = transaction.log();
        let record: serde_json::Value = serde_json::from_str(report.audit.as_deref().unwrap()).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let (decision, mode) = (&record["decision"], text(&record["engine"]["mode"]));
        (mode, text(&decision["verdict"]), text(&decision["would"]))
    };
    let told = |mode: &str, verdict: &str, would: &str| (mode.into(), verdict.into(), would.into());
    let (on, detects) = (EngineMode::On, EngineMode::DetectionOnly);
    assert_eq!(recorded("/?a=a", on, false, 2), told("On", "pass", "pass"));
    assert_eq!(recorded("/?a=b", on, false, 2), told("On", "deny", "pass"));
    // Verdicts of rules after the client has its answer.
    assert_eq!(recorded("/?a=b", on, false, 0), told("On", "pass", "deny"));
    assert_eq!(recorded("/", on, false, 3), told("On", "pass", "deny"));
    assert_eq!(recorded("/?a=b", detects, false, 2), told("DetectionOnly", "pass", "deny"));
    assert_eq!(recorded("/?a=b", on, true, 2), told("DetectionOnly", "pass", "deny"));
    assert_eq!(recorded("/?a=a", on, true, 2), told("DetectionOnly", "pass", "pass"));
}

#[test]
fn long_values_are_shortened_and_matches_bounded() {
    let rules: String =
        (1..=300).map(|id| format!("SecRule ARGS \"@contains a\" \"id:{id},phase:2,pass,log\"\n")).collect();
    let engine = engine(&rules);
    let report = get(&engine, &format!("/?q={}", "a".repeat(5_000)));
    assert_eq!((report.matches.len(), report.omitted), (200, 100));
    assert_eq!(report.matches[0].value.len(), 203);
}

#[test]
fn requests_that_the_parser_refused() {
    let engine = engine(r#"SecRule REQUEST_PROTOCOL "!@beginsWith HTTP/1" "id:1,phase:1,deny,log""#);
    let mut transaction = transaction(&engine);
    transaction.unreadable(b"GET /a b");
    transaction.request_headers();
    let report = transaction.log();
    assert_eq!(report.matches[0].value, "HTTP/0.9");
    assert_eq!(report.uri, "/a b");
}

/// A rule that matches many long values under long names reads only the reported ones, and keeps none of
/// them.
#[test]
fn what_is_told_of_many_matches_is_bounded() {
    let rules = |count: usize| -> String {
        let rule = |id| {
            format!(
                "SecRule ARGS \"@contains a\" \"id:{id},phase:2,pass,log,msg:'%{{MATCHED_VAR_NAME}}',logdata:'%{{MATCHED_VAR}}'\"\n"
            )
        };
        (1..=count).map(rule).collect()
    };
    let name = "n".repeat(500);
    let query: Vec<String> = (0..200).map(|number| format!("{name}{number}={}", "a".repeat(40))).collect();
    let target = format!("/?{}&password=hunter2a", query.join("&"));
    let held = |count| {
        let engine = engine(&rules(count));
        let mut transaction = transaction(&engine);
        transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
        transaction.request_headers();
        transaction.request_body(b"", true);
        (transaction.text(), transaction.log())
    };
    let ((one, _), (many, report)) = (held(1), held(100));
    // A name for `msg` is all that a rule leaves behind.
    assert!(many - one < 100 * 1_024, "{one} {many}");
    let found = &report.matches[99];
    assert_eq!((found.values.len(), &*found.variable, &*found.value), (10, "ARGS:password", "***"));
    assert_eq!((found.message.as_str(), found.data.as_str()), ("ARGS:password", "***"));
    // The captures of a link are hidden in all of its matches.
    let chained = engine(
        r#"SecRule ARGS "@rx hunter\d|x" "id:1,phase:2,pass,log,capture,logdata:'%{TX.0}',chain"
            SecRule REQUEST_URI "@beginsWith /""#,
    );
    let many: Vec<String> = (0..20).map(|number| format!("a{number}=x")).collect();
    let told = get(&chained, &format!("/?{}&password=hunter2", many.join("&")));
    assert_eq!(told.matches[0].data, "***");
    assert!(found.values[0].0.starts_with("ARGS:nnn") && found.values[0].0.len() == 203);
}

/// A request that is over its budget has a line, whether it is stopped or not.
#[test]
fn a_budget_that_is_exceeded_has_a_line() {
    let engine = engine("SecArgumentsLimit 3\n");
    let lines: Vec<String> = get(&engine, "/p?a&b&c&d").lines().collect();
    assert_eq!(
        lines,
        [
            r#"[client 192.0.2.7] ModSecurity: Access denied with code 413. Over the budget by the limit `arguments'. [msg "over-budget"] [hostname "example.com"] [uri "/p"] [unique_id "u1"]"#
        ]
    );
    assert_eq!(get(&engine, "/p?a&b&c").lines().count(), 0);
}

/// Masked values are shown nowhere: not in the record, not in other values that contain them, not in earlier notes.
#[test]
fn masked_values_are_hidden_everywhere() {
    let logged = "log,msg:'%{MATCHED_VAR}',logdata:'%{ARGS.custno} %{REQUEST_URI} %{REQUEST_HEADERS.X-Foo} %{REQUEST_LINE}'";
    let shown = |masks: &str, rule: &str, kind: &str, body: &[u8]| {
        let engine = engine(&format!(
            "SecRequestBodyAccess On\nSecResponseBodyAccess On\nSecAuditEngine On\nSecAuditLogParts ABCDEFGHIJKZ\n\
             SecRule REQUEST_HEADERS:Content-Type \"@contains json\" \"id:7,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n\
             SecRule REQUEST_HEADERS:Content-Type \"@contains xml\" \"id:8,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n\
             {masks}\n{}\n",
            rule.replace("LOG", logged)
        ));
        let mut transaction = transaction(&engine);
        let target = b"/?q=bad&custno=hunter2&Card+N%6f.=hunter3&a=1";
        transaction.request_line(b"POST", target, b"HTTP/1.1");
        transaction.request_field(b"Host", b"example.com");
        transaction.request_field(b"X-Foo", b"hunter4");
        transaction.request_field(b"Referer", b"http://w/?custno=hunter2&card%20no.=hunter3");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        transaction.request_body(body, true);
        transaction.response_headers(200, b"HTTP/1.1", [(&b"X-Bar"[..], &b"hunter5"[..])]);
        transaction.response_body(b"", true);
        let report = transaction.log();
        format!("{:?}{}", report.lines().collect::<Vec<_>>(), report.audit.unwrap_or_default())
    };
    let form = "application/x-www-form-urlencoded";
    let bodies: [(&str, &[u8]); 4] = [
        (form, b"custno=hunter2&b=2&card+no.=hunter3"),
        ("application/json", br#"{"a":{"custno": "hunter2"},"x":[{"card no.":"hunter3"}]}"#),
        ("text/xml", b"<a><custno>hunter2</custno></a>"),
        ("text/plain", b"X-Foo: hunter4\r\nX-Bar: hunter5\r\n"),
    ];
    let masks = "SecAction \"id:1,phase:1,pass,nolog,sanitiseArg:custno,sanitiseArg:card no.,sanitiseArg:json.x.array_0.card no.,\
                 sanitiseRequestHeader:X-Foo,sanitiseResponseHeader:X-Bar\"";
    let rules = r#"
        SecRule ARGS:q "@contains bad" "id:2,phase:2,pass,LOG"
        SecRule ARGS|REQUEST_HEADERS:X-Foo "@rx hun[t]er" "id:3,phase:2,pass,LOG"
        SecRule QUERY_STRING|REQUEST_URI|REQUEST_BODY|REQUEST_LINE|FULL_REQUEST "@rx hun[t]er" "id:4,phase:2,pass,LOG"
        SecRule ARGS:custno "@rx ." "id:5,phase:2,pass,LOG,chain"
            SecRule MATCHED_VAR "@rx ." "chain"
            SecRule MATCHED_VARS "@rx ." "t:none"
        SecRule RESPONSE_HEADERS "@rx hun[t]er" "id:6,phase:3,pass,LOG"
    "#;
    for (kind, body) in bodies {
        let text = shown(masks, rules, kind, body);
        assert!(text.contains("***") && text.contains("bad") && !text.contains("hunter"), "{kind}: {text}");
    }
    // Masked once all has been noted.
    let late = format!("{rules}\n{}", masks.replace("phase:1", "phase:5"));
    for (kind, body) in bodies {
        let text = shown("", &late, kind, body);
        assert!(text.contains("***") && text.contains("bad") && !text.contains("hunter"), "{kind}: {text}");
    }
    // The match is masked, in each of its places.
    for (variable, last, hidden) in [
        ("ARGS", "[23]", &["hunter2", "hunter3"][..]),
        ("REQUEST_HEADERS", "[4]", &["hunter4"]),
        ("RESPONSE_HEADERS", "[5]", &["hunter5"]),
    ] {
        let matched = format!(
            r#"SecRule {variable} "@rx ^hunter{last}" "id:9,phase:3,pass,log,sanitiseMatched,msg:'%{{MATCHED_VAR}}'""#
        );
        let text = shown("", &format!("{rules}\n{matched}"), form, bodies[0].1);
        for secret in ["hunter2", "hunter3", "hunter4", "hunter5"] {
            assert_eq!(!text.contains(secret), hidden.contains(&secret), "{secret} {variable}: {text}");
        }
    }
    for (variable, secret) in [("REQUEST_URI", "&a=1"), ("REQUEST_BODY", "b=2")] {
        let matched = format!(
            r#"SecRule {variable} "@rx ." "id:9,phase:2,pass,log,sanitiseMatched,msg:'%{{MATCHED_VAR}}'""#
        );
        let text = shown("", &matched, form, bodies[0].1);
        assert!(text.contains("***") && !text.contains(secret), "{variable}: {text}");
    }
}

/// However many names are masked, none is shown; where there is no more room for names, nothing is.
#[test]
fn any_number_of_names_is_masked() {
    for count in [70, 4_200] {
        let masks: String = (0..count)
            .collect::<Vec<_>>()
            .chunks(700)
            .enumerate()
            .map(|(at, names)| {
                let names: String = names.iter().map(|name| format!(",sanitiseArg:a{name}")).collect();
                format!("SecAction \"id:{},phase:1,pass,nolog{names}\"\n", 100 + at)
            })
            .collect();
        let engine = engine(&format!(
            "SecAuditEngine On\n{masks}SecRule ARGS \"@contains zq\" \"id:1,phase:2,pass,log,msg:'m'\""
        ));
        for at in [0, 63, 64, count - 1] {
            let report = get(&engine, &format!("/?a{at}=hunterzq"));
            let text =
                format!("{:?}{}", report.lines().collect::<Vec<_>>(), report.audit.unwrap_or_default());
            assert!(text.contains("***") && text.contains("msg \\\"m") && !text.contains("hunter"), "{text}");
        }
    }
}

#[test]
fn the_rules_that_made_the_score_are_told_by_severity() {
    let engine = engine(
        r#"
        SecRule ARGS "@contains a" "id:1,phase:2,pass,log,severity:WARNING,setvar:tx.anomaly_score_pl1=+3"
        SecRule ARGS "@contains b" "id:2,phase:2,pass,log,severity:CRITICAL,setvar:tx.anomaly_score_pl1=+5"
        SecRule ARGS "@contains c" "id:3,phase:2,pass,log,severity:CRITICAL,setvar:tx.other=+5"
        SecRule ARGS "@contains d" "id:4,phase:2,pass,nolog,severity:CRITICAL,setvar:tx.anomaly_score_pl1=+5"
        SecRule ARGS "@contains e" "id:5,phase:2,pass,log,setvar:tx.anomaly_score_pl1=+1"
        SecRule TX:ANOMALY_SCORE_PL1 "@ge 5" "id:6,phase:2,deny,log"
    "#,
    );
    let report = get(&engine, "/?q=abcde");
    assert_eq!(report.scoring_rules(10), [2, 1, 5]);
    assert_eq!(report.scoring_rules(1), [2]);
    assert!(get(&engine, "/?q=x").scoring_rules(10).is_empty());
}
