//! Opening a path beneath a directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How often a path is resolved if renames by others disturb the resolution.
const RACES: usize = 3;

/// The treatment of symbolic links in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Relative links that stay beneath the directory are followed. Absolute links are refused, even if they lead back into
    /// the directory.
    #[default]
    Beneath,
    /// No link is followed.
    Never,
    /// All links are followed, wherever they lead.
    Anywhere,
}

/// The access and the other options with which a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    pub(crate) flags: OFlags,
    pub(crate) links: Links,
}

impl OpenHow {
    /// For reading. Opening a pipe or device does not wait, and a terminal does not become the controlling terminal.
    pub fn read() -> Self {
        Self { flags: OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, links: Links::Beneath }
    }

    /// For reading and writing a file that exists.
    pub fn write() -> Self {
        Self { flags: OFlags::RDWR, links: Links::Beneath }
    }

    /// For reading and writing a new file. Opening fails if the file exists.
    pub fn create() -> Self {
        Self { flags: OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, links: Links::Beneath }
    }

    /// For reading and writing a file that is empty at first: an existing file is truncated, a missing one is made.
    pub fn replace() -> Self {
        Self { flags: OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC, links: Links::Beneath }
    }

    /// Sets the treatment of symbolic links.
    #[must_use]
    pub fn links(self, links: Links) -> Self {
        Self { links, ..self }
    }

    pub(crate) fn creates(&self) -> bool {
        self.flags.contains(OFlags::CREATE)
    }

    /// Returns true if opening the file changes nothing, so that the calling thread may try it first.
    pub(crate) fn only_reads(&self) -> bool {
        !self.flags.intersects(OFlags::RDWR | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
    }
}

/// Only the owner may access new files, because stored responses may be private to clients.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens a path beneath a directory; `cached` fails with [`Errno::AGAIN`] rather than wait for the
/// disk.
pub(crate) fn open(root: BorrowedFd<'_>, path: &Path, how: &OpenHow, cached: bool) -> Result<OwnedFd, Errno> {
    // The empty path is the directory itself.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = how.flags | OFlags::CLOEXEC;
    let mode = if how.creates() { MODE } else { Mode::empty() };
    if how.links == Links::Anywhere && !cached {
        return openat(root, path, flags, mode);
    }
    let mut resolve = match how.links {
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Anywhere => ResolveFlags::empty(),
    };
    if cached {
        // A file system that is mounted below the directory may make the caller wait.
        resolve |= ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        return openat2(root, path, flags, mode, resolve);
    }
    for _ in 0..RACES {
        match openat2(root, path, flags, mode, resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return walk(root, path, flags, mode),
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a path segment by segment without following links, for systems without `openat2`.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut parts = path.components().peekable();
    let mut folder: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let (Component::Normal(_) | Component::CurDir) = part else { return Err(Errno::XDEV) };
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        if parts.peek().is_none() {
            return openat(at, part.as_os_str(), flags | OFlags::NOFOLLOW, mode);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = Some(openat(at, part.as_os_str(), flags, Mode::empty())?);
    }
    Err(Errno::NOENT)
}

/// Opens the directory itself, by its path.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use super::*;

    #[test]
    fn without_openat2_no_link_leads_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), "x").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("a/b", folder.path().join("file")).unwrap();
        let root = open_root(folder.path()).unwrap();
        let open =
            |path: &str| walk(root.as_fd(), Path::new(path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        assert!(open("a/b").is_ok());
        assert!(open(".").is_ok());
        assert_eq!(open("link/b").unwrap_err(), Errno::NOTDIR);
        assert_eq!(open("file").unwrap_err(), Errno::LOOP);
        assert_eq!(open("a/../a/b").unwrap_err(), Errno::XDEV);
        assert_eq!(open("/etc/passwd").unwrap_err(), Errno::XDEV);
        assert_eq!(open("a/c").unwrap_err(), Errno::NOENT);
    }
}
