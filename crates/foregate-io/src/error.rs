//! Errors of operations.

use std::{fmt, io};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of an operation.
#[derive(Debug)]
pub enum Error {
    /// The pool of the directory had no thread in time, so nothing was tried. The caller continues without the disk.
    Busy,
    /// The system refused.
    Io(io::Error),
}

impl Error {
    /// Returns whether nothing was tried, since the disk is too slow at the moment.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Returns whether the path leads to nothing: a part of it does not exist, is no folder, or has a name that no file can have.
    pub fn is_not_found(&self) -> bool {
        let Self::Io(error) = self else { return false };
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            || error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
    }

    /// Returns whether the path leads out of the directory, or through a link where links are not followed.
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
