//! Copies of requests: for a comparison, which needs the whole response, and for a mirror, which drops it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use foregate_compare::Answer as ComparedAnswer;
use foregate_wire::BodyLength;

use super::asks::{StepAsks, final_head, terms};
use crate::comparison::SeenBody;
use crate::error::Error;
use crate::limits::budget::BudgetShare;
use crate::link::ReceiveOutcome;
use crate::message::request::Request;
use crate::time::clock;
use crate::upstream::{Addresses, Ask, Upstream};

/// Sends a request without a body for a comparison, and receives the whole response.
///
/// # Errors
///
/// There is no response, or it is incomplete.
pub(crate) async fn observe(
    upstream: &Arc<Upstream>,
    request: Request,
    (addresses, handed_over): (&Addresses, Option<&Vec<u8>>),
    mut seen: SeenBody,
) -> Result<(ComparedAnswer, BudgetShare), Error> {
    let began = clock::now();
    let mut asks = StepAsks::new(upstream, request, &[]);
    let mut ask = Ask::new(upstream, terms(addresses, handed_over));
    let (mut origin, length) = final_head(&mut ask, &mut asks).await?;
    if length == BodyLength::Tunnel {
        return Err(Error::Switch("a protocol switch that was not asked for"));
    }
    let time = began.elapsed();
    while poll_fn(|cx| origin.link.poll_receive(cx)).await.map_err(Error::Origin)? == ReceiveOutcome::Data {
        seen.take(origin.link.data());
        let count = origin.link.data().len();
        origin.link.consume(count);
    }
    upstream.connections.recycle(origin, clock::now());
    let fields = asks.head.headers.iter().map(|field| (field.name, field.value));
    let mut answer = ComparedAnswer::new(asks.head.status, fields);
    answer.time = time;
    let (body, share) = seen.end();
    answer.body = body;
    Ok((answer, share))
}

/// Sends a copy of a request; a short response is read and dropped, a long one is cut off. Returns
/// true if there was a response in time.
pub(crate) async fn send_copy(
    upstream: &Arc<Upstream>,
    request: Request,
    (addresses, body): (&Addresses, &[u8]),
    patience: Duration,
) -> bool {
    let mut asks = StepAsks::new(upstream, request, body);
    let mut ask = Ask::new(upstream, terms(addresses, None));
    match tokio::time::timeout(patience, final_head(&mut ask, &mut asks)).await {
        Ok(Ok((mut origin, length))) => {
            match asks.finished && length != BodyLength::Tunnel {
                true => upstream.connections.drop_rest(origin),
                false => origin.link.abort(),
            }
            true
        }
        Ok(Err(_)) => false,
        Err(_) => {
            ask.ran_out(patience);
            false
        }
    }
}
