//! Certificates in files, shared and re-read when they change.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::keeper::CertificateKeeper;
use super::names::CertificateNames;
use super::pem::{self, PemBlock};
use super::sni::CertificateTable;
use super::staple::{StapleObstacle, StapleSubject, demands_staple};
use super::tickets::TicketStore;
use crate::counters::metrics::CertificateExpiry;
use crate::files;
use crate::settings::CertificateFiles;
use crate::time::clock::Clock;
use crate::watch::FolderWatch;

/// The most bytes of a PEM file; a larger file is refused. No chain, key or list of authorities is that
/// large.
const PEM_LIMIT: u64 = 4 * 1024 * 1024;

/// A file that cannot be used, with advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}; {fix}", self.file_shown())]
pub struct TlsError {
    /// The file at fault; empty if no file is.
    pub file: PathBuf,
    /// The error.
    pub problem: String,
    /// How to fix it.
    pub fix: &'static str,
}

impl TlsError {
    pub(super) fn new(file: &Path, problem: impl fmt::Display, fix: &'static str) -> Self {
        Self { file: file.to_owned(), problem: problem.to_string(), fix }
    }

    fn of_block(file: &Path, block: &PemBlock<'_>, problem: impl fmt::Display, fix: &'static str) -> Self {
        Self::new(file, format!("line {}: {problem}", block.line), fix)
    }

    /// The start of a message: the file at fault and a separator; empty if no file is at fault.
    pub fn file_shown(&self) -> String {
        if self.file.as_os_str().is_empty() { String::new() } else { format!("{}: ", self.file.display()) }
    }
}

/// The facts about a certificate.
#[derive(Debug)]
pub struct CertificateFacts {
    /// The names and addresses in the certificate, in lower case, wildcards with their `*.`.
    pub names: Vec<String>,
    /// True if the certificate has expired.
    pub expired: bool,
    /// True if its validity has not begun.
    pub not_yet_valid: bool,
    /// The reason why no OCSP response can be fetched for it. `None` if one can be.
    pub obstacle: Option<StapleObstacle>,
    /// True if clients refuse it without an OCSP response.
    pub demands_staple: bool,
    /// True if there is a response that handshakes send.
    pub is_stapled: bool,
    /// True if the response in the file next to it says that the authority has revoked it.
    pub is_revoked: bool,
}

/// Checks that a certificate and its key can be used together, without keeping them.
///
/// # Errors
///
/// The file that cannot be used.
pub fn check_certificate(files: &CertificateFiles) -> Result<CertificateFacts, TlsError> {
    let clock = Clock::default();
    let LoadedPair { key, names, stapled, is_revoked } = LoadedPair::read(files, clock)?;
    Ok(CertificateFacts {
        names: names.shown(),
        expired: names.expired(clock),
        not_yet_valid: names.not_yet_valid(clock),
        obstacle: StapleSubject::of_chain(&key.cert).err(),
        demands_staple: key.cert.first().is_some_and(|leaf| demands_staple(leaf)),
        is_stapled: stapled.is_some(),
        is_revoked,
    })
}

/// The certificates of the process. Each is read once, no matter how many listeners and sites use it. A
/// clone shares them.
#[derive(Debug, Clone, Default)]
pub struct CertificateStore {
    shared: Arc<StoreShared>,
}

#[derive(Debug, Default)]
pub(super) struct StoreShared {
    clock: Clock,
    certificates: Mutex<HashMap<CertificateFiles, Weak<Certificate>>>,
    tables: Mutex<Vec<Weak<CertificateTable>>>,
    watch: Mutex<Option<FolderWatch>>,
    tickets: TicketStore,
    keeper: OnceLock<Arc<dyn CertificateKeeper>>,
}

impl CertificateStore {
    /// An empty store, without a watcher.
    pub fn new() -> Self {
        Self::with_clock(Clock::default())
    }

    /// An empty store. `clock` decides the expiry of its certificates and tickets.
    pub(super) fn with_clock(clock: Clock) -> Self {
        let shared = StoreShared { clock, tickets: TicketStore::new(clock), ..StoreShared::default() };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// An empty store, with the part of the process that obtains certificates.
    pub(crate) fn with_keeper(keeper: Option<Arc<dyn CertificateKeeper>>, clock: Clock) -> Self {
        let store = Self::with_clock(clock);
        if let Some(keeper) = keeper {
            // The store is new, so no other keeper is set.
            let _ = store.shared.keeper.set(keeper);
        }
        store
    }

    /// The part of the process that obtains certificates, if there is one.
    pub fn keeper(&self) -> Option<&Arc<dyn CertificateKeeper>> {
        self.shared.keeper.get()
    }

    /// Starts a thread, `foregate-certs`, that watches the files of this store. Without the thread, only
    /// [`Self::check`] and [`Self::load`] look at the files. If the thread or the kernel's notification
    /// is not available, this is logged, and the store works without it.
    pub fn watch(&self) {
        let mut watch = self.shared.watch.lock();
        if watch.is_some() {
            return;
        }
        // The thread holds the store only while it checks files.
        let shared = Arc::downgrade(&self.shared);
        let look = move || shared.upgrade().map(|shared| shared.check()).is_some();
        match FolderWatch::start("foregate-certs", look) {
            Ok(mut started) => {
                for files in self.shared.certificates.lock().keys() {
                    started.add(&files.certificate);
                    started.add(&files.key);
                    started.add(&files.staple_file());
                }
                *watch = Some(started);
            }
            Err(error) => tracing::warn!(
                %error,
                "certificate files are not watched; changed ones are read at the next reload"
            ),
        }
    }

    /// The certificate of `files`, read when it is not in the store or has changed.
    ///
    /// # Errors
    ///
    /// A file that cannot be used; a certificate that was in the store stays as it was.
    pub fn load(&self, files: &CertificateFiles) -> Result<Arc<Certificate>, TlsError> {
        let known = self.shared.certificates.lock().get(files).and_then(Weak::upgrade);
        if let Some(certificate) = known {
            if certificate.refresh()? {
                self.shared.rebuild_tables();
            }
            certificate.accept_names();
            return Ok(certificate);
        }
        let certificate = Arc::new(Certificate::read(files, self.clock())?);
        let mut certificates = self.shared.certificates.lock();
        certificates.retain(|_, certificate| certificate.strong_count() > 0);
        certificates.insert(files.clone(), Arc::downgrade(&certificate));
        drop(certificates);
        if let Some(watch) = self.shared.watch.lock().as_mut() {
            watch.add(&files.certificate);
            watch.add(&files.key);
            watch.add(&files.staple_file());
        }
        Ok(certificate)
    }

    /// Rereads changed files; errors are logged, and the old certificate stays. Returns the
    /// number of replaced certificates.
    pub fn check(&self) -> usize {
        self.shared.check()
    }

    /// The expiry of each certificate in use, the earliest first.
    pub fn expiries(&self) -> Vec<CertificateExpiry> {
        let live: Vec<_> = self.shared.certificates.lock().values().filter_map(Weak::upgrade).collect();
        let expiry = |certificate: &Arc<Certificate>| {
            let current = certificate.current();
            CertificateExpiry {
                file: certificate.files.certificate.display().to_string(),
                not_after: current.names.not_after(),
                is_expired: current.names.expired(self.shared.clock),
                is_not_yet_valid: current.names.not_yet_valid(self.shared.clock),
                failure: certificate.failure(),
                missing_names: certificate.accepted.load().missing_in(&current.names),
                is_revoked: current.is_revoked,
            }
        };
        let mut expiries: Vec<_> = live.iter().map(expiry).collect();
        expiries.sort_unstable_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
        // Two keys may share one certificate file.
        expiries.dedup_by(|a, b| a.file == b.file);
        expiries
    }

    /// Registers `table`: it is rebuilt when the names in its certificates change.
    pub(super) fn follow(&self, table: &Arc<CertificateTable>) {
        let mut tables = self.shared.tables.lock();
        tables.retain(|table| table.strong_count() > 0);
        tables.push(Arc::downgrade(table));
    }

    /// The keys of session tickets, for another process that serves the same clients; `None` if
    /// there are none.
    pub fn ticket_keys(&self) -> Option<Vec<u8>> {
        self.shared.tickets.keys()
    }

    /// Continues with the ticket keys of another process. Invalid bytes are ignored.
    pub fn take_ticket_keys(&self, keys: &[u8]) {
        self.shared.tickets.take_keys(keys);
    }

    pub(super) fn tickets(&self) -> &TicketStore {
        &self.shared.tickets
    }
}

impl StoreShared {
    pub(super) fn check(&self) -> usize {
        let live: Vec<_> = self.certificates.lock().values().filter_map(Weak::upgrade).collect();
        let mut replaced = 0;
        for certificate in live {
            match certificate.refresh() {
                Ok(true) => replaced += 1,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "the changed certificate is not used, the old one stays");
                }
            }
        }
        if replaced > 0 {
            self.rebuild_tables();
            if let Some(keeper) = self.keeper.get() {
                keeper.certificates_changed();
            }
        }
        replaced
    }

    fn rebuild_tables(&self) {
        let live: Vec<_> = self.tables.lock().iter().filter_map(Weak::upgrade).collect();
        for table in live {
            table.rebuild();
        }
    }
}

/// A certificate chain with its key. Both are replaced when their files change.
#[derive(Debug)]
pub struct Certificate {
    clock: Clock,
    files: CertificateFiles,
    current: ArcSwap<LoadedPair>,
    /// The stamps of the files at the last attempt to read them, successful or not.
    seen: Mutex<PairStamps>,
    /// The reason why the changed files are not used. `None` if the certificate is that of the files.
    failure: Mutex<Option<String>>,
    /// The names at the last load of a configuration.
    accepted: ArcSwap<CertificateNames>,
}

#[derive(Debug)]
pub(super) struct LoadedPair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) names: Arc<CertificateNames>,
    stapled: Option<StapledKey>,
    /// True if the OCSP response next to the certificate says so.
    is_revoked: bool,
}

/// A key whose handshakes send an OCSP response along.
#[derive(Debug)]
struct StapledKey {
    key: Arc<CertifiedKey>,
    /// The end of the response, seconds since 1970.
    until: i64,
}

/// Of the certificate, the key, and the OCSP response.
type PairStamps = [Option<CertificateStamp>; 3];

impl Certificate {
    fn read(files: &CertificateFiles, clock: Clock) -> Result<Self, TlsError> {
        let seen = stamps(files);
        // An expired certificate is not refused here: the check of the configuration reports it.
        let loaded = LoadedPair::read(files, clock)?;
        let accepted = ArcSwap::new(Arc::clone(&loaded.names));
        let current = ArcSwap::from_pointee(loaded);
        let (files, seen) = (files.clone(), Mutex::new(seen));
        Ok(Self { clock, files, current, seen, failure: Mutex::default(), accepted })
    }

    pub(super) fn current(&self) -> arc_swap::Guard<Arc<LoadedPair>> {
        self.current.load()
    }

    /// The key for a handshake. It has an OCSP response as long as the response holds.
    pub(super) fn key(&self, current: &LoadedPair) -> Arc<CertifiedKey> {
        let stapled = current.stapled.as_ref().filter(|stapled| stapled.until > seconds(self.clock));
        Arc::clone(stapled.map_or(&current.key, |stapled| &stapled.key))
    }

    /// The files that it was read from.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// The reason why the changed files are not used.
    fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Takes the present names as those that the configuration expects. Its check warns about sites without a name.
    fn accept_names(&self) {
        self.accepted.store(Arc::clone(&self.current().names));
    }

    /// Reads the files if they have changed since the last look at them. Returns true if the certificate
    /// was replaced.
    fn refresh(&self) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock();
        let now = stamps(&self.files);
        if *seen == now {
            return Ok(false);
        }
        // The stamps are recorded before the files are read, so that a broken pair is reported once, not
        // at every check.
        *seen = now;
        let loaded = LoadedPair::read(&self.files, self.clock);
        *self.failure.lock() = loaded.as_ref().err().map(ToString::to_string);
        let loaded = loaded?;
        let certificate = self.files.certificate.display();
        if loaded.names.expired(self.clock) {
            tracing::warn!(%certificate, "the certificate has expired");
        }
        if loaded.names.not_yet_valid(self.clock) {
            tracing::warn!(%certificate, "the certificate is not valid yet");
        }
        let missing = self.accepted.load().missing_in(&loaded.names);
        if !missing.is_empty() {
            let names = missing.join(", ");
            tracing::warn!(%certificate, names, "the new certificate is not for these names, as the one before was");
        }
        self.current.store(Arc::new(loaded));
        tracing::info!(%certificate, "certificate read again");
        Ok(true)
    }
}

impl LoadedPair {
    fn read(files: &CertificateFiles, clock: Clock) -> Result<Self, TlsError> {
        let key = read_pair(files)?;
        let names = key.cert.first().and_then(CertificateNames::read).map(Arc::new).ok_or_else(|| {
            TlsError::new(&files.certificate, "the first certificate is malformed", CHAIN_FIX)
        })?;
        let (stapled, is_revoked) = match read_staple(files, &key, clock) {
            ReadStaple::Holds(stapled) => (Some(stapled), false),
            ReadStaple::Revoked => (None, true),
            ReadStaple::Unusable => (None, false),
        };
        Ok(Self { key: Arc::new(key), names, stapled, is_revoked })
    }
}

/// Reads a certificate chain and its key. The public keys alone decide whether they belong together: the comparison of
/// rustls would refuse a certificate that only its verifier does not accept, such as one of X.509 version 1, although
/// other peers may accept it.
pub(super) fn read_pair(files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
    let chain = read_chain(&files.certificate)?;
    let key = read_key(&files.key)?;
    let signer = super::crypto::provider().key_provider.load_private_key(key).map_err(|error| {
        TlsError::new(&files.key, format!("the private key cannot be used: {error}"), KEY_FIX)
    })?;
    // Some signers do not reveal their public key, so it cannot be compared. A wrong key then shows at the first handshake.
    if let Some(public) = signer.public_key() {
        let mut owners = chain.iter().map(|certificate| has_key(certificate, &public));
        if owners.next() != Some(true) {
            let problem = format!(
                "the private key does not belong to the certificate in {}",
                files.certificate.display()
            );
            let fix = if owners.any(|is_owner| is_owner) { LEAF_FIRST_FIX } else { OTHER_KEY_FIX };
            return Err(TlsError::new(&files.key, problem, fix));
        }
    }
    Ok(CertifiedKey::new(chain, signer))
}

/// Returns true if the certificate was issued for this public key.
fn has_key(certificate: &CertificateDer<'_>, public: &SubjectPublicKeyInfoDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| certificate.tbs_certificate.subject_pki.raw == public.as_ref())
}

/// The OCSP response next to a certificate.
enum ReadStaple {
    /// It holds: the key sends it.
    Holds(StapledKey),
    /// The authority has revoked the certificate.
    Revoked,
    /// There is none that holds: then handshakes have none, and clients that want one ask the responder.
    Unusable,
}

fn read_staple(files: &CertificateFiles, key: &CertifiedKey, clock: Clock) -> ReadStaple {
    let file = files.staple_file();
    let Some(response) = fs::metadata(&file).ok().and_then(|_| read_file(&file).ok()) else {
        return ReadStaple::Unusable;
    };
    let judged = match StapleSubject::of_chain(&key.cert) {
        Ok(subject) => subject.judge(&response, seconds(clock)).map_err(|error| error.to_string()),
        Err(obstacle) => Err(obstacle.to_string()),
    };
    match judged {
        Ok(staple) if !staple.is_revoked => {
            let key = CertifiedKey { ocsp: Some(response), ..key.clone() };
            ReadStaple::Holds(StapledKey { key: Arc::new(key), until: staple.until })
        }
        Ok(_) => {
            tracing::warn!(file = %file.display(), "not sent to clients: the certificate is revoked");
            ReadStaple::Revoked
        }
        // A fetched one is replaced as soon as its certificate is, and failures of that are reported.
        Err(error) if files.staple.is_some() => {
            tracing::debug!(file = %file.display(), "not sent to clients: {error}");
            ReadStaple::Unusable
        }
        Err(error) => {
            tracing::warn!(file = %file.display(), "not sent to clients: {error}");
            ReadStaple::Unusable
        }
    }
}

/// Seconds since 1970.
fn seconds(clock: Clock) -> i64 {
    i64::try_from(clock.unix()).unwrap_or(i64::MAX)
}

const OTHER_KEY_FIX: &str = "put the key that the certificate was issued for";
const LEAF_FIRST_FIX: &str = "the certificate of this key stands further down in the file: put it first, and its intermediates after it";
pub(super) const CHAIN_FIX: &str =
    "give a PEM file with the certificate first and its intermediates after it";
pub(super) const KEY_FIX: &str =
    "give an unencrypted PEM key (PKCS#8, PKCS#1 or SEC1; RSA, ECDSA or Ed25519)";
const DECRYPT_FIX: &str =
    "decrypt it: `openssl pkey -in FILE -out FILE.key`, in a file that only the proxy can read";

/// Reads a PEM file with at least one certificate. Blocks of another kind, such as a key, are
/// skipped.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = |file: &Path, block: &PemBlock<'_>| {
        // A `TRUSTED CERTIFICATE` of OpenSSL has trust settings after the certificate. They are cut off.
        let parsed = X509Certificate::from_der(&block.content);
        let (rest, _) =
            parsed.map_err(|_| TlsError::of_block(file, block, "this is no certificate", CHAIN_FIX))?;
        let length = block.content.len() - rest.len();
        Ok(CertificateDer::from(block.content.get(..length).unwrap_or_default().to_vec()))
    };
    Ok(read_certificates(file, read)?.into_iter().map(|(_, certificate)| certificate).collect())
}

/// Reads a PEM file with certificates of authorities, and the lines on which they begin.
pub(super) fn read_authority_certificates(
    file: &Path,
) -> Result<Vec<(usize, CertificateDer<'static>)>, TlsError> {
    read_certificates(file, |file, block| match block.label {
        // The block's trust settings are not read, and they may say that the authority is not to be trusted.
        "TRUSTED CERTIFICATE" => Err(TlsError::of_block(
            file,
            block,
            "a `TRUSTED CERTIFICATE`, whose notes on trust are not read",
            "write it as a plain one: `openssl x509 -in FILE -out FILE.pem`",
        )),
        _ => Ok(CertificateDer::from(block.content.clone())),
    })
}

fn read_certificates(
    file: &Path,
    read: impl Fn(&Path, &PemBlock<'_>) -> Result<CertificateDer<'static>, TlsError>,
) -> Result<Vec<(usize, CertificateDer<'static>)>, TlsError> {
    let pem = read_file(file)?;
    let blocks = pem::blocks(&pem).map_err(|fault| TlsError::new(file, fault, fault.fix(false)))?;
    let mut certificates = Vec::new();
    for block in &blocks {
        match block.label {
            "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE" => {
                certificates.push((block.line, read(file, block)?));
            }
            "PKCS7" | "PKCS #7 SIGNED DATA" | "CMS" => {
                let problem = format!("certificates in `{}` are not read", block.label);
                const FIX: &str = "take them out of it: `openssl pkcs7 -print_certs -in FILE -out FILE.pem`";
                return Err(TlsError::of_block(file, block, problem, FIX));
            }
            _ => {}
        }
    }
    match blocks.first().filter(|_| certificates.is_empty()) {
        Some(other) => {
            let problem = format!("no certificate in it, but `{}` on line {}", other.label, other.line);
            Err(TlsError::new(file, problem, CHAIN_FIX))
        }
        None => Ok(certificates),
    }
}

/// Reads the first private key of a PEM file.
pub(super) fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read_file(file)?;
    let blocks = pem::blocks(&pem).map_err(|fault| TlsError::new(file, fault, fault.fix(true)))?;
    let Some(key) = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY")) else {
        let first = blocks.first().map_or(("", 1), |block| (block.label, block.line));
        let problem = format!("no usable private key in it, but `{}` on line {}", first.0, first.1);
        return Err(TlsError::new(file, problem, KEY_FIX));
    };
    let content = || key.content.clone();
    match key.label {
        _ if key.encrypted || key.label == "ENCRYPTED PRIVATE KEY" => {
            Err(TlsError::of_block(file, key, "the private key is encrypted", DECRYPT_FIX))
        }
        "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(content().into())),
        "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(content().into())),
        "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(content().into())),
        label => {
            let problem = format!("a key in `{label}` is not read");
            Err(TlsError::of_block(
                file,
                key,
                problem,
                "convert it: `openssl pkey -in FILE -out FILE.key`, or make a new one",
            ))
        }
    }
}

/// Reads a file of at most [`PEM_LIMIT`] bytes.
pub(super) fn read_file(file: &Path) -> Result<Vec<u8>, TlsError> {
    const FIX: &str = "check the path, and that the user who runs the proxy may read the file";
    let mut bytes = Vec::new();
    let opened = files::open_to_read(file).map_err(|error| TlsError::new(file, error, FIX))?;
    opened.take(PEM_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| TlsError::new(file, error, FIX))?;
    if bytes.len() as u64 > PEM_LIMIT {
        return Err(TlsError::new(file, "larger than 4 MiB", "give a PEM file"));
    }
    Ok(bytes)
}

/// The identity of a file's content, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CertificateStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for CertificateStamp {
    fn from(metadata: Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn stamps(files: &CertificateFiles) -> PairStamps {
    let stamp = |file: &Path| fs::metadata(file).ok().map(CertificateStamp::from);
    [stamp(&files.certificate), stamp(&files.key), stamp(&files.staple_file())]
}
