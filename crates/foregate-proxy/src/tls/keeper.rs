//! The part of the process that obtains certificates, as the proxy sees it.

use std::fmt;
use std::pin::Pin;

pub use crate::counters::certificates::KeeperCounts;
use crate::settings::CertificateFiles;

/// The part of the process that obtains certificates.
pub trait CertificateKeeper: fmt::Debug + Send + Sync {
    /// Obtains a certificate for the name of a handshake, or finds the one that is there. `None`: it has none and gets none
    /// for the time being. The caller limits the time; an order that has begun continues without the caller.
    fn obtain<'k>(
        &'k self,
        name: &'k str,
    ) -> Pin<Box<dyn Future<Output = Option<CertificateFiles>> + Send + 'k>>;

    /// The state of each certificate that it keeps, by name.
    fn reports(&self) -> Vec<CertificateReport>;

    /// Counts since the start.
    fn counts(&self) -> KeeperCounts;
}

/// The state of a certificate that the proxy obtains itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateReport {
    /// The name on the certificate.
    pub name: String,
    /// One word: `valid`, `temporary` (self-signed until the first one arrives) or `expired`.
    pub state: &'static str,
    /// The issuer: the directory of an authority, or `internal`.
    pub issuer: String,
    /// The end of its validity, seconds since 1970.
    pub not_after: i64,
    /// The time of the next attempt to renew it, seconds since 1970.
    pub next_attempt: i64,
    /// Attempts that have failed since the last one that succeeded.
    pub failures: u32,
    /// The failure of the last attempt, and the remedy.
    pub error: Option<String>,
}
