//! The cache: requests by outcome, its store, and its tiers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::families::{counter, counters, labelled};
use crate::counters::cache::CacheFigures;
use crate::counters::metrics::Metrics;
use crate::telemetry::disks;

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &Metrics,
    figures: &CacheFigures,
) -> fmt::Result {
    let cache = &metrics.cache;
    let mut family = counters(encoder, "cache_requests", "Requests on routes that cache, by outcome")?;
    for (outcome, count) in cache.requests() {
        labelled(&mut family, &[("outcome", outcome)], count)?;
    }
    let mut family = counters(encoder, "cache_not_stored", "Responses that were not stored, by reason")?;
    for (reason, count) in cache.reasons() {
        labelled(&mut family, &[("reason", reason)], count)?;
    }
    labelled(&mut family, &[("reason", "too_large")], cache.too_large.get())?;
    let help = "Requests that waited for the fetch of another one";
    counter(encoder, "cache_collapsed", help, cache.collapsed.get())?;
    counter(encoder, "cache_fetches", "Requests to origins for the cache", cache.fetches.get())?;
    counter(encoder, "cache_validated", "Stored responses found to be current", cache.validated.get())?;
    counter(encoder, "cache_stored", "Responses that were stored", cache.stored.get())?;
    counter(encoder, "cache_received_bytes", "Bytes of bodies received for the store", cache.bytes_in.get())?;
    counter(encoder, "cache_purges", "Purges", cache.purges.get())?;
    counter(encoder, "cache_invalidated", "Addresses that requests made invalid", cache.invalidated.get())?;
    let help = "Stored responses that went to make room";
    counter(encoder, "cache_evictions", help, figures.evicted)?;
    let gauges = [
        ("cache_memory", "Bytes of memory of stored responses", figures.bytes),
        ("cache_memory_limit", "Limit of the memory of stored responses, in bytes", figures.limit),
        ("cache_fetching", "Bytes of responses that are being fetched", figures.fetching),
        ("cache_held", "Bytes of responses that left the store and that clients still read", figures.held),
    ];
    for (name, help, bytes) in gauges {
        encoder
            .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?
            .encode_gauge(&i64::try_from(bytes).unwrap_or(i64::MAX))?;
    }
    encoder
        .encode_descriptor("cache_entries", "Stored responses", None, MetricType::Gauge)?
        .encode_gauge(&i64::try_from(figures.entries).unwrap_or(i64::MAX))?;
    disks::disks(encoder, &figures.disks)?;
    figures.reserve.as_ref().map_or(Ok(()), |reserve| disks::reserve(encoder, reserve))?;
    figures.shield.as_ref().map_or(Ok(()), |shield| disks::shield(encoder, shield))
}
