//! The certificates of a case, made at its start: a `ca.pem`, and certificates of that authority.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::case::Certificate;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Writes `ca.pem` and, for each certificate, `NAME.pem` and `NAME.key` into the folder.
///
/// # Errors
///
/// A sentence, when making or writing one fails.
pub fn write(folder: &Path, certificates: &[Certificate]) -> Result<(), String> {
    let known = authority("Foregate cases")?;
    let stranger = authority("Somebody else")?;
    put(folder, "ca.pem", &known.pem())?;
    put(folder, "stranger-ca.pem", &stranger.pem())?;
    for certificate in certificates {
        let key = KeyPair::generate().map_err(told)?;
        let mut params = CertificateParams::new(certificate.hosts.clone()).map_err(told)?;
        params.distinguished_name.push(DnType::CommonName, certificate.name.clone());
        if certificate.expired {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        if certificate.future {
            params.not_before = rcgen::date_time_ymd(2999, 1, 1);
        }
        let issuer = if certificate.stranger { &stranger } else { &known };
        let signed = params.signed_by(&key, &**issuer).map_err(told)?;
        put(folder, &format!("{}.pem", certificate.name), &signed.pem())?;
        put(folder, &format!("{}.key", certificate.name), &key.serialize_pem())?;
    }
    Ok(())
}

fn authority(name: &str) -> Result<Authority, String> {
    let mut params = CertificateParams::new(Vec::new()).map_err(told)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(told)?).map_err(told)
}

fn put(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))
}

fn told(error: rcgen::Error) -> String {
    format!("certificate: {error}")
}
