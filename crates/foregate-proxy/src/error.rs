//! Errors of an exchange, and the one table of their facts: side at fault, kind, status, whether a
//! repetition is safe.

use foregate_wire::hpack::MalformedReason;
use foregate_wire::{FramingError, HostError, RequestError, ResponseError, TargetError};

use crate::limits::spool::SpoolError;
use crate::transport::outcome::{CopyError, LinkError};

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
    /// The name for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Downstream => "downstream",
            Self::Upstream => "upstream",
            Self::Internal => "internal",
        }
    }
}

/// The metric label of responses after which the origin sent excess bytes. No exchange fails because of them.
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
    /// The request's target is invalid.
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
    /// The client's HTTP/2 head is malformed.
    #[error("malformed request: {0}")]
    Malformed(MalformedReason),
    /// More fields than allowed.
    #[error("too many fields in the request")]
    TooManyFields,
    /// An expectation other than `100-continue`.
    #[error("the expectation cannot be met")]
    Expectation,
    /// A CONNECT that the route does not allow.
    #[error("CONNECT is not allowed here")]
    ConnectNotAllowed,
    /// Bytes for a tunnel arrived before the tunnel was accepted.
    #[error("nothing may follow CONNECT before it is answered")]
    EarlyTunnel,
    /// No site or route for the request.
    #[error("no site or route for this request")]
    NoRoute,
    /// A path that servers may read differently, so that another route would match or a condition would have another
    /// result.
    #[error(
        "the path belongs to another route, or to other conditions, where `%2F`, `%5C`, `;` or `//` is read otherwise"
    )]
    AmbiguousPath,
    /// A step has set an invalid path, or one that leads out of its prefix.
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
    /// The request has passed through this proxy too often.
    #[error("the request goes round in circles")]
    Loop,
    /// A request on the listener of the shield that does not come from another node.
    #[error("the request does not come from a node of the shield")]
    ShieldRefused,
    /// This node of the shield does not serve the request, because its configuration differs or purges are missing.
    #[error("this node of the shield does not serve the request")]
    ShieldDeclined,
    /// The request waited for the fetch of another request, and that fetch has failed.
    #[error("the fetch of another request for the same object has failed")]
    SharedFetch,
    /// The client accepts only a stored response, and there is none.
    #[error("nothing is stored for this request")]
    NotCached,
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
    /// On a reused connection, bytes of an earlier response came before the response.
    #[error("bytes of an earlier response stood where the response was to begin")]
    Leftover,
    /// The origin's head is not HTTP.
    #[error("malformed response: {0}")]
    Response(ResponseError),
    /// The response's length cannot be told.
    #[error("malformed response: {0}")]
    ResponseFraming(FramingError),
    /// More interim responses than allowed, or an unexpected one.
    #[error("malformed response: {0}")]
    Interim(&'static str),
    /// The origin switches protocols, but not as requested.
    #[error("malformed response: {0}")]
    Switch(&'static str),
    /// The origin did not answer in time.
    #[error("the origin did not answer in time")]
    FirstByteTimeout,
    /// The origin did not answer in the time for one attempt. Another attempt may follow.
    #[error("the origin did not answer in the time for one attempt")]
    TryTimeout,
    /// The exchange took longer than its route allows.
    #[error("the exchange took longer than the route allows")]
    TotalTimeout,
    /// The response is dropped for another attempt.
    #[error("the response is dropped for another attempt")]
    Unwanted,
    /// The origin leaves all its requests unanswered, while other servers answer.
    #[error("the origin answers none of its requests")]
    OriginHangs,
    /// The origin fell silent within its response.
    #[error("the origin fell silent in mid-response")]
    OriginIdle,
    /// The origin does not take the request in time.
    #[error("the origin does not read the request")]
    OriginStall,
    /// The step of a module with this name has panicked, or is not run because it has panicked too often.
    #[error("the step {0} has failed")]
    Step(&'static str),
    /// The queue for the heavy work of a step is full; its name.
    #[error("the queue for the step {0} is full")]
    StepQueue(&'static str),
    /// The response's body is longer than a module allows.
    #[error("the response body is too large")]
    ResponseTooLarge,
    /// The filter of the step with this name cannot read the request's body.
    #[error("the request body cannot be read")]
    BodyUnreadable(&'static str),
    /// The filter of the step with this name has broken a body off.
    #[error("the filter of {0} has broken the body off")]
    Filter(&'static str),
    /// Filters of bodies hold as much as they may.
    #[error("no memory for the filters of the body")]
    FilterMemory,
    /// Peers make the process hold so much that new requests are refused.
    #[error("no memory for the request")]
    Memory,
    /// The most requests are in flight, and the queue is full.
    #[error("too many requests are in flight, and the queue is full")]
    QueueFull,
    /// The request waited too long in a queue.
    #[error("the request has waited too long for its turn")]
    QueueTimeout,
    /// The client has as many requests in flight as it may.
    #[error("too many requests of this client are in flight")]
    ClientRequests,
    /// Bodies in temporary files already take as much room as they may.
    #[error("no room for the body in temporary files")]
    FilterFiles,
    /// The temporary file of a body could not be made, written or read.
    #[error("the body could not be kept in a temporary file")]
    TemporaryFile,
    /// There is no file for the path.
    #[error("there is no file for this path")]
    NoFile,
    /// A method other than GET and HEAD for a file.
    #[error("files are only read: use GET or HEAD")]
    FileMethod,
    /// The process is not allowed to read the file.
    #[error("the file cannot be read")]
    FileForbidden,
    /// The file could not be read, or has become shorter meanwhile.
    #[error("reading the file failed")]
    FileRead,
    /// The disk of the file is too slow at present.
    #[error("the disk of the file is too slow at present")]
    FileBusy,
    /// The step of a module with this name has broken the request off.
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
            CopyError::Document => Self::FileRead,
        }
    }

    /// Why a body did not get to the client from the origin, or from here.
    pub fn of_download(error: CopyError) -> Self {
        match error {
            CopyError::Source(LinkError::File) => Self::TemporaryFile,
            CopyError::Source(error) => Self::Origin(error),
            CopyError::Sink(error) => Self::Client(error),
            CopyError::TooLarge => Self::ResponseTooLarge,
            CopyError::Filter(step) => Self::Filter(step),
            CopyError::Panicked(step) => Self::Step(step),
            CopyError::Memory => Self::FilterMemory,
            CopyError::File => Self::TemporaryFile,
            CopyError::Document => Self::FileRead,
        }
    }

    /// The row of the table of errors. Each variant is listed: without a catch-all arm, a new variant does not compile
    /// until it has a row.
    fn row(&self) -> Row {
        use Repetition::{Connecting, Never, Silent, Unanswered, Unprocessed};
        use ResponseError::{HeadTooLarge, LineTooLong, TooManyFields};
        use Side::{Downstream, Internal, Upstream};
        match *self {
            Self::Request(error) => Row::new(Downstream, "request", error.status(), Never),
            Self::RequestFraming(error) => Row::new(Downstream, "request_framing", error.status(), Never),
            Self::Target(_) => Row::new(Downstream, "target", 400, Never),
            Self::Host(_) | Self::HostCount => Row::new(Downstream, "host", 400, Never),
            Self::Pseudo(_) => Row::new(Downstream, "pseudo_field", 400, Never),
            Self::Malformed(_) => Row::new(Downstream, "header_block", 400, Never),
            Self::TooManyFields => Row::new(Downstream, "too_many_fields", 431, Never),
            Self::Expectation => Row::new(Downstream, "expectation", 417, Never),
            Self::ConnectNotAllowed => Row::new(Downstream, "connect_not_allowed", 405, Never),
            Self::EarlyTunnel => Row::new(Downstream, "early_tunnel", 400, Never),
            Self::NoRoute => Row::new(Downstream, "no_route", 404, Never),
            Self::NoFile => Row::new(Downstream, "no_file", 404, Never),
            Self::FileMethod => Row::new(Downstream, "file_method", 405, Never),
            Self::AmbiguousPath => Row::new(Downstream, "ambiguous_path", 400, Never),
            Self::Rewrite => Row::new(Downstream, "rewrite", 400, Never),
            Self::Misdirected => Row::new(Downstream, "misdirected", 421, Never),
            Self::HeadTimeout => Row::new(Downstream, "head_timeout", 408, Never),
            Self::BodyTimeout => Row::new(Downstream, "body_timeout", 408, Never),
            Self::BodyTooLarge => Row::new(Downstream, "body_too_large", 413, Never),
            Self::Client(error) => Row::new(Downstream, "client_connection", 400, Never).link(error),
            Self::WriteStall => Row::new(Downstream, "write_stall", 408, Never),
            Self::BodyUnreadable(step) => Row::new(Downstream, "body_unreadable", 400, Never).step(step),

            Self::ShieldRefused => Row::new(Downstream, "shield_refused", 403, Never),
            Self::ShieldDeclined => Row::new(Downstream, "shield_declined", 503, Never),
            Self::NotCached => Row::new(Downstream, "not_cached", 504, Never),

            Self::SharedFetch => Row::new(Upstream, "shared_fetch", 502, Never),
            Self::Loop => Row::new(Upstream, "loop", 508, Never),
            Self::NoServer => Row::new(Upstream, "no_server", 503, Never),
            Self::Unresolved => Row::new(Upstream, "unresolved", 502, Connecting),
            Self::Connect(_) => Row::new(Upstream, "connect", 502, Connecting),
            Self::ConnectTimeout => Row::new(Upstream, "connect_timeout", 504, Connecting),
            Self::OriginTls => Row::new(Upstream, "origin_tls", 502, Connecting),
            Self::OriginRefused => Row::new(Upstream, "origin_refused", 502, Unprocessed),
            Self::NoUpgrade => Row::new(Upstream, "no_upgrade", 502, Never),
            Self::Origin(error) => {
                Row::new(Upstream, "origin_connection", 502, Never).link(error).blames_server()
            }
            Self::OriginReset(_) => Row::new(Upstream, "origin_reset", 502, Unanswered).blames_server(),
            Self::OriginClosed => Row::new(Upstream, "origin_closed", 502, Unanswered).blames_server(),
            Self::Leftover => Row::new(Upstream, "leftover_bytes", 502, Unanswered),
            // A head that only exceeds our own limits is valid, so the server is not to blame.
            Self::Response(HeadTooLarge | LineTooLong | TooManyFields) => {
                Row::new(Upstream, "response", 502, Never)
            }
            Self::Response(_) => Row::new(Upstream, "response", 502, Never).blames_server(),
            Self::ResponseFraming(_) => Row::new(Upstream, "response_framing", 502, Never).blames_server(),
            Self::Interim(_) => Row::new(Upstream, "interim_response", 502, Never).blames_server(),
            Self::Switch(_) => Row::new(Upstream, "protocol_switch", 502, Never).blames_server(),
            Self::FirstByteTimeout => Row::new(Upstream, "first_byte_timeout", 504, Silent).blames_server(),
            Self::TryTimeout => Row::new(Upstream, "try_timeout", 504, Silent).blames_server(),
            Self::TotalTimeout => Row::new(Upstream, "total_timeout", 504, Never),
            Self::Unwanted => Row::new(Internal, "unwanted", 500, Never),
            Self::OriginHangs => Row::new(Upstream, "origin_hangs", 504, Silent).blames_server(),
            Self::OriginIdle => Row::new(Upstream, "origin_idle", 504, Never),
            Self::OriginStall => Row::new(Upstream, "origin_stall", 504, Never).blames_server(),
            Self::ResponseTooLarge => Row::new(Upstream, "response_too_large", 502, Never),

            Self::NoDescriptors => Row::new(Internal, "no_descriptors", 503, Never),
            Self::Step(step) => Row::new(Internal, "step", 500, Never).step(step),
            Self::StepQueue(step) => Row::new(Internal, "step_queue", 503, Never).step(step),
            Self::Filter(step) => Row::new(Internal, "filter", 500, Never).step(step),
            Self::FilterMemory => Row::new(Internal, "filter_memory", 503, Never),
            Self::QueueFull => Row::new(Internal, "queue_full", 503, Never),
            Self::QueueTimeout => Row::new(Internal, "queue_timeout", 503, Never),
            Self::ClientRequests => Row::new(Downstream, "client_requests", 503, Never),
            Self::Memory => Row::new(Internal, "memory", 503, Never),
            Self::FilterFiles => Row::new(Internal, "filter_files", 503, Never),
            Self::TemporaryFile => Row::new(Internal, "temporary_file", 503, Never),
            Self::FileForbidden => Row::new(Internal, "file_forbidden", 403, Never),
            Self::FileRead => Row::new(Internal, "file_read", 500, Never),
            Self::FileBusy => Row::new(Internal, "file_busy", 503, Never),
            Self::Aborted(step) => Row::new(Internal, "aborted", 500, Never).step(step),
            Self::Shutdown => Row::new(Internal, "shutdown", 503, Never),
            Self::Internal => Row::new(Internal, "internal", 500, Never),
        }
    }

    /// The side at fault.
    pub fn side(&self) -> Side {
        self.row().side
    }

    /// The label of this kind of error in logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.row().kind
    }

    /// The status that tells the client.
    pub fn status(&self) -> u16 {
        self.row().status
    }

    /// The name of the module step at fault, if a step is.
    pub fn step(&self) -> Option<&'static str> {
        self.row().step
    }

    /// Returns true if a peer has closed its connection, or has reset its stream without an error. Once the response has
    /// begun, a peer may do that.
    pub fn is_leaving(&self) -> bool {
        self.row().link.is_some_and(LinkError::is_leaving)
    }

    /// Returns true if nothing of the request can have reached the origin.
    pub fn is_before_sending(&self) -> bool {
        matches!(self.row().repetition, Repetition::Connecting | Repetition::Unprocessed)
    }

    /// Returns true if no connection to the server could be made.
    pub fn is_about_connecting(&self) -> bool {
        self.row().repetition == Repetition::Connecting
    }

    /// Returns true if no response has begun, so that it is safe to repeat an idempotent request. The origin may have
    /// lost the connection before it read the request, or it may hang.
    pub fn is_before_response(&self) -> bool {
        self.row().repetition != Repetition::Never
    }

    /// Returns true if the same server would most likely fail again.
    pub fn is_of_the_server(&self) -> bool {
        matches!(self.row().repetition, Repetition::Connecting | Repetition::Silent)
    }

    /// Returns true if the server received the request and failed on it. A request that the origin declares unprocessed or
    /// unsupported is no failure.
    pub fn is_failure_of_the_server(&self) -> bool {
        self.row().blames_server
    }
}

/// The safety of repeating a request after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repetition {
    /// No: a response has begun, or another attempt would end in the same way.
    Never,
    /// Any request may be repeated, because there was no connection to the server. An attempt at the same server would
    /// most likely fail again.
    Connecting,
    /// Any request may be repeated: the origin has not processed it.
    Unprocessed,
    /// An idempotent request may be repeated: no response has begun, but the origin may have begun to process the request.
    Unanswered,
    /// As [`Self::Unanswered`], but the same server would most likely not answer again.
    Silent,
}

/// The facts of one kind of error.
#[derive(Debug, Clone, Copy)]
struct Row {
    side: Side,
    kind: &'static str,
    status: u16,
    repetition: Repetition,
    /// True if the server received the request and failed on it.
    blames_server: bool,
    step: Option<&'static str>,
    /// The failure of the connection or stream.
    link: Option<LinkError>,
}

impl Row {
    const fn new(side: Side, kind: &'static str, status: u16, repetition: Repetition) -> Self {
        Self { side, kind, status, repetition, blames_server: false, step: None, link: None }
    }

    const fn blames_server(self) -> Self {
        Self { blames_server: true, ..self }
    }

    const fn step(self, step: &'static str) -> Self {
        Self { step: Some(step), ..self }
    }

    const fn link(self, error: LinkError) -> Self {
        Self { link: Some(error), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn operators_can_look_up_each_kind() {
        let source = include_str!("error.rs");
        let table = source.split("fn row(").nth(1).and_then(|rest| rest.split("pub fn ").next()).unwrap();
        let kinds: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
        assert!(kinds.len() > 40, "{kinds:?}");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
        let page = std::fs::read_to_string(page).unwrap();
        let missing: Vec<_> = kinds.iter().filter(|kind| !page.contains(&format!("`{kind}`"))).collect();
        assert!(missing.is_empty(), "docs/operations.md, \"Errors\": {missing:?}");
    }
}
