//! The limits of the process by the system: descriptors, and dumps of its memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections by default.
const MOST_CONNECTIONS: u64 = 50_000;

/// Has a core dump hold nothing of this process's memory, where keys are. Dumps of all else, such
/// as registers, are as before. `prctl(PR_SET_DUMPABLE)` would hide `/proc/self` from the process
/// as well, where it counts its descriptors.
pub(super) fn keep_memory_out_of_dumps() {
    if let Err(error) = std::fs::write("/proc/self/coredump_filter", "0") {
        tracing::debug!(%error, "core dumps hold what the system says");
    }
}

/// Raises the limit of descriptors as far as the system allows.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        // A refusal leaves the lower limit, which is respected.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Each client connection may need one to an origin as well.
pub(super) fn default_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = (descriptors / 2)
        .saturating_sub(crate::limits::descriptors::RESERVE as u64)
        .clamp(1, MOST_CONNECTIONS);
    usize::try_from(limit).unwrap_or(usize::MAX)
}
