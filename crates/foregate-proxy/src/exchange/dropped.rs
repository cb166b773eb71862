//! Responses of origins that the client does not get: a step has made another one, or needs the whole of what they are a part of.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use foregate_module::Source;
use foregate_wire::{BodyLength, Method, NameId};

use super::{Again, Exchange, Step};
use crate::link::Received;
use crate::upstream::Origin;

/// The most that is read of a response that the client does not get, bytes. Beyond, the origin's connection ends.
const DROPPED_BODY: usize = 64 * 1024;

/// How long that may take.
const DROPPED_WITHIN: Duration = Duration::from_secs(2);

impl Exchange<'_> {
    /// Whether the origin has sent a part of a body of which a step needs all. That is asked for once: the request has no `Range`
    /// then.
    pub(super) fn needs_whole(&mut self) -> bool {
        let tries_parts = self.run.as_ref().is_some_and(|run| !run.plan.parts().is_empty());
        if !tries_parts || !self.request.length.is_empty() || !self.asks_for_part() {
            return false;
        }
        self.response_is_from(Source::Upstream);
        let config = Arc::clone(&self.config);
        let Some(plan) = self.run.as_ref().map(|run| Arc::clone(&run.plan)) else { return false };
        let Some((mut view, state)) = self.view() else { return false };
        let pipeline = &config.settings.pipeline;
        match catch_unwind(AssertUnwindSafe(|| pipeline.asks_whole(&plan, &mut view, state))) {
            Ok(None) => false,
            Ok(Some(step)) => {
                if let Some(counters) = self.proxy.steps.get(step) {
                    counters.count("whole-asked", 1);
                }
                true
            }
            Err(_) => {
                self.proxy.metrics.panics.inc();
                false
            }
        }
    }

    /// Whether the request asks for a part of what is there (RFC 9110, section 14.2).
    pub(super) fn asks_for_part(&self) -> bool {
        let head = &self.request.head;
        matches!(head.method, Method::Get | Method::Head) && head.headers.contains(NameId::Range)
    }

    /// Asks the origin again, for all of the body of which it has sent a part; no step of the response has seen that.
    pub(super) fn ask_whole(&mut self, origin: Origin, length: BodyLength) -> Step {
        self.drop_response(origin, length);
        self.request.ask_for_all();
        // This is no failure: the second request has as many attempts as the first.
        let answered = u8::try_from(self.attempts).unwrap_or(u8::MAX);
        self.again = Again { answered, ..Again::default() };
        Step::Connect
    }

    /// The client gets another response: what the origin still sends is read and dropped, if that is little, so that its
    /// connection can be kept.
    pub(super) fn drop_response(&mut self, mut origin: Origin, length: BodyLength) {
        if length == BodyLength::Tunnel {
            return origin.link.abort();
        }
        let Some(upstream) = self.upstream.clone() else { return };
        if !self.upload.is_done() || self.upload.gave_up() {
            return;
        }
        let mut left = DROPPED_BODY;
        // Mostly all of it has come with the head.
        match poll_drop(&mut origin, &mut left, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(())) => return upstream.recycle(origin, Instant::now()),
            Poll::Ready(None) => return,
            Poll::Pending => {}
        }
        let drop = async move {
            poll_fn(|cx| poll_drop(&mut origin, &mut left, cx)).await?;
            upstream.recycle(origin, Instant::now());
            Some(())
        };
        tokio::spawn(tokio::time::timeout(DROPPED_WITHIN, drop));
    }
}

/// Reads the rest of a body and drops it; `None` where that is more than `left`, or the origin fails.
fn poll_drop(origin: &mut Origin, left: &mut usize, cx: &mut Context<'_>) -> Poll<Option<()>> {
    loop {
        match ready!(origin.link.poll_receive(cx)) {
            Ok(Received::Data) => {
                let count = origin.link.data().len();
                let Some(less) = left.checked_sub(count) else { return Poll::Ready(None) };
                *left = less;
                origin.link.consume(count);
            }
            Ok(_) => return Poll::Ready(Some(())),
            Err(_) => return Poll::Ready(None),
        }
    }
}
