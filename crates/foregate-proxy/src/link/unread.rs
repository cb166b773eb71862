//! Unread bodies of an HTTP/2 origin connection.
//!
//! Windows bound the bytes of bodies, but not the number of their frames. Each waiting frame takes
//! memory in `h2`: a frame of one byte costs hundreds of bytes. So bytes and frames are counted for
//! each stream, and a stream with many waiting frames takes them out of `h2` and joins their bytes.

use std::collections::HashMap;
use std::task::Waker;

use parking_lot::Mutex;

use crate::limits::pressure::Charge;
use crate::transport::frames::{Frame, flag, kind};

/// The approximate overhead of a DATA frame in `h2`.
const FRAME: usize = 256;
/// The approximate overhead of trailers in `h2`.
const TRAILERS: usize = 1024;
/// If more than this many frames of one stream wait, they are joined.
const MANY: usize = 32;
/// The most streams that are counted. `h2` has fewer of them at a time.
const STREAMS: usize = 4096;

/// The unread input of one connection.
#[derive(Debug, Default)]
pub struct Unread(Mutex<UnreadStreams>);

#[derive(Debug, Default)]
struct UnreadStreams {
    /// The streams that have a reader or may still get input.
    streams: HashMap<u32, UnreadInput>,
    bytes: usize,
    frames: usize,
    trailers: usize,
    /// The approximate memory of all unread input. Each input and each read updates it, because on a
    /// silent connection no other event could.
    charge: Charge,
}

/// The unread input of one stream.
#[derive(Debug, Default)]
struct UnreadInput {
    bytes: usize,
    frames: usize,
    /// The memory of trailers after the waiting body.
    trailers: usize,
    /// True once the origin has ended the stream.
    ended: bool,
    /// True if the stream has no reader any more: further input is dropped at once.
    gone: bool,
    /// The task that joins frames.
    reader: Option<Waker>,
}

impl Unread {
    /// Records a stream on which the origin will send. Frames of unknown streams are not counted.
    pub fn opened(&self, stream: u32) {
        self.0.lock().open(stream);
    }

    /// Records a frame that has arrived. For a padded DATA frame, `frame` must contain the padding's length.
    pub fn received(&self, frame: &Frame) {
        let ends = matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(flag::END_STREAM);
        match frame.kind {
            kind::DATA if ends || frame.content() > 0 => self.come(frame, ends),
            kind::HEADERS if ends => self.come(frame, ends),
            kind::CONTINUATION => self.0.lock().go_on(frame),
            kind::RST_STREAM => self.0.lock().remove(frame.stream),
            _ => {}
        }
    }

    fn come(&self, frame: &Frame, ends: bool) {
        let reader = self.0.lock().come(frame, ends);
        // Woken outside of the lock, because the task may take the lock.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Records a frame that was sent.
    pub fn sent(&self, frame: &Frame) {
        if frame.kind == kind::RST_STREAM {
            self.0.lock().remove(frame.stream);
        }
    }

    /// The approximate memory of all unread input.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.0.lock().charge.bytes()
    }

    /// Records that the reader of a stream has taken a frame.
    pub(super) fn took_frame(&self, stream: u32) {
        self.0.lock().take(stream, 0, 1);
    }

    /// Records that the reader of a stream has consumed this many bytes.
    pub(super) fn took(&self, stream: u32, bytes: usize) {
        self.0.lock().take(stream, bytes, 0);
    }

    /// Returns true if the origin's complete output on a stream, with its end, has arrived and been
    /// taken. Returns false for a stream that was reset.
    pub(super) fn has_given_all(&self, stream: u32) -> bool {
        self.0.lock().streams.get(&stream).is_some_and(|waiting| waiting.ended && waiting.is_empty())
    }

    /// Records that a stream has no reader any more.
    pub(super) fn forget(&self, stream: u32) {
        self.0.lock().forget(stream);
    }

    /// Returns true if so many frames wait for a stream that they should be joined. If not,
    /// `reader` is woken when there are that many.
    pub(super) fn is_many(&self, stream: u32, reader: &Waker) -> bool {
        let mut streams = self.0.lock();
        let Some(waiting) = streams.streams.get_mut(&stream) else { return false };
        if waiting.frames <= MANY && !waiting.ended {
            match &mut waiting.reader {
                Some(known) if known.will_wake(reader) => {}
                known => *known = Some(reader.clone()),
            }
        }
        waiting.frames > MANY
    }
}

impl UnreadInput {
    fn is_empty(&self) -> bool {
        self.frames == 0 && self.bytes == 0 && self.trailers == 0
    }
}

impl UnreadStreams {
    fn open(&mut self, stream: u32) {
        if self.streams.len() < STREAMS {
            self.streams.entry(stream).or_default();
        }
    }

    /// Counts input; returns the task to wake.
    fn come(&mut self, frame: &Frame, ends: bool) -> Option<Waker> {
        let waiting = self.streams.get_mut(&frame.stream)?;
        if frame.kind == kind::DATA && !waiting.gone && !waiting.ended {
            waiting.bytes += frame.content();
            waiting.frames += 1;
            self.bytes += frame.content();
            self.frames += 1;
        }
        // Trailers, or the head of a response without a body.
        if frame.kind == kind::HEADERS && !waiting.gone && !waiting.ended {
            waiting.trailers = frame.length + TRAILERS;
            self.trailers += waiting.trailers;
        }
        waiting.ended |= ends;
        let reader = if waiting.frames > MANY { waiting.reader.take() } else { None };
        if waiting.ended && waiting.gone {
            self.streams.remove(&frame.stream);
        }
        self.count();
        reader
    }

    /// Counts a further frame of a header block.
    fn go_on(&mut self, frame: &Frame) {
        if let Some(waiting) = self.streams.get_mut(&frame.stream)
            && waiting.trailers > 0
        {
            waiting.trailers += frame.length;
            self.trailers += frame.length;
            self.count();
        }
    }

    fn take_trailers(&mut self, stream: u32) {
        if let Some(waiting) = self.streams.get_mut(&stream) {
            self.trailers -= std::mem::take(&mut waiting.trailers);
            self.take(stream, 0, 0);
        }
    }

    fn take(&mut self, stream: u32, bytes: usize, frames: usize) {
        let Some(waiting) = self.streams.get_mut(&stream) else { return };
        let (bytes, frames) = (bytes.min(waiting.bytes), frames.min(waiting.frames));
        waiting.bytes -= bytes;
        waiting.frames -= frames;
        self.bytes -= bytes;
        self.frames -= frames;
        self.count();
    }

    fn count(&mut self) {
        self.charge.set(self.bytes + self.frames * FRAME + self.trailers);
    }

    fn forget(&mut self, stream: u32) {
        self.take_trailers(stream);
        self.take(stream, usize::MAX, usize::MAX);
        match self.streams.get_mut(&stream) {
            Some(waiting) if waiting.ended => drop(self.streams.remove(&stream)),
            // The entry stays: input may arrive until the stream has been reset.
            Some(waiting) => {
                waiting.gone = true;
                waiting.reader = None;
            }
            None => {}
        }
    }

    fn remove(&mut self, stream: u32) {
        self.take_trailers(stream);
        self.take(stream, usize::MAX, usize::MAX);
        self.streams.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Frame {
        Frame { length, kind, flags, stream, payload: [0; 4] }
    }

    #[test]
    fn what_waits_is_counted_until_it_is_taken_or_nobody_is_left() {
        let unread = Unread::default();
        let frames = || unread.0.lock().frames;
        unread.received(&frame(kind::DATA, 0, 1, 10));
        assert_eq!(unread.held(), 0, "a stream that nobody opened");
        for stream in [1, 3, 5, 7] {
            unread.opened(stream);
            unread.received(&frame(kind::DATA, 0, stream, 10));
            unread.received(&frame(kind::DATA, 0, stream, 0));
            unread.received(&frame(kind::DATA, flag::PADDED, stream, 11));
        }
        assert_eq!((unread.held(), frames()), (4 * (20 + 2 * FRAME), 8));
        unread.took_frame(1);
        unread.took(1, 15);
        assert_eq!((unread.held(), frames()), (4 * 20 - 15 + 7 * FRAME, 7));
        unread.forget(3);
        unread.received(&frame(kind::DATA, 0, 3, 10));
        unread.sent(&frame(kind::RST_STREAM, 0, 5, 4));
        unread.received(&frame(kind::RST_STREAM, 0, 7, 4));
        assert_eq!((unread.held(), frames()), (5 + FRAME, 1));
        unread.received(&frame(kind::DATA, flag::END_STREAM, 1, 0));
        unread.received(&frame(kind::HEADERS, flag::END_STREAM, 3, 10));
        assert_eq!(unread.0.lock().streams.len(), 1);
        unread.took(1, 5);
        unread.took_frame(1);
        assert!(!unread.has_given_all(1), "its end waits");
        unread.took_frame(1);
        assert!(unread.has_given_all(1) && [3, 5, 7, 9].iter().all(|stream| !unread.has_given_all(*stream)));
        unread.forget(1);
        assert!(unread.held() == 0 && unread.0.lock().streams.is_empty());
    }

    #[test]
    fn trailers_are_held_until_they_are_taken() {
        let unread = Unread::default();
        for stream in [1, 3, 5, 7] {
            unread.opened(stream);
            // More of the head arrives.
            unread.received(&frame(kind::CONTINUATION, flag::END_HEADERS, stream, 1000));
            unread.received(&frame(kind::HEADERS, flag::END_STREAM, stream, 1000));
            unread.received(&frame(kind::CONTINUATION, flag::END_HEADERS, stream, 500));
        }
        let one = 1500 + TRAILERS;
        assert_eq!(unread.held(), 4 * one);
        assert!(!unread.has_given_all(1));
        unread.forget(1);
        unread.forget(3);
        unread.sent(&frame(kind::RST_STREAM, 0, 5, 4));
        assert_eq!((unread.held(), unread.0.lock().streams.len()), (one, 1));
        unread.received(&frame(kind::DATA, flag::END_STREAM, 7, 10));
        assert_eq!(unread.held(), one, "nothing comes behind the end");
        unread.forget(7);
        assert!(unread.held() == 0 && unread.0.lock().streams.is_empty());
    }

    #[test]
    fn what_is_taken_is_not_held_though_nothing_more_comes() {
        let unread = Unread::default();
        unread.opened(1);
        unread.received(&frame(kind::DATA, 0, 1, 10_000));
        unread.took_frame(1);
        assert_eq!(unread.held(), 10_000);
        unread.took(1, 10_000);
        assert_eq!(unread.held(), 0);
    }

    #[test]
    fn a_reader_is_woken_when_much_waits() {
        struct Woken(std::sync::atomic::AtomicU32);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(0.into()));
        let (unread, waker) = (Unread::default(), Waker::from(woken.clone()));
        unread.opened(1);
        assert!(!unread.is_many(1, &waker) && !unread.is_many(3, &waker));
        for _ in 0..MANY {
            unread.received(&frame(kind::DATA, 0, 1, 1));
        }
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed) == 0 && !unread.is_many(1, &waker));
        for _ in 0..2 {
            unread.received(&frame(kind::DATA, 0, 1, 1));
        }
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed) == 1 && unread.is_many(1, &waker));
    }
}
