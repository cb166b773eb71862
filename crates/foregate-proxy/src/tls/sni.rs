//! Which certificate a client gets.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::names::{CertificateNames, HostMap, asked_name};
use super::noted::note_served;
use super::store::Certificate;

/// The certificates of one listener, its own and those of the sites.
#[derive(Debug)]
pub(super) struct CertificateTable {
    listener: Vec<Arc<Certificate>>,
    sites: Vec<SiteCertificates>,
    index: ArcSwap<Index>,
}

/// Certificates of one site.
#[derive(Debug)]
pub(super) struct SiteCertificates {
    pub(super) hosts: Vec<Arc<str>>,
    pub(super) certificates: Vec<Arc<Certificate>>,
}

/// Several certificates may serve one name: of those, the first whose key the client can verify is taken.
type Candidates = Vec<Arc<Certificate>>;

/// By host; built anew when a certificate's names change.
#[derive(Debug, Default)]
struct Index {
    /// By the hosts of sites with certificates of their own.
    sites: HostMap<Candidates>,
    /// By the names in all certificates.
    names: HostMap<Candidates>,
}

impl CertificateTable {
    pub(super) fn new(listener: Vec<Arc<Certificate>>, sites: Vec<SiteCertificates>) -> Self {
        let table = Self { listener, sites, index: ArcSwap::default() };
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
                let candidates = index.names.entry(&name);
                if !candidates.iter().any(|known| Arc::ptr_eq(known, certificate)) {
                    candidates.push(Arc::clone(certificate));
                }
            }
        }
        self.index.store(Arc::new(index));
    }

    /// Whether the certificate that a client got may also serve `host`: it carries that name, or it is of the
    /// files that the site of `host` states.
    pub(super) fn covers(&self, served: &Served, host: &[u8]) -> bool {
        let is_served = |own: &Arc<Certificate>| std::ptr::eq(Arc::as_ptr(own), served.certificate.as_ptr());
        served.names.cover(host)
            || self.index.load().sites.find(host).is_some_and(|own| own.iter().any(is_served))
    }
}

/// The certificate that a client got.
#[derive(Debug, Clone)]
pub(super) struct Served {
    /// Its files may hold another one by now.
    certificate: Weak<Certificate>,
    names: Arc<CertificateNames>,
}

/// The certificate's key, as it is now.
fn choose(certificate: &Arc<Certificate>) -> Arc<CertifiedKey> {
    let current = certificate.current();
    let served = Served { certificate: Arc::downgrade(certificate), names: Arc::clone(&current.names) };
    note_served(served);
    Arc::clone(&current.key)
}

impl Index {
    fn candidates(&self, host: &[u8]) -> Option<&Candidates> {
        self.sites
            .exact(host)
            .or_else(|| self.names.exact(host))
            .or_else(|| self.sites.wildcard(host))
            .or_else(|| self.names.near_wildcard(host))
            .or_else(|| self.sites.any())
    }
}

impl ResolvesServerCert for CertificateTable {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let index = self.index.load();
        let host = asked_name(hello.server_name()).as_bytes();
        let candidates = index.candidates(host).unwrap_or(&self.listener);
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
