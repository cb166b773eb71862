//! Tokens: form, signature and claims.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use foregate_module::Now;
use serde_json::{Map, Value as Json};

use super::keys::Keys;

/// The longest token, bytes.
pub const TOKEN_MOST: usize = 8 * 1024;

/// The reason for refusing a token. It is logged; clients are told less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Longer than [`TOKEN_MOST`].
    TooLong,
    /// Not in the form of a token.
    Malformed,
    /// The token has another type.
    Type,
    /// The token has a critical extension, none of which is supported.
    Critical,
    /// No key verifies the token's signature.
    Signature,
    /// The token has no expiry.
    NoExpiry,
    /// Expired.
    Expired,
    /// The token is not yet valid.
    NotYet,
    /// The token is from an issuer that is not allowed.
    Issuer,
    /// The token is for another audience.
    Audience,
    /// A claim that is required is missing, or has another value.
    Required,
    /// A claim that is to be copied is no valid field value.
    Unprintable,
}

impl Fault {
    /// The reason for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => "the token is malformed",
            Self::Type => "the token is of another type",
            Self::Critical => "the token has a critical extension",
            Self::Signature => "no key verifies the signature",
            Self::NoExpiry => "the token has no exp",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the issuer is another",
            Self::Audience => "the audience is another",
            Self::Required => "a required claim is missing",
            Self::Unprintable => "a claim cannot stand in a field",
        }
    }
}

/// The requirements for a token.
#[derive(Debug, Default)]
pub struct Demands {
    /// The accepted types (`typ` in the head), without `application/`. If empty, the token may have any type, or none.
    pub types: Vec<String>,
    /// The allowed issuers; empty: any.
    pub issuers: Vec<String>,
    /// The accepted audiences, of which the token must name one. If empty, the token must not name any audience.
    pub audiences: Vec<String>,
    /// The required claims, each with its accepted values; without values, any value is accepted.
    pub required: Vec<(String, Vec<String>)>,
    /// Set if a token must have an expiry.
    pub expiry: bool,
    /// The allowed difference between clocks.
    pub leeway: Duration,
}

/// The id of the key that the token claims to be signed with (RFC 7515, section 4.1.4).
pub fn key_id(token: &[u8]) -> Option<String> {
    let head = token.split(|byte| *byte == b'.').next().filter(|_| token.len() <= TOKEN_MOST)?;
    let members: Json = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
    members.get("kid")?.as_str().map(String::from)
}

/// Verifies a token and returns its claims.
pub fn verify(token: &[u8], keys: &[&Keys], demands: &Demands, now: Now) -> Result<Map<String, Json>, Fault> {
    if token.len() > TOKEN_MOST {
        return Err(Fault::TooLong);
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(head), Some(body), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::Malformed);
    };
    let decode = |part: &[u8]| URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Malformed);
    let object = |part: &[u8]| match serde_json::from_slice(&decode(part)?) {
        Ok(Json::Object(members)) => Ok(members),
        _ => Err(Fault::Malformed),
    };
    let (head_members, signature) = (object(head)?, decode(signature)?);
    if head_members.contains_key("crit") {
        return Err(Fault::Critical);
    }
    if !demands.types.is_empty() {
        let stated = head_members.get("typ").and_then(Json::as_str).map(type_name);
        if !stated.is_some_and(|stated| demands.types.iter().any(|one| one.eq_ignore_ascii_case(stated))) {
            return Err(Fault::Type);
        }
    }
    let algorithm = head_members.get("alg").and_then(Json::as_str).ok_or(Fault::Malformed)?;
    let id = head_members.get("kid").and_then(Json::as_str);
    let message = &token[..head.len() + 1 + body.len()];
    if !keys.iter().any(|keys| keys.verify(algorithm, id, message, &signature)) {
        return Err(Fault::Signature);
    }
    // The claims are parsed only after the signature has been verified.
    let claims = object(body)?;
    demands.check(&claims, now)?;
    Ok(claims)
}

/// A media type without `application/`, which may be left out (RFC 7515, section 4.1.9).
pub fn type_name(media_type: &str) -> &str {
    match media_type.split_at_checked("application/".len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case("application/") => rest,
        _ => media_type,
    }
}

impl Demands {
    fn check(&self, claims: &Map<String, Json>, now: Now) -> Result<(), Fault> {
        self.check_times(claims, now)?;
        let issuer = claims.get("iss").and_then(Json::as_str);
        if !self.issuers.is_empty()
            && !issuer.is_some_and(|issuer| self.issuers.iter().any(|one| one == issuer))
        {
            return Err(Fault::Issuer);
        }
        match claims.get("aud") {
            // A token with an audience is valid for that audience only (RFC 7519, section 4.1.3).
            Some(audience) if !has_one(audience, &self.audiences, false) => return Err(Fault::Audience),
            None if !self.audiences.is_empty() => return Err(Fault::Audience),
            _ => {}
        }
        for (name, values) in &self.required {
            let words = name == "scope" || name == "scp";
            match claims.get(name) {
                Some(Json::Null) | None => return Err(Fault::Required),
                Some(claim) if !values.is_empty() && !has_one(claim, values, words) => {
                    return Err(Fault::Required);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn check_times(&self, claims: &Map<String, Json>, now: Now) -> Result<(), Fault> {
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(claim) => claim.as_f64().map(Some).ok_or(Fault::Malformed),
        };
        let (now, leeway) = (now.unix_ms as f64 / 1000.0, self.leeway.as_secs_f64());
        match time("exp")? {
            None if self.expiry => return Err(Fault::NoExpiry),
            Some(end) if now >= end + leeway => return Err(Fault::Expired),
            _ => {}
        }
        match time("nbf")? {
            Some(start) if now + leeway < start => Err(Fault::NotYet),
            _ => Ok(()),
        }
    }
}

/// Returns true if a claim equals one of these values, or has an element that does. With `words`, a text counts as a
/// list of words (RFC 8693, section 4.2).
fn has_one(claim: &Json, values: &[String], words: bool) -> bool {
    match claim {
        Json::Array(elements) => elements.iter().any(|element| has_one(element, values, false)),
        Json::String(text) if words => text.split(' ').any(|word| values.iter().any(|value| value == word)),
        Json::String(text) => values.iter().any(|value| value == text),
        Json::Number(_) | Json::Bool(_) => values.contains(&claim.to_string()),
        Json::Null | Json::Object(_) => false,
    }
}

/// A claim as the value of a field: texts unchanged, lists separated by commas, everything else as JSON.
pub fn shown(claim: &Json) -> Cow<'_, str> {
    match claim {
        Json::String(text) => Cow::Borrowed(text),
        Json::Array(elements) => {
            let elements: Vec<_> = elements.iter().map(shown).collect();
            Cow::Owned(elements.join(","))
        }
        other => Cow::Owned(other.to_string()),
    }
}
