//! The targets of rules.

use std::sync::Arc;

use foregate_waf::engine::{Compile, Engine, Over, TransactionLimits, Verdict};
use foregate_waf::seclang::{Files, NoFiles, Source, load};

use super::{engine, get, ids, message, request, transaction};

#[test]
fn selectors_exclusions_and_counts() {
    let engine = engine(
        r#"
        SecRule ARGS|!ARGS:skip|!ARGS:/^no_/ "@streq x" "id:1,phase:2,pass,log,msg:'%{MATCHED_VAR_NAME}'"
        SecRule &ARGS "@eq 3" "id:2,phase:2,pass,log"
        SecRule &ARGS:A "@eq 1" "id:3,phase:2,pass,log"
        SecRule ARGS:/^p/ "@unconditionalMatch" "id:4,phase:2,pass,log"
        SecRule &REQUEST_COOKIES:id "@gt 0" "id:5,phase:2,pass,log"
        SecRule &REQUEST_HEADERS:nothing "@eq 0" "id:6,phase:2,pass,nolog"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/?skip=x&no_a=x")), [] as [u64; 0]);
    assert_eq!(message(&get(&engine, "/?SKIP=x&q=x")), "ARGS:q");
    assert_eq!(ids(&get(&engine, "/?a=1&b=2&page=3")), [2, 3, 4]);
    assert_eq!(ids(&request(&engine, "/", &[("Cookie", "x=1; ID=2")])), [5]);
}

/// Python's libraries let a cookie in quotes go on up to the closing one, and decode it.
#[test]
fn cookies_in_quotes() {
    let engine = engine(
        r#"SecRule REQUEST_COOKIES "@unconditionalMatch" "id:1,phase:1,pass,log,msg:'%{MATCHED_VAR_NAME}',setvar:'tx.all=%{tx.all}(%{MATCHED_VAR})'"
        SecRule &REQUEST_COOKIES_NAMES "@gt 0" "id:2,phase:1,pass,nolog,setvar:'tx.names=%{MATCHED_VAR}'""#,
    );
    for (fields, values, names) in [
        (&["a=1; b=x"][..], "(1)(x)", "2"),
        (&[r#"a="x""#], r#"("x")(x)"#, "1"),
        (&[r#"a="1\047 or \"\\2""#], r#"("1\047 or \"\\2")(1' or "\2)"#, "1"),
        (&[r#"a= "u;n" ; c=d"#], r#"( "u)(u;n)()(d)"#, "3"),
        (&[r#"a="b"c""#], r#"("b"c")(b)(b"c)"#, "1"),
        (&[r#"a="b"#], r#"("b)"#, "1"),
        (&[r#"a="b"#, r#"x=y; c"; d=e"#], r#"("b)(b; x=y; c)(y)()(e)"#, "4"),
        (&[r#"a="\777\"#], r#"("\777\)"#, "1"),
        (&[r#"a=""#], r#"(")"#, "1"),
    ] {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"GET", b"/", b"HTTP/1.1");
        fields.iter().for_each(|field| transaction.request_field(b"cookie", field.as_bytes()));
        transaction.request_headers();
        let variable = |name: &str| transaction.variable(name).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&variable("all")), values, "{fields:?}");
        assert_eq!(String::from_utf8_lossy(&variable("names")), names, "{fields:?}");
    }
}

#[test]
fn arguments_between_semicolons() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecRule ARGS:id "@streq 2" "id:1,phase:2,pass,log"
        SecRule &ARGS_GET_NAMES "@eq 2" "id:2,phase:2,pass,log"
        SecRule ARGS_GET_NAMES:q|ARGS_POST_NAMES:id "@unconditionalMatch" "id:3,phase:2,pass,log,setvar:tx.names=+1"
        SecRule TX:names "@eq 2" "id:4,phase:2,pass,log"
        SecRule ARGS_GET:q "@streq 1" "id:5,phase:2,pass,log"
        SecRule ARGS_POST:id "@streq 3" "id:6,phase:2,pass,log"
    "#,
    );
    let mut transaction = transaction(&engine);
    transaction.request_line(b"POST", b"/?q=1;id=2", b"HTTP/1.1");
    transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
    transaction.request_headers();
    transaction.request_body(b"id=3;", true);
    assert_eq!(ids(&transaction.log()), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn codes_of_unicode_by_a_map() {
    struct Map;
    impl Files for Map {
        fn read(&mut self, path: &str, _: usize) -> Result<Vec<u8>, String> {
            assert_eq!(path, "unicode.mapping");
            Ok(b"1250\n02bc:22\n\n20127 (US-ASCII)\n02bc:27 2215:2f\n".to_vec())
        }

        fn glob(&mut self, _: &str) -> Result<Vec<String>, String> {
            Err("not here".into())
        }
    }
    let rules = r#"
        SecUnicodeMapFile unicode.mapping 20127
        SecRule ARGS "@streq 1'/" "id:1,phase:1,pass,log,t:utf8toUnicode,t:urlDecodeUni"
        SecRule ARGS "@contains '" "id:2,phase:1,pass,log,t:urlDecodeUni,multiMatch"
        SecAction "id:3,phase:1,pass,nolog,setvar:tx.x=a%u2215"
        SecRule TX:x "@streq a/" "id:4,phase:1,pass,log,t:urlDecodeUni"
    "#;
    let set = load(&[Source::text("rules.conf", rules)], &mut Map).unwrap();
    let engine = Arc::new(Engine::compile(set, Compile::default()).unwrap());
    assert_eq!(ids(&get(&engine, "/?a=1%CA%BC%E2%88%95")), [1, 4]);
    assert_eq!(ids(&get(&engine, "/?a=%25u02bc")), [2, 4]);
}

#[test]
fn parts_of_the_target() {
    let engine = engine(
        r#"SecAction "id:1,phase:1,pass,log,msg:'%{REQUEST_METHOD} %{REQUEST_FILENAME} %{REQUEST_BASENAME} %{QUERY_STRING} %{REQUEST_URI} %{REQUEST_URI_RAW} %{ARGS_GET.q}'""#,
    );
    for (target, said) in [
        (
            "/a%20b/c+d.php?q=1%202",
            "GET /a b/c+d.php c+d.php q=1%202 /a%20b/c+d.php?q=1%202 /a%20b/c+d.php?q=1%202 1 2",
        ),
        ("http://host/x?q", "GET /x x q /x?q http://host/x?q "),
        ("/only", "GET /only only  /only /only "),
    ] {
        assert_eq!(message(&get(&engine, target)), said);
    }
}

/// Unreadable input is reported, so that rules can refuse it.
#[test]
fn a_body_with_a_content_coding_cannot_be_read() {
    let engine = engine(
        "SecRequestBodyAccess On\nSecRule REQBODY_ERROR \"@eq 1\" \"id:3,phase:2,deny,log,msg:'%{REQBODY_ERROR_MSG}'\"",
    );
    let post = |coding: &[u8], body: &[u8]| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.request_field(b"content-ENCODING", coding);
        transaction.request_headers();
        transaction.request_body(body, true);
        transaction.log().matches.len()
    };
    for coding in ["gzip", "identity, br", "GZIP", "unknown"] {
        assert_eq!(post(coding.as_bytes(), b"a=1"), 1, "{coding}");
        assert_eq!(post(coding.as_bytes(), b""), 0, "{coding}");
    }
    assert_eq!(post(b"Identity", b"a=1") + post(b"", b"a=1"), 0);
}

#[test]
fn bodies_by_their_type() {
    let rules = r#"
        SecRequestBodyAccess On
        SecRule REQUEST_HEADERS:Content-Type "@beginsWith application/json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
        SecRule REQUEST_HEADERS:Content-Type "@beginsWith text/xml" "id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
        SecRule REQBODY_ERROR "!@eq 0" "id:3,phase:2,pass,log,msg:'%{REQBODY_ERROR_MSG}'"
        SecRule ARGS|FILES|XML:/*|XML://@*|MULTIPART_PART_HEADERS "@contains evil" "id:4,phase:2,pass,log,msg:'%{MATCHED_VAR_NAME}=%{MATCHED_VAR}'"
    "#;
    let engine = engine(rules);
    let post = |kind: &str, body: &str| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/?q=1", b"HTTP/1.1");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        assert!(transaction.request_body_limit().is_some());
        transaction.request_body(body.as_bytes(), true);
        message(&transaction.log())
    };
    assert_eq!(post("application/x-www-form-urlencoded", "a=1&b=evil+one"), "ARGS:b=evil one");
    assert_eq!(post("application/json", r#"{"a":{"b":["x","evil"]}}"#), "ARGS:json.a.b.array_1=evil");
    assert_eq!(post("text/xml", "<a><b>very </b><c>evil</c></a>"), "XML:/*=very evil");
    assert_eq!(post("text/xml", "<a b='evil'/>"), "XML://@*=evil");
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"evil.txt\"\r\n\r\nx\r\n--b--\r\n";
    assert!(post("multipart/form-data; boundary=b", form).starts_with("MULTIPART_PART_HEADERS:f="));
    assert!(post("application/json", "{").starts_with("JSON parsing error"));
    // Where others take the type to end, it ends.
    for kind in ["application/x-www-form-urlencoded, text/plain", "application/x-www-form-urlencoded foo"] {
        assert_eq!(post(kind, "b=evil+one"), "ARGS:b=evil one", "{kind}");
    }
}

#[test]
fn a_body_of_several_types_cannot_be_read() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecRule REQBODY_ERROR "@eq 1" "id:1,phase:2,deny,msg:'%{REQBODY_ERROR_MSG}'"
    "#,
    );
    let post = |kinds: &[&str], body: &[u8]| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        for kind in kinds {
            transaction.request_field(b"content-type", kind.as_bytes());
        }
        transaction.request_headers();
        transaction.request_body(body, true).passes()
    };
    let (form, files) = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=b");
    assert!(post(&[form, form], b"a=1") && post(&[form, files], b"") && post(&[form], b"a=1"));
    assert!(!post(&[form, files], b"a=1") && !post(&[files, form], b"a=1"));
}

#[test]
fn transformations_are_seen_one_by_one_when_asked() {
    let engine = engine(
        r#"
        SecRule ARGS:a "@rx ^%41$" "id:1,phase:2,pass,log,t:none,t:urlDecode,multiMatch"
        SecRule ARGS:a "@rx ^A$" "id:2,phase:2,pass,log,t:none,t:urlDecode"
        SecRule ARGS:a "@rx ^%41$" "id:3,phase:2,pass,log,t:none,t:urlDecode"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/?a=%2541")), [1, 2]);
}

#[test]
fn matched_variables() {
    let engine = engine(
        r#"
        SecRule ARGS "@rx ^x" "id:1,phase:2,pass,log,chain,msg:'%{MATCHED_VAR_NAME}'"
            SecRule MATCHED_VARS "@rx y$" "t:none"
        SecRule MATCHED_VAR "@unconditionalMatch" "id:2,phase:2,pass,log"
    "#,
    );
    assert_eq!(ids(&get(&engine, "/?a=xy&b=xz")), [1], "what matched is forgotten when the next rule begins");
    assert_eq!(ids(&get(&engine, "/?a=xa&b=zy")), [] as [u64; 0]);
}

/// The normal form that is sent to the origin counts as much as the client's spelling.
#[test]
fn targets_have_two_values_where_their_normal_form_differs() {
    let engine = engine(
        r#"
        SecRule REQUEST_FILENAME "@beginsWith /admin" "id:1,phase:1,pass,log,logdata:'%{MATCHED_VAR}'"
        SecRule REQUEST_URI "@contains evil" "id:2,phase:1,pass,log"
        SecRule REQUEST_BASENAME "@streq b.php" "id:3,phase:1,pass,log"
        SecRule REQUEST_URI_RAW "@contains .." "id:4,phase:1,pass,log"
        SecRule REQUEST_FILENAME "!@beginsWith /admin" "id:5,phase:1,pass,log"
        SecRule REQUEST_FILENAME "@rx ." "id:6,phase:1,pass,nolog,setvar:tx.times=+1"
        SecRule TX:times "!@eq 1" "id:7,phase:1,pass,log"
        SecRule REQUEST_FILENAME "@beginsWith /admin" "id:8,phase:1,pass,log,t:none,t:lowercase,t:uppercase,t:lowercase"
        SecRule &REQUEST_FILENAME "!@eq 1" "id:9,phase:1,pass,log"
    "#,
    );
    let seen = |target: &str, path: &str, query: Option<&str>| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
        transaction.normal_target(path.as_bytes(), query.map(str::as_bytes));
        transaction.request_headers();
        ids(&transaction.log())
    };
    assert_eq!(seen("/admin/x", "/admin/x", None), [1, 8]);
    for target in ["/./admin/x", "//admin/x", "/x/%2e%2e/admin/x", "http://host//admin/x"] {
        assert_eq!(seen(target, "/admin/x", None), [1, 5, 8], "{target}");
    }
    assert_eq!(seen("/admin/../x", "/x", None), [1, 4, 5, 8]);
    assert_eq!(seen("/%65vil?a=%22", "/evil", Some("a=%22")), [2, 5]);
    assert_eq!(seen("/admin/a/../b.php/.?x", "/admin/b.php", Some("x")), [1, 3, 4, 8]);
    assert_eq!(seen("/admin?", "/admin", Some("")), [1, 8]);
    assert_eq!(seen("host:443", "", None), [5]);
}

/// A detour does not lead past the rules that a path is excepted from.
#[test]
fn rules_that_let_through_look_at_what_the_origin_is_asked_for() {
    for letting in [
        r#"SecRule REQUEST_FILENAME "@beginsWith /open/" "id:1,phase:1,allow,nolog""#,
        r#"SecRule REQUEST_FILENAME "!@beginsWith /admin" "id:1,phase:1,allow,nolog""#,
        r#"SecRule REQUEST_URI "@beginsWith /open/" "id:1,phase:1,pass,nolog,ctl:ruleRemoveById=2""#,
        r#"SecRule REQUEST_URI "@beginsWith /open/" "id:1,phase:1,pass,nolog,ctl:ruleEngine=Off""#,
        r#"SecRule REQUEST_URI "@beginsWith /open/" "id:1,phase:1,pass,nolog,ctl:ruleRemoveTargetById=2;ARGS:a""#,
        r#"SecRule REQUEST_URI "@beginsWith /open/" "id:1,phase:1,pass,nolog,skipAfter:END""#,
        r#"SecRule REQUEST_URI "@beginsWith /open/" "id:1,phase:1,pass,nolog,setvar:tx.open=1"
           SecRule TX:open "@eq 1" "id:3,phase:1,pass,nolog,skipAfter:END""#,
    ] {
        let engine = engine(&format!(
            "{letting}\nSecRule ARGS:a \"@streq x\" \"id:2,phase:1,deny,log\"\nSecMarker END\n"
        ));
        let passes = |target: &str, path: &str| {
            let mut transaction = transaction(&engine);
            transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
            transaction.normal_target(path.as_bytes(), Some(b"a=x"));
            transaction.request_headers().passes()
        };
        assert!(passes("/open/?a=x", "/open/"), "{letting}");
        assert!(passes("/admin/../open/?a=x", "/open/"), "{letting}");
        assert!(!passes("/open/../admin?a=x", "/admin"), "{letting}");
    }
}

/// An assignment may report an attack or exempt the request: it depends on the rules that read the variable.
#[test]
fn rules_that_set_variables() {
    const EVIL: &str = r#"SecRule REQUEST_URI "@contains /.." "id:1,phase:1,pass,nolog,setvar:tx.evil=1""#;
    let passes = |rules: &str, target: &str, path: &str| {
        let mut transaction = transaction(&engine(rules));
        transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
        transaction.normal_target(path.as_bytes(), None);
        transaction.request_headers().passes()
    };
    for stopping in [
        r#"SecRule TX:evil "@eq 1" "id:2,phase:1,deny""#,
        r#"SecRule &TX:evil "!@eq 0" "id:2,phase:1,deny""#,
        r#"SecRule &TX:evil "@gt 0" "id:2,phase:1,deny""#,
        r#"SecRule TX:/^Evil$/ "@eq 1" "id:2,phase:1,deny""#,
        r#"SecRule TX "@streq 1" "id:2,phase:1,deny""#,
        r#"SecRule &TX "@gt 0" "id:2,phase:1,deny""#,
        r#"SecRule TX:evil "!@eq 0" "id:2,phase:1,deny""#,
        r#"SecRule TX:evil "@rx ^\d$" "id:2,phase:1,redirect:https://x/""#,
        "SecRule REQUEST_METHOD \"@streq GET\" \"id:2,phase:1,deny,chain\"\nSecRule &TX:evil \"!@eq 0\"",
        "SecRule TX:evil \"@eq 1\" \"id:2,phase:1,pass,setvar:tx.score=+5\"\nSecRule TX:score \"@ge 5\" \"id:3,phase:1,deny\"",
    ] {
        let rules = format!("{EVIL}\n{stopping}\n");
        assert!(!passes(&rules, "/a/../b", "/b"), "{stopping}");
        assert!(passes(&rules, "/b", "/b"), "{stopping}");
    }
    const OPEN: &str = r#"SecAction "id:9,phase:1,pass,nolog,setvar:tx.ok=0"
        SecRule REQUEST_FILENAME "@beginsWith /open/" "id:1,phase:1,pass,nolog,setvar:tx.ok=1""#;
    for letting in [
        r#"SecRule TX:ok "@eq 0" "id:2,phase:1,deny""#,
        r#"SecRule TX:ok "!@eq 1" "id:2,phase:1,deny""#,
        r#"SecRule TX:/^ok$/ "!@streq 1" "id:2,phase:1,deny""#,
        r#"SecRule TX:ok "!@streq %{tx.is}" "id:2,phase:1,deny""#,
        "SecRule TX:ok \"@eq 1\" \"id:3,phase:1,pass,nolog,skipAfter:END\"\nSecRule TX:ok \"@ge 0\" \"id:2,phase:1,deny\"\nSecMarker END",
    ] {
        let is = r#"SecAction "id:8,phase:1,pass,nolog,setvar:tx.is=1""#;
        let rules = format!("{is}\n{OPEN}\n{letting}\n");
        assert!(passes(&rules, "/open/x", "/open/x"), "{letting}");
        assert!(passes(&rules, "/x/../open/x", "/open/x"), "{letting}");
        assert!(!passes(&rules, "/open/../x", "/x"), "{letting}");
    }
}

/// Nor does it choose how a body is taken apart.
#[test]
fn rules_that_choose_a_processor_look_at_what_the_origin_is_asked_for() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecRule REQUEST_FILENAME "@beginsWith /open/" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=RAW"
        SecRule REQUEST_URI "@contains found" "id:2,phase:1,pass,nolog,setvar:tx.found=1,setvar:tx.score=+1"
        SecRule TX:found "@eq 1" "id:3,phase:1,pass,log"
        SecRule ARGS "@contains evil" "id:4,phase:2,deny"
    "#,
    );
    let seen = |target: &str, path: &str| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", target.as_bytes(), b"HTTP/1.1");
        transaction.normal_target(path.as_bytes(), None);
        transaction.request_field(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.request_headers();
        let passes = transaction.request_body(b"a=evil", true).passes();
        (passes, ids(&transaction.log()).contains(&3))
    };
    assert_eq!(seen("/open/x", "/open/x"), (true, false));
    assert_eq!(seen("/open/../x", "/x"), (false, false));
    // A rule that also adds to a score reports its match in either form.
    assert_eq!(seen("/found/../x", "/x"), (false, true));
    assert_eq!(seen("/f%6fund", "/found"), (false, true));
}

#[test]
fn hosts_have_two_values_where_their_normal_form_differs() {
    let engine = engine(
        r#"
        SecRule SERVER_NAME "@streq dev.local" "id:1,phase:1,pass,nolog,ctl:ruleRemoveById=2"
        SecRule ARGS:a "@streq x" "id:2,phase:1,pass,log"
        SecRule SERVER_NAME "@streq prod.local" "id:3,phase:1,pass,log"
        SecRule SERVER_NAME "@streq Dev.local" "id:4,phase:1,pass,log"
        SecRule SERVER_NAME "@streq [::1]" "id:5,phase:1,pass,log"
    "#,
    );
    let seen = |field: &str, normal: &str| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"GET", b"/?a=x", b"HTTP/1.1");
        transaction.request_field(b"Host", field.as_bytes());
        transaction.normal_host(normal.as_bytes());
        transaction.request_headers();
        ids(&transaction.log())
    };
    assert_eq!(seen("dev.local:80", "dev.local"), [] as [u64; 0]);
    assert_eq!(seen("Dev.local", "dev.local"), [4]);
    assert_eq!(seen("dev.local", "prod.local"), [2, 3]);
    assert_eq!(seen("prod.local", "dev.local:8080"), [3]);
    assert_eq!(seen("dev.local", "[::1]:8080"), [2, 5]);
    assert_eq!(seen("prod.local", ""), [2, 3]);
}

#[test]
fn bodies_as_they_came() {
    let rules = r#"
        SecRequestBodyAccess On
        SecRule REQUEST_HEADERS:Content-Type "@contains json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
        SecRule REQUEST_HEADERS:Content-Type "@contains xml" "id:4,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
        SecRule REQUEST_HEADERS:X-Force "@eq 1" "id:2,phase:1,pass,nolog,ctl:forceRequestBodyVariable=On"
        SecRule REQUEST_BODY "@contains evil" "id:3,phase:2,pass,log"
    "#;
    let post = |kind: Option<&str>, force: &str| {
        let mut transaction = transaction(&engine(rules));
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        kind.iter().for_each(|kind| transaction.request_field(b"content-type", kind.as_bytes()));
        transaction.request_field(b"x-force", force.as_bytes());
        transaction.request_headers();
        transaction.request_body(b"[\"evil\"]", true);
        ids(&transaction.log())
    };
    for kind in
        [None, Some("application/json"), Some("text/plain"), Some("application/x-www-form-urlencoded")]
    {
        assert_eq!(post(kind, "0"), [3], "{kind:?}");
    }
    for kind in ["multipart/form-data; boundary=x", "text/xml"] {
        assert_eq!(post(Some(kind), "0"), [] as [u64; 0], "{kind}");
        assert_eq!(post(Some(kind), "1"), [3], "{kind}");
    }
}

#[test]
fn media_types_with_what_is_white_to_some_are_errors() {
    let engine = engine(
        r#"
        SecRequestBodyAccess On
        SecRule ARGS "@contains evil" "id:1,phase:2,pass,log"
        SecRule REQBODY_ERROR "@eq 1" "id:2,phase:2,pass,log"
    "#,
    );
    let post = |kind: &[u8]| {
        let mut transaction = transaction(&engine);
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"content-type", kind);
        transaction.request_headers();
        transaction.request_body(b"a=e%76il", true);
        ids(&transaction.log())
    };
    let form = b"application/x-www-form-urlencoded";
    assert_eq!(post(form), [1]);
    for end in [&b"; charset=utf-8"[..], b";charset=utf-8", b",x", b"\t", b":x"] {
        assert_eq!(post(&[form, end].concat()), [1], "{}", end.escape_ascii());
    }
    for white in [&b"\xa0"[..], b"\x85", b"\xc2\xa0", b"\xe2\x80\xa8", b"\x1c"] {
        assert_eq!(post(&[form, white].concat()), [1, 2], "{}", white.escape_ascii());
        assert_eq!(post(&[white, form].concat()), [1, 2], "{}", white.escape_ascii());
    }
    assert_eq!(post(b",application/x-www-form-urlencoded"), [1, 2]);
    // Some read a form whatever its type, unless that is one of something else.
    assert_eq!(post(b"text/plain"), [1]);
    assert_eq!(post(b"image/png"), [] as [u64; 0]);
    assert_eq!(post(b"text/plain; x=\xe9"), [1, 2]);
}

#[test]
fn names_of_cookies_end_before_white_space() {
    let engine = engine(
        r#"
        SecRule REQUEST_COOKIES:sid "@streq bad" "id:1,phase:1,pass,log"
        SecRule REQUEST_COOKIES_NAMES "@streq sid" "id:2,phase:1,pass,log"
    "#,
    );
    for cookie in ["sid=bad", "a=b; sid =bad", "sid \t=bad", " sid\u{c}=bad;a"] {
        assert_eq!(ids(&request(&engine, "/", &[("Cookie", cookie)])), [1, 2], "{cookie}");
    }
    assert_eq!(ids(&request(&engine, "/", &[("Cookie", " =bad; =; ;")])), [] as [u64; 0]);
}

#[test]
fn event_streams_are_held_only_where_they_are_named() {
    let looks = |wanted: &str, kind: &[u8]| {
        let rules = Source::text("rules.conf", "SecResponseBodyAccess On");
        let mut set = load(&[rules], &mut NoFiles).unwrap();
        set.settings.response_body_types = vec![wanted.into()];
        let engine = Arc::new(Engine::compile(set, Compile::default()).unwrap());
        let mut transaction = transaction(&engine);
        transaction.request_line(b"GET", b"/", b"HTTP/1.1");
        transaction.response_headers(200, b"HTTP/1.1", [(&b"Content-Type"[..], kind)]);
        transaction.response_body_limit().is_some()
    };
    let events = b"text/event-stream; charset=utf-8";
    assert!(looks("*", b"application/json") && looks("text/event-stream", events));
    assert!(!looks("*", events) && !looks("text/html", events) && looks("text/html", b"Text/HTML;x=y"));
}

/// A number with the right check digits is found behind any number of others, until the work for that is spent.
#[test]
fn numbers_with_check_digits_are_found_behind_others() {
    let rules = r#"
        SecRule ARGS:q "@verifyCC \d{16}" "id:1,phase:1,deny,status:403,log,capture,msg:'<%{TX.0}>'"
        SecRule ARGS:n "!@verifyCC \d{16}" "id:2,phase:1,deny,status:403,log"
        SecRule ARGS:e "@verifySSN x*" "id:3,phase:1,deny,status:403,log"
    "#;
    let engine = engine(rules);
    let target = |count: usize| format!("/?q={}4111111111111111+4", "1234567890123456+".repeat(count));
    for count in [0, 1, 300, 3_000] {
        let report = get(&engine, &target(count));
        assert!(!report.verdict.passes() && report.over.is_none(), "{count}");
        assert_eq!(message(&report), "<4111111111111111>");
    }
    assert_eq!(get(&engine, "/?n=4111111111111111&e=123&q=1234567890123456").verdict, Verdict::Pass);
    assert_eq!(get(&engine, "/?n=1234567890123456").verdict, Verdict::Deny { status: 403, rule: Some(2) });
    let limits = TransactionLimits { work: 100_000, ..TransactionLimits::default() };
    let engine = super::compiled(rules, Compile { limits, ..Compile::default() });
    assert_eq!(get(&engine, &target(3_000)).over, Some(Over::Work));
}

/// The argument of an operator is expanded for each value, since a rule's action may change it.
#[test]
fn macros_of_operators_follow_what_rules_do() {
    let engine = engine(
        r#"
        SecRule ARGS "!@streq %{tx.last}" "id:1,phase:1,pass,nolog,setvar:tx.last=%{MATCHED_VAR},setvar:tx.changes=+1"
        SecRule TX:changes "@ge 1" "id:2,phase:1,pass,log,msg:'%{tx.changes}'"
        SecRule ARGS "@gt %{tx.most}" "id:3,phase:1,pass,nolog,setvar:tx.most=%{MATCHED_VAR},setvar:tx.more=+1"
        SecRule TX:more "@ge 1" "id:4,phase:1,pass,log,msg:'%{tx.more}'"
    "#,
    );
    let told = |target: &str| {
        let report = get(&engine, target);
        report.matches.iter().map(|found| found.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(told("/?a=x&b=x&c=x"), ["1"]);
    assert_eq!(told("/?a=x&b=y&c=y"), ["2"]);
    assert_eq!(told("/?a=3&b=2&c=5&d=4"), ["4", "2"]);
}
