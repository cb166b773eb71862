//! Replies: responses to the client from any source, including fixed ones and errors.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foregate_module::{self as module, Source as MadeBy, Text};
use foregate_wire::serialise::reason_phrase;
use foregate_wire::{BodyLength, NameId, ResponseHead, Version};

use crate::error::Error;
use crate::folders::body::FileBody;
use crate::link::Link;
use crate::settings::FixedResponse;
use crate::upstream::Origin;

/// The value of `Allow` in our own responses.
const ALLOW: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The value of `Allow` for static files.
pub(super) const ALLOW_OF_FILES: &[u8] = b"GET, HEAD, OPTIONS";

/// The present value of the field `Date` (RFC 9110, section 5.6.7). Each thread formats it at most once a second.
pub(super) fn date() -> [u8; 29] {
    thread_local! {
        static WRITTEN: Cell<(u64, [u8; 29])> = const { Cell::new((u64::MAX, [b' '; 29])) };
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (second, mut text) = WRITTEN.get();
    if second != seconds {
        let now = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        // All dates that can be written have this length.
        text.iter_mut().zip(now.as_bytes()).for_each(|(to, from)| *to = *from);
        WRITTEN.set((seconds, text));
    }
    text
}

/// A reply that does not come from an origin. A response from an origin needs none: its head is received directly into
/// the exchange.
#[derive(Debug)]
pub struct Reply {
    /// The head, without framing fields.
    pub head: ResponseHead,
    /// The body.
    pub body: BodySource,
    /// The source of the reply, for steps.
    pub made_by: MadeBy<'static>,
}

/// The source of the body of a reply.
#[derive(Debug)]
pub enum BodySource {
    /// An origin, with this framing. If that is a tunnel, the tunnel begins after the head.
    Origin(Origin, BodyLength),
    /// Memory.
    Bytes(Text),
    /// A file, with the length of the body. The file is `None` for the answer to HEAD, which has the Content-Length of
    /// the answer to GET.
    File(Option<Box<FileBody>>, BodyLength),
    /// The cache, framed like this: a stored response, or a fetch that several requests share.
    Cached(Link, BodyLength),
}

/// The peer that sends the body of a response.
#[derive(Debug)]
pub enum Sender {
    /// An origin.
    Origin(Origin),
    /// This process: the cache, or the rest of a response that was received ahead of the client.
    Held(Link),
}

impl Sender {
    /// The source of the body.
    pub fn link(&mut self) -> &mut Link {
        match self {
            Self::Origin(origin) => &mut origin.link,
            Self::Held(link) => link,
        }
    }

    /// The origin, if the sender is one.
    pub fn origin(self) -> Option<Origin> {
        match self {
            Self::Origin(mut origin) => {
                if let Link::Ahead(ahead) = &mut origin.link
                    && let Some(link) = ahead.take_origin()
                {
                    origin.link = link;
                }
                Some(origin)
            }
            Self::Held(_) => None,
        }
    }

    /// The origin, if its whole response has been received ahead of the client. The bool is true if some of the response
    /// went through a file.
    pub fn free(&mut self) -> Option<(Origin, bool)> {
        let Self::Origin(Origin { link: Link::Ahead(ahead), .. }) = self else { return None };
        if !ahead.has_all() {
            return None;
        }
        let (used_file, link) = (ahead.used_file, ahead.take_origin()?);
        let rest = std::mem::replace(self.link(), link);
        match std::mem::replace(self, Self::Held(rest)) {
            Self::Origin(origin) => Some((origin, used_file)),
            Self::Held(_) => None,
        }
    }
}

impl BodySource {
    /// The origin, if the body comes from one.
    pub fn origin(self) -> Option<Origin> {
        match self {
            Self::Origin(origin, _) => Some(origin),
            Self::Bytes(_) | Self::File(..) | Self::Cached(..) => None,
        }
    }
}

impl Reply {
    pub(super) fn new(status: u16, content_type: &str, body: Text, made_by: MadeBy<'static>) -> Self {
        let mut head = ResponseHead::new();
        // One allocation that suffices for most heads.
        head.headers.reserve(256, 8);
        head.version = Version::Http11;
        head.status = status;
        head.headers.push_id(NameId::Date, &date());
        head.headers.push_id(NameId::Server, b"foregate");
        if !body.is_empty() {
            head.headers.push_id(NameId::ContentType, content_type.as_bytes());
        }
        Self { head, body: BodySource::Bytes(body), made_by }
    }

    /// A route's fixed reply.
    pub fn fixed(fixed: &FixedResponse) -> Self {
        let body = Text::Shared(Arc::clone(&fixed.body));
        Self::new(fixed.status, "text/plain; charset=utf-8", body, MadeBy::Route)
    }

    /// A permanent redirect (308), which keeps the method.
    pub fn permanent_redirect(location: &[u8]) -> Self {
        let mut reply = Self::new(308, "", Text::EMPTY, MadeBy::Route);
        reply.head.headers.push(b"Location", location);
        reply
    }

    /// The answer of a step.
    pub fn module(response: module::Response, step: &'static str) -> Self {
        // An interim status would leave the client waiting for the final one.
        let status = if (200..1000).contains(&response.status) { response.status } else { 500 };
        let mut reply =
            Self::new(status, "", Text::EMPTY, MadeBy::Step { name: step, meant: response.meant });
        for field in &response.fields {
            if field.name().eq_ignore_ascii_case(b"server") || field.name().eq_ignore_ascii_case(b"date") {
                reply.head.headers.set_name(field.name(), field.value());
            } else {
                reply.head.headers.push(field.name(), field.value());
            }
        }
        reply.body = BodySource::Bytes(response.body);
        reply
    }

    /// The response to OPTIONS or TRACE with `Max-Forwards: 0`. Such a request is addressed to this proxy (RFC 9110,
    /// section 7.6.2). TRACE is refused, because its response would reveal fields to scripts.
    pub fn last_hop(method: &[u8]) -> Self {
        let status = if method == b"OPTIONS" { 200 } else { 405 };
        let mut reply = Self::new(status, "", Text::EMPTY, MadeBy::Route);
        reply.head.headers.push(b"Allow", ALLOW);
        reply
    }

    /// The response to an error: the status, and a text only for errors of the client.
    pub fn error(error: &Error) -> Self {
        let status = error.status();
        if matches!(error, Error::Memory) {
            // Without a body: it would take memory until an HTTP/2 client opens its window.
            return Self::new(status, "", Text::EMPTY, MadeBy::Error(error.kind()));
        }
        let mut body = format!("{status} {}\n", reason_phrase(status));
        if status < 500 && error.side() == crate::error::Side::Downstream {
            body.push_str(&format!("{error}\n"));
        }
        let mut reply =
            Self::new(status, "text/plain; charset=utf-8", body.into(), MadeBy::Error(error.kind()));
        if matches!(error, Error::QueueFull | Error::QueueTimeout | Error::ClientRequests) {
            // In seconds. The actual time is unknown, but without the field some clients would retry immediately.
            reply.head.headers.push(b"Retry-After", b"1");
        }
        if status == 405 {
            let allow = if *error == Error::FileMethod { ALLOW_OF_FILES } else { ALLOW };
            reply.head.headers.push(b"Allow", allow);
        }
        reply
    }
}
