//! The stored responses in memory go from a version that has handed over to the one that serves.

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

/// The pause between two batches of 8 MiB at most: so both versions together have little more memory than one, since the old one gives
/// the memory of a batch back to the system meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the other version may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to another generation of this program.
fn stream(descriptor: Option<OwnedFd>) -> io::Result<UnixStream> {
    let stream = StdStream::from(descriptor.ok_or(io::ErrorKind::InvalidInput)?);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Gives all responses to the version that follows. The result ends when that is over.
pub(super) fn give(cache: Arc<Cache>, descriptor: Option<OwnedFd>) -> Option<watch::Receiver<()>> {
    let mut giver = CacheGiver::new(&cache, stream(descriptor).ok()?, memory::discard)?;
    let (giving, given) = watch::channel(());
    tokio::spawn(async move {
        // The other version may have gone, or have enough.
        while let Ok(Ok(true)) = tokio::time::timeout(PATIENCE, giver.give_some()).await {
            memory::give_back_now(Handle::current().metrics().num_workers());
            tokio::time::sleep(PAUSE).await;
        }
        let MovedResponses { responses, bytes } = giver.moved;
        // Requests of its last connections are few: the memory is needed elsewhere.
        cache.store.close_memory();
        memory::give_back_now(Handle::current().metrics().num_workers());
        if responses > 0 {
            tracing::info!(responses, bytes, "stored responses were given to the version that serves");
        }
        drop(giving);
    });
    Some(given)
}

/// Takes the responses of the version before.
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
