//! Families of counters and histograms.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::counters::metrics::BLOCKED_BUCKETS;

pub(super) fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    (counts, nanos): ([u64; BLOCKED_BUCKETS.len() + 1], u64),
) -> fmt::Result {
    let ends = BLOCKED_BUCKETS.iter().map(|end| *end as f64 / 1e9).chain([f64::INFINITY]);
    let buckets: Vec<_> = ends.zip(counts).collect();
    encoder
        .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(nanos as f64 / 1e9, counts.iter().sum(), &buckets, None)
}

/// A family of counters with labels.
pub(super) fn counters<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

pub(super) fn labelled<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    count: u64,
) -> fmt::Result {
    family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: u64,
) -> fmt::Result {
    counters(encoder, name, help)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}
