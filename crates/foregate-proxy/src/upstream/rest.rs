//! Reads the rest of abandoned responses, so that their connections can be reused.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::opening::Connections;
use super::origin::Origin;
use super::record::AwaitedRest;
use super::server::Server;
use crate::link::{Link, ReceiveOutcome};

/// The most bytes of a rest that are read. If there are more, the connection is closed or, on HTTP/2, the
/// stream is reset.
const MOST: usize = 64 * 1024;

/// The time limit for reading the rest, and the most responses of a server whose rest is awaited at the same time. Beyond
/// either, the connection is closed or, on HTTP/2, the stream is reset. Without a bound, a server that stalls in bodies that
/// nobody wants would tie up descriptors.
const WITHIN: Duration = Duration::from_millis(500);
const AWAITED_MOST: u32 = 16;

/// The time limit for the end of an HTTP/2 stream without a body.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl Connections {
    /// Records bytes after the end of a response on a connection that is no longer used. The client has
    /// the whole response, so this is no failure of the request or the server.
    fn note_excess(&self, origin: &mut Origin, now: Instant) {
        if !origin.has_excess() {
            return;
        }
        match self.servers.get(origin.server()) {
            Some(server) if !origin.link.is_h2() => {
                self.excess.note(server, now);
            }
            // On HTTP/2, excess bytes belong to their stream and cannot affect another request.
            _ => self.excess.count(1),
        }
    }

    /// Ends the exchange with a server, and keeps the connection for another one if it is reusable.
    pub fn recycle(self: &Arc<Self>, mut origin: Origin, now: Instant) {
        self.note_excess(&mut origin, now);
        let Link::H2(link) = &mut origin.link else { return self.keep(origin, now) };
        let Some(why) = link.take_refused() else { return };
        // An origin may end a stream without a body by a separate frame, so the end is waited for. If
        // we reset such streams instead, the origin would soon refuse our connection.
        if let Poll::Ready(found) = link.poll_refused(why, &mut Context::from_waker(Waker::noop())) {
            return self.excess.count(u64::from(found));
        }
        let connections = Arc::clone(self);
        let end = async move {
            if let Link::H2(link) = &mut origin.link {
                let found = poll_fn(|cx| link.poll_refused(why, cx)).await;
                connections.excess.count(u64::from(found));
            }
        };
        tokio::spawn(tokio::time::timeout(ENDS_WITHIN, end));
    }

    /// Reads and drops the rest of a response if it is short, so that its connection can be kept.
    pub fn drop_rest(self: &Arc<Self>, mut origin: Origin) {
        if let Link::H2(link) = &mut origin.link {
            link.take_refused();
        }
        let mut left = MOST;
        // Usually, the whole rest has arrived with the head.
        match poll_drop(&mut origin, &mut left, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(())) => {
                let now = self.clock.now();
                self.note_excess(&mut origin, now);
                return self.keep(origin, now);
            }
            Poll::Ready(None) => return,
            Poll::Pending => {}
        }
        let Some(server) = self.servers.get(origin.server()) else { return };
        let Some(awaited) = may_await_rest(server, &origin) else { return };
        // The request is over. Only its connection still counts.
        if server.settings.max_connections.is_none() {
            origin.counts_no_longer();
        }
        let connections = Arc::clone(self);
        let drop = async move {
            let _awaited = awaited;
            poll_fn(|cx| poll_drop(&mut origin, &mut left, cx)).await?;
            let now = connections.clock.now();
            connections.note_excess(&mut origin, now);
            connections.keep(origin, now);
            Some(())
        };
        tokio::spawn(tokio::time::timeout(WITHIN, drop));
    }
}

/// Counts a response whose rest is awaited. `None` if its connection cannot be reused, or if too many are awaited: more than
/// a quarter of the server's connections should not be kept from requests.
fn may_await_rest(server: &Server, origin: &Origin) -> Option<AwaitedRest> {
    if !origin.is_kept_alive() {
        return None;
    }
    let most = server.settings.max_connections.map_or(AWAITED_MOST, |most| AWAITED_MOST.min(most / 4));
    server.record.await_rest(most)
}

/// Reads and drops the rest of a body. `None` if the rest is longer than `left`, or if the origin
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
