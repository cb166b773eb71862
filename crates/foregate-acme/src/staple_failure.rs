//! Reasons why there is no new OCSP response, and the remedy for each.

use std::fmt::Display;
use std::io;
use std::path::Path;

use foregate_proxy::tls::{ResponderError, StapleError, StapleSubject};

const REACH: &str =
    "see that this machine can reach the address: its name must resolve, and firewalls must allow HTTP to it";
const NO_RESPONDER: &str = "see that no proxy or firewall on the way answers in its place; otherwise, the authority must repair its responder";
const WAIT: &str = "nothing is wrong here, and the responder is asked again; tell the authority if it lasts";
const NOT_KNOWN: &str = "if the certificate is new, the responder may not know it yet, and is asked again; otherwise, see that the second certificate in the file is the issuer of the first";
const ISSUER: &str = "see that the second certificate in the file is the issuer of the first; if it is, the authority must repair its responder";
const CLOCK: &str = "see that the clock of this machine is right (`timedatectl`); if it is, the authority must repair its responder";
const REPAIR: &str = "the authority must repair its responder";

/// A failed look at the OCSP response for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {remedy}")]
pub(crate) struct StapleFailure {
    message: String,
    remedy: &'static str,
}

impl StapleFailure {
    /// The responder cannot be reached, or does not answer.
    pub(crate) fn unreachable(subject: &StapleSubject, error: &(dyn std::error::Error + 'static)) -> Self {
        let is_other_protocol = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
        Self::of(subject, error, if is_other_protocol { NO_RESPONDER } else { REACH })
    }

    /// The responder answers with another status than 200.
    pub(crate) fn status(subject: &StapleSubject, status: u16) -> Self {
        let remedy = if matches!(status, 429 | 500..) { WAIT } else { NO_RESPONDER };
        Self::of(subject, format!("the status of the answer is {status}"), remedy)
    }

    /// The answer is longer than any response.
    pub(crate) fn too_long(subject: &StapleSubject) -> Self {
        Self::of(subject, "the answer is too long", NO_RESPONDER)
    }

    /// The response cannot be used.
    pub(crate) fn unusable(subject: &StapleSubject, error: StapleError) -> Self {
        let remedy = match error {
            StapleError::Malformed => NO_RESPONDER,
            StapleError::Refused(ResponderError::TryLater | ResponderError::InternalError) => WAIT,
            StapleError::Refused(ResponderError::Unauthorized) | StapleError::Unknown => NOT_KNOWN,
            StapleError::Refused(ResponderError::MalformedRequest) => ISSUER,
            StapleError::Refused(ResponderError::SignatureRequired) => {
                "requests are not signed here: ask the authority for a responder that needs no signatures"
            }
            StapleError::Other => REPAIR,
            StapleError::Expired | StapleError::Early => CLOCK,
            StapleError::Signature => ISSUER,
        };
        Self::of(subject, error, remedy)
    }

    /// The response cannot be stored.
    pub(crate) fn unwritten(file: &Path, error: &io::Error) -> Self {
        let remedy = "let the user who runs the proxy write there, and see that the disk has room";
        Self { message: format!("{}: {error}", file.display()), remedy }
    }

    fn of(subject: &StapleSubject, problem: impl Display, remedy: &'static str) -> Self {
        Self { message: format!("no OCSP response from {}: {problem}", subject.responder), remedy }
    }

    /// A failure for tests.
    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self { message: "away".to_owned(), remedy: "wait" }
    }
}
