//! Rules for further attempts of requests, and for copies of them.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::Edit;

/// One rule for further attempts: after which failures, how many, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The failures that the rule is for.
    pub on: RetryOn,
    /// The most further attempts by this rule. Default: 1.
    pub attempts: u32,
    /// The time limit of an attempt up to the head of its response where this rule allows another one. Default
    /// (`None`): as long as the upstream's time limits say.
    pub try_timeout: Option<Duration>,
    /// Methods that may be repeated although an origin may have seen the request, in addition to idempotent methods.
    /// Default: none.
    pub methods: Vec<Box<[u8]>>,
    /// Another upstream, and the changes to the request for it. Default (`None`): the next server
    /// of the same upstream.
    pub elsewhere: Option<Elsewhere>,
}

/// The failures that a rule is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryOn {
    /// No connection could be made, or the origin has said that it did not look at the request.
    pub connect: bool,
    /// The connection has ended before a response.
    pub reset: bool,
    /// No response has arrived in time.
    pub timeout: bool,
    /// Responses with these statuses.
    pub statuses: Vec<RangeInclusive<u16>>,
}

impl RetryOn {
    /// Returns true if a status is one of these.
    pub fn has_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// Another upstream for a request, and the request for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// The `Host` or `:authority` for it. Default (`None`): as the upstream has it, or the client.
    pub host: Option<Arc<str>>,
    /// The path for it. Default (`None`): the same.
    pub path: Option<NewPath>,
    /// Changes to the fields.
    pub edits: Arc<[Edit]>,
}

/// A path that replaces the request's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewPath {
    /// This one.
    Whole(Arc<str>),
    /// This path, before the request's own.
    Before(Arc<str>),
}

/// When a second attempt begins while the first has brought no response yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeAfter {
    /// After this time.
    Time(Duration),
    /// After this percentile of the recent latencies of the upstream.
    Percentile(u8),
}

/// The rules of a route, instead of its upstream's. Two are equal only if they are the same object.
#[derive(Debug, Clone, Default)]
pub struct RouteRetry(Option<Arc<[Retry]>>);

impl RouteRetry {
    /// These rules, if there are any.
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

/// Copies of requests for another upstream, whose responses are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The upstream, by index into [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    pub upstream: usize,
    /// The share of requests that are copied, of [`SHARE_WHOLE`](super::SHARE_WHOLE). Default: all.
    pub share: u32,
    /// The largest body of such a request, bytes. Beyond: no copy. Default: 64 KiB.
    pub body: usize,
}

impl Retry {
    /// Returns true if a request with this method may be repeated by this rule although an origin
    /// may have seen it.
    pub fn allows_method(&self, method: &[u8]) -> bool {
        self.methods.iter().any(|allowed| **allowed == *method)
    }
}
