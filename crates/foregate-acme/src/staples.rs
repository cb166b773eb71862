//! OCSP responses for the certificates that the keeper obtains.
//!
//! Most authorities have no responders any more. If a certificate names one, the keeper fetches a response for it, and
//! stores the response next to the certificate. Handshakes send it along, so clients need not ask the responder
//! themselves. A failure harms no client: an old response is sent until its end, and then none.

use foregate_proxy::settings::automatic::Automatic;
use foregate_proxy::tls::{RESPONSE_MOST, Staple, StapleReport, StapleSubject, staple_file};

use crate::certificate::now;
use crate::failure::{FailureKind, pause};
use crate::http;
use crate::storage::{read, replace};

/// The most requests to responders at the same time.
pub(crate) const STAPLES: usize = 4;
/// After this many seconds, another new certificate may be ordered because the present one is revoked.
pub(crate) const REVOKED_AGAIN: i64 = 3600;
/// Seconds until the next look after one that a new certificate has made pointless.
const MOOT_AGAIN: i64 = 5;
/// The longest time to the next request after a response that is past the middle of its life, in seconds.
const LATE_MOST: i64 = 3600;

/// The state of the OCSP response for a certificate.
#[derive(Debug, Clone, Default)]
pub(crate) struct StapleState {
    /// The time of the next look at the response, seconds since 1970.
    pub(crate) at: i64,
    pub(crate) in_flight: bool,
    /// The time at which a new certificate was last ordered because one was revoked, seconds since 1970.
    pub(crate) renewed: i64,
    until: i64,
    failures: u32,
    error: Option<String>,
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
    Failed(String),
}

impl StapleState {
    /// The state for a new certificate of the same name.
    pub(crate) fn renewed(&self) -> Self {
        Self { in_flight: self.in_flight, renewed: self.renewed, ..Self::default() }
    }

    pub(crate) fn report(&self) -> StapleReport {
        let until = if self.until > now() { self.until } else { 0 };
        StapleReport { until, next_attempt: self.at, error: self.error.clone() }
    }

    /// Notes an outcome. Returns true if a new certificate has to be ordered, because the present one is revoked.
    pub(crate) fn note(&mut self, outcome: StapleOutcome) -> bool {
        let now = now();
        self.in_flight = false;
        match outcome {
            StapleOutcome::Holds { staple, .. } => {
                *self = Self { at: next(&staple, now), until: staple.until, ..self.renewed() };
                false
            }
            StapleOutcome::Moot => {
                *self = Self { at: now + MOOT_AGAIN, ..self.renewed() };
                false
            }
            StapleOutcome::Revoked => {
                let is_due = self.renewed.saturating_add(REVOKED_AGAIN) <= now;
                self.renewed = if is_due { now } else { self.renewed };
                self.at = now + REVOKED_AGAIN;
                self.until = 0;
                self.error =
                    Some("the authority has revoked the certificate; a new one is ordered".to_owned());
                is_due
            }
            StapleOutcome::Failed(error) => {
                self.failures = self.failures.saturating_add(1);
                self.at = now + pause(FailureKind::Local, self.failures).as_secs() as i64;
                self.error = Some(error);
                false
            }
        }
    }
}

/// The time of the next request after a response: in the middle of its life.
fn next(staple: &Staple, now: i64) -> i64 {
    let middle = staple.from + (staple.until - staple.from) / 2;
    middle.max(now + ((staple.until - now) / 4).clamp(1, LATE_MOST))
}

/// Looks at the stored response for a certificate, and fetches another one if it is due.
pub(crate) async fn look(automatic: &Automatic, name: &str) -> StapleOutcome {
    let certificate = automatic.certificate(name).certificate;
    let subject = || read(&certificate).ok().and_then(|pem| StapleSubject::of_pem(&pem));
    let Some(asked) = subject() else { return StapleOutcome::Moot };
    let file = staple_file(&certificate);
    // Another process with this storage, or an earlier one, may have fetched it.
    if let Ok(stored) = read(&file)
        && let Ok(staple) = asked.judge(&stored, now())
        && !staple.is_revoked
        && staple.from + (staple.until - staple.from) / 2 > now()
    {
        return StapleOutcome::Holds { staple, is_new: false };
    }
    let response = match fetch(&asked).await {
        Ok(response) => response,
        Err(error) => return StapleOutcome::Failed(advice(&asked, &error)),
    };
    if subject().as_ref() != Some(&asked) {
        return StapleOutcome::Moot;
    }
    match asked.judge(&response, now()) {
        Ok(Staple { is_revoked: true, .. }) => {
            // A failure does no harm: a response that says so is not sent.
            let _ = std::fs::remove_file(&file);
            StapleOutcome::Revoked
        }
        Ok(staple) => match replace(&file, &response) {
            Ok(()) => StapleOutcome::Holds { staple, is_new: true },
            Err(error) => StapleOutcome::Failed(format!(
                "{}: {error}; let the user who runs the proxy write there",
                file.display()
            )),
        },
        Err(error) => StapleOutcome::Failed(advice(&asked, &error.to_string())),
    }
}

fn advice(subject: &StapleSubject, error: &str) -> String {
    format!(
        "no OCSP response from {}: {error}; see that this machine can reach the address. Meanwhile, clients that want one ask there themselves",
        subject.responder
    )
}

async fn fetch(subject: &StapleSubject) -> Result<Vec<u8>, String> {
    let (status, body) = http::post(&subject.responder, "application/ocsp-request", subject.request())
        .await
        .map_err(|error| error.to_string())?;
    match status {
        200 if body.len() <= RESPONSE_MOST => Ok(body.to_vec()),
        200 => Err("the answer is too long".to_owned()),
        status => Err(format!("the status of the answer is {status}")),
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

    #[test]
    fn a_revoked_certificate_is_replaced_at_most_once_an_hour() {
        let mut state = StapleState { in_flight: true, ..StapleState::default() };
        assert!(state.note(StapleOutcome::Revoked));
        assert!(!state.in_flight);
        let mut state = state.renewed();
        assert!(!state.note(StapleOutcome::Revoked), "the next one is revoked, too");
        // The look at the first certificate may end after the second one has arrived, which needs a look of its own.
        state.note(StapleOutcome::Moot);
        assert!(state.at <= now() + MOOT_AGAIN);
        state.renewed -= REVOKED_AGAIN;
        assert!(state.note(StapleOutcome::Revoked));
    }

    #[test]
    fn failures_are_told_and_pauses_grow() {
        let mut state = StapleState::default();
        assert!(!state.note(StapleOutcome::Failed("away".into())));
        let first = state.at;
        state.note(StapleOutcome::Failed("away".into()));
        assert!(state.at > first);
        assert_eq!(state.report().error.as_deref(), Some("away"));
        let staple = Staple { is_revoked: false, from: now() - 10, until: now() + 90 };
        state.note(StapleOutcome::Holds { staple, is_new: true });
        assert_eq!((state.report().error, state.report().until), (None, staple.until));
    }
}
