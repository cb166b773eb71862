//! Bodies in temporary files: starts of bodies that steps read and that are too long for memory.
//!
//! A file has no name (`O_TMPFILE`; on file systems without it, the name is removed at once), so
//! that nothing is left after a crash, and no other process can open it. All operations run on other
//! threads than the workers, at most [`TURNS`] at a time: a slow disk delays only requests that use it.

use std::fs::{File, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use foregate_module::Plan;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::counters::metrics::Counter;
use crate::limits::account::Account;
use crate::limits::budget::{Budget, BudgetShare};
use crate::limits::descriptors::DescriptorPlace;
use crate::limits::lanes::Lanes;
use crate::limits::pressure::{self, Charge};
use crate::time::notices::Notices;

/// The size of a write or read, bytes. A body that moves slowly holds no more memory than this.
pub const PIECE: usize = 64 * 1024;
/// If no step reads more than this many bytes of a body, the body is never put into a file. If there
/// is no memory for the body, the request is answered with 503.
pub const SHORT: usize = 128 * 1024;
/// The most reads and writes at a time, of all files together; others wait for their turn.
const TURNS: usize = 16;
/// The time limit of one operation, including the wait for its turn. After this time the operation
/// counts as failed.
const LONGEST: Duration = Duration::from_secs(10);

/// Returns true if the steps of this plan may put starts of bodies into files, because of their
/// settings or because memory is short.
pub fn is_used_by(plan: &Plan) -> bool {
    plan.body_in_memory() < plan.body() || plan.body() > SHORT
}

/// Why a body could not be kept in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolError {
    /// A limit is reached: on the total size of the files, on the files of the client, or on the number of
    /// files.
    Limit,
    /// The file could not be made, written or read in time.
    Io,
}

/// The state shared by the files of the process.
#[derive(Debug)]
pub struct Spools {
    turns: Arc<Lanes>,
    /// The budget for the total size of the files.
    pub budget: Arc<Budget>,
    /// Counts failures to make, write or read a file.
    pub failed: Counter,
    notices: Notices,
    /// When an operation last exceeded its time limit.
    stuck: Mutex<Option<Instant>>,
}

/// The start of a body in a file.
#[derive(Debug)]
pub struct Spool {
    /// The file, until it is closed.
    file: Option<(File, DescriptorPlace)>,
    length: AtomicU64,
    share: Mutex<BudgetShare>,
    account: Account,
    of: Arc<Spools>,
    /// The runtime that runs blocking reads, so that the reader can stop waiting for them.
    runtime: Handle,
}

impl Spools {
    /// Has no file yet. All files together may hold `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            turns: Lanes::new(TURNS),
            budget: Arc::new(Budget::of_files(limit)),
            failed: Counter::default(),
            notices: Notices::default(),
            stuck: Mutex::default(),
        }
    }

    /// Returns true if an operation was too slow within the last [`LONGEST`]. No file is made then: clients
    /// with long bodies get an error at once, and do not lengthen the queue.
    fn is_stuck(&self) -> bool {
        self.stuck.lock().is_some_and(|since| since.elapsed() < LONGEST)
    }

    /// Creates a file in this folder, on the account of a client.
    ///
    /// # Errors
    ///
    /// The file could not be created, there is no descriptor for it, or the client already has as many
    /// descriptors as one client may have.
    pub async fn create(self: &Arc<Self>, folder: &Path, account: Account) -> Result<Arc<Spool>, SpoolError> {
        if self.is_stuck() {
            self.failed.inc();
            return Err(SpoolError::Io);
        }
        let Some(place) = DescriptorPlace::take_for_file(account, self.budget.per_client()) else {
            self.budget.refused.inc();
            return Err(SpoolError::Limit);
        };
        let path = folder.to_owned();
        let made = in_turn(&self.turns, account, move || {
            let file = tempfile::tempfile_in(path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            Ok((file, place))
        })
        .await;
        let file = made.map_err(|error| self.failure(&error, Some(folder)))?;
        let (length, share) = (AtomicU64::new(0), Mutex::new(self.budget.share(account)));
        let runtime = Handle::current();
        Ok(Arc::new(Spool { file: Some(file), length, share, account, of: Arc::clone(self), runtime }))
    }

    /// Tries to make a file in this folder, and logs a failure: operators should learn of it at the
    /// start, not with the first long body.
    pub async fn probe(&self, folder: PathBuf) {
        let path = folder.clone();
        let make = move || tempfile::tempfile_in(path).map(drop);
        let made = in_turn(&self.turns, Account::PROCESS, make).await;
        if let Err(error) = made {
            tell_of_folder(&error, &folder);
        }
    }

    /// Counts a failure, and logs it at intervals.
    pub fn failure(&self, error: &io::Error, folder: Option<&Path>) -> SpoolError {
        self.failed.inc();
        if error.kind() == io::ErrorKind::TimedOut {
            *self.stuck.lock() = Some(Instant::now());
        }
        if self.notices.take(Instant::now()) {
            match folder {
                Some(folder) => tell_of_folder(error, folder),
                None => tracing::error!(%error, "a temporary file could not be written or read"),
            }
        }
        SpoolError::Io
    }
}

fn tell_of_folder(error: &io::Error, folder: &Path) {
    tracing::error!(
        %error, folder = %folder.display(),
        "no temporary file can be made: requests with long bodies that modules look at are answered with 503, or go on unseen where those only watch"
    );
}

impl Default for Spools {
    fn default() -> Self {
        Self::new(crate::settings::FILTER_FILES)
    }
}

/// Runs a blocking operation on a thread for such work, once the operation has its turn. The turn lasts
/// until the operation is over, also if nobody waits for the operation any more. Clients take turns, so
/// that the files of one client do not delay those of others.
#[expect(
    clippy::disallowed_methods,
    reason = "as many are under way as there are turns; others wait here, each for its own"
)]
async fn in_turn<T: Send + 'static>(
    turns: &Arc<Lanes>,
    account: Account,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = async {
        let turn = turns.turn(account).await;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    };
    tokio::time::timeout(LONGEST, done).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Drop for Spool {
    /// The system frees the space of a file while it closes the file, which takes milliseconds for a
    /// long file. The space counts until the file is closed.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let none = self.of.budget.share(self.account);
        let share = std::mem::replace(self.share.get_mut(), none);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || {
                drop(file);
                drop(share);
                pressure::settle();
            });
        }
    }
}

impl Spool {
    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().map(|(file, _)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The bytes in the file.
    pub fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Appends these bytes to the file, and clears `bytes`.
    ///
    /// # Errors
    ///
    /// There is no room, or the file could not be written. `bytes` is unchanged then.
    pub async fn append(self: &Arc<Self>, bytes: &mut Vec<u8>) -> Result<(), SpoolError> {
        let at = self.len();
        let length = at + bytes.len() as u64;
        if !self.share.lock().hold(usize::try_from(length).unwrap_or(usize::MAX)) {
            return Err(SpoolError::Limit);
        }
        let (spool, ours) = (Arc::clone(self), Arc::new(std::mem::take(bytes)));
        let theirs = Arc::clone(&ours);
        let written =
            in_turn(&self.of.turns, self.account, move || spool.file()?.write_all_at(&theirs, at)).await;
        if let Err(error) = written {
            // If the write still hangs, it owns the bytes as well, so they are copied.
            *bytes = Arc::try_unwrap(ours).unwrap_or_else(|ours| ours.to_vec());
            return Err(self.of.failure(&error, None));
        }
        self.length.store(length, Ordering::Release);
        Ok(())
    }

    /// Reads the whole file. Blocks the thread, at most for the time limit of an operation: only for
    /// threads for heavy work.
    ///
    /// # Errors
    ///
    /// The file could not be read in time.
    pub fn read(self: &Arc<Self>) -> io::Result<Vec<u8>> {
        if self.of.is_stuck() {
            return Err(io::Error::other("the disk has just taken too long"));
        }
        let spool = Arc::clone(self);
        let (tell, told) = mpsc::sync_channel(1);
        self.runtime.spawn_blocking(move || {
            // The caller may have stopped waiting.
            let _ = tell.send(spool.read_all());
        });
        told.recv_timeout(LONGEST).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len()).map_err(io::Error::other)?];
        self.file()?.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Counts a failure of [`read`](Self::read).
    pub fn failed(&self, error: &io::Error) -> SpoolError {
        self.of.failure(error, None)
    }
}

type SpoolRead = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send + Sync>>;

/// Reads the start of a body back from its file.
pub struct Reader {
    spool: Arc<Spool>,
    /// The position in the file up to which it has been read.
    at: u64,
    piece: Vec<u8>,
    /// The memory of the piece.
    charge: Charge,
    /// The number of bytes of the piece that have been consumed.
    gone: usize,
    reading: Option<SpoolRead>,
    /// The bytes that come after those of the file, and their share of the memory budget.
    rest: Option<Box<(Vec<u8>, BudgetShare)>>,
}

impl Reader {
    /// Nothing has been read yet.
    pub fn new(spool: Arc<Spool>) -> Self {
        Self { spool, at: 0, piece: Vec::new(), charge: Charge::new(), gone: 0, reading: None, rest: None }
    }

    /// Appends bytes that could not be written to the file.
    #[must_use]
    pub fn followed_by(self, rest: Vec<u8>, share: BudgetShare) -> Self {
        let rest = (!rest.is_empty()).then(|| Box::new((rest, share)));
        Self { rest, ..self }
    }

    /// Reads from the beginning again.
    pub fn rewind(&mut self) {
        *self = Self { rest: self.rest.take(), ..Self::new(Arc::clone(&self.spool)) };
    }

    /// The file.
    pub fn spool(&self) -> Arc<Spool> {
        Arc::clone(&self.spool)
    }

    /// Returns true if there are bytes after those of the file.
    pub fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// The total number of bytes of the file and after it.
    pub fn len(&self) -> u64 {
        self.spool.len() + self.rest.as_ref().map_or(0, |rest| rest.0.len() as u64)
    }

    /// Returns true if everything has been read and consumed.
    pub fn is_done(&self) -> bool {
        self.data().is_empty() && self.reading.is_none() && self.at >= self.len()
    }

    /// The bytes that have been read and not consumed yet.
    pub fn data(&self) -> &[u8] {
        self.piece.get(self.gone..).unwrap_or_default()
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        self.gone += count;
        if self.is_done() {
            self.set_piece(Vec::new());
        }
    }

    /// Waits until there is [data](Self::data), or the end.
    ///
    /// # Errors
    ///
    /// The file could not be read.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SpoolError>> {
        if !self.data().is_empty() || self.is_done() {
            return Poll::Ready(Ok(()));
        }
        if let Some(rest) = self.rest.as_ref().filter(|_| self.at >= self.spool.len()) {
            self.at += rest.0.len() as u64;
            let rest = rest.0.clone();
            self.set_piece(rest);
            return Poll::Ready(Ok(()));
        }
        let reading = self.reading.get_or_insert_with(|| {
            let (spool, at) = (Arc::clone(&self.spool), self.at);
            let turns = Arc::clone(&spool.of.turns);
            let mut piece = std::mem::take(&mut self.piece);
            // Pieces shrink with rising memory pressure, as other buffers do, so that many slow
            // peers do not hold much.
            let most = PIECE.min(pressure::largest_buffer());
            Box::pin(async move {
                let account = spool.account;
                let read = move || {
                    let left = spool.len().saturating_sub(at);
                    piece.resize(usize::try_from(left).unwrap_or(most).min(most), 0);
                    piece.shrink_to(most);
                    spool.file()?.read_exact_at(&mut piece, at)?;
                    Ok(piece)
                };
                in_turn(&turns, account, read).await
            })
        });
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let piece = read.map_err(|error| self.spool.failed(&error))?;
        self.at += piece.len() as u64;
        self.set_piece(piece);
        Poll::Ready(Ok(()))
    }

    fn set_piece(&mut self, piece: Vec<u8>) {
        self.charge.set(piece.capacity());
        (self.piece, self.gone) = (piece, 0);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    async fn drain(reader: &mut Reader, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !reader.is_done() {
            poll_fn(|cx| reader.poll_fill(cx)).await.unwrap();
            let count = reader.data().len().min(step);
            all.extend_from_slice(&reader.data()[..count]);
            reader.consume(count);
        }
        all
    }

    #[test]
    fn what_is_written_is_read_as_often_as_is_asked_for() {
        run(async {
            let spools = Arc::new(Spools::new(64 << 20));
            let spool = spools.create(&std::env::temp_dir(), Account::PROCESS).await.unwrap();
            let body: Vec<u8> = (0..3 * PIECE + 77).map(|at| (at % 251) as u8).collect();
            for piece in body.chunks(10_000) {
                spool.append(&mut piece.to_vec()).await.unwrap();
            }
            assert_eq!((spool.len(), spools.budget.held()), (body.len() as u64, body.len() / 4096 * 4096));
            assert_eq!(spool.read().unwrap(), body);
            let mut reader = Reader::new(Arc::clone(&spool));
            assert_eq!(drain(&mut reader, PIECE).await, body);
            reader.rewind();
            poll_fn(|cx| reader.poll_fill(cx)).await.unwrap();
            reader.consume(5);
            reader.rewind();
            assert_eq!(drain(&mut reader, 1000).await, body);
            drop((spool, reader));
            while spools.budget.held() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn there_is_a_limit_and_what_is_there_stays() {
        run(async {
            let spools = Arc::new(Spools::new(1 << 20));
            let spool = spools.create(&std::env::temp_dir(), Account::PROCESS).await.unwrap();
            spool.append(&mut vec![1; 200_000]).await.unwrap();
            let mut more = vec![2; 200_000];
            assert_eq!(spool.append(&mut more).await, Err(SpoolError::Limit));
            assert_eq!(spool.read().unwrap(), vec![1; 200_000]);
            let both = [vec![1; 200_000], more.clone()].concat();
            let mut reader = Reader::new(spool).followed_by(more, spools.budget.share(Account::PROCESS));
            assert_eq!(reader.len(), 400_000);
            assert_eq!(drain(&mut reader, PIECE).await, both);
            reader.rewind();
            assert_eq!(drain(&mut reader, 1000).await, both);
            assert_eq!(spools.failed.get(), 0);
        });
    }

    #[test]
    fn a_file_that_cannot_be_made_is_counted() {
        run(async {
            let spools = Arc::new(Spools::new(1 << 20));
            let missing = std::env::temp_dir().join("foregate-spool-missing/folder");
            let made = spools.create(&missing, Account::PROCESS).await;
            assert_eq!((made.err(), spools.failed.get()), (Some(SpoolError::Io), 1));
        });
    }

    #[test]
    fn nobody_else_can_see_or_open_it() {
        use std::os::unix::fs::MetadataExt;
        run(async {
            let spools = Arc::new(Spools::new(1 << 20));
            let spool = spools.create(&std::env::temp_dir(), Account::PROCESS).await.unwrap();
            let metadata = spool.file().unwrap().metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
        });
    }
}
