//! Shared fetches: how many there are, which requests wait, and that only a complete one ends a body.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

mod executor;
mod leaders;
mod scenes;
mod threads;
mod world;
