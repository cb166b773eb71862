//! The thread that notices changed certificate files.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::store::Shared;
use crate::settings::CertificateFiles;

/// Quiet time after a change, so that a chain and its key are both there before they are read.
const SETTLE: Duration = Duration::from_millis(300);
/// The longest that changes that go on and on are waited for.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);
/// How often files are looked at without a notification (network file systems give none).
const POLL: Duration = Duration::from_secs(60);

/// Watches the folders of certificate files. Dropping it ends its thread.
#[derive(Debug)]
pub(super) struct FileWatch {
    watcher: RecommendedWatcher,
    folders: HashSet<PathBuf>,
}

impl FileWatch {
    /// Starts the thread; it holds `shared` only while it checks.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        // One waiting signal says it all: what follows is looked at together.
        let (signal, signals) = sync_channel(1);
        let watcher =
            notify::recommended_watcher(move |event| forward(&signal, &event)).map_err(io::Error::other)?;
        let shared = Arc::downgrade(shared);
        thread::Builder::new().name("foregate-certs".into()).spawn(move || run(&shared, &signals))?;
        Ok(Self { watcher, folders: HashSet::new() })
    }

    /// Watches the folders of `files`. Folders, because files are replaced by renaming; those of a link's target
    /// too, because that may be what changes.
    pub(super) fn add(&mut self, files: &CertificateFiles) {
        for file in [&files.certificate, &files.key] {
            self.add_folder(file);
            if let Ok(target) = file.canonicalize() {
                self.add_folder(&target);
            }
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

fn run(shared: &Weak<Shared>, signals: &Receiver<()>) {
    loop {
        match signals.recv_timeout(POLL) {
            Ok(()) => settle(signals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        match shared.upgrade() {
            Some(shared) => shared.check(),
            None => return,
        };
    }
}

fn settle(signals: &Receiver<()>) {
    let since = Instant::now();
    while since.elapsed() < SETTLE_LIMIT && signals.recv_timeout(SETTLE).is_ok() {}
}
