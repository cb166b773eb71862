//! Servers that hang or are too slow while a request waits for them.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::{Ask, Asker};
use crate::error::Error;
use crate::upstream::attempts::Attempts;
use crate::upstream::judging::look_again;
use crate::upstream::members::Upstream;
use crate::upstream::origin::Origin;
use crate::upstream::retry::{RetryCause, Rules};

/// The result of waiting for the head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadWait {
    /// The head is there.
    Arrived,
    /// The server may hang, and the request may be sent to a second server as well.
    InDoubt,
}

/// Returns true if another attempt may follow one that fails with `error`.
pub(super) fn has_another_attempt(
    (attempts, rules): (&Attempts, Option<&Rules<'_>>),
    error: Error,
    upstream: &Upstream,
    now: Instant,
) -> bool {
    match rules {
        None => attempts.has_another(upstream, now),
        Some(rules) => rules.has_another(RetryCause::Error(error), attempts, upstream, now),
    }
}

/// The time of the next check whether a server hangs, `pause` after `now`, in milliseconds after `began`. It is rounded up, so that
/// a server that is silent from now on will have been so for all of `pause`.
pub(super) fn next_look(began: Instant, now: Instant, pause: Duration) -> u32 {
    let after = now.saturating_duration_since(began) + pause;
    u32::try_from(after.as_millis() + 1).unwrap_or(u32::MAX)
}

/// Ready when the attempt has had the time of `try-timeout`. For a request with a body, the time starts again with each part
/// that the origin gets, so that a slow client does not make its origin count as failed.
pub(super) fn poll_try_timeout<A: Asker>(ask: &Ask<'_>, cx: &mut Context<'_>, asker: &mut A) -> Poll<()> {
    let Some(timeout) = ask.rules.as_ref().and_then(|rules| rules.try_timeout) else { return Poll::Pending };
    let Some(since) = asker.awaits_origin_since() else { return Poll::Pending };
    let since = if asker.heads().0.length.is_empty() { ask.began } else { since };
    asker.poll_until(cx, since + timeout)
}

impl Ask<'_> {
    /// Ready with an error when the server hangs while the attempt has no part of a response, and without one when it may
    /// hang and the request may be sent to a second server as well.
    pub(super) fn poll_hanging<A: Asker>(
        &mut self,
        cx: &mut Context<'_>,
        asker: &mut A,
    ) -> Poll<Result<HeadWait, Error>> {
        let Some(first_look) = self.upstream.judge.first_look().filter(|_| !self.terms.authenticates) else {
            return Poll::Pending;
        };
        loop {
            let look_at = match self.look_at {
                0 => self.opened_at() + first_look,
                after => self.began + Duration::from_millis(after.into()),
            };
            ready!(asker.poll_until(cx, look_at));
            let now = self.upstream.clock.now();
            self.look_at = next_look(self.began, now, look_again(now.saturating_duration_since(self.began)));
            let awaits_body = asker.awaits_body();
            self.origin.iter_mut().for_each(|origin| origin.set_waiting(!awaits_body, now));
            let Some(server) = self.attempts.last().filter(|_| !awaits_body) else { continue };
            let hangs = self.upstream.judge.hangs(server, now);
            if self.origin.as_ref().is_none_or(Origin::has_begun) {
                continue;
            }
            if hangs {
                return Poll::Ready(Err(Error::OriginHangs));
            }
            if !self.is_doubled && self.upstream.judge.may_hang(server, now) && self.may_double(asker, now) {
                return Poll::Ready(Ok(HeadWait::InDoubt));
            }
        }
    }

    /// Ready when the server of the second attempt may hang as well, and the attempt may be replaced by one at another
    /// server.
    pub(super) fn poll_second_hanging<A: Asker>(
        &mut self,
        cx: &mut Context<'_>,
        asker: &mut A,
        (server, began): (usize, Instant),
    ) -> Poll<()> {
        if self.upstream.judge.first_look().is_none() {
            return Poll::Pending;
        }
        loop {
            ready!(asker.poll_until(cx, self.began + Duration::from_millis(self.look_at.into())));
            let (now, judge) = (self.upstream.clock.now(), &self.upstream.judge);
            let hangs = judge.hangs(server, now) || judge.may_hang(server, now);
            self.look_at = next_look(self.began, now, look_again(now.saturating_duration_since(began)));
            if hangs && self.may_replace_second(now) {
                return Poll::Ready(());
            }
        }
    }

    /// Returns true if an attempt at another server may replace the second attempt, so that there are never more than two at
    /// the same time.
    pub(super) fn may_replace_second(&self, now: Instant) -> bool {
        let is_allowed = match self.rules.as_deref() {
            None => self.upstream.settings.retries > 0,
            Some(_) => has_another_attempt(
                (&self.attempts, self.rules.as_deref()),
                Error::OriginHangs,
                self.upstream,
                now,
            ),
        };
        is_allowed && self.attempts.may_replace_second(self.upstream, now) && self.active.has_budget(now)
    }

    /// Returns true if the request may be sent to a second server because the first one may hang. The conditions for a
    /// further attempt after a timeout apply; the budget is asked when the second attempt begins. A client that
    /// belongs to a server, by a cookie or a hash, may have a session there that other servers do not know, so doubt
    /// is not enough.
    fn may_double<A: Asker>(&self, asker: &mut A, now: Instant) -> bool {
        let so_far = (&self.attempts, self.rules.as_deref());
        let may_follow = || has_another_attempt(so_far, Error::OriginHangs, self.upstream, now);
        let belongs_to_server = self.attempts.has_key() || self.upstream.settings.sticky.is_some();
        // Of two deletions of the same thing, the second one fails.
        let is_safe = asker.heads().0.head.method.is_safe();
        !belongs_to_server && is_safe && self.is_fit_for_two(asker) && may_follow()
    }
}
