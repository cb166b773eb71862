//! An exchange in NGINX, as the steps of modules see it: either NGINX's own request, for the time of a call, or a
//! copy of it for a step that runs on another thread.

use std::cell::OnceCell;
use std::net::IpAddr;

use foregate_module::{self as module, Fields, FieldsMut, Now, Source, Summary, Text, TlsFacts, UpstreamId};
use foregate_wire::connection;

use crate::border::{Facts, Level, Tls, Which};
use crate::ffi::{Field, Host};
use crate::random::random;
use crate::request::{ExchangeChanges, ReceivedFacts};
use crate::target;

/// A head: a snapshot of its fields. A change is made both here and in NGINX's own structures.
pub(crate) struct Head<'r> {
    /// `None` for a copy, which is not changed.
    host: Option<Host<'r>>,
    which: Which,
    fields: Vec<Field<'r>>,
}

impl<'r> Head<'r> {
    pub(crate) fn new(host: Host<'r>, which: Which) -> Self {
        Self { host: Some(host), which, fields: host.fields(which) }
    }

    /// A head with [copied](Self::copied) fields.
    pub(crate) fn lent(which: Which, fields: &'r [(Vec<u8>, Vec<u8>)]) -> Self {
        let fields = fields.iter().map(|(name, value)| Field::lent(name, value)).collect();
        Self { host: None, which, fields }
    }

    pub(crate) fn copied(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.fields.iter().map(|field| (field.name().to_vec(), field.value().to_vec())).collect()
    }

    fn take_out(&mut self, goes: &[bool]) {
        let goes = |number: usize| goes.get(number).copied().unwrap_or_default();
        let gone: Vec<_> = self
            .fields
            .iter()
            .enumerate()
            .filter(|(number, _)| goes(*number))
            .map(|(_, field)| *field)
            .collect();
        if let Some(host) = self.host
            && !gone.is_empty()
        {
            host.remove(self.which, &gone);
            self.fields = host.fields(self.which);
        }
    }

    /// For each field, true if it has this name. In a request, spellings that CGI programs cannot distinguish count as
    /// the same name: otherwise a client could send a field that only modules may set, under another spelling.
    fn named(&self, name: &[u8]) -> Vec<bool> {
        let spelt = self.which == Which::Request;
        let is_one = |field: &Field<'_>| match spelt {
            true => connection::is_spelling(field.name(), name),
            false => field.name().eq_ignore_ascii_case(name),
        };
        self.fields.iter().map(is_one).collect()
    }
}

impl Fields for Head<'_> {
    fn count(&self) -> usize {
        self.fields.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get(number).map(|field| (field.name(), field.value()))
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let name = name.as_bytes();
        self.fields
            .iter()
            .find(|field| field.name().len() == name.len() && field.name().eq_ignore_ascii_case(name))
            .map(Field::value)
    }
}

impl FieldsMut for Head<'_> {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        if let Some(field) = self.host.and_then(|host| host.append(self.which, name, value)) {
            // A response has only one content type, so a further one replaces it.
            let is_type = |field: &Field<'_>| field.is_unlisted() && field.name().eq_ignore_ascii_case(name);
            if field.is_unlisted() {
                self.fields.retain(|field| !is_type(field));
            }
            self.fields.push(field);
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let mut goes = self.named(name);
        let is_first = |(field, goes): (&Field<'_>, &bool)| *goes && field.name().eq_ignore_ascii_case(name);
        match self.fields.iter().zip(&goes).position(is_first) {
            Some(first) => {
                goes[first] = false;
                if let (Some(host), Some(field)) = (self.host, self.fields.get_mut(first)) {
                    host.replace(self.which, field, value);
                }
            }
            None => self.append(name, value),
        }
        self.take_out(&goes);
    }

    fn remove(&mut self, name: &[u8]) {
        self.take_out(&self.named(name));
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let goes: Vec<bool> = self.fields.iter().map(|field| !keep(field.name(), field.value())).collect();
        self.take_out(&goes);
    }
}

/// The parts of an exchange that steps may read and change, for the time of a call.
pub(crate) struct Exchange<'r, 'k> {
    /// `None` for a copy: a step that runs with a copy only writes values.
    pub host: Option<Host<'r>>,
    pub facts: &'k Facts<'r>,
    pub kept: &'k mut ExchangeChanges,
    pub request: Head<'r>,
    /// Empty before there is a response.
    pub response: Head<'r>,
    pub status: Option<u16>,
    tls: OnceCell<Option<Tls<'r>>>,
}

impl<'r, 'k> Exchange<'r, 'k> {
    /// An exchange for the phases before the response.
    pub(crate) fn of_request(host: Host<'r>, facts: &'k Facts<'r>, kept: &'k mut ExchangeChanges) -> Self {
        let request = Head::new(host, Which::Request);
        let response = Head::lent(Which::Response, &[]);
        Self { host: Some(host), facts, kept, request, response, status: None, tls: OnceCell::new() }
    }

    /// An exchange made of a copy, for a step on another thread.
    pub(crate) fn lent(
        facts: &'k Facts<'r>,
        kept: &'k mut ExchangeChanges,
        (request, response): (Head<'r>, Head<'r>),
        status: Option<u16>,
        tls: Option<Tls<'r>>,
    ) -> Self {
        Self { host: None, facts, kept, request, response, status, tls: OnceCell::from(tls) }
    }

    /// An exchange for the phases with a response, of this status.
    pub(crate) fn of_response(
        host: Host<'r>,
        facts: &'k Facts<'r>,
        kept: &'k mut ExchangeChanges,
        status: u16,
    ) -> Self {
        let response = Head::new(host, Which::Response);
        Self { response, status: Some(status), ..Self::of_request(host, facts, kept) }
    }

    /// Stores the request as it was received, before steps change it.
    pub(crate) fn keep_received(&mut self) {
        let server = self.host.and_then(Host::local);
        self.kept.received = Some(ReceivedFacts { fields: self.request.copied(), server });
    }

    /// Removes the fields of these names, which only modules may set to identify the client; `_` counts as `-`.
    pub(crate) fn remove_identity(&mut self, names: &[Text]) {
        let is_one = |field: &[u8]| names.iter().any(|name| connection::is_spelling(name, field));
        if !names.is_empty() {
            self.request.retain(&mut |name, _| !is_one(name));
        }
    }

    /// Writes a line into the error log.
    pub(crate) fn log(&self, level: Level, line: &str) {
        if let Some(host) = self.host {
            host.log(level, line);
        }
    }

    /// The facts about the TLS handshake.
    pub(crate) fn handshake(&self) -> Option<&Tls<'r>> {
        let tls = || self.host.filter(|_| self.facts.https).and_then(Host::tls);
        self.tls.get_or_init(tls).as_ref()
    }

    /// Makes a step's answer the response.
    pub(crate) fn answer(&mut self, answer: &module::Response, step: &'static str) {
        if let Some(host) = self.host {
            host.answer(answer.status, &answer.body);
            self.response = Head::new(host, Which::Response);
        }
        for field in &answer.fields {
            self.response.append(field.name(), field.value());
        }
        self.status = Some(answer.status);
        self.kept.source = Source::Step { name: step, meant: answer.meant };
        self.kept.response_body = Some((answer.body.to_vec(), true));
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl module::Exchange for Exchange<'_, '_> {
    fn client(&self) -> Option<IpAddr> {
        self.kept.client.or_else(|| self.peer())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.facts.client.map(|client| client.ip())
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        let tls = self.handshake()?;
        Some(TlsFacts {
            version: text(tls.version),
            server_name: Some(text(tls.server_name)).filter(|name| !name.is_empty()),
            client_verified: tls.client_verified,
            client_subject: Some(text(tls.client_subject)).filter(|subject| !subject.is_empty()),
        })
    }

    fn scheme(&self) -> &str {
        if self.kept.secure.unwrap_or(self.facts.https) { "https" } else { "http" }
    }

    fn protocol(&self) -> &str {
        match self.facts.version {
            0..=999 => "HTTP/0.9",
            1000 => "HTTP/1.0",
            1001 => "HTTP/1.1",
            2000 => "HTTP/2",
            _ => "HTTP/3",
        }
    }

    fn method(&self) -> &[u8] {
        self.facts.method
    }

    fn host(&self) -> &str {
        text(self.facts.server)
    }

    fn authority(&self) -> &str {
        &self.kept.authority
    }

    fn path(&self) -> &[u8] {
        &self.kept.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.kept.query.as_deref()
    }

    fn raw_target(&self) -> &[u8] {
        self.facts.raw
    }

    fn request_fields(&self) -> &dyn Fields {
        &self.request
    }

    fn request_length(&self) -> Option<u64> {
        match u64::try_from(self.facts.content_length) {
            Ok(length) => Some(length),
            Err(_) if self.facts.chunked => None,
            Err(_) => Some(0),
        }
    }

    fn request_body(&self) -> (&[u8], bool) {
        match &self.kept.request_body {
            Some((start, whole)) => (start, *whole),
            None => (&[], self.request_length() == Some(0)),
        }
    }

    fn request_body_unseen(&self) -> Option<&'static str> {
        self.kept.unseen
    }

    fn response_body(&self) -> (&[u8], bool) {
        self.kept.response_body.as_ref().map_or((&[], false), |(start, whole)| (start, *whole))
    }

    fn received(&self) -> module::Received<'_> {
        let received = self.kept.received.as_ref();
        module::Received {
            method: self.facts.method,
            target: self.facts.raw,
            protocol: self.protocol().as_bytes(),
            fields: received.map_or(&self.request as &dyn Fields, |received| received),
            client: self.facts.client,
            server: received.and_then(|received| received.server),
            refusal: None,
        }
    }

    fn site(&self) -> &str {
        text(self.facts.site)
    }

    fn route(&self) -> &str {
        text(self.facts.route)
    }

    fn now(&self) -> Now {
        self.kept.now
    }

    fn give_way(&self) -> fn() {
        // Without a host, this is a copy on one of NGINX's threads for heavy steps.
        if self.host.is_none() { std::thread::yield_now } else { || {} }
    }

    fn random(&self) -> u64 {
        random()
    }

    fn status(&self) -> Option<u16> {
        self.status
    }

    fn response_fields(&self) -> &dyn Fields {
        &self.response
    }

    fn source(&self) -> Source<'_> {
        self.kept.source
    }

    fn summary(&self) -> Summary {
        self.kept.summary
    }

    fn set_client(&mut self, client: IpAddr) {
        self.kept.client = Some(client.to_canonical());
    }

    fn set_secure(&mut self, secure: bool) {
        self.kept.secure = Some(secure);
        let own = if secure { ":443" } else { ":80" };
        if let Some(host) = self.kept.authority.strip_suffix(own).filter(|host| !host.ends_with(':')) {
            self.kept.authority.truncate(host.len());
        }
    }

    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool {
        if !self.kept.path.starts_with(b"/") {
            return false;
        }
        let path = match path {
            Some(path) => match target::rewritten(path) {
                Some(path) => path,
                None => {
                    // The origin must not get the original target instead: the step may have meant to confine the request to a folder.
                    self.kept.target_is_wrong = true;
                    return false;
                }
            },
            None => self.kept.path.clone(),
        };
        let query = match query {
            Some(b"") => None,
            Some(query) => Some(target::normal_query(query)),
            None => self.kept.query.clone(),
        };
        if let Some(host) = self.host {
            host.target(&target::decoded(&path), query.as_deref().unwrap_or_default());
        }
        self.kept.path = path;
        self.kept.query = query;
        true
    }

    fn set_upstream(&mut self, upstream: UpstreamId) {
        self.kept.upstream = Some(upstream.0);
    }

    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.request
    }

    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.response
    }

    fn limit_request_body(&mut self, bytes: u64) {
        if let Some(host) = self.host {
            host.limit_body(bytes);
        }
    }
}
