//! Errors of operations.

use std::{fmt, io};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of an operation.
#[derive(Debug)]
pub enum Error {
    /// Nothing was tried, because no thread and no place in the ring was free in time. The caller continues without the
    /// disk.
    Busy,
    /// A system call failed.
    Io(io::Error),
}

impl Error {
    /// Returns true if nothing was tried, because the disk is too slow at the moment.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Returns true if no file is at the path: a part of the path does not exist, is not a folder, or is not a valid name.
    pub fn is_not_found(&self) -> bool {
        let Self::Io(error) = self else { return false };
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            || error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
    }

    /// Returns true if the path leads out of the directory, or contains a symbolic link that must not be followed.
    pub fn is_escape(&self) -> bool {
        let codes = [rustix::io::Errno::XDEV, rustix::io::Errno::LOOP];
        matches!(self, Self::Io(error) if codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error())))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the disk is too slow at the moment"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Busy => Self::new(io::ErrorKind::WouldBlock, "the disk is too slow at the moment"),
            Error::Io(error) => error,
        }
    }
}
