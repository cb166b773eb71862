//! Rules for further attempts: the failures that they cover, their safety, and the next upstream.
//!
//! A request counts the attempts of each rule. The rules are those of the present upstream: one
//! that replaces another has its own.

use std::sync::Arc;
use std::time::Instant;

use foregate_wire::ResponseHead;

use super::{ActiveRequest, Attempts, Upstream};
use crate::error::Error;
use crate::message::request::Request;
use crate::settings::{self, Elsewhere, Retry};

/// The reason for a further attempt.
#[derive(Debug, Clone, Copy)]
pub enum RetryCause {
    /// There is no response.
    Error(Error),
    /// The response has this status; whether it says when to come again.
    Status(u16, bool),
}

/// The state of the rules for a request.
#[derive(Debug, Default)]
pub struct Rules<'a> {
    /// By when the present attempt must have brought a response, where another may follow.
    pub until: Option<Instant>,
    /// The upstreams to which attempts may go as well.
    others: &'a [Arc<Upstream>],
    /// The upstream to which the next attempt goes.
    pub next: Option<&'a Arc<Upstream>>,
    /// How many attempts each rule of the present upstream has allowed.
    used: Vec<u32>,
    /// The changes to the request for the present upstream, those of an earlier one first: a field
    /// that was taken away stays away.
    diversions: Vec<Elsewhere>,
    /// The request counts among those of the upstreams that were asked before.
    before: Vec<ActiveRequest<'a>>,
    /// The client has got an interim response.
    relayed: bool,
}

impl RetryCause {
    /// A response that has come.
    pub fn of_response(head: &ResponseHead) -> Self {
        Self::Status(head.status, head.headers.get_name(b"retry-after").is_some())
    }

    fn is_covered_by(self, rule: &Retry) -> bool {
        let on = &rule.on;
        match self {
            Self::Status(status, _) => on.has_status(status),
            Self::Error(error) => {
                let times_out = matches!(
                    error,
                    Error::ConnectTimeout | Error::FirstByteTimeout | Error::TryTimeout | Error::OriginHangs
                );
                on.connect && error.is_before_sending()
                    || on.timeout && times_out
                    || on.reset && error.is_before_response() && !error.is_about_connecting() && !times_out
            }
        }
    }

    /// Returns true if an origin cannot have begun to process the request.
    fn is_before_sending(self) -> bool {
        matches!(self, Self::Error(error) if error.is_before_sending())
    }

    /// Returns true if the same server may be asked once more.
    fn spares_server(self) -> bool {
        match self {
            Self::Error(error) => !error.is_of_the_server(),
            Self::Status(_, later) => !later,
        }
    }

    /// Returns true unless the service as a whole has asked for a pause (RFC 6585, section 4).
    fn spares_upstream(self) -> bool {
        !matches!(self, Self::Status(429, true))
    }
}

impl<'a> Rules<'a> {
    /// Nothing yet; `None` where an upstream has no rules.
    pub fn of(upstream: &Upstream) -> Option<Box<Self>> {
        let count = upstream.settings.retry.len();
        (count > 0).then(|| Box::new(Self { used: vec![0; count], ..Self::default() }))
    }

    /// Attempts may go to these upstreams as well.
    pub fn or_elsewhere(mut self: Box<Self>, others: &'a [Arc<Upstream>]) -> Box<Self> {
        self.others = others;
        self
    }

    /// The client has got an interim response: a response is not exchanged for another one any
    /// more.
    pub fn has_relayed(&mut self) {
        self.relayed = true;
    }

    /// The changes to the request for the upstream that is asked.
    pub fn diversions(&self) -> &[Elsewhere] {
        &self.diversions
    }

    /// An attempt begins: until when it may take, up to a response.
    pub fn begin(
        &mut self,
        upstream: &settings::UpstreamSettings,
        request: &Request,
        repeatable: bool,
        now: Instant,
    ) -> Option<Instant> {
        let may_follow = |(rule, used): &(&Retry, &u32)| {
            let safe = repeatable || rule.allows_method(request.head.method.as_bytes());
            rule.on.timeout && **used < rule.attempts && safe
        };
        let rules = upstream.retry.iter().zip(&self.used).filter(may_follow);
        let timeout = rules.filter_map(|(rule, _)| rule.try_timeout).min();
        self.until = timeout.map(|timeout| now + timeout);
        self.until
    }

    /// Returns true if any rule covers this.
    pub fn is_about(&self, upstream: &settings::UpstreamSettings, cause: RetryCause) -> bool {
        !self.relayed && upstream.retry.iter().any(|rule| cause.is_covered_by(rule))
    }

    /// Returns true if a rule allows another attempt, and chooses its place.
    pub fn allow(
        &mut self,
        (attempts, active): (&mut Attempts, &mut ActiveRequest<'a>),
        cause: RetryCause,
        request: &Request,
        now: Instant,
    ) -> bool {
        let upstream = active.upstream();
        for (number, rule) in upstream.settings.retry.iter().enumerate() {
            let Some(used) = self.used.get_mut(number) else { return false };
            let safe = cause.is_before_sending()
                || request.is_repeatable()
                || rule.allows_method(request.head.method.as_bytes());
            if *used >= rule.attempts || !safe || !cause.is_covered_by(rule) {
                continue;
            }
            let Some(elsewhere) = &rule.elsewhere else {
                let may_stay = cause.spares_upstream()
                    && attempts.may_choose_again(upstream, cause.spares_server(), now);
                if !may_stay {
                    continue;
                }
                if !active.may_retry() || !attempts.choose_again(upstream, cause.spares_server(), now) {
                    return false;
                }
                *used += 1;
                upstream.metrics.retries.inc();
                return true;
            };
            let other = self.others.iter().find(|other| other.settings.name == elsewhere.upstream);
            // An upstream that is down as well is no replacement.
            let Some(other) = other.filter(|other| other.is_any_up(now)) else { continue };
            if !active.may_retry() {
                return false;
            }
            *used += 1;
            self.next = Some(other);
            self.diversions.push(elsewhere.clone());
            upstream.metrics.retries.inc();
            upstream.metrics.retries_elsewhere.inc();
            return true;
        }
        false
    }

    /// Another upstream is asked from here on.
    pub fn enter(&mut self, upstream: &Upstream, before: ActiveRequest<'a>) {
        self.used = vec![0; upstream.settings.retry.len()];
        self.before.push(before);
    }

    /// The request has its answer.
    pub fn answered(&mut self) {
        self.before.clear();
    }
}
