//! The decision on answering a request from the store (RFC 9111, section 4).

use crate::moment::CacheTime;
use crate::request::Demands;
use crate::stored::StoredHead;

/// For this many milliseconds, a response that was fetched because a client demanded a newer one also answers
/// other clients that demand a newer one. Otherwise each reload would be a request to the origin.
const DEMANDS: u64 = 1000;

/// The use of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The stored response answers the request.
    Fresh,
    /// The response answers the request although it is stale, since the client accepts stale responses (RFC 9111,
    /// section 5.2.1.2).
    Stale,
    /// The response answers the request although it is stale, and is validated meanwhile (RFC 5861, section 3).
    StaleWhileRevalidate,
    /// The response has to be validated first. If the origin fails, [`StoredHead::covers_failure`] decides.
    Validate(Validate),
    /// The response would have to be validated, and the client forbids it: 504 (RFC 9111, section 5.2.1.7).
    Unavailable,
}

/// The reason for a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validate {
    /// The response is stale.
    Stale,
    /// The origin demands a validation before each use: `no-cache`.
    Origin,
    /// The client demands a validation.
    Client,
}

/// Decides about the use of a stored response. `outdated` is true if a soft purge has made the response stale.
pub fn reuse(stored: &StoredHead, demands: &Demands, outdated: bool, now: CacheTime) -> Reuse {
    let verdict = judge(stored, demands, outdated, now);
    match verdict {
        Reuse::Validate(_) if demands.only_if_cached() => Reuse::Unavailable,
        verdict => verdict,
    }
}

fn judge(stored: &StoredHead, demands: &Demands, outdated: bool, now: CacheTime) -> Reuse {
    let life = &stored.life;
    if life.always_validate {
        return Reuse::Validate(Validate::Origin);
    }
    if demanded(stored, demands, now) {
        return Reuse::Validate(Validate::Client);
    }
    let staleness = match life.staleness(now) {
        None if !outdated => return Reuse::Fresh,
        staleness => staleness.unwrap_or(0),
    };
    if staleness < life.stale_while_revalidate {
        return Reuse::StaleWhileRevalidate;
    }
    let accepted = demands.control.max_stale;
    if !outdated && !life.never_stale && accepted.is_some_and(|most| staleness / 1000 <= u64::from(most)) {
        return Reuse::Stale;
    }
    Reuse::Validate(Validate::Stale)
}

/// Returns whether the client demands a newer response than this one.
fn demanded(stored: &StoredHead, demands: &Demands, now: CacheTime) -> bool {
    let (life, control) = (&stored.life, &demands.control);
    if !control.demands_newer() || life.demanded && now.since(life.received) < DEMANDS {
        return false;
    }
    let age = life.age(now);
    let old = control.max_age.is_some_and(|most| age > u64::from(most) || most == 0);
    let short = control.min_fresh.is_some_and(|least| life.remaining(now) < i64::from(least));
    control.no_cache || old || short
}

/// A failure of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No response: no connection, a timeout, a response that breaks off.
    NoResponse,
    /// A response with this status.
    Status(u16),
}

impl Failure {
    /// Returns whether the failure is an error in the sense of `stale-if-error` (RFC 5861, section 4).
    fn counts(self) -> bool {
        match self {
            Self::NoResponse => true,
            Self::Status(status) => matches!(status, 500 | 502 | 503 | 504),
        }
    }
}

impl StoredHead {
    /// Returns whether this response is served in place of the failure of its validation (RFC 5861, section
    /// 4).
    pub fn covers_failure(&self, failure: Failure, now: CacheTime) -> bool {
        let life = &self.life;
        let staleness = life.staleness(now).unwrap_or(0);
        failure.counts() && !life.always_validate && staleness < life.stale_if_error
    }
}
