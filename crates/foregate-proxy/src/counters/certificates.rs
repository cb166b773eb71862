//! Counts of certificates that the proxy obtains itself, and of OCSP responses.

/// Counts of obtained and refused certificates since the start of the process, and numbers of certificates now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeeperCounts {
    /// Certificates obtained.
    pub obtained: u64,
    /// Attempts that have failed.
    pub failed: u64,
    /// Certificates whose last attempt has failed, without those of names that no site lists and that have none yet.
    pub failing: u64,
    /// OCSP responses obtained.
    pub stapled: u64,
    /// Attempts to obtain an OCSP response that have failed.
    pub staples_failed: u64,
    /// Certificates by the state of their OCSP response now.
    pub staples: StapleCounts,
    /// Handshakes for unknown names that were allowed to cause an order.
    pub demanded: u64,
    /// Handshakes for names that are not allowed a certificate.
    pub refused: u64,
    /// Handshakes beyond the rate of on-demand certificates.
    pub limited: u64,
}

/// The number of certificates by the state of their OCSP response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StapleCounts {
    /// The last request has brought a response.
    pub current: u64,
    /// The last request has failed, and an older response is sent.
    pub failing: u64,
    /// The last request has failed, and no response is sent.
    pub missing: u64,
    /// The authority has revoked the certificate.
    pub revoked: u64,
}
