//! The threads of a directory.
//!
//! Threads are started when there is work, and end when they have been idle for a while. Work waits in a bounded queue
//! until a thread is free. A watcher thread rejects work that has waited too long, so that no caller needs a timer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::running::{Running, SLOW, use_all_cores};
use crate::stat::{Counters, Stat};

/// A piece of work. Its argument is false if no thread was free: the job then only reports
/// [`Busy`](crate::Error::Busy).
type Job = Box<dyn FnOnce(bool) + Send>;

/// The bounds of a pool, and of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most threads of the pool, and the most operations in the ring at a time.
    pub threads: usize,
    /// The most operations that do not count towards `threads`, because they have taken longer than 10 ms
    /// so far. So if a few places of a disk are slow, there are still threads for all others.
    pub slow: usize,
    /// The most operations that wait for a thread, and the most that wait for the ring. A further operation fails with
    /// [`Busy`](crate::Error::Busy) at once.
    pub queue: usize,
    /// The longest time that an operation waits for a thread or the ring.
    pub patience: Duration,
    /// The time after which an operation under way counts as stuck. While an operation is stuck, a new
    /// operation that finds no free thread or place in the ring fails with
    /// [`Busy`](crate::Error::Busy) at once.
    pub stuck: Duration,
}

impl Default for Limits {
    /// 64 threads and 192 slow operations; 256 operations, 20 ms, 1 s.
    fn default() -> Self {
        let (patience, stuck) = (Duration::from_millis(20), Duration::from_secs(1));
        Self { threads: 64, slow: 192, queue: 256, patience, stuck }
    }
}

impl Limits {
    /// The most threads, or operations in the ring, beside those that are under way.
    pub(crate) fn most(&self, running: &Running, now: Instant) -> usize {
        self.threads + running.slow(now).min(self.slow)
    }
}

/// An idle thread ends after this time.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// The stack size of a thread, bytes. It is small, because threads do little except wait.
pub(crate) const STACK: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Pool(Arc<PoolCore>);

struct PoolCore {
    limits: Limits,
    counters: Arc<Counters>,
    state: Mutex<PoolState>,
    /// Wakes a thread: there is work, or the pool is closed.
    ready: Condvar,
    /// Wakes the watcher: work waits, or the pool is closed.
    waiting: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<(Instant, Job)>,
    threads: usize,
    /// Threads that have not looked for work yet.
    starting: usize,
    idle: usize,
    running: Running,
    watched: bool,
    closed: bool,
}

impl std::fmt::Debug for PoolCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(limits: Limits, counters: Arc<Counters>) -> Self {
        let (state, ready, waiting) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self(Arc::new(PoolCore { limits, counters, state, ready, waiting }))
    }

    pub(crate) fn submit(&self, job: Job) {
        let shared = &self.0;
        let now = Instant::now();
        let mut state = shared.state.lock();
        if state.idle > state.queue.len() {
            state.queue.push_back((now, job));
            drop(state);
            shared.ready.notify_one();
            return;
        }
        if !shared.start_worker(&mut state, now) {
            let stuck = state.running.oldest().is_some_and(|oldest| now - oldest > shared.limits.stuck);
            if stuck || state.queue.len() >= shared.limits.queue || state.threads == 0 {
                drop(state);
                return job(false);
            }
            if !state.watched {
                state.watched = start(shared, watch);
            }
        }
        state.queue.push_back((now, job));
        drop(state);
        shared.waiting.notify_one();
    }

    pub(crate) fn stat(&self, counted: Stat) -> Stat {
        let state = self.0.state.lock();
        let running = state.running.count();
        Stat { queued: state.queue.len(), threads: state.threads, running, ..counted }
    }
}

impl Drop for Pool {
    /// Closes the pool. Its threads still perform the work that waits.
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.ready.notify_all();
        self.0.waiting.notify_all();
    }
}

impl PoolCore {
    /// Starts a further thread. `false` if there are as many as may be, or the system gives none.
    fn start_worker(self: &Arc<Self>, state: &mut PoolState, now: Instant) -> bool {
        let may =
            state.threads < self.limits.threads || state.threads < self.limits.most(&state.running, now);
        let started = may && start(self, worker);
        if started {
            state.threads += 1;
            state.starting += 1;
        }
        started
    }
}

/// Starts a thread. Returns false if the system refuses.
fn start(shared: &Arc<PoolCore>, run: fn(&Arc<PoolCore>)) -> bool {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("foregate-io".to_owned()).stack_size(STACK);
    thread.spawn(move || run(&shared)).is_ok()
}

fn worker(shared: &Arc<PoolCore>) {
    use_all_cores();
    let mut state = shared.state.lock();
    state.starting -= 1;
    loop {
        // Fewer operations are slow now.
        let may_end = state.threads > shared.limits.threads;
        if may_end && state.threads > shared.limits.most(&state.running, Instant::now()) {
            break;
        }
        let Some((since, job)) = state.queue.pop_front() else {
            if state.closed {
                break;
            }
            state.idle += 1;
            let timed_out = shared.ready.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                break;
            }
            continue;
        };
        let now = Instant::now();
        let place = state.running.begin(now);
        drop(state);
        shared.counters.waited(u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX));
        shared.counters.performed.fetch_add(1, Ordering::Relaxed);
        job(true);
        state = shared.state.lock();
        state.running.end(place);
    }
    state.threads -= 1;
}

/// Starts threads for work that waits behind slow operations, and gives back work that has waited
/// too long.
fn watch(shared: &Arc<PoolCore>) {
    let mut state = shared.state.lock();
    loop {
        let Some(&(since, _)) = state.queue.front() else {
            if state.closed || shared.waiting.wait_for(&mut state, IDLE).timed_out() && state.queue.is_empty()
            {
                state.watched = false;
                return;
            }
            continue;
        };
        let (now, end) = (Instant::now(), since + shared.limits.patience);
        if now < end {
            while state.starting < state.queue.len() && shared.start_worker(&mut state, now) {}
            shared.waiting.wait_until(&mut state, end.min(now + SLOW));
            continue;
        }
        if let Some((_, job)) = state.queue.pop_front() {
            drop(state);
            job(false);
            state = shared.state.lock();
        }
    }
}
