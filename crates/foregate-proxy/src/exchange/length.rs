//! Recognises HTTP/2 requests with an empty body.
//!
//! A client may end a stream with an empty DATA frame after its HEADERS, even if it has sent `content-length: 0`. An
//! origin over HTTP/1.1 would get such a request with a chunked body, and many origins answer that with 411.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_wire::{BodyLength, Version, content_length};

use super::state::{Exchange, Step, StepResult};
use crate::error::Error;
use crate::link::copy::BodyCopy;
use crate::link::{LinkError, ReceiveOutcome};
use crate::time::clock;

/// Checks if the body of a request is empty, and corrects its length. It is empty if its end has arrived without
/// data. If the client has announced an empty body, the end is awaited: if data follows nevertheless, the request
/// must not reach an origin as a complete one.
pub(super) async fn settle_length(exchange: &mut Exchange<'_>, next: Step) -> StepResult {
    let goes_on = matches!(next, Step::Screen | Step::Prepare(_) | Step::Ask | Step::Files { .. });
    let is_open =
        exchange.request.head.version == Version::Http2 && exchange.request.length == BodyLength::Chunked;
    if !goes_on || !is_open {
        return Ok(next);
    }
    let is_announced = content_length(&exchange.request.head.headers) == Ok(Some(0));
    if is_announced && std::mem::take(&mut exchange.request.expect_continue) {
        // The client may wait for a 100 before it ends its stream.
        let none = foregate_wire::HeaderList::new();
        exchange.down.client.send_interim(exchange.request, 100, &none).map_err(Error::Client)?;
    }
    if poll_fn(|cx| poll_empty(exchange, cx, is_announced)).await? {
        exchange.request.length = if is_announced { BodyLength::Fixed(0) } else { BodyLength::Empty };
        exchange.request.expect_continue = false;
        exchange.down.upload = BodyCopy::done();
    }
    Ok(next)
}

/// Ready with true if the body has ended without data and without trailers. It waits for the end only if
/// `is_announced`.
fn poll_empty(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    is_announced: bool,
) -> Poll<Result<bool, Error>> {
    let link = &mut exchange.down.client.link;
    match link.poll_receive(cx) {
        Poll::Ready(Ok(ReceiveOutcome::End)) => Poll::Ready(Ok(link.trailers().is_empty())),
        Poll::Ready(Ok(ReceiveOutcome::Data)) => Poll::Ready(Ok(false)),
        Poll::Ready(Err(error)) => {
            exchange.down.client.close |= matches!(error, LinkError::Body(_) | LinkError::Length);
            Poll::Ready(Err(Error::Client(error)))
        }
        Poll::Pending if is_announced => {
            let deadline = exchange.down.progress.client_deadline(exchange.down.timeouts, clock::now());
            exchange.down.timer.poll(cx, deadline).map(|()| Err(Error::BodyTimeout))
        }
        Poll::Pending => Poll::Ready(Ok(false)),
    }
}
