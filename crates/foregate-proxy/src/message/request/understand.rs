//! Turns a client's request into the canonical one.

use std::net::SocketAddr;

use foregate_module::FieldsMut;
use foregate_wire::hpack::InspectedBlock;
use foregate_wire::{
    BodyLength, Expectation, HeadLimits, HeaderList, HostError, Method, NameId, RequestError, Slashes,
    Target, TargetForm, Version, connection, parse_authority, request_authority, request_length,
};

use super::Request;
use super::authority::default_port;
use crate::error::Error;

/// The properties of an HTTP/2 connection that the parsing of its heads depends on.
#[derive(Debug, Clone, Copy)]
pub struct HeadTerms {
    /// Set if the connection uses TLS.
    pub secure: bool,
    /// The limits of a head.
    pub limits: HeadLimits,
}

/// Substitutes for the host of an HTTP/1.0 request that names none.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandIn<'a> {
    /// The name that the client sent in its TLS handshake.
    pub name: Option<&'a str>,
    /// The local address of the connection.
    pub local: Option<SocketAddr>,
}

impl Request {
    /// Understands [`Self::head`], received over HTTP/1.
    ///
    /// # Errors
    ///
    /// Any reason for which the request must not be forwarded.
    pub fn understand_h1(&mut self, unnamed: StandIn<'_>) -> Result<(), Error> {
        self.upgrade = None;
        self.websocket_key = None;
        self.keep_alive = false;
        self.length = request_length(&self.head).map_err(Error::RequestFraming)?;
        self.keep_alive = connection::keep_alive(self.head.version, &self.head.headers);
        connection::drop_named_content_fields(&mut self.head.headers);
        self.expect_continue = match connection::expects_continue(&self.head.headers) {
            Expectation::Unknown => return Err(Error::Expectation),
            // A request without a body has nothing to wait for, and HTTP/1.0 knows no 100 (RFC
            // 9110, 10.1.1).
            Expectation::Continue => !self.length.is_empty() && self.head.version == Version::Http11,
            Expectation::None => false,
        };
        if self.head.version == Version::Http10 {
            // The client cannot receive 100 (Continue), so its expectation is not forwarded.
            self.head.headers.remove(NameId::Expect);
        }
        if self.head.method == Method::Connect {
            // A body of CONNECT has no meaning (RFC 9110, section 9.3.6). Bytes that the client sends
            // before the tunnel exists are not forwarded.
            self.length = BodyLength::Empty;
            self.keep_alive = false;
        } else if self.head.version == Version::Http11 {
            self.upgrade = connection::offered(&self.head.headers);
        }
        self.understand_target(unnamed)
    }

    /// A request of our own, with a body of `length` bytes.
    ///
    /// # Errors
    ///
    /// `target` or `authority` is malformed.
    pub fn make(
        method: Method,
        target: &[u8],
        authority: &[u8],
        fields: &[foregate_module::Field],
        length: u64,
    ) -> Result<Self, Error> {
        let mut request = Self::new();
        request.head.version = Version::Http11;
        request.set_method(method);
        if !target.starts_with(b"/") || target.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(Error::Internal);
        }
        request.head.set_target(target);
        request.head.headers.push(b"Host", authority);
        request.understand_target(StandIn::default())?;
        request.authority.as_str().clone_into(&mut request.origin_authority);
        request.head.headers.clear();
        for field in fields {
            request.append(field.name(), field.value());
        }
        request.length = if length == 0 { BodyLength::Empty } else { BodyLength::Fixed(length) };
        Ok(request)
    }

    fn understand_target(&mut self, unnamed: StandIn<'_>) -> Result<(), Error> {
        let target = Target::parse(&self.head.method, self.head.target()).map_err(Error::Target)?;
        let headers = &self.head.headers;
        let named = headers.get(NameId::Host).filter(|_| headers.count(NameId::Host) == 1);
        // Nearly all requests have this form.
        if let (TargetForm::Origin, Some(host)) = (target.form, named) {
            self.authority.read(host, self.secure)?;
            return self.target.read(&target, Slashes::Merge, self.authority.as_str());
        }
        let named =
            request_authority(&self.head, &target, self.authority.text()).map_err(|error| match error {
                HostError::Missing | HostError::Repeated => Error::HostCount,
                error => Error::Host(error),
            })?;
        let port = match (named.map(|authority| authority.port), unnamed) {
            (Some(port), _) => port,
            (None, StandIn { name: Some(name), local }) => {
                parse_authority(name.as_bytes(), self.authority.text()).map_err(Error::Host)?;
                local.map(|local| local.port())
            }
            (None, StandIn { name: None, local: Some(local) }) => {
                let local = local.to_string();
                parse_authority(local.as_bytes(), self.authority.text()).map_err(Error::Host)?.port
            }
            (None, StandIn { name: None, local: None }) => {
                self.authority.clear();
                None
            }
        };
        self.authority.end_host(port, self.secure, &self.head.method);
        self.target.read(&target, Slashes::Merge, self.authority.as_str())?;
        if matches!(target.form, TargetForm::Absolute { .. }) {
            // The target's authority overrules the field (RFC 9112, section 3.2.2), so nothing may use the old
            // value.
            self.head.headers.set_name(b"Host", self.authority.as_str().as_bytes());
        }
        Ok(())
    }

    fn set_method(&mut self, method: Method) {
        self.head.method = method;
        self.has_method = true;
    }

    /// Brings the target into its normal form.
    ///
    /// # Errors
    ///
    /// The path has no normal form.
    pub fn normalise(&mut self, slashes: Slashes) -> Result<(), Error> {
        let target = Target::parse(&self.head.method, self.head.target()).map_err(Error::Target)?;
        self.target.read(&target, slashes, self.authority.as_str())
    }

    /// Understands a request received over HTTP/2 with a well-formed head. `ended` is true if it has no
    /// body. Overwrites the previous request.
    ///
    /// # Errors
    ///
    /// Any reason for which the request must not be forwarded.
    pub fn understand_h2(
        &mut self,
        fields: &InspectedBlock<'_>,
        ended: bool,
        terms: &HeadTerms,
        (decoded, named): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<(), Error> {
        self.head.clear();
        self.has_method = false;
        self.head.version = Version::Http2;
        // The scheme of the connection counts, not the one that the client claims.
        self.secure = terms.secure;
        self.upgrade = None;
        self.websocket_key = None;
        named.clear();
        let (mut is_http, mut is_short, mut has_authority) = (true, true, false);
        fields.fields(decoded, |name, value| match name {
            b":method" => match Method::from_bytes(value) {
                Some(method) => self.set_method(method),
                None => is_short = false,
            },
            b":path" => self.head.set_target(value),
            b":authority" => {
                has_authority = true;
                named.extend_from_slice(value);
            }
            b":protocol" => self.upgrade = Some(value.to_vec()),
            // The scheme is only validated, and not stored.
            b":scheme" => is_http = matches!(value, b"http" | b"https"),
            _ => self.head.headers.push(name, value),
        });
        if !is_http {
            return Err(Error::Pseudo("the scheme is neither http nor https"));
        }
        if fields.count() > terms.limits.fields {
            return Err(Error::TooManyFields);
        }
        if self.head.target().len() > terms.limits.line {
            return Err(Error::Request(RequestError::TargetTooLong));
        }
        if fields.longest() > terms.limits.line {
            return Err(Error::Request(RequestError::LineTooLong));
        }
        // `:protocol` becomes `Upgrade` over HTTP/1, so it must be a token. Only WebSocket is known to
        // mean the same in both (RFC 8441, section 5).
        match &self.upgrade {
            Some(protocol) if protocol != b"websocket" => {
                return Err(Error::Pseudo("the protocol is not websocket"));
            }
            Some(_) => self.head.method = Method::Get,
            None if !is_short => {
                return Err(Error::Pseudo("the method is longer than any known one"));
            }
            None => {}
        }
        join_cookies(&mut self.head.headers);
        self.expect_continue = match connection::expects_continue(&self.head.headers) {
            Expectation::Unknown => return Err(Error::Expectation),
            Expectation::Continue => !ended,
            Expectation::None => false,
        };
        let length = foregate_wire::content_length(&self.head.headers).map_err(Error::RequestFraming)?;
        self.length = match length {
            _ if self.head.method == Method::Connect || self.upgrade.is_some() => BodyLength::Empty,
            // A length of 0 is forwarded only if the client has sent one.
            Some(0) if ended => BodyLength::Fixed(0),
            _ if ended => BodyLength::Empty,
            // The client has not ended the stream yet, so data or trailers may follow. With a
            // length of 0 the origin would have the complete request at once.
            Some(0) | None => BodyLength::Chunked,
            Some(length) => BodyLength::Fixed(length),
        };
        self.keep_alive = true;
        if has_authority && named.is_empty() {
            return Err(Error::Pseudo("the authority is empty"));
        }
        // For CONNECT the authority is the target (RFC 9113, section 8.5).
        if !has_authority && self.head.method == Method::Connect {
            return Err(Error::Pseudo("CONNECT has no authority"));
        }
        self.understand_h2_target(named)
    }

    fn understand_h2_target(&mut self, authority: &[u8]) -> Result<(), Error> {
        let authority = Some(authority).filter(|authority| !authority.is_empty());
        let host = self.head.headers.get(NameId::Host);
        if self.head.headers.count(NameId::Host) > 1 {
            return Err(Error::HostCount);
        }
        let (named, other) = match (authority, host) {
            (Some(authority), host) => (authority, host),
            (None, Some(host)) => (host, None),
            (None, None) => return Err(Error::Pseudo("the authority is missing")),
        };
        let port = parse_authority(named, self.authority.text()).map_err(Error::Host)?.port;
        // If `Host` differs from `:authority`, the request could be routed by one of these names and
        // checked by the other.
        if let Some(host) = other.filter(|host| !host.eq_ignore_ascii_case(named)) {
            let default = default_port(self.secure);
            let mut normal = String::new();
            let same = parse_authority(host, &mut normal).map_err(Error::Host)?.port.unwrap_or(default)
                == port.unwrap_or(default);
            if !same || normal != *self.authority.text() {
                return Err(Error::Pseudo("Host differs from the authority"));
            }
        }
        let is_named = host.is_some();
        self.authority.end_host(port, self.secure, &self.head.method);
        if !is_named {
            // As over HTTP/1, readers of the field find the effective host.
            self.head.headers.push(b"host", self.authority.as_str().as_bytes());
        }
        if self.head.method == Method::Connect {
            self.head.set_target(self.authority.as_str().as_bytes());
        } else if !self.head.target().starts_with(b"/") && self.head.target() != b"*" {
            return Err(Error::Pseudo("the path does not begin with a slash"));
        }
        self.normalise(Slashes::Merge)
    }

    /// Takes the usable parts of a refused HTTP/2 head, for steps that read refused requests.
    pub fn describe_h2(&mut self, head: &HeaderList, secure: bool) {
        self.clear();
        self.head.version = Version::Http2;
        self.secure = secure;
        for field in head.iter() {
            match field.name {
                b":path" => self.head.set_target(field.value),
                b":scheme" => {}
                b":method" if let Some(method) = Method::from_bytes(field.value) => self.set_method(method),
                b":authority" => {
                    match parse_authority(field.value, self.authority.text()).map(|found| found.port) {
                        Ok(port) => self.authority.end_host(port, secure, &self.head.method),
                        Err(_) => {
                            self.authority.clear();
                            self.head.headers.push(field.name, field.value);
                        }
                    }
                }
                _ => self.head.headers.push(field.name, field.value),
            }
        }
    }
}

/// Joins the fields of a split cookie into one, which HTTP/1 requires (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderList) {
    if headers.count(NameId::Cookie) > 1 {
        let joined = headers.get_all(NameId::Cookie).collect::<Vec<_>>().join(&b"; "[..]);
        headers.remove(NameId::Cookie);
        headers.push(b"cookie", &joined);
    }
}
