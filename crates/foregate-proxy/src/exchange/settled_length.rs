//! Bodies of HTTP/2 that turn out to be none.
//!
//! A client may end a stream with an empty DATA frame behind its HEADERS, also where it has said `content-length: 0`. An origin over
//! HTTP/1.1 would get that as a chunked body, for which many answer 411.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_wire::{BodyLength, Version, content_length};

use super::{Exchange, Step};
use crate::error::Error;
use crate::link::copy::Copy;
use crate::link::{LinkError, Received};
use crate::time::clock;

impl Exchange<'_> {
    /// Looks whether the body of a request is empty, for its length to be said as what it is: where the end is there already, and where
    /// the client has announced it. That is waited for, since what does not keep to it must not reach an origin as a whole request.
    pub(super) async fn settle_length(&mut self, next: Step) -> Step {
        let goes_on = matches!(next, Step::Screen | Step::Prepare(_));
        let is_open =
            self.request.head.version == Version::Http2 && self.request.length == BodyLength::Chunked;
        if !goes_on || !is_open {
            return next;
        }
        let is_announced = content_length(&self.request.head.headers) == Ok(Some(0));
        if is_announced && std::mem::take(&mut self.request.expect_continue) {
            // The client may wait for that with the end of its stream.
            let none = foregate_wire::HeaderList::new();
            if let Err(error) = self.down.client.send_interim(self.request, 100, &none) {
                return Step::Failed(Error::Client(error));
            }
        }
        match poll_fn(|cx| self.poll_empty(cx, is_announced)).await {
            Ok(false) => next,
            Ok(true) => {
                self.request.length = if is_announced { BodyLength::Fixed(0) } else { BodyLength::Empty };
                self.request.expect_continue = false;
                self.down.upload = Copy::done();
                next
            }
            Err(error) => Step::Failed(error),
        }
    }

    /// Whether the body has ended without a byte and without trailers; as far as is known, unless its end `is_announced`.
    fn poll_empty(&mut self, cx: &mut Context<'_>, is_announced: bool) -> Poll<Result<bool, Error>> {
        let link = &mut self.down.client.link;
        match link.poll_receive(cx) {
            Poll::Ready(Ok(Received::End)) => Poll::Ready(Ok(link.trailers().is_empty())),
            Poll::Ready(Ok(Received::Data)) => Poll::Ready(Ok(false)),
            Poll::Ready(Err(error)) => {
                self.down.client.close |= matches!(error, LinkError::Body(_) | LinkError::Length);
                Poll::Ready(Err(Error::Client(error)))
            }
            Poll::Pending if is_announced => {
                let deadline = self.down.progress.client_deadline(self.down.timeouts, clock::now());
                self.down.timer.poll(cx, deadline).map(|()| Err(Error::BodyTimeout))
            }
            Poll::Pending => Poll::Ready(Ok(false)),
        }
    }
}
