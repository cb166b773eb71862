//! The address under which a response is stored, and references to other addresses of the same origin.

use foregate_wire::{
    HeaderList, Method, NameId, Scheme, Slashes, normalize_path, normalize_query, parse_authority,
};

use crate::text::trim;

/// The address of a request in its normal form, as the canonical request has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uri<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// The host in normal form: lower case, no trailing dot.
    pub host: &'a str,
    /// The port, if the authority has one. The default port of the scheme is the same as no port.
    pub port: Option<u16>,
    /// The path in normal form.
    pub path: &'a [u8],
    /// The query, if there is one.
    pub query: Option<&'a [u8]>,
}

impl Uri<'_> {
    /// The port, unless it is the default port of the scheme.
    pub(crate) fn special_port(&self) -> Option<u16> {
        self.port.filter(|&port| port != default_port(self.scheme))
    }
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

/// Returns whether a request has probably changed its resource, so that stored responses for the address are
/// invalid (RFC 9111, section 4.4): its method is not known to be safe, and its response is no error.
pub fn invalidates(method: &Method, status: u16) -> bool {
    !method.is_safe() && *method != Method::Connect && (200..400).contains(&status)
}

/// An address of the same origin as the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedAddress {
    /// The path in normal form.
    pub path: Vec<u8>,
    /// The query.
    pub query: Option<Vec<u8>>,
}

/// The addresses in Location and Content-Location, which become invalid together with the address of the
/// request. Addresses of another origin are left out, since one site must not empty the cache of another (RFC
/// 9111, section 4.4).
pub fn related(headers: &HeaderList, uri: &Uri<'_>, slashes: Slashes) -> Vec<RelatedAddress> {
    let fields = [NameId::Location, NameId::ContentLocation];
    let references = fields.iter().filter_map(|&id| headers.get(id));
    references.filter_map(|reference| resolve(reference, uri, slashes)).collect()
}

/// Resolves a reference (RFC 3986, section 5.2). `None` if the text is no reference, or if it leads to another
/// origin.
fn resolve(reference: &[u8], base: &Uri<'_>, slashes: Slashes) -> Option<RelatedAddress> {
    let reference = trim(reference.split(|&byte| byte == b'#').next()?);
    let scheme = match base.scheme {
        Scheme::Http => &b"http:"[..],
        Scheme::Https => b"https:",
    };
    let behind_scheme = match reference.split_at_checked(scheme.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(scheme) => {
            rest.starts_with(b"//").then_some(rest)?
        }
        _ => reference,
    };
    let (path, query) = match behind_scheme.strip_prefix(b"//") {
        Some(rest) => {
            let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at_checked(end)?;
            if !is_authority_of(authority, base) {
                return None;
            }
            split_query(rest)
        }
        None => split_query(behind_scheme),
    };
    let has_authority = behind_scheme.starts_with(b"//");
    let mut whole = Vec::new();
    match path {
        [b'/', ..] => whole.extend_from_slice(path),
        [] if has_authority => whole.push(b'/'),
        [] => whole.extend_from_slice(base.path),
        relative => {
            // A reference with a colon in its first segment has a scheme of its own.
            let first = relative.split(|&byte| byte == b'/').next()?;
            if first.contains(&b':') {
                return None;
            }
            let folder = base.path.iter().rposition(|&byte| byte == b'/')?;
            whole.extend_from_slice(base.path.get(..=folder)?);
            whole.extend_from_slice(relative);
        }
    }
    let mut normal = Vec::with_capacity(whole.len());
    normalize_path(&whole, slashes, &mut normal).ok()?;
    let query = match query {
        None if path.is_empty() && !has_authority => base.query.map(<[u8]>::to_vec),
        query => query.map(|query| {
            let mut normal = Vec::with_capacity(query.len());
            normalize_query(query, &mut normal);
            normal
        }),
    };
    Some(RelatedAddress { path: normal, query })
}

fn split_query(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'?') {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
        None => (text, None),
    }
}

fn is_authority_of(authority: &[u8], base: &Uri<'_>) -> bool {
    let mut out = String::new();
    let Ok(authority) = parse_authority(authority, &mut out) else { return false };
    let port = authority.port.filter(|&port| port != default_port(base.scheme));
    authority.host == base.host && port == base.special_port()
}
