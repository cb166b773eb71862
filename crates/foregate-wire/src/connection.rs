//! The parts of a message that belong to one connection (RFC 9110, 7.6).

use crate::chars::trim;
use crate::headers::HeaderList;
use crate::method::Version;
use crate::name_id::NameId;

/// The most names in Connection fields that are looked at one by one; with more, the message is treated as if it
/// named all its unknown fields.
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

/// The expectation of a client before it sends its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No Expect field.
    None,
    /// `100-continue`, and nothing else.
    Continue,
    /// Anything else: answer with 417.
    Unknown,
}

/// Removes the fields that must not cross the proxy: Connection and those that it names (except Host, Content-Length,
/// Transfer-Encoding), Keep-Alive, Proxy-Connection, TE, Upgrade, HTTP2-Settings.
///
/// `TE: trailers` is put back when the message had it and `keep_te_trailers` says that the next hop may know.
/// Transfer-Encoding and Content-Length stay: framing decides on them. Returns how many fields went.
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

/// Removes Content-Type and Content-Encoding if Connection names them. They would not cross the proxy anyway
/// ([`strip_hop_by_hop`]); an inspection of the body has to read it as the next hop will, which does not receive
/// them.
pub fn drop_named_content_fields(headers: &mut HeaderList) {
    let may_have = |ids: u128| headers.present() & ids != 0;
    if may_have(NameId::Connection.bit()) && may_have(CONTENT) {
        let named = NamedOptions::by_connection(headers).known;
        headers.remove_all(CONTENT & named);
    }
}

/// The names in Connection except those that never cross anyway: no trailer may have such a name either (RFC 9110, section 7.6.1).
/// `None` for nearly every message.
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
/// `None` when HTTP itself is among them (`h2c`, `h2`, `HTTP/2.0`): such a switch would put requests out of the
/// proxy's sight. HTTP/1.0 has no Upgrade; that is for the caller to know.
pub fn upgrade(headers: &HeaderList) -> Option<&[u8]> {
    let value = headers.get(NameId::Upgrade)?;
    if headers.count(NameId::Upgrade) > 1 || !has_connection_option(headers, b"upgrade") {
        return None;
    }
    let mut protocols = list(value).peekable();
    protocols.peek()?;
    if protocols.any(is_http) { None } else { Some(value) }
}

/// The protocols that a request offers, without HTTP itself, which [`upgrade`] tells more of: those that may be asked of an origin.
///
/// `None` when Connection does not name Upgrade, or nothing else is offered.
pub fn offered(headers: &HeaderList) -> Option<Vec<u8>> {
    if !has_connection_option(headers, b"upgrade") {
        return None;
    }
    let protocols = headers.get_all(NameId::Upgrade).flat_map(list).filter(|protocol| !is_http(protocol));
    let offered = protocols.collect::<Vec<_>>().join(&b", "[..]);
    (!offered.is_empty()).then_some(offered)
}

/// Returns true if HTTP itself is offered (`h2c`, `h2`, `HTTP/2.0`), or settings for it (RFC 7540, section 3.2.1), whether Connection
/// names them or not.
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
/// `X_Real_IP` as `X-Real-IP`, so a client could forge such a field.
pub fn drop_underscore_names(headers: &mut HeaderList) -> usize {
    drop_underscore_names_before(headers, usize::MAX)
}

/// Like the above, for the fields from before the list's [`arena_len`](HeaderList::arena_len) was `mark`.
pub fn drop_underscore_names_before(headers: &mut HeaderList, mark: usize) -> usize {
    if !headers.may_have_underscores() {
        return 0;
    }
    let before = headers.len();
    headers.retain_before(mark, |field| !field.name.contains(&b'_'));
    before - headers.len()
}

/// Removes earlier fields with the name of a known field in which `_` replaces `-`, such as
/// `Content_Length` and `X_Forwarded_For`: programs that use names with `_` would read them as the real ones.
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
    /// The end of each of them.
    ends: Vec<usize>,
    /// There were too many to remember: all unknown fields go.
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

    /// Lengths are compared before bytes: names that a peer made long cost it more than us.
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
