//! OCSP responses for the certificates that the keeper obtains, and for those in files with `ocsp`.
//!
//! Most authorities have no responders any more. If a certificate names one, the keeper fetches a response for it, and
//! stores the response. Handshakes send it along, so clients need not ask the responder
//! themselves. A failure harms no client: an old response is sent until its end, and then none.

use foregate_proxy::settings::CertificateFiles;
use foregate_proxy::tls::{RESPONSE_MOST, Staple, StapleReport, StapleStanding, StapleSubject};

use crate::failure::{FailureKind, pause};
use crate::http;
use crate::staple_failure::StapleFailure;
use crate::storage::{read, replace};

/// The most requests to responders at the same time.
pub(crate) const STAPLES: usize = 4;
/// After this many seconds, another new certificate may be ordered because the present one is revoked.
pub(crate) const REVOKED_AGAIN: i64 = 3600;
/// Seconds until the next look after one that a new certificate has made pointless.
const MOOT_AGAIN: i64 = 5;
/// The longest time to the next request after a response that is past the middle of its life, in seconds.
const LATE_MOST: i64 = 3600;

/// The state of the OCSP response for a certificate. All times are seconds since 1970.
#[derive(Debug, Clone, Default)]
pub(crate) struct StapleState {
    /// The time of the next look at the response.
    pub(crate) at: i64,
    pub(crate) in_flight: bool,
    /// The time at which a new certificate was last ordered because one was revoked.
    renewed: i64,
    until: i64,
    failures: u32,
    fault: Option<StapleFault>,
}

/// The reason why there is no new response.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StapleFault {
    /// The authority has revoked the certificate.
    Revoked,
    /// The request has failed.
    Failed(StapleFailure),
}

/// The outcome of a look at the response for a certificate.
#[derive(Debug)]
pub(crate) enum StapleOutcome {
    /// A response holds. `is_new` says whether it was fetched now.
    Holds {
        staple: Staple,
        is_new: bool,
    },
    Revoked,
    /// The certificate was replaced meanwhile, or cannot be read.
    Moot,
    Failed(StapleFailure),
}

/// The consequence of a look at the response for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StapleConsequence {
    /// The certificate stays for now.
    Stays,
    /// The certificate is revoked, and a new one has to be ordered now.
    Order,
}

impl StapleState {
    /// The state for a new certificate of the same name.
    pub(crate) fn renewed(&self) -> Self {
        Self { in_flight: self.in_flight, renewed: self.renewed, ..Self::default() }
    }

    /// Returns true if the authority has revoked the certificate.
    pub(crate) fn is_revoked(&self) -> bool {
        self.fault == Some(StapleFault::Revoked)
    }

    /// The state in one word.
    pub(crate) fn standing(&self, now: i64) -> StapleStanding {
        match &self.fault {
            Some(StapleFault::Revoked) => StapleStanding::Revoked,
            Some(StapleFault::Failed(_)) if self.until > now => StapleStanding::Failing,
            Some(StapleFault::Failed(_)) => StapleStanding::Missing,
            None if self.until > now => StapleStanding::Current,
            None => StapleStanding::Waiting,
        }
    }

    /// The state for the status output. `revocation` is the message if the certificate is revoked; `is_demanded` is
    /// true for a certificate that demands a response.
    pub(crate) fn report(&self, revocation: &str, is_demanded: bool, now: i64) -> StapleReport {
        let until = if self.until > now { self.until } else { 0 };
        let error = self.fault.as_ref().map(|fault| match fault {
            StapleFault::Revoked => revocation.to_owned(),
            StapleFault::Failed(failure) => {
                format!("{failure}. {}", consequence(self.until > now, is_demanded))
            }
        });
        StapleReport { standing: self.standing(now), until, next_attempt: self.at, error }
    }

    /// Notes an outcome.
    pub(crate) fn note(&mut self, outcome: StapleOutcome, now: i64) -> StapleConsequence {
        self.in_flight = false;
        match outcome {
            StapleOutcome::Holds { staple, .. } => {
                *self = Self { at: next(&staple, now), until: staple.until, ..self.renewed() };
            }
            StapleOutcome::Moot => *self = Self { at: now + MOOT_AGAIN, ..self.renewed() },
            StapleOutcome::Revoked => {
                let is_due = self.renewed.saturating_add(REVOKED_AGAIN) <= now;
                self.renewed = if is_due { now } else { self.renewed };
                self.at = self.renewed.saturating_add(REVOKED_AGAIN);
                self.until = 0;
                self.fault = Some(StapleFault::Revoked);
                if is_due {
                    return StapleConsequence::Order;
                }
            }
            StapleOutcome::Failed(error) => {
                self.failures = self.failures.saturating_add(1);
                self.at = now + pause(FailureKind::Local, self.failures).as_secs() as i64;
                self.fault = Some(StapleFault::Failed(error));
            }
        }
        StapleConsequence::Stays
    }
}

/// The consequence of a failed request. `holds` says whether an earlier response still holds, `is_demanded` whether the
/// certificate demands a response.
pub(crate) fn consequence(holds: bool, is_demanded: bool) -> &'static str {
    match (holds, is_demanded) {
        (true, false) => "Until its end, the earlier response is sent",
        (true, true) => {
            "Until its end, the earlier response is sent; after that, clients refuse the certificate, because it demands a response (must-staple)"
        }
        (false, false) => "Meanwhile, clients that want a response ask the responder themselves",
        (false, true) => {
            "Meanwhile, clients refuse the certificate, because it demands a response (must-staple)"
        }
    }
}

/// The message about a revoked certificate if a new one is ordered at `order_at`.
pub(crate) fn revocation(order_at: i64, now: i64) -> String {
    let when = match order_at.saturating_sub(now) {
        ..=0 => "now".to_owned(),
        seconds @ 1..120 => format!("in {seconds} s"),
        seconds @ 120..7200 => format!("in {} min", seconds / 60),
        seconds => format!("in {} hours", seconds / 3600),
    };
    format!("the authority has revoked the certificate; a new one is ordered {when}")
}

/// The time of the next request after a response: in the middle of its life.
fn next(staple: &Staple, now: i64) -> i64 {
    middle(staple).max(now + ((staple.until - now) / 4).clamp(1, LATE_MOST))
}

fn middle(staple: &Staple) -> i64 {
    staple.from + (staple.until - staple.from) / 2
}

/// Looks at the stored response for a certificate, and fetches another one if it is due.
///
/// `clock` tells the time, seconds since 1970, since a responder may take a while to answer.
pub(crate) async fn look(files: &CertificateFiles, clock: impl Fn() -> i64) -> StapleOutcome {
    let subject = || read(&files.certificate).ok().and_then(|pem| StapleSubject::of_pem(&pem).ok());
    let Some(asked) = subject() else { return StapleOutcome::Moot };
    let file = files.staple_file();
    // Another process with this storage, or an earlier one, may have fetched it.
    if let Ok(stored) = read(&file)
        && let Ok(staple) = asked.judge(&stored, clock())
        && !staple.is_revoked
        && middle(&staple) > clock()
    {
        return StapleOutcome::Holds { staple, is_new: false };
    }
    let response = match fetch(&asked).await {
        Ok(response) => response,
        Err(failure) => return StapleOutcome::Failed(failure),
    };
    if subject().as_ref() != Some(&asked) {
        return StapleOutcome::Moot;
    }
    match asked.judge(&response, clock()) {
        Ok(Staple { is_revoked: true, .. }) => {
            // A failure does no harm: a response that says so is not sent.
            let _ = std::fs::remove_file(&file);
            StapleOutcome::Revoked
        }
        Ok(staple) => match replace(&file, &response) {
            Ok(()) => StapleOutcome::Holds { staple, is_new: true },
            Err(error) => StapleOutcome::Failed(StapleFailure::unwritten(&file, &error)),
        },
        Err(error) => StapleOutcome::Failed(StapleFailure::unusable(&asked, error)),
    }
}

async fn fetch(subject: &StapleSubject) -> Result<Vec<u8>, StapleFailure> {
    let (status, body) = http::post(&subject.responder, "application/ocsp-request", subject.request())
        .await
        .map_err(|error| StapleFailure::unreachable(subject, error.as_ref()))?;
    match status {
        200 if body.len() <= RESPONSE_MOST => Ok(body.to_vec()),
        200 => Err(StapleFailure::too_long(subject)),
        status => Err(StapleFailure::status(subject, status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_replaced_in_the_middle_of_its_life() {
        let staple = Staple { is_revoked: false, from: 0, until: 1000 };
        assert_eq!(next(&staple, 10), 500);
        // A late one is asked for again before its end, but not at once.
        assert_eq!(next(&staple, 900), 925);
        assert_eq!(next(&staple, 1000), 1001);
        let long = Staple { is_revoked: false, from: 0, until: 1_000_000 };
        assert_eq!(next(&long, 600_000), 603_600);
    }

    /// The time at which these tests begin.
    const START: i64 = 1_800_000_000;

    fn response(from: i64, until: i64) -> StapleOutcome {
        StapleOutcome::Holds { staple: Staple { is_revoked: false, from, until }, is_new: true }
    }

    fn failure() -> StapleOutcome {
        StapleOutcome::Failed(StapleFailure::for_test())
    }

    #[test]
    fn a_responder_that_is_away_is_asked_less_and_less() {
        let mut state = StapleState { in_flight: true, ..StapleState::default() };
        assert_eq!(state.note(response(START - 100, START + 900), START), StapleConsequence::Stays);
        assert!(!state.in_flight);
        assert_eq!(state.at, START + 400);
        assert_eq!(state.report("", false, START + 899).until, START + 900);

        // Each look happens when it is due.
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let now = state.at;
            assert_eq!(state.note(failure(), now), StapleConsequence::Stays);
            pauses.push(state.at - now);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]);
        let told = state.report("", false, START + 899);
        assert_eq!(
            (told.until, told.error.as_deref()),
            (START + 900, Some("away; wait. Until its end, the earlier response is sent")),
            "the old one still holds"
        );
        assert_eq!(told.next_attempt, state.at);
        let told = |demanded| state.report("", demanded, START + 900);
        assert_eq!(told(false).until, 0, "and now it does not");
        assert!(
            told(false).error.unwrap().ends_with("clients that want a response ask the responder themselves")
        );
        assert!(told(true).error.unwrap().contains("wait. Meanwhile, clients refuse the certificate"));

        let now = state.at;
        state.note(response(now, now + 1000), now);
        let told = state.report("", false, now);
        assert_eq!((told.until, told.error, told.next_attempt), (now + 1000, None, now + 500));
        // The next failure is a first one again.
        state.note(failure(), now + 500);
        assert_eq!(state.at, now + 510);
    }

    #[test]
    fn a_revoked_certificate_is_replaced_at_most_once_an_hour() {
        let mut state = StapleState::default();
        assert_eq!(state.note(StapleOutcome::Revoked, START), StapleConsequence::Order);
        // The new certificate arrives, and is revoked as well.
        let mut state = state.renewed();
        assert_eq!((state.at, state.is_revoked()), (0, false));
        assert_eq!(state.note(StapleOutcome::Revoked, START + 600), StapleConsequence::Stays);
        assert!(state.is_revoked());
        assert_eq!(state.at, START + REVOKED_AGAIN, "an hour after the first order");
        assert_eq!(state.note(StapleOutcome::Revoked, START + REVOKED_AGAIN), StapleConsequence::Order);
        assert_eq!(state.at, START + 2 * REVOKED_AGAIN);
    }

    #[test]
    fn a_look_that_a_new_certificate_has_overtaken_is_repeated_soon() {
        let mut state = StapleState { in_flight: true, ..StapleState::default() };
        assert_eq!(state.note(StapleOutcome::Moot, START), StapleConsequence::Stays);
        assert_eq!((state.at, state.in_flight), (START + MOOT_AGAIN, false));
        // Its limit of orders stays.
        state.note(StapleOutcome::Revoked, START);
        state.note(StapleOutcome::Moot, START + 1);
        assert_eq!(state.note(StapleOutcome::Revoked, START + 2), StapleConsequence::Stays);
    }

    #[test]
    fn a_revocation_tells_when_a_new_certificate_is_ordered() {
        let told = |at: i64| revocation(at, START);
        assert!(told(START - 5).ends_with("a new one is ordered now"), "{}", told(START - 5));
        assert!(told(START + 90).ends_with("a new one is ordered in 90 s"));
        assert!(told(START + 3000).ends_with("a new one is ordered in 50 min"));
        assert!(told(START + 21_600).ends_with("a new one is ordered in 6 hours"));
    }

    #[test]
    fn the_state_has_a_word() {
        let mut state = StapleState::default();
        assert_eq!(state.standing(START), StapleStanding::Waiting);
        state.note(failure(), START);
        assert_eq!(state.standing(START), StapleStanding::Missing);
        state.note(response(START, START + 100), START);
        assert_eq!(state.standing(START), StapleStanding::Current);
        state.note(failure(), START + 50);
        assert_eq!(state.standing(START + 99), StapleStanding::Failing);
        assert_eq!(state.standing(START + 100), StapleStanding::Missing);
        state.note(StapleOutcome::Revoked, START + 100);
        assert_eq!(state.standing(START + 100), StapleStanding::Revoked);
        assert_eq!(state.report("replace it", false, START + 100).error.as_deref(), Some("replace it"));
    }
}
