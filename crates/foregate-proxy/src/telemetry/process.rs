//! The metrics of the process under their standard names, as the client libraries of Prometheus
//! show them.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The `process_*` metrics. Values missing in `/proc` are omitted.
#[derive(Debug)]
pub(super) struct ProcessExposition {
    /// When the process started.
    pub(super) started: SystemTime,
}

impl Collector for ProcessExposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let help = "Processor time of the process, user and system";
        encoder
            .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9), None)?;
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let help = "Start of the process, seconds since 1970";
        gauge(&mut encoder, "process_start_time_seconds", help, started)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let rows = [
            ("process_resident_memory_bytes", "Resident memory of the process", "VmRSS:"),
            ("process_virtual_memory_bytes", "Virtual memory of the process", "VmSize:"),
            ("process_threads", "Threads of the process", "Threads:"),
        ];
        for (name, help, key) in rows {
            if let Some(value) = status_value(&status, key) {
                gauge(&mut encoder, name, help, value)?;
            }
        }
        if let Some(open) = open_descriptors() {
            gauge(&mut encoder, "process_open_fds", "Open file descriptors", open)?;
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        gauge(&mut encoder, "process_max_fds", "The limit of open file descriptors", limit)
    }
}

/// The resident memory of the process, bytes; `None` if the system does not say.
pub fn resident() -> Option<u64> {
    status_value(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// A number from `/proc/self/status` (proc_pid_status(5)). A size is converted to bytes.
fn status_value(status: &str, key: &str) -> Option<u64> {
    let mut words = status.lines().find_map(|line| line.strip_prefix(key))?.split_ascii_whitespace();
    let value = words.next()?.parse::<u64>().ok()?;
    Some(if words.next() == Some("kB") { value.saturating_mul(1024) } else { value })
}

fn open_descriptors() -> Option<u64> {
    // Since Linux 6.2, the size of the folder is the number of its entries, which saves reading them all.
    let size = fs::metadata("/proc/self/fd").ok()?.size();
    if size > 0 {
        return Some(size);
    }
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    // One entry is the folder's own descriptor.
    u64::try_from(entries).ok().map(|entries| entries.saturating_sub(1))
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes() {
        let status = "Name:\ta VmRSS: 7 kB\nVmSize:\t   22020 kB\nThreads:\t5\n";
        assert_eq!(status_value(status, "VmSize:"), Some(22_020 * 1024));
        assert_eq!(status_value(status, "Threads:"), Some(5));
        assert_eq!(status_value(status, "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_descriptors() {
        assert!(open_descriptors().unwrap() > 2);
    }
}
