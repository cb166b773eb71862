//! A stored response with its body.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::body::{ALLOCATION, Body};
use crate::key::{Key, KeyText};
use crate::moment::CacheTime;
use crate::purge::Sequence;
use crate::stored::StoredHead;

/// A stored response with its body, shared by its readers. Its content never changes: a validation makes a new
/// object with the same body.
#[derive(Debug)]
pub struct Object {
    /// The head, with its freshness.
    pub head: StoredHead,
    /// The body.
    pub body: Body,
    key: Key,
    text: Box<[u8]>,
    pub(crate) sequence: Sequence,
    /// The number of the latest purge that has been compared with this object.
    pub(crate) checked: AtomicU64,
    /// `true` if a soft purge has made the response stale.
    pub(crate) outdated: AtomicBool,
    /// The time at which the origin last failed to validate the response, in milliseconds of the cache's clock,
    /// plus one. 0 if it has not failed.
    failed: AtomicU64,
}

/// After the origin has failed to validate a response, it is not asked again for this many milliseconds.
const RETRY_AFTER: u64 = 5000;

/// The state of the origin, known from the validations of one stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The last validation did not fail.
    None,
    /// The origin has failed just now. No request asks it.
    Recent,
    /// The origin has failed some time ago: one request asks it again, in the background.
    RetryDue,
}

impl Object {
    /// Makes an object. `sequence` is the number of the latest purge when its fetch or its last validation began.
    /// Purges with higher numbers apply to the object.
    pub fn new(head: StoredHead, body: Body, key: Key, text: &KeyText, sequence: Sequence) -> Self {
        Self {
            head,
            body,
            key,
            text: Box::from(text.as_bytes()),
            sequence,
            checked: AtomicU64::new(sequence.0),
            outdated: AtomicBool::new(false),
            failed: AtomicU64::new(0),
        }
    }

    /// Restores an object from the parts that a store has kept.
    pub(crate) fn restored(
        head: StoredHead,
        body: Body,
        key: Key,
        text: &[u8],
        sequence: Sequence,
        outdated: bool,
    ) -> Self {
        Self {
            head,
            body,
            key,
            text: Box::from(text),
            sequence,
            checked: AtomicU64::new(sequence.0),
            outdated: AtomicBool::new(outdated),
            failed: AtomicU64::new(0),
        }
    }

    /// A new object with the same body and key, and with the head of a later validation.
    pub fn refreshed(&self, head: StoredHead, sequence: Sequence) -> Self {
        Self {
            head,
            body: self.body.clone(),
            key: self.key,
            text: self.text.clone(),
            sequence,
            checked: AtomicU64::new(sequence.0),
            outdated: AtomicBool::new(false),
            failed: AtomicU64::new(0),
        }
    }

    /// The key of the address, which variants share.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The number of the latest purge when the fetch of the object began.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The text of the key.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns whether a lookup has found that a soft purge has made the object stale.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    /// Records that the origin failed to validate the response.
    pub fn origin_failed(&self, now: CacheTime) {
        self.failed.store(now.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the state of the origin. If it is not [`Outage::None`], [`StoredHead::covers_failure`] decides
    /// without a request to the origin: while the origin fails, no request waits for it.
    pub fn outage(&self, now: CacheTime) -> Outage {
        match self.failed.load(Ordering::Relaxed).checked_sub(1) {
            None => Outage::None,
            Some(failed) if now.since(CacheTime(failed)) < RETRY_AFTER => Outage::Recent,
            Some(_) => Outage::RetryDue,
        }
    }

    /// Bytes of memory for the object, the counters of its [`Arc`](std::sync::Arc) included.
    pub fn memory(&self) -> usize {
        let allocations = 5 + usize::from(self.head.vary.is_some());
        size_of::<Self>()
            + 2 * size_of::<usize>()
            + self.head.memory()
            + self.text.len()
            + self.body.memory()
            + allocations * ALLOCATION
    }
}
