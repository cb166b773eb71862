//! Cache-Status (RFC 9211).

use foregate_wire::HeaderList;

use crate::text::is_token;

/// How a request was handled, for the member that this cache adds to Cache-Status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The reason why the request went to the origin. `None` for a hit.
    pub forward: Option<Forward>,
    /// The status of the origin's response, if the answer to the client has another status.
    pub forward_status: Option<u16>,
    /// The remaining lifetime of the response in seconds. Negative for a stale response.
    pub ttl: Option<i64>,
    /// `true` if the response was stored.
    pub stored: bool,
    /// `true` if the request waited for the fetch of another request.
    pub collapsed: bool,
    /// The key, to find the reason of a miss.
    pub key: Option<&'a [u8]>,
    /// A further detail, in one word.
    pub detail: Option<&'a str>,
}

/// Why a request went to the origin (RFC 9211, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The settings exclude the request from the cache.
    Bypass,
    /// The method of the request requires that it goes to the origin.
    Method,
    /// Nothing is stored under the key.
    UriMiss,
    /// Responses are stored under the key, but for requests with other selecting fields.
    VaryMiss,
    /// The client demanded a new response.
    Request,
    /// The stored response was stale.
    Stale,
    /// Only a part of the response is stored.
    Partial,
}

impl Forward {
    /// The token of the parameter `fwd`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

impl CacheStatus<'_> {
    /// The member that this cache adds to the list, beginning with the name of the cache. Text that a structured
    /// field cannot hold is left out.
    pub fn render(&self, cache: &str) -> String {
        let begins = cache.starts_with(|first: char| first.is_ascii_alphabetic());
        let mut out = match string(cache.as_bytes()) {
            Some(quoted) if !begins || !is_token(cache.as_bytes()) => quoted,
            Some(_) => cache.to_owned(),
            None => "cache".to_owned(),
        };
        match self.forward {
            None => out.push_str("; hit"),
            Some(forward) => out.push_str(&format!("; fwd={}", forward.as_str())),
        }
        if let Some(status) = self.forward_status {
            out.push_str(&format!("; fwd-status={status}"));
        }
        if let Some(ttl) = self.ttl {
            out.push_str(&format!("; ttl={}", ttl.clamp(-MAX_INTEGER, MAX_INTEGER)));
        }
        for (name, set) in [("stored", self.stored), ("collapsed", self.collapsed)] {
            if set {
                out.push_str("; ");
                out.push_str(name);
            }
        }
        if let Some(key) = self.key.and_then(string) {
            out.push_str(&format!("; key={key}"));
        }
        if let Some(detail) = self.detail.and_then(|detail| string(detail.as_bytes())) {
            out.push_str(&format!("; detail={detail}"));
        }
        out
    }

    /// Appends the member of this cache to Cache-Status, after the members of caches nearer to the origin.
    pub fn write(&self, cache: &str, headers: &mut HeaderList) {
        headers.push(b"Cache-Status", self.render(cache).as_bytes());
    }
}

/// The largest integer of a structured field.
const MAX_INTEGER: i64 = 999_999_999_999_999;

/// Writes a text as a string of a structured field. `None` if the text has anything but visible ASCII and
/// blanks.
fn string(text: &[u8]) -> Option<String> {
    let mut out = String::from("\"");
    for &byte in text {
        if !(b' '..=b'~').contains(&byte) {
            return None;
        }
        if b"\"\\".contains(&byte) {
            out.push('\\');
        }
        out.push(char::from(byte));
    }
    out.push('"');
    Some(out)
}
