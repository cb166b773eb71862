//! The canonical request, which routing, rules, cache and forwarding all read.
//!
//! The origin's request is serialised from it and never copied from the client's bytes.

mod authority;
pub mod hops;
mod onward;
mod target;
mod understand;

use std::sync::Arc;
use std::time::Instant;

use foregate_module::Edits;
use foregate_wire::{BodyLength, HeaderList, Method, NameId, RequestHead, Version};

pub use self::authority::CanonicalAuthority;
use self::onward::ForwardedFacts;
pub use self::onward::remove_identity;
pub use self::target::{CanonicalTarget, StrippedPart};
pub use self::understand::{HeadTerms, StandIn};
use super::verbatim::Verbatim;
use crate::limits::clients::{HeldHead, Holdings};
use crate::limits::pressure::Charge;
use crate::settings;

/// Fields for framing and routing: they are generated, never copied.
pub const FRAMING: [NameId; 3] = [NameId::ContentLength, NameId::TransferEncoding, NameId::Host];

/// A request that has been understood. Its memory is used again for the next request of a
/// connection.
#[derive(Debug)]
pub struct Request {
    /// The head as it was received. Its fields are edited before the request is sent to the origin.
    pub head: RequestHead,
    /// Set if the method of the head was understood; otherwise the value is meaningless.
    pub has_method: bool,
    /// When the first byte arrived, if this is known to be earlier than the parsing of the request.
    pub began: Option<Instant>,
    /// The framing of the body.
    pub length: BodyLength,
    /// Set if the client waits for 100 (Continue) before it sends the body.
    pub expect_continue: bool,
    /// The protocol that the connection or stream is to be switched to.
    pub upgrade: Option<Vec<u8>>,
    /// The `Sec-WebSocket-Key` for an HTTP/1 origin, if the client's handshake over HTTP/2 has none (RFC
    /// 8441, section 5.1).
    pub websocket_key: Option<String>,
    /// Set if the client's connection may serve another request after this one.
    pub keep_alive: bool,
    /// Set if the client's connection uses TLS, or if a trusted proxy says that its connection to the client does.
    pub secure: bool,
    /// Host and port that the request is for.
    pub authority: CanonicalAuthority,
    told: ForwardedFacts,
    /// Path and query in their normal form.
    pub target: CanonicalTarget,
    /// Set if an origin gets the target as the client sent it instead of its normal form, because the old proxy normalises it
    /// itself.
    pub keeps_target: bool,
    /// The authority for the origin, if a module has chosen one; otherwise empty.
    origin_authority: String,
    /// The fields of [`onward::CLIENT_CLAIMS`] that a module has set, one bit each.
    claimed: u8,
    /// The fields named in the client's `Connection` that steps have set. `Some` between
    /// [`Self::begin_hop`] and [`Self::end_hop`].
    vouched: Option<Vec<Box<[u8]>>>,
    /// The length of the fields' memory before a step added any. Fields beyond it come from steps.
    pub sent: usize,
    /// The memory of the head.
    charge: Charge,
    of_client: Option<HeldHead>,
    /// The bytes of both heads, if the origin gets the client's own head.
    pub verbatim: Option<Box<Verbatim>>,
}

/// Saved values of the parts of a request that [`Request::divert`] changes.
#[derive(Debug)]
pub struct Present {
    headers: HeaderList,
    target: CanonicalTarget,
    authority: String,
    claimed: u8,
}

impl Request {
    /// A request of which nothing is known yet.
    pub fn new() -> Self {
        Self {
            head: RequestHead::new(),
            has_method: false,
            began: None,
            length: BodyLength::Empty,
            expect_continue: false,
            upgrade: None,
            websocket_key: None,
            keep_alive: false,
            secure: false,
            authority: CanonicalAuthority::default(),
            told: ForwardedFacts::default(),
            target: CanonicalTarget::default(),
            keeps_target: false,
            origin_authority: String::new(),
            claimed: 0,
            vouched: None,
            sent: usize::MAX,
            charge: Charge::new(),
            of_client: None,
            verbatim: None,
        }
    }

    /// The method as it was sent, also if the rest of the head was refused; empty if no method was
    /// understood.
    pub fn method(&self) -> &[u8] {
        if self.has_method { self.head.method.as_bytes() } else { b"" }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Makes the request ask for the whole resource instead of a part.
    pub fn ask_for_all(&mut self) {
        self.head.headers.remove_each(&[NameId::Range, NameId::IfRange]);
    }

    /// Host and port for the origin: those of a module, else of the upstream, else the client's.
    pub fn origin_authority<'r>(&'r self, upstream: &'r settings::UpstreamSettings) -> &'r str {
        match (&*self.origin_authority, &upstream.host) {
            // CONNECT names the target of the tunnel, which the upstream's host must not replace.
            ("", Some(host)) if self.head.method != Method::Connect => host,
            ("", _) => self.authority.as_str(),
            (set, _) => set,
        }
    }

    /// The authority that a module has chosen for the origin, if one has.
    pub fn chosen_authority(&self) -> Option<&str> {
        Some(&*self.origin_authority).filter(|authority| !authority.is_empty())
    }

    /// Sets the authority for the origin, as if a module had chosen it.
    pub fn choose_authority(&mut self, authority: &str) {
        authority.clone_into(&mut self.origin_authority);
    }

    /// Changes the request for another upstream, reached by way of others or directly; [`return_to`](Self::return_to)
    /// restores it. A host is meant for one upstream, so only the last one counts.
    pub fn divert(&mut self, ways: &[settings::Elsewhere]) {
        for to in ways {
            Edits::shared(&to.edits).apply(self);
            if let Some(path) = &to.path {
                self.target.replace(path);
            }
        }
        if let Some(host) = ways.last().and_then(|to| to.host.as_ref()) {
            self.origin_authority = host.to_string();
        }
    }

    /// The current values of the parts that [`divert`](Self::divert) changes.
    pub fn present(&self) -> Present {
        let mut target = CanonicalTarget::default();
        target.copy_from(&self.target);
        Present {
            target,
            headers: self.head.headers.clone(),
            authority: self.origin_authority.clone(),
            claimed: self.claimed,
        }
    }

    /// Restores the parts that [`divert`](Self::divert) has changed.
    pub fn return_to(&mut self, present: Present) {
        let Present { headers, target, authority, claimed } = present;
        self.head.headers = headers;
        self.target.copy_from(&target);
        (self.origin_authority, self.claimed) = (authority, claimed);
    }

    /// The target that an origin gets.
    pub fn target_for_origin(&self) -> &[u8] {
        let sent = self.head.target();
        // A target with a scheme and a host is meant for proxies, so it is not forwarded as it is.
        if self.keeps_target && sent.starts_with(b"/") { sent } else { self.target.as_bytes() }
    }

    /// Returns true if the request asks for a part of the resource (RFC 9110, section 14.2).
    pub fn asks_for_part(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head) && self.head.headers.contains(NameId::Range)
    }

    /// Returns true if the request asks for a tunnel. If the origin agrees, the bytes after the heads are not HTTP.
    pub fn opens_tunnel(&self) -> bool {
        self.upgrade.is_some() || self.head.method == Method::Connect
    }

    /// Returns true if HTTP/2 can carry the offered protocol switch (RFC 8441): only a switch to
    /// WebSocket, and only without a body, because in HTTP/2 the tunnel begins right after the head. Over
    /// HTTP/1, a request without a key is no WebSocket handshake (RFC 6455, section 4.2.1).
    pub fn fits_extended_connect(&self) -> bool {
        self.head.method == Method::Get
            && self.length.is_empty()
            && (self.head.version == Version::Http2
                || self.head.headers.get_name(b"sec-websocket-key").is_some())
            && self.upgrade.as_ref().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
    }

    /// Returns true if the client declares that it accepts trailers; over HTTP/2 they need no declaration.
    pub fn takes_trailers(&self) -> bool {
        self.head.version == Version::Http2 || self.head.headers.contains(NameId::Te)
    }

    /// Returns true if the request may be sent again although the origin may have seen it (RFC
    /// 9110, section 9.2.2).
    pub fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.head.method != Method::Connect
    }

    /// A copy that fetches the same target with GET. It has the present fields and no body.
    pub fn for_fetch(&self) -> Self {
        let mut copy = Self::new();
        copy.head.version = Version::Http11;
        copy.head.method = Method::Get;
        copy.head.headers.clone_from(&self.head.headers);
        copy.has_method = true;
        copy.secure = self.secure;
        copy.authority.copy_from(&self.authority);
        copy.target.copy_from(&self.target);
        copy.origin_authority.clone_from(&self.origin_authority);
        copy.count();
        copy
    }

    /// A copy of the request for another origin, with the present fields and a body of this length.
    pub fn as_sent(&self, length: BodyLength) -> Self {
        let mut copy = self.for_fetch();
        copy.length = length;
        copy.head.method = self.head.method;
        copy.head.set_target(self.head.target());
        copy
    }

    /// A copy that is to be served again. `length` is the framing of its body, which the caller also
    /// passes again.
    pub fn for_replay(&self, length: BodyLength) -> Self {
        let mut copy = self.as_sent(length);
        copy.head.version = self.head.version;
        copy.sent = self.sent;
        copy
    }

    /// A copy of the parts that the access log shows, for when another owner has the request itself.
    pub fn shown(&self) -> Self {
        let mut shown = Self::new();
        shown.head.version = self.head.version;
        shown.head.method = self.head.method;
        shown.has_method = self.has_method;
        shown.head.set_target(self.head.target());
        for name in [NameId::UserAgent, NameId::Referer] {
            if let Some(value) = self.head.headers.get(name) {
                shown.head.headers.push_id(name, value);
            }
        }
        shown.secure = self.secure;
        shown.authority.copy_from(&self.authority);
        shown
    }

    /// Treats the request as made with `https` if `secure`, else with `http`, regardless of the client's
    /// connection. The default port of this scheme is removed from the authority.
    pub fn set_secure(&mut self, secure: bool) {
        self.secure = secure;
        if self.head.method != Method::Connect {
            self.authority.drop_port_of(secure);
        }
    }

    /// Forgets the last request and keeps its memory for the next.
    pub fn clear(&mut self) {
        self.head.clear();
        self.has_method = false;
        self.upgrade = None;
        self.websocket_key = None;
        self.authority.clear();
        self.origin_authority.clear();
        self.claimed = 0;
        self.vouched = None;
        self.sent = usize::MAX;
        self.target.clear();
        self.keeps_target = false;
        self.length = BodyLength::Empty;
        self.expect_continue = false;
        self.secure = false;
        self.verbatim = None;
    }

    /// Frees memory beyond that of an ordinary request.
    pub fn shrink(&mut self) {
        const KEPT: usize = 4096;
        self.head.shrink_to(KEPT, 64);
        self.target.shrink_to(KEPT);
        self.of_client = None;
        self.count();
    }

    /// Clears the request for reuse by another connection. It keeps the memory of an ordinary request, which counts for no
    /// client in the meantime.
    pub fn put_away(&mut self) {
        self.clear();
        self.shrink();
        // A remembered head or host is recognised faster. From the speed, the next client could learn about the
        // requests of the last client.
        self.head.forget();
        self.authority.forget();
        self.charge.set(0);
    }

    /// Counts the memory of the head for this client as well, until the request is over.
    pub fn belongs_to(&mut self, client: &Arc<Holdings>) {
        self.of_client = HeldHead::new(client, self.charge.bytes());
    }

    /// Counts the memory of the head, and returns it in bytes.
    pub fn count(&mut self) -> usize {
        let held = self.head.memory();
        self.charge.set(held);
        held
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
