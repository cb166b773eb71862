//! Measures the length of polls: while a task is polled, its worker thread runs no other task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::clock::Polling;
use crate::counters::metrics::Metrics;

pin_project! {
    /// A task with measured polls: the length of each goes into the `event_loop_blocked` histogram.
    /// While the task is polled, [`super::clock::now`] costs next to nothing.
    ///
    /// Wrap the argument of `tokio::spawn`, not a future within it: the polls of that future would be counted twice.
    #[derive(Debug)]
    pub struct WatchedTask<F> {
        #[pin]
        task: F,
        metrics: Arc<Metrics>,
    }
}

impl<F> WatchedTask<F> {
    /// Watches `task`.
    pub fn new(task: F, metrics: Arc<Metrics>) -> Self {
        Self { task, metrics }
    }
}

impl<F: Future> Future for WatchedTask<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polling = Polling::begin();
        let polled = this.task.poll(context);
        this.metrics.blocked(polling.end());
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::telemetry::exposition::{Exposition, ExpositionFormat};
    use crate::time::clock;

    #[tokio::test]
    async fn polls_are_counted_and_the_clock_stands_still_in_each() {
        let metrics = Arc::new(Metrics::default());
        let task = async {
            let before = clock::now();
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(3) {}
            assert_eq!(clock::now(), before);
            tokio::task::yield_now().await;
            assert!(clock::now() > before);
        };
        WatchedTask::new(task, Arc::clone(&metrics)).await;
        assert!(clock::now() < clock::now() + Duration::from_nanos(1));
        let text = Exposition::new(Arc::clone(&metrics)).render(ExpositionFormat::OpenMetrics);
        assert!(text.contains("foregate_event_loop_blocked_seconds_count 2\n"), "{text}");
        assert!(text.contains("foregate_event_loop_blocked_seconds_bucket{le=\"0.0025\"} 1\n"), "{text}");
        assert!(text.contains("foregate_event_loop_blocked_seconds_bucket{le=\"+Inf\"} 2\n"), "{text}");
    }

    #[test]
    fn polls_in_a_row_are_one_behind_the_other_unless_the_thread_sleeps() {
        let metrics = Arc::new(Metrics::default());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut began = || {
            let task = std::future::poll_fn(|_| Poll::Ready(clock::now()));
            let Poll::Ready(began) =
                std::pin::pin!(WatchedTask::new(task, Arc::clone(&metrics))).poll(&mut context)
            else {
                panic!("it is ready")
            };
            began
        };
        let pause = Duration::from_millis(2);
        let wait = || {
            let began = Instant::now();
            while began.elapsed() < pause {}
        };
        let gap = |first: Instant, second: Instant| second.saturating_duration_since(first);
        let first = began();
        wait();
        assert!(gap(first, began()) >= pause, "who does not tell may have slept");
        clock::tells_of_rests();
        let (first, _) = (began(), wait());
        assert!(
            gap(first, began()) < pause,
            "it has done something else, which keeps others waiting as well"
        );
        let (first, _) = (began(), wait());
        clock::rest();
        assert!(gap(first, began()) >= pause);
    }

    /// `cargo test --release -p foregate-proxy --lib -- --ignored --nocapture cost_of_a_poll`
    #[tokio::test]
    #[ignore = "a measurement"]
    async fn cost_of_a_poll() {
        const POLLS: u32 = 5_000_000;
        let metrics = Arc::new(Metrics::default());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut bare = std::pin::pin!(std::future::poll_fn(|_| std::hint::black_box(Poll::<()>::Pending)));
        let mut time = |mut poll: Pin<&mut dyn Future<Output = ()>>| {
            let start = Instant::now();
            for _ in 0..POLLS {
                let _ = std::hint::black_box(poll.as_mut().poll(&mut context));
            }
            start.elapsed().as_nanos() as f64 / f64::from(POLLS)
        };
        let without = time(bare.as_mut());
        let with = time(std::pin::pin!(WatchedTask::new(bare.as_mut(), metrics)));
        println!("a poll: {without:.1} ns, watched: {with:.1} ns");
    }
}
