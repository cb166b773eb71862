//! The start of a body: bytes that were taken from the source earlier, and bytes kept to be sent again.

use std::sync::Arc;
use std::task::{Context, Poll};

use foregate_module::Text;

use super::Link;
use super::copy::{BodyCopy, BodyEnd, WaitingFor};
use crate::folders::body::FileBody;
use crate::limits::budget::BudgetShare;
use crate::limits::spool::Reader;
use crate::transport::outcome::CopyError;

/// Bytes of a body that several readers use, with their share of the memory budget.
#[derive(Debug)]
pub struct SharedStart {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their share of the memory; `None` if they are counted elsewhere.
    pub share: Option<BudgetShare>,
}

/// The start of a body, kept in case it has to be sent again.
#[derive(Debug)]
pub struct KeptStart {
    /// The bytes taken from the source, after filters.
    held: Arc<SharedStart>,
    /// The number of bytes that the present sink has received.
    gone: usize,
    /// The most bytes that are kept.
    pub limit: usize,
}

impl KeptStart {
    /// Has no bytes yet; up to `limit` may be kept.
    pub fn new(limit: usize, share: BudgetShare) -> Self {
        Self { limit, ..Self::start(Arc::new(SharedStart { bytes: Vec::new(), share: Some(share) })) }
    }

    /// Starts with bytes that were taken from the source earlier and not sent. No further bytes are kept.
    pub fn start(held: Arc<SharedStart>) -> Self {
        Self { limit: held.bytes.len(), gone: 0, held }
    }

    /// The number of kept bytes.
    pub fn len(&self) -> usize {
        self.held.bytes.len()
    }

    /// All that is kept.
    pub fn held(&self) -> Arc<SharedStart> {
        Arc::clone(&self.held)
    }

    /// The bytes that the present sink has not received yet.
    pub fn due(&self) -> &[u8] {
        self.held.bytes.get(self.gone..).unwrap_or_default()
    }

    /// Records that the sink has accepted the first `count` bytes of [`Self::due`].
    pub fn consume(&mut self, count: usize) {
        self.gone += count;
    }

    /// Makes all kept bytes due again, for another sink.
    fn rewind(&mut self) {
        self.gone = 0;
    }

    /// Keeps the bytes just sent as well. Returns false if they exceed the limit or the memory; the
    /// caller keeps nothing from then on.
    #[must_use]
    pub fn append(&mut self, data: &[u8]) -> bool {
        let length = self.len() + data.len();
        if length > self.limit || !self.own(length) {
            return false;
        }
        let limit = self.limit;
        let Some(held) = Arc::get_mut(&mut self.held) else { return false };
        if !extend(&mut held.bytes, data, limit, held.share.as_mut()) {
            return false;
        }
        self.gone = length;
        true
    }

    /// Takes the kept bytes.
    pub fn take(&mut self) -> Arc<SharedStart> {
        let share = self.held.share.as_ref().map(BudgetShare::another);
        std::mem::replace(&mut self.held, Arc::new(SharedStart { bytes: Vec::new(), share }))
    }

    /// Copies the kept bytes if steps may still read them, so that the copy can be changed. Returns
    /// false if there is no memory for `length` bytes.
    fn own(&mut self, length: usize) -> bool {
        if Arc::get_mut(&mut self.held).is_some() {
            return true;
        }
        let mut share = self.held.share.as_ref().map(BudgetShare::another);
        if !share.as_mut().is_none_or(|share| share.hold(length)) {
            return false;
        }
        self.held = Arc::new(SharedStart { bytes: self.held.bytes.clone(), share });
        true
    }
}

/// Appends `data` to `bytes`, and counts the new length in their share. The capacity at least doubles
/// when it grows, but only up to `most`; unwritten capacity is not counted, because the system has not
/// provided its pages yet. Returns false if there is no memory.
#[must_use]
pub fn extend(bytes: &mut Vec<u8>, data: &[u8], most: usize, share: Option<&mut BudgetShare>) -> bool {
    let length = bytes.len() + data.len();
    if !share.is_none_or(|share| share.hold(length)) {
        return false;
    }
    if length > bytes.capacity() {
        let capacity = (2 * bytes.capacity()).min(most).max(length);
        bytes.reserve_exact(capacity - bytes.len());
    }
    bytes.extend_from_slice(data);
    true
}

/// The start of a body that was taken from its source earlier.
#[derive(Debug)]
pub enum Front {
    /// In memory, and dropped once it has been sent.
    Memory {
        /// The bytes.
        bytes: Text,
        /// The number of bytes that have been sent.
        gone: usize,
        /// Their share of the common memory.
        _share: Option<BudgetShare>,
    },
    /// In a temporary file, from which it can be sent again.
    File(Box<Reader>),
    /// The whole body, which is a static file.
    Document(Box<FileBody>),
}

impl Front {
    /// Bytes with their share of the memory budget; `None` if `bytes` is empty.
    pub fn new(bytes: Text, share: Option<BudgetShare>) -> Option<Self> {
        (!bytes.is_empty()).then_some(Self::Memory { bytes, gone: 0, _share: share })
    }

    /// The bytes that can be sent now.
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Memory { bytes, gone, .. } => bytes.get(*gone..).unwrap_or_default(),
            Self::File(reader) => reader.data(),
            Self::Document(body) => body.data(),
        }
    }

    /// Waits until there is [data](Self::data), or the end.
    ///
    /// # Errors
    ///
    /// The file could not be read.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CopyError>> {
        match self {
            Self::Memory { .. } => Poll::Ready(Ok(())),
            Self::File(reader) => reader.poll_fill(cx).map_err(|_| CopyError::File),
            Self::Document(body) => body.poll_fill(cx).map_err(|_| CopyError::Document),
        }
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        match self {
            Self::Memory { gone, .. } => *gone += count,
            Self::File(reader) => reader.consume(count),
            Self::Document(body) => body.consume(count),
        }
    }

    /// Returns true if all of it has been sent.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Memory { .. } => self.data().is_empty(),
            Self::File(reader) => reader.is_done(),
            Self::Document(body) => body.is_done(),
        }
    }
}

impl BodyCopy {
    /// Starts again for a new sink: sends the kept bytes from the beginning. They are in memory, or in a
    /// file that no filter has read.
    pub fn start_over(&mut self) {
        match (&mut self.front, &mut self.kept) {
            (Some(Front::File(reader)), _) if self.filter.is_none() => {
                reader.rewind();
                (self.kept, self.end, self.waiting) = (None, BodyEnd::Ahead, WaitingFor::Source);
            }
            (_, Some(kept)) => {
                kept.rewind();
                if self.end == BodyEnd::Told {
                    self.end = BodyEnd::Reached;
                }
                self.waiting = WaitingFor::Source;
            }
            // No byte has been taken yet, or there is no body: nothing to do.
            _ => {}
        }
    }

    /// Makes the system send a part of a file. Returns `None` if the bytes have to pass through this
    /// process.
    pub(super) fn poll_send_document(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Link,
    ) -> Option<Poll<Result<(), CopyError>>> {
        let Some(Front::Document(body)) = &mut self.front else { return None };
        if self.filter.is_some() || self.seen.is_some() || !sink.takes_files() {
            return None;
        }
        let (file, part) = body.cached_part()?;
        let sent = match sink.poll_send_file(cx, file, part) {
            // The file has become shorter since its length was announced.
            Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(CopyError::Document))),
            Poll::Ready(Ok(sent)) => sent,
            Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(CopyError::Sink(error)))),
            Poll::Pending => {
                self.waiting = WaitingFor::Sink;
                return Some(Poll::Pending);
            }
        };
        body.consume_part(sent);
        if body.is_done() {
            self.front = None;
        }
        self.sent += sent;
        self.moved += sent;
        Some(Poll::Ready(Ok(())))
    }

    /// Returns true if all bytes taken from the source can be sent again.
    pub fn is_at_hand(&self) -> bool {
        let in_file = || match &self.front {
            Some(Front::File(reader)) => self.filter.is_none() && reader.len() == self.moved,
            _ => false,
        };
        self.moved == 0 || self.kept.is_some() || in_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::account::Account;
    use crate::limits::budget::Budget;

    #[test]
    fn no_room_is_made_for_what_never_comes() {
        for (most, ends) in [(usize::MAX, 1_050_000), (100_000, 100_000), (600_000, 600_000)] {
            // A share may have a quarter of the rest.
            let budget = Arc::new(Budget::new(4 << 20));
            let (mut share, mut bytes) = (budget.share(Account::PROCESS), Vec::new());
            while bytes.len() < most && extend(&mut bytes, &[0; 10_000], most, Some(&mut share)) {
                assert!(bytes.capacity() <= most.min(2 * bytes.len()));
            }
            assert_eq!(bytes.len(), ends);
            assert!(budget.held() <= ends && ends < budget.held() + 4096, "{}", budget.held());
        }
    }
}
