//! The cache's view of a request.

use foregate_wire::{HeaderList, Method, NameId};

use crate::directives::RequestControl;
use crate::policy::Policy;

/// A request, as far as the cache looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// The fields as they would go to the origin.
    pub headers: &'a HeaderList,
    /// The path in normal form.
    pub path: &'a [u8],
    /// `true` if the target has a query.
    pub has_query: bool,
    /// `true` if a body follows.
    pub has_body: bool,
}

/// The decision on asking the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The cache is asked: it may hold the response, or may store it.
    Cache(Demands),
    /// The request goes to the origin, and its response is not stored.
    Bypass(Bypass),
    /// The client accepts only a stored response, and this request can have none: the answer is 504.
    Unavailable,
}

/// The reason for a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// Neither GET nor HEAD.
    Method,
    /// The request has a body.
    Body,
    /// The client asks that nothing be stored, and the settings heed it.
    NoStore,
}

/// The client's demands on a response, read once for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    pub(crate) control: RequestControl,
    pub(crate) head: bool,
    pub(crate) conditional: bool,
    pub(crate) range: bool,
    pub(crate) authorization: bool,
    pub(crate) cookie: bool,
    pub(crate) query: bool,
    /// See [`set_conditions`](Self::set_conditions).
    pub(crate) conditions: u64,
}

impl Demands {
    /// Returns whether the request is a HEAD. It can be answered from a stored response to GET, but its own
    /// response is not stored.
    pub fn is_head(&self) -> bool {
        self.head
    }

    /// The demands of a GET that is made in the place of the request, so that its response can be stored.
    #[must_use]
    pub fn of_get(self) -> Self {
        Self { head: false, ..self }
    }

    /// Marks the request as one with credentials (RFC 9111, section 3.5): it had them when it was received, or it
    /// identifies the client to the origin in another way.
    pub fn add_credentials(&mut self) {
        self.authorization = true;
    }

    /// Sets which conditions of lifetimes hold for the request: bit n stands for the condition with number n.
    pub fn set_conditions(&mut self, conditions: u64) {
        self.conditions = conditions;
    }

    /// The conditions of lifetimes that hold for the request, as bits.
    pub fn conditions(&self) -> u64 {
        self.conditions
    }

    /// Returns whether the request has credentials.
    pub fn has_credentials(&self) -> bool {
        self.authorization
    }

    /// Returns whether the client only accepts a stored response (RFC 9111, section 5.2.1.7). If there is none, the
    /// answer is 504.
    pub fn only_if_cached(&self) -> bool {
        self.control.only_if_cached
    }
}

/// Decides whether the cache is asked, and reads the client's demands.
pub fn lookup(request: &Request<'_>, policy: &Policy) -> Lookup {
    let head = match request.method {
        Method::Get => false,
        Method::Head => true,
        _ => return Lookup::Bypass(Bypass::Method),
    };
    let headers = request.headers;
    if request.has_body {
        let is_only_if_cached =
            headers.contains(NameId::CacheControl) && RequestControl::read(headers).only_if_cached;
        return if is_only_if_cached { Lookup::Unavailable } else { Lookup::Bypass(Bypass::Body) };
    }
    let mut control = RequestControl::default();
    if headers.contains(NameId::CacheControl) || headers.contains(NameId::Pragma) {
        control = RequestControl::read(headers);
        if !policy.client_directives {
            let RequestControl { only_if_cached, max_stale, .. } = control;
            control = RequestControl { only_if_cached, max_stale, ..RequestControl::default() };
        }
    }
    if control.no_store {
        return Lookup::Bypass(Bypass::NoStore);
    }
    Lookup::Cache(Demands {
        control,
        head,
        conditional: CONDITIONS.iter().any(|&id| headers.contains(id)),
        range: headers.contains(NameId::Range),
        authorization: headers.contains(NameId::Authorization),
        cookie: headers.contains(NameId::Cookie),
        query: request.has_query,
        conditions: 0,
    })
}

const CONDITIONS: [NameId; 4] =
    [NameId::IfMatch, NameId::IfNoneMatch, NameId::IfModifiedSince, NameId::IfUnmodifiedSince];

/// Turns a GET that may fill the store into a request for the whole response, so that the response can be
/// stored and can answer every client. This removes the client's own conditions and its range. They are
/// evaluated against the stored response instead ([`StoredHead::answer`](crate::StoredHead::answer)). If the
/// response is not stored, the caller evaluates the conditions with [`evaluate`](crate::evaluate).
pub fn ask_for_whole(headers: &mut HeaderList) {
    headers.remove_each(&CONDITIONS);
    headers.remove_each(&[NameId::Range, NameId::IfRange]);
}
