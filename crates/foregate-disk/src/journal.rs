//! The journal, a file with the name `purges`: all purges in their order, so that they survive a kill of the
//! process.
//!
//! It begins with `magic 8 | latest number 8 | sum 8`. Each purge follows as
//! `length 4 | its complement 4 | sum 8 | purge`. A caller gets its answer only after the purge was written.

use std::io;
use std::path::Path;

use foregate_cache::{Floors, Sequence};
use foregate_io::{BlockingDirectory, OpenHow, RawFile};

use crate::bytes::Reader;
use crate::sums::Seed;

const NAME: &str = "purges";
const TEMPORARY: &str = "purges.new";
const MAGIC: [u8; 8] = *b"FGPURGES";
const START: usize = 24;
/// A longer journal is replaced by a new one with the floors that still count.
const MAX: u64 = 8 << 20;
/// The longest file that is read. A longer file was not written by this program.
const MOST: u64 = 1 << 30;

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: RawFile,
    seed: Seed,
    end: u64,
}

/// The inode and the length of the file.
pub(crate) type JournalStamp = (u64, u64);

/// The state of a journal that an earlier process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalState {
    Whole,
    /// Purges may be missing, so none of the objects may be used.
    Damaged,
}

impl Journal {
    /// Sets the floors of earlier processes.
    pub(crate) fn restore(
        directory: &BlockingDirectory,
        store: &[u8; 16],
        floors: &Floors,
    ) -> io::Result<JournalState> {
        let file = match directory.open(Path::new(NAME), OpenHow::read()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalState::Damaged),
            Err(error) => return Err(error),
        };
        let length = file.metadata().length;
        if length > MOST {
            return Ok(JournalState::Damaged);
        }
        let mut bytes = vec![0; length as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let whole = restore(&bytes, Seed::new(store, b'p', 0), floors);
        Ok(if whole { JournalState::Whole } else { JournalState::Damaged })
    }

    /// The bytes of the file. `None` if the file is missing, too long, or unchanged since `known`.
    pub(crate) fn content(
        directory: &BlockingDirectory,
        known: JournalStamp,
    ) -> io::Result<Option<(JournalStamp, Vec<u8>)>> {
        let file = match directory.open(Path::new(NAME), OpenHow::read()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let now = (file.metadata().inode, file.metadata().length);
        if now == known || now.1 > MOST {
            return Ok(None);
        }
        let mut bytes = vec![0; now.1 as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Some((now, bytes)))
    }

    /// Passes each purge with its number to `purge`. Returns the latest number, and true if everything could be
    /// read.
    pub(crate) fn each(
        bytes: &[u8],
        store: &[u8; 16],
        purge: &mut dyn FnMut(u64, &[u8]),
    ) -> (Option<u64>, bool) {
        let mut latest = None;
        let whole = read(bytes, Seed::new(store, b'p', 0), &mut |number, bytes| {
            latest = latest.max(Some(number));
            if let Some(bytes) = bytes {
                purge(number, bytes);
            }
            true
        });
        (latest, whole)
    }

    /// Writes a new journal with the present floors.
    pub(crate) fn create(
        directory: &BlockingDirectory,
        store: &[u8; 16],
        floors: &Floors,
    ) -> io::Result<Self> {
        let seed = Seed::new(store, b'p', 0);
        // Read the latest number before the floors. In the other order, a purge in between would be covered by the
        // number, but missing among the floors.
        let latest = floors.begin().get();
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&latest.to_le_bytes());
        let sum = seed.sum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        floors.save(|purge| append(&mut out, seed, 0, purge));
        let file = directory.open(Path::new(TEMPORARY), OpenHow::replace())?;
        file.write_at(&out, 0)?;
        file.sync()?;
        directory.rename(Path::new(TEMPORARY), Path::new(NAME))?;
        Ok(Self { file, seed, end: out.len() as u64 })
    }

    /// Appends a purge. From then on, it survives a kill of the process.
    pub(crate) fn add(&mut self, purge: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        append(&mut out, self.seed, self.end, purge);
        self.file.write_at(&out, self.end)?;
        self.end += out.len() as u64;
        Ok(())
    }

    pub(crate) fn is_long(&self) -> bool {
        self.end > MAX
    }
}

/// Removes the journal, since it misses a purge: the next process then uses no stored object.
pub(crate) fn remove(directory: &BlockingDirectory) -> io::Result<()> {
    directory.unlink(Path::new(NAME))
}

fn append(out: &mut Vec<u8>, seed: Seed, base: u64, purge: &[u8]) {
    let offset = base + out.len() as u64;
    let length = purge.len() as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(&seed.sum(offset, 1, purge).to_le_bytes());
    out.extend_from_slice(purge);
}

/// Restores the floors from the bytes of a journal. Returns false if a purge may be missing. The last record
/// may be incomplete, since its purge was not confirmed to any caller.
fn restore(bytes: &[u8], seed: Seed, floors: &Floors) -> bool {
    let readable = read(bytes, seed, &mut |number, purge| match purge {
        None => {
            floors.advance(Sequence::new(number));
            true
        }
        Some(purge) => floors.restore(purge),
    });
    readable && bytes.len() >= START
}

/// Passes the latest number from the start of the file to `each`, and then each purge with its number.
fn read(bytes: &[u8], seed: Seed, each: &mut dyn FnMut(u64, Option<&[u8]>) -> bool) -> bool {
    let mut from = Reader(bytes);
    let (Some(MAGIC), Some(latest), Some(sum)) = (from.array(), from.u64(), from.u64()) else { return false };
    if seed.sum(0, 0, bytes.get(..16).unwrap_or_default()) != sum {
        return false;
    }
    let mut whole = each(latest, None);
    while !from.0.is_empty() {
        let offset = (bytes.len() - from.0.len()) as u64;
        let (Some(length), Some(complement)) = (from.u32(), from.u32()) else { break };
        if length != !complement {
            return false;
        }
        let (Some(sum), Some(purge)) = (from.u64(), from.take(length as usize)) else { break };
        let number = purge.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        whole &= seed.sum(offset, 1, purge) == sum && each(number, Some(purge));
    }
    whole
}
