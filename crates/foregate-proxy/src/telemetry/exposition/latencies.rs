//! Histograms of durations, with exemplars if the format is OpenMetrics.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::counters::metrics::{BETWEEN, DURATION_BUCKETS, DurationCounts, ExemplarSet, Metrics};

const REQUESTS: &str = "request_duration";
const ROUTES: &str = "route_duration";

/// The exemplars of the written histograms, in the same order. They are added to the finished text, because the
/// library's histograms take none.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenExemplars(Arc<Mutex<Vec<(&'static str, ExemplarSet)>>>);

impl WrittenExemplars {
    fn add(&self, family: &'static str, set: ExemplarSet) {
        self.0.lock().push((family, set));
    }

    /// Adds the exemplars to an OpenMetrics text.
    pub fn write_into(&self, text: String) -> String {
        let written = self.0.lock();
        if written.iter().all(|(_, set)| set.iter().all(Option::is_none)) {
            return text;
        }
        let mut out = String::with_capacity(text.len() + 4096);
        let all_of = |family| written.iter().filter(move |(of, _)| *of == family).flat_map(|(_, set)| set);
        let (mut requests, mut routes) = (all_of(REQUESTS), all_of(ROUTES));
        for line in text.lines() {
            out.push_str(line);
            let exemplar = match line.strip_prefix("foregate_") {
                Some(line) if line.starts_with("request_duration_seconds_bucket") => requests.next(),
                Some(line) if line.starts_with("route_duration_seconds_bucket") => routes.next(),
                _ => None,
            };
            if let Some(Some(exemplar)) = exemplar {
                let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                let trace = u128::from_be_bytes(exemplar.trace);
                let seconds = exemplar.micros as f64 / 1e6;
                // Writing to a string never fails.
                let _ = write!(out, " # {{trace_id=\"{trace:032x}\"}} {seconds} {at:.3}");
            }
            out.push('\n');
        }
        out
    }
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &Metrics,
    exemplars: &WrittenExemplars,
) -> fmt::Result {
    let help = "Time from the first byte of a request to the last of its response";
    let mut family = histograms(encoder, REQUESTS, help)?;
    for (site, counters) in &metrics.sites() {
        if write(&mut family, &[("site", &**site)], counters.durations())? {
            exemplars.add(REQUESTS, counters.exemplars.all());
        }
    }
    let help = "Time from the first byte of a request to the last of its response, by route";
    let mut family = histograms(encoder, ROUTES, help)?;
    for (name, counters) in &metrics.routes() {
        let (site, route) = name.split_once(BETWEEN).unwrap_or((name, name));
        if write(&mut family, &[("site", site), ("route", route)], counters.durations.counts())? {
            exemplars.add(ROUTES, counters.durations.exemplars.all());
        }
    }
    let help = "Time from the start of an attempt at an origin to the head of its response";
    let mut family = histograms(encoder, "upstream_duration", help)?;
    for (upstream, counters) in &metrics.upstreams() {
        write(&mut family, &[("upstream", &**upstream)], counters.durations.counts())?;
    }
    Ok(())
}

fn histograms<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)
}

/// Writes a histogram, and returns true. An empty histogram is left out, because it has many lines; the result is then
/// false.
fn write<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    (counts, micros): DurationCounts,
) -> Result<bool, fmt::Error> {
    if counts.iter().all(|count| *count == 0) {
        return Ok(false);
    }
    let ends = DURATION_BUCKETS.iter().map(|end| *end as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<_> = ends.zip(counts).collect();
    let (sum, count) = (micros as f64 / 1e6, counts.iter().sum());
    family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    Ok(true)
}
