//! The counts of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Buckets per doubling in the latency histogram: 6 % wide.
const STEPS: u32 = 4;
/// Enough buckets for latencies up to 2^40 ns, some 18 minutes.
const BUCKETS: usize = (40 << STEPS) + 1;

/// Counts of one measured phase.
pub struct Tally {
    /// Requests answered in full and as expected.
    pub requests: u64,
    /// Body bytes of those answers.
    pub bytes: u64,
    /// Connections opened.
    pub connects: u64,
    /// Errors by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// TLS connections by their negotiated parameters.
    pub tls: BTreeMap<String, u64>,
    latency: Vec<u64>,
    /// The longest time between two answers, on whatever connections.
    gap: Duration,
    last: Option<Instant>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            connects: 0,
            faults: BTreeMap::new(),
            tls: BTreeMap::new(),
            latency: vec![0; BUCKETS],
            gap: Duration::ZERO,
            last: None,
        }
    }
}

impl Tally {
    /// Notes a request that was answered as expected, sent and answered at these times.
    pub fn answered(&mut self, bytes: usize, sent: Instant, now: Instant) {
        let after = now - sent;
        if let Some(last) = self.last.replace(now) {
            self.gap = self.gap.max(now - last);
        }
        self.requests += 1;
        self.bytes += bytes as u64;
        self.latency[bucket(after)] += 1;
    }

    /// Notes something that should not have happened.
    pub fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Number of faults of all kinds.
    pub fn faulty(&self) -> u64 {
        self.faults.values().sum()
    }

    /// The latency in microseconds that a share of the requests stayed below.
    fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.requests as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.latency.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_bound(index) / 1000.0;
            }
        }
        0.0
    }

    /// The counts as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "requests": self.requests,
            "bytes": self.bytes,
            "connects": self.connects,
            "faults": self.faults,
            "tls": self.tls,
            "p50_us": self.quantile(0.50),
            "p99_us": self.quantile(0.99),
            "max_us": self.quantile(1.0),
            "gap_us": self.gap.as_nanos() as f64 / 1000.0,
        })
    }
}

fn bucket(latency: Duration) -> usize {
    let nanoseconds = latency.as_nanos().clamp(1 << STEPS, 1 << 39) as u64;
    let exponent = nanoseconds.ilog2();
    let within = (nanoseconds >> (exponent - STEPS)) & ((1 << STEPS) - 1);
    ((exponent as usize) << STEPS) + within as usize
}

/// Nanoseconds at which a bucket ends.
fn upper_bound(bucket: usize) -> f64 {
    let scale = 2f64.powi((bucket >> STEPS) as i32);
    let within = (bucket & ((1 << STEPS) - 1)) + 1;
    scale * (1.0 + within as f64 / f64::from(1 << STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        for microseconds in 1..=1000 {
            tally.answered(10, start, start + Duration::from_micros(microseconds));
        }
        for (share, truth) in [(0.5, 500.0), (0.99, 990.0)] {
            let got = tally.quantile(share);
            assert!((truth..truth * 1.07).contains(&got), "{share}: {got}");
        }
    }

    #[test]
    fn the_longest_gap_is_between_two_answers() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        for milliseconds in [500, 501, 504, 505] {
            tally.answered(10, start, start + Duration::from_millis(milliseconds));
        }
        assert_eq!(tally.gap, Duration::from_millis(3));
    }
}
