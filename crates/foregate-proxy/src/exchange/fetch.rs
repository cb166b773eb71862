//! Requests that steps of modules have asked for.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use foregate_module::{FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, Text};
use foregate_wire::{BodyLength, HeaderList, Method, ResponseHead, connection};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::request::Request;
use crate::error::Error;
use crate::link::Received;
use crate::proxy::{Config, Proxy};
use crate::routing::HostId;
use crate::settings::Action;
use crate::upstream::{Addresses, Origin, Terms, Upstream};

/// Fetches that may be under way at a time. Beyond: [`FetchError::Busy`].
const AT_A_TIME: usize = 1024;
/// Questions whose answers are kept. Beyond, the one that is least fresh goes.
const KEPT: usize = 256;
/// The largest answer that is kept, bytes of its body.
const KEPT_BODY: usize = 1 << 20;
/// How long a failure is kept for those who ask the same.
const KEPT_FAILURE: Duration = Duration::from_secs(1);
/// Interim responses that are taken before the final one.
const INTERIM_RESPONSES: u32 = 16;

/// What all fetches of the process share.
#[derive(Debug)]
pub struct Fetches {
    permits: Semaphore,
    kept: Mutex<HashMap<Question, Arc<Kept>, foldhash::fast::RandomState>>,
}

/// What has to be the same for an answer to serve again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    target: FetchTarget,
    site: Option<Arc<str>>,
    authority: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// The answer to a question. Whoever asks first fetches it, the others wait.
#[derive(Debug, Default)]
struct Kept(tokio::sync::Mutex<Option<Answered>>);

#[derive(Debug, Clone)]
struct Answered {
    at: Instant,
    /// The last good answer.
    answer: Option<FetchResponse>,
    /// When asking failed last, and how.
    failed: Option<(Instant, FetchError)>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self { permits: Semaphore::new(AT_A_TIME), kept: Mutex::default() }
    }
}

/// Makes a request and waits for its answer, or takes one that was kept. `authority` is that of the client's request.
pub(super) async fn fetch(
    proxy: &Proxy,
    config: &Config,
    site: Option<HostId>,
    authority: &str,
    ask: FetchRequest,
) -> FetchResult {
    proxy.metrics.fetches.inc();
    let Ok(_permit) = proxy.fetches.permits.try_acquire() else {
        proxy.metrics.fetches_failed.inc();
        return Err(FetchError::Busy);
    };
    let result = if ask.keep.is_zero() {
        in_time(config, site, authority, &ask).await
    } else {
        from_kept(proxy, config, site, authority, &ask).await
    };
    if result.is_err() {
        proxy.metrics.fetches_failed.inc();
    }
    result
}

async fn from_kept(
    proxy: &Proxy,
    config: &Config,
    site: Option<HostId>,
    authority: &str,
    ask: &FetchRequest,
) -> FetchResult {
    let entry = proxy.fetches.entry(question(config, site, authority, ask));
    // Waiting for another's answer may take no longer than one's own.
    let Ok(mut slot) = tokio::time::timeout(ask.timeout, entry.0.lock()).await else {
        return Err(FetchError::Timeout);
    };
    let now = Instant::now();
    if let Some(kept) = &*slot {
        if let Some(answer) = &kept.answer
            && now.duration_since(kept.at) < ask.keep
        {
            return Ok(answer.clone());
        }
        if let Some((at, error)) = kept.failed
            && now.duration_since(at) < KEPT_FAILURE
        {
            return stale(kept, ask, now).ok_or(error);
        }
    }
    let result = in_time(config, site, authority, ask).await;
    let now = Instant::now();
    match result {
        Ok(answer) if answer.status == 200 && answer.body.len() <= KEPT_BODY => {
            *slot = Some(Answered { at: now, answer: Some(answer.clone()), failed: None });
            Ok(answer)
        }
        Ok(answer) if answer.status < 500 => Ok(answer),
        failed => {
            let error = failed.as_ref().err().copied().unwrap_or(FetchError::Malformed);
            let kept = slot.get_or_insert(Answered { at: now, answer: None, failed: None });
            let stale = stale(kept, ask, now);
            if failed.is_err() {
                kept.failed = Some((now, error));
            }
            stale.map_or(failed, Ok)
        }
    }
}

/// An answer whose time is over, but not long since.
fn stale(kept: &Answered, ask: &FetchRequest, now: Instant) -> Option<FetchResponse> {
    kept.answer.clone().filter(|_| now.duration_since(kept.at) < ask.keep * 2)
}

fn question(config: &Config, site: Option<HostId>, authority: &str, ask: &FetchRequest) -> Question {
    let field = |field: &Field| (field.name().to_ascii_lowercase(), field.value().to_vec());
    Question {
        target: ask.target,
        site: (ask.target == FetchTarget::Site)
            .then(|| site.map(|site| Arc::clone(&config.settings.sites.site(site).name)))
            .flatten(),
        authority: ask.authority.as_deref().unwrap_or(authority.as_bytes()).to_vec(),
        method: ask.method.to_vec(),
        path: ask.path.to_vec(),
        fields: ask.fields.iter().map(field).collect(),
        body: ask.body.to_vec(),
    }
}

impl Fetches {
    fn entry(&self, question: Question) -> Arc<Kept> {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT && !kept.contains_key(&question) {
            let age = |kept: &Arc<Kept>| {
                let answered = kept.0.try_lock().ok()?;
                Some(answered.as_ref().map_or(Duration::MAX, |answered| answered.at.elapsed()))
            };
            let oldest = kept
                .iter()
                .filter_map(|(question, kept)| Some((age(kept)?, question)))
                .max_by_key(|(age, _)| *age);
            if let Some(question) = oldest.map(|(_, question)| question.clone()) {
                kept.remove(&question);
            }
        }
        if kept.len() >= KEPT && !kept.contains_key(&question) {
            // All are being fetched now.
            return Arc::default();
        }
        Arc::clone(kept.entry(question).or_default())
    }
}

async fn in_time(config: &Config, site: Option<HostId>, authority: &str, ask: &FetchRequest) -> FetchResult {
    let authority = ask.authority.as_deref().unwrap_or(authority.as_bytes());
    let method = Method::from_bytes(&ask.method).ok_or(FetchError::BadRequest)?;
    let request = Request::make(method, &ask.path, authority, &ask.fields, ask.body.len() as u64)
        .map_err(|_| FetchError::BadRequest)?;
    let upstream = match ask.target {
        FetchTarget::Upstream(upstream) => upstream.0 as usize,
        FetchTarget::Site => {
            let route = site.and_then(|site| config.settings.sites.route(site, request.path()));
            let route = route.ok_or(FetchError::BadRequest)?;
            match &route.action {
                Action::Proxy(upstream) => *upstream,
                Action::Respond(fixed) => {
                    let body = Text::Shared(Arc::clone(&fixed.body));
                    let content_type = Field::new("content-type", "text/plain; charset=utf-8");
                    return Ok(FetchResponse {
                        status: fixed.status,
                        fields: content_type.into_iter().collect(),
                        body,
                    });
                }
            }
        }
    };
    let upstream = config.upstreams.get(upstream).ok_or(FetchError::BadRequest)?;
    let asked = tokio::time::timeout(ask.timeout, attempts(upstream, &request, ask)).await;
    asked.map_err(|_| FetchError::Timeout)?
}

/// Asks once, and once more if a kept connection turns out to be dead.
async fn attempts(upstream: &Arc<Upstream>, request: &Request, ask: &FetchRequest) -> FetchResult {
    let _active = upstream.enter();
    let mut fresh = false;
    loop {
        let now = Instant::now();
        let server = upstream.pick(now).ok_or(FetchError::Connection)?;
        let terms = Terms {
            fresh,
            careful: !request.is_repeatable(),
            addresses: Addresses { client: None, local: None },
        };
        let mut origin = upstream.open(server, terms, now).await.map_err(fetch_error)?;
        match attempt(upstream, &mut origin, request, ask).await {
            Ok(answer) => {
                upstream.succeeded(server);
                upstream.recycle(origin, Instant::now());
                return answer;
            }
            Err(Error::OriginClosed) if origin.reused && request.is_repeatable() && !fresh => fresh = true,
            Err(error) => {
                if error == Error::OriginClosed && !origin.reused {
                    upstream.failed(server, now);
                }
                return Err(fetch_error(error));
            }
        }
    }
}

/// One request and its answer. The outer error is the connection's, the inner one that of what came.
async fn attempt(
    upstream: &Upstream,
    origin: &mut Origin,
    request: &Request,
    ask: &FetchRequest,
) -> Result<FetchResult, Error> {
    origin.send_head(request, upstream.settings.tls.is_some()).await?;
    let mut sent = 0;
    while sent < ask.body.len() {
        let taken = poll_fn(|cx| origin.link.poll_send(cx, &ask.body[sent..])).await;
        sent += taken.map_err(|_| Error::OriginClosed)?;
    }
    if !ask.body.is_empty() {
        origin.link.finish(&HeaderList::new()).map_err(Error::Origin)?;
    }
    let mut head = ResponseHead::new();
    let mut interim = 0;
    loop {
        poll_fn(|cx| {
            if let Poll::Ready(Err(_)) = origin.link.poll_flush(cx) {
                // An origin may close its side and still have an answer for us, which comes next.
            }
            origin.poll_head(cx, upstream, &mut head)
        })
        .await?;
        if head.status >= 200 {
            break;
        }
        interim += 1;
        if head.status == 101 || interim > INTERIM_RESPONSES {
            return Err(Error::Interim("an interim response that was not asked for"));
        }
    }
    if origin.begin_body(upstream, request, &head)? == BodyLength::Tunnel {
        return Err(Error::Interim("a protocol switch that was not asked for"));
    }
    let mut body = Vec::new();
    while poll_fn(|cx| origin.link.poll_receive(cx)).await.map_err(Error::Origin)? == Received::Data {
        let data = origin.link.data();
        if body.len() + data.len() > ask.limit {
            return Ok(Err(FetchError::TooLarge));
        }
        body.extend_from_slice(data);
        let count = data.len();
        origin.link.consume(count);
    }
    connection::strip_hop_by_hop(&mut head.headers, false);
    // A field that modules may not set, such as a length, is left out.
    let fields =
        head.headers.iter().filter_map(|field| Field::new(field.name.to_vec(), field.value.to_vec()).ok());
    Ok(Ok(FetchResponse { status: head.status, fields: fields.collect(), body: body.into() }))
}

fn fetch_error(error: Error) -> FetchError {
    match error {
        Error::Response(_) | Error::ResponseFraming(_) | Error::Interim(_) => FetchError::Malformed,
        Error::ConnectTimeout | Error::FirstByteTimeout => FetchError::Timeout,
        Error::Internal => FetchError::BadRequest,
        _ => FetchError::Connection,
    }
}
