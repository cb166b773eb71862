//! TLS towards clients and origins: the only folder that names `rustls`.
//!
//! An [`Acceptor`] per listener performs handshakes with clients. The name that the client asks for (SNI)
//! chooses a certificate, which [`CertificateStore`] reads and keeps fresh, and a policy: the minimum version
//! and whether client certificates are asked for. Each policy has a configuration and ticket keys of its own.
//! A [`Connector`] per upstream performs handshakes with origins.

use std::sync::{Arc, LazyLock};

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};

mod acceptor;
mod connector;
mod expiry;
mod identity;
mod names;
mod noted;
mod pem;
mod policy;
mod sni;
mod store;
mod subject;

#[cfg(test)]
mod measure;
#[cfg(test)]
pub(crate) mod tests;

pub use self::acceptor::{Accepted, Acceptor, HandshakeError, ServerStream, SiteHosts, TlsInfo};
pub use self::connector::{ClientStream, ConnectError, Connector, Refusal};
pub use self::identity::{AlternativeName, ClientIdentity};
pub use self::policy::{PolicyId, check_clients};
pub use self::store::{Certificate, CertificateStore, TlsError, check_certificate};

/// The protocol that the handshake agreed on (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `http/1.1`, `http/1.0`, or nothing.
    Http1,
    /// `h2`.
    Http2,
}

impl Alpn {
    fn agreed(protocol: Option<&[u8]>) -> Self {
        if protocol == Some(b"h2") { Self::Http2 } else { Self::Http1 }
    }
}

/// The cryptography of all configurations: aws-lc-rs with the hybrid post-quantum group first.
///
/// AES-128 with SHA-256 comes before AES-256 with SHA-384: a handshake is mostly hashing and key derivation, and
/// processors have instructions for SHA-256 but not for SHA-384, so it costs about a third less (half, where it
/// resumes). As a server we follow our own order.
fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let kx_groups =
            vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        let mut cipher_suites = default_provider().cipher_suites;
        // Stable: the provider's order, which is by version and kind of key, is otherwise kept.
        cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        Arc::new(CryptoProvider { kx_groups, cipher_suites, ..default_provider() })
    });
    &PROVIDER
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let suite =
        cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("its name says that it is a TLS 1.3 suite");
    let hash = suite.common.hash_provider.hash(bytes);
    hash.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}
