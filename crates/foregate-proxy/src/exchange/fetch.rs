//! Requests that steps of modules have asked for.

mod asks;
pub(super) mod copies;

use std::sync::Arc;
use std::time::Instant;

use foregate_module::{FetchError, FetchRequest, FetchResult, FetchTarget, TraceContext};
use foregate_wire::{Method, NameId};

use crate::address::ServerAddress;
use crate::fetches::{SharedAnswer, UpstreamKey};
use crate::limits::account::{Account, AccountPlace};
use crate::limits::budget::{Budget, BudgetShare};
use crate::limits::clients::Holdings;
use crate::message::request::Request;
use crate::proxy::{Config, Proxy};
use crate::settings;
use crate::spans::{Attributes, SpanId, SpanKind, SpanParent, traceparent};
use crate::upstream::Upstream;

/// The client on whose account a fetch takes its place, its memory and its connection.
#[derive(Debug, Clone)]
pub(super) struct FetchPayer {
    pub account: Account,
    /// The client's resources, for connections to origins.
    pub holdings: Option<Arc<Holdings>>,
    /// The trace of its request, if there is one.
    pub trace: Option<TraceContext>,
    /// The parent span of the fetch, if that trace is recorded.
    pub span: Option<SpanParent>,
}

/// The answer to a fetch, and the memory that its body holds.
#[derive(Debug)]
pub(super) struct FetchAnswer {
    pub answer: FetchResult,
    /// The memory of the body; `None` if other requests share the body.
    pub share: Option<BudgetShare>,
}

impl From<FetchResult> for FetchAnswer {
    fn from(answer: FetchResult) -> Self {
        Self { answer, share: None }
    }
}

/// Makes a request for a step and waits for its answer, or uses a stored answer. `authority` is the authority of the
/// client's request.
pub(super) async fn fetch(
    proxy: &Proxy,
    config: &Arc<Config>,
    (authority, mut asker): (&str, FetchPayer),
    step: &'static str,
    mut ask: FetchRequest,
) -> FetchAnswer {
    let deadline = Instant::now() + ask.timeout;
    let span = FetchSpan::begin(&mut asker);
    let result = match whom(config, &ask) {
        None => Err(FetchError::BadRequest).into(),
        Some(whom) if ask.keep.is_zero() => {
            ask.authority.get_or_insert_with(|| authority.to_owned().into());
            let called = RunningFetch { config, asker: &asker, memory: &proxy.filter_memory };
            match called.place(&whom) {
                Ok(place) => called.in_time(place, &whom, &ask, deadline).await,
                Err(error) => Err(error).into(),
            }
        }
        Some(whom) => {
            // A shared answer must not depend on the Host of one client.
            ask.authority.get_or_insert_with(|| authority_of(&whom.0).into());
            from_kept(proxy, config, asker, whom, ask, deadline).await.into()
        }
    };
    count(proxy, step, result.answer.as_ref().err());
    if let Some(span) = span {
        span.end(step, &result.answer);
    }
    if let Err(error) = &result.answer {
        tracing::debug!(step, %error, "a step's request has no answer");
    }
    result
}

/// The span of a fetch from the step's point of view. With a stored answer it contains no attempt.
struct FetchSpan {
    parent: SpanParent,
    id: SpanId,
    began: Instant,
}

impl FetchSpan {
    /// Begins the span of the fetch, if the trace is recorded; attempts become its children.
    fn begin(asker: &mut FetchPayer) -> Option<Self> {
        let parent = asker.span.as_mut()?;
        let span = Self { parent: parent.clone(), id: SpanId::random(), began: Instant::now() };
        parent.id = span.id;
        Some(span)
    }

    fn end(self, step: &'static str, answer: &FetchResult) {
        let mut attributes = Attributes::default();
        attributes.text("foregate.step", step.as_bytes());
        match answer {
            Ok(answer) => attributes.number("http.response.status_code", answer.status.into()),
            Err(error) => attributes.text("error.type", error_type(error).as_bytes()),
        }
        let span = (self.id, SpanKind::Internal, "fetch");
        self.parent.record(span, (self.began, Instant::now()), &attributes, answer.is_err());
    }
}

fn error_type(error: &FetchError) -> &'static str {
    match error {
        FetchError::Connection => "connection",
        FetchError::Timeout => "timeout",
        FetchError::TooLarge => "too_large",
        FetchError::Malformed => "malformed",
        FetchError::BadRequest => "bad_request",
        FetchError::Busy => "busy",
    }
}

/// Sends a request of the process itself. The answer is not kept.
pub(crate) async fn post(proxy: &Proxy, upstream: &Arc<Upstream>, ask: FetchRequest) -> FetchResult {
    let authority = authority_of(&upstream.settings);
    let request = request_of(&ask, authority.as_bytes()).ok_or(FetchError::BadRequest)?;
    let mut share = proxy.filter_memory.share(Account::PROCESS);
    let deadline = Instant::now() + ask.timeout;
    asks::make(upstream, (request, &ask), (None, None), &mut share, deadline).await
}

/// The request of a fetch; `None` if it is not a valid request.
fn request_of(ask: &FetchRequest, authority: &[u8]) -> Option<Request> {
    let method = Method::from_bytes(&ask.method)?;
    Request::make(method, &ask.path, authority, &ask.fields, ask.body.len() as u64).ok()
}

/// The upstream of a fetch in the request's configuration; `None` if there is none.
fn whom(config: &Config, ask: &FetchRequest) -> Option<UpstreamKey> {
    let upstream = match ask.target {
        FetchTarget::Upstream(upstream) => upstream.0 as usize,
        // The steps of the document's route have to judge such a request first: see `judge_inner`.
        FetchTarget::Site => return None,
    };
    Some(UpstreamKey(Arc::clone(config.settings.upstreams.get(upstream)?)))
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

/// The host of a fetch if the step names none: the host of the upstream, or else that of its first server.
fn authority_of(upstream: &settings::UpstreamSettings) -> String {
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
    asker: FetchPayer,
    whom: UpstreamKey,
    ask: FetchRequest,
    deadline: Instant,
) -> FetchResult {
    let entry = proxy.fetches.entry(whom.clone(), &ask, asker.account);
    if let Some(known) = entry.known(&ask) {
        return known;
    }
    let answer =
        tokio::time::timeout_at(deadline.into(), ask_in_turn(proxy, &entry, config, asker, whom, &ask));
    answer.await.unwrap_or_else(|_| {
        // This step's time limit is reached before the fetch ends. The step gets the stale answer, if there is one.
        let stale = entry.stale(&ask);
        stale.ok_or(FetchError::Timeout)
    })
}

/// Waits for earlier fetches of the same answer, and fetches only if theirs cannot be used.
async fn ask_in_turn(
    proxy: &Proxy,
    entry: &Arc<SharedAnswer>,
    config: &Arc<Config>,
    asker: FetchPayer,
    whom: UpstreamKey,
    ask: &FetchRequest,
) -> FetchResult {
    let turn = entry.asking.turn(asker.account).await;
    if let Some(known) = entry.known(ask) {
        return known;
    }
    let memory = Arc::clone(&proxy.filter_memory);
    let place = RunningFetch { config, asker: &asker, memory: &memory }.place(&whom)?;
    // The fetch has its full time, even if the waiting request leaves.
    let (entry, config, ask) = (Arc::clone(entry), Arc::clone(config), ask.clone());
    let asked = tokio::spawn(async move {
        let _turn = turn;
        let called = RunningFetch { config: &config, asker: &asker, memory: &memory };
        let fetched = called.in_time(place, &whom, &ask, Instant::now() + ask.timeout).await;
        match fetched.answer {
            // This client has too many fetches under way. That does not concern other clients, so the error is not stored.
            Err(FetchError::Busy) => Err(FetchError::Busy),
            answer => entry.keep(&ask, answer),
        }
    });
    asked.await.unwrap_or(Err(FetchError::Connection))
}

/// A fetch under way.
#[derive(Clone, Copy)]
struct RunningFetch<'a> {
    config: &'a Config,
    asker: &'a FetchPayer,
    memory: &'a Arc<Budget>,
}

impl RunningFetch<'_> {
    fn upstream(&self, settings: &Arc<settings::UpstreamSettings>) -> Result<&Arc<Upstream>, FetchError> {
        let upstreams = &self.config.upstreams;
        let same = upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.settings, settings));
        let named = || upstreams.iter().find(|upstream| upstream.settings.name == settings.name);
        same.or_else(named).ok_or(FetchError::BadRequest)
    }

    /// Takes a slot for a fetch from an upstream. Each upstream has its own slots, so that a silent upstream does not
    /// block others. Each client may take only a part of the slots.
    fn place(&self, whom: &UpstreamKey) -> Result<AccountPlace, FetchError> {
        let UpstreamKey(settings) = whom;
        let percent = self.config.settings.limits.filter_per_client;
        let place = self.upstream(settings)?.fetches.take(self.asker.account, percent);
        place.ok_or(FetchError::Busy)
    }

    async fn in_time(
        self,
        _place: AccountPlace,
        whom: &UpstreamKey,
        ask: &FetchRequest,
        deadline: Instant,
    ) -> FetchAnswer {
        let UpstreamKey(settings) = whom;
        let upstream = match self.upstream(settings) {
            Ok(upstream) => upstream,
            Err(error) => return Err(error).into(),
        };
        let authority = ask.authority.as_deref().unwrap_or_default();
        let Some(mut request) = request_of(ask, authority) else { return Err(FetchError::BadRequest).into() };
        // An answer that is stored for several requests belongs to none of their traces.
        if let Some(trace) = self.asker.trace.filter(|_| ask.keep.is_zero()) {
            let value = traceparent(&trace, SpanId(trace.span));
            request.head.headers.set(NameId::Traceparent, &value);
        }
        let mut share = self.memory.share(self.asker.account);
        let client = self.asker.holdings.as_ref();
        let answer =
            asks::make(upstream, (request, ask), (client, self.asker.span.clone()), &mut share, deadline)
                .await;
        let share = answer.is_ok().then_some(share);
        FetchAnswer { answer, share }
    }
}
