//! The field of requests between nodes of the shield. It proves that a request comes from a node of the group, and
//! contains everything that the owner of the address has to know about the request.
//!
//! The field is `base64(claims).base64(HMAC-SHA256)`. The claims are JSON. The signature also covers the target and
//! the authority of the request, so that the field cannot be used for another address. Answers have a proof as well:
//! if another server now has the address of a former node, it cannot put anything into the cache.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The name of the field, in requests and in answers.
pub const SHIELD_FIELD: &[u8] = b"Foregate-Shield";
/// The field with the hashed tags of an answer.
pub const TAGS_FIELD: &[u8] = b"Foregate-Shield-Tags";
/// The longest field, bytes. It is bounded because the length of heads is bounded. If the field would be longer, the
/// origin is asked instead of the node.
const LONGEST: usize = 12 * 1024;
/// The largest accepted age of a proof, seconds. It is also the allowed difference between the clocks of two nodes.
const VALID: u64 = 300;

/// A request from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCall {
    /// The name of the node that asks.
    pub from: String,
    /// A random number. The proof of the answer covers it, and so belongs to this call only.
    pub nonce: u64,
    /// The request to the other node.
    pub kind: CallKind,
}

/// The kinds of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    /// A response for the cache.
    Fetch(Box<FetchCall>),
    /// The purges after this position in the log of the other node.
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

/// The facts about a fetch that the owner of the address cannot see in the request itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchCall {
    /// The host in the client's request.
    pub host: String,
    /// The name of the site.
    pub site: String,
    /// The pattern of the route's path, and the conditions of the route.
    pub route: String,
    /// The name of the upstream.
    pub upstream: String,
    /// The text of the key.
    pub text: Vec<u8>,
    /// A bit for each condition of a lifetime in the route's settings: 1 if the condition holds.
    pub conditions: u64,
    /// Set if the client's request has credentials.
    pub credentials: bool,
    /// Set if the client's connection uses TLS.
    pub secure: bool,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The authority that a module has chosen for the origin.
    pub authority: Option<String>,
    /// The purges that the asking node has: for each node, its name and the last known position in its log.
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

/// The secret key of a group.
#[derive(Debug)]
pub struct CallKey(hmac::Key);

impl CallKey {
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A short name for the group in `CDN-Loop`, which no other proxy uses by chance.
    pub fn loop_id(&self, group: &str) -> String {
        let tag = self.tag(&[b"loop", group.as_bytes()]);
        let tag = tag.as_ref().iter().take(4).fold(String::new(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        });
        format!("foregate-{tag}")
    }

    /// The field of a request that is sent at `now`, seconds since 1970. `None` if it is too long.
    pub fn sign(&self, call: &NodeCall, to: &Recipient<'_>, now: u64) -> Option<String> {
        let mut claims = json!({
            "group": to.group,
            "from": call.from,
            "to": to.node,
            "nonce": call.nonce,
            "time": now,
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

    /// Reads the field of a request that arrives at `now`, seconds since 1970. `None` if it was not signed with this
    /// key for this node, or if it is too old.
    pub fn verify(&self, field: &[u8], to: &Recipient<'_>, now: u64) -> Option<NodeCall> {
        if field.len() > LONGEST {
            return None;
        }
        let (claims, tag) = std::str::from_utf8(field).ok()?.split_once('.')?;
        let (claims, tag) = (URL_SAFE_NO_PAD.decode(claims).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
        let text = joined(&[b"call", &claims, to.target, to.authority]);
        hmac::verify(&self.0, &text, &tag).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let is_for_us = claims["group"] == *to.group && claims["to"] == *to.node;
        let age = claims["time"].as_u64()?.abs_diff(now);
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

    /// Returns true if a field of an answer is a valid proof, as made by [`prove`](Self::prove).
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
    /// The authority of the request.
    pub authority: &'a [u8],
}

/// Joins the parts, with the length of each part before the part.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    all
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

    const NOW: u64 = 1_800_000_000;
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
            let field = key.sign(&call, &TO, NOW).unwrap();
            assert_eq!(key.verify(field.as_bytes(), &TO, NOW), Some(call));
        }
    }

    #[test]
    fn a_call_is_for_one_node_one_target_and_one_secret() {
        let (key, other) = (CallKey::new(b"a secret of the group"), CallKey::new(b"another secret"));
        let field = key.sign(&call(), &TO, NOW).unwrap();
        assert_eq!(other.verify(field.as_bytes(), &TO, NOW), None);
        for wrong in [
            Recipient { group: "us", ..TO },
            Recipient { node: "three", ..TO },
            Recipient { target: b"/a", ..TO },
            Recipient { authority: b"example.org", ..TO },
        ] {
            assert_eq!(key.verify(field.as_bytes(), &wrong, NOW), None, "{wrong:?}");
        }
        for place in 0..field.len() {
            let mut changed = field.clone().into_bytes();
            changed[place] ^= 1;
            // The last character of each part has bits that mean nothing.
            if let Some(read) = key.verify(&changed, &TO, NOW) {
                assert_eq!(read, call(), "{place}");
            }
        }
        for wrong in ["", ".", "a.b", &field[..field.len() - 2]] {
            assert_eq!(key.verify(wrong.as_bytes(), &TO, NOW), None, "{wrong}");
        }
    }

    #[test]
    fn a_call_is_good_for_some_minutes_before_and_after_its_time() {
        let key = CallKey::new(b"a secret of the group");
        let field = key.sign(&call(), &TO, NOW).unwrap();
        let is_good = |now| key.verify(field.as_bytes(), &TO, now).is_some();
        assert!(is_good(NOW - VALID) && is_good(NOW + VALID));
        assert!(!is_good(NOW - VALID - 1) && !is_good(NOW + VALID + 1));
    }

    #[test]
    fn a_key_that_is_too_long_is_not_signed() {
        let key = CallKey::new(b"a secret of the group");
        let fetch = FetchCall { text: vec![0; LONGEST], ..FetchCall::default() };
        let call = NodeCall { kind: CallKind::Fetch(Box::new(fetch)), ..call() };
        assert_eq!(key.sign(&call, &TO, NOW), None);
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
