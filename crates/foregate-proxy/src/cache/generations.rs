//! Passes purges to the other generations of this proxy, while several of them serve.
//!
//! Generations share the folders of a cache, and a purge reaches all of them there. A cache that is only in memory
//! belongs to one process, so the supervisor passes its purges to the other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use foregate_cache::{Purge, Sequence, Strength};
use tokio::sync::{mpsc, oneshot};

/// The most purges that wait to be passed on. If there are more, the other generations purge everything.
pub const QUEUE: usize = 1024;

/// A purge for the other generations.
#[derive(Debug)]
pub struct PurgeNotice {
    /// The bytes of the purge. Empty for a notice that only asks whether all earlier purges have arrived.
    pub purge: Vec<u8>,
    /// Notified when the other generations have the purge, or cannot be reached.
    pub told: oneshot::Sender<()>,
}

/// Sends purges to the other generations.
#[derive(Debug, Default)]
pub struct Generations {
    notices: ArcSwapOption<mpsc::Sender<PurgeNotice>>,
    /// Set if other generations may be serving at the same time.
    are_several: AtomicBool,
    /// Set if a purge was lost because the queue was full.
    has_missed: AtomicBool,
}

impl Generations {
    /// Sends purges to this channel from now on, because there are several generations.
    pub fn connect(&self, notices: mpsc::Sender<PurgeNotice>) {
        self.notices.store(Some(Arc::new(notices)));
    }

    /// Notes that another generation serves, or may serve, from now on.
    pub fn are_several(&self) {
        self.are_several.store(true, Ordering::Relaxed);
    }

    /// Returns a receiver that completes when the other generations have all purges that were passed on before. It fails if
    /// that is not certain.
    pub(super) fn settle(&self) -> Option<oneshot::Receiver<()>> {
        let notices = self.notices.load_full()?;
        let (told, answer) = oneshot::channel();
        // Lost purges will be replaced by a purge of everything, which has not been sent yet.
        if self.has_missed.load(Ordering::Relaxed) {
            return None;
        }
        notices.try_send(PurgeNotice { purge: Vec::new(), told }).ok()?;
        Some(answer)
    }

    /// Passes a purge on. The receiver completes when the other generations have the purge, and fails if they cannot be
    /// reached.
    pub(super) fn tell(&self, purge: impl FnOnce() -> Vec<u8>) -> Option<oneshot::Receiver<()>> {
        if !self.are_several.load(Ordering::Relaxed) {
            return None;
        }
        let notices = self.notices.load_full()?;
        let purge = if self.has_missed.swap(false, Ordering::Relaxed) { everything() } else { purge() };
        let (told, answer) = oneshot::channel();
        if notices.try_send(PurgeNotice { purge, told }).is_err() {
            self.has_missed.store(true, Ordering::Relaxed);
        }
        Some(answer)
    }
}

/// The bytes of a purge of everything.
pub(super) fn everything() -> Vec<u8> {
    let mut all = Vec::new();
    Purge::All.write(Strength::Hard, Sequence::new(0), &mut all);
    all
}

/// Writes several purges into one buffer.
pub fn write_all<'p>(purges: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for purge in purges.filter(|purge| !purge.is_empty()) {
        bytes.extend_from_slice(&u32::try_from(purge.len()).unwrap_or_default().to_le_bytes());
        bytes.extend_from_slice(purge);
    }
    bytes
}

/// The purges in a buffer of [`write_all`], up to the first that is incomplete.
pub fn read_all(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (purge, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(purge)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use super::*;

    #[test]
    fn purges_are_read_as_they_were_written() {
        let purges: [&[u8]; 3] = [b"one", b"", b"three"];
        let bytes = write_all(purges.into_iter());
        assert_eq!(read_all(&bytes).collect::<Vec<_>>(), [purges[0], purges[2]]);
        assert_eq!(read_all(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(read_all(&[255; 9]).count(), 0);
    }

    #[tokio::test]
    async fn a_queue_that_was_full_purges_everything() {
        let generations = Generations::default();
        let (sender, mut notices) = mpsc::channel(1);
        generations.connect(sender);
        assert!(generations.tell(|| b"before".to_vec()).is_none());
        generations.are_several();
        for purge in [b"first", b"other"] {
            drop(generations.tell(|| purge.to_vec()));
        }
        assert_eq!(notices.recv().await.unwrap().purge, b"first");
        drop(generations.tell(|| b"third".to_vec()));
        assert_eq!(notices.recv().await.unwrap().purge, everything());
        drop(generations.tell(|| b"last".to_vec()));
        assert_eq!(notices.recv().await.unwrap().purge, b"last");
    }
}
