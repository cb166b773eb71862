//! Finding the file of a request.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, UNIX_EPOCH};

use foregate_coding::ContentCoding;
use foregate_files::listing::{self, NAMES_MOST};
use foregate_files::{Candidate, suffix};
use foregate_io::{BlockingDirectory, Error, Kind};
use rustix::io::Errno;

use super::{FOLLOWED_EVERY, Folder, FolderError, FoundFile, OpenFile};
use crate::time::clock;

/// The result of the search for a file.
#[derive(Debug)]
pub(crate) enum FolderTarget {
    /// A file.
    File(FoundFile),
    /// A folder that was requested by a path without a slash at the end.
    Folder,
    /// The entries of a folder, and whether these are all.
    Listing(Vec<listing::Entry>, bool),
    /// Nothing.
    Nothing,
}

impl Folder {
    /// The file that [`Self::find`] would find, if it is open: this takes no call that may wait.
    pub(crate) fn find_open(
        &self,
        candidates: &[Candidate],
        variants: &[ContentCoding],
    ) -> Option<FoundFile> {
        let now = clock::now();
        if self.is_gone.load(Ordering::Relaxed) || !self.has_followed(now) {
            return None;
        }
        let first = candidates.first()?;
        let name = match first.is_folder {
            true => index_name(&first.name, self.settings.rules.index.first()?),
            false => first.name.clone(),
        };
        let open = self.open_files.get(&name, now)?;
        let coding = variants.iter().copied().find(|coding| !open.is_without(*coding));
        let open = match coding {
            Some(coding) => self.open_files.get(&variant_name(&name, coding), now)?,
            None => open,
        };
        Some(FoundFile { name, open, coding })
    }

    /// Looks for the first of these candidates that exists, and for a variant of it in one of
    /// these codings.
    ///
    /// # Errors
    ///
    /// A file exists, but cannot be used.
    pub(crate) async fn find(
        &self,
        candidates: &[Candidate],
        variants: &[ContentCoding],
    ) -> Result<FolderTarget, FolderError> {
        self.follow().await;
        if self.is_gone.load(Ordering::Relaxed) {
            return Ok(FolderTarget::Nothing);
        }
        for candidate in candidates {
            if candidate.is_folder {
                if let Some((file, name)) = self.index(&candidate.name).await? {
                    return self.with_variant(file, name, variants).await;
                }
                if self.settings.rules.listing
                    && let Some((entries, is_whole)) = self.list(&candidate.name).await?
                {
                    return Ok(FolderTarget::Listing(entries, is_whole));
                }
                continue;
            }
            let Some(file) = self.open_at(&candidate.name).await? else { continue };
            match file.file.metadata().kind {
                Kind::File => return self.with_variant(file, candidate.name.clone(), variants).await,
                Kind::Folder if candidate.is_path => {
                    if self.settings.rules.listing || self.index(&candidate.name).await?.is_some() {
                        return Ok(FolderTarget::Folder);
                    }
                }
                // Pipes, devices and sockets are no files.
                Kind::Folder | Kind::Link | Kind::Other => {}
            }
        }
        Ok(FolderTarget::Nothing)
    }

    /// Returns true if the path of the folder was followed not long ago.
    fn has_followed(&self, now: Instant) -> bool {
        let last = *self.followed.lock();
        last.is_some_and(|last| clock::is_within(now, last, FOLLOWED_EVERY))
    }

    /// Follows the path of the folder anew, once in a while.
    async fn follow(&self) {
        let now = clock::now();
        {
            let mut followed = self.followed.lock();
            if followed.is_some_and(|last| clock::is_within(now, last, FOLLOWED_EVERY)) {
                return;
            }
            *followed = Some(now);
        }
        let opened = self.directory.reopen().await;
        // Without a folder at the path, the open folder is the old one, and must not be served.
        let is_gone = opened.as_ref().is_err_and(Error::is_not_found);
        self.is_gone.store(is_gone, Ordering::Relaxed);
        match opened {
            Ok(true) => self.open_files.forget(),
            Ok(false) => {}
            Err(error) => self.tell(b"", &error),
        }
    }

    /// The index file of a folder, and its name.
    async fn index(&self, folder: &[u8]) -> Result<Option<(Arc<OpenFile>, Vec<u8>)>, FolderError> {
        for index in &self.settings.rules.index {
            let name = index_name(folder, index);
            if let Some(file) = self.open_file(&name).await? {
                return Ok(Some((file, name)));
            }
        }
        Ok(None)
    }

    /// Opens a name, and returns it only if it is a file.
    async fn open_file(&self, name: &[u8]) -> Result<Option<Arc<OpenFile>>, FolderError> {
        let file = self.open_at(name).await?;
        Ok(file.filter(|file| file.file.metadata().kind == Kind::File))
    }

    async fn with_variant(
        &self,
        file: Arc<OpenFile>,
        name: Vec<u8>,
        variants: &[ContentCoding],
    ) -> Result<FolderTarget, FolderError> {
        for coding in variants.iter().filter(|coding| !file.is_without(**coding)) {
            if let Some(open) = self.open_file(&variant_name(&name, *coding)).await? {
                return Ok(FolderTarget::File(FoundFile { name, open, coding: Some(*coding) }));
            }
            file.has_no(*coding);
        }
        Ok(FolderTarget::File(FoundFile { name, open: file, coding: None }))
    }

    /// Opens a name, unless there is nothing that may be served.
    async fn open_at(&self, name: &[u8]) -> Result<Option<Arc<OpenFile>>, FolderError> {
        let now = clock::now();
        if let Some(open) = self.open_files.get(name, now) {
            return Ok(Some(open));
        }
        let forgotten = self.open_files.forgotten();
        match self.directory.open(Path::new(OsStr::from_bytes(name)), self.how).await {
            Ok(file) => {
                let open = Arc::new(OpenFile::new(file, now));
                self.open_files.keep(name, &open, forgotten);
                Ok(Some(open))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.is_escape() => {
                self.tell(name, &"it, or a link on its way, leads out of the folder (`follow-links`)");
                Ok(None)
            }
            Err(Error::Busy) => Err(FolderError::Busy),
            Err(Error::Io(error)) => match Errno::from_io_error(&error) {
                // These errors mean a name that no file can have, or a socket or device.
                Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ | Errno::NXIO | Errno::NODEV) => {
                    Ok(None)
                }
                Some(Errno::ACCESS | Errno::PERM) => {
                    self.tell(name, &error);
                    Err(FolderError::Forbidden)
                }
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => Err(FolderError::Busy),
                _ => {
                    self.tell(name, &error);
                    Err(FolderError::Read)
                }
            },
        }
    }

    /// The entries of a folder that may be served, sorted. The bool is true if the list is complete. `None`: there is
    /// no such folder.
    async fn list(&self, name: &[u8]) -> Result<Option<(Vec<listing::Entry>, bool)>, FolderError> {
        let (path, how, dotfiles) = (name.to_vec(), self.how, self.settings.rules.dotfiles);
        let listed = self.directory.run(move |directory| {
            let folder = Path::new(OsStr::from_bytes(&path));
            let names = directory.list(folder, NAMES_MOST + 1)?;
            let is_whole = names.len() <= NAMES_MOST;
            let entry = |entry: foregate_io::Entry| entry_of(directory, folder, how, dotfiles, &entry);
            let mut entries: Vec<_> = names.into_iter().take(NAMES_MOST).filter_map(entry).collect();
            listing::sort(&mut entries);
            Ok((entries, is_whole))
        });
        match listed.await {
            Ok(listed) => Ok(Some(listed)),
            Err(error) if error.is_not_found() || error.is_escape() => Ok(None),
            Err(Error::Busy) => Err(FolderError::Busy),
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(FolderError::Forbidden)
            }
            Err(error) => {
                self.tell(name, &error);
                Err(FolderError::Read)
            }
        }
    }
}

/// The entry of a listing; `None` if the file or folder would not be served.
fn entry_of(
    directory: &BlockingDirectory,
    folder: &Path,
    how: foregate_io::OpenHow,
    dotfiles: bool,
    entry: &foregate_io::Entry,
) -> Option<listing::Entry> {
    let name = entry.name.as_bytes();
    let is_odd = name.contains(&b'\\');
    if is_odd || name.starts_with(b".") && !dotfiles {
        return None;
    }
    let path = folder.join(&entry.name);
    let metadata = match entry.kind {
        // The target of the link decides whether it would be served.
        Kind::Link => *directory.open(&path, how).ok()?.metadata(),
        Kind::File | Kind::Folder | Kind::Other => directory.stat(&path).ok()?,
    };
    let is_folder = match metadata.kind {
        Kind::Folder => true,
        Kind::File => false,
        Kind::Link | Kind::Other => return None,
    };
    let modified = metadata.modified.0.try_into().unwrap_or(0);
    Some(listing::Entry { name: name.to_vec(), is_folder, size: metadata.length, modified })
}

/// The name of a folder's index file.
fn index_name(folder: &[u8], index: &str) -> Vec<u8> {
    match folder {
        [] => index.as_bytes().to_vec(),
        folder => [folder, b"/", index.as_bytes()].concat(),
    }
}

/// The name of the variant of a file.
fn variant_name(name: &[u8], coding: ContentCoding) -> Vec<u8> {
    [name, suffix(coding).as_bytes()].concat()
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
