//! The attempts at one request, and the rule for a further attempt. The rule is the same for
//! requests of clients and for fetches of steps.

use std::time::Instant;

use super::balance::BalancedRequest;
use super::members::{ActiveRequest, Upstream};
use super::origin::Origin;
use super::tried::{ServerNumber, TriedServers};
use crate::error::Error;

/// The most repetitions of a request because an origin reported it as unprocessed. They are allowed in
/// addition to `retries`.
const UNPROCESSED_MOST: u8 = 3;
/// The most attempts at other servers, in addition to `retries`, after servers that accepted no connection. Several servers
/// may die at the same time, and an attempt that fails at once costs little. The budget applies to them.
const REFUSED_MOST: u8 = 2;
/// The most attempts at other servers, in addition to `retries`, after servers that hang. Several servers may hang at the same
/// time. There is only one such attempt, because the request itself may be the reason why they hang. The budget applies to it.
const HUNG_MOST: u8 = 1;

/// The attempts at a request so far.
#[derive(Debug, Default)]
pub struct Attempts {
    tried: TriedServers,
    /// The hash of the request's balancing key.
    key: Option<u64>,
    made: u32,
    next: NextAttempt,
    races: Races,
    /// The number of attempts at earlier requests that the present request replaces, because their
    /// responses could not be used.
    answered: u32,
}

/// The constraints on the next attempt; each depends on the previous attempt alone.
#[derive(Debug, Clone, Copy, Default)]
struct NextAttempt {
    /// True if the next attempt must use a new connection, because a kept one turned out to be dead.
    fresh: bool,
    /// True if the origin has refused this request, but serves others on the same connection.
    refused_alone: bool,
    /// The server for the next attempt, if not the one that was tried last.
    server: Option<ServerNumber>,
}

/// The failures in which no origin worked on the request: kept connections that ended just as the
/// request arrived, and refusals. A repetition after such a failure needs no budget, because the failed
/// attempt was no load for an origin.
#[derive(Debug, Clone, Copy, Default)]
struct Races {
    /// How often the origin reported that it had not processed the request.
    unprocessed: u8,
    /// How often a server accepted no connection, and another one was tried in addition to `retries`.
    refused: u8,
    /// How often a server hung, and another one was tried in addition to `retries`.
    hung: u8,
    /// True if a kept connection has ended without a response.
    lost: bool,
    /// True if that happened in the present attempt, which was then continued over a new connection.
    lost_now: bool,
    /// How often that happened in later attempts, after the first time.
    lost_more: u8,
}

impl Races {
    /// Records that a kept connection has ended without a response. The attempt continues over a new connection, so this
    /// happens once in an attempt.
    fn lose(&mut self) {
        self.lost_more = self.lost_more.saturating_add(u8::from(self.lost));
        (self.lost, self.lost_now) = (true, true);
    }
}

impl Attempts {
    /// Begins the next attempt. Returns its server, and true if it needs a new connection because a kept
    /// one was dead. The first attempt goes to the server that the client is `bound` to, if there is one.
    /// `None` if the upstream has no server.
    pub fn begin(
        &mut self,
        upstream: &Upstream,
        asked: BalancedRequest<'_>,
        bound: Option<usize>,
        now: Instant,
    ) -> Option<(usize, bool)> {
        let next = std::mem::take(&mut self.next);
        let last = self.tried.last();
        let server = match last {
            // The connection was at fault, not the server.
            Some(last) if next.fresh => last,
            Some(last) => next.server.map_or(last, ServerNumber::get),
            None => {
                self.key = upstream.picker.key(&asked);
                let session = || upstream.picker.server_of_session(&asked, now);
                bound.or_else(session).or_else(|| upstream.picker.pick(self.key, now))?
            }
        };
        if last != Some(server) {
            self.tried.push(server);
        }
        self.made += 1;
        Some((server, next.fresh))
    }

    /// Records a failed attempt. Returns true if a kept connection turned out to be dead, which is no
    /// failure of the server.
    pub fn failed_on(&mut self, origin: &Origin, error: &Error) -> bool {
        self.next.fresh = origin.is_race(error);
        self.next.refused_alone = origin.is_refused_alone(error);
        self.next.fresh
    }

    /// Continues the attempt over another connection, because nothing was sent on the first one.
    pub fn go_on(&mut self) {
        self.made = self.made.saturating_sub(1);
    }

    /// Prepares for another request, because the response to this one cannot be used. This is not a failure, and the
    /// new request has the full number of attempts.
    pub fn start_over(&mut self) {
        (self.next, self.races, self.answered) = (NextAttempt::default(), Races::default(), self.made);
    }

    /// Returns true if a hash of the request decides on its server.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The server that was tried last.
    pub fn last(&self) -> Option<usize> {
        self.tried.last()
    }

    /// The server that was tried last, and that sent the dropped response. A server that is already chosen
    /// for the next attempt does not count.
    pub fn last_before(&self) -> Option<usize> {
        self.tried.last()
    }

    /// Prepares for an attempt at another upstream.
    pub fn change_upstream(&mut self) {
        *self = Self { made: self.made, answered: self.answered, ..Self::default() };
    }

    /// Returns true if a repetition is free, because no origin has worked on the request: a kept
    /// connection ended just as the request arrived, or the origin reported the request as unprocessed.
    pub fn may_repeat_for_free(
        &mut self,
        upstream: &Upstream,
        error: &Error,
        repeatable: bool,
        now: Instant,
    ) -> bool {
        let safe = error.is_before_sending() || error.is_before_response() && repeatable;
        let has_other = upstream.picker.has_other(&self.tried, now);
        let unprocessed = *error == Error::OriginRefused
            && (has_other || self.next.refused_alone)
            && self.races.unprocessed < UNPROCESSED_MOST;
        if !safe || !(unprocessed || self.next.fresh && !self.races.lost_now) {
            return false;
        }
        if unprocessed {
            self.races.unprocessed += 1;
        } else {
            self.races.lose();
        }
        if !self.next.fresh {
            self.next.server = upstream.picker.other(self.key, &self.tried, now).map(ServerNumber::new);
        }
        true
    }

    /// The server for a second attempt in parallel to the present one, if another server is up.
    pub fn second(&self, upstream: &Upstream, now: Instant) -> Option<usize> {
        if !upstream.picker.has_other(&self.tried, now) {
            return None;
        }
        upstream.picker.other(self.key, &self.tried, now)
    }

    /// Counts a second attempt, at `server`, in parallel to the present one.
    pub fn begin_second(&mut self, server: usize) {
        self.made += 1;
        self.tried.push_beside(server);
    }

    /// Returns true if the second attempt may be replaced by an attempt at yet another server, in addition to `retries`.
    pub fn may_replace_second(&self, upstream: &Upstream, now: Instant) -> bool {
        self.races.hung < HUNG_MOST && upstream.picker.has_other(&self.tried, now)
    }

    /// Counts the replacement of the second attempt by one at `server`.
    pub fn replace_second(&mut self, server: usize) {
        self.races.hung += 1;
        self.begin_second(server);
    }

    /// Makes the second attempt, at `server`, the one that counts.
    pub fn second_has_won(&mut self, server: usize) {
        self.tried.push(server);
    }

    /// The number of attempts that do not count against `retries`.
    fn free(&self) -> u32 {
        let Races { unprocessed, refused, hung, lost_more, .. } = self.races;
        u32::from(unprocessed + refused + hung) + u32::from(lost_more) + self.answered
    }

    /// Returns true if the upstream's settings allow an attempt at another server, while nothing was sent.
    pub fn has_another(&self, upstream: &Upstream, now: Instant) -> bool {
        let free = self.free() + u32::from(self.races.lost);
        self.made.saturating_sub(free) <= upstream.settings.retries
            && upstream.picker.has_other(&self.tried, now)
    }

    /// Returns true if the same upstream has a server for a further attempt. If `same` is true, the last
    /// server may be tried again.
    pub fn may_choose_again(&self, upstream: &Upstream, same: bool, now: Instant) -> bool {
        same && self.tried.last().is_some_and(|last| upstream.picker.is_up(last, now))
            || upstream.picker.has_other(&self.tried, now)
    }

    /// Chooses the server for a further attempt in the same upstream. If `same` is true, the last server
    /// may be tried again. Returns false if there is no server.
    pub fn choose_again(&mut self, upstream: &Upstream, same: bool, now: Instant) -> bool {
        let same = same && self.tried.last().is_some_and(|last| upstream.picker.is_up(last, now));
        let next = upstream.picker.other(self.key, &self.tried, now);
        if next.is_some() || same {
            self.next = NextAttempt { server: next.map(ServerNumber::new), ..NextAttempt::default() };
            self.races.lost_now = false;
        }
        next.is_some() || same
    }

    /// The number of attempts so far.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Returns true if another attempt should follow `error`. The caller has checked that no response has
    /// begun and that the whole request is still available. `repeatable` is true if the origin may
    /// process the request twice (RFC 9110, section 9.2.2).
    pub fn may_go_on(
        &mut self,
        active: &mut ActiveRequest<'_>,
        error: &Error,
        repeatable: bool,
        now: Instant,
    ) -> bool {
        let upstream = active.upstream;
        // If the server has died, a kept connection fails first, then the new connection that replaces it. The second
        // failure is free, too, because none of the request was sent.
        let has_other = upstream.picker.has_other(&self.tried, now);
        let dead = self.races.lost && (error.is_about_connecting() || has_other);
        let free = self.free() + u32::from(dead);
        let safe = error.is_before_sending() || error.is_before_response() && repeatable;
        let refused = matches!(error, Error::Connect(_))
            && has_other
            && upstream.settings.retries > 0
            && self.races.refused < REFUSED_MOST;
        let hung = *error == Error::OriginHangs
            && has_other
            && upstream.settings.retries > 0
            && self.races.hung < HUNG_MOST;
        let unprocessed = *error == Error::OriginRefused
            && (has_other || self.next.refused_alone)
            && self.races.unprocessed < UNPROCESSED_MOST;
        let raced = !unprocessed && self.next.fresh && !self.races.lost_now;
        let raced_again = raced && self.races.lost && upstream.settings.retries > 0;
        let beyond = refused || hung || raced_again;
        if !safe || !beyond && self.made.saturating_sub(free) > upstream.settings.retries {
            return false;
        }
        // The last server is asked again only if the failure was not its own and it is up.
        let same_server = !error.is_of_the_server()
            && self.tried.last().is_some_and(|last| self.next.fresh || upstream.picker.is_up(last, now));
        if !same_server && !has_other {
            return false;
        }
        if unprocessed {
            self.races.unprocessed += 1;
        } else if raced {
            self.races.lose();
        } else if active.may_retry(now) {
            self.races.lost_now = false;
        } else {
            return false;
        }
        self.races.refused += u8::from(refused);
        self.races.hung += u8::from(hung);
        if !self.next.fresh {
            self.next.server = upstream.picker.other(self.key, &self.tried, now).map(ServerNumber::new);
        }
        let again = same_server || self.next.server.is_some();
        if again && !unprocessed {
            upstream.metrics.retries.inc();
        }
        again
    }
}
