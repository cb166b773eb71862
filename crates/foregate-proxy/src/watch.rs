//! Threads that notice changed files.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// The quiet time to wait for after a change, so that all files of one update are in place before any is
/// read.
const SETTLE: Duration = Duration::from_millis(300);
/// The longest wait for quiet, if changes do not stop.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);
/// The interval at which files are checked without a notification. Network file systems send no
/// notifications. There is also none if a folder above the files, or a link to it, is replaced, which is
/// a way to change several files at once.
const POLL: Duration = Duration::from_secs(5);
/// With many files, a check may take long. The pause after a check is therefore this many times the
/// check's duration, but at least [`POLL`] and at most [`POLL_MOST`].
const POLL_SHARE: u32 = 200;
/// The longest pause between two checks.
const POLL_MOST: Duration = Duration::from_secs(60);

/// Watches the folders of files. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    watcher: RecommendedWatcher,
    folders: HashSet<PathBuf>,
    names: Names,
}

/// The names of the watched files, without their folders.
type Names = Arc<Mutex<HashSet<OsString>>>;

impl FolderWatch {
    /// Starts a thread of this name. It calls `look` soon after a change in one of the folders, and
    /// regularly without a change, until `look` returns false.
    pub(crate) fn start(name: &str, look: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        // One pending signal is enough: later changes are handled together.
        let (signal, signals) = sync_channel(1);
        let names = Names::default();
        let watched = Arc::clone(&names);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if !event.is_ok_and(|event| is_idle(&event, &watched)) {
                // A full channel already holds a signal.
                let _ = signal.try_send(());
            }
        });
        let watcher = watcher.map_err(io::Error::other)?;
        thread::Builder::new().name(name.into()).spawn(move || run(look, &signals))?;
        Ok(Self { watcher, folders: HashSet::new(), names })
    }

    /// Watches the folder of a file, because files are replaced by renaming. If the file is a link, also
    /// watches the folder of its target, because the target may change.
    pub(crate) fn add(&mut self, file: &Path) {
        self.add_folder(file);
        if let Ok(target) = file.canonicalize() {
            self.add_folder(&target);
        }
    }

    fn add_folder(&mut self, file: &Path) {
        self.names.lock().extend(file.file_name().map(OsString::from));
        let folder = match file.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return,
        };
        if !self.folders.insert(folder.to_owned()) {
            return;
        }
        if let Err(error) = self.watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch; looking now and then instead");
        }
    }
}

/// Returns true if no watched file can have changed: a file was only read, or a file that is not watched
/// was written, such as a log in the same folder. Any file that was created or renamed counts as a
/// change, because it may be a link on the way to a watched one.
fn is_idle(event: &Event, watched: &Names) -> bool {
    match event.kind {
        EventKind::Modify(ModifyKind::Data(_)) | EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            let watched = watched.lock();
            let is_watched = |path: &PathBuf| path.file_name().is_none_or(|name| watched.contains(name));
            !event.paths.iter().any(is_watched)
        }
        EventKind::Access(_) => true,
        _ => false,
    }
}

fn run(mut look: impl FnMut() -> bool, signals: &Receiver<()>) {
    let mut pause = POLL;
    loop {
        match signals.recv_timeout(pause) {
            Ok(()) => settle(signals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let began = Instant::now();
        if !look() {
            return;
        }
        pause = pause_after(began.elapsed());
    }
}

/// The pause after a check that took this long.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(POLL_SHARE).clamp(POLL, POLL_MOST)
}

fn settle(signals: &Receiver<()>) {
    let since = Instant::now();
    while since.elapsed() < SETTLE_LIMIT && signals.recv_timeout(SETTLE).is_ok() {}
}

/// The identity of a file's content: modification time, length and inode; `None` if there is no file.
type WatchStamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &Path) -> WatchStamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
}

/// Watches the files that were read into the configuration. Each change is reported once.
#[derive(Debug)]
pub(crate) struct ConfiguredFiles {
    stamps: Arc<Mutex<BTreeMap<PathBuf, WatchStamp>>>,
    changed: mpsc::Sender<()>,
    watch: Option<FolderWatch>,
}

impl ConfiguredFiles {
    /// Watches no files yet. `changed` gets a message for a change.
    pub(crate) fn new(changed: mpsc::Sender<()>) -> Self {
        Self { stamps: Arc::default(), changed, watch: None }
    }

    /// Watches these files from their present contents on, and no others. Without files, no thread runs.
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
                        // A full channel already holds a signal.
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

/// Returns true if any file has changed, and records the present state.
fn look(stamps: &mut BTreeMap<PathBuf, WatchStamp>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_are_looked_at_less_often() {
        assert_eq!(pause_after(Duration::from_millis(1)), POLL);
        assert_eq!(pause_after(Duration::from_millis(100)), Duration::from_secs(20));
        assert_eq!(pause_after(Duration::MAX), POLL_MOST);
    }

    #[test]
    fn a_log_beside_the_files_is_not_looked_at() {
        use notify::event::{CreateKind, DataChange, RenameMode};
        let watched = Names::default();
        watched.lock().insert("list".into());
        let event = |kind, name: &str| Event::new(kind).add_path(Path::new("/folder").join(name));
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let (written, read) = (AccessKind::Close(AccessMode::Write), AccessKind::Open(AccessMode::Any));
        for (kind, log, list) in [
            (data, true, false),
            (EventKind::Access(written), true, false),
            (EventKind::Access(read), true, true),
            (EventKind::Create(CreateKind::File), false, false),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), false, false),
        ] {
            assert_eq!(
                (is_idle(&event(kind, "log"), &watched), is_idle(&event(kind, "list"), &watched)),
                (log, list)
            );
        }
        assert!(!is_idle(&Event::new(EventKind::Other), &watched), "events were lost");
    }

    /// A folder that is a link, to another folder from now on: nothing happens in the folders that
    /// are watched.
    #[tokio::test]
    async fn a_folder_that_is_replaced_is_noticed_soon() {
        let folder = std::env::temp_dir().join(format!("foregate-watch-{}", std::process::id()));
        for version in ["1", "2"] {
            std::fs::create_dir_all(folder.join("versions").join(version)).unwrap();
            std::fs::write(folder.join("versions").join(version).join("list"), version.repeat(9)).unwrap();
        }
        let (link, next) = (folder.join("use"), folder.join("next"));
        std::os::unix::fs::symlink("versions/1", &link).unwrap();
        let (tell, mut changed) = mpsc::channel(1);
        let mut files = ConfiguredFiles::new(tell);
        files.follow(&[link.join("list")]);
        std::os::unix::fs::symlink("versions/2", &next).unwrap();
        std::fs::rename(&next, &link).unwrap();
        let told = tokio::time::timeout(Duration::from_secs(20), changed.recv()).await;
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(told, Ok(Some(())));
    }
}
