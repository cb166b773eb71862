//! The decisions of the cache, each as rows of a table with the section that they follow.
//!
//! A row is a scripted exchange: a response fills the store, time passes, a request comes. [`scene`] is the smallest cache that drives all
//! decisions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

mod armor;
mod conditions;
mod freshness;
mod headers;
mod invalidation;
mod properties;
mod ranges;
mod requests;
mod scene;
mod stale;
mod status;
mod storing;
mod targeted;
mod update;
mod vary;
