//! An exchange made of literals.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::check::decl;
use crate::exchange::{Exchange, Now, Received, Refusal, Source, Summary, TlsFacts};
use crate::fields::{Fields, FieldsMut};
use crate::ids::UpstreamId;
use crate::pipeline::Pipeline;
use crate::slot::{Access, Slot};
use crate::state::State;
use crate::step::{Call, Step, Verdict, run_typed};
use crate::value::Value;

/// The fields of a head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Fields for List {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.0.get(number).map(|(name, value)| (&**name, &**value))
    }
}

impl FieldsMut for List {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.into(), value.into()));
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let at = self.0.iter().position(|(found, _)| found.eq_ignore_ascii_case(name));
        let mut number = 0;
        self.0.retain(|(found, _)| {
            number += 1;
            Some(number - 1) == at || !found.eq_ignore_ascii_case(name)
        });
        match at.and_then(|at| self.0.get_mut(at)) {
            Some((_, old)) => *old = value.into(),
            None => self.append(name, value),
        }
    }

    fn remove(&mut self, name: &[u8]) {
        self.0.retain(|(found, _)| !found.eq_ignore_ascii_case(name));
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.0.retain(|(name, value)| keep(name, value));
    }
}

/// A TLS handshake, as in [`TlsFacts`].
#[derive(Debug, Clone, Default)]
pub struct Handshake {
    /// `TLSv1.3`.
    pub version: String,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// The subject of its certificate, which was verified.
    pub client_subject: Option<String>,
}

/// An exchange made of literals. Everything can be set; the default is a plain GET over cleartext.
pub struct Sample {
    /// The client. Default: 192.0.2.1.
    pub client: Option<IpAddr>,
    /// The connection's other end. Default: 192.0.2.1.
    pub peer: Option<IpAddr>,
    /// The handshake. Default: cleartext.
    pub tls: Option<Handshake>,
    /// The scheme that a trusted proxy forwarded.
    pub secure: Option<bool>,
    /// The protocol. Default: `HTTP/1.1`.
    pub protocol: String,
    /// The method. Default: `GET`.
    pub method: Vec<u8>,
    /// The host. Default: `example.com`.
    pub host: String,
    /// The path.
    pub path: Vec<u8>,
    /// The other readings of the path. Default: none.
    pub other_paths: Vec<Vec<u8>>,
    /// Set once a condition with another result for one of these has refused the request.
    pub doubted: AtomicBool,
    /// The query.
    pub query: Option<Vec<u8>>,
    /// The target as it was sent.
    pub raw_target: Vec<u8>,
    /// The fields of the request.
    pub request: List,
    /// The start of the request's body, and whether that is all of it.
    pub body: (Vec<u8>, bool),
    /// Why steps have not seen the request's body, or not all that they should.
    pub unseen: Option<&'static str>,
    /// The time. Default: 2026-01-01.
    pub now: Now,
    /// The number that modules get as one that cannot be guessed.
    pub random: u64,
    /// Set if filters of bodies should hold no more than necessary.
    pub memory_is_short: bool,
    /// The status of the response. Default: there is none.
    pub status: Option<u16>,
    /// The fields of the response.
    pub response: List,
    /// The start of the response's body, and whether that is all of it.
    pub response_body: (Vec<u8>, bool),
    /// Why the request was refused before it had a route: the kind of the error, and a sentence.
    pub refusal: Option<(&'static str, String)>,
    /// The error that the response tells of.
    pub error: Option<String>,
    /// The upstream that a step has chosen.
    pub upstream: Option<UpstreamId>,
    /// The least limit of the request's body.
    pub body_limit: Option<u64>,
    /// The state kept for steps: filters, notes, skipped steps.
    pub state: State,
    slots: BTreeMap<&'static str, u16>,
}

impl Sample {
    /// A GET request for a path, which may have a query.
    pub fn get(target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes().to_vec())),
            None => (target, None),
        };
        Self {
            client: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            peer: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            tls: None,
            secure: None,
            protocol: "HTTP/1.1".into(),
            method: b"GET".to_vec(),
            host: "example.com".into(),
            path: path.into(),
            query,
            raw_target: target.into(),
            request: List::default(),
            body: (Vec::new(), true),
            unseen: None,
            now: Now { unix_ms: 1_767_225_600_000, steady_ms: 1_000_000 },
            random: 4,
            memory_is_short: false,
            status: None,
            response: List::default(),
            response_body: (Vec::new(), true),
            refusal: None,
            error: None,
            other_paths: Vec::new(),
            doubted: AtomicBool::new(false),
            upstream: None,
            body_limit: None,
            state: State::default(),
            slots: BTreeMap::new(),
        }
    }

    /// Sets the method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    /// Adds a field to the request.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.request.append(name.as_bytes(), value.as_bytes());
        self
    }

    /// Sets the client.
    #[must_use]
    pub fn from(mut self, client: &str) -> Self {
        self.client = client.parse().ok();
        self.peer = self.client;
        self
    }

    /// Sets the response.
    #[must_use]
    pub fn response(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds a field to the response.
    #[must_use]
    pub fn response_field(mut self, name: &str, value: &str) -> Self {
        self.response.append(name.as_bytes(), value.as_bytes());
        self
    }

    /// Writes a value, as an earlier step would have.
    pub fn put<V: Value>(&mut self, data: V::Data) {
        let slot = self.slot(V::NAME);
        self.state.slots.put(slot, Box::new(data));
    }

    /// Adds to a list, as an earlier step would have, in a dry run or not.
    pub fn add<V: Value>(&mut self, data: V::Data, dry: bool) {
        let slot = self.slot(V::NAME);
        self.state.slots.add(slot, data, dry);
    }

    /// The entries that steps have added to a list; the flag is set for dry runs.
    pub fn added<V: Value>(&self) -> &[(V::Data, bool)] {
        let slot = self.slots.get(V::NAME).and_then(|slot| self.state.slots.get(*slot));
        let list = slot.and_then(|list| list.downcast_ref::<Vec<(V::Data, bool)>>());
        list.map_or(&[], Vec::as_slice)
    }

    /// Takes a value, as a later step would.
    pub fn take<V: Value>(&mut self) -> Option<V::Data> {
        let slot = self.slot(V::NAME);
        let data: Box<V::Data> = self.state.slots.take(slot, false)?.downcast().ok()?;
        Some(*data)
    }

    /// A value that steps have written.
    pub fn value<V: Value>(&self) -> Option<&V::Data> {
        self.state.slots.get(*self.slots.get(V::NAME)?)?.downcast_ref()
    }

    /// Runs one step as the platform does: filters, inputs, outputs.
    pub fn run<S: Step>(&mut self, step: &S, settings: &S::Settings) -> Verdict {
        self.call(step, settings, false)
    }

    /// Runs a step in a dry run: its changes are only noted, and a platform would ignore the
    /// result.
    pub fn run_dry<S: Step>(&mut self, step: &S, settings: &S::Settings) -> Verdict {
        self.call(step, settings, true)
    }

    fn call<S: Step>(&mut self, step: &S, settings: &S::Settings, dry: bool) -> Verdict {
        let mut numbers = |slots: &[Slot]| -> Vec<u16> {
            let number = |slot: &Slot| match slot.access {
                Access::Value | Access::Moved | Access::List => self.slot(slot.name),
                _ => u16::MAX,
            };
            slots.iter().map(number).collect()
        };
        let (inputs, outputs) = (numbers(decl::<S>().inputs), numbers(decl::<S>().outputs));
        let mut state = core::mem::take(&mut self.state);
        let call = Call {
            settings,
            exchange: self,
            state: &mut state,
            pipeline: &Pipeline::new(Vec::new()),
            inputs: &inputs,
            outputs: &outputs,
            dry,
        };
        let verdict = run_typed(step, settings, call);
        self.state = state;
        verdict
    }

    fn slot(&mut self, name: &'static str) -> u16 {
        let next = self.slots.len() as u16;
        *self.slots.entry(name).or_insert(next)
    }
}

impl Exchange for Sample {
    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        self.tls.as_ref().map(|tls| TlsFacts {
            version: &tls.version,
            server_name: tls.server_name.as_deref(),
            client_verified: tls.client_subject.is_some(),
            client_subject: tls.client_subject.as_deref(),
        })
    }

    fn scheme(&self) -> &str {
        if self.secure.unwrap_or(self.tls.is_some()) { "https" } else { "http" }
    }

    fn protocol(&self) -> &str {
        &self.protocol
    }

    fn method(&self) -> &[u8] {
        &self.method
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn authority(&self) -> &str {
        &self.host
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn other_paths(&self) -> Option<&[Vec<u8>]> {
        Some(&self.other_paths)
    }

    fn doubt_path(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref()
    }

    fn raw_target(&self) -> &[u8] {
        &self.raw_target
    }

    fn request_fields(&self) -> &dyn Fields {
        &self.request
    }

    fn received(&self) -> Received<'_> {
        Received {
            method: &self.method,
            target: &self.raw_target,
            protocol: self.protocol.as_bytes(),
            fields: &self.request,
            client: self.peer.map(|address| SocketAddr::new(address, 40_000)),
            server: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80)), 80)),
            refusal: self.refusal.as_ref().map(|(kind, reason)| Refusal { kind, reason, head: &[] }),
        }
    }

    fn response_body(&self) -> (&[u8], bool) {
        (&self.response_body.0, self.response_body.1)
    }

    fn request_length(&self) -> Option<u64> {
        self.body.1.then_some(self.body.0.len() as u64)
    }

    fn request_body(&self) -> (&[u8], bool) {
        (&self.body.0, self.body.1)
    }

    fn request_body_unseen(&self) -> Option<&'static str> {
        self.unseen
    }

    fn site(&self) -> &str {
        &self.host
    }

    fn route(&self) -> &str {
        "/**"
    }

    fn now(&self) -> Now {
        self.now
    }

    fn memory_is_short(&self) -> bool {
        self.memory_is_short
    }

    fn random(&self) -> u64 {
        self.random
    }

    fn status(&self) -> Option<u16> {
        self.status
    }

    fn response_fields(&self) -> &dyn Fields {
        &self.response
    }

    fn source(&self) -> Source<'_> {
        match (&self.error, self.status) {
            (Some(error), _) => Source::Error(error),
            (None, Some(_)) => Source::Upstream,
            (None, None) => Source::Nobody,
        }
    }

    fn summary(&self) -> Summary {
        Summary { bytes_in: self.body.0.len() as u64, ..Summary::default() }
    }

    fn set_client(&mut self, client: IpAddr) {
        self.client = Some(client);
    }

    fn set_secure(&mut self, secure: bool) {
        self.secure = Some(secure);
    }

    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool {
        if path.is_some_and(|path| !path.starts_with(b"/")) {
            return false;
        }
        if let Some(path) = path {
            self.path = path.into();
        }
        if let Some(query) = query {
            self.query = (!query.is_empty()).then(|| query.into());
        }
        true
    }

    fn set_upstream(&mut self, upstream: UpstreamId) {
        self.upstream = Some(upstream);
    }

    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.request
    }

    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.response
    }

    fn limit_request_body(&mut self, bytes: u64) {
        self.body_limit = Some(self.body_limit.map_or(bytes, |limit| limit.min(bytes)));
    }
}
