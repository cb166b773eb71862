//! The rest of abandoned responses.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::members::Upstream;
use super::origin::Origin;
use crate::link::{Link, ReceiveOutcome};

/// The most bytes of a rest that are read. Beyond it, the origin's connection ends, or its stream
/// is reset.
const MOST: usize = 64 * 1024;

/// The time limit for reading the rest.
const WITHIN: Duration = Duration::from_secs(2);

impl Upstream {
    /// The exchange with a server is over: keeps the connection for another one if it is reusable.
    pub fn recycle(self: &Arc<Self>, mut origin: Origin, now: Instant) {
        self.note_excess(&mut origin, now);
        let Link::H2(link) = &mut origin.link else { return self.keep(origin, now) };
        let Some(why) = link.take_refused() else { return };
        // Origins may end a stream after a head that has no body with a frame of its own. Were it
        // reset instead, they would have had enough of us after some.
        if let Poll::Ready(found) = link.poll_refused(why, &mut Context::from_waker(Waker::noop())) {
            return self.count_excess(u64::from(found));
        }
        let upstream = Arc::clone(self);
        let end = async move {
            if let Link::H2(link) = &mut origin.link {
                let found = poll_fn(|cx| link.poll_refused(why, cx)).await;
                upstream.count_excess(u64::from(found));
            }
        };
        tokio::spawn(tokio::time::timeout(WITHIN, end));
    }

    /// Reads and drops the rest of a response, if that is short, so that its connection can be
    /// kept.
    pub fn drop_rest(self: &Arc<Self>, mut origin: Origin) {
        if let Link::H2(link) = &mut origin.link {
            link.take_refused();
        }
        let mut left = MOST;
        // Mostly, the whole rest arrived with the head.
        match poll_drop(&mut origin, &mut left, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(())) => {
                let now = self.clock.now();
                self.note_excess(&mut origin, now);
                return self.keep(origin, now);
            }
            Poll::Ready(None) => return,
            Poll::Pending => {}
        }
        let upstream = Arc::clone(self);
        let drop = async move {
            poll_fn(|cx| poll_drop(&mut origin, &mut left, cx)).await?;
            let now = upstream.clock.now();
            upstream.note_excess(&mut origin, now);
            upstream.keep(origin, now);
            Some(())
        };
        tokio::spawn(tokio::time::timeout(WITHIN, drop));
    }
}

/// Reads the rest of a body and drops it; `None` where that is more than `left`, or the origin
/// fails.
fn poll_drop(origin: &mut Origin, left: &mut usize, cx: &mut Context<'_>) -> Poll<Option<()>> {
    loop {
        match ready!(origin.link.poll_receive(cx)) {
            Ok(ReceiveOutcome::Data) => {
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
