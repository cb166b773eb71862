//! The state shared by the scripts of one running case: marks, the transcript, the proxy, the end.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::dns::Nameserver;
use crate::process::Proxy;
use crate::text::Variables;

/// Most lines of a transcript; the oldest go first.
const TRANSCRIPT_LINES: usize = 120;

/// Why a case failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The line of the step, 0 when the fault belongs to none.
    pub line: usize,
    /// The step as it stands in the case.
    pub step: String,
    /// The expectation and the input.
    pub message: String,
}

/// The state shared by the scripts of one running case.
pub struct Shared {
    /// The names for `${...}`.
    pub variables: Variables,
    /// The folder of the case.
    pub folder: PathBuf,
    /// Set when a script failed or the clients are done: all waiting stops.
    pub stop: Arc<AtomicBool>,
    /// The scripted nameservers.
    pub nameservers: Vec<Nameserver>,
    /// The proxy, absent in a case that only runs commands.
    pub proxy: Mutex<Option<Proxy>>,
    marks: Mutex<HashSet<String>>,
    marked: Condvar,
    transcript: Mutex<Vec<String>>,
    failure: Mutex<Option<Failure>>,
    expected_end: Mutex<Option<i32>>,
    origins_done: AtomicUsize,
    start: Instant,
}

impl Shared {
    /// A fresh case.
    pub fn new(variables: Variables, folder: PathBuf) -> Self {
        Self {
            variables,
            folder,
            stop: Arc::new(AtomicBool::new(false)),
            nameservers: Vec::new(),
            proxy: Mutex::new(None),
            marks: Mutex::new(HashSet::new()),
            marked: Condvar::new(),
            transcript: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
            expected_end: Mutex::new(None),
            origins_done: AtomicUsize::new(0),
            start: Instant::now(),
        }
    }

    /// Adds a line to the transcript.
    pub fn note(&self, who: &str, what: &str) {
        let mut transcript = self.transcript.lock();
        if transcript.len() >= TRANSCRIPT_LINES {
            transcript.remove(0);
        }
        transcript.push(format!("{:7.3} {who:<10} {what}", self.start.elapsed().as_secs_f64()));
    }

    /// The transcript so far.
    pub fn transcript(&self) -> Vec<String> {
        self.transcript.lock().clone()
    }

    /// Records why the case failed, if nothing did before, and stops the other scripts.
    pub fn fail(&self, failure: Failure) {
        let mut first = self.failure.lock();
        if !self.stop.swap(true, Ordering::Relaxed) && first.is_none() {
            *first = Some(failure);
        }
        self.marked.notify_all();
    }

    /// Records a fault that shows only when everything is over.
    pub fn fail_late(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
    }

    /// The case has seen the proxy end with this code.
    pub fn expect_end(&self, code: i32) {
        *self.expected_end.lock() = Some(code);
    }

    /// The code with which the proxy has ended rightly.
    pub fn expected_end(&self) -> Option<i32> {
        *self.expected_end.lock()
    }

    /// Why the case failed, if it did.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().clone()
    }

    /// Returns true if waiting has to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends all waiting, everything having gone well.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.marked.notify_all();
    }

    /// An origin's script has come to its end.
    pub fn origin_done(&self) {
        self.origins_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until so many origins' scripts have come to their end, or one failed.
    pub fn wait_for_origins(&self, count: usize) {
        while !self.stopped() && self.origins_done.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sets a mark.
    pub fn mark(&self, name: &str) {
        self.marks.lock().insert(name.to_owned());
        self.marked.notify_all();
    }

    /// Waits for a mark. False: it did not come in time.
    pub fn wait_for(&self, name: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut marks = self.marks.lock();
        while !marks.contains(name) {
            if self.stopped() || self.marked.wait_until(&mut marks, deadline).timed_out() {
                return marks.contains(name);
            }
        }
        true
    }

    /// Waits, but not beyond the end of the case.
    pub fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        while !self.stopped() && Instant::now() < deadline {
            std::thread::sleep((deadline - Instant::now()).min(Duration::from_millis(20)));
        }
    }

    /// Tries until it succeeds or the time is over; the last answer.
    ///
    /// # Errors
    ///
    /// The last error of `attempt`.
    pub fn until<T>(
        &self,
        limit: Duration,
        mut attempt: impl FnMut() -> Result<T, String>,
    ) -> Result<T, String> {
        let deadline = Instant::now() + limit;
        loop {
            match attempt() {
                Err(error) if self.stopped() || Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
                Ok(value) => return Ok(value),
            }
        }
    }
}
