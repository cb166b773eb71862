//! The machine: limits, memory, the kernel and the clock.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::io_uring;
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

use super::Finding;

/// A limit on file descriptors below this number gets a warning. Each request needs two descriptors, and 64 are
/// reserved.
const FEW_DESCRIPTORS: u64 = 8192;
/// The start of 2026. A clock that shows an earlier time was never set.
const EARLIEST: u64 = 1_767_225_600;
/// Fewer local ports than this get a warning: connections to one origin address could use them all under load.
const FEW_PORTS: u64 = 10_000;

pub(super) fn look(settings: Option<&Settings>) -> Vec<Finding> {
    let mut findings = vec![descriptors(), accept_queue(settings), local_ports(), kernel(), ring(), clock()];
    findings.extend(memory(settings));
    findings
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn descriptors() -> Finding {
    const SUBJECT: &str = "descriptors";
    let limit = getrlimit(Resource::Nofile);
    // The proxy raises the soft limit itself.
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let connections = (hard / 2).saturating_sub(64).min(50_000);
    let text = match hard {
        u64::MAX => "no limit on open files".to_owned(),
        hard => format!("at most {hard} open files, so {connections} client connections by default"),
    };
    if hard >= FEW_DESCRIPTORS {
        return Finding::ok(SUBJECT, text);
    }
    Finding::warning(
        SUBJECT,
        text,
        "with systemd: `systemctl edit foregate`, [Service] LimitNOFILE=131072; in a shell, as root: `ulimit -Hn 131072`",
    )
}

fn accept_queue(settings: Option<&Settings>) -> Finding {
    const SUBJECT: &str = "accept queue";
    let wanted = settings.and_then(|settings| settings.listeners.iter().map(|listen| listen.backlog).max());
    let wanted = u64::from(wanted.unwrap_or(4096));
    match number("/proc/sys/net/core/somaxconn") {
        Some(most) if most < wanted => Finding::warning(
            SUBJECT,
            format!(
                "net.core.somaxconn is {most}; `backlog` asks for {wanted}, and a burst of clients waits or fails"
            ),
            format!(
                "`sysctl -w net.core.somaxconn={wanted}`; to keep it: `echo net.core.somaxconn={wanted} > /etc/sysctl.d/60-foregate.conf`"
            ),
        ),
        Some(most) => Finding::ok(SUBJECT, format!("net.core.somaxconn is {most}")),
        None => Finding::ok(SUBJECT, "the kernel does not show net.core.somaxconn here"),
    }
}

fn local_ports() -> Finding {
    const SUBJECT: &str = "local ports";
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
    let (Some(first), Some(last)) = (ends.next(), ends.next()) else {
        return Finding::ok(SUBJECT, "the kernel does not show net.ipv4.ip_local_port_range here");
    };
    let ports = last.saturating_sub(first) + 1;
    let text = format!("{ports} ports for connections to each origin address ({first} to {last})");
    if ports >= FEW_PORTS {
        return Finding::ok(SUBJECT, text);
    }
    Finding::warning(SUBJECT, text, "`sysctl -w net.ipv4.ip_local_port_range=\"10240 65535\"`")
}

fn kernel() -> Finding {
    const SUBJECT: &str = "kernel";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let itself = Pid::from_raw(std::process::id().cast_signed());
    let has_pidfd = itself.is_some_and(|pid| pidfd_open(pid, PidfdFlags::empty()).is_ok());
    let memory = rustix::fs::memfd_create("foregate-doctor", rustix::fs::MemfdFlags::CLOEXEC);
    if has_pidfd && memory.is_ok() {
        return Finding::ok(SUBJECT, format!("{release}, with pidfd and memfd"));
    }
    Finding::wrong(
        SUBJECT,
        format!("{release} does not offer pidfd_open or memfd_create, which the supervisor needs"),
        "use Linux 5.4 or later, or allow both in the system-call filter of the container; `foregate run --single` needs neither",
    )
}

/// Reports if the kernel permits io_uring, which is used for reading files that are not in memory. Many containers
/// forbid it, so this is never a fault.
fn ring() -> Finding {
    const SUBJECT: &str = "io_uring";
    match io_uring() {
        Ok(()) => Finding::ok(SUBJECT, "the kernel permits it, for reads of files that are not in memory"),
        Err(error) => Finding::ok(
            SUBJECT,
            format!(
                "{error}; threads read files that are not in memory. It needs Linux 6.1, io_uring_setup, io_uring_enter and io_uring_register in the system-call filter of a container, and kernel.io_uring_disabled=0"
            ),
        ),
    }
}

fn clock() -> Finding {
    const SUBJECT: &str = "time";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now < EARLIEST {
        return Finding::wrong(
            SUBJECT,
            "the clock is before 2026: certificates are not valid yet, and signatures fail",
            "`timedatectl set-ntp true`, or `date -s` with the present time",
        );
    }
    // systemd-timesyncd creates a file in this folder after its first answer from a time server.
    let timesyncd = Path::new("/run/systemd/timesync");
    if timesyncd.exists() && !timesyncd.join("synchronized").exists() {
        return Finding::warning(
            SUBJECT,
            "systemd-timesyncd has not synchronised the clock since the start",
            "`timedatectl timesync-status` shows why; UDP port 123 must be open to the outside",
        );
    }
    Finding::ok(SUBJECT, "the clock is plausible")
}

/// Compares the memory that the settings allow the proxy with the memory of the machine or of its control group.
fn memory(settings: Option<&Settings>) -> Vec<Finding> {
    const SUBJECT: &str = "memory";
    let Some(available) = memory_limit() else { return Vec::new() };
    let mib = |bytes: u64| bytes >> 20;
    let text = format!("{} MiB for this process", mib(available));
    let Some(settings) = settings else { return vec![Finding::ok(SUBJECT, text)] };
    // `limits { memory }` does not include the cache's memory, so both are added.
    let clients = settings.limits.memory.unwrap_or_default() as u64;
    let cache = settings.cache_store.memory as u64;
    if clients + cache > available / 4 * 3 {
        return vec![Finding::warning(
            SUBJECT,
            format!(
                "{text}; `limits {{ memory }}` and the memory of `cache-store` may take {} MiB of it",
                mib(clients + cache)
            ),
            "lower them, or give the process more: with systemd MemoryMax=, in a container its memory limit",
        )];
    }
    vec![Finding::ok(SUBJECT, text)]
}

/// The memory that the process can have: the limit of its control group, but no more than the machine's memory.
fn memory_limit() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let limit =
        number(&format!("/sys/fs/cgroup{own}/memory.max")).or_else(|| number("/sys/fs/cgroup/memory.max"));
    Some(limit.map_or(total, |limit| limit.min(total)))
}
