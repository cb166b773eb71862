//! Requests for other documents of the site (fragments), judged like requests of the client.
//!
//! The origin, or one of its users, wrote the text that names a fragment. So a request for a fragment is checked
//! exactly as if the client had sent it, with the client's address, certificate and fields: the site, the possible
//! readings of the path, the route and its steps apply. While the steps run, the request for the fragment replaces
//! the client's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_module::{
    FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, PhaseId, Plan, Text, UpstreamId,
};
use foregate_wire::{HeaderList, Method, NameId, Slashes};

use super::route::route_by_conditions;
use super::state::Exchange;
use super::state::ExchangeEnd;
use super::state::Outer;
use crate::error::Error;
use crate::folders::{FolderError, LONGEST, Whole};
use crate::link::LinkError;
use crate::message::request::{Request, remove_identity};
use crate::proxy::Config;
use crate::settings::{Destination, FixedResponse, Route};

/// Fields that are left out, because they concern the body, range, freshness or connection of the client's own request.
const LEFT_OUT: [NameId; 13] = [
    NameId::Host,
    NameId::ContentLength,
    NameId::ContentType,
    NameId::ContentEncoding,
    NameId::TransferEncoding,
    NameId::Trailer,
    NameId::Expect,
    NameId::Upgrade,
    NameId::Range,
    NameId::IfRange,
    NameId::IfMatch,
    NameId::IfNoneMatch,
    NameId::IfModifiedSince,
];

/// The decision about a request for another document.
pub(super) enum InnerVerdict {
    /// This request has to be sent.
    Ask(FetchRequest),
    /// The site answers by itself, or refuses.
    Answered(FetchResult),
}

/// Decides about a request for a document of the site.
///
/// # Errors
///
/// The client has gone.
pub(super) async fn judge_inner(
    exchange: &mut Exchange<'_>,
    ask: FetchRequest,
) -> Result<InnerVerdict, LinkError> {
    const REFUSED: Result<InnerVerdict, LinkError> = Ok(InnerVerdict::Answered(Err(FetchError::BadRequest)));
    let sites = &exchange.config.settings.sites;
    let (Some(site), Some(mut request)) = (exchange.routed.site, inner_request(exchange, &ask)) else {
        return REFUSED;
    };
    if sites.keeps_slashes(site) && request.normalise(Slashes::Keep).is_err() {
        return REFUSED;
    }
    let found = match sites.has_conditions(site) {
        false => {
            sites.readings(site, request.target.path()).ok().zip(sites.route(site, request.target.path()))
        }
        true => {
            std::mem::swap(exchange.request, &mut request);
            let found = route_by_conditions(exchange, site).ok();
            std::mem::swap(exchange.request, &mut request);
            found
        }
    };
    let Some((readings, route)) = found else { return REFUSED };
    let Some(plan) = route.plan.get() else {
        request.target.strip_prefix(route.strip_prefix.as_deref());
        return Ok(judged(exchange, ask_route(route, None, &request, ask)).await);
    };
    exchange.modules.outer = Some(Box::new(Outer {
        request: std::mem::replace(exchange.request, request),
        response: std::mem::take(exchange.response),
        route: exchange.routed.route.replace(route),
        plan: exchange.modules.plan,
        run: exchange.modules.run.take(),
    }));
    exchange.use_plan(Some(plan));
    if let (Some(run), Some(readings)) = (&mut exchange.modules.run, readings) {
        run.facts.other_paths = Some(readings).into();
    }
    let ended = screen_inner(exchange, plan).await;
    let goes_on = match ended {
        Ok(()) => Ok(dispatch_inner(exchange, route, ask)),
        Err(ExchangeEnd::Failed(Error::Client(error))) => {
            end_inner(exchange);
            return Err(error);
        }
        Err(ExchangeEnd::Answer(answer, _)) => {
            let foregate_module::Response { status, fields, body, .. } = *answer;
            Err(InnerVerdict::Answered(Ok(FetchResponse { status, fields, body })))
        }
        Err(ExchangeEnd::Failed(_) | ExchangeEnd::Abort(_)) => {
            Err(InnerVerdict::Answered(Err(FetchError::BadRequest)))
        }
    };
    end_inner(exchange);
    match goes_on {
        Ok(answers) => Ok(judged(exchange, answers).await),
        Err(judged) => Ok(judged),
    }
}

/// The source of the answer to a request for another document.
enum Answers {
    Judged(InnerVerdict),
    File(FileFragment),
}

async fn judged(exchange: &mut Exchange<'_>, answers: Answers) -> InnerVerdict {
    match answers {
        Answers::Judged(judged) => judged,
        Answers::File(file) => file.judge(exchange.config).await,
    }
}

/// Puts the client's own request back into its place.
pub(super) fn end_inner(exchange: &mut Exchange<'_>) {
    let Some(outer) = exchange.modules.outer.take() else { return };
    exchange.shelve_run();
    let Outer { request, response, route, plan, run } = *outer;
    (*exchange.request, *exchange.response) = (request, response);
    (exchange.routed.route, exchange.modules.plan, exchange.modules.run) = (route, plan, run);
}

/// The request as the client would have sent it; `None` if the method or the path is invalid.
fn inner_request(exchange: &Exchange<'_>, ask: &FetchRequest) -> Option<Request> {
    let received = exchange.modules.run.as_ref().and_then(|run| run.facts.received.as_ref());
    let mut headers: HeaderList =
        received.map_or(&exchange.request.head.headers, |head| head.headers()).clone();
    headers.remove_each(&LEFT_OUT);
    let authority = exchange.request.authority.as_str();
    let method = Method::from_bytes(&ask.method)?;
    let mut request = Request::make(method, &ask.path, authority.as_bytes(), &[], 0).ok()?;
    request.head.headers = headers;
    request.set_secure(exchange.request.secure);
    Some(request)
}

/// Runs the steps of the request for a fragment.
async fn screen_inner(exchange: &mut Exchange<'_>, plan: &Plan) -> Result<(), ExchangeEnd> {
    exchange.request.sent = exchange.request.head.headers.arena_len();
    exchange.request.begin_hop();
    exchange.run_phases(PhaseId::RequestEarly).await?;
    exchange.request.end_hop();
    remove_identity(&mut exchange.request.head.headers, plan.identity());
    exchange.run_phases(PhaseId::UpstreamSelect).await
}

/// Chooses the source of the answer that the route, or a step, demands.
fn dispatch_inner(exchange: &mut Exchange<'_>, route: &Route, ask: FetchRequest) -> Answers {
    let facts = exchange.modules.run.as_ref().map(|run| &run.facts);
    let is_wrong =
        facts.is_some_and(|facts| facts.path_is_in_doubt.load(Ordering::Relaxed) || facts.target_is_wrong);
    if is_wrong {
        return Answers::Judged(InnerVerdict::Answered(Err(FetchError::BadRequest)));
    }
    let upstream = facts.and_then(|facts| facts.upstream);
    exchange.request.target.strip_prefix(route.strip_prefix.as_deref());
    ask_route(route, upstream, exchange.request, ask)
}

/// Chooses the source of the answer as the route does for a client's request. `chosen` is an upstream that a step has
/// chosen.
fn ask_route(route: &Route, chosen: Option<UpstreamId>, request: &Request, ask: FetchRequest) -> Answers {
    let target = request.target.as_bytes().to_vec();
    match route.action.destination(chosen.map(|upstream| upstream.0 as usize)) {
        Destination::Files { folder, upstream } => {
            let path = request.target.path().to_vec();
            Answers::File(FileFragment { folder, upstream, path, target, ask })
        }
        Destination::Upstream(upstream) => Answers::Judged(ask_upstream(upstream, target, ask)),
        Destination::Answer(fixed) => Answers::Judged(InnerVerdict::Answered(Ok(fixed_answer(fixed)))),
    }
}

/// A fragment from a route that serves files.
struct FileFragment {
    folder: usize,
    /// The upstream that is asked if there is no file.
    upstream: Option<usize>,
    /// The path, and the path with the query.
    path: Vec<u8>,
    target: Vec<u8>,
    ask: FetchRequest,
}

impl FileFragment {
    /// Reads the file. If there is none, the upstream has to be asked.
    async fn judge(self, config: &Config) -> InnerVerdict {
        let Some(folder) = config.folders.get(self.folder) else {
            return InnerVerdict::Answered(Err(FetchError::BadRequest));
        };
        let read = tokio::time::timeout(LONGEST, folder.whole(&self.path, self.ask.limit)).await;
        InnerVerdict::Answered(match (read.unwrap_or(Err(FolderError::Read)), self.upstream) {
            (Ok(Whole::File(body, kind)), _) => {
                let fields = Field::new("content-type", kind.into_owned()).into_iter().collect();
                Ok(FetchResponse { status: 200, fields, body: body.into() })
            }
            (Ok(Whole::TooLarge), _) => Err(FetchError::TooLarge),
            (Ok(Whole::Nothing), Some(upstream)) => return ask_upstream(upstream, self.target, self.ask),
            (Ok(Whole::Nothing), None) => Ok(status_alone(404)),
            (Err(FolderError::Forbidden), _) => Ok(status_alone(403)),
            (Err(FolderError::Busy), _) => Err(FetchError::Busy),
            (Err(_), _) => Err(FetchError::Connection),
        })
    }
}

fn status_alone(status: u16) -> FetchResponse {
    FetchResponse { status, fields: [].into_iter().collect(), body: Text::EMPTY }
}

/// Asks an upstream for a target.
fn ask_upstream(upstream: usize, target: Vec<u8>, ask: FetchRequest) -> InnerVerdict {
    match u32::try_from(upstream) {
        Ok(upstream) => InnerVerdict::Ask(FetchRequest {
            target: FetchTarget::Upstream(UpstreamId(upstream)),
            path: Text::from(target),
            ..ask
        }),
        Err(_) => InnerVerdict::Answered(Err(FetchError::BadRequest)),
    }
}

fn fixed_answer(fixed: &FixedResponse) -> FetchResponse {
    let content_type = Field::new("content-type", "text/plain; charset=utf-8");
    FetchResponse {
        status: fixed.status,
        fields: content_type.into_iter().collect(),
        body: Text::Shared(Arc::clone(&fixed.body)),
    }
}
