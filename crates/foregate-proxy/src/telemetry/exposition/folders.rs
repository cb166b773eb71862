//! The disks of served folders.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::families::{counters, labelled};
use crate::folders::Folder;

/// The most folders that are shown. Further folders are left out.
const SHOWN: usize = 1000;

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, folders: &[Arc<Folder>]) -> fmt::Result {
    let mut shown: Vec<(String, foregate_io::Stat)> = Vec::new();
    for folder in folders.iter().take(SHOWN) {
        let (name, stat) = (folder.settings.folder.display().to_string(), folder.counters());
        match shown.iter_mut().find(|(known, _)| *known == name) {
            // Several routes serve this folder with different settings.
            Some((_, sum)) => {
                sum.inline += stat.inline;
                sum.performed += stat.performed;
                sum.busy += stat.busy;
                sum.errors += stat.errors;
                sum.queued += stat.queued;
            }
            None => shown.push((name, stat)),
        }
    }
    let help = "Opens and reads of served files, by the way in which they were done";
    let mut family = counters(encoder, "files_operations", help)?;
    for (folder, stat) in &shown {
        let results =
            [("memory", stat.inline), ("disk", stat.performed), ("busy", stat.busy), ("failed", stat.errors)];
        for (result, count) in results {
            labelled(&mut family, &[("folder", folder.as_str()), ("result", result)], count)?;
        }
    }
    let help = "Opens and reads of served files that wait for a thread";
    let mut family = encoder.encode_descriptor("files_waiting", help, None, MetricType::Gauge)?;
    for (folder, stat) in &shown {
        family.encode_family(&[("folder", folder.as_str())])?.encode_gauge(&(stat.queued as i64))?;
    }
    Ok(())
}
