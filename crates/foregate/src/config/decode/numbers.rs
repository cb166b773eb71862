//! `limits` and `timeouts`.

use std::ops::RangeInclusive;
use std::time::Duration;

use foregate_config::{Decoder, Item, Problem};
use foregate_proxy::settings::{Limits, Timeouts};

use crate::config::schema::{LIMITS, TIMEOUTS};
use foregate_config::value::{self, show_size};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// The range of a timeout: any positive time that makes sense.
pub(super) const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;

/// The range of a timeout that may also be zero.
pub(super) const TIMES_AND_NONE: RangeInclusive<Duration> = Duration::ZERO..=LONGEST;

const LONGEST: Duration = Duration::from_hours(24 * 365);

/// The range of an HTTP/2 window (RFC 9113, section 6.9.1).
const WINDOWS: RangeInclusive<u64> = 1..=0x7fff_ffff;

const COUNTS: RangeInclusive<u64> = 1..=u32::MAX as u64;

pub(super) fn limits(decoder: &mut Decoder<'_>, item: Item<'_>, limits: &mut Limits) {
    let place = item.place();
    for (key, item) in decoder.block(item, &LIMITS) {
        let mut size = |range| decoder.read(item, 0, |v| value::size(v, range));
        // A head must fit into its read limit, a line into its head.
        match key.name {
            "head-bytes" => set(&mut limits.head_bytes, size(KIB..=128 * KIB)),
            "head-line" => set(&mut limits.head_line, size(256..=128 * KIB)),
            "early-response-drain" => set(&mut limits.early_response_drain, size(0..=GIB)),
            "memory" => limits.memory = size(64 * MIB..=GIB << 10).map(|size| size as usize),
            "filter-memory" => set(&mut limits.filter_memory, size(MIB..=GIB << 10)),
            "filter-files" => set(&mut limits.filter_files, size(MIB..=GIB << 20)),
            "client-hello" => set(&mut limits.client_hello, size(512..=MIB)),
            "h2-stream-window" => set(&mut limits.h2_stream_window, size(WINDOWS)),
            "h2-largest-window" => set(&mut limits.h2_largest_window, size(WINDOWS)),
            // The window of a connection starts with 65,535 and cannot be less (RFC 9113, section 6.9.2).
            "h2-connection-window" => set(&mut limits.h2_connection_window, size(65_535..=*WINDOWS.end())),
            "h2-header-table" => set(&mut limits.h2_header_table, size(0..=MIB)),
            name => count(decoder, item, name, limits),
        }
    }
    if limits.memory.is_some_and(|memory| memory < limits.filter_memory) {
        let shown = show_size(limits.filter_memory as u64);
        let problem = Problem::new(Some(place), format!("`memory` is less than `filter-memory` ({shown})"));
        decoder.warn(
            problem.help("requests are refused before filters can use all of it; lower `filter-memory`"),
        );
    }
}

fn count(decoder: &mut Decoder<'_>, item: Item<'_>, name: &str, limits: &mut Limits) {
    let mut count = |range| decoder.read(item, 0, |v| value::number(v, range));
    match name {
        "head-fields" => set(&mut limits.head_fields, count(1..=10_000)),
        "requests-per-connection" => set(&mut limits.requests_per_connection, count(COUNTS)),
        "connections" => limits.connections = count(COUNTS).map(|count| count as usize),
        "connections-per-client" => set(&mut limits.connections_per_client, count(COUNTS)),
        "requests-per-client" => limits.requests_per_client = count(COUNTS).map(|count| count as usize),
        "h2-streams" => set(&mut limits.h2_streams, count(1..=1_000_000)),
        "h2-resets-burst" => set(&mut limits.h2_resets_burst, count(COUNTS)),
        "h2-resets-rate" => set(&mut limits.h2_resets_rate, count(COUNTS)),
        "h2-resets-total" => set(&mut limits.h2_resets_total, count(COUNTS)),
        "h2-control-burst" => set(&mut limits.h2_control_burst, count(COUNTS)),
        "h2-control-rate" => set(&mut limits.h2_control_rate, count(COUNTS)),
        "filter-per-client" => {
            let percent = decoder.read(item, 0, |v| value::number(v, 1..=100));
            set(&mut limits.filter_per_client, percent);
        }
        "offload-queue" => {
            let count = decoder.read(item, 0, |v| value::number(v, 1..=1_000_000));
            set(&mut limits.offload_queue, count);
        }
        _ => debug_assert!(false, "{name} is not read"),
    }
}

pub(super) fn timeouts(decoder: &mut Decoder<'_>, item: Item<'_>, timeouts: &mut Timeouts) {
    for (key, item) in decoder.block(item, &TIMEOUTS) {
        let mut time = |range| decoder.read(item, 0, |v| value::duration(v, range));
        match key.name {
            "head" => set(&mut timeouts.head, time(TIMES)),
            "body-idle" => set(&mut timeouts.body_idle, time(TIMES)),
            "body-rate" => set(&mut timeouts.body_rate, decoder.read(item, 0, |v| value::size(v, 0..=GIB))),
            "body-rate-window" => set(&mut timeouts.body_rate_window, time(Duration::from_secs(1)..=LONGEST)),
            "body-rate-grace" => set(&mut timeouts.body_rate_grace, time(TIMES_AND_NONE)),
            "keep-alive" => set(&mut timeouts.keep_alive, time(TIMES)),
            "keep-alive-h2" => set(&mut timeouts.keep_alive_h2, time(TIMES)),
            "write-stall" => set(&mut timeouts.write_stall, time(TIMES)),
            "connection-age" => set(&mut timeouts.connection_age, time(TIMES)),
            "tls-handshake" => set(&mut timeouts.tls_handshake, time(TIMES)),
            "early-response-drain" => set(&mut timeouts.early_response_drain, time(TIMES_AND_NONE)),
            "drain" => set(&mut timeouts.drain, time(TIMES_AND_NONE)),
            "drain-term" => set(&mut timeouts.drain_term, time(TIMES_AND_NONE)),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
}

/// Stores a value in a field of the settings, if it was read. The range of each key fits its field.
pub(super) fn set<T, N: TryInto<T>>(field: &mut T, value: Option<N>) {
    if let Some(value) = value.and_then(|value| value.try_into().ok()) {
        *field = value;
    }
}
