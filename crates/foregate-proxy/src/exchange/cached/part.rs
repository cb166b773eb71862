//! The state of the cache in an exchange.

use std::sync::Arc;

use foregate_cache::{Forward, Object};

use crate::cache::FetchRecord;
use crate::counters::cache::CacheOutcome;

/// The state of the cache in an exchange.
#[derive(Debug)]
pub(in crate::exchange) struct CachePart {
    /// How the request was handled.
    pub outcome: CacheOutcome,
    /// A word for the reason, if the outcome does not say it: why the cache was bypassed, or why the response was not
    /// stored.
    pub reason: Option<&'static str>,
    pub(super) forward: Forward,
    /// The stored response that a HEAD did not get because it was stale.
    pub(super) stale: Option<Arc<Object>>,
    /// True if the request waited for the fetch of another request.
    pub(super) collapsed: bool,
    /// True if the request waited for a fetch that failed, and gets a stale response.
    pub(super) failed: bool,
    /// The attempts of the fetch that this request caused.
    pub fetched: Option<Box<FetchRecord>>,
    /// True if the response of the fetch is stored.
    pub(super) stored: bool,
    /// The path of the client's request, if the origin gets another path.
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
