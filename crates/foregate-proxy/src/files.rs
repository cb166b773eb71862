//! Opening the files of the configuration, without blocking on special files.
//!
//! Opening a named pipe blocks until its other end is opened. A start would hang, and so would a reload, and all
//! signals that come after it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Opens a regular file for reading.
///
/// # Errors
///
/// The file cannot be opened, or is a pipe, a device or a folder.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(at_once()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// Opens a file or stream for appending, and creates a missing file. Writes may block.
///
/// # Errors
///
/// The file cannot be opened, or is a pipe without a reader.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    if let Some(standard) = standard(path) {
        let file = File::from(standard?);
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        return Ok(file);
    }
    // Not readable for all users: addresses and targets are personal data.
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).mode(0o640).custom_flags(at_once()).open(path);
    let file = opened.map_err(|error| {
        if Errno::from_io_error(&error) == Some(Errno::NXIO) {
            io::Error::new(error.kind(), "it is a pipe that nobody reads, or a socket")
        } else {
            error
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// A duplicate of the process's own output, if the path denotes that. If a file were opened by such a path instead, it
/// would have a position of its own and overwrite the process's output; a socket could not be opened at all.
fn standard(path: &Path) -> Option<io::Result<OwnedFd>> {
    match path.to_str()? {
        "/dev/stdout" => Some(io::stdout().as_fd().try_clone_to_owned()),
        "/dev/stderr" => Some(io::stderr().as_fd().try_clone_to_owned()),
        _ => None,
    }
}

/// Flags with which opening does not block and does not acquire a terminal.
fn at_once() -> i32 {
    (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Command;

    use super::*;

    #[test]
    fn pipes_are_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(open_to_read(&pipe).unwrap_err().to_string(), "it is not a file");
        let refused = open_to_append(&pipe).unwrap_err();
        assert_eq!(refused.to_string(), "it is a pipe that nobody reads, or a socket");

        let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut log = open_to_append(&pipe).unwrap();
        assert!(!fcntl_getfl(&log).unwrap().contains(OFlags::NONBLOCK), "a full pipe is waited for");
        log.write_all(b"line\n").unwrap();
        let mut line = [0; 5];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line\n");
    }

    #[test]
    fn files_and_devices_are_what_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        open_to_append(&path).unwrap().write_all(b"a").unwrap();
        open_to_append(&path).unwrap().write_all(b"b").unwrap();
        let mut text = String::new();
        open_to_read(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "ab");
        open_to_append(Path::new("/dev/null")).unwrap();
        assert!(open_to_read(Path::new("/dev/null")).is_err());
        assert!(open_to_read(folder.path()).is_err());
    }
}
