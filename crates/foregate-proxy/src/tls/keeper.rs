//! The proxy's interface to the part of the process that obtains certificates.

use std::fmt;
use std::pin::Pin;

pub use crate::counters::certificates::KeeperCounts;
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

    /// The keeper's counts since the start of the process.
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
    /// The end of the response that handshakes send, seconds since 1970. 0 if there is none.
    pub until: i64,
    /// The time of the next request to the responder, seconds since 1970.
    pub next_attempt: i64,
    /// The failure of the last request, and the remedy.
    pub error: Option<String>,
}
