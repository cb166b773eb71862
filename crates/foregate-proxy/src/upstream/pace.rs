//! The recent latencies of a server: percentiles, and a moving average that follows peaks at once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Latencies below 64 us (2 to this power) share the first bucket. Each octave above has [`PER_OCTAVE`]
/// buckets.
const FIRST_OCTAVE: u32 = 6;
const PER_OCTAVE: usize = 4;
const BUCKETS: usize = 96;
/// The interval at which the recorded latencies lose half of their weight.
const AGED_EVERY: Duration = Duration::from_secs(10);
/// The time constant of the moving average.
const TAU: Duration = Duration::from_secs(10);
/// The least weight of an answer in the moving average. A busy server forgets a single slow answer after some dozens of
/// quick ones, long before [`TAU`] has passed.
const LEAST_WEIGHT: f64 = 1.0 / 32.0;

/// Latencies of a server, from the start of an attempt to the head of its response.
#[derive(Debug)]
pub(super) struct Pace {
    epoch: Instant,
    /// The time of the last answer, in milliseconds after `epoch`.
    answered: AtomicU64,
    /// The number of answers.
    answers: AtomicU64,
    /// Recent answers by their latency.
    buckets: [AtomicU32; BUCKETS],
    aged: AtomicU64,
    /// The average in microseconds, packed with the time of its last change. If two threads write at
    /// once, one sample is lost.
    average: AtomicU64,
    average_at: AtomicU64,
}

/// A copy of the buckets.
#[derive(Debug, Clone)]
pub(super) struct LatencyBuckets([u64; BUCKETS]);

impl Pace {
    /// A server that has not answered yet.
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            answered: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
            aged: AtomicU64::new(0),
            average: AtomicU64::new(0),
            average_at: AtomicU64::new(0),
        }
    }

    /// Milliseconds of `now` on the clock of this server.
    pub(super) fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// Records an answer after `took`.
    pub(super) fn answered(&self, took: Duration, now: Instant, averages: bool) {
        let (micros, now) = (u64::try_from(took.as_micros()).unwrap_or(u64::MAX), self.millis(now));
        // Written at most once a millisecond, because threads share the cache line.
        if self.answered.load(Ordering::Relaxed) < now {
            self.answered.store(now, Ordering::Relaxed);
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        if averages {
            let old = self.average.load(Ordering::Relaxed);
            let since = now.saturating_sub(self.average_at.swap(now, Ordering::Relaxed));
            let new = if micros >= old {
                micros
            } else {
                let weight = decay(since).min(1.0 - LEAST_WEIGHT);
                (old as f64 * weight + micros as f64 * (1.0 - weight)) as u64
            };
            self.average.store(new.max(1), Ordering::Relaxed);
        }
    }

    /// Records a latency of at least `took`: the request stopped waiting then.
    pub(super) fn took_at_least(&self, took: Duration) {
        if let Some(bucket) = self.buckets.get(bucket(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The recent average in microseconds; 0 before the first answer. It falls while there are no
    /// answers, so that a slow server is tried again after some time.
    pub(super) fn average(&self, now: Instant) -> u64 {
        let average = self.average.load(Ordering::Relaxed);
        let since = self.millis(now).saturating_sub(self.average_at.load(Ordering::Relaxed));
        if average == 0 { 0 } else { ((average as f64 * decay(since)) as u64).max(1) }
    }

    /// The time of the last answer, in milliseconds after `epoch`.
    pub(super) fn last(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// The number of answers.
    pub(super) fn count(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Halves the weight of recorded latencies, once every [`AGED_EVERY`].
    pub(super) fn age(&self, now: Instant) {
        let (now, aged) = (self.millis(now), self.aged.load(Ordering::Relaxed));
        let every = AGED_EVERY.as_millis() as u64;
        if now < aged + every
            || self.aged.compare_exchange(aged, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for bucket in &self.buckets {
            let count = bucket.load(Ordering::Relaxed);
            bucket.fetch_sub(count.div_ceil(2), Ordering::Relaxed);
        }
    }

    /// Forgets the latencies.
    pub(super) fn forget(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
    }

    /// Recent latencies.
    pub(super) fn latencies(&self) -> LatencyBuckets {
        LatencyBuckets(std::array::from_fn(|at| {
            u64::from(self.buckets.get(at).map_or(0, |bucket| bucket.load(Ordering::Relaxed)))
        }))
    }
}

impl LatencyBuckets {
    /// Empty buckets.
    pub(super) fn none() -> Self {
        Self([0; BUCKETS])
    }

    /// Adds the answers of another server.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// The number of answers.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency that `percent` of the answers do not exceed; `None` without answers.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let count = self.count();
        let wanted = (count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        (count > 0).then(|| Duration::from_micros(end(at)))
    }
}

fn decay(millis: u64) -> f64 {
    (-(millis as f64) / TAU.as_millis() as f64).exp()
}

/// The bucket of a latency in microseconds.
fn bucket(micros: u64) -> usize {
    let octave = micros.max(1).ilog2();
    if octave < FIRST_OCTAVE {
        return 0;
    }
    let quarter = (micros >> (octave - 2)) as usize & (PER_OCTAVE - 1);
    ((octave - FIRST_OCTAVE) as usize * PER_OCTAVE + quarter).min(BUCKETS - 1)
}

/// The end of a bucket, microseconds.
fn end(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / PER_OCTAVE, (bucket % PER_OCTAVE) as u64);
    (1 << (octave + FIRST_OCTAVE as usize)) / PER_OCTAVE as u64 * (PER_OCTAVE as u64 + quarter + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_within_a_quarter_of_an_octave() {
        let (pace, now) = (Pace::new(), Instant::now());
        assert_eq!(pace.latencies().percentile(50), None);
        (1..=1000).for_each(|millis| pace.answered(MILLI * millis, now, false));
        for (percent, exact) in [(50, 500.0), (90, 900.0), (99, 990.0)] {
            let found = pace.latencies().percentile(percent).unwrap().as_secs_f64() * 1000.0;
            assert!((exact..exact * 1.26).contains(&found), "{percent}: {found}");
        }
        for micros in [0, 1, 63, 64, 79, 80, 100, 5000, 1 << 40, u64::MAX] {
            let at = bucket(micros);
            assert!(micros <= end(at) || at == BUCKETS - 1, "{micros}: {at}");
            assert!(at == 0 || micros >= end(at - 1), "{micros}: {at}");
        }
    }

    #[test]
    fn old_latencies_lose_their_weight() {
        let (pace, now) = (Pace::new(), Instant::now());
        (0..64).for_each(|_| pace.answered(MILLI, now, false));
        pace.age(now + AGED_EVERY / 2);
        assert_eq!(pace.latencies().count(), 64);
        pace.age(now + AGED_EVERY * 2);
        pace.age(now + AGED_EVERY * 2);
        assert_eq!(pace.latencies().count(), 32);
        pace.forget();
        assert_eq!((pace.latencies().count(), pace.count()), (0, 64));
    }

    #[test]
    fn the_average_follows_a_peak_at_once_and_falls_slowly() {
        let (pace, now) = (Pace::new(), Instant::now());
        pace.answered(MILLI * 10, now, true);
        assert_eq!(pace.average(now), 10_000);
        pace.answered(MILLI * 100, now, true);
        assert_eq!(pace.average(now), 100_000);
        pace.answered(MILLI * 10, now + TAU / 10, true);
        let fallen = pace.average(now + TAU / 10);
        assert!((85_000..95_000).contains(&fallen), "{fallen}");
        assert!(pace.average(now + TAU * 6) < 300);
    }

    #[test]
    fn a_busy_server_forgets_a_single_slow_answer() {
        let (pace, now) = (Pace::new(), Instant::now());
        pace.answered(MILLI * 100, now, true);
        (0..64).for_each(|_| pace.answered(MILLI * 10, now, true));
        let average = pace.average(now);
        assert!((20_000..25_000).contains(&average), "{average}");
    }
}
