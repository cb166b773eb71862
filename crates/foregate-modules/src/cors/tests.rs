use alloc::boxed::Box;
use alloc::string::{String, ToString};

use foregate_module::testing::{Compile, Literals, Sample, node, settings};
use foregate_module::{Action, Conditions, Expression, Verdict};

use super::*;

fn list_of(name: &str, values: &[&str]) -> Node {
    values.iter().fold(node(name), |node, value| node.arg_literal(*value))
}

fn cors(children: &[Node]) -> Result<Cors, Problem> {
    settings(&[children.iter().cloned().fold(node("cors"), Node::with_child)])
}

fn some() -> Cors {
    cors(&[
        list_of("origins", &["https://app.example", "https://*.example.com"]),
        list_of("methods", &["GET", "PUT"]),
        list_of("headers", &["Content-Type", "X-Token"]),
        list_of("expose", &["X-Total"]),
        node("credentials"),
        list_of("max-age", &["1h"]),
    ])
    .unwrap()
}

fn preflight(origin: &str) -> Sample {
    Sample::get("/")
        .method("OPTIONS")
        .field("Origin", origin)
        .field("Access-Control-Request-Method", "PUT")
        .field("Access-Control-Request-Headers", "x-token")
}

/// The fields of the answer to a preflight, one in a line.
fn answer(settings: &Cors, mut sample: Sample) -> String {
    let Verdict::Stop(Action::Respond(response)) = sample.run(&CorsPreflight, settings) else {
        return "passed".to_string();
    };
    assert_eq!((response.status, &*response.body), (204, &b""[..]));
    let field = |field: &Field| {
        String::from_utf8_lossy(field.name()).into_owned()
            + ": "
            + &String::from_utf8_lossy(field.value())
            + "\n"
    };
    response.fields.iter().skip(1).map(field).collect()
}

/// The CORS fields of a response, one in a line.
fn said(settings: &Cors, mut sample: Sample) -> String {
    sample.run(&CorsResponse, settings);
    let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
        String::from_utf8_lossy(name).to_ascii_lowercase() + ": " + &String::from_utf8_lossy(value) + "\n"
    };
    sample.response.0.iter().map(line).collect()
}

fn page(origin: &str) -> Sample {
    Sample::get("/").field("Origin", origin).response(200)
}

#[test]
fn a_preflight_is_answered_at_the_edge() {
    assert_eq!(
        answer(&some(), preflight("https://app.example")),
        "Access-Control-Allow-Origin: https://app.example\n\
         Access-Control-Allow-Methods: GET, PUT\n\
         Access-Control-Allow-Headers: Content-Type, X-Token\n\
         Access-Control-Allow-Credentials: true\n\
         Access-Control-Max-Age: 3600\n"
    );
    assert_eq!(answer(&some(), preflight("https://evil.example")), "");
    // Requests that are no preflight are the origin server's.
    assert_eq!(
        answer(&some(), Sample::get("/").method("OPTIONS").field("Origin", "https://app.example")),
        "passed"
    );
    assert_eq!(answer(&some(), preflight("https://app.example").method("GET")), "passed");
}

#[test]
fn all_methods_and_fields_are_granted_by_saying_them_again() {
    let all = cors(&[
        list_of("origins", &["*"]),
        list_of("methods", &["*"]),
        list_of("headers", &["*"]),
        node("private-network"),
    ])
    .unwrap();
    let asked = preflight("https://x.example").field("Access-Control-Request-Private-Network", "true");
    assert_eq!(
        answer(&all, asked),
        "Access-Control-Allow-Origin: *\n\
         Access-Control-Allow-Methods: PUT\n\
         Access-Control-Allow-Headers: x-token\n\
         Access-Control-Allow-Private-Network: true\n\
         Access-Control-Max-Age: 600\n"
    );
    let mut odd = preflight("https://x.example");
    odd.request.0.last_mut().unwrap().1 = b"x-token, a b".to_vec();
    assert!(!answer(&all, odd).contains("Allow-Headers"));
    let mut long = preflight("https://x.example");
    long.request.0.last_mut().unwrap().1 = b"x".repeat(ECHO_LIMIT + 1);
    assert!(!answer(&all, long).contains("Allow-Headers"));
}

#[test]
fn responses_name_the_origin_that_may() {
    assert_eq!(
        said(&some(), page("https://app.example")),
        "vary: Origin\n\
         access-control-allow-origin: https://app.example\n\
         access-control-allow-credentials: true\n\
         access-control-expose-headers: X-Total\n"
    );
    assert_eq!(said(&some(), page("https://evil.example")), "vary: Origin\n");
    assert_eq!(said(&some(), Sample::get("/").response(200)), "vary: Origin\n");
    let everybody = cors(&[list_of("origins", &["*"])]).unwrap();
    assert_eq!(said(&everybody, Sample::get("/").response(200)), "access-control-allow-origin: *\n");
}

#[test]
fn what_the_origin_server_says_is_replaced() {
    let sample = page("https://evil.example")
        .response_field("Access-Control-Allow-Origin", "*")
        .response_field("Access-Control-Allow-Credentials", "true")
        .response_field("Access-Control-Max-Age", "1")
        .response_field("Vary", "Accept, origin");
    assert_eq!(said(&some(), sample), "vary: Accept, origin\n");
}

#[test]
fn subdomains_are_whole_labels_of_the_same_scheme_and_port() {
    let fits = |pattern: &str, origin: &str| OriginPattern::parse(pattern).unwrap().fits(origin.as_bytes());
    assert!(fits("https://*.example.com", "https://a.example.com"));
    assert!(fits("https://*.example.com", "https://a.b.example.com"));
    assert!(fits("https://*.Example.com", "https://A.example.com"));
    assert!(fits("http://localhost:3000", "http://localhost:3000"));
    assert!(fits("https://*.example.com:8443", "https://a.example.com:8443"));
    assert!(fits("http://[::1]:3000", "http://[::1]:3000"));
    for origin in [
        "https://example.com",
        "https://.example.com",
        "https://aexample.com",
        "http://a.example.com",
        "https://a.example.com:8443",
        "https://a.example.com.evil.example",
        "https://evil.example/.example.com",
        "https://evil.example?.example.com",
        "https://evil.example:1@a.example.com",
        "https://a.example.com ",
        "null",
        "",
    ] {
        assert!(!fits("https://*.example.com", origin), "{origin}");
    }
}

#[test]
fn what_is_no_origin_is_refused() {
    for bad in [
        "example.com",
        "https://example.com/",
        "https://",
        "https://*",
        "https://*.",
        "https://a.*.com",
        "https://example.com:443",
        "http://example.com:80",
        "https://example.com:",
        "https://example.com:99999",
        "https://user@example.com",
        "://example.com",
    ] {
        assert_eq!(OriginPattern::parse(bad), None, "{bad}");
    }
}

/// Holds for requests that have the field `partner`.
struct Partner;

impl Condition for Partner {
    fn holds(&self, view: &View<'_>) -> bool {
        view.exchange().request_fields().get("partner").is_some()
    }
}

impl Compile for Partner {
    fn condition(&self, _: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, String> {
        assert_eq!(phase, PhaseId::RequestSecurity);
        Ok(Arc::new(Self))
    }

    fn expression(&self, _: &str, _: PhaseId) -> Result<Arc<dyn Expression>, String> {
        Err("no".to_string())
    }

    fn conditions(&self, _: &[&str], _: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)> {
        Err((0, "no".to_string()))
    }
}

#[test]
fn origins_may_be_named_by_an_expression() {
    let node = node("cors").with_child(list_of("origins-if", &["partner"])).with_child(node("credentials"));
    let mut context = Literals { compile: Some(Box::new(Partner)), ..Literals::default() };
    let cors = Cors::from_nodes(&[node], &mut context).unwrap();
    let named = answer(&cors, preflight("https://a.example").field("Partner", "1"));
    assert!(named.starts_with("Access-Control-Allow-Origin: https://a.example\n"), "{named}");
    assert_eq!(answer(&cors, preflight("https://a.example")), "");
    assert_eq!(said(&cors, page("https://a.example")), "vary: Origin\n");
    // Without an `Origin` there is no origin to allow, whatever the expression returns.
    assert_eq!(said(&cors, Sample::get("/").field("Partner", "1").response(200)), "vary: Origin\n");
}

#[test]
fn wrong_settings_are_refused_with_a_reason() {
    let refused = |children: &[Node]| cors(children).err().unwrap().message;
    let credentials =
        "with `credentials`, origins have to be named: anybody's page could act for the visitor";
    assert_eq!(refused(&[list_of("origins", &["*"]), node("credentials")]), credentials);
    assert_eq!(refused(&[list_of("origins", &["null"]), node("credentials")]), credentials);
    assert_eq!(refused(&[]), "nobody may");
    assert_eq!(refused(&[list_of("origins", &["example.com"])]), "this is not an origin");
    let all = list_of("origins", &["*"]);
    assert_eq!(
        refused(&[all.clone(), list_of("methods", &["*", "GET"])]),
        "`*` stands for all, and stands alone"
    );
    for forbidden in ["CONNECT", "trace", "TRACK"] {
        let methods = list_of("methods", &["GET", forbidden]);
        assert_eq!(refused(&[all.clone(), methods]), "no page may use this method");
    }
    assert_eq!(
        refused(&[all.clone(), list_of("methods", &["put"])]),
        "methods are told apart by their case, and browsers send this one in upper case"
    );
    assert!(cors(&[all.clone(), list_of("methods", &["patch", "PROPFIND"])]).is_ok());
    assert_eq!(refused(&[all.clone(), list_of("headers", &["X Y"])]), "this is neither a name nor `*`");
    assert_eq!(refused(&[all.clone(), list_of("max-age", &["25h"])]), "expected a duration from 0ms to 1d");
    assert_eq!(
        refused(&[
            list_of("origins", &["https://a.example"]),
            node("credentials"),
            list_of("expose", &["*"])
        ]),
        "with `credentials`, browsers take `*` for a name: list the fields"
    );
}
