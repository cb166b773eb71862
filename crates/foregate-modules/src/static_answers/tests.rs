use alloc::string::ToString;

use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Action, Response, Text, Verdict};

use super::*;

fn answers(nodes: &[Node]) -> Result<StaticAnswers, Problem> {
    let files = Vec::from([("robots", b"from a file".to_vec())]);
    StaticAnswers::from_nodes(nodes, &mut Literals { files, ..Literals::default() })
}

fn answer(path: &str, text: &str) -> Node {
    node("answer").arg_literal(path).arg_literal(text)
}

fn contact(uri: &str) -> Node {
    node("contact").arg_literal(uri)
}

fn expires(time: &str) -> Node {
    node("expires").arg_literal(time)
}

fn security(children: Vec<Node>) -> Result<SecurityTxtSettings, Problem> {
    let node = children.into_iter().fold(node("security-txt"), Node::with_child);
    SecurityTxtSettings::from_nodes(&[node], &mut Literals::default())
}

fn response(verdict: Verdict) -> Option<Response> {
    match verdict {
        Verdict::Stop(Action::Respond(response)) => Some(response),
        _ => None,
    }
}

fn field(response: &Response, name: &str) -> Option<String> {
    let found = response.fields.iter().find(|field| field.name() == name.as_bytes())?;
    Some(String::from_utf8_lossy(found.value()).to_string())
}

#[test]
fn paths_are_answered_exactly() {
    let file =
        node("answer").arg_literal("/f").prop_literal("file", "robots").prop_literal("type", "text/html");
    let settings = answers(&[
        answer("/a", "outer"),
        answer("/b", "b"),
        file.prop_literal("max-age", "1h"),
        answer("/a", "inner"),
    ]);
    let settings = settings.unwrap();
    let get = |mut sample: Sample| response(sample.run(&Answer, &settings));
    for (target, body) in
        [("/a", Some("inner")), ("/a?x=y", Some("inner")), ("/b", Some("b")), ("/f", Some("from a file"))]
    {
        let found = get(Sample::get(target)).map(|response| (response.status, response.body));
        assert_eq!(found, body.map(|body| (200, Text::from(body))), "{target}");
    }
    for target in ["/", "/a/", "/A", "/ab"] {
        assert_eq!(get(Sample::get(target)), None, "{target}");
    }
    assert!(get(Sample::get("/a").method("HEAD")).is_some());
    assert_eq!(get(Sample::get("/a").method("POST")), None, "goes on to the route");
    let plain = get(Sample::get("/b")).unwrap();
    assert_eq!(field(&plain, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(field(&plain, "cache-control"), None);
    let file = get(Sample::get("/f")).unwrap();
    assert_eq!(field(&file, "content-type").as_deref(), Some("text/html"));
    assert_eq!(field(&file, "cache-control").as_deref(), Some("max-age=3600"));
}

#[test]
fn who_has_the_text_gets_304() {
    let settings = answers(&[answer("/a", "text")]).unwrap();
    let get = |mut sample: Sample| response(sample.run(&Answer, &settings)).unwrap();
    let etag = field(&get(Sample::get("/a")), "etag").unwrap();
    for (value, status) in [
        (etag.clone(), 304),
        (["W/", &etag].concat(), 304),
        (["\"other\", ", &etag, ",\"x\""].concat(), 304),
        ("*".to_string(), 304),
        ("\"other\"".to_string(), 200),
        (etag.to_uppercase(), 200),
        (String::new(), 200),
    ] {
        let response = get(Sample::get("/a").field("if-none-match", &value));
        assert_eq!(response.status, status, "{value}");
        assert_eq!(response.body.is_empty(), status == 304);
        assert_eq!(field(&response, "etag"), Some(etag.clone()));
    }
    let other = answers(&[answer("/a", "text!")]).unwrap();
    let other = response(Sample::get("/a").run(&Answer, &other)).unwrap();
    assert_ne!(field(&other, "etag"), Some(etag));
}

#[test]
fn security_txt_has_the_form_of_the_rfc() {
    let settings = security(Vec::from([
        expires("2026-12-31T23:59:59+01:00"),
        contact("mailto:security@example.com"),
        contact("https://example.com/report"),
        node("policy").arg_literal("https://example.com/policy"),
        node("preferred-languages").arg_literal("en").arg_literal("zh-Hant"),
    ]))
    .unwrap();
    let mut sample = Sample::get("/.well-known/security.txt");
    let answered = response(sample.run(&SecurityTxt, &settings)).unwrap();
    let text = "Contact: mailto:security@example.com\nContact: https://example.com/report\n\
                Policy: https://example.com/policy\nPreferred-Languages: en, zh-Hant\n\
                Expires: 2026-12-31T23:59:59+01:00\n";
    assert_eq!(answered.body, Text::from(text));
    assert_eq!(field(&answered, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert!(sample.state.notes.is_empty());
    assert_eq!(response(Sample::get("/security.txt").run(&SecurityTxt, &settings)), None);
    let mut post = Sample::get("/.well-known/security.txt").method("POST");
    assert_eq!(response(post.run(&SecurityTxt, &settings)), None);

    sample.now.unix_ms = 1_798_757_998_999;
    sample.run(&SecurityTxt, &settings);
    assert!(sample.state.notes.is_empty());
    sample.now.unix_ms += 1;
    assert!(response(sample.run(&SecurityTxt, &settings)).is_some());
    assert_eq!(sample.state.notes, [("security-txt".into(), Text::from("expired"))]);
}

#[test]
fn times_are_those_of_rfc_3339() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2000-02-29T12:34:56Z", Some(951_827_696)),
        ("2026-01-01t00:00:00z", Some(1_767_225_600)),
        ("2026-01-01T00:00:00.123Z", Some(1_767_225_600)),
        ("2026-01-01T02:00:00+02:00", Some(1_767_225_600)),
        ("2025-12-31T18:30:00-05:30", Some(1_767_225_600)),
        ("9999-12-31T23:59:59Z", Some(253_402_300_799)),
        ("2100-02-29T00:00:00Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-00-01T00:00:00Z", None),
        ("2026-01-00T00:00:00Z", None),
        ("2026-01-01T24:00:00Z", None),
        ("2026-01-01T00:00:00", None),
        ("2026-01-01T00:00:00.Z", None),
        ("2026-01-01T00:00:00+24:00", None),
        ("2026-01-01 00:00:00Z", None),
        ("2026-01-01", None),
        ("", None),
        ("1969-12-31T23:59:59Z", None),
    ] {
        assert_eq!(expiry::read(text), seconds, "{text}");
    }
}

#[test]
fn mistakes_are_told() {
    let mail = || contact("mailto:a@b");
    let time = || expires("2030-01-01T00:00:00Z");
    for (result, message) in [
        (security(Vec::from([time()])), "`security-txt` needs `contact`"),
        (security(Vec::from([mail()])), "`security-txt` needs `expires`"),
        (security(Vec::from([mail(), expires("2030-01-01")])), "this is not a time"),
        (security(Vec::from([contact("security@example.com"), time()])), "this is not a URI"),
        (security(Vec::from([contact("http://example.com"), time()])), "RFC 9116 wants `https` here"),
        (security(Vec::from([contact("mailto:a@b\nPolicy:"), time()])), "this is not a URI"),
        (
            security(Vec::from([mail(), time(), node("preferred-languages").arg_literal("en, fi")])),
            "this is not a language, such as \"en\"",
        ),
    ] {
        assert_eq!(result.err().map(|problem| problem.message).as_deref(), Some(message));
    }
    for (node, message) in [
        (answer("robots.txt", ""), "this is not a path"),
        (answer("/a?b", ""), "this is not a path"),
        (answer("/a/../b", ""), "no request has this path: it is not in its normal form"),
        (
            answer("/%7Euser", ""),
            "no request has this path: paths are compared with letters, digits, `-`, `.`, `_` and `~` decoded",
        ),
        (
            answer("/caf%c3%a9", ""),
            "no request has this path: a path has this byte percent-encoded, with upper-case digits, as in `/a%20b`",
        ),
        (node("answer").arg_literal("/a"), "`answer` needs either a text or `file`"),
        (answer("/a", "b").prop_literal("file", "robots"), "`answer` needs either a text or `file`"),
        (answer("/a", "b").prop_literal("type", "html"), "this is not a media type"),
        (answer("/a", &"b".repeat(ANSWER_MOST + 1)), "the text has more than 1048576 bytes"),
    ] {
        assert_eq!(answers(&[node]).err().map(|problem| problem.message).as_deref(), Some(message));
    }
}
