//! Requests that steps of modules have asked for.

mod asks;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_module::{FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, Text};
use foregate_wire::Method;
use parking_lot::Mutex;

use crate::address::ServerAddress;
use crate::limits::account::{Account, Place, part};
use crate::limits::budget::{Budget, Share};
use crate::limits::clients::Holdings;
use crate::limits::lanes::Lanes;
use crate::message::request::Request;
use crate::proxy::{Config, Proxy};
use crate::settings;
use crate::upstream::Upstream;

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
    kept: Mutex<HashMap<Question, KeptEntry, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct KeptEntry {
    kept: Arc<Kept>,
    /// The client whose request has asked first.
    account: Account,
}

/// The client on whose account a fetch is made: its place, its memory, and the connection.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub account: Account,
    /// For connections to origins.
    pub holdings: Option<Arc<Holdings>>,
}

/// The answer to a fetch, and the memory that its body holds.
#[derive(Debug)]
pub(super) struct Fetched {
    pub answer: FetchResult,
    /// `None` where the body is shared with others.
    pub share: Option<Share>,
}

impl From<FetchResult> for Fetched {
    fn from(answer: FetchResult) -> Self {
        Self { answer, share: None }
    }
}

/// What has to be the same for an answer to serve again.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    whom: Whom,
    authority: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What clients authenticate themselves with may be among the fields.
        f.debug_struct("Question").field("whom", &self.whom.name()).finish_non_exhaustive()
    }
}

/// Who is asked. An upstream is known by all of its settings: its number, and its name, may mean another one after a
/// reload.
#[derive(Debug, Clone, PartialEq)]
struct Whom(Arc<settings::Upstream>);

impl Whom {
    fn name(&self) -> &str {
        &self.0.name
    }
}

impl Eq for Whom {}

impl Hash for Whom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// The answer to a question. Whoever asks first fetches it; the others wait, unless an answer that was kept will do for them.
#[derive(Debug)]
struct Kept {
    answers: Mutex<Answers>,
    /// The turn at fetching it. What has failed for want of the asker's own memory or places, the next one asks again; so the turn
    /// goes from client to client.
    asking: Arc<Lanes>,
}

impl Default for Kept {
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

/// Makes a request for a step and waits for its answer, or takes one that was kept. `authority` is that of the client's
/// request.
pub(super) async fn fetch(
    proxy: &Proxy,
    config: &Arc<Config>,
    (authority, asker): (&str, Asker),
    step: &'static str,
    mut ask: FetchRequest,
) -> Fetched {
    let deadline = Instant::now() + ask.timeout;
    let result = match whom(config, &ask) {
        None => Err(FetchError::BadRequest).into(),
        Some(whom) if ask.keep.is_zero() => {
            ask.authority.get_or_insert_with(|| authority.to_owned().into());
            let called = Called { config, asker: &asker, memory: &proxy.filter_memory };
            match called.place(&whom) {
                Ok(place) => called.in_time(place, &whom, &ask, deadline).await,
                Err(error) => Err(error).into(),
            }
        }
        Some(whom) => {
            // What serves other clients must not depend on what this one has put into its Host.
            ask.authority.get_or_insert_with(|| authority_of(&whom).into());
            from_kept(proxy, config, asker, whom, ask, deadline).await.into()
        }
    };
    count(proxy, step, result.answer.as_ref().err());
    if let Err(error) = &result.answer {
        tracing::debug!(step, %error, "a step's request has no answer");
    }
    result
}

/// Who answers a question, by the configuration of the request.
fn whom(config: &Config, ask: &FetchRequest) -> Option<Whom> {
    let upstream = match ask.target {
        FetchTarget::Upstream(upstream) => upstream.0 as usize,
        // The steps of its route have to judge it first: see `Exchange::judge_inner`.
        FetchTarget::Site => return None,
    };
    Some(Whom(Arc::clone(config.settings.upstreams.get(upstream)?)))
}

/// Counts a fetch that is over.
pub(super) fn count(proxy: &Proxy, step: &'static str, error: Option<&FetchError>) {
    if let Some(counters) = proxy.steps.named(step) {
        counters.fetches.inc();
        if error.is_some() {
            counters.fetches_failed.inc();
        }
    }
}

/// The host that an upstream is asked for where a step names none: the upstream's, else its first server's.
fn authority_of(whom: &Whom) -> String {
    let Whom(upstream) = whom;
    let server = upstream.servers.first().map(|server| &server.address);
    match (&upstream.host, server) {
        (Some(host), _) => host.to_string(),
        (None, address) => {
            address.and_then(ServerAddress::authority).unwrap_or_else(|| "localhost".to_owned())
        }
    }
}

async fn from_kept(
    proxy: &Proxy,
    config: &Arc<Config>,
    asker: Asker,
    whom: Whom,
    ask: FetchRequest,
    deadline: Instant,
) -> FetchResult {
    let entry = proxy.fetches.entry(question(whom.clone(), &ask), asker.account);
    if let Some(known) = entry.known(&ask) {
        return known;
    }
    let answer =
        tokio::time::timeout_at(deadline.into(), ask_in_turn(proxy, &entry, config, asker, whom, &ask));
    answer.await.unwrap_or_else(|_| {
        // Whose time is over before that of whoever asks takes what is there.
        let stale = entry.answers.lock().stale(&ask, Instant::now());
        stale.ok_or(FetchError::Timeout)
    })
}

/// Asks, once those who have asked before have their answer, unless that serves here as well.
async fn ask_in_turn(
    proxy: &Proxy,
    entry: &Arc<Kept>,
    config: &Arc<Config>,
    asker: Asker,
    whom: Whom,
    ask: &FetchRequest,
) -> FetchResult {
    let turn = entry.asking.turn(asker.account).await;
    if let Some(known) = entry.known(ask) {
        return known;
    }
    let memory = Arc::clone(&proxy.filter_memory);
    let place = Called { config, asker: &asker, memory: &memory }.place(&whom)?;
    // It has all of its time, whoever waits for it and leaves.
    let (entry, config, ask) = (Arc::clone(entry), Arc::clone(config), ask.clone());
    let asked = tokio::spawn(async move {
        let _turn = turn;
        let called = Called { config: &config, asker: &asker, memory: &memory };
        let fetched = called.in_time(place, &whom, &ask, Instant::now() + ask.timeout).await;
        match fetched.answer {
            // That this client has too much under way says nothing to others.
            Err(FetchError::Busy) => Err(FetchError::Busy),
            answer => entry.answers.lock().keep(&ask, answer, Instant::now()),
        }
    });
    asked.await.unwrap_or(Err(FetchError::Connection))
}

impl Kept {
    /// What is said without asking.
    fn known(&self, ask: &FetchRequest) -> Option<FetchResult> {
        self.answers.lock().known(ask, Instant::now())
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

fn question(whom: Whom, ask: &FetchRequest) -> Question {
    let field = |field: &Field| (field.name().to_ascii_lowercase(), field.value().to_vec());
    Question {
        whom,
        authority: ask.authority.as_deref().unwrap_or_default().to_vec(),
        method: ask.method.to_vec(),
        path: ask.path.to_vec(),
        fields: ask.fields.iter().map(field).collect(),
        body: ask.body.to_vec(),
    }
}

impl Fetches {
    fn entry(&self, question: Question, account: Account) -> Arc<Kept> {
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.get(&question) {
            return Arc::clone(&entry.kept);
        }
        let own = kept.values().filter(|entry| entry.account == account).count();
        let is_over = account.is_client() && own >= part(KEPT, KEPT_PART);
        if is_over || kept.len() >= KEPT {
            let age = |kept: &Kept| {
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
        let entry = KeptEntry { kept: Arc::default(), account };
        Arc::clone(&kept.entry(question).or_insert(entry).kept)
    }
}

/// A fetch under way.
#[derive(Clone, Copy)]
struct Called<'a> {
    config: &'a Config,
    asker: &'a Asker,
    memory: &'a Arc<Budget>,
}

impl Called<'_> {
    fn upstream(&self, settings: &Arc<settings::Upstream>) -> Result<&Arc<Upstream>, FetchError> {
        let upstreams = &self.config.upstreams;
        let same = upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.settings, settings));
        let named = || upstreams.iter().find(|upstream| upstream.settings.name == settings.name);
        same.or_else(named).ok_or(FetchError::BadRequest)
    }

    /// A place among what is asked of an upstream. Each upstream has places of its own, so that one that is silent does not hold up the
    /// others, and each client has its part of them.
    fn place(&self, whom: &Whom) -> Result<Place, FetchError> {
        let Whom(settings) = whom;
        let percent = self.config.settings.limits.filter_per_client;
        let place = self.upstream(settings)?.fetches.take(self.asker.account, percent);
        place.ok_or(FetchError::Busy)
    }

    async fn in_time(self, _place: Place, whom: &Whom, ask: &FetchRequest, deadline: Instant) -> Fetched {
        let Whom(settings) = whom;
        let upstream = match self.upstream(settings) {
            Ok(upstream) => upstream,
            Err(error) => return Err(error).into(),
        };
        let authority = ask.authority.as_deref().unwrap_or_default();
        let request = Method::from_bytes(&ask.method).and_then(|method| {
            Request::make(method, &ask.path, authority, &ask.fields, ask.body.len() as u64).ok()
        });
        let Some(request) = request else { return Err(FetchError::BadRequest).into() };
        let mut share = self.memory.share(self.asker.account);
        let client = self.asker.holdings.as_ref();
        let answer = asks::make(upstream, (request, ask), client, &mut share, deadline).await;
        let share = answer.is_ok().then_some(share);
        Fetched { answer, share }
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
        let whom = Whom(Arc::new(settings::Upstream::new("app", Vec::new())));
        let shown = format!("{:?} {ask:?}", question(whom, &ask));
        assert!(shown.contains("app") && shown.contains("authorization"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101, 99"), "{shown}");
    }
}
