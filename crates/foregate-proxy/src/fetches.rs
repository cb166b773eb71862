//! Answers of fetches that are kept for all requests of the process.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_module::{AnswerKey, FetchRequest, FetchResponse, FetchResult, KeptAnswers};
use parking_lot::Mutex;

use crate::limits::account::{Account, part};
use crate::limits::lanes::Lanes;
use crate::settings;

/// The percentage of the table that entries of one client may take. Beyond that, the client's own oldest entry is
/// dropped for a new one.
const KEPT_PART: usize = 25;

/// The answers of fetches that are kept for all requests of the process.
#[derive(Debug)]
pub struct Fetches {
    /// The zero of the times of answers.
    start: Instant,
    kept: Mutex<HashMap<AnswerKey<UpstreamKey>, AnswerEntry, foldhash::fast::RandomState>>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self { start: Instant::now(), kept: Mutex::default() }
    }
}

#[derive(Debug)]
struct AnswerEntry {
    kept: Arc<SharedAnswer>,
    /// The account of the client that asked first.
    account: Account,
}

/// The upstream of a fetch, identified by all of its settings. After a reload, its number and its name may belong to
/// another upstream.
#[derive(Clone, PartialEq)]
pub struct UpstreamKey(pub Arc<settings::UpstreamSettings>);

impl std::fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl UpstreamKey {
    fn name(&self) -> &str {
        &self.0.name
    }
}

impl Eq for UpstreamKey {}

impl Hash for UpstreamKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// The shared answer to a fetch. The first request makes the fetch. Other requests wait for it, unless a stored
/// answer can be used.
#[derive(Debug)]
pub struct SharedAnswer {
    answers: Mutex<KeptAnswers>,
    /// The start of the table, from which the times of answers count.
    start: Instant,
    /// The queue for fetching the answer, one client at a time. If a client's fetch fails because the client has used
    /// up its memory or its fetches, the next client in the queue tries.
    pub asking: Arc<Lanes>,
}

impl SharedAnswer {
    fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::default(), start, asking: Lanes::new(1) })
    }

    /// The stored answer, if it can be used without a fetch.
    pub fn known(&self, ask: &FetchRequest) -> Option<FetchResult> {
        self.answers.lock().known(ask, self.now())
    }

    /// Keeps an answer, unless it is too large; returns an older answer if that is used instead.
    pub fn keep(&self, ask: &FetchRequest, result: FetchResult) -> FetchResult {
        self.answers.lock().keep(ask, result, self.now())
    }

    /// A good answer that expired recently.
    pub fn stale(&self, ask: &FetchRequest) -> Option<FetchResponse> {
        self.answers.lock().stale(ask, self.now())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Fetches {
    /// The entry for a fetch of `account`. Creates one if there is none.
    pub fn entry(&self, upstream: UpstreamKey, ask: &FetchRequest, account: Account) -> Arc<SharedAnswer> {
        let authority = ask.authority.as_deref().unwrap_or_default();
        let question = AnswerKey::new(upstream, authority, ask);
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.get(&question) {
            return Arc::clone(&entry.kept);
        }
        let own = kept.values().filter(|entry| entry.account == account).count();
        let is_over = account.is_client() && own >= part(KeptAnswers::QUESTIONS, KEPT_PART);
        if is_over || kept.len() >= KeptAnswers::QUESTIONS {
            let since = |kept: &SharedAnswer| {
                let since = kept.answers.lock().fresh_since();
                kept.asking.has_free().then_some(since)
            };
            let oldest = kept
                .iter()
                .filter(|(_, entry)| !is_over || entry.account == account)
                .filter_map(|(question, entry)| Some((since(&entry.kept)?, question)))
                .min_by_key(|(since, _)| *since);
            let Some(question) = oldest.map(|(_, question)| question.clone()) else {
                // All entries are in use by fetches: this fetch is not shared.
                return SharedAnswer::new(self.start);
            };
            kept.remove(&question);
        }
        let entry = AnswerEntry { kept: SharedAnswer::new(self.start), account };
        Arc::clone(&kept.entry(question).or_insert(entry).kept)
    }
}
