//! The disk tier at work: opening it, and the work for which no client may wait.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::{Floors, Key, KeyText, Object};
use foregate_disk::{DirectorySettings, Disk, DiskLookup, Fill, Reason};
use foregate_wire::HeaderList;
use tokio::time::timeout;

use crate::random;
use crate::settings::CacheDisk;

/// The time that a lookup may take. A disk that needs longer is passed by: the origin is asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a folder is tried that another process holds, and the pause between: a process that
/// has just ended may still hold it.
const ATTEMPTS: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);
/// The longest body that is copied from memory to a file of its own at a time.
const PIECE: usize = 256 * 1024;

/// Opens the folders. It blocks, at the start.
pub(super) fn open(disks: &[CacheDisk], floors: &Arc<Floors>) -> io::Result<Option<Disk>> {
    if disks.is_empty() {
        return Ok(None);
    }
    let mut attempts = 0;
    loop {
        let settings = disks.iter().map(|disk| DirectorySettings::new(&disk.folder, disk.size)).collect();
        match Disk::open(settings, floors, random_bytes) {
            Ok(disk) => return Ok(Some(disk)),
            Err(error) => {
                attempts += 1;
                if !matches!(error.reason, Reason::Locked) || attempts == ATTEMPTS {
                    return Err(io::Error::other(error));
                }
                // Nothing is served yet.
                let (lock, never) = (parking_lot::Mutex::new(()), parking_lot::Condvar::new());
                never.wait_for(&mut lock.lock(), PAUSE);
            }
        }
    }
}

pub(super) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random::number().to_le_bytes()[..part.len()]);
    }
    bytes
}

/// Looks for a response on the disk, for as long as a client waits for it.
pub(super) async fn get(disk: &Disk, key: Key, text: &KeyText, request: &HeaderList) -> DiskLookup {
    timeout(PATIENCE, disk.get(key, text, request)).await.unwrap_or(DiskLookup::Unavailable)
}

/// Stores an object on the disk, in the background.
pub(super) fn put(disk: &Arc<Disk>, object: &Arc<Object>) -> bool {
    if disk.takes_whole(object.key(), object.memory() as u64) {
        return disk.put(object);
    }
    let Some(fill) = disk.fill(object.key()) else { return false };
    let object = Arc::clone(object);
    tokio::spawn(async move { copy(fill, &object).await });
    true
}

async fn copy(mut fill: Fill, object: &Object) {
    for piece in object.body.pieces().iter().flat_map(|piece| piece.chunks(PIECE)) {
        if fill.push(piece).await.is_err() {
            return;
        }
    }
    // The reason is counted.
    let _ = fill.finish(object).await;
}
