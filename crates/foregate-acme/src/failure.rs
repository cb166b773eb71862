//! Reasons why no certificate was issued, and the remedy for each.

use std::time::Duration;

use foregate_proxy::settings::automatic::ChallengeKind;
use instant_acme::{Error as AcmeError, Problem};

use crate::http::UnexpectedStatus;

/// A failed attempt to obtain a certificate.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}; {remedy}")]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The problem.
    pub(crate) message: String,
    /// Advice for the operator.
    pub(crate) remedy: String,
}

/// The party at fault, which decides how soon another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The authority cannot be reached, or answers with an error of its own.
    Unreachable,
    /// The authority could not verify that we control the name.
    Refused,
    /// The authority has received too many requests.
    RateLimited,
    /// A local problem: files, the configuration, or the hook.
    Local,
    /// Another process is working on the same name or account.
    Busy,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind, message: message.into(), remedy: remedy.into() }
    }

    /// The failure for a file that cannot be read or written.
    pub(crate) fn of_file(what: &str, error: &std::io::Error) -> Self {
        let remedy =
            "let the user who runs the proxy write in the storage folder, and see that the disk has room";
        Self::new(FailureKind::Local, format!("{what}: {error}"), remedy)
    }

    /// The failure for an error while talking to an authority.
    pub(crate) fn of_authority(directory: &str, error: &AcmeError) -> Self {
        match error {
            AcmeError::Api(problem) => Self::of_problem(directory, problem, None),
            AcmeError::Timeout(_) => Self::new(
                FailureKind::Unreachable,
                format!("{directory} did not finish the order in time"),
                "it is tried again",
            ),
            AcmeError::Unsupported(feature) => Self::new(
                FailureKind::Refused,
                format!("{directory} does not support {feature}"),
                "leave out the `profile`, or take one that the authority offers",
            ),
            AcmeError::Other(error) if error.is::<UnexpectedStatus>() => Self::new(
                FailureKind::Unreachable,
                format!("{directory} is no ACME directory: {error}"),
                "see that `directory` is the address that the authority's documentation names, if it does not pass",
            ),
            AcmeError::Json(error) => Self::new(
                FailureKind::Unreachable,
                format!("{directory} gives answers that are not those of an ACME directory: {error}"),
                "see that `directory` is the address that the authority's documentation names",
            ),
            other => Self::new(
                FailureKind::Unreachable,
                format!("{directory}: {other}"),
                "see that this machine can reach the address, and that `ca` names the root of its certificate if it is a private one",
            ),
        }
    }

    /// The failure for a problem document (RFC 8555, section 6.7) of an authority. `challenge` is the challenge
    /// that the document is about, if any.
    pub(crate) fn of_problem(directory: &str, problem: &Problem, challenge: Option<ChallengeKind>) -> Self {
        let word = problem.r#type.as_deref().unwrap_or_default();
        let word = word.rsplit(':').next().unwrap_or_default();
        let mut message = format!("{directory}: {}", problem.detail.as_deref().unwrap_or(word));
        for sub in &problem.subproblems {
            message.push_str(&format!("; {sub}"));
        }
        let (kind, remedy) = match word {
            "rateLimited" => (FailureKind::RateLimited, "wait: the authority allows no more orders for now"),
            "serverInternal" | "badNonce" => (FailureKind::Unreachable, "it is tried again"),
            "dns" => (FailureKind::Refused, "let the A and AAAA records of the name lead to this machine"),
            "caa" => (FailureKind::Refused, "let the CAA records of the domain allow this authority"),
            "connection" | "tls" | "unauthorized" | "incorrectResponse" => {
                (FailureKind::Refused, remedy_of_challenge(challenge))
            }
            "externalAccountRequired" => {
                (FailureKind::Refused, "add `account=\"ID\" account-key=\"KEY\"` to the `directory`")
            }
            "invalidContact" | "unsupportedContact" => {
                (FailureKind::Refused, "write an address that can get mail into `email`")
            }
            "invalidProfile" => (FailureKind::Refused, "take a `profile` that the authority offers"),
            _ => (FailureKind::Refused, "the authority's documentation explains the message"),
        };
        Self::new(kind, message, remedy)
    }

    /// Returns true if the authority refused a nonce: the same order can be tried again at once.
    pub(crate) fn is_nonce(error: &AcmeError) -> bool {
        let AcmeError::Api(problem) = error else { return false };
        problem.r#type.as_deref().is_some_and(|word| word.ends_with(":badNonce"))
    }
}

fn remedy_of_challenge(challenge: Option<ChallengeKind>) -> &'static str {
    match challenge {
        Some(ChallengeKind::Http) => {
            "let port 80 of the name's addresses (A and AAAA) lead to a listener in the clear of this proxy"
        }
        Some(ChallengeKind::TlsAlpn) => {
            "let port 443 of the name's addresses (A and AAAA) lead to a TLS listener of this proxy, with nothing before it that ends TLS"
        }
        Some(ChallengeKind::Dns) => {
            "see that the hook publishes the record on all nameservers of the zone, or raise its `wait`"
        }
        None => "see that the name leads to this machine, and that its ports 80 and 443 can be reached",
    }
}

/// The pause before the next attempt, after this many failures in a row.
pub(crate) fn pause(kind: FailureKind, failures: u32) -> Duration {
    const MINUTE: u64 = 60;
    let doubled =
        |first: u64, most: u64| first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    Duration::from_secs(match kind {
        FailureKind::Busy => 2,
        // The pause begins short, since a machine that has just started often has its network a little later.
        // Longer pauses do no harm: the old certificate is still in use.
        FailureKind::Unreachable => doubled(2, 10 * MINUTE),
        // Authorities allow about five failed validations per name and hour.
        FailureKind::Refused => doubled(10, 6 * 60 * MINUTE),
        FailureKind::RateLimited => 60 * MINUTE,
        FailureKind::Local => doubled(10, 60 * MINUTE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let seconds = |kind, failures| pause(kind, failures).as_secs();
        assert_eq!([1, 2, 3, 30].map(|n| seconds(FailureKind::Unreachable, n)), [2, 4, 8, 600]);
        assert_eq!([1, 2, 6, u32::MAX].map(|n| seconds(FailureKind::Refused, n)), [10, 20, 320, 21_600]);
        assert_eq!(seconds(FailureKind::RateLimited, 1), 3600);
    }

    #[test]
    fn a_wrong_directory_is_told_with_its_status() {
        let error = AcmeError::Other(Box::new(UnexpectedStatus(404)));
        let told = Failure::of_authority("https://ca.test/x", &error).to_string();
        assert!(
            told.starts_with("https://ca.test/x is no ACME directory: it answers with status 404; see"),
            "{told}"
        );
    }

    #[test]
    fn a_problem_is_told_with_its_remedy() {
        let problem: Problem = serde_json::from_str(
            r#"{"type":"urn:ietf:params:acme:error:connection","detail":"connection refused","status":400}"#,
        )
        .unwrap();
        let failure = Failure::of_problem("https://ca.test/dir", &problem, Some(ChallengeKind::Http));
        assert_eq!(failure.kind, FailureKind::Refused);
        assert!(failure.to_string().contains("connection refused; let port 80"), "{failure}");
    }
}
