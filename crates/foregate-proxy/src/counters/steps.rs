//! Counters of the steps of modules. They also record which steps are suspended because they panicked, and which steps
//! run on the threads for heavy work because they blocked a worker.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use foregate_module::Traffic;
use parking_lot::Mutex;

use super::metrics::{Counter, SHARDS, add_in_shard};

/// The number of panics of one step within [`PANIC_SPAN`] that opens its circuit breaker.
const PANICS: u64 = 5;
/// The span in which [`PANICS`] are counted, milliseconds.
const PANIC_SPAN: u64 = 10_000;
/// How long a step is not run after its circuit breaker has opened, milliseconds. Then it is tried again.
const OPEN: u64 = 10_000;
/// The most event names that one step may count. Names are constants of the program, so the limit is only a safeguard.
const EVENTS: usize = 64;
/// The most pairs of an event and a part of the configuration that one step may count. Further parts are counted
/// together.
const TALLIES: usize = 1000;
/// The name under which further parts are counted.
const OTHERS: &[u8] = b"(others)";
/// A step that held its worker for longer than this is counted as having blocked it.
pub(crate) const BLOCKED: Duration = Duration::from_millis(10);
/// One in this many phases with steps is timed, because to read the clock costs as much as some steps. The number is
/// prime, so that different phases are timed even if all requests have the same number of phases.
const SAMPLE: u32 = 17;
/// How long all phases are timed after a task has held its worker, milliseconds.
const CLOSE_LOOK: u64 = 5_000;
/// How long a step stays suspected after it seems to have blocked its worker, milliseconds.
const SUSPECTED: u64 = 60_000;
/// How long a light step runs on the threads for heavy work after it has used the processor for
/// [`BLOCKED`], milliseconds.
const MOVED: u64 = 60_000;
/// The most known slow settings of one step. Beyond it, all settings count as slow.
const SLOW_SETTINGS: usize = 64;

/// Counters of all steps of a pipeline.
#[derive(Debug)]
pub struct StepCounters {
    steps: Box<[StepCounter]>,
    /// The runs of each step. They have shards, because they change with each request.
    runs: Box<[Box<[AtomicU64]>]>,
    /// Until when all phases are timed, milliseconds since [`START`].
    close_look: AtomicU64,
    /// Until this time, a step may be suspected, slow or broken; after it, none is. In milliseconds of the steady clock.
    watched: Arc<AtomicU64>,
}

/// The zero of [`StepCounters::close_look`].
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Counters of one step.
#[derive(Debug)]
pub struct StepCounter {
    /// Its name.
    pub name: &'static str,
    /// Requests that the step ended.
    pub stops: Counter,
    /// Requests that it would have ended, in a dry run.
    pub dry_stops: Counter,
    /// Panics.
    pub panics: Counter,
    /// Requests on which it was not run because of earlier panics.
    pub broken: Counter,
    /// Requests on which it was not run because the queue was full.
    pub shed: Counter,
    /// Bodies that its filter let pass unchanged, because it could not continue.
    pub bails: Counter,
    /// Bytes that its filters got.
    pub filter_in: Counter,
    /// Bytes that its filters wrote.
    pub filter_out: Counter,
    /// How long its filters were at work, nanoseconds.
    pub filter_nanos: Counter,
    /// Bodies that its filter broke off.
    pub breaks: Counter,
    /// Requests that it and its filters have asked for.
    pub fetches: Counter,
    /// Fetches without an answer.
    pub fetches_failed: Counter,
    /// Runs that were timed.
    pub timed: Counter,
    /// How long these took, nanoseconds.
    pub nanos: Counter,
    /// Timed runs that held a worker for more than 10 ms, and bodies in which the step's filter took more than 10 ms
    /// for one piece.
    pub blocked: Counter,
    /// Requests on which a step that is declared light ran on the threads for heavy work.
    pub moved: Counter,
    events: Mutex<Vec<(&'static str, u64)>>,
    tallies: Mutex<Tallies>,
    breaker: Breaker,
    slowness: Slowness,
    /// [`StepCounters::watched`], which all steps share.
    watched: Arc<AtomicU64>,
}

/// The time until which the step is suspected of blocking its worker, and the time until which it is known to block
/// with some settings; in milliseconds of the steady clock.
///
/// A step is suspected if a run of it took long. The system may have run another process meanwhile, so the processor
/// time of a suspected step is measured. That costs a system call before and after each run.
#[derive(Debug, Default)]
struct Slowness {
    suspected: AtomicU64,
    known: AtomicU64,
    of_settings: Mutex<Vec<Slow>>,
}

/// Settings with which a step is slow. Only runs with these settings leave the workers, so that a slow regular
/// expression of one site does not block the workers for other sites.
#[derive(Debug)]
struct Slow {
    settings: usize,
    until: u64,
    /// The smallest slow input, bytes. Steps read their input once, so an input of less than half this size takes less
    /// than half the time. With such an input the step may run on a worker, and does not have to wait behind larger
    /// inputs.
    from: usize,
}

/// The part of a step's input that determines its run time.
#[derive(Debug, Clone, Copy)]
pub struct StepInput {
    /// Identifies the settings by their address. If a reload puts other settings at the same address, the record of the old
    /// ones expires after a while.
    pub settings: usize,
    /// The size of the input, bytes.
    pub size: usize,
}

/// Counts by event and part.
type Tallies = HashMap<(&'static str, Box<[u8]>), u64, foldhash::fast::RandomState>;

/// The circuit breaker of a step: the panics in the present span, its start, and the time until which the step is
/// not run; in milliseconds of the steady clock.
#[derive(Debug, Default)]
struct Breaker {
    panics: AtomicU64,
    since: AtomicU64,
    until: AtomicU64,
}

impl StepCounters {
    /// Counters of steps with these names, in the order of their pipeline.
    pub fn new(names: impl ExactSizeIterator<Item = &'static str>) -> Self {
        let count = names.len();
        let shard = || (0..count).map(|_| AtomicU64::new(0)).collect();
        let runs = (0..SHARDS).map(|_| shard()).collect();
        let watched: Arc<AtomicU64> = Arc::default();
        let step = |name| StepCounter::new(name, Arc::clone(&watched));
        Self { steps: names.map(step).collect(), runs, close_look: AtomicU64::new(0), watched }
    }

    /// Returns true if any step may be [watched](Self::is_watched) at `now`, in milliseconds of the
    /// steady clock.
    #[inline]
    pub fn any_is_watched(&self, now: u64) -> bool {
        let until = self.watched.load(Ordering::Relaxed);
        until != 0 && now < until
    }

    /// Returns true if a step is [suspected](StepCounter::is_suspected),
    /// [slow](StepCounter::is_slow) with some settings, or
    /// [broken](StepCounter::is_broken) at `now`, in milliseconds of the steady clock.
    pub fn is_watched(&self, step: u16, now: u64) -> bool {
        let is_watched =
            |step: &StepCounter| step.is_suspected(now) || step.may_be_slow(now) || step.is_broken(now);
        self.get(step).is_some_and(is_watched)
    }

    /// Makes all phases timed for a while. Called when a task has held its worker for longer than [`BLOCKED`], because a
    /// step may be the cause.
    pub(crate) fn look_closely(&self) {
        self.close_look.store(since_start(Instant::now()) + CLOSE_LOOK, Ordering::Relaxed);
    }

    /// Returns true if the steps of a phase should be timed. `now` may be the time at which the poll began.
    #[inline]
    pub fn is_timed(&self, now: impl FnOnce() -> Instant) -> bool {
        thread_local! {
            static COUNT: Cell<u32> = const { Cell::new(0) };
        }
        let until = self.close_look.load(Ordering::Relaxed);
        COUNT.replace(COUNT.get().wrapping_add(1)).is_multiple_of(SAMPLE)
            || (until != 0 && since_start(now()) < until)
    }

    /// The counters of a step.
    pub fn get(&self, step: u16) -> Option<&StepCounter> {
        self.steps.get(usize::from(step))
    }

    /// The counters of the step with this name.
    pub fn named(&self, name: &str) -> Option<&StepCounter> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Counts a run.
    #[inline]
    pub fn ran(&self, step: u16) {
        add_in_shard(|shard| self.runs.get(shard)?.get(usize::from(step)), 1);
    }

    /// All steps, with their runs so far.
    pub fn all(&self) -> impl Iterator<Item = (&StepCounter, u64)> {
        self.steps.iter().enumerate().map(|(number, step)| {
            let runs = self.runs.iter().filter_map(|shard| shard.get(number));
            (step, runs.map(|runs| runs.load(Ordering::Relaxed)).sum())
        })
    }
}

impl StepCounter {
    fn new(name: &'static str, watched: Arc<AtomicU64>) -> Self {
        Self {
            name,
            watched,
            stops: Counter::default(),
            dry_stops: Counter::default(),
            panics: Counter::default(),
            broken: Counter::default(),
            shed: Counter::default(),
            bails: Counter::default(),
            filter_in: Counter::default(),
            filter_out: Counter::default(),
            filter_nanos: Counter::default(),
            breaks: Counter::default(),
            fetches: Counter::default(),
            fetches_failed: Counter::default(),
            timed: Counter::default(),
            nanos: Counter::default(),
            blocked: Counter::default(),
            moved: Counter::default(),
            events: Mutex::default(),
            tallies: Mutex::default(),
            breaker: Breaker::default(),
            slowness: Slowness::default(),
        }
    }

    /// Counts an event of the step.
    pub fn count(&self, event: &'static str, times: u64) {
        let mut events = self.events.lock();
        if let Some((_, count)) = events.iter_mut().find(|(known, _)| *known == event) {
            *count += times;
        } else if events.len() < EVENTS {
            events.push((event, times));
        }
    }

    /// Counts the traffic of a filter of the step.
    pub fn filtered(&self, traffic: Traffic) {
        self.filter_in.add(traffic.taken);
        self.filter_out.add(traffic.given);
        self.filter_nanos.add(traffic.nanos);
        if Duration::from_nanos(traffic.longest) >= BLOCKED {
            self.blocked.inc();
        }
    }

    /// The events of the step.
    pub(crate) fn events(&self) -> Vec<(&'static str, u64)> {
        self.events.lock().clone()
    }

    /// Counts an event of a part of the configuration, by its name.
    pub fn tally(&self, event: &'static str, part: &[u8]) {
        let mut tallies = self.tallies.lock();
        let known = tallies.len();
        if let Some(count) = tallies.get_mut(&(event, Box::from(part))) {
            *count += 1;
            return;
        }
        let part = if known < TALLIES { part } else { OTHERS };
        *tallies.entry((event, part.into())).or_default() += 1;
    }

    /// The events of the step for parts of the configuration.
    pub(crate) fn tallies(&self) -> Vec<(&'static str, String, u64)> {
        let tallies = self.tallies.lock();
        let shown = tallies
            .iter()
            .map(|((event, part), count)| (*event, String::from_utf8_lossy(part).into_owned(), *count));
        let mut shown: Vec<_> = shown.collect();
        drop(tallies);
        shown.sort();
        shown
    }

    /// Returns true if there are faults or events to report.
    pub(crate) fn has_news(&self) -> bool {
        let faults = [&self.panics, &self.broken, &self.shed, &self.bails, &self.breaks];
        faults.iter().any(|counter| counter.get() > 0) || !self.events.lock().is_empty()
    }

    /// Records how long a run on a worker took. `now` is in milliseconds of the steady clock.
    pub fn took(&self, span: Duration, now: u64) {
        self.timed.inc();
        self.nanos.add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        if span >= BLOCKED {
            self.blocked.inc();
            self.watch(&self.slowness.suspected, now + SUSPECTED);
        }
    }

    /// Watches the step until `until`, for the reason that `since` stands for.
    fn watch(&self, since: &AtomicU64, until: u64) {
        since.store(until, Ordering::Relaxed);
        self.watched.fetch_max(until, Ordering::Relaxed);
    }

    /// Returns true if the processor time of the next run has to be measured and passed to [`used`](Self::used).
    #[inline]
    pub fn is_suspected(&self, now: u64) -> bool {
        let until = self.slowness.suspected.load(Ordering::Relaxed);
        until != 0 && now < until
    }

    /// Returns true if the step is declared light but is slow with some settings.
    #[inline]
    fn may_be_slow(&self, now: u64) -> bool {
        let until = self.slowness.known.load(Ordering::Relaxed);
        until != 0 && now < until
    }

    /// Returns true if the step is declared light but is slow with this input.
    #[inline]
    pub fn is_slow(&self, input: impl FnOnce() -> StepInput, now: u64) -> bool {
        self.may_be_slow(now) && self.slowness.holds(input(), now)
    }

    /// Records the processor time of a run, on a worker or on a thread for heavy work.
    pub fn used(&self, processor: Duration, input: StepInput, now: u64) {
        if processor < BLOCKED {
            return;
        }
        if self.slowness.note(input, now) {
            tracing::warn!(
                step = self.name,
                milliseconds = processor.as_millis(),
                bytes = input.size,
                "a step that is said to be light held a worker; where it is configured like this, requests with as much to \
                 look at have it on the threads for heavy work for 60 s"
            );
        }
        self.watch(&self.slowness.known, now + MOVED);
    }

    /// Returns true if the step is suspended. `now` is in milliseconds of the steady clock.
    #[inline]
    pub fn is_broken(&self, now: u64) -> bool {
        let until = self.breaker.until.load(Ordering::Relaxed);
        until != 0 && now < until
    }

    /// Records a panic of an optional step.
    pub fn panicked(&self, now: u64) {
        let breaker = &self.breaker;
        if now.saturating_sub(breaker.since.load(Ordering::Relaxed)) > PANIC_SPAN {
            breaker.since.store(now, Ordering::Relaxed);
            breaker.panics.store(0, Ordering::Relaxed);
        }
        if breaker.panics.fetch_add(1, Ordering::Relaxed) + 1 >= PANICS {
            breaker.panics.store(0, Ordering::Relaxed);
            self.watch(&breaker.until, now + OPEN);
            tracing::error!(step = self.name, "a step panics again and again and is not run for 10 s");
        }
    }
}

impl Slowness {
    fn holds(&self, input: StepInput, now: u64) -> bool {
        let slow = self.of_settings.lock();
        let mut live = slow.iter().filter(|slow| now < slow.until);
        let is_it = |slow: &Slow| slow.settings == input.settings && input.size >= slow.from / 2;
        live.clone().count() >= SLOW_SETTINGS || live.any(is_it)
    }

    /// Records a slow run. Returns true if these settings were not known as slow before, and are now.
    fn note(&self, input: StepInput, now: u64) -> bool {
        let mut slow = self.of_settings.lock();
        slow.retain(|slow| now < slow.until);
        if let Some(known) = slow.iter_mut().find(|slow| slow.settings == input.settings) {
            (known.until, known.from) = (now + MOVED, known.from.min(input.size));
            return false;
        }
        let has_room = slow.len() < SLOW_SETTINGS;
        if has_room {
            slow.push(Slow { settings: input.settings, until: now + MOVED, from: input.size });
        }
        has_room
    }
}

fn since_start(now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(*START).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_light_step_that_uses_much_time_is_moved_for_a_while() {
        let counters = StepCounters::new(["a", "b"].into_iter());
        let step = counters.get(0).unwrap();
        step.took(Duration::from_millis(9), 1000);
        assert!(!step.is_suspected(1000));
        step.took(BLOCKED, 1000);
        let input = StepInput { settings: 1, size: 100 };
        let is_slow = |now| step.is_slow(|| input, now);
        assert!(step.is_suspected(1001) && !is_slow(1001));
        assert!(counters.is_watched(0, 1001) && !counters.is_watched(1, 1001));
        // Another process had run in between.
        step.used(Duration::from_millis(1), input, 1001);
        assert!(!is_slow(1001));
        step.used(BLOCKED, input, 1002);
        assert!(is_slow(1003) && !is_slow(1002 + MOVED));
        assert!(!counters.get(1).unwrap().is_slow(|| input, 1003));
        assert!(counters.any_is_watched(1003) && !counters.any_is_watched(1002 + MOVED));
    }

    #[test]
    fn a_step_is_slow_with_settings_and_from_a_size_on() {
        let counters = StepCounters::new(["a"].into_iter());
        let step = counters.get(0).unwrap();
        let is_slow = |settings, size, now| step.is_slow(|| StepInput { settings, size }, now);
        step.used(BLOCKED, StepInput { settings: 1, size: 1000 }, 1000);
        assert!(is_slow(1, 500, 1001) && !is_slow(1, 499, 1001) && !is_slow(2, 1000, 1001));
        step.used(BLOCKED, StepInput { settings: 1, size: 400 }, 2000);
        step.used(BLOCKED, StepInput { settings: 1, size: 9000 }, 3000);
        assert!(is_slow(1, 200, 2999 + MOVED) && !is_slow(1, 199, 3001) && !is_slow(1, 9000, 3000 + MOVED));
        for settings in 0..=SLOW_SETTINGS {
            step.used(BLOCKED, StepInput { settings, size: 0 }, 70_000);
        }
        assert!(is_slow(1000, 0, 70_001), "too many to tell them apart");
        assert!(!is_slow(1, 0, 70_000 + MOVED));
    }

    #[test]
    fn all_phases_are_timed_once_a_task_has_held_its_worker() {
        let counters = StepCounters::new(["a"].into_iter());
        let now = Instant::now();
        let timed = |now| (0..SAMPLE).filter(|_| counters.is_timed(|| now)).count();
        assert_eq!(timed(now), 1);
        counters.look_closely();
        assert_eq!(timed(now), SAMPLE as usize);
        assert_eq!(timed(now + Duration::from_millis(CLOSE_LOOK + 1000)), 1);
    }

    #[test]
    fn a_step_that_panics_too_often_is_not_run_for_a_while() {
        let counters = StepCounters::new(["a", "b"].into_iter());
        let step = counters.get(0).unwrap();
        for panic in 0..PANICS {
            assert!(!step.is_broken(1000 + panic));
            step.panicked(1000 + panic);
        }
        assert!(step.is_broken(1005));
        assert!(!counters.get(1).unwrap().is_broken(1005));
        assert!(!step.is_broken(1004 + OPEN));
    }

    #[test]
    fn parts_are_counted_by_their_names_up_to_a_limit() {
        let counters = StepCounters::new(["a"].into_iter());
        let step = counters.get(0).unwrap();
        for part in 0..TALLIES + 5 {
            step.tally("dry-run", part.to_string().as_bytes());
        }
        step.tally("dry-run", b"7");
        let tallies = step.tallies();
        let count = |part: &str| tallies.iter().find(|(_, name, _)| name == part).map(|tally| tally.2);
        assert_eq!((tallies.len(), count("7"), count("(others)")), (TALLIES + 1, Some(2), Some(5)));
    }

    #[test]
    fn panics_far_apart_do_no_harm() {
        let counters = StepCounters::new(["a"].into_iter());
        let step = counters.get(0).unwrap();
        for panic in 0..100 {
            step.panicked(panic * (PANIC_SPAN / (PANICS - 1) + 1000));
        }
        assert!(!step.is_broken(100 * PANIC_SPAN));
    }
}
