//! The thread of the reserve. Requests to the storage run on it, and not on the threads that serve clients.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_cache::{Body, CacheTime, Effect, Object, Restore, Sequence, VaryNames};
use foregate_wire::HeaderList;
use foregate_wire::date::CalendarDay;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::client::{StorageClient, StorageFailure};
use super::envelope::{self, EnvelopeKind, ReserveRecord};
use super::purges::{ReservePurges, wall};
use super::{ReserveCounters, SECRET};

/// The time limit of a request for which no client waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The most records that are written at the same time.
const WRITERS: usize = 8;
/// The most attempts to write a record. `PAUSE` is the pause after the first attempt; it doubles with each further one.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// This many failures in a row switch the reserve off: for `OFF` at first, and for at most `LONGEST_OFF`.
const FAILURES: u32 = 5;
const OFF: Duration = Duration::from_secs(10);
const LONGEST_OFF: Duration = Duration::from_secs(300);
/// How often the bucket is searched for purges of other processes, such as the previous one during an upgrade.
const LEARN: Duration = Duration::from_secs(10);
/// The pause after a failed attempt to write or to read purges.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a purge waits for further purges, so that they are written together.
const GATHER: Duration = Duration::from_millis(20);
/// The shortest time between two searches for old records.
const SWEEP: Duration = Duration::from_secs(3600);

/// The state that the thread shares with the rest.
pub(super) struct ReserveState {
    pub client: StorageClient,
    pub prefix: String,
    pub keep: Duration,
    pub timeout: Duration,
    pub purges: ReservePurges,
    pub purged: Notify,
    pub counters: ReserveCounters,
    pub health: StorageHealth,
}

/// A request to the thread.
pub(super) enum ReserveCommand {
    Get { text: Vec<u8>, fields: HeaderList, answer: oneshot::Sender<Option<ReserveHit>> },
    Put(Box<ReserveWrite>),
}

/// A verified record that has not been purged.
#[derive(Debug)]
pub(super) struct ReserveHit {
    pub record: ReserveRecord,
    pub outdated: bool,
}

/// A response on its way into the bucket.
pub(super) struct ReserveWrite {
    pub object: Arc<Object>,
    pub record: ReserveRecord,
    /// The names and values of the fields that select this response, if the response has `Vary`.
    pub selecting: Option<Vec<u8>>,
    pub bytes: u64,
}

/// Tracks failures of the storage.
#[derive(Debug, Default)]
pub(super) struct StorageHealth {
    failures: AtomicU32,
    /// The time at which the storage is tried again, in milliseconds since the start; 0 while the storage works.
    until: AtomicU64,
}

impl StorageHealth {
    pub fn is_on(&self, since: Instant) -> bool {
        self.until.load(Ordering::Relaxed) <= milliseconds(since.elapsed())
    }

    fn works(&self) {
        if self.failures.swap(0, Ordering::Relaxed) >= FAILURES {
            tracing::info!("the reserve of the cache answers again");
        }
        self.until.store(0, Ordering::Relaxed);
    }

    fn failed(&self, since: Instant, failure: &StorageFailure) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(over) = failures.checked_sub(FAILURES) {
            let off = OFF.saturating_mul(1 << over.min(5)).min(LONGEST_OFF);
            self.until.store(milliseconds(since.elapsed() + off), Ordering::Relaxed);
            if over == 0 {
                tracing::warn!("the reserve of the cache is off for {} s: {failure}", off.as_secs());
            }
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Starts the thread. It ends when the last sender of commands is dropped.
pub(super) fn start(shared: Arc<ReserveState>, commands: mpsc::Receiver<ReserveCommand>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || runtime.block_on(run(shared, commands));
    thread::Builder::new().name("foregate-reserve".to_owned()).spawn(run).map(drop)
}

async fn run(shared: Arc<ReserveState>, mut commands: mpsc::Receiver<ReserveCommand>) {
    tokio::spawn(Arc::clone(&shared).keep_purges());
    tokio::spawn(Arc::clone(&shared).sweep());
    let writers = Arc::new(Semaphore::new(WRITERS));
    while let Some(command) = commands.recv().await {
        let (shared, writers) = (Arc::clone(&shared), Arc::clone(&writers));
        match command {
            ReserveCommand::Get { text, fields, answer } => {
                tokio::spawn(async move {
                    let found = timeout(shared.timeout, shared.look(&text, &fields)).await;
                    // Sending fails if the request has stopped waiting meanwhile.
                    let _ = answer.send(found.unwrap_or_else(|_| {
                        shared.failed(&StorageFailure::Timeout);
                        None
                    }));
                });
            }
            ReserveCommand::Put(put) => {
                tokio::spawn(async move {
                    let _turn = writers.acquire().await;
                    let stored = shared.store(&put).await;
                    shared.counters.queued.fetch_sub(put.bytes, Ordering::Relaxed);
                    match stored {
                        Ok(()) => shared.counters.stored.inc(),
                        Err(_) => shared.counters.dropped.inc(),
                    }
                });
            }
        }
    }
}

impl ReserveState {
    fn failed(&self, failure: &StorageFailure) {
        tracing::debug!("the reserve of the cache: {failure}");
        self.counters.errors.inc();
        self.health.failed(self.counters.start, failure);
    }

    /// Looks for the response to a request. Failures count as misses.
    async fn look(self: &Arc<Self>, text: &[u8], fields: &HeaderList) -> Option<ReserveHit> {
        let found = self.find(text, fields).await;
        match &found {
            Ok(Some(hit)) => {
                self.counters.hits.inc();
                self.counters.read.add(hit.record.body.len() as u64);
            }
            Ok(None) => self.counters.misses.inc(),
            Err(failure) => self.failed(failure),
        }
        found.ok().flatten()
    }

    async fn find(
        self: &Arc<Self>,
        text: &[u8],
        fields: &HeaderList,
    ) -> Result<Option<ReserveHit>, StorageFailure> {
        let name = envelope::name(&self.prefix, text);
        let Some(record) = self.read(&name).await? else { return Ok(None) };
        if record.kind == EnvelopeKind::Response {
            return Ok(self.judge(&name, record, text, fields));
        }
        for names in record.lists() {
            let selecting = VaryNames::from_bytes(names).selecting(fields);
            let name = envelope::variant_name(&self.prefix, text, &selecting);
            if let Some(record) = self.read(&name).await?
                && let Some(hit) = self.judge(&name, record, text, fields)
            {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// Reads and verifies a record. A damaged record is removed and counts as missing.
    async fn read(self: &Arc<Self>, name: &str) -> Result<Option<ReserveRecord>, StorageFailure> {
        let bytes = self.client.get(name, self.timeout).await?;
        self.health.works();
        let Some(bytes) = bytes else { return Ok(None) };
        let record = ReserveRecord::decode(name, bytes);
        if record.is_none() {
            tracing::warn!("{name} in the reserve of the cache is damaged");
            self.counters.corrupt.inc();
            self.remove(name);
        }
        Ok(record)
    }

    /// Compares a record with the request and the purges. A record that no request can use any more is removed.
    fn judge(
        self: &Arc<Self>,
        name: &str,
        record: ReserveRecord,
        text: &[u8],
        fields: &HeaderList,
    ) -> Option<ReserveHit> {
        let now = wall();
        // A record from the future is refused: if the clock was set back, new purges would have no effect on the record.
        let is_late = record.stamp > now.max(self.purges.moment()) || record.written > now;
        let age = now.saturating_sub(record.stamp);
        let restore = Restore {
            secret: &SECRET,
            request: fields,
            sequence: Sequence::new(record.stamp),
            now: CacheTime::default(),
            elapsed: 0,
            outdated: false,
        };
        let object = Object::read_portable(&record.head, Body::default(), &restore)?;
        if object.text() != text {
            return None;
        }
        let effect = self.purges.floors.judge(&object);
        if is_late || age > milliseconds(self.keep) || effect == Effect::Dead {
            self.remove(name);
            return None;
        }
        Some(ReserveHit { record, outdated: effect == Effect::Outdated })
    }

    /// Removes a record, in the background.
    fn remove(self: &Arc<Self>, name: &str) {
        let (shared, name) = (Arc::clone(self), name.to_owned());
        tokio::spawn(async move {
            if shared.client.delete(&name).await.is_ok() {
                shared.counters.evicted.inc();
            }
        });
    }

    async fn store(self: &Arc<Self>, put: &ReserveWrite) -> Result<(), StorageFailure> {
        let text = put.object.text();
        let base = envelope::name(&self.prefix, text);
        let name = match (&put.selecting, &put.object.head.vary) {
            (Some(selecting), Some(vary)) => {
                // The list is written last, so that it never names a record that is missing.
                let name = envelope::variant_name(&self.prefix, text, selecting);
                self.write(&name, put.record.encode(&name, put.object.body.pieces().iter())).await?;
                let before = self.read(&base).await?;
                let names = vary.names.as_bytes();
                let Some(list) = ReserveRecord::with_list(before.as_ref(), names, wall()) else {
                    return Ok(());
                };
                return self.write(&base, list.encode(&base, [].iter())).await;
            }
            _ => base,
        };
        self.write(&name, put.record.encode(&name, put.object.body.pieces().iter())).await
    }

    async fn write(&self, name: &str, bytes: Bytes) -> Result<(), StorageFailure> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            if !self.health.is_on(self.counters.start) {
                return Err(StorageFailure::Timeout);
            }
            match self.client.put(name, bytes.clone()).await {
                Ok(()) => {
                    self.health.works();
                    self.counters.written.add(bytes.len() as u64);
                    return Ok(());
                }
                Err(failure) => {
                    self.failed(&failure);
                    if attempt == ATTEMPTS || !failure.may_pass() {
                        return Err(failure);
                    }
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    /// Writes this process's purges, and reads those of other processes.
    async fn keep_purges(self: Arc<Self>) {
        let mut seen = HashSet::new();
        let mut learned: Option<Instant> = None;
        loop {
            if learned.is_none_or(|learned| learned.elapsed() >= LEARN) {
                let oldest = wall().saturating_sub(milliseconds(self.keep));
                match self.purges.learn(&self.client, &self.prefix, &mut seen, oldest).await {
                    Ok(()) => {
                        self.health.works();
                        learned = Some(Instant::now());
                    }
                    Err(failure) => self.failed(&failure),
                }
            }
            let pause = match self.purges.write(&self.client, &self.prefix).await {
                // Further purges may have come meanwhile.
                Ok(true) => GATHER,
                Ok(false) if learned.is_some() => {
                    // After the timeout, continue as after a purge.
                    let _ = timeout(LEARN, self.purged.notified()).await;
                    GATHER
                }
                Ok(false) => AGAIN,
                Err(failure) => {
                    self.failed(&failure);
                    AGAIN
                }
            };
            sleep(pause).await;
        }
    }

    /// Removes records that are too old, from time to time.
    async fn sweep(self: Arc<Self>) {
        loop {
            sleep((self.keep / 4).clamp(Duration::from_secs(1), SWEEP)).await;
            if let Err(failure) = self.sweep_once().await {
                self.failed(&failure);
            }
        }
    }

    async fn sweep_once(&self) -> Result<(), StorageFailure> {
        let (folder, mut token) = (format!("{}objects/", self.prefix), None::<String>);
        let oldest = wall().saturating_sub(milliseconds(self.keep)) / 1000;
        loop {
            let list = self.client.list(&folder, "", token.as_deref()).await?;
            for content in list.contents {
                let modified = content.last_modified.as_deref().and_then(seconds);
                if modified.is_some_and(|modified| modified < oldest) {
                    self.client.delete(&content.key).await?;
                    self.counters.evicted.inc();
                }
            }
            match list.next_continuation_token {
                Some(next) => token = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// Parses a date in the form of the storage's lists, `2026-11-28T12:00:00.000Z`, into seconds since 1970.
fn seconds(date: &str) -> Option<u64> {
    let (day, time) = date.split_once('T')?;
    let number = |text: Option<&str>| text?.parse::<u64>().ok();
    let mut parts = day.split('-');
    let (year, month, day) = (number(parts.next())?, number(parts.next())?, number(parts.next())?);
    let mut parts = time.get(..8)?.split(':');
    let (hour, minute, second) = (number(parts.next())?, number(parts.next())?, number(parts.next())?);
    let days = CalendarDay { year, month, day }.days()?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_lists_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(seconds("2000-02-29T12:30:01Z"), Some(951_827_401));
        assert_eq!(seconds("2026-11-28T00:00:00.000Z"), Some(1_795_824_000));
        for wrong in ["", "2026", "2026-11-28", "2026-13-01T00:00:00Z", "2026-11-28T1"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn five_failures_in_a_row_switch_it_off() {
        let (health, start) = (StorageHealth::default(), Instant::now());
        for _ in 0..FAILURES - 1 {
            health.failed(start, &StorageFailure::Timeout);
        }
        assert!(health.is_on(start));
        health.failed(start, &StorageFailure::Timeout);
        assert!(!health.is_on(start));
        health.works();
        assert!(health.is_on(start));
    }
}
