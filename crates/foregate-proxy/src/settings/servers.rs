//! The servers of an upstream: their properties, health checks, ejection and sessions.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::address::ServerAddress;

/// One origin server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerSettings {
    /// The address of the server.
    pub address: ServerAddress,
    /// The weight of the server in its upstream, 1 to 1,000. Default: 1.
    pub weight: u32,
    /// The server gets requests only while no other server can take them. Default: no.
    pub backup: bool,
    /// The server gets no new requests, except those of its own sessions. Default: no.
    pub drain: bool,
    /// The most connections to the server. Default: no limit.
    pub max_connections: Option<u32>,
    /// The most requests in flight at the server. Default: no limit.
    pub max_requests: Option<u32>,
    /// The time in which the server's share of requests grows to its weight, after it has come up. Default: none.
    pub slow_start: Duration,
    /// The location of the server, such as a data centre.
    pub zone: Option<Box<str>>,
}

impl ServerSettings {
    /// A server with default settings.
    pub fn new(address: ServerAddress) -> Self {
        Self {
            address,
            weight: 1,
            backup: false,
            drain: false,
            max_connections: None,
            max_requests: None,
            slow_start: Duration::ZERO,
            zone: None,
        }
    }
}

/// Statuses of responses, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Statuses(pub Box<[RangeInclusive<u16>]>);

impl Statuses {
    /// Returns true if there are no statuses.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a status is among them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// An active health check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// The kind of probe.
    pub probe: Probe,
    /// The port that is probed. Default: the server's.
    pub port: Option<u16>,
    /// The pause between two probes. It grows while a server stays down. Default: 5 s.
    pub every: Duration,
    /// The time for a probe, connecting included. Default: 1 s.
    pub timeout: Duration,
    /// Successes in a row after which a server is up. Default: 2.
    pub rise: u32,
    /// Failures in a row after which a server is down. Default: 3.
    pub fall: u32,
    /// How much a pause may randomly differ from `every`, per cent. Default: 10.
    pub jitter: u32,
}

/// A kind of probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probe {
    /// The probe succeeds if a connection can be made.
    Tcp,
    /// The probe succeeds if a TLS handshake with the upstream's settings does.
    Tls,
    /// The probe succeeds if a request gets the expected response.
    Http(HttpProbe),
    /// The probe succeeds if the standard health service of gRPC answers SERVING.
    Grpc {
        /// The service that is asked for; empty for the server as a whole.
        service: Box<str>,
        /// The authority. Default: the upstream's host, else the server's address.
        host: Option<Box<str>>,
    },
}

/// A request that probes a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpProbe {
    /// The path and query.
    pub path: Box<str>,
    /// The method. Default: GET.
    pub method: Box<str>,
    /// The host. Default: the upstream's, else the server's address.
    pub host: Option<Box<str>>,
    /// The statuses for which the probe succeeds. Default: 200 to 399.
    pub statuses: Statuses,
    /// A text that the body must contain.
    pub body: Option<Box<str>>,
}

/// Passive health: the outcomes of requests after which a server is skipped for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Eject {
    /// The number of failures in a row after which a server is skipped. Default: 3.
    pub failures: u32,
    /// Statuses of responses that count as failures. Default: none.
    pub statuses: Statuses,
    /// The percentage of failures among the attempts of ten seconds from which on a server is skipped. Default:
    /// none.
    pub share: Option<u32>,
    /// The least number of attempts for `share` to apply. Default: 20.
    pub minimum: u32,
    /// The factor by which a server must be slower than the others to be skipped. Default: none.
    pub latency: Option<u32>,
    /// Skip a server that answers none of several requests while other servers answer. Default: yes.
    pub hung: bool,
    /// How long a server is skipped at first. The time doubles while it keeps failing. Default: 500
    /// ms.
    pub first: Duration,
    /// The longest time for which a server is skipped. Default: 10 s.
    pub longest: Duration,
    /// The percentage of servers that may be skipped at a time because of `share` and `latency`. Default: 50.
    pub most: u32,
}

impl Default for Eject {
    fn default() -> Self {
        Self {
            failures: 3,
            statuses: Statuses::default(),
            share: None,
            minimum: 20,
            latency: None,
            hung: true,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(10),
            most: 50,
        }
    }
}

/// Sessions: a cookie that binds a client to a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Sticky {
    /// The name of the cookie.
    pub cookie: Box<str>,
    /// The key with which the cookie is signed. Default: a random one for the lifetime of the process.
    pub secret: Option<Box<[u8]>>,
    /// True if the cookie has the attribute `Secure`. Default: no.
    pub secure: bool,
    /// How long clients keep the cookie. Default: for their session.
    pub max_age: Option<Duration>,
}

impl std::fmt::Debug for Sticky {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sticky").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}
