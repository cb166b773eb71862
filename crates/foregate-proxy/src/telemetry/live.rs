//! Requests for observers of the running proxy: requests under way, requests of each route, the slowest requests, and the last
//! failed ones.
//!
//! Without an observer, only failures of the proxy and of origins are recorded, and these only if the
//! configuration has an admin interface or a dashboard, which show them. Failures are rare, and their records
//! are bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::access_log::LogEntry;
use crate::counters::metrics::{DURATION_BUCKETS, STATUS_CLASSES, duration_bucket, status_class};

/// The most failed requests that are kept.
const FAILURES: usize = 100;
/// The most failed requests of one second that are kept. Further ones are only counted.
const FAILURES_PER_SECOND: u32 = 20;
/// The number of routes that are counted separately. Further routes are counted together.
const ROUTES: usize = 500;
/// The name of further routes.
const OTHERS: &str = "other";
/// The most finished requests that are kept as the slowest ones.
const SLOWEST: usize = 10;
/// How long slow requests are kept.
const SLOW_FOR: Duration = Duration::from_secs(60);
/// The most requests under way that are recorded. Further ones are not shown.
const UNDER_WAY: usize = 10_000;
/// The most bytes of a target that are shown for a request under way.
const TARGET: usize = 256;

/// The unit of [`LiveRequests::wanted`] that each observer adds.
const WATCHED: usize = 2;
/// The bit of [`LiveRequests::wanted`] that is set if failures are kept even without an observer.
const KEEPS_FAILURES: usize = 1;

/// Requests as an observer sees them.
#[derive(Debug, Default)]
pub struct LiveRequests {
    /// The sum of [`KEEPS_FAILURES`], if failures are kept, and [`WATCHED`] for each observer.
    wanted: AtomicUsize,
    next: AtomicU64,
    under_way: Mutex<HashMap<u64, RequestUnderWay, foldhash::fast::RandomState>>,
    routes: Mutex<HashMap<RouteName, LiveRouteCounts, foldhash::fast::RandomState>>,
    slowest: Mutex<Vec<SlowRequest>>,
    failures: Mutex<FailureList>,
}

/// A site's name and the pattern of one of its routes.
type RouteName = (Arc<str>, Arc<str>);

/// A request that is not answered yet.
#[derive(Debug, Clone)]
pub struct RequestUnderWay {
    /// When it began.
    pub began: Instant,
    /// Its method.
    pub method: String,
    /// The requested host.
    pub host: String,
    /// The start of its target.
    pub target: String,
}

/// The requests of a route since the first observer came.
#[derive(Debug, Clone, Default)]
pub struct LiveRouteCounts {
    /// The number of requests by class of the status.
    pub classes: [u64; STATUS_CLASSES.len()],
    /// The number of requests by duration.
    pub durations: [u64; DURATION_BUCKETS.len() + 1],
}

/// A finished request that took long.
#[derive(Debug, Clone)]
struct SlowRequest {
    ended: Instant,
    duration: Duration,
    line: Arc<str>,
}

#[derive(Debug, Default)]
struct FailureList {
    last: VecDeque<(u64, Arc<str>)>,
    /// The number of failures, including those that were only counted.
    count: u64,
    /// The second in which the last failure was kept, and the number of failures kept in that second.
    second: Option<(Instant, u32)>,
}

/// An observer's registration: requests are recorded until it is dropped.
#[derive(Debug)]
pub struct Watching(Arc<LiveRequests>);

impl Drop for Watching {
    fn drop(&mut self) {
        if self.0.wanted.fetch_sub(WATCHED, Ordering::Relaxed) < 2 * WATCHED {
            self.0.forget();
        }
    }
}

/// The record of a request under way. Dropping it ends the record.
#[derive(Debug)]
pub struct LiveTicket {
    live: Arc<LiveRequests>,
    number: u64,
}

impl Drop for LiveTicket {
    fn drop(&mut self) {
        self.live.under_way.lock().remove(&self.number);
    }
}

impl LiveRequests {
    /// Registers an observer, which starts recording.
    pub fn watch(self: &Arc<Self>) -> Watching {
        if self.wanted.fetch_add(WATCHED, Ordering::Relaxed) < WATCHED {
            self.forget();
        }
        Watching(Arc::clone(self))
    }

    /// Sets whether failures are kept while there is no observer.
    pub fn keep_failures(&self, kept: bool) {
        if kept {
            self.wanted.fetch_or(KEEPS_FAILURES, Ordering::Relaxed);
        } else {
            self.wanted.fetch_and(!KEEPS_FAILURES, Ordering::Relaxed);
            *self.failures.lock() = FailureList::default();
        }
    }

    /// Drops the records that were kept for observers, after the last observer has left.
    fn forget(&self) {
        self.routes.lock().clear();
        self.slowest.lock().clear();
    }

    /// Returns true if the caller must pass a finished request to [`Self::ended`].
    #[inline]
    pub fn wants(&self, failed: bool) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted != 0 && (failed || wanted >= WATCHED)
    }

    /// Records a request that begins, if there is an observer.
    #[inline]
    pub fn begins(
        self: &Arc<Self>,
        began: Instant,
        request: impl FnOnce() -> (String, String, Vec<u8>),
    ) -> Option<LiveTicket> {
        if self.wanted.load(Ordering::Relaxed) < WATCHED {
            return None;
        }
        let (method, host, target) = request();
        let target = String::from_utf8_lossy(target.get(..TARGET).unwrap_or(&target)).into_owned();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut under_way = self.under_way.lock();
        if under_way.len() >= UNDER_WAY {
            return None;
        }
        under_way.insert(number, RequestUnderWay { began, method, host, target });
        drop(under_way);
        Some(LiveTicket { live: Arc::clone(self), number })
    }

    /// Records a request that has ended.
    pub fn ended(&self, entry: &LogEntry<'_>, failed: bool) {
        let now = Instant::now();
        if self.wanted.load(Ordering::Relaxed) >= WATCHED {
            self.count(entry);
            let mut slowest = self.slowest.lock();
            slowest.retain(|slow| now.saturating_duration_since(slow.ended) < SLOW_FOR);
            let least = slowest.last().map_or(Duration::ZERO, |slow| slow.duration);
            if slowest.len() < SLOWEST || entry.duration > least {
                let line = entry.json().into();
                slowest.push(SlowRequest { ended: now, duration: entry.duration, line });
                slowest.sort_by_key(|slow| std::cmp::Reverse(slow.duration));
                slowest.truncate(SLOWEST);
            }
        }
        if failed {
            self.failures.lock().add(now, || entry.json().into());
        }
    }

    fn count(&self, entry: &LogEntry<'_>) {
        let mut name: RouteName = (entry.site.unwrap_or("-").into(), entry.route.unwrap_or("-").into());
        let mut routes = self.routes.lock();
        if routes.len() >= ROUTES && !routes.contains_key(&name) {
            name = (OTHERS.into(), OTHERS.into());
        }
        let counts = routes.entry(name).or_default();
        counts.classes[status_class(entry.status)] += 1;
        counts.durations[duration_bucket(u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX))] += 1;
    }

    /// The requests of routes since the first observer came, most requests first.
    pub fn routes(&self) -> Vec<(RouteName, LiveRouteCounts)> {
        let routes = self.routes.lock();
        let mut routes: Vec<_> = routes.iter().map(|(name, counts)| (name.clone(), counts.clone())).collect();
        let requests = |counts: &LiveRouteCounts| counts.classes.iter().sum::<u64>();
        routes.sort_by(|(a, of_a), (b, of_b)| requests(of_b).cmp(&requests(of_a)).then_with(|| a.cmp(b)));
        routes
    }

    /// The requests that have been under way for longest.
    pub fn under_way(&self, most: usize) -> Vec<RequestUnderWay> {
        let mut under_way: Vec<_> = self.under_way.lock().values().cloned().collect();
        under_way.sort_by_key(|request| request.began);
        under_way.truncate(most);
        under_way
    }

    /// The requests of the last minute that took longest, as lines of an access log.
    pub fn slowest(&self) -> Vec<Arc<str>> {
        let now = Instant::now();
        let slowest = self.slowest.lock();
        let recent = slowest.iter().filter(|slow| now.saturating_duration_since(slow.ended) < SLOW_FOR);
        recent.map(|slow| Arc::clone(&slow.line)).collect()
    }

    /// The last failed requests as lines of an access log, each with its number, the newest one first. The second
    /// value is the number of all failures so far.
    pub fn failures(&self) -> (Vec<(u64, Arc<str>)>, u64) {
        let failures = self.failures.lock();
        (failures.last.iter().rev().cloned().collect(), failures.count)
    }

    /// The number of requests that have failed so far.
    pub fn failed(&self) -> u64 {
        self.failures.lock().count
    }
}

impl FailureList {
    fn add(&mut self, now: Instant, line: impl FnOnce() -> Arc<str>) {
        self.count += 1;
        let kept = match self.second {
            Some((since, kept)) if now.saturating_duration_since(since) < Duration::from_secs(1) => kept,
            _ => 0,
        };
        if kept >= FAILURES_PER_SECOND {
            return;
        }
        let since = if kept == 0 { now } else { self.second.map_or(now, |(since, _)| since) };
        self.second = Some((since, kept + 1));
        if self.last.len() >= FAILURES {
            self.last.pop_front();
        }
        self.last.push_back((self.count, line()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_bounded_in_number_and_in_time() {
        let mut failures = FailureList::default();
        let start = Instant::now();
        for number in 0..50 {
            failures.add(start, || number.to_string().into());
        }
        assert_eq!((failures.last.len(), failures.count), (FAILURES_PER_SECOND as usize, 50));
        for second in 1..20 {
            for number in 0..10 {
                failures.add(start + Duration::from_secs(second), || number.to_string().into());
            }
        }
        assert_eq!((failures.last.len(), failures.count), (FAILURES, 240));
        assert_eq!(failures.last.back().unwrap().0, 240);
    }

    #[test]
    fn nothing_is_recorded_while_nobody_watches() {
        let live = Arc::new(LiveRequests::default());
        let request = || ("GET".to_owned(), "a".to_owned(), b"/".to_vec());
        assert!(!live.wants(true) && live.begins(Instant::now(), request).is_none());
        live.keep_failures(true);
        assert!(live.wants(true) && !live.wants(false));
        let (one, two) = (live.watch(), live.watch());
        let ticket = live.begins(Instant::now(), request);
        assert_eq!(live.under_way(9).len(), 1);
        drop((ticket, one));
        assert!(live.wants(false) && live.under_way(9).is_empty());
        drop(two);
        assert!(live.wants(true) && !live.wants(false));
        live.keep_failures(false);
        assert!(!live.wants(true));
    }
}
