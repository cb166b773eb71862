//! Pending output of an HTTP/2 origin connection.
//!
//! The library `h2` buffers tens of kilobytes of each body. An origin that opens its windows and does
//! not read could make us buffer this much for each of a hundred requests. So all pending output is
//! counted as memory. Once the pending output of a connection exceeds a bound, its streams wait.
//!
//! Each [`Piece`] of DATA counts until `h2` drops it. Heads and trailers count until their frames
//! have been written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use foregate_wire::HeaderList;
use parking_lot::Mutex;

use crate::limits::pressure::{self, Charge};
use crate::transport::frames::{Frame, kind};

/// The approximate overhead of a frame in `h2`.
const FRAME: usize = 256;
/// The approximate overhead of a head in `h2`, and of each of its fields.
const HEAD: usize = 512;
const FIELD: usize = 128;
/// A stream may always send at least this many bytes at a time, even if less of the bound is left.
const LEAST: usize = 4 * 1024;
/// The amount that a stream may send at a time while others wait for their turn.
const TURN: usize = 16 * 1024;
/// The factor by which a starting stream may exceed the bound: small bodies need not wait behind
/// large ones that take turns.
const BEGINNING: usize = 2;
/// Once at most one part in this many of the bound is used, all waiters are woken. The waiters that were
/// woken one by one have then left most of the room unused.
const LITTLE: usize = 8;

/// The pending output of one connection.
#[derive(Debug, Default)]
pub struct Unsent {
    bytes: AtomicUsize,
    /// True while a stream waits for room.
    awaited: AtomicBool,
    waiting: Mutex<RoomWaiters>,
    heads: Mutex<Heads>,
}

/// The waiters for room, in order.
#[derive(Debug, Default)]
struct RoomWaiters {
    beginning: VecDeque<Waker>,
    amid: VecDeque<Waker>,
}

/// Heads and trailers.
#[derive(Debug, Default)]
struct Heads {
    /// The stream and size of each, in the order in which they were passed to `h2`.
    queued: VecDeque<(u32, usize)>,
    /// Streams with heads that were written before they were counted.
    early: Vec<u32>,
    bytes: usize,
    charge: Charge,
}

impl Unsent {
    /// The number of bytes that a stream may send now. Pending while the bound is exceeded; the stream is
    /// woken when there may be room.
    pub fn poll_room(&self, cx: &mut Context<'_>, begins: bool) -> Poll<usize> {
        if let Some(room) = self.room(begins) {
            return Poll::Ready(room);
        }
        self.register(cx.waker(), begins);
        // Checked again: output that left before the registration woke no waiter.
        self.room(begins).map_or(Poll::Pending, Poll::Ready)
    }

    fn room(&self, begins: bool) -> Option<usize> {
        let limit = pressure::largest_unsent() * if begins { BEGINNING } else { 1 };
        let left = limit.checked_sub(self.bytes.load(Ordering::SeqCst)).filter(|left| *left > 0)?;
        let turn = if self.awaited.load(Ordering::Relaxed) { TURN } else { usize::MAX };
        Some(left.min(turn).max(LEAST))
    }

    fn register(&self, waker: &Waker, begins: bool) {
        let mut waiting = self.waiting.lock();
        let queue = if begins { &mut waiting.beginning } else { &mut waiting.amid };
        if !queue.iter().any(|known| known.will_wake(waker)) {
            queue.push_back(waker.clone());
        }
        self.awaited.store(true, Ordering::SeqCst);
    }

    fn hold(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst).saturating_sub(bytes);
        if self.awaited.load(Ordering::SeqCst) {
            self.wake(left);
        }
    }

    /// Wakes one waiter, because a departing frame usually frees about one stream's worth of budget. Wakes
    /// all waiters when little output is left: later there might be no departing frame to wake them.
    fn wake(&self, left: usize) {
        let limit = pressure::largest_unsent();
        let mut waiting = self.waiting.lock();
        let woken = if left <= limit / LITTLE {
            std::mem::take(&mut *waiting)
        } else {
            let mut woken = RoomWaiters::default();
            if left < limit * BEGINNING {
                woken.beginning.extend(waiting.beginning.pop_front());
            }
            if left < limit && woken.beginning.is_empty() {
                woken.amid.extend(waiting.amid.pop_front());
            }
            woken
        };
        let rest = !waiting.beginning.is_empty() || !waiting.amid.is_empty();
        self.awaited.store(rest, Ordering::SeqCst);
        drop(waiting);
        woken.beginning.into_iter().chain(woken.amid).for_each(Waker::wake);
    }

    /// Counts trailers, and sends them with `send`.
    ///
    /// # Errors
    ///
    /// The bytes could not be sent.
    pub fn send<E>(
        &self,
        stream: u32,
        list: &HeaderList,
        send: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = size(list);
        let mut heads = self.heads.lock();
        heads.push(stream, bytes);
        self.hold(bytes);
        drop(heads);
        let sent = send();
        if sent.is_err() {
            let last = self.heads.lock().remove_last(stream);
            self.release(last);
        }
        sent
    }

    /// Counts a head that was passed to `h2` and opened this stream. Its frames may have been written
    /// already. To be called for all heads of the connection.
    pub fn opened(&self, stream: u32, list: &HeaderList) {
        let bytes = size(list);
        let mut heads = self.heads.lock();
        if let Some(early) = heads.early.iter().position(|early| *early == stream) {
            heads.early.swap_remove(early);
            return;
        }
        heads.push(stream, bytes);
        self.hold(bytes);
    }

    /// Records a frame that was written.
    pub fn sent(&self, frame: &Frame) {
        let left = match frame.kind {
            kind::HEADERS => self.heads.lock().remove_first(frame.stream),
            kind::RST_STREAM => self.heads.lock().remove_all(frame.stream),
            _ => return,
        };
        self.release(left);
    }

    /// Records an arriving frame: `h2` drops the output of a stream that the origin resets.
    pub fn received(&self, frame: &Frame) {
        if frame.kind == kind::RST_STREAM {
            let left = self.heads.lock().remove_all(frame.stream);
            self.release(left);
        }
    }

    /// The approximate memory of all pending output.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The approximate memory of the map that a list becomes in `h2`.
fn size(list: &HeaderList) -> usize {
    HEAD + list.arena_len() + list.len() * FIELD
}

impl Heads {
    fn push(&mut self, stream: u32, bytes: usize) {
        self.queued.push_back((stream, bytes));
        self.count(self.bytes + bytes);
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.charge.set(bytes);
    }

    fn remove(&mut self, at: Option<usize>) -> usize {
        let bytes = at.and_then(|at| self.queued.remove(at)).map_or(0, |(_, bytes)| bytes);
        self.count(self.bytes - bytes);
        bytes
    }

    fn remove_first(&mut self, stream: u32) -> usize {
        let first = self.queued.iter().position(|(queued, _)| *queued == stream);
        if first.is_none() {
            self.early.push(stream);
        }
        self.remove(first)
    }

    fn remove_last(&mut self, stream: u32) -> usize {
        let last = self.queued.iter().rposition(|(queued, _)| *queued == stream);
        self.remove(last)
    }

    fn remove_all(&mut self, stream: u32) -> usize {
        let before = self.bytes;
        while self.queued.iter().any(|(queued, _)| *queued == stream) {
            self.remove_last(stream);
        }
        before - self.bytes
    }
}

/// A piece of a body that is passed to `h2`.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    charge: Charge,
    unsent: Option<Arc<Unsent>>,
}

impl Piece {
    /// A copy of `data`, counted for as long as it lives.
    pub fn new(data: &[u8], unsent: Option<&Arc<Unsent>>) -> Self {
        let mut charge = Charge::new();
        charge.set(data.len() + FRAME);
        if let Some(unsent) = unsent {
            unsent.hold(charge.bytes());
        }
        Self { bytes: Bytes::copy_from_slice(data), charge, unsent: unsent.cloned() }
    }

    /// The end of a body.
    pub const fn end() -> Self {
        Self { bytes: Bytes::new(), charge: Charge::new(), unsent: None }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(unsent) = &self.unsent {
            unsent.release(self.charge.bytes());
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;
    use crate::transport::frames::flag;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn times(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn frame(kind: u8, stream: u32) -> Frame {
        Frame { length: 10, kind, flags: flag::END_HEADERS, stream, payload: [0; 4] }
    }

    fn head() -> HeaderList {
        let mut list = HeaderList::new();
        list.push(b"a", &[b'a'; 10_000]);
        list
    }

    #[test]
    fn a_piece_is_held_for_as_long_as_it_lives() {
        let unsent = Arc::new(Unsent::default());
        let mut piece = Piece::new(&[1; 10_000], Some(&unsent));
        assert_eq!(unsent.held(), 10_000 + FRAME);
        piece.advance(9_000);
        let rest = piece.take(500);
        assert_eq!(unsent.held(), 10_000 + FRAME, "its memory is one");
        drop(rest);
        assert_eq!(unsent.held(), 0);
    }

    #[test]
    fn heads_are_held_until_their_frames_leave_or_their_stream_is_reset() {
        let unsent = Unsent::default();
        let one = size(&head());
        for stream in [1, 3, 5, 7] {
            unsent.opened(stream, &head());
        }
        for stream in [1, 5] {
            unsent.send(stream, &head(), || Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(unsent.send(1, &head(), || Err(())), Err(()));
        assert!(unsent.held() == 6 * one && unsent.heads.lock().charge.bytes() == 6 * one);
        unsent.sent(&frame(kind::HEADERS, 1));
        unsent.sent(&frame(kind::DATA, 1));
        unsent.sent(&frame(kind::CONTINUATION, 1));
        unsent.sent(&frame(kind::HEADERS, 9));
        assert_eq!(unsent.held(), 5 * one);
        unsent.sent(&frame(kind::RST_STREAM, 5));
        unsent.received(&frame(kind::RST_STREAM, 7));
        assert_eq!(unsent.held(), 2 * one);
        unsent.sent(&frame(kind::HEADERS, 1));
        assert_eq!(unsent.held(), one);
        unsent.sent(&frame(kind::HEADERS, 3));
        assert!(unsent.held() == 0 && unsent.heads.lock().charge.bytes() == 0);
    }

    #[test]
    fn a_head_may_leave_before_it_is_told_of() {
        let unsent = Unsent::default();
        unsent.sent(&frame(kind::HEADERS, 1));
        unsent.opened(3, &head());
        unsent.opened(1, &head());
        assert_eq!(unsent.held(), size(&head()));
        unsent.sent(&frame(kind::HEADERS, 3));
        assert!(unsent.held() == 0 && unsent.heads.lock().early.is_empty());
    }

    #[test]
    fn who_finds_no_room_is_woken_as_output_leaves() {
        let unsent = Arc::new(Unsent::default());
        let limit = pressure::largest_unsent();
        let woken = [(); 4].map(|()| Arc::new(Woken::default()));
        let wakers = woken.clone().map(Waker::from);
        let poll =
            |who: usize, begins| unsent.poll_room(&mut Context::from_waker(&wakers[who]), begins).is_ready();
        let times = || woken.clone().map(|woken| woken.times());
        let fill = |bytes: usize| Piece::new(&vec![0; bytes - FRAME], Some(&unsent));
        let first = fill(limit - 1);
        assert!(poll(0, false));
        let mut more = vec![fill(TURN), fill(TURN), fill(TURN)];
        for _ in 0..2 {
            assert!(!poll(0, false) && !poll(1, false));
        }
        assert!(poll(2, true), "who begins");
        let last = fill(limit);
        assert!(!poll(2, true) && !poll(3, true));
        more.pop();
        assert_eq!(times(), [0; 4], "there is no room");
        drop(last);
        assert_eq!(times(), [0, 0, 1, 0]);
        more.pop();
        assert_eq!(times(), [0, 0, 1, 1]);
        more.pop();
        assert_eq!(times(), [1, 0, 1, 1]);
        assert!(!poll(0, true) || !poll(0, false) || unsent.held() < limit);
        drop(first);
        assert_eq!(times()[1], 1, "the last to leave wakes all who are left");
        assert!(!unsent.awaited.load(Ordering::Relaxed) && unsent.held() == 0);
    }

    #[test]
    fn where_others_wait_pieces_are_smaller() {
        let unsent = Arc::new(Unsent::default());
        let waker = Waker::noop();
        let mut cx = Context::from_waker(waker);
        assert!(matches!(unsent.poll_room(&mut cx, false), Poll::Ready(room) if room > TURN));
        let held = Piece::new(&vec![0; pressure::largest_unsent()], Some(&unsent));
        assert!(unsent.poll_room(&mut cx, false).is_pending());
        assert_eq!(unsent.poll_room(&mut cx, true), Poll::Ready(TURN));
        drop(held);
    }
}
