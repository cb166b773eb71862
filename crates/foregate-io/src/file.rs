//! Open files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::blocking::{Fast, meet};
use crate::directory::DirectoryCore;
use crate::error::{Error, Result};
use crate::faults::{Call, Faults};
use crate::metadata::Metadata;
use crate::operation::Operation;
use crate::sys;
use crate::transfer::{Data, Transfer};

/// A file with operations that block the calling thread.
pub struct RawFile {
    fd: OwnedFd,
    metadata: Metadata,
    faults: Option<Arc<dyn Faults>>,
}

impl std::fmt::Debug for RawFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawFile").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl RawFile {
    pub(crate) fn new(fd: OwnedFd, metadata: Metadata, faults: Option<Arc<dyn Faults>>) -> Self {
        Self { fd, metadata, faults }
    }

    pub(crate) fn faults(&self) -> Option<&dyn Faults> {
        self.faults.as_deref()
    }

    /// The properties at the moment of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The properties now.
    ///
    /// # Errors
    /// Errors of fstat(2).
    pub fn stat(&self) -> io::Result<Metadata> {
        Ok(Metadata::new(&rustix::fs::fstat(&self.fd)?))
    }

    /// Fills the buffer; reads fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// Errors of pread(2).
    pub fn read_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while !buffer.is_empty() {
            let result = meet(self.faults.as_deref(), Call::Read).and_then(|most| {
                let most = most.clamp(1, buffer.len());
                let part = buffer.get_mut(..most).unwrap_or_default();
                Ok(rustix::io::pread(&self.fd, part, offset)?)
            });
            match result {
                Ok(0) => break,
                Ok(length) => {
                    read += length;
                    offset += length as u64;
                    buffer = buffer.get_mut(length..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// Errors of pwrite(2). Some bytes may have been written.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let result = meet(self.faults.as_deref(), Call::Write).and_then(|most| {
                let part = bytes.get(..most.clamp(1, bytes.len())).unwrap_or_default();
                Ok(rustix::io::pwrite(&self.fd, part, offset)?)
            });
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    offset += length as u64;
                    bytes = bytes.get(length..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the content to the disk.
    ///
    /// # Errors
    /// Errors of fdatasync(2).
    pub fn sync(&self) -> io::Result<()> {
        meet(self.faults.as_deref(), Call::Sync)?;
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    /// Locks the file for this process. Returns false if another process has locked it.
    ///
    /// # Errors
    /// Errors of flock(2).
    pub fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            result => Ok(result.map(|()| true)?),
        }
    }
}

impl AsFd for RawFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An open file. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct File {
    raw: Arc<RawFile>,
    directory: Arc<DirectoryCore>,
    fast: Fast,
}

/// Set once the kernel refuses `cachestat`. From then on only `RWF_NOWAIT` is used.
static WITHOUT_CACHESTAT: AtomicBool = AtomicBool::new(false);

impl File {
    pub(crate) fn new(raw: RawFile, directory: Arc<DirectoryCore>, fast: Fast) -> Self {
        Self { raw: Arc::new(raw), directory, fast }
    }

    /// The properties at the moment of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.raw.metadata
    }

    /// This file, with blocking operations for threads that may wait.
    pub fn blocking(&self) -> &RawFile {
        &self.raw
    }

    /// Reads a range of the file; the result is shorter only at the end of the file. If the whole range is in memory, the
    /// calling thread reads it at once.
    pub fn read(&self, offset: u64, length: usize) -> Operation<Vec<u8>> {
        if let Some(bytes) = self.read_cached(offset, length) {
            return Operation::ready(Ok(bytes));
        }
        let (operation, slot) = Operation::waiting();
        self.transfer(offset, Data::Read { buffer: Vec::new(), length, slot });
        operation
    }

    /// Reads a range of the file if the whole range is in memory; `None` otherwise. Never waits for a disk.
    pub fn read_cached(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        if !self.is_cached(offset, length as u64) || self.raw.faults.is_some() {
            return None;
        }
        let mut buffer = Vec::with_capacity(length);
        let read = if self.fast == Fast::Memory {
            buffer.resize(length, 0);
            rustix::io::pread(self, &mut *buffer, offset)
        } else {
            sys::read_now(self.as_fd(), &mut buffer, offset, length)
        };
        // A short result need not mean the end of the file: some kernels return 0 before it.
        let whole = read.is_ok_and(|read| read == length);
        if whole {
            self.directory.counters.inline.fetch_add(1, Ordering::Relaxed);
        } else if read == Err(Errno::OPNOTSUPP) || read == Err(Errno::PERM) || read == Err(Errno::NOSYS) {
            self.directory.slow.store(true, Ordering::Relaxed);
        }
        whole.then_some(buffer)
    }

    /// Returns true if a range of the file is in memory, so that a `sendfile` of it does not wait for a disk.
    pub fn is_cached(&self, offset: u64, length: u64) -> bool {
        match self.fast {
            Fast::No | Fast::Properties => false,
            Fast::Memory => true,
            Fast::Pages if self.directory.slow.load(Ordering::Relaxed) => false,
            Fast::Pages if WITHOUT_CACHESTAT.load(Ordering::Relaxed) => true,
            Fast::Pages => self.pages_are_cached(offset, length),
        }
    }

    fn pages_are_cached(&self, offset: u64, length: u64) -> bool {
        let page = rustix::param::page_size() as u64;
        let needed = (offset + length).div_ceil(page) - offset / page;
        match sys::cached_pages(self.as_fd(), offset, length) {
            Ok(cached) => cached >= needed,
            Err(Errno::NOSYS | Errno::PERM) => {
                WITHOUT_CACHESTAT.store(true, Ordering::Relaxed);
                true
            }
            // The file does not support `cachestat`.
            Err(_) => false,
        }
    }

    /// Returns true if the content, the names or the permissions of the file have changed since it was opened. `None` if
    /// the file system might make the caller wait for the answer.
    pub fn has_changed(&self) -> Option<bool> {
        if self.fast == Fast::No || self.raw.faults.is_some() {
            return None;
        }
        Some(self.raw.stat().is_ok_and(|now| now != self.raw.metadata))
    }

    /// Writes all bytes.
    pub fn write(&self, bytes: impl AsRef<[u8]> + Send + 'static, offset: u64) -> Operation<()> {
        let (operation, slot) = Operation::waiting();
        self.transfer(offset, Data::Write { bytes: Box::new(bytes), written: 0, slot });
        operation
    }

    fn transfer(&self, offset: u64, data: Data) {
        let transfer = Transfer::new(&self.raw, offset, data, &self.directory.counters, self.fast);
        self.directory.transfer(transfer);
    }

    /// Writes the content to the disk.
    pub fn sync(&self) -> Operation<()> {
        let raw = Arc::clone(&self.raw);
        self.directory.submit(move || Ok(raw.sync()?))
    }

    /// Gives a name to a file that was made without one.
    pub fn link(&self, path: &std::path::Path) -> Operation<()> {
        let (raw, blocking, path) = (Arc::clone(&self.raw), self.directory.blocking.clone(), path.to_owned());
        self.directory.submit(move || Ok(blocking.link(&raw, &path)?))
    }

    /// The properties now.
    ///
    /// # Errors
    /// Errors of fstat(2), which does not wait for a disk on local file systems.
    pub fn stat(&self) -> Result<Metadata> {
        self.raw.stat().map_err(Error::Io)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}
