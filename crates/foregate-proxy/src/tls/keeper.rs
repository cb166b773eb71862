//! The proxy's interface to the part of the process that obtains certificates.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

pub use crate::counters::certificates::{KeeperCounts, StapleCounts};
use crate::settings::CertificateFiles;

/// The part of the process that obtains certificates.
pub trait CertificateKeeper: fmt::Debug + Send + Sync {
    /// Obtains a certificate for the host name of a handshake, or finds an existing one. `None` if there is none and
    /// none can be obtained now. The caller limits the time; an order that has begun continues without the caller.
    fn obtain<'k>(
        &'k self,
        name: &'k str,
    ) -> Pin<Box<dyn Future<Output = Option<CertificateFiles>> + Send + 'k>>;

    /// The state of each kept certificate, sorted by name.
    fn reports(&self) -> Vec<CertificateReport>;

    /// The state of the OCSP response for each certificate in files for which responses are fetched, with the file of
    /// the certificate, sorted by it.
    fn staples(&self) -> Vec<(PathBuf, StapleReport)>;

    /// Certificates in files have been replaced, so their OCSP responses may be about the old ones.
    fn certificates_changed(&self);

    /// The keeper's counts since the start of the process.
    fn counts(&self) -> KeeperCounts;
}

/// The state of a certificate that the proxy obtains itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateReport {
    /// The name on the certificate.
    pub name: String,
    /// One word: `valid`, `temporary` (self-signed until the first one arrives), `revoked`, `expired` or `missing`.
    pub state: &'static str,
    /// The issuer: the directory of an authority, or `internal`.
    pub issuer: String,
    /// The end of its validity, seconds since 1970.
    pub not_after: i64,
    /// The time of the next attempt to renew it, seconds since 1970.
    pub next_attempt: i64,
    /// The number of failed attempts since the last successful one.
    pub failures: u32,
    /// The failure of the last attempt, and the remedy.
    pub error: Option<String>,
    /// The OCSP response for it. `None` if its authority has no responder.
    pub staple: Option<StapleReport>,
}

/// The state of the OCSP response for a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StapleReport {
    /// The state in one word.
    pub standing: StapleStanding,
    /// The end of the response that handshakes send, seconds since 1970. 0 if there is none.
    pub until: i64,
    /// The time of the next request to the responder, seconds since 1970.
    pub next_attempt: i64,
    /// The failure of the last request, and the remedy.
    pub error: Option<String>,
}

/// The state of the OCSP response for a certificate in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StapleStanding {
    /// The responder has not answered yet, and has not failed either.
    #[default]
    Waiting,
    /// The last request has brought a response.
    Current,
    /// The last request has failed. Handshakes send an older response.
    Failing,
    /// The last request has failed, and handshakes send no response.
    Missing,
    /// The authority has revoked the certificate. Handshakes send no response.
    Revoked,
    /// No response can be fetched, and the certificate does not demand one.
    Unavailable,
}

impl StapleStanding {
    /// The word for reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Current => "current",
            Self::Failing => "failing",
            Self::Missing => "missing",
            Self::Revoked => "revoked",
            Self::Unavailable => "unavailable",
        }
    }
}
