//! Requests served here and requests that have fallen back to another proxy.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// The most combinations of site, route and reason that are counted separately. Further ones are counted by their
/// reason alone.
const LABELS_MOST: usize = 4096;
/// Minutes that are remembered.
const MINUTES: usize = 60;
/// Hours that are remembered, the present one included.
const HOURS: usize = 24;

/// The reason of requests that are served here.
pub const HERE: &str = "";

type Labels = (Box<str>, Box<str>, &'static str);

/// Counts of one span of time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SpanCounts {
    /// The start of the span, seconds since 1970.
    pub start: u64,
    /// Requests served here.
    pub here: u64,
    /// Requests that have fallen back.
    pub there: u64,
}

#[derive(Debug, Default)]
struct Counts {
    by_labels: HashMap<u64, (Labels, u64), foldhash::fast::RandomState>,
    minutes: VecDeque<SpanCounts>,
    hours: VecDeque<SpanCounts>,
}

/// Counters of all requests of configurations with a `fallback`.
#[derive(Debug, Default)]
pub struct FallbackCounters {
    counts: Mutex<Counts>,
    hasher: foldhash::fast::RandomState,
}

/// The requests of one site and route that are served here, or have fallen back for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackCount {
    /// The site; empty for none.
    pub site: Box<str>,
    /// The pattern of the route; empty for none.
    pub route: Box<str>,
    /// Why the requests have fallen back; [`HERE`] if they were served here.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
}

impl FallbackCounters {
    /// Counts a request.
    pub fn count(&self, site: &str, route: &str, reason: &'static str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.count_at(site, route, reason, now);
    }

    fn count_at(&self, site: &str, route: &str, reason: &'static str, now: u64) {
        let key = std::hash::BuildHasher::hash_one(&self.hasher, (site, route, reason));
        let mut counts = self.counts.lock();
        let is_full = counts.by_labels.len() >= LABELS_MOST && !counts.by_labels.contains_key(&key);
        let (key, site, route) = if is_full {
            (std::hash::BuildHasher::hash_one(&self.hasher, ("", "", reason)), "", "")
        } else {
            (key, site, route)
        };
        counts.by_labels.entry(key).or_insert_with(|| ((site.into(), route.into(), reason), 0)).1 += 1;
        add(&mut counts.minutes, now - now % 60, MINUTES, reason);
        add(&mut counts.hours, now - now % 3600, HOURS, reason);
    }

    /// All counts, in the order of their labels.
    pub fn all(&self) -> Vec<FallbackCount> {
        let counts = self.counts.lock();
        let mut all: Vec<_> = counts
            .by_labels
            .values()
            .map(|((site, route, reason), count)| FallbackCount {
                site: site.clone(),
                route: route.clone(),
                reason,
                count: *count,
            })
            .collect();
        all.sort_by(|one, other| {
            (&one.site, &one.route, one.reason).cmp(&(&other.site, &other.route, other.reason))
        });
        all
    }

    /// The counts of the last minutes and hours, the oldest first. Spans without requests are left
    /// out.
    pub fn over_time(&self) -> (Vec<SpanCounts>, Vec<SpanCounts>) {
        let counts = self.counts.lock();
        (counts.minutes.iter().copied().collect(), counts.hours.iter().copied().collect())
    }
}

fn add(spans: &mut VecDeque<SpanCounts>, start: u64, most: usize, reason: &str) {
    if spans.back().is_none_or(|span| span.start < start) {
        spans.push_back(SpanCounts { start, ..SpanCounts::default() });
        if spans.len() > most {
            spans.pop_front();
        }
    }
    if let Some(span) = spans.back_mut() {
        *(if reason == HERE { &mut span.here } else { &mut span.there }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_labels_and_over_time() {
        let counters = FallbackCounters::default();
        for (route, reason, now) in [("/a", HERE, 7200), ("/a", "share", 7259), ("/b", HERE, 7260)] {
            counters.count_at("s", route, reason, now);
        }
        let all: Vec<_> =
            counters.all().into_iter().map(|count| (count.route, count.reason, count.count)).collect();
        assert_eq!(all, [("/a".into(), HERE, 1), ("/a".into(), "share", 1), ("/b".into(), HERE, 1)]);
        let (minutes, hours) = counters.over_time();
        let span = |start, here, there| SpanCounts { start, here, there };
        assert_eq!(minutes, [span(7200, 1, 1), span(7260, 1, 0)]);
        assert_eq!(hours, [span(7200, 2, 1)]);
    }

    #[test]
    fn labels_and_time_are_bounded() {
        let counters = FallbackCounters::default();
        for number in 0..LABELS_MOST as u64 + 100 {
            counters.count_at(&number.to_string(), "/", HERE, number * 60);
        }
        assert_eq!(counters.all().len(), LABELS_MOST + 1);
        let (minutes, hours) = counters.over_time();
        assert_eq!((minutes.len(), hours.len()), (MINUTES, HOURS));
    }
}
