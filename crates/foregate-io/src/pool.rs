//! The threads of a directory.
//!
//! Threads start with the work and end when they are idle. Work without a free thread waits in a
//! bounded queue; a watcher thread gives back work that has waited too long, so that no caller
//! needs a timer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::running::{Running, use_all_cores};
use crate::stat::{Counters, Stat};

/// A piece of work. Its argument is false if no thread was free; then it reports this to its
/// caller.
type Job = Box<dyn FnOnce(bool) + Send>;

/// The bounds of a pool, and of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads of the pool at the same time, and operations in the ring.
    pub threads: usize,
    /// Operations that wait for a thread, and as many that wait for the ring. A further one is
    /// [`Busy`](crate::Error::Busy) at once.
    pub queue: usize,
    /// The time that an operation waits for a thread or the ring.
    pub patience: Duration,
    /// The time after which an operation under way counts as stuck. While one is stuck, and all
    /// threads have work or the ring is full, a new operation is [`Busy`](crate::Error::Busy) at
    /// once.
    pub stuck: Duration,
}

impl Default for Limits {
    /// 64 threads, 256 operations, 20 ms, 1 s.
    fn default() -> Self {
        Self { threads: 64, queue: 256, patience: Duration::from_millis(20), stuck: Duration::from_secs(1) }
    }
}

/// An idle thread ends after this time.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// Threads do little but wait.
pub(crate) const STACK: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Pool(Arc<PoolCore>);

struct PoolCore {
    limits: Limits,
    counters: Arc<Counters>,
    state: Mutex<PoolState>,
    /// There is work, or the pool is closed.
    ready: Condvar,
    /// Work waits, or the pool is closed.
    waiting: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<(Instant, Job)>,
    threads: usize,
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
        if state.threads < shared.limits.threads && start(shared, worker) {
            state.threads += 1;
        } else {
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
    /// Waiting work is still done.
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.ready.notify_all();
        self.0.waiting.notify_all();
    }
}

/// `false` if the system gives no thread.
fn start(shared: &Arc<PoolCore>, run: fn(&PoolCore)) -> bool {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("foregate-io".to_owned()).stack_size(STACK);
    thread.spawn(move || run(&shared)).is_ok()
}

fn worker(shared: &PoolCore) {
    use_all_cores();
    let mut state = shared.state.lock();
    loop {
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

/// Gives back work that has waited too long.
fn watch(shared: &PoolCore) {
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
        let end = since + shared.limits.patience;
        if Instant::now() < end {
            shared.waiting.wait_until(&mut state, end);
            continue;
        }
        if let Some((_, job)) = state.queue.pop_front() {
            drop(state);
            job(false);
            state = shared.state.lock();
        }
    }
}
