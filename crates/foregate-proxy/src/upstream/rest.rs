//! What origins still send of responses that nobody needs any more.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::{Origin, Upstream};
use crate::error::Error;
use crate::link::{Link, Received};

/// The most that is read of it, bytes. Beyond, the origin's connection ends, or its stream is reset.
const MOST: usize = 64 * 1024;

/// How long that may take.
const WITHIN: Duration = Duration::from_secs(2);

/// What came where a response has no body.
pub(super) const NO_BODY: Error = Error::Excess("a body behind a head that has none");

impl Upstream {
    /// The exchange with a server is over: its connection is kept for another one if it is fit for that.
    pub fn recycle(self: &Arc<Self>, mut origin: Origin, server: Option<usize>, now: Instant) {
        let Link::H2(link) = &mut origin.link else { return self.keep(origin, now) };
        let Some(why) = link.take_refused() else { return };
        // Origins may end a stream behind a head that has no body with a frame of its own. Were it reset instead, they would have
        // had enough of us after some.
        if let Poll::Ready(found) = link.poll_refused(why, &mut Context::from_waker(Waker::noop())) {
            return self.end_without_body(server, found);
        }
        let upstream = Arc::clone(self);
        let end = async move {
            if let Link::H2(link) = &mut origin.link {
                let found = poll_fn(|cx| link.poll_refused(why, cx)).await;
                upstream.end_without_body(server, found);
            }
        };
        tokio::spawn(tokio::time::timeout(WITHIN, end));
    }

    /// A response without a body is over. The client has it already, so only the server is told of by what was found.
    fn end_without_body(&self, server: Option<usize>, found: bool) {
        if let Some(server) = server.filter(|_| found) {
            let now = Instant::now();
            tracing::debug!(upstream = %self.settings.name, error = %NO_BODY, "an origin broke the protocol");
            self.failed(server, now, now, &NO_BODY);
        }
    }

    /// What the origin still sends is read and dropped, if that is little, so that its connection can be kept.
    pub fn drop_rest(self: &Arc<Self>, mut origin: Origin) {
        if let Link::H2(link) = &mut origin.link {
            link.take_refused();
        }
        let mut left = MOST;
        // Mostly all of it has come with the head.
        match poll_drop(&mut origin, &mut left, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(())) => return self.keep(origin, Instant::now()),
            Poll::Ready(None) => return,
            Poll::Pending => {}
        }
        let upstream = Arc::clone(self);
        let drop = async move {
            poll_fn(|cx| poll_drop(&mut origin, &mut left, cx)).await?;
            upstream.keep(origin, Instant::now());
            Some(())
        };
        tokio::spawn(tokio::time::timeout(WITHIN, drop));
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
