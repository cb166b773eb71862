//! A stored response with its body.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::body::{ALLOCATION, Body};
use crate::key::{Key, KeyText};
use crate::purge::Sequence;
use crate::stored::StoredHead;

/// A stored response with its body, shared by its readers. It never changes: a validation makes a new one with the same body.
#[derive(Debug)]
pub struct Object {
    /// The head, with its freshness.
    pub head: StoredHead,
    /// The body.
    pub body: Body,
    key: Key,
    text: Box<[u8]>,
    pub(crate) sequence: Sequence,
    /// The latest purge that has been compared with this object.
    pub(crate) checked: AtomicU64,
    /// `true` if a purge has made it stale.
    pub(crate) outdated: AtomicBool,
}

impl Object {
    /// Makes an object. `sequence` is the number at which its fetch or its last validation began, so that a purge since then concerns it.
    pub fn new(head: StoredHead, body: Body, key: Key, text: &KeyText, sequence: Sequence) -> Self {
        Self {
            head,
            body,
            key,
            text: Box::from(text.as_bytes()),
            sequence,
            checked: AtomicU64::new(sequence.0),
            outdated: AtomicBool::new(false),
        }
    }

    /// An object as a store has kept it.
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
        }
    }

    /// Returns this body and key with the head of a later validation.
    pub fn refreshed(&self, head: StoredHead, sequence: Sequence) -> Self {
        Self {
            head,
            body: self.body.clone(),
            key: self.key,
            text: self.text.clone(),
            sequence,
            checked: AtomicU64::new(sequence.0),
            outdated: AtomicBool::new(false),
        }
    }

    /// The key of the address, which variants share.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The number of purges before its fetch began.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The text of the key.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns whether a soft purge has made it stale, as far as lookups have noticed.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
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
