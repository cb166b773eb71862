//! Counters of the process.
//!
//! Counters of requests have [`SHARDS`] copies on separate cache lines, and a scrape adds them up. Each of the first
//! [`OWN`] threads has a copy that only it writes, which takes no locked instruction. All other threads share the
//! remaining copies.

mod histogram;
mod labelled;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

pub(crate) use self::histogram::BLOCKED_BUCKETS;
use self::histogram::BlockedHistogram;
pub(crate) use self::histogram::DURATION_BUCKETS;
pub use self::histogram::Exemplars;
pub use self::histogram::Latencies;
pub use self::histogram::WaitHistogram;
pub(crate) use self::histogram::duration_bucket;
pub(crate) use self::histogram::{DurationCounts, ExemplarSet};
pub use self::histogram::{DurationHistogram, RouteCounters};
pub use self::labelled::Kinds;
use self::labelled::{LabelledCounters, OTHER, UNROUTED};
use super::cache::CacheCounters;
use super::comparisons::ComparisonCounters;
use super::fallbacks::FallbackCounters;
use super::steps::{BLOCKED, StepCounters};

/// The most combinations of kind, side and upstream for which a site counts errors separately. Further errors are
/// counted by kind and side alone, under the upstream [`OTHER`]; there are only a few dozen kinds.
const ERRORS_LIMIT: usize = 64;
/// The most routes with a histogram of their own. Further routes share the labels [`OTHER`].
pub(crate) const ROUTES_LIMIT: usize = 200;
/// The separator between the two labels of a server, or of a route.
pub(crate) const BETWEEN: char = '\0';
/// Copies of the counters that change with each request. A power of two.
pub(crate) const SHARDS: usize = 16;
/// The number of shards that each belong to one thread alone.
const OWN: usize = SHARDS / 2;

/// A worker that was blocked for longer was blocked long, nanoseconds.
const LONG_BLOCKED: u64 = 100_000_000;

/// The label values for statuses, by which the requests of a site are counted.
pub(crate) const STATUS_CLASSES: [&str; 7] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The place of a status in [`STATUS_CLASSES`].
#[inline]
pub(crate) fn status_class(status: Option<u16>) -> usize {
    match status {
        None => 0,
        Some(status @ 100..600) => usize::from(status / 100),
        Some(_) => STATUS_CLASSES.len() - 1,
    }
}

/// Counters on cache lines of their own (two, because the processor fetches them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounters<T>(T);

/// The shard of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    match SHARD.get() {
        usize::MAX => {
            let thread = NEXT.fetch_add(1, Ordering::Relaxed);
            let shard = if thread < OWN { thread } else { OWN + thread % (SHARDS - OWN) };
            SHARD.set(shard);
            shard
        }
        shard => shard,
    }
}

/// Adds `n`, wrapping, to the counter that `counters` gives for the shard of this thread.
#[inline]
pub(crate) fn add_in_shard<'a>(counters: impl FnOnce(usize) -> Option<&'a AtomicU64>, n: u64) {
    if n == 0 {
        return;
    }
    let shard = shard();
    let Some(counter) = counters(shard) else { return };
    if shard < OWN {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    } else {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// A count that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing counted yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one off.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, n: usize) {
        self.0.store(i64::try_from(n).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count that rises so often that threads should not share it.
#[derive(Debug, Default)]
pub struct ShardedCounter([PaddedCounters<AtomicU64>; SHARDS]);

impl ShardedCounter {
    /// Adds one.
    pub fn inc(&self) {
        add_in_shard(|shard| self.0.get(shard).map(|shard| &shard.0), 1);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

/// A count that rises and falls so often that threads should not share it.
#[derive(Debug, Default)]
pub struct ShardedGauge([PaddedCounters<AtomicU64>; SHARDS]);

impl ShardedGauge {
    /// Adds `n`, which may be negative. One thread may subtract a value that another has added, so only the sum of all
    /// shards is meaningful.
    pub fn add(&self, n: i64) {
        add_in_shard(|shard| self.0.get(shard).map(|shard| &shard.0), n.cast_unsigned());
    }

    /// The current value.
    pub fn get(&self) -> i64 {
        let sum =
            |sum: u64, shard: &PaddedCounters<AtomicU64>| sum.wrapping_add(shard.0.load(Ordering::Relaxed));
        self.0.iter().fold(0, sum).cast_signed()
    }
}

/// All counters of the process; made once, shared by an `Arc`, kept across reloads.
#[derive(Debug, Default)]
pub struct Metrics {
    started: StartTime,
    /// Client connections accepted.
    pub connections_accepted: ShardedCounter,
    /// Client connections open now.
    pub connections_active: ShardedGauge,
    /// Client connections closed at once, over a limit.
    pub connections_refused: Counter,
    /// Requests under way, tunnels among them.
    pub requests_active: ShardedGauge,
    /// Requests that wait in queues for their turn.
    pub requests_waiting: ShardedGauge,
    /// Requests that have waited in queues.
    pub requests_queued: Counter,
    /// Requests over HTTP/2 that their clients reset, or left, before they were begun.
    pub requests_reset: Counter,
    /// Handshakes with clients that succeeded.
    pub handshakes_ok: Counter,
    /// Handshakes that resumed a session.
    pub handshakes_resumed: Counter,
    /// Requests served here and fallen back.
    pub fallbacks: FallbackCounters,
    /// Comparisons with the proxy that this one replaces.
    pub comparisons: Arc<ComparisonCounters>,
    /// Copies of requests that were answered.
    pub mirrored: Counter,
    /// Copies of requests that were not answered.
    pub mirrored_failed: Counter,
    /// Copies of requests that were not made, because the body was too long or too many copies were under way.
    pub mirrored_skipped: Counter,
    /// Requests with bodies that were received completely before an origin was asked.
    pub requests_buffered: Counter,
    /// The part of the previous count with bodies that went through a file.
    pub requests_buffered_in_files: Counter,
    /// Responses that were received completely from the origin before their clients had taken them.
    pub responses_buffered: Counter,
    /// The part of the previous count with bodies that went through a file.
    pub responses_buffered_in_files: Counter,
    /// Attempts of requests after the first one.
    pub retries: Counter,
    /// Of these, those at another upstream.
    pub retries_elsewhere: Counter,
    /// Second attempts, sent while a first one had brought no response yet.
    pub hedges: Counter,
    /// Second attempts whose response came first.
    pub hedges_won: Counter,
    /// Further attempts that the budget did not allow.
    pub retries_denied: Counter,
    /// Access-log lines dropped; an [`crate::telemetry::access_log::AccessLog`] counts them here.
    pub access_log_dropped: Arc<Counter>,
    /// Spans that the receiver of traces has taken.
    pub spans_exported: Counter,
    /// Spans that the receiver refused, or that could not be delivered.
    pub spans_failed: Counter,
    /// Spans that were dropped before they were sent, because their request had too many, or too many were waiting.
    pub spans_dropped: Counter,
    /// Lines that were meant for log files of modules and were dropped.
    pub module_log_dropped: Arc<Counter>,
    /// Responses that began although log lines that should have been written first were not yet in their files.
    pub module_log_late: Counter,
    /// Reloads that took effect.
    pub reloads_ok: Counter,
    /// Reloads that were refused.
    pub reloads_refused: Counter,
    /// The cache.
    pub cache: CacheCounters,
    /// Panics caught.
    pub panics: Counter,
    /// Lookups of origins' names.
    pub name_lookups: NameLookups,
    /// How long responses took to begin; recorded only while an observer watches.
    pub latencies: Latencies,
    /// Pieces of heavy work that wait for a thread.
    pub offload_queue: Gauge,
    /// How long pieces of heavy work waited for a thread.
    pub offload_wait: WaitHistogram,
    steps: OnceLock<Arc<StepCounters>>,
    blocked: BlockedHistogram,
    sites: LabelledCounters<SiteCounters>,
    /// Counters of routes. Labels are site and route, separated by [`BETWEEN`].
    routes: LabelledCounters<RouteCounters>,
    upstreams: LabelledCounters<UpstreamCounters>,
    servers: LabelledCounters<ServerCounters>,
    /// Failed handshakes with clients, by reason.
    handshake_failures: Kinds,
    /// Refused PROXY protocol headers, by reason.
    proxy_headers_refused: Kinds,
}

/// The time when this value was made.
#[derive(Debug)]
struct StartTime(SystemTime);

impl Default for StartTime {
    fn default() -> Self {
        Self(SystemTime::now())
    }
}

/// The number of failed requests of a site with the same kind of error at the same upstream.
#[derive(Debug, Clone)]
pub(crate) struct ErrorCount {
    pub(crate) kind: &'static str,
    pub(crate) side: &'static str,
    pub(crate) upstream: Arc<str>,
    pub(crate) count: u64,
}

/// Counters of one site.
#[derive(Debug, Default)]
pub struct SiteCounters {
    shards: [PaddedCounters<SiteShard>; SHARDS],
    errors: Mutex<Vec<ErrorCount>>,
    /// Requests with recorded traces.
    pub exemplars: Exemplars,
}

#[derive(Debug, Default)]
struct SiteShard {
    /// Requests by [`STATUS_CLASSES`].
    classes: [AtomicU64; STATUS_CLASSES.len()],
    /// The requests in each bucket. A request counts in the first of [`DURATION_BUCKETS`] that it fits
    /// into; the last bucket has no end.
    durations: [AtomicU64; DURATION_BUCKETS.len() + 1],
    /// The sum of the durations.
    micros: AtomicU64,
}

impl SiteCounters {
    /// Counts a request by the status of its response, `None` if there was none, and by its
    /// duration.
    pub fn request(&self, status: Option<u16>, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (class, bucket) = (status_class(status), duration_bucket(micros));
        add_in_shard(|shard| self.shards.get(shard)?.0.classes.get(class), 1);
        add_in_shard(|shard| self.shards.get(shard)?.0.durations.get(bucket), 1);
        add_in_shard(|shard| self.shards.get(shard).map(|shard| &shard.0.micros), micros);
    }

    /// Counts a failed request by the kind of its error, the side at fault and the upstream that it
    /// went to.
    pub fn error(&self, kind: &'static str, side: &'static str, upstream: Option<&Arc<str>>) {
        let name = upstream.map_or(UNROUTED, |upstream| upstream);
        let mut errors = self.errors.lock();
        let is = |known: &ErrorCount, name: &str| {
            known.kind == kind && known.side == side && *known.upstream == *name
        };
        if let Some(known) = errors.iter_mut().find(|known| is(known, name)) {
            known.count += 1;
        } else if errors.len() < ERRORS_LIMIT {
            let upstream = upstream.map_or_else(|| UNROUTED.into(), Arc::clone);
            errors.push(ErrorCount { kind, side, upstream, count: 1 });
        } else if let Some(other) = errors.iter_mut().find(|known| is(known, OTHER)) {
            other.count += 1;
        } else if errors.len() < 2 * ERRORS_LIMIT {
            errors.push(ErrorCount { kind, side, upstream: OTHER.into(), count: 1 });
        }
    }

    /// Requests so far, by [`STATUS_CLASSES`].
    pub(crate) fn requests(&self) -> [u64; STATUS_CLASSES.len()] {
        std::array::from_fn(|class| self.sum(|shard| &shard.classes[class]))
    }

    /// Requests so far by [`DURATION_BUCKETS`], and the sum of their durations in microseconds.
    pub(crate) fn durations(&self) -> DurationCounts {
        let buckets = std::array::from_fn(|bucket| self.sum(|shard| &shard.durations[bucket]));
        (buckets, self.sum(|shard| &shard.micros))
    }

    pub(crate) fn errors(&self) -> Vec<ErrorCount> {
        self.errors.lock().clone()
    }

    fn sum(&self, counter: impl Fn(&SiteShard) -> &AtomicU64) -> u64 {
        let counts = self.shards.iter().map(|shard| counter(&shard.0).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

/// Counters of one upstream.
#[derive(Debug, Default)]
pub struct UpstreamCounters {
    /// Connections opened.
    pub opened: Counter,
    /// How long attempts took to the head of a response.
    pub durations: DurationHistogram,
    /// Requests sent on a connection that had been used before, or that other requests share.
    pub reused: ShardedCounter,
    /// Connections that could not be opened.
    pub failed: Counter,
    /// Connections that were closed after a response without a body, because their server had recently sent excess bytes
    /// after another response.
    pub distrusted: Counter,
    /// Requests for which all servers were avoided. One of them was tried nevertheless.
    pub all_down: Counter,
}

/// Counters of one server of an upstream.
#[derive(Debug, Default)]
pub struct ServerCounters {
    /// Attempts that have failed and for which the server is to blame.
    pub failures: Counter,
    /// Set while the server is avoided because it failed.
    pub is_down: AtomicBool,
    /// How often the server was ejected, so that requests avoided it: because of failures in a row, of its share of
    /// failures or of its latency, or because it hung.
    pub ejections: Counter,
    /// Health checks that have succeeded.
    pub probes_passed: Counter,
    /// Health checks that have failed.
    pub probes_failed: Counter,
    /// Requests in flight, updated each second, as are `connections` and `weight`.
    pub in_flight: Gauge,
    /// See `in_flight`.
    pub connections: Gauge,
    /// See `in_flight`.
    pub weight: Gauge,
    /// The counters of the server's host name, if its address is a name.
    pub name: ArcSwapOption<NameCounters>,
}

/// Metrics of an origin's name.
#[derive(Debug, Default)]
pub struct NameCounters {
    /// The number of known addresses of the name.
    pub addresses: Gauge,
}

/// Lookups of origins' names, by their outcome.
#[derive(Debug, Default)]
pub struct NameLookups {
    /// The name has addresses.
    pub found: Counter,
    /// The name has no address.
    pub absent: Counter,
    /// The lookup failed: no nameserver gave an answer.
    pub failed: Counter,
}

impl Metrics {
    /// Sets the sites that have counters. Sites that had counters before keep them. Of the new sites, the first get
    /// counters until there are 1,000; the rest share the counters of the label `other`. Returns the counters, and for
    /// each name, in order, the index of its counters.
    pub fn set_sites<'n>(
        &self,
        names: impl Iterator<Item = &'n Arc<str>> + Clone,
    ) -> (Vec<Arc<SiteCounters>>, Vec<u32>) {
        self.sites.set(names)
    }

    /// Sets the routes with counters of their own, at most [`ROUTES_LIMIT`]. Each name is a site and a route with [`BETWEEN`] between them. Returns
    /// the counters of these routes, and the counters that all other routes share.
    pub(crate) fn set_routes(&self, names: &[Arc<str>]) -> (Vec<Arc<RouteCounters>>, Arc<RouteCounters>) {
        let (counters, indices) = self.routes.set(names.iter());
        let counters = indices.iter().filter_map(|index| counters.get(*index as usize)).cloned();
        (counters.collect(), Arc::clone(&self.routes.other))
    }

    pub(crate) fn routes(&self) -> Vec<(Arc<str>, Arc<RouteCounters>)> {
        self.routes.all()
    }

    /// The counters of requests that no site claims.
    pub fn unrouted(&self) -> Arc<SiteCounters> {
        self.sites.get(UNROUTED)
    }

    /// The counters of the upstream `name`. Calls with the same name get the same counters as long as anything holds them.
    /// Beyond 1,000 names, further names share the counters of the label `other`.
    pub fn upstream(&self, name: &str) -> Arc<UpstreamCounters> {
        self.upstreams.get(name)
    }

    /// The counters of a server, by its address.
    pub fn server(&self, upstream: &str, server: &str) -> Arc<ServerCounters> {
        self.servers.get(&format!("{upstream}{BETWEEN}{server}"))
    }

    /// Counts a failed handshake with a client, by its reason: one of few fixed names.
    pub fn handshake_failed(&self, kind: &'static str) {
        self.handshake_failures.count(kind);
    }

    /// Counts a connection that ended because its PROXY protocol header was refused, by the reason:
    /// one of few fixed names.
    pub fn proxy_header_refused(&self, kind: &'static str) {
        self.proxy_headers_refused.count(kind);
    }

    /// The counters of the pipeline's steps. The first call creates them with `names`; later calls ignore `names`.
    pub fn steps(&self, names: impl ExactSizeIterator<Item = &'static str>) -> &Arc<StepCounters> {
        self.steps.get_or_init(|| Arc::new(StepCounters::new(names)))
    }

    pub(crate) fn known_steps(&self) -> Option<&Arc<StepCounters>> {
        self.steps.get()
    }

    /// Records how long one poll kept its worker.
    pub fn blocked(&self, span: Duration) {
        if span >= BLOCKED
            && let Some(steps) = self.steps.get()
        {
            steps.look_closely();
        }
        self.blocked.record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    /// When the process started.
    pub(crate) fn started(&self) -> SystemTime {
        self.started.0
    }

    /// How often a task blocked its worker for 100 ms or longer.
    pub(crate) fn blocked_long(&self) -> u64 {
        let (counts, _) = self.blocked_counts();
        let ends = BLOCKED_BUCKETS.iter().map(|end| *end <= LONG_BLOCKED).chain([false]);
        counts.iter().zip(ends).filter(|(_, is_short)| !is_short).map(|(count, _)| count).sum()
    }

    pub(crate) fn blocked_counts(&self) -> ([u64; BLOCKED_BUCKETS.len() + 1], u64) {
        self.blocked.counts()
    }

    pub(crate) fn sites(&self) -> Vec<(Arc<str>, Arc<SiteCounters>)> {
        self.sites.all()
    }

    pub(crate) fn upstreams(&self) -> Vec<(Arc<str>, Arc<UpstreamCounters>)> {
        self.upstreams.all()
    }

    /// The counters of servers. Labels are upstream and server, separated by [`BETWEEN`].
    pub(crate) fn servers(&self) -> Vec<(Arc<str>, Arc<ServerCounters>)> {
        self.servers.all()
    }

    pub(crate) fn handshake_failures(&self) -> Vec<(&'static str, u64)> {
        self.handshake_failures.all()
    }

    pub(crate) fn proxy_headers_refused(&self) -> Vec<(&'static str, u64)> {
        self.proxy_headers_refused.all()
    }
}

/// The validity of a certificate that the process uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateExpiry {
    /// The file that it was read from.
    pub file: String,
    /// The end of its validity, seconds since 1970.
    pub not_after: i64,
    /// True if this end has passed.
    pub is_expired: bool,
    /// True if its validity has not begun.
    pub is_not_yet_valid: bool,
    /// True if the OCSP response in the file next to it says that the authority has revoked it.
    pub is_revoked: bool,
    /// The reason why the changed file is not used, and the certificate read before still is.
    pub failure: Option<String>,
    /// The names that the certificate had when the configuration was loaded, and has no longer.
    pub missing_names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::labelled::{LABELS_LIMIT, OTHER};
    use super::*;

    #[test]
    fn errors_of_a_site_are_capped() {
        let site = SiteCounters::default();
        let names: Vec<Arc<str>> = (0..ERRORS_LIMIT + 10).map(|n| n.to_string().into()).collect();
        for name in names.iter().chain(&names) {
            site.error("connect", "upstream", Some(name));
        }
        let errors = site.errors();
        assert_eq!(errors.len(), ERRORS_LIMIT + 1);
        let other = errors.iter().find(|error| &*error.upstream == OTHER).unwrap();
        assert_eq!((other.count, errors[0].count), (20, 2));
    }

    #[test]
    fn labels_are_capped_and_make_room() {
        let metrics = Metrics::default();
        let held: Vec<_> = (0..LABELS_LIMIT).map(|n| metrics.upstream(&n.to_string())).collect();
        assert!(Arc::ptr_eq(&metrics.upstream("7"), &held[7]));
        let one = metrics.upstream("one too many");
        assert!(Arc::ptr_eq(&one, &metrics.upstream("two too many")));
        assert_eq!(metrics.upstreams().last().unwrap().0.as_ref(), OTHER);
        drop(held);
        assert!(!Arc::ptr_eq(&one, &metrics.upstream("one too many")));
    }

    #[test]
    fn what_is_not_configured_any_more_is_not_shown() {
        let metrics = Metrics::default();
        let unrouted = metrics.unrouted();
        let names = |all: Vec<(Arc<str>, Arc<SiteCounters>)>| {
            all.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        let (old, indices) = metrics.set_sites([&"a".into(), &"b".into()].into_iter());
        assert_eq!(indices, [0, 1]);
        old[1].request(Some(200), Duration::ZERO);
        let (new, _) = metrics.set_sites([&"b".into(), &"c".into()].into_iter());
        assert!(Arc::ptr_eq(&old[1], &new[0]), "what stays goes on counting");
        assert!(Arc::ptr_eq(&unrouted, &metrics.unrouted()));
        assert_eq!(names(metrics.sites()), [UNROUTED, "b", "c"]);
        drop((old, new));
        assert_eq!(names(metrics.sites()), [UNROUTED]);
        let upstream = metrics.upstream("gone");
        assert_eq!(metrics.upstreams().len(), 1);
        drop(upstream);
        assert_eq!(metrics.upstreams().len(), 0);
    }

    #[test]
    fn the_first_sites_have_counters_of_their_own() {
        let metrics = Metrics::default();
        let _unrouted = metrics.unrouted();
        let names: Vec<Arc<str>> = (0..LABELS_LIMIT + 2).map(|n| n.to_string().into()).collect();
        let (counters, indices) = metrics.set_sites(names.iter());
        assert_eq!(counters.len(), LABELS_LIMIT);
        assert_eq!(indices[LABELS_LIMIT - 2] as usize, LABELS_LIMIT - 2);
        assert!(indices[LABELS_LIMIT - 1..].iter().all(|index| *index as usize == LABELS_LIMIT - 1));
        assert!(Arc::ptr_eq(&counters[LABELS_LIMIT - 1], &metrics.sites.other));
        // Sites that were shown before stay so.
        let (counters, indices) = metrics.set_sites(names.iter().rev());
        assert!(Arc::ptr_eq(&counters[indices[0] as usize], &metrics.sites.other));
        assert!(!Arc::ptr_eq(&counters[indices[LABELS_LIMIT + 1] as usize], &metrics.sites.other));
    }

    #[test]
    fn threads_count_together() {
        let metrics = Metrics::default();
        let site = metrics.unrouted();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| site.request(Some(200), Duration::ZERO)));
            }
        });
        assert_eq!(site.requests()[2], 20_000);
    }
}
