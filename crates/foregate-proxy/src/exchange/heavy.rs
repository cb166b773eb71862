//! Heavy steps, run on threads of their own with everything that they may see.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use foregate_module::{Entry, Fault, PlannedStep, Verdict, WhenFull};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::away::{Away, HeavyState};
use super::state::Exchange;
use super::view::View;
use crate::error::Error;
use crate::link::LinkError;
use crate::link::start::SharedStart;
use crate::offload::{LONGEST_WAIT, LONGEST_WAIT_OF_LONG, Patience, QueuePlace};
use crate::time::clock;

/// The result of waiting for a heavy step.
enum HeavyResult {
    /// The step has run; `None` if its thread ended.
    Told(Option<Box<Done>>),
    /// The client has gone.
    Gone(LinkError),
    /// No thread took the step in time.
    Late,
}

/// The result from another thread.
struct Done {
    moved: HeavyState,
    /// The verdict. The inner error means that the body for the step could not be read from its file.
    verdict: std::thread::Result<std::io::Result<Verdict>>,
    took: Duration,
    /// The processor time that the thread used for it.
    processor: Duration,
}

/// The interval at which waiting steps ask for a place in the queue.
const AGAIN: Duration = Duration::from_millis(20);

/// Runs a step on the threads for heavy work, with all the state that it may see. It waits at most `wait` for a thread.
///
/// # Errors
///
/// The client has gone, or the process ends.
pub(super) async fn run_heavy(
    exchange: &mut Exchange<'_>,
    planned: &PlannedStep,
    full: WhenFull,
    wait: Duration,
) -> Result<Result<Verdict, Fault>, Error> {
    let config = exchange.config;
    let is_long = exchange.is_long(planned);
    let longest = if is_long { LONGEST_WAIT_OF_LONG } else { LONGEST_WAIT };
    let deadline = Instant::now() + wait.min(longest);
    // The input is measured before the step runs, because the step may make the head longer.
    let slow_with = exchange.slow_with(planned);
    let patience = match slow_with {
        _ if is_long || full == WhenFull::Inline => Patience::Long,
        // The step may have become slow because of another client, so this client may wait for a
        // short time.
        Some(_) => Patience::Short,
        None => Patience::None,
    };
    let place = match exchange.proxy.offload.reserve(exchange.account(), patience) {
        None if is_long && full == WhenFull::Error => wait_for_place(exchange, deadline).await?,
        place => place,
    };
    let Some(place) = place else { return Ok(Err(Fault::Full(full))) };
    let Some(run) = exchange.modules.run.take() else { return Ok(Ok(Verdict::Passed)) };
    let shown = exchange.request.shown();
    let client = run.facts.client;
    let moved = HeavyState {
        request: std::mem::replace(exchange.request, shown),
        response: std::mem::take(exchange.response),
        run,
        peer: exchange.down.peer.copied(),
        config: Arc::clone(config),
        site: exchange.routed.site,
        route: exchange.routed.route.cloned(),
    };
    let away = Arc::new(Away { moved: Mutex::new(Some(moved)), client });
    exchange.modules.away = Some(Arc::clone(&away));
    let (tell, mut told) = oneshot::channel();
    let step = planned.clone();
    place.submit(Box::new(move || {
        let Some(mut moved) = away.moved.lock().take() else { return };
        let (began, before) = (Instant::now(), clock::thread_time());
        let verdict = catch_unwind(AssertUnwindSafe(|| moved.call(&step)));
        let (took, processor) = (began.elapsed(), clock::thread_time().saturating_sub(before));
        // The receiver is gone if the process ends.
        let _ = tell.send(Box::new(Done { moved, verdict, took, processor }));
    }));
    let waited = poll_fn(|cx| {
        if let Poll::Ready(told) = Pin::new(&mut told).poll(cx) {
            return Poll::Ready(HeavyResult::Told(told.ok()));
        }
        if let Poll::Ready(error) = exchange.down.client.poll_abandoned(cx, exchange.down.timer) {
            return Poll::Ready(HeavyResult::Gone(error));
        }
        exchange.down.timer.poll(cx, deadline).map(|()| HeavyResult::Late)
    })
    .await;
    let (told, left) = match waited {
        HeavyResult::Told(told) => (told, None),
        HeavyResult::Late | HeavyResult::Gone(_) => {
            let left = if let HeavyResult::Gone(error) = waited { Some(error) } else { None };
            if call_back(exchange) {
                return match left {
                    Some(error) => Err(Error::Client(error)),
                    None => Ok(Err(Fault::Full(full))),
                };
            }
            (told.await.ok(), left)
        }
    };
    let Some(done) = told else {
        // This happens only if the process ends.
        exchange.down.client.close = true;
        return Err(Error::Internal);
    };
    let Done { moved, verdict, took, processor } = *done;
    take_back(exchange, moved);
    if let Some(error) = left {
        return Err(Error::Client(error));
    }
    if let Some(step) = exchange.proxy.steps.get(planned.step) {
        step.timed.inc();
        step.nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(input) = slow_with {
            step.moved.inc();
            step.used(processor, input, exchange.phase_began());
        }
    }
    Ok(match verdict {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(error)) => {
            exchange.proxy.spools.failure(&error, None);
            Err(Fault::Unread)
        }
        Err(_) => Err(Fault::Panicked),
    })
}

/// Waits for a place in the queue. Only steps with long bodies wait. `None` if the time is up.
async fn wait_for_place<'a>(
    exchange: &mut Exchange<'a>,
    until: Instant,
) -> Result<Option<QueuePlace<'a>>, Error> {
    loop {
        let next = Instant::now() + AGAIN;
        if next > until {
            return Ok(None);
        }
        poll_fn(|cx| match exchange.down.client.poll_abandoned(cx, exchange.down.timer) {
            Poll::Ready(error) => Poll::Ready(Err(Error::Client(error))),
            Poll::Pending => exchange.down.timer.poll(cx, next).map(Ok),
        })
        .await?;
        let place = exchange.proxy.offload.reserve(exchange.account(), Patience::Long);
        if place.is_some() {
            return Ok(place);
        }
    }
}

/// Takes back the state of a heavy step if no thread has it yet: then the step does not run.
pub(super) fn call_back(exchange: &mut Exchange<'_>) -> bool {
    let moved = exchange.modules.away.as_ref().and_then(|away| away.moved.lock().take());
    moved.map(|moved| take_back(exchange, moved)).is_some()
}

fn take_back(exchange: &mut Exchange<'_>, moved: HeavyState) {
    exchange.modules.away = None;
    *exchange.request = moved.request;
    *exchange.response = moved.response;
    let run = exchange.modules.run.insert(moved.run);
    if run.facts.spool.is_some() {
        // A step that has panicked has left the body in memory, although it is in the file.
        run.facts.body = None;
    }
}

impl HeavyState {
    fn call(&mut self, planned: &PlannedStep) -> std::io::Result<Verdict> {
        let pipeline = &self.config.settings.pipeline;
        let reads = pipeline.entries().get(usize::from(planned.step)).is_some_and(Entry::reads_body);
        let facts = &mut self.run.facts;
        let spool = facts.spool.as_ref().filter(|_| reads);
        let in_file = spool.is_some();
        if let Some(spool) = spool {
            // Memory is bounded: only running steps hold such bodies, so there are no more such bodies than threads.
            facts.body = Some(Arc::new(SharedStart { bytes: spool.read()?, share: None }));
        }
        let mut view = View {
            request: &mut self.request,
            response: &mut self.response,
            peer: &self.peer,
            config: &self.config,
            site: self.site,
            route: self.route.as_deref(),
            facts,
            asked: &self.run.asked,
            away: true,
        };
        let verdict = pipeline.run(planned, &mut view, &mut self.run.state);
        if in_file {
            self.run.facts.body = None;
        }
        Ok(verdict)
    }
}
