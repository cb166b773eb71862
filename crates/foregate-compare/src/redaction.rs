//! Hides secret values in samples.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::answer::{Answer, Outcome};
use crate::difference::{Class, Difference};

/// Fields with values that are never shown.
const SECRET: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "www-authenticate",
    "proxy-authenticate",
    "authentication-info",
    "x-amz-security-token",
];
/// Other fields hold credentials if their names have one of these words.
const SECRET_WORDS: [&str; 9] =
    ["token", "secret", "password", "api-key", "apikey", "auth", "session", "csrf", "signature"];

/// The key of the hashes. Under one key, equal values have equal hashes.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key of random bytes.
    pub const fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// The hash of a value: `hash:` and 16 characters.
    pub fn hash(&self, value: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return "hash:".to_owned() };
        mac.update(value);
        let digest = mac.finalize().into_bytes();
        let short = digest.get(..12).unwrap_or_default();
        format!("hash:{}", BASE64_URL_SAFE_NO_PAD.encode(short))
    }
}

/// How secrets are hidden in the requests and answers that are shown.
#[derive(Debug, Clone)]
pub enum Redaction {
    /// All values are shown.
    Raw,
    /// Credentials, cookies, the values of queries, and bodies are replaced by hashes under this key.
    Hashed(Key),
}

impl Redaction {
    /// The value of a field, with its secrets hidden.
    pub fn field(&self, name: &str, value: &[u8]) -> String {
        let text = String::from_utf8_lossy(value).into_owned();
        match self {
            Self::Raw => text,
            Self::Hashed(key) if is_secret(name) => key.hash(value),
            Self::Hashed(key) if text.contains('?') => hide_query(key, &text),
            Self::Hashed(_) => text,
        }
    }

    /// A target or a URL, with the values of its query hidden.
    pub fn target(&self, target: &str) -> String {
        match self {
            Self::Raw => target.to_owned(),
            Self::Hashed(key) => hide_query(key, target),
        }
    }

    /// Differences with their secrets hidden.
    pub fn differences(&self, differences: &[Difference]) -> Vec<Difference> {
        let Self::Hashed(key) = self else { return differences.to_vec() };
        let shown = differences.iter().map(|difference| {
            let of_request = difference.part.strip_prefix("request ");
            let part = of_request.unwrap_or(&difference.part);
            let header =
                part.strip_prefix("header ").or(matches!(part, "request" | "target").then_some(part));
            let hides = match header {
                Some(name) if is_secret(name) => true,
                Some(_) => {
                    let hide = |value: &Option<String>| value.as_ref().map(|value| hide_query(key, value));
                    let (old, new) = (hide(&difference.old), hide(&difference.new));
                    return Difference { old, new, ..difference.clone() };
                }
                None => {
                    difference.class == Class::Body
                        || of_request.is_some() && (part == "body" || part.starts_with("json "))
                        || part.starts_with("cookie ") && !part.contains(';')
                }
            };
            if !hides {
                return difference.clone();
            }
            let hide = |value: &Option<String>| value.as_ref().map(|value| key.hash(value.as_bytes()));
            Difference { old: hide(&difference.old), new: hide(&difference.new), ..difference.clone() }
        });
        shown.collect()
    }

    /// An answer for a sample, with its secrets hidden.
    pub fn outcome(&self, outcome: &Outcome) -> serde_json::Value {
        match outcome {
            Outcome::Failed(reason) => serde_json::json!({ "failed": reason }),
            Outcome::Answered(answer) => self.answer(answer),
        }
    }

    fn answer(&self, answer: &Answer) -> serde_json::Value {
        let fields = answer.fields.iter().map(|(name, value)| format!("{name}: {}", self.field(name, value)));
        let body = match self {
            Self::Raw => String::from_utf8_lossy(&answer.decoded(64 << 10).bytes).into_owned(),
            Self::Hashed(key) => key.hash(&answer.body.bytes),
        };
        serde_json::json!({
            "status": answer.status,
            "fields": fields.collect::<Vec<_>>(),
            "length": answer.body.length,
            "body": body,
            "ms": answer.time.as_secs_f64() * 1000.0,
        })
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.contains(&&*name) || SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// A URL with hashes in place of the values of its query.
pub fn hide_query(key: &Key, target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}={}", key.hash(value.as_bytes())),
        Some(_) => pair.to_owned(),
        // A parameter without `=` is hidden as a whole: it may be a value.
        None if pair.is_empty() => String::new(),
        None => key.hash(pair.as_bytes()),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}
