//! The state of one certificate that the keeper obtains and renews.

use foregate_proxy::settings::automatic::{Automatic, IssuedBy};
use foregate_proxy::tls::{CertificateReport, StapleReport};

use crate::certificate::Facts;
use crate::internal;
use crate::schedule::renewal;
use crate::staples::{StapleState, revocation};
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
        now: i64,
    ) -> Self {
        let (facts, record) = (storage.certificate(automatic, name), storage.record(name));
        let window_at = now + WINDOW_EVERY;
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
    pub(crate) fn is_usable(&self, now: i64) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.is_temporary && facts.not_after > now)
    }

    /// Returns true if the last attempt has failed, and an operator should know. Anybody can make handshakes with names
    /// that no site lists, so those count only if their certificate has to be renewed.
    pub(crate) fn is_failing(&self, now: i64) -> bool {
        self.record.failures > 0 && (!self.demanded || self.is_usable(now))
    }

    /// Returns true if the certificate names an OCSP responder.
    pub(crate) fn has_responder(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.obstacle.is_none())
    }

    /// The time of the next look at the OCSP response for the certificate, seconds since 1970. `None` if the
    /// certificate needs none.
    pub(crate) fn staple_due(&self, now: i64) -> Option<i64> {
        (self.has_responder() && self.is_usable(now) && !self.staple.in_flight).then_some(self.staple.at)
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

    /// The time at which a new certificate is ordered if the present one is revoked, seconds since 1970: that of the
    /// next attempt, or that of the next look at the revocation if it comes earlier and failures do not forbid it.
    pub(crate) fn replaced_at(&self, automatic: &Automatic) -> i64 {
        let paused = if self.record.failures > 0 { self.record.next_attempt } else { 0 };
        self.due(automatic).min(self.staple.at.max(paused))
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

    /// The state of the OCSP response, for the status output. `None` if the certificate names no responder.
    pub(crate) fn staple_report(&self, automatic: &Automatic, now: i64) -> Option<StapleReport> {
        let facts = self.facts.as_ref().filter(|facts| facts.obstacle.is_none())?;
        let revocation = revocation(self.replaced_at(automatic), now);
        Some(self.staple.report(&revocation, facts.demands_staple, now))
    }

    /// The state of the certificate, for the status output.
    pub(crate) fn report(&self, automatic: &Automatic, name: &str, now: i64) -> CertificateReport {
        let state = match &self.facts {
            Some(facts) if facts.is_temporary => "temporary",
            Some(facts) if facts.not_after <= now => "expired",
            Some(_) if self.staple.is_revoked() => "revoked",
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
            staple: self.staple_report(automatic, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staples::{REVOKED_AGAIN, StapleConsequence, StapleOutcome};

    const START: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;

    /// A certificate that is to be renewed in 50 days.
    fn entry(automatic: &Automatic) -> Entry {
        let facts = Facts {
            public_key: Vec::new(),
            not_before: START - 10 * DAY,
            not_after: START + 80 * DAY,
            is_temporary: false,
            id: None,
            obstacle: None,
            demands_staple: false,
        };
        let issuer = automatic.authorities[0].directory.clone();
        Entry {
            issuer: IssuedBy::Authorities,
            facts: Some(facts),
            record: Record { issuer, renew_at: START + 50 * DAY, ..Record::default() },
            window_at: START + WINDOW_EVERY,
            demanded: false,
            asked: false,
            in_flight: false,
            not_before: 0,
            staple: StapleState::default(),
        }
    }

    #[test]
    fn a_revoked_certificate_tells_when_it_is_replaced() {
        let automatic = Automatic::new("/store".into());
        let mut entry = entry(&automatic);
        let told = |entry: &Entry, now: i64| {
            entry.report(&automatic, "a.test", now).staple.unwrap().error.unwrap_or_default()
        };
        assert_eq!(entry.staple_due(START), Some(0));
        assert_eq!(entry.staple.note(StapleOutcome::Revoked, START), StapleConsequence::Order);
        assert_eq!(entry.report(&automatic, "a.test", START).state, "revoked");
        // As the keeper does.
        entry.record.renew_at = START;
        assert_eq!(entry.replaced_at(&automatic), START);
        assert!(told(&entry, START).ends_with("a new one is ordered now"), "{}", told(&entry, START));

        // The order fails, and the next one has to wait.
        entry.record = Record { failures: 3, next_attempt: START + 600, ..entry.record };
        assert!(told(&entry, START).ends_with("ordered in 10 min"), "{}", told(&entry, START));
        // Longer than until the next look, which cannot hasten it.
        entry.record.next_attempt = START + 2 * REVOKED_AGAIN;
        assert!(told(&entry, START).ends_with("ordered in 2 hours"), "{}", told(&entry, START));

        // A new certificate has arrived, and is revoked too: no order is due before an hour has passed.
        entry.record =
            Record { issuer: entry.record.issuer, renew_at: START + 60 * DAY, ..Record::default() };
        entry.staple = entry.staple.renewed();
        let now = START + 120;
        assert_eq!(entry.report(&automatic, "a.test", now).state, "valid");
        assert_eq!(entry.staple.note(StapleOutcome::Revoked, now), StapleConsequence::Stays);
        assert_eq!(entry.replaced_at(&automatic), START + REVOKED_AGAIN);
        assert!(told(&entry, now).ends_with("ordered in 58 min"), "{}", told(&entry, now));
        assert_eq!(entry.staple_due(now), Some(START + REVOKED_AGAIN));
    }

    #[test]
    fn names_of_strangers_raise_no_alarm() {
        let automatic = Automatic::new("/store".into());
        let mut entry = entry(&automatic);
        assert!(!entry.is_failing(START));
        entry.record.failures = 1;
        assert!(entry.is_failing(START));
        entry.demanded = true;
        assert!(entry.is_failing(START), "a renewal");
        entry.facts = None;
        assert!(!entry.is_failing(START));
    }

    #[test]
    fn an_expired_certificate_needs_no_response() {
        let automatic = Automatic::new("/store".into());
        let entry = entry(&automatic);
        let end = START + 80 * DAY;
        assert_eq!(entry.staple_due(end - 1), Some(0));
        assert_eq!(entry.staple_due(end), None);
        assert_eq!(entry.report(&automatic, "a.test", end).state, "expired");
    }
}
