//! The life of a request: one table of steps and one loop, the same for HTTP/1 and HTTP/2.

mod ask;
mod asked;
mod bodies;
mod cached;
pub mod client;
mod compare;
mod downstream;
mod fallback;
pub(crate) mod fetch;
mod files;
mod heavy;
mod inner;
mod inspect;
mod length;
mod limit;
mod log;
mod log_first;
mod mirror;
mod modules;
mod open_spans;
mod parts;
mod prepare;
mod progress;
mod received;
mod reply;
mod route;
mod screen;
mod send;
mod shape;
mod spans;
mod tap;
mod transfer;
mod tunnel;
mod view;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use foregate_module::Plan;
use futures_util::FutureExt;

use self::cached::CachePart;
use self::client::{Client, Peer};
use self::compare::WatchedAnswer;
use self::downstream::Downstream;
use self::heavy::{Away, call_back};
use self::inner::{Outer, end_inner};
use self::limit::RequestPasses;
use self::log::LogRecord;
use self::log_first::log_first;
use self::mirror::Mirrored;
use self::modules::{ExchangeEnd, Run};
use self::open_spans::ExchangeSpans;
use self::progress::Progress;
use self::received::show_refused;
use self::reply::{BodySource, Reply, Sender};
use crate::error::Error;
use crate::limits::pressure::{self, Shortage};
use crate::link::copy::BodyCopy;
use crate::link::{Link, LinkError};
use crate::loops::OnItsWay;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::message::scratch::Unserved;
use crate::proxy::{Config, Proxy};
use crate::routing::HostId;
use crate::settings::{Mirror, Route};
use crate::telemetry::live::LiveTicket;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::upstream::{Ask, Origin, Upstream};

/// The life of a request. Each step is the function of this name in a file of the same name; it
/// takes the result of the previous one, and returns the next step. Steps of modules run in those
/// that name phases.
enum Step {
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
    /// Put a reply that was made here in the place of whatever was to be the response.
    Reply(Box<Reply>),
    /// `upstream-response` .. `response-body`: run the steps of the response.
    Shape(BodySource),
    /// Send the head of the response, once the client's connection has room for it.
    Send(BodySource),
    /// Move the bodies, that of the response from an origin unless all of it is at hand.
    Transfer(Option<Sender>),
    /// Move bytes that are not HTTP, both ways.
    Tunnel(Origin),
    /// There is no response: reply with an error, or break off.
    Failed(Error),
    /// Break off: the client must see that something is missing.
    Broken(Error),
    /// Nothing is left to do but `log`.
    Done,
}

/// The result of a step: the next one, or an early end by a module's step or an error.
type StepResult = Result<Step, ExchangeEnd>;

impl From<Error> for ExchangeEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The treatment of the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The connection may serve another request, once the rest of this one's body has been read.
    Reusable,
    /// The connection ends after all output has been sent.
    Close,
    /// The connection ends at once.
    Abort,
}

/// One request on its way.
struct Exchange<'a> {
    proxy: &'a Proxy,
    config: &'a Arc<Config>,
    peer: &'a Peer,
    request: &'a mut Request,
    response: &'a mut Response,
    down: Downstream<'a>,
    routed: RoutePlace<'a>,
    /// The request to an upstream, once it is known to which.
    ask: Option<Ask<'a>>,
    /// The part of the cache in it, on a route that caches.
    cached: Option<Box<CachePart>>,
    modules: Modules<'a>,
    /// Its places among the requests in flight, where these are bounded.
    passes: Option<Box<RequestPasses>>,
    record: LogRecord,
    /// The response is compared with that of another proxy.
    watched: Option<Box<WatchedAnswer>>,
    /// The request has fallen back.
    on_its_way: Option<Box<OnItsWay<'a>>>,
    /// The spans under way, where the trace of the request is recorded.
    spans: Option<Box<ExchangeSpans>>,
    /// Observers see the request as long as it is held.
    _ticket: Option<Box<LiveTicket>>,
}

/// Where a request belongs, as far as it is known.
#[derive(Default)]
struct RoutePlace<'a> {
    site: Option<HostId>,
    route: Option<&'a Arc<Route>>,
}

impl<'a> RoutePlace<'a> {
    fn mirror(&self) -> Option<&'a Mirror> {
        self.route?.mirror.as_ref()
    }
}

/// The steps of modules that a route uses.
#[derive(Default)]
struct Modules<'a> {
    plan: Option<&'a Arc<Plan>>,
    /// The values and effects of steps.
    run: Option<Box<Run>>,
    /// The state that a heavy step has taken.
    away: Option<Arc<Away>>,
    /// The client's own request, while that of a fragment is judged in its place.
    outer: Option<Box<Outer<'a>>>,
}

/// An exchange that has begun is logged, also where its task is dropped in the middle of it: as the
/// process ends.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.record.logged && !std::thread::panicking() {
            self.record.error = Some(Error::Shutdown);
            // The result of a step that waits for a thread would be dropped.
            call_back(self);
            end_inner(self);
            // A response that ends with the connection would look complete.
            if let Link::H1(link) = &mut self.down.client.link {
                link.abort();
            }
            // A step that panics now has nobody left to tell.
            let _ = catch_unwind(AssertUnwindSafe(|| log::run(self)));
        }
    }
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

/// Admission control, for a request that was understood or not. Its head counts for its client from
/// here on, if it has not before, so that a client that begins many at once is checked for each.
///
/// # Errors
///
/// The request is refused: [`serve`] tells the client. One for which there is no memory has been
/// counted.
pub fn admit(request: &mut Request, peer: &Peer, understood: Result<(), Error>) -> Result<(), Unserved> {
    let client = peer.holdings.as_ref();
    if let Some(client) = client {
        request.belongs_to(client);
    }
    understood.map_err(Unserved::Malformed)?;
    pressure::admit(client).map_err(|Shortage| Unserved::NotAdmitted(Error::Memory))
}

/// Serves a request, or tells the client why it is not served.
///
/// A panic is the end of this request alone: it is counted, and the client gets a 500 if it has got
/// nothing yet.
pub fn serve(served: ServedRequest<'_>, admitted: Result<(), Unserved>) -> impl Future<Output = Outcome> {
    // Outside of the future, which would hold room for it twice.
    let mut exchange = Exchange::new(served);
    exchange.record.error = match admitted {
        Ok(()) => None,
        Err(Unserved::NotAdmitted(error)) => Some(error),
        Err(Unserved::Malformed(error)) => {
            exchange.record.refused = Some(error);
            Some(error)
        }
    };
    async move {
        let first = exchange.record.error.map_or(Step::Route, Step::Failed);
        let driven = {
            let mut drive = pin!(exchange.drive(first));
            // Not by `FutureExt::catch_unwind`, which would copy it.
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| drive.as_mut().poll(cx))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            })
            .await
        };
        match driven {
            Ok(outcome) => outcome,
            Err(_) => {
                exchange.proxy.metrics.panics.inc();
                exchange.ask = None;
                exchange.down.client.close = true;
                call_back(&mut exchange);
                end_inner(&mut exchange);
                match AssertUnwindSafe(exchange.drive(Step::Failed(Error::Internal))).catch_unwind().await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        exchange.proxy.metrics.panics.inc();
                        exchange.down.client.abort();
                        Outcome::Abort
                    }
                }
            }
        }
    }
}

/// Logs a request that got only a reset of its stream, and shows it to the steps that read refused
/// requests.
pub async fn refuse(served: ServedRequest<'_>, error: Error) {
    let mut exchange = Exchange::new(served);
    // A failed connection would have received no response.
    exchange.record.status = (error != Error::Client(LinkError::H2)).then(|| error.status());
    exchange.record.error = Some(error);
    exchange.record.refused = Some(error);
    if AssertUnwindSafe(show_refused(&mut exchange, error)).catch_unwind().await.is_err() {
        exchange.proxy.metrics.panics.inc();
        exchange.modules.run = None;
    }
    log::run(&mut exchange);
    exchange.shelve_run();
}

impl<'a> Exchange<'a> {
    fn new(served: ServedRequest<'a>) -> Self {
        let ServedRequest { proxy, config, peer, client, request, response, timer } = served;
        let now = clock::now();
        let began = request.began.take().unwrap_or(now);
        client.begin(began);
        proxy.metrics.requests_active.add(1);
        let seen = || {
            let method = String::from_utf8_lossy(request.method()).into_owned();
            (method, request.host().to_owned(), request.head.target().to_vec())
        };
        let ticket = proxy.live.begins(began, seen);
        let upload = if request.length.is_empty() { BodyCopy::done() } else { BodyCopy::new() };
        Self {
            proxy,
            config,
            peer,
            request,
            response,
            down: Downstream {
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
            cached: None,
            modules: Modules::default(),
            passes: None,
            record: LogRecord::new(began),
            watched: None,
            on_its_way: None,
            spans: None,
            _ticket: ticket.map(Box::new),
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an async function would hold room for the step twice")]
    fn drive(&mut self, mut step: Step) -> impl Future<Output = Outcome> {
        async move {
            let outcome = loop {
                self.begin_work(&step);
                let next = match step {
                    Step::Route => route::run(self).await,
                    Step::Screen => screen::run(self).await,
                    // Apart, since it is large and most requests do without.
                    Step::Files { folder, upstream } => Box::pin(files::run(self, folder, upstream)).await,
                    Step::Prepare(upstream) => prepare::run(self, upstream).await,
                    Step::Cached(upstream) => Box::pin(cached::run(self, upstream)).await,
                    Step::Ask => ask::run(self).await,
                    Step::Reply(reply) => Ok(shape::place_reply(self, *reply)),
                    Step::Shape(source) => shape::run(self, source).await,
                    Step::Send(source) => send::run(self, source).await,
                    Step::Transfer(origin) => transfer::run(self, origin).await,
                    Step::Tunnel(origin) => Ok(self.tunnel(origin).await),
                    Step::Failed(error) => Ok(self.failed(error)),
                    Step::Broken(error) => {
                        self.record.error = Some(error);
                        if error == Error::WriteStall {
                            // Unread output would stay in the system's memory for minutes.
                            self.down.client.link.reset_on_close();
                        }
                        log_first(self).await;
                        self.down.client.abort();
                        break Outcome::Abort;
                    }
                    Step::Done if self.down.client.close => break Outcome::Close,
                    Step::Done => break Outcome::Reusable,
                };
                self.end_work();
                step = next.unwrap_or_else(Step::from);
            };
            if self.record.mirrors {
                self.send_copy_when_due(true);
            }
            if let Some(error) = self.record.refused {
                Box::pin(show_refused(self, error)).await;
            }
            log::run(self);
            self.shelve_run();
            outcome
        }
    }

    /// Takes the request's places among those in flight, where these are bounded. It has them already where it goes to an upstream for
    /// the second time.
    async fn take_passes(&mut self) -> Result<(), Error> {
        if self.config.limits_requests() && self.passes.is_none() && self.peer.replay.is_none() {
            let listener = self.peer.listen.as_ref().map(|listen| &listen.address);
            let (account, of) = (self.account(), (listener, self.routed.site));
            // Rare, and large: kept out of the future that every request has.
            let take = Box::pin(RequestPasses::take(self.proxy, self.config, account, of, &mut self.down));
            self.passes = Some(take.await?);
        }
        Ok(())
    }

    /// The upstream that is asked.
    fn upstream(&self) -> Option<&'a Arc<Upstream>> {
        self.ask.as_ref().map(|ask| ask.upstream)
    }

    /// Sends a copy of the request to the mirror of its route once the whole request has gone to its own origin, or where
    /// the exchange is over.
    fn send_copy_when_due(&mut self, is_over: bool) {
        let (request, upload) = (&*self.request, &self.down.upload);
        if !self.record.mirrors || !is_over && !mirror::is_due(request, upload) {
            return;
        }
        self.record.mirrors = false;
        let Some(mirror) = self.routed.mirror() else { return };
        let Some(upstream) = self.config.upstreams.get(mirror.upstream) else { return };
        let (addresses, account, memory) = (self.peer.addresses, self.account(), &self.proxy.filter_memory);
        mirror::begin(&Mirrored { upstream, request, upload, addresses, account, memory }, mirror);
    }

    /// The whole response is here, and its client takes its time.
    fn origin_is_free(&mut self, origin: Origin, used_file: bool) {
        let metrics = &self.proxy.metrics;
        metrics.responses_buffered.inc();
        if used_file {
            metrics.responses_buffered_in_files.inc();
        }
        if let Some(ask) = &mut self.ask {
            ask.leave();
            ask.upstream.recycle(origin, clock::now());
        }
    }

    /// The reply for `error`.
    fn failed(&mut self, error: Error) -> Step {
        self.record.error = Some(error);
        // The reply is our own.
        self.request.verbatim = None;
        if self.down.client.head_sent {
            return Step::Broken(error);
        }
        let client_is_gone = matches!(error, Error::Client(LinkError::Io(_)))
            || matches!(error, Error::Client(LinkError::Reset(_) | LinkError::CutOff))
            || matches!(error, Error::Client(LinkError::Truncated));
        if client_is_gone {
            return Step::Broken(error);
        }
        if error.status() == 400 || error.status() == 408 || matches!(error, Error::RequestFraming(_)) {
            self.down.client.close = true;
        }
        Step::Reply(Box::new(Reply::error(&error)))
    }
}
