//! Requests for other documents of the site, judged as requests of the client.
//!
//! A fragment that a document asks for is named by text that the origin wrote, or one of its users. So the site, the readings of the
//! path, the route and the steps of the request decide about it exactly as if the client had sent it: with the client's address,
//! certificate and fields. While they run, the request of the fragment stands in the place of the client's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_module::{
    FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, PhaseId, Plan, Text, UpstreamId,
};
use foregate_wire::{HeaderList, Method, NameId, Slashes};

use super::Exchange;
use super::modules::{Ended, Run};
use super::route::route_by_conditions;
use crate::error::Error;
use crate::link::LinkError;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::settings::{Action, FixedResponse, Route};

/// Fields that belong to the body, the range, the freshness or the connection of the client's own request.
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

/// The client's own request, while that of a fragment stands in its place.
pub(super) struct Outer<'a> {
    request: Request,
    response: Response,
    route: Option<&'a Arc<Route>>,
    plan: Option<&'a Arc<Plan>>,
    run: Option<Box<Run>>,
}

/// The decision about a request for another document.
pub(super) enum Judged {
    /// This is to be asked.
    Ask(FetchRequest),
    /// The site answers by itself, or refuses.
    Answered(FetchResult),
}

/// Decides about a request for a document of the site.
///
/// # Errors
///
/// The client has gone.
pub(super) async fn judge_inner(exchange: &mut Exchange<'_>, ask: FetchRequest) -> Result<Judged, LinkError> {
    const REFUSED: Result<Judged, LinkError> = Ok(Judged::Answered(Err(FetchError::BadRequest)));
    let sites = &exchange.config.settings.sites;
    let (Some(site), Some(mut request)) = (exchange.routed.site, inner_request(exchange, &ask)) else {
        return REFUSED;
    };
    if sites.keeps_slashes(site) && request.normalise(Slashes::Keep).is_err() {
        return REFUSED;
    }
    let found = match sites.has_conditions(site) {
        false => sites.readings(site, request.path()).ok().zip(sites.route(site, request.path())),
        true => {
            std::mem::swap(exchange.request, &mut request);
            let found = route_by_conditions(exchange, site).ok();
            std::mem::swap(exchange.request, &mut request);
            found
        }
    };
    let Some((readings, route)) = found else { return REFUSED };
    let Some(plan) = route.plan.get() else {
        request.strip_prefix(route.strip_prefix.as_deref());
        return Ok(ask_route(route, None, request.target(), ask));
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
    let judged = match ended {
        Ok(()) => Ok(dispatch_inner(exchange, route, ask)),
        Err(Ended::Failed(Error::Client(error))) => Err(error),
        Err(Ended::Answer(answer, _)) => {
            let foregate_module::Response { status, fields, body, .. } = *answer;
            Ok(Judged::Answered(Ok(FetchResponse { status, fields, body })))
        }
        Err(Ended::Failed(_) | Ended::Abort(_)) => REFUSED,
    };
    end_inner(exchange);
    judged
}

/// Puts the client's own request back into its place.
pub(super) fn end_inner(exchange: &mut Exchange<'_>) {
    let Some(outer) = exchange.modules.outer.take() else { return };
    exchange.shelve_run();
    let Outer { request, response, route, plan, run } = *outer;
    (*exchange.request, *exchange.response) = (request, response);
    (exchange.routed.route, exchange.modules.plan, exchange.modules.run) = (route, plan, run);
}

/// The request as the client would have sent it; `None` if the path is none.
fn inner_request(exchange: &Exchange<'_>, ask: &FetchRequest) -> Option<Request> {
    let received = exchange.modules.run.as_ref().and_then(|run| run.facts.received.as_ref());
    let mut headers: HeaderList =
        received.map_or(&exchange.request.head.headers, |head| head.headers()).clone();
    headers.remove_each(&LEFT_OUT);
    let authority = exchange.request.authority();
    let method = Method::from_bytes(&ask.method)?;
    let mut request = Request::make(method, &ask.path, authority.as_bytes(), &[], 0).ok()?;
    request.head.headers = headers;
    request.set_secure(exchange.request.secure);
    Some(request)
}

/// Runs the steps of the request for a fragment.
async fn screen_inner(exchange: &mut Exchange<'_>, plan: &Plan) -> Result<(), Ended> {
    exchange.request.sent = exchange.request.head.headers.arena_len();
    exchange.request.begin_hop();
    exchange.run_phases(PhaseId::RequestEarly).await?;
    exchange.request.end_hop();
    exchange.request.remove_identity(plan.identity());
    exchange.run_phases(PhaseId::UpstreamSelect).await
}

/// Goes where the route, or a step, says.
fn dispatch_inner(exchange: &mut Exchange<'_>, route: &Route, ask: FetchRequest) -> Judged {
    let facts = exchange.modules.run.as_ref().map(|run| &run.facts);
    let is_wrong =
        facts.is_some_and(|facts| facts.path_is_in_doubt.load(Ordering::Relaxed) || facts.target_is_wrong);
    if is_wrong {
        return Judged::Answered(Err(FetchError::BadRequest));
    }
    let upstream = facts.and_then(|facts| facts.upstream);
    exchange.request.strip_prefix(route.strip_prefix.as_deref());
    ask_route(route, upstream, exchange.request.target(), ask)
}

/// Asks for a target whoever answers for a route.
fn ask_route(route: &Route, chosen: Option<UpstreamId>, target: &[u8], ask: FetchRequest) -> Judged {
    let upstream = match (&route.action, chosen) {
        (_, Some(upstream)) => upstream,
        (Action::Proxy(upstream), None) => match u32::try_from(*upstream) {
            Ok(upstream) => UpstreamId(upstream),
            Err(_) => return Judged::Answered(Err(FetchError::BadRequest)),
        },
        (Action::Respond(fixed), None) => return Judged::Answered(Ok(fixed_answer(fixed))),
    };
    Judged::Ask(FetchRequest {
        target: FetchTarget::Upstream(upstream),
        path: Text::from(target.to_vec()),
        ..ask
    })
}

fn fixed_answer(fixed: &FixedResponse) -> FetchResponse {
    let content_type = Field::new("content-type", "text/plain; charset=utf-8");
    FetchResponse {
        status: fixed.status,
        fields: content_type.into_iter().collect(),
        body: Text::Shared(Arc::clone(&fixed.body)),
    }
}
