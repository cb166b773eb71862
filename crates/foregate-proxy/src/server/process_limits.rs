//! Sets the limits that the system applies to the process: descriptors, and core dumps.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The upper limit of the default number of connections.
const MOST_CONNECTIONS: u64 = 50_000;

/// Keeps this process's memory, which holds keys, out of core dumps. Dumps still contain the rest, such
/// as registers. `prctl(PR_SET_DUMPABLE)` is not used, because it would hide `/proc/self`, where the
/// process counts its descriptors.
pub(super) fn keep_memory_out_of_dumps() {
    if let Err(error) = std::fs::write("/proc/self/coredump_filter", "0") {
        tracing::debug!(%error, "core dumps hold what the system says");
    }
}

/// Raises the limit of descriptors as far as the system allows.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        // If this is refused, the lower limit stays in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// The default limit on client connections: about half of the descriptors, because each of them may need a connection
/// to an origin.
pub(super) fn default_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = (descriptors / 2)
        .saturating_sub(crate::limits::descriptors::RESERVE as u64)
        .clamp(1, MOST_CONNECTIONS);
    usize::try_from(limit).unwrap_or(usize::MAX)
}
