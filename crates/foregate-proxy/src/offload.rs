//! Threads for work that would keep a worker from its other requests.
//!
//! The queue is bounded: whoever has work asks for a place first, and decides what to do when there is none.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::address::network;
use crate::telemetry::metrics::Metrics;

/// A piece of work. It catches its own panics.
type Job = Box<dyn FnOnce() + Send>;

/// Pieces of work that one client may have in the queue or on a thread: wrong passwords from one address must not keep
/// everybody else from being heard. IPv6 clients are told apart by their networks of 64 bits.
const PER_CLIENT: usize = 16;

/// The longest that is waited for a thread, whatever a step says: who asked for the work has most likely given up then.
pub const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The same where what the work is about lies in a file, and must not be done elsewhere: who has sent so much waits longer, and
/// what waits takes no memory.
pub const LONGEST_WAIT_IN_FILE: Duration = Duration::from_secs(30);

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
    /// Those of each client, and the ones on a thread.
    clients: Mutex<HashMap<IpAddr, usize, foldhash::fast::RandomState>>,
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
    share: Share,
}

/// A place among those of its client, until the work is done.
struct Share {
    queue: Arc<Queue>,
    client: Option<IpAddr>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut clients = self.queue.clients.lock();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }
}

impl Offload {
    /// No thread yet. `limit` is how many pieces of work may wait.
    pub fn new(threads: usize, limit: usize, metrics: Arc<Metrics>) -> Self {
        let queue = Queue {
            jobs: Mutex::default(),
            taken: AtomicUsize::new(0),
            clients: Mutex::default(),
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

    /// A place in the queue, unless it is full, or the client has too many already.
    pub fn reserve(&self, client: Option<IpAddr>) -> Option<Place<'_>> {
        let client = client.map(network);
        if let Some(client) = client {
            let mut clients = self.queue.clients.lock();
            let count = clients.entry(client).or_default();
            if *count >= PER_CLIENT {
                return None;
            }
            *count += 1;
        }
        let share = Share { queue: Arc::clone(&self.queue), client };
        let limit = self.limit.load(Ordering::Relaxed);
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        let reserved = self.queue.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        // Not `then_some`, which would make a place, and give one back, that was never taken.
        reserved.is_ok().then(|| Place { offload: self, used: false, share })
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
        let share = Share { queue: Arc::clone(&self.share.queue), client: self.share.client.take() };
        let job: Job = Box::new(move || {
            job();
            drop(share);
        });
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

/// The priority of the threads below that of workers, in the steps of `nice`: where there are fewer cores than threads, a
/// worker with a request that needs little must not wait for its turn behind one that needs much. While workers take all
/// there is, a tenth is left for heavy work.
const NICE: i32 = 10;
/// The lowest that there is.
const LOWEST: i32 = 19;

/// Gives this thread its priority; where that cannot be, it is that of a worker.
fn yield_to_workers() {
    // Elsewhere than on Linux this call is about the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, (now + NICE).min(LOWEST)))
    {
        tracing::debug!(%error, "threads for heavy work have the priority of others");
    }
}

fn work(queue: &Queue, metrics: &Metrics) {
    yield_to_workers();
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

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_places_that_are_not_used_come_back() {
        let offload = Offload::new(1, 2, Arc::default());
        drop(offload.reserve(None).unwrap());
        let (done, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let first = done.clone();
        offload.reserve(None).unwrap().submit(Box::new(move || {
            first.send("begun").unwrap();
            wait.recv().unwrap();
        }));
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "begun");
        for _ in 0..2 {
            let done = done.clone();
            offload.reserve(None).unwrap().submit(Box::new(move || done.send("done").unwrap()));
        }
        assert!(offload.reserve(None).is_none());
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert!(offload.reserve(None).is_some());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn heavy_work_has_a_lower_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let offload = Offload::new(1, 1, Arc::default());
        let (told, there) = mpsc::channel();
        offload.reserve(None).unwrap().submit(Box::new(move || told.send(priority()).unwrap()));
        assert_eq!(there.recv_timeout(Duration::from_secs(10)).unwrap(), (before + NICE).min(LOWEST));
        assert_eq!(priority(), before, "of this thread alone");
    }

    #[test]
    fn one_client_has_a_share() {
        let offload = Offload::new(1, 1000, Arc::default());
        let one = |text: &str| offload.reserve(Some(text.parse().unwrap()));
        let places: Vec<_> = (0..PER_CLIENT).map(|_| one("2001:db8::1").unwrap()).collect();
        assert!(
            one("2001:db8::2").is_none() && one("2001:db8:0:1::1").is_some() && one("192.0.2.1").is_some()
        );
        drop(places);
        assert!(one("2001:db8::2").is_some());
        assert!(offload.queue.clients.lock().is_empty());
    }
}
