//! The folder with samples of comparisons. Number and size of the samples are bounded, old samples expire, and only the
//! user of the process can read them.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::BuildHasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use foregate_compare::Key;
use serde_json::Value;

use crate::random;
use crate::settings::CompareSamples;

/// The end of the names of samples.
const END: &str = ".json";
/// The file of the key of the hashes.
const KEY: &str = "key";
/// The low bits of a sample's number, which count the samples of one second. The higher bits are the second.
const COUNT_BITS: u32 = 20;
/// The most bytes of one sample.
const SAMPLE_MOST: u64 = 1 << 20;

/// One sample in the folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SampleEntry {
    number: u64,
    group: u32,
    size: u64,
}

/// The folder with its samples.
#[derive(Debug)]
pub(super) struct SampleStore {
    folder: PathBuf,
    key: Key,
    /// The oldest first.
    entries: VecDeque<SampleEntry>,
    bytes: u64,
    limits: (u64, usize, u64),
}

/// 32 random bytes.
pub(super) fn random_key() -> [u8; 32] {
    let mut bytes = [0; 32];
    for piece in bytes.chunks_exact_mut(8) {
        piece.copy_from_slice(&random::number().to_ne_bytes());
    }
    bytes
}

impl SampleStore {
    /// Opens a folder, and creates it if necessary. Finds the samples in it.
    pub fn open(settings: &CompareSamples) -> io::Result<Self> {
        let folder = settings.folder.clone();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut entries = Vec::new();
        for file in fs::read_dir(&folder)?.flatten() {
            let (Some((number, group)), Ok(known)) =
                (parse(&file.file_name().to_string_lossy()), file.metadata())
            else {
                continue;
            };
            entries.push(SampleEntry { number, group, size: known.len() });
        }
        entries.sort_unstable();
        let bytes = entries.iter().map(|entry| entry.size).sum();
        let key = Key::new(read_key(&folder)?);
        let mut store = Self { folder, key, entries: entries.into(), bytes, limits: (0, 0, 0) };
        store.set_limits(settings);
        Ok(store)
    }

    pub fn set_limits(&mut self, settings: &CompareSamples) {
        self.limits = (settings.size, settings.each, settings.keep.as_secs());
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Writes a sample of a group and returns its number. Older samples are removed if there are too many.
    pub fn write(&mut self, group: &str, sample: &Value, now: u64) -> io::Result<u64> {
        self.expire(now);
        let (size, each, _) = self.limits;
        let text = serde_json::to_vec_pretty(sample)?;
        let length = text.len() as u64;
        let group = group_number(group);
        let of_group = self.entries.iter().filter(|entry| entry.group == group).count();
        if of_group >= each
            && let Some(oldest) = self.entries.iter().position(|entry| entry.group == group)
        {
            self.remove(oldest);
        }
        while self.bytes + length > size && !self.entries.is_empty() {
            self.remove(0);
        }
        let last = self.entries.back().map_or(0, |entry| entry.number);
        let number = (now << COUNT_BITS).max(last + 1);
        let path = self.path(number, group);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(&text));
        if let Err(error) = written {
            // An incomplete sample is useless.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.bytes += length;
        self.entries.push_back(SampleEntry { number, group, size: length });
        Ok(number)
    }

    /// Returns true if the group is not full, or if its last sample was not written in this second.
    pub fn wants(&self, group: &str, now: u64) -> bool {
        let group = group_number(group);
        let mut of_group = self.entries.iter().rev().filter(|entry| entry.group == group);
        let is_recent = of_group.next().is_some_and(|last| last.number >> COUNT_BITS >= now);
        !is_recent || of_group.count() + 1 < self.limits.1
    }

    /// Removes the samples that are too old.
    pub fn expire(&mut self, now: u64) {
        let oldest = now.saturating_sub(self.limits.2) << COUNT_BITS;
        while self.entries.front().is_some_and(|entry| entry.number < oldest) {
            self.remove(0);
        }
    }

    /// A sample.
    pub fn read(&self, number: u64) -> Option<Value> {
        let entry = self.entries.iter().find(|entry| entry.number == number)?;
        let file = File::open(self.path(number, entry.group)).ok()?;
        serde_json::from_reader(file.take(SAMPLE_MOST * 4)).ok()
    }

    fn remove(&mut self, at: usize) {
        let Some(entry) = self.entries.remove(at) else { return };
        self.bytes = self.bytes.saturating_sub(entry.size);
        // Another process may have removed it.
        let _ = fs::remove_file(self.path(entry.number, entry.group));
    }

    fn path(&self, number: u64, group: u32) -> PathBuf {
        self.folder.join(format!("{number:x}-{group:08x}{END}"))
    }
}

fn group_number(name: &str) -> u32 {
    foldhash::fast::FixedState::with_seed(0).hash_one(name) as u32
}

fn parse(name: &str) -> Option<(u64, u32)> {
    let (number, group) = name.strip_suffix(END)?.split_once('-')?;
    Some((u64::from_str_radix(number, 16).ok()?, u32::from_str_radix(group, 16).ok()?))
}

/// Reads the key of a folder, or creates it. Because the key is kept, the hashes of a value are equal across restarts.
fn read_key(folder: &Path) -> io::Result<[u8; 32]> {
    let path = folder.join(KEY);
    let mut key = [0; 32];
    if let Ok(mut file) = File::open(&path) {
        file.read_exact(&mut key)?;
        return Ok(key);
    }
    let key = random_key();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn settings(folder: &Path) -> CompareSamples {
        CompareSamples {
            folder: folder.join("samples"),
            size: 1000,
            each: 3,
            keep: Duration::from_secs(60),
            raw: false,
        }
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder.join("samples")).unwrap().count() - 1
    }

    #[test]
    fn samples_are_bounded_by_number_and_size_and_expire() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = SampleStore::open(&settings(folder.path())).unwrap();
        let numbers: Vec<_> =
            (0..5).map(|at| store.write("a", &json!({ "at": at }), 1000).unwrap()).collect();
        assert_eq!((names(folder.path()), store.read(numbers[1])), (3, None));
        assert!(!store.wants("a", 1000) && store.wants("a", 1001) && store.wants("b", 1000));
        assert_eq!(store.read(numbers[4]), Some(json!({ "at": 4 })));
        let path = store.path(numbers[4], store.entries.back().unwrap().group);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // The next process finds them, and its hashes are the same.
        let (bytes, hash) = (store.bytes, store.key().hash(b"x"));
        let mut store = SampleStore::open(&settings(folder.path())).unwrap();
        assert_eq!((store.bytes, store.key().hash(b"x")), (bytes, hash));
        let long = json!("x".repeat(600));
        for group in ["b", "c", "d"] {
            store.write(group, &long, 1001).unwrap();
        }
        assert_eq!((names(folder.path()), store.bytes < 1000), (1, true));
        store.expire(1062);
        assert_eq!((names(folder.path()), store.bytes), (0, 0));
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("samples"), "no folder").unwrap();
        assert!(SampleStore::open(&settings(folder.path())).is_err());
    }
}
