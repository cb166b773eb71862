//! A bound on requests in flight that follows the latency of an upstream. It is computed from the ratio of the latency
//! without load to the recent latency, as in Netflix's concurrency-limits.

use std::time::{Duration, Instant};

/// The least and the largest bound.
pub(super) type BoundRange = (usize, usize);

/// The bound at the start, if the settings allow it.
const FIRST: f64 = 20.0;
/// The least time and the least number of answers between two decisions.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_ANSWERS: usize = 10;
/// The most latencies of a window that are kept. Later latencies of the window are ignored.
const WINDOW_MOST: usize = 256;
/// The length of a period. The latency without load is the least median in the present and the previous period.
const PERIOD: Duration = Duration::from_secs(30);
/// Latencies up to this multiple of the latency without load are normal.
const TOLERANCE: f64 = 1.5;
/// A decision moves the bound by this fraction of its distance from the newly computed bound.
const STEP: f64 = 0.3;
/// The factor by which the bound is reduced if at least a tenth of the attempts in a window failed.
const BACKOFF: f64 = 0.7;

/// The state of an adaptive bound.
#[derive(Debug)]
pub(super) struct AdaptiveBound {
    range: BoundRange,
    limit: f64,
    began: Instant,
    /// The latencies in this window, microseconds.
    latencies: Vec<u32>,
    failures: usize,
    /// The most requests in flight in this window.
    busiest: usize,
    /// The least median in the period before and in this one.
    least: [Option<u32>; 2],
    period: Instant,
}

impl AdaptiveBound {
    pub(super) fn new(range: BoundRange, now: Instant) -> Self {
        Self {
            range,
            limit: clamp(FIRST, range),
            began: now,
            latencies: Vec::new(),
            failures: 0,
            busiest: 0,
            least: [None, None],
            period: now,
        }
    }

    /// The present bound.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Sets the range, and moves the bound into it.
    pub(super) fn set(&mut self, range: BoundRange) {
        self.range = range;
        self.limit = clamp(self.limit, range);
    }

    /// Records an answer after `took`, or a failure (`None`), with this many requests in flight. True if the bound may have changed.
    pub(super) fn note(&mut self, took: Option<Duration>, in_flight: usize, now: Instant) -> bool {
        self.busiest = self.busiest.max(in_flight);
        match took {
            Some(took) if self.latencies.len() < WINDOW_MOST => {
                self.latencies.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1));
            }
            Some(_) => {}
            None => self.failures += 1,
        }
        let is_over = now.saturating_duration_since(self.began) >= WINDOW
            && self.latencies.len() + self.failures >= WINDOW_ANSWERS;
        if is_over {
            self.decide(now);
        }
        is_over
    }

    fn decide(&mut self, now: Instant) {
        if now.saturating_duration_since(self.period) >= PERIOD {
            self.least = [self.least[1], None];
            self.period = now;
        }
        let middle = self.latencies.len() / 2;
        let has_failed = self.failures * 10 >= self.latencies.len() + self.failures;
        let gradient = match self.latencies.len() {
            0 => BACKOFF,
            _ => {
                let (_, median, _) = self.latencies.select_nth_unstable(middle);
                let median = *median;
                self.least[1] = Some(self.least[1].map_or(median, |least| least.min(median)));
                let least = self.least.into_iter().flatten().min().unwrap_or(median);
                (TOLERANCE * f64::from(least) / f64::from(median)).clamp(0.5, 1.0)
            }
        };
        let gradient = if has_failed { gradient.min(BACKOFF) } else { gradient };
        // A bound that requests do not get near is untested, so it does not grow.
        let room =
            if has_failed || (self.busiest as f64) < self.limit / 2.0 { 0.0 } else { self.limit.sqrt() };
        let next = self.limit * gradient + room;
        let limit = self.limit + STEP * (next - self.limit);
        self.limit = clamp(limit, self.range);
        (self.began, self.failures, self.busiest) = (now, 0, 0);
        self.latencies.clear();
    }
}

fn clamp(limit: f64, (least, most): BoundRange) -> f64 {
    limit.max(least as f64).min(most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound after so many windows of an origin that takes 10 ms for up to `capacity` requests at a time, and longer beyond.
    fn settled(adaptive: &mut AdaptiveBound, capacity: usize, now: &mut Instant) -> usize {
        for _ in 0..200 {
            let in_flight = adaptive.limit();
            let took = Duration::from_micros(10_000 * in_flight.max(capacity) as u64 / capacity as u64);
            for _ in 0..10 {
                *now += Duration::from_millis(11);
                adaptive.note(Some(took), in_flight, *now);
            }
        }
        adaptive.limit()
    }

    #[test]
    fn the_bound_follows_the_capacity() {
        let mut now = Instant::now();
        let mut adaptive = AdaptiveBound::new((4, 1000), now);
        let large = settled(&mut adaptive, 100, &mut now);
        assert!((100..300).contains(&large), "{large}");
        let small = settled(&mut adaptive, 10, &mut now);
        assert!((10..60).contains(&small), "{small}");
        let large = settled(&mut adaptive, 100, &mut now);
        assert!((100..300).contains(&large), "{large}");
    }

    #[test]
    fn failures_lower_the_bound_and_an_idle_one_does_not_grow() {
        let mut now = Instant::now();
        let mut adaptive = AdaptiveBound::new((4, 1000), now);
        let mut note = |adaptive: &mut AdaptiveBound, took| {
            now += Duration::from_millis(11);
            adaptive.note(took, 1, now);
        };
        (0..200).for_each(|_| note(&mut adaptive, Some(Duration::from_millis(5))));
        assert_eq!(adaptive.limit(), 20);
        (0..500).for_each(|_| note(&mut adaptive, None));
        assert_eq!(adaptive.limit(), 4);
    }
}
