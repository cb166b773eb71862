//! The life of a request: one table of steps and one loop, the same for HTTP/1 and HTTP/2.

mod asked;
pub mod client;
mod downstream;
pub(crate) mod fetch;
mod forward;
mod heavy;
mod inner;
mod inspect;
mod log_first;
mod modules;
mod parts;
mod progress;
mod received;
mod reply;
mod send;
mod settled_length;
mod shape;
mod tunnel;
mod view;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Instant, SystemTime};

use foregate_module::{PhaseId, Plan};
use foregate_wire::{BodyLength, Method, NameId, Slashes, connection};
use futures_util::FutureExt;

use self::client::{Client, Peer};
use self::downstream::Downstream;
use self::heavy::Away;
use self::inner::Outer;
use self::modules::Run;
use self::progress::Progress;
use self::reply::{Reply, Source};
use crate::error::{Error, Side};
use crate::limits::pressure::{self, Shortage};
use crate::link::copy::Copy;
use crate::link::{Link, LinkError};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proxy::{Config, Proxy};
use crate::routing::HostId;
use crate::settings::{Action, Route};
use crate::telemetry::access_log::Entry;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::upstream::{Ask, Origin, Upstream};

/// What a request goes through. Steps of modules run in those that say so, in the order of their phases.
enum Step {
    /// Find the site and the route.
    Route,
    /// Run the steps of the request, from `request-early` to `upstream-select`.
    Screen,
    /// Make the request what the origin shall see.
    Prepare(usize),
    /// Run the steps that see the request as it goes out: `upstream-request`.
    Outgoing,
    /// Ask the upstream, with as many attempts as are allowed, until the head of the response is there.
    Ask,
    /// Make the response what the client shall see.
    Response(Origin, BodyLength),
    /// Put a reply that was made here in the place of whatever was to be the response.
    Reply(Reply),
    /// Run the steps of the response, from `upstream-response` to `response-body`.
    Shape(Source),
    /// Send the head of the response, once the client's connection has room for it.
    Send(Source),
    /// Move the bodies, that of the response from an origin unless all of it is at hand.
    Body(Option<Origin>),
    /// Move bytes that are not HTTP.
    Tunnel(Origin),
    /// There is no response: reply with an error, or break off.
    Failed(Error),
    /// Break off: the client must see that something is missing.
    Broken(Error),
    /// Nothing is left to do.
    Done,
}

/// What becomes of the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It may serve another request, once the rest of this one's body has been read.
    Reusable,
    /// It ends, after everything has been sent.
    Close,
    /// It ends at once.
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
    /// What of the configuration's sites it belongs to.
    site: Option<HostId>,
    route: Option<&'a Arc<Route>>,
    /// The request to an upstream, once it is known to which.
    ask: Option<Ask<'a>>,
    record: Record,
    /// Why there is nothing to route.
    refused: Option<Error>,
    /// The steps of modules that the route uses.
    plan: Option<&'a Arc<Plan>>,
    /// What there is beside when it uses some.
    run: Option<Box<Run>>,
    /// What of it a heavy step has taken along.
    away: Option<Arc<Away>>,
    /// The steps of the phase `log` that run before the response begins have run.
    logged_first: bool,
    /// The client's own request, while that of a fragment is judged in its place.
    outer: Option<Box<Outer<'a>>>,
}

/// An exchange that has begun is logged, also where its task is dropped in the middle of it: as the process ends.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.record.logged && !std::thread::panicking() {
            self.record.error = Some(Error::Shutdown);
            // Nobody would look at what a step that waits for a thread had to say.
            self.call_back();
            self.end_inner();
            // What ends with the connection would look whole.
            if let Link::H1(link) = &mut self.down.client.link {
                link.abort();
            }
            // A step that panics now has nobody left to tell.
            let _ = catch_unwind(AssertUnwindSafe(|| self.log()));
        }
    }
}

/// What the log and the metrics are told.
#[derive(Debug)]
struct Record {
    start: Instant,
    status: Option<u16>,
    error: Option<Error>,
    /// Who has ended a tunnel, or left before the response was whole.
    ended_by: Option<Side>,
    /// Bytes that are not HTTP have been moved.
    tunnel: bool,
    /// The log knows of it.
    logged: bool,
}

/// A request and all that it is served with.
pub struct Served<'a> {
    /// What the process shares.
    pub proxy: &'a Proxy,
    /// The configuration that the request keeps.
    pub config: &'a Arc<Config>,
    /// The client's connection.
    pub peer: &'a Peer,
    /// The client's end.
    pub client: &'a mut Client,
    /// What it asks for.
    pub request: &'a mut Request,
    /// Memory for the response's head.
    pub response: &'a mut Response,
    /// The connection's timer.
    pub timer: &'a mut Timer,
}

/// Why a request is not to be served.
#[derive(Debug, Clone, Copy)]
pub enum Unserved {
    /// It could not be understood.
    Malformed(Error),
    /// There is no memory for it.
    NotAdmitted(Error),
}

/// Whether a request is to be served, of which it is known whether it could be understood. Its head counts for its client from here
/// on, if it has not before, so that who begins many at once is asked again for each.
///
/// # Errors
///
/// It is not: [`serve`] tells the client. One for which there is no memory has been counted.
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
/// A panic is the end of this request alone: it is counted, and the client gets a 500 if it has got nothing yet.
pub async fn serve(served: Served<'_>, admitted: Result<(), Unserved>) -> Outcome {
    let mut exchange = Exchange::new(served);
    let first = match admitted {
        Ok(()) => Step::Route,
        Err(Unserved::NotAdmitted(error)) => Step::Failed(error),
        Err(Unserved::Malformed(error)) => {
            exchange.refused = Some(error);
            Step::Failed(error)
        }
    };
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
            exchange.call_back();
            exchange.end_inner();
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

/// Logs a request that got no answer but a reset of its stream, and shows it to the steps that ask for what was refused.
pub async fn refuse(served: Served<'_>, error: Error) {
    let mut exchange = Exchange::new(served);
    // Whose connection has failed would have been answered with nothing.
    exchange.record.status = (error != Error::Client(LinkError::H2)).then(|| error.status());
    exchange.record.error = Some(error);
    exchange.refused = Some(error);
    if AssertUnwindSafe(exchange.show_refused(error)).catch_unwind().await.is_err() {
        exchange.proxy.metrics.panics.inc();
        exchange.run = None;
    }
    exchange.log();
    exchange.shelve_run();
}

impl<'a> Exchange<'a> {
    fn new(served: Served<'a>) -> Self {
        let Served { proxy, config, peer, client, request, response, timer } = served;
        let now = clock::now();
        let began = request.began.take().unwrap_or(now);
        client.begin(began);
        proxy.metrics.requests_active.add(1);
        let upload = if request.length.is_empty() { Copy::done() } else { Copy::new() };
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
                upload,
                download: Copy::new(),
                progress: Progress::new(now),
            },
            site: None,
            route: None,
            ask: None,
            record: Record {
                start: began,
                status: None,
                error: None,
                ended_by: None,
                tunnel: false,
                logged: false,
            },
            refused: None,
            plan: None,
            run: None,
            away: None,
            logged_first: false,
            outer: None,
        }
    }

    async fn drive(&mut self, first: Step) -> Outcome {
        let mut step = first;
        let outcome = loop {
            step = match step {
                Step::Route => {
                    let next = self.route();
                    self.settle_length(next).await
                }
                Step::Screen => self.screen().await,
                Step::Prepare(upstream) => self.prepare(upstream),
                Step::Outgoing => self.outgoing().await,
                Step::Ask => self.ask().await,
                Step::Response(origin, length) => self.take_response(origin, length),
                Step::Reply(reply) => self.take_reply(reply),
                Step::Shape(source) => self.shape(source).await,
                Step::Send(source) => self.send(source).await,
                Step::Body(origin) => self.transfer(origin).await,
                Step::Tunnel(origin) => self.tunnel(origin).await,
                Step::Failed(error) => self.failed(error),
                Step::Broken(error) => {
                    self.record.error = Some(error);
                    if error == Error::WriteStall {
                        // What it does not take would stay in the system's memory for minutes.
                        self.down.client.link.reset_on_close();
                    }
                    self.log_first().await;
                    self.down.client.abort();
                    break Outcome::Abort;
                }
                Step::Done if self.down.client.close => break Outcome::Close,
                Step::Done => break Outcome::Reusable,
            };
        };
        if let Some(error) = self.refused {
            Box::pin(self.show_refused(error)).await;
        }
        self.log();
        self.shelve_run();
        outcome
    }

    fn route(&mut self) -> Step {
        let host = self.request.host().as_bytes();
        let acceptor =
            self.peer.tls.as_ref().map(|(info, listen)| (info, self.config.acceptor(&listen.address)));
        let covered = acceptor.is_none_or(|(info, acceptor)| match acceptor {
            Some(acceptor) => acceptor.covers(info, host),
            // The last requests of a listener that is no more in the configuration.
            None => info.sni.as_ref().is_none_or(|sni| sni.as_bytes() == host),
        });
        if !covered {
            if acceptor.is_some_and(|(info, acceptor)| acceptor.is_some_and(|acceptor| !acceptor.holds(info)))
            {
                self.peer.outdated.store(true, Ordering::Relaxed);
                self.down.client.close = true;
            }
            return Step::Failed(Error::Misdirected);
        }
        let sites = &self.config.settings.sites;
        let Some(site) = sites.find(host) else {
            return self.unrouted(Error::NoRoute);
        };
        if acceptor.is_none_or(|(_, acceptor)| acceptor.is_none()) && sites.requires_certificate(site) {
            return Step::Failed(Error::Misdirected);
        }
        self.site = Some(site);
        if sites.keeps_slashes(site)
            && let Err(error) = self.request.normalise(Slashes::Keep)
        {
            return self.unrouted(error);
        }
        let path = match self.request.path() {
            // A server-wide OPTIONS and CONNECT have no path; they belong to the site as a whole.
            b"*" | b"" => b"/",
            path => path,
        };
        let Ok(readings) = sites.readings(site, path) else {
            return self.unrouted(Error::AmbiguousPath);
        };
        let Some(route) = sites.route(site, path) else {
            return self.unrouted(Error::NoRoute);
        };
        let (limit, connects) = (route.body_limit, route.allow_connect);
        self.route = Some(route);
        self.use_plan(route.plan.get());
        if let (Some(run), Some(readings)) = (&mut self.run, readings) {
            run.facts.other_paths = Some(readings).into();
        }
        if self.request.head.method == Method::Connect && !connects {
            self.down.client.close = true;
            return Step::Failed(Error::ConnectNotAllowed);
        }
        if self.request.head.method == Method::Connect && self.down.client.link.has_more() {
            // Meant for a tunnel that nobody has agreed to yet.
            self.down.client.close = true;
            return Step::Failed(Error::EarlyTunnel);
        }
        if let Err(error) = self.limit_body_to(limit) {
            return Step::Failed(error);
        }
        if self.run.is_some() { Step::Screen } else { self.dispatch() }
    }

    fn limit_body_to(&mut self, limit: Option<u64>) -> Result<(), Error> {
        let Some(limit) = limit else { return Ok(()) };
        self.down.upload.limit = self.down.upload.limit.min(limit);
        match self.request.length {
            BodyLength::Fixed(length) if length > self.down.upload.limit => Err(Error::BodyTooLarge),
            // Steps may have looked at more than a later one allows.
            _ if self.down.upload.moved > self.down.upload.limit => Err(Error::BodyTooLarge),
            _ => Ok(()),
        }
    }

    /// Holds the request to the limit that steps have set.
    fn limit_body(&mut self) -> Result<(), Error> {
        self.limit_body_to(self.run.as_ref().and_then(|run| run.facts.body_limit))
    }

    /// No route takes the request: the answer to it goes through the steps that hold for its site, or for all.
    fn unrouted(&mut self, error: Error) -> Step {
        let settings = &self.config.settings;
        let plan = match self.site {
            Some(site) => &settings.sites.site(site).options.unrouted,
            None => &settings.unrouted,
        };
        self.use_plan(plan.get());
        Step::Failed(error)
    }

    /// Runs the steps of the request.
    async fn screen(&mut self) -> Step {
        self.request.sent = self.request.head.headers.arena_len();
        self.request.begin_hop();
        self.down.upload.leave_out(connection::named_options(&self.request.head.headers));
        if let Err(ended) = self.run_phases(PhaseId::RequestEarly).await {
            return ended.into();
        }
        self.request.end_hop();
        // Before any condition or key looks at the fields: they would believe the client.
        if let Some(plan) = self.plan() {
            self.request.remove_identity(plan.identity());
        }
        if let Err(ended) = self.run_phases(PhaseId::RequestIdentity).await {
            return ended.into();
        }
        if let Err(ended) = self.run_phases(PhaseId::RequestSecurity).await {
            return ended.into();
        }
        if let Err(error) = self.limit_body() {
            return Step::Failed(error);
        }
        if self.plan().is_some_and(|plan| plan.keeps_fields()) {
            if let Err(ended) = self.run_phases(PhaseId::RequestBody).await {
                return ended.into();
            }
            if let Some(run) = &mut self.run {
                run.asked.keep(self.request);
            }
        }
        match self.run_phases(PhaseId::UpstreamSelect).await {
            Ok(()) => self.dispatch(),
            Err(ended) => ended.into(),
        }
    }

    /// Goes where the route, or a step, says.
    fn dispatch(&mut self) -> Step {
        let Some(route) = self.route else { return Step::Failed(Error::Internal) };
        if self.run.as_ref().is_some_and(|run| run.facts.path_is_in_doubt.load(Ordering::Relaxed)) {
            return Step::Failed(Error::AmbiguousPath);
        }
        if self.run.as_ref().is_some_and(|run| run.facts.target_is_wrong) {
            return Step::Failed(Error::Rewrite);
        }
        let chosen = self.run.as_ref().and_then(|run| run.facts.upstream);
        match (&route.action, chosen) {
            (_, Some(upstream)) => Step::Prepare(upstream.0 as usize),
            (Action::Proxy(upstream), None) => Step::Prepare(*upstream),
            (Action::Respond(fixed), None) => Step::Reply(Reply::fixed(fixed)),
        }
    }

    /// The upstream that is asked.
    fn upstream(&self) -> Option<&'a Arc<Upstream>> {
        self.ask.as_ref().map(|ask| ask.upstream)
    }

    /// What the client is told of `error`.
    fn failed(&mut self, error: Error) -> Step {
        self.record.error = Some(error);
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
        Step::Reply(Reply::error(&error))
    }

    /// Either side may end a tunnel, and a client may leave once its response has begun, unless it owes the rest of its request and
    /// does not say that it takes it back. Neither is an error of anybody's.
    fn excuse_leaving(&mut self) {
        let Some(error) = self.record.error.filter(Error::is_leaving) else { return };
        let is_whole = self.down.upload.is_done() && !self.down.upload.gave_up()
            || matches!(error, Error::Client(LinkError::Reset(_)));
        let may_leave = error.side() == Side::Downstream && self.down.client.head_sent && is_whole;
        if self.record.tunnel || may_leave {
            self.record.error = None;
            self.record.ended_by.get_or_insert(error.side());
        }
    }

    fn log(&mut self) {
        self.record.logged = true;
        if self.record.error == Some(Error::Client(LinkError::CutOff)) {
            self.record.error = Some(Error::Shutdown);
        }
        self.excuse_leaving();
        if self.refused.is_none() && (self.has_steps(PhaseId::Log, PhaseId::Log) || self.has_filters()) {
            self.run_log_phase();
        }
        if let Some(step) = self.record.error.as_ref().and_then(Error::step)
            && let Some(run) = &mut self.run
        {
            run.state.notes.push(("step".into(), step.into()));
        }
        let record = &self.record;
        let sites = &self.config.settings.sites;
        let duration = record.start.elapsed();
        let counters = self.site.map_or(&*self.proxy.unrouted, |site| sites.counters(site));
        counters.request(record.status, duration);
        self.proxy.metrics.requests_active.add(-1);
        if let Some(error) = &record.error {
            let upstream = self.upstream().map(|upstream| &upstream.settings.name);
            counters.error(error.kind(), error.side().as_str(), upstream);
        }
        let Some(log) = self.config.access_log() else { return };
        let asked = self.run.as_ref().and_then(|run| run.asked.fields());
        let headers = asked.unwrap_or(&self.request.head.headers);
        let ask = self.ask.as_ref();
        log.record(&Entry {
            time: SystemTime::now() - duration,
            client: self.client_address(),
            method: self.request.method(),
            scheme: self.request.scheme(),
            host: self.request.host().as_bytes(),
            path: self.request.head.target(),
            protocol: self.request.head.version.as_str(),
            status: record.status,
            bytes_in: self.down.upload.moved,
            bytes_out: self.down.download.sent,
            duration,
            site: self.site.map(|site| &*sites.site(site).name),
            route: self.route.map(|route| &*route.pattern),
            upstream: ask.map(|ask| &*ask.upstream.settings.name),
            server: ask.and_then(Ask::server).map(|server| &*server.label),
            attempts: ask.map_or(0, Ask::attempts),
            upstream_first_byte: ask.and_then(|ask| ask.first_byte),
            upstream_reused: ask.and_then(|ask| ask.reused),
            error: record.error.as_ref().map(Error::kind),
            error_side: record.error.as_ref().map(|error| error.side().as_str()),
            ended_by: record.ended_by.map(|side| match side {
                Side::Downstream => "client",
                Side::Upstream | Side::Internal => "origin",
            }),
            tls: self.peer.tls.as_ref().map(|(info, _)| match info.version {
                crate::settings::TlsVersion::Tls12 => "TLSv1.2",
                crate::settings::TlsVersion::Tls13 => "TLSv1.3",
            }),
            user_agent: headers.get(NameId::UserAgent),
            referer: headers.get(NameId::Referer),
            notes: self.run.as_ref().map_or(&[], |run| &run.state.notes),
        });
    }
}
