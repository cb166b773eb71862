//! The body of a stored response.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Pieces below this size are joined when a body is complete: each piece costs about 50 bytes in addition to
/// its content.
const SMALL_PIECE: usize = 4096;
/// The most bytes of a piece that is made by joining.
const CHUNK: usize = 64 * 1024;
/// In bodies up to this length, all pieces below [`CHUNK`] are joined: each piece costs a system call whenever
/// the body is sent.
const SHORT: u64 = 256 * 1024;

/// A complete body, in pieces that readers share.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// `None` if the body is empty.
    shared: Option<Arc<SharedBody>>,
}

#[derive(Debug)]
struct SharedBody {
    pieces: Box<[Bytes]>,
    length: u64,
    holding: Mutex<Holding>,
}

/// The accounting of a body.
#[derive(Debug, Default)]
struct Holding {
    /// The number of entries of the store that have this body.
    entries: usize,
    /// The total size of the bodies that left the store and still have readers. `Some` while this body is
    /// counted in it.
    counted: Option<Arc<AtomicUsize>>,
}

impl Body {
    /// Makes a body of its pieces. Each piece has to be its own allocation ([`Bytes::copy_from_slice`]): a slice of
    /// a larger buffer would keep the whole buffer in memory, and no limit would count it.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let small = if length <= SHORT && pieces.len() > 1 { CHUNK } else { SMALL_PIECE };
        let mut joined: Vec<Bytes> = Vec::with_capacity(pieces.len());
        let mut open = BytesMut::new();
        let close = |open: &mut BytesMut, joined: &mut Vec<Bytes>| {
            if !open.is_empty() {
                joined.push(Bytes::copy_from_slice(open));
                open.clear();
            }
        };
        for piece in pieces {
            if piece.len() >= small {
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
        if joined.is_empty() {
            return Self::default();
        }
        let pieces = joined.into_boxed_slice();
        Self { shared: Some(Arc::new(SharedBody { pieces, length, holding: Mutex::default() })) }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.length)
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.shared.is_none()
    }

    /// The pieces in order, none of them empty.
    pub fn pieces(&self) -> &[Bytes] {
        self.shared.as_ref().map_or(&[], |shared| &shared.pieces)
    }

    /// Takes the pieces out of the body if it has no other holder. Otherwise the result is empty.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
        let Some(shared) = self.shared.as_mut().and_then(Arc::get_mut) else { return Vec::new() };
        let memory = shared.memory();
        if let Some(sum) = shared.holding.get_mut().counted.take() {
            sum.fetch_sub(memory, Ordering::Relaxed);
        }
        std::mem::take(&mut shared.pieces).into_vec()
    }

    /// The piece that begins at this offset, or the rest of the piece that contains it. `None` at the end.
    pub fn at(&self, offset: u64) -> Option<Bytes> {
        piece_at(self.pieces().iter(), offset)
    }

    /// A part of the body, in pieces. It is shorter than the range if the body ends earlier.
    pub fn part(&self, range: Range<u64>) -> impl Iterator<Item = Bytes> {
        let mut start = 0;
        self.pieces().iter().filter_map(move |piece| {
            let (first, end) = (start, start + piece.len() as u64);
            start = end;
            let (from, to) = (range.start.max(first), range.end.min(end));
            // Both bounds lie within the piece, so they fit its length.
            (from < to).then(|| piece.slice((from - first) as usize..(to - first) as usize))
        })
    }

    /// Bytes of memory, including the overhead of the pieces.
    pub(crate) fn memory(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.memory())
    }

    /// Notes that an entry of a store has this body.
    pub(crate) fn enter(&self) {
        let Some(shared) = &self.shared else { return };
        let holding = &mut *shared.holding.lock();
        holding.entries += 1;
        if let Some(sum) = holding.counted.take() {
            sum.fetch_sub(shared.memory(), Ordering::Relaxed);
        }
    }

    /// Records that an entry with this body has left its store. Once no entry has the body any more, `sum` includes
    /// the size of the body until the last reader of the body has gone.
    pub(crate) fn leave(&self, sum: &Arc<AtomicUsize>) {
        let Some(shared) = &self.shared else { return };
        let holding = &mut *shared.holding.lock();
        holding.entries = holding.entries.saturating_sub(1);
        if holding.entries == 0 && holding.counted.is_none() {
            sum.fetch_add(shared.memory(), Ordering::Relaxed);
            holding.counted = Some(Arc::clone(sum));
        }
    }
}

impl SharedBody {
    fn memory(&self) -> usize {
        let each = size_of::<Bytes>() + ALLOCATION + SHARED;
        self.length as usize
            + self.pieces.len() * each
            + size_of::<Self>()
            + 2 * size_of::<usize>()
            + ALLOCATION
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        let memory = self.memory();
        if let Some(sum) = &self.holding.get_mut().counted {
            sum.fetch_sub(memory, Ordering::Relaxed);
        }
    }
}

/// The overhead of the allocator for each allocation, in bytes, on average.
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
