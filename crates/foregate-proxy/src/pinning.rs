//! Binds workers to cores.
//!
//! Only the workers of one generation are bound at a time: a process binds its workers only while no
//! other process accepts connections. The process that hands over releases its workers first, and then
//! the supervisor makes its successor bind its own. Workers that are not bound run on all cores of the
//! process.

use std::cell::Cell;

use parking_lot::Mutex;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

static WORKERS: Mutex<PinnedWorkers> =
    Mutex::new(PinnedWorkers { cores: Vec::new(), threads: Vec::new(), pinned: false });

thread_local! {
    static ENROLLED: Cell<bool> = const { Cell::new(false) };
}

struct PinnedWorkers {
    /// The cores that the process may use, ascending; empty if workers are not to be bound.
    cores: Vec<usize>,
    /// The threads of the workers, each with its core once it is bound.
    threads: Vec<(Pid, Option<usize>)>,
    pinned: bool,
}

impl PinnedWorkers {
    /// Binds the worker with this number, or lets it run on all cores.
    fn apply(&mut self, number: usize) {
        let Some((thread, bound)) = self.threads.get_mut(number) else { return };
        let core = self.cores.get(number % self.cores.len().max(1)).copied().filter(|_| self.pinned);
        let mut set = CpuSet::new();
        match core {
            Some(core) => set.set(core),
            None => self.cores.iter().for_each(|core| set.set(*core)),
        }
        match sched_setaffinity(Some(*thread), &set) {
            Ok(()) => *bound = core,
            Err(error) => tracing::warn!(?core, %error, "a worker cannot be bound to its core"),
        }
    }

    fn apply_all(&mut self, pinned: bool) {
        // Without cores there is nothing to bind.
        self.pinned = pinned && !self.cores.is_empty();
        (0..self.threads.len()).for_each(|number| self.apply(number));
    }
}

/// Prepares for binding workers. To be called before they start.
pub fn prepare() {
    match sched_getaffinity(None) {
        Ok(set) => {
            WORKERS.lock().cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
        }
        Err(error) => tracing::warn!(%error, "workers cannot be bound to cores"),
    }
}

/// Counts this thread among the workers. It may be called often.
pub fn enrol() {
    if !ENROLLED.replace(true) {
        let mut workers = WORKERS.lock();
        workers.threads.push((gettid(), None));
        if workers.pinned {
            let number = workers.threads.len() - 1;
            workers.apply(number);
        }
    }
}

/// Binds each worker to one core, in ascending order. If there are more workers than cores, the order
/// begins again with the first core.
pub fn bind() {
    WORKERS.lock().apply_all(true);
}

/// Lets the workers run on all cores. This has taken effect for all of them when the call returns.
pub fn release() {
    let mut workers = WORKERS.lock();
    if workers.pinned {
        workers.apply_all(false);
    }
}

/// The cores that workers are bound to, in the order of the workers.
pub fn cores() -> Vec<u32> {
    let workers = WORKERS.lock();
    let bound = workers.threads.iter().filter_map(|(_, core)| *core);
    bound.filter_map(|core| u32::try_from(core).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cores that this thread may use.
    fn own() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    }

    #[test]
    fn workers_are_bound_in_order_and_released() {
        let all = own();
        std::thread::spawn(enrol).join().unwrap();
        bind();
        assert!(cores().is_empty(), "nothing was prepared");
        prepare();
        let worker = std::thread::spawn({
            let all = all.clone();
            move || {
                enrol();
                enrol();
                assert_eq!(own(), all, "an enrolled worker is free");
                bind();
                let second = all[1 % all.len()];
                assert_eq!(own(), [second], "the second worker has the second core");
                assert_eq!(cores().last(), Some(&u32::try_from(second).unwrap()));
                release();
                assert_eq!(own(), all);
                assert!(cores().is_empty());
                bind();
                // A worker that starts late is bound at once, to the next core.
                std::thread::spawn(move || {
                    enrol();
                    assert_eq!(own(), [all[2 % all.len()]]);
                })
                .join()
                .unwrap();
            }
        });
        worker.join().unwrap();
        release();
        assert_eq!(own(), all, "other threads are never bound");
    }
}
