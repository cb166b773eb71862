//! What can go wrong with an exchange, and whose fault it is.

use foregate_wire::hpack::Malformed;
use foregate_wire::{FramingError, HostError, RequestError, ResponseError, TargetError};

use crate::link::LinkError;
use crate::link::copy::CopyError;
use crate::spool::SpoolError;

/// The side at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Downstream,
    /// The origin, or the way to it.
    Upstream,
    /// The proxy itself, or its configuration.
    Internal,
}

impl Side {
    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Downstream => "downstream",
            Self::Upstream => "upstream",
            Self::Internal => "internal",
        }
    }
}

/// How responses are counted behind whose end the origin has sent something. No exchange fails for that.
pub const EXCESS: &str = "excess_bytes";

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client's head is not HTTP.
    #[error("malformed request: {0}")]
    Request(RequestError),
    /// The request's length cannot be told.
    #[error("malformed request: {0}")]
    RequestFraming(FramingError),
    /// The request's target is not one.
    #[error("malformed request: {0}")]
    Target(TargetError),
    /// `Host` or `:authority` is not a host.
    #[error("malformed request: {0}")]
    Host(HostError),
    /// `Host` is missing, or there are several.
    #[error("malformed request: exactly one Host is needed")]
    HostCount,
    /// A pseudo-field that HTTP/2 needs is missing or cannot be used.
    #[error("malformed request: {0}")]
    Pseudo(&'static str),
    /// The client's head is not HTTP, over HTTP/2.
    #[error("malformed request: {0}")]
    Malformed(Malformed),
    /// More fields than allowed.
    #[error("too many fields in the request")]
    TooManyFields,
    /// An expectation other than `100-continue`.
    #[error("the expectation cannot be met")]
    Expectation,
    /// CONNECT where the route does not allow it.
    #[error("CONNECT is not allowed here")]
    ConnectNotAllowed,
    /// Bytes for a tunnel came before there was one.
    #[error("nothing may follow CONNECT before it is answered")]
    EarlyTunnel,
    /// No site or route for the request.
    #[error("no site or route for this request")]
    NoRoute,
    /// A path that servers may take for one of another route, or for which a condition comes to something else.
    #[error(
        "the path belongs to another route, or to other conditions, where `%2F`, `%5C`, `;` or `//` is read otherwise"
    )]
    AmbiguousPath,
    /// A step has asked for a path that is none, or leads out of what it names.
    #[error("the path that the request was to get is none, or has `..` in it")]
    Rewrite,
    /// The authority is not covered by the connection.
    #[error("this connection is not for that site")]
    Misdirected,
    /// The head did not come in time.
    #[error("the request head did not come in time")]
    HeadTimeout,
    /// The body did not come in time, or too slowly.
    #[error("the request body did not come in time")]
    BodyTimeout,
    /// The body is larger than the route allows.
    #[error("the request body is too large")]
    BodyTooLarge,
    /// The client's connection or stream failed.
    #[error("client: {0}")]
    Client(LinkError),
    /// The client did not take the response in time.
    #[error("the client does not read the response")]
    WriteStall,
    /// The request has been here too often.
    #[error("the request goes round in circles")]
    Loop,
    /// No server of the upstream can be tried.
    #[error("no server can be tried")]
    NoServer,
    /// The name of a server does not resolve.
    #[error("the server's name does not resolve")]
    Unresolved,
    /// The process has no descriptor to spare for a connection.
    #[error("no descriptor for a connection")]
    NoDescriptors,
    /// A connection could not be made.
    #[error("connecting failed: {0}")]
    Connect(std::io::ErrorKind),
    /// A connection could not be made in time.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The TLS handshake with the origin failed.
    #[error("TLS handshake with the origin failed")]
    OriginTls,
    /// The origin's HTTP/2 connection took no more streams; nothing was processed.
    #[error("the origin refused the stream")]
    OriginRefused,
    /// The origin's HTTP/2 connection does not carry upgrades (RFC 8441).
    #[error("the origin does not take upgrades")]
    NoUpgrade,
    /// The origin's connection or stream failed.
    #[error("origin: {0}")]
    Origin(LinkError),
    /// The origin reset the stream without a byte of response.
    #[error("the origin reset the stream without a response: {0}")]
    OriginReset(h2::Reason),
    /// The origin closed the connection without a byte of response.
    #[error("the origin closed the connection without a response")]
    OriginClosed,
    /// A connection that had served others held bytes of an earlier response where the response was to begin.
    #[error("bytes of an earlier response stood where the response was to begin")]
    Leftover,
    /// The origin's head is not HTTP.
    #[error("malformed response: {0}")]
    Response(ResponseError),
    /// The response's length cannot be told.
    #[error("malformed response: {0}")]
    ResponseFraming(FramingError),
    /// More interim responses than allowed, or one that nobody asked for.
    #[error("malformed response: {0}")]
    Interim(&'static str),
    /// The origin switches protocols, and not as it was asked to.
    #[error("malformed response: {0}")]
    Switch(&'static str),
    /// The origin did not answer in time.
    #[error("the origin did not answer in time")]
    FirstByteTimeout,
    /// The origin fell silent within its response.
    #[error("the origin fell silent in mid-response")]
    OriginIdle,
    /// The origin does not take the request in time.
    #[error("the origin does not read the request")]
    OriginStall,
    /// A step of a module has panicked, or is not run because it did so too often; its name.
    #[error("the step {0} has failed")]
    Step(&'static str),
    /// The queue for the heavy work of a step is full; its name.
    #[error("the queue for the step {0} is full")]
    StepQueue(&'static str),
    /// The response's body is longer than a module allows.
    #[error("the response body is too large")]
    ResponseTooLarge,
    /// A filter of a module cannot read the request's body; the name of its step.
    #[error("the request body cannot be read")]
    BodyUnreadable(&'static str),
    /// A filter of a module has broken a body off; the name of its step.
    #[error("the filter of {0} has broken the body off")]
    Filter(&'static str),
    /// Filters of bodies hold as much as they may.
    #[error("no memory for the filters of the body")]
    FilterMemory,
    /// What peers make the process hold is so much that new requests are refused.
    #[error("no memory for the request")]
    Memory,
    /// Starts of bodies hold as much in files as they may.
    #[error("no room for the body in temporary files")]
    FilterFiles,
    /// The temporary file of a body could not be made, written or read.
    #[error("the body could not be kept in a temporary file")]
    TemporaryFile,
    /// A step of a module has had the request broken off; its name.
    #[error("the step {0} has broken the request off")]
    Aborted(&'static str),
    /// The process, or the listener, ended before the exchange did.
    #[error("cut off by the end of the process or of its listener")]
    Shutdown,
    /// The proxy is at fault.
    #[error("internal error")]
    Internal,
}

impl From<SpoolError> for Error {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::Limit => Self::FilterFiles,
            SpoolError::Io => Self::TemporaryFile,
        }
    }
}

impl Error {
    /// Why a body did not get from the client to the origin.
    pub fn of_upload(error: CopyError) -> Self {
        match error {
            CopyError::Source(error) => Self::Client(error),
            CopyError::Sink(error) => Self::Origin(error),
            CopyError::TooLarge => Self::BodyTooLarge,
            CopyError::Filter(step) => Self::BodyUnreadable(step),
            CopyError::Panicked(step) => Self::Step(step),
            CopyError::Memory => Self::FilterMemory,
            CopyError::File => Self::TemporaryFile,
        }
    }

    /// Why a body did not get to the client from the origin, or from here.
    pub fn of_download(error: CopyError) -> Self {
        match error {
            CopyError::Source(error) => Self::Origin(error),
            CopyError::Sink(error) => Self::Client(error),
            CopyError::TooLarge => Self::ResponseTooLarge,
            CopyError::Filter(step) => Self::Filter(step),
            CopyError::Panicked(step) => Self::Step(step),
            CopyError::Memory => Self::FilterMemory,
            CopyError::File => Self::TemporaryFile,
        }
    }

    /// Who is at fault.
    pub fn side(&self) -> Side {
        match self {
            Self::Loop
            | Self::NoServer
            | Self::Unresolved
            | Self::Connect(_)
            | Self::ConnectTimeout
            | Self::OriginTls
            | Self::OriginRefused
            | Self::NoUpgrade
            | Self::Origin(_)
            | Self::OriginReset(_)
            | Self::OriginClosed
            | Self::Leftover
            | Self::Response(_)
            | Self::ResponseFraming(_)
            | Self::Interim(_)
            | Self::Switch(_)
            | Self::FirstByteTimeout
            | Self::OriginIdle
            | Self::OriginStall
            | Self::ResponseTooLarge => Side::Upstream,
            Self::Internal
            | Self::Shutdown
            | Self::NoDescriptors
            | Self::Step(_)
            | Self::StepQueue(_)
            | Self::Filter(_)
            | Self::FilterMemory
            | Self::Memory
            | Self::FilterFiles
            | Self::TemporaryFile
            | Self::Aborted(_) => Side::Internal,
            _ => Side::Downstream,
        }
    }

    /// Whether a peer has left where it may, once its response has begun: it has closed its connection, or reset its stream without
    /// a complaint.
    pub fn is_leaving(&self) -> bool {
        use std::io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
        };
        match self {
            Self::Client(error) | Self::Origin(error) => match error {
                LinkError::Io(kind) => matches!(
                    kind,
                    BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
                ),
                LinkError::Reset(reason) => matches!(*reason, h2::Reason::NO_ERROR | h2::Reason::CANCEL),
                _ => false,
            },
            _ => false,
        }
    }

    /// The step of a module that is at fault.
    pub fn step(&self) -> Option<&'static str> {
        match self {
            Self::Step(step)
            | Self::StepQueue(step)
            | Self::BodyUnreadable(step)
            | Self::Filter(step)
            | Self::Aborted(step) => Some(step),
            _ => None,
        }
    }

    /// The label of this kind of error in logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::RequestFraming(_) => "request_framing",
            Self::Target(_) => "target",
            Self::Host(_) | Self::HostCount => "host",
            Self::Pseudo(_) => "pseudo_field",
            Self::Malformed(_) => "header_block",
            Self::TooManyFields => "too_many_fields",
            Self::Expectation => "expectation",
            Self::ConnectNotAllowed => "connect_not_allowed",
            Self::EarlyTunnel => "early_tunnel",
            Self::NoRoute => "no_route",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Rewrite => "rewrite",
            Self::Misdirected => "misdirected",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::Client(_) => "client_connection",
            Self::WriteStall => "write_stall",
            Self::Loop => "loop",
            Self::NoServer => "no_server",
            Self::Unresolved => "unresolved",
            Self::NoDescriptors => "no_descriptors",
            Self::Connect(_) => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::OriginTls => "origin_tls",
            Self::OriginRefused => "origin_refused",
            Self::NoUpgrade => "no_upgrade",
            Self::Origin(_) => "origin_connection",
            Self::OriginReset(_) => "origin_reset",
            Self::OriginClosed => "origin_closed",
            Self::Leftover => "leftover_bytes",
            Self::Response(_) => "response",
            Self::ResponseFraming(_) => "response_framing",
            Self::Interim(_) => "interim_response",
            Self::Switch(_) => "protocol_switch",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::OriginIdle => "origin_idle",
            Self::OriginStall => "origin_stall",
            Self::Step(_) => "step",
            Self::StepQueue(_) => "step_queue",
            Self::BodyUnreadable(_) => "body_unreadable",
            Self::Filter(_) => "filter",
            Self::FilterMemory => "filter_memory",
            Self::Memory => "memory",
            Self::FilterFiles => "filter_files",
            Self::TemporaryFile => "temporary_file",
            Self::ResponseTooLarge => "response_too_large",
            Self::Aborted(_) => "aborted",
            Self::Shutdown => "shutdown",
            Self::Internal => "internal",
        }
    }

    /// The status that tells the client.
    pub fn status(&self) -> u16 {
        match self {
            Self::Request(error) => error.status(),
            Self::RequestFraming(error) => error.status(),
            Self::Target(_)
            | Self::Host(_)
            | Self::HostCount
            | Self::Pseudo(_)
            | Self::Malformed(_)
            | Self::Client(_)
            | Self::EarlyTunnel
            | Self::AmbiguousPath
            | Self::Rewrite
            | Self::BodyUnreadable(_) => 400,
            Self::TooManyFields => 431,
            Self::Expectation => 417,
            Self::ConnectNotAllowed => 405,
            Self::NoRoute => 404,
            Self::Misdirected => 421,
            Self::HeadTimeout | Self::BodyTimeout | Self::WriteStall => 408,
            Self::BodyTooLarge => 413,
            Self::ConnectTimeout | Self::FirstByteTimeout | Self::OriginIdle | Self::OriginStall => 504,
            Self::Loop => 508,
            Self::NoServer
            | Self::NoDescriptors
            | Self::StepQueue(_)
            | Self::FilterMemory
            | Self::Memory
            | Self::FilterFiles
            | Self::TemporaryFile
            | Self::Shutdown => 503,
            Self::Internal | Self::Step(_) | Self::Filter(_) | Self::Aborted(_) => 500,
            _ => 502,
        }
    }

    /// Whether nothing of the request can have reached the origin.
    pub fn is_before_sending(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectTimeout
                | Self::Unresolved
                | Self::OriginTls
                | Self::OriginRefused
        )
    }

    /// Whether no connection to the server could be made.
    pub fn is_about_connecting(&self) -> bool {
        self.is_before_sending() && !matches!(self, Self::OriginRefused)
    }

    /// Whether nothing of a response has come: the origin may have lost the connection before it looked at the request, or
    /// be stuck. A repetition is safe for an idempotent request.
    pub fn is_before_response(&self) -> bool {
        self.is_before_sending()
            || matches!(
                self,
                Self::OriginReset(_) | Self::OriginClosed | Self::Leftover | Self::FirstByteTimeout
            )
    }

    /// Whether the same server would most likely fail again.
    pub fn is_of_the_server(&self) -> bool {
        self.is_about_connecting() || matches!(self, Self::FirstByteTimeout)
    }

    /// Whether a server that took the request has failed on it, so far as can be told. What the origin says it has not
    /// looked at, and what it says it does not do, is no failure. Nor is an answer that is larger than our own limits: it is HTTP.
    pub fn is_failure_of_the_server(&self) -> bool {
        use ResponseError::{HeadTooLarge, LineTooLong, TooManyFields};
        !matches!(self, Self::Response(HeadTooLarge | LineTooLong | TooManyFields))
            && matches!(
                self,
                Self::Origin(_)
                    | Self::OriginReset(_)
                    | Self::OriginClosed
                    | Self::Response(_)
                    | Self::ResponseFraming(_)
                    | Self::Interim(_)
                    | Self::Switch(_)
                    | Self::FirstByteTimeout
                    | Self::OriginStall
            )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn operators_can_look_up_each_kind() {
        let source = include_str!("error.rs");
        let kinds = source.split("pub fn kind").nth(1).and_then(|rest| rest.split("pub fn ").next()).unwrap();
        let kinds: Vec<&str> = kinds.split('"').skip(1).step_by(2).collect();
        assert!(kinds.len() > 40, "{kinds:?}");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
        let page = std::fs::read_to_string(page).unwrap();
        let missing: Vec<_> = kinds.iter().filter(|kind| !page.contains(&format!("`{kind}`"))).collect();
        assert!(missing.is_empty(), "docs/operations.md, \"Errors\": {missing:?}");
    }
}
