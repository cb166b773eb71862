//! The common part of the `tls` of listeners and of sites, and checks of its files.

use std::collections::HashSet;
use std::path::PathBuf;

use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::routing::HostPattern;
use foregate_proxy::settings::{CertificateFiles, ClientCertificates, SiteTls, TlsVersion, UpstreamTls};
use foregate_proxy::tls::{Connector, TlsError, check_certificate, check_clients};

use super::acme::issuer;
use crate::config::schema::{Block, SITE_TLS};
use foregate_config::value::choose;

const VERSIONS: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];

const MODES: &[(&str, bool)] = &[("required", true), ("optional", false)];

/// The inspection of the files that `tls` names, so that errors are reported with their places.
pub(super) struct Inspection {
    /// The certificates that were inspected, because thousands of sites may share one. `None` if no file is inspected.
    seen: Option<HashSet<CertificateFiles>>,
    /// The files that only a reload reads again: all except the certificates of listeners and sites.
    watched: Vec<PathBuf>,
    /// The names in the certificates. `None` if none has been read.
    names: Option<HashSet<String>>,
}

impl Inspection {
    /// A new inspection; files are inspected only if `wanted` is true.
    pub(super) fn new(wanted: bool) -> Self {
        Self { seen: wanted.then(HashSet::new), watched: Vec::new(), names: None }
    }

    /// The files that need a reload when they change.
    pub(super) fn into_watched(self) -> Vec<PathBuf> {
        self.watched
    }

    fn certificate(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>, files: &CertificateFiles) {
        if self.seen.as_mut().is_some_and(|seen| seen.insert(files.clone())) {
            match check_certificate(files) {
                Ok(certificate) => {
                    self.names.get_or_insert_default().extend(certificate.names);
                    if certificate.expired {
                        let message = format!("{}: the certificate has expired", files.certificate.display());
                        let problem = Problem::new(Some(item.place()), message);
                        decoder.warn(problem.help("put a new one in its place, which is read at once"));
                    }
                }
                Err(error) => decoder.push(problem(item.place(), error)),
            }
        }
    }

    /// Returns true if certificates were read, and none of them covers the host.
    pub(super) fn lacks(&self, host: &HostPattern) -> bool {
        let Some(names) = &self.names else { return false };
        let carried = match host {
            HostPattern::Any => return false,
            HostPattern::Below(name) => names.contains(&format!("*.{name}")),
            HostPattern::Exact(name) => {
                let name = name.trim_start_matches('[').trim_end_matches(']');
                let above = name.split_once('.').map(|(_, above)| format!("*.{above}"));
                names.contains(name) || above.is_some_and(|above| names.contains(&above))
            }
        };
        !carried
    }

    fn clients(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>, clients: &ClientCertificates) {
        self.watched.push(clients.authorities.clone());
        if self.seen.is_some()
            && let Err(error) = check_clients(clients)
        {
            decoder.push(problem(item.place(), error));
        }
    }

    /// Inspects the files of an upstream's `tls`. `places` has the place of each file; other errors are reported at `item`.
    pub(super) fn upstream(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        tls: &UpstreamTls,
        places: &[(PathBuf, Place)],
    ) {
        self.watched.extend(places.iter().map(|(file, _)| file.clone()));
        if self.seen.is_some()
            && let Err(error) = Connector::new(tls, foregate_proxy::settings::UpstreamProtocol::Auto)
        {
            let place = places.iter().find(|(file, _)| *file == error.file);
            decoder.push(problem(place.map_or(item.place(), |(_, place)| *place), error));
        }
    }
}

fn problem(place: Place, error: TlsError) -> Problem {
    Problem::new(Some(place), format!("{}{}", error.file_shown(), error.problem)).help(error.fix)
}

/// Reads `tls` of a listener or a site.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    block: &'static Block,
    inspection: &mut Inspection,
) -> SiteTls {
    let mut tls = SiteTls { automatic: decoder.read(item, 0, issuer), ..SiteTls::default() };
    for (key, item) in decoder.block(item, block) {
        match key.name {
            "certificate" => {
                let files = certificate(decoder, item);
                files.iter().for_each(|files| inspection.certificate(decoder, item, files));
                tls.certificates.extend(files);
            }
            "minimum-version" => {
                tls.minimum_version = decoder.choice(item, 0, VERSIONS);
            }
            "client-certificates" => {
                let required = decoder.prop(item, "mode", |v| choose(v, MODES)).unwrap_or(true);
                let authorities = decoder.file(item, 0);
                let clients = authorities.map(|authorities| ClientCertificates { authorities, required });
                clients.iter().for_each(|clients| inspection.clients(decoder, item, clients));
                tls.client_certificates = clients;
            }
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    if tls.automatic.is_some() && !tls.certificates.is_empty() && std::ptr::eq(block, &SITE_TLS) {
        let problem =
            Problem::new(Some(item.place()), "the site names a `certificate`, and is to get one by itself");
        decoder.push(problem.help("leave one of them out"));
    }
    tls
}

pub(super) fn certificate(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<CertificateFiles> {
    let certificate = decoder.file(item, 0);
    let key = decoder.prop_file(item, "key");
    Some(CertificateFiles { certificate: certificate?, key: key? })
}
