//! Writing an object into a file of its own while it arrives.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_cache::Object;
use foregate_io::{BlockingDirectory, Operation, RawFile};
use rustix::io::Errno;

use crate::big::{self, BLOCK, Tail};
use crate::index::Fingerprint;
use crate::inner::Inner;
use crate::stat::add;
use crate::sums::Seed;
use crate::writer::BigFile;

/// Bytes that are collected before they are written. A second buffer of this size may be under way
/// to the disk. A multiple of the length of a block.
const BUFFER: usize = 1 << 20;

/// A body that is being written into a file of its own. If it is dropped before
/// [`finish`](Self::finish), it leaves nothing behind.
#[derive(Debug)]
pub struct Fill {
    inner: Arc<Inner>,
    number: u64,
    seed: Seed,
    file: Option<Target>,
    writing: Option<Operation<Target>>,
    buffer: Vec<u8>,
    sums: Vec<u64>,
    /// Bytes that were passed to the disk.
    written: u64,
    broken: bool,
}

/// The file, and its temporary name if the file system does not support files without a name. If
/// it is dropped before it has its final name, the file is removed.
#[derive(Debug)]
struct Target {
    inner: Arc<Inner>,
    raw: RawFile,
    temporary: Option<PathBuf>,
    /// Bytes that were counted for the file.
    counted: u64,
}

impl Target {
    fn write(&mut self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.raw.write_at(bytes, offset)?;
        let length = bytes.len() as u64;
        self.counted += length;
        add(&self.inner.counters.bytes, length);
        add(&self.inner.counters.written, length);
        Ok(())
    }
}

impl Target {
    /// Hands the file and its counted bytes over to the store.
    fn keep(mut self) {
        (self.temporary, self.counted) = (None, 0);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.inner.counters.bytes.fetch_sub(self.counted, Ordering::Relaxed);
        if let Some(name) = &self.temporary {
            // The result is ignored: if the file remains, the next start removes it.
            drop(self.inner.directory.unlink(name));
        }
    }
}

/// The store did not take the body. The fetch goes on without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRefusal;

impl Fill {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let number = inner.writer.lock().next_number();
        let seed = big::seed(&inner.id, number);
        Self {
            inner,
            number,
            seed,
            file: None,
            writing: None,
            buffer: Vec::new(),
            sums: Vec::new(),
            written: 0,
            broken: false,
        }
    }

    /// Adds bytes. While one buffer of 1 MiB is being written and a second one is full, this waits, so
    /// that the origin is slowed down to the speed of the disk.
    ///
    /// # Errors
    /// The disk failed, is full or too slow. The fill is of no use any more.
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<(), StoreRefusal> {
        while !bytes.is_empty() && !self.broken {
            let room = BUFFER - self.buffer.len();
            let (now, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.buffer.extend_from_slice(now);
            bytes = rest;
            if self.buffer.len() == BUFFER {
                self.write().await?;
            }
        }
        if self.broken { Err(StoreRefusal) } else { Ok(()) }
    }

    /// Begins to write the buffer once the previous buffer has been written.
    async fn write(&mut self) -> Result<(), StoreRefusal> {
        self.wait().await?;
        let buffer = std::mem::take(&mut self.buffer);
        for (at, block) in buffer.chunks(BLOCK as usize).enumerate() {
            self.sums.push(self.seed.sum(self.written + at as u64 * BLOCK, 1, block));
        }
        let (inner, number, offset) = (Arc::clone(&self.inner), self.number, self.written);
        self.written += buffer.len() as u64;
        if self.written > inner.longest() {
            self.broken = true;
            return Err(StoreRefusal);
        }
        let file = self.file.take();
        self.writing = Some(self.inner.directory.run(move |directory| {
            let mut target = match file {
                Some(target) => target,
                None => create(directory, &inner, number)?,
            };
            if !inner.writer.lock().make_room(&inner, buffer.len() as u64) {
                return Err(Errno::NOSPC.into());
            }
            target.write(&buffer, offset)?;
            Ok(target)
        }));
        Ok(())
    }

    /// Waits for the writes that are under way.
    async fn wait(&mut self) -> Result<(), StoreRefusal> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        match writing.await {
            Ok(target) => {
                self.file = Some(target);
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                match error {
                    foregate_io::Error::Busy => add(&self.inner.counters.busy, 1),
                    foregate_io::Error::Io(error) => self.inner.failed(&error),
                }
                Err(StoreRefusal)
            }
        }
    }

    /// Ends the body, and stores it with the head of `object`. The body of `object` is ignored.
    ///
    /// # Errors
    /// The errors of [`push`](Self::push); or the object was purged while it was fetched.
    pub async fn finish(mut self, object: &Object) -> Result<(), StoreRefusal> {
        let length = self.written + self.buffer.len() as u64;
        if !self.buffer.is_empty() || self.file.is_none() && self.writing.is_none() {
            self.write().await?;
        }
        self.wait().await?;
        let mut target = self.file.take().ok_or(StoreRefusal)?;
        let mut head = Vec::new();
        object.write_head(&mut head);
        // The rest of this function only needs the object's text and selecting fields.
        let object = object.with_body(foregate_cache::Body::default());
        let (inner, number, seed) = (Arc::clone(&self.inner), self.number, self.seed);
        let sums = std::mem::take(&mut self.sums);
        let finished = self.inner.directory.run(move |directory| {
            let mut writer = inner.writer.lock();
            inner.lower(object.sequence());
            if !inner.floors.admits(&object) {
                return Ok(0);
            }
            let Ok(key) = writer.place_of(&inner, &object) else { return Ok(0) };
            let tail = Tail {
                key,
                serial: writer.next_serial(),
                sequence: object.sequence(),
                head: head.len() as u32,
                body: length,
                sums: length,
            };
            let behind = tail.encode(&sums, &head, seed);
            target.write(&behind, length)?;
            match &target.temporary {
                Some(name) => directory.rename(name, &big::path(number))?,
                None => directory.link(&target.raw, &big::path(number))?,
            }
            target.keep();
            add(&inner.counters.stored, 1);
            let fingerprint = Fingerprint::of(key);
            let file = BigFile {
                fingerprint,
                bytes: length + behind.len() as u64,
                log: writer.log_of(&inner, fingerprint),
                serial: tail.serial,
                lowest: tail.sequence.get(),
            };
            writer.add_file(&inner, number, file);
            Ok(file.bytes)
        });
        match finished.await {
            Ok(0) => Err(StoreRefusal),
            Ok(_) => Ok(()),
            Err(foregate_io::Error::Busy) => {
                add(&self.inner.counters.busy, 1);
                Err(StoreRefusal)
            }
            Err(foregate_io::Error::Io(error)) => {
                self.inner.failed(&error);
                Err(StoreRefusal)
            }
        }
    }
}

fn create(directory: &BlockingDirectory, inner: &Arc<Inner>, number: u64) -> std::io::Result<Target> {
    let folder = big::folder(number);
    directory.create_folder(&folder)?;
    let (raw, temporary) = match directory.create_nameless(&folder) {
        Ok(raw) => (raw, None),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::ISDIR)) => {
            let name = big::path(number).with_extension("part");
            (directory.open(&name, foregate_io::OpenHow::create())?, Some(name))
        }
        Err(error) => return Err(error),
    };
    Ok(Target { inner: Arc::clone(inner), raw, temporary, counted: 0 })
}
