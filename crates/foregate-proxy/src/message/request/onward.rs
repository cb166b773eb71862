//! Turns the canonical request into the origin's: removes hop-by-hop fields, adds forwarding fields, and
//! lets modules change fields.

use foregate_module::{Fields, FieldsMut, Text};
use foregate_wire::{FieldName, HeaderList, NameId, Version, connection, parse_authority};

use super::Request;

/// The fields with which proxies identify the client (RFC 7239 and its predecessors).
pub(super) const CLIENT_CLAIMS: [NameId; 5] = [
    NameId::Forwarded,
    NameId::XForwardedFor,
    NameId::XForwardedProto,
    NameId::XForwardedHost,
    NameId::XRealIp,
];

/// The bit of `Request::claimed` that is set if a module removed `Via`. We add no `Via` of our own
/// then. The lower bits belong to [`CLIENT_CLAIMS`].
const VIA_REMOVED: u8 = 1 << 7;

/// The proxy's name in `Via`.
pub(super) const OWN_NAME: &[u8] = b" foregate";

/// The forwarding fields for the origin, and the client's address, scheme, protocol and host that they
/// state. Most requests of a connection reuse them.
#[derive(Debug, Default)]
pub(super) struct ForwardedFacts {
    client: String,
    secure: bool,
    version: Version,
    authority: String,
    fields: HeaderList,
}

impl ForwardedFacts {
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

/// Adds one of [`CLIENT_CLAIMS`], if there is a value for it. `asked` is true if the upstream wants `X-Real-IP`.
fn claim(list: &mut HeaderList, id: NameId, asked: bool, client: &str, secure: bool, authority: &str) {
    match id {
        // `X-Real-IP` is only sent if it is asked for, because most origins do not read it.
        NameId::XRealIp if asked && !client.is_empty() => list.push_id(id, client.as_bytes()),
        NameId::XForwardedFor if !client.is_empty() => list.push_id(id, client.as_bytes()),
        NameId::XForwardedProto => list.push_id(id, if secure { b"https" } else { b"http" }),
        NameId::XForwardedHost => list.push_id(id, authority.as_bytes()),
        _ => {}
    }
}

/// The protocol and the pseudonym for `Via` (RFC 9110, section 7.6.3).
fn via(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"1.0 foregate",
        Version::Http11 => b"1.1 foregate",
        Version::Http2 => b"2 foregate",
        Version::Http3 => b"3 foregate",
    }
}

/// Removes the fields in which only modules identify the client.
pub fn remove_identity(headers: &mut HeaderList, names: &[Text]) {
    if !names.is_empty() {
        headers.retain(|field| !names.iter().any(|name| connection::is_spelling(field.name, name)));
    }
}

/// Removes the fields with names that differ from this one in `_` and `-` alone: CGI programs
/// cannot distinguish them.
fn remove_spellings(headers: &mut HeaderList, name: FieldName<'_>) {
    if headers.may_have_underscores() || name.has_underscore() {
        headers.retain(|field| {
            field.name.eq_ignore_ascii_case(name.bytes())
                || !connection::is_spelling(field.name, name.bytes())
        });
    }
}

impl Request {
    /// Tells the origin the client's address, scheme and protocol. The client's own claims about
    /// them are removed: they are not trusted.
    pub fn tell_origin(&mut self, client: &str, secure: bool, version: Version) {
        let headers = &mut self.head.headers;
        let asked = headers.contains(NameId::XRealIp);
        if self.claimed == 0 && !asked {
            headers.remove_each(&CLIENT_CLAIMS);
            headers.append(self.told.fields(client, secure, version, self.authority.as_str()));
            return;
        }
        for (number, id) in CLIENT_CLAIMS.into_iter().enumerate() {
            // A module's value has precedence.
            if self.claimed >> number & 1 == 0 {
                headers.remove(id);
                claim(headers, id, asked, client, secure, self.authority.as_str());
            }
        }
        if self.claimed & VIA_REMOVED == 0 {
            headers.push_id(NameId::Via, via(version));
        }
    }

    /// From here on, records the fields that steps set although the client's `Connection` names them, so
    /// that [`end_hop`](Self::end_hop) does not remove them.
    pub fn begin_hop(&mut self) {
        self.vouched = Some(Vec::new());
    }

    /// Removes the fields that belong only to the client's connection, except those that steps have set
    /// since [`begin_hop`](Self::begin_hop): a client must not be able to remove them by naming them in
    /// `Connection`. Steps that run before still see the client's fields.
    pub fn end_hop(&mut self) {
        let headers = &mut self.head.headers;
        let set = self.vouched.take().unwrap_or_default().into_iter().map(|name| {
            let fields = (0..headers.len()).filter_map(|number| headers.at(number));
            let values = fields.filter(|field| field.name.eq_ignore_ascii_case(&name));
            let values: Vec<_> = values.map(|field| field.value.to_vec()).collect();
            (name, values)
        });
        let set: Vec<_> = set.collect();
        connection::strip_hop_by_hop(headers, true);
        for (name, values) in set {
            if headers.get_name(&name).is_none() {
                values.iter().for_each(|value| headers.push(&*name, value));
            }
        }
    }

    /// Records that a step sets this field. Returns true if the client's `Connection` names it and no
    /// step has set it before.
    fn vouch(&mut self, name: &[u8]) -> bool {
        let Some(vouched) = &mut self.vouched else { return false };
        let names = |value: &[u8]| {
            let mut options = value.split(|byte| *byte == b',');
            options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
        };
        let first = NameId::from_name(name) != NameId::Connection
            && self.head.headers.get_all(NameId::Connection).any(names)
            && !vouched.iter().any(|vouched| vouched.eq_ignore_ascii_case(name));
        if first {
            vouched.push(name.into());
        }
        first
    }

    /// Records that a module identifies the client in this field, instead of us. The client's own field
    /// is removed.
    fn claim(&mut self, known: FieldName<'_>) {
        if known.id() != NameId::Unknown
            && let Some(number) = CLIENT_CLAIMS.iter().position(|claim| *claim == known.id())
            && self.claimed >> number & 1 == 0
        {
            self.head.headers.remove_name(known);
            remove_spellings(&mut self.head.headers, known);
            self.claimed |= 1 << number;
        }
    }
}

/// The interface for modules to change the fields. `Host` is not a field here, because the origin's
/// host is stored separately. Setting or removing a name also removes spellings of it with `_` for `-`.
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

    fn find_again(&self, number: usize) -> Option<(usize, &[u8])> {
        self.head.headers.find_again(number)
    }
}

impl FieldsMut for Request {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        let known = FieldName::from(name);
        if known.id() == NameId::Host {
            self.set(name, value);
        } else {
            self.claim(known);
            // The client's own field, which `Connection` names, would not have been forwarded.
            if self.vouch(name) {
                self.head.headers.remove_name(known);
            }
            self.head.headers.push(known, value);
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let known = FieldName::from(name);
        if known.id() != NameId::Host {
            self.claim(known);
            self.vouch(name);
            remove_spellings(&mut self.head.headers, known);
            if known.has_underscore() {
                // The client's own field must not go to the origin. The step's field may.
                self.head.headers.remove_name(known);
                self.head.headers.push(known, value);
                return;
            }
            self.head.headers.set_name(known, value);
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
        let known = FieldName::from(name);
        if known.id() == NameId::Via {
            self.claimed |= VIA_REMOVED;
        }
        if known.id() != NameId::Host {
            remove_spellings(&mut self.head.headers, known);
            self.head.headers.remove_name(known);
        }
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.head.headers.retain(|field| keep(field.name, field.value) || field.id == NameId::Host);
    }
}
