//! `listen`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use foregate_config::{Decoder, Item, Place, Problem, Upstreams as _};
use foregate_proxy::settings::{Listen, ListenAddress, ListenTls, TlsPolicy};

use super::names::UpstreamNames;
use super::numbers::set;
use super::queueing::Queueing;
use super::shield::ReadShield;
use super::sockets::socket_path;
use super::tls;
use super::writable;
use crate::config::schema::{LISTEN, LISTEN_TLS};
use foregate_config::value::{self, Value, Wrong};

const ADDRESSES: &str = "write IP:PORT, [IPV6]:PORT, :PORT for all addresses, or unix:PATH";

/// A TCP socket: its address, the place of its setting, and true if it shares its port (SO_REUSEPORT).
type Socket = (SocketAddr, Place, bool);

/// The listeners that are being read, and the addresses that they may conflict with.
#[derive(Default)]
pub(super) struct Listeners {
    list: Vec<Listen>,
    /// The place of each address.
    places: HashMap<ListenAddress, Place>,
    /// The addresses of metrics and the dashboard.
    aside: Vec<(SocketAddr, Place)>,
}

impl Listeners {
    pub(super) fn decode(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        (upstreams, shield): (&UpstreamNames, &ReadShield),
        inspection: &mut tls::Inspection,
    ) {
        let addresses = decoder.read(item, 0, |value| addresses(value, item.base())).unwrap_or_default();
        let listen = decode(decoder, item, (upstreams, shield), inspection);
        let of_all_addresses = addresses.len() > 1;
        let mut told = false;
        for address in addresses {
            if let Some(first) = self.places.insert(address.clone(), item.place()) {
                let problem = Problem::new(Some(item.place()), "this address is listened on already");
                // `:PORT` stands for two addresses, but a mistake in it is reported once.
                if !std::mem::replace(&mut told, true) {
                    decoder.push(problem.also(first, "the first one"));
                }
                continue;
            }
            self.list.push(Listen { address, of_all_addresses, ..listen.clone() });
        }
    }

    /// The listeners that have been read so far.
    pub(super) fn list(&self) -> &[Listen] {
        &self.list
    }

    /// Checks that the admin socket has another path than all listeners.
    pub(super) fn admin(&self, decoder: &mut Decoder<'_>, path: PathBuf, place: Place) {
        if let Some(first) = self.places.get(&ListenAddress::Unix(path)) {
            let problem = Problem::new(Some(place), "a `listen` has this path already");
            decoder.push(problem.help("give `admin` another one").also(*first, "this one"));
        }
    }

    pub(super) fn metrics(&mut self, address: Option<SocketAddr>, item: Item<'_>) {
        self.aside.extend(address.map(|address| (address, item.place())));
    }

    /// Adds the dashboard's address, and checks that it does not conflict with other sockets.
    pub(super) fn dashboard(
        &mut self,
        decoder: &mut Decoder<'_>,
        address: &ListenAddress,
        admin: Option<&Path>,
        item: Item<'_>,
    ) {
        match address {
            ListenAddress::Tcp(address) => self.aside.push((*address, item.place())),
            ListenAddress::Unix(path) => {
                if let Some(first) = self.places.get(address) {
                    let problem = Problem::new(Some(item.place()), "a `listen` has this path already");
                    decoder.push(problem.help("give `dashboard` another one").also(*first, "this one"));
                } else if admin == Some(&**path) {
                    let problem = Problem::new(Some(item.place()), "`admin` has this path already");
                    decoder.push(problem.help("give `dashboard` another one"));
                }
            }
        }
    }

    /// Returns the listeners, and reports addresses that conflict, because the system would refuse to bind the second. With
    /// `inspect`, the paths of Unix sockets are checked too.
    pub(super) fn finish(self, decoder: &mut Decoder<'_>, inspect: bool) -> Vec<Listen> {
        for listen in self.list.iter().filter(|_| inspect) {
            if let (ListenAddress::Unix(path), Some(place)) =
                (&listen.address, self.places.get(&listen.address))
            {
                writable::no_socket(decoder, path, *place);
            }
        }
        let tcp = |listen: &Listen| match listen.address {
            ListenAddress::Tcp(address) => {
                Some((address, *self.places.get(&listen.address)?, listen.reuse_port))
            }
            ListenAddress::Unix(_) => None,
        };
        let mut all: Vec<_> = self.list.iter().filter_map(tcp).collect();
        all.extend(self.aside.iter().map(|(address, place)| (*address, *place, false)));
        // Sockets are grouped by port and address family. A group is small, so thousands of listeners are compared fast.
        let mut known: HashMap<(u16, bool), Vec<Socket>> = HashMap::new();
        for (address, place, shared) in all {
            let others = known.entry((address.port(), address.is_ipv4())).or_default();
            let rival = others.iter().find(|(other, _, other_shared)| {
                let overlap =
                    *other == address || other.ip().is_unspecified() || address.ip().is_unspecified();
                overlap && !(shared && *other_shared)
            });
            // For port 0, the kernel chooses a different port for each socket.
            if address.port() != 0
                && let Some((other, first, _)) = rival
            {
                let message = format!("{address} overlaps with {other}: the system refuses the second");
                let help = match address == *other {
                    true => "take another port",
                    false => "leave out the narrower one, or take another port",
                };
                decoder.push(Problem::new(Some(place), message).also(*first, "the first one").help(help));
            }
            others.push((address, place, shared));
        }
        self.list
    }
}

fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    (upstreams, shield): (&UpstreamNames, &ReadShield),
    inspection: &mut tls::Inspection,
) -> Listen {
    let mut listen = Listen::new(ListenAddress::Tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
    let mut queueing = Queueing::default();
    for (key, item) in decoder.block(item, &LISTEN) {
        match key.name {
            "tls" => {
                let stated = tls::decode(decoder, item, &LISTEN_TLS, inspection);
                if stated.automatic.is_none() && stated.certificates.is_empty() && !decoder.misses_files() {
                    needs_certificate(decoder, item);
                }
                let policy = stated.policy(&TlsPolicy::default());
                let (certificates, automatic) = (stated.certificates, stated.automatic);
                listen.tls = Some(ListenTls { certificates, automatic, policy });
            }
            "proxy-protocol" => {
                listen.proxy_protocol_from = decoder.read_all(item, |v| {
                    value::string(v)?.parse().map_err(|error| Wrong::new(format!("{error}")))
                });
            }
            "reuse-port" => listen.reuse_port = decoder.flag(item),
            "backlog" => set(&mut listen.backlog, decoder.read(item, 0, |v| value::number(v, 1..=1_000_000))),
            "connections" => {
                let count = decoder.read(item, 0, |v| value::number(v, 1..=u32::MAX.into()));
                listen.connections = count.map(|count| count as usize);
            }
            "requests" => queueing.requests(decoder, item),
            "queue" => queueing.queue(decoder, item),
            "http2" => listen.http2 = decoder.flag(item),
            "tap" => {
                let name = decoder.read(item, 0, |v| {
                    let name = value::string(v)?;
                    upstreams.find(name)?;
                    Ok(Box::from(name))
                });
                listen.tap = name;
            }
            "shield" => listen.shield = shield.named(decoder, item),
            "half-close" => listen.half_close = decoder.flag(item),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    listen.requests = queueing.finish(decoder);
    if listen.shield && listen.tap.is_some() {
        let problem = Problem::new(Some(item.place()), "a listener is for the shield or a tap, not both");
        decoder.push(problem.help("add another `listen`"));
    }
    if listen.shield && listen.tls.is_some() {
        let problem = Problem::new(Some(item.place()), "nodes of a shield do not speak TLS");
        decoder.push(problem.help(
            "leave out `tls`, and lead the traffic between nodes through a private network or a tunnel",
        ));
    }
    listen
}

fn needs_certificate(decoder: &mut Decoder<'_>, item: Item<'_>) {
    // A refused certificate or an unknown key was probably meant as the certificate, and has been reported.
    let is_told = item.node.entries().next().is_some()
        || item
            .children()
            .iter()
            .any(|child| !LISTEN_TLS.keys.iter().any(|key| key.name == child.node.name()))
        || item.children().iter().any(|child| child.node.name() == "certificate");
    if !is_told {
        let problem = Problem::new(Some(item.place()), "`tls` needs a `certificate`");
        decoder.push(problem.help(
            "add `certificate \"site.pem\" key=\"site.key\"`, or write `tls \"auto\"`, which obtains certificates by itself",
        ));
    }
}

pub(super) fn addresses(value: &Value<'_>, base: &Path) -> Result<Vec<ListenAddress>, Wrong> {
    let help = |wrong: Wrong| match (value.text.parse::<u16>(), value.text.rsplit_once(':')) {
        (Ok(port), _) => wrong.help(format!("write \":{port}\" for all addresses, or \"127.0.0.1:{port}\"")),
        (_, Some((_, port))) if port.parse::<u64>().is_ok_and(|port| port > u64::from(u16::MAX)) => {
            wrong.help(format!("a port is at most {}", u16::MAX))
        }
        (_, Some(("localhost", port))) => {
            wrong.help(format!("write \"127.0.0.1:{port}\" or \"[::1]:{port}\""))
        }
        _ => wrong.help(ADDRESSES),
    };
    let text = value::string(value).map_err(|_| help(Wrong::new("expected an address")))?;
    if let Some(path) = text.strip_prefix("unix:") {
        socket_path(base, path)?;
    }
    // An IPv6 listener accepts no IPv4 clients, and cannot be bound to an IPv4-mapped address.
    if let Ok(SocketAddr::V6(address)) = text.parse()
        && let Some(ip) = address.ip().to_ipv4_mapped()
    {
        let wrong =
            Wrong::new("this is an address of IPv4 in the notation of IPv6, on which nothing can listen");
        return Err(wrong.help(format!("write \"{ip}:{}\"", address.port())));
    }
    listen_addresses(text, base).ok_or_else(|| help(Wrong::new("this is not an address to listen on")))
}

/// The addresses for which a text stands. `:PORT` stands for an IPv4 and an IPv6 address if the machine has IPv6, so
/// that clients over IPv4 keep their addresses, whatever the value of `net.ipv6.bindv6only`.
pub(in crate::config) fn listen_addresses(text: &str, base: &Path) -> Option<Vec<ListenAddress>> {
    if let Some(path) = text.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| vec![ListenAddress::Unix(base.join(path))]);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().ok().filter(|_| port.bytes().all(|b| b.is_ascii_digit()))?;
        let mut addresses = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        // Port 0 gives one address only, because the kernel would choose a different port for each socket.
        if port != 0 && Path::new("/proc/self/net/if_inet6").exists() {
            addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        }
        return Some(addresses.into_iter().map(ListenAddress::Tcp).collect());
    }
    Some(vec![ListenAddress::Tcp(text.parse().ok()?)])
}
