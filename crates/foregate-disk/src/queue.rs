//! The queue of objects that will be written to the disk. It is bounded in bytes: with a slow disk, objects are
//! dropped, and memory does not grow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::Object;
use parking_lot::{Condvar, Mutex};

/// The most bytes of waiting objects.
const MOST: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    objects: VecDeque<Arc<Object>>,
    bytes: usize,
    /// `true` if a caller waits until everything so far is on the disk.
    flush: bool,
    closed: bool,
}

/// Work for the writer.
#[derive(Debug)]
pub(crate) enum Work {
    Object(Arc<Object>),
    /// Nothing arrived within the time.
    Nothing,
    /// Write everything to the disk.
    Flush,
    Closed,
}

impl Queue {
    /// Adds an object. Returns false if there is no room.
    pub(crate) fn push(&self, object: Arc<Object>) -> bool {
        let mut state = self.state.lock();
        let bytes = state.bytes + object.memory();
        if bytes > MOST || state.closed {
            return false;
        }
        state.bytes = bytes;
        state.objects.push_back(object);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for work.
    pub(crate) fn pop(&self, patience: Duration) -> Work {
        let mut state = self.state.lock();
        if state.objects.is_empty() && !state.flush && !state.closed {
            self.changed.wait_for(&mut state, patience);
        }
        if let Some(object) = state.objects.pop_front() {
            state.bytes -= object.memory();
            return Work::Object(object);
        }
        if std::mem::take(&mut state.flush) {
            return Work::Flush;
        }
        if state.closed { Work::Closed } else { Work::Nothing }
    }

    pub(crate) fn flush(&self) {
        self.state.lock().flush = true;
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}
