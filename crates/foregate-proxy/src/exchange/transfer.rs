//! Moving the bodies of an exchange, both at once.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_module::FetchRequest;

use super::progress::AwaitedEvent;
use super::reply::Sender;
use super::send::give_up;
use super::state::{Exchange, Step, StepResult};
use crate::error::Error;
use crate::link::Link;
use crate::link::copy::WaitingFor;
use crate::time::clock;

/// Moves both bodies. Without a `sender`, the response's body is in memory or in a file.
pub(super) async fn run(exchange: &mut Exchange<'_>, mut sender: Option<Sender>) -> StepResult {
    exchange.down.progress.restart(clock::now());
    loop {
        let moved = poll_fn(|cx| {
            let polled = poll_transfer(exchange, cx, sender.as_mut());
            let sheds = polled.is_pending() && exchange.proxy.shedding.has_begun() && exchange.may_move();
            if sheds { Poll::Ready(Ok(None)) } else { polled }
        })
        .await;
        let answered = match moved {
            Ok(None) if !exchange.down.download.is_done() => {
                return Ok(Step::Move(Box::new(Step::Transfer(sender))));
            }
            Ok(None) => break,
            Ok(Some(question)) => Box::pin(fetch_for_filter(exchange, question)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            return Ok(give_up(exchange, sender.and_then(Sender::origin), error));
        }
        exchange.down.progress.restart(clock::now());
    }
    if let Some(mut origin) = sender.and_then(Sender::origin) {
        if exchange.down.upload.is_done() && !exchange.down.upload.gave_up() {
            if let Some(upstream) = exchange.upstream() {
                upstream.connections.recycle(origin, clock::now());
            }
        } else if origin.link.is_h2() {
            origin.link.abort();
        }
    }
    Ok(Step::Done)
}

/// Makes the fetch of a response filter; the body waits.
async fn fetch_for_filter(exchange: &mut Exchange<'_>, question: FetchRequest) -> Result<(), Error> {
    let step = exchange.down.download.filter.as_ref().map_or("", |filter| filter.asking());
    let answer = exchange.fetch_one(step, question).await.map_err(Error::Client)?;
    let Some(filter) = &mut exchange.down.download.filter else { return Ok(()) };
    filter.answer(answer).map_err(Error::of_download)
}

/// Moves the rest of the request's body while the response is being sent.
pub(super) fn poll_upload(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    origin: &mut Link,
) -> Result<(), Error> {
    exchange.down.poll_upload(cx, origin).inspect_err(|_| {
        exchange.down.client.close = true;
        exchange.down.upload.give_up();
    })
}

/// Moves both bodies until the response is complete, or until a filter asks for a fetch, which is returned.
fn poll_transfer(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    mut sender: Option<&mut Sender>,
) -> Poll<Result<Option<FetchRequest>, Error>> {
    let uploaded = match sender.as_deref_mut() {
        Some(Sender::Origin(origin)) => poll_upload(exchange, cx, &mut origin.link),
        _ => Ok(()),
    };
    let source = sender.as_deref_mut().map(Sender::link);
    let downloaded = exchange.down.download.poll(cx, source, &mut exchange.down.client.link);
    if exchange.down.download.is_done() && matches!(downloaded, Poll::Ready(Ok(()))) {
        // The response is complete, so the exchange has succeeded even if the request's body has failed.
        return Poll::Ready(Ok(None));
    }
    if let Some((origin, used_file)) = sender.and_then(Sender::free) {
        exchange.origin_is_free(origin, used_file);
    }
    uploaded?;
    if exchange.down.upload.gave_up() {
        exchange.down.client.drop_body(cx, exchange.config.settings.limits.early_response_drain);
    }
    if let Poll::Ready(Err(error)) = downloaded {
        return Poll::Ready(Err(Error::of_download(error)));
    }
    if let Some(question) = exchange.down.download.question() {
        return Poll::Ready(Ok(Some(question)));
    }
    let now = clock::now();
    if let Poll::Ready(error) = exchange.down.poll_gone_at(cx, now) {
        return Poll::Ready(Err(error));
    }
    exchange.down.progress.observe(exchange.down.upload.moved, exchange.down.download.progress(), now);
    let down = match exchange.down.download.waiting {
        WaitingFor::Sink => AwaitedEvent::ClientRead,
        // Each side may wait for the other (gRPC streams in both directions): while the request's body is not complete, the
        // origin may have nothing to send, and the client may wait for the response. So the client's least rate does not apply
        // once the response has begun.
        _ if exchange.down.upload.waiting == WaitingFor::Source => AwaitedEvent::EitherBody,
        _ => AwaitedEvent::OriginBody,
    };
    let awaited = match exchange.down.upload.waiting {
        WaitingFor::Sink => &[down, AwaitedEvent::OriginRead][..],
        _ => &[down],
    };
    let upstream = exchange.upstream().map(|upstream| &*upstream.settings);
    exchange.down.poll_deadline(cx, upstream, awaited, now).map_ok(|()| None)
}
