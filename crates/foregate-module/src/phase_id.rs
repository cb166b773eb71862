//! The phases of an exchange, which have one fixed order.

use core::fmt;

/// A phase, as a value. Phases are ordered as they come in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseId {
    /// The site and the route have been chosen; no module has allowed or refused the request yet.
    RequestEarly,
    /// Identifies the client.
    RequestIdentity,
    /// Allows or refuses the request.
    RequestSecurity,
    /// Runs when the part of the request's body that the steps asked for has been received.
    RequestBody,
    /// Changes the request for the origin.
    RequestRewrite,
    /// Runs before the lookup in the cache. The expressions of `cache`, such as `key`, are evaluated for this phase.
    CacheKey,
    /// Chooses the upstream.
    UpstreamSelect,
    /// Changes the request for the upstream after Foregate has added the forwarded fields.
    UpstreamRequest,
    /// Reads or changes the head of the upstream's response, as received. Does not run for Foregate's own answers.
    UpstreamResponse,
    /// Changes the head of the response to the client, whether it comes from the upstream, the cache or Foregate itself.
    ResponseHeaders,
    /// Replaces error responses, for example by pages.
    ResponseErrorPage,
    /// Chooses the filters of the response's body, once the part that steps asked for has arrived. The head can still be changed.
    ResponseBody,
    /// Runs after the exchange has ended.
    Log,
}

impl PhaseId {
    /// The number of phases.
    pub const COUNT: usize = 13;

    /// All values, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::RequestEarly,
        Self::RequestIdentity,
        Self::RequestSecurity,
        Self::RequestBody,
        Self::RequestRewrite,
        Self::CacheKey,
        Self::UpstreamSelect,
        Self::UpstreamRequest,
        Self::UpstreamResponse,
        Self::ResponseHeaders,
        Self::ResponseErrorPage,
        Self::ResponseBody,
        Self::Log,
    ];

    /// The name in documentation, messages and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestEarly => "request-early",
            Self::RequestIdentity => "request-identity",
            Self::RequestSecurity => "request-security",
            Self::RequestBody => "request-body",
            Self::RequestRewrite => "request-rewrite",
            Self::CacheKey => "cache-key",
            Self::UpstreamSelect => "upstream-select",
            Self::UpstreamRequest => "upstream-request",
            Self::UpstreamResponse => "upstream-response",
            Self::ResponseHeaders => "response-headers",
            Self::ResponseErrorPage => "response-error-page",
            Self::ResponseBody => "response-body",
            Self::Log => "log",
        }
    }

    /// The position in the order of phases, from 0.
    pub const fn order(self) -> usize {
        self as usize
    }
}

impl fmt::Display for PhaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A phase, as a type. The only phases are those in [`phase`].
pub trait Phase: sealed::Sealed + 'static {
    /// The phase as a value.
    const ID: PhaseId;
}

/// Phases in which there is no response yet, so that a step can answer the request.
#[diagnostic::on_unimplemented(
    message = "in phase `{Self}` the request has been sent, or answered, already",
    label = "only steps of the phases from request-early to upstream-request can do this"
)]
pub trait BeforeResponse: Phase {}

/// Phases in which the request's target can still be rewritten and its upstream chosen.
#[diagnostic::on_unimplemented(
    message = "in phase `{Self}` the upstream has been chosen already",
    label = "only steps of the phases from request-early to upstream-select can do this"
)]
pub trait BeforeUpstream: Phase {}

/// Phases in which the head of the response is known.
#[diagnostic::on_unimplemented(
    message = "there is no response yet in phase `{Self}`",
    label = "only steps of the phases from upstream-response to log can read this"
)]
pub trait AfterResponse: Phase {}

/// Phases in which the head of the response has not been sent yet.
#[diagnostic::on_unimplemented(
    message = "there is no response to change in phase `{Self}`",
    label = "only steps of the phases from upstream-response to response-body can change the response"
)]
pub trait HoldsResponse: AfterResponse {}

/// Phases before the start of the response's body is received for steps.
#[diagnostic::on_unimplemented(
    message = "in phase `{Self}` the response's body cannot be asked for",
    label = "only steps of the phases from upstream-response to response-error-page can do this"
)]
pub trait BeforeHold: HoldsResponse {}

/// Phases in which the start of the response's body has been received.
#[diagnostic::on_unimplemented(
    message = "the response's body has not been received in phase `{Self}`",
    label = "only steps of phase response-body can read it; `HoldResponseBody` in an earlier one says how much"
)]
pub trait AfterHold: HoldsResponse {}

/// Phases in which the start of the request's body has been received.
#[diagnostic::on_unimplemented(
    message = "the request's body has not been received in phase `{Self}`",
    label = "only steps of the phases from request-body to upstream-request can read it; `Step::body` says how much"
)]
pub trait AfterBody: Phase {}

/// Phases before the last.
#[diagnostic::on_unimplemented(
    message = "in phase `{Self}` the exchange has ended",
    label = "only steps of the phases before log can do this"
)]
pub trait BeforeEnd: Phase {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! phases {
    ($($(#[$doc:meta])* $name:ident: $($is:ident)*;)*) => {
        /// The phases as types, for [`Step::At`](crate::Step::At).
        pub mod phase {
            use super::*;
            $(
                $(#[$doc])*
                #[derive(Debug, Clone, Copy)]
                pub struct $name;
                impl sealed::Sealed for $name {}
                impl Phase for $name {
                    const ID: PhaseId = PhaseId::$name;
                }
                $(impl $is for $name {})*
            )*
            pub use super::{
                AfterBody, AfterHold, AfterResponse, BeforeEnd, BeforeHold, BeforeResponse, BeforeUpstream,
                HoldsResponse,
            };
        }
    };
}

phases! {
    /// See [`PhaseId::RequestEarly`].
    RequestEarly: BeforeResponse BeforeUpstream BeforeEnd;
    /// See [`PhaseId::RequestIdentity`].
    RequestIdentity: BeforeResponse BeforeUpstream BeforeEnd;
    /// See [`PhaseId::RequestSecurity`].
    RequestSecurity: BeforeResponse BeforeUpstream BeforeEnd;
    /// See [`PhaseId::RequestBody`].
    RequestBody: BeforeResponse BeforeUpstream BeforeEnd AfterBody;
    /// See [`PhaseId::RequestRewrite`].
    RequestRewrite: BeforeResponse BeforeUpstream BeforeEnd AfterBody;
    /// See [`PhaseId::CacheKey`].
    CacheKey: BeforeResponse BeforeUpstream BeforeEnd AfterBody;
    /// See [`PhaseId::UpstreamSelect`].
    UpstreamSelect: BeforeResponse BeforeUpstream BeforeEnd AfterBody;
    /// See [`PhaseId::UpstreamRequest`].
    UpstreamRequest: BeforeResponse BeforeEnd AfterBody;
    /// See [`PhaseId::UpstreamResponse`].
    UpstreamResponse: AfterResponse HoldsResponse BeforeHold BeforeEnd;
    /// See [`PhaseId::ResponseHeaders`].
    ResponseHeaders: AfterResponse HoldsResponse BeforeHold BeforeEnd;
    /// See [`PhaseId::ResponseErrorPage`].
    ResponseErrorPage: AfterResponse HoldsResponse BeforeHold BeforeEnd;
    /// See [`PhaseId::ResponseBody`].
    ResponseBody: AfterResponse HoldsResponse AfterHold BeforeEnd;
    /// See [`PhaseId::Log`].
    Log: AfterResponse;
}
