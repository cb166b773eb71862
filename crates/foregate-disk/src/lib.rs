//! The disk tier of the cache.
//!
//! Objects up to 1 MiB are stored in segments: append-only files that all stay open. So a hit is one read, and an
//! eviction is one `unlink` for thousands of objects. Larger objects are stored in files of their own, which get their
//! names when they are complete. The index in memory has 16 bytes for each object. At the start of the process, the
//! index is filled from the segments' tables of contents in the background; lookups are answered meanwhile.
//!
//! - **No wrong content is served.** All bytes have checksums that are seeded with their place. Keys are compared as
//!   text. A record that fails a check is a miss.
//! - **A kill loses at most the last 100 ms.** Files are not rewritten in place; the file `store` is replaced by a
//!   rename. The index only points to bytes that were written.
//! - **Purges are floors** that all tiers share ([`Floors`](foregate_cache::Floors)); a journal keeps them. If it is damaged, everything is purged.
//! - **No error reaches the client.** If the disk is slow, full or broken, a lookup is a miss, also at the start. A
//!   disk that keeps failing is switched off for some time.
//! - **Only one process** uses a directory. Contents of another version of the formats are renamed, not removed.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod big;
mod bytes;
mod directory;
mod ending;
mod fill;
mod health;
mod inbox;
mod index;
mod inner;
mod journal;
mod lowest;
mod outside;
mod place;
mod queue;
mod reclaim;
mod record;
mod recover;
mod segment;
mod start;
mod stat;
mod store_file;
mod sums;
mod tier;
mod verify;
mod writer;

pub use big::{Damage, FileBody};
pub use directory::{DirectorySettings, LEAST, OpenError, Reason};
pub use ending::Ending;
pub use fill::{Fill, StoreRefusal};
pub use outside::{OutsideDirectory, StoreIdentity};
pub use stat::Stat;
pub use tier::{Disk, DiskLookup};
pub use verify::{Verified, VerifyCursor};
