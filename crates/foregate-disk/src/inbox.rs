//! The file `inbox`, in which other processes leave purges for the process that holds the directory.
//!
//! It has records like the journal: `length 4 | its complement 4 | sum 8 | purge`. A process locks the file
//! before it writes or empties it. The file is never removed.

use std::io;
use std::path::Path;

use foregate_cache::{Floors, Purge, Strength};
use foregate_io::{BlockingDirectory, OpenHow, RawFile};

use crate::bytes::Reader;
use crate::sums::Seed;

const NAME: &str = "inbox";
/// The most bytes of the file. When it would be longer, one purge of everything replaces all its purges.
const MAX: u64 = 8 << 20;

fn seed() -> Seed {
    Seed::new(&[0; 16], b'q', 0)
}

/// Adds a purge. Returns false if another process has the file locked.
pub(crate) fn leave(directory: &BlockingDirectory, purge: &[u8]) -> io::Result<bool> {
    let file = match directory.open(Path::new(NAME), OpenHow::write()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match directory.open(Path::new(NAME), OpenHow::create()) {
                // Another process has just made the file.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                file => file?,
            }
        }
        file => file?,
    };
    if !file.lock()? {
        return Ok(false);
    }
    let mut end = file.stat()?.length;
    let mut everything = Vec::new();
    let mut purge = purge;
    if end > MAX {
        let floors = Floors::default();
        Purge::All.write(Strength::Hard, floors.purge(&Purge::All, Strength::Hard), &mut everything);
        (end, purge) = (0, &everything);
        empty(directory)?;
    }
    let length = purge.len() as u32;
    let mut out = length.to_le_bytes().to_vec();
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(&seed().sum(0, 1, purge).to_le_bytes());
    out.extend_from_slice(purge);
    file.write_at(&out, end)?;
    Ok(true)
}

/// The purges in the file, and the lock under which they can be [removed](Received::done).
pub(crate) struct Received {
    /// The bytes of each purge, for [`Floors::repeat`]. `None` if the file is damaged: everything has to be purged
    /// then.
    pub(crate) purges: Option<Vec<Vec<u8>>>,
    _lock: RawFile,
}

/// Reads all purges of the file. `None` if there are none, or if another process has the file locked.
pub(crate) fn receive(directory: &BlockingDirectory) -> io::Result<Option<Received>> {
    let file = match directory.open(Path::new(NAME), OpenHow::write()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if file.metadata().length == 0 || !file.lock()? {
        return Ok(None);
    }
    let length = file.stat()?.length.min(2 * MAX);
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(Received { purges: read_all(&bytes), _lock: file }))
}

impl Received {
    /// Applies the purges. Returns the bytes of each, for a journal.
    pub(crate) fn apply(&self, floors: &Floors) -> Vec<Vec<u8>> {
        let all = self
            .purges
            .as_ref()
            .map(|purges| purges.iter().map(|purge| floors.repeat(purge)).collect::<Option<Vec<_>>>());
        all.flatten().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            Purge::All.write(Strength::Hard, floors.purge(&Purge::All, Strength::Hard), &mut bytes);
            vec![bytes]
        })
    }

    /// Empties the file, once the purges are in the journal.
    pub(crate) fn done(self, directory: &BlockingDirectory) -> io::Result<()> {
        empty(directory)
    }
}

fn empty(directory: &BlockingDirectory) -> io::Result<()> {
    directory.open(Path::new(NAME), OpenHow::replace()).map(drop)
}

fn read_all(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut from = Reader(bytes);
    let mut purges = Vec::new();
    while !from.0.is_empty() {
        let length = from.u32()?;
        let (complement, sum) = (from.u32()?, from.u64()?);
        let purge = from.take(length as usize)?;
        if length != !complement || seed().sum(0, 1, purge) != sum {
            return None;
        }
        purges.push(purge.to_vec());
    }
    Some(purges)
}
