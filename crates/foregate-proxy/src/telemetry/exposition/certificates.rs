//! Metrics of certificates.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::families::{counter, counters, labelled};
use crate::counters::certificates::KeeperCounts;
use crate::counters::metrics::CertificateExpiry;

/// The most certificates that are shown with their expiry. The list begins with those that expire first.
const SHOWN: usize = 1000;

pub(super) fn expiries(
    encoder: &mut DescriptorEncoder<'_>,
    certificates: &[CertificateExpiry],
) -> fmt::Result {
    let name = "tls_certificate_expiry_timestamp_seconds";
    let help = "End of a certificate's validity, seconds since 1970";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for certificate in certificates.iter().take(SHOWN) {
        family.encode_family(&[("certificate", &*certificate.file)])?.encode_gauge(&certificate.not_after)?;
    }
    let help = "Certificates whose changed files cannot be used, so that the ones read before stay in use";
    let failing = certificates.iter().filter(|certificate| certificate.failure.is_some()).count();
    encoder
        .encode_descriptor("tls_certificates_not_reloaded", help, None, MetricType::Gauge)?
        .encode_gauge(&i64::try_from(failing).unwrap_or(i64::MAX))
}

/// `revoked` is the number of certificates that are revoked by the OCSP response in the file next to them.
pub(super) fn obtained(
    encoder: &mut DescriptorEncoder<'_>,
    counts: &KeeperCounts,
    revoked: u64,
) -> fmt::Result {
    let help = "Certificates obtained from authorities";
    counter(encoder, "acme_certificates_obtained", help, counts.obtained)?;
    let help = "Failed attempts to obtain a certificate";
    counter(encoder, "acme_failures", help, counts.failed)?;
    let help = "Certificates whose last attempt failed";
    encoder
        .encode_descriptor("acme_certificates_failing", help, None, MetricType::Gauge)?
        .encode_gauge(&i64::try_from(counts.failing).unwrap_or(i64::MAX))?;
    let help = "Requests for OCSP responses, by outcome";
    let mut staples = counters(encoder, "ocsp_requests", help)?;
    labelled(&mut staples, &[("result", "ok")], counts.stapled)?;
    labelled(&mut staples, &[("result", "failed")], counts.staples_failed)?;
    let help = "Certificates with OCSP responses, by the state of the response";
    let mut states = encoder.encode_descriptor("ocsp_responses", help, None, MetricType::Gauge)?;
    let of = &counts.staples;
    let revoked = of.revoked + revoked;
    let each =
        [("current", of.current), ("failing", of.failing), ("missing", of.missing), ("revoked", revoked)];
    for (state, count) in each {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        states.encode_family(&[("state", state)])?.encode_gauge(&count)?;
    }
    let help = "Handshakes for names without a certificate, by outcome";
    let mut demands = counters(encoder, "acme_on_demand", help)?;
    labelled(&mut demands, &[("result", "admitted")], counts.demanded)?;
    labelled(&mut demands, &[("result", "refused")], counts.refused)?;
    labelled(&mut demands, &[("result", "limited")], counts.limited)
}
