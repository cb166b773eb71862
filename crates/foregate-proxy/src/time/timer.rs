//! One timer for a connection or stream with a deadline that moves all the time.
//!
//! Nearly every deadline is moved before it is reached. Moving a deadline to a later time costs
//! nothing here: the timer stays armed for the earlier time. When it fires too early, it arms itself
//! again. When a connection ends, its armed timer serves the thread's next connection in the same
//! way.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::coop::unconstrained;
use tokio::time::Sleep;

use crate::shelf::{self, Shelf};

/// The most armed timers that a thread keeps for its next connections.
const KEPT_PER_THREAD: usize = 256;

thread_local! {
    static KEPT: Shelf<ArmedTimer> = const { Shelf::new(KEPT_PER_THREAD) };
}

#[derive(Debug)]
struct ArmedTimer {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
    /// The waker that is registered with `sleep`.
    waker: Option<Waker>,
}

/// A timer that is armed lazily.
#[derive(Debug)]
pub struct Timer {
    /// `None` only while it is being dropped.
    armed: Option<ArmedTimer>,
}

impl Timer {
    /// A timer with its first deadline probably about `likely` from now.
    pub fn new(likely: Duration) -> Self {
        let armed = shelf::take(&KEPT).unwrap_or_else(|| {
            let at = Instant::now() + likely;
            ArmedTimer { sleep: Box::pin(tokio::time::sleep_until(at.into())), at, waker: None }
        });
        Self { armed: Some(armed) }
    }

    /// Ready once `deadline` has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let Some(armed) = &mut self.armed else { return Poll::Ready(()) };
        if deadline < armed.at {
            armed.arm(deadline);
        }
        // `is_elapsed` decides this, not the clock: a timer that has fired does not wake the task again, so
        // it must not be left pending.
        if armed.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) && !armed.sleep.is_elapsed()
        {
            return Poll::Pending;
        }
        while armed.poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            armed.arm(deadline);
        }
        match &mut armed.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl ArmedTimer {
    /// Polls the timer outside of the task's cooperative budget. A timer that is polled after the budget is
    /// used up returns pending without registering the waker. `waker` would then be wrong, and the task
    /// would never be woken.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        pin!(unconstrained(self.sleep.as_mut())).poll(cx)
    }

    fn arm(&mut self, deadline: Instant) {
        self.at = deadline;
        self.waker = None;
        self.sleep.as_mut().reset(deadline.into());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(mut armed) = self.armed.take() {
            armed.waker = None;
            shelf::give(&KEPT, armed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use super::*;
    use crate::counters::metrics::Metrics;
    use crate::time::clock;
    use crate::time::poll_length::WatchedTask;

    #[tokio::test]
    async fn a_deadline_may_move_both_ways() {
        let start = Instant::now();
        let mut timer = Timer::new(Duration::from_millis(5));
        let later = start + Duration::from_millis(40);
        poll_fn(|cx| timer.poll(cx, later)).await;
        assert!(start.elapsed() >= Duration::from_millis(40));
        let mut timer = Timer::new(Duration::from_secs(60));
        poll_fn(|cx| timer.poll(cx, start)).await;
        let soon = Instant::now() + Duration::from_millis(5);
        poll_fn(|cx| timer.poll(cx, soon)).await;
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_task_that_has_used_up_its_budget_is_woken() {
        let start = Instant::now();
        let mut timer = Timer::new(Duration::from_millis(5));
        let wait = poll_fn(|cx| {
            while let Poll::Ready(budget) = tokio::task::coop::poll_proceed(cx) {
                budget.made_progress();
            }
            timer.poll(cx, start + Duration::from_millis(30))
        });
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("the timer goes off");
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    /// Where the runtime looks at its timers between two polls, a task may begin at a time before
    /// that for which it was woken.
    #[test]
    fn a_task_that_begins_early_is_not_forgotten() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).enable_all();
        runtime.on_thread_start(clock::tells_of_rests).on_thread_park(clock::rest);
        let runtime = runtime.build().unwrap();
        let began = Instant::now();
        let waits = async move {
            let mut timer = Timer::new(Duration::from_secs(60));
            poll_fn(|cx| timer.poll(cx, began + Duration::from_millis(20))).await;
        };
        // Runs alongside a task that keeps the worker from sleeping.
        let spins = async move {
            let waits = tokio::spawn(WatchedTask::new(waits, Arc::new(Metrics::default())));
            while began.elapsed() < Duration::from_millis(200) {
                let turn = Instant::now();
                while turn.elapsed() < Duration::from_millis(5) {}
                tokio::task::yield_now().await;
            }
            waits.await
        };
        let spins = runtime.spawn(spins);
        let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), spins).await });
        ended.expect("the timer goes off").unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_timer_that_is_handed_on_keeps_the_new_deadline() {
        let start = Instant::now();
        drop(Timer::new(Duration::from_millis(1)));
        let mut timer = Timer::new(Duration::from_secs(60));
        poll_fn(|cx| timer.poll(cx, start + Duration::from_millis(30))).await;
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
