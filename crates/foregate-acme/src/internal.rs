//! The internal authority, for names for which no public authority issues certificates.
//!
//! The root certificate is made when the first certificate is issued, and stays in the storage. A client trusts
//! this authority once the root certificate is installed on the client.

use std::fmt;
use std::io;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use time::{Duration, OffsetDateTime};

use crate::certificate::{BACKDATE, Facts, joined, parameters};
use crate::failure::{Failure, FailureKind};
use crate::storage::{Storage, read, replace};

/// The name of the issuer in records and reports.
pub(crate) const ISSUER: &str = "internal";

const ROOT_FILE: &str = "root.pem";
const KEY_FILE: &str = "root.key";
const ROOT_NAME: &str = "Foregate internal authority";
const ROOT_VALIDITY: Duration = Duration::days(3650);
/// Certificates are short-lived: nobody can revoke them.
const VALIDITY: Duration = Duration::days(14);

/// Issues a certificate for a name; key and chain in PEM.
pub(crate) fn issue(storage: &Storage, name: &str) -> Result<String, Failure> {
    let failed =
        |error: rcgen::Error| Failure::new(FailureKind::Local, error.to_string(), "take another name");
    let (root, key) = root(storage)?;
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
    let pem = read(&Storage::new(folder).internal(ROOT_FILE))?;
    if Facts::read(&pem).is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("there is no certificate in {ROOT_FILE}"),
        ));
    }
    String::from_utf8(pem).map_err(io::Error::other)
}

/// The root certificate in PEM, and its key. Both are made if the root certificate is missing or has expired.
fn root(storage: &Storage) -> Result<(String, KeyPair), Failure> {
    if let StoredRoot::Valid(pem, key) = stored_root(storage)? {
        return Ok((pem, key));
    }
    let failed = |error: io::Error| Failure::of_file("the internal authority", &error);
    let _lock = storage.lock_and_wait(ISSUER).map_err(failed)?;
    // Another process may have made the root certificate meanwhile, so look once more.
    if let StoredRoot::Valid(pem, key) = stored_root(storage)? {
        return Ok((pem, key));
    }
    let made = || {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let pem = root_parameters().self_signed(&key).map_err(io::Error::other)?.pem();
        replace(&storage.internal(KEY_FILE), key.serialize_pem().as_bytes())?;
        replace(&storage.internal(ROOT_FILE), pem.as_bytes())?;
        Ok((pem, key))
    };
    made().map_err(failed)
}

/// The root certificate in the storage.
enum StoredRoot {
    /// In PEM, with its key.
    Valid(String, KeyPair),
    /// It has expired, so clients trust no certificate below it.
    Expired,
    /// There is none.
    Missing,
}

/// Checks the root certificate in the storage, without changing anything.
///
/// # Errors
///
/// One of its files is damaged. It is not replaced, because clients trust the root certificate that they have.
pub(crate) fn check_root(storage: &Storage) -> Result<(), Failure> {
    stored_root(storage).map(drop)
}

fn stored_root(storage: &Storage) -> Result<StoredRoot, Failure> {
    let (certificate, key) = (storage.internal(ROOT_FILE), storage.internal(KEY_FILE));
    let pem = match read(&certificate) {
        Ok(pem) => pem,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredRoot::Missing),
        Err(error) => return Err(damaged(&certificate, error)),
    };
    let no_certificate = || damaged(&certificate, "there is no certificate in it");
    let pem = String::from_utf8(pem).map_err(|_| no_certificate())?;
    let facts = Facts::read(pem.as_bytes()).ok_or_else(no_certificate)?;
    if facts.not_after <= crate::certificate::now() {
        return Ok(StoredRoot::Expired);
    }
    let text = read(&key).map_err(|error| damaged(&key, error))?;
    let text = String::from_utf8(text).map_err(|_| damaged(&key, "there is no private key in it"))?;
    if text.trim().is_empty() {
        return Err(damaged(&key, "it is empty"));
    }
    let pair = KeyPair::from_pem(&text).map_err(|error| damaged(&key, error))?;
    if !facts.has_key(pair.der_bytes()) {
        return Err(damaged(&key, format!("it is not the key of {}", certificate.display())));
    }
    Ok(StoredRoot::Valid(pem, pair))
}

/// The failure for a file of the root certificate that cannot be used.
fn damaged(file: &Path, why: impl fmt::Display) -> Failure {
    let remedy = format!(
        "put {ROOT_FILE} and {KEY_FILE} back from a copy; or remove both for a new authority, whose root certificate every client then has to install"
    );
    Failure::new(FailureKind::Local, format!("the internal authority: {}: {why}", file.display()), remedy)
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

    #[test]
    fn a_damaged_root_is_refused_and_stays() {
        let folder = std::env::temp_dir().join(format!("foregate-damaged-root-{}", std::process::id()));
        let storage = Storage::new(&folder);
        storage.prepare().unwrap();
        issue(&storage, "first.local").unwrap();
        let files = [ROOT_FILE, KEY_FILE].map(|name| storage.internal(name));
        let whole = files.clone().map(|file| read(&file).unwrap());
        let other = KeyPair::generate().unwrap().serialize_pem();
        for (number, bytes, why) in [
            (0, "junk", "root.pem: there is no certificate in it; put root.pem and root.key back"),
            (0, "", "root.pem: there is no certificate in it"),
            (1, "", "root.key: it is empty"),
            (1, "junk", "root.key: "),
            (1, &*other, "root.key: it is not the key of "),
        ] {
            replace(&files[number], bytes.as_bytes()).unwrap();
            let told = issue(&storage, "second.local").unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
            assert_eq!(read(&files[number]).unwrap(), bytes.as_bytes());
            assert!(check_root(&storage).is_err());
            replace(&files[number], &whole[number]).unwrap();
        }
        std::fs::remove_file(&files[1]).unwrap();
        assert!(issue(&storage, "second.local").is_err());
        std::fs::remove_file(&files[0]).unwrap();
        issue(&storage, "second.local").unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
