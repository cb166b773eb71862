//! An exchange as the steps of modules see it.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foregate_module::{
    self as module, Fields, FieldsMut, Now, Source, Summary, TlsFacts, TraceContext, UpstreamId,
};
use foregate_wire::Slashes;

use super::asked::SentFields;
use super::client::Peer;
use super::received::{self, ReceivedHead, RefusedRequest};
use crate::limits::budget::BudgetShare;
use crate::limits::spool::Spool;
use crate::link::start::SharedStart;
use crate::message::request::Request;
use crate::message::response::{Nothing, Response};
use crate::proxy::Config;
use crate::random;
use crate::routing::HostId;
use crate::settings::{Route, TlsVersion};
use crate::time::{clock, steady};

/// The effects of steps on an exchange, and the facts that steps may read in addition to its heads.
#[derive(Debug)]
pub(super) struct Facts {
    /// The other readings of the path; computed when a condition asks.
    pub other_paths: OnceLock<Option<Vec<Vec<u8>>>>,
    /// True if a condition has another result for one of the other readings.
    pub path_is_in_doubt: AtomicBool,
    /// Set if a step has set an invalid path.
    pub target_is_wrong: bool,
    /// The effective client address set by a step.
    pub client: Option<IpAddr>,
    /// The trace that a step has set.
    pub trace: Option<TraceContext>,
    /// The upstream that a step has chosen.
    pub upstream: Option<UpstreamId>,
    /// The least limit of the request's body that a step has set.
    pub body_limit: Option<u64>,
    /// The start of the request's body, received for the steps. `None` if it is in a file.
    pub body: Option<Arc<SharedStart>>,
    /// The file with the start of the request's body, if it was too long for memory.
    pub spool: Option<Arc<Spool>>,
    /// The memory that values of steps hold, as the steps report it, and its share of the budget.
    pub held: Option<(usize, BudgetShare)>,
    /// True if all of the body was received.
    pub body_is_whole: bool,
    /// The reason why a step that reads the request's body has not run, or has not got all of the body.
    pub unseen: Option<&'static str>,
    /// The request's head as it was received, for a plan that asks for it.
    pub received: Option<Box<ReceivedHead>>,
    /// True if the request had credentials when it was received. Set only on a route with a cache.
    pub had_authorization: bool,
    /// Why the request was refused before it had a route.
    pub refused: Option<Box<RefusedRequest>>,
    /// The start of the response's body, received for the steps.
    pub response_body: Vec<u8>,
    /// The share of the budget for `response_body`.
    pub response_share: Option<BudgetShare>,
    /// Further shares of the budget that the exchange holds until its end, for example for answers to fetches.
    pub shares: Vec<BudgetShare>,
    /// True if all of the body was received.
    pub response_body_is_whole: bool,
    /// The source of the response.
    pub source: Source<'static>,
    /// The outcome of the exchange.
    pub summary: Summary,
    /// The time of the present phase.
    pub now: Now,
    /// Set if filters should hold no more than necessary.
    pub memory_is_short: bool,
}

impl Facts {
    /// The facts of an exchange that has just begun.
    pub fn new(body_is_empty: bool) -> Self {
        Self {
            other_paths: OnceLock::new(),
            path_is_in_doubt: AtomicBool::new(false),
            target_is_wrong: false,
            client: None,
            trace: None,
            upstream: None,
            body_limit: None,
            body: None,
            spool: None,
            held: None,
            body_is_whole: body_is_empty,
            unseen: None,
            received: None,
            had_authorization: false,
            refused: None,
            response_body: Vec::new(),
            response_share: None,
            shares: Vec::new(),
            response_body_is_whole: false,
            source: Source::Nobody,
            summary: Summary::default(),
            now: now(),
            memory_is_short: false,
        }
    }

    /// The start of the request's body, if it is in memory; otherwise empty.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |held| &held.bytes)
    }
}

/// The time, as steps get it.
pub(super) fn now() -> Now {
    /// For this long, the wall clock's time is computed from the steady clock. Then the wall clock is read again.
    const RECKONED: Duration = Duration::from_millis(500);
    thread_local! {
        /// The last reading of the wall clock, and its time.
        static READ: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
        /// The last answer: all phases of one poll get the same time.
        static TOLD: Cell<Option<(Instant, Now)>> = const { Cell::new(None) };
    }
    let now = clock::now();
    if let Some((at, told)) = TOLD.get()
        && at == now
    {
        return told;
    }
    let known = READ.get().and_then(|(at, said)| Some((now.checked_duration_since(at)?, said)));
    let since = match known {
        Some((passed, said)) if passed < RECKONED => said + passed,
        _ => {
            let said = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            READ.set(Some((now, said)));
            said
        }
    };
    let told = Now { unix_ms: since.as_millis() as u64, steady_ms: steady::millis(now) };
    TOLD.set(Some((now, told)));
    told
}

/// All that steps may see and change.
pub(super) struct View<'a> {
    pub request: &'a mut Request,
    pub response: &'a mut Response,
    pub peer: &'a Peer,
    pub config: &'a Config,
    pub site: Option<HostId>,
    pub route: Option<&'a Route>,
    pub facts: &'a mut Facts,
    /// The request's fields from before it was prepared for the origin, if they were kept.
    pub asked: &'a SentFields,
    /// Set if the step runs on a thread for heavy work.
    pub away: bool,
}

impl View<'_> {
    fn has_response(&self) -> bool {
        self.facts.source != Source::Nobody
    }

    fn slashes(&self) -> Slashes {
        match self.site {
            Some(site) if self.config.settings.sites.keeps_slashes(site) => Slashes::Keep,
            _ => Slashes::Merge,
        }
    }
}

impl module::Exchange for View<'_> {
    fn client(&self) -> Option<IpAddr> {
        self.facts.client.or_else(|| self.peer())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer.addresses.client.map(|client| client.ip().to_canonical())
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        let info = self.peer.tls.as_ref()?;
        Some(TlsFacts {
            version: match info.version {
                TlsVersion::Tls12 => "TLSv1.2",
                TlsVersion::Tls13 => "TLSv1.3",
            },
            server_name: info.sni.as_deref(),
            client_verified: info.client.is_some(),
            client_subject: info.client.as_ref().map(|client| &*client.subject),
        })
    }

    fn scheme(&self) -> &str {
        self.request.scheme()
    }

    fn protocol(&self) -> &str {
        self.request.head.version.as_str()
    }

    fn method(&self) -> &[u8] {
        self.request.method()
    }

    fn host(&self) -> &str {
        self.request.authority.host()
    }

    fn authority(&self) -> &str {
        self.request.authority.as_str()
    }

    fn path(&self) -> &[u8] {
        self.request.target.path()
    }

    fn other_paths(&self) -> Option<&[Vec<u8>]> {
        // Once there is a response, no origin will read the path, so other readings do not matter.
        let Some(site) = self.site.filter(|_| !self.has_response()) else { return Some(&[]) };
        let read = || self.config.settings.sites.other_paths(site, self.request.target.path());
        self.facts.other_paths.get_or_init(read).as_deref()
    }

    fn doubt_path(&self) {
        self.facts.path_is_in_doubt.store(true, Ordering::Relaxed);
    }

    fn query(&self) -> Option<&[u8]> {
        self.request.target.query()
    }

    fn raw_target(&self) -> &[u8] {
        self.request.head.target()
    }

    fn request_fields(&self) -> &dyn Fields {
        // Once there is a response, steps see the fields from before the request was prepared for the origin.
        if self.has_response() && self.asked.fields().is_some() { self.asked } else { &*self.request }
    }

    fn received(&self) -> module::Received<'_> {
        let facts = &self.facts;
        received::show(self.request, facts.received.as_deref(), facts.refused.as_deref(), self.peer)
    }

    fn request_length(&self) -> Option<u64> {
        match self.request.length {
            foregate_wire::BodyLength::Empty => Some(0),
            foregate_wire::BodyLength::Fixed(length) => Some(length),
            _ => None,
        }
    }

    fn request_body(&self) -> (&[u8], bool) {
        (self.facts.body(), self.facts.body_is_whole)
    }

    fn request_body_length(&self) -> usize {
        let facts = &self.facts;
        facts
            .spool
            .as_ref()
            .map_or(facts.body().len(), |spool| usize::try_from(spool.len()).unwrap_or(usize::MAX))
    }

    fn request_body_unseen(&self) -> Option<&'static str> {
        self.facts.unseen
    }

    fn site(&self) -> &str {
        self.site.map_or("", |site| &self.config.settings.sites.site(site).name)
    }

    fn route(&self) -> &str {
        self.route.map_or("", |route| &route.pattern)
    }

    fn plan_version(&self) -> u32 {
        self.route.and_then(|route| route.plan.get()).map_or(0, |plan| plan.version())
    }

    fn now(&self) -> Now {
        self.facts.now
    }

    fn memory_is_short(&self) -> bool {
        self.facts.memory_is_short
    }

    fn give_way(&self) -> fn() {
        if self.away { std::thread::yield_now } else { || {} }
    }

    fn random(&self) -> u64 {
        random::number()
    }

    fn status(&self) -> Option<u16> {
        self.has_response().then_some(self.response.status)
    }

    fn response_fields(&self) -> &dyn Fields {
        if self.has_response() { &*self.response } else { &Nothing }
    }

    fn response_body(&self) -> (&[u8], bool) {
        (&self.facts.response_body, self.facts.response_body_is_whole)
    }

    fn source(&self) -> Source<'_> {
        self.facts.source
    }

    fn summary(&self) -> Summary {
        self.facts.summary
    }

    fn set_client(&mut self, client: IpAddr) {
        self.facts.client = Some(client.to_canonical());
    }

    fn set_secure(&mut self, secure: bool) {
        self.request.set_secure(secure);
    }

    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool {
        self.facts.other_paths.take();
        if !self.request.target.path().starts_with(b"/") {
            return false;
        }
        // The path may contain client input.
        let rewritten = !path.is_some_and(module::has_parent_segment)
            && self.request.target.rewrite(path, query, self.slashes()).is_ok();
        // If the path was not accepted, the origin must not get the old one either: the step may have wanted to confine the
        // request to a folder.
        self.facts.target_is_wrong |= !rewritten;
        rewritten
    }

    fn set_trace(&mut self, trace: TraceContext) {
        self.facts.trace = Some(trace);
    }

    fn set_upstream(&mut self, upstream: UpstreamId) {
        self.facts.upstream = Some(upstream);
    }

    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut {
        self.request
    }

    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut {
        self.response
    }

    fn limit_request_body(&mut self, bytes: u64) {
        self.facts.body_limit = Some(self.facts.body_limit.map_or(bytes, |limit| limit.min(bytes)));
    }
}
