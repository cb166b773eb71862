//! The state of one certificate that the keeper obtains and renews.

use foregate_proxy::settings::automatic::{Automatic, IssuedBy};
use foregate_proxy::tls::CertificateReport;

use crate::certificate::{Facts, now};
use crate::internal;
use crate::schedule::renewal;
use crate::staples::StapleState;
use crate::storage::{Record, Storage};

/// Seconds between two requests to an authority for the renewal window that it suggests.
const WINDOW_EVERY: i64 = 6 * 3600;

/// A name with its certificate, and the history of the attempts at it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) issuer: IssuedBy,
    pub(crate) facts: Option<Facts>,
    pub(crate) record: Record,
    /// The time of the next request for the renewal window, seconds since 1970.
    pub(crate) window_at: i64,
    /// `true` if the configuration does not list the name, and a handshake demanded it.
    pub(crate) demanded: bool,
    /// `true` if a handshake waits for an attempt to get a certificate. For a demanded name without a usable
    /// certificate, no attempt is made while this is `false`.
    pub(crate) asked: bool,
    pub(crate) in_flight: bool,
    /// No attempt is made before this time, seconds since 1970.
    pub(crate) not_before: i64,
    pub(crate) staple: StapleState,
}

impl Entry {
    pub(crate) fn read(
        storage: &Storage,
        automatic: &Automatic,
        name: &str,
        issuer: IssuedBy,
        demanded: bool,
    ) -> Self {
        let (facts, record) = (storage.certificate(automatic, name), storage.record(name));
        let window_at = now() + WINDOW_EVERY;
        let staple = StapleState::default();
        Self {
            issuer,
            facts,
            record,
            window_at,
            demanded,
            asked: false,
            in_flight: false,
            not_before: 0,
            staple,
        }
    }

    /// Returns true if clients can use the certificate.
    pub(crate) fn is_usable(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.is_temporary && facts.not_after > now())
    }

    /// The time of the next look at the OCSP response for the certificate, seconds since 1970. `None` if the
    /// certificate needs none.
    pub(crate) fn staple_due(&self) -> Option<i64> {
        let has_responder = self.facts.as_ref().is_some_and(|facts| facts.has_responder);
        (has_responder && self.is_usable() && !self.staple.in_flight).then_some(self.staple.at)
    }

    /// The time of the next attempt, seconds since 1970.
    pub(crate) fn due(&self, automatic: &Automatic) -> i64 {
        let renew_at = match &self.facts {
            None => 0,
            Some(facts) if facts.is_temporary => 0,
            Some(_) if !self.issuer_stands(automatic) => 0,
            Some(facts) if self.record.renew_at == 0 => renewal(facts, None, 0.0),
            Some(_) => self.record.renew_at,
        };
        let renew_at =
            if self.record.failures > 0 { renew_at.max(self.record.next_attempt) } else { renew_at };
        renew_at.max(self.not_before)
    }

    /// Returns true if the configuration still names the authority that issued the certificate.
    fn issuer_stands(&self, automatic: &Automatic) -> bool {
        match self.issuer {
            IssuedBy::Internal => self.record.issuer == internal::ISSUER,
            IssuedBy::Authorities => {
                automatic.authorities.iter().any(|authority| authority.directory == self.record.issuer)
            }
        }
    }

    /// The state of the certificate, for the status output.
    pub(crate) fn report(&self, automatic: &Automatic, name: &str) -> CertificateReport {
        let state = match &self.facts {
            Some(facts) if facts.is_temporary => "temporary",
            Some(facts) if facts.not_after <= now() => "expired",
            Some(_) => "valid",
            None => "missing",
        };
        CertificateReport {
            name: name.to_owned(),
            state,
            issuer: self.record.issuer.clone(),
            not_after: self.facts.as_ref().map_or(0, |facts| facts.not_after),
            next_attempt: self.due(automatic),
            failures: self.record.failures,
            error: self.record.error.clone(),
            staple: self.facts.as_ref().filter(|facts| facts.has_responder).map(|_| self.staple.report()),
        }
    }
}
