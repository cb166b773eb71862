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
    /// As it was received; the fields are edited on the way to the origin.
    pub head: RequestHead,
    /// Set if the method of the head was understood; otherwise the value is meaningless.
    pub has_method: bool,
    /// When the first byte arrived, if that was before the request was understood.
    pub began: Option<Instant>,
    /// The framing of the body.
    pub length: BodyLength,
    /// The client waits for a 100 before it sends the body.
    pub expect_continue: bool,
    /// The protocol that the connection or stream is to be switched to.
    pub upgrade: Option<Vec<u8>>,
    /// The key that an HTTP/1 origin needs when the client's handshake had none (RFC 8441, section
    /// 5.1).
    pub websocket_key: Option<String>,
    /// Set if the client's connection may serve another request after this one.
    pub keep_alive: bool,
    /// Set if the client's connection uses TLS, or that to a trusted proxy which forwards so.
    pub secure: bool,
    /// Host and port that the request is for.
    pub authority: CanonicalAuthority,
    told: ForwardedFacts,
    /// Path and query in their normal form.
    pub target: CanonicalTarget,
    /// Set if an origin gets the target as the client sent it instead of its normal form, because the old proxy normalises it
    /// itself.
    pub keeps_target: bool,
    /// The authority that the origin gets, where it is not the client's.
    origin_authority: String,
    /// The fields of [`onward::CLIENT_CLAIMS`] that a module has set, one bit each.
    claimed: u8,
    /// Fields in the client's `Connection` that steps have set, while its steps run that see the
    /// named fields.
    vouched: Option<Vec<Box<[u8]>>>,
    /// The length of the fields' memory before a step added any: later fields come from steps.
    pub sent: usize,
    /// The memory of the head.
    charge: Charge,
    of_client: Option<HeldHead>,
    /// The bytes of the exchange, where an origin gets those of the client.
    pub verbatim: Option<Box<Verbatim>>,
}

/// The parts of a request that are changed for another upstream.
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

    /// The method as it was sent, also where the rest of the head was refused; empty if none was
    /// understood.
    pub fn method(&self) -> &[u8] {
        if self.has_method { self.head.method.as_bytes() } else { b"" }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Asks for the whole, not for a part.
    pub fn ask_for_all(&mut self) {
        self.head.headers.remove_each(&[NameId::Range, NameId::IfRange]);
    }

    /// Host and port for the origin: those of a module, else of the upstream, else the client's.
    pub fn origin_authority<'r>(&'r self, upstream: &'r settings::UpstreamSettings) -> &'r str {
        match (&*self.origin_authority, &upstream.host) {
            // The target of CONNECT is no host of the origin's.
            ("", Some(host)) if self.head.method != Method::Connect => host,
            ("", _) => self.authority.as_str(),
            (set, _) => set,
        }
    }

    /// The authority that a module has chosen for the origin, if one has.
    pub fn chosen_authority(&self) -> Option<&str> {
        Some(&*self.origin_authority).filter(|authority| !authority.is_empty())
    }

    /// Sets the authority for the origin, as a module would.
    pub fn choose_authority(&mut self, authority: &str) {
        authority.clone_into(&mut self.origin_authority);
    }

    /// Changes the request for another upstream; [`return_to`](Self::return_to) restores it.
    pub fn divert(&mut self, to: &settings::Elsewhere) {
        Edits::shared(&to.edits).apply(self);
        if let Some(host) = &to.host {
            self.origin_authority = host.to_string();
        }
        if let Some(path) = &to.path {
            self.target.replace(path);
        }
    }

    /// The present values of the parts that [`divert`](Self::divert) changes.
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

    /// Restores the request.
    pub fn return_to(&mut self, present: Present) {
        let Present { headers, target, authority, claimed } = present;
        self.head.headers = headers;
        self.target.copy_from(&target);
        (self.origin_authority, self.claimed) = (authority, claimed);
    }

    /// The target that an origin gets.
    pub fn target_for_origin(&self) -> &[u8] {
        let sent = self.head.target();
        // One with a scheme and a host is for proxies.
        if self.keeps_target && sent.starts_with(b"/") { sent } else { self.target.as_bytes() }
    }

    /// Returns true if the request asks for a part of the resource (RFC 9110, section 14.2).
    pub fn asks_for_part(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head) && self.head.headers.contains(NameId::Range)
    }

    /// Returns true if the bytes after the heads are no longer HTTP once the origin agrees.
    pub fn opens_tunnel(&self) -> bool {
        self.upgrade.is_some() || self.head.method == Method::Connect
    }

    /// Returns true if HTTP/2 can carry the offered protocol switch (RFC 8441): to WebSocket alone,
    /// and without a body, since a tunnel begins there with the head.
    pub fn fits_extended_connect(&self) -> bool {
        self.head.method == Method::Get
            && self.length.is_empty()
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

    /// A copy in its final form for the origin, for a fetch of the same target by GET. It has no
    /// body.
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

    /// A copy with the fields that the request has now, for another origin, with a body of this length.
    pub fn as_sent(&self, length: BodyLength) -> Self {
        let mut copy = self.for_fetch();
        copy.length = length;
        copy.head.method = self.head.method;
        copy.head.set_target(self.head.target());
        copy
    }

    /// A copy to be served again. `length` frames its body, which is passed again as well.
    pub fn for_replay(&self, length: BodyLength) -> Self {
        let mut copy = self.as_sent(length);
        copy.head.version = self.head.version;
        copy.sent = self.sent;
        copy
    }

    /// The parts for the access log, while the request itself is elsewhere.
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

    /// Takes the request for one that was made by `https`, or else `http`, whatever the client's
    /// connection is: the port that is the scheme's own is none of the authority.
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

    /// Gives back memory that one unusual request needed.
    pub fn shrink(&mut self) {
        const KEPT: usize = 4096;
        self.head.shrink_to(KEPT, 64);
        self.target.shrink_to(KEPT);
        self.of_client = None;
        self.count();
    }

    /// Clears the request for reuse. It keeps the memory of an ordinary one, which then counts for no peer.
    pub fn put_away(&mut self) {
        self.clear();
        self.shrink();
        // The speed at which a head or a host is recognised would reveal another client's requests.
        self.head.forget();
        self.authority.forget();
        self.charge.set(0);
    }

    /// Its head counts as this client's as well, until the request is over.
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
