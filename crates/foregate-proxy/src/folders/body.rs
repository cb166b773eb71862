//! The body of a response from a file, read piece by piece.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use foregate_io::{Error, File, Operation};
use tokio::time::{Sleep, sleep};

use super::{FolderError, LONGEST};
use crate::limits::descriptors::DescriptorPlace;
use crate::limits::pressure::{self, Charge};

/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;
/// Bytes that the system sends at a time, without a copy in this process.
const SENT_PIECE: u64 = 512 * 1024;
/// The shortest part, bytes, that the system sends directly. A shorter part is read into memory instead, so that it
/// is sent together with the bytes around it.
const SENT_LEAST: u64 = 8 * 1024;
/// The pause before a read that found no free thread is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// How often such a read is tried again.
const TRIES: u32 = 200;

/// A part of a body.
#[derive(Debug)]
pub(crate) enum Part {
    /// Bytes from memory.
    Bytes(Vec<u8>),
    /// Bytes of the file.
    Range(Range<u64>),
}

/// The body of a response from a file. At most one piece is in memory.
pub(crate) struct FileBody {
    /// The file; `None` if all parts are in memory.
    file: Option<File>,
    parts: VecDeque<Part>,
    piece: Bytes,
    /// How much of the piece has been consumed.
    gone: usize,
    /// The memory of the piece.
    charge: Charge,
    reading: Option<Operation<Vec<u8>>>,
    /// The time limit of the running read, or the pause before the next attempt.
    timer: Option<Pin<Box<Sleep>>>,
    /// The number of attempts in a row that found no free thread.
    tries: u32,
    /// The place of the descriptor.
    _place: Option<DescriptorPlace>,
}

impl FileBody {
    /// A body of which nothing has been read yet.
    pub fn new(file: File, parts: VecDeque<Part>, place: DescriptorPlace) -> Self {
        Self { file: Some(file), _place: Some(place), ..Self::in_memory(parts) }
    }

    /// A short body, all of which has been read.
    pub fn of_bytes(bytes: Bytes) -> Self {
        let mut body = Self::in_memory(VecDeque::new());
        body.set_piece(bytes);
        body
    }

    fn in_memory(parts: VecDeque<Part>) -> Self {
        Self {
            file: None,
            parts,
            piece: Bytes::new(),
            gone: 0,
            charge: Charge::new(),
            reading: None,
            timer: None,
            tries: 0,
            _place: None,
        }
    }

    /// Returns true if all has been read and consumed.
    pub fn is_done(&self) -> bool {
        self.data().is_empty() && self.parts.is_empty()
    }

    /// The bytes that have been read and not been consumed.
    pub fn data(&self) -> &[u8] {
        self.piece.get(self.gone..).unwrap_or_default()
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        self.gone += count;
        if self.data().is_empty() {
            self.set_piece(Bytes::new());
        }
    }

    /// The file and the part of it that is next, if its pages are in memory: the system can send it
    /// without waiting for the disk.
    pub fn cached_part(&self) -> Option<(&File, Range<u64>)> {
        let file = self.file.as_ref()?;
        let Some(Part::Range(range)) = self.parts.front() else { return None };
        let length = (range.end - range.start).min(SENT_PIECE);
        let may = self.data().is_empty() && self.reading.is_none() && self.tries == 0;
        (may && length >= SENT_LEAST && file.is_cached(range.start, length))
            .then(|| (file, range.start..range.start + length))
    }

    /// Drops the first `count` bytes of [`Self::cached_part`].
    pub fn consume_part(&mut self, count: u64) {
        if let Some(Part::Range(range)) = self.parts.front_mut() {
            range.start = (range.start + count).min(range.end);
            if range.is_empty() {
                self.parts.pop_front();
            }
        }
    }

    /// Puts bytes before all others.
    pub fn put_before(&mut self, bytes: Vec<u8>) {
        let rest = self.data().to_vec();
        self.set_piece(Bytes::new());
        for bytes in [rest, bytes].into_iter().filter(|bytes| !bytes.is_empty()) {
            self.parts.push_front(Part::Bytes(bytes));
        }
    }

    /// Waits until there is [data](Self::data), or no more of it.
    ///
    /// # Errors
    ///
    /// The file could not be read, or is shorter than it was.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FolderError>> {
        while self.data().is_empty() {
            match self.parts.pop_front() {
                None => break,
                Some(Part::Bytes(bytes)) => self.set_piece(bytes.into()),
                Some(Part::Range(range)) => {
                    let read = self.poll_read(cx, &range);
                    let start = match &read {
                        Poll::Ready(Ok(bytes)) => range.start + bytes.len() as u64,
                        _ => range.start,
                    };
                    if start < range.end {
                        self.parts.push_front(Part::Range(start..range.end));
                    }
                    self.set_piece(ready!(read)?.into());
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the start of a range that is not empty.
    fn poll_read(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> Poll<Result<Vec<u8>, FolderError>> {
        // Pieces shrink with rising memory pressure, as other buffers do, so that many slow peers
        // do not hold much.
        let most = PIECE.min(pressure::largest_buffer());
        loop {
            if self.reading.is_none() && self.tries > 0 {
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
                ready!(timer.as_mut().poll(cx));
                self.timer = None;
            }
            let length = usize::try_from(range.end - range.start).unwrap_or(most).min(most);
            let Some(file) = &self.file else { return Poll::Ready(Err(FolderError::Read)) };
            let reading = self.reading.get_or_insert_with(|| file.read(range.start, length));
            match Pin::new(reading).poll(cx) {
                Poll::Ready(Ok(bytes)) => {
                    (self.reading, self.timer, self.tries) = (None, None, 0);
                    // Without bytes: the file has become shorter since its length was read.
                    return Poll::Ready(if bytes.is_empty() { Err(FolderError::Shrunk) } else { Ok(bytes) });
                }
                Poll::Ready(Err(Error::Busy)) if self.tries < TRIES => {
                    (self.reading, self.timer) = (None, None);
                    self.tries += 1;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(FolderError::Read)),
                Poll::Pending => {
                    let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LONGEST)));
                    return timer.as_mut().poll(cx).map(|()| Err(FolderError::Read));
                }
            }
        }
    }

    fn set_piece(&mut self, piece: Bytes) {
        self.charge.set(piece.len());
        (self.piece, self.gone) = (piece, 0);
    }
}

impl std::fmt::Debug for FileBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileBody").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
