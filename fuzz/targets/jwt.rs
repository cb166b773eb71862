//! Invariants for any token and any set of keys. The body of a fuzz target, also run over its corpus by `cargo test`.
//!
//! An input is lines: the head and the claims of a token that is signed here, a token as it is, and a set of keys.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Fields, FromNode, Verdict};
use foregate_modules::jwt::{Jwt, JwtSettings};

const SECRET: &str = "a secret of thirty-two bytes or more";
/// By how much clocks may differ, seconds.
const LEEWAY: f64 = 30.0;

/// The settings, with these keys beside the secret if they can be read.
fn settings(keys: &[u8]) -> JwtSettings {
    let secret = node("secret").arg_literal("HS256").arg_literal(SECRET);
    let claim = |name: &str, field: &str| node("claim").arg_literal(name).prop_literal("field", field);
    let jwt = || {
        let node = node("jwt").prop_literal("strip-authorization", true).prop_literal("cookie", "token");
        node.with_child(secret.clone()).with_child(claim("sub", "x-user")).with_child(claim("all", "x-all"))
    };
    let set = node("jwks").prop_literal("file", "keys");
    let mut literals = Literals { files: vec![("keys", keys.into())], ..Literals::default() };
    JwtSettings::from_nodes(&[jwt().with_child(set)], &mut literals).unwrap_or_else(|problem| {
        assert!(!problem.message.is_empty());
        JwtSettings::from_nodes(&[jwt()], &mut Literals::default()).expect("these are right")
    })
}

/// The fields for the origin if a token is accepted.
fn judged(settings: &JwtSettings, token: &[u8], cookie: bool) -> Option<Sample> {
    let mut sample = Sample::get("/").field("x-user", "made up");
    let (name, prefix): (&[u8], &[u8]) =
        if cookie { (b"cookie", b"a=b; token=") } else { (b"authorization", b"Bearer ") };
    sample.request.0.push((name.into(), [prefix, token].concat()));
    (sample.run(&Jwt, settings) == Verdict::Continue).then_some(sample)
}

/// Only a valid signature lets a token in, and none after its expiry.
pub(crate) fn jwt(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (head, claims, token, keys) = (line(), line(), line(), line());
    let settings = settings(keys);
    for cookie in [false, true] {
        let _ = judged(&settings, token, cookie);
    }

    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    let signed = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
    let Some(sample) = judged(&settings, signed.as_bytes(), false) else { return };
    let head: serde_json::Value = serde_json::from_slice(head).expect("the head was read");
    assert!(head["alg"] == "HS256" && head.get("crit").is_none());
    let claims: serde_json::Value = serde_json::from_slice(claims).expect("the claims were read");
    let now = sample.now.unix_ms as f64 / 1000.0;
    assert!(claims["exp"].as_f64().expect("a token ends") + LEEWAY > now);
    assert!(claims.get("nbf").is_none_or(|start| start.as_f64().is_some_and(|start| start <= now + LEEWAY)));
    assert!(claims.get("aud").is_none(), "it is for somebody else");
    assert_eq!(sample.request.get("authorization"), None);
    for name in ["x-user", "x-all"] {
        let fields: &dyn Fields = &sample.request;
        assert!(fields.all(name).count() <= 1 && fields.get(name) != Some(b"made up"));
    }
    if let Some(user) = claims["sub"].as_str() {
        assert_eq!(sample.request.get("x-user"), Some(user.as_bytes()));
    }
}
