//! Comparisons of this proxy's responses with those of the proxy that it replaces.
//!
//! Exchanges hand over pairs of responses; a separate thread compares them, counts the outcomes and writes samples. Its
//! queue is bounded. A pair that does not fit is dropped and counted: no request waits for a comparison.

mod judge;
mod queue;
mod samples;
mod taps;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foregate_compare::{AskedRequest, BodyReader, Outcome, are_equal};
use foregate_wire::HeaderList;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use self::judge::Judge;
use self::queue::{Queued, WorkQueue};
pub use self::taps::{ID_FIELD, Replay, TapPass, TapVisit, Taps, WatchedOutcome};
use crate::counters::comparisons::ComparisonCounters;
use crate::limits::account::{AccountPlace, Places};
use crate::limits::budget::{Budget, BudgetShare};
use crate::settings::{Compare, CompareSamples};

/// The most comparisons at a time. Further requests are not compared.
const PLACES: usize = 256;
/// The most bytes of bodies that all comparisons together keep. Further bodies are compared by their hashes.
const MEMORY: usize = 32 << 20;
/// The most routes with learned pairs that are counted. Further routes learn from each request.
const ROUTES_MOST: usize = 1000;
/// For this many first requests of a route, the old proxy is asked twice, to learn which parts differ each time.
const LEARNED_FIRST: u32 = 20;
/// The pause of all comparisons after a sample could not be written.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a question of an administrator may wait for the thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// The comparisons of the process.
#[derive(Debug)]
pub struct Comparisons {
    counters: Arc<ComparisonCounters>,
    places: Arc<Places>,
    memory: Arc<Budget>,
    queue: Arc<WorkQueue>,
    learned: Mutex<HashMap<Box<str>, u32, foldhash::fast::RandomState>>,
    pause: Arc<Pause>,
    /// Requests on their way through the old proxy.
    pub taps: Arc<Taps>,
}

/// A pause of all comparisons.
#[derive(Debug)]
struct Pause {
    began: Instant,
    /// Milliseconds since `began` at which the pause ends.
    until: AtomicU64,
}

impl Pause {
    fn begin(&self) {
        let until = (self.began.elapsed() + PAUSE).as_millis();
        self.until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.began.elapsed().as_millis() >= u128::from(self.until.load(Ordering::Relaxed))
    }
}

/// A request as samples show it.
#[derive(Debug)]
pub struct ComparedRequest {
    /// The method.
    pub method: String,
    /// `http://` or `https://` and the host.
    pub origin: String,
    /// The target as the client has sent it.
    pub target: String,
    /// The fields.
    pub fields: HeaderList,
    /// Bytes of its body.
    pub length: u64,
}

/// Two responses to one request.
#[derive(Debug)]
pub struct Pair {
    /// The site and the route.
    pub route: Arc<str>,
    /// The settings.
    pub compare: Arc<Compare>,
    /// Where samples go.
    pub samples: Arc<CompareSamples>,
    /// The request.
    pub request: ComparedRequest,
    /// The response of the old proxy.
    pub old: Outcome,
    /// The response of the old proxy when the same request was sent to it a second time.
    pub again: Option<Outcome>,
    /// The response of this proxy.
    pub new: Outcome,
    /// The requests that both proxies sent to the origin, if they are known.
    pub asked: Option<Box<AskedPair>>,
    /// The memory of the bodies.
    pub held: Vec<BudgetShare>,
    /// The place of the comparison among those that may be under way.
    pub place: AccountPlace,
}

/// The request that each of the two proxies sent to the origin; `None` if that proxy did not ask the origin.
#[derive(Debug)]
pub struct AskedPair {
    /// The request of the old proxy.
    pub old: Option<AskedRequest>,
    /// The request of this proxy.
    pub new: Option<AskedRequest>,
    /// True if the old proxy's request came through a tap: then the requests are compared in addition to the responses.
    pub is_tapped: bool,
}

impl Pair {
    /// Gives memory and place back.
    fn end(self) {
        drop((self.held, self.place));
    }

    /// The pair in short form, if its responses are equal under any rules. Most pairs are equal. Because they are detected
    /// here, the other thread does not have to compare them, and their bodies are not queued.
    fn same(&self) -> Option<SamePair> {
        let order = self.compare.rules.order;
        let times = equal_answers(&self.old, &self.new, order)?;
        let is_learned = match &self.again {
            Some(again) => equal_answers(&self.old, again, order).map(|_| true)?,
            None => false,
        };
        let times = match &self.asked {
            None => Some(times),
            Some(asked) if !asked.is_tapped => None,
            Some(asked) => match (&asked.old, &asked.new) {
                (Some(old), Some(new)) if old.is_equal(new, order) => None,
                (None, None) => None,
                _ => return None,
            },
        };
        Some(SamePair { route: Arc::clone(&self.route), times, is_learned })
    }
}

/// The times of two responses, if the responses are equal.
fn equal_answers(old: &Outcome, new: &Outcome, order: bool) -> Option<(Duration, Duration)> {
    match (old, new) {
        (Outcome::Answered(old), Outcome::Answered(new)) => {
            are_equal(old, new, order).then_some((old.time, new.time))
        }
        _ => None,
    }
}

/// A pair without a difference.
#[derive(Debug)]
struct SamePair {
    route: Arc<str>,
    /// The times of the responses. `None` if the origin's response was replayed: then they mean nothing.
    times: Option<(Duration, Duration)>,
    /// True if the old proxy was asked twice and gave the same response.
    is_learned: bool,
}

/// The question of an administrator.
#[derive(Debug, Clone)]
pub enum ComparisonQuestion {
    /// The report.
    Report(ReportFormat),
    /// The sample with this number.
    Show(u64),
    /// Leave a part of the responses out from now on.
    Ignore(String),
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// An object with everything.
    Json,
    /// A text that fits on one screen.
    Text,
    /// A page.
    Html,
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComparisonRefusal {
    /// The thread did not answer in time.
    #[error("comparisons are busy; try again")]
    Busy,
    /// The folder of the samples cannot be used.
    #[error("the folder of the samples: {0}")]
    Folder(String),
    /// There is no sample of this number, or it has expired.
    #[error("there is no sample {0:x}, or it has expired")]
    NoSample(u64),
    /// The name is no name of a part of a response.
    #[error("{0}")]
    NoPart(String),
    /// So many parts are ignored already.
    #[error("{0} parts are ignored already")]
    TooMany(usize),
}

type ComparisonAnswer = Result<Value, ComparisonRefusal>;

#[derive(Debug)]
enum ComparisonWork {
    Compare(Box<Pair>),
    Same(SamePair),
    NotCompared(Arc<str>, &'static str),
    Answer(ComparisonQuestion, Arc<CompareSamples>, oneshot::Sender<ComparisonAnswer>),
}

impl Comparisons {
    /// No comparisons yet.
    pub fn new(counters: Arc<ComparisonCounters>) -> Self {
        let memory = Budget::new(MEMORY);
        memory.set_limit(MEMORY, 100);
        let pause = Pause { began: Instant::now(), until: AtomicU64::new(0) };
        Self {
            counters,
            places: Places::new(PLACES),
            memory: Arc::new(memory),
            queue: Arc::default(),
            learned: Mutex::default(),
            pause: Arc::new(pause),
            taps: Arc::default(),
        }
    }

    /// Begins a comparison.
    ///
    /// # Errors
    ///
    /// The reason why the request is not compared.
    pub fn begin(&self, account: crate::limits::account::Account) -> Result<AccountPlace, &'static str> {
        if !self.pause.is_over() {
            return Err("samples cannot be written; comparisons pause for 30 s");
        }
        self.places.take(account, 100).ok_or("too many comparisons are under way")
    }

    /// Counts a request that came to a tap with an unknown id.
    pub fn refuse_id(&self) {
        self.counters.ids_refused.inc();
    }

    /// A reader of a body that is to be compared.
    pub fn reader(&self, account: crate::limits::account::Account, limit: usize) -> SeenBody {
        SeenBody { reader: BodyReader::new(limit), share: self.memory.share(account) }
    }

    /// Returns true if the old proxy should be asked twice, which it is for the first requests of each route.
    pub fn should_learn(&self, route: &str) -> bool {
        let mut learned = self.learned.lock();
        if let Some(count) = learned.get_mut(route) {
            *count = count.saturating_add(1);
            return *count <= LEARNED_FIRST;
        }
        if learned.len() < ROUTES_MOST {
            learned.insert(route.into(), 1);
        }
        true
    }

    /// Hands a pair over.
    pub fn compare(&self, pair: Pair) {
        self.send(match pair.same() {
            Some(same) => ComparisonWork::Same(same),
            None => ComparisonWork::Compare(Box::new(pair)),
        });
    }

    /// Counts a request that is not compared, and why.
    pub fn not_compared(&self, route: Arc<str>, reason: &'static str) {
        self.send(ComparisonWork::NotCompared(route, reason));
    }

    /// Answers an administrator.
    ///
    /// # Errors
    ///
    /// The question is invalid, or there is no such sample, or the thread is too busy.
    pub async fn answer(
        &self,
        question: ComparisonQuestion,
        samples: Arc<CompareSamples>,
    ) -> Result<Value, ComparisonRefusal> {
        let (sender, receiver) = oneshot::channel();
        let mut work = Some(ComparisonWork::Answer(question, samples, sender));
        let asked = async {
            while let Some(next) = work.take() {
                work = self.try_send(next);
                if work.is_some() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            receiver.await
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            _ => Err(ComparisonRefusal::Busy),
        }
    }

    /// Hands work to the thread. If the queue is full, the work is dropped and counted.
    fn send(&self, work: ComparisonWork) {
        if self.try_send(work).is_some() {
            self.counters.dropped.inc();
        }
    }

    /// Hands work to the thread, and returns it if the queue is full. The first work starts the thread.
    fn try_send(&self, work: ComparisonWork) -> Option<ComparisonWork> {
        match self.queue.put(work) {
            Queued::Waits => {}
            Queued::Full(work) => return Some(work),
            Queued::Unserved(worker) => {
                let judge = Judge::new(Arc::clone(&self.counters), Arc::clone(&self.pause));
                let thread = std::thread::Builder::new().name("compare".into());
                if let Err(error) = thread.spawn(move || judge.run(&worker)) {
                    tracing::warn!(%error, "no thread for comparisons");
                }
            }
        }
        None
    }
}

impl Drop for Comparisons {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A reader of a body on its way, for a comparison. It keeps the body, or only a hash of it.
#[derive(Debug)]
pub struct SeenBody {
    reader: BodyReader,
    share: BudgetShare,
}

impl SeenBody {
    /// Reads a piece of the body. If there is no memory to keep it, this piece and all later ones are only hashed.
    pub fn take(&mut self, piece: &[u8]) {
        let wanted = self.reader.wants(piece);
        if wanted > self.share.held() && !self.share.hold(wanted) {
            self.reader.keep_no_more();
        }
        self.reader.take(piece);
    }

    /// The body, and the memory that it holds.
    pub fn end(self) -> (foregate_compare::Body, BudgetShare) {
        (self.reader.end(), self.share)
    }
}
