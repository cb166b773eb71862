//! The purges of the reserve. The numbers of purges are times. Purges are stored in the same bucket as the
//! responses, so that the next process knows them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use foregate_cache::{Floors, Purge, Sequence, Strength};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::client::{StorageClient, StorageFailure};

/// The most purges that wait to be written. If there are more, a purge of everything replaces them.
const MOST_WAITING: usize = 10_000;
/// If the bucket has more records of purges than this at the start, they are merged into one record.
const MANY: usize = 64;

/// The purges.
#[derive(Debug, Default)]
pub(super) struct ReservePurges {
    pub floors: Floors,
    /// The latest moment that was returned, in milliseconds since 1970.
    latest: AtomicU64,
    /// `true` once the purges of earlier processes have been read. Until then, no response of the reserve is used.
    pub known: AtomicBool,
    waiting: Mutex<WaitingPurges>,
}

#[derive(Debug, Default)]
struct WaitingPurges {
    /// The bytes of the waiting purges, with the length of each purge before it.
    bytes: Vec<u8>,
    count: usize,
    number: u64,
    done: Vec<oneshot::Sender<()>>,
}

/// The current time, in milliseconds since 1970.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ReservePurges {
    /// The moment for a response that is written now. Within a process, moments never go backwards.
    pub fn moment(&self) -> u64 {
        let now = wall();
        self.latest.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// Purges responses; the purge is in effect at once. It is written soon; the receiver is notified then.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) -> oneshot::Receiver<()> {
        let mut bytes = Vec::new();
        purge.write(strength, Sequence::new(0), &mut bytes);
        self.repeat(&bytes)
    }

    /// Does the same as [`purge`](Self::purge) for a purge in the form of bytes, and ignores the purge's number. Bytes
    /// that are not a purge purge everything.
    pub fn repeat(&self, purge: &[u8]) -> oneshot::Receiver<()> {
        let mut waiting = self.waiting.lock();
        // The numbers of purges continue from the present time, so that responses stored up to now are purged.
        self.floors.advance(Sequence::new(self.moment()));
        let bytes = self.floors.repeat(purge).unwrap_or_else(|| {
            let mut all = Vec::new();
            Purge::All.write(Strength::Hard, self.floors.purge(&Purge::All, Strength::Hard), &mut all);
            all
        });
        let number = self.floors.begin();
        self.latest.fetch_max(number.get(), Ordering::AcqRel);
        if waiting.count >= MOST_WAITING {
            self.floors.advance(number);
            let all = self.floors.purge(&Purge::All, Strength::Hard);
            (waiting.count, waiting.number) = (0, 0);
            waiting.bytes.clear();
            waiting.add(&Purge::All, Strength::Hard, all);
        } else {
            waiting.add_written(&bytes, number);
        }
        let (done, written) = oneshot::channel();
        waiting.done.push(done);
        written
    }

    /// Writes all waiting purges in one object. Returns `false` if there is nothing to write.
    pub async fn write(&self, client: &StorageClient, prefix: &str) -> Result<bool, StorageFailure> {
        let WaitingPurges { bytes, count, number, done } = std::mem::take(&mut *self.waiting.lock());
        if count == 0 {
            return Ok(false);
        }
        let name = format!("{prefix}purges/{number:016x}-{:08x}", crate::random::number() as u32);
        match client.put(&name, Bytes::from(bytes.clone())).await {
            Ok(()) => {
                for done in done {
                    // The caller may have stopped waiting.
                    let _ = done.send(());
                }
                Ok(true)
            }
            Err(error) => {
                let mut waiting = self.waiting.lock();
                waiting.bytes.splice(..0, bytes);
                waiting.count += count;
                waiting.number = waiting.number.max(number);
                waiting.done.extend(done.into_iter().filter(|done| !done.is_closed()));
                Err(error)
            }
        }
    }

    /// Reads the purges in the bucket that are not in `seen`. Purges that are older than `oldest` are removed: no
    /// response is so old.
    pub async fn learn(
        &self,
        client: &StorageClient,
        prefix: &str,
        seen: &mut HashSet<String>,
        oldest: u64,
    ) -> Result<(), StorageFailure> {
        let folder = format!("{prefix}purges/");
        let (mut token, mut names, mut listed) = (None::<String>, Vec::new(), HashSet::new());
        loop {
            let list = client.list(&folder, "", token.as_deref()).await?;
            for content in list.contents {
                let number = content.key.get(folder.len()..folder.len() + 16);
                let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                if number.is_some_and(|number| number < oldest) {
                    client.delete(&content.key).await?;
                    continue;
                }
                if !seen.contains(&content.key) {
                    names.push(content.key.clone());
                }
                listed.insert(content.key);
            }
            match list.next_continuation_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        for name in &names {
            let Some(bytes) = client.get(name, super::worker::PATIENCE).await? else { continue };
            if !self.restore(&bytes) {
                tracing::warn!("{name} in the reserve is no purge: everything there is purged");
                drop(self.purge(&Purge::All, Strength::Hard));
            }
        }
        if !self.known.load(Ordering::Acquire) && names.len() > MANY {
            self.merge(client, &folder, &mut listed).await?;
        }
        *seen = listed;
        self.known.store(true, Ordering::Release);
        Ok(())
    }

    fn restore(&self, mut bytes: &[u8]) -> bool {
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let Some((purge, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else {
                return false;
            };
            if !self.floors.restore(purge) {
                return false;
            }
            bytes = rest;
        }
        self.latest.fetch_max(self.floors.begin().get(), Ordering::AcqRel);
        bytes.is_empty()
    }

    /// Writes all known purges as one object, which replaces the many.
    async fn merge(
        &self,
        client: &StorageClient,
        folder: &str,
        listed: &mut HashSet<String>,
    ) -> Result<(), StorageFailure> {
        let mut bytes = Vec::new();
        self.floors.save(|purge| add(&mut bytes, purge));
        let number = self.floors.begin().get();
        let name = format!("{folder}{number:016x}-{:08x}", crate::random::number() as u32);
        client.put(&name, Bytes::from(bytes)).await?;
        for old in listed.drain() {
            client.delete(&old).await?;
        }
        listed.insert(name);
        Ok(())
    }
}

impl WaitingPurges {
    fn add(&mut self, purge: &Purge<'_>, strength: Strength, number: Sequence) {
        let mut one = Vec::new();
        purge.write(strength, number, &mut one);
        self.add_written(&one, number);
    }

    fn add_written(&mut self, purge: &[u8], number: Sequence) {
        add(&mut self.bytes, purge);
        self.count += 1;
        self.number = self.number.max(number.get());
    }
}

fn add(bytes: &mut Vec<u8>, purge: &[u8]) {
    bytes.extend_from_slice(&(purge.len() as u32).to_le_bytes());
    bytes.extend_from_slice(purge);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_concern_everything_up_to_their_moment() {
        let purges = ReservePurges::default();
        let stamp = purges.moment();
        drop(purges.purge(&Purge::All, Strength::Hard));
        assert!(purges.floors.begin().get() > stamp);
        assert!(purges.moment() >= purges.floors.begin().get());
    }

    #[test]
    fn a_process_knows_the_purges_of_the_one_before() {
        let purges = ReservePurges::default();
        drop(purges.purge(&Purge::All, Strength::Hard));
        drop(purges.purge(&Purge::All, Strength::Soft));
        let next = ReservePurges::default();
        let bytes = std::mem::take(&mut purges.waiting.lock().bytes);
        assert!(next.restore(&bytes));
        assert_eq!(next.floors.begin(), purges.floors.begin());
        assert!(!next.restore(&bytes[1..]) && !next.restore(&bytes[..bytes.len() - 1]));
    }

    #[test]
    fn purges_that_cannot_be_written_become_one_of_everything() {
        let purges = ReservePurges::default();
        for _ in 0..=MOST_WAITING {
            drop(purges.purge(&Purge::All, Strength::Soft));
        }
        assert_eq!(purges.waiting.lock().count, 1);
    }
}
