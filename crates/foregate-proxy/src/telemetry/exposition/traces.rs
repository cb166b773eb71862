//! Counters of exported spans.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::families::counter;
use crate::counters::metrics::Metrics;

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    counter(
        encoder,
        "spans_exported",
        "Spans that the receiver of traces has taken",
        metrics.spans_exported.get(),
    )?;
    let help = "Spans that the receiver of traces has refused, or was not reached for";
    counter(encoder, "spans_failed", help, metrics.spans_failed.get())?;
    let help = "Spans dropped because too many waited, or their request had too many";
    counter(encoder, "spans_dropped", help, metrics.spans_dropped.get())
}
