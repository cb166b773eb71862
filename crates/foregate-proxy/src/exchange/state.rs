//! A request on its way, and the steps of its life.

use std::sync::Arc;

use foregate_module::{self as module, Plan};

use super::away::Away;
use super::cached::part::CachePart;
use super::client::{Client, Peer};
use super::compare::WatchedAnswer;
use super::downstream::Downstream;
use super::limit::RequestPasses;
use super::open_spans::ExchangeSpans;
use super::progress::Progress;
use super::record::LogRecord;
use super::reply::{BodySource, Reply, Sender};
use super::run::Run;
use super::shielded::ShieldedRequest;
use crate::error::Error;
use crate::link::Link;
use crate::link::copy::BodyCopy;
use crate::loops::OnItsWay;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proxy::{Config, Proxy};
use crate::relay::Relay;
use crate::routing::HostId;
use crate::settings::{Mirror, Route};
use crate::telemetry::live::LiveTicket;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::upstream::{Ask, Origin, Upstream};

/// The life of a request. Each step is the function of this name in a file of the same name; it
/// takes the result of the previous one, and returns the next step. Steps of modules run in those
/// that name phases.
pub(super) enum Step {
    /// Find the site and the route.
    Route,
    /// `request-early` .. `upstream-select`: run the steps of the request, and decide where it
    /// goes.
    Screen,
    /// Answer with a file of this folder; without one, ask this upstream.
    Files { folder: usize, upstream: Option<usize> },
    /// `upstream-request`: makes the request for the origin.
    Prepare(usize),
    /// Look into the cache, and ask this upstream on a miss.
    Cached(usize),
    /// Asks the upstream, with as many attempts as are allowed, and makes the response for the
    /// client.
    Ask,
    /// Replace the response with a reply that was made here.
    Reply(Box<Reply>),
    /// `upstream-response` .. `response-body`: run the steps of the response.
    Shape(BodySource),
    /// Send the head of the response, once the client's connection has room for it.
    Send(BodySource),
    /// Move the bodies, that of the response from an origin unless all of it is at hand.
    Transfer(Option<Sender>),
    /// Move bytes that are not HTTP, both ways.
    Tunnel(Origin),
    /// Go on with that.
    TunnelOn(Box<(Origin, Relay)>),
    /// Go on with this step, and a slim configuration.
    Move(Box<Self>),
    /// There is no response: reply with an error, or break off.
    Failed(Error),
    /// Break off: the client must see that something is missing.
    Broken(Error),
    /// Nothing is left to do but `log`.
    Done,
}

/// The result of a step: the next one, or an early end by a module's step or an error.
pub(super) type StepResult = Result<Step, ExchangeEnd>;

/// How a step has ended the usual way of a request.
pub(super) enum ExchangeEnd {
    /// Answer with this, made by the step of this name.
    Answer(Box<module::Response>, &'static str),
    /// Break off, says the step of this name.
    Abort(&'static str),
    /// A step has failed, and the request cannot go on without it.
    Failed(Error),
}

impl From<ExchangeEnd> for Step {
    fn from(ended: ExchangeEnd) -> Self {
        match ended {
            ExchangeEnd::Answer(response, step) => Self::Reply(Box::new(Reply::module(*response, step))),
            ExchangeEnd::Abort(step) => Self::Broken(Error::Aborted(step)),
            ExchangeEnd::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<Error> for ExchangeEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// One request on its way.
pub(super) struct Exchange<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) config: &'a Arc<Config>,
    pub(super) request: &'a mut Request,
    pub(super) response: &'a mut Response,
    pub(super) down: Downstream<'a>,
    pub(super) routed: RoutePlace<'a>,
    /// The request to an upstream, once it is known to which.
    pub(super) ask: Option<Ask<'a>>,
    pub(super) modules: Modules<'a>,
    pub(super) record: LogRecord,
    pub(super) rare: RareParts<'a>,
}

/// The parts that most requests lack.
#[derive(Default)]
pub(super) struct RareParts<'a> {
    /// The part of the cache in it, on a route that caches.
    pub(super) cached: Option<Box<CachePart>>,
    /// Its places among the requests in flight, where these are bounded.
    pub(super) passes: Option<Box<RequestPasses>>,
    /// The response is compared with that of another proxy.
    pub(super) watched: Option<Box<WatchedAnswer>>,
    /// Set if the exchange takes an unusual way.
    pub(super) detour: Option<Box<Detour<'a>>>,
    /// The spans under way, where the trace of the request is recorded.
    pub(super) spans: Option<Box<ExchangeSpans>>,
    /// Observers see the request as long as it is held.
    pub(super) ticket: Option<Box<LiveTicket>>,
}

/// An unusual way by which a request came or continues.
pub(super) enum Detour<'a> {
    /// It has fallen back, and counts among those under way as long as this is held.
    Fallback { _counted: OnItsWay<'a> },
    /// It comes from another node of the shield.
    Shielded(ShieldedRequest),
}

/// Where a request belongs, as far as it is known.
#[derive(Default)]
pub(super) struct RoutePlace<'a> {
    pub(super) site: Option<HostId>,
    pub(super) route: Option<&'a Arc<Route>>,
}

impl<'a> RoutePlace<'a> {
    pub(super) fn mirror(&self) -> Option<&'a Mirror> {
        self.route?.mirror.as_ref()
    }
}

/// The steps of modules that a route uses.
#[derive(Default)]
pub(super) struct Modules<'a> {
    pub(super) plan: Option<&'a Arc<Plan>>,
    /// The values and effects of steps.
    pub(super) run: Option<Box<Run>>,
    /// The state that a heavy step has taken.
    pub(super) away: Option<Arc<Away>>,
    /// The client's own request, while that of a fragment is judged in its place.
    pub(super) outer: Option<Box<Outer<'a>>>,
}

/// The client's own request, while that of a fragment stands in its place.
pub(super) struct Outer<'a> {
    pub(super) request: Request,
    pub(super) response: Response,
    pub(super) route: Option<&'a Arc<Route>>,
    pub(super) plan: Option<&'a Arc<Plan>>,
    pub(super) run: Option<Box<Run>>,
}

/// A request and all that it is served with.
pub struct ServedRequest<'a> {
    /// The shared state of the process.
    pub proxy: &'a Proxy,
    /// The configuration that the request keeps.
    pub config: &'a Arc<Config>,
    /// The client's connection.
    pub peer: &'a Peer,
    /// The client's end.
    pub client: &'a mut Client,
    /// The request.
    pub request: &'a mut Request,
    /// Memory for the response's head.
    pub response: &'a mut Response,
    /// The connection's timer.
    pub timer: &'a mut Timer,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(served: ServedRequest<'a>) -> Self {
        let ServedRequest { proxy, config, peer, client, request, response, timer } = served;
        let now = clock::now();
        let began = request.began.take().unwrap_or(now);
        client.begin(began);
        proxy.metrics.requests_active.add(1);
        let seen = || {
            let method = String::from_utf8_lossy(request.method()).into_owned();
            (method, request.authority.host().to_owned(), request.head.target().to_vec())
        };
        let ticket = proxy.live.begins(began, seen);
        let upload = if request.length.is_empty() { BodyCopy::done() } else { BodyCopy::new() };
        Self {
            proxy,
            config,
            request,
            response,
            down: Downstream {
                peer,
                client,
                timer,
                timeouts: &config.settings.timeouts,
                route_timeouts: None,
                total: None,
                upload,
                download: BodyCopy::new(),
                progress: Progress::new(now),
            },
            routed: RoutePlace::default(),
            ask: None,
            modules: Modules::default(),
            record: LogRecord::new(began),
            rare: RareParts { ticket: ticket.map(Box::new), ..RareParts::default() },
        }
    }

    /// Returns true if a slim configuration suffices for the rest of the self. An HTTP/1 connection that may bring another request needs
    /// the full one.
    pub(super) fn may_move(&self) -> bool {
        let client = &*self.down.client;
        let is_last = !matches!(client.link, Link::H1(_)) || client.close;
        client.may_move
            && is_last
            && self.rare.cached.is_none()
            && self.rare.watched.is_none()
            && self.rare.detour.is_none()
            && self.modules.away.is_none()
            && self.modules.outer.is_none()
            && !self.has_filters()
            && !self.record.mirrors
    }

    /// The upstream that is asked.
    pub(super) fn upstream(&self) -> Option<&'a Arc<Upstream>> {
        self.ask.as_ref().map(|ask| ask.upstream)
    }

    /// The shield's part of the request, if it comes from another node.
    pub(super) fn shielded(&self) -> Option<&ShieldedRequest> {
        match self.rare.detour.as_deref() {
            Some(Detour::Shielded(shielded)) => Some(shielded),
            _ => None,
        }
    }
}
