//! Passes the stored responses in memory from a version that has handed over to the one that serves.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::cache::Cache;
use crate::cache::warm::{self, CacheGiver, MovedResponses};
use crate::memory;

/// The pause between two batches of at most 8 MiB. Meanwhile the old version returns the memory of the last batch to
/// the system, so both versions together use little more memory than one.
const PAUSE: Duration = Duration::from_millis(100);
/// The time limit for the other version to take a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stream to another generation of this program.
fn stream(descriptor: Option<OwnedFd>) -> io::Result<UnixStream> {
    let stream = StdStream::from(descriptor.ok_or(io::ErrorKind::InvalidInput)?);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Gives all stored responses to the next version. The returned channel closes when this is over.
pub(super) fn give(cache: Arc<Cache>, descriptor: Option<OwnedFd>) -> Option<watch::Receiver<()>> {
    let mut giver = CacheGiver::new(&cache, stream(descriptor).ok()?, memory::discard)?;
    let (giving, given) = watch::channel(());
    tokio::spawn(async move {
        // Also ends if the other version has gone, or takes no more.
        while let Ok(Ok(true)) = tokio::time::timeout(PATIENCE, giver.give_some()).await {
            memory::give_back_now(Handle::current().metrics().num_workers());
            tokio::time::sleep(PAUSE).await;
        }
        let MovedResponses { responses, bytes } = giver.moved;
        // The last connections bring few requests, and the memory is needed elsewhere.
        cache.store.close_memory();
        memory::give_back_now(Handle::current().metrics().num_workers());
        if responses > 0 {
            tracing::info!(responses, bytes, "stored responses were given to the version that serves");
        }
        drop(giving);
    });
    Some(given)
}

/// Takes the stored responses of the previous version.
pub(super) fn take(cache: Arc<Cache>, descriptor: Option<OwnedFd>) {
    let Ok(stream) = stream(descriptor) else { return };
    tokio::spawn(async move {
        let mut moved = MovedResponses::default();
        let taken = warm::take(&cache, stream, &mut moved).await;
        let MovedResponses { responses, bytes } = moved;
        match taken {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                tracing::warn!(responses, bytes, %error, "not all stored responses of the version before were taken over");
            }
            _ if responses == 0 => {}
            _ => tracing::info!(responses, bytes, "stored responses of the version before are used on"),
        }
    });
}
