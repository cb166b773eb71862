//! The disk tier of the cache.
//!
//! Objects up to 1 MiB lie in segments, append-only files that are all open: a hit is one read, and eviction is one `unlink` for thousands of objects.
//! Larger ones lie in files of their own, which get their names when they are complete. The index in memory has 16 bytes for an object and is read from
//! tables of contents at the start, while lookups are answered already.
//!
//! - **Nothing wrong comes out.** All bytes have checksums that are seeded with their place. Keys are compared as text. A record that fails a check
//!   is a miss.
//! - **A kill loses the last 100 ms at most.** Nothing is rewritten in place but the file `store`, by a rename. The index points to bytes that were
//!   written.
//! - **Purges are floors** that all tiers share ([`Floors`](foregate_cache::Floors)); a journal keeps them. If it is damaged, everything is purged.
//! - **No error reaches the client.** An operation of a disk that is slow, full or broken is a miss, also at the start; a disk that keeps failing is
//!   switched off for some time.
//! - **One process** uses a directory. Contents of another version of the formats are moved to another name, not removed.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod big;
mod bytes;
mod directory;
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
pub use fill::{Fill, StoreRefusal};
pub use outside::{OutsideDirectory, StoreIdentity};
pub use stat::Stat;
pub use tier::{Disk, DiskLookup};
pub use verify::{Verified, VerifyCursor};
