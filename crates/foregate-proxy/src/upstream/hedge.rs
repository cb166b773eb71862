//! Hedging: a second attempt in parallel to one without a response yet. The first response counts.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_wire::ResponseHead;

use super::members::Upstream;
use super::opening::OpeningTerms;
use super::origin::Origin;
use super::traced::{AttemptEnd, AttemptSpans};
use crate::error::Error;
use crate::message::request::Request;
use crate::time::clock;

/// The most interim responses to a second attempt. If there are more, the attempt has failed.
const INTERIM_MOST: usize = 16;

/// The outcome of two attempts.
pub(super) enum Hedged {
    /// The first attempt has a response, or no attempt has one.
    First(Result<(), Error>),
    /// The second attempt has a response.
    Second(Box<Origin>, Box<ResponseHead>),
    /// The second attempt has failed, and the first one continues.
    SecondFailed(Error),
    /// The server of the second attempt hangs as well, and another server may be tried in its place.
    SecondHangs,
}

/// A second attempt. Dropping it cancels the attempt.
pub(super) struct HedgedAttempt<'a> {
    upstream: &'a Arc<Upstream>,
    server: usize,
    began: Instant,
    /// True until the attempt has a result.
    is_open: bool,
    answer: HedgedAnswer<'a>,
    /// Records the attempt, if the request's trace is recorded.
    spans: Option<Box<AttemptSpans>>,
}

type HedgedAnswer<'a> = Pin<Box<dyn Future<Output = Result<(Origin, ResponseHead), Error>> + Send + 'a>>;

impl<'a> HedgedAttempt<'a> {
    /// Begins a second attempt. The request has no body.
    pub(super) fn begin(
        upstream: &'a Arc<Upstream>,
        server: usize,
        terms: OpeningTerms<'a>,
        request: Request,
        spans: Option<Box<AttemptSpans>>,
    ) -> Self {
        let began = clock::now();
        let mut terms = terms;
        let answer = Box::pin(async move {
            loop {
                let mut origin = upstream.connections.open(server, &terms, began).await?;
                let (asked, now) = (ask(&mut origin, upstream, &request).await, clock::now);
                match asked {
                    Ok(head) if is_refusal(head.status) => {
                        let took = now().saturating_duration_since(began);
                        upstream.judge.answered(server, head.status, took, now());
                        origin.link.abort();
                        return Err(Error::Unwanted);
                    }
                    Ok(head) => return Ok((origin, head)),
                    Err(failed) if !origin.is_race(&failed) => {
                        upstream.judge.attempt_failed(server, &origin, began, now(), &failed);
                        return Err(failed);
                    }
                    Err(failed) if terms.fresh => return Err(failed),
                    // The kept connection ended just as the request arrived.
                    Err(_) => terms.fresh = true,
                }
            }
        });
        Self { upstream, server, began, is_open: true, answer, spans }
    }

    /// Ready with the head of the final response, or with the reason for a failure.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Origin, ResponseHead), Error>> {
        let polled = self.answer.as_mut().poll(cx);
        if let Poll::Ready(answer) = &polled
            && let Some(spans) = &mut self.spans
        {
            match answer {
                Ok((origin, _)) => spans.connected(origin.reused, origin.link.is_h2()),
                Err(error) => spans.end(AttemptEnd::Failed(error)),
            }
        }
        if let Poll::Ready(Err(_)) = polled {
            self.is_open = false;
        }
        polled
    }

    /// The server of the attempt, and the start of the attempt.
    pub(super) fn place(&self) -> (usize, Instant) {
        (self.server, self.began)
    }

    /// Marks the attempt as the one with the response that counts. Returns its server, its start time and its record.
    pub(super) fn has_won(&mut self) -> (usize, Instant, Option<Box<AttemptSpans>>) {
        self.is_open = false;
        (self.server, self.began, self.spans.take())
    }
}

impl Drop for HedgedAttempt<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.upstream.judge.gave_up(self.server, self.began, clock::now());
        }
    }
}

/// Returns true if a response says that its server cannot answer now, so that the first server may still do better.
fn is_refusal(status: u16) -> bool {
    status >= 500 || status == 429
}

/// Sends a request and waits for the head of its final response. Interim responses are dropped.
async fn ask(origin: &mut Origin, upstream: &Upstream, request: &Request) -> Result<ResponseHead, Error> {
    origin.send_head(request, &upstream.settings).await?;
    let mut head = ResponseHead::new();
    for _ in 0..INTERIM_MOST {
        poll_fn(|cx| {
            if let Poll::Ready(Err(_)) = origin.link.poll_flush(cx) {
                // An error in sending is ignored: the origin may have closed its side after a response,
                // which is read next.
            }
            origin.poll_head(cx, &upstream.connections, &mut head)
        })
        .await?;
        if head.status >= 200 {
            return Ok(head);
        }
    }
    Err(Error::Interim("too many interim responses"))
}
