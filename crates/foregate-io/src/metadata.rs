//! Properties of files.

use std::ffi::OsString;

use rustix::fs::{FileType, Stat};

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link. Only [`list`](crate::Directory::list) reports it.
    Link,
    /// A pipe, socket or device, or a kind that the system does not report.
    Other,
}

impl Kind {
    pub(crate) fn new(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// Properties of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The kind.
    pub kind: Kind,
    /// The length in bytes.
    pub length: u64,
    /// The modification time: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// The time of the last change of the inode, in the same form: of the content, the names, the owner or the permissions.
    pub changed: (i64, u32),
    /// The inode number.
    pub inode: u64,
    /// The number of the file system.
    pub device: u64,
}

impl Metadata {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types of these fields differ between architectures"
    )]
    pub(crate) fn new(stat: &Stat) -> Self {
        Self {
            kind: Kind::new(FileType::from_raw_mode(stat.st_mode)),
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: (stat.st_ctime as i64, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)),
            inode: stat.st_ino as u64,
            device: stat.st_dev as u64,
        }
    }
}

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The kind; [`Kind::Other`] if the file system does not report it here.
    pub kind: Kind,
}
