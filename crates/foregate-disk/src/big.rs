//! Objects in files of their own: `body | sums of its blocks | head | tail`. A file gets its name
//! when it is complete, so an unfinished file leaves nothing behind.
//!
//! The tail is `sum 8 | magic 4 | head length 4 | key 16 | serial 8 | sequence 8 | body length 8 |
//! start of the sums 8`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use foregate_cache::{Body, Key, Object, Sequence};
use foregate_io::{Directory, Error, File, OpenHow, RawFile};

use crate::bytes::Reader;
use crate::sums::Seed;

/// The folder of these files. It has subfolders that are named after the last two digits of the files' numbers.
pub(crate) const FOLDER: &str = "big";
/// The bytes of a body that share a checksum.
pub(crate) const BLOCK: u64 = 64 * 1024;
pub(crate) const TAIL: u64 = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"FGBg");
/// The bytes that are read first, from the end of the file. They usually contain the head and the sums.
const FIRST_READ: u64 = 16 * 1024;
/// The most bytes after the body. Checksums for 256 GiB fit into them.
const MOST: u64 = 64 << 20;

/// The tail of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) key: Key,
    pub(crate) serial: u64,
    pub(crate) sequence: Sequence,
    pub(crate) head: u32,
    pub(crate) body: u64,
    pub(crate) sums: u64,
}

/// A verified file, without its body.
#[derive(Debug)]
pub(crate) struct VerifiedFile {
    pub(crate) tail: Tail,
    pub(crate) object: Object,
    pub(crate) sums: Box<[u64]>,
    pub(crate) length: u64,
}

pub(crate) fn folder(number: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{:02x}", number & 0xff))
}

pub(crate) fn path(number: u64) -> PathBuf {
    folder(number).join(format!("{number:016x}"))
}

/// Returns whether [`folder`] makes folders with such a name.
pub(crate) fn is_folder(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(crate) fn seed(store: &[u8; 16], number: u64) -> Seed {
    Seed::new(store, b'b', number)
}

impl Tail {
    pub(crate) fn read(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut from = Reader(bytes);
        let sum = from.u64()?;
        if from.u32()? != MAGIC {
            return None;
        }
        let head = from.u32()?;
        let key = Key::from_bits(from.u128()?);
        let (serial, sequence) = (from.u64()?, Sequence::new(from.u64()?));
        Some((sum, Self { key, serial, sequence, head, body: from.u64()?, sums: from.u64()? }))
    }

    /// Everything after the body.
    pub(crate) fn encode(&self, sums: &[u64], head: &[u8], seed: Seed) -> Vec<u8> {
        let mut out = Vec::with_capacity(size_of_val(sums) + head.len() + TAIL as usize);
        for sum in sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        out.extend_from_slice(head);
        let mut tail = MAGIC.to_le_bytes().to_vec();
        tail.extend_from_slice(&self.head.to_le_bytes());
        tail.extend_from_slice(&self.key.to_bits().to_le_bytes());
        tail.extend_from_slice(&self.serial.to_le_bytes());
        tail.extend_from_slice(&self.sequence.get().to_le_bytes());
        tail.extend_from_slice(&self.body.to_le_bytes());
        tail.extend_from_slice(&self.sums.to_le_bytes());
        let sum = self.sum(seed, &out, &tail);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&tail);
        out
    }

    fn sum(&self, seed: Seed, front: &[u8], tail: &[u8]) -> u64 {
        seed.sum(self.sums, seed.sum(u64::MAX, 0, tail), front)
    }

    /// The number of bytes after the body. `None` if the numbers in the tail do not fit the length of the file.
    fn behind(&self, length: u64) -> Option<u64> {
        let sums = self.body.div_ceil(BLOCK).checked_mul(size_of::<u64>() as u64)?;
        let behind = sums.checked_add(u64::from(self.head))?.checked_add(TAIL)?;
        (behind <= MOST && self.sums >= self.body && self.sums.checked_add(behind)? == length)
            .then_some(behind)
    }
}

/// Verifies everything after the body. `bytes` end with the file.
fn verify(bytes: &[u8], seed: Seed, length: u64) -> Option<VerifiedFile> {
    let (front, last) = bytes.split_at_checked(bytes.len().checked_sub(TAIL as usize)?)?;
    let (sum, tail) = Tail::read(last)?;
    tail.behind(length).filter(|&behind| behind == bytes.len() as u64)?;
    if tail.sum(seed, front, last.get(8..)?) != sum {
        return None;
    }
    let (sums, head) = front.split_at_checked(front.len() - tail.head as usize)?;
    let sums = sums.as_chunks().0.iter().map(|sum| u64::from_le_bytes(*sum)).collect();
    Some(VerifiedFile { tail, object: Object::read(head, Body::default())?, sums, length })
}

/// Reads and verifies everything after the body. It blocks. `None` for a damaged file.
pub(crate) fn open_blocking(raw: &RawFile, seed: Seed) -> io::Result<Option<VerifiedFile>> {
    let length = raw.metadata().length;
    let read = |most: u64| -> io::Result<Vec<u8>> {
        let most = most.min(length);
        let mut bytes = vec![0; most as usize];
        raw.read_at(&mut bytes, length - most)?;
        Ok(bytes)
    };
    let bytes = read(TAIL)?;
    let Some(behind) = Tail::read(&bytes).and_then(|(_, tail)| tail.behind(length)) else { return Ok(None) };
    Ok(verify(&read(behind)?, seed, length))
}

/// Opens and verifies a file for a lookup. `Err(None)` means that the file is damaged.
pub(crate) async fn open(
    directory: &Directory,
    number: u64,
    seed: Seed,
) -> Result<(File, VerifiedFile), Option<Error>> {
    let file = directory.open(&path(number), OpenHow::read()).await.map_err(Some)?;
    let length = file.metadata().length;
    let most = length.min(FIRST_READ);
    let mut bytes = file.read(length - most, most as usize).await.map_err(Some)?;
    let tail = bytes.len().checked_sub(TAIL as usize).and_then(|at| Tail::read(bytes.get(at..)?));
    let behind = tail.and_then(|(_, tail)| tail.behind(length)).ok_or(None)?;
    if behind > most {
        bytes = file.read(length - behind, behind as usize).await.map_err(Some)?;
    }
    let at = bytes.len().checked_sub(behind as usize).ok_or(None)?;
    let opened = verify(bytes.get(at..).unwrap_or_default(), seed, length).ok_or(None)?;
    Ok((file, opened))
}

/// The body of an object in a file of its own, which readers share.
#[derive(Clone, Debug)]
pub struct FileBody {
    pub(crate) file: File,
    pub(crate) sums: Arc<[u64]>,
    pub(crate) length: u64,
    pub(crate) seed: Seed,
    pub(crate) reports: Reports,
}

/// The callback to which a body reports that it is damaged.
#[derive(Clone)]
pub(crate) struct Reports(pub(crate) Arc<dyn Fn(Damage) + Send + Sync>);

/// The reason why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A block fails its check.
    Corrupt,
    /// The system refused to read.
    Error,
    /// The disk is too slow at the moment.
    Busy,
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reports")
    }
}

impl FileBody {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads from an offset to the end of its block, at most 64 KiB. The result has verified bytes
    /// only. It is empty at the end of the body.
    ///
    /// # Errors
    /// The reason why the body breaks off here. The object has been removed from the store then,
    /// unless the disk is only slow.
    pub async fn read(&self, offset: u64) -> Result<Bytes, Damage> {
        let (block, within) = (offset / BLOCK, offset % BLOCK);
        let start = block * BLOCK;
        let length = self.length.saturating_sub(start).min(BLOCK);
        let Some(&sum) = self.sums.get(block as usize).filter(|_| offset < self.length) else {
            return Ok(Bytes::new());
        };
        let damage = match self.file.read(start, length as usize).await {
            Ok(bytes) if bytes.len() as u64 == length && self.seed.sum(start, 1, &bytes) == sum => {
                return Ok(Bytes::from(bytes).slice(within as usize..));
            }
            Ok(_) => Damage::Corrupt,
            Err(Error::Busy) => Damage::Busy,
            Err(Error::Io(_)) => Damage::Error,
        };
        (self.reports.0)(damage);
        Err(damage)
    }
}
