//! Questions and orders to the versions of a trial, and the reasons why their answers end the trial.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::channel;
use crate::gate::{Reason, difference};
use crate::generation::{Generation, NoAnswer};
use crate::protocol::{Order, Report, Stats};
use crate::supervisor::PATIENCE;

/// The length of each of the two spans before a trial in which the noise of the old version is measured.
const HALF: Duration = Duration::from_millis(400);
/// The time limit for the new version's requests to itself, and for each further step.
pub(crate) const STEP_WITHIN: Duration = Duration::from_secs(10);

/// Asks a version for its numbers.
pub(crate) async fn stats(of: &Generation, name: &str) -> Result<Stats, Reason> {
    match of.ask(of.stats_order(), &[], PATIENCE).await {
        Ok((Report::Stats { stats }, _)) => {
            of.stats.replace(stats.clone());
            Ok(stats)
        }
        Ok(_) => Err(Reason(format!("the {name} version reports something else than its numbers"))),
        Err(NoAnswer::Ended) => Err(Reason(format!("the {name} version ended with {}", of.ended().await))),
        Err(silent) => {
            Err(Reason(format!("the {name} version hangs: {silent} to the question for its numbers")))
        }
    }
}

/// The figures of two spans in which the old version serves alone. Their difference is its noise.
pub(crate) async fn noise(old: &Generation) -> Result<[Stats; 2], Reason> {
    let mut at = stats(old, "old").await?;
    let mut halves = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(HALF).await;
        let now = stats(old, "old").await?;
        halves.push(difference(&now, &at));
        at = now;
    }
    halves.try_into().map_err(|_| Reason("the noise was not learned".to_owned()))
}

/// Has the new version answer a request of its own.
pub(crate) async fn probe(new: &Generation) -> Result<(), Reason> {
    match new.ask(Order::Probe, &[], STEP_WITHIN).await {
        Ok((Report::Probed { error: None }, _)) => Ok(()),
        Ok((Report::Probed { error: Some(error) }, _)) => {
            Err(Reason(format!("the new version does not answer itself: {error}")))
        }
        Ok(_) => Err(Reason("the new version cannot be probed".to_owned())),
        Err(NoAnswer::Ended) => {
            Err(Reason(format!("the new version ended with {} when it was probed", new.ended().await)))
        }
        Err(silent) => Err(Reason(format!("the new version hangs: {silent} to a request of its own"))),
    }
}

/// Sends an order and waits until it is done. A failure ends the trial.
pub(crate) async fn done(
    of: &Generation,
    name: &str,
    order: Order,
    descriptors: &[OwnedFd],
) -> Result<(), Reason> {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let kind = match &order {
        Order::Accept => "to accept",
        Order::Pass { .. } => "to pass connections on",
        _ => "to take connections",
    };
    match of.ask(order, &descriptors, STEP_WITHIN).await {
        Ok((Report::Done, _)) => Ok(()),
        Ok(_) => Err(Reason(format!("the {name} version does not know how {kind}"))),
        Err(NoAnswer::Ended) => {
            Err(Reason(format!("the {name} version ended with {} when it was {kind}", of.ended().await)))
        }
        Err(silent) => Err(Reason(format!("the {name} version hangs: {silent} to the order {kind}"))),
    }
}

/// Makes the channel on which the old version passes connections to the new one.
pub(crate) async fn connect(old: &Generation, new: &Generation) -> Result<(), Reason> {
    let pair =
        channel::pair().map_err(|error| Reason(format!("no channel between the versions: {error}")))?;
    done(new, "new", Order::Receive, &[pair.1]).await?;
    done(old, "old", Order::Pass { share: 1 }, &[pair.0]).await
}

/// Has the old version move its stored responses to the new one. If a version cannot do that, the new one
/// starts with an empty cache.
pub(crate) async fn move_cache(old: &Generation, new: &Generation) {
    if !old.moves_cache.get() || !new.moves_cache.get() {
        return;
    }
    let Ok((from, to)) = UnixStream::pair() else { return };
    // A process that has ended needs no responses.
    let _ = new.tell(None, Order::TakeCache, &[to.as_fd()]).await;
    let _ = old.tell(None, Order::GiveCache, &[from.as_fd()]).await;
}
