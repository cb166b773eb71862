//! The part of the cache in an exchange.

use std::sync::Arc;

use foregate_cache::{Forward, Object};

use crate::cache::FetchRecord;
use crate::counters::cache::CacheOutcome;

/// The part of the cache in an exchange.
#[derive(Debug)]
pub(in crate::exchange) struct CachePart {
    /// How the request was handled.
    pub outcome: CacheOutcome,
    /// Why, in a word, where that is not plain: the reason for a bypass, or for not storing.
    pub reason: Option<&'static str>,
    pub(super) forward: Forward,
    /// The stored response that a HEAD did not get, since it was stale.
    pub(super) stale: Option<Arc<Object>>,
    /// The request waited for the fetch of another one.
    pub(super) collapsed: bool,
    /// The request waited for a fetch that failed, and gets a stale response.
    pub(super) failed: bool,
    /// The attempts of the fetch that this request caused.
    pub fetched: Option<Box<FetchRecord>>,
    /// The response of the fetch is stored.
    pub(super) stored: bool,
    /// The path of the client's request, where the origin gets another one.
    pub(super) path: Option<Vec<u8>>,
}

impl CachePart {
    pub(super) fn new(outcome: CacheOutcome, forward: Forward) -> Box<Self> {
        Box::new(Self {
            outcome,
            reason: None,
            forward,
            stale: None,
            collapsed: false,
            failed: false,
            fetched: None,
            stored: false,
            path: None,
        })
    }
}
