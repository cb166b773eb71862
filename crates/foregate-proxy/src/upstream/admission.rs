//! Waiting for a place among the requests in flight.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::counters::metrics::{Metrics, ShardedGauge};
use crate::error::Error;
use crate::limits::account::Account;
use crate::limits::gates::{GateAnswer, RequestGate, RequestPass};

/// Waits until the gate admits a request of this client. `gone` becomes ready if the response is no longer wanted.
///
/// # Errors
///
/// The queue is full, the wait took too long, or `gone` became ready, which gives its error.
pub async fn enter(
    gate: &Arc<RequestGate>,
    account: Account,
    metrics: &Metrics,
    mut gone: impl FnMut(&mut Context<'_>) -> Poll<Error>,
) -> Result<RequestPass, Error> {
    let mut waits = match gate.enter(account) {
        GateAnswer::Inside(pass) => return Ok(pass),
        GateAnswer::Full => return Err(Error::QueueFull),
        GateAnswer::Waits(waits) => waits,
    };
    let _waiting = WaitingGauge::new(&metrics.requests_waiting);
    metrics.requests_queued.inc();
    let mut turn = pin!(tokio::time::timeout(gate.timeout(), waits.turn()));
    poll_fn(|cx| {
        if let Poll::Ready(turn) = turn.as_mut().poll(cx) {
            return Poll::Ready(match turn {
                Ok(Some(pass)) => Ok(pass),
                Ok(None) => Err(Error::QueueFull),
                Err(_) => Err(Error::QueueTimeout),
            });
        }
        gone(cx).map(Err)
    })
    .await
}

/// Counts a request as waiting until it is dropped.
struct WaitingGauge<'a>(&'a ShardedGauge);

impl<'a> WaitingGauge<'a> {
    fn new(gauge: &'a ShardedGauge) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for WaitingGauge<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
