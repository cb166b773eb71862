//! Threads for work that would keep a worker from its other requests.
//!
//! The queue is bounded: whoever has work asks for a place first, and decides what to do when there is none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::telemetry::metrics::Metrics;

/// A piece of work. It catches its own panics.
type Job = Box<dyn FnOnce() + Send>;

/// The threads, which are started with the first piece of work, and their queue.
#[derive(Debug)]
pub struct Offload {
    queue: Arc<Queue>,
    threads: usize,
    limit: AtomicUsize,
    started: AtomicBool,
    metrics: Arc<Metrics>,
}

struct Queue {
    jobs: Mutex<VecDeque<(Job, Instant)>>,
    /// Jobs that wait or have a place.
    taken: AtomicUsize,
    ready: Condvar,
    closed: AtomicBool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// A place in the queue.
pub struct Place<'o> {
    offload: &'o Offload,
    used: bool,
}

impl Offload {
    /// No thread yet. `limit` is how many pieces of work may wait.
    pub fn new(threads: usize, limit: usize, metrics: Arc<Metrics>) -> Self {
        let queue = Queue {
            jobs: Mutex::default(),
            taken: AtomicUsize::new(0),
            ready: Condvar::new(),
            closed: AtomicBool::new(false),
        };
        Self {
            queue: Arc::new(queue),
            threads: threads.max(1),
            limit: AtomicUsize::new(limit),
            started: AtomicBool::new(false),
            metrics,
        }
    }

    /// Changes how many pieces of work may wait.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// A place in the queue, unless it is full.
    pub fn reserve(&self) -> Option<Place<'_>> {
        let limit = self.limit.load(Ordering::Relaxed);
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        let reserved = self.queue.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        // Not `then_some`, which would make a place, and give one back, that was never taken.
        reserved.is_ok().then(|| Place { offload: self, used: false })
    }

    /// Starts the threads. Whether there are any.
    fn start(&self) -> bool {
        if self.started.swap(true, Ordering::SeqCst) {
            return true;
        }
        let mut any = false;
        for _ in 0..self.threads {
            let queue = Arc::clone(&self.queue);
            let metrics = Arc::clone(&self.metrics);
            let thread = std::thread::Builder::new().name("foregate-offload".into());
            match thread.spawn(move || work(&queue, &metrics)) {
                Ok(_) => any = true,
                Err(error) => tracing::error!(%error, "a thread for heavy work could not be started"),
            }
        }
        self.started.store(any, Ordering::SeqCst);
        any
    }
}

impl Place<'_> {
    /// Puts the work into the queue.
    pub fn submit(mut self, job: Job) {
        if !self.offload.start() {
            // The system has no thread for us: late is better than never.
            return job();
        }
        self.used = true;
        self.offload.metrics.offload_queue.inc();
        self.offload.queue.jobs.lock().push_back((job, Instant::now()));
        self.offload.queue.ready.notify_one();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.offload.queue.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.queue.closed.store(true, Ordering::SeqCst);
        self.queue.ready.notify_all();
    }
}

fn work(queue: &Queue, metrics: &Metrics) {
    loop {
        let mut jobs = queue.jobs.lock();
        let (job, since) = loop {
            if let Some(job) = jobs.pop_front() {
                break job;
            }
            if queue.closed.load(Ordering::SeqCst) {
                return;
            }
            queue.ready.wait(&mut jobs);
        };
        drop(jobs);
        queue.taken.fetch_sub(1, Ordering::Relaxed);
        metrics.offload_queue.dec();
        metrics.offload_wait.record(since.elapsed());
        job();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_places_that_are_not_used_come_back() {
        let offload = Offload::new(1, 2, Arc::default());
        drop(offload.reserve().unwrap());
        let (done, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let first = done.clone();
        offload.reserve().unwrap().submit(Box::new(move || {
            first.send("begun").unwrap();
            wait.recv().unwrap();
        }));
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "begun");
        for _ in 0..2 {
            let done = done.clone();
            offload.reserve().unwrap().submit(Box::new(move || done.send("done").unwrap()));
        }
        assert!(offload.reserve().is_none());
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert!(offload.reserve().is_some());
    }
}
