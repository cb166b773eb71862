//! Times as a distribution.

use std::time::Duration;

/// The number of buckets for each power of two.
const STEPS: u64 = 4;
const BUCKETS: usize = 136;

/// Counts times from one microsecond to hours. The upper end of a bucket is at most 25 % above its lower end.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    all: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), all: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = u64::from(micros.ilog2());
        let step = if power >= 2 { (micros >> (power - 2)) & (STEPS - 1) } else { 0 };
        let bucket = usize::try_from(power * STEPS + step).unwrap_or(BUCKETS);
        let bucket = bucket.min(BUCKETS - 1);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
            self.all += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.all
    }

    /// The time that the fraction `share` (from 0 to 1) of all times does not exceed. Zero if there are no times.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
                let base = 1u64 << power;
                return Duration::from_micros(base + base * (step + 1) / STEPS - u64::from(power >= 2));
            }
        }
        Duration::ZERO
    }
}
