//! The self-signed certificate of the quickstart: made at first start, kept in the state folder.
//!
//! Its only purpose is to show TLS on a developer's machine without any setup. It is
//! valid for [`VALIDITY`] and replaced when it is near its end, when it lacks a requested
//! name, or when certificate and key do not belong together.

use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use time::{Duration, OffsetDateTime};
use x509_parser::{extensions::GeneralName, pem::parse_x509_pem};

/// How long a new certificate is valid. Browsers refuse server certificates that live longer than
/// 825 days, even those a user has trusted by hand.
const VALIDITY: Duration = Duration::days(397);

/// A certificate with less than this left is replaced at the next start.
const RENEW_BEFORE: Duration = Duration::days(14);

/// A new certificate is valid from this long before now, so that a client with a slow clock accepts it.
const BACKDATE: Duration = Duration::hours(1);

/// The paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The certificate, PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key, PKCS #8 in PEM, readable by the owner only.
    pub(crate) key: PathBuf,
}

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The state folder or a file in it cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A name is neither a DNS name nor an address, or the system has no randomness.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Returns `localhost.pem` and `localhost.key` in `dir`. They are made now unless `dir` has a usable pair for `names`
/// (DNS names and IP addresses).
///
/// `dir` is made with mode 0700 if it is missing; the key's mode is 0600 from its first byte on.
///
/// # Errors
///
/// The folder or the files cannot be written, or a name is not usable in a certificate. A pair that
/// cannot be read or parsed is no error: it is replaced.
pub(crate) fn ensure(dir: &Path, names: &[&str]) -> Result<Pair, CertificateError> {
    let pair = Pair { certificate: dir.join("localhost.pem"), key: dir.join("localhost.key") };
    if is_usable(&pair, names, OffsetDateTime::now_utc()) {
        return Ok(pair);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| CertificateError::Write { path: dir.to_owned(), source })?;

    let key = KeyPair::generate()?;
    let certificate = parameters(names)?.self_signed(&key)?;
    // A crash between the two writes leaves a key and a certificate that do not match; the next start replaces them.
    replace(&pair.key, &key.serialize_pem(), 0o600)?;
    replace(&pair.certificate, &certificate.pem(), 0o644)?;
    Ok(pair)
}

fn parameters(names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut parameters = CertificateParams::new(names)?;
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - BACKDATE;
    parameters.not_after = now + VALIDITY;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "Foregate quickstart");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

/// Returns true if the files hold a certificate for all `names` that is not about to expire at `now`, and its key.
fn is_usable(pair: &Pair, names: &[&str], now: OffsetDateTime) -> bool {
    let (Ok(certificate), Ok(key)) = (fs::read(&pair.certificate), fs::read_to_string(&pair.key)) else {
        return false;
    };
    let Ok((_, pem)) = parse_x509_pem(&certificate) else {
        return false;
    };
    let (Ok(certificate), Ok(key)) = (pem.parse_x509(), KeyPair::from_pem(&key)) else {
        return false;
    };
    let validity = certificate.validity();
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else {
        return false;
    };
    validity.not_before.timestamp() <= now.unix_timestamp()
        && validity.not_after.timestamp() > (now + RENEW_BEFORE).unix_timestamp()
        && certificate.public_key().raw == key.subject_public_key_info()
        && names
            .iter()
            .all(|name| alternatives.value.general_names.iter().any(|alternative| covers(alternative, name)))
}

fn covers(alternative: &GeneralName<'_>, name: &str) -> bool {
    match (alternative, name.parse::<IpAddr>()) {
        (GeneralName::DNSName(dns), Err(_)) => dns.eq_ignore_ascii_case(name),
        (GeneralName::IPAddress(octets), Ok(IpAddr::V4(ip))) => *octets == ip.octets(),
        (GeneralName::IPAddress(octets), Ok(IpAddr::V6(ip))) => *octets == ip.octets(),
        _ => false,
    }
}

/// Writes a file next to `path` and renames it, so that no other program reads half of it.
fn replace(path: &Path, content: &str, mode: u32) -> Result<(), CertificateError> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        // The file is removed, not truncated, because one that a crash has left would keep its old mode.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| CertificateError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::demo::tests::Folder;

    const NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn first_call_makes_a_pair_and_the_next_keeps_it() {
        let folder = Folder::new();
        let dir = folder.path().join("state");
        let pair = ensure(&dir, NAMES).unwrap();
        assert_eq!(mode(&pair.key), 0o600);
        assert_eq!(mode(&dir), 0o700);
        let before = fs::read(&pair.certificate).unwrap();
        assert_eq!(ensure(&dir, NAMES).unwrap(), pair);
        assert_eq!(fs::read(&pair.certificate).unwrap(), before);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "no left-over files beside the pair");
    }

    #[test]
    fn a_pair_is_replaced_when_names_or_key_do_not_fit() {
        let folder = Folder::new();
        let pair = ensure(folder.path(), &["localhost"]).unwrap();
        let now = OffsetDateTime::now_utc();
        assert!(is_usable(&pair, &["LOCALHOST"], now));
        assert!(!is_usable(&pair, NAMES, now));
        ensure(folder.path(), NAMES).unwrap();
        assert!(is_usable(&pair, NAMES, now));

        fs::write(&pair.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(!is_usable(&pair, NAMES, now), "the key of another");
        ensure(folder.path(), NAMES).unwrap();
        assert!(is_usable(&pair, NAMES, now));
        assert_eq!(mode(&pair.key), 0o600);

        fs::write(&pair.certificate, "not a certificate").unwrap();
        ensure(folder.path(), NAMES).unwrap();
        assert!(is_usable(&pair, NAMES, now));
    }

    #[test]
    fn a_pair_is_replaced_near_its_end() {
        let folder = Folder::new();
        let pair = ensure(folder.path(), NAMES).unwrap();
        let now = OffsetDateTime::now_utc();
        assert!(is_usable(&pair, NAMES, now + Duration::days(380)));
        assert!(!is_usable(&pair, NAMES, now + Duration::days(390)));
        assert!(!is_usable(&pair, NAMES, now - Duration::days(1)));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_with_its_path() {
        let folder = Folder::new();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = ensure(&file.join("state"), NAMES).unwrap_err();
        assert!(error.to_string().contains("file/state"), "{error}");
    }
}
