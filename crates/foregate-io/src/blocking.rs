//! A directory for threads that may wait: all calls happen on the calling thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::faults::{Call, Fault, Faults};
use crate::file::RawFile;
use crate::metadata::{Entry, Kind, Metadata};
use crate::path::{self, OpenHow};

const FOLDER_MODE: Mode = Mode::RWXU;

/// File systems with calls that do not wait for pages and names in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fast {
    /// `cachestat` and `RWF_NOWAIT` tell which pages are in memory.
    Pages,
    /// All of it is in memory.
    Memory,
    /// Only the properties of open files are in memory.
    Properties,
    /// Not known to.
    No,
}

/// Magic numbers of statfs(2).
const WITH_PAGES: [u64; 4] = [
    0xef53,      // ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
];
const IN_MEMORY: u64 = 0x0102_1994; // tmpfs
const OVERLAY: u64 = 0x794c_7630; // overlay, as in containers

/// A directory with operations that block the calling thread.
/// [`Directory::blocking`](crate::Directory::blocking) gives it.
#[derive(Clone)]
pub struct BlockingDirectory(Arc<Root>);

struct Root {
    path: PathBuf,
    /// The open directory. [`BlockingDirectory::reopen`] replaces it.
    open: RwLock<Arc<OpenDirectory>>,
    faults: Option<Arc<dyn Faults>>,
}

/// The directory that a path led to at one moment.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) fd: OwnedFd,
    pub(crate) device: u64,
    inode: u64,
    pub(crate) fast: Fast,
}

impl OpenDirectory {
    fn new(path: &Path) -> io::Result<Self> {
        let fd = path::open_root(path)?;
        let Metadata { device, inode, .. } = Metadata::new(&rustix::fs::fstat(&fd)?);
        #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
        let fast = match rustix::fs::fstatfs(&fd).map(|stat| stat.f_type as u64) {
            Ok(IN_MEMORY) => Fast::Memory,
            Ok(OVERLAY) => Fast::Properties,
            Ok(magic) if WITH_PAGES.contains(&magic) => Fast::Pages,
            _ => Fast::No,
        };
        Ok(Self { fd, device, inode, fast })
    }
}

impl std::fmt::Debug for BlockingDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingDirectory").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl BlockingDirectory {
    pub(crate) fn open_root(path: &Path, faults: Option<Arc<dyn Faults>>) -> io::Result<Self> {
        let open = RwLock::new(Arc::new(OpenDirectory::new(path)?));
        Ok(Self(Arc::new(Root { path: path.to_owned(), open, faults })))
    }

    /// The path that the directory was opened by.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn opened(&self) -> Arc<OpenDirectory> {
        Arc::clone(&self.0.open.read())
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.0.faults.is_some()
    }

    /// Follows the path anew, since a link may lead elsewhere by now. Files that are open stay so.
    /// Returns true if it leads to another directory.
    ///
    /// # Errors
    /// Errors of opening; then the directory stays the one that it was.
    pub fn reopen(&self) -> io::Result<bool> {
        self.meet(Call::Open)?;
        let opened = Arc::new(OpenDirectory::new(&self.0.path)?);
        let identity = |directory: &OpenDirectory| (directory.device, directory.inode);
        let (before, now) = (identity(&self.opened()), identity(&opened));
        *self.0.open.write() = opened;
        Ok(before != now)
    }

    /// Opens a file. The empty path is the directory itself.
    ///
    /// # Errors
    /// Errors of openat2(2): `EXDEV` for a path that leads out, `ELOOP` for a link where none is
    /// followed.
    pub fn open(&self, path: &Path, how: OpenHow) -> io::Result<RawFile> {
        self.meet(if how.creates() { Call::Create } else { Call::Open })?;
        let opened = self.opened();
        self.file(path::open(opened.fd.as_fd(), path, &how, false)?)
    }

    /// Makes a file without a name in a folder. The file is gone with its last descriptor, unless
    /// [`link`](Self::link) gives it a name.
    ///
    /// # Errors
    /// Errors of open(2); `EOPNOTSUPP` on file systems without such files.
    pub fn create_nameless(&self, folder: &Path) -> io::Result<RawFile> {
        self.meet(Call::Create)?;
        let how = OpenHow { flags: OFlags::RDWR | OFlags::TMPFILE, links: path::Links::Beneath };
        self.file(path::open(self.opened().fd.as_fd(), folder, &how, false)?)
    }

    /// Gives a name to a file without one. The name must be free.
    ///
    /// # Errors
    /// Errors of linkat(2).
    pub fn link(&self, file: &RawFile, path: &Path) -> io::Result<()> {
        self.meet(Call::Rename)?;
        let from = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        Ok(rustix::fs::linkat(CWD, from, &self.opened().fd, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Renames a file, over the one that has the name.
    ///
    /// # Errors
    /// Errors of renameat(2).
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meet(Call::Rename)?;
        let opened = self.opened();
        Ok(rustix::fs::renameat(&opened.fd, from, &opened.fd, to)?)
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Errors of unlinkat(2).
    pub fn unlink(&self, path: &Path) -> io::Result<()> {
        self.meet(Call::Unlink)?;
        Ok(rustix::fs::unlinkat(&self.opened().fd, path, AtFlags::empty())?)
    }

    /// Makes a folder, unless there is one.
    ///
    /// # Errors
    /// Errors of mkdirat(2), but for an existing folder.
    pub fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.meet(Call::Create)?;
        match rustix::fs::mkdirat(&self.opened().fd, path, FOLDER_MODE) {
            Err(Errno::EXIST) => Ok(()),
            result => Ok(result?),
        }
    }

    /// The properties of a path. Links are followed beneath the directory.
    ///
    /// # Errors
    /// Errors of openat2(2).
    pub fn stat(&self, path: &Path) -> io::Result<Metadata> {
        self.meet(Call::Stat)?;
        let how = OpenHow { flags: OFlags::PATH, links: path::Links::Beneath };
        let fd = path::open(self.opened().fd.as_fd(), path, &how, false)?;
        Ok(Metadata::new(&rustix::fs::fstat(&fd)?))
    }

    /// The files of a folder in no order, at most `limit` of them.
    ///
    /// # Errors
    /// Errors of opening and reading a folder.
    pub fn list(&self, path: &Path, limit: usize) -> io::Result<Vec<Entry>> {
        self.meet(Call::List)?;
        let how = OpenHow { flags: OFlags::RDONLY | OFlags::DIRECTORY, links: path::Links::Beneath };
        let fd = path::open(self.opened().fd.as_fd(), path, &how, false)?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if entries.len() == limit {
                break;
            }
            let name = std::os::unix::ffi::OsStringExt::from_vec(name.to_vec());
            entries.push(Entry { name, kind: Kind::new(entry.file_type()) });
        }
        Ok(entries)
    }

    /// Writes the names in a folder to the disk.
    ///
    /// # Errors
    /// Errors of fsync(2).
    pub fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = self.open(path, OpenHow::read())?;
        self.meet(Call::Sync)?;
        Ok(rustix::fs::fsync(folder.as_fd())?)
    }

    /// Bytes that are free on the file system for this process.
    ///
    /// # Errors
    /// Errors of fstatvfs(3).
    pub fn free_space(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.opened().fd)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    pub(crate) fn file(&self, fd: OwnedFd) -> io::Result<RawFile> {
        let metadata = Metadata::new(&rustix::fs::fstat(&fd)?);
        Ok(RawFile::new(fd, metadata, self.0.faults.clone()))
    }

    fn meet(&self, call: Call) -> io::Result<()> {
        meet(self.0.faults.as_deref(), call).map(drop)
    }
}

/// Asks for a fault and suffers it. The result is the most bytes that the call may transfer.
pub(crate) fn meet(faults: Option<&dyn Faults>, call: Call) -> io::Result<usize> {
    match faults.and_then(|faults| faults.fault(call)) {
        None => Ok(usize::MAX),
        Some(Fault::Error(code)) => Err(io::Error::from_raw_os_error(code)),
        Some(Fault::Short(bytes)) => Ok(bytes),
        Some(Fault::Slow(time)) => {
            #[allow(clippy::disallowed_methods, reason = "the fault is a call that blocks its thread")]
            thread::sleep(time);
            Ok(usize::MAX)
        }
    }
}
