//! The budget for further attempts. It limits them to a share of the requests in flight, and to a share of the
//! requests of the last seconds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The length of a period. The limit for further attempts applies to the present period and the one before, together.
const PERIOD: Duration = Duration::from_secs(5);

/// The further attempts of an upstream.
#[derive(Debug, Default)]
pub(super) struct RetryBudget {
    /// Requests in flight that are further attempts.
    retrying: AtomicU32,
    /// Requests so far.
    requests: AtomicU64,
    recent: Mutex<RecentAttempts>,
}

/// Requests and further attempts of this period and the one before.
#[derive(Debug, Default)]
struct RecentAttempts {
    began: Option<Instant>,
    /// The count of requests when this period began.
    requests: u64,
    retries: u64,
    before: (u64, u64),
}

impl RecentAttempts {
    /// Begins another period once the present one is over.
    fn turn(&mut self, requests: u64, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age < PERIOD {
            return;
        }
        let last = (requests.saturating_sub(self.requests), self.retries);
        self.before = if age < 2 * PERIOD { last } else { (0, 0) };
        (self.began, self.requests, self.retries) = (Some(now), requests, 0);
    }

    /// Returns true if there is room for one more further attempt. The limit is `percent` of the requests or, if this
    /// is more, `least` for each second of a period. `requests` is the number of all requests so far.
    fn has_room(&mut self, requests: u64, (percent, least): (u64, u64), now: Instant) -> bool {
        self.turn(requests, now);
        let all = requests.saturating_sub(self.requests) + self.before.0;
        self.retries + self.before.1 < (all * percent / 100).max(least * PERIOD.as_secs())
    }

    /// Takes one further attempt, if there is room for it.
    fn take(&mut self, requests: u64, share: (u64, u64), now: Instant) -> bool {
        let may = self.has_room(requests, share, now);
        self.retries += u64::from(may);
        may
    }
}

impl RetryBudget {
    /// Counts a request.
    pub(super) fn enter(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if there is room for one more further attempt, both among the `most` that may be in flight and
    /// over time. `share` has the percentage of requests that may be further attempts, and the number per second that
    /// is always allowed.
    pub(super) fn has_room(&self, most: u64, share: (u64, u64), now: Instant) -> bool {
        u64::from(self.retrying.load(Ordering::Relaxed)) < most && self.has_room_over_time(share, now)
    }

    /// Returns true if there is room for one more further attempt over time.
    pub(super) fn has_room_over_time(&self, share: (u64, u64), now: Instant) -> bool {
        self.recent.lock().has_room(self.requests.load(Ordering::Relaxed), share, now)
    }

    /// Takes a place among the further attempts in flight. Returns false if `most` are in flight already.
    pub(super) fn begin(&self, most: u64) -> bool {
        let taken = self.retrying.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |retrying| {
            (u64::from(retrying) < most).then_some(retrying + 1)
        });
        taken.is_ok()
    }

    /// Gives back the place that [`Self::begin`] took.
    pub(super) fn end(&self) {
        self.retrying.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes one further attempt from the budget.
    pub(super) fn take(&self, share: (u64, u64), now: Instant) -> bool {
        self.recent.lock().take(self.requests.load(Ordering::Relaxed), share, now)
    }

    /// Begins another period if the present one is over. Called once a second.
    pub(super) fn turn(&self, now: Instant) {
        let requests = self.requests.load(Ordering::Relaxed);
        self.recent.lock().turn(requests, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_attempts_are_a_share_of_the_requests_over_time() {
        let (mut recent, mut now) = (RecentAttempts::default(), Instant::now());
        let (mut retries, mut requests) = (0, 0);
        for _ in 0..20_000 {
            now += Duration::from_millis(2);
            requests += 1;
            retries += u64::from(recent.take(requests, (20, 3), now));
        }
        assert!((3_500..=4_000).contains(&retries), "{retries}");
    }

    #[test]
    fn a_few_are_allowed_always() {
        let (mut recent, mut now) = (RecentAttempts::default(), Instant::now());
        for round in 1..5 {
            let may = (0..50).filter(|_| recent.take(round, (20, 3), now)).count();
            assert_eq!(may, 15);
            now += 3 * PERIOD;
        }
    }
}
