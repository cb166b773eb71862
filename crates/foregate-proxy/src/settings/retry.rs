//! Rules for further attempts at requests, and for copies of requests.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::Edit;

/// One rule for further attempts: after which failures, how many, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The failures to which the rule applies.
    pub on: RetryOn,
    /// The most further attempts that this rule allows. Default: 1.
    pub attempts: u32,
    /// The time limit of an attempt up to the head of its response, if this rule allows another attempt after it. For a
    /// request with a body, it starts again with each part that the origin gets, and does not run while the next part is
    /// awaited. Default (`None`): the time limits of the upstream.
    pub try_timeout: Option<Duration>,
    /// Methods that may be repeated although an origin may have seen the request, in addition to idempotent methods.
    /// Default: none.
    pub methods: Vec<Box<[u8]>>,
    /// Another upstream, and the changes to the request for it. Default (`None`): the next server
    /// of the same upstream.
    pub elsewhere: Option<Elsewhere>,
}

/// The failures to which a rule applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryOn {
    /// Applies if no connection could be made, or the origin has said that it did not process the request.
    pub connect: bool,
    /// Applies if the connection has ended before a response.
    pub reset: bool,
    /// Applies if no response has arrived in time.
    pub timeout: bool,
    /// Responses with these statuses.
    pub statuses: Vec<RangeInclusive<u16>>,
}

impl RetryOn {
    /// Returns true if the rule applies to a response with this status.
    pub fn has_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// Another upstream for a request, and the changes to the request for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// The `Host` or `:authority` for that upstream. Default (`None`): the upstream's own, else the client's.
    pub host: Option<Arc<str>>,
    /// The path for that upstream. Default (`None`): the same.
    pub path: Option<NewPath>,
    /// Changes to the fields.
    pub edits: Arc<[Edit]>,
}

/// A path that replaces the request's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewPath {
    /// This path instead of the request's.
    Whole(Arc<str>),
    /// This path, followed by the request's own.
    Before(Arc<str>),
}

/// How long the first attempt may take without a response before a second one begins as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeAfter {
    /// This time.
    Time(Duration),
    /// This percentile of the recent latencies of the upstream.
    Percentile(u8),
}

/// The rules of a route, instead of its upstream's. Two values are equal only if they refer to the same object.
#[derive(Debug, Clone, Default)]
pub struct RouteRetry(Option<Arc<[Retry]>>);

impl RouteRetry {
    /// Wraps the rules; an empty list counts as no rules of the route's own.
    pub fn new(rules: Vec<Retry>) -> Self {
        Self(Some(Arc::from(rules)).filter(|rules: &Arc<[Retry]>| !rules.is_empty()))
    }

    /// The rules, if there are any.
    #[inline]
    pub fn get(&self) -> Option<&[Retry]> {
        self.0.as_deref()
    }

    fn address(&self) -> Option<*const Retry> {
        self.0.as_ref().map(|rules| rules.as_ptr())
    }
}

impl PartialEq for RouteRetry {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for RouteRetry {}

impl Hash for RouteRetry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

/// Sends copies of requests to another upstream, and drops its responses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The upstream, by index into [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    pub upstream: usize,
    /// The share of requests that are copied, of [`SHARE_WHOLE`](super::SHARE_WHOLE). Default: all.
    pub share: u32,
    /// The largest body of a request that is copied, bytes. Beyond: no copy. Default: 64 KiB.
    pub body: usize,
}

impl Retry {
    /// Returns true if a request with this method may be repeated by this rule although an origin
    /// may have seen it.
    pub fn allows_method(&self, method: &[u8]) -> bool {
        self.methods.iter().any(|allowed| **allowed == *method)
    }
}
