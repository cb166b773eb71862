//! The record of an exchange for the log and the metrics.

use std::time::Instant;

use crate::error::{Error, Side};
use crate::settings::FallbackReason;

/// The record of an exchange for the log and the metrics.
#[derive(Debug)]
pub(super) struct LogRecord {
    pub start: Instant,
    pub status: Option<u16>,
    /// The action of the route that has answered, or was about to.
    pub action: Option<LoggedAction>,
    pub error: Option<Error>,
    /// The side that ended a tunnel, or left before the response was complete.
    pub ended_by: Option<Side>,
    /// True if the exchange has become a tunnel, which moves bytes that are not HTTP.
    pub tunnel: bool,
    /// True once the exchange is logged.
    pub logged: bool,
    /// The error of a request that cannot be routed.
    pub refused: Option<Error>,
    /// True once the steps that log before the response have run.
    pub logged_first: bool,
    /// Why the request has fallen back.
    pub fallback: Option<FallbackReason>,
    /// True if a copy of the request still has to be sent to the mirror of its route.
    pub mirrors: bool,
    /// True if the exchange is neither logged nor counted.
    pub is_quiet: bool,
}

/// The action of a route, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoggedAction {
    Proxy,
    Respond,
    Files,
    Fallback,
    Tap,
}

impl LoggedAction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Respond => "respond",
            Self::Files => "files",
            Self::Fallback => "fallback",
            Self::Tap => "tap",
        }
    }
}

impl LogRecord {
    /// The record of an exchange that has just begun.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            status: None,
            action: None,
            error: None,
            ended_by: None,
            tunnel: false,
            logged: false,
            refused: None,
            logged_first: false,
            fallback: None,
            mirrors: false,
            is_quiet: false,
        }
    }
}
