//! A certificate that the keeper looks after.

use foregate_proxy::settings::automatic::{Automatic, IssuedBy};
use foregate_proxy::tls::CertificateReport;

use crate::certificate::{Facts, now};
use crate::internal;
use crate::schedule::renewal;
use crate::storage::{Record, Storage};

/// How often an authority is asked whether its suggestion for a renewal has changed, in seconds.
const WINDOW_EVERY: i64 = 6 * 3600;

/// A name with its certificate, and the history of the attempts at it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) issuer: IssuedBy,
    pub(crate) facts: Option<Facts>,
    pub(crate) record: Record,
    /// The time of the next question about the renewal.
    pub(crate) window_at: i64,
    /// A handshake demanded the name; the configuration does not list it.
    pub(crate) demanded: bool,
    /// A handshake waits for the next attempt, which would not be made without one.
    pub(crate) asked: bool,
    pub(crate) in_flight: bool,
    /// Nothing is done before.
    pub(crate) not_before: i64,
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
        Self { issuer, facts, record, window_at, demanded, asked: false, in_flight: false, not_before: 0 }
    }

    /// Returns true if clients can use the certificate.
    pub(crate) fn is_usable(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.is_temporary && facts.not_after > now())
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

    /// Returns true if the certificate comes from an authority that the configuration still names.
    fn issuer_stands(&self, automatic: &Automatic) -> bool {
        match self.issuer {
            IssuedBy::Internal => self.record.issuer == internal::ISSUER,
            IssuedBy::Authorities => {
                automatic.authorities.iter().any(|authority| authority.directory == self.record.issuer)
            }
        }
    }

    /// The state of the certificate, for people.
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
        }
    }
}
