//! The typed configuration of the proxy.
//!
//! The binary parses the configuration file into these values. The defaults are those in the
//! operator's guide.

mod access_log;
pub mod automatic;
mod balance;
mod cache;
mod compare;
mod conditions;
mod dashboard;
mod fallback;
mod listen;
mod retry;
mod servers;
mod shield;
mod trace_export;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foregate_files::Rules;
use foregate_module::Plan;

use crate::address::AddressBlock;

pub use self::access_log::{
    AccessLogSettings, LOG_FIELDS, LineFormat, LogTarget, Rotation, SyslogFacility, SyslogServer,
    TemplatePart,
};
use self::automatic::IssuedBy;
pub use self::balance::{Balance, HashBy, HashExpression};
pub use foregate_io::{EngineChoice, io_uring};

pub use self::cache::{CacheDisk, CacheReserve, CacheSettings, CacheStore, RouteCache};
pub use self::compare::{Compare, CompareMode, CompareRules, CompareSamples};
pub use self::conditions::{Entrance, OriginTimes, RouteConditions, RouteTimeouts};
pub use self::dashboard::{DashboardPassword, DashboardSettings};
pub use self::fallback::{Fallback, FallbackReason, PassedNames, SHARE_WHOLE, share_bucket};
pub use self::listen::{
    CertificateFiles, ClientCertificates, Listen, ListenAddress, ListenTls, TlsPolicy, TlsVersion,
};
pub use self::retry::{Elsewhere, HedgeAfter, Mirror, NewPath, Retry, RetryOn, RouteRetry};
pub use self::servers::{Eject, HealthCheck, HttpProbe, Probe, ServerSettings, Statuses, Sticky};
pub use self::shield::{ShieldNode, ShieldSettings};
pub use self::trace_export::TraceExport;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A bound on requests in flight to upstreams, and the queue for requests beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    /// The most requests in flight. Beyond: they wait in the queue.
    pub requests: usize,
    /// The most requests that wait. Beyond: 503. Default: none.
    pub queue: usize,
    /// How long each request waits. Beyond: 503. Default: 5 s.
    pub timeout: Duration,
    /// Adapts the bound to the latency of the upstream, between this value and `requests`. Default (`None`): the bound is
    /// always `requests`.
    pub adaptive_from: Option<usize>,
}

/// The default of [`Limits::filter_memory`], bytes: enough for eight of the largest windows that zstd may
/// need (RFC 9659), and for many small ones.
pub const FILTER_MEMORY: usize = 96 * MIB;

/// The default memory of connections for each worker, bytes.
pub(crate) const MEMORY_PER_WORKER: usize = 32 * MIB;

/// The default of [`Limits::filter_files`], bytes.
pub const FILTER_FILES: usize = 4096 * MIB;

/// The default of [`Limits::filter_per_client`], percent.
pub const FILTER_PER_CLIENT: usize = 25;

/// Limits of size and count; each field states the effect of exceeding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request or response head. Beyond: 431 (502 for an origin). Default: 64 KiB, at
    /// most 128 KiB.
    pub head_bytes: usize,
    /// Bytes of one line of a head. Beyond: 431, or 414 for the request line. Default: 16 KiB.
    pub head_line: usize,
    /// Fields of a head. Beyond: 431. Default: 128.
    pub head_fields: usize,
    /// The number of requests after which a connection is closed gracefully. Default: 10,000.
    pub requests_per_connection: u64,
    /// Client connections. Default (`None`): min(50,000, descriptors / 2 - 64). Beyond: accepting
    /// pauses.
    pub connections: Option<usize>,
    /// Connections from one client address. Beyond: closed at once. Default: 1,024.
    pub connections_per_client: usize,
    /// Requests of one client address in flight to all upstreams together. Beyond: 503. Default (`None`): no limit.
    pub requests_per_client: Option<usize>,
    /// Bytes of a request's body that are read and dropped after an early response. Beyond: close.
    /// Default: 64 KiB.
    pub early_response_drain: usize,
    /// Bytes of a ClientHello. Beyond: close. Default: 64 KiB.
    pub client_hello: usize,
    /// Concurrent HTTP/2 streams. Beyond: REFUSED_STREAM. Default: 100.
    pub h2_streams: u32,
    /// HTTP/2 flow-control window of a stream, bytes. Default: 64 KiB.
    pub h2_stream_window: u32,
    /// The size, bytes, up to which a stream's window may grow while the origin takes the body as fast as it arrives. The
    /// window of the connection may grow by the same amount. Default: 4 MiB.
    pub h2_largest_window: u32,
    /// HTTP/2 flow-control window of a connection, bytes. Default: 1 MiB.
    pub h2_connection_window: u32,
    /// HPACK dynamic table, bytes. Default: 4096.
    pub h2_header_table: u32,
    /// Premature stream resets allowed in a burst. Beyond burst and rate: GOAWAY ENHANCE_YOUR_CALM. Default:
    /// 100.
    pub h2_resets_burst: u32,
    /// Premature stream resets allowed per second after the burst. Default: 10.
    pub h2_resets_rate: u32,
    /// Premature stream resets allowed on one connection in total. Default: 1,000.
    pub h2_resets_total: u32,
    /// Frames without progress (PING, SETTINGS, PRIORITY, empty DATA, ...) allowed in a burst. Default: 1,000.
    pub h2_control_burst: u32,
    /// Frames without progress allowed per second after the burst. Default: 20.
    pub h2_control_rate: u32,
    /// The number of heavy jobs of modules' steps that may wait for a thread. Beyond: the step's
    /// setting decides. Default: 1,024.
    pub offload_queue: usize,
    /// The memory that peers may make the process hold in buffers, heads and bodies,
    /// [`filter_memory`](Self::filter_memory) included, bytes. At these percentages of this limit, measures begin:
    ///
    /// - 50: clients with more than eight connections lose keep-alive;
    /// - 75: new requests of these clients get 503;
    /// - 85: all clients lose keep-alive;
    /// - 90: all new requests get 503;
    /// - 100: new connections are closed.
    ///
    /// Default (`None`): `filter_memory` plus 32 MiB for each worker. A single worker counts as two.
    pub memory: Option<usize>,
    /// The memory of the process for body filters, starts of bodies for steps and bodies kept for another
    /// attempt, all together, bytes. Beyond:
    ///
    /// - a filter that may be left out is left out;
    /// - bodies kept for another attempt are dropped;
    /// - other requests that need more get 503.
    ///
    /// Default: [`FILTER_MEMORY`].
    pub filter_memory: usize,
    /// The total size of temporary files with starts of bodies for steps, bytes. Beyond: 503. Default:
    /// [`FILTER_FILES`].
    pub filter_files: usize,
    /// The part, percent, that the requests of one client address (IPv6: a network of 64 bits) may hold
    /// of each of these:
    ///
    /// - [`filter_memory`](Self::filter_memory);
    /// - [`filter_files`](Self::filter_files), and the descriptors for these files;
    /// - the number of fetches in flight to one upstream.
    ///
    /// A single body may hold more. Beyond: 503 for this client. Default: [`FILTER_PER_CLIENT`].
    pub filter_per_client: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * KIB,
            head_line: 16 * KIB,
            head_fields: 128,
            requests_per_connection: 10_000,
            connections: None,
            connections_per_client: 1024,
            requests_per_client: None,
            early_response_drain: 64 * KIB,
            client_hello: 64 * KIB,
            h2_streams: 100,
            h2_stream_window: 64 * KIB as u32,
            h2_largest_window: 4 * MIB as u32,
            h2_connection_window: MIB as u32,
            h2_header_table: 4096,
            h2_resets_burst: 100,
            h2_resets_rate: 10,
            h2_resets_total: 1000,
            h2_control_burst: 1000,
            h2_control_rate: 20,
            offload_queue: 1024,
            memory: None,
            filter_memory: FILTER_MEMORY,
            filter_files: FILTER_FILES,
            filter_per_client: FILTER_PER_CLIENT,
        }
    }
}

/// Time limits towards clients; each field states the effect of exceeding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Receiving a request's head, from its first byte to its last. Beyond: 408, close. Default: 10 s.
    pub head: Duration,
    /// Silence in a request's body. Beyond: 408, close. Default: 30 s.
    pub body_idle: Duration,
    /// Least average rate of a request's body, bytes per second. Below: 408, close. Default: 256.
    pub body_rate: u64,
    /// The span over which the rate is averaged. Default: 20 s.
    pub body_rate_window: Duration,
    /// The time at the start of a body in which its rate is not checked. Default: 10 s.
    pub body_rate_grace: Duration,
    /// An idle HTTP/1 connection. Beyond: close. Default: 60 s.
    pub keep_alive: Duration,
    /// An HTTP/2 connection without streams. Beyond: GOAWAY. Default: 120 s.
    pub keep_alive_h2: Duration,
    /// No progress while writing to a client. Beyond: reset. Default: 30 s.
    pub write_stall: Duration,
    /// The age at which a connection is closed gracefully. Default: 1 h.
    pub connection_age: Duration,
    /// TLS handshake and PROXY protocol header. Beyond: close. Default: 5 s.
    pub tls_handshake: Duration,
    /// Reading and dropping a request's body after an early response. Beyond: close. Default: 5 s.
    pub early_response_drain: Duration,
    /// The time for requests in flight to finish at a graceful stop (SIGQUIT, or a reload that removes
    /// their listener). Beyond: close. Default: 30 s.
    pub drain: Duration,
    /// As `drain`, for SIGTERM. Default: 5 s.
    pub drain_term: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body_idle: Duration::from_secs(30),
            body_rate: 256,
            body_rate_window: Duration::from_secs(20),
            body_rate_grace: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            keep_alive_h2: Duration::from_secs(120),
            write_stall: Duration::from_secs(30),
            connection_age: Duration::from_secs(3600),
            tls_handshake: Duration::from_secs(5),
            early_response_drain: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            drain_term: Duration::from_secs(5),
        }
    }
}

/// A group of origin servers that serve the same requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The unique name of the upstream in the configuration.
    pub name: Arc<str>,
    /// The servers, at least one.
    pub servers: Vec<ServerSettings>,
    /// The nameservers that are asked for the names of its servers, in this order. Default (`None`): the system's hosts
    /// file, and then the system's nameservers.
    pub resolver: Option<Arc<[SocketAddr]>>,
    /// Requests in flight to its servers. Default: no limit.
    pub requests: Option<RequestLimit>,
    /// The method of balancing. Default: servers take turns.
    pub balance: Balance,
    /// Sessions that bind a client to a server. Default: none.
    pub sticky: Option<Sticky>,
    /// Active health checks. Default: none.
    pub health: Option<HealthCheck>,
    /// Passive health: when servers are skipped after failed requests.
    pub eject: Eject,
    /// The zone of this proxy: servers of the zone are preferred. Default: none.
    pub zone: Option<Box<str>>,
    /// The `Host` or `:authority` for its servers: a name or address, with a port if needed.
    /// Default (`None`): the client's.
    pub host: Option<Arc<str>>,
    /// The protocol spoken to its servers. Default: HTTP/1.1.
    pub protocol: UpstreamProtocol,
    /// Speak TLS to its servers.
    pub tls: Option<UpstreamTls>,
    /// The PROXY protocol header sent at the start of each connection. Such connections serve one
    /// client connection each and are never shared. Default: none.
    pub send_proxy: Option<ProxyProtocolVersion>,
    /// Connecting, TLS included. Beyond: next server or 504. Default: 3 s.
    pub connect_timeout: Duration,
    /// The time from the last byte of the request to the first of the response. Beyond: 504. Default: 30 s.
    pub first_byte_timeout: Duration,
    /// Silence in a response. Beyond: the response is aborted. Default: 60 s.
    pub idle_timeout: Duration,
    /// Silence in both directions of an upgraded connection. Beyond: it is closed. Default: 1 h.
    pub tunnel_idle: Duration,
    /// How long an unused connection is kept. Default: 55 s.
    pub keep_alive: Duration,
    /// Unused connections kept per server; beyond, the oldest is closed. Default: 256.
    pub keep_alive_connections: usize,
    /// The age from which a connection is not used again. Default: 1 h.
    pub connection_age: Duration,
    /// Further attempts after the first. Default: 1.
    pub retries: u32,
    /// Receive the whole body of a request, of at most this many bytes, before a server is asked. Beyond:
    /// 413. Default (`None`): bodies are forwarded as they arrive.
    pub buffer_requests: Option<u64>,
    /// Receive responses ahead of slow clients. Default (`None`): they are received as fast as the client reads.
    pub buffer_responses: Option<BufferResponses>,
    /// Rules for further attempts, instead of `retries`. Default: none.
    pub retry: Vec<Retry>,
    /// When an idempotent request goes to a second server as well. Default: never.
    pub hedge: Option<HedgeAfter>,
    /// Largest request body that is kept for a further attempt, bytes. Default: 64 KiB.
    pub retry_body: usize,
    /// The most further attempts at a time, as a percentage of the active requests. Default: 20.
    pub retry_budget_percent: u32,
    /// Further attempts that are allowed regardless of `retry_budget_percent`. Default: 3.
    pub retry_budget_min: u32,
}

/// How much of a response is received before the client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferResponses {
    /// The part in memory, bytes. Beyond: bytes go to a file. Default: 128 KiB.
    pub memory: usize,
    /// The part in a temporary file, bytes. Beyond: the origin is read only as fast as the client reads. Default: 64 MiB.
    pub size: u64,
}

impl UpstreamSettings {
    /// An upstream with default settings.
    pub fn new(name: &str, servers: Vec<ServerSettings>) -> Self {
        Self {
            name: name.into(),
            servers,
            resolver: None,
            requests: None,
            balance: Balance::RoundRobin,
            sticky: None,
            health: None,
            eject: Eject::default(),
            zone: None,
            host: None,
            protocol: UpstreamProtocol::Http1,
            tls: None,
            send_proxy: None,
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(3600),
            keep_alive: Duration::from_secs(55),
            keep_alive_connections: 256,
            connection_age: Duration::from_secs(3600),
            retries: 1,
            retry: Vec::new(),
            hedge: None,
            buffer_requests: None,
            buffer_responses: None,
            retry_body: 64 * KIB,
            retry_budget_percent: 20,
            retry_budget_min: 3,
        }
    }
}

/// The protocol spoken to origin servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, always.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, with prior knowledge on cleartext.
    Http2,
    /// The protocol that ALPN selects over TLS; HTTP/1.1 on cleartext.
    Auto,
}

/// The version of a PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyProtocolVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// TLS towards origin servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UpstreamTls {
    /// The name that is sent as SNI and that the certificate must carry. Default (`None`): the
    /// server's host.
    pub server_name: Option<String>,
    /// PEM file with the authorities to trust. Default (`None`): the system's.
    pub authorities: Option<PathBuf>,
    /// Check the server's certificate. Default: yes; only tests should turn it off.
    pub verify: bool,
    /// The certificate to present when the server asks for one.
    pub certificate: Option<CertificateFiles>,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { server_name: None, authorities: None, verify: true, certificate: None }
    }
}

/// The options of a site other than its hosts and routes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SiteOptions {
    /// Forward request fields with an underscore in their names. Default: such fields are dropped.
    /// Fields of responses with an underscore are always forwarded.
    pub allow_underscores: bool,
    /// Keep duplicate slashes in paths. Default: they are merged.
    pub keep_slashes: bool,
    /// Forward ambiguous paths: a server that reads `%2F`, `%5C` or `;` differently would assign them to
    /// another route. Default: they are refused.
    pub forward_ambiguous: bool,
    /// Requests in flight of this site. Default: no limit.
    pub requests: Option<RequestLimit>,
    /// Certificates and policy of this site; `None`: the listener's.
    pub tls: Option<SiteTls>,
    /// The listeners that serve the site. Default (empty): all of them.
    pub listeners: Vec<ListenAddress>,
    /// Tell clients in `Server-Timing` how long responses took. Default: no.
    pub server_timing: bool,
    /// Redirect cleartext requests to `https` at this port. Default: they are served.
    pub redirect_https: Option<u16>,
    /// The steps of modules that run on the responses to requests that match none of its routes.
    /// Default: none.
    pub unrouted: RoutePlan,
    /// The fallback for requests that match none of its routes. Default (`None`): that of
    /// [`Settings::fallback`](crate::configuration::Settings::fallback).
    pub fallback: Option<Arc<Fallback>>,
    /// Compare responses of its routes with those of the old proxy. Default: no.
    pub compare: Option<Arc<Compare>>,
}

impl SiteOptions {
    /// Returns true if only clients with a certificate are served, and therefore no cleartext
    /// requests.
    pub fn requires_certificate(&self) -> bool {
        let clients = self.tls.as_ref().and_then(|tls| tls.client_certificates.as_ref());
        clients.is_some_and(|clients| clients.required)
    }

    /// Returns true if a listener serves the site.
    pub fn is_on(&self, listener: &ListenAddress) -> bool {
        self.listeners.is_empty() || self.listeners.contains(listener)
    }
}

/// TLS of one site, on every listener that speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SiteTls {
    /// Certificates in addition to the listener's; may be empty.
    pub certificates: Vec<CertificateFiles>,
    /// Obtain certificates from this issuer for the hosts of the site. Default: the listener's
    /// setting.
    pub automatic: Option<IssuedBy>,
    /// The lowest version that is negotiated. Default: the listener's.
    pub minimum_version: Option<TlsVersion>,
    /// Asks for client certificates. Default: the listener's setting.
    pub client_certificates: Option<ClientCertificates>,
}

impl SiteTls {
    /// The policy of the site on a listener with the policy `listener`.
    pub fn policy(&self, listener: &TlsPolicy) -> TlsPolicy {
        let clients = self.client_certificates.as_ref().or(listener.client_certificates.as_ref());
        TlsPolicy {
            minimum_version: self.minimum_version.unwrap_or(listener.minimum_version),
            client_certificates: clients.cloned(),
        }
    }
}

/// A route: the treatment of requests with matching paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Its pattern as written, for logs and `explain`.
    pub pattern: Arc<str>,
    /// Its action.
    pub action: Action,
    /// Largest request body, bytes. Beyond: 413. Default (`None`): no limit.
    pub body_limit: Option<u64>,
    /// Forward CONNECT to the upstream. Default: no (405).
    pub allow_connect: bool,
    /// The conditions in addition to the path. Default (`None`): none.
    pub conditions: Option<Arc<RouteConditions>>,
    /// The prefix that is removed from paths before they are sent to origins: see
    /// [`CanonicalTarget::strip_prefix`](crate::message::request::CanonicalTarget::strip_prefix).
    pub strip_prefix: Option<Arc<str>>,
    /// Replaces `buffer_requests` of the upstream, if it is `Some`; `Some(None)` turns it off.
    pub buffer_requests: Option<Option<u64>>,
    /// Replaces `buffer_responses` of the upstream, if it is `Some`; `Some(None)` turns it off.
    pub buffer_responses: Option<Option<BufferResponses>>,
    /// Rules for further attempts, instead of the upstream's. Default: none.
    pub retry: RouteRetry,
    /// Send copies of its requests to another upstream. Default: none.
    pub mirror: Option<Mirror>,
    /// Time limits instead of the upstream's.
    pub timeouts: RouteTimeouts,
    /// Tell clients in `Server-Timing` how long responses took. Default: no.
    pub server_timing: bool,
    /// The steps of modules that run on its requests. Default: none.
    pub plan: RoutePlan,
    /// Its cache. Default: none.
    pub cache: RouteCache,
    /// The selection of its requests that go to the old proxy. Default: none.
    pub fallback: Option<Arc<Fallback>>,
    /// Compare its responses with those of the old proxy. Default: no.
    pub compare: Option<Arc<Compare>>,
}

/// A user of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUser {
    /// The name of the user, for messages.
    pub name: Arc<str>,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's main group.
    pub gid: u32,
    /// The numbers of all groups of the user.
    pub groups: Arc<[u32]>,
}

impl Route {
    /// A route without limits and modules.
    pub fn new(pattern: Arc<str>, action: Action) -> Self {
        Self {
            pattern,
            action,
            body_limit: None,
            allow_connect: false,
            conditions: None,
            strip_prefix: None,
            buffer_requests: None,
            buffer_responses: None,
            retry: RouteRetry::default(),
            mirror: None,
            timeouts: RouteTimeouts::default(),
            server_timing: false,
            plan: RoutePlan::default(),
            cache: RouteCache::default(),
            fallback: None,
            compare: None,
        }
    }
}

/// The steps of modules that run on the requests of a route. Two values are equal only if they refer to
/// the same object, so the builder of routes shares equal plans.
#[derive(Clone, Default)]
pub struct RoutePlan(Option<Arc<Plan>>);

impl RoutePlan {
    /// Wraps a plan, which routes may share.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        Self(Some(plan.into()).filter(|plan| !plan.is_empty()))
    }

    /// The plan, unless no step runs.
    #[inline]
    pub fn get(&self) -> Option<&Arc<Plan>> {
        self.0.as_ref()
    }

    fn address(&self) -> Option<*const Plan> {
        self.0.as_ref().map(Arc::as_ptr)
    }
}

impl PartialEq for RoutePlan {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for RoutePlan {}

impl Hash for RoutePlan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Debug for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The source of responses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The servers of an upstream, by index into
    /// [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    Proxy(usize),
    /// A fixed answer.
    Respond(Arc<FixedResponse>),
    /// The files of a folder.
    Files {
        /// The folder, by index into [`Settings::folders`](crate::configuration::Settings::folders).
        folder: usize,
        /// The upstream that answers if there is no such file. Default (`None`): 404.
        upstream: Option<usize>,
    },
}

impl Action {
    /// The upstream that requests may be sent to, if there is one.
    pub fn upstream(&self) -> Option<usize> {
        match self {
            Self::Proxy(upstream) => Some(*upstream),
            Self::Files { upstream, .. } => *upstream,
            Self::Respond(_) => None,
        }
    }

    /// The destination of a request for which a step may have chosen an upstream. A file comes first; the chosen
    /// upstream is asked only if there is none.
    pub fn destination(&self, chosen: Option<usize>) -> Destination<'_> {
        match (self, chosen) {
            (Self::Files { folder, upstream }, _) => {
                Destination::Files { folder: *folder, upstream: chosen.or(*upstream) }
            }
            (_, Some(upstream)) => Destination::Upstream(upstream),
            (Self::Proxy(upstream), None) => Destination::Upstream(*upstream),
            (Self::Respond(fixed), None) => Destination::Answer(fixed),
        }
    }
}

/// The destination of one request.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// An upstream, by its index.
    Upstream(usize),
    /// The files of a folder, and the upstream that is asked if there is no such file, both by their indices.
    Files {
        /// The folder.
        folder: usize,
        /// The upstream. `None`: 404.
        upstream: Option<usize>,
    },
    /// A fixed answer.
    Answer(&'a FixedResponse),
}

/// A folder of static files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Files {
    /// The path of the folder. It is resolved again once a second.
    pub folder: PathBuf,
    /// The rules for file names, media types and lifetimes.
    pub rules: Rules,
    /// The symbolic links below the folder that are followed. Default: those that stay inside.
    pub links: FollowLinks,
}

/// The symbolic links that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FollowLinks {
    /// Relative links that stay inside the folder.
    #[default]
    Inside,
    /// All links.
    Anywhere,
    /// None.
    Never,
}

/// A fixed answer of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FixedResponse {
    /// The status, 200 to 599.
    pub status: u16,
    /// The body, which is sent as `text/plain; charset=utf-8`.
    pub body: Arc<[u8]>,
}

/// Returns true if `address` is in any of `blocks`.
pub fn any_contains(blocks: &[AddressBlock], address: IpAddr) -> bool {
    blocks.iter().any(|block| block.contains(address))
}
