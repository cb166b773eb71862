//! `listen`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::settings::{Listen, ListenAddress, ListenTls};

use super::numbers::set;
use super::tls;
use crate::config::schema::{LISTEN, LISTEN_TLS};
use foregate_config::value::{self, Value, Wrong};

const ADDRESSES: &str = "write IP:PORT, [IPV6]:PORT, :PORT for all addresses, or unix:PATH";

pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    listeners: &mut Vec<Listen>,
    listened: &mut HashMap<ListenAddress, Place>,
) {
    let addresses = decoder.read(item, 0, |value| addresses(value, item.base())).unwrap_or_default();
    let mut listen = Listen::new(ListenAddress::Tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
    for (key, item) in decoder.block(item, &LISTEN) {
        match key.name {
            "tls" => {
                let (certificates, policy) = tls::decode(decoder, item, &LISTEN_TLS);
                listen.tls = Some(ListenTls { certificates, policy });
            }
            "proxy-protocol" => {
                listen.proxy_protocol_from = decoder.read_all(item, |v| {
                    value::string(v)?.parse().map_err(|error| Wrong::new(format!("{error}")))
                });
            }
            "reuse-port" => listen.reuse_port = decoder.flag(item),
            "backlog" => set(&mut listen.backlog, decoder.read(item, 0, |v| value::number(v, 1..=1_000_000))),
            "http2" => listen.http2 = decoder.flag(item),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    for address in addresses {
        if let Some(first) = listened.insert(address.clone(), item.place()) {
            let problem = Problem::new(Some(item.place()), "this address is listened on already");
            decoder.push(problem.also(first, "the first one"));
            continue;
        }
        listeners.push(Listen { address, ..listen.clone() });
    }
}

fn addresses(value: &Value<'_>, base: &Path) -> Result<Vec<ListenAddress>, Wrong> {
    let text = value::string(value).map_err(|_| Wrong::new("expected an address").help(ADDRESSES))?;
    listen_addresses(text, base)
        .ok_or_else(|| Wrong::new("this is not an address to listen on").help(ADDRESSES))
}

/// The addresses that a text stands for: two for `:PORT`, where the machine has IPv6, so that IPv4 clients keep
/// their addresses whatever `net.ipv6.bindv6only` says.
pub(in crate::config) fn listen_addresses(text: &str, base: &Path) -> Option<Vec<ListenAddress>> {
    if let Some(path) = text.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| vec![ListenAddress::Unix(base.join(path))]);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().ok().filter(|_| port.bytes().all(|b| b.is_ascii_digit()))?;
        let mut addresses = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        // Two sockets cannot share a port that the kernel has yet to choose.
        if port != 0 && Path::new("/proc/net/if_inet6").exists() {
            addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        }
        return Some(addresses.into_iter().map(ListenAddress::Tcp).collect());
    }
    Some(vec![ListenAddress::Tcp(text.parse().ok()?)])
}
