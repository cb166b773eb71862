//! A logged request as steps of modules see it.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;

use foregate_module::{Exchange, Fields, FieldsMut, Now, Source, Summary, TlsFacts, UpstreamId};
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::HostId;
use foregate_proxy::settings::Route;
use foregate_wire::{
    Method, Slashes, Target, TargetForm, connection, normalize_path, normalize_query, parse_authority,
};

use super::logged::LoggedRequest;

/// A list of header fields that does not belong to a received message.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct FieldList(pub Vec<(Vec<u8>, Vec<u8>)>);

impl FieldList {
    /// Removes the fields with these names, also if a name is spelled with `_`.
    pub(super) fn remove_identity(&mut self, names: &[foregate_module::Text]) {
        self.0.retain(|(field, _)| !names.iter().any(|name| connection::is_spelling(field, name)));
    }
}

impl Fields for FieldList {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.0.get(number).map(|(name, value)| (&**name, &**value))
    }
}

impl FieldsMut for FieldList {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.into(), value.into()));
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.0.iter().position(|(found, _)| found.eq_ignore_ascii_case(name)) {
            Some(at) => {
                self.0[at].1 = value.into();
                let mut number = 0;
                self.0.retain(|(found, _)| {
                    number += 1;
                    number - 1 <= at || !found.eq_ignore_ascii_case(name)
                });
            }
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

/// A request of a log while one configuration judges it.
pub(super) struct JudgedRequest<'a> {
    pub logged: &'a LoggedRequest,
    settings: &'a Settings,
    pub method: Method,
    pub host: String,
    authority: String,
    pub site: Option<HostId>,
    pub route: Option<&'a Route>,
    pub secure: bool,
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
    pub fields: FieldList,
    pub client: Option<IpAddr>,
    pub upstream: Option<UpstreamId>,
    pub body_limit: Option<u64>,
    pub path_is_in_doubt: Cell<bool>,
    pub target_is_wrong: bool,
    other_paths: OnceCell<Option<Vec<Vec<u8>>>>,
    now: Now,
}

impl<'a> JudgedRequest<'a> {
    /// Reads a request; `None` if it would be refused before it is routed.
    pub(super) fn new(logged: &'a LoggedRequest, settings: &'a Settings, now: Now) -> Option<Self> {
        let method = Method::from_bytes(logged.method.as_bytes())?;
        let target = Target::parse(&method, logged.target.as_bytes()).ok()?;
        let mut secure = logged.secure;
        let named = match target.form {
            TargetForm::Absolute { scheme, authority } => {
                secure = scheme == foregate_wire::Scheme::Https;
                authority
            }
            TargetForm::Authority { authority } => authority,
            TargetForm::Origin | TargetForm::Asterisk => logged.host.as_bytes(),
        };
        let mut host = String::new();
        let port = parse_authority(named, &mut host).ok()?.port;
        let port = port.filter(|port| *port != if secure { 443 } else { 80 });
        let authority = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let mut path = Vec::new();
        match target.path {
            path_alone @ (b"*" | b"") => path.extend_from_slice(path_alone),
            raw => normalize_path(raw, Slashes::Merge, &mut path).ok()?,
        }
        let query = target.query.map(|query| {
            let mut normal = Vec::new();
            normalize_query(query, &mut normal);
            normal
        });
        let mut fields = FieldList::default();
        for (name, value) in [("user-agent", &logged.user_agent), ("referer", &logged.referer)] {
            if let Some(value) = value {
                fields.append(name.as_bytes(), value.as_bytes());
            }
        }
        for (name, value) in &logged.fields {
            fields.append(name.as_bytes(), value.as_bytes());
        }
        Some(Self {
            logged,
            settings,
            method,
            host,
            authority,
            site: None,
            route: None,
            secure,
            path,
            query,
            fields,
            client: None,
            upstream: None,
            body_limit: None,
            path_is_in_doubt: Cell::new(false),
            target_is_wrong: false,
            other_paths: OnceCell::new(),
            now,
        })
    }

    fn slashes(&self) -> Slashes {
        match self.site {
            Some(site) if self.settings.sites.keeps_slashes(site) => Slashes::Keep,
            _ => Slashes::Merge,
        }
    }

    /// Normalises the path again for a site that keeps slashes; returns false if that fails.
    pub(super) fn keep_slashes(&mut self) -> bool {
        let Ok(target) = Target::parse(&self.method, self.logged.target.as_bytes()) else { return false };
        if matches!(target.path, b"*" | b"") {
            return true;
        }
        let mut path = Vec::new();
        let is_normal = normalize_path(target.path, Slashes::Keep, &mut path).is_ok();
        if is_normal {
            self.path = path;
        }
        is_normal
    }

    /// Stores the other readings of the path, which routing has computed.
    pub(super) fn has_readings(&mut self, readings: Vec<Vec<u8>>) {
        self.other_paths = OnceCell::from(Some(readings));
    }

    /// The path by which a route is found. It is `/` for a server-wide OPTIONS and for CONNECT, which have no path.
    pub(super) fn routed_path(&self) -> &[u8] {
        match &*self.path {
            b"*" | b"" => b"/",
            path => path,
        }
    }
}

impl Exchange for JudgedRequest<'_> {
    fn client(&self) -> Option<IpAddr> {
        self.client.or_else(|| self.peer())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.logged.client.map(|client| client.to_canonical())
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        let version = self.logged.tls.as_deref()?;
        Some(TlsFacts {
            version,
            server_name: Some(&self.host),
            client_verified: false,
            client_subject: None,
        })
    }

    fn scheme(&self) -> &str {
        if self.secure { "https" } else { "http" }
    }

    fn protocol(&self) -> &str {
        &self.logged.protocol
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn authority(&self) -> &str {
        &self.authority
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn other_paths(&self) -> Option<&[Vec<u8>]> {
        let Some(site) = self.site else { return Some(&[]) };
        let read = || self.settings.sites.other_paths(site, &self.path);
        self.other_paths.get_or_init(read).as_deref()
    }

    fn doubt_path(&self) {
        self.path_is_in_doubt.set(true);
    }

    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref()
    }

    fn raw_target(&self) -> &[u8] {
        self.logged.target.as_bytes()
    }

    fn request_fields(&self) -> &dyn Fields {
        &self.fields
    }

    fn request_length(&self) -> Option<u64> {
        Some(self.logged.body)
    }

    fn request_body(&self) -> (&[u8], bool) {
        (&[], true)
    }

    fn site(&self) -> &str {
        self.site.map_or("", |site| &self.settings.sites.site(site).name)
    }

    fn route(&self) -> &str {
        self.route.map_or("", |route| &route.pattern)
    }

    fn now(&self) -> Now {
        self.now
    }

    /// The same number for both configurations, because different random numbers would show up as differences.
    fn random(&self) -> u64 {
        0x5EED
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn response_fields(&self) -> &dyn Fields {
        static NOTHING: FieldList = FieldList(Vec::new());
        &NOTHING
    }

    fn source(&self) -> Source<'_> {
        Source::Nobody
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn set_client(&mut self, client: IpAddr) {
        self.client = Some(client.to_canonical());
    }

    fn set_secure(&mut self, secure: bool) {
        self.secure = secure;
    }

    fn set_target(&mut self, path: Option<&[u8]>, query: Option<&[u8]>) -> bool {
        self.other_paths.take();
        let mut normal = Vec::new();
        let fits = self.path.starts_with(b"/")
            && path.is_none_or(|path| {
                !foregate_module::has_parent_segment(path)
                    && normalize_path(path, self.slashes(), &mut normal).is_ok()
            });
        self.target_is_wrong |= !fits && self.path.starts_with(b"/");
        if !fits {
            return false;
        }
        if path.is_some() {
            self.path = normal;
        }
        match query {
            Some(b"") => self.query = None,
            Some(query) => {
                let mut normal = Vec::new();
                normalize_query(query, &mut normal);
                self.query = Some(normal);
            }
            None => {}
        }
        true
    }

    fn set_upstream(&mut self, upstream: UpstreamId) {
        self.upstream = Some(upstream);
    }

    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.fields
    }

    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut {
        // There is no response. Only phases that edit a response use its fields, and these do not run, so any list will
        // do.
        &mut self.fields
    }

    fn limit_request_body(&mut self, bytes: u64) {
        self.body_limit = Some(self.body_limit.map_or(bytes, |limit| limit.min(bytes)));
    }
}
