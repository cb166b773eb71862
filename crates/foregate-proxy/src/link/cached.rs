//! The body of a response from the cache, as the link of a peer that only sends.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use foregate_cache::{Follow, Multipart, Object, Piece};
use foregate_disk::{Damage, FileBody};
use foregate_wire::HeaderList;
use tokio::time::{sleep, timeout};

use super::{LinkError, ReceiveOutcome};

/// A body from the cache.
#[derive(Debug)]
pub struct CachedLink {
    from: From,
    /// The bytes that have been received and not consumed yet.
    piece: Bytes,
    /// Always empty; a link has to return a list of trailers.
    trailers: HeaderList,
}

#[derive(Debug)]
enum From {
    /// A stored object.
    Stored {
        body: StoredBody,
        now: Range<u64>,
        then: VecDeque<Segment>,
    },
    /// A shared fetch under way. `skip` is the number of bytes to leave out first, `left` the number to send after them.
    Shared {
        follow: Follow,
        skip: u64,
        left: u64,
    },
    Nothing,
}

/// The body of a stored response.
#[derive(Debug)]
pub enum StoredBody {
    /// In memory.
    Memory(Arc<Object>),
    /// In a file that is read block by block.
    File(FileReader),
}

/// A reader of a body in a file.
pub struct FileReader {
    body: FileBody,
    reading: Option<CachedRead>,
}

type CachedRead = Pin<Box<dyn Future<Output = Result<Bytes, Damage>> + Send + Sync>>;

/// If a read takes longer than this, the response is aborted.
const PATIENCE: Duration = Duration::from_secs(30);

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("body", &self.body).finish_non_exhaustive()
    }
}

impl StoredBody {
    /// A body in a file.
    pub fn file(body: FileBody) -> Self {
        Self::File(FileReader { body, reading: None })
    }

    /// The length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(object) => object.body.len(),
            Self::File(reader) => reader.body.len(),
        }
    }

    /// Reads bytes from `offset` on, as many as are available. Fails if the body cannot be read.
    fn poll_at(&mut self, cx: &mut Context<'_>, offset: u64) -> Poll<Result<Bytes, LinkError>> {
        match self {
            Self::Memory(object) => Poll::Ready(object.body.at(offset).ok_or(LinkError::Length)),
            Self::File(FileReader { body, reading }) => {
                let read = reading.get_or_insert_with(|| {
                    let body = body.clone();
                    Box::pin(async move {
                        let mut attempts = 0;
                        let read = async {
                            loop {
                                match body.read(offset).await {
                                    // The head has been sent, so the origin cannot be asked instead: try the disk again.
                                    Err(Damage::Busy) if attempts < BUSY => attempts += 1,
                                    result => return result,
                                }
                                sleep(PAUSE).await;
                            }
                        };
                        timeout(PATIENCE, read).await.unwrap_or(Err(Damage::Busy))
                    })
                });
                let bytes = ready!(read.as_mut().poll(cx));
                *reading = None;
                Poll::Ready(
                    bytes
                        .map_err(|_| LinkError::Truncated)
                        .and_then(|bytes| if bytes.is_empty() { Err(LinkError::Length) } else { Ok(bytes) }),
                )
            }
        }
    }
}

/// How often the read of a block is retried while the disk is busy, and the pause between attempts.
const BUSY: usize = 500;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum Segment {
    Frame(Bytes),
    Part(Range<u64>),
}

impl CachedLink {
    /// A part of a stored body.
    pub fn stored(body: StoredBody, part: Range<u64>) -> Self {
        Self::new(From::Stored { body, now: part, then: VecDeque::new() })
    }

    /// Several parts of a stored body, with the multipart delimiters and part heads between them.
    pub fn multipart(body: StoredBody, parts: Multipart) -> Self {
        let segments = parts.parts.into_iter();
        let segments = segments.flat_map(|(frame, part)| [Segment::Frame(frame.into()), Segment::Part(part)]);
        let then = segments.chain([Segment::Frame(parts.end.into())]).collect();
        Self::new(From::Stored { body, now: 0..0, then })
    }

    /// The body of a fetch under way: all of it, or a part.
    pub fn shared(follow: Follow, part: Option<Range<u64>>) -> Self {
        let (skip, left) = part.map_or((0, u64::MAX), |part| (part.start, part.end - part.start));
        Self::new(From::Shared { follow, skip, left })
    }

    /// No body.
    pub fn empty() -> Self {
        Self::new(From::Nothing)
    }

    /// A body of which all bytes are in memory.
    pub fn bytes(bytes: Bytes) -> Self {
        Self { piece: bytes, ..Self::empty() }
    }

    fn new(from: From) -> Self {
        Self { from, piece: Bytes::new(), trailers: HeaderList::new() }
    }

    /// Waits for the next bytes, or the end. Returns an error if the shared fetch fails.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        if !self.piece.is_empty() {
            return Poll::Ready(Ok(ReceiveOutcome::Data));
        }
        let next = match &mut self.from {
            From::Stored { body, now, then } => ready!(poll_stored(cx, body, now, then))?,
            From::Nothing => None,
            From::Shared { follow, skip, left } => ready!(poll_shared(cx, follow, skip, left))?,
        };
        Poll::Ready(Ok(match next {
            Some(piece) => {
                self.piece = piece;
                ReceiveOutcome::Data
            }
            None => ReceiveOutcome::End,
        }))
    }

    /// The bytes that have been received and not consumed yet.
    pub fn data(&self) -> &[u8] {
        &self.piece
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        let _ = self.piece.split_to(count.min(self.piece.len()));
    }

    /// The trailers: none.
    pub fn trailers(&mut self) -> &mut HeaderList {
        &mut self.trailers
    }

    /// There are none.
    pub fn drop_trailers(&mut self) {}

    /// A stored response takes no bytes.
    pub fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, LinkError>> {
        Poll::Ready(Err(LinkError::Length))
    }

    /// As [`Self::poll_send`].
    pub fn finish(&mut self, _: &HeaderList) -> Result<(), LinkError> {
        Err(LinkError::Length)
    }

    /// Stops reading the body.
    pub fn abort(&mut self) {
        self.piece = Bytes::new();
    }
}

/// The next bytes of a stored object.
fn poll_stored(
    cx: &mut Context<'_>,
    body: &mut StoredBody,
    now: &mut Range<u64>,
    then: &mut VecDeque<Segment>,
) -> Poll<Result<Option<Bytes>, LinkError>> {
    loop {
        if now.start < now.end {
            let piece = ready!(body.poll_at(cx, now.start))?;
            let length = (piece.len() as u64).min(now.end - now.start);
            now.start += length;
            // The piece reaches to the end of the range or beyond.
            return Poll::Ready(Ok(Some(piece.slice(..length as usize))));
        }
        match then.pop_front() {
            None => return Poll::Ready(Ok(None)),
            Some(Segment::Frame(frame)) => return Poll::Ready(Ok(Some(frame))),
            Some(Segment::Part(part)) => *now = part,
        }
    }
}

/// The next bytes of a fetch under way.
fn poll_shared(
    cx: &mut Context<'_>,
    follow: &mut Follow,
    skip: &mut u64,
    left: &mut u64,
) -> Poll<Result<Option<Bytes>, LinkError>> {
    while *left > 0 {
        let mut piece = match ready!(follow.poll_piece(cx)) {
            Piece::Bytes(piece) => piece,
            // The fetch ended before the range that the head has announced.
            Piece::End if *left != u64::MAX => return Poll::Ready(Err(LinkError::Length)),
            Piece::End => return Poll::Ready(Ok(None)),
            Piece::Broken(_) | Piece::Lagged => return Poll::Ready(Err(LinkError::Truncated)),
        };
        let skipped = usize::try_from(*skip).unwrap_or(usize::MAX).min(piece.len());
        let _ = piece.split_to(skipped);
        *skip -= skipped as u64;
        piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        if *left != u64::MAX {
            *left -= piece.len() as u64;
        }
        if !piece.is_empty() {
            return Poll::Ready(Ok(Some(piece)));
        }
    }
    Poll::Ready(Ok(None))
}
