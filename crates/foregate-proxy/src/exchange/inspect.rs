//! Receives the start of a body for the steps that look at it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_wire::{BodyLength, NameId};

use super::progress::AwaitedEvent;
use super::state::Exchange;
use super::transfer::poll_upload;
use crate::error::Error;
use crate::folders::body::FileBody;
use crate::limits::budget::BudgetShare;
use crate::limits::spool::{self, PIECE, Reader, Spool};
use crate::link::copy::WaitingFor;
use crate::link::start::{Front, KeptStart, SharedStart, extend};
use crate::link::turn::give_way;
use crate::link::{Link, LinkError, ReceiveOutcome};
use crate::time::clock;

/// The most of a response's body that is received for steps before its head is sent, bytes.
const HELD: usize = 1 << 20;

/// The longest time that a response is held for steps. It is bounded because the response may be an endless stream with
/// an ordinary media type.
const HELD_FOR: Duration = Duration::from_secs(10);

/// The pause in a body of unknown length after which steps that only watch get the received part: the client may be
/// waiting for a response to that part. A client rarely does that with a body of known length.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest time that a body of unknown length is held if it never pauses, because it may be an endless stream.
/// Only applies if a pause would end the wait.
const STREAM_HELD_FOR: Duration = Duration::from_millis(250);

/// The reason that is reported if a pause keeps steps from seeing the whole body.
const PAUSED: &str = "body_pause";

/// How much of a request's body has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyTaken {
    /// All of it.
    Whole,
    /// The wanted amount, and there is more.
    Full,
    /// A part of the body: the client pauses, and the steps do not insist on the rest.
    Paused,
}

/// The amount received at a time, bytes. After it, other tasks of the worker run.
const BURST: usize = 64 << 10;

/// Returns true if steps need the start of the request's body, and there is one.
pub(super) fn wants_start(exchange: &Exchange<'_>) -> bool {
    exchange.plan().is_some_and(|plan| plan.body() > 0) && !exchange.request.length.is_empty()
}

/// Receives as much of the request's body as the steps of the route need. This part is kept and later sent to the
/// origin first, from memory, or from a file if it is too long for memory.
pub(super) async fn receive_start(exchange: &mut Exchange<'_>) -> Result<(), Error> {
    let Some(plan) = exchange.plan() else { return Ok(()) };
    let wanted = plan.body();
    if exchange.request.expect_continue {
        let none = foregate_wire::HeaderList::new();
        exchange.down.client.send_interim(exchange.request, 100, &none).map_err(Error::Client)?;
        exchange.request.expect_continue = false;
    }
    let (in_memory, may_use_file) = (plan.body_in_memory(), spool::is_used_by(plan));
    exchange.down.progress.restart(clock::now());
    let mut start = Vec::new();
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    let most = wanted.min(in_memory);
    let since = Some(clock::now());
    let received = poll_fn(|cx| poll_start(exchange, cx, most, &mut start, &mut share, since)).await;
    let is_full = match &received {
        Ok(taken) => *taken == BodyTaken::Full && most < wanted,
        // If memory is short, the rest goes to a file, unless this would free hardly any memory.
        Err(Error::FilterMemory) => may_use_file && start.len() >= PIECE,
        Err(_) => false,
    };
    let whole = match received {
        _ if is_full => {
            match receive_into_file(exchange, wanted, start, share).await? {
                None => return Ok(()),
                // No file could be used: steps see only the part in memory.
                Some(left) => (start, share) = left,
            }
            false
        }
        Ok(BodyTaken::Paused) => {
            go_on_unseen(exchange);
            false
        }
        Ok(taken) => taken == BodyTaken::Whole,
        Err(error) => go_on_after(exchange, error).map(|()| false)?,
    };
    if whole {
        exchange.down.upload.source_ended();
    }
    // The memory is held as long as the request, so unused capacity is released.
    start.shrink_to_fit();
    // Steps and the origin share the same bytes.
    let held = Arc::new(SharedStart { bytes: start, share: Some(share) });
    if let Some(run) = &mut exchange.modules.run {
        run.facts.body_is_whole = whole;
        run.facts.body = Some(Arc::clone(&held));
    }
    exchange.down.upload.kept = Some(KeptStart::start(held));
    Ok(())
}

/// Handles a body that cannot be kept for steps. If the steps only watch, the request continues without it.
fn go_on_after(exchange: &mut Exchange<'_>, error: Error) -> Result<(), Error> {
    let is_ours = matches!(error, Error::FilterMemory | Error::FilterFiles | Error::TemporaryFile);
    let Some(run) = exchange.modules.run.as_mut().filter(|_| is_ours) else { return Err(error) };
    run.facts.unseen = Some(error.kind());
    let is_optional = exchange.plan().is_some_and(|plan| plan.body_is_optional());
    if is_optional { Ok(()) } else { Err(error) }
}

/// Lets the request continue after a pause: steps see the received part of its body, and the rest follows from the
/// client.
fn go_on_unseen(exchange: &mut Exchange<'_>) {
    if let Some(run) = &mut exchange.modules.run {
        run.facts.unseen = Some(PAUSED);
    }
    exchange.down.progress.restart(clock::now());
}

/// Writes `start`, and the rest of the body that steps need, to a file. The origin and the steps read the body from the
/// file. Memory that is used meanwhile counts in `share`. If nothing could be written but the request may continue,
/// returns `start` and its share.
async fn receive_into_file(
    exchange: &mut Exchange<'_>,
    wanted: usize,
    start: Vec<u8>,
    mut share: BudgetShare,
) -> Result<Option<(Vec<u8>, BudgetShare)>, Error> {
    let (account, folder) = (exchange.account(), exchange.config.settings.spool_folder());
    let spool = match exchange.proxy.spools.create(&folder, account).await {
        Ok(spool) => spool,
        Err(error) => {
            go_on_after(exchange, error.into())?;
            return Ok(Some((start, share)));
        }
    };
    let mut piece = start;
    let since = Some(clock::now());
    let whole = match fill_file(exchange, (&spool, wanted), &mut piece, &mut share, since).await {
        Ok(whole) => whole,
        Err(error) => {
            go_on_after(exchange, error)?;
            if spool.len() == 0 {
                return Ok(Some((piece, share)));
            }
            false
        }
    };
    if let Some(run) = &mut exchange.modules.run {
        run.facts.spool = Some(Arc::clone(&spool));
        run.facts.body_is_whole = whole;
    }
    exchange.down.upload.front = Some(Front::File(Box::new(Reader::new(spool).followed_by(piece, share))));
    Ok(None)
}

/// Writes `piece`, and then the body as it arrives, to a file. Returns true if the body has ended. On failure, bytes
/// that were not written are left in `piece`.
async fn fill_file(
    exchange: &mut Exchange<'_>,
    (spool, wanted): (&Arc<Spool>, usize),
    piece: &mut Vec<u8>,
    share: &mut BudgetShare,
    since: Option<Instant>,
) -> Result<bool, Error> {
    let (mut left, mut taken) = (wanted, BodyTaken::Full);
    loop {
        left = left.saturating_sub(piece.len());
        if !piece.is_empty() {
            spool.append(piece).await?;
        }
        match taken {
            BodyTaken::Whole => return Ok(true),
            BodyTaken::Paused => {
                go_on_unseen(exchange);
                return Ok(false);
            }
            BodyTaken::Full => {}
        }
        let most = left.min(PIECE);
        taken = poll_fn(|cx| poll_start(exchange, cx, most, piece, share, since)).await?;
        if piece.is_empty() && taken != BodyTaken::Paused {
            return Ok(taken == BodyTaken::Whole);
        }
    }
}

/// Receives the whole body of the request before an origin is asked: a short one into memory, a
/// longer one into a file. Its length is then known, regardless of the client's framing.
pub(super) async fn buffer_request(exchange: &mut Exchange<'_>, limit: u64) -> Result<(), Error> {
    if matches!(exchange.request.length, BodyLength::Fixed(length) if length > limit) {
        return Err(Error::BodyTooLarge);
    }
    if exchange.request.expect_continue {
        let none = foregate_wire::HeaderList::new();
        exchange.down.client.send_interim(exchange.request, 100, &none).map_err(Error::Client)?;
        exchange.request.expect_continue = false;
    }
    exchange.down.progress.restart(clock::now());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let length = match exchange.down.upload.front.take() {
        Some(Front::File(reader)) => buffer_rest(exchange, *reader, limit).await?,
        front => {
            exchange.down.upload.front = front;
            buffer_whole(exchange, limit).await?
        }
    };
    exchange.request.length = BodyLength::Fixed(length);
    // Over HTTP/1, a body with a known length has no trailers, so the request must not announce any.
    exchange.request.head.headers.remove_each(&[NameId::Trailer]);
    exchange.proxy.metrics.requests_buffered.inc();
    Ok(())
}

/// Receives the rest of a body that starts in a file.
async fn buffer_rest(exchange: &mut Exchange<'_>, reader: Reader, limit: usize) -> Result<u64, Error> {
    let (spool, mut piece, mut share) =
        (reader.spool(), Vec::new(), exchange.proxy.filter_memory.share(exchange.account()));
    let left = limit.saturating_sub(usize::try_from(reader.len()).unwrap_or(usize::MAX));
    // If some bytes could not be written to the file, nothing may be appended to it, because those bytes come next.
    let whole = match reader.has_rest() {
        true => {
            poll_fn(|cx| poll_start(exchange, cx, 0, &mut piece, &mut share, None)).await? == BodyTaken::Whole
        }
        false => fill_file(exchange, (&spool, left), &mut piece, &mut share, None).await?,
    };
    if !whole {
        return Err(if reader.has_rest() { Error::FilterFiles } else { Error::BodyTooLarge });
    }
    let length = reader.len();
    exchange.down.upload.front = Some(Front::File(Box::new(reader)));
    Ok(length)
}

/// Receives a body of which no part is in a file yet. Steps may have read a part into memory.
async fn buffer_whole(exchange: &mut Exchange<'_>, limit: usize) -> Result<u64, Error> {
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    if let Some(kept) = exchange.down.upload.kept.as_ref().filter(|_| exchange.down.upload.is_done()) {
        let length = kept.len();
        return if length > limit { Err(Error::BodyTooLarge) } else { Ok(length as u64) };
    }
    let mut start = Vec::new();
    if let Some(mut kept) = exchange.down.upload.kept.take() {
        let held = kept.take();
        if !extend(&mut start, &held.bytes, limit, Some(&mut share)) {
            return Err(Error::FilterMemory);
        }
    }
    let most = limit.min(spool::SHORT);
    let received = poll_fn(|cx| poll_start(exchange, cx, most, &mut start, &mut share, None)).await;
    match received {
        Ok(BodyTaken::Whole) => {
            start.shrink_to_fit();
            let length = start.len() as u64;
            exchange.down.upload.source_ended();
            let held = SharedStart { bytes: start, share: Some(share) };
            exchange.down.upload.kept = Some(KeptStart::start(Arc::new(held)));
            return Ok(length);
        }
        Ok(_) if start.len() >= limit => return Err(Error::BodyTooLarge),
        Ok(_) | Err(Error::FilterMemory) => {}
        Err(error) => return Err(error),
    }
    let (account, folder) = (exchange.account(), exchange.config.settings.spool_folder());
    let spool = exchange.proxy.spools.create(&folder, account).await?;
    if !fill_file(exchange, (&spool, limit), &mut start, &mut share, None).await? {
        return Err(Error::BodyTooLarge);
    }
    exchange.proxy.metrics.requests_buffered_in_files.inc();
    let reader = Reader::new(spool);
    let length = reader.len();
    exchange.down.upload.front = Some(Front::File(Box::new(reader)));
    Ok(length)
}

/// Receives the start of a body, up to `wanted` bytes. If the start is for steps, `since` is the time at which the
/// wait for it began, and a pause of the client may end the wait. Without `since`, the whole body is needed, and a
/// pause does not end the wait.
fn poll_start(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    wanted: usize,
    start: &mut Vec<u8>,
    share: &mut BudgetShare,
    since: Option<Instant>,
) -> Poll<Result<BodyTaken, Error>> {
    let may_use_file = since.is_none() || exchange.plan().is_some_and(|plan| spool::is_used_by(plan));
    let (memory, account) = (&exchange.proxy.filter_memory, exchange.account());
    let link = &mut exchange.down.client.link;
    if let Poll::Ready(Err(error)) = link.poll_flush(cx) {
        return Poll::Ready(Err(Error::Client(error)));
    }
    let before = start.len();
    let most = match exchange.request.length {
        BodyLength::Fixed(length) => wanted.min(usize::try_from(length).unwrap_or(usize::MAX)),
        _ => wanted,
    };
    loop {
        if start.len() - before >= BURST {
            give_way(cx);
            return Poll::Pending;
        }
        match link.poll_receive(cx) {
            // Only further data shows that the body does not end here.
            Poll::Ready(Ok(ReceiveOutcome::Data)) if start.len() >= wanted => {
                return Poll::Ready(Ok(BodyTaken::Full));
            }
            Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                let data = link.data();
                let count = data.len().min(wanted - start.len());
                if exchange.down.upload.moved.saturating_add(count as u64) > exchange.down.upload.limit {
                    return Poll::Ready(Err(Error::BodyTooLarge));
                }
                let length = start.len() + count;
                // Half of the memory is for short bodies, which never go to a file.
                let belongs_in_file = may_use_file && length > spool::SHORT && memory.is_short(account);
                let data = data.get(..count).unwrap_or_default();
                if belongs_in_file || !extend(start, data, most, Some(share)) {
                    return Poll::Ready(Err(Error::FilterMemory));
                }
                link.consume(count);
                exchange.down.upload.moved += count as u64;
            }
            Poll::Ready(Ok(ReceiveOutcome::End)) => return Poll::Ready(Ok(BodyTaken::Whole)),
            Poll::Ready(Err(error @ (LinkError::Body(_) | LinkError::Length))) => {
                exchange.down.client.close = true;
                return Poll::Ready(Err(Error::Client(error)));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::Client(error))),
            Poll::Pending => {
                let now = clock::now();
                exchange.down.progress.observe(exchange.down.upload.moved, 0, now);
                let deadline = exchange.down.progress.client_deadline(exchange.down.timeouts, now);
                let is_fixed = matches!(exchange.request.length, BodyLength::Fixed(_));
                let pause = exchange.plan().and_then(|plan| {
                    let watched = plan.body_is_optional().then_some(if is_fixed { HELD_FOR } else { PAUSE });
                    watched.or(plan.body_pause().filter(|_| !is_fixed))
                });
                let (Some(pause), Some(since)) = (pause, since) else {
                    if let Poll::Ready(error) = exchange.down.poll_total(cx) {
                        return Poll::Ready(Err(error));
                    }
                    return exchange.down.timer.poll(cx, deadline).map(|()| Err(Error::BodyTimeout));
                };
                let mut until = exchange.down.progress.silent_for(pause);
                if !is_fixed {
                    until = until.min(since + STREAM_HELD_FOR.max(pause));
                }
                return exchange.down.timer.poll(cx, deadline.min(until)).map(|()| Ok(BodyTaken::Paused));
            }
        }
    }
}

/// Receives as much of the response's body as steps need. It is sent to the client before the rest.
pub(super) async fn hold_response(
    exchange: &mut Exchange<'_>,
    origin: &mut Link,
    length: BodyLength,
) -> Result<(), Error> {
    let wanted = exchange.modules.run.as_ref().map_or(0, |run| run.state.hold.min(HELD));
    if wanted == 0 || length == BodyLength::Tunnel {
        return Ok(());
    }
    let mut held = Vec::new();
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    let mut whole = length.is_empty();
    if !whole {
        let now = clock::now();
        exchange.down.progress.restart(now);
        let until = Instant::now() + HELD_FOR;
        whole = poll_fn(|cx| poll_hold(exchange, cx, origin, wanted, until, (&mut held, &mut share))).await?;
    }
    if let Some(run) = &mut exchange.modules.run {
        run.facts.response_body = held;
        run.facts.response_share = Some(share);
        run.facts.response_body_is_whole = whole;
    }
    Ok(())
}

/// Reads as much of a file as steps have asked for. The client gets it before the rest.
pub(super) async fn hold_file(exchange: &mut Exchange<'_>, body: &mut FileBody) -> Result<(), Error> {
    let wanted = exchange.modules.run.as_ref().map_or(0, |run| run.state.hold.min(HELD));
    if wanted == 0 {
        return Ok(());
    }
    let mut held = Vec::new();
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    while held.len() < wanted && !body.is_done() {
        poll_fn(|cx| body.poll_fill(cx)).await.map_err(|_| Error::FileRead)?;
        let count = body.data().len().min(wanted - held.len());
        let data = body.data().get(..count).unwrap_or_default();
        if !extend(&mut held, data, wanted, Some(&mut share)) {
            let goes_on = exchange.plan().is_some_and(|plan| plan.hold_is_optional());
            if goes_on {
                break;
            }
            return Err(Error::FilterMemory);
        }
        body.consume(count);
    }
    let is_whole = body.is_done();
    body.put_before(held.clone());
    if let Some(run) = &mut exchange.modules.run {
        run.facts.response_body = held;
        run.facts.response_share = Some(share);
        run.facts.response_body_is_whole = is_whole;
    }
    Ok(())
}

/// Receives the start of the response's body, while the request's body may still be sent. Ready with true if the
/// response's body has ended.
fn poll_hold(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    origin: &mut Link,
    wanted: usize,
    until: Instant,
    (held, share): (&mut Vec<u8>, &mut BudgetShare),
) -> Poll<Result<bool, Error>> {
    poll_upload(exchange, cx, origin)?;
    loop {
        match origin.poll_receive(cx) {
            Poll::Ready(Ok(ReceiveOutcome::Data)) if held.len() >= wanted => return Poll::Ready(Ok(false)),
            Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                let data = origin.data();
                let count = data.len().min(wanted - held.len());
                let data = data.get(..count).unwrap_or_default();
                if !extend(held, data, wanted, Some(share)) {
                    let goes_on = exchange.plan().is_some_and(|plan| plan.hold_is_optional());
                    return Poll::Ready(if goes_on { Ok(false) } else { Err(Error::FilterMemory) });
                }
                origin.consume(count);
            }
            Poll::Ready(Ok(ReceiveOutcome::End)) => return Poll::Ready(Ok(true)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::Origin(error))),
            Poll::Pending => {
                let now = clock::now();
                if now >= until {
                    return Poll::Ready(Ok(false));
                }
                if let Poll::Ready(error) = exchange.down.poll_gone_at(cx, now) {
                    return Poll::Ready(Err(error));
                }
                exchange.down.progress.observe(exchange.down.upload.moved, held.len() as u64, now);
                let awaited = match exchange.down.upload.waiting {
                    WaitingFor::Source => AwaitedEvent::ClientBody,
                    _ => AwaitedEvent::OriginBody,
                };
                let upstream = exchange.upstream().map(|upstream| &*upstream.settings);
                let late = exchange.down.poll_deadline(cx, upstream, &[awaited], now);
                if let Poll::Ready(Err(error)) = late {
                    return Poll::Ready(Err(error));
                }
                // If a timer is polled twice, it wakes the task at the earlier time.
                return exchange.down.timer.poll(cx, until).map(|()| Ok(false));
            }
        }
    }
}
