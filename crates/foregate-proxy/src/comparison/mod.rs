//! Comparisons of this proxy's responses with those of the proxy that it replaces.
//!
//! Exchanges hand pairs of responses over; a thread of its own compares them, counts the outcomes and writes samples.
//! Its queue is bounded, and what does not fit is counted as not compared: no request waits for a comparison.

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

/// Comparisons that may be under way. Beyond, requests are not compared.
const PLACES: usize = 256;
/// Bytes of bodies that comparisons keep, all together. Beyond, bodies are compared by their hashes.
const MEMORY: usize = 32 << 20;
/// Routes whose learned pairs are counted.
const ROUTES_MOST: usize = 1000;
/// Pairs of responses of the old proxy that each route learns from at its start.
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

/// Comparisons are off until this time.
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

/// A request in the form for samples.
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
    /// Its response when the same request was sent a second time.
    pub again: Option<Outcome>,
    /// The response of this proxy.
    pub new: Outcome,
    /// The requests to the origin, where both are known.
    pub asked: Option<Box<AskedPair>>,
    /// The memory of the bodies.
    pub held: Vec<BudgetShare>,
    /// The place of the comparison.
    pub place: AccountPlace,
}

/// The requests to the origin; `None`: it is not asked.
#[derive(Debug)]
pub struct AskedPair {
    /// That of the old proxy.
    pub old: Option<AskedRequest>,
    /// That of this proxy.
    pub new: Option<AskedRequest>,
    /// A tap has been there: the requests and not just the responses are compared.
    pub is_tapped: bool,
}

impl Pair {
    /// Gives memory and place back.
    fn end(self) {
        drop((self.held, self.place));
    }

    /// The pair in short, if nothing in it differs, whatever the rules are. Most pairs are so: looking at them here spares the
    /// thread that compares, and the way there.
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

/// The times of two answers that are equal.
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
    /// Those of the answers, where they say something.
    times: Option<(Duration, Duration)>,
    /// The old proxy was asked twice, and has given the same answer.
    is_learned: bool,
}

/// The question of an administrator.
#[derive(Debug, Clone)]
pub enum ComparisonQuestion {
    /// The report, as `json`, `text` or `html`.
    Report(String),
    /// A sample.
    Show(String),
    /// Leave a part of the responses out from now on.
    Ignore(String),
}

#[derive(Debug)]
enum ComparisonWork {
    Compare(Box<Pair>),
    Same(SamePair),
    NotCompared(Arc<str>, &'static str),
    Answer(ComparisonQuestion, Arc<CompareSamples>, oneshot::Sender<Result<Value, String>>),
}

impl Comparisons {
    /// None yet.
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
    /// Why there is none.
    pub fn begin(&self, account: crate::limits::account::Account) -> Result<AccountPlace, &'static str> {
        if !self.pause.is_over() {
            return Err("samples cannot be written; comparisons pause for 30 s");
        }
        self.places.take(account, 100).ok_or("too many comparisons are under way")
    }

    /// Counts a request at a tap whose id is unknown.
    pub fn refuse_id(&self) {
        self.counters.ids_refused.inc();
    }

    /// A reader of a body that is to be compared.
    pub fn reader(&self, account: crate::limits::account::Account, limit: usize) -> SeenBody {
        SeenBody { reader: BodyReader::new(limit), share: self.memory.share(account) }
    }

    /// Whether the old proxy should be asked twice, at the start of each route.
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
    /// The question is none, or there is no such sample.
    pub async fn answer(
        &self,
        question: ComparisonQuestion,
        samples: Arc<CompareSamples>,
    ) -> Result<Value, String> {
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
            _ => Err("comparisons are busy; try again".to_owned()),
        }
    }

    /// Pairs beyond the queue are counted alone.
    fn send(&self, work: ComparisonWork) {
        if self.try_send(work).is_some() {
            self.counters.dropped.inc();
        }
    }

    /// Gives the work back if the queue is full. The thread starts with the first of it.
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

/// The part of a body that passes by.
#[derive(Debug)]
pub struct SeenBody {
    reader: BodyReader,
    share: BudgetShare,
}

impl SeenBody {
    /// Takes a piece. Where there is no memory for it, it is hashed alone, and so is the rest.
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
