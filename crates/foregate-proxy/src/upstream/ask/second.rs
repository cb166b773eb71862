//! A second attempt at another server, beside one that is slow.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_wire::BodyLength;

use super::hanging::{HeadWait, next_look, poll_try_timeout};
use super::{Ask, Asker};
use crate::error::{Error, Side};
use crate::time::clock;
use crate::upstream::hedge::{Hedged, HedgedAttempt};
use crate::upstream::opening::OpeningTerms;
use crate::upstream::origin::Origin;

impl<'a> Ask<'a> {
    /// Waits for the head of a response, from a second server as well if the request may go to one.
    pub(super) async fn wait_for_head<A: Asker>(&mut self, asker: &mut A) -> Result<(), Error> {
        let hedge_after = self.upstream.judge.hedge_after().filter(|_| self.is_fit_for_two(asker));
        let at = hedge_after.map(|after| self.began + after);
        if at.is_none() && poll_fn(|cx| self.poll_head(cx, asker)).await? == HeadWait::Arrived {
            return Ok(());
        }
        // Boxed, because few requests need it, and it would enlarge the future of every request.
        Box::pin(self.hedged_head(asker, at)).await
    }

    /// Returns true if two servers may get the request at the same time.
    pub(super) fn is_fit_for_two<A: Asker>(&self, asker: &mut A) -> bool {
        let (request, terms) = (asker.heads().0, &self.terms);
        !self.is_doubled
            && request.is_repeatable()
            && request.length.is_empty()
            && request.upgrade.is_none()
            && request.verbatim.is_none()
            && self.interim == 0
            && !terms.authenticates
            && self.upstream.settings.send_proxy.is_none()
    }

    /// Waits for the head of a response. At the time `at`, or now if the first server may hang (`None`), the request is also
    /// sent to a second server, and the first final response counts.
    pub(super) async fn hedged_head<A: Asker>(
        &mut self,
        asker: &mut A,
        at: Option<Instant>,
    ) -> Result<(), Error> {
        let mut in_doubt = at.is_none();
        if let Some(at) = at {
            let first = poll_fn(|cx| match self.poll_head(cx, asker) {
                Poll::Pending => asker.poll_until(cx, at).map(|()| None),
                Poll::Ready(result) => Poll::Ready(Some(result)),
            });
            match first.await {
                Some(Ok(HeadWait::Arrived)) => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok(HeadWait::InDoubt)) => in_doubt = true,
                None => {}
            }
        }
        self.is_doubled = true;
        let mut next = self.begin_second(asker, false);
        while let Some(second) = &mut next {
            match poll_fn(|cx| self.poll_both(cx, asker, second)).await {
                Hedged::First(result) => return result,
                Hedged::Second(origin, head) => {
                    self.second_has_won(second, *origin, (head.status, in_doubt));
                    *asker.heads().1 = *head;
                    return Ok(());
                }
                Hedged::SecondFailed(error) => {
                    let may_replace = error != Error::Unwanted && self.may_replace_second(clock::now());
                    next = if may_replace { self.begin_second(asker, true) } else { None };
                }
                // Without a third attempt, the second one goes on.
                Hedged::SecondHangs => next = self.begin_second(asker, true).or(next),
            }
        }
        poll_fn(|cx| self.poll_head(cx, asker)).await.map(|_| ())
    }

    /// Begins an attempt at another server in parallel to the present one, if there is another server and the budget
    /// allows it. If `replaces` is true, it is in place of the second attempt so far.
    fn begin_second<A: Asker>(&mut self, asker: &mut A, replaces: bool) -> Option<HedgedAttempt<'a>> {
        let now = clock::now();
        let server = self.attempts.second(self.upstream, now)?;
        if !self.active.may_retry(now) {
            return None;
        }
        match replaces {
            true => self.attempts.replace_second(server),
            false => self.attempts.begin_second(server),
        }
        self.look_at = next_look(self.began, now, self.upstream.judge.first_look().unwrap_or_default());
        self.upstream.metrics.hedges.inc();
        let mut request = asker.heads().0.as_sent(BodyLength::Empty);
        let spans = self.spans.as_ref().zip(self.upstream.servers.get(server)).map(|(spans, server)| {
            let mut spans = spans.beside();
            spans.begin(self.upstream, server, &request, self.attempts.made());
            spans.tell(&mut request);
            spans
        });
        let diversions = self.rules.as_ref().map_or(&[][..], |rules| rules.diversions());
        request.divert(diversions);
        let terms = OpeningTerms { fresh: false, ..self.terms };
        Some(HedgedAttempt::begin(self.upstream, server, terms, request, spans))
    }

    /// Waits for the first of two responses. If the first server fails, only the second one is waited for.
    fn poll_both<A: Asker>(
        &mut self,
        cx: &mut Context<'_>,
        asker: &mut A,
        second: &mut HedgedAttempt<'a>,
    ) -> Poll<Hedged> {
        let failed = match second.poll(cx) {
            Poll::Ready(Ok((origin, head))) => {
                return Poll::Ready(Hedged::Second(Box::new(origin), Box::new(head)));
            }
            Poll::Ready(Err(error)) => Some(error),
            Poll::Pending => None,
        };
        if let Some(origin) = &mut self.origin {
            if let Some(error) = failed {
                return Poll::Ready(Hedged::SecondFailed(error));
            }
            let polled = match asker.poll_body(cx, &mut origin.link) {
                Ok(true) => origin.poll_head(cx, &self.upstream.connections, asker.heads().1),
                Ok(false) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            };
            match polled {
                Poll::Ready(Err(error)) if error.side() == Side::Upstream => {
                    self.end_attempt(&error);
                }
                Poll::Ready(result) => return Poll::Ready(Hedged::First(result)),
                Poll::Pending => {}
            }
        }
        if let Some(error) = failed {
            return Poll::Ready(Hedged::First(Err(error)));
        }
        if self.origin.is_some() && poll_try_timeout(self, cx, asker).is_ready() {
            return Poll::Ready(Hedged::First(Err(Error::TryTimeout)));
        }
        if self.poll_second_hanging(cx, asker, second.place()).is_ready() {
            return Poll::Ready(Hedged::SecondHangs);
        }
        asker.poll_deadline(cx, &self.upstream.settings).map(Hedged::First)
    }

    /// Ends the first attempt, because the second server has responded first. If the second attempt began `in_doubt` of the
    /// first server, that may count as a failure of the first server. A hedge began too early to tell.
    fn second_has_won(
        &mut self,
        second: &mut HedgedAttempt<'a>,
        origin: Origin,
        (status, in_doubt): (u16, bool),
    ) {
        let (upstream, now) = (self.upstream, clock::now());
        let (winner, began, spans) = second.has_won();
        if let (Some(mut loser), Some(server)) = (self.origin.take(), self.attempts.last()) {
            // If the second server has not been much quicker, the request takes long, not the first server.
            let was_quick = status < 400
                && 2 * now.saturating_duration_since(began) < now.saturating_duration_since(self.began);
            if in_doubt && was_quick && upstream.judge.may_hang(server, now) {
                upstream.judge.attempt_failed(server, &loser, self.began, now, &Error::OriginHangs);
            } else {
                upstream.judge.lost(server, self.began, now);
            }
            loser.link.abort();
        }
        // The span of the first attempt ends as cancelled.
        self.spans = spans;
        self.attempts.second_has_won(winner);
        (self.began, self.opened, self.look_at, self.first_byte) = (began, 0, 0, None);
        self.reused = Some(origin.reused);
        self.origin = Some(origin);
        upstream.metrics.hedges_won.inc();
    }
}
