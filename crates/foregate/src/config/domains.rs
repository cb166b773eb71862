//! Host names with certificates, for a configuration without a file.

use std::path::PathBuf;
use std::sync::Arc;

use foregate_acme::{Obstacle, obstacle};
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::HostPattern;
use foregate_proxy::settings::automatic::{Authority, Automatic, IssuedBy};
use foregate_proxy::settings::{
    Listen, ListenAddress, ListenTls, SiteOptions, TlsPolicy, UpstreamProtocol, UpstreamTls,
};
use foregate_proxy::tls::Connector;

use super::decode::default_storage;
use super::single::{SingleError, listeners};

/// Host names for which the proxy obtains certificates itself.
#[derive(Debug, Clone, Default)]
pub struct Domains {
    /// The names. If there are none, all sites are served without TLS.
    pub names: Vec<String>,
    /// The addresses on which TLS is accepted.
    pub listen_tls: Vec<String>,
    /// The mail address to which the authority may write.
    pub email: Option<String>,
    /// The ACME directory URL of another authority than Let's Encrypt.
    pub directory: Option<String>,
    /// PEM file with the roots of the authority's own server.
    pub ca: Option<PathBuf>,
    /// The folder for certificates, if it is not the default one.
    pub storage: Option<PathBuf>,
}

impl Domains {
    /// Adds the listeners and certificates for these names. Returns the hosts and the options of the site.
    pub(super) fn apply(
        &self,
        settings: &mut Settings,
    ) -> Result<(Vec<HostPattern>, SiteOptions), SingleError> {
        let mut options = SiteOptions::default();
        let (hosts, automatic) = hosts(self)?;
        let Some(automatic) = automatic else { return Ok((hosts, options)) };
        let secure = listeners(&self.listen_tls)?;
        options.redirect_https = Some(secure.iter().find_map(port).unwrap_or(443));
        let policy = TlsPolicy::default();
        let tls = ListenTls { certificates: Vec::new(), automatic: Some(IssuedBy::Authorities), policy };
        settings
            .listeners
            .extend(secure.into_iter().map(|listen| Listen { tls: Some(tls.clone()), ..listen }));
        settings.automatic = Some(Arc::new(automatic));
        Ok((hosts, options))
    }
}

fn port(listen: &Listen) -> Option<u16> {
    match listen.address {
        ListenAddress::Tcp(address) => Some(address.port()),
        ListenAddress::Unix(_) => None,
    }
}

/// The hosts of the site, and the certificates that they get.
fn hosts(domains: &Domains) -> Result<(Vec<HostPattern>, Option<Automatic>), SingleError> {
    if domains.names.is_empty() {
        return Ok((vec![HostPattern::Any], None));
    }
    let mut automatic = Automatic::new(domains.storage.clone().unwrap_or_else(default_storage));
    automatic.email.clone_from(&domains.email);
    if let Some(directory) = &domains.directory {
        if !directory.starts_with("https://") {
            return Err(SingleError::Directory(directory.clone()));
        }
        if domains.ca.is_some() {
            let tls = UpstreamTls { authorities: domains.ca.clone(), ..UpstreamTls::default() };
            Connector::new(&tls, UpstreamProtocol::Http1)
                .map_err(|error| SingleError::Roots(format!("--ca {error}")))?;
        }
        automatic.authorities = vec![Authority { roots: domains.ca.clone(), ..Authority::new(directory) }];
    }
    let mut hosts = Vec::new();
    for text in &domains.names {
        let wrong = || SingleError::Domain(text.clone());
        let host: HostPattern = text.parse().map_err(|_| wrong())?;
        let name = host.to_string();
        let issuer = match obstacle(&name, false) {
            None => IssuedBy::Authorities,
            Some(Obstacle::Local | Obstacle::Address) if domains.directory.is_none() => IssuedBy::Internal,
            Some(Obstacle::Local) => IssuedBy::Authorities,
            Some(_) => return Err(wrong()),
        };
        automatic.names.insert(name.into(), issuer);
        hosts.push(host);
    }
    Ok((hosts, Some(automatic)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Single, single};

    #[test]
    fn domains_get_certificates_and_a_redirect() {
        let of = |names: &[&str], directory: Option<&str>| {
            let domains = Domains {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                listen_tls: vec!["127.0.0.1:8443".into()],
                directory: directory.map(str::to_owned),
                storage: Some("/s".into()),
                ..Domains::default()
            };
            let one = Single { to: vec!["http://a".into()], domains, ..Single::default() };
            single(&one, &["127.0.0.1:0".into()], &Arc::default())
        };
        let settings = of(&["app.test", "nas.local"], None).unwrap();
        assert_eq!(settings.listeners.len(), 2);
        let names = &settings.automatic.as_ref().unwrap().names;
        assert_eq!(names.get("app.test"), Some(&IssuedBy::Authorities));
        assert_eq!(names.get("nas.local"), Some(&IssuedBy::Internal));
        let site = settings.sites.find(b"app.test").unwrap();
        assert_eq!(settings.sites.redirects(site), Some(8443));
        assert!(settings.sites.find(b"other.test").is_none());
        let domains = Domains {
            names: vec!["a.test".to_owned()],
            listen_tls: vec!["127.0.0.1:8443".into()],
            directory: Some("https://ca.test/dir".to_owned()),
            ca: Some("/nonexistent.pem".into()),
            ..Domains::default()
        };
        let without_roots = Single { to: vec!["http://a".into()], domains, ..Single::default() };
        let refused = single(&without_roots, &["127.0.0.1:0".into()], &Arc::default()).err();
        assert!(
            matches!(refused, Some(SingleError::Roots(text)) if text.starts_with("--ca /nonexistent.pem: "))
        );
        assert_eq!(of(&["*.example.com"], None).err(), Some(SingleError::Domain("*.example.com".into())));
        assert_eq!(of(&["a.test"], Some("http://x")).err(), Some(SingleError::Directory("http://x".into())));
    }
}
