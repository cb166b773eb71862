//! The parts of a message that belong to one connection (RFC 9110, 7.6).

use crate::chars::trim;
use crate::headers::HeaderList;
use crate::method::Version;
use crate::name_id::NameId;

/// The most names in Connection fields that are handled one by one. A message with more names is treated as if
/// Connection named all its unknown fields.
const MAX_CONNECTION_NAMES: usize = 32;

/// Fields that never cross the proxy.
const HOP: u128 = NameId::Connection.bit()
    | NameId::KeepAlive.bit()
    | NameId::ProxyConnection.bit()
    | NameId::Te.bit()
    | NameId::Upgrade.bit()
    | NameId::Http2Settings.bit();
/// Fields that Connection cannot remove: the origin would misread the message without them.
const KEPT: u128 = NameId::Host.bit() | NameId::ContentLength.bit() | NameId::TransferEncoding.bit();

/// Fields that determine how a body is read.
const CONTENT: u128 = NameId::ContentType.bit() | NameId::ContentEncoding.bit();

/// The expectation that a request states in Expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No Expect field.
    None,
    /// `100-continue`, and nothing else.
    Continue,
    /// Anything else: answer with 417.
    Unknown,
}

/// Removes the fields that must not cross the proxy: Connection and the fields that it names (except Host,
/// Content-Length and Transfer-Encoding), Keep-Alive, Proxy-Connection, TE, Upgrade and HTTP2-Settings.
///
/// If `keep_te_trailers` is set and the message had `TE: trailers`, that field is put back. Transfer-Encoding and
/// Content-Length are kept, because framing depends on them. Returns the number of removed fields.
pub fn strip_hop_by_hop(headers: &mut HeaderList, keep_te_trailers: bool) -> usize {
    if headers.present() & HOP == 0 {
        return 0;
    }
    let te_trailers = keep_te_trailers && accepts_trailers(headers);
    let named = NamedOptions::by_connection(headers);
    let known = HOP | (named.known & !KEPT);
    let before = headers.len();
    headers.remove_all(known);
    if named.all_unknown || !named.ends.is_empty() {
        headers.retain(|field| field.id != NameId::Unknown || !named.has_unknown(field.name));
    }
    let removed = before - headers.len();
    if te_trailers {
        headers.push_id(NameId::Te, b"trailers");
    }
    removed
}

/// Removes Content-Type and Content-Encoding if Connection names them. [`strip_hop_by_hop`] would remove them later
/// anyway. They must be gone before the body is inspected, so that it is read as the next hop will read it.
pub fn drop_named_content_fields(headers: &mut HeaderList) {
    let may_have = |ids: u128| headers.present() & ids != 0;
    if may_have(NameId::Connection.bit()) && may_have(CONTENT) {
        let named = NamedOptions::by_connection(headers).known;
        headers.remove_all(CONTENT & named);
    }
}

/// The names in Connection, except names of fields that never cross the proxy. Trailers with these names must be
/// removed too (RFC 9110, section 7.6.1). `None` if there are none, as in nearly every message.
pub fn named_options(headers: &HeaderList) -> Option<NamedOptions> {
    if !headers.contains(NameId::Connection) {
        return None;
    }
    let named = NamedOptions::by_connection(headers);
    let names = named.known & !HOP != 0 || named.all_unknown || !named.ends.is_empty();
    names.then_some(named)
}

/// Returns true if TE contains `trailers`: the sender accepts a trailer section.
pub fn accepts_trailers(headers: &HeaderList) -> bool {
    headers.get_all(NameId::Te).flat_map(list).any(|coding| {
        let name = coding.split(|&byte| byte == b';').next().unwrap_or_default();
        trim(name).eq_ignore_ascii_case(b"trailers")
    })
}

/// Returns true if the connection persists after this message (RFC 9112, 9.3).
pub fn keep_alive(version: Version, headers: &HeaderList) -> bool {
    match version {
        Version::Http10 => {
            has_connection_option(headers, b"keep-alive") && !has_connection_option(headers, b"close")
        }
        _ => !has_connection_option(headers, b"close"),
    }
}

/// The protocols that the message offers or switches to: the value of Upgrade, when Connection names it.
///
/// `None` when HTTP itself is among them (`h2c`, `h2`, `HTTP/2.0`): after such a switch the proxy would not see the
/// requests. HTTP/1.0 has no Upgrade; the caller has to check the version.
pub fn upgrade(headers: &HeaderList) -> Option<&[u8]> {
    let value = headers.get(NameId::Upgrade)?;
    if headers.count(NameId::Upgrade) > 1 || !has_connection_option(headers, b"upgrade") {
        return None;
    }
    let mut protocols = list(value).peekable();
    protocols.peek()?;
    if protocols.any(is_http) { None } else { Some(value) }
}

/// The protocols that a request offers, without HTTP itself (see [`upgrade`]): the proxy may offer these to an origin.
///
/// `None` when Connection does not name Upgrade, or the request offers only HTTP.
pub fn offered(headers: &HeaderList) -> Option<Vec<u8>> {
    if !has_connection_option(headers, b"upgrade") {
        return None;
    }
    let protocols = headers.get_all(NameId::Upgrade).flat_map(list).filter(|protocol| !is_http(protocol));
    let offered = protocols.collect::<Vec<_>>().join(&b", "[..]);
    (!offered.is_empty()).then_some(offered)
}

/// Returns true if Upgrade offers HTTP itself (`h2c`, `h2`, `HTTP/2.0`) or HTTP2-Settings is present (RFC 7540, section
/// 3.2.1), even if Connection does not name these fields.
pub fn offers_http(headers: &HeaderList) -> bool {
    headers.contains(NameId::Http2Settings) || headers.get_all(NameId::Upgrade).flat_map(list).any(is_http)
}

fn is_http(protocol: &[u8]) -> bool {
    let name = trim(protocol.split(|&byte| byte == b'/').next().unwrap_or_default());
    [&b"h2c"[..], b"h2", b"http"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

/// The expectation in Expect (RFC 9110, 10.1.1).
pub fn expects_continue(headers: &HeaderList) -> Expectation {
    let mut found = Expectation::None;
    for value in headers.get_all(NameId::Expect) {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Expectation::Unknown;
        }
        found = Expectation::Continue;
    }
    found
}

/// Removes the fields with a `_` in their name and returns their number. Programs behind CGI-like interfaces read
/// `X_Real_IP` as `X-Real-IP`, so a client could forge `X-Real-IP`.
pub fn drop_underscore_names(headers: &mut HeaderList) -> usize {
    drop_underscore_names_before(headers, usize::MAX)
}

/// Like [`drop_underscore_names`], only for the fields that were added before the list's
/// [`arena_len`](HeaderList::arena_len) reached `mark`.
pub fn drop_underscore_names_before(headers: &mut HeaderList, mark: usize) -> usize {
    if !headers.may_have_underscores() {
        return 0;
    }
    let before = headers.len();
    headers.retain_before(mark, |field| !field.name.contains(&b'_'));
    before - headers.len()
}

/// Removes fields that have the name of a known field with `_` for `-`, such as `Content_Length` and
/// `X_Forwarded_For`, if they were added before the list's [`arena_len`](HeaderList::arena_len) reached `mark`.
/// CGI-like programs would read them as the known fields.
pub fn drop_misspelt_names_before(headers: &mut HeaderList, mark: usize) -> usize {
    if !headers.may_have_underscores() {
        return 0;
    }
    let before = headers.len();
    headers.retain_before(mark, |field| {
        !field.name.contains(&b'_') || NameId::from_name(&hyphenated(field.name)) == NameId::Unknown
    });
    before - headers.len()
}

fn hyphenated(name: &[u8]) -> Vec<u8> {
    name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect()
}

/// Returns true if a Connection field names this option.
pub fn has_connection_option(headers: &HeaderList, option: &[u8]) -> bool {
    headers.contains(NameId::Connection)
        && headers.get_all(NameId::Connection).flat_map(list).any(|name| name.eq_ignore_ascii_case(option))
}

/// The members of a comma-separated list, without blanks and without empty ones.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}

/// The names in Connection fields.
#[derive(Debug, Default)]
pub struct NamedOptions {
    /// The names with an id; never the bit of [`NameId::Unknown`].
    known: u128,
    /// The names without an id, concatenated. Empty, and not allocated, for nearly every message.
    unknown: Vec<u8>,
    /// The end of each name in `unknown`.
    ends: Vec<usize>,
    /// Set if there were too many names to remember: all unknown fields are removed.
    all_unknown: bool,
}

impl NamedOptions {
    fn by_connection(headers: &HeaderList) -> Self {
        let mut named = Self::default();
        for name in headers.get_all(NameId::Connection).flat_map(list) {
            match NameId::from_name(name) {
                NameId::Unknown if name.eq_ignore_ascii_case(b"close") => {}
                NameId::Unknown if named.ends.len() < MAX_CONNECTION_NAMES => {
                    named.unknown.extend_from_slice(name);
                    named.ends.push(named.unknown.len());
                }
                NameId::Unknown => named.all_unknown = true,
                id => named.known |= id.bit(),
            }
        }
        named
    }

    /// Removes the trailers that have one of the names.
    pub fn remove_from(&self, trailers: &mut HeaderList) {
        trailers.retain(|field| match field.id {
            NameId::Unknown => !self.has_unknown(field.name),
            id => self.known & id.bit() == 0,
        });
    }

    /// Returns true if `name` is among the names without an id. Lengths are compared first, so that many long names from a
    /// peer cost little to compare.
    fn has_unknown(&self, name: &[u8]) -> bool {
        let mut start = 0;
        self.all_unknown
            || self.ends.iter().any(|&end| {
                let named = self.unknown.get(start..end).unwrap_or_default();
                start = end;
                named.eq_ignore_ascii_case(name)
            })
    }
}

/// Returns true if CGI programs cannot distinguish two names: they ignore case and map `-` to `_`.
pub fn is_spelling(one: &[u8], other: &[u8]) -> bool {
    let same = |(one, other): (&u8, &u8)| match (one, other) {
        (b'-' | b'_', b'-' | b'_') => true,
        (one, other) => one.eq_ignore_ascii_case(other),
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}
