//! Shapes a reply from any source: runs the steps of the response over it.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_module::{Chain, Filtered, PhaseId, Source as MadeBy, Text};
use foregate_wire::{BodyLength, NameId};

use super::bodies::{count_filters, take_response_filters};
use super::inspect::{hold_file, hold_response};
use super::reply::{BodySource, Reply};
use super::send::drop_origin;
use super::state::ExchangeEnd;
use super::state::{Exchange, Step, StepResult};
use super::transfer::poll_upload;
use crate::error::{Error, Side};
use crate::link::Link;
use crate::link::filter::{Filter, chain};
use crate::link::start::Front;
use crate::time::clock;
use crate::transport::outcome::CopyError;
use crate::upstream::Origin;

/// The time that the head of a response with filters waits for the first piece of the body. If a filter is
/// then refused memory, the client can still get an error.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// Returns true if steps of the response are planned.
pub(super) fn shapes(exchange: &Exchange<'_>) -> bool {
    exchange.has_steps(PhaseId::UpstreamResponse, PhaseId::ResponseBody)
}

pub(super) fn shape_or_send(exchange: &Exchange<'_>, source: BodySource) -> Step {
    if shapes(exchange) { Step::Shape(source) } else { Step::Send(source) }
}

/// Runs the steps of the response.
pub(super) async fn run(exchange: &mut Exchange<'_>, mut source: BodySource) -> StepResult {
    match &source {
        // The cache stores the origin's response: the steps run each time that it is sent.
        BodySource::Origin(..) | BodySource::Cached(..) => {
            exchange.response_is_from(MadeBy::Upstream);
            exchange.skip_to(PhaseId::UpstreamResponse);
        }
        BodySource::Bytes(body) => {
            exchange.response.headers.push_id(NameId::ContentLength, body.len().to_string().as_bytes());
            exchange.skip_to(PhaseId::ResponseHeaders);
        }
        BodySource::File(..) => exchange.skip_to(PhaseId::ResponseHeaders),
    }
    match run_response(exchange, &mut source).await {
        Ok(()) => Ok(Step::Send(source)),
        Err(ended) => {
            drop_source(
                exchange,
                source,
                if let ExchangeEnd::Failed(error) = &ended { Some(error) } else { None },
            );
            Err(ended)
        }
    }
}

async fn run_response(exchange: &mut Exchange<'_>, source: &mut BodySource) -> Result<(), ExchangeEnd> {
    exchange.run_phases(PhaseId::ResponseErrorPage).await?;
    match source {
        BodySource::Origin(origin, length) => {
            hold_response(exchange, &mut origin.link, *length).await?;
        }
        BodySource::Cached(link, length) => hold_response(exchange, link, *length).await?,
        BodySource::Bytes(body) => hold_bytes(exchange, body)?,
        BodySource::File(Some(body), _) => hold_file(exchange, body).await?,
        BodySource::File(None, _) => {}
    }
    exchange.run_phases(PhaseId::ResponseBody).await?;
    let filters = take_response_filters(exchange);
    match source {
        BodySource::Origin(Origin { link, .. }, length) | BodySource::Cached(link, length) => {
            if let Some(run) = &mut exchange.modules.run {
                let bytes = std::mem::take(&mut run.facts.response_body).into();
                exchange.down.download.front = Front::new(bytes, run.facts.response_share.take());
            }
            // Bytes in a tunnel are not filtered.
            if filters.is_empty() || *length == BodyLength::Tunnel {
                return Ok(());
            }
            Ok(filter_response(exchange, Some(link), length, filters).await?)
        }
        BodySource::File(body, length) => {
            exchange.down.download.front = body.take().map(Front::Document);
            if filters.is_empty() {
                return Ok(());
            }
            Ok(filter_response(exchange, None, length, filters).await?)
        }
        BodySource::Bytes(body) => {
            exchange.response.headers.remove(NameId::ContentLength);
            if !filters.is_empty() && !body.is_empty() {
                // In a future of its own, because it is large and most replies do not need it.
                *body = Box::pin(filter_bytes(exchange, filters, body)).await?;
            }
            Ok(())
        }
    }
}

/// Shows steps as much of a body in memory as they have asked for.
fn hold_bytes(exchange: &mut Exchange<'_>, body: &Text) -> Result<(), ExchangeEnd> {
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    let goes_on = exchange.plan().is_some_and(|plan| plan.hold_is_optional());
    let Some(run) = &mut exchange.modules.run else { return Ok(()) };
    let mut start = body.get(..run.state.hold).unwrap_or(body);
    if !share.hold(start.len()) {
        if !goes_on {
            return Err(Error::FilterMemory.into());
        }
        start = &[];
    }
    run.facts.response_body_is_whole = start.len() == body.len();
    run.facts.response_body = start.to_vec();
    run.facts.response_share = Some(share);
    Ok(())
}

/// Filters the whole of a body in memory before the head is sent, so that its length is known. Makes the fetches that
/// filters ask for.
async fn filter_bytes(
    exchange: &mut Exchange<'_>,
    filters: Vec<Filtered>,
    body: &[u8],
) -> Result<Text, ExchangeEnd> {
    if filters.iter().any(Filtered::changes_length) {
        exchange.response.body_changes(BodyLength::Empty);
    }
    let share = exchange.proxy.filter_memory.share(exchange.account());
    let mut filter = Filter::new(chain(filters), share).map_err(|_| Error::FilterMemory)?;
    let filtered = filter_whole(exchange, &mut filter, body).await;
    count_filters(exchange, &mut filter);
    let body = filtered.map_err(Error::of_download)?;
    if let Some(run) = &mut exchange.modules.run {
        // The client may read the body slowly, so its memory counts until the end of the exchange.
        run.facts.shares.push(filter.into_share(body.capacity()));
    }
    Ok(body.into())
}

async fn filter_whole(
    exchange: &mut Exchange<'_>,
    filter: &mut Filter,
    body: &[u8],
) -> Result<Vec<u8>, CopyError> {
    let pieces = body.chunks(Chain::PIECE).map(Some).chain([None]);
    for piece in pieces {
        let mut asked = filter.of_whole(piece, piece.is_none())?;
        while let Some(question) = asked {
            let answer =
                Box::pin(exchange.fetch_one(filter.asking(), question)).await.map_err(CopyError::Sink)?;
            filter.answer(answer)?;
            asked = filter.of_whole(None, false)?;
        }
    }
    Ok(filter.take_output())
}

/// Adds filters to the body of an origin or of a file, and passes the first bytes of the body to them before the
/// head is sent. Decoders know how much memory they need only when they see these bytes. If that memory is refused,
/// the client gets an error instead of a response that breaks off.
async fn filter_response(
    exchange: &mut Exchange<'_>,
    mut origin: Option<&mut Link>,
    length: &mut BodyLength,
    filters: Vec<Filtered>,
) -> Result<(), Error> {
    let changes = filters.iter().any(Filtered::changes_length);
    if changes {
        *length = exchange.response.body_changes(*length);
    }
    if length.is_empty() {
        return Ok(());
    }
    let (memory, account) = (&exchange.proxy.filter_memory, exchange.account());
    let filter = Filter::new(chain(filters), memory.share(account)).map_err(|_| Error::FilterMemory)?;
    let mut filter = Box::new(filter.begins_soon());
    filter.rewrites = changes;
    let until = memory.is_felt(account).then(|| clock::now() + BEGINS_WITHIN);
    poll_fn(|cx| poll_begin(exchange, cx, origin.as_deref_mut(), &mut filter, until)).await?;
    exchange.down.download.filter = Some(filter);
    Ok(())
}

/// Passes the first piece of the response's body to the filters. Waits for it until `until`.
fn poll_begin(
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
    mut origin: Option<&mut Link>,
    filter: &mut Filter,
    until: Option<Instant>,
) -> Poll<Result<(), Error>> {
    match exchange.down.download.poll_begin(cx, filter, origin.as_deref_mut()) {
        Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
        Poll::Ready(Err(error)) => {
            count_filters(exchange, filter);
            return Poll::Ready(Err(Error::of_download(error)));
        }
        Poll::Pending => {}
    }
    let Some(until) = until else { return Poll::Ready(Ok(())) };
    origin.map_or(Ok(()), |origin| poll_upload(exchange, cx, origin))?;
    if let Poll::Ready(error) = exchange.down.poll_gone(cx) {
        return Poll::Ready(Err(error));
    }
    exchange.down.timer.poll(cx, until).map(Ok)
}

/// Drops the body of a response that is no longer needed. If neither peer has failed, a short rest is read, so that the
/// origin's connection can be reused.
pub(super) fn drop_source(exchange: &Exchange<'_>, source: BodySource, error: Option<&Error>) {
    let BodySource::Origin(mut origin, length) = source else { return };
    // A response that is too long for a step may still be short enough to read its rest.
    let is_lost = |error: &&Error| error.side() != Side::Internal && **error != Error::ResponseTooLarge;
    if let Some(error) = error.filter(is_lost) {
        return drop_origin(exchange, origin, error);
    }
    if length == BodyLength::Tunnel {
        return origin.link.abort();
    }
    let Some(upstream) = exchange.upstream() else { return };
    if exchange.down.upload.is_done() && !exchange.down.upload.gave_up() {
        upstream.connections.drop_rest(origin);
    }
}

/// Replaces the response with a reply that was made here.
pub(super) fn place_reply(exchange: &mut Exchange<'_>, reply: Reply) -> Step {
    let Reply { mut head, body, made_by } = reply;
    let before = exchange.modules.run.as_ref().map_or(MadeBy::Nobody, |run| run.facts.source);
    // For an error reply, the steps of the response run again, because so far they may have seen the origin's head. If
    // they have already run over a reply of our own, they do not run again, which prevents an endless loop.
    if matches!(made_by, MadeBy::Error(_)) && matches!(before, MadeBy::Nobody | MadeBy::Upstream) {
        exchange.start_over();
    }
    // An error page for a 426 has to keep the `Upgrade` that names the required protocols (RFC 9110, section 15.5.22).
    let stays = before == MadeBy::Upstream && exchange.response.status == 426 && head.status == 426;
    let protocols = exchange.response.headers.get(NameId::Upgrade).filter(|_| stays).map(<[u8]>::to_vec);
    // An error page keeps the fields of its error. If a step has removed `Server` from them, the page does not have it
    // either.
    let is_page = matches!(made_by, MadeBy::Step { .. }) && exchange.is_at_error_page();
    if is_page && !exchange.response.headers.contains(NameId::Server) {
        head.headers.remove(NameId::Server);
    }
    **exchange.response = head;
    if let Some(protocols) = protocols {
        exchange.response.headers.push_id(NameId::Upgrade, &protocols);
    }
    exchange.response_is_from(made_by);
    if let Some(run) = &mut exchange.modules.run {
        // The filters were chosen for the replaced response.
        run.state.response_filters.clear();
    }
    shape_or_send(exchange, body)
}
