//! The spans of attempts: one for each attempt at a server. The server gets the span's id as the parent of its own
//! spans.

use std::borrow::Cow;
use std::time::Instant;

use foregate_wire::NameId;

use super::members::Upstream;
use super::server::Server;
use crate::address::ServerAddress;
use crate::error::Error;
use crate::message::request::Request;
use crate::spans::{Attributes, SpanId, SpanKind, SpanParent, traceparent};

/// The error of an attempt with a result that is no longer wanted.
const CANCELLED: &str = "cancelled";

/// Records the attempts of a request.
#[derive(Debug)]
pub(super) struct AttemptSpans {
    parent: SpanParent,
    open: Option<OpenAttempt>,
}

/// The attempt under way.
#[derive(Debug)]
struct OpenAttempt {
    id: SpanId,
    began: Instant,
    name: String,
    attributes: Attributes,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum AttemptEnd<'e> {
    /// The attempt has the head of a response with this status.
    Answered(u16),
    /// The attempt has failed without the head of a response.
    Failed(&'e Error),
}

impl AttemptSpans {
    pub fn new(parent: SpanParent) -> Box<Self> {
        Box::new(Self { parent, open: None })
    }

    /// Records a second attempt in parallel.
    pub fn beside(&self) -> Box<Self> {
        Self::new(self.parent.clone())
    }

    /// Begins the span of an attempt; `number` counts from 1. Does nothing if an attempt continues over another
    /// connection.
    pub fn begin(&mut self, upstream: &Upstream, server: &Server, request: &Request, number: u32) {
        if self.open.is_some() {
            return;
        }
        let mut attributes = Attributes::default();
        let name = method(request, &mut attributes).into_owned();
        let address = &server.address;
        let host = address.host().unwrap_or_else(|| server.label.to_string());
        attributes.text("server.address", host.as_bytes());
        if let ServerAddress::Ip(_) | ServerAddress::Name { .. } = address
            && let Some(port) = address.authority().and_then(|text| text.rsplit_once(':')?.1.parse().ok())
        {
            attributes.number("server.port", port);
        }
        let scheme = if upstream.settings.tls.is_some() { "https" } else { "http" };
        let authority = address.authority().unwrap_or(host);
        let target = without_secrets(request.target.as_bytes());
        let target = if target.starts_with(b"/") { target } else { Cow::Borrowed(&b"/"[..]) };
        attributes.text("url.full", &[scheme.as_bytes(), b"://", authority.as_bytes(), &target].concat());
        attributes.text("foregate.upstream", upstream.settings.name.as_bytes());
        if number > 1 {
            attributes.number("http.request.resend_count", u64::from(number) - 1);
        }
        self.open = Some(OpenAttempt { id: SpanId::random(), began: Instant::now(), name, attributes });
    }

    /// Sets the request's `traceparent`, so that the attempt is the parent of the server's spans.
    pub fn tell(&self, request: &mut Request) {
        if let Some(open) = &self.open {
            let value = traceparent(self.parent.trace.context(), open.id);
            request.head.headers.set(NameId::Traceparent, &value);
        }
    }

    /// Records that the attempt has a connection.
    pub fn connected(&mut self, reused: bool, is_h2: bool) {
        if let Some(open) = &mut self.open {
            open.attributes.text("network.protocol.version", if is_h2 { b"2" } else { b"1.1" });
            open.attributes.flag("foregate.connection.reused", reused);
        }
    }

    /// Ends the span of the attempt, if there is one.
    pub fn end(&mut self, end: AttemptEnd<'_>) {
        let Some(mut open) = self.open.take() else { return };
        let mut failed = true;
        match end {
            AttemptEnd::Answered(status) => {
                open.attributes.number("http.response.status_code", status.into());
                failed = status >= 400;
                if failed {
                    open.attributes.text("error.type", status.to_string().as_bytes());
                }
            }
            AttemptEnd::Failed(error) => open.attributes.text("error.type", error.kind().as_bytes()),
        }
        self.record(&open, failed);
    }

    fn record(&self, open: &OpenAttempt, failed: bool) {
        let span = (open.id, SpanKind::Client, &*open.name);
        self.parent.record(span, (open.began, Instant::now()), &open.attributes, failed);
    }
}

impl Drop for AttemptSpans {
    fn drop(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.attributes.text("error.type", CANCELLED.as_bytes());
            self.record(&open, true);
        }
    }
}

/// Adds the method of a request as an attribute. Returns the method for the names of spans. An unknown method becomes
/// `HTTP` there, because clients could otherwise create any number of names.
pub fn method(request: &Request, attributes: &mut Attributes) -> Cow<'static, str> {
    const KNOWN: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
    let method = request.method();
    match KNOWN.iter().find(|known| known.as_bytes() == method) {
        Some(known) => {
            attributes.text("http.request.method", method);
            Cow::Borrowed(known)
        }
        None => {
            attributes.text("http.request.method", b"_OTHER");
            attributes.text("http.request.method_original", method);
            Cow::Borrowed("HTTP")
        }
    }
}

/// A target without the values of query parameters that are known to be signatures of links.
pub fn without_secrets(target: &[u8]) -> Cow<'_, [u8]> {
    const SECRET: [&[u8]; 4] = [b"AWSAccessKeyId", b"Signature", b"sig", b"X-Goog-Signature"];
    let Some(query) = memchr::memchr(b'?', target) else { return Cow::Borrowed(target) };
    let (path, query) = target.split_at(query + 1);
    let name_of = |parameter: &[u8]| memchr::memchr(b'=', parameter).map(|end| parameter[..end].to_vec());
    let is_secret = |parameter: &[u8]| name_of(parameter).is_some_and(|name| SECRET.contains(&&*name));
    if !query.split(|byte| *byte == b'&').any(is_secret) {
        return Cow::Borrowed(target);
    }
    let parameters = query.split(|byte| *byte == b'&').map(|parameter| match name_of(parameter) {
        Some(name) if SECRET.contains(&&*name) => [&name, &b"=REDACTED"[..]].concat(),
        _ => parameter.to_vec(),
    });
    Cow::Owned([path, &parameters.collect::<Vec<_>>().join(&b'&')].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_links_are_left_out() {
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?b=c&sigh=1&sig", "/a?b=c&sigh=1&sig"),
            ("/a?sig=secret", "/a?sig=REDACTED"),
            ("/a?x=1&Signature=s=t&y=2", "/a?x=1&Signature=REDACTED&y=2"),
        ] {
            assert_eq!(without_secrets(target.as_bytes()), expected.as_bytes());
        }
    }
}
