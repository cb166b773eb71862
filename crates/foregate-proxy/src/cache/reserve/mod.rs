//! The reserve: a tier of the cache in object storage, behind memory and disk.
//!
//! The leader of a shared fetch asks the reserve before it asks the origin, so simultaneous misses cost only one
//! request to the storage. Requests to the storage run on a thread of their own. If the storage is slow, full or
//! unreachable, a client's request loses no more than the timeout in the settings. After several failures the reserve
//! is switched off for a while, and then costs nothing.

mod client;
mod envelope;
mod purges;
mod worker;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_cache::{
    Body, CacheTime, Effect, Floors, KeyText, Object, Purge, Restore, Secret, Sequence, Strength,
};
use foregate_wire::{HeaderList, NameId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use self::client::StorageClient;
use self::envelope::{EnvelopeKind, ReserveRecord};
use self::purges::{ReservePurges, wall};
use self::worker::{ReserveCommand, ReserveHit, ReserveState, ReserveWrite, StorageHealth};
use crate::counters::cache::ReserveFigures;
use crate::counters::metrics::Counter;
use crate::settings::CacheReserve;

/// The key for hashes while a record is read. Unlike the key of the store, it need not be secret: a record that is
/// being read is not in the store yet, and the names of records are hashes by SHA-256.
const SECRET: Secret = Secret::new(*b"foregate reserve");
/// The most commands (lookups and records) that wait for the thread.
const COMMANDS: usize = 4096;
/// The most bytes of responses that wait to be written. Further responses are not written.
const QUEUE: u64 = 64 << 20;
/// The longest body, bytes: a body is held in memory while it is written.
const LARGEST: u64 = 64 << 20;
/// The length of the pieces of a body that comes from the reserve, bytes.
const PIECE: usize = 64 * 1024;
/// The longest time that a caller waits until a purge has been written. The purge is in effect at once.
const PURGE: Duration = Duration::from_secs(5);

/// The reserve of the process.
pub struct Reserve {
    shared: Arc<ReserveState>,
    commands: mpsc::Sender<ReserveCommand>,
    settings: CacheReserve,
}

/// The counters of the reserve.
struct ReserveCounters {
    start: Instant,
    hits: Counter,
    misses: Counter,
    stored: Counter,
    read: Counter,
    written: Counter,
    evicted: Counter,
    dropped: Counter,
    errors: Counter,
    corrupt: Counter,
    queued: AtomicU64,
}

/// A response of the reserve.
#[derive(Debug)]
pub struct Reserved(ReserveHit);

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Reserve {
    /// Starts the reserve.
    ///
    /// # Errors
    /// There are no credentials, or a file cannot be used. A storage that does not answer is no error.
    pub fn start(settings: &CacheReserve) -> io::Result<Self> {
        let client = StorageClient::new(settings).map_err(io::Error::other)?;
        let counters = ReserveCounters {
            start: Instant::now(),
            hits: Counter::default(),
            misses: Counter::default(),
            stored: Counter::default(),
            read: Counter::default(),
            written: Counter::default(),
            evicted: Counter::default(),
            dropped: Counter::default(),
            errors: Counter::default(),
            corrupt: Counter::default(),
            queued: AtomicU64::new(0),
        };
        let shared = Arc::new(ReserveState {
            client,
            prefix: settings.prefix.clone(),
            keep: settings.keep,
            timeout: settings.timeout,
            purges: ReservePurges::default(),
            purged: Notify::new(),
            counters,
            health: StorageHealth::default(),
        });
        let (commands, received) = mpsc::channel(COMMANDS);
        worker::start(Arc::clone(&shared), received)?;
        Ok(Self { shared, commands, settings: settings.clone() })
    }

    /// The settings with which the reserve was started.
    pub fn settings(&self) -> &CacheReserve {
        &self.settings
    }

    fn is_on(&self) -> bool {
        self.shared.health.is_on(self.shared.counters.start)
    }

    /// Looks for the response to a request with these fields. Also returns `None` if there is no answer in time.
    pub async fn get(&self, text: &KeyText, fields: &HeaderList) -> Option<Reserved> {
        if !self.is_on() || !self.shared.purges.known.load(Ordering::Acquire) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (text, fields) = (text.as_bytes().to_vec(), fields.clone());
        self.commands.try_send(ReserveCommand::Get { text, fields, answer }).ok()?;
        // The thread itself has a time limit; this one is for a thread that is too busy to keep it.
        let hit = timeout(self.settings.timeout + PIECE_OF_TIME, answered).await.ok()?.ok()??;
        Some(Reserved(hit))
    }

    /// Writes a response, in the background. `fields` are the fields of the request that has fetched it, `floors` the
    /// purges of the process.
    pub fn put(&self, object: &Arc<Object>, fields: &HeaderList, floors: &Floors, now: CacheTime) {
        let head = &object.head;
        let least = i64::try_from(self.settings.least.as_secs()).unwrap_or(i64::MAX);
        let is_worth_it = head.life.is_shareable() && head.life.remaining(now) >= least;
        if !is_worth_it || head.headers.contains(NameId::SetCookie) || object.body.len() > LARGEST {
            return;
        }
        // The moment is taken before the purges are checked: a purge after the check is then later than this moment.
        let stamp = self.shared.purges.moment();
        if !floors.admits(object) || floors.judge(object) != Effect::Live {
            return;
        }
        let (bytes, counters) = (object.body.len() + head.memory() as u64, &self.shared.counters);
        let before = counters.queued.fetch_add(bytes, Ordering::Relaxed);
        let mut written = Vec::new();
        object.write_portable(now, &mut written);
        let record = ReserveRecord {
            kind: EnvelopeKind::Response,
            stamp,
            written: wall(),
            head: written.into(),
            body: Bytes::new(),
        };
        let selecting = head.vary.as_ref().map(|vary| vary.names.selecting(fields));
        let put = ReserveWrite { object: Arc::clone(object), record, selecting, bytes };
        let taken = before + bytes <= QUEUE && self.is_on();
        if !taken || self.commands.try_send(ReserveCommand::Put(Box::new(put))).is_err() {
            counters.queued.fetch_sub(bytes, Ordering::Relaxed);
            counters.dropped.inc();
        }
    }

    /// Purges responses; the purge is in effect at once. The future completes with true when the purge is in the bucket,
    /// or with false after a time limit; writing is still retried then.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) -> impl Future<Output = bool> + Send + use<> {
        let mut bytes = Vec::new();
        purge.write(strength, Sequence::new(0), &mut bytes);
        self.repeat(&bytes)
    }

    /// Does the same as [`purge`](Self::purge) for a purge in the form of bytes, and ignores the purge's number.
    pub fn repeat(&self, purge: &[u8]) -> impl Future<Output = bool> + Send + use<> {
        let written = self.shared.purges.repeat(purge);
        self.shared.purged.notify_one();
        async move { matches!(timeout(PURGE, written).await, Ok(Ok(()))) }
    }

    /// The figures.
    pub fn figures(&self) -> ReserveFigures {
        let counters = &self.shared.counters;
        ReserveFigures {
            bucket: self.settings.bucket.clone(),
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            stored: counters.stored.get(),
            read: counters.read.get(),
            written: counters.written.get(),
            evicted: counters.evicted.get(),
            dropped: counters.dropped.get(),
            errors: counters.errors.get(),
            corrupt: counters.corrupt.get(),
            queued: counters.queued.load(Ordering::Relaxed),
            purges: self.shared.purges.floors.len(),
            off: !self.is_on(),
            ready: self.shared.purges.known.load(Ordering::Acquire),
        }
    }
}

/// The time that a caller waits in addition to the thread's own time limit.
const PIECE_OF_TIME: Duration = Duration::from_millis(50);

impl Reserved {
    /// The response in the form of the other tiers. `sequence` is the number of the latest purge before the reserve was
    /// asked.
    pub fn object(
        self,
        secret: &Secret,
        request: &HeaderList,
        sequence: Sequence,
        now: CacheTime,
    ) -> Option<Arc<Object>> {
        let ReserveHit { record, outdated } = self.0;
        let elapsed = wall().saturating_sub(record.written);
        let restore = Restore { secret, request, sequence, now, elapsed, outdated };
        let body = Body::new(record.body.chunks(PIECE).map(Bytes::copy_from_slice).collect());
        Object::read_portable(&record.head, body, &restore).map(Arc::new)
    }
}
