//! The real address of the client behind trusted proxies.
//!
//! ```kdl
//! trusted-proxies "10.0.0.0/8" "2001:db8::/32" header="x-forwarded-for"
//! trusted-proxies "private" file="cdn-networks.txt" header="forwarded" scheme-header="forwarded"
//! ```
//!
//! Each proxy appends the address of its peer at the right end of a list. The list is read from the right, as long as
//! a trusted proxy wrote the entry: the first address that does not belong to a trusted proxy is the client's.
//! Reading stops before an entry that is not an address, because a client can forge everything to the left of it.
//! Without this key, no forwarded address is believed. With `scheme-header`, the scheme of the client's request is
//! read from a field, too.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Mistakes, Prop, together};
use foregate_module::{
    Context, Emit, Field, Fields, Filter, FromNode, Key, Kind, Never, Node, PeerAddress, Problem,
    RequestFields, SetClientAddress, SetClientScheme, Shown, Step, Value, phase,
};

use crate::ranges::{self, Network, NetworkError, Ranges};
use crate::token::is_token;

/// The most entries that are read. If there are more proxies, the last one that was read counts as the client.
const HOPS_LIMIT: usize = 64;

/// The word for the networks of [`ranges::PRIVATE`].
const PRIVATE: &str = "private";

/// The word for peers on Unix sockets.
const UNIX: &str = "unix";

const KEY: Key = Key {
    usage: "NETWORK... file=FILE header=NAME scheme-header=NAME",
    ..Key::one(
        "trusted-proxies",
        "",
        "trusted-proxies \"10.0.0.0/8\" header=\"x-forwarded-for\"",
        "Takes the client's address from a field of the request if the request comes from one of these networks. \
         `private` stands for loopback, private, shared, link-local and unique local networks, `unix` for Unix sockets.",
    )
}
.args(0, ANY)
.otherwise("the client's address is that of the connection")
.props(&[
    Prop {
        name: "file",
        usage: "FILE",
        required: false,
        default: "",
        about: "A file with more networks, one per line; `#` begins a comment.",
    },
    Prop {
        name: "header",
        usage: "NAME",
        required: false,
        default: "\"x-forwarded-for\"",
        about: "The field with the address. `forwarded` is read by RFC 7239; any other field (`x-forwarded-for`, `x-real-ip`, \
                `cf-connecting-ip`) is read as a list of addresses. The trusted proxies must overwrite or remove this field.",
    },
    Prop {
        name: "scheme-header",
        usage: "NAME",
        required: false,
        default: "",
        about: "The field with the scheme of the client's request, `https` or `http`, such as `x-forwarded-proto`; for `header=\"forwarded\"` it is `forwarded`. Without it: the scheme of the connection to Foregate.",
    },
]);

/// True if the request comes from a trusted proxy.
#[derive(Debug)]
pub enum PeerTrusted {}

impl Value for PeerTrusted {
    type Data = bool;
    const NAME: &'static str = "peer.trusted";
    const ABOUT: &'static str = "Whether the other end of the connection is one of `trusted-proxies`.";
    const SHOWS: Option<Kind> = Some(Kind::Bool);
    fn show(trusted: &bool) -> Option<Shown<'_>> {
        Some(Shown::Bool(*trusted))
    }
}

/// The settings: the trusted networks, and the field with the address.
#[derive(Debug, Default)]
pub struct TrustedProxies {
    networks: Ranges,
    unix: bool,
    header: Header,
    scheme: Option<Header>,
}

/// The field that contains the address or the scheme.
#[derive(Debug, Default, PartialEq, Eq)]
enum Header {
    /// `Forwarded` (RFC 7239).
    #[default]
    Forwarded,
    /// A field of this name, which contains nothing else.
    List(alloc::string::String),
}

/// The client according to a trusted proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ForwardedHop {
    address: Option<IpAddr>,
    /// The scheme, if it is known: true for `https`, false for `http`.
    secure: Option<bool>,
}

impl FromNode for TrustedProxies {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Ok(Self::default()) };
        let header = read_header(node, "header");
        let scheme = read_header(node, "scheme-header");
        let (header, scheme, (networks, unix)) = together((header, scheme, read_peers(node, context)))?;
        let header = header.unwrap_or_else(|| Header::List("x-forwarded-for".into()));
        if let Some(name) = node.prop("scheme-header")
            && scheme == Some(Header::Forwarded)
            && header != Header::Forwarded
        {
            return Err(name
                .wrong("the scheme is in `Forwarded`, and the address is not")
                .help("`Forwarded` tells both of the same hop: write header=\"forwarded\" as well"));
        }
        let networks = Ranges::new(networks.into_iter().map(|network| (network, 0)));
        Ok(Self { networks, unix, header, scheme })
    }
}

fn read_header(node: &Node, prop: &str) -> Result<Option<Header>, Problem> {
    let Some(name) = node.prop(prop) else { return Ok(None) };
    let text = name.text()?;
    Field::new(text.to_string(), "").map_err(|error| name.wrong(error.to_string()))?;
    Ok(Some(match text.eq_ignore_ascii_case("forwarded") {
        true => Header::Forwarded,
        false => Header::List(text.to_ascii_lowercase()),
    }))
}

/// The trusted networks, and true if Unix sockets are trusted.
fn read_peers(node: &Node, context: &mut dyn Context) -> Result<(Vec<Network>, bool), Problem> {
    let (mut networks, mut unix) = (Vec::new(), false);
    let mut mistakes = Mistakes::default();
    for argument in node.args() {
        match argument.text() {
            Ok(UNIX) => unix = true,
            Ok(PRIVATE) => {
                networks.extend(ranges::PRIVATE.iter().filter_map(|text| text.parse::<Network>().ok()));
            }
            Ok(text) => {
                let network: Result<Network, NetworkError> = text.parse();
                let network = network.map_err(|error| argument.wrong(error.to_string()));
                networks.extend(mistakes.kept(network));
            }
            Err(problem) => mistakes.add(problem),
        }
    }
    if let Some(path) = node.prop("file") {
        networks.extend(mistakes.kept(ranges::of_file(path, context)).unwrap_or_default());
    }
    mistakes.none()?;
    if networks.is_empty() && !unix {
        return Err(node
            .wrong("`trusted-proxies` needs at least one network")
            .help("name the networks of your proxies, such as \"10.0.0.0/8\", or \"private\""));
    }
    Ok((networks, unix))
}

impl TrustedProxies {
    fn trusts(&self, address: Option<IpAddr>) -> bool {
        address.map_or(self.unix, |address| self.networks.get(address).is_some())
    }

    /// The client according to the forwarding field, which is read only if the peer is a trusted proxy. The address is
    /// `None` if the client is the peer itself.
    fn client(&self, fields: &dyn Fields) -> ForwardedHop {
        let (name, last): (_, Last) = match &self.header {
            Header::Forwarded => ("forwarded", last_element),
            Header::List(name) => (name, last_entry),
        };
        let mut believed = ForwardedHop::default();
        for entry in from_the_right(fields, name, last).take(HOPS_LIMIT) {
            let hop = match self.header {
                Header::Forwarded => forwarded(entry),
                Header::List(_) => {
                    listed(entry).map(|address| ForwardedHop { address: Some(address), secure: None })
                }
            };
            let Some(hop) = hop else { return believed };
            // If an entry states no address, the address from the previous entry is kept, but the scheme is taken from this entry.
            believed = ForwardedHop { address: hop.address.or(believed.address), secure: hop.secure };
            if hop.address.is_none() || !self.trusts(hop.address) {
                return believed;
            }
        }
        believed
    }

    /// The scheme of the client's request, as the last proxy that stated one has written it: true for `https`, false for
    /// `http`.
    fn secure(&self, client: ForwardedHop, fields: &dyn Fields) -> Option<bool> {
        match self.scheme.as_ref()? {
            Header::Forwarded => client.secure,
            Header::List(name) => from_the_right(fields, name, last_entry).next().and_then(is_secure),
        }
    }
}

/// A function that splits the last entry off a list. It returns the rest of the list, if any, and the entry.
type Last = fn(&[u8]) -> (Option<&[u8]>, &[u8]);

/// The entries of a list, from the right. All fields of a name form one list. Empty members, which a list may have
/// (RFC 9110, section 5.6.1), are left out.
fn from_the_right<'f>(fields: &'f dyn Fields, name: &str, last: Last) -> impl Iterator<Item = &'f [u8]> {
    let values = (0..fields.count()).rev().filter_map(|number| fields.field(number));
    let values = values.filter(move |(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
    values
        .flat_map(move |(_, value)| {
            let mut rest = Some(value);
            core::iter::from_fn(move || {
                let (left, entry) = last(rest?);
                rest = left;
                Some(entry.trim_ascii())
            })
        })
        .filter(|entry| !entry.is_empty())
}

/// Returns true for an encrypted scheme; `None` for an unknown one.
fn is_secure(scheme: &[u8]) -> Option<bool> {
    let is = |name: &str| scheme.eq_ignore_ascii_case(name.as_bytes());
    match () {
        // These words are used in fields such as `x-forwarded-ssl`.
        () if is("https") || is("wss") || is("on") => Some(true),
        () if is("http") || is("ws") || is("off") => Some(false),
        () => None,
    }
}

/// Splits at the last comma.
fn last_entry(value: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match value.iter().rposition(|byte| *byte == b',') {
        Some(at) => (Some(&value[..at]), &value[at + 1..]),
        None => (None, value),
    }
}

/// Splits at the last comma outside of quotes. The search runs from the right: a quote that a client has left open then
/// cannot hide the entries that trusted proxies have appended.
fn last_element(value: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, byte) in value.iter().enumerate().rev() {
        match byte {
            b'"' => {
                let escapes = value[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                quoted ^= !(quoted && escapes % 2 == 1);
            }
            b',' if !quoted => return (Some(&value[..at]), &value[at + 1..]),
            _ => {}
        }
    }
    (None, value)
}

/// An address in a list: with or without port, an IPv6 address with or without brackets.
fn listed(entry: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(entry).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical());
    }
    text.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical())
}

/// Parses an element of `Forwarded`: the parameters `for` and `proto` (RFC 7239, section 4). Returns `None` for an
/// element that is malformed, or has one of these parameters twice. An `unknown` or obfuscated identifier yields no
/// address.
fn forwarded(element: &[u8]) -> Option<ForwardedHop> {
    let mut address = None;
    let mut proto = None;
    let mut rest = element;
    loop {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (rest[..equals].trim_ascii(), &rest[equals + 1..]);
        if !is_token(name) {
            return None;
        }
        let (value, quoted, after) = match value.strip_prefix(b"\"") {
            Some(inner) => {
                // An address never needs an escape, but the value of any other parameter may have one.
                let end = closing_quote(inner)?;
                (&inner[..end], true, &inner[end + 1..])
            }
            None => {
                let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
                (value[..end].trim_ascii_end(), false, &value[end..])
            }
        };
        if !quoted && !is_token(value) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") {
            // An IPv6 address stands in brackets, an address with a port in quotes.
            let plain = value.contains(&b':')
                && !value.starts_with(b"[")
                && value.iter().filter(|b| **b == b':').count() > 1;
            if address.replace(if plain { None } else { listed(value) }).is_some() {
                return None;
            }
        }
        if name.eq_ignore_ascii_case(b"proto") && proto.replace(value).is_some() {
            return None;
        }
        let hop = ForwardedHop { address: address.flatten(), secure: proto.and_then(is_secure) };
        match after.trim_ascii_start() {
            [] => return Some(hop),
            [b';', more @ ..] if more.trim_ascii().is_empty() => return Some(hop),
            [b';', more @ ..] => rest = more,
            _ => return None,
        }
    }
}

/// The end of a quoted text.
fn closing_quote(inner: &[u8]) -> Option<usize> {
    let mut escaped = false;
    inner.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })
}

/// Takes the client's address from a trusted proxy.
#[derive(Debug, Default)]
pub struct ClientAddress;

impl Step for ClientAddress {
    type At = phase::RequestEarly;
    type Settings = TrustedProxies;
    type In<'r> = (PeerAddress, RequestFields<'r>);
    type Out = (SetClientAddress, SetClientScheme, Emit<PeerTrusted>);
    type Stop = Never;
    const NAME: &'static str = "trusted-proxies";
    const ABOUT: &'static str = "Takes the client's address, and the scheme it has asked by, from fields that a trusted proxy has written.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &TrustedProxies,
        (PeerAddress(peer), RequestFields(fields)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let trusted = settings.trusts(peer);
        let client = if trusted { settings.client(fields) } else { ForwardedHop::default() };
        let secure = if trusted { settings.secure(client, fields) } else { None };
        ControlFlow::Continue((
            SetClientAddress(client.address),
            SetClientScheme(secure),
            Emit(Some(trusted)),
        ))
    }
}

#[cfg(test)]
mod tests;
