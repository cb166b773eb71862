//! The common part of the `tls` of listeners and of sites, and checks of its files.

use std::collections::HashSet;
use std::path::{self, Path, PathBuf};

use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::routing::HostPattern;
use foregate_proxy::settings::automatic::IssuedBy;
use foregate_proxy::settings::{CertificateFiles, ClientCertificates, SiteTls, TlsVersion, UpstreamTls};
use foregate_proxy::tls::{
    CertificateFacts, Connector, TlsError, check_certificate, check_clients, staple_in,
};

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
    /// The folder into which OCSP responses are fetched.
    staples: PathBuf,
    /// The place of the first `ocsp`, if there is one.
    stapled: Option<Place>,
}

impl Inspection {
    /// A new inspection; files are inspected only if `wanted` is true.
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            seen: wanted.then(HashSet::new),
            watched: Vec::new(),
            names: None,
            staples: PathBuf::new(),
            stapled: None,
        }
    }

    /// Sets the folder of obtained certificates, in which OCSP responses are stored as well.
    pub(super) fn store_in(&mut self, storage: &Path) {
        self.staples = storage.join("ocsp");
    }

    /// The place of the first `ocsp`, which needs the folder. `None` if there is none.
    pub(super) fn stapled(&self) -> Option<Place> {
        self.stapled
    }

    /// The files that need a reload when they change.
    pub(super) fn into_watched(self) -> Vec<PathBuf> {
        self.watched
    }

    fn certificate(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>, files: &CertificateFiles) {
        if self.seen.as_mut().is_some_and(|seen| seen.insert(files.clone())) {
            match check_certificate(files) {
                Ok(certificate) => {
                    for (message, help) in warnings(&certificate, files) {
                        let message = format!("{}: {message}", files.certificate.display());
                        decoder.warn(Problem::new(Some(item.place()), message).help(help));
                    }
                    self.names.get_or_insert_default().extend(certificate.names);
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
    let (mut certificates, mut ocsp) = (Vec::new(), None);
    for (key, item) in decoder.block(item, block) {
        match key.name {
            "certificate" => certificates.extend(certificate(decoder, item).map(|files| (item, files))),
            "ocsp" => ocsp = decoder.flag(item).then(|| item.place()),
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
    for (item, mut files) in certificates {
        files.staple = ocsp.map(|_| {
            // Several proxies, each started in a folder of its own, may share the storage.
            let whole = path::absolute(&files.certificate);
            staple_in(&inspection.staples, whole.as_deref().unwrap_or(&files.certificate))
        });
        inspection.certificate(decoder, item, &files);
        tls.certificates.push(files);
    }
    if let Some(place) = ocsp {
        if tls.certificates.is_empty() {
            warn_without_certificate(decoder, place, tls.automatic);
        } else {
            inspection.stapled.get_or_insert(place);
        }
    }
    if tls.automatic.is_some() && !tls.certificates.is_empty() && std::ptr::eq(block, &SITE_TLS) {
        let problem =
            Problem::new(Some(item.place()), "the site names a `certificate`, and is to get one by itself");
        decoder.push(problem.help("leave one of them out"));
    }
    tls
}

/// The warnings about a certificate that can be used, with the remedy for each.
fn warnings(certificate: &CertificateFacts, files: &CertificateFiles) -> Vec<(String, String)> {
    const REPLACE: &str = "put a new one in its place, which is read at once";
    let demanded = certificate.demands_staple;
    let mut warnings = Vec::new();
    match (certificate.obstacle, &files.staple) {
        (Some(obstacle), Some(_)) => {
            let refused = if demanded { ", and clients refuse it without one (must-staple)" } else { "" };
            let message = format!("no OCSP response can be fetched: {obstacle}{refused}");
            warnings.push((message, obstacle.fix(demanded).to_owned()));
        }
        (obstacle, None) if demanded && !certificate.is_stapled => {
            let message =
                "clients refuse the certificate without an OCSP response (must-staple), and there is none";
            let help = match obstacle {
                Some(obstacle) => obstacle.fix(true).to_owned(),
                None => format!(
                    "write `ocsp` into this block, or put a response into {}",
                    files.staple_file().display()
                ),
            };
            warnings.push((message.to_owned(), help));
        }
        _ => {}
    }
    if certificate.is_revoked {
        let file = files.staple_file();
        let message = format!("the authority has revoked the certificate, as {} says", file.display());
        warnings.push((message, REPLACE.to_owned()));
    }
    if certificate.not_yet_valid {
        let message = "the certificate is not valid yet: clients refuse it".to_owned();
        warnings.push((
            message,
            "put a valid one in its place, which is read at once, or set the clock".to_owned(),
        ));
    }
    if certificate.expired {
        warnings.push(("the certificate has expired".to_owned(), REPLACE.to_owned()));
    }
    warnings
}

fn warn_without_certificate(decoder: &mut Decoder<'_>, place: Place, automatic: Option<IssuedBy>) {
    let problem = Problem::new(Some(place), "`ocsp` has no effect: this block names no `certificate`");
    decoder.warn(problem.help(match automatic {
        Some(_) => "leave it out: responses for obtained certificates are always fetched",
        None => "write it into the block with the `certificate`",
    }));
}

pub(super) fn certificate(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<CertificateFiles> {
    let certificate = decoder.file(item, 0);
    let key = decoder.prop_file(item, "key");
    Some(CertificateFiles::new(certificate?, key?))
}
