//! A directory for threads that may wait for a disk: all system calls happen on the calling thread.

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

/// The operations of a file system that are known not to wait if their data is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fast {
    /// Reads, opens and queries of properties. `cachestat` and `RWF_NOWAIT` work, so it is known whether the data of a
    /// read is in memory.
    Pages,
    /// All operations: the whole file system is in memory.
    Memory,
    /// Only queries of the properties of open files, which are in memory.
    Properties,
    /// None that are known.
    No,
}

/// Magic numbers of statfs(2), for [`Fast::Pages`].
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

/// An open directory: the one to which the path led when it was opened.
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

    /// Resolves the path again, because a symbolic link may lead elsewhere by now. Open files stay open.
    /// Returns true if the path leads to another directory.
    ///
    /// # Errors
    /// Errors of opening. The directory is not changed then.
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
    /// Errors of openat2(2): `EXDEV` for a path that leads out of the directory, `ELOOP` for a symbolic link if links are
    /// not followed.
    pub fn open(&self, path: &Path, how: OpenHow) -> io::Result<RawFile> {
        self.meet(if how.creates() { Call::Create } else { Call::Open })?;
        let opened = self.opened();
        self.file(path::open(opened.fd.as_fd(), path, &how, false)?)
    }

    /// Makes a file without a name in a folder. The file vanishes when its last descriptor is closed, unless
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

    /// Renames a file, and replaces a file that has the new name.
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

    /// Makes a folder, unless it exists.
    ///
    /// # Errors
    /// Errors of mkdirat(2), except for a folder that exists.
    pub fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.meet(Call::Create)?;
        match rustix::fs::mkdirat(&self.opened().fd, path, FOLDER_MODE) {
            Err(Errno::EXIST) => Ok(()),
            result => Ok(result?),
        }
    }

    /// The properties of the file at a path. Links that stay beneath the directory are followed.
    ///
    /// # Errors
    /// Errors of openat2(2).
    pub fn stat(&self, path: &Path) -> io::Result<Metadata> {
        self.meet(Call::Stat)?;
        let how = OpenHow { flags: OFlags::PATH, links: path::Links::Beneath };
        let fd = path::open(self.opened().fd.as_fd(), path, &how, false)?;
        Ok(Metadata::new(&rustix::fs::fstat(&fd)?))
    }

    /// The files of a folder in no particular order, at most `limit` of them.
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

    /// Writes changes of the names in a folder to the disk.
    ///
    /// # Errors
    /// Errors of fsync(2).
    pub fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = self.open(path, OpenHow::read())?;
        self.meet(Call::Sync)?;
        Ok(rustix::fs::fsync(folder.as_fd())?)
    }

    /// The number of bytes on the file system that are free for this process.
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

/// Applies the fault that a test injects into a call. Returns the most bytes that the call may transfer.
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
