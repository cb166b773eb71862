//! Ports, names and origins.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use foregate_proxy::address::ServerAddress;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::ListenAddress;
use foregate_proxy::settings::automatic::IssuedBy;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::thread::{CapabilitySet, capabilities};

use super::Finding;

/// The most names and the most origins that are checked, so that a person can read the report.
const MOST: usize = 32;
/// The time limit for all answers together.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time limit for one connection.
const CONNECT: Duration = Duration::from_secs(2);

pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut findings = ports(settings);
    findings.extend(nameservers(settings));
    findings.extend(domains(settings));
    findings.extend(origins(settings));
    findings
}

/// Tests whether the addresses can be bound.
fn ports(settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "ports";
    let unprivileged = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let unprivileged = unprivileged.ok().and_then(|text| text.trim().parse::<u16>().ok()).unwrap_or(1024);
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE));
    let mut findings = Vec::new();
    let mut free = Vec::new();
    let listeners = settings.listeners.iter();
    let addresses = listeners.filter_map(|listen| match listen.address {
        ListenAddress::Tcp(address) => Some((address, listen.of_all_addresses)),
        ListenAddress::Unix(_) => None,
    });
    let dashboard = settings.dashboard.iter().filter_map(|dashboard| match dashboard.address {
        ListenAddress::Tcp(address) => Some(address),
        ListenAddress::Unix(_) => None,
    });
    let further = settings.metrics.into_iter().chain(dashboard).map(|address| (address, false));
    for (address, of_all) in addresses.chain(further) {
        // `:PORT` stands for an IPv4 and an IPv6 socket. Only IPv4 is tested, because the machine may have no IPv6.
        if of_all && address.is_ipv6() {
            continue;
        }
        if address.port() < unprivileged && !may {
            let port = address.port();
            findings.push(Finding::wrong(
                SUBJECT,
                format!("{address}: this user may not bind ports below {unprivileged}"),
                format!(
                    "as root: `setcap cap_net_bind_service=+ep $(command -v foregate)`, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the \
                     unit, or `user` in the configuration and a start as root, or `sysctl -w net.ipv4.ip_unprivileged_port_start={port}`"
                ),
            ));
            continue;
        }
        match try_bind(address) {
            Ok(()) => free.push(address.to_string()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => findings.push(Finding::warning(
                SUBJECT,
                format!("{address} is taken: by the running proxy, or by another process"),
                format!("`ss -ltnp 'sport = :{}'` shows by which", address.port()),
            )),
            Err(error) => findings.push(Finding::wrong(
                SUBJECT,
                format!("{address}: {error}"),
                "`ip address` lists the addresses of this machine",
            )),
        }
    }
    if !free.is_empty() {
        findings.insert(0, Finding::ok(SUBJECT, format!("free to bind: {}", free.join(", "))));
    }
    findings
}

/// Binds a socket without listening, so that no client can connect to it.
fn try_bind(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let probe = socket(family, SocketType::STREAM, None)?;
    // Listeners set this option too. Without it, old connections that still end would make the port look taken.
    rustix::net::sockopt::set_socket_reuseaddr(&probe, true)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&probe, true)?;
    }
    bind(&probe, &address)?;
    Ok(())
}

fn nameservers(settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "nameservers";
    let all = settings.upstreams.iter().flat_map(|upstream| &upstream.servers);
    let has_names = settings.automatic.is_some() || all.into_iter().any(|server| server.address.is_name());
    if !has_names {
        return Vec::new();
    }
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .map(str::trim)
        .filter(|server| !server.is_empty())
        .collect();
    vec![match servers.is_empty() {
        true => Finding::warning(
            SUBJECT,
            "/etc/resolv.conf names no server, so 127.0.0.1 is asked",
            "write `nameserver ADDRESS` into it, or name one by `resolver` in the upstream",
        ),
        false => Finding::ok(SUBJECT, servers.join(", ")),
    }]
}

/// Tests whether the names for certificates resolve, because the authority has to reach this machine by its names.
fn domains(settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "domains";
    let Some(automatic) = &settings.automatic else { return Vec::new() };
    let names = automatic.names.iter().filter(|(_, issuer)| **issuer == IssuedBy::Authorities);
    let names = names.map(|(name, _)| name.to_string()).filter(|name| !name.starts_with('*')).take(MOST);
    let names: Vec<String> = names.collect();
    each(names, |name| {
        match (name.as_str(), 443)
            .to_socket_addrs()
            .map(|all| all.map(|one| one.ip()).collect::<BTreeSet<_>>())
        {
            Ok(found) if !found.is_empty() => {
                let found: Vec<String> = found.iter().map(ToString::to_string).collect();
                Finding::ok(SUBJECT, format!("{name} leads to {}", found.join(", ")))
            }
            _ => Finding::wrong(
                SUBJECT,
                format!("{name} has no address, so the certificate authority cannot reach it"),
                format!(
                    "add an A or AAAA record with the public address of this machine; `dig {name}` shows it"
                ),
            ),
        }
    })
}

/// Tests whether origins accept connections.
fn origins(settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "origins";
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    let receiver = settings.trace_export.as_ref().map(|export| export.upstream);
    for (number, upstream) in settings.upstreams.iter().enumerate() {
        let subject = match receiver == Some(number) {
            true => "trace-export".to_owned(),
            false => format!("upstream \"{}\"", upstream.name),
        };
        for server in &upstream.servers {
            if all.len() < MOST && known.insert(server.address.to_string()) {
                all.push((subject.clone(), server.address.clone()));
            }
        }
    }
    each(all, |(subject, address)| match reach(&address) {
        Ok(Some(())) => Finding::ok(SUBJECT, format!("{subject}: {address} accepts connections")),
        Ok(None) => Finding::ok(SUBJECT, format!("{subject}: {address} is found by SRV records at run time")),
        Err(error) if subject == "trace-export" => Finding::warning(
            SUBJECT,
            format!("{subject}: {address}: {error}"),
            "start the receiver, or correct its URL; spans are dropped until then, and requests do not wait for it",
        ),
        Err(error) => Finding::warning(
            SUBJECT,
            format!("{subject}: {address}: {error}"),
            "start the application, or correct the `server` line; requests get 502 until then",
        ),
    })
}

fn reach(address: &ServerAddress) -> io::Result<Option<()>> {
    let candidates: Vec<SocketAddr> = match address {
        ServerAddress::Ip(address) => vec![*address],
        ServerAddress::Name { host, port } => (&**host, *port).to_socket_addrs()?.collect(),
        ServerAddress::Unix(path) => return UnixStream::connect(path).map(|_| Some(())),
        ServerAddress::Service(_) => return Ok(None),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, CONNECT) {
            Ok(_) => return Ok(Some(())),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Tests all items at the same time, and reports the number of items without an answer in time.
fn each<T: Clone + Send + 'static + std::fmt::Debug>(
    all: Vec<T>,
    look: impl Fn(T) -> Finding + Copy + Send + 'static,
) -> Vec<Finding> {
    let (sender, answers) = mpsc::channel();
    let count = all.len();
    for (at, one) in all.into_iter().enumerate() {
        let sender = sender.clone();
        thread::spawn(move || {
            // The receiver may have stopped waiting.
            let _ = sender.send((at, look(one)));
        });
    }
    drop(sender);
    let end = Instant::now() + PATIENCE;
    let mut found: Vec<Option<Finding>> = (0..count).map(|_| None).collect();
    while let Ok((at, finding)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(place) = found.get_mut(at) {
            *place = Some(finding);
        }
    }
    let late = found.iter().filter(|finding| finding.is_none()).count();
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    if late > 0 {
        found.push(Finding::warning(
            "names",
            format!("{late} names or origins gave no answer within {} s", PATIENCE.as_secs()),
            "look at /etc/resolv.conf and at the firewall",
        ));
    }
    found
}
