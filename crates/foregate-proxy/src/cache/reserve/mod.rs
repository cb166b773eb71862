//! The reserve: a tier of the cache in object storage, behind memory and disk.
//!
//! The leader of a fetch asks it before it asks the origin, so simultaneous misses cost one request here too. Requests to the storage run on
//! a thread of their own. A storage that is slow, full or gone costs a request no more than the time that the settings give it, and nothing
//! while the reserve is off.

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

/// The secret for judging records, which have no place in a store yet: their names come from SHA-256.
const SECRET: Secret = Secret::new(*b"foregate reserve");
/// Lookups and records that the thread has not taken yet.
const COMMANDS: usize = 4096;
/// Bytes of responses that wait to be written. Beyond, responses are not written.
const QUEUE: u64 = 64 << 20;
/// The longest body. It is in memory while it is written.
const LARGEST: u64 = 64 << 20;
/// A body comes in pieces of this length.
const PIECE: usize = 64 * 1024;
/// How long a purge waits until it is written. It counts at once.
const PURGE: Duration = Duration::from_secs(5);

/// The reserve of the process.
pub struct Reserve {
    shared: Arc<ReserveState>,
    commands: mpsc::Sender<ReserveCommand>,
    settings: CacheReserve,
}

/// ReserveCounters of the reserve.
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

    /// The settings with which it was started.
    pub fn settings(&self) -> &CacheReserve {
        &self.settings
    }

    fn is_on(&self) -> bool {
        self.shared.health.is_on(self.shared.counters.start)
    }

    /// Looks for the response to a request with these fields. `None` too if there is no answer in time.
    pub async fn get(&self, text: &KeyText, fields: &HeaderList) -> Option<Reserved> {
        if !self.is_on() || !self.shared.purges.known.load(Ordering::Acquire) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (text, fields) = (text.as_bytes().to_vec(), fields.clone());
        self.commands.try_send(ReserveCommand::Get { text, fields, answer }).ok()?;
        // The thread keeps the time too; this is for one that does not come to it.
        let hit = timeout(self.settings.timeout + PIECE_OF_TIME, answered).await.ok()?.ok()??;
        Some(Reserved(hit))
    }

    /// Writes a response, in the background. `fields` are those of the request that fetched it, `floors` the purges of the process.
    pub fn put(&self, object: &Arc<Object>, fields: &HeaderList, floors: &Floors, now: CacheTime) {
        let head = &object.head;
        let least = i64::try_from(self.settings.least.as_secs()).unwrap_or(i64::MAX);
        let is_worth_it = head.life.is_shareable() && head.life.remaining(now) >= least;
        if !is_worth_it || head.headers.contains(NameId::SetCookie) || object.body.len() > LARGEST {
            return;
        }
        // Before the look at the purges: one that comes later is later than this moment, too.
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

    /// Purges, at once. The future ends when the purge is in the bucket, and says whether that was in time; it is tried on in any case.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) -> impl Future<Output = bool> + Send + use<> {
        let mut bytes = Vec::new();
        purge.write(strength, Sequence::new(0), &mut bytes);
        self.repeat(&bytes)
    }

    /// The same for a purge as bytes, whatever its number is.
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

/// How much longer than the thread its callers wait.
const PIECE_OF_TIME: Duration = Duration::from_millis(50);

impl Reserved {
    /// The response as the other tiers have it. `sequence` is the number of purges before the reserve was asked.
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
