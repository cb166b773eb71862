//! How long things took.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use foregate_supervisor::protocol::{LATENCY_BUCKETS, latency_bucket};
use parking_lot::Mutex;

use super::{PaddedCounters, SHARDS, STATUS_CLASSES, add_in_shard, status_class};

/// The upper ends of the buckets of request durations, microseconds: 500 us to 10 s.
pub(crate) const DURATION_BUCKETS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// The upper ends of the buckets of the `event_loop_blocked` histogram, nanoseconds: 100 us to 10
/// s.
pub(crate) const BLOCKED_BUCKETS: [u64; 16] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Counts by the buckets of durations, and the sum in microseconds.
pub(crate) type DurationCounts = ([u64; DURATION_BUCKETS.len() + 1], u64);

/// The bucket of a duration in microseconds.
pub(crate) fn duration_bucket(micros: u64) -> usize {
    DURATION_BUCKETS.iter().position(|end| micros <= *end).unwrap_or(DURATION_BUCKETS.len())
}

/// A histogram of durations that are recorded with every request.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    shards: [PaddedCounters<DurationShard>; SHARDS],
    pub(crate) exemplars: Exemplars,
}

#[derive(Debug, Default)]
struct DurationShard {
    buckets: [AtomicU64; DURATION_BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl DurationHistogram {
    /// Records a duration.
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = duration_bucket(micros);
        add_in_shard(|shard| self.shards.get(shard)?.0.buckets.get(bucket), 1);
        add_in_shard(|shard| self.shards.get(shard).map(|shard| &shard.0.micros), micros);
    }

    /// Returns the counts recorded so far.
    pub(crate) fn counts(&self) -> DurationCounts {
        let sum = |counter: &dyn Fn(&DurationShard) -> u64| {
            self.shards.iter().map(|shard| counter(&shard.0)).fold(0, u64::wrapping_add)
        };
        let buckets =
            std::array::from_fn(|bucket| sum(&|shard| shard.buckets[bucket].load(Ordering::Relaxed)));
        (buckets, sum(&|shard| shard.micros.load(Ordering::Relaxed)))
    }
}

/// Counters of a route.
#[derive(Debug, Default)]
pub struct RouteCounters {
    /// The durations of the requests.
    pub durations: DurationHistogram,
    shards: [PaddedCounters<[AtomicU64; STATUS_CLASSES.len()]>; SHARDS],
}

impl RouteCounters {
    /// Counts a request by the status of its response, `None` if there was none, and by its duration.
    pub fn request(&self, status: Option<u16>, duration: Duration) {
        self.durations.record(duration);
        let class = status_class(status);
        add_in_shard(|shard| self.shards.get(shard)?.0.get(class), 1);
    }

    /// Requests so far, by [`STATUS_CLASSES`].
    pub(crate) fn requests(&self) -> [u64; STATUS_CLASSES.len()] {
        let count =
            |class: usize| self.shards.iter().map(move |shard| shard.0[class].load(Ordering::Relaxed));
        std::array::from_fn(|class| count(class).fold(0, u64::wrapping_add))
    }
}

/// The last recorded trace in each bucket of durations.
#[derive(Debug, Default)]
pub struct Exemplars(Mutex<Option<Box<ExemplarSet>>>);

/// See [`Exemplars`].
pub(crate) type ExemplarSet = [Option<DurationExemplar>; DURATION_BUCKETS.len() + 1];

/// A request with a recorded trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DurationExemplar {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// How long it took, microseconds.
    pub micros: u64,
    /// When it ended.
    pub at: SystemTime,
}

impl Exemplars {
    /// Stores a request with a recorded trace, in place of the last one in the same bucket.
    pub fn take(&self, trace: [u8; 16], duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut set = self.0.lock();
        if let Some(place) = set.get_or_insert_default().get_mut(duration_bucket(micros)) {
            *place = Some(DurationExemplar { trace, micros, at: SystemTime::now() });
        }
    }

    /// All values.
    pub(crate) fn all(&self) -> ExemplarSet {
        self.0.lock().as_deref().copied().unwrap_or_default()
    }
}

/// A histogram of durations that only some requests have.
#[derive(Debug, Default)]
pub struct WaitHistogram {
    buckets: [AtomicU64; BLOCKED_BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl WaitHistogram {
    /// Records a duration.
    pub fn record(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BLOCKED_BUCKETS.iter().position(|end| nanos <= *end).unwrap_or(BLOCKED_BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> ([u64; BLOCKED_BUCKETS.len() + 1], u64) {
        let buckets = std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed));
        (buckets, self.nanos.load(Ordering::Relaxed))
    }
}

/// The times from the first byte of a request to the start of its response. Recorded only on demand, to compare two
/// versions of the program.
#[derive(Debug)]
pub struct Latencies {
    watched: AtomicBool,
    buckets: [AtomicU64; LATENCY_BUCKETS],
    micros: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { watched: AtomicBool::new(false), buckets, micros: AtomicU64::new(0) }
    }
}

impl Latencies {
    /// Starts or stops the recording.
    pub fn watch(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    /// Records the response to a request whose first byte arrived at `began`.
    #[inline]
    pub fn record(&self, began: Instant) {
        if self.watched.load(Ordering::Relaxed) {
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            if let Some(bucket) = self.buckets.get(latency_bucket(micros)) {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
            self.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// The counts by bucket, and the sum in microseconds.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        (buckets, self.micros.load(Ordering::Relaxed))
    }
}

/// A histogram of the durations of polls. Because every poll is recorded, each thread has a part that only it writes,
/// without locked instructions.
#[derive(Debug)]
pub(crate) struct BlockedHistogram {
    /// Identifies this histogram: a thread checks whether its part belongs to it.
    id: u64,
    /// One part for each thread that has ever recorded a poll. Parts of ended threads are kept, because their polls count.
    parts: Mutex<Vec<Arc<BlockedPart>>>,
}

/// The polls of one thread by their duration; the last bucket has no upper end.
#[derive(Debug, Default)]
#[repr(align(128))]
struct BlockedPart {
    buckets: [AtomicU64; BLOCKED_BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl Default for BlockedHistogram {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), parts: Mutex::default() }
    }
}

impl BlockedHistogram {
    pub(crate) fn record(&self, nanos: u64) {
        thread_local! {
            static PART: RefCell<(u64, Arc<BlockedPart>)> = RefCell::default();
        }
        PART.with_borrow_mut(|(owner, part)| {
            if *owner != self.id {
                *part = Arc::default();
                *owner = self.id;
                self.parts.lock().push(Arc::clone(part));
            }
            // A linear search is fast: nearly all polls belong to the first bucket.
            let bucket =
                BLOCKED_BUCKETS.iter().position(|end| nanos <= *end).unwrap_or(BLOCKED_BUCKETS.len());
            let add = |to: &AtomicU64, n: u64| {
                to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            };
            add(&part.buckets[bucket], 1);
            add(&part.nanos, nanos);
        });
    }

    /// Polls per bucket, and nanoseconds of all polls.
    pub(crate) fn counts(&self) -> ([u64; BLOCKED_BUCKETS.len() + 1], u64) {
        let mut buckets = [0; BLOCKED_BUCKETS.len() + 1];
        let mut nanos = 0u64;
        for part in self.parts.lock().iter() {
            for (sum, bucket) in buckets.iter_mut().zip(&part.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            nanos = nanos.wrapping_add(part.nanos.load(Ordering::Relaxed));
        }
        (buckets, nanos)
    }
}
