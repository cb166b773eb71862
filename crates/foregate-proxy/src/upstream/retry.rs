//! Rules for further attempts: the failures that they cover, their safety, and the next upstream.
//!
//! A request counts the attempts that each rule has allowed. Each upstream has its own rules, and those of the present
//! upstream apply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_wire::ResponseHead;

use super::attempts::Attempts;
use super::members::{ActiveRequest, Upstream};
use crate::error::Error;
use crate::message::request::Request;
use crate::settings::{Elsewhere, Retry};

/// The reason for a further attempt.
#[derive(Debug, Clone, Copy)]
pub enum RetryCause {
    /// The attempt failed without a response.
    Error(Error),
    /// The response has this status. True if it has a `Retry-After`.
    Status(u16, bool),
}

/// The state of the rules for a request.
#[derive(Debug, Default)]
pub struct Rules<'a> {
    /// The rules of the present upstream. For the first upstream, those of the route take precedence.
    rules: &'a [Retry],
    /// The time limit of the present attempt, if another attempt may follow.
    pub try_timeout: Option<Duration>,
    /// The other upstreams to which attempts may go.
    others: &'a [Arc<Upstream>],
    /// The upstream to which the next attempt goes.
    pub next: Option<&'a Arc<Upstream>>,
    /// The number of attempts that each rule of the present upstream has allowed.
    used: Vec<u32>,
    /// The changes to the request for the present upstream, after those for earlier upstreams: a field
    /// that was removed for an earlier one stays removed.
    diversions: Vec<Elsewhere>,
    /// Counts the request among those of the upstreams that were tried before.
    before: Vec<ActiveRequest<'a>>,
    /// True if the client has got an interim response.
    relayed: bool,
}

impl RetryCause {
    /// The cause that a response gives by its status.
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

    /// Returns true if no origin can have begun to process the request.
    fn is_before_sending(self) -> bool {
        matches!(self, Self::Error(error) if error.is_before_sending())
    }

    /// Returns true if the same server may be tried again.
    fn spares_server(self) -> bool {
        match self {
            Self::Error(error) => !error.is_of_the_server(),
            Self::Status(_, later) => !later,
        }
    }

    /// Returns true if other servers of the upstream may be asked. False for a 429 with `Retry-After`, by
    /// which the service as a whole asks for a pause (RFC 6585, section 4).
    fn spares_upstream(self) -> bool {
        !matches!(self, Self::Status(429, true))
    }
}

impl<'a> Rules<'a> {
    /// The state of these rules. Their attempts may also go to `others`. `None` if there are no rules.
    pub fn new(rules: &'a [Retry], others: &'a [Arc<Upstream>]) -> Option<Box<Self>> {
        (!rules.is_empty())
            .then(|| Box::new(Self { rules, others, used: vec![0; rules.len()], ..Self::default() }))
    }

    /// Records that the client has got an interim response. From now on, no response is replaced by that
    /// of another attempt.
    pub fn has_relayed(&mut self) {
        self.relayed = true;
    }

    /// The changes to the request for the present upstream.
    pub fn diversions(&self) -> &[Elsewhere] {
        &self.diversions
    }

    /// Begins an attempt. Returns its time limit, if another attempt may follow.
    pub fn begin(&mut self, request: &Request, repeatable: bool) -> Option<Duration> {
        let may_follow = |(rule, used): &(&Retry, &u32)| {
            let safe = repeatable || rule.allows_method(request.head.method.as_bytes());
            rule.on.timeout && **used < rule.attempts && safe
        };
        let rules = self.rules.iter().zip(&self.used).filter(may_follow);
        self.try_timeout = rules.filter_map(|(rule, _)| rule.try_timeout).min();
        self.try_timeout
    }

    /// Returns true if any rule covers `cause`.
    pub fn is_about(&self, cause: RetryCause) -> bool {
        !self.relayed && self.rules.iter().any(|rule| cause.is_covered_by(rule))
    }

    /// Returns true if a rule allows another attempt, at another server or another upstream, while nothing was sent.
    pub fn has_another(
        &self,
        cause: RetryCause,
        attempts: &Attempts,
        upstream: &Upstream,
        now: Instant,
    ) -> bool {
        self.rules.iter().zip(&self.used).any(|(rule, used)| {
            let has_place = || match &rule.elsewhere {
                None => attempts.may_choose_again(upstream, false, now),
                Some(elsewhere) => self.other(elsewhere, now).is_some(),
            };
            *used < rule.attempts && cause.is_covered_by(rule) && has_place()
        })
    }

    /// The upstream that a rule names; `None` if it has no server for a request either.
    fn other(&self, elsewhere: &Elsewhere, now: Instant) -> Option<&'a Arc<Upstream>> {
        let other = self.others.iter().find(|other| other.settings.name == elsewhere.upstream);
        other.filter(|other| other.picker.takes_requests(now))
    }

    /// Chooses another upstream for the first attempt, because no server of this one takes requests, if a rule sends failed
    /// connections to the other one. Returns true if it did. This needs no budget, because the request still causes
    /// only one attempt.
    pub fn pass_over(&mut self, upstream: &Upstream, now: Instant) -> bool {
        let found = self.rules.iter().enumerate().find_map(|(number, rule)| {
            let elsewhere = rule.elsewhere.as_ref().filter(|_| rule.on.connect && rule.attempts > 0)?;
            Some((number, elsewhere, self.other(elsewhere, now)?))
        });
        let Some((number, elsewhere, other)) = found else { return false };
        self.count_use(number);
        self.next = Some(other);
        self.diversions.push(elsewhere.clone());
        upstream.metrics.retries_elsewhere.inc();
        true
    }

    /// Returns true if a rule allows another attempt, and chooses its server or upstream.
    pub fn allow(
        &mut self,
        (attempts, active): (&mut Attempts, &mut ActiveRequest<'a>),
        cause: RetryCause,
        request: &Request,
        now: Instant,
    ) -> bool {
        let upstream = active.upstream();
        for (number, rule) in self.rules.iter().enumerate() {
            let Some(used) = self.used.get(number) else { return false };
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
                if !active.may_retry(now) || !attempts.choose_again(upstream, cause.spares_server(), now) {
                    return false;
                }
                self.count_use(number);
                upstream.metrics.retries.inc();
                return true;
            };
            let Some(other) = self.other(elsewhere, now) else { continue };
            if !active.may_retry(now) {
                return false;
            }
            self.count_use(number);
            self.next = Some(other);
            self.diversions.push(elsewhere.clone());
            upstream.metrics.retries.inc();
            upstream.metrics.retries_elsewhere.inc();
            return true;
        }
        false
    }

    fn count_use(&mut self, rule: usize) {
        if let Some(used) = self.used.get_mut(rule) {
            *used += 1;
        }
    }

    /// Switches to another upstream.
    pub fn enter(&mut self, upstream: &'a Upstream, before: ActiveRequest<'a>) {
        self.rules = &upstream.settings.retry;
        self.used = vec![0; self.rules.len()];
        self.before.push(before);
    }

    /// Gives up the request's places in the budgets of earlier upstreams, because its response has begun.
    pub fn answered(&mut self) {
        self.before.clear();
    }
}

/// The upstreams to which these rules may send attempts, directly or by the rules of an upstream that they name.
pub fn named(rules: &[Retry], all: &[Arc<Upstream>]) -> Vec<Arc<Upstream>> {
    let mut found: Vec<Arc<Upstream>> = Vec::new();
    let mut next: Vec<&str> = names(rules).collect();
    while let Some(name) = next.pop() {
        if found.iter().any(|upstream| *upstream.settings.name == *name) {
            continue;
        }
        let Some(upstream) = all.iter().find(|upstream| *upstream.settings.name == *name) else { continue };
        next.extend(names(&upstream.settings.retry));
        found.push(Arc::clone(upstream));
    }
    found
}

fn names(rules: &[Retry]) -> impl Iterator<Item = &str> {
    rules.iter().filter_map(|rule| rule.elsewhere.as_ref()).map(|elsewhere| &*elsewhere.upstream)
}
