//! Certificates that the proxy obtains itself.
//!
//! A [`Keeper`] follows the configuration: for each name, it obtains a certificate from an authority that
//! speaks ACME (RFC 8555) or from the internal one, renews the certificate well before its end, and writes it
//! into the [storage](storage::Storage). The proxy reads it from there like any other certificate. The keeper
//! has a thread and a runtime of its own, so that requests never wait for it. After a failure, the old
//! certificate remains.
//!
//! Answers to challenges are files in the storage, too. All processes that share the storage can give these
//! answers, and only one process at a time orders a certificate for a name.

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
mod staple_failure;
mod stapled;
mod staples;
pub mod storage;
mod update;

pub use self::internal::root_certificate;
pub use self::keeper::Keeper;
pub use self::names::{Obstacle, obstacle};
