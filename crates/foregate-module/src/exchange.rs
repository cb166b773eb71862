//! The interface between a server and steps: the state of an exchange, and changes to it.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::fields::{Fields, FieldsMut};
use crate::ids::UpstreamId;

/// One exchange on a server: a request and its response. The server may be the proxy or NGINX. Steps never see this
/// trait: they read [inputs](crate::Input) and return [outputs](crate::Output).
///
/// The parts of a request are in the form that the server has parsed: host and path are normalised. The raw target is
/// available as well.
pub trait Exchange {
    /// The address of the client: that of the peer, or the one that a trusted peer forwarded. `None` for a Unix socket.
    fn client(&self) -> Option<IpAddr>;
    /// The address of the other end of the connection. A PROXY protocol header replaces it.
    fn peer(&self) -> Option<IpAddr>;
    /// The facts about the TLS handshake; `None` without TLS.
    fn tls(&self) -> Option<TlsFacts<'_>>;
    /// `http` or `https`.
    fn scheme(&self) -> &str;
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `HTTP/3`.
    fn protocol(&self) -> &str;
    /// The method as it was sent; empty if the request was refused before its method was parsed.
    fn method(&self) -> &[u8];
    /// The host: lower case, without port or trailing dot.
    fn host(&self) -> &str;
    /// The host, and the port unless it is the default port of the scheme.
    fn authority(&self) -> &str;
    /// The path in its normal form; `*` for a server-wide OPTIONS, empty for CONNECT.
    fn path(&self) -> &[u8];
    /// Other interpretations of the path: servers may take it for one of these paths, which are in normal form. Conditions
    /// are checked for these paths too. `None` if there are too many to check. Default: no other paths.
    fn other_paths(&self) -> Option<&[Vec<u8>]> {
        Some(&[])
    }
    /// Reports that a condition has another result for one of [`other_paths`](Self::other_paths), so that the request must
    /// not reach an origin. The default does nothing.
    fn doubt_path(&self) {}
    /// The query: the text after the first `?`; `None` without `?`.
    fn query(&self) -> Option<&[u8]>;
    /// The target as it was sent.
    fn raw_target(&self) -> &[u8];
    /// The fields of the request.
    fn request_fields(&self) -> &dyn Fields;
    /// The request as its client sent it. The default returns the parsed request.
    fn received(&self) -> Received<'_> {
        Received {
            method: self.method(),
            target: self.raw_target(),
            protocol: self.protocol().as_bytes(),
            fields: self.request_fields(),
            client: self.peer().map(|address| SocketAddr::new(address, 0)),
            server: None,
            refusal: None,
        }
    }
    /// The announced length of the request's body; 0 for none.
    fn request_length(&self) -> Option<u64>;
    /// The start of the request's body that was received for the steps, and true if that is the whole body.
    fn request_body(&self) -> (&[u8], bool);
    /// The length in bytes of the start of the request's body that was received for the steps. It is also known if that
    /// start is in a file. Only steps that read the body get the content of the file.
    fn request_body_length(&self) -> usize {
        self.request_body().0.len()
    }
    /// If a step did not get as much of the request's body as it asked for, or did not run: the kind of the error that
    /// caused this. The request may continue all the same. Default: `None`.
    fn request_body_unseen(&self) -> Option<&'static str> {
        None
    }
    /// The first host of the site, as it is written in the configuration; empty without a site.
    fn site(&self) -> &str;
    /// The pattern of the route; empty without a route.
    fn route(&self) -> &str;
    /// The [version](crate::Plan::version) of the route's plan; 0 for platforms whose validators do not tell versions
    /// apart. Default: 0.
    fn plan_version(&self) -> u32 {
        0
    }
    /// The current time, which is the same for all steps of a phase.
    fn now(&self) -> Now;
    /// Returns true if all body filters together hold so much memory that optional filters should be skipped. Default:
    /// false.
    fn memory_is_short(&self) -> bool {
        false
    }
    /// A function that a heavy step calls from time to time: see [`GiveWay`](crate::GiveWay). The default does nothing.
    fn give_way(&self) -> fn() {
        || {}
    }
    /// A random number that cannot be guessed. Each call returns another number.
    fn random(&self) -> u64;

    /// The status of the response, once there is one.
    fn status(&self) -> Option<u16>;
    /// The fields of the response; empty before there is a response.
    fn response_fields(&self) -> &dyn Fields;
    /// The source of the response.
    fn source(&self) -> Source<'_>;
    /// The start of the response's body that was received for the steps, and true if that is the whole body. Default:
    /// empty.
    fn response_body(&self) -> (&[u8], bool) {
        (&[], false)
    }
    /// The outcome of the exchange. It is complete only in the phase `log`.
    fn summary(&self) -> Summary;

    /// Sets the effective client address.
    fn set_client(&mut self, client: IpAddr);
    /// Sets the effective scheme of the request: `https` for true, `http` for false.
    fn set_secure(&mut self, secure: bool);
    /// Changes path and query of the request. A path that is not in normal form is normalised. Returns false if it is
    /// refused.
    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool;
    /// Chooses another upstream.
    fn set_upstream(&mut self, upstream: UpstreamId);
    /// The fields of the request, to change them.
    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut;
    /// The fields of the response, to change them.
    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut;
    /// Lowers the limit on the length of the request's body, bytes.
    fn limit_request_body(&mut self, bytes: u64);
    /// Sets the trace that the request belongs to. The default does nothing, for platforms that record no spans.
    fn set_trace(&mut self, _: TraceContext) {}
}

/// The trace of a request (W3C Trace Context), and the span of this hop in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of this hop's span.
    pub span: [u8; 8],
    /// The id of the span that has caused the request; `None` if the trace begins here.
    pub parent: Option<[u8; 8]>,
    /// The flags of `traceparent`.
    pub flags: u8,
}

impl TraceContext {
    /// The flag of a trace that is recorded.
    pub const SAMPLED: u8 = 1;

    /// Returns true if the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & Self::SAMPLED != 0
    }
}

/// A request as its client sent it, before steps or the platform changed or removed anything; see
/// [`ReceivedRequest`](crate::ReceivedRequest).
#[derive(Clone, Copy)]
pub struct Received<'r> {
    /// The method.
    pub method: &'r [u8],
    /// The target.
    pub target: &'r [u8],
    /// The protocol, such as `HTTP/1.1`. If the request is not valid HTTP, the text in the place of the protocol, or
    /// nothing.
    pub protocol: &'r [u8],
    /// All fields in their order, including those of the connection. The case of their names is unchanged.
    pub fields: &'r dyn Fields,
    /// The address of the other end of the connection, which a PROXY protocol header replaces; `None` for a Unix socket.
    pub client: Option<SocketAddr>,
    /// The address that the client connected to; `None` for a Unix socket.
    pub server: Option<SocketAddr>,
    /// The reason why the request was refused before it had a route. Set only in the phase `log`.
    pub refusal: Option<Refusal<'r>>,
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = alloc::string::String::from_utf8_lossy;
        write!(f, "{} {} {}", text(self.method), text(self.target), text(self.protocol))
    }
}

/// The reason why a request was refused before it had a route: it is malformed, or its parts contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal<'r> {
    /// The kind of the error, as the access log calls it.
    pub kind: &'static str,
    /// The error in words.
    pub reason: &'r str,
    /// The received bytes of a head that could not be parsed, up to the maximum length of a head. Empty otherwise.
    pub head: &'r [u8],
}

/// The facts about a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsFacts<'r> {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'r str,
    /// The name that the client asked for (SNI).
    pub server_name: Option<&'r str>,
    /// True if the client has presented a certificate that was verified.
    pub client_verified: bool,
    /// The subject of the client's certificate, escaped by RFC 4514, so that different names never give the same text.
    pub client_subject: Option<&'r str>,
}

/// A time: the wall clock, and a clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds since the start of 1970, UTC.
    pub unix_ms: u64,
    /// Milliseconds since an arbitrary moment in the life of the process. This time never goes back.
    pub steady_ms: u64,
}

impl Now {
    /// Seconds since the start of 1970, UTC.
    pub fn unix_seconds(self) -> u64 {
        self.unix_ms / 1000
    }
}

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'r> {
    /// There is no response yet.
    Nobody,
    /// An upstream.
    Upstream,
    /// The key `respond` of the route.
    Route,
    /// A step.
    Step {
        /// Its name.
        name: &'static str,
        /// True if [the body is meant](crate::Response::meant) for the client.
        meant: bool,
    },
    /// The server, which made the response because of an error of this kind.
    Error(&'r str),
}

/// The outcome of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// The length of the request's body, bytes.
    pub bytes_in: u64,
    /// The length of the response's body as it was sent, bytes.
    pub bytes_out: u64,
    /// The time since the first byte of the request.
    pub duration: Duration,
}
