//! The metrics of the cache's tiers after memory: disk folders, the reserve and the shield.

use std::fmt;
use std::path::PathBuf;

use foregate_disk::Stat;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::counters::cache::{ReserveFigures, ShieldFigures};

/// Reads one figure of a cache folder.
type DiskFigure = fn(&Stat) -> u64;

/// Shows the folders of the cache.
pub(super) fn disks(encoder: &mut DescriptorEncoder<'_>, disks: &[(PathBuf, Stat)]) -> fmt::Result {
    let counted: [(&str, &str, DiskFigure); 9] = [
        ("cache_disk_hits", "Lookups on the disk that found a response", |stat| stat.hits),
        ("cache_disk_misses", "Lookups on the disk that found none", |stat| stat.misses),
        ("cache_disk_stored", "Responses written to the disk", |stat| stat.stored),
        ("cache_disk_written_bytes", "Bytes written to the disk", |stat| stat.written),
        ("cache_disk_evictions", "Responses that went from the disk to make room", |stat| stat.evicted),
        ("cache_disk_dropped", "Responses that the disk did not take", |stat| stat.dropped),
        ("cache_disk_errors", "Calls of the disk tier that failed", |stat| stat.errors),
        ("cache_disk_corrupt", "Records and files that failed a check", |stat| stat.corrupt),
        ("cache_disk_busy", "Operations that found the disk too slow", |stat| stat.busy),
    ];
    for (name, help, figure) in counted {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (folder, stat) in disks {
            let labels = [("folder", &*folder.to_string_lossy())];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&figure(stat), None)?;
        }
    }
    let gauges: [(&str, &str, DiskFigure); 5] = [
        ("cache_disk_used_bytes", "Bytes of stored responses on the disk", |stat| stat.bytes),
        ("cache_disk_limit_bytes", "Limit of the bytes on the disk", |stat| stat.limit),
        ("cache_disk_index_bytes", "Bytes of memory for the index of the disk", |stat| stat.memory as u64),
        ("cache_disk_entries", "Stored responses on the disk", |stat| stat.entries as u64),
        ("cache_disk_off", "1 while the disk is off, since it failed", |stat| u64::from(stat.off)),
    ];
    for (name, help, figure) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (folder, stat) in disks {
            let labels = [("folder", &*folder.to_string_lossy())];
            family.encode_family(&labels)?.encode_gauge(&i64::try_from(figure(stat)).unwrap_or(i64::MAX))?;
        }
    }
    Ok(())
}

/// Shows the reserve.
pub(super) fn reserve(encoder: &mut DescriptorEncoder<'_>, reserve: &ReserveFigures) -> fmt::Result {
    let counted = [
        ("cache_reserve_hits", "Lookups in the reserve that found a response", reserve.hits),
        ("cache_reserve_misses", "Lookups in the reserve that found none", reserve.misses),
        ("cache_reserve_stored", "Responses written to the reserve", reserve.stored),
        ("cache_reserve_read_bytes", "Bytes of bodies read from the reserve", reserve.read),
        ("cache_reserve_written_bytes", "Bytes written to the reserve", reserve.written),
        (
            "cache_reserve_evictions",
            "Responses removed from the reserve: old, purged or damaged",
            reserve.evicted,
        ),
        ("cache_reserve_dropped", "Responses that the reserve did not take", reserve.dropped),
        ("cache_reserve_errors", "Requests to the reserve that failed", reserve.errors),
        ("cache_reserve_corrupt", "Records of the reserve that failed a check", reserve.corrupt),
    ];
    for (name, help, count) in counted {
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    let gauges = [
        ("cache_reserve_queued_bytes", "Bytes that wait to be written to the reserve", reserve.queued),
        ("cache_reserve_off", "1 while the reserve is off, since it failed", u64::from(reserve.off)),
    ];
    for (name, help, figure) in gauges {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(figure).unwrap_or(i64::MAX))?;
    }
    Ok(())
}

/// Shows the shield.
pub(super) fn shield(encoder: &mut DescriptorEncoder<'_>, shield: &ShieldFigures) -> fmt::Result {
    let counted = [
        ("cache_shield_asked", "Responses from the node of the shield that owns their address", shield.asked),
        (
            "cache_shield_direct",
            "Requests to the origin for addresses of other nodes, which were away or declined",
            shield.direct,
        ),
        ("cache_shield_served", "Requests of other nodes of the shield", shield.served),
        ("cache_shield_refused", "Requests that no node of the shield had signed", shield.refused),
        (
            "cache_shield_behind",
            "Requests past the store, since purges of other nodes might have been missing",
            shield.behind,
        ),
        ("cache_shield_purges", "Purges of other nodes of the shield", shield.purges),
    ];
    for (name, help, count) in counted {
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    let help = "1 while the node of the shield answers";
    let mut family = encoder.encode_descriptor("cache_shield_up", help, None, MetricType::Gauge)?;
    for node in shield.nodes.iter().filter(|node| !node.own) {
        family.encode_family(&[("node", &*node.name)])?.encode_gauge(&i64::from(node.up))?;
    }
    Ok(())
}
