use alloc::string::ToString;
use alloc::vec;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA384, RsaKeyPair,
};
use aws_lc_rs::{encoding::AsDer, encoding::PublicKeyX509Der, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Action, FetchError, FetchResponse, Verdict};
use serde_json::json;

use super::*;

const SECRET: &str = "a secret of thirty-two bytes or a bit more";
/// The time of a [`Sample`], seconds.
const NOW: u64 = 1_767_225_600;

fn signed_by(head: &Json, claims: &Json, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let encode = |json: &Json| URL_SAFE_NO_PAD.encode(json.to_string());
    let message = format!("{}.{}", encode(head), encode(claims));
    let signature = sign(message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn hs256(secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

fn token(claims: &Json) -> String {
    signed_by(&json!({"alg": "HS256", "typ": "JWT"}), claims, hs256(SECRET.as_bytes()))
}

fn valid() -> Json {
    json!({"sub": "ada", "exp": NOW + 60})
}

fn with(children: Vec<Node>) -> Node {
    children.into_iter().fold(node("jwt"), Node::with_child)
}

fn secret() -> Node {
    node("secret").arg_literal("HS256").arg_literal(SECRET)
}

fn words(key: &str, words: &[&str]) -> Node {
    words.iter().fold(node(key), |node, word| node.arg_literal(*word))
}

fn read_with(node: Node, files: Vec<(&'static str, Vec<u8>)>) -> Result<JwtSettings, Problem> {
    let mut literals = Literals { upstreams: vec!["idp"], files, ..Literals::default() };
    JwtSettings::from_nodes(&[node], &mut literals)
}

fn read(node: Node) -> JwtSettings {
    read_with(node, Vec::new()).unwrap()
}

fn bearing(token: &str) -> Sample {
    Sample::get("/").field("authorization", &format!("Bearer {token}"))
}

/// `None` if let in, else the status and the note in the log.
fn refusal(sample: &mut Sample, settings: &JwtSettings) -> Option<(u16, String)> {
    match sample.run(&Jwt, settings) {
        Verdict::Stop(Action::Respond(response)) => {
            let (name, why) = sample.state.notes.last().unwrap();
            assert_eq!(name, &Text::from("jwt"));
            assert_eq!(
                response.fields.iter().any(|f| f.name() == b"www-authenticate"),
                response.status < 500
            );
            Some((response.status, String::from_utf8_lossy(why).into_owned()))
        }
        verdict => {
            assert_eq!(verdict, Verdict::Continue);
            None
        }
    }
}

fn judged(claims: &Json, settings: &JwtSettings) -> Option<String> {
    refusal(&mut bearing(&token(claims)), settings).map(|(_, why)| why)
}

#[test]
fn a_token_of_another_maker_is_verified() {
    // RFC 7515, appendix A.1.
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let set = json!({"keys": [{"kty": "oct", "alg": "HS256", "k":
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]});
    let node = with(vec![node("jwks").prop_literal("file", "keys")]);
    let settings = read_with(node, vec![("keys", set.to_string().into_bytes())]).unwrap();
    let mut sample = bearing(token);
    assert_eq!(refusal(&mut sample, &settings), Some((401, "the token has expired".into())));
    sample.now.unix_ms = 1_300_819_379_000;
    assert_eq!(refusal(&mut sample, &settings), None);
}

type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

struct Pair {
    algorithm: &'static str,
    jwk: Json,
    pem: String,
    sign: Sign,
}

fn pem(key: &impl AsDer<PublicKeyX509Der<'static>>) -> String {
    let der = key.as_der().unwrap();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der.as_ref()))
}

fn pairs() -> Vec<Pair> {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let mut pairs = Vec::new();
    for (algorithm, padding) in [("RS256", &RSA_PKCS1_SHA256), ("PS384", &RSA_PSS_SHA384)] {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let public = key.public_key();
        // The modulus: 256 bytes after the heads of RSAPublicKey and of its first member.
        let n = &public.as_ref()[9..265];
        pairs.push(Pair {
            algorithm,
            jwk: json!({"kty": "RSA", "alg": algorithm, "n": encode(n), "e": "AQAB"}),
            pem: pem(public),
            sign: Box::new(move |message| {
                let mut signature = vec![0; 256];
                key.sign(padding, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }),
        });
    }
    for (algorithm, curve, signing) in [
        ("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
    ] {
        let key = EcdsaKeyPair::generate(signing).unwrap();
        let point = &key.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        pairs.push(Pair {
            algorithm,
            jwk: json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y), "use": "sig"}),
            pem: pem(key.public_key()),
            sign: Box::new(move |message| key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()),
        });
    }
    let key = Ed25519KeyPair::generate().unwrap();
    pairs.push(Pair {
        algorithm: "EdDSA",
        jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())}),
        pem: pem(key.public_key()),
        sign: Box::new(move |message| key.sign(message).as_ref().to_vec()),
    });
    pairs
}

#[test]
fn each_kind_of_key_verifies_its_own_tokens_and_no_others() {
    let pairs = pairs();
    for pair in &pairs {
        let set = json!({"keys": [pair.jwk]}).to_string().into_bytes();
        let of_set = read_with(with(vec![node("jwks").prop_literal("file", "f")]), vec![("f", set)]).unwrap();
        let key = node("key").arg_literal(pair.algorithm).prop_literal("file", "f");
        let of_pem = read_with(with(vec![key]), vec![("f", pair.pem.clone().into_bytes())]).unwrap();
        for other in &pairs {
            let good = signed_by(&json!({"alg": other.algorithm}), &valid(), &other.sign);
            let expected =
                (other.algorithm != pair.algorithm).then(|| (401, "no key verifies the signature".into()));
            for settings in [&of_set, &of_pem] {
                assert_eq!(
                    refusal(&mut bearing(&good), settings),
                    expected,
                    "{} {}",
                    pair.algorithm,
                    other.algorithm
                );
            }
        }
    }
}

#[test]
fn the_algorithm_belongs_to_the_key() {
    let pairs = pairs();
    let rsa = &pairs[0];
    let key = node("key").arg_literal("RS256").prop_literal("file", "f");
    let settings = read_with(with(vec![key]), vec![("f", rsa.pem.clone().into_bytes())]).unwrap();
    let der = rsa.pem.lines().nth(1).and_then(|line| STANDARD.decode(line).ok()).unwrap();
    let unsigned = |name: &str| signed_by(&json!({"alg": name}), &valid(), |_| Vec::new());
    for forged in [
        // The public key as a secret.
        signed_by(&json!({"alg": "HS256"}), &valid(), hs256(rsa.pem.as_bytes())),
        signed_by(&json!({"alg": "HS256"}), &valid(), hs256(&der)),
        signed_by(&json!({"alg": "RS256"}), &valid(), hs256(rsa.pem.as_bytes())),
        unsigned("none"),
        unsigned("None"),
        unsigned("RS256"),
        signed_by(&json!({"alg": "RS512"}), &valid(), &rsa.sign),
        // A key that the token brings along.
        signed_by(&json!({"alg": "ES256", "jwk": pairs[2].jwk}), &valid(), &pairs[2].sign),
    ] {
        let why = Some((401, "no key verifies the signature".into()));
        assert_eq!(refusal(&mut bearing(&forged), &settings), why, "{forged}");
    }
}

#[test]
fn what_is_changed_anywhere_is_refused() {
    let settings = read(with(vec![secret()]));
    let good = token(&valid());
    assert_eq!(refusal(&mut bearing(&good), &settings), None);
    for at in 0..good.len() {
        let mut bad = good.clone().into_bytes();
        bad[at] = if bad[at] == b'A' { b'B' } else { b'A' };
        let bad = String::from_utf8(bad).unwrap();
        assert!(refusal(&mut bearing(&bad), &settings).is_some(), "changed at {at}");
    }
    for bad in
        [String::new(), good.replace('.', ""), format!("{good}."), format!("{good}="), format!(".{good}")]
    {
        assert!(refusal(&mut bearing(&bad), &settings).is_some(), "{bad}");
    }
    let long = token(&json!({"sub": "a".repeat(token::TOKEN_MOST), "exp": NOW + 60}));
    assert_eq!(refusal(&mut bearing(&long), &settings), Some((401, "the token is too long".into())));
    let head = json!({"alg": "HS256", "crit": ["b64"], "b64": false});
    let critical = signed_by(&head, &valid(), hs256(SECRET.as_bytes()));
    assert_eq!(
        refusal(&mut bearing(&critical), &settings),
        Some((401, "the token has a critical extension".into()))
    );
}

#[test]
fn times_are_judged_with_leeway() {
    let settings = read(with(vec![secret()]).prop_literal("leeway", "10s"));
    for (claims, why) in [
        (json!({"exp": NOW - 9}), None),
        (json!({"exp": NOW - 10}), Some("the token has expired")),
        (json!({"exp": NOW as f64 + 0.5}), None),
        (json!({"exp": NOW + 9, "nbf": NOW + 10}), None),
        (json!({"exp": NOW + 99, "nbf": NOW + 11}), Some("the token is not valid yet")),
        (json!({}), Some("the token has no exp")),
        (json!({"exp": "tomorrow"}), Some("the token is malformed")),
        (json!({"exp": NOW + 9, "nbf": null}), Some("the token is malformed")),
    ] {
        assert_eq!(judged(&claims, &settings).as_deref(), why, "{claims}");
    }
    let endless = read(with(vec![secret()]).prop_literal("require-expiry", false));
    assert_eq!(judged(&json!({}), &endless), None);
    assert!(judged(&json!({"exp": 1}), &endless).is_some());
}

#[test]
fn issuer_audience_and_claims_are_demanded() {
    let settings = read(with(vec![
        secret(),
        words("issuer", &["https://a", "https://b"]),
        words("audience", &["shop"]),
        words("require", &["scope", "write"]),
        words("require", &["level", "3", "4"]),
        words("require", &["email"]),
    ]));
    let good = json!({"exp": NOW + 9, "iss": "https://b", "aud": ["x", "shop"], "scope": "read write", "level": 3, "email": ""});
    assert_eq!(judged(&good, &settings), None);
    let but = |name: &str, value: Json| {
        let mut claims = good.clone();
        claims[name] = value;
        judged(&claims, &settings)
    };
    assert_eq!(but("aud", json!("shop")), None);
    assert_eq!(but("level", json!(["4"])), None);
    for (name, value, why) in [
        ("iss", json!("https://c"), "the issuer is another"),
        ("iss", json!(null), "the issuer is another"),
        ("iss", json!(["https://a"]), "the issuer is another"),
        ("aud", json!("shops"), "the audience is another"),
        ("aud", json!([]), "the audience is another"),
        ("scope", json!("read writer"), "a required claim is missing"),
        ("level", json!(5), "a required claim is missing"),
        ("email", json!(null), "a required claim is missing"),
    ] {
        assert_eq!(but(name, value.clone()).as_deref(), Some(why), "{name} {value}");
    }
    let plain = read(with(vec![secret()]));
    assert_eq!(
        judged(&json!({"exp": NOW + 9, "aud": "x"}), &plain).as_deref(),
        Some("the audience is another")
    );
    let scope = bearing(&token(&json!({"exp": NOW + 9, "iss": "https://a", "aud": "shop"})));
    assert_eq!(refusal(&mut { scope }, &settings).map(|(status, _)| status), Some(403));
}

#[test]
fn claims_go_to_the_origin_in_place_of_what_the_client_says() {
    let claim = |name: &str, field: &str| node("claim").arg_literal(name).prop_literal("field", field);
    let settings = read(
        with(vec![secret(), claim("sub", "x-user"), claim("groups", "x-groups"), claim("none", "x-none")])
            .prop_literal("strip-authorization", true),
    );
    let claims = json!({"sub": "ada", "exp": NOW + 60, "groups": ["a", "b"]});
    let mut sample = bearing(&token(&claims)).field("X-User", "root").field("x-none", "admin");
    sample.run(&AskForKeys, &settings);
    assert_eq!(sample.request.get("x-user"), None);
    assert_eq!(refusal(&mut sample, &settings), None);
    assert_eq!(sample.request.get("x-user"), Some(&b"ada"[..]));
    assert_eq!(sample.request.get("x-groups"), Some(&b"a,b"[..]));
    assert_eq!(sample.request.get("x-none"), None);
    assert_eq!(sample.request.get("authorization"), None);
    assert_eq!(sample.value::<Subject>().map(|subject| &**subject), Some("ada"));
    let shown: Json = serde_json::from_str(sample.value::<Claims>().unwrap()).unwrap();
    assert_eq!(shown, claims);
    let split = token(&json!({"sub": "a\r\nx-admin: 1", "exp": NOW + 60}));
    assert_eq!(
        refusal(&mut bearing(&split), &settings),
        Some((401, "a claim cannot stand in a field".into()))
    );
}

#[test]
fn a_token_of_another_type_is_refused_where_one_is_asked_for() {
    let of_type = |head: &Json| signed_by(head, &valid(), hs256(SECRET.as_bytes()));
    let settings = read(with(vec![secret(), words("type", &["application/at+jwt", "x"])]));
    for (typ, passes) in
        [("at+jwt", true), ("AT+JWT", true), ("Application/at+jwt", true), ("x", true), ("JWT", false)]
    {
        let token = of_type(&json!({"alg": "HS256", "typ": typ}));
        let why = (!passes).then(|| (401, "the token is of another type".to_string()));
        assert_eq!(refusal(&mut bearing(&token), &settings), why, "{typ}");
    }
    for head in [json!({"alg": "HS256"}), json!({"alg": "HS256", "typ": 1})] {
        assert!(refusal(&mut bearing(&of_type(&head)), &settings).is_some());
        assert_eq!(refusal(&mut bearing(&of_type(&head)), &read(with(vec![secret()]))), None);
    }
}

#[test]
fn tokens_come_in_a_field_or_a_cookie() {
    let settings = read(with(vec![secret()]).prop_literal("cookie", "session"));
    let good = token(&valid());
    let cookies = |text: &str| Sample::get("/").field("cookie", text);
    assert_eq!(refusal(&mut cookies(&format!("a=b; session={good}")), &settings), None);
    assert_eq!(refusal(&mut cookies("a=b").field("cookie", &format!("session={good}")), &settings), None);
    assert_eq!(refusal(&mut cookies(&format!("session={good}; session={good}; session=")), &settings), None);
    let both = |cookie: &str| bearing(&good).field("cookie", &format!("session={cookie}"));
    assert_eq!(refusal(&mut both(&good), &settings), None);
    let several = Some((401, "there are several tokens".to_string()));
    for other in ["session=x", "session =x", "s%65ssion=x"] {
        assert_eq!(refusal(&mut cookies(&format!("session={good}; {other}")), &settings), several, "{other}");
        let mut split = cookies(&format!("session={good}")).field("cookie", other);
        assert_eq!(refusal(&mut split, &settings), several, "{other}");
        assert_eq!(refusal(&mut bearing(&good).field("cookie", other), &settings), several, "{other}");
    }
    let like = Some((401, "there is a cookie that may be taken for the one with the token".to_string()));
    for other in ["Session=x", "a=b session=x", "session[]=x", "session%00=x"] {
        for cookie in [format!("session={good}; {other}"), format!("{other}; session={good}"), other.into()] {
            assert_eq!(refusal(&mut cookies(&cookie), &settings), like, "{cookie}");
        }
        assert_eq!(refusal(&mut bearing(&good).field("cookie", other), &settings), like, "{other}");
    }
    assert_eq!(refusal(&mut cookies(&format!("SESSION={good}; session={good}")), &settings), None);
    let underscored = read(with(vec![secret()]).prop_literal("cookie", "session_token"));
    for other in ["session.token=x", "session token=x", "session[token=x", "session%2etoken=x"] {
        let mut sample = cookies(&format!("{other}; session_token={good}"));
        assert_eq!(refusal(&mut sample, &underscored), like, "{other}");
    }
    let many = format!("session={good}; ").repeat(COOKIES_MOST) + "session=x";
    assert_eq!(refusal(&mut cookies(&many), &settings), several);
    assert!(refusal(&mut cookies(&format!("xsession={good}")), &settings).is_some());
    let optional =
        read(with(vec![secret()]).prop_literal("optional", true).prop_literal("cookie", "session"));
    let with_field = |value: &str| Sample::get("/").field("authorization", value);
    for unclear in ["Bearer", "bearer\tx", "Bearer, x", "", "=x"] {
        for settings in [&settings, &optional] {
            let why = Some((401, "`authorization` is not one bearer token".into()));
            assert_eq!(refusal(&mut with_field(unclear), settings), why, "{unclear:?}");
        }
    }
    for second in ["Bearer x", "Basic x"] {
        assert!(refusal(&mut bearing(&good).field("authorization", second), &optional).is_some());
    }
    assert_eq!(refusal(&mut Sample::get("/"), &optional), None);
    assert_eq!(refusal(&mut cookies("Session=x"), &optional), like);
    assert!(refusal(&mut bearing("x"), &optional).is_some());
    // Credentials of another scheme are no token.
    for other in ["Basic YTpi", "basic", "Bearers x", "Digest username=\"a\""] {
        assert_eq!(refusal(&mut with_field(other), &optional), None, "{other}");
        assert_eq!(refusal(&mut with_field(other), &settings), Some((401, "there is no token".into())));
        let cookie = |token: &str| with_field(other).field("cookie", &format!("session={token}"));
        assert_eq!(refusal(&mut cookie(&good), &settings), None);
        assert!(refusal(&mut cookie("x"), &optional).is_some());
    }
    assert_eq!(refusal(&mut Sample::get("/"), &settings), Some((401, "there is no token".into())));
}

#[test]
fn no_token_passes_under_another_scheme() {
    let by_cookie = read(with(vec![secret()]).prop_literal("cookie", "session"));
    let optional =
        read(with(vec![secret()]).prop_literal("optional", true).prop_literal("cookie", "session"));
    let good = token(&valid());
    let why = Some((401, "`authorization` has a token of another scheme, or behind one".to_string()));
    let of = |form: &str, token: &str| Sample::get("/").field("authorization", &form.replace("TOKEN", token));
    for form in [
        "DPoP TOKEN",
        "dpop  TOKEN ",
        "JWT TOKEN",
        "Basic eA==, Bearer TOKEN",
        "Basic eA==,bearer\tTOKEN",
        "Basic eA==, , jwt TOKEN, x",
        "Digest username=\"a\", DPoP TOKEN",
    ] {
        let with_cookie = |token: &str| of(form, token).field("cookie", &format!("session={good}"));
        assert_eq!(refusal(&mut with_cookie("x"), &by_cookie), why, "{form}");
        assert_eq!(refusal(&mut with_cookie("x"), &optional), why, "{form}");
        // The same token as the verified one, but this one is not verified.
        assert_eq!(refusal(&mut with_cookie(&good), &by_cookie), None, "{form}");
        for settings in [&by_cookie, &optional] {
            assert_eq!(refusal(&mut of(form, &good), settings), why, "{form}");
        }
    }
    for form in ["DPoP", "Basic eA==, Bearer", "Basic bearer x", "JWTs x", "Digest username=\"a\", realm=jwt"]
    {
        assert_eq!(refusal(&mut of(form, ""), &optional), None, "{form}");
    }
}

#[test]
fn clients_do_not_learn_the_reason() {
    let settings = read(with(vec![secret()]).prop_literal("realm", "api"));
    let challenge = |mut sample: Sample| {
        let Verdict::Stop(Action::Respond(response)) = sample.run(&Jwt, &settings) else { unreachable!() };
        let field = response.fields.into_iter().find(|field| field.name() == b"www-authenticate").unwrap();
        (String::from_utf8_lossy(field.value()).into_owned(), response.body)
    };
    assert_eq!(challenge(Sample::get("/")).0, "Bearer realm=\"api\"");
    let expired = challenge(bearing(&token(&json!({"exp": 1}))));
    assert_eq!(expired, challenge(bearing("nonsense")));
    assert_eq!(expired.0, "Bearer realm=\"api\", error=\"invalid_token\"");
}

#[test]
fn keys_come_from_a_server() {
    let jwks = node("jwks").prop_literal("upstream", "idp").prop_literal("keep", "1h");
    let settings = read(with(vec![jwks]));
    let pair = &pairs()[2];
    let good = signed_by(&json!({"alg": "ES256"}), &valid(), &pair.sign);
    let asked = |mut sample: Sample| {
        sample.run(&AskForKeys, &settings);
        sample.value::<Fetch<KeySet>>().cloned()
    };
    assert_eq!(asked(Sample::get("/")), None, "nobody needs keys for no token");
    let request = asked(bearing(&good)).unwrap();
    assert_eq!((&*request.path, request.keep), (&b"/.well-known/jwks.json"[..], Duration::from_secs(3600)));

    let answered = |answer: Option<FetchResult>| {
        let mut sample = bearing(&good);
        if let Some(answer) = answer {
            sample.put::<Fetched<KeySet>>(answer);
        }
        refusal(&mut sample, &settings)
    };
    let body =
        |keys: Json| Ok(FetchResponse { status: 200, fields: Vec::new(), body: keys.to_string().into() });
    let right = json!({"keys": [{"kty": "unheard of"}, pair.jwk]});
    assert_eq!(answered(Some(body(right.clone()))), None);
    let kept = settings.remote.as_ref().unwrap().parsed.load_full().unwrap();
    assert_eq!(answered(Some(body(right.clone()))), None);
    assert!(
        Arc::ptr_eq(&kept, &settings.remote.as_ref().unwrap().parsed.load_full().unwrap()),
        "parsed once"
    );
    // A token with an unknown key may be signed with a new one; this one has no name, and serves for all.
    let named = bearing(&signed_by(&json!({"alg": "ES256", "kid": "new"}), &valid(), &pair.sign));
    assert_eq!(asked(named).unwrap().renew_after, None);
    let mut old = pair.jwk.clone();
    old["kid"] = json!("old");
    assert_eq!(answered(Some(body(json!({"keys": [old]})))), None);
    for (kid, renew_after) in
        [(json!("old"), None), (json!("new"), Some(Duration::from_secs(10))), (json!(7), None)]
    {
        let token = signed_by(&json!({"alg": "ES256", "kid": kid}), &valid(), &pair.sign);
        assert_eq!(asked(bearing(&token)).unwrap().renew_after, renew_after, "{kid}");
    }
    // Keys that are gone verify nothing more.
    assert_eq!(
        answered(Some(body(json!({"keys": []})))),
        Some((401, "no key verifies the signature".into()))
    );
    for (answer, why) in [
        (None, "the keys were not asked for"),
        (Some(Err(FetchError::Timeout)), "the keys: no answer in time"),
        (
            Some(Ok(FetchResponse { status: 404, fields: Vec::new(), body: Text::EMPTY })),
            "the keys were answered with 404",
        ),
        (Some(body(json!([]))), "the set of keys has no `keys`"),
    ] {
        assert_eq!(answered(answer), Some((503, why.into())));
    }
    let secret = json!({"keys": [{"kty": "oct", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
    let mut sample = bearing(&token(&valid()));
    sample.put::<Fetched<KeySet>>(body(secret));
    assert!(refusal(&mut sample, &settings).is_some(), "no server hands out secrets");
}

#[test]
fn keys_are_chosen_by_id() {
    let other = node("secret")
        .arg_literal("HS256")
        .arg_literal("another secret of thirty-two bytes")
        .prop_literal("id", "b");
    let settings = read(with(vec![secret().prop_literal("id", "a"), other]));
    let with_id =
        |id: &str| signed_by(&json!({"alg": "HS256", "kid": id}), &valid(), hs256(SECRET.as_bytes()));
    assert_eq!(refusal(&mut bearing(&with_id("a")), &settings), None);
    assert!(refusal(&mut bearing(&with_id("b")), &settings).is_some());
    assert_eq!(refusal(&mut bearing(&token(&valid())), &settings), None, "without an id all are tried");
}

#[test]
fn mistakes_are_told() {
    let key = |algorithm: &str| node("key").arg_literal(algorithm).prop_literal("file", "f");
    let of_file =
        |text: &str, child: Node| read_with(with(vec![child]), vec![("f", text.as_bytes().to_vec())]);
    let short = format!(
        "-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----",
        STANDARD.encode([0; 162])
    );
    let ec = pairs().swap_remove(2).pem;
    for (result, message) in [
        (read_with(with(vec![]), vec![]), "`jwt` has no keys, so nobody could come in"),
        (
            read_with(with(vec![node("secret").arg_literal("HS512").arg_literal(SECRET)]), vec![]),
            "a secret for HS512 needs 64 bytes at least",
        ),
        (
            read_with(with(vec![node("secret").arg_literal("RS256").arg_literal(SECRET)]), vec![]),
            "RS256 takes a public key, not a secret",
        ),
        (
            read_with(with(vec![node("secret").arg_literal("none").arg_literal("")]), vec![]),
            "expected \"HS256\" or",
        ),
        (of_file(&ec, key("HS256")), "HS256 takes a secret, not a public key"),
        (of_file(&ec, key("ES384")), "this is not a public key for ES384"),
        (of_file(&ec, key("EdDSA")), "this is not a public key for EdDSA"),
        (of_file(&short, key("RS256")), "an RSA key needs 2048 bits at least"),
        (of_file(&ec, key("RS256")), "this is not a public key for RS256"),
        (of_file("-----BEGIN PRIVATE KEY-----", key("ES256")), "this is a private key"),
        (of_file("-----BEGIN CERTIFICATE-----", key("ES256")), "this is a certificate"),
        (of_file("x", key("ES256")), "there is no public key in this file"),
        (of_file("{", node("jwks").prop_literal("file", "f")), "the set of keys is not JSON"),
        (
            of_file("{\"keys\":[]}", node("jwks").prop_literal("file", "f")),
            "there is no key in this set that can be used",
        ),
        (of_file("", node("jwks")), "`jwks` needs either `file` or `upstream`"),
        (of_file("", node("key").arg_literal("ES256")), "`key` needs `file`"),
        (
            read_with(
                with(vec![secret(), node("claim").arg_literal("sub").prop_literal("field", "Host")]),
                vec![],
            ),
            "`host` is the client's own, and is not replaced",
        ),
        (
            read_with(with(vec![secret()]).prop_literal("leeway", "1h"), vec![]),
            "expected a duration from 0ms to 5m",
        ),
        (
            read_with(with(vec![secret()]).prop_literal("cookie", "a b"), vec![]),
            "this is not the name of a cookie",
        ),
    ] {
        let found = result.err().map(|problem| problem.message).unwrap_or_default();
        assert!(found.starts_with(message), "{found} instead of {message}");
    }
}
