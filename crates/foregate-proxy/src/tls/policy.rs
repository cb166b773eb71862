//! The requirements for a handshake.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};

use super::crypto::{provider, sha256};
use super::store::{TlsError, read_authority_certificates};
use crate::settings::{ClientCertificates, TlsPolicy, TlsVersion};

/// Identifies the policy that a handshake satisfied. Two identifiers, even of different listeners or
/// loads of the configuration, are equal if the policy and its trusted authorities are equal and, with
/// client certificates, the same site asks for them. Within one configuration, equal identifiers share
/// a pointer, so comparing them is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicyId(Arc<Key>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    policy: TlsPolicy,
    /// SHA-256 of the authorities' certificates.
    authorities: Option<[u8; 32]>,
    /// The site, if it asks for client certificates: no other site may rely on the identities that it
    /// gets.
    site: Option<Arc<str>>,
}

/// A policy with its settings.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) id: PolicyId,
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
}

impl Policy {
    /// Reads the authorities. `site` is the first host of the site that asks for client certificates, or
    /// `None` if a listener does.
    pub(super) fn load(policy: &TlsPolicy, site: Option<&Arc<str>>) -> Result<Self, TlsError> {
        let (verifier, authorities): (Arc<dyn ClientCertVerifier>, _) = match &policy.client_certificates {
            None => (Arc::new(NoClientAuth), None),
            Some(clients) => {
                let (roots, digest) = read_authorities(&clients.authorities)?;
                (client_verifier(clients, roots)?, Some(digest))
            }
        };
        let site = site.filter(|_| authorities.is_some()).cloned();
        let id = PolicyId(Arc::new(Key { policy: policy.clone(), authorities, site }));
        Ok(Self { id, verifier })
    }

    /// The policy with another minimum version, if one is given.
    pub(super) fn with_minimum(&self, version: Option<TlsVersion>) -> Self {
        let Some(minimum_version) = version else { return self.clone() };
        let Key { policy, authorities, site } = &*self.id.0;
        let policy = TlsPolicy { minimum_version, ..policy.clone() };
        let id = PolicyId(Arc::new(Key { policy, authorities: *authorities, site: site.clone() }));
        Self { id, verifier: Arc::clone(&self.verifier) }
    }
}

impl PolicyId {
    pub(super) fn policy(&self) -> &TlsPolicy {
        &self.0.policy
    }
}

/// Checks that the authorities of clients can be used, without keeping them.
///
/// # Errors
///
/// The file that cannot be used.
pub fn check_clients(clients: &ClientCertificates) -> Result<(), TlsError> {
    let (roots, _) = read_authorities(&clients.authorities)?;
    client_verifier(clients, roots).map(drop)
}

fn client_verifier(
    clients: &ClientCertificates,
    roots: RootCertStore,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider()));
    let builder = if clients.required { builder } else { builder.allow_unauthenticated() };
    let verifier =
        builder.build().map_err(|error| TlsError::new(&clients.authorities, error, AUTHORITIES_FIX))?;
    Ok(verifier)
}

const AUTHORITIES_FIX: &str = "give a PEM file with the certificates of the authorities to trust";

/// Reads a PEM file of authorities; also returns a digest of them.
pub(super) fn read_authorities(file: &Path) -> Result<(RootCertStore, [u8; 32]), TlsError> {
    let mut roots = RootCertStore::empty();
    let mut all = Vec::new();
    for (line, certificate) in read_authority_certificates(file)? {
        all.extend_from_slice(&certificate);
        roots.add(certificate).map_err(|error| {
            let problem = format!("line {line}: the certificate cannot be used as an authority: {error}");
            TlsError::new(file, problem, AUTHORITIES_FIX)
        })?;
    }
    Ok((roots, sha256(&all)))
}
