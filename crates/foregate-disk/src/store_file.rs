//! The file `store`: the identity of a store, its secret, and its clock, which the next process
//! continues.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_cache::{CacheTime, Secret};
use foregate_io::{BlockingDirectory, OpenHow};
use rustix::time::{ClockId, clock_gettime};

use crate::bytes::Reader;
use crate::sums::Seed;

pub(crate) const NAME: &str = "store";
const TEMPORARY: &str = "store.new";
const MAGIC: [u8; 8] = *b"FGATEDSK";
/// The version of all formats in a store. Contents of another version are renamed.
pub(crate) const VERSION: u32 = 2;
const LENGTH: usize = 104;

/// The content of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFile {
    /// A number that each start increases. The numbers of segments, files and records begin with it.
    pub(crate) epoch: u32,
    pub(crate) id: [u8; 16],
    pub(crate) secret: Secret,
    pub(crate) clock: Checkpoint,
}

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) cache: CacheTime,
    /// Seconds since 1970.
    pub(crate) wall: u64,
    /// A random number that identifies this boot of the system. `since_boot` is the time since then
    /// in milliseconds, including sleep.
    pub(crate) boot: [u8; 16],
    pub(crate) since_boot: u64,
}

/// The state of a store file that an earlier process has left.
pub(crate) enum StoreFileState {
    Nothing,
    Store(StoreFile),
    /// The store has another version of the formats.
    Other(u32),
    /// The file cannot be read, so the other files of the folder are of no use.
    Damaged,
}

impl Checkpoint {
    /// The clocks now.
    pub(crate) fn now(cache: CacheTime) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let time = clock_gettime(ClockId::Boottime);
        let since_boot = u64::try_from(time.tv_sec).unwrap_or(0) * 1000
            + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
        Self { cache, wall, boot: boot_id(), since_boot }
    }

    /// The cache's time at a later moment. Within one boot of the system, changes of the wall clock
    /// have no effect. Across boots, the difference of the wall clock counts as elapsed time, but the
    /// cache's clock never goes backwards.
    pub(crate) fn continued(&self, later: &Self) -> CacheTime {
        let same = self.boot == later.boot && self.boot != [0; 16];
        let passed = if same {
            later.since_boot.saturating_sub(self.since_boot)
        } else {
            later.wall.saturating_sub(self.wall).saturating_mul(1000)
        };
        CacheTime(self.cache.0.saturating_add(passed))
    }
}

/// The random number that the kernel chooses at each boot. Zeros if it is not available.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_le_bytes()
}

impl StoreFile {
    pub(crate) fn find(directory: &BlockingDirectory) -> io::Result<StoreFileState> {
        let file = match directory.open(Path::new(NAME), OpenHow::read()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoreFileState::Nothing),
            Err(error) => return Err(error),
        };
        let mut bytes = [0; LENGTH + 1];
        let read = file.read_at(&mut bytes, 0)?;
        let bytes = bytes.get(..read).unwrap_or_default();
        let mut from = Reader(bytes);
        let (magic, version) = (from.array(), from.u32());
        Ok(match (magic, version) {
            (Some(MAGIC), Some(VERSION)) => {
                Self::read(bytes).map_or(StoreFileState::Damaged, StoreFileState::Store)
            }
            // The version follows the magic in every version of the format.
            (Some(MAGIC), Some(version)) if !is_damaged(bytes) || read != LENGTH => {
                StoreFileState::Other(version)
            }
            _ => StoreFileState::Damaged,
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LENGTH || is_damaged(bytes) {
            return None;
        }
        let mut from = Reader(bytes);
        from.take(12)?;
        let epoch = from.u32()?;
        let (id, secret) = (from.array()?, Secret::new(from.array()?));
        let (cache, wall) = (CacheTime(from.u64()?), from.u64()?);
        let clock = Checkpoint { cache, wall, boot: from.array()?, since_boot: from.u64()? };
        Some(Self { epoch, id, secret, clock })
    }

    /// Replaces the file.
    pub(crate) fn write(&self, directory: &BlockingDirectory) -> io::Result<()> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.secret.to_bytes());
        out.extend_from_slice(&self.clock.cache.0.to_le_bytes());
        out.extend_from_slice(&self.clock.wall.to_le_bytes());
        out.extend_from_slice(&self.clock.boot);
        out.extend_from_slice(&self.clock.since_boot.to_le_bytes());
        let sum = seed().sum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.resize(LENGTH, 0);
        let file = directory.open(Path::new(TEMPORARY), OpenHow::replace())?;
        file.write_at(&out, 0)?;
        file.sync()?;
        directory.rename(Path::new(TEMPORARY), Path::new(NAME))
    }
}

/// Bytes before the sum.
const SUMMED: usize = 8 + 4 + 4 + 16 + 16 + 8 + 8 + 16 + 8;

fn is_damaged(bytes: &[u8]) -> bool {
    let Some((content, rest)) = bytes.split_at_checked(SUMMED) else { return true };
    let sum = rest.first_chunk().map(|sum| u64::from_le_bytes(*sum));
    sum != Some(seed().sum(0, 0, content)) || rest.get(8..).unwrap_or_default().iter().any(|&byte| byte != 0)
}

fn seed() -> Seed {
    Seed::new(&[0; 16], b'i', 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use super::*;

    #[test]
    fn the_clock_goes_on_and_never_back() {
        let at = |cache, wall, boot, since_boot| Checkpoint {
            cache: CacheTime(cache),
            wall,
            boot: [boot; 16],
            since_boot,
        };
        let saved = at(1_000_000, 5000, 1, 70_000);
        // An hour forwards and back within one run of the system.
        assert_eq!(saved.continued(&at(0, 8600, 1, 72_500)), CacheTime(1_002_500));
        assert_eq!(saved.continued(&at(0, 1400, 1, 72_500)), CacheTime(1_002_500));
        // After a restart of the system only the wall clock tells the time.
        assert_eq!(saved.continued(&at(0, 5060, 2, 10)), CacheTime(1_060_000));
        assert_eq!(saved.continued(&at(0, 1400, 2, 10)), CacheTime(1_000_000));
        // Where runs cannot be distinguished, the wall clock counts.
        let unknown = at(1000, 5000, 0, 70_000);
        assert_eq!(unknown.continued(&at(0, 5001, 0, 90_000)), CacheTime(2000));
    }
}
