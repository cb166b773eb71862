//! The conditions of a route in addition to its path, and its time limits.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foregate_module::{Condition, Exchange, Pipeline, State, View};

use super::{ListenAddress, UpstreamSettings};

/// The conditions of a route in addition to its path.
#[derive(Clone)]
pub struct RouteConditions {
    /// The conditions as they are written, for `explain`. Conditions with the same text are equal.
    pub text: Arc<str>,
    /// The port that the client has connected to.
    pub port: Option<u16>,
    /// The listeners that the request may come through; empty: all of them.
    pub listeners: Vec<ListenAddress>,
    /// Conditions on the request, all of which must hold.
    pub all: Vec<Arc<dyn Condition>>,
}

/// The listener and port through which a request came in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Entrance<'a> {
    /// The listener, if it is known.
    pub listener: Option<&'a ListenAddress>,
    /// The port that the client has connected to; `None` for a Unix socket.
    pub port: Option<u16>,
}

impl RouteConditions {
    /// Returns true if a request satisfies them.
    pub fn hold(&self, exchange: &dyn Exchange, pipeline: &Pipeline, entrance: Entrance<'_>) -> bool {
        let on_listener = self.listeners.is_empty()
            || entrance.listener.is_some_and(|listener| self.listeners.contains(listener));
        if !on_listener || self.port.is_some_and(|port| entrance.port != Some(port)) {
            return false;
        }
        if self.all.is_empty() {
            return true;
        }
        let state = State::default();
        let view = View::new(exchange, &state.slots, pipeline.values());
        self.all.iter().all(|condition| condition.holds(&view))
    }
}

impl PartialEq for RouteConditions {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.port == other.port && self.listeners == other.listeners
    }
}

impl Eq for RouteConditions {}

impl Hash for RouteConditions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.text, self.port, &self.listeners).hash(state);
    }
}

impl fmt::Debug for RouteConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RouteConditions").field(&self.text).finish()
    }
}

/// Time limits of a route, instead of its upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RouteTimeouts {
    /// The time from the last byte of the request to the first of the response. Default: the upstream's.
    pub first_byte: Option<Duration>,
    /// Silence in a response. Default: the upstream's.
    pub idle: Option<Duration>,
    /// The time from the request's head to the end of the response, all attempts included. Beyond: 504,
    /// or the response is aborted. Default: no limit.
    pub total: Option<Duration>,
}

impl RouteTimeouts {
    /// The time limits for an origin of this upstream: those of the route, else the upstream's.
    pub fn over(&self, upstream: &UpstreamSettings) -> OriginTimes {
        OriginTimes {
            first_byte: self.first_byte.unwrap_or(upstream.first_byte_timeout),
            idle: self.idle.unwrap_or(upstream.idle_timeout),
        }
    }
}

/// The time limits for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginTimes {
    /// The time from the last byte of the request to the first of the response.
    pub first_byte: Duration,
    /// Silence in a response.
    pub idle: Duration,
}

impl From<&UpstreamSettings> for OriginTimes {
    fn from(upstream: &UpstreamSettings) -> Self {
        RouteTimeouts::default().over(upstream)
    }
}
