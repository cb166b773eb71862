//! The settings of a route.

use std::ops::RangeInclusive;

use crate::armor::ExtensionRule;

/// The settings of a route that caches. The default follows RFC 9111 and takes no risks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lifetimes by status; the first one that covers the status counts.
    pub lifetimes: Vec<StatusLifetime>,
    /// Lifetimes from Last-Modified.
    pub heuristics: Heuristics,
    /// For this many seconds after its lifetime, a response is still served while it is validated, unless the
    /// origin states another time. Default 0.
    pub stale_while_revalidate: u32,
    /// For this many seconds after its lifetime, a response is served if the origin fails, unless the origin states
    /// another time. Default 600.
    pub stale_if_error: u32,
    /// The treatment of responses with Set-Cookie. They are not stored by default.
    pub set_cookie: SetCookie,
    /// `true` if `no-cache`, `no-store`, `max-age`, `min-fresh` and `Pragma` in requests have an effect. Off by
    /// default: otherwise any client could make the origin answer all of its requests.
    pub client_directives: bool,
    /// Names of targeted fields (RFC 9213, section 2.2). The first of these fields that is valid and not empty in a
    /// response replaces Cache-Control and Expires. Default: `CDN-Cache-Control`.
    pub targeted: Vec<String>,
    /// `true` if the fields with tags are stored and sent to clients. Off by default.
    pub keep_tags: bool,
    /// Caching by the extension of the path, if the origin states no lifetime. Off by default.
    pub extensions: Option<ExtensionRule>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lifetimes: Vec::new(),
            heuristics: Heuristics::default(),
            stale_while_revalidate: 0,
            stale_if_error: 600,
            set_cookie: SetCookie::default(),
            client_directives: false,
            targeted: vec!["CDN-Cache-Control".to_owned()],
            keep_tags: false,
            extensions: None,
        }
    }
}

impl Policy {
    /// The lifetime that the settings state for a response with this status. `conditions` has a bit for each
    /// condition that holds for the request.
    pub(crate) fn lifetime(&self, status: u16, conditions: u64) -> Option<&StatusLifetime> {
        let holds = |number: u8| conditions.checked_shr(u32::from(number)).is_some_and(|bits| bits & 1 == 1);
        let fits = |lifetime: &&StatusLifetime| {
            lifetime.statuses.contains(&status) && lifetime.condition.is_none_or(holds)
        };
        self.lifetimes.iter().find(fits)
    }
}

/// A lifetime that the settings state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusLifetime {
    /// The statuses that the lifetime is for.
    pub statuses: RangeInclusive<u16>,
    /// The lifetime in seconds.
    pub seconds: u32,
    /// `true` if this lifetime replaces the lifetime that the origin states. It never overrides `no-store` and
    /// `private`.
    pub over_origin: bool,
    /// The number of the condition that must hold for the request ([`Demands::set_conditions`](crate::Demands::set_conditions)), from 0 to
    /// 63. `None` if the lifetime is for all requests.
    pub condition: Option<u8>,
}

/// Lifetimes of responses without an explicit one (RFC 9111, section 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristics {
    /// The lifetime as a percentage of the time since Last-Modified. 0 turns heuristics off. Default 10.
    pub percent: u32,
    /// The longest lifetime in seconds. Default: a day.
    pub cap: u32,
    /// `true` if error responses get a heuristic lifetime, too. Off by default.
    pub errors: bool,
}

impl Default for Heuristics {
    fn default() -> Self {
        Self { percent: 10, cap: 86_400, errors: false }
    }
}

/// The treatment of responses with Set-Cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// The response is not stored.
    #[default]
    Refuse,
    /// The response is stored without the field; only the client that caused it sees the field.
    Drop,
    /// The response is stored with the field, which every client then gets.
    Store,
}
