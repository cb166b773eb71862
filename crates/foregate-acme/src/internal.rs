//! The internal authority, for names for which no public authority issues certificates.
//!
//! The root certificate is made when the first certificate is issued, and stays in the storage. A client trusts
//! this authority once the root certificate is installed on the client.

use std::io;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::certificate::{BACKDATE, Facts, joined, parameters};
use crate::failure::{Failure, FailureKind};
use crate::storage::{Storage, read, replace};

/// The name of the issuer in records and reports.
pub(crate) const ISSUER: &str = "internal";

const ROOT_NAME: &str = "Foregate internal authority";
const ROOT_VALIDITY: Duration = Duration::days(3650);
/// Certificates are short-lived: nobody can revoke them.
const VALIDITY: Duration = Duration::days(14);

/// Issues a certificate for a name; key and chain in PEM.
pub(crate) fn issue(storage: &Storage, name: &str) -> Result<String, Failure> {
    let failed =
        |error: rcgen::Error| Failure::new(FailureKind::Local, error.to_string(), "take another name");
    let (root, key) =
        root(storage, false).map_err(|error| Failure::of_file("the internal authority", &error))?;
    let issuer = Issuer::new(root_parameters(), key);
    let mut parameters = parameters(name, VALIDITY).map_err(failed)?;
    parameters.use_authority_key_identifier_extension = true;
    parameters.distinguished_name.push(DnType::CommonName, "Foregate");
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(failed)?;
    Ok(joined(&key.serialize_pem(), &format!("{}\n{}", certificate.pem().trim_end(), root.trim_end())))
}

/// The root certificate of the internal authority in PEM.
///
/// # Errors
///
/// The storage has no internal authority yet, or cannot be read.
pub fn root_certificate(folder: &Path) -> io::Result<String> {
    let pem = read(&Storage::new(folder).internal("root.pem"))?;
    String::from_utf8(pem).map_err(io::Error::other)
}

/// The root certificate in PEM, and its key.
fn root(storage: &Storage, is_retry: bool) -> io::Result<(String, KeyPair)> {
    let (certificate, key) = (storage.internal("root.pem"), storage.internal("root.key"));
    if let (Ok(pem), Ok(key)) = (read(&certificate), read(&key)) {
        let key = String::from_utf8(key).map_err(io::Error::other)?;
        let key = KeyPair::from_pem(&key).map_err(io::Error::other)?;
        let is_valid = Facts::read(&pem).is_some_and(|facts| facts.not_after > crate::certificate::now());
        if is_valid {
            return Ok((String::from_utf8(pem).map_err(io::Error::other)?, key));
        }
    }
    let lock = storage.lock_and_wait(ISSUER)?;
    if certificate.exists() && !is_retry {
        // Another process may have made the root certificate meanwhile, so look once more. If the root certificate
        // on disk is unusable, the second call replaces it.
        drop(lock);
        return root(storage, true);
    }
    let made = KeyPair::generate().map_err(io::Error::other)?;
    let pem = root_parameters().self_signed(&made).map_err(io::Error::other)?.pem();
    replace(&key, made.serialize_pem().as_bytes())?;
    replace(&certificate, pem.as_bytes())?;
    Ok((pem, made))
}

fn root_parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - BACKDATE;
    parameters.not_after = now + ROOT_VALIDITY;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, ROOT_NAME);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_root_signs_all() {
        let folder = std::env::temp_dir().join(format!("foregate-internal-{}", std::process::id()));
        assert!(root_certificate(&folder).is_err());
        let storage = Storage::new(&folder);
        storage.prepare().unwrap();
        issue(&storage, "first.local").unwrap();
        let root = root_certificate(&folder).unwrap();
        for name in ["nas.local", "*.home.arpa", "192.0.2.1", "[2001:db8::1]"] {
            let pem = issue(&storage, name).unwrap();
            assert!(pem.contains(root.trim_end()), "{name}");
            assert!(Facts::read(pem.as_bytes()).is_some_and(|facts| !facts.is_temporary));
        }
        assert_eq!(root_certificate(&folder).unwrap(), root);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
