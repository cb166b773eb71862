//! The proof that a request comes from a node of the group, and all that its owner has to know about it: one field.
//!
//! The field is `base64(claims).base64(HMAC-SHA256)`. The claims are JSON. Target and authority of the request belong to the signed text, so
//! that the proof is of no use for another address. Answers carry a proof as well: an address that is no longer that of a
//! node cannot put anything into the cache.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The name of the field, of requests and of answers.
pub const SHIELD_FIELD: &[u8] = b"Foregate-Shield";
/// The field with the hashed tags of an answer.
pub const TAGS_FIELD: &[u8] = b"Foregate-Shield-Tags";
/// The longest field: heads have limits. A request with a longer one goes to the origin.
const LONGEST: usize = 12 * 1024;
/// How much the clocks of two nodes may differ, and the time for which a proof is valid: seconds.
const VALID: u64 = 300;

/// A request from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCall {
    /// The name of the node that asks.
    pub from: String,
    /// A random number, to which the answer belongs.
    pub nonce: u64,
    /// The request to the other node.
    pub kind: CallKind,
}

/// The kinds of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    /// A response for the cache.
    Fetch(Box<FetchCall>),
    /// The purges after this number of the log with this epoch.
    Purges(LogPosition),
}

/// A position in the log of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The epoch of the log.
    pub epoch: u64,
    /// The number of the last known purge.
    pub number: u64,
}

/// The facts about a request for a response that its owner cannot see in the request itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchCall {
    /// The host that the client has asked.
    pub host: String,
    /// The name of the site.
    pub site: String,
    /// The pattern of the route, with its conditions.
    pub route: String,
    /// The name of the upstream.
    pub upstream: String,
    /// The text of the key.
    pub text: Vec<u8>,
    /// The conditions of lifetimes that hold.
    pub conditions: u64,
    /// The client's request has credentials.
    pub credentials: bool,
    /// The client's connection uses TLS.
    pub secure: bool,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The authority that a module has chosen for the origin.
    pub authority: Option<String>,
    /// The purges that the asking node knows, by the name of the node that they come from.
    pub known: Vec<(String, LogPosition)>,
}

/// The kinds of answers that carry a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// The response of the origin, stored or not.
    Response,
    /// The origin has failed.
    Failure,
    /// Purges.
    Purges,
}

impl AnswerKind {
    fn word(self) -> &'static [u8] {
        match self {
            Self::Response => b"response",
            Self::Failure => b"failure",
            Self::Purges => b"purges",
        }
    }
}

/// The secret of a group at work.
#[derive(Debug)]
pub struct CallKey(hmac::Key);

impl CallKey {
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A short name for the group in `CDN-Loop`, which no other proxy takes by chance.
    pub fn loop_id(&self, group: &str) -> String {
        let tag = self.tag(&[b"loop", group.as_bytes()]);
        let tag = tag.as_ref().iter().take(4).fold(String::new(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        });
        format!("foregate-{tag}")
    }

    /// The field of a request. `None` if it is too long.
    pub fn sign(&self, call: &NodeCall, to: &Recipient<'_>) -> Option<String> {
        let mut claims = json!({
            "group": to.group,
            "from": call.from,
            "to": to.node,
            "nonce": call.nonce,
            "time": seconds(),
        });
        let more = match &call.kind {
            CallKind::Purges(LogPosition { epoch, number }) => json!({ "purges": [epoch, number] }),
            CallKind::Fetch(fetch) => json!({ "fetch": fetch.to_json() }),
        };
        if let (Value::Object(claims), Value::Object(more)) = (&mut claims, more) {
            claims.extend(more);
        }
        let claims = claims.to_string();
        let tag = self.tag(&[b"call", claims.as_bytes(), to.target, to.authority]);
        let field = format!("{}.{}", URL_SAFE_NO_PAD.encode(&claims), URL_SAFE_NO_PAD.encode(tag));
        (field.len() <= LONGEST).then_some(field)
    }

    /// Reads the field of a request. `None` if this key has not signed it for this node, or too long ago.
    pub fn verify(&self, field: &[u8], to: &Recipient<'_>) -> Option<NodeCall> {
        if field.len() > LONGEST {
            return None;
        }
        let (claims, tag) = std::str::from_utf8(field).ok()?.split_once('.')?;
        let (claims, tag) = (URL_SAFE_NO_PAD.decode(claims).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
        let text = joined(&[b"call", &claims, to.target, to.authority]);
        hmac::verify(&self.0, &text, &tag).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let is_for_us = claims["group"] == *to.group && claims["to"] == *to.node;
        let age = claims["time"].as_u64()?.abs_diff(seconds());
        if !is_for_us || age > VALID {
            return None;
        }
        let kind = match (claims["fetch"].as_object(), claims["purges"].as_array().map(Vec::as_slice)) {
            (Some(_), _) => CallKind::Fetch(Box::new(FetchCall::from_json(&claims["fetch"])?)),
            (None, Some([epoch, number])) => {
                CallKind::Purges(LogPosition { epoch: epoch.as_u64()?, number: number.as_u64()? })
            }
            _ => return None,
        };
        Some(NodeCall { from: claims["from"].as_str()?.to_owned(), nonce: claims["nonce"].as_u64()?, kind })
    }

    /// The field of an answer.
    pub fn prove(&self, kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> String {
        let (nonce, status) = (nonce.to_le_bytes(), status.to_le_bytes());
        URL_SAFE_NO_PAD.encode(self.tag(&[kind.word(), &nonce, &status, body]))
    }

    /// Returns whether a field of an answer is that of [`prove`](Self::prove).
    pub fn is_proof(&self, field: &[u8], kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> bool {
        let Ok(tag) = URL_SAFE_NO_PAD.decode(field) else { return false };
        let (nonce, status) = (nonce.to_le_bytes(), status.to_le_bytes());
        hmac::verify(&self.0, &joined(&[kind.word(), &nonce, &status, body]), &tag).is_ok()
    }

    fn tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        hmac::sign(&self.0, &joined(parts))
    }
}

/// The node that a call goes to, and the request that carries it.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// The name of the group.
    pub group: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// The target of the request.
    pub target: &'a [u8],
    /// Its authority.
    pub authority: &'a [u8],
}

/// The parts, each after its length.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    all
}

/// Seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl FetchCall {
    fn to_json(&self) -> Value {
        let known = self.known.iter().map(|(node, position)| json!([node, position.epoch, position.number]));
        json!({
            "host": self.host,
            "site": self.site,
            "route": self.route,
            "upstream": self.upstream,
            "key": URL_SAFE_NO_PAD.encode(&self.text),
            "conditions": self.conditions,
            "credentials": self.credentials,
            "secure": self.secure,
            "client": self.client.map(|client| client.to_string()),
            "authority": self.authority,
            "known": known.collect::<Vec<_>>(),
        })
    }

    fn from_json(claims: &Value) -> Option<Self> {
        let text = |name: &str| claims[name].as_str().map(str::to_owned);
        let known = |known: &Value| {
            let position = LogPosition { epoch: known.get(1)?.as_u64()?, number: known.get(2)?.as_u64()? };
            Some((known.get(0)?.as_str()?.to_owned(), position))
        };
        Some(Self {
            host: text("host")?,
            site: text("site")?,
            route: text("route")?,
            upstream: text("upstream")?,
            text: URL_SAFE_NO_PAD.decode(claims["key"].as_str()?).ok()?,
            conditions: claims["conditions"].as_u64()?,
            credentials: claims["credentials"].as_bool()?,
            secure: claims["secure"].as_bool()?,
            client: match claims["client"].as_str() {
                Some(client) => Some(client.parse().ok()?),
                None => None,
            },
            authority: text("authority"),
            known: claims["known"].as_array()?.iter().map(known).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what they do not expect")]
    use super::*;

    const TO: Recipient<'static> =
        Recipient { group: "eu", node: "two", target: b"/a?b", authority: b"example.com" };

    fn call() -> NodeCall {
        let fetch = FetchCall {
            host: "example.com".into(),
            site: "*".into(),
            route: "/**None".into(),
            upstream: "app".into(),
            text: vec![0, 255, b'"'],
            conditions: u64::MAX,
            credentials: true,
            secure: true,
            client: Some("2001:db8::1".parse().unwrap()),
            authority: Some("origin.internal".into()),
            known: vec![("one".into(), LogPosition { epoch: u64::MAX, number: 3 })],
        };
        NodeCall { from: "one".into(), nonce: u64::MAX, kind: CallKind::Fetch(Box::new(fetch)) }
    }

    #[test]
    fn a_call_is_read_as_it_was_signed() {
        let key = CallKey::new(b"a secret of the group");
        for kind in [call().kind, CallKind::Purges(LogPosition { epoch: 1, number: u64::MAX })] {
            let call = NodeCall { kind, ..call() };
            let field = key.sign(&call, &TO).unwrap();
            assert_eq!(key.verify(field.as_bytes(), &TO), Some(call));
        }
    }

    #[test]
    fn a_call_is_for_one_node_one_target_and_one_secret() {
        let (key, other) = (CallKey::new(b"a secret of the group"), CallKey::new(b"another secret"));
        let field = key.sign(&call(), &TO).unwrap();
        assert_eq!(other.verify(field.as_bytes(), &TO), None);
        for wrong in [
            Recipient { group: "us", ..TO },
            Recipient { node: "three", ..TO },
            Recipient { target: b"/a", ..TO },
            Recipient { authority: b"example.org", ..TO },
        ] {
            assert_eq!(key.verify(field.as_bytes(), &wrong), None, "{wrong:?}");
        }
        for place in 0..field.len() {
            let mut changed = field.clone().into_bytes();
            changed[place] ^= 1;
            // The last character of each part has bits that mean nothing.
            if let Some(read) = key.verify(&changed, &TO) {
                assert_eq!(read, call(), "{place}");
            }
        }
        for wrong in ["", ".", "a.b", &field[..field.len() - 2]] {
            assert_eq!(key.verify(wrong.as_bytes(), &TO), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_not_signed() {
        let key = CallKey::new(b"a secret of the group");
        let fetch = FetchCall { text: vec![0; LONGEST], ..FetchCall::default() };
        let call = NodeCall { kind: CallKind::Fetch(Box::new(fetch)), ..call() };
        assert_eq!(key.sign(&call, &TO), None);
    }

    #[test]
    fn an_answer_belongs_to_its_call() {
        let key = CallKey::new(b"a secret of the group");
        let proof = key.prove(AnswerKind::Response, 7, 200, b"");
        let holds =
            |kind, nonce, status, body: &[u8]| key.is_proof(proof.as_bytes(), kind, nonce, status, body);
        assert!(holds(AnswerKind::Response, 7, 200, b""));
        assert!(!holds(AnswerKind::Failure, 7, 200, b"") && !holds(AnswerKind::Response, 8, 200, b""));
        assert!(!holds(AnswerKind::Response, 7, 404, b"") && !holds(AnswerKind::Response, 7, 200, b"x"));
    }
}
