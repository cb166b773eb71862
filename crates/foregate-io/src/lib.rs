//! The I/O engine: no system call that may wait for a disk runs on a thread that serves requests.
//!
//! A [`Directory`] has a pool of threads and a bounded queue of its own, so a slow disk delays its own users only. If [`EngineChoice`] asks for it
//! and the kernel permits it, reads and writes of open files go to a ring of the kernel (io_uring(7)) with one thread instead. The operations are
//! futures that belong to no runtime. An operation that gets no thread, or no place in the ring, within [`Limits::patience`] fails with
//! [`Error::Busy`]: the caller answers the request without the disk. A dropped future loses the answer alone; the engine completes the operation, so
//! no descriptor leaks.
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
//! use foregate_io::{Directory, EngineChoice, Error, Limits, OpenHow};
//!
//! async fn first_bytes(root: &Directory, path: &Path) -> Result<Vec<u8>, Error> {
//!     let file = root.open(path, OpenHow::read()).await?;
//!     file.read(0, 4096).await
//! }
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("a"), "text")?;
//! let root = Directory::open_root(folder.path(), Limits::default(), EngineChoice::Auto)?;
//! assert_eq!(foregate_io::wait(first_bytes(&root, Path::new("a")))?, b"text");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod blocking;
mod directory;
mod engine;
mod error;
mod faults;
mod file;
mod metadata;
mod operation;
mod path;
mod pool;
mod probe;
mod ring;
mod running;
mod stat;
mod sys;
mod transfer;

pub use blocking::BlockingDirectory;
pub use directory::Directory;
pub use engine::{Engine, EngineChoice};
pub use error::{Error, Result};
pub use faults::{Call, Fault, Faults};
pub use file::{File, RawFile};
pub use metadata::{Entry, Kind, Metadata};
pub use operation::{Operation, wait};
pub use path::{Links, OpenHow};
pub use pool::Limits;
pub use probe::io_uring;
pub use stat::Stat;
