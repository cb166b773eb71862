//! The choice of a certificate for a client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::names::{CertificateNames, HostMap, asked_name};
use super::noted::{local, note_served};
use super::store::Certificate;

/// The certificates that one listener serves: its own, and those of sites.
#[derive(Debug)]
pub(super) struct CertificateTable {
    listener: Vec<Arc<Certificate>>,
    sites: Vec<SiteCertificates>,
    index: ArcSwap<Index>,
    /// The certificates that were obtained in handshakes, by name; at most [`DEMANDED_MOST`].
    demanded: RwLock<HashMap<Box<str>, Arc<Certificate>>>,
}

/// The most certificates from handshakes in memory. Beyond this, one is dropped for each new one, and
/// read from its file again when a client asks for it.
const DEMANDED_MOST: usize = 10_000;

/// Adds a certificate, unless it is among the candidates already.
fn add(candidates: &mut Candidates, certificate: &Arc<Certificate>) {
    if !candidates.iter().any(|known| Arc::ptr_eq(known, certificate)) {
        candidates.push(Arc::clone(certificate));
    }
}

/// Certificates of one site.
#[derive(Debug)]
pub(super) struct SiteCertificates {
    pub(super) hosts: Vec<Arc<str>>,
    pub(super) certificates: Vec<Arc<Certificate>>,
}

/// Several certificates may serve one name: the first one with a key that the client can verify is
/// used.
type Candidates = Vec<Arc<Certificate>>;

/// The certificates by host. It is rebuilt when the names in a certificate change.
#[derive(Debug, Default)]
struct Index {
    /// The certificates of sites that have their own, by the site's hosts.
    sites: HostMap<Candidates>,
    /// All certificates, by the names that they contain.
    names: HostMap<Candidates>,
    /// All certificates, by the addresses that they contain, for clients that name no host.
    addresses: HashMap<IpAddr, Candidates>,
}

impl CertificateTable {
    pub(super) fn new(listener: Vec<Arc<Certificate>>, sites: Vec<SiteCertificates>) -> Self {
        let table = Self { listener, sites, index: ArcSwap::default(), demanded: RwLock::default() };
        table.rebuild();
        table
    }

    pub(super) fn rebuild(&self) {
        let mut index = Index::default();
        for site in &self.sites {
            for host in &site.hosts {
                index.sites.entry(host).extend(site.certificates.iter().cloned());
            }
        }
        for certificate in self.listener.iter().chain(self.sites.iter().flat_map(|site| &site.certificates)) {
            let current = certificate.current();
            let wildcards = current.names.wildcard.iter().map(|suffix| format!("*.{suffix}"));
            for name in current.names.exact.iter().map(ToString::to_string).chain(wildcards) {
                add(index.names.entry(&name), certificate);
            }
            for address in current.names.addresses() {
                add(index.addresses.entry(address.to_canonical()).or_default(), certificate);
            }
        }
        self.index.store(Arc::new(index));
    }

    /// Returns true if there is a certificate for exactly this name or for a wildcard above it.
    pub(super) fn knows(&self, name: &str) -> bool {
        let host = name.as_bytes();
        let index = self.index.load();
        index.exact(host).or_else(|| index.wildcard(host)).is_some()
            || self.demanded.read().contains_key(name)
    }

    /// Adds a certificate that was obtained in a handshake.
    pub(super) fn add_demanded(&self, name: &str, certificate: Arc<Certificate>) {
        let mut demanded = self.demanded.write();
        if demanded.len() >= DEMANDED_MOST && !demanded.contains_key(name) {
            let other = demanded.keys().next().cloned();
            other.and_then(|other| demanded.remove(&other));
        }
        demanded.insert(name.into(), certificate);
    }

    /// The certificate for a name that was obtained in a handshake.
    fn demanded(&self, name: &str) -> Option<Arc<Certificate>> {
        self.demanded.read().get(name).cloned()
    }

    /// Returns true if the served certificate may also serve `host`: it contains that name, or it is one
    /// of the certificates of the site of `host`.
    pub(super) fn covers(&self, served: &ServedCertificate, host: &[u8]) -> bool {
        let is_served = |own: &Arc<Certificate>| std::ptr::eq(Arc::as_ptr(own), served.certificate.as_ptr());
        served.names.cover(host)
            || self.index.load().sites.find(host).is_some_and(|own| own.iter().any(is_served))
    }
}

/// The certificate that a client got.
#[derive(Debug, Clone)]
pub(super) struct ServedCertificate {
    /// The entry of the certificate's files, which may hold another certificate by now.
    certificate: Weak<Certificate>,
    names: Arc<CertificateNames>,
}

/// The current key of the chosen certificate, which is noted as served.
fn choose(certificate: &Arc<Certificate>) -> Arc<CertifiedKey> {
    let current = certificate.current();
    let served =
        ServedCertificate { certificate: Arc::downgrade(certificate), names: Arc::clone(&current.names) };
    note_served(served);
    certificate.key(&current)
}

impl Index {
    fn exact(&self, host: &[u8]) -> Option<&Candidates> {
        self.sites.exact(host).or_else(|| self.names.exact(host))
    }

    /// The certificates for the address that the client has connected to. A client that asks for an
    /// address has no other way to say so (RFC 6066, section 3).
    fn of_address(&self) -> Option<&Candidates> {
        if self.addresses.is_empty() {
            return None;
        }
        self.addresses.get(&local()?.to_canonical())
    }

    fn wildcard(&self, host: &[u8]) -> Option<&Candidates> {
        self.sites.wildcard(host).or_else(|| self.names.near_wildcard(host))
    }
}

impl ResolvesServerCert for CertificateTable {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let index = self.index.load();
        let name = asked_name(hello.server_name());
        let host = name.as_bytes();
        let exact = if host.is_empty() { index.of_address() } else { index.exact(host) };
        let found = match exact {
            Some(exact) => Some(exact),
            None => match self.demanded(name) {
                Some(demanded) => return Some(choose(&demanded)),
                None => index.wildcard(host).or_else(|| index.sites.any()),
            },
        };
        let candidates = found.unwrap_or(&self.listener);
        if let [only] = candidates.as_slice() {
            return Some(choose(only));
        }
        let usable = |certificate: &&Arc<Certificate>| {
            certificate.current().key.key.choose_scheme(hello.signature_schemes()).is_some()
        };
        let chosen = candidates.iter().find(usable).or(candidates.first())?;
        Some(choose(chosen))
    }
}
