//! Requests by route.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::families::{counters, labelled};
use crate::counters::metrics::{BETWEEN, Metrics, STATUS_CLASSES};

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let help = "Requests by site, route and class of the response's status";
    let mut family = counters(encoder, "route_requests", help)?;
    for (name, route) in &metrics.routes() {
        let (site, pattern) = name.split_once(BETWEEN).unwrap_or((name, name));
        let counts = STATUS_CLASSES.into_iter().zip(route.requests());
        for (class, count) in counts.filter(|(_, count)| *count > 0) {
            labelled(&mut family, &[("site", site), ("route", pattern), ("status", class)], count)?;
        }
    }
    Ok(())
}
