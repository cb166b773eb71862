//! A log file that is rotated when it is large or old: `LOG` becomes `LOG.1`, the former `LOG.1`
//! becomes `LOG.2`, and so on.
//!
//! Several processes may write to the file, such as two versions during an upgrade. One of them
//! rotates it under a file lock. The others notice, before they write their next lines, that the path
//! names another file, and open that file.

use std::fs::{self, File, Metadata};
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::writer::Torn;
use crate::files;
use crate::settings::Rotation;
use crate::time::clock::Clock;

/// The present file, and the conditions for its rotation.
pub(super) struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    torn: Torn,
    size: u64,
    created: SystemTime,
    clock: Clock,
}

impl Rotating {
    pub(super) fn open(path: &Path, rotation: Rotation, clock: Clock) -> io::Result<Self> {
        let file = files::open_to_append(path)?;
        let found = file.metadata()?;
        let (size, created) = (found.len(), created(&found, clock));
        Ok(Self { path: path.to_owned(), rotation, file, torn: Torn::default(), size, created, clock })
    }

    /// Opens the path again. Returns the number of lost lines: 1 if a line was partly written to the old file.
    pub(super) fn reopen(&mut self) -> io::Result<u64> {
        let torn = u64::from(self.torn.is_some());
        *self = Self::open(&self.path, self.rotation, self.clock)?;
        Ok(torn)
    }

    /// Writes lines. On an error, returns the number of lost lines and the reason.
    pub(super) fn send(&mut self, mut lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let mut lost = self.follow();
        let mut failed = None;
        while !lines.is_empty() {
            let fits = if failed.is_none() { self.fitting(lines) } else { lines.len() };
            if fits == 0 {
                // If the file cannot be rotated, it grows beyond its limit.
                failed = self.rotate().err();
                continue;
            }
            let (now, later) = lines.split_at(fits);
            if let Err((more, error)) = self.torn.write(&mut self.file, now) {
                let unwritten = memchr::memchr_iter(b'\n', later).count() as u64;
                return Err((lost + more + unwritten, error));
            }
            self.size += fits as u64;
            lines = later;
        }
        match failed {
            Some(error) => Err((mem::take(&mut lost), error)),
            None if lost > 0 => Err((lost, io::Error::other("the file was moved away within a line"))),
            None => Ok(()),
        }
    }

    /// The number of bytes at the start of `lines` to write to the present file; 0 if the file must be
    /// rotated first.
    fn fitting(&self, lines: &[u8]) -> usize {
        if self.torn.is_some() || self.size == 0 && self.rotation.size.is_none() {
            return lines.len();
        }
        let old = |age| self.clock.wall().duration_since(self.created).is_ok_and(|passed| passed >= age);
        if self.size > 0 && self.rotation.age.is_some_and(old) {
            return 0;
        }
        let room = self.rotation.size.map_or(u64::MAX, |size| size.saturating_sub(self.size));
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if lines.len() <= room {
            return lines.len();
        }
        let whole = lines.get(..room).and_then(|fits| memchr::memrchr(b'\n', fits));
        match whole {
            Some(end) => end + 1,
            // A line that exceeds the size limit gets a file of its own.
            None if self.size == 0 => memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1),
            None => 0,
        }
    }

    /// Opens the path again if it names another file by now. Returns the number of lost lines: 1 if a
    /// line was partly written to the old file.
    fn follow(&mut self) -> u64 {
        let same = |own: &Metadata, there: &Metadata| (own.dev(), own.ino()) == (there.dev(), there.ino());
        let Ok(own) = self.file.metadata() else { return 0 };
        match fs::metadata(&self.path) {
            Ok(there) if same(&own, &there) => {
                // Other processes may have written to the file as well.
                self.size = own.len();
                0
            }
            _ => self.reopen().unwrap_or(0),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        // The lock is held until the file is closed. A process that gets the lock afterwards finds the file
        // moved, and does not rotate again.
        self.file.lock()?;
        let moved = self.follow_locked()?;
        if !moved {
            let aside = |number: u32| {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                PathBuf::from(name)
            };
            for number in (1..self.rotation.keep).rev() {
                match fs::rename(aside(number), aside(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, aside(1))?;
        }
        self.reopen().map(drop)
    }

    /// Returns true if another process has rotated the file.
    fn follow_locked(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        Ok(fs::metadata(&self.path)
            .map_or(true, |there| (own.dev(), own.ino()) != (there.dev(), there.ino())))
    }
}

/// The time at which the file was created, or, if the file system does not record it, the time of
/// the last change.
fn created(found: &Metadata, clock: Clock) -> SystemTime {
    found.created().or_else(|_| found.modified()).unwrap_or_else(|_| clock.wall())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap_or_default()
    }

    #[test]
    fn files_have_whole_lines_and_no_more_bytes_than_their_limit() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { size: Some(10), age: None, keep: 2 };
        let mut log = Rotating::open(&folder.path().join("log"), rotation, Clock::default()).unwrap();
        log.send(b"one\ntwo\nthree\n").unwrap();
        assert_eq!(
            (read(folder.path(), "log"), read(folder.path(), "log.1")),
            ("three\n".into(), "one\ntwo\n".into())
        );
        log.send(b"a line of its own\nfour\n").unwrap();
        assert_eq!(read(folder.path(), "log.2"), "three\n");
        assert_eq!(read(folder.path(), "log.1"), "a line of its own\n");
        assert_eq!(read(folder.path(), "log"), "four\n");
        assert!(!folder.path().join("log.3").exists());
    }

    #[test]
    fn another_writer_follows() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { size: Some(8), age: None, keep: 5 };
        let mut logs =
            [0, 1].map(|_| Rotating::open(&folder.path().join("log"), rotation, Clock::default()).unwrap());
        for number in 0..8 {
            logs[number % 2].send(format!("{number}--\n").as_bytes()).unwrap();
        }
        let all = ["log.3", "log.2", "log.1", "log"].map(|name| read(folder.path(), name));
        assert_eq!(all, ["0--\n1--\n", "2--\n3--\n", "4--\n5--\n", "6--\n7--\n"]);
    }

    #[test]
    fn an_old_file_is_put_aside_before_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { size: None, age: Some(Duration::from_hours(1)), keep: 1 };
        let clock = Clock::of_a_test();
        let mut log = Rotating::open(&folder.path().join("log"), rotation, clock).unwrap();
        log.send(b"one\n").unwrap();
        log.send(b"two\n").unwrap();
        clock.advance(Duration::from_hours(1));
        log.send(b"three\n").unwrap();
        assert_eq!(
            (read(folder.path(), "log"), read(folder.path(), "log.1")),
            ("three\n".into(), "one\ntwo\n".into())
        );
    }
}
