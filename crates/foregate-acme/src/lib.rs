//! Certificates that the proxy obtains itself.
//!
//! A [`Keeper`] follows the configuration: it obtains a certificate for each name, from an authority that speaks ACME (RFC 8555) or
//! from the internal one, renews it well before its end, and writes it into the [storage](storage::Storage), where the proxy reads
//! it like any other certificate. It has a thread and a runtime of its own, so that requests never wait for it. A failure leaves the
//! old certificate in its place.
//!
//! Answers to challenges are files in the storage, too. All processes that share it can give them, and only one at a time orders a
//! certificate for a name.

#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod challenge;
mod demand;
mod entry;
mod failure;
mod http;
mod internal;
mod keeper;
mod names;
mod order;
mod schedule;
pub mod storage;
mod update;

pub use self::internal::root_certificate;
pub use self::keeper::Keeper;
pub use self::names::{Obstacle, obstacle};
