//! Certificates that the proxy obtains itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::CertificateFiles;

/// The directory of Let's Encrypt, which is used unless the configuration names another authority.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The prefix of the paths where an authority looks for the answer to its HTTP-01 challenge (RFC
/// 8555, section 8.3).
pub const HTTP_CHALLENGE_PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// The longest token of a challenge, and the longest name, bytes.
const TOKEN_LIMIT: usize = 253;

/// The certificates that the proxy obtains itself, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Automatic {
    /// The folder of certificates, accounts and challenges. Several processes may share it.
    pub storage: PathBuf,
    /// The email address at which authorities may contact the operator.
    pub email: Option<String>,
    /// The authorities. The first one is asked first, the others if it fails. At least one.
    pub authorities: Vec<Authority>,
    /// The challenges that may be used, in the order of preference. At least one.
    pub challenges: Vec<ChallengeKind>,
    /// The command that publishes records for DNS-01.
    pub dns_hook: Option<DnsHook>,
    /// The zones in which records for DNS-01 are published by dynamic updates. In other zones the hook publishes them.
    pub dns_updates: Vec<DnsUpdate>,
    /// The names that get a certificate of their own, each with the issuer. A wildcard is `*.NAME`.
    pub names: BTreeMap<Arc<str>, IssuedBy>,
    /// Certificates for other names, obtained in the first handshake that asks for them.
    pub on_demand: Option<OnDemand>,
}

impl Automatic {
    /// Settings without names, with Let's Encrypt as the authority.
    pub fn new(storage: PathBuf) -> Self {
        Self {
            storage,
            email: None,
            authorities: vec![Authority::new(LETS_ENCRYPT)],
            challenges: vec![ChallengeKind::Http, ChallengeKind::TlsAlpn],
            dns_hook: None,
            dns_updates: Vec::new(),
            names: BTreeMap::new(),
            on_demand: None,
        }
    }

    /// The file with the key and the chain of a name. Both are in one file, so that they are
    /// replaced together.
    pub fn certificate(&self, name: &str) -> CertificateFiles {
        let file = self.storage.join("certificates").join(file_name(name, "pem"));
        CertificateFiles::new(file.clone(), file)
    }

    /// The innermost zone with dynamic updates that contains a name.
    pub fn dns_update(&self, name: &str) -> Option<&DnsUpdate> {
        let holds = |update: &&DnsUpdate| {
            let above = name.strip_suffix(&*update.zone);
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        };
        self.dns_updates.iter().filter(holds).max_by_key(|update| update.zone.len())
    }

    /// Returns true if records for DNS-01 can be published for a host, which may be a wildcard.
    pub fn publishes_records(&self, host: &str) -> bool {
        self.dns_hook.is_some() || self.dns_update(host.strip_prefix("*.").unwrap_or(host)).is_some()
    }

    /// The folder with the answers to the challenges under way.
    pub fn challenge_folder(&self) -> PathBuf {
        self.storage.join("challenges")
    }
}

/// The file of a name in a folder: `*.example.com` is `_.example.com.EXTENSION`.
pub fn file_name(name: &str, extension: &str) -> String {
    format!("{}.{extension}", name.replace('*', "_"))
}

/// The file with the answer to the HTTP challenge with this token; `None` if `token` is malformed.
pub fn http_challenge(folder: &Path, token: &[u8]) -> Option<PathBuf> {
    let token = challenge_name(token, |byte| matches!(byte, b'-' | b'_'))?;
    Some(folder.join(format!("{token}.http")))
}

/// The file with the certificate that answers the TLS challenge for this name (RFC 8737); `None` if
/// `name` is malformed.
pub fn alpn_challenge(folder: &Path, name: &str) -> Option<PathBuf> {
    let name = challenge_name(name.as_bytes(), |byte| matches!(byte, b'-' | b'_' | b'.'))?;
    Some(folder.join(format!("{name}.alpn")))
}

/// Returns the text if it is safe as a file name, and cannot lead out of a folder.
fn challenge_name(text: &[u8], is_allowed: impl Fn(u8) -> bool) -> Option<&str> {
    let fits = (1..=TOKEN_LIMIT).contains(&text.len()) && text[0] != b'.';
    let fits = fits && text.iter().all(|byte| byte.is_ascii_alphanumeric() || is_allowed(*byte));
    fits.then(|| std::str::from_utf8(text).ok()).flatten()
}

/// The issuer of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IssuedBy {
    /// The ACME authorities of the configuration.
    Authorities,
    /// The proxy's own authority, in the storage folder. Only clients that have installed its root
    /// certificate trust it.
    Internal,
}

/// An authority that speaks ACME (RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The address of its directory.
    pub directory: String,
    /// PEM file with the root certificates that are trusted for connections to the authority. Default
    /// (`None`): the system's.
    pub roots: Option<PathBuf>,
    /// The profile of the certificates. Default (`None`): the authority's choice.
    pub profile: Option<String>,
    /// An account that the operator has with the authority outside of ACME (RFC 8555, section 7.3.4).
    pub external: Option<ExternalAccount>,
}

impl Authority {
    /// An authority with default settings.
    pub fn new(directory: &str) -> Self {
        Self { directory: directory.to_owned(), roots: None, profile: None, external: None }
    }
}

/// An account that an operator has with an authority outside of ACME.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its identifier.
    pub id: String,
    /// The key, decoded.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A way to prove to an authority that a name belongs to this proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChallengeKind {
    /// An HTTP response at port 80 (RFC 8555, section 8.3).
    Http,
    /// A special certificate at port 443 (RFC 8737).
    TlsAlpn,
    /// A TXT record (RFC 8555, section 8.4).
    Dns,
}

/// A command that publishes and removes TXT records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsHook {
    /// The command and its first arguments. The further arguments are `present` or `cleanup`, the record's
    /// name, and its value.
    pub command: Vec<String>,
    /// How long to wait until all nameservers of the zone have a published record. Default: 10 s.
    pub wait: Duration,
}

/// A zone with a nameserver that takes dynamic updates (RFC 2136).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsUpdate {
    /// The host and the port of its primary nameserver.
    pub server: (Box<str>, u16),
    /// The name of the zone, in lower case and without a dot at its end.
    pub zone: Box<str>,
    /// The key that signs the updates. Default (`None`): none; the nameserver trusts our address.
    pub key: Option<TransactionKey>,
    /// How long to wait until all nameservers of the zone have a published record. Default: 10 s.
    pub wait: Duration,
}

/// A key that is shared with a nameserver (TSIG, RFC 8945).
#[derive(Clone, PartialEq, Eq)]
pub struct TransactionKey {
    /// Its name, in lower case.
    pub name: Box<str>,
    /// The algorithm of its signatures.
    pub algorithm: KeyAlgorithm,
    /// The key, decoded.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for TransactionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An algorithm of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// HMAC with SHA-256, the default.
    Sha256,
    /// HMAC with SHA-384.
    Sha384,
    /// HMAC with SHA-512.
    Sha512,
}

impl KeyAlgorithm {
    /// The algorithm's name in messages and in nameservers' configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        }
    }
}

/// Certificates for names that the configuration does not list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemand {
    /// The names that may get a certificate: `a.example`, or `*.example` for all names below it.
    pub names: Vec<String>,
    /// The URL of a server that answers `GET URL?domain=NAME` with 2xx if the name may get a certificate.
    pub ask: Option<String>,
    /// The most new certificates, and also the most questions to `ask`, in each span of `per`. Default: 10.
    pub rate: u32,
    /// The span of time for `rate`. Default: one minute.
    pub per: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_leads_out_of_the_folder() {
        let folder = Path::new("/c");
        assert_eq!(http_challenge(folder, b"aZ0-_"), Some("/c/aZ0-_.http".into()));
        assert_eq!(alpn_challenge(folder, "a.example"), Some("/c/a.example.alpn".into()));
        for token in ["", ".", "..", "../a", "a/b", "a.b", "a\0", "\u{e4}", &"a".repeat(254)] {
            assert_eq!(http_challenge(folder, token.as_bytes()), None, "{token:?}");
        }
        for name in ["", ".", "..", "../a", ".hidden", "a/b"] {
            assert_eq!(alpn_challenge(folder, name), None, "{name:?}");
        }
        assert_eq!(
            Automatic::new("/s".into()).certificate("*.a.b").key,
            PathBuf::from("/s/certificates/_.a.b.pem")
        );
    }
}
