//! Padding that is hidden from `h2`, and the flow-control window that the padding used.

use crate::transport::buffer::Buffer;
use crate::transport::frames::kind;

/// The largest increment of a WINDOW_UPDATE (RFC 9113, section 6.9.1).
const LARGEST_WINDOW: u32 = u32::MAX >> 1;

/// The window that padding has used and that is not returned yet.
#[derive(Debug, Default)]
pub(super) struct Padding {
    /// The bytes of the connection's window that padding has used.
    bytes: u32,
    /// The streams with the bytes of their windows that padding has used.
    streams: Vec<(u32, u32)>,
}

impl Padding {
    /// Records a frame's padding. `stream` is `None` if the stream is over.
    pub(super) fn add(&mut self, stream: Option<u32>, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let sum = |bytes: u32| bytes.saturating_add(length).min(LARGEST_WINDOW);
        self.bytes = sum(self.bytes);
        let Some(stream) = stream else { return };
        match self.streams.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, bytes)) => *bytes = sum(*bytes),
            None => self.streams.push((stream, sum(0))),
        }
    }

    /// Appends frames that return the window: for the connection, and for the streams that are still open.
    pub(super) fn give_back(&mut self, out: &mut Buffer, is_open: impl Fn(u32) -> bool) {
        if self.bytes == 0 {
            return;
        }
        let streams = self.streams.drain(..).filter(|(stream, _)| is_open(*stream));
        for (stream, bytes) in streams.chain([(0, std::mem::take(&mut self.bytes))]) {
            out.append(&[0, 0, 4, kind::WINDOW_UPDATE, 0]);
            out.append(&stream.to_be_bytes());
            out.append(&bytes.to_be_bytes());
        }
    }
}
