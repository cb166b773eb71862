//! Judges a new version by comparing its answers to real requests with the answers of the old version during
//! the same seconds. No input or output.

use std::fmt;

use crate::protocol::{Stats, latency_of};

/// The number of requests that each version must have served before their response times are compared.
const REQUESTS_FOR_TIMES: u64 = 60;
/// Fewer failures than this are never counted against a version: single failures happen.
const FAILURES_LEAST: u64 = 3;
/// The number of consecutive looks in which the new version must be slower before the trial ends.
const SLOW_LOOKS: u32 = 3;
/// The factor by which the new version may be slower.
const SLOWER: f64 = 1.5;
/// The largest factor that is allowed when the old version's own times vary much.
const SLOWER_MOST: f64 = 1.9;
/// The least difference of times that is counted against the new version, microseconds.
const SLOWER_LEAST: f64 = 400.0;
/// How many more descriptors of unknown purpose the new version may have than the old one.
const DESCRIPTORS_SPARE: u64 = 96;
/// The least number of times that tasks must have blocked a worker before this counts against a version.
const BLOCKED_LEAST: u64 = 5;

const MIB: u64 = 1 << 20;

/// The reason for which a new version is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The figures of both versions at one moment.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The old version.
    pub old: Side,
    /// The new version.
    pub new: Side,
    /// Memory of all processes, bytes (proportional set size).
    pub memory: u64,
}

/// The state of a version at one moment.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// The figures of the version itself.
    pub stats: Stats,
    /// The number of its open descriptors, according to the system.
    pub open: u64,
}

/// The decision after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The trial goes on.
    Fine,
    /// The share of the new version may not grow until memory has fallen.
    Pause,
}

/// Compares two versions over one trial.
#[derive(Debug)]
pub struct Gate {
    old: Stats,
    new: Stats,
    /// The number of descriptors of unknown purpose that the old version had before the trial.
    spare: u64,
    /// Memory of all processes before the trial, bytes.
    steady: u64,
    /// Memory of all processes once the new version was ready, bytes: two processes have then loaded the
    /// configuration. At most twice `steady`.
    loaded: u64,
    /// The factor by which the old version's mean times differed between the two spans before the trial.
    noise: f64,
    slow: u32,
}

/// Bounds on the memory of all processes, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Above this, the share of the new version does not grow.
    pub pause: u64,
    /// Above this, the trial ends and the old version is kept.
    pub most: u64,
}

impl Gate {
    /// A gate that counts from `first` on. `steady` is the memory of all processes before the new one was
    /// started. `halves` are the figures of two spans in which the old version served alone; the difference
    /// between them is the noise.
    pub fn new(first: &Look, steady: u64, halves: &[Stats; 2]) -> Self {
        let noise = match halves
            .each_ref()
            .map(|half| mean(half).filter(|_| half.requests >= REQUESTS_FOR_TIMES / 2))
        {
            [Some(one), Some(other)] if one > 0.0 && other > 0.0 => (one / other).max(other / one),
            _ => 1.0,
        };
        Self {
            old: first.old.stats.clone(),
            new: first.new.stats.clone(),
            spare: first.old.open.saturating_sub(first.old.stats.descriptors),
            steady,
            loaded: steady + first.memory.saturating_sub(steady).min(steady),
            noise,
            slow: 0,
        }
    }

    /// The number of requests that the new version has answered since the gate was made, and that of the old
    /// version.
    pub fn requests(&self, look: &Look) -> (u64, u64) {
        let since = |now: &Stats, then: &Stats| now.requests.saturating_sub(then.requests);
        (since(&look.new.stats, &self.new), since(&look.old.stats, &self.old))
    }

    /// The bounds on the memory of all processes in this trial.
    pub fn memory_bounds(&self) -> MemoryBounds {
        MemoryBounds {
            pause: (self.loaded + self.loaded / 10).max(self.steady + 64 * MIB),
            most: (self.loaded + self.loaded * 15 / 100).max(self.steady + 96 * MIB),
        }
    }

    /// Judges the new version.
    ///
    /// # Errors
    ///
    /// The reason for ending the trial, if there is one.
    pub fn judge(&mut self, look: &Look) -> Result<Verdict, Reason> {
        let new = difference(&look.new.stats, &self.new);
        // If the old version has served too little during the trial, the figures of its whole life
        // are used.
        let mut old = difference(&look.old.stats, &self.old);
        if old.requests < REQUESTS_FOR_TIMES {
            old = Stats {
                latencies: old.latencies,
                latency_micros: old.latency_micros,
                ..look.old.stats.clone()
            };
        }
        if new.panics > 0 && new.panics > old.panics {
            return Err(Reason(format!("panicked {} times", new.panics)));
        }
        let shares = [
            ("answers with status 500 or above", new.errors, new.requests, old.errors, old.requests),
            ("requests without an answer", new.aborted, new.requests, old.aborted, old.requests),
            (
                "failed TLS handshakes",
                new.handshakes_failed,
                new.handshakes + new.handshakes_failed,
                old.handshakes_failed,
                old.handshakes + old.handshakes_failed,
            ),
        ];
        for (what, failed, all, old_failed, old_all) in shares {
            if is_worse(failed, all, old_failed, old_all) {
                let (share, old_share) = (percent(failed, all), percent(old_failed, old_all));
                return Err(Reason(format!(
                    "{what}: {failed} of {all} ({share:.1} %); the old version has {old_failed} of {old_all} ({old_share:.1} %)"
                )));
            }
        }
        self.judge_times(&new, &old)?;
        if new.blocked >= BLOCKED_LEAST
            && rate(new.blocked, new.requests) > 4.0 * rate(old.blocked, old.requests).max(0.001)
        {
            return Err(Reason(format!(
                "blocked its event loop for 100 ms or longer, {} times in {} requests; the old version {} times in {}",
                new.blocked, new.requests, old.blocked, old.requests
            )));
        }
        self.judge_holdings(look)
    }

    /// Compares response times. A single look says little, so the new version must be slower in several looks in
    /// a row.
    fn judge_times(&mut self, new: &Stats, old: &Stats) -> Result<(), Reason> {
        let counted = |stats: &Stats| stats.latencies.iter().sum::<u64>();
        let enough = counted(new) >= REQUESTS_FOR_TIMES && counted(old) >= REQUESTS_FOR_TIMES;
        let worse = |new: f64, old: f64| {
            new > old * (1.0 + 3.0 * (self.noise - 1.0)).clamp(SLOWER, SLOWER_MOST)
                && new - old > SLOWER_LEAST
        };
        let quantiles = [0.5, 0.9, 0.99].map(|part| (quantile(new, part), quantile(old, part)));
        let slow = quantiles.iter().filter(|(new, old)| worse(*new, *old)).count();
        // Two of the three quantiles must be worse. A few slow requests move the last quantile, and a change of the mix
        // of requests moves the first.
        if !enough || slow < 2 {
            self.slow = 0;
            return Ok(());
        }
        self.slow += 1;
        if self.slow < SLOW_LOOKS {
            return Ok(());
        }
        let [(median, old_median), _, (last, old_last)] =
            quantiles.map(|(new, old)| (new / 1000.0, old / 1000.0));
        Err(Reason(format!(
            "slower: a response begins after {median:.1} ms (median) and {last:.1} ms (p99); with the old version after \
             {old_median:.1} ms and {old_last:.1} ms"
        )))
    }

    fn judge_holdings(&self, look: &Look) -> Result<Verdict, Reason> {
        let spare = look.new.open.saturating_sub(look.new.stats.descriptors);
        if spare > self.spare.max(32) + DESCRIPTORS_SPARE {
            return Err(Reason(format!(
                "leaks descriptors: {} are open, of which {} belong to connections and files; the old version had {} others",
                look.new.open, look.new.stats.descriptors, self.spare
            )));
        }
        let MemoryBounds { pause, most } = self.memory_bounds();
        match look.memory {
            memory if memory > most => Err(Reason(format!(
                "memory: all processes have {} MiB, {} MiB before; at most {} MiB are allowed",
                memory / MIB,
                self.steady / MIB,
                most / MIB
            ))),
            memory if memory > pause => Ok(Verdict::Pause),
            _ => Ok(Verdict::Fine),
        }
    }
}

/// Returns true if `failed` of `all` is more than chance explains, given the failure rate of the old version.
fn is_worse(failed: u64, all: u64, old_failed: u64, old_all: u64) -> bool {
    if failed < FAILURES_LEAST || all == 0 {
        return false;
    }
    // With few requests, the failure rate of the old version is assumed to be higher than counted.
    let share = (old_failed as f64 + 0.5) / (old_all as f64 + 20.0);
    let expected = all as f64 * share;
    let spread = (expected * (1.0 - share).max(0.0)).sqrt();
    failed as f64 > expected + 4.0 * spread + 1.0 && rate(failed, all) > share + 0.002
}

fn rate(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * rate(part, all)
}

fn mean(stats: &Stats) -> Option<f64> {
    let count: u64 = stats.latencies.iter().sum();
    (count > 0).then(|| stats.latency_micros as f64 / count as f64)
}

/// The quantile of the times to the first byte, in microseconds; `part` is a fraction, such as 0.9.
fn quantile(stats: &Stats, part: f64) -> f64 {
    let all: u64 = stats.latencies.iter().sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut seen = 0;
    for (bucket, count) in stats.latencies.iter().enumerate() {
        seen += count;
        if seen >= wanted && seen > 0 {
            return latency_of(bucket) as f64;
        }
    }
    0.0
}

/// The difference of two readings.
pub fn difference(now: &Stats, then: &Stats) -> Stats {
    let latency = |(bucket, count): (usize, &u64)| {
        count.saturating_sub(then.latencies.get(bucket).copied().unwrap_or_default())
    };
    Stats {
        requests: now.requests.saturating_sub(then.requests),
        errors: now.errors.saturating_sub(then.errors),
        aborted: now.aborted.saturating_sub(then.aborted),
        latencies: now.latencies.iter().enumerate().map(latency).collect(),
        latency_micros: now.latency_micros.saturating_sub(then.latency_micros),
        handshakes: now.handshakes.saturating_sub(then.handshakes),
        handshakes_failed: now.handshakes_failed.saturating_sub(then.handshakes_failed),
        panics: now.panics.saturating_sub(then.panics),
        blocked: now.blocked.saturating_sub(then.blocked),
        accepted: now.accepted.saturating_sub(then.accepted),
        connections: now.connections,
        descriptors: now.descriptors,
        cores: now.cores.clone(),
        memory: now.memory,
        open: now.open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{LATENCY_BUCKETS, latency_bucket};

    fn stats(requests: u64, errors: u64, micros: u64) -> Stats {
        let mut latencies = vec![0; LATENCY_BUCKETS];
        latencies[latency_bucket(micros)] = requests;
        Stats { requests, errors, latencies, latency_micros: requests * micros, ..Stats::default() }
    }

    fn gate(memory: u64) -> Gate {
        Gate::new(&Look::default(), memory, &[Stats::default(), Stats::default()])
    }

    fn look(old: Stats, new: Stats) -> Look {
        Look { old: Side { stats: old, open: 20 }, new: Side { stats: new, open: 20 }, memory: 0 }
    }

    #[test]
    fn a_version_that_answers_alike_stays() {
        let mut gate = gate(100 * MIB);
        for requests in [10, 100, 1000, 10_000] {
            let look = look(stats(9 * requests, requests / 20, 1500), stats(requests, requests / 150, 1700));
            assert_eq!(gate.judge(&look), Ok(Verdict::Fine), "{requests}");
        }
    }

    #[test]
    fn five_percent_of_errors_are_found_early() {
        let look = look(stats(2000, 0, 1000), stats(80, 4, 1000));
        let reason = gate(100 * MIB).judge(&look).unwrap_err();
        assert!(reason.0.contains("status 500 or above: 4 of 80 (5.0 %)"), "{reason}");
    }

    #[test]
    fn an_origin_that_fails_for_both_is_not_blamed_on_the_new_version() {
        for new in [3, 10, 30, 60] {
            let look = look(stats(900, 450, 1000), stats(new, new * 6 / 10, 1000));
            assert_eq!(gate(100 * MIB).judge(&look), Ok(Verdict::Fine), "{new}");
        }
    }

    #[test]
    fn all_requests_failing_are_found_without_an_old_version_to_compare_with() {
        let look = look(stats(0, 0, 0), stats(10, 10, 1000));
        assert!(gate(100 * MIB).judge(&look).is_err());
    }

    #[test]
    fn twice_as_slow_is_found_after_some_looks() {
        let mut gate = gate(100 * MIB);
        let look = look(stats(900, 0, 2000), stats(100, 0, 4000));
        assert_eq!(gate.judge(&look), Ok(Verdict::Fine));
        assert_eq!(gate.judge(&look), Ok(Verdict::Fine));
        let reason = gate.judge(&look).unwrap_err();
        assert!(reason.0.starts_with("slower"), "{reason}");
    }

    #[test]
    fn noise_of_the_old_version_widens_the_bounds() {
        let halves = [stats(100, 0, 1000), stats(100, 0, 2000)];
        let mut gate = Gate::new(&Look::default(), MIB, &halves);
        let look = look(stats(900, 0, 2000), stats(100, 0, 3300));
        for _ in 0..10 {
            assert_eq!(gate.judge(&look), Ok(Verdict::Fine));
        }
    }

    #[test]
    fn memory_pauses_and_ends_a_trial() {
        let at = |memory| gate(1000 * MIB).judge(&Look { memory: memory * MIB, ..Look::default() });
        assert_eq!(at(1090), Ok(Verdict::Fine));
        assert_eq!(at(1101), Ok(Verdict::Pause));
        assert!(at(1151).unwrap_err().0.starts_with("memory: all processes have 1151 MiB"));
        let small = |memory| gate(10 * MIB).judge(&Look { memory: memory * MIB, ..Look::default() });
        assert_eq!((small(70), small(80)), (Ok(Verdict::Fine), Ok(Verdict::Pause)));
        assert!(small(107).is_err());
        // A large configuration takes its memory once more, while both versions have it.
        let large = |ready: u64, memory: u64| {
            let first = Look { memory: ready * MIB, ..Look::default() };
            let halves = [Stats::default(), Stats::default()];
            Gate::new(&first, 200 * MIB, &halves).judge(&Look { memory: memory * MIB, ..Look::default() })
        };
        assert_eq!((large(300, 320), large(300, 340)), (Ok(Verdict::Fine), Ok(Verdict::Pause)));
        assert!(large(300, 346).is_err());
        assert!(large(700, 461).is_err(), "three times as large");
    }

    #[test]
    fn leaked_descriptors_and_panics_are_found() {
        let mut leaking = look(stats(100, 0, 1000), stats(100, 0, 1000));
        leaking.new.open = 200;
        assert!(gate(MIB).judge(&leaking).unwrap_err().0.starts_with("leaks descriptors"));
        // Descriptors of connections are no leak.
        leaking.new.stats.descriptors = 150;
        assert_eq!(gate(MIB).judge(&leaking), Ok(Verdict::Fine));
        let mut panicking = look(stats(100, 0, 1000), stats(100, 0, 1000));
        panicking.new.stats.panics = 1;
        assert_eq!(gate(MIB).judge(&panicking).unwrap_err().0, "panicked 1 times");
    }

    #[test]
    fn handshakes_are_judged() {
        let mut failing = look(stats(100, 0, 1000), stats(0, 0, 0));
        failing.old.stats.handshakes = 100;
        failing.new.stats.handshakes_failed = 5;
        assert!(gate(MIB).judge(&failing).unwrap_err().0.starts_with("failed TLS handshakes: 5 of 5"));
    }
}
