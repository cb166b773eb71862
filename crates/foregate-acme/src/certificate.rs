//! Certificates as the storage holds them: a private key and a chain in one PEM file.

use foregate_proxy::tls::{StapleObstacle, StapleSubject, demands_staple};
use instant_acme::CertificateIdentifier;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

/// The common name of a temporary certificate, which we sign ourselves.
const TEMPORARY: &str = "Foregate temporary certificate";

/// The lifetime of a temporary certificate. An expired one is replaced at the next start.
const TEMPORARY_VALIDITY: Duration = Duration::days(30);

/// The start of the validity lies this long before the time of issue, for clients with slow clocks.
pub(crate) const BACKDATE: Duration = Duration::hours(1);

/// The properties of a certificate that decide about its use and its renewal.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The start of the validity, seconds since 1970.
    pub(crate) not_before: i64,
    /// The end of the validity, seconds since 1970.
    pub(crate) not_after: i64,
    /// `true` for a temporary certificate: we signed it ourselves, until an authority issues one.
    pub(crate) is_temporary: bool,
    /// The identifier of the certificate in the authority's renewal information (RFC 9773, section 4.1).
    pub(crate) id: Option<CertificateIdentifier<'static>>,
    /// The reason why no OCSP response can be fetched for the certificate. `None` if one can be.
    pub(crate) obstacle: Option<StapleObstacle>,
    /// `true` if clients refuse the certificate without an OCSP response.
    pub(crate) demands_staple: bool,
    /// The bits of the public key (RFC 5280, section 4.1, `subjectPublicKey`).
    pub(crate) public_key: Vec<u8>,
}

impl Facts {
    /// Reads the first certificate in a PEM file. `None` if there is no certificate, or if it cannot be parsed.
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
            obstacle: StapleSubject::of_pem(pem).err(),
            demands_staple: demands_staple(&block.contents),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// Returns true if the certificate has this public key.
    pub(crate) fn has_key(&self, public_key: &[u8]) -> bool {
        self.public_key == public_key
    }

    /// The length of the validity in seconds.
    pub(crate) fn lifetime(&self) -> i64 {
        self.not_after.saturating_sub(self.not_before).max(0)
    }
}

fn is_temporary(certificate: &X509Certificate<'_>) -> bool {
    certificate.issuer().iter_common_name().any(|name| name.as_str() == Ok(TEMPORARY))
}

/// The current time, seconds since 1970.
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

/// Makes a temporary certificate, which no client trusts. It serves until an authority has issued one.
/// The result is the key and the certificate in PEM.
pub(crate) fn temporary(name: &str) -> Result<String, rcgen::Error> {
    let mut parameters = parameters(name, TEMPORARY_VALIDITY)?;
    parameters.distinguished_name.push(DnType::CommonName, TEMPORARY);
    let key = KeyPair::generate()?;
    Ok(joined(&key.serialize_pem(), &parameters.self_signed(&key)?.pem()))
}

/// Joins a key and a chain, both in PEM, to the content of a certificate's file in the storage.
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
