//! The work that waits for the thread that compares.
//!
//! The thread takes it in batches: waking it for each pair would cost more than comparing does.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::ComparisonWork;

/// The most entries in the queue. Further ones are dropped and counted.
const QUEUE: usize = 4096;
/// How long the thread gathers work, once there is some.
const GATHER: Duration = Duration::from_millis(5);
/// The longest time that the thread waits if there is no work.
const TICK: Duration = Duration::from_secs(60);

/// The queue. It belongs to the comparisons of the process and to the thread.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    waiting: Mutex<WaitingWork>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct WaitingWork {
    works: Vec<ComparisonWork>,
    /// True while the thread sleeps until there is work.
    is_idle: bool,
    /// True if a caller waits for an answer: the thread does not gather more work first.
    is_urgent: bool,
    /// True while the thread runs.
    is_served: bool,
    /// There will be no more work.
    is_closed: bool,
}

/// The thread's end of the queue. After it is dropped, the next work starts another thread.
pub(super) struct QueueWorker(Arc<WorkQueue>);

/// The result of [`WorkQueue::put`].
pub(super) enum Queued {
    /// The thread will take it.
    Waits,
    /// The work is queued, but no thread runs: the caller has to start one with this value.
    Unserved(QueueWorker),
    /// The queue is full. The work comes back.
    Full(ComparisonWork),
}

impl WorkQueue {
    /// Puts work into the queue.
    pub fn put(self: &Arc<Self>, work: ComparisonWork) -> Queued {
        let mut waiting = self.waiting.lock();
        if waiting.works.len() >= QUEUE {
            return Queued::Full(work);
        }
        let is_question = matches!(work, ComparisonWork::Answer(..));
        waiting.works.push(work);
        waiting.is_urgent |= is_question;
        if is_question || waiting.is_idle {
            self.arrived.notify_one();
        }
        match std::mem::replace(&mut waiting.is_served, true) {
            true => Queued::Waits,
            false => Queued::Unserved(QueueWorker(Arc::clone(self))),
        }
    }

    /// Ends the thread once it has done the remaining work.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.arrived.notify_one();
    }
}

impl QueueWorker {
    /// Waits for work and takes all of it. Returns an empty list after a minute without work, and `None` at the end.
    pub fn take(&self) -> Option<Vec<ComparisonWork>> {
        let WorkQueue { waiting, arrived } = &*self.0;
        let mut waiting = waiting.lock();
        if waiting.works.is_empty() && !waiting.is_closed {
            waiting.is_idle = true;
            arrived.wait_for(&mut waiting, TICK);
            waiting.is_idle = false;
        }
        if !waiting.works.is_empty() && !waiting.is_urgent && !waiting.is_closed {
            arrived.wait_for(&mut waiting, GATHER);
        }
        waiting.is_urgent = false;
        if waiting.works.is_empty() && waiting.is_closed {
            return None;
        }
        Some(std::mem::take(&mut waiting.works))
    }
}

impl Drop for QueueWorker {
    fn drop(&mut self) {
        self.0.waiting.lock().is_served = false;
    }
}
