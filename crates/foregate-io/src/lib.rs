//! The I/O engine: every system call that may wait for a disk runs on a thread of a pool, never on a thread that serves requests.
//!
//! A [`Directory`] has a pool and a bounded queue of its own, so a slow disk delays its own users only. Its operations are futures that
//! belong to no runtime. An operation that finds no free thread within [`Limits::patience`] fails with [`Error::Busy`]: the caller answers
//! the request without the disk. A dropped future loses the answer alone; the engine completes the operation, so no descriptor leaks.
//!
//! On file systems whose calls are known not to wait for pages that are in memory, `open` and `read` first try the calling thread:
//! `openat2(RESOLVE_CACHED)`, and `cachestat` with `preadv2(RWF_NOWAIT)`. `RWF_NOWAIT` alone held the caller for up to 5 ms on a busy device;
//! after `cachestat` the longest call took 0.08 ms.
//!
//! Paths are resolved beneath the directory (`RESOLVE_BENEATH`): no `..` and no link leads out of it, whatever another process changes
//! meanwhile.
//!
//! ```
//! use std::path::Path;
//!
//! use foregate_io::{Directory, Error, Limits, OpenHow};
//!
//! async fn first_bytes(root: &Directory, path: &Path) -> Result<Vec<u8>, Error> {
//!     let file = root.open(path, OpenHow::read()).await?;
//!     file.read(0, 4096).await
//! }
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("a"), "text")?;
//! let root = Directory::open_root(folder.path(), Limits::default())?;
//! assert_eq!(foregate_io::wait(first_bytes(&root, Path::new("a")))?, b"text");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod blocking;
mod directory;
mod error;
mod faults;
mod file;
mod metadata;
mod operation;
mod path;
mod pool;
mod stat;
mod sys;

pub use blocking::BlockingDirectory;
pub use directory::Directory;
pub use error::{Error, Result};
pub use faults::{Call, Fault, Faults};
pub use file::{File, RawFile};
pub use metadata::{Entry, Kind, Metadata};
pub use operation::{Operation, wait};
pub use path::{Links, OpenHow};
pub use pool::Limits;
pub use stat::Stat;
