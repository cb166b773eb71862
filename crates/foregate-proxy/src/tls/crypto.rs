//! The cryptography that handshakes use.

use std::sync::{Arc, LazyLock};

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};

/// The cryptography of all configurations: aws-lc-rs with the hybrid post-quantum group first.
///
/// AES-128 with SHA-256 comes before AES-256 with SHA-384. A handshake is mostly hashing and key derivation, and
/// processors have instructions for SHA-256 but not for SHA-384. With SHA-256, a full handshake therefore
/// costs about a third less, and a resumed handshake about half less. As a server we follow our own order, not
/// the client's.
pub(super) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let kx_groups =
            vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        let mut cipher_suites = default_provider().cipher_suites;
        // The sort is stable, so the provider's order stays within both groups.
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

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let suite =
        cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("its name says that it is a TLS 1.3 suite");
    let hash = suite.common.hash_provider.hash(bytes);
    hash.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}
