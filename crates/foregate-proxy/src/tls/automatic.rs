//! Handshakes with certificates that the proxy obtains itself.
//!
//! The certificates are ordinary files: `foregate-acme` writes them, and the [store](super::store)
//! reads them again when they change. Answers to the challenges of authorities are files, too, so
//! that each process with the same storage can give them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::crypto::provider;
use super::store::{Certificate, CertificateStore, read_chain, read_key};
use crate::settings::automatic::{Automatic, alpn_challenge};

/// The protocol that an authority offers in the handshake of its TLS-ALPN-01 challenge (RFC 8737,
/// section 4).
const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// The part of an acceptor that uses certificates which the proxy obtains itself.
#[derive(Debug)]
pub(super) struct AutomaticTls {
    challenges: PathBuf,
    /// True if certificates for unknown names are obtained in their handshakes.
    pub(super) on_demand: bool,
    store: CertificateStore,
}

impl AutomaticTls {
    pub(super) fn new(automatic: &Automatic, on_demand: bool, store: &CertificateStore) -> Self {
        Self { challenges: automatic.challenge_folder(), on_demand, store: store.clone() }
    }

    /// Returns true if this is the handshake of an authority that checks its challenge.
    pub(super) fn is_challenge(hello: &ClientHello<'_>) -> bool {
        hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(CHALLENGE_PROTOCOL) && offered.next().is_none())
    }

    /// The configuration that answers the challenge for a name; `None` if there is no challenge for it.
    pub(super) fn answer(&self, name: &str) -> Option<ServerConfig> {
        let file = alpn_challenge(&self.challenges, name)?;
        let key = load_challenge(&file)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has cipher suites of both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(FixedCertificate(Arc::new(key))));
        config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Some(config)
    }

    /// Obtains a certificate for an unknown name.
    pub(super) async fn obtain(&self, name: &str) -> Option<Arc<Certificate>> {
        let files = self.store.keeper()?.obtain(name).await?;
        let loaded = self.store.load(&files);
        loaded.inspect_err(|error| tracing::error!(%error, name, "the certificate cannot be used")).ok()
    }
}

/// Reads the certificate that answers a challenge. Unlike for other certificates, the key is not
/// checked against the certificate, because that check rejects the certificate's critical extension.
fn load_challenge(file: &Path) -> Option<CertifiedKey> {
    let (chain, key) = (read_chain(file).ok()?, read_key(file).ok()?);
    let signer = provider().key_provider.load_private_key(key).ok()?;
    Some(CertifiedKey::new(chain, signer))
}

/// Serves one certificate for all names.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
