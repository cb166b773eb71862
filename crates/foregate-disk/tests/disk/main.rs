//! The tier over real folders.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at what they do not expect"
)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "threads of tests may sleep and report")]

mod contents;
mod eviction;
mod faults;
mod flips;
mod kills;
mod purges;
mod scene;
