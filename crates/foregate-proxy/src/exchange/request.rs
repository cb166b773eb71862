//! The canonical request: what routing, rules, cache and forwarding all read.
//!
//! What goes to the origin is serialised from it and never copied from the client's bytes.

use std::net::SocketAddr;

use foregate_module::{Fields, FieldsMut, Text};
use foregate_wire::{
    BodyLength, Expectation, HeadLimits, HeaderList, Method, NameId, RequestError, RequestHead, Slashes,
    Target, TargetForm, Version, connection, normalize_path, normalize_query, parse_authority,
    request_length,
};
use h2::ext::Protocol;
use http::request::Parts;

use crate::error::Error;
use crate::link::fields::{self, is_spelling};
use crate::settings;

/// The fields in which proxies tell who the client is (RFC 7239 and what was used before it).
const CLIENT_CLAIMS: [NameId; 5] = [
    NameId::Forwarded,
    NameId::XForwardedFor,
    NameId::XForwardedProto,
    NameId::XForwardedHost,
    NameId::XRealIp,
];

/// How we call ourselves in `Via`.
const OWN_NAME: &[u8] = b" foregate";
/// How many servers of that name a request may have passed. An upstream that leads back here would have it go round until its
/// head is too large.
const HOPS_MOST: usize = 10;

/// A request that has been understood. Its memory is used again for the next request of a connection.
#[derive(Debug)]
pub struct Request {
    /// As it was received; the fields are edited on the way to the origin.
    pub head: RequestHead,
    /// How the body is framed.
    pub length: BodyLength,
    /// The client waits for a 100 before it sends the body.
    pub expect_continue: bool,
    /// The protocol that the connection or stream is to be switched to.
    pub upgrade: Option<Vec<u8>>,
    /// The key that an HTTP/1 origin needs when the client's handshake had none (RFC 8441, section 5.1).
    pub websocket_key: Option<String>,
    /// Whether the client's connection may serve another request after this one.
    pub keep_alive: bool,
    secure: bool,
    authority: String,
    host_len: usize,
    /// What the last Host was understood as: most requests of a connection have the same.
    last_host: LastHost,
    told: Told,
    target: Vec<u8>,
    path_len: usize,
    /// The authority that the origin is told, where it is not the client's.
    origin_authority: String,
    /// Which of [`CLIENT_CLAIMS`] a module has set, one bit each.
    claimed: u8,
    /// The length of the fields' memory before a step added any: what lies behind comes from steps.
    pub sent: usize,
    /// Whether a field's name has a `_`; `None` until a step's change asks.
    underscores: Option<bool>,
}

/// A host with its port as it came, and what that was understood as. Empty before the first.
#[derive(Debug, Default)]
struct LastHost {
    raw: Vec<u8>,
    secure: bool,
    authority: String,
    host_len: usize,
}

/// What an origin is told of a client and how its request came, and the fields that say so. Most requests of a connection have
/// them in common.
#[derive(Debug, Default)]
struct Told {
    client: String,
    secure: bool,
    version: Version,
    authority: String,
    fields: HeaderList,
}

impl Told {
    fn fields(&mut self, client: &str, secure: bool, version: Version, authority: &str) -> &HeaderList {
        let same = self.client == client && self.secure == secure && self.version == version;
        if !same || self.authority != authority || self.fields.is_empty() {
            self.client.clear();
            self.client.push_str(client);
            self.authority.clear();
            self.authority.push_str(authority);
            (self.secure, self.version) = (secure, version);
            self.fields.clear();
            for id in CLIENT_CLAIMS {
                claim(&mut self.fields, id, false, client, secure, authority);
            }
            self.fields.push_id(NameId::Via, via(version));
        }
        &self.fields
    }
}

/// Adds one of [`CLIENT_CLAIMS`] if there is something to say in it, or if it was `asked` for.
fn claim(list: &mut HeaderList, id: NameId, asked: bool, client: &str, secure: bool, authority: &str) {
    match id {
        // Only who asks for it gets it: most origins do not look at it.
        NameId::XRealIp if asked && !client.is_empty() => list.push_id(id, client.as_bytes()),
        NameId::XForwardedFor if !client.is_empty() => list.push_id(id, client.as_bytes()),
        NameId::XForwardedProto => list.push_id(id, if secure { b"https" } else { b"http" }),
        NameId::XForwardedHost => list.push_id(id, authority.as_bytes()),
        _ => {}
    }
}

/// How we say which way a request came (RFC 9110, section 7.6.3).
fn via(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"1.0 foregate",
        Version::Http11 => b"1.1 foregate",
        Version::Http2 => b"2 foregate",
        Version::Http3 => b"3 foregate",
    }
}

impl LastHost {
    /// Writes the normal form of a host with its port to `out`; how much of that is the host.
    fn read(&mut self, raw: &[u8], secure: bool, out: &mut String) -> Result<usize, Error> {
        if raw != self.raw || secure != self.secure || raw.is_empty() {
            self.raw.clear();
            let port = parse_authority(raw, &mut self.authority).map_err(Error::Host)?.port;
            self.host_len = self.authority.len();
            push_port(&mut self.authority, port, secure, &Method::Get);
            self.raw.extend_from_slice(raw);
            self.secure = secure;
        }
        out.clone_from(&self.authority);
        Ok(self.host_len)
    }
}

impl Request {
    /// A request of which nothing is known yet.
    pub fn new() -> Self {
        Self {
            head: RequestHead::new(),
            length: BodyLength::Empty,
            expect_continue: false,
            upgrade: None,
            websocket_key: None,
            keep_alive: false,
            secure: false,
            authority: String::new(),
            host_len: 0,
            last_host: LastHost::default(),
            told: Told::default(),
            target: Vec::new(),
            path_len: 0,
            origin_authority: String::new(),
            claimed: 0,
            sent: usize::MAX,
            underscores: None,
        }
    }

    /// Understands [`Self::head`], received over HTTP/1.
    ///
    /// `local` stands for the host in a request of HTTP/1.0 that names none.
    ///
    /// # Errors
    ///
    /// Whatever makes the request one that must not be forwarded.
    pub fn understand_h1(&mut self, secure: bool, local: Option<SocketAddr>) -> Result<(), Error> {
        self.secure = secure;
        self.upgrade = None;
        self.websocket_key = None;
        self.keep_alive = false;
        self.length = request_length(&self.head).map_err(Error::RequestFraming)?;
        self.keep_alive = connection::keep_alive(self.head.version, &self.head.headers);
        self.expect_continue = match connection::expects_continue(&self.head.headers) {
            Expectation::Unknown => return Err(Error::Expectation),
            // A request without a body has nothing to wait for, and HTTP/1.0 knows no 100 (RFC 9110, 10.1.1).
            Expectation::Continue => !self.length.is_empty() && self.head.version == Version::Http11,
            Expectation::None => false,
        };
        if self.head.method == Method::Connect {
            // A body would have no meaning (RFC 9110, section 9.3.6), and nothing sent early is forwarded.
            self.length = BodyLength::Empty;
            self.keep_alive = false;
        } else if self.head.version == Version::Http11 {
            self.upgrade = connection::upgrade(&self.head.headers).map(<[u8]>::to_vec);
        }
        self.understand_target(local)
    }

    /// A request of our own, with a body of `length` bytes.
    ///
    /// # Errors
    ///
    /// A target or authority that is none.
    pub fn make(
        method: Method,
        target: &[u8],
        authority: &[u8],
        fields: &[foregate_module::Field],
        length: u64,
    ) -> Result<Self, Error> {
        let mut request = Self::new();
        request.head.version = Version::Http11;
        request.head.method = method;
        if !target.starts_with(b"/") || target.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(Error::Internal);
        }
        request.head.set_target(target);
        request.head.headers.push(b"Host", authority);
        request.understand_target(None)?;
        request.origin_authority.clone_from(&request.authority);
        request.head.headers.clear();
        for field in fields {
            request.append(field.name(), field.value());
        }
        request.length = if length == 0 { BodyLength::Empty } else { BodyLength::Fixed(length) };
        Ok(request)
    }

    fn understand_target(&mut self, local: Option<SocketAddr>) -> Result<(), Error> {
        let target = Target::parse(&self.head.method, self.head.target()).map_err(Error::Target)?;
        let hosts = self.head.headers.count(NameId::Host);
        if hosts > 1 || (hosts == 0 && self.head.version == Version::Http11) {
            return Err(Error::HostCount);
        }
        let named = self.head.headers.get(NameId::Host);
        // Nearly all are of this form.
        if let (TargetForm::Origin, Some(host)) = (target.form, named) {
            self.host_len = self.last_host.read(host, self.secure, &mut self.authority)?;
            self.path_len = write_target(&target, Slashes::Merge, &self.authority, &mut self.target)?;
            return Ok(());
        }
        let port = match (target.authority(), named) {
            (authority, Some(host)) => {
                // Host must be one even where the target's authority wins.
                let found = parse_authority(host, &mut self.authority).map_err(Error::Host)?;
                match authority {
                    Some(authority) => {
                        parse_authority(authority, &mut self.authority).map_err(Error::Host)?.port
                    }
                    None => found.port,
                }
            }
            (Some(authority), None) => {
                parse_authority(authority, &mut self.authority).map_err(Error::Host)?.port
            }
            (None, None) => {
                self.authority.clear();
                if let Some(local) = local {
                    let local = local.to_string();
                    parse_authority(local.as_bytes(), &mut self.authority).map_err(Error::Host)?.port
                } else {
                    None
                }
            }
        };
        self.host_len = self.authority.len();
        push_port(&mut self.authority, port, self.secure, &self.head.method);
        self.path_len = write_target(&target, Slashes::Merge, &self.authority, &mut self.target)?;
        Ok(())
    }

    fn push_port(&mut self, port: Option<u16>) {
        push_port(&mut self.authority, port, self.secure, &self.head.method);
    }

    /// Brings the target into its normal form.
    ///
    /// # Errors
    ///
    /// A path that has none.
    pub fn normalise(&mut self, slashes: Slashes) -> Result<(), Error> {
        let target = Target::parse(&self.head.method, self.head.target()).map_err(Error::Target)?;
        self.path_len = 0;
        self.path_len = write_target(&target, slashes, &self.authority, &mut self.target)?;
        Ok(())
    }

    /// Understands a request received over HTTP/2.
    ///
    /// # Errors
    ///
    /// Whatever makes the request one that must not be forwarded.
    pub fn understand_h2(
        &mut self,
        parts: &Parts,
        ended: bool,
        secure: bool,
        limits: &HeadLimits,
    ) -> Result<(), Error> {
        self.head.clear();
        self.head.version = Version::Http2;
        // What the connection is counts, not what the client says of it.
        self.secure = secure;
        // Without an authority the scheme is not handed on, only checked to be one.
        if !matches!(parts.uri.scheme_str(), None | Some("http" | "https")) {
            return Err(Error::Pseudo("the scheme is neither http nor https"));
        }
        if parts.headers.len() > limits.fields {
            return Err(Error::TooManyFields);
        }
        if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > limits.line) {
            return Err(Error::Request(RequestError::TargetTooLong));
        }
        if parts.headers.iter().any(|(name, value)| name.as_str().len() + value.len() > limits.line) {
            return Err(Error::Request(RequestError::LineTooLong));
        }
        let protocol = parts.extensions.get::<Protocol>().map(Protocol::as_str);
        // h2 hands on any text. What is written into a head of HTTP/1 must be a token, and nothing else than WebSocket
        // is known to mean the same there (RFC 8441, section 5).
        if protocol.is_some_and(|protocol| protocol != "websocket") {
            return Err(Error::Pseudo("the protocol is not websocket"));
        }
        self.head.method = match protocol {
            Some(_) => Method::Get,
            None => Method::from_bytes(parts.method.as_str().as_bytes())
                .ok_or(Error::Pseudo("the method is longer than any known one"))?,
        };
        self.upgrade = protocol.map(|protocol| protocol.as_bytes().to_vec());
        self.websocket_key = None;
        fields::append(&mut self.head.headers, &parts.headers);
        self.join_cookies();
        self.expect_continue = match connection::expects_continue(&self.head.headers) {
            Expectation::Unknown => return Err(Error::Expectation),
            Expectation::Continue => !ended,
            Expectation::None => false,
        };
        self.length =
            match foregate_wire::content_length(&self.head.headers).map_err(Error::RequestFraming)? {
                _ if ended || parts.method == http::Method::CONNECT => BodyLength::Empty,
                // The client has not said yet that this is all: an origin that is told so would have a whole request.
                Some(0) => BodyLength::Chunked,
                Some(length) => BodyLength::Fixed(length),
                None => BodyLength::Chunked,
            };
        self.keep_alive = true;
        self.understand_h2_target(parts)
    }

    fn understand_h2_target(&mut self, parts: &Parts) -> Result<(), Error> {
        let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = self.head.headers.get(NameId::Host);
        if self.head.headers.count(NameId::Host) > 1 {
            return Err(Error::HostCount);
        }
        let named = match (authority, host) {
            (Some(authority), host) => {
                // A Host that names something else is an attempt to be routed by one and judged by the other.
                if let Some(host) = host
                    && !host.eq_ignore_ascii_case(authority)
                {
                    return Err(Error::Pseudo("Host differs from the authority"));
                }
                authority
            }
            (None, Some(host)) => host,
            (None, None) => return Err(Error::Pseudo("the authority is missing")),
        };
        if self.head.method == Method::Connect {
            let port = parse_authority(named, &mut self.authority).map_err(Error::Host)?.port;
            self.host_len = self.authority.len();
            self.push_port(port);
        } else {
            self.host_len = self.last_host.read(named, self.secure, &mut self.authority)?;
        }
        let target = match parts.uri.path_and_query() {
            Some(target) if self.head.method != Method::Connect => target.as_str().as_bytes(),
            _ if self.head.method == Method::Connect => self.authority.as_bytes(),
            _ => return Err(Error::Pseudo("the path is missing")),
        };
        self.head.set_target(target);
        self.normalise(Slashes::Merge)
    }

    /// Takes what can be taken of a head that was refused over HTTP/2, for those who look at such.
    pub fn describe_h2(&mut self, head: &HeaderList, secure: bool) {
        self.clear();
        self.head.version = Version::Http2;
        self.secure = secure;
        for field in head.iter() {
            match field.name {
                b":path" => self.head.set_target(field.value),
                b":scheme" => {}
                b":method" if let Some(method) = Method::from_bytes(field.value) => self.head.method = method,
                b":authority" => {
                    match parse_authority(field.value, &mut self.authority).map(|found| found.port) {
                        Ok(port) => {
                            self.host_len = self.authority.len();
                            self.push_port(port);
                        }
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

    /// Crumbs of a cookie are one field again where HTTP/1 may read them (RFC 9113, section 8.2.3).
    fn join_cookies(&mut self) {
        let headers = &mut self.head.headers;
        if headers.count(NameId::Cookie) > 1 {
            let joined = headers.get_all(NameId::Cookie).collect::<Vec<_>>().join(&b"; "[..]);
            headers.remove(NameId::Cookie);
            headers.push(b"cookie", &joined);
        }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Host and port as the origin is told: lower case, without the scheme's own port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The host, lower case, without a port or trailing dot.
    pub fn host(&self) -> &str {
        &self.authority[..self.host_len.min(self.authority.len())]
    }

    /// Host and port as the origin is told them: what a module has set, else what the upstream says, else the client's.
    pub fn origin_authority<'r>(&'r self, upstream: &'r settings::Upstream) -> &'r str {
        match (&*self.origin_authority, &upstream.host) {
            // What CONNECT asks for is no host of the origin's.
            ("", Some(host)) if self.head.method != Method::Connect => host,
            ("", _) => &self.authority,
            (set, _) => set,
        }
    }

    /// Makes the request one for another path or query, brought into their normal form; an empty query goes.
    ///
    /// # Errors
    ///
    /// A path that has none, or a request that has no path. Nothing has changed then.
    pub fn rewrite(
        &mut self,
        path: Option<&[u8]>,
        query: Option<&[u8]>,
        slashes: Slashes,
    ) -> Result<(), Error> {
        if !self.path().starts_with(b"/") {
            return Err(Error::Internal);
        }
        let mut target = Vec::with_capacity(self.target.len());
        match path {
            Some(path) if !path.starts_with(b"/") => return Err(Error::Internal),
            Some(path) => normalize_path(path, slashes, &mut target).map_err(Error::Target)?,
            None => target.extend_from_slice(self.path()),
        }
        let path_len = target.len();
        match query {
            Some(b"") => {}
            Some(query) => {
                target.push(b'?');
                normalize_query(query, &mut target);
            }
            None => target.extend_from_slice(&self.target[self.path_len..]),
        }
        if target.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(Error::Internal);
        }
        self.target = target;
        self.path_len = path_len;
        Ok(())
    }

    /// The query in its normal form, without `?`.
    pub fn query(&self) -> Option<&[u8]> {
        self.target.get(self.path_len + 1..).filter(|_| self.target.len() > self.path_len)
    }

    /// Path and query in their normal form.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// The path in its normal form; `*` for a server-wide OPTIONS, empty for CONNECT.
    pub fn path(&self) -> &[u8] {
        &self.target[..self.path_len]
    }

    /// Whether what follows the heads is no longer HTTP if the origin agrees.
    pub fn opens_tunnel(&self) -> bool {
        self.upgrade.is_some() || self.head.method == Method::Connect
    }

    /// How often OPTIONS or TRACE may still be handed on, where the client says so (RFC 9110, section 7.6.2).
    pub fn hops_left(&self) -> Option<u32> {
        let headers = &self.head.headers;
        let limited = matches!(self.head.method.as_bytes(), b"OPTIONS" | b"TRACE");
        let value = headers.get(NameId::MaxForwards).filter(|_| limited)?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// Says how often it may still be handed on from here.
    pub fn set_hops_left(&mut self, hops: u32) {
        self.head.headers.set(NameId::MaxForwards, hops.to_string().as_bytes());
    }

    /// Whether the request may be sent again although the origin may have seen it (RFC 9110, section 9.2.2).
    pub fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.head.method != Method::Connect
    }

    /// Whether it has passed servers of our name so often that most likely it comes back to the same one.
    pub fn goes_in_circles(&self) -> bool {
        let via = self.head.headers.get_all(NameId::Via);
        let members = via.flat_map(|value| value.split(|byte| *byte == b','));
        members.filter(|member| member.trim_ascii().ends_with(OWN_NAME)).count() >= HOPS_MOST
    }

    /// Tells the origin who the client is and how it came. What the client claims about that itself goes: it is
    /// not trusted.
    pub fn tell_origin(&mut self, client: &str, secure: bool, version: Version) {
        let headers = &mut self.head.headers;
        let asked = headers.contains(NameId::XRealIp);
        if self.claimed == 0 && !asked {
            headers.remove_each(&CLIENT_CLAIMS);
            headers.append(self.told.fields(client, secure, version, &self.authority));
            return;
        }
        for (number, id) in CLIENT_CLAIMS.into_iter().enumerate() {
            // What a module says instead holds.
            if self.claimed >> number & 1 == 0 {
                headers.remove(id);
                claim(headers, id, asked, client, secure, &self.authority);
            }
        }
        headers.push_id(NameId::Via, via(version));
    }

    /// Takes away the fields in which only modules say who the client is.
    pub fn remove_identity(&mut self, names: &[Text]) {
        if !names.is_empty() {
            self.head.headers.retain(|field| !names.iter().any(|name| is_spelling(field.name, name)));
        }
    }

    /// Removes the fields whose names differ from this one in `_` and `-` alone: CGI programs take them for it.
    fn remove_spellings(&mut self, name: &[u8]) {
        let headers = &mut self.head.headers;
        let spelt = *self.underscores.get_or_insert_with(|| {
            // No known name has a `_`.
            headers.iter().any(|field| field.id == NameId::Unknown && field.name.contains(&b'_'))
        });
        if spelt || name.contains(&b'_') {
            headers.retain(|field| field.name.eq_ignore_ascii_case(name) || !is_spelling(field.name, name));
        }
    }

    /// Forgets the last request and keeps its memory for the next.
    pub fn clear(&mut self) {
        self.head.clear();
        self.upgrade = None;
        self.websocket_key = None;
        self.authority.clear();
        self.origin_authority.clear();
        self.claimed = 0;
        self.sent = usize::MAX;
        self.underscores = None;
        self.host_len = 0;
        self.target.clear();
        self.path_len = 0;
        self.length = BodyLength::Empty;
        self.expect_continue = false;
        self.secure = false;
    }

    /// Gives back memory that one unusual request needed.
    pub fn shrink(&mut self) {
        const KEPT: usize = 4096;
        self.head.shrink_to(KEPT, 64);
        self.target.shrink_to(KEPT);
    }
}

impl Request {
    /// The fields that `Connection` names, with their values.
    pub fn named_by_connection(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let headers = &self.head.headers;
        let options = headers.get_all(NameId::Connection).flat_map(|value| value.split(|byte| *byte == b','));
        options
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
            .map(|name| (name.to_vec(), headers.get_name(name).map(<[u8]>::to_vec)))
            .collect()
    }

    /// Removes what belongs to the client's connection alone. Of the fields that it names, those stay that steps have set
    /// meanwhile: `named` says what they were. The first steps still need to see what the last hop has said, and nobody
    /// may have fields removed that we vouch for.
    pub fn end_hop(&mut self, named: &[(Vec<u8>, Option<Vec<u8>>)]) {
        let headers = &mut self.head.headers;
        let set: Vec<(&[u8], Vec<u8>)> = named
            .iter()
            .filter_map(|(name, was)| {
                let now = headers.get_name(name)?;
                (Some(now) != was.as_deref()).then(|| (&**name, now.to_vec()))
            })
            .collect();
        connection::strip_hop_by_hop(headers, true);
        for (name, value) in set {
            if headers.get_name(name).is_none() && NameId::from_name(name) != NameId::Connection {
                headers.push(name, &value);
            }
        }
    }

    /// Takes note that a module says who the client is, in place of us; what the client said of itself goes.
    fn claim(&mut self, name: &[u8]) {
        let id = NameId::from_name(name);
        if let Some(number) = CLIENT_CLAIMS.iter().position(|claim| *claim == id)
            && self.claimed >> number & 1 == 0
        {
            self.head.headers.remove(id);
            self.remove_spellings(name);
            self.claimed |= 1 << number;
        }
    }
}

fn push_port(authority: &mut String, port: Option<u16>, secure: bool, method: &Method) {
    // The scheme's own port says nothing (RFC 9110, section 4.2.3).
    let default = if secure { 443 } else { 80 };
    if let Some(port) = port.filter(|port| *port != default || *method == Method::Connect) {
        authority.push(':');
        authority.push_str(itoa::Buffer::new().format(port));
    }
}

/// Writes a target in its normal form; how much of it is the path.
fn write_target(
    target: &Target<'_>,
    slashes: Slashes,
    authority: &str,
    out: &mut Vec<u8>,
) -> Result<usize, Error> {
    out.clear();
    match target.form {
        TargetForm::Authority { .. } => {
            out.extend_from_slice(authority.as_bytes());
            return Ok(0);
        }
        _ if target.path == b"*" => out.push(b'*'),
        _ => normalize_path(target.path, slashes, out).map_err(Error::Target)?,
    }
    let path_len = out.len();
    if let Some(query) = target.query {
        out.push(b'?');
        normalize_query(query, out);
    }
    Ok(path_len)
}

/// Modules change the fields through this. `Host` is no field here: what origins are told is kept apart. Where a name is set
/// or removed, its other spellings with `_` for `-` go.
impl Fields for Request {
    fn count(&self) -> usize {
        self.head.headers.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.head.headers.at(number).map(|field| (field.name, field.value))
    }

    fn find(&self, name: &[u8], from: usize) -> Option<(usize, &[u8])> {
        self.head.headers.find_name(name, from)
    }
}

impl FieldsMut for Request {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(b"host") {
            self.set(name, value);
        } else {
            self.claim(name);
            self.underscores = self.underscores.map(|spelt| spelt || name.contains(&b'_'));
            self.head.headers.push(name, value);
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        if !name.eq_ignore_ascii_case(b"host") {
            self.claim(name);
            self.remove_spellings(name);
            if name.contains(&b'_') {
                // The client's own may not go to the origin; this one is not the client's.
                self.underscores = Some(true);
                self.head.headers.remove_name(name);
                self.head.headers.push(name, value);
                return;
            }
            self.head.headers.set_name(name, value);
            return;
        }
        let mut authority = String::new();
        if let Ok(found) = parse_authority(value, &mut authority) {
            if let Some(port) = found.port {
                authority.push(':');
                authority.push_str(itoa::Buffer::new().format(port));
            }
            self.origin_authority = authority;
        }
    }

    fn remove(&mut self, name: &[u8]) {
        if !name.eq_ignore_ascii_case(b"host") {
            self.remove_spellings(name);
            self.head.headers.remove_name(name);
        }
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.head.headers.retain(|field| keep(field.name, field.value) || field.id == NameId::Host);
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
