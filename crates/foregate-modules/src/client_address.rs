//! The real address of the client behind proxies that are trusted.
//!
//! ```kdl
//! trusted-proxies "10.0.0.0/8" "2001:db8::/32" header="x-forwarded-for"
//! trusted-proxies "private" file="cdn-networks.txt" header="forwarded"
//! ```
//!
//! Each proxy adds the address that it saw to the right of a list. The list is walked from the right, as long as the one
//! who has written an entry is trusted: the first address that is no trusted proxy's is the client. The walk stops before
//! the first entry that is not an address; whatever stands left of it a client can have made up. Without this key nothing
//! that a client claims is believed.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Mistakes, Prop, together};
use foregate_module::{
    Context, Emit, Field, Fields, Filter, FromNode, Key, Kind, Never, Node, PeerAddress, Problem,
    RequestFields, SetClientAddress, Shown, Step, Value, phase,
};

use crate::ranges::{self, Network, NetworkError, Ranges};
use crate::token::is_token;

/// The most entries that are walked. Whoever stands behind more proxies is seen as the last of these.
const HOPS_LIMIT: usize = 64;

/// The word for the networks of [`ranges::PRIVATE`].
const PRIVATE: &str = "private";

/// The word for peers on Unix sockets.
const UNIX: &str = "unix";

const KEY: Key = Key {
    usage: "NETWORK... file=FILE header=NAME",
    ..Key::one(
        "trusted-proxies",
        "",
        "trusted-proxies \"10.0.0.0/8\" header=\"x-forwarded-for\"",
        "Takes the client's address from a field of the request when the request comes from these networks. \
         `private` stands for loopback, private, shared, link-local and unique local networks, `unix` for Unix sockets.",
    )
}
.args(0, ANY)
.otherwise("the client is the other end of the connection, whatever a request claims")
.props(&[
    Prop {
        name: "file",
        usage: "FILE",
        required: false,
        default: "",
        about: "More networks, one to a line; `#` begins a comment.",
    },
    Prop {
        name: "header",
        usage: "NAME",
        required: false,
        default: "\"x-forwarded-for\"",
        about: "The field: `forwarded` is read as RFC 7239 says, any other (`x-forwarded-for`, `x-real-ip`, \
                `cf-connecting-ip`) as a list of addresses. The trusted proxies have to write or remove it.",
    },
]);

/// Whether the request comes from a proxy that is trusted.
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

/// The settings: who is trusted, and where the address stands.
#[derive(Debug, Default)]
pub struct TrustedProxies {
    networks: Ranges,
    unix: bool,
    header: Header,
}

/// Where the address stands.
#[derive(Debug, Default, PartialEq, Eq)]
enum Header {
    /// `Forwarded` (RFC 7239).
    #[default]
    Forwarded,
    /// A list of addresses.
    List(alloc::string::String),
}

impl FromNode for TrustedProxies {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Ok(Self::default()) };
        let (header, (networks, unix)) = together((read_header(node), read_peers(node, context)))?;
        let networks = Ranges::new(networks.into_iter().map(|network| (network, 0)));
        Ok(Self { networks, unix, header })
    }
}

fn read_header(node: &Node) -> Result<Header, Problem> {
    let Some(name) = node.prop("header") else { return Ok(Header::List("x-forwarded-for".into())) };
    let text = name.text()?;
    Field::new(text.to_string(), "").map_err(|error| name.wrong(error.to_string()))?;
    Ok(match text.eq_ignore_ascii_case("forwarded") {
        true => Header::Forwarded,
        false => Header::List(text.to_ascii_lowercase()),
    })
}

/// The networks that are trusted, and whether Unix sockets are.
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

    /// The client, if it is another than the peer, which is trusted.
    fn client(&self, fields: &dyn Fields) -> Option<IpAddr> {
        let name = match &self.header {
            Header::Forwarded => "forwarded",
            Header::List(name) => name,
        };
        let mut believed = None;
        let mut hops = 0;
        for number in (0..fields.count()).rev() {
            let Some((found, value)) = fields.field(number) else { continue };
            if !found.eq_ignore_ascii_case(name.as_bytes()) {
                continue;
            }
            let mut rest = Some(value);
            while let Some(value) = rest {
                let (left, entry) = match self.header {
                    Header::Forwarded => last_element(value),
                    Header::List(_) => last_entry(value),
                };
                rest = left;
                let entry = entry.trim_ascii();
                // Lists may have empty members (RFC 9110, section 5.6.1).
                if entry.is_empty() {
                    continue;
                }
                hops += 1;
                let address = match self.header {
                    Header::Forwarded => forwarded_for(entry),
                    Header::List(_) => listed(entry),
                };
                match address {
                    Some(found) if hops <= HOPS_LIMIT => believed = Some(found),
                    _ => return believed,
                }
                if !self.trusts(believed) {
                    return believed;
                }
            }
        }
        believed
    }
}

/// What stands before the last comma, and what behind it.
fn last_entry(value: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match value.iter().rposition(|byte| *byte == b',') {
        Some(at) => (Some(&value[..at]), &value[at + 1..]),
        None => (None, value),
    }
}

/// The same where commas can stand in quotes. It is looked for from the right, so that a quote that a client has left open
/// does not swallow what a trusted proxy has added behind it.
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

/// The address of an element of `Forwarded`: the parameter `for` (RFC 7239, section 4). `None` for an element that is
/// malformed, has none or two, or one that is `unknown` or obfuscated.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut address = None;
    let mut rest = element;
    loop {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (rest[..equals].trim_ascii(), &rest[equals + 1..]);
        if !is_token(name) {
            return None;
        }
        let (value, quoted, after) = match value.strip_prefix(b"\"") {
            Some(inner) => {
                // What an address consists of needs no escapes; any other parameter may have them.
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
            let found = if plain { None } else { listed(value) };
            if address.is_some() || found.is_none() {
                return None;
            }
            address = found;
        }
        match after.trim_ascii_start() {
            [] => return address,
            [b';', more @ ..] if more.trim_ascii().is_empty() => return address,
            [b';', more @ ..] => rest = more,
            _ => return None,
        }
    }
}

/// Where a quoted text ends.
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
    type Out = (SetClientAddress, Emit<PeerTrusted>);
    type Stop = Never;
    const NAME: &'static str = "trusted-proxies";
    const ABOUT: &'static str = "Takes the client's address from a field that a trusted proxy has written.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &TrustedProxies,
        (PeerAddress(peer), RequestFields(fields)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let trusted = settings.trusts(peer);
        let client = if trusted { settings.client(fields) } else { None };
        ControlFlow::Continue((SetClientAddress(client), Emit(Some(trusted))))
    }
}

#[cfg(test)]
mod tests;
