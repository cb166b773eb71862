//! The folder behind the file system: everything happens there under the same name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::delays::{Delays, Operation};

/// How long the kernel keeps names and properties. Nothing else changes the folder.
const KEPT: Duration = Duration::from_secs(3600);
/// Requests that the kernel has under way without a caller that waits for them.
const BACKGROUND: u16 = 1024;
/// Blocks of the file system, and their length.
const BLOCKS: u64 = 1 << 40;
const BLOCK: u32 = 4096;

/// A folder as a file system.
pub struct Folder {
    delays: Arc<Delays>,
    names: Mutex<Names>,
    open: Mutex<HashMap<u64, Arc<OpenFile>>>,
    handles: AtomicU64,
}

/// The paths that the kernel knows, by its numbers for them. They stay until the end.
struct Names {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    last: u64,
}

struct OpenFile {
    file: File,
    path: PathBuf,
}

impl Names {
    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        self.paths.get(&number.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn number(&mut self, path: PathBuf) -> INodeNo {
        let last = &mut self.last;
        let number = *self.numbers.entry(path.clone()).or_insert_with(|| {
            *last += 1;
            *last
        });
        self.paths.insert(number, path);
        INodeNo(number)
    }
}

/// A lock is taken for single changes, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Folder {
    /// The file system with the contents of a folder.
    pub fn new(folder: &Path, delays: Arc<Delays>) -> Self {
        let mut names = Names { paths: HashMap::new(), numbers: HashMap::new(), last: 0 };
        // The first number, 1, is that of the root.
        names.number(folder.to_owned());
        let (names, open, handles) = (Mutex::new(names), Mutex::default(), AtomicU64::new(0));
        Self { delays, names, open, handles }
    }

    fn path(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(lock(&self.names).path(parent)?.join(name))
    }

    /// The properties of a path that may be new.
    fn entry(&self, path: PathBuf) -> io::Result<FileAttr> {
        let metadata = path.symlink_metadata()?;
        Ok(attributes(lock(&self.names).number(path), &metadata))
    }

    fn keep(&self, file: File, path: PathBuf) -> FileHandle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(handle, Arc::new(OpenFile { file, path }));
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> io::Result<Arc<OpenFile>> {
        let opened = lock(&self.open).get(&handle.0).cloned();
        opened.ok_or_else(|| io::Error::from_raw_os_error(Errno::EBADF.into()))
    }

    fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        remove: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(parent, name)?;
        remove(&path)?;
        lock(&self.names).numbers.remove(&path);
        Ok(())
    }

    /// Moves a file. Folders keep their names.
    fn rename(&self, from: PathBuf, to: PathBuf) -> io::Result<()> {
        if from.is_dir() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        std::fs::rename(&from, &to)?;
        let mut names = lock(&self.names);
        if let Some(number) = names.numbers.remove(&from) {
            names.paths.insert(number, to.clone());
            names.numbers.insert(to, number);
        }
        Ok(())
    }

    fn create(&self, path: PathBuf, mode: u32, flags: i32) -> io::Result<(FileAttr, FileHandle)> {
        let file = options(OpenFlags(flags)).create(true).mode(mode).open(&path)?;
        let attributes = self.entry(path.clone())?;
        Ok((attributes, self.keep(file, path)))
    }

    fn open(&self, number: INodeNo, flags: OpenFlags) -> io::Result<(File, PathBuf)> {
        let path = lock(&self.names).path(number)?;
        Ok((options(flags).open(&path)?, path))
    }

    fn set(
        &self,
        number: INodeNo,
        mode: Option<u32>,
        size: Option<u64>,
        to: Option<TimeOrNow>,
    ) -> io::Result<FileAttr> {
        let path = lock(&self.names).path(number)?;
        if let Some(mode) = mode {
            std::fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
        }
        if size.is_some() || to.is_some() {
            let file = OpenOptions::new().write(true).open(&path)?;
            size.map_or(Ok(()), |size| file.set_len(size))?;
            let time = to.map(|to| match to {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            });
            time.map_or(Ok(()), |time| file.set_modified(time))?;
        }
        self.entry(path)
    }
}

/// How a file is opened. The kernel has decided about truncation.
fn options(flags: OpenFlags) -> OpenOptions {
    /// `O_ACCMODE`, and its values for reading and for writing alone.
    const ACCESS: i32 = 3;
    let mut options = OpenOptions::new();
    let access = flags.0 & ACCESS;
    // Files that are only written are read, too: the kernel may ask for parts of pages.
    options.read(true).write(access != 0);
    options
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
    UNIX_EPOCH + since
}

fn attributes(number: INodeNo, metadata: &Metadata) -> FileAttr {
    let kind = FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile);
    let changed = time(metadata.ctime(), metadata.ctime_nsec());
    FileAttr {
        ino: number,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: changed,
        crtime: changed,
        kind,
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// Answers with a result.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $call:expr) => {
        match $result {
            Ok($value) => $call,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for Folder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that permits fewer has its own number.
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let entry = self.path(parent, name).and_then(|path| self.entry(path));
        answer!(reply, entry, entry => reply.entry(&KEPT, &entry, Generation(0)));
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let metadata = match handle {
            Some(handle) => self.opened(handle).and_then(|opened| opened.file.metadata()),
            None => lock(&self.names).path(number).and_then(|path| path.symlink_metadata()),
        };
        answer!(reply, metadata, metadata => reply.attr(&KEPT, &attributes(number, &metadata)));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        answer!(reply, self.set(number, mode, size, modified), set => reply.attr(&KEPT, &set));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.path(parent, name).and_then(|path| {
            std::fs::DirBuilder::new().mode(mode & !umask).create(&path)?;
            self.entry(path)
        });
        answer!(reply, made, entry => reply.entry(&KEPT, &entry, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, |path| std::fs::remove_file(path)), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, |path| std::fs::remove_dir(path)), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let paths = self.path(parent, name).and_then(|from| Ok((from, self.path(new_parent, new_name)?)));
        answer!(reply, paths.and_then(|(from, to)| self.rename(from, to)), () => reply.ok());
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // The file is open before the delay, so that a name that goes meanwhile does not matter.
        match self.open(number, flags) {
            Ok((file, path)) => {
                let handle = self.keep(file, path.clone());
                let work = move || reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
                self.delays.perform(&Operation::Open(&path), work);
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.path(parent, name).and_then(|path| self.create(path, mode & !umask, flags));
        answer!(reply, made, (entry, handle) => {
            reply.created(&KEPT, &entry, Generation(0), handle, FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let opened = match self.opened(handle) {
            Ok(opened) => opened,
            Err(error) => return reply.error(Errno::from(error)),
        };
        let path = opened.path.clone();
        let work = move || {
            let mut buffer = vec![0; size as usize];
            match opened.file.read_at(&mut buffer, offset) {
                Ok(read) => reply.data(buffer.get(..read).unwrap_or_default()),
                Err(error) => reply.error(Errno::from(error)),
            }
        };
        self.delays.perform(&Operation::Read(&path, offset), work);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.opened(handle).and_then(|opened| opened.file.write_all_at(data, offset));
        answer!(reply, written, () => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.opened(handle).and_then(|opened| opened.file.sync_data()), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let path = lock(&self.names).path(number);
        let list = path.and_then(|path| std::fs::read_dir(path)?.collect::<io::Result<Vec<_>>>());
        answer!(reply, list, list => {
            for (index, entry) in list.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
                let kind = entry.file_type().ok().and_then(FileType::from_std).unwrap_or(FileType::RegularFile);
                let number = lock(&self.names).number(entry.path());
                if reply.add(number, index as u64 + 1, kind, entry.file_name()) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK, 255, BLOCK);
    }
}
