//! The body of a stored response.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Pieces below this size are joined when a body is complete: each piece costs some 50 bytes beside its content.
const SMALL_PIECE: usize = 4096;
/// The longest piece that joining makes.
const CHUNK: usize = 64 * 1024;

/// A complete body, in pieces that readers share.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pieces: Box<[Bytes]>,
    length: u64,
}

impl Body {
    /// Makes a body of its pieces. They have to be allocations of their own ([`Bytes::copy_from_slice`]): a slice of a larger buffer
    /// would keep all of that in memory, which nothing counts.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut joined: Vec<Bytes> = Vec::with_capacity(pieces.len());
        let mut open = BytesMut::new();
        let close = |open: &mut BytesMut, joined: &mut Vec<Bytes>| {
            if !open.is_empty() {
                joined.push(Bytes::copy_from_slice(open));
                open.clear();
            }
        };
        for piece in pieces {
            if piece.len() >= SMALL_PIECE {
                close(&mut open, &mut joined);
                joined.push(piece);
                continue;
            }
            if open.len() + piece.len() > CHUNK {
                close(&mut open, &mut joined);
            }
            open.extend_from_slice(&piece);
        }
        close(&mut open, &mut joined);
        Self { pieces: joined.into_boxed_slice(), length }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces in order, none of them empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The piece that begins at this offset, or the rest of the one that holds it. `None` at the end.
    pub fn at(&self, offset: u64) -> Option<Bytes> {
        piece_at(self.pieces.iter(), offset)
    }

    /// A part, in pieces. It ends early where the body does.
    pub fn part(&self, range: Range<u64>) -> impl Iterator<Item = Bytes> {
        let mut start = 0;
        self.pieces.iter().filter_map(move |piece| {
            let (first, end) = (start, start + piece.len() as u64);
            start = end;
            let (from, to) = (range.start.max(first), range.end.min(end));
            // Both lie within the piece, so they fit its length.
            (from < to).then(|| piece.slice((from - first) as usize..(to - first) as usize))
        })
    }

    /// Bytes of memory, those beside the content included.
    pub(crate) fn memory(&self) -> usize {
        let content: usize = self.pieces.iter().map(Bytes::len).sum();
        content + self.pieces.len() * (size_of::<Bytes>() + ALLOCATION + SHARED)
    }
}

/// Bytes that the allocator needs for each allocation, on average.
pub(crate) const ALLOCATION: usize = 16;
/// Bytes of the counter that clones of a piece share.
const SHARED: usize = 40;

/// The rest of the piece that holds this offset.
pub(crate) fn piece_at<'a>(pieces: impl Iterator<Item = &'a Bytes>, offset: u64) -> Option<Bytes> {
    let mut start = 0;
    for piece in pieces {
        let end = start + piece.len() as u64;
        if offset < end {
            return Some(piece.slice((offset - start) as usize..));
        }
        start = end;
    }
    None
}
