//! Steps of modules, the filters of bodies, and the resources of both.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::families::{self, counter, histogram, labelled};
use crate::counters::metrics::Metrics;
use crate::counters::steps::{StepCounter, StepCounters};
use crate::limits::budget::Budget;
use crate::limits::spool::Spools;

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &Metrics,
    filter_memory: &Budget,
    spools: &Spools,
) -> fmt::Result {
    if let Some(counters) = metrics.known_steps() {
        steps(encoder, counters)?;
    }
    encoder
        .encode_descriptor("offload_queue", "Heavy steps that wait for a thread", None, MetricType::Gauge)?
        .encode_gauge(&metrics.offload_queue.get())?;
    let help = "Bytes held by body filters";
    let held = i64::try_from(filter_memory.held()).unwrap_or(i64::MAX);
    encoder
        .encode_descriptor("filter_memory", help, Some(&Unit::Bytes), MetricType::Gauge)?
        .encode_gauge(&held)?;
    let refused = filter_memory.refused.get();
    counter(encoder, "filter_memory_refused", "Bodies that exceeded the free filter memory", refused)?;
    files(encoder, spools)?;
    let help = "Time that heavy steps waited for a thread";
    histogram(encoder, "offload_wait", help, metrics.offload_wait.counts())
}

fn files(encoder: &mut DescriptorEncoder<'_>, spools: &Spools) -> fmt::Result {
    let help = "Bytes of bodies in temporary files";
    let held = i64::try_from(spools.budget.held()).unwrap_or(i64::MAX);
    encoder
        .encode_descriptor("filter_files", help, Some(&Unit::Bytes), MetricType::Gauge)?
        .encode_gauge(&held)?;
    let help = "Bodies that exceeded the free space for temporary files";
    counter(encoder, "filter_files_refused", help, spools.budget.refused.get())?;
    let help = "Failures to create, write or read a temporary file";
    counter(encoder, "filter_files_failed", help, spools.failed.get())
}

fn steps(encoder: &mut DescriptorEncoder<'_>, counters: &StepCounters) -> fmt::Result {
    type Read = fn(&StepCounter) -> u64;
    let families: [(&str, &str, Read); 12] = [
        ("step_stops", "Requests that a step ended", |step| step.stops.get()),
        ("step_dry_run_stops", "Requests that a step in a dry run would have ended", |step| {
            step.dry_stops.get()
        }),
        ("step_panics", "Panics of a step", |step| step.panics.get()),
        ("step_broken", "Requests without a run of a step because it had panicked often", |step| {
            step.broken.get()
        }),
        ("step_shed", "Requests without a run of a step because the queue was full", |step| step.shed.get()),
        ("step_bails", "Bodies that the filter of a step passed unchanged", |step| step.bails.get()),
        ("step_breaks", "Bodies that the filter of a step cut off", |step| step.breaks.get()),
        ("step_fetches", "Fetches by a step and its filters", |step| step.fetches.get()),
        ("step_fetches_failed", "Fetches by a step and its filters that failed", |step| {
            step.fetches_failed.get()
        }),
        ("step_timed", "Timed runs of a step", |step| step.timed.get()),
        (
            "step_blocked",
            "Timed runs of a step, and bodies at its filter, that blocked their worker for more than 10 ms",
            |step| step.blocked.get(),
        ),
        ("step_moved", "Requests for which a slow light step ran on the threads for heavy work", |step| {
            step.moved.get()
        }),
    ];
    // A step that was never used is left out.
    let used: Vec<_> = counters.all().filter(|(step, runs)| *runs > 0 || step.has_news()).collect();
    let mut family = families::counters(encoder, "step_runs", "Requests on which a step ran")?;
    for (step, runs) in &used {
        labelled(&mut family, &[("step", step.name)], *runs)?;
    }
    for (name, help, read) in families {
        let mut family = families::counters(encoder, name, help)?;
        for (step, _) in &used {
            labelled(&mut family, &[("step", step.name)], read(step))?;
        }
    }
    let mut family =
        families::counters(encoder, "step_events", "Events counted by a step, by its own names")?;
    for (step, _) in &used {
        for (event, count) in step.events() {
            labelled(&mut family, &[("step", step.name), ("event", event)], count)?;
        }
    }
    let help = "Events counted by a step for a part of the configuration, such as a rule";
    let mut family = families::counters(encoder, "step_tally", help)?;
    for (step, _) in &used {
        for (event, part, count) in step.tallies() {
            labelled(&mut family, &[("step", step.name), ("event", event), ("part", &part)], count)?;
        }
    }
    let help = "Total time of the timed runs of a step";
    let mut family =
        encoder.encode_descriptor("step_timed", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for (step, _) in &used {
        let seconds = step.nanos.get() as f64 / 1e9;
        family.encode_family(&[("step", step.name)])?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
    }
    filters(encoder, counters)
}

fn filters(encoder: &mut DescriptorEncoder<'_>, counters: &StepCounters) -> fmt::Result {
    let used: Vec<_> = counters.all().map(|(step, _)| step).filter(|step| step.filter_in.get() > 0).collect();
    let mut family =
        families::counters(encoder, "filter_bytes", "Bytes that went into and out of the filters of a step")?;
    for step in &used {
        labelled(&mut family, &[("step", step.name), ("direction", "in")], step.filter_in.get())?;
        labelled(&mut family, &[("step", step.name), ("direction", "out")], step.filter_out.get())?;
    }
    let help = "Total time of the filters of a step";
    let mut family = encoder.encode_descriptor("filter", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for step in &used {
        let seconds = step.filter_nanos.get() as f64 / 1e9;
        family.encode_family(&[("step", step.name)])?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
    }
    Ok(())
}
