use foregate_module::testing::{Handshake, Sample, node, settings};

use super::*;

fn headers(children: &[Node]) -> Result<SecurityHeaderSettings, Problem> {
    settings(&[children.iter().cloned().fold(node("security-headers"), Node::with_child)])
}

fn over_tls() -> Sample {
    let mut sample = Sample::get("/").response(200);
    sample.tls = Some(Handshake::default());
    sample
}

/// The fields of a response afterwards, one in a line.
fn said(settings: &SecurityHeaderSettings, mut sample: Sample) -> String {
    sample.run(&SecurityHeaders, settings);
    let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
        format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    sample.response.0.iter().map(line).collect()
}

fn off(names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| node(name).arg_literal(false)).collect()
}

const STANDARD: [&str; 4] =
    ["content-type-options", "frame-options", "referrer-policy", "strict-transport-security"];

#[test]
fn the_defaults_break_no_page() {
    let standard = headers(&[]).unwrap();
    let cleartext = "X-Content-Type-Options: nosniff\n\
                     X-Frame-Options: SAMEORIGIN\n\
                     Referrer-Policy: strict-origin-when-cross-origin\n";
    assert_eq!(said(&standard, Sample::get("/").response(200)), cleartext);
    let tls = String::from(cleartext) + "Strict-Transport-Security: max-age=15552000\n";
    assert_eq!(said(&standard, over_tls()), tls);
}

#[test]
fn each_can_be_off() {
    assert_eq!(said(&headers(&off(&STANDARD)).unwrap(), over_tls()), "");
}

#[test]
fn what_the_origin_server_says_stays_unless_forced() {
    let sample = || {
        over_tls()
            .response_field("x-frame-options", "DENY")
            .response_field("Strict-Transport-Security", "max-age=1")
    };
    let mut children = off(&["content-type-options", "referrer-policy"]);
    let kept = said(&headers(&children).unwrap(), sample());
    assert_eq!(kept, "x-frame-options: DENY\nStrict-Transport-Security: max-age=1\n");
    children.push(node("force"));
    let forced = said(&headers(&children).unwrap(), sample());
    assert!(forced.contains("SAMEORIGIN") && forced.contains("max-age=15552000"), "{forced}");
    assert!(!forced.contains("DENY"), "{forced}");
}

#[test]
fn all_values_can_be_given() {
    let mut children = off(&["content-type-options"]);
    children.extend([
        node("strict-transport-security")
            .arg_literal("365d")
            .prop_literal("subdomains", true)
            .prop_literal("preload", true),
        node("frame-options").arg_literal("DENY"),
        node("referrer-policy").arg_literal("no-referrer"),
        node("permissions-policy").arg_literal("camera=(),\n    microphone=()"),
        node("content-security-policy").arg_literal("default-src 'self'").prop_literal("report-only", true),
        node("cross-origin-opener-policy").arg_literal("same-origin"),
        node("cross-origin-embedder-policy").arg_literal("require-corp"),
        node("cross-origin-resource-policy").arg_literal("same-site"),
    ]);
    assert_eq!(
        said(&headers(&children).unwrap(), over_tls()),
        "X-Frame-Options: DENY\n\
         Referrer-Policy: no-referrer\n\
         Cross-Origin-Opener-Policy: same-origin\n\
         Cross-Origin-Embedder-Policy: require-corp\n\
         Cross-Origin-Resource-Policy: same-site\n\
         Permissions-Policy: camera=(), microphone=()\n\
         Content-Security-Policy-Report-Only: default-src 'self'\n\
         Strict-Transport-Security: max-age=31536000; includeSubDomains; preload\n"
    );
}

#[test]
fn frame_ancestors_are_a_policy_besides_others() {
    let mut children = off(&["content-type-options", "referrer-policy", "strict-transport-security"]);
    children.push(node("frame-ancestors").arg_literal("'self'").arg_literal("https://partner.example"));
    let sample = over_tls().response_field("Content-Security-Policy", "default-src 'self'");
    assert_eq!(
        said(&headers(&children).unwrap(), sample),
        "Content-Security-Policy: default-src 'self'\n\
         Content-Security-Policy: frame-ancestors 'self' https://partner.example\n"
    );
}

#[test]
fn fields_that_tell_what_is_installed_go() {
    let sample = || {
        over_tls()
            .response_field("server", "Apache/2.4.1 (Unix)")
            .response_field("X-Powered-By", "PHP/5.2")
            .response_field("X-Runtime", "0.1")
    };
    assert_eq!(said(&headers(&off(&STANDARD)).unwrap(), sample()), "X-Runtime: 0.1\n");
    let mut children = off(&STANDARD);
    children.push(node("remove").arg_literal("x-runtime"));
    assert_eq!(
        said(&headers(&children).unwrap(), sample()),
        "server: Apache/2.4.1 (Unix)\nX-Powered-By: PHP/5.2\n"
    );
    let mut children = off(&STANDARD);
    children.push(node("remove").arg_literal(false));
    assert_eq!(said(&headers(&children).unwrap(), sample()).lines().count(), 3);
}

#[test]
fn wrong_settings_are_refused_with_a_reason() {
    let refused = |child: Node| headers(&[child]).unwrap_err().message;
    assert_eq!(refused(node("frame-options").arg_literal("deny")), "expected \"SAMEORIGIN\" or \"DENY\"");
    assert_eq!(
        refused(node("strict-transport-security").arg_literal("1d").prop_literal("preload", true)),
        "browsers take only what holds for subdomains and for a year into their lists"
    );
    assert_eq!(refused(node("strict-transport-security").arg_literal(5)), "a duration needs a unit");
    assert_eq!(refused(node("permissions-policy").arg_literal("")), "this policy is empty");
    assert_eq!(refused(node("frame-ancestors").arg_literal("'self' https://a")), "this is not one source");
    assert_eq!(
        refused(node("content-security-policy").arg_literal("default-src \u{7}")),
        "this cannot be the value of a field: it has a control byte, or a blank at an end"
    );
    assert_eq!(
        refused(node("remove").arg_literal("Content-Length")),
        "this field belongs to the connection or the framing, which no module changes"
    );
    let both = [node("frame-ancestors").arg_literal("'self'"), node("frame-options").arg_literal("DENY")];
    assert_eq!(headers(&both).unwrap_err().message, "`frame-ancestors` says that already");
}
