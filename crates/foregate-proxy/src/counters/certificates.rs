//! Counts of certificates that the proxy obtains itself.

/// Counts of obtained and refused certificates since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeeperCounts {
    /// Certificates obtained.
    pub obtained: u64,
    /// Attempts that have failed.
    pub failed: u64,
    /// OCSP responses obtained for these certificates.
    pub stapled: u64,
    /// Attempts to obtain an OCSP response that have failed.
    pub staples_failed: u64,
    /// Handshakes for unknown names that were allowed to cause an order.
    pub demanded: u64,
    /// Handshakes for names that are not allowed a certificate.
    pub refused: u64,
    /// Handshakes beyond the rate of on-demand certificates.
    pub limited: u64,
}
