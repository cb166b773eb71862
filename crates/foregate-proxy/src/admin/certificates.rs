//! The certificates in use, for `foregate certificates`, `foregate status` and the dashboard.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::counters::metrics::CertificateExpiry;
use crate::proxy::Proxy;
use crate::tls::{StapleReport, StapleStanding};

/// The certificates in use. Those that the proxy obtains itself are listed by their names, others by their
/// files.
pub(super) fn certificates(proxy: &Proxy) -> Value {
    let config = proxy.config();
    let reports = config.certificates.keeper().map(|keeper| keeper.reports()).unwrap_or_default();
    let obtained = reports.iter().map(|report| {
        json!({
            "name": report.name, "state": report.state, "issuer": report.issuer,
            "not_after": report.not_after, "next_attempt": report.next_attempt,
            "failures": report.failures, "error": report.error, "ocsp": report.staple.as_ref().map(fetched),
        })
    });
    let own: HashSet<_> = match &config.settings.automatic {
        Some(automatic) => reports
            .iter()
            .map(|report| automatic.certificate(&report.name).certificate.display().to_string())
            .collect(),
        None => HashSet::new(),
    };
    let mut files = config.certificates.expiries();
    files.retain(|expiry| !own.contains(&expiry.file));
    let staples = config.certificates.keeper().map(|keeper| keeper.staples()).unwrap_or_default();
    let staples: HashMap<_, _> =
        staples.into_iter().map(|(file, staple)| (file.display().to_string(), staple)).collect();
    let files = files.iter().map(|expiry| in_file(expiry, staples.get(&expiry.file)));
    let (certificates, files): (Vec<_>, Vec<_>) = (obtained.collect(), files.collect());
    json!({ "ok": true, "certificates": certificates, "files": files })
}

/// A certificate in files. `staple` is the response that is fetched for it.
fn in_file(expiry: &CertificateExpiry, staple: Option<&StapleReport>) -> Value {
    let is_revoked =
        expiry.is_revoked || staple.is_some_and(|staple| staple.standing == StapleStanding::Revoked);
    let state = match expiry {
        _ if expiry.is_expired => "expired",
        _ if is_revoked => "revoked",
        CertificateExpiry { failure: Some(_), .. } => "not-reloaded",
        _ if expiry.is_not_yet_valid => "not-yet-valid",
        _ => "valid",
    };
    let error = match &expiry.failure {
        Some(failure) => Some(format!("the changed file is not used, the old certificate stays: {failure}")),
        None if expiry.is_not_yet_valid => Some(
            "clients refuse it until its validity begins; put a valid one in its place, or set the clock"
                .to_owned(),
        ),
        None if !expiry.missing_names.is_empty() => Some(format!(
            "it is no longer for {}, as it was when the configuration was loaded; put one for these names in its place, or reload if they are not needed",
            expiry.missing_names.join(", ")
        )),
        None => None,
    };
    let ocsp = match staple {
        None if expiry.is_revoked => Some(json!({
            "state": StapleStanding::Revoked.word(), "until": 0, "next_attempt": null,
            "error": format!(
                "{}.ocsp says that the authority has revoked the certificate; put a new one in its place, which is read at once",
                expiry.file
            ),
        })),
        staple => staple.map(fetched),
    };
    json!({ "file": expiry.file, "state": state, "not_after": expiry.not_after, "error": error, "ocsp": ocsp })
}

fn fetched(staple: &StapleReport) -> Value {
    let StapleReport { standing, until, next_attempt, error } = staple;
    json!({ "state": standing.word(), "until": until, "next_attempt": next_attempt, "error": error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_certificate_is_not_shown_as_valid() {
        let expiry = |is_expired, is_revoked| CertificateExpiry {
            file: "site.pem".to_owned(),
            not_after: 9,
            is_expired,
            is_revoked,
            ..CertificateExpiry::default()
        };
        let staple = |standing| StapleReport { standing, ..StapleReport::default() };
        let revoked = staple(StapleStanding::Revoked);
        let state = |expiry, staple: Option<&StapleReport>| in_file(&expiry, staple)["state"].clone();
        assert_eq!(state(expiry(false, false), None), "valid");
        assert_eq!(state(expiry(false, false), Some(&staple(StapleStanding::Missing))), "valid");
        assert_eq!(state(expiry(false, false), Some(&revoked)), "revoked");
        assert_eq!(state(expiry(true, false), Some(&revoked)), "expired");
        let failed = CertificateExpiry { failure: Some("junk".to_owned()), ..expiry(false, false) };
        assert_eq!(state(failed.clone(), None), "not-reloaded");
        let error = in_file(&failed, None)["error"].to_string();
        assert!(error.contains("stays: junk"), "{error}");
        let future = CertificateExpiry { is_not_yet_valid: true, ..expiry(false, false) };
        assert_eq!(state(future, None), "not-yet-valid");
        let by_file = in_file(&expiry(false, true), None);
        assert_eq!((&by_file["state"], &by_file["ocsp"]["state"]), (&json!("revoked"), &json!("revoked")));
        let error = by_file["ocsp"]["error"].as_str().unwrap();
        assert!(error.starts_with("site.pem.ocsp says that"), "{error}");
    }
}
