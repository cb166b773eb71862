//! The body of a response from the cache, as the link of a peer that only sends.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use foregate_cache::{Follow, Multipart, Object, Piece};
use foregate_wire::HeaderList;

use super::{LinkError, Received};

/// A body from the cache.
#[derive(Debug)]
pub struct CachedLink {
    from: From,
    /// The bytes that have been received and not been consumed.
    piece: Bytes,
    /// There are none; a link has a place for them.
    trailers: HeaderList,
}

#[derive(Debug)]
enum From {
    /// A stored object.
    Stored {
        object: Arc<Object>,
        now: Range<u64>,
        then: VecDeque<Segment>,
    },
    /// A shared fetch under way: bytes to leave out, and those that follow.
    Shared {
        follow: Follow,
        skip: u64,
        left: u64,
    },
    Nothing,
}

#[derive(Debug)]
enum Segment {
    Frame(Bytes),
    Part(Range<u64>),
}

impl CachedLink {
    /// A part of a stored body.
    pub fn stored(object: Arc<Object>, part: Range<u64>) -> Self {
        Self::new(From::Stored { object, now: part, then: VecDeque::new() })
    }

    /// Several parts of a stored body, with the frames between them.
    pub fn multipart(object: Arc<Object>, parts: Multipart) -> Self {
        let segments = parts.parts.into_iter();
        let segments = segments.flat_map(|(frame, part)| [Segment::Frame(frame.into()), Segment::Part(part)]);
        let then = segments.chain([Segment::Frame(parts.end.into())]).collect();
        Self::new(From::Stored { object, now: 0..0, then })
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

    fn new(from: From) -> Self {
        Self { from, piece: Bytes::new(), trailers: HeaderList::new() }
    }

    /// Waits for the next bytes, or the end. A fetch that fails is a body that breaks off.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, LinkError>> {
        if !self.piece.is_empty() {
            return Poll::Ready(Ok(Received::Data));
        }
        let next = match &mut self.from {
            From::Stored { object, now, then } => stored(object, now, then),
            From::Nothing => None,
            From::Shared { follow, skip, left } => ready!(poll_shared(cx, follow, skip, left))?,
        };
        Poll::Ready(Ok(match next {
            Some(piece) => {
                self.piece = piece;
                Received::Data
            }
            None => Received::End,
        }))
    }

    /// The bytes that have been received and not been consumed.
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

    /// It takes nothing.
    pub fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, LinkError>> {
        Poll::Ready(Err(LinkError::Length))
    }

    /// As [`Self::poll_send`].
    pub fn finish(&mut self, _: &HeaderList) -> Result<(), LinkError> {
        Err(LinkError::Length)
    }

    /// The body is not read any further.
    pub fn abort(&mut self) {
        self.piece = Bytes::new();
    }
}

/// The next bytes of a stored object.
fn stored(object: &Object, now: &mut Range<u64>, then: &mut VecDeque<Segment>) -> Option<Bytes> {
    loop {
        if now.start < now.end {
            let piece = object.body.at(now.start)?;
            let length = (piece.len() as u64).min(now.end - now.start);
            now.start += length;
            // It is no longer than the piece.
            return Some(piece.slice(..length as usize));
        }
        match then.pop_front()? {
            Segment::Frame(frame) => return Some(frame),
            Segment::Part(part) => *now = part,
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
            // A part that the head promised is missing.
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
