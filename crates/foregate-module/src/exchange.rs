//! The interface between a server and steps: the state of an exchange, and changes to it.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::fields::{Fields, FieldsMut};
use crate::ids::UpstreamId;

/// One exchange on a server: the proxy, or NGINX. Steps never see this trait; they read [inputs](crate::Input) and
/// return [outputs](crate::Output).
///
/// All bytes of a request are in the understood form: host and path are normalised. The raw target is available as well.
pub trait Exchange {
    /// The client: the peer, or the address that a trusted peer forwarded. `None` for a Unix socket.
    fn client(&self) -> Option<IpAddr>;
    /// The other end of the connection, after a PROXY protocol header.
    fn peer(&self) -> Option<IpAddr>;
    /// The handshake, over TLS.
    fn tls(&self) -> Option<TlsFacts<'_>>;
    /// `http` or `https`.
    fn scheme(&self) -> &str;
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `HTTP/3`.
    fn protocol(&self) -> &str;
    /// The method, as it was sent; empty where a request was refused and none was understood.
    fn method(&self) -> &[u8];
    /// The host: lower case, without port or trailing dot.
    fn host(&self) -> &str;
    /// Host and port, without the scheme's own port.
    fn authority(&self) -> &str;
    /// The path in its normal form; `*` for a server-wide OPTIONS, empty for CONNECT.
    fn path(&self) -> &[u8];
    /// The other paths, in normal form, as which servers may read the path. Requests are refused or passed
    /// by them. `None` if there are too many to check. Default: none.
    fn other_paths(&self) -> Option<&[Vec<u8>]> {
        Some(&[])
    }
    /// Reports that a condition has another result for one of these paths, so that the request must not reach an origin. The
    /// default does nothing.
    fn doubt_path(&self) {}
    /// The text after the first `?`.
    fn query(&self) -> Option<&[u8]>;
    /// The target as it was sent.
    fn raw_target(&self) -> &[u8];
    /// The fields of the request.
    fn request_fields(&self) -> &dyn Fields;
    /// The request as its client sent it. By default the canonical request, where both agree.
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
    /// The start of the request's body that was received for the steps, and whether that is all of it.
    fn request_body(&self) -> (&[u8], bool);
    /// The length of that start in bytes. It is also known if the start is in a file, which is only available to steps that
    /// read it.
    fn request_body_length(&self) -> usize {
        self.request_body().0.len()
    }
    /// Why a step that reads that start has not run, or has not got all of it that it asked for, if so: the kind of an error.
    /// The request may go on all the same. Default: none.
    fn request_body_unseen(&self) -> Option<&'static str> {
        None
    }
    /// The first host of the site, as the configuration writes it; empty where there is none.
    fn site(&self) -> &str;
    /// The pattern of the route; empty where there is none.
    fn route(&self) -> &str;
    /// The time, the same for all steps of a phase.
    fn now(&self) -> Now;
    /// Returns true if filters of bodies hold so much together that optional ones should be skipped. Default: false.
    fn memory_is_short(&self) -> bool {
        false
    }
    /// A function that a heavy step calls now and then, see [`GiveWay`](crate::GiveWay). By default it does nothing.
    fn give_way(&self) -> fn() {
        || {}
    }
    /// A number that cannot be guessed; different at each call.
    fn random(&self) -> u64;

    /// The status of the response, once there is one.
    fn status(&self) -> Option<u16>;
    /// The fields of the response; none before there is one.
    fn response_fields(&self) -> &dyn Fields;
    /// The source of the response.
    fn source(&self) -> Source<'_>;
    /// The start of the response's body that was received for the steps, and whether that is all of it. By default
    /// nothing.
    fn response_body(&self) -> (&[u8], bool) {
        (&[], false)
    }
    /// The outcome of the exchange; complete in the phase `log`.
    fn summary(&self) -> Summary;

    /// Sets the effective client address.
    fn set_client(&mut self, client: IpAddr);
    /// Changes the scheme in which the client is taken to have asked: `https`, or `http`.
    fn set_secure(&mut self, secure: bool);
    /// Changes path and query of the request; a target that is not in normal form is normalised, or refused by
    /// returning false.
    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool;
    /// Chooses another upstream.
    fn set_upstream(&mut self, upstream: UpstreamId);
    /// The fields of the request, to change them.
    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut;
    /// The fields of the response, to change them.
    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut;
    /// Lowers the most that the request's body may have, bytes.
    fn limit_request_body(&mut self, bytes: u64);
    /// Sets the trace that the request belongs to. By default it is dropped: the platform records no spans.
    fn set_trace(&mut self, _: TraceContext) {}
}

/// The trace of a request (W3C Trace Context), and the span of this hop in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of this hop's span.
    pub span: [u8; 8],
    /// The id of the span that has caused the request; `None` where the trace begins here.
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
    /// The protocol, such as `HTTP/1.1`. For requests that are not HTTP: the text in its place, or nothing.
    pub protocol: &'r [u8],
    /// The fields in their order, with the case of their names, those of the connection included.
    pub fields: &'r dyn Fields,
    /// The other end of the connection, after a PROXY protocol header; `None` for a Unix socket.
    pub client: Option<SocketAddr>,
    /// The end of the connection that the client connected to; `None` for a Unix socket.
    pub server: Option<SocketAddr>,
    /// Why the request was refused before anything looked at it; only in the phase `log`.
    pub refusal: Option<Refusal<'r>>,
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = alloc::string::String::from_utf8_lossy;
        write!(f, "{} {} {}", text(self.method), text(self.target), text(self.protocol))
    }
}

/// The reason for refusing a request before it had a route: it is malformed, or contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal<'r> {
    /// The kind of the error, as the access log calls it.
    pub kind: &'static str,
    /// The error in words.
    pub reason: &'r str,
    /// The bytes of the head, where it could not be parsed: at most as many as a head may have. Empty otherwise.
    pub head: &'r [u8],
}

/// The facts about a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsFacts<'r> {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'r str,
    /// The name that the client asked for (SNI).
    pub server_name: Option<&'r str>,
    /// Set if the client has presented a certificate that was verified.
    pub client_verified: bool,
    /// The subject of that certificate, escaped as RFC 4514 has it, so that no two names are the same text.
    pub client_subject: Option<&'r str>,
}

/// A time: the wall clock, and a clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds since the start of 1970, UTC.
    pub unix_ms: u64,
    /// Milliseconds since some moment in the life of the process; never goes back.
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
    /// There is none yet.
    Nobody,
    /// An upstream.
    Upstream,
    /// The route itself, by `respond`.
    Route,
    /// A step.
    Step {
        /// Its name.
        name: &'static str,
        /// Set if [the body is meant](crate::Response::meant).
        meant: bool,
    },
    /// The server, because of an error of this kind.
    Error(&'r str),
}

/// The outcome of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the response's body, as they were sent.
    pub bytes_out: u64,
    /// From the first byte of the request on.
    pub duration: Duration,
}
