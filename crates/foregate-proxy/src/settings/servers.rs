//! The servers of an upstream: their properties, health checks, ejection and sessions.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::address::ServerAddress;

/// One origin server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerSettings {
    /// Its address.
    pub address: ServerAddress,
    /// The weight of the server in its upstream, 1 to 1,000. Default: 1.
    pub weight: u32,
    /// The server gets requests only while no other server can take them. Default: no.
    pub backup: bool,
    /// The server gets no new requests, except those of its own sessions. Default: no.
    pub drain: bool,
    /// Connections to it, at most. Default: no limit.
    pub max_connections: Option<u32>,
    /// Requests in flight at it, at most. Default: no limit.
    pub max_requests: Option<u32>,
    /// The time after it comes up in which its share grows to its weight. Default: none.
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
    /// Returns true if there are none.
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
    /// How a server is probed.
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
    /// How much a pause may differ at random, per cent. Default: 10.
    pub jitter: u32,
}

/// A kind of probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A connection is made.
    Tcp,
    /// A TLS handshake is made, with the upstream's settings.
    Tls,
    /// A request is answered.
    Http(HttpProbe),
    /// The standard health service of gRPC says SERVING.
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
    /// The statuses of a server that is well. Default: 200 to 399.
    pub statuses: Statuses,
    /// A text that the body must contain.
    pub body: Option<Box<str>>,
}

/// Passive health: the outcomes of requests after which a server is skipped for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Eject {
    /// Failures in a row. Default: 3.
    pub failures: u32,
    /// Statuses of responses that count as failures. Default: none.
    pub statuses: Statuses,
    /// The share of failures among the attempts of ten seconds, per cent. Default: none.
    pub share: Option<u32>,
    /// The least number of attempts for `share`. Default: 20.
    pub minimum: u32,
    /// The server is ejected if it is this many times slower than the others. Default: none.
    pub latency: Option<u32>,
    /// Notice a server that answers none of several requests while others answer. Default: yes.
    pub hung: bool,
    /// How long a server is skipped at first. The time doubles while it keeps failing. Default: 500
    /// ms.
    pub first: Duration,
    /// The longest time for which it is skipped. Default: 10 s.
    pub longest: Duration,
    /// The share of servers that `share` and `latency` may take out, per cent. Default: 50.
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
    /// The key of its signature. Default: random, for as long as the process lives.
    pub secret: Option<Box<[u8]>>,
    /// True if it has the attribute `Secure`. Default: no.
    pub secure: bool,
    /// How long clients keep the cookie. Default: for their session.
    pub max_age: Option<Duration>,
}

impl std::fmt::Debug for Sticky {
    /// The secret is left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sticky").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}
