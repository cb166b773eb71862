//! Threads for heavy work, which would delay the other requests of a worker.
//!
//! The queue is bounded: callers reserve a place first, and need an alternative if there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::counters::metrics::Metrics;
use crate::limits::account::{Account, part};
use crate::limits::client_table::{ClientHolding, ClientTable};
use crate::limits::lanes::ClientTurns;
use crate::limits::pressure;
use crate::sys;

/// A piece of work. It catches its own panics.
type OffloadJob = Box<dyn FnOnce() + Send>;

/// The most pieces of work of one client, waiting or running, if the work has a cheap alternative
/// ([`Patience::None`]). Further pieces are refused at once: wrong passwords from one address must not
/// delay the requests of others. IPv6 clients are distinguished by their networks of 64 bits.
const PER_CLIENT: usize = 16;

/// The limit for work that is usually short: enough for the requests of a whole web page.
const PER_CLIENT_SHORT: usize = 64;

/// The part of the queue that the work of one client may take, percent. Work of [`Patience::Long`] may
/// take all of this part: it is better to inspect an upload late than to refuse it or to inspect it on
/// the worker. Such work does not delay other clients, because clients take turns.
const PART: usize = 25;

/// How long a piece of work may wait, depending on the alternative if it gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The work has a cheap alternative.
    None,
    /// The work has a cheap alternative, but a client may have several at a time.
    Short,
    /// The work has only an expensive alternative: it may wait behind others of its client.
    Long,
}

/// The longest wait for a thread, regardless of the step's setting: most clients have given up by
/// then.
pub const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The longest wait for work on a long body, which must not run on a worker. A client that has sent a
/// long body also waits longer. Meanwhile a body in a file takes no memory, and a body in memory counts
/// as used memory.
pub const LONGEST_WAIT_OF_LONG: Duration = Duration::from_secs(30);

/// A body in memory of at least this many bytes is long: inspecting it would delay the other requests
/// of the worker.
pub const LONG_BODY: usize = 64 << 10;

/// The threads, which are started with the first piece of work, and their queue.
#[derive(Debug)]
pub struct Offload {
    queue: Arc<OffloadQueue>,
    threads: usize,
    limit: AtomicUsize,
    started: AtomicBool,
    metrics: Arc<Metrics>,
}

struct OffloadQueue {
    /// The waiting work, each piece with the time since when it waits. Clients take turns, so a client with
    /// much work only delays itself.
    jobs: Mutex<ClientTurns<(OffloadJob, Instant)>>,
    /// The number of places in the queue that are reserved or hold waiting work.
    taken: AtomicUsize,
    /// The number of each client's pieces of work, in the queue and on threads.
    clients: ClientTable<PatienceCounts>,
    ready: Condvar,
    closed: AtomicBool,
}

/// The number of pieces of work of one client, for each [`Patience`].
type PatienceCounts = [usize; 3];

impl ClientHolding for PatienceCounts {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl OffloadQueue {
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Notifies under the lock, so that a thread that has just found no work does not miss it.
        let _jobs = self.jobs.lock();
        self.ready.notify_all();
    }
}

impl std::fmt::Debug for OffloadQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// A place in the queue.
pub struct QueuePlace<'o> {
    offload: &'o Offload,
    used: bool,
    share: Option<ClientShare>,
    account: Account,
}

/// Counts a piece of work for its client until the work is done.
struct ClientShare {
    queue: Arc<OffloadQueue>,
    account: Account,
    patience: Patience,
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        self.queue.clients.update(self.account, |counts| counts[self.patience as usize] -= 1);
    }
}

impl Offload {
    /// Has no thread yet. At most `limit` pieces of work may wait.
    pub fn new(threads: usize, limit: usize, metrics: Arc<Metrics>) -> Self {
        let queue = OffloadQueue {
            jobs: Mutex::default(),
            taken: AtomicUsize::new(0),
            clients: ClientTable::default(),
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

    /// Reserves a place in the queue for a client. Returns `None` if the queue is full, or the client
    /// already has too many places.
    pub fn reserve(&self, account: Account, patience: Patience) -> Option<QueuePlace<'_>> {
        let limit = self.limit.load(Ordering::Relaxed);
        // If the queue is short, a client may have at least two pieces for each thread: one that runs, and
        // one that waits.
        let few = part(limit, PART).max(2 * self.threads);
        let most = match patience {
            Patience::None => PER_CLIENT.min(few),
            Patience::Short => PER_CLIENT_SHORT.min(few),
            Patience::Long => few,
        };
        let has_room = self.queue.clients.update(account, |counts| {
            let has: usize = counts.iter().sum();
            let count = &mut counts[patience as usize];
            let has_room = *count < most && has < few;
            *count += usize::from(has_room);
            has_room
        });
        if has_room == Some(false) {
            return None;
        }
        let share = ClientShare { queue: Arc::clone(&self.queue), account, patience };
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        let reserved = self.queue.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        // Not `then_some`: on failure, dropping its argument would release a place that was never
        // taken.
        reserved.is_ok().then(|| QueuePlace { offload: self, used: false, share: Some(share), account })
    }

    /// Ends the threads once they have nothing to do. Later work starts others.
    pub fn rest(&self) {
        self.queue.close();
    }

    /// Starts the threads again, if they may have ended while work is in the queue.
    fn start_again(&self) {
        if self.queue.closed.swap(false, Ordering::SeqCst) {
            self.started.store(false, Ordering::SeqCst);
            self.start();
        }
    }

    /// Starts the threads. Returns true if there are any.
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

impl QueuePlace<'_> {
    /// Puts the work into the queue.
    pub fn submit(mut self, job: OffloadJob) {
        if !self.offload.start() {
            // The system gives us no thread, so the work runs here: a delay is better than no result.
            return job();
        }
        self.used = true;
        let (account, share) = (self.account, self.share.take());
        let job: OffloadJob = Box::new(move || {
            job();
            drop(share);
        });
        self.offload.metrics.offload_queue.inc();
        self.offload.queue.jobs.lock().push(account, (job, Instant::now()));
        self.offload.queue.ready.notify_one();
        // A thread ends only if the queue is empty. Threads that have ended before this work was added are
        // replaced here.
        if self.offload.queue.closed.load(Ordering::SeqCst) {
            self.offload.start_again();
        }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.offload.queue.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The priority of the threads, in steps of `nice` below the priority of workers. If there are fewer
/// cores than threads, a worker with a cheap request must not wait behind heavy work. While workers
/// use all cores, a tenth of the time is left for heavy work.
const NICE: i32 = 10;

fn work(queue: &OffloadQueue, metrics: &Metrics) {
    sys::yield_to_workers(NICE);
    loop {
        let mut jobs = queue.jobs.lock();
        let (job, since) = loop {
            if let Some(job) = jobs.pop() {
                break job;
            }
            // Reports memory that the work has allocated or freed.
            pressure::settle();
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

    fn of(text: &str) -> Account {
        Account::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn the_queue_is_bounded_and_places_that_are_not_used_come_back() {
        let offload = Offload::new(1, 2, Arc::default());
        drop(offload.reserve(Account::of(None), Patience::None).unwrap());
        let (done, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let first = done.clone();
        offload.reserve(Account::of(None), Patience::None).unwrap().submit(Box::new(move || {
            first.send("begun").unwrap();
            wait.recv().unwrap();
        }));
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "begun");
        for _ in 0..2 {
            let done = done.clone();
            offload
                .reserve(Account::of(None), Patience::None)
                .unwrap()
                .submit(Box::new(move || done.send("done").unwrap()));
        }
        assert!(offload.reserve(Account::of(None), Patience::None).is_none());
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "done");
        assert!(offload.reserve(Account::of(None), Patience::None).is_some());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn heavy_work_has_a_lower_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let offload = Offload::new(1, 1, Arc::default());
        let (told, there) = mpsc::channel();
        offload
            .reserve(Account::of(None), Patience::None)
            .unwrap()
            .submit(Box::new(move || told.send(priority()).unwrap()));
        assert_eq!(there.recv_timeout(Duration::from_secs(10)).unwrap(), (before + NICE).min(19));
        assert_eq!(priority(), before, "of this thread alone");
    }

    #[test]
    fn threads_that_were_sent_to_rest_come_back_for_work() {
        let offload = Offload::new(2, 10, Arc::default());
        let (told, there) = mpsc::channel();
        for number in 0..200 {
            let told = told.clone();
            let place = offload.reserve(Account::of(None), Patience::Long).unwrap();
            place.submit(Box::new(move || told.send(number).unwrap()));
            if number % 2 == 0 {
                offload.rest();
            }
            assert_eq!(there.recv_timeout(Duration::from_secs(10)), Ok(number));
        }
    }

    #[test]
    fn one_client_has_a_share() {
        let offload = Offload::new(1, 1000, Arc::default());
        let one = |text: &str| offload.reserve(of(text), Patience::None);
        let places: Vec<_> = (0..PER_CLIENT).map(|_| one("2001:db8::1").unwrap()).collect();
        assert!(
            one("2001:db8::2").is_none() && one("2001:db8:0:1::1").is_some() && one("192.0.2.1").is_some()
        );
        let patient = |text: &str| offload.reserve(of(text), Patience::Long);
        let more: Vec<_> = (0..234).map(|_| patient("2001:db8::1").unwrap()).collect();
        assert!(patient("2001:db8::1").is_none() && patient("192.0.2.1").is_some());
        drop((places, more));
        assert!(one("2001:db8::2").is_some());
        assert_eq!(offload.queue.clients.clients(), 0);
    }

    #[test]
    fn one_client_leaves_room_in_a_short_queue() {
        let offload = Offload::new(1, 8, Arc::default());
        for patience in [Patience::None, Patience::Short, Patience::Long] {
            let all: Vec<_> = std::iter::from_fn(|| offload.reserve(of("192.0.2.1"), patience)).collect();
            assert_eq!(all.len(), 2, "{patience:?}");
            assert!(offload.reserve(of("192.0.2.1"), Patience::None).is_none());
            assert!(offload.reserve(of("192.0.2.2"), patience).is_some());
        }
        assert_eq!(offload.queue.clients.clients(), 0);
    }

    #[test]
    fn clients_take_turns() {
        let offload = Offload::new(1, 1000, Arc::default());
        let (told, there) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let submit = |client: &str, job: OffloadJob| {
            offload.reserve(of(client), Patience::Long).unwrap().submit(job);
        };
        submit("192.0.2.9", Box::new(move || wait.recv().unwrap()));
        for (client, number) in [(1, 11), (1, 12), (1, 13), (2, 21), (1, 14), (2, 22), (3, 31)] {
            let told = told.clone();
            submit(&format!("192.0.2.{client}"), Box::new(move || told.send(number).unwrap()));
        }
        go.send(()).unwrap();
        let order: Vec<i32> = (0..7).map(|_| there.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [11, 21, 31, 12, 22, 13, 14]);
    }
}
