//! Threads that notice changed files.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Quiet time after a change, so that files that belong together are all there before they are read.
const SETTLE: Duration = Duration::from_millis(300);
/// The longest that changes that go on and on are waited for.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);
/// How often files are looked at without a notification (network file systems give none).
const POLL: Duration = Duration::from_secs(60);

/// Watches the folders of files. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    watcher: RecommendedWatcher,
    folders: HashSet<PathBuf>,
}

impl FolderWatch {
    /// Starts a thread of this name. It calls `look` some time after something has changed in one of the folders, and
    /// now and then without that, until `look` returns false.
    pub(crate) fn start(name: &str, look: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        // One waiting signal says it all: what follows is looked at together.
        let (signal, signals) = sync_channel(1);
        let watcher =
            notify::recommended_watcher(move |event| forward(&signal, &event)).map_err(io::Error::other)?;
        thread::Builder::new().name(name.into()).spawn(move || run(look, &signals))?;
        Ok(Self { watcher, folders: HashSet::new() })
    }

    /// Watches the folder of a file. Folders, because files are replaced by renaming; that of a link's target too,
    /// because that may be what changes.
    pub(crate) fn add(&mut self, file: &Path) {
        self.add_folder(file);
        if let Ok(target) = file.canonicalize() {
            self.add_folder(&target);
        }
    }

    fn add_folder(&mut self, file: &Path) {
        let folder = match file.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return,
        };
        if !self.folders.insert(folder.to_owned()) {
            return;
        }
        if let Err(error) = self.watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch; looking every minute instead");
        }
    }
}

fn forward(signal: &SyncSender<()>, event: &notify::Result<Event>) {
    let read_only = |kind: &EventKind| matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write));
    if !event.as_ref().is_ok_and(|event| read_only(&event.kind)) {
        // A full channel already holds what this would say.
        let _ = signal.try_send(());
    }
}

fn run(mut look: impl FnMut() -> bool, signals: &Receiver<()>) {
    loop {
        match signals.recv_timeout(POLL) {
            Ok(()) => settle(signals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if !look() {
            return;
        }
    }
}

fn settle(signals: &Receiver<()>) {
    let since = Instant::now();
    while since.elapsed() < SETTLE_LIMIT && signals.recv_timeout(SETTLE).is_ok() {}
}

/// What tells one state of a file from another: when it was changed, its length, its number; `None`: it is not there.
type Stamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
}

/// Files that were read into the configuration. A change of one is told once.
#[derive(Debug)]
pub(crate) struct ConfiguredFiles {
    stamps: Arc<Mutex<BTreeMap<PathBuf, Stamp>>>,
    changed: mpsc::Sender<()>,
    watch: Option<FolderWatch>,
}

impl ConfiguredFiles {
    /// No files; `changed` is told of changes.
    pub(crate) fn new(changed: mpsc::Sender<()>) -> Self {
        Self { stamps: Arc::default(), changed, watch: None }
    }

    /// Follows these files as they are now, and no others. Without files there is no thread.
    pub(crate) fn follow(&mut self, files: &[PathBuf]) {
        *self.stamps.lock() = files.iter().map(|file| (file.clone(), stamp(file))).collect();
        if files.is_empty() {
            self.watch = None;
            return;
        }
        if self.watch.is_none() {
            let (stamps, changed) = (Arc::downgrade(&self.stamps), self.changed.clone());
            let look = move || match stamps.upgrade() {
                Some(stamps) => {
                    if look(&mut stamps.lock()) {
                        // A full channel already holds what this would say.
                        let _ = changed.try_send(());
                    }
                    true
                }
                None => false,
            };
            match FolderWatch::start("foregate-files", look) {
                Ok(started) => self.watch = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "files are not watched; changed ones are read at the next reload");
                }
            }
        }
        if let Some(watch) = &mut self.watch {
            files.iter().for_each(|file| watch.add(file));
        }
    }
}

/// Whether any file has changed; what is seen now is what the next change is one from.
fn look(stamps: &mut BTreeMap<PathBuf, Stamp>) -> bool {
    let mut changed = false;
    for (file, known) in stamps {
        let now = stamp(file);
        if *known != now {
            tracing::info!(file = %file.display(), "a file that the configuration refers to has changed");
            *known = now;
            changed = true;
        }
    }
    changed
}
