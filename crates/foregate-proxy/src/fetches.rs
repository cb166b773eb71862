//! Answers of fetches that are kept for all requests of the process.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_module::{FetchRequest, FetchResponse, FetchResult, Field, Text};
use parking_lot::Mutex;

use crate::limits::account::{Account, part};
use crate::limits::lanes::Lanes;
use crate::settings;

/// Questions whose answers are kept. Beyond, the one that is least fresh goes.
const KEPT: usize = 256;
/// The part of them that the requests of one client may have asked, percent. Beyond, the least fresh of its own goes.
const KEPT_PART: usize = 25;
/// The largest answer that is kept, bytes of its body.
const KEPT_BODY: usize = 1 << 20;
/// How long an answer other than 200, or a failure, is kept for those who ask the same.
const KEPT_FAILURE: Duration = Duration::from_secs(1);

/// The answers of fetches that are kept for all requests of the process.
#[derive(Debug, Default)]
pub struct Fetches {
    kept: Mutex<HashMap<Question, AnswerEntry, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct AnswerEntry {
    kept: Arc<SharedAnswer>,
    /// The client whose request has asked first.
    account: Account,
}

/// What has to be the same for an answer to serve again.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    upstream: UpstreamKey,
    authority: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What clients authenticate themselves with may be among the fields.
        f.debug_struct("Question").field("upstream", &self.upstream.name()).finish_non_exhaustive()
    }
}

/// The upstream that a fetch goes to, known by all of its settings: its number, and its name, may mean another one after a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamKey(pub Arc<settings::Upstream>);

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

/// The answer to a question. Whoever asks first fetches it; the others wait, unless an answer that was kept will do for them.
#[derive(Debug)]
pub struct SharedAnswer {
    answers: Mutex<Answers>,
    /// The turn at fetching it. What has failed for want of the asker's own memory or places, the next one asks again; so the turn
    /// goes from client to client.
    pub asking: Arc<Lanes>,
}

impl Default for SharedAnswer {
    fn default() -> Self {
        Self { answers: Mutex::default(), asking: Lanes::new(1) }
    }
}

#[derive(Debug, Default)]
struct Answers {
    /// The last answer with 200, and when it came.
    good: Option<(Instant, FetchResponse)>,
    /// What came instead last, and when.
    other: Option<(Instant, FetchResult)>,
}

impl SharedAnswer {
    /// The answer that serves without asking.
    pub fn known(&self, ask: &FetchRequest) -> Option<FetchResult> {
        self.answers.lock().known(ask, Instant::now())
    }

    /// Keeps an answer, unless it is too large; returns an older one if that is to be used instead.
    pub fn keep(&self, ask: &FetchRequest, result: FetchResult) -> FetchResult {
        self.answers.lock().keep(ask, result, Instant::now())
    }

    /// A good answer whose time is over, but not long since.
    pub fn stale(&self, ask: &FetchRequest) -> Option<FetchResponse> {
        self.answers.lock().stale(ask, Instant::now())
    }
}

impl Answers {
    /// What is said without asking.
    fn known(&self, ask: &FetchRequest, now: Instant) -> Option<FetchResult> {
        if let Some((at, answer)) = &self.good {
            let age = now.duration_since(*at);
            // Where a newer one could not be had, it is not asked for again at once.
            let is_new = |after: Duration| {
                let failed = self.other.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < after);
                age < after || failed
            };
            if age < ask.keep && ask.renew_after.is_none_or(is_new) {
                return Some(Ok(answer.clone()));
            }
        }
        let (at, other) = self.other.as_ref()?;
        let is_new = now.duration_since(*at) < KEPT_FAILURE;
        is_new.then(|| self.stale(ask, now).map_or_else(|| other.clone(), Ok))
    }

    /// Keeps what has come, unless it is too large; gives what is to be said instead, if that is an older answer.
    fn keep(&mut self, ask: &FetchRequest, mut result: FetchResult, now: Instant) -> FetchResult {
        let mut fits = true;
        if let Ok(answer) = &mut result {
            fits = answer.body.len() <= KEPT_BODY;
            if fits {
                // Shared, because every hit copies it.
                let body = std::mem::replace(&mut answer.body, Text::EMPTY);
                answer.body = Text::Shared(Vec::from(body).into());
            }
        }
        self.other = None;
        match &result {
            Ok(answer) if ask.is_good(answer) => {
                self.good = fits.then(|| (now, answer.clone()));
                return result;
            }
            _ => self.other = fits.then(|| (now, result.clone())),
        }
        let stale = if ask.has_failed(&result) { self.stale(ask, now) } else { None };
        stale.map_or(result, Ok)
    }

    /// A good answer whose time is over, but not long since.
    fn stale(&self, ask: &FetchRequest, now: Instant) -> Option<FetchResponse> {
        let (at, answer) = self.good.as_ref()?;
        (now.duration_since(*at) < ask.keep * 2).then(|| answer.clone())
    }
}

fn question(upstream: UpstreamKey, ask: &FetchRequest) -> Question {
    let field = |field: &Field| (field.name().to_ascii_lowercase(), field.value().to_vec());
    Question {
        upstream,
        authority: ask.authority.as_deref().unwrap_or_default().to_vec(),
        method: ask.method.to_vec(),
        path: ask.path.to_vec(),
        fields: ask.fields.iter().map(field).collect(),
        body: ask.body.to_vec(),
    }
}

impl Fetches {
    /// The answer to a question that `account` asks, whether it is there already or not.
    pub fn entry(&self, upstream: UpstreamKey, ask: &FetchRequest, account: Account) -> Arc<SharedAnswer> {
        let question = question(upstream, ask);
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.get(&question) {
            return Arc::clone(&entry.kept);
        }
        let own = kept.values().filter(|entry| entry.account == account).count();
        let is_over = account.is_client() && own >= part(KEPT, KEPT_PART);
        if is_over || kept.len() >= KEPT {
            let age = |kept: &SharedAnswer| {
                let answers = kept.answers.lock();
                let age = answers.good.as_ref().map_or(Duration::MAX, |(at, _)| at.elapsed());
                kept.asking.has_free().then_some(age)
            };
            let oldest = kept
                .iter()
                .filter(|(_, entry)| !is_over || entry.account == account)
                .filter_map(|(question, entry)| Some((age(&entry.kept)?, question)))
                .max_by_key(|(age, _)| *age);
            let Some(question) = oldest.map(|(_, question)| question.clone()) else {
                // All are being fetched now.
                return Arc::default();
            };
            kept.remove(&question);
        }
        let entry = AnswerEntry { kept: Arc::default(), account };
        Arc::clone(&kept.entry(question).or_insert(entry).kept)
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::UpstreamId;

    use super::*;

    fn ask() -> FetchRequest {
        FetchRequest { keep: Duration::from_secs(10), ..FetchRequest::get(UpstreamId(0), "/keys") }
    }

    fn answer(status: u16, size: usize) -> FetchResult {
        Ok(FetchResponse { status, fields: Vec::new(), body: vec![b'a'; size].into() })
    }

    #[test]
    fn what_is_too_large_is_not_kept_whatever_its_status() {
        let (ask, now) = (ask(), Instant::now());
        for status in [200, 403, 502] {
            let mut answers = Answers::default();
            let large = answer(status, KEPT_BODY + 1);
            assert_eq!(answers.keep(&ask, large.clone(), now), large);
            assert!(answers.good.is_none() && answers.other.is_none(), "{status}");
            let _ = answers.keep(&ask, answer(status, KEPT_BODY), now);
            assert!(answers.good.is_some() != answers.other.is_some(), "{status}");
            assert_eq!(answers.keep(&ask, large.clone(), now), large);
            assert!(answers.good.is_none() && answers.other.is_none(), "{status}: what came before goes");
        }
    }

    #[test]
    fn what_is_kept_is_shared() {
        let (ask, now) = (ask(), Instant::now());
        for status in [200, 403, 502] {
            let kept = Answers::default().keep(&ask, answer(status, 100), now).unwrap();
            assert!(matches!(kept.body, Text::Shared(_)), "{status}");
        }
    }

    #[test]
    fn a_good_answer_serves_while_asking_fails() {
        let (mut answers, ask, now) = (Answers::default(), ask(), Instant::now());
        assert_eq!(answers.keep(&ask, answer(200, 1), now), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(503, 2), now + ask.keep), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(503, KEPT_BODY + 1), now + ask.keep), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(403, 3), now + ask.keep), answer(403, 3));
        assert_eq!(answers.keep(&ask, answer(503, 2), now + ask.keep * 2), answer(503, 2));
    }

    #[test]
    fn a_newer_answer_is_asked_for_while_the_old_one_serves() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        let ask = FetchRequest { keep: Duration::from_secs(300), ..ask() };
        let renewing = FetchRequest { renew_after: Some(Duration::from_secs(10)), ..ask.clone() };
        let after = |seconds| now + Duration::from_secs(seconds);
        let _ = answers.keep(&ask, answer(200, 1), now);
        assert_eq!(answers.known(&renewing, after(9)), Some(answer(200, 1)));
        assert_eq!(
            (answers.known(&renewing, after(10)), answers.known(&ask, after(10))),
            (None, Some(answer(200, 1)))
        );
        // It could not be had.
        assert_eq!(answers.keep(&renewing, answer(503, 2), after(11)), answer(200, 1));
        assert_eq!(answers.known(&renewing, after(20)), Some(answer(200, 1)));
        assert_eq!(answers.known(&renewing, after(21)), None);
        let _ = answers.keep(&renewing, answer(200, 3), after(22));
        assert_eq!(answers.known(&renewing, after(31)), Some(answer(200, 3)));
    }

    #[test]
    fn what_cannot_be_used_is_a_failure() {
        let ask = FetchRequest { usable: foregate_module::Usable(|body| body.len() < 3), ..ask() };
        let (mut answers, now) = (Answers::default(), Instant::now());
        assert_eq!(answers.keep(&ask, answer(200, 4), now), answer(200, 4), "there is nothing else");
        assert_eq!(answers.keep(&ask, answer(200, 1), now), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(200, 4), now + ask.keep), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(200, 2), now + ask.keep), answer(200, 2));
    }

    #[test]
    fn questions_hide_their_fields() {
        let fields = vec![Field::new("authorization", "secret").unwrap()];
        let ask = FetchRequest { fields, body: "secret".into(), ..ask() };
        let whom = UpstreamKey(Arc::new(settings::Upstream::new("app", Vec::new())));
        let shown = format!("{:?} {ask:?}", question(whom, &ask));
        assert!(shown.contains("app") && shown.contains("authorization"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101, 99"), "{shown}");
    }
}
