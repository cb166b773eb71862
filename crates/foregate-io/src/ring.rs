//! The ring of a directory: reads and writes of open files by io_uring(7).
//!
//! One thread submits all operations and takes their results. It is started when there is work, sleeps in the kernel
//! while there is none, and ends when it has been idle for long. Submitting an operation can wait for a disk, so
//! operations are submitted one by one. While a submission waits, new operations go to the pool. A watcher thread
//! rejects operations that have waited too long.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::engine::Engine;
use crate::error::Error;
use crate::faults::Fault;
use crate::pool::{IDLE, Limits, Pool, STACK};
use crate::running::{Running, SLOW, use_all_cores};
use crate::stat::{Counters, Stat};
use crate::sys::{Ended, Ring};
use crate::transfer::{Progress, Transfer};

/// A submission that takes longer than this counts as held up by the disk.
const HELD_UP: Duration = Duration::from_millis(2);
/// The pause before a submission is repeated for which the kernel had no memory.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct RingEngine(Arc<RingCore>);

struct RingCore {
    limits: Limits,
    counters: Arc<Counters>,
    /// The pool for operations that the ring cannot take.
    pool: Arc<Pool>,
    state: Mutex<RingState>,
    /// Wakes the watcher: operations wait, and the thread of the ring may not take them in time, or the ring is closed.
    waiting: Condvar,
}

#[derive(Default)]
struct RingState {
    queue: VecDeque<(Instant, Transfer)>,
    running: Running,
    /// The time at which the present submission began.
    submitting: Option<Instant>,
    /// True if the thread of the ring runs. The thread has a ring once `waker` is set.
    alive: bool,
    waker: Option<Arc<OwnedFd>>,
    /// True if the thread waits in the kernel and has not been woken.
    sleeping: bool,
    watched: bool,
    /// True if the watcher waits for work.
    unneeded: bool,
    /// True if the kernel refused a ring.
    refused: bool,
    closed: bool,
}

impl std::fmt::Debug for RingCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingEngine").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl RingEngine {
    pub(crate) fn new(limits: Limits, counters: Arc<Counters>, pool: Arc<Pool>) -> Self {
        let (state, waiting) = (Mutex::default(), Condvar::new());
        Self(Arc::new(RingCore { limits, counters, pool, state, waiting }))
    }

    pub(crate) fn submit(&self, transfer: Transfer) {
        let core = &self.0;
        let now = Instant::now();
        let mut state = core.state.lock();
        if state.refused || state.submitting.is_some_and(|since| now - since > HELD_UP) {
            drop(state);
            return core.leave_to_pool(transfer);
        }
        let free = core.free(&state.running, now);
        let is_stuck = || state.running.oldest().is_some_and(|oldest| now - oldest > core.limits.stuck);
        if state.queue.len() >= free + core.limits.queue || free == 0 && is_stuck() {
            drop(state);
            transfer.answer(Err(Error::Busy));
            return;
        }
        if !state.alive && !start(core, serve) {
            drop(state);
            return core.leave_to_pool(transfer);
        }
        state.queue.push_back((now, transfer));
        if !state.alive {
            state.alive = true;
        } else if state.sleeping && free > 0 {
            state.sleeping = false;
            let waker = state.waker.clone();
            drop(state);
            if let Some(waker) = waker {
                wake(&waker);
            }
        } else {
            core.watch(state);
        }
    }

    /// Adds the counters of the ring to those of the pool.
    pub(crate) fn stat(&self, stat: Stat) -> Stat {
        let state = self.0.state.lock();
        Stat {
            engine: if state.refused { stat.engine } else { Engine::IoUring },
            queued: stat.queued + state.queue.len(),
            threads: stat.threads + usize::from(state.alive),
            running: stat.running + state.running.count(),
            ..stat
        }
    }
}

impl Drop for RingEngine {
    /// Closes the ring. Its thread still performs the operations that wait.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            wake(&waker);
        }
        self.0.waiting.notify_all();
    }
}

/// Wakes the thread of the ring. A failed write can be ignored: the counter of the waker is then full, which also wakes
/// the thread.
fn wake(waker: &OwnedFd) {
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}

/// Starts a thread. Returns false if the system refuses.
fn start(core: &Arc<RingCore>, run: fn(&Arc<RingCore>)) -> bool {
    let core = Arc::clone(core);
    let thread = thread::Builder::new().name("foregate-ring".to_owned()).stack_size(STACK);
    thread.spawn(move || run(&core)).is_ok()
}

/// The thread of the ring.
fn serve(core: &Arc<RingCore>) {
    use_all_cores();
    let Ok(mut ring) = Ring::new(u32::try_from(core.limits.threads + core.limits.slow).unwrap_or(u32::MAX))
    else {
        return core.refuse();
    };
    let mut state = core.state.lock();
    state.waker = Some(ring.waker());
    loop {
        let now = Instant::now();
        if core.free(&state.running, now) > 0
            && let Some((since, mut transfer)) = state.queue.pop_front()
        {
            transfer.place = state.running.begin(now);
            drop(state);
            core.counters.waited(u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX));
            core.counters.performed.fetch_add(1, Ordering::Relaxed);
            let answered = core.advance(&mut ring, transfer);
            state = core.state.lock();
            answered.into_iter().for_each(|place| state.running.end(place));
            continue;
        }
        let idle = state.running.count() == 0;
        if idle && state.closed {
            break;
        }
        state.sleeping = true;
        drop(state);
        let begun = Instant::now();
        if ring.wait(idle.then_some(IDLE)).is_err() {
            #[allow(clippy::disallowed_methods, reason = "this thread serves no requests")]
            thread::sleep(PAUSE);
        }
        let mut answered = Vec::new();
        while let Some((transfer, ended)) = ring.next() {
            answered.extend(core.go_on(&mut ring, transfer, ended));
        }
        state = core.state.lock();
        state.sleeping = false;
        answered.into_iter().for_each(|place| state.running.end(place));
        if idle && state.queue.is_empty() && begun.elapsed() >= IDLE {
            break;
        }
    }
    state.waker = None;
    state.sleeping = false;
    state.alive = false;
}

impl RingCore {
    /// The number of operations that may begin.
    fn free(&self, running: &Running, now: Instant) -> usize {
        let count = running.count();
        let most =
            if count < self.limits.threads { self.limits.threads } else { self.limits.most(running, now) };
        most.saturating_sub(count)
    }

    fn leave_to_pool(&self, transfer: Transfer) {
        self.pool.submit(Box::new(move |has_thread| transfer.perform(has_thread)));
    }

    /// Handles a refusal of the kernel to make a ring: the pool performs all operations from now on.
    fn refuse(&self) {
        let mut state = self.state.lock();
        (state.refused, state.alive) = (true, false);
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        queue.into_iter().for_each(|(_, transfer)| self.leave_to_pool(transfer));
    }

    /// Submits the next operation of a transfer, or applies the fault that a test injects. If the transfer ended without an
    /// operation, returns its place in [`Running`].
    fn advance(self: &Arc<Self>, ring: &mut Ring, mut transfer: Transfer) -> Option<usize> {
        loop {
            let result = match transfer.fault() {
                None => return self.submit(ring, transfer, usize::MAX),
                Some(Fault::Short(most)) => return self.submit(ring, transfer, most.max(1)),
                Some(Fault::Slow(time)) => {
                    let paused = ring.pause(transfer, time);
                    return self.submitted(ring, paused);
                }
                Some(Fault::Error(code)) => Err(rustix::io::Errno::from_raw_os_error(code)),
            };
            match transfer.after(result) {
                Progress::Again(again) => transfer = again,
                Progress::Answered(place) => return Some(place),
            }
        }
    }

    /// Continues a transfer after an operation of the ring.
    fn go_on(self: &Arc<Self>, ring: &mut Ring, transfer: Transfer, ended: Ended) -> Option<usize> {
        match ended {
            Ended::Pause => self.submit(ring, transfer, usize::MAX),
            Ended::Part(result) => match transfer.after(result) {
                Progress::Again(transfer) => self.advance(ring, transfer),
                Progress::Answered(place) => Some(place),
            },
        }
    }

    fn submit(self: &Arc<Self>, ring: &mut Ring, transfer: Transfer, most: usize) -> Option<usize> {
        let added = ring.add(transfer, most);
        self.submitted(ring, added)
    }

    fn submitted(self: &Arc<Self>, ring: &mut Ring, added: Result<(), Transfer>) -> Option<usize> {
        if let Err(transfer) = added {
            // The ring has room for all transfers, so it is full only while the kernel accepts no submissions.
            let Progress::Answered(place) = transfer.answer(Err(Error::Busy)) else { return None };
            return Some(place);
        }
        let mut state = self.state.lock();
        state.submitting = Some(Instant::now());
        state.sleeping = false;
        if state.queue.is_empty() {
            drop(state);
        } else {
            self.watch(state);
        }
        ring.submit();
        self.state.lock().submitting = None;
        None
    }

    /// Makes the watcher check the queue.
    fn watch(self: &Arc<Self>, mut state: MutexGuard<'_, RingState>) {
        if !state.watched {
            state.watched = start(self, give_back);
        } else if std::mem::take(&mut state.unneeded) {
            drop(state);
            self.waiting.notify_one();
        }
    }
}

/// The watcher: wakes the thread for operations that wait behind slow ones, and gives back operations
/// that have waited too long.
fn give_back(core: &Arc<RingCore>) {
    let mut state = core.state.lock();
    loop {
        let Some(&(since, _)) = state.queue.front() else {
            state.unneeded = true;
            if state.closed || core.waiting.wait_for(&mut state, IDLE).timed_out() && state.queue.is_empty() {
                state.watched = false;
                return;
            }
            state.unneeded = false;
            continue;
        };
        let (now, end) = (Instant::now(), since + core.limits.patience);
        if now < end {
            if state.sleeping && core.free(&state.running, now) > 0 {
                state.sleeping = false;
                state.waker.iter().for_each(|waker| wake(waker));
            }
            core.waiting.wait_until(&mut state, end.min(now + SLOW));
            continue;
        }
        if let Some((_, transfer)) = state.queue.pop_front() {
            drop(state);
            transfer.answer(Err(Error::Busy));
            state = core.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use std::path::Path;

    use super::*;
    use crate::blocking::{BlockingDirectory, Fast};
    use crate::operation::{Operation, wait};
    use crate::path::OpenHow;
    use crate::transfer::Data;

    /// A thread that does not come back from its submission, as while a disk hangs.
    #[test]
    fn a_submission_that_is_held_up_delays_nobody() {
        let counters = Arc::new(Counters::default());
        let pool = Arc::new(Pool::new(Limits::default(), Arc::clone(&counters)));
        let ring = RingEngine::new(Limits::default(), Arc::clone(&counters), pool);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "text").unwrap();
        let blocking = BlockingDirectory::open_root(folder.path(), None).unwrap();
        let file = Arc::new(blocking.open(Path::new("a"), OpenHow::read()).unwrap());
        let read = || {
            let (operation, slot) = Operation::waiting();
            let data = Data::Read { buffer: Vec::new(), length: 4, slot };
            ring.submit(Transfer::new(&file, 0, data, &counters, Fast::Pages));
            operation
        };
        let (hour, mut state) = (Duration::from_hours(1), ring.0.state.lock());
        (state.alive, state.submitting) = (true, Some(Instant::now() + hour));
        drop(state);
        let first = read();
        ring.0.state.lock().submitting = Some(Instant::now() - HELD_UP * 2);
        assert!(wait(first).unwrap_err().is_busy(), "the watcher gives back the ones before");
        assert_eq!(wait(read()).unwrap(), b"text", "the pool has it");
    }
}
