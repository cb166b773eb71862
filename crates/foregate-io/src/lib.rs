//! The I/O engine: no system call that may wait for a disk runs on a thread that serves requests.
//!
//! Each [`Directory`] has its own pool of threads and its own bounded queue, so a slow disk delays only its own users.
//! If [`EngineChoice`] asks for a ring (io_uring(7)) and the kernel permits it, reads and writes of open files go to
//! the ring, which one thread serves. Operations are futures that work in any runtime. If an operation gets no thread
//! and no place in the ring within [`Limits::patience`], it fails with [`Error::Busy`]: the caller answers the request
//! without the disk. If a future is dropped, only the answer is lost. The engine still completes the operation, so no
//! descriptor leaks.
//!
//! On file systems with calls that are known not to wait for data in memory, `open` and `read` first try the
//! calling thread: with `openat2(RESOLVE_CACHED)`, and with `cachestat` before `preadv2(RWF_NOWAIT)`. `RWF_NOWAIT` is
//! not enough: on a busy device it may block the caller for milliseconds.
//!
//! Paths are resolved beneath the directory (`RESOLVE_BENEATH`): no `..` and no symbolic link leads out of it, even if
//! another process changes the directory in the meantime.
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
