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

/// A step in the life of a request. Most steps are the function `run` in a file of the same name, which takes the
/// result of the previous step and returns the next step. If a step below names phases, the steps of modules run in
/// it.
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
    /// Move the bodies. The response's body comes from this sender; without one, all of it is in memory or in a file.
    Transfer(Option<Sender>),
    /// Move bytes that are not HTTP, both ways.
    Tunnel(Origin),
    /// Continue a tunnel after a move.
    TunnelOn(Box<(Origin, Relay)>),
    /// Go on with this step, and a slim configuration.
    Move(Box<Self>),
    /// There is no response: reply with an error, or break off.
    Failed(Error),
    /// Break off, such that the client sees that the response is incomplete.
    Broken(Error),
    /// Nothing is left to do but `log`.
    Done,
}

/// The result of a step: the next one, or an early end by a module's step or an error.
pub(super) type StepResult = Result<Step, ExchangeEnd>;

/// An early end of the request's normal course.
pub(super) enum ExchangeEnd {
    /// Answer with this response of the module step with this name.
    Answer(Box<module::Response>, &'static str),
    /// Break off, as the module step with this name demands.
    Abort(&'static str),
    /// An error ends the request.
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

/// One request, from its head to its log line.
pub(super) struct Exchange<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) config: &'a Arc<Config>,
    pub(super) request: &'a mut Request,
    pub(super) response: &'a mut Response,
    pub(super) down: Downstream<'a>,
    pub(super) routed: RoutePlace<'a>,
    /// The request to an upstream, once the upstream is chosen.
    pub(super) ask: Option<Ask<'a>>,
    pub(super) modules: Modules<'a>,
    pub(super) record: LogRecord,
    pub(super) rare: RareParts<'a>,
}

/// The parts that most requests lack.
#[derive(Default)]
pub(super) struct RareParts<'a> {
    /// The state of the cache, on a route with a cache.
    pub(super) cached: Option<Box<CachePart>>,
    /// The request's places among the requests in flight, if these are bounded.
    pub(super) passes: Option<Box<RequestPasses>>,
    /// Set if the response is compared with that of another proxy.
    pub(super) watched: Option<Box<WatchedAnswer>>,
    /// Set if the request falls back, or comes from another node of the shield.
    pub(super) detour: Option<Box<Detour<'a>>>,
    /// The open spans, if the trace of the request is recorded.
    pub(super) spans: Option<Box<ExchangeSpans>>,
    /// Shows the request to observers for as long as this ticket is held.
    pub(super) ticket: Option<Box<LiveTicket>>,
}

/// An unusual source or destination of a request.
pub(super) enum Detour<'a> {
    /// The request has fallen back. It counts as under way in the old proxy while this value is held.
    Fallback { _counted: OnItsWay<'a> },
    /// The request comes from another node of the shield.
    Shielded(ShieldedRequest),
}

/// The site and the route of a request, as far as they are known.
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
    /// The state that is lent to another thread for a heavy step.
    pub(super) away: Option<Arc<Away>>,
    /// The client's own request, while the request for a fragment is judged in its place.
    pub(super) outer: Option<Box<Outer<'a>>>,
}

/// The client's own request, while the request for a fragment has its place.
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
    /// The configuration with which the request is served to its end.
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

    /// Returns true if a slim configuration suffices for the rest of the exchange. If an HTTP/1 connection may bring
    /// another request, it needs the full configuration.
    pub(super) fn may_move(&self) -> bool {
        let client = &*self.down.client;
        let is_last = !matches!(client.link, Link::H1(_)) || client.close;
        client.may_move
            && is_last
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

    /// The facts from the asking node, if the request comes from another node of the shield.
    pub(super) fn shielded(&self) -> Option<&ShieldedRequest> {
        match self.rare.detour.as_deref() {
            Some(Detour::Shielded(shielded)) => Some(shielded),
            _ => None,
        }
    }
}
