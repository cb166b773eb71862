//! Certificates as the storage holds them: a private key and a chain in one PEM file.

use instant_acme::CertificateIdentifier;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

/// The common name of a certificate that we sign ourselves until the first one arrives.
const TEMPORARY: &str = "Foregate temporary certificate";

/// The lifetime of a temporary certificate. It is replaced at the next start.
const TEMPORARY_VALIDITY: Duration = Duration::days(30);

/// How much earlier than now a certificate begins to be valid, for clients with late clocks.
pub(crate) const BACKDATE: Duration = Duration::hours(1);

/// The facts of a certificate.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The begin of its validity, seconds since 1970.
    pub(crate) not_before: i64,
    /// The end of its validity, seconds since 1970.
    pub(crate) not_after: i64,
    /// The certificate is self-signed, until the first one arrives.
    pub(crate) is_temporary: bool,
    /// Its name in the authority's renewal information (RFC 9773, section 4.1).
    pub(crate) id: Option<CertificateIdentifier<'static>>,
}

impl Facts {
    /// The facts of the first certificate in a PEM file; `None` where there is none that can be
    /// read.
    pub(crate) fn read(pem: &[u8]) -> Option<Self> {
        let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
        let block = blocks.into_iter().find(|block| block.label == "CERTIFICATE")?;
        let certificate = block.parse_x509().ok()?;
        let validity = certificate.validity();
        Some(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            is_temporary: is_temporary(&certificate),
            id: CertificateIdentifier::try_from(&block.contents.clone().into())
                .ok()
                .map(CertificateIdentifier::into_owned),
        })
    }

    /// The length of its validity in seconds.
    pub(crate) fn lifetime(&self) -> i64 {
        self.not_after.saturating_sub(self.not_before).max(0)
    }
}

fn is_temporary(certificate: &X509Certificate<'_>) -> bool {
    certificate.issuer().iter_common_name().any(|name| name.as_str() == Ok(TEMPORARY))
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// The parameters of a server's certificate for a name.
pub(crate) fn parameters(name: &str, validity: Duration) -> Result<CertificateParams, rcgen::Error> {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - BACKDATE;
    parameters.not_after = now + validity;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

/// A certificate that no client trusts, for the time until there is one of an authority; key and
/// certificate in PEM.
pub(crate) fn temporary(name: &str) -> Result<String, rcgen::Error> {
    let mut parameters = parameters(name, TEMPORARY_VALIDITY)?;
    parameters.distinguished_name.push(DnType::CommonName, TEMPORARY);
    let key = KeyPair::generate()?;
    Ok(joined(&key.serialize_pem(), &parameters.self_signed(&key)?.pem()))
}

/// The content of a file of the storage.
pub(crate) fn joined(key: &str, chain: &str) -> String {
    format!("{}\n{}\n", key.trim_end(), chain.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_certificate_is_known_as_one() {
        for name in ["a.example", "*.a.example", "192.0.2.1", "[::1]"] {
            let facts = Facts::read(temporary(name).unwrap().as_bytes()).unwrap();
            assert!(facts.is_temporary, "{name}");
            assert_eq!(facts.lifetime(), (TEMPORARY_VALIDITY + BACKDATE).whole_seconds());
        }
        assert!(Facts::read(b"").is_none());
        assert!(Facts::read(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_none());
    }
}
